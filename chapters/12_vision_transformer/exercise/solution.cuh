// STARTER
//| // Exercise 12, from an empty function: a net without a class token at its end. Many newer nets take the
//| // mean of the patches in its place, and normalize it:
//| //
//| //   m[b] = mean of x[b, p] over the patches p, the class token left out
//| //   y[b] = (m[b] - mean of m[b]) / sqrt(variance of m[b] + epsilon) · scale + bias
//| //
//| // In the chapter's net two launches stand here, "class token" and "norm", with an array between them.
//| // Such launches compute next to nothing, and each costs microseconds. Make one launch of them that
//| // reads each patch once and stores y and nothing else.
//| //
//| // Nothing is given but the function. Kernel, grid and launch are yours. Then
//| // `make exercise12 && ./run` grades it: 30 points for right results, 20 for no finding of any check, and
//| // 50 for
//| //
//| //   15  stores: y, once, and nothing else
//| //   10  one launch
//| //   15  x: each patch loaded once, the class token not at all
//| //   10  loads of x: nearly as few requests as 16 bytes a lane allow
// SOLUTION
// Our solution of exercise 12: the mean of an image's patches, and its LayerNorm, in one launch.
// END
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../shape.h"

namespace exercise {

// STARTER
//| // y[b] = LayerNorm of the mean of x[b, 1], x[b, 2] ... x[b, tokens - 1].
//| //   x            [batch, tokens, width] fp16; token 0 is the class token
//| //   scale, bias  [width] fp16
//| //   y            [batch, width] fp16; all contiguous, on the device, at multiples of 16 bytes
//| //   shape        shape.batch, shape.tokens() (at least 2), shape.width (a multiple of 8, up to 1024),
//| //                shape.epsilon
//| //   stream       for all that is launched
// SOLUTION
constexpr int kThreads = 256;
constexpr int kPiece = 8;  // numbers of 16 bytes

struct alignas(16) Piece {
  half value[kPiece];
};

// The sum over all threads of the block, in all of them.
__device__ inline float sum_of_block(float value) {
  __shared__ float parts[kThreads / 32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0f;
  for (const float part : parts) sum += part;
  __syncthreads();  // parts may be written again
  return sum;
}

// One block: one image. A group of threads has a patch at a time, a thread 8 columns of it.
__global__ void __launch_bounds__(kThreads)
    pooled_norm_kernel(const half* __restrict__ x,      // [batch, tokens, width]
                       const half* __restrict__ scale,  // [width]
                       const half* __restrict__ bias,   // [width]
                       half* __restrict__ y,            // [batch, width]
                       int tokens, int width, float epsilon) {
  __shared__ float sums[kThreads * kPiece];  // [group][column]
  const int pieces = width / kPiece, groups = kThreads / pieces, patches = tokens - 1;
  const int group = threadIdx.x / pieces, piece = threadIdx.x % pieces;
  const int64_t first = (int64_t(blockIdx.x) * tokens + 1) * width;  // behind the class token
  const Piece* const from = reinterpret_cast<const Piece*>(x + first);
  if (group < groups) {
    float sum[kPiece] = {};
#pragma unroll 4
    for (int patch = group; patch < patches; patch += groups) {
      const Piece one = from[int64_t(patch) * pieces + piece];
      for (int e = 0; e < kPiece; ++e) sum[e] += __half2float(one.value[e]);
    }
    for (int e = 0; e < kPiece; ++e) sums[threadIdx.x * kPiece + e] = sum[e];
  }
  __syncthreads();

  // The means lie where the first group's sums were; a thread has a column to itself.
  float mean = 0.0f;
  for (int c = threadIdx.x; c < width; c += kThreads) {
    float sum = 0.0f;
    for (int g = 0; g < groups; ++g) sum += sums[g * width + c];
    sums[c] = sum / patches;
    mean += sums[c];
  }
  mean = sum_of_block(mean) / width;
  float squares = 0.0f;
  for (int c = threadIdx.x; c < width; c += kThreads)
    squares += (sums[c] - mean) * (sums[c] - mean);
  const float factor = rsqrtf(sum_of_block(squares) / width + epsilon);
  for (int c = threadIdx.x; c < width; c += kThreads)
    y[int64_t(blockIdx.x) * width + c] =
        __float2half((sums[c] - mean) * factor * __half2float(scale[c]) + __half2float(bias[c]));
}

// y[b] = LayerNorm of the mean of x[b, 1 ...].
// END
inline void pooled_norm(const half* x, const half* scale, const half* bias, half* y,
                        const vision_transformer::NetShape& shape, cudaStream_t stream) {
  // STARTER
  //| // HOLE: all of it. Kernels go above this function, their launches here.
  //| (void)x, (void)scale, (void)bias, (void)y, (void)shape, (void)stream;
  // SOLUTION
  pooled_norm_kernel<<<shape.batch, kThreads, 0, stream>>>(x, scale, bias, y, shape.tokens(),
                                                           shape.width, shape.epsilon);
  // END
}

}  // namespace exercise
// STARTER
//|
//| // Hints, one after the other: go on to the next when you are stuck.
//| //
//| // 1. Which numbers must be known before the first element of y can be stored? How much shared memory
//| //    do they take, and which threads may therefore belong to one image?
//| // 2. Patches lie one behind the other. Eight columns of a patch are 16 bytes; a row of 192 columns is
//| //    24 such pieces. What do lanes 24 to 31 load?
//| // 3. Several threads have sums of the same columns, from different patches. Who adds them up, and when
//| //    are all of them there?
//| // 4. A mean of numbers around 300 with a spread of 1: E[m²] - E[m]² loses all digits. The means are in
//| //    shared memory, so a second pass over them costs nothing.
//| // 5. Wrong only where patches are few? A group of threads without a patch adds zeros.
// END
