// Our solution of exercise 12: the mean of an image's patches, and its LayerNorm, in one launch.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../shape.h"

namespace exercise {

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
inline void pooled_norm(const half* x, const half* scale, const half* bias, half* y,
                        const vision_transformer::NetShape& shape, cudaStream_t stream) {
  pooled_norm_kernel<<<shape.batch, kThreads, 0, stream>>>(x, scale, bias, y, shape.tokens(),
                                                           shape.width, shape.epsilon);
}

}  // namespace exercise
