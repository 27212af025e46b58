// STARTER
//| // Exercise 1: cross-attention. In self-attention every token looks at every token of the same
//| // picture. Here `queries` tokens of one picture look at `keys` tokens of another, and the two
//| // numbers differ:
//| //
//| //   Q [queries, head_dim]   K, V [keys, head_dim]   scores [queries, keys]   O [queries, head_dim]
//| //
//| // for each (batch, head). The three kernels are those of the chapter, with three holes. Fill them,
//| // then `make exercise1 && ./run`. Besides right results you are asked for the softmax to read and
//| // write its rows coalesced, which the chapter's does not: give each row a warp.
// SOLUTION
// Exercise 1, cross-attention: a solution. The exercise itself is in exercise.cuh.
// END
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
  // One thread for each score, neighbouring threads for neighbouring keys.
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= score_count) return;

  // STARTER
  //| // HOLE 1: which row of Q and which row of K belong to score number `index`?
  //| // Hint: scores is [batch, heads, queries, keys], so the key is what changes fastest. A row of Q
  //| // is (batch, head, query), a row of K is (batch, head, key): find (batch, head) first. Beware of
  //| // dividing by the wrong one of the two numbers.
  //| const int64_t query_row = 0;
  //| const int64_t key_row = 0;
  // SOLUTION
  const int key = int(index % keys);
  const int64_t query_row = index / keys;  // (batch, head, query)
  const int64_t matrix = query_row / queries;
  const int64_t key_row = matrix * keys + key;  // (batch, head, key)
  // END

  float score = 0.0f;
  for (int d = 0; d < head_dim; ++d)
    score += __half2float(Q[query_row * head_dim + d]) * __half2float(K[key_row * head_dim + d]);
  scores[index] = score * scale;
}

// SOLUTION
// The largest of a warp's 32 values, and their sum, in all lanes.
__device__ inline float warp_max(float x) {
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}
__device__ inline float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}
// END

__global__ void softmax_kernel(float* scores,  // [batch, heads, queries, keys], in place
                               int64_t row_count, int keys) {
  // A warp for each row; its 32 lanes are neighbouring threads.
  const int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= row_count) return;  // the whole warp
  float* row_scores = scores + row * keys;

  // STARTER
  //| // HOLE 2: replace the row by its softmax: maximum, exponentials and their sum, division.
  //| // Hint: lane 0 takes keys 0, 32, 64, ..., lane 1 takes 1, 33, 65, ...: neighbours read
  //| // neighbours. Then each lane has a maximum (or a sum) of its own;
  //| // __shfl_xor_sync(0xffffffffu, x, step) gives it the x of lane (lane ^ step). With steps 16, 8,
  //| // 4, 2, 1 all lanes end up with the whole row's. With fewer than 32 keys some lanes have none:
  //| // what must their maximum and their sum be?
  //| (void)row_scores, (void)lane;
  // SOLUTION
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
  // END
}

__global__ void values_kernel(const float* weights,  // [batch, heads, queries, keys]
                              const half* V,         // [batch, heads, keys, head_dim]
                              half* O,               // [batch, heads, queries, head_dim]
                              int64_t element_count, int queries, int keys, int head_dim) {
  // One thread for each element of O.
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= element_count) return;

  // STARTER
  //| // HOLE 3: which element of O is number `index`, and which (batch, head) is it in?
  //| // Hint: there are two ways to count. In one of them the 32 lanes of a warp read 64 neighbouring
  //| // bytes of V and write 64 neighbouring bytes of O.
  //| const int d = 0;
  //| const int64_t query_row = 0;  // (batch, head, query)
  //| const int64_t matrix = 0;     // (batch, head)
  // SOLUTION
  const int d = int(index % head_dim);
  const int64_t query_row = index / head_dim;  // (batch, head, query)
  const int64_t matrix = query_row / queries;
  // END

  float output = 0.0f;
  for (int key = 0; key < keys; ++key)
    output +=
        weights[query_row * keys + key] * __half2float(V[(matrix * keys + key) * head_dim + d]);
  O[query_row * head_dim + d] = __float2half(output);
}

// Q, O: [batch, heads, shape.tokens, head_dim]; K, V: [batch, heads, keys, head_dim]; all fp16,
// contiguous. shape.tokens is the number of queries. O = softmax(Q Kᵀ scale) V.
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
