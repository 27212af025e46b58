// The blur from a tile: a block brings the pixels that its threads need to shared memory, once.
#pragma once

#include "parts/pixels.cuh"

namespace first_kernel {

constexpr int kTileWidth = 32, kTileHeight = 8;  // pixels of a block; lanes of a warp along x

__global__ void blur_tile_kernel(const unsigned char* grey,  // [height, width]
                                 unsigned char* blurred,     // [height, width]
                                 int height, int width) {
  constexpr int kRows = kTileHeight + 2 * kRadius, kColumns = kTileWidth + 2 * kRadius;
  __shared__ unsigned char tile[kRows][kColumns];
  const int tile_x = blockIdx.x * kTileWidth - kRadius, tile_y = blockIdx.y * kTileHeight - kRadius;

  // All threads load the tile. Beyond the photo's edges it is 0, which adds nothing.
  for (int row = threadIdx.y; row < kRows; row += kTileHeight)
    for (int column = threadIdx.x; column < kColumns; column += kTileWidth) {
      const int x = tile_x + column, y = tile_y + row;
      const bool inside = x >= 0 && x < width && y >= 0 && y < height;
      tile[row][column] = inside ? grey[y * width + x] : 0;
    }
  __syncthreads();

  const int x = blockIdx.x * kTileWidth + threadIdx.x, y = blockIdx.y * kTileHeight + threadIdx.y;
  if (x >= width || y >= height) return;

  int sum = 0;
  for (int row = 0; row <= 2 * kRadius; ++row)
    for (int column = 0; column <= 2 * kRadius; ++column)
      sum += tile[threadIdx.y + row][threadIdx.x + column];

  const int columns = min(x + kRadius, width - 1) - max(x - kRadius, 0) + 1;
  const int rows = min(y + kRadius, height - 1) - max(y - kRadius, 0) + 1;
  const int count = columns * rows;
  blurred[y * width + x] = (2 * sum + count) / (2 * count);  // rounded
}

// Throws std::invalid_argument naming the shape and the limit when it cannot, std::runtime_error when
// CUDA refuses.
inline void blur_tile(const unsigned char* grey, unsigned char* blurred, const Shape& shape,
                      cudaStream_t stream) {
  require_arguments(shape, grey, blurred);
  const dim3 grid(blocks_for(shape.width, kTileWidth), blocks_for(shape.height, kTileHeight));
  const dim3 block(kTileWidth, kTileHeight);
  blur_tile_kernel<<<grid, block, 0, stream>>>(grey, blurred, shape.height, shape.width);
  require_done(cudaGetLastError(), shape);
}

}  // namespace first_kernel
