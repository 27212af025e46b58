// A sum that is wrong: every thread adds to one number, and nobody waits for anybody. It is kept to be
// found: by the result, and by the virtual GPU's check for races.
#pragma once

#include "parts/pixels.cuh"

namespace first_kernel {

constexpr int kRaceThreads = 256;  // per block

__global__ void race_kernel(const unsigned char* grey,  // [pixels]
                            unsigned* sum,              // [1]
                            int pixels) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= pixels) return;

  // Three instructions: load, add, store. Between a thread's load and its store others store, too.
  *sum += grey[i];
}

// The sum of fewer pixels than there are. Throws as sum_threads does.
inline void race(const unsigned char* grey, unsigned* sum, const Shape& shape,
                 cudaStream_t stream) {
  require_arguments(shape, grey, sum);
  require_done(cudaMemsetAsync(sum, 0, sizeof(unsigned), stream), shape);
  race_kernel<<<blocks_for(shape.pixels(), kRaceThreads), kRaceThreads, 0, stream>>>(
      grey, sum, int(shape.pixels()));
  require_done(cudaGetLastError(), shape);
}

}  // namespace first_kernel
