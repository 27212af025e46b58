// Chapter 1, tried and not kept: neighbouring lanes of the scores take neighbouring *queries* of one key.
// Then all lanes read the same element of K, one sector. But each lane reads its own row of Q, 32
// sectors, and stores into its own row of the scores, 32 sectors more.
#pragma once

#include "../kernel.cuh"

namespace swapped_lanes {

__global__ void scores_kernel(const half* Q,  // [batch, heads, tokens, head_dim]
                              const half* K,  // [batch, heads, tokens, head_dim]
                              float* scores,  // [batch, heads, tokens (query), tokens (key)]
                              int64_t score_count, int tokens, int head_dim, float scale) {
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= score_count) return;
  const int query = int(index % tokens);
  const int64_t column = index / tokens;   // (batch, head, key)
  const int64_t matrix = column / tokens;  // (batch, head)

  const int64_t row = matrix * tokens + query;  // (batch, head, query)
  const half* query_row = Q + row * head_dim;
  const half* key_row = K + column * head_dim;
  float score = 0.0f;
  for (int d = 0; d < head_dim; ++d) score += __half2float(query_row[d]) * __half2float(key_row[d]);

  scores[row * tokens + column % tokens] = score * scale;
}

// Q, K: [batch, heads, tokens, head_dim]; scores: [batch, heads, tokens, tokens] fp32.
inline void launch_scores(const half* Q, const half* K, float* scores, const AttentionShape& shape,
                          cudaStream_t stream) {
  require_attention_shape(shape);
  scores_kernel<<<naive_attention::blocks_for(shape.scores(), shape), naive_attention::kThreads, 0,
                  stream>>>(Q, K, scores, shape.scores(), shape.tokens, shape.head_dim,
                            shape.scale);
}

// As naive_attention::attention(), with these scores.
inline void attention(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, cudaStream_t stream) {
  require_attention_shape(shape);
  naive_attention::blocks_for(shape.scores(), shape);
  naive_attention::Scores scores(shape, stream);
  launch_scores(Q, K, scores.data(), shape, stream);
  naive_attention::launch_softmax(scores.data(), shape, stream);
  naive_attention::launch_values(scores.data(), V, O, shape, stream);
  require_launched(cudaGetLastError(), shape, "naive attention");
}

}  // namespace swapped_lanes
