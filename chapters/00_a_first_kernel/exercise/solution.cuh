// STARTER
//| // Exercise 0, from an empty function: how many pixels have which brightness.
//| //
//| //   counts[b] = the number of pixels of grey that are b, for b from 0 to 255
//| //
//| // These are 256 sums. A pixel says to which one it belongs. As in the chapter, there must be few
//| // additions to memory that all blocks share.
//| //
//| // Nothing is given but the function. Kernel, grid and launch are yours. Then
//| // `make exercise0 && ./run` grades it: 30 points for right results, 20 for no finding of any check, and
//| // 50 for
//| //
//| //   10  grey: loaded once
//| //   10  grey: in as few sectors as hold it
//| //   20  counts: few additions in the memory that all blocks share, at most 1 byte for each pixel
//| //   10  blocks for many SMs: at least 16, for 256 x 256 pixels
// SOLUTION
// Exercise 0, a histogram: a solution. The exercise itself is in exercise.cuh.
//
// A block counts its 2048 pixels in shared memory, where only its own threads wait for each other. Then
// each thread adds one of the block's 256 counts to those of all blocks.
// END
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "../shape.h"

namespace exercise {

// SOLUTION
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
// END

// counts[b] = the number of pixels that are b.
//   grey     [height, width] bytes, contiguous, on the device
//   counts   [256] fp32, which holds whole numbers exactly up to 2^24; full of NaN when this is called
//   shape    height and width, at least 1 and at most 2^24 pixels
//   stream   for all that is launched
inline void histogram(const unsigned char* grey, float* counts, const PhotoShape& shape,
                      cudaStream_t stream) {
  // STARTER
  //| // HOLE: all of it. Kernels go above this function, their launches here.
  //| (void)grey, (void)counts, (void)shape, (void)stream;
  // SOLUTION
  const int pixels = int(shape.pixels()), blocks = (pixels + kPixels - 1) / kPixels;
  cudaMemsetAsync(counts, 0, kBins * sizeof(float), stream);
  histogram_kernel<<<blocks, kThreads, 0, stream>>>(grey, counts, pixels);
  // END
}

}  // namespace exercise
// STARTER
//|
//| // Hints, one after the other: go on to the next when you are stuck.
//| //
//| // 1. Begin with one thread for each pixel and one atomicAdd to counts: that is right, and worth more
//| //    than half of the points. What must stand in counts before the first addition? cudaMemsetAsync
//| //    sets bytes to 0, and four bytes of 0 are 0.0f.
//| // 2. grey is one long row of height * width bytes here. Nobody needs x and y.
//| // 3. A block can have 256 counts of its own in shared memory. Who sets them to 0, and what must all
//| //    threads wait for before the first one adds to them?
//| // 4. At the end a block adds its counts to those of all: 256 additions of 4 bytes. How many pixels
//| //    must a block have, so that these bytes are no more than its pixels? A loop lets each thread
//| //    take several.
//| // 5. Which pixels does a thread take in that loop? In every round neighbouring lanes want neighbouring
//| //    bytes.
//| // 6. atomicAdd takes unsigned int as well as float. In shared memory the first is one operation, the
//| //    second a loop.
// END
