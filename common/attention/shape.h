// The problem of the attention chapters, in plain C++: what a kernel, a reference and a report must
// agree on and nothing else.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

// O = softmax(Q Kᵀ scale) V for every (batch, head); Q, K, V and O are
// [batch, heads, tokens, head_dim], contiguous.
struct AttentionShape {
  int batch = 1;
  int heads = 1;
  int tokens = 1;
  int head_dim = 64;
  float scale = 0.125f;  // usually 1 / sqrt(head_dim)

  // Numbers of (batch, head) pairs, of rows (batch, head, token), of elements of Q (or K, V, O) and
  // of scores. 64 bits: 32 x 12 heads of 4097 tokens have 6.4 G scores.
  int64_t matrices() const { return int64_t(batch) * heads; }
  int64_t rows() const { return matrices() * tokens; }
  int64_t elements() const { return rows() * head_dim; }
  int64_t scores() const { return rows() * tokens; }
};

// "[batch 1, heads 12, tokens 197, head_dim 64]"
inline std::string describe(const AttentionShape& shape) {
  return "[batch " + std::to_string(shape.batch) + ", heads " + std::to_string(shape.heads) +
         ", tokens " + std::to_string(shape.tokens) + ", head_dim " +
         std::to_string(shape.head_dim) + "]";
}

// The shapes that every attention kernel of the ladder takes.
// Throws std::invalid_argument naming the shape and the limit.
inline void require_attention_shape(const AttentionShape& shape) {
  if (shape.batch < 1 || shape.heads < 1 || shape.tokens < 1)
    throw std::invalid_argument("attention of shape " + describe(shape) +
                                ": batch, heads and tokens must be at least 1");
  if (shape.head_dim != 32 && shape.head_dim != 64 && shape.head_dim != 128)
    throw std::invalid_argument("attention of shape " + describe(shape) +
                                ": head_dim must be 32, 64 or 128");
}
