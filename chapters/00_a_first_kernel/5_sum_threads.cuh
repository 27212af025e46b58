// The sum by threads: every thread adds its pixel to one number, as an atomic operation.
#pragma once

#include "parts/pixels.cuh"

namespace first_kernel {

constexpr int kAddThreads = 256;  // per block

__global__ void sum_threads_kernel(const unsigned char* grey,  // [pixels]
                                   unsigned* sum,              // [1]
                                   int pixels) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= pixels) return;

  // Load, add and store in one: nobody comes in between.
  atomicAdd(sum, unsigned(grey[i]));
}

// sum = 0, and then all pixels. Throws std::invalid_argument naming the shape and the limit when it
// cannot, std::runtime_error when CUDA refuses.
inline void sum_threads(const unsigned char* grey, unsigned* sum, const Shape& shape,
                        cudaStream_t stream) {
  require_arguments(shape, grey, sum);
  require_done(cudaMemsetAsync(sum, 0, sizeof(unsigned), stream), shape);
  sum_threads_kernel<<<blocks_for(shape.pixels(), kAddThreads), kAddThreads, 0, stream>>>(
      grey, sum, int(shape.pixels()));
  require_done(cudaGetLastError(), shape);
}

}  // namespace first_kernel
