// Exercise 0, a histogram: a solution. The exercise itself is in exercise.cuh.
//
// A block counts its 2048 pixels in shared memory, where only its own threads wait for each other. Then
// each thread adds one of the block's 256 counts to those of all blocks.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "../shape.h"

namespace exercise {

constexpr int kBins = 256, kThreads = kBins;  // a thread for each count
constexpr int kPixels = 8 * kThreads;         // per block

__global__ void histogram_kernel(const unsigned char* grey,  // [pixels]
                                 float* counts,              // [256]
                                 int pixels) {
  __shared__ unsigned own[kBins];
  own[threadIdx.x] = 0;
  __syncthreads();

  // Neighbouring lanes, neighbouring bytes, in each of 8 rounds.
  const int first = blockIdx.x * kPixels, end = min(first + kPixels, pixels);
  for (int i = first + threadIdx.x; i < end; i += kThreads) atomicAdd(&own[grey[i]], 1u);
  __syncthreads();

  atomicAdd(&counts[threadIdx.x], float(own[threadIdx.x]));
}

// counts[b] = the number of pixels that are b.
//   grey     [height, width] bytes, contiguous, on the device
//   counts   [256] fp32, which holds whole numbers exactly up to 2^24; full of NaN when this is called
//   shape    height and width, at least 1 and at most 2^24 pixels
//   stream   for all that is launched
inline void histogram(const unsigned char* grey, float* counts, const PhotoShape& shape,
                      cudaStream_t stream) {
  const int pixels = int(shape.pixels()), blocks = (pixels + kPixels - 1) / kPixels;
  cudaMemsetAsync(counts, 0, kBins * sizeof(float), stream);
  histogram_kernel<<<blocks, kThreads, 0, stream>>>(grey, counts, pixels);
}

}  // namespace exercise
