// The sum by blocks without its tree: one thread of a block adds up what all of them brought. It has as
// many additions as the tree, and is kept to show that their number is not what counts.
#pragma once

#include "../parts/pixels.cuh"

namespace first_kernel {

constexpr int kSerialThreads = 256;  // per block

__global__ void sum_serial_kernel(const unsigned char* grey,  // [pixels]
                                  unsigned* sum,              // [1]
                                  int pixels) {
  __shared__ unsigned values[kSerialThreads];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  values[threadIdx.x] = i < pixels ? grey[i] : 0;
  __syncthreads();
  if (threadIdx.x > 0) return;

  // 255 threads are done, and one adds.
  unsigned total = 0;
  for (int k = 0; k < kSerialThreads; ++k) total += values[k];
  atomicAdd(sum, total);
}

// sum = 0, and then all pixels. Throws as sum_blocks does.
inline void sum_serial(const unsigned char* grey, unsigned* sum, const Shape& shape,
                       cudaStream_t stream) {
  require_arguments(shape, grey, sum);
  require_done(cudaMemsetAsync(sum, 0, sizeof(unsigned), stream), shape);
  sum_serial_kernel<<<blocks_for(shape.pixels(), kSerialThreads), kSerialThreads, 0, stream>>>(
      grey, sum, int(shape.pixels()));
  require_done(cudaGetLastError(), shape);
}

}  // namespace first_kernel
