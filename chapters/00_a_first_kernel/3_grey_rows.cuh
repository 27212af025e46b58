// Grey by rows: one thread for each pixel, neighbouring lanes side by side.
#pragma once

#include "parts/pixels.cuh"

namespace first_kernel {

constexpr dim3 kRowBlock(32, 8);  // 32 lanes of a warp along x, 8 warps along y

__global__ void grey_rows_kernel(const unsigned char* photo,  // [3, height, width]
                                 unsigned char* grey,         // [height, width]
                                 int height, int width) {
  // Which pixel is mine? threadIdx.x is the lane: it counts columns.
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;

  // The last blocks reach over the photo's edge.
  if (x >= width || y >= height) return;

  const int pixel = y * width + x, plane = height * width;
  grey[pixel] = brightness(photo[pixel], photo[plane + pixel], photo[2 * plane + pixel]);
}

// Throws std::invalid_argument naming the shape and the limit when it cannot, std::runtime_error when
// CUDA refuses.
inline void grey_rows(const unsigned char* photo, unsigned char* grey, const Shape& shape,
                      cudaStream_t stream) {
  require_arguments(shape, photo, grey);
  const dim3 grid(blocks_for(shape.width, kRowBlock.x), blocks_for(shape.height, kRowBlock.y));
  grey_rows_kernel<<<grid, kRowBlock, 0, stream>>>(photo, grey, shape.height, shape.width);
  require_done(cudaGetLastError(), shape);
}

}  // namespace first_kernel
