// A whole kernel in the words of tile.cuh, for common/tile/README.md: a product of any m and n.
#pragma once
#include "tile/tile.cuh"

namespace tile_example {

// y [m, n] = x [m, k] wᵀ, w [n, k]; k a multiple of 64. A block is one warp and makes 16 x 16 sums.
__global__ void product(const half* x, const half* w, float* y, int m, int n, int k) {
  __shared__ tile::SharedTile<half, 16, 64, tile::Swizzled> x_tile[3], w_tile[3];
  const int lane = threadIdx.x, first_row = blockIdx.y * 16, first_column = blockIdx.x * 16;

  // A slice of 64 columns of x and w, 8 pieces of 16 bytes in each of 16 rows.
  const auto fill = [&](int stage, int slice) {
    for (int i = lane; i < 16 * 8; i += 32) {
      const int row = i / 8, piece = i % 8, column = slice + piece * 8;
      const int x_row = first_row + row, w_row = first_column + row;
      tile::copy_async(x_tile[stage].address(row, piece), x + int64_t(x_row) * k + column,
                       x_row < m && slice < k);
      tile::copy_async(w_tile[stage].address(row, piece), w + int64_t(w_row) * k + column,
                       w_row < n && slice < k);
    }
    tile::end_copies();
  };

  tile::Sums sums[2];  // columns 0 to 7 and 8 to 15
  tile::Stages<3> stages;
  for (int ahead = 0; ahead < stages.kAhead; ++ahead) fill(ahead, ahead * 64);
  for (int slice = 0; slice < k; slice += 64) {
    stages.wait();
    fill(stages.write, slice + stages.kAhead * 64);
    for (unsigned piece = 0; piece < 8; piece += 2) {  // 32 bytes of each row
      tile::LeftFragment<half> left;
      tile::RightFragment<half> right[2];
      tile::load_left(left, x_tile[stages.read], 0, piece);
      tile::load_right(right, w_tile[stages.read], 0, piece);
      for (int j = 0; j < 2; ++j) tile::multiply_add(sums[j], left, right[j]);
    }
    stages.next();
  }

  for (int j = 0; j < 2; ++j)
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + sums[j].row(lane, i);
      const int column = first_column + 8 * j + sums[j].column(lane, i);
      if (row < m && column < n) y[int64_t(row) * n + column] = sums[j].value[i];
    }
}

}  // namespace tile_example
