// Exercise 1, cross-attention: a solution. The exercise itself is in exercise.cuh.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "../../../common/attention/shape.h"

namespace exercise {

constexpr int kThreads = 128;  // per block

inline unsigned blocks_for(int64_t threads) {
  return unsigned((threads + kThreads - 1) / kThreads);
}

__global__ void scores_kernel(const half* Q,  // [batch, heads, queries, head_dim]
                              const half* K,  // [batch, heads, keys, head_dim]
                              float* scores,  // [batch, heads, queries, keys]
                              int64_t score_count, int queries, int keys, int head_dim,
                              float scale) {
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= score_count) return;
  const int key = int(index % keys);
  const int64_t query_row = index / keys;  // (batch, head, query)
  const int64_t matrix = query_row / queries;
  const int64_t key_row = matrix * keys + key;  // (batch, head, key)

  float score = 0.0f;
  for (int d = 0; d < head_dim; ++d)
    score += __half2float(Q[query_row * head_dim + d]) * __half2float(K[key_row * head_dim + d]);
  scores[index] = score * scale;
}

// The largest of a warp's 32 values, and their sum, in all lanes.
__device__ inline float warp_max(float x) {
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}
__device__ inline float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

__global__ void softmax_kernel(float* scores,  // [batch, heads, queries, keys], in place
                               int64_t row_count, int keys) {
  const int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= row_count) return;  // the whole warp
  float* row_scores = scores + row * keys;

  float row_max = -INFINITY;
  for (int key = lane; key < keys; key += 32) row_max = fmaxf(row_max, row_scores[key]);
  row_max = warp_max(row_max);
  float row_sum = 0.0f;
  for (int key = lane; key < keys; key += 32) {
    const float weight = expf(row_scores[key] - row_max);
    row_scores[key] = weight;
    row_sum += weight;
  }
  row_sum = warp_sum(row_sum);
  for (int key = lane; key < keys; key += 32) row_scores[key] /= row_sum;
}

__global__ void values_kernel(const float* weights,  // [batch, heads, queries, keys]
                              const half* V,         // [batch, heads, keys, head_dim]
                              half* O,               // [batch, heads, queries, head_dim]
                              int64_t element_count, int queries, int keys, int head_dim) {
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= element_count) return;
  const int d = int(index % head_dim);
  const int64_t query_row = index / head_dim;  // (batch, head, query)
  const int64_t matrix = query_row / queries;

  float output = 0.0f;
  for (int key = 0; key < keys; ++key)
    output +=
        weights[query_row * keys + key] * __half2float(V[(matrix * keys + key) * head_dim + d]);
  O[query_row * head_dim + d] = __float2half(output);
}

// Q, O: [batch, heads, shape.tokens, head_dim]; K, V: [batch, heads, keys, head_dim]; all fp16,
// contiguous. O = softmax(Q Kᵀ scale) V.
inline void attention(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, int keys, cudaStream_t stream) {
  const int64_t rows = shape.rows(), score_count = rows * keys, elements = shape.elements();
  float* scores = nullptr;
  if (cudaMallocAsync(&scores, size_t(score_count) * sizeof(float), stream) != cudaSuccess) return;
  scores_kernel<<<blocks_for(score_count), kThreads, 0, stream>>>(
      Q, K, scores, score_count, shape.tokens, keys, shape.head_dim, shape.scale);
  softmax_kernel<<<blocks_for(rows * 32), kThreads, 0, stream>>>(scores, rows, keys);
  values_kernel<<<blocks_for(elements), kThreads, 0, stream>>>(scores, V, O, elements, shape.tokens,
                                                               keys, shape.head_dim);
  cudaFreeAsync(scores, stream);
}

}  // namespace exercise
