// What steps 3 and 4 share: four warps, and rows of one tile with rows of another.
#pragma once

#include "../../../common/tile/tile.cuh"

namespace gradients {

constexpr int kWarps = 4, kThreads = 32 * kWarps;

// sums += left rightᵀ: rows of one tile from `left_row` on with rows of another from `row` on.
template <int kBlocks, int kPairs, class Left, class Right>
__device__ void multiply_rows(tile::Sums (&sums)[kBlocks][kPairs], const Left& left,
                              unsigned left_row, const Right& right, unsigned row) {
#pragma unroll
  for (int d = 0; d < Left::kColumns / 16; ++d) {
    tile::LeftFragment<half> left_frag[kBlocks];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) tile::load_left(left_frag[b], left, left_row + 16 * b, 2 * d);
#pragma unroll
    for (int j = 0; j < kPairs; j += 2) {
      tile::RightFragment<half> right_frag[2];
      tile::load_right(right_frag, right, row + 8 * j, 2 * d);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        tile::multiply_add(sums[b][j], left_frag[b], right_frag[0]);
        tile::multiply_add(sums[b][j + 1], left_frag[b], right_frag[1]);
      }
    }
  }
}

}  // namespace gradients
