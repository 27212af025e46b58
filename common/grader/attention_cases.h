// Problems of attention, which most exercises share, and their reference.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "attention/shape.h"
#include "task.h"

namespace lab::grader {

// Attention of `queries` tokens to `keys` tokens.
struct AttentionTensors {
  int batch, heads, queries, keys, head_dim;
  float scale;             // Q Kᵀ times this; most often 1 / sqrt(head_dim)
  std::vector<half> Q;     // [batch, heads, queries, head_dim]
  std::vector<half> K, V;  // [batch, heads, keys, head_dim]

  AttentionShape query_shape() const { return {batch, heads, queries, head_dim, scale}; }
  std::string describe() const;
};

// Seeded and telling right from wrong, as random_attention(): most queries give about half of their
// weight to one key.
AttentionTensors random_tensors(int batch, int heads, int queries, int keys, int head_dim,
                                uint64_t seed);

// The same with all scores moved by `offset`, which softmax must not see: beyond 88 exp of a score
// itself overflows in fp32.
AttentionTensors moved(AttentionTensors tensors, double offset);

// softmax(change(Q Kᵀ scale)) V in double precision, straight from the formula: [batch, heads,
// queries, head_dim]. change: what becomes of a score, -infinity to leave the key out; a query
// needs one key that stays.
using ChangeScore = std::function<double(int batch, int head, int query, int key, double score)>;
std::vector<double> expected(const AttentionTensors& tensors, const ChangeScore& change = {});

// A case of these tensors' name, dims and tolerance, without its arguments; and what is known of
// mistakes in attention. change: as in expected(). key_tile: keys that the chapter's kernels have in
// shared memory at a time; 0 in a chapter that knows no tiles.
Case attention_case(const AttentionTensors& tensors, const std::vector<double>& expected,
                    const ChangeScore& change = {}, int key_tile = 0);

}  // namespace lab::grader
