// A blur: one thread for each pixel, which becomes the mean of the 9 x 9 pixels around it.
#pragma once

#include "parts/pixels.cuh"

namespace first_kernel {

constexpr dim3 kBlurBlock(32, 8);  // lanes of a warp along x

__global__ void blur_kernel(const unsigned char* grey,  // [height, width]
                            unsigned char* blurred,     // [height, width]
                            int height, int width) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;

  // The window ends where the photo does.
  const int left = max(x - kRadius, 0), right = min(x + kRadius, width - 1);
  const int top = max(y - kRadius, 0), bottom = min(y + kRadius, height - 1);

  int sum = 0;
  for (int row = top; row <= bottom; ++row)
    for (int column = left; column <= right; ++column) sum += grey[row * width + column];

  const int count = (right - left + 1) * (bottom - top + 1);
  blurred[y * width + x] = (2 * sum + count) / (2 * count);  // rounded
}

// Throws std::invalid_argument naming the shape and the limit when it cannot, std::runtime_error when
// CUDA refuses.
inline void blur(const unsigned char* grey, unsigned char* blurred, const Shape& shape,
                 cudaStream_t stream) {
  require_arguments(shape, grey, blurred);
  const dim3 grid(blocks_for(shape.width, kBlurBlock.x), blocks_for(shape.height, kBlurBlock.y));
  blur_kernel<<<grid, kBlurBlock, 0, stream>>>(grey, blurred, shape.height, shape.width);
  require_done(cudaGetLastError(), shape);
}

}  // namespace first_kernel
