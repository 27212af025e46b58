// Chapter 1, naive attention: the formula as three kernels, one thread per result.
//
//   scores_kernel    S = scale Q Kᵀ       one thread per score
//   softmax_kernel   P = softmax(S)       one thread per row, in place
//   values_kernel    O = P V              one thread per output element
//
// The tokens x tokens matrix goes to memory and comes back twice, and the K loads use 2 bytes of
// every 32 they move: the two flaws that the next chapters mend. All three grids are
// one-dimensional, since grid.y and grid.z end at 65535 and tokens or batch x heads may be more.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "../../common/attention/launch.cuh"
#include "../../common/attention/shape.h"

namespace naive_attention {

constexpr int kThreads = 256;  // per block

// Blocks for one thread per result. Throws std::invalid_argument beyond the limit of grid.x.
inline unsigned blocks_for(int64_t results, const AttentionShape& shape) {
  return grid_of((results + kThreads - 1) / kThreads, shape, "naive attention");
}

__global__ void scores_kernel(const half* Q,  // [batch, heads, tokens, head_dim]
                              const half* K,  // [batch, heads, tokens, head_dim]
                              float* scores,  // [batch, heads, tokens (query), tokens (key)]
                              int64_t score_count, int tokens, int head_dim, float scale) {
  // Neighbouring lanes take neighbouring keys of one query, so that the stores are coalesced.
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= score_count) return;
  const int key = int(index % tokens);
  const int64_t row = index / tokens;   // (batch, head, query)
  const int64_t matrix = row / tokens;  // (batch, head)

  // The price: at each step of the loop the 32 lanes read one element of 32 different rows of K,
  // 32 sectors of 32 bytes for 64 bytes that are used. (Q is the same address for all lanes.)
  const half* query_row = Q + row * head_dim;
  const half* key_row = K + (matrix * tokens + key) * head_dim;
  float score = 0.0f;
  for (int d = 0; d < head_dim; ++d) score += __half2float(query_row[d]) * __half2float(key_row[d]);

  scores[index] = score * scale;
}

// Q, K: [batch, heads, tokens, head_dim]; scores: [batch, heads, tokens, tokens] fp32.
inline void launch_scores(const half* Q, const half* K, float* scores, const AttentionShape& shape,
                          cudaStream_t stream) {
  require_attention_shape(shape);
  scores_kernel<<<blocks_for(shape.scores(), shape), kThreads, 0, stream>>>(
      Q, K, scores, shape.scores(), shape.tokens, shape.head_dim, shape.scale);
}

__global__ void softmax_kernel(float* scores,  // [batch, heads, tokens (query), tokens (key)]
                               int64_t row_count, int tokens) {
  const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= row_count) return;
  float* row_scores = scores + row * tokens;

  // Subtracting the maximum leaves the result as it is and keeps expf from overflowing.
  float row_max = row_scores[0];
  for (int key = 1; key < tokens; ++key) row_max = fmaxf(row_max, row_scores[key]);

  float row_sum = 0.0f;
  for (int key = 0; key < tokens; ++key) {
    const float weight = expf(row_scores[key] - row_max);
    row_scores[key] = weight;
    row_sum += weight;
  }

  const float inverse_sum = 1.0f / row_sum;
  for (int key = 0; key < tokens; ++key) row_scores[key] *= inverse_sum;
}

// scores: [batch, heads, tokens, tokens] fp32, replaced by the softmax of each row.
inline void launch_softmax(float* scores, const AttentionShape& shape, cudaStream_t stream) {
  require_attention_shape(shape);
  softmax_kernel<<<blocks_for(shape.rows(), shape), kThreads, 0, stream>>>(scores, shape.rows(),
                                                                           shape.tokens);
}

__global__ void values_kernel(const float* weights,  // [batch, heads, tokens (query), tokens (key)]
                              const half* V,         // [batch, heads, tokens, head_dim]
                              half* O,               // [batch, heads, tokens, head_dim]
                              int64_t element_count, int tokens, int head_dim) {
  // Neighbouring lanes take neighbouring elements of one row: V is read coalesced.
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= element_count) return;
  const int d = int(index % head_dim);
  const int64_t row = index / head_dim;  // (batch, head, query)
  const int64_t matrix = row / tokens;   // (batch, head)

  const float* row_weights = weights + row * tokens;
  const half* value_column = V + matrix * tokens * head_dim + d;
  float output = 0.0f;
  for (int key = 0; key < tokens; ++key)
    output += row_weights[key] * __half2float(value_column[int64_t(key) * head_dim]);

  O[index] = __float2half(output);
}

// weights: [batch, heads, tokens, tokens] fp32; V, O: [batch, heads, tokens, head_dim].
inline void launch_values(const float* weights, const half* V, half* O, const AttentionShape& shape,
                          cudaStream_t stream) {
  require_attention_shape(shape);
  values_kernel<<<blocks_for(shape.elements(), shape), kThreads, 0, stream>>>(
      weights, V, O, shape.elements(), shape.tokens, shape.head_dim);
}

// The score matrix, [batch, heads, tokens, tokens] fp32, taken in stream order for as long as this lives.
class Scores {
 public:
  // Throws std::runtime_error when CUDA refuses the memory.
  Scores(const AttentionShape& shape, cudaStream_t stream) : stream_(stream) {
    const size_t bytes = size_t(shape.scores()) * sizeof(float);
    if (const cudaError_t error = cudaMallocAsync(&data_, bytes, stream); error != cudaSuccess)
      throw std::runtime_error("naive attention of shape " + describe(shape) + ": " +
                               std::to_string(bytes) +
                               " bytes for the scores: " + cudaGetErrorString(error));
  }
  Scores(const Scores&) = delete;
  ~Scores() { cudaFreeAsync(data_, stream_); }
  float* data() { return data_; }

 private:
  float* data_ = nullptr;
  cudaStream_t stream_;
};

// Q, K, V, O: [batch, heads, tokens, head_dim] fp16, contiguous; O = softmax(Q Kᵀ scale) V with
// fp32 accumulation. Takes 4 batch heads tokens² bytes of scratch in stream order. Throws
// std::invalid_argument naming the shape and the limit when it cannot, std::runtime_error when CUDA
// refuses the scratch or a launch.
inline void attention(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, cudaStream_t stream) {
  require_attention_shape(shape);
  blocks_for(shape.scores(), shape);  // throws before anything is taken
  Scores scores(shape, stream);
  launch_scores(Q, K, scores.data(), shape, stream);
  launch_softmax(scores.data(), shape, stream);
  launch_values(scores.data(), V, O, shape, stream);
  require_launched(cudaGetLastError(), shape, "naive attention");
}

}  // namespace naive_attention
