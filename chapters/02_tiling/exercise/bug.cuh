// Find the bug. One block computes one query's output: its four warps take every fourth key each,
// with an online softmax of their own, and at the end the parts of the four are put together. That
// gives the right result on many runs, and not on all: `./run --task bug.cuh` runs it with warps in
// another order than usual.
//
// Which results are wrong, and what does the report say besides? Mend the kernel so that it is right in
// any order of the warps and hardly slower than before.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "../../../common/attention/shape.h"

namespace exercise {

constexpr int kHeadDim = 64;
constexpr int kWarps = 4;

__device__ inline float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

__global__ void __launch_bounds__(32 * kWarps)
    attention_kernel(const half* Q,  // [batch, heads, tokens, head_dim], as all four
                     const half* K, const half* V, half* O, int tokens, float scale_log2) {
  // What the warps found for their keys.
  __shared__ float part_max[kWarps], part_sum[kWarps];
  __shared__ float2 part_output[kWarps][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t row = blockIdx.x, matrix = row / tokens;

  // A lane has elements 2 lane and 2 lane + 1 of all rows.
  const half2* K2 = reinterpret_cast<const half2*>(K + matrix * tokens * kHeadDim);
  const half2* V2 = reinterpret_cast<const half2*>(V + matrix * tokens * kHeadDim);
  const float2 q = __half22float2(reinterpret_cast<const half2*>(Q + row * kHeadDim)[lane]);

  float row_max = -INFINITY, row_sum = 0.0f;
  float2 output = {0.0f, 0.0f};
  for (int key = warp; key < tokens; key += kWarps) {
    const float2 k = __half22float2(K2[key * 32 + lane]);
    const float2 v = __half22float2(V2[key * 32 + lane]);
    const float score = warp_sum(q.x * k.x + q.y * k.y) * scale_log2;
    const float new_max = fmaxf(row_max, score);
    const float factor = exp2f(row_max - new_max), weight = exp2f(score - new_max);
    row_max = new_max;
    row_sum = row_sum * factor + weight;
    output.x = output.x * factor + weight * v.x;
    output.y = output.y * factor + weight * v.y;
  }
  if (lane == 0) {
    part_max[warp] = row_max;
    part_sum[warp] = row_sum;
  }
  part_output[warp][lane] = output;

  // The last warp puts the parts together.
  if (warp != kWarps - 1) return;
  for (int w = 0; w < kWarps - 1; ++w) {
    const float new_max = fmaxf(row_max, part_max[w]);
    const float own = exp2f(row_max - new_max), other = exp2f(part_max[w] - new_max);
    row_max = new_max;
    row_sum = row_sum * own + part_sum[w] * other;
    output.x = output.x * own + part_output[w][lane].x * other;
    output.y = output.y * own + part_output[w][lane].y * other;
  }
  reinterpret_cast<half2*>(O + row * kHeadDim)[lane] =
      __floats2half2_rn(output.x / row_sum, output.y / row_sum);
}

// Q, K, V, O: [batch, heads, tokens, head_dim 64] fp16, contiguous. O = softmax(Q Kᵀ scale) V.
inline void attention(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, cudaStream_t stream) {
  const float scale_log2 = shape.scale * 1.44269504f;  // log2(e): exp(x) = 2^(x log2(e))
  attention_kernel<<<unsigned(shape.rows()), 32 * kWarps, 0, stream>>>(Q, K, V, O, shape.tokens,
                                                                       scale_log2);
}

}  // namespace exercise
