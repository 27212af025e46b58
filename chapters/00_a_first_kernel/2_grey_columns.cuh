// Grey by columns: one thread for each pixel, neighbouring lanes one below the other.
#pragma once

#include "parts/pixels.cuh"

namespace first_kernel {

constexpr dim3 kColumnBlock(32, 8);  // 32 lanes of a warp along y, 8 warps along x

__global__ void grey_columns_kernel(const unsigned char* photo,  // [3, height, width]
                                    unsigned char* grey,         // [height, width]
                                    int height, int width) {
  // Which pixel is mine? threadIdx.x is the lane: it counts rows.
  const int x = blockIdx.x * blockDim.y + threadIdx.y;
  const int y = blockIdx.y * blockDim.x + threadIdx.x;

  // The last blocks reach over the photo's edge.
  if (x >= width || y >= height) return;

  const int pixel = y * width + x, plane = height * width;
  grey[pixel] = brightness(photo[pixel], photo[plane + pixel], photo[2 * plane + pixel]);
}

// Throws std::invalid_argument naming the shape and the limit when it cannot, std::runtime_error when
// CUDA refuses.
inline void grey_columns(const unsigned char* photo, unsigned char* grey, const Shape& shape,
                         cudaStream_t stream) {
  require_arguments(shape, photo, grey);
  const dim3 grid(blocks_for(shape.width, kColumnBlock.y),
                  blocks_for(shape.height, kColumnBlock.x));
  grey_columns_kernel<<<grid, kColumnBlock, 0, stream>>>(photo, grey, shape.height, shape.width);
  require_done(cudaGetLastError(), shape);
}

}  // namespace first_kernel
