// The sum by blocks: the threads of a block add up in shared memory, and one of them adds the block's
// sum to the number that all share.
#pragma once

#include "parts/pixels.cuh"

namespace first_kernel {

constexpr int kSumThreads = 256;  // per block; a power of two

__global__ void sum_blocks_kernel(const unsigned char* grey,  // [pixels]
                                  unsigned* sum,              // [1]
                                  int pixels) {
  __shared__ unsigned sums[kSumThreads];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;

  // No return at the edge: the barriers below wait for all threads of the block.
  sums[threadIdx.x] = i < pixels ? grey[i] : 0;
  __syncthreads();

  // Half of the threads add what the other half has, until one is left.
  for (int half = kSumThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }

  if (threadIdx.x == 0) atomicAdd(sum, sums[0]);
}

// sum = 0, and then all pixels. Throws std::invalid_argument naming the shape and the limit when it
// cannot, std::runtime_error when CUDA refuses.
inline void sum_blocks(const unsigned char* grey, unsigned* sum, const Shape& shape,
                       cudaStream_t stream) {
  require_arguments(shape, grey, sum);
  require_done(cudaMemsetAsync(sum, 0, sizeof(unsigned), stream), shape);
  sum_blocks_kernel<<<blocks_for(shape.pixels(), kSumThreads), kSumThreads, 0, stream>>>(
      grey, sum, int(shape.pixels()));
  require_done(cudaGetLastError(), shape);
}

}  // namespace first_kernel
