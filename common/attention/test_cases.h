// Cases of attention with their expected output, and a kernel that runs on one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "inputs.h"
#include "testing/testing.h"

namespace lab::testing {

struct AttentionCase {
  std::string name;
  AttentionProblem problem;
  std::vector<double> expected;  // [batch, heads, tokens, head_dim]
  // How near: without a value, as near as attention in fp16 can be.
  std::optional<Tolerance> tolerance = {};
};

// A random problem (scale 1/sqrt(head_dim)) with the reference's output.
AttentionCase random_case(int batch, int heads, int tokens, int head_dim, uint64_t seed = 1);
// Scores beyond +-88, where exp of a score itself overflows in fp32 or adds up to zero: all scores
// are moved by `offset`, which softmax must not see.
AttentionCase offset_case(int batch, int heads, int tokens, int head_dim, double offset);
// Scores that fall and rise from one tile of 64 keys to the next: those of tile t are moved by
// moves[t], for every other query by -moves[t], so that rows side by side disagree on where the
// maximum is. moves repeat.
AttentionCase stepped_case(int batch, int heads, int tokens, int head_dim,
                           const std::vector<double>& moves);
// Tiles whose scores lie 100 below the first tile's and 100 above it, in either order, and a last
// tile of one key that has all the weight of a row or none.
std::vector<AttentionCase> stepped_cases();
// Scores that grow by 100 with each tile of 64 keys in the queries q with q / 8 % 2 == half_of_rows, and are equal in
// all others: of the two rows that a lane has of a tensor core's 16, only one asks for a new scale.
AttentionCase half_grows_case(int heads, int tokens, int head_dim, int half_of_rows);
// Scores that are all equal, and values whose sums are exact in fp32 in any order: O is their mean,
// rounded once, and must be exactly that. tokens is a power of two up to 128.
AttentionCase mean_case(int heads, int tokens, int head_dim);
// data/golden: the output that PyTorch computed in double precision.
std::vector<AttentionCase> golden_cases();
// Q, K, V of two blocks of a trained DeiT-Tiny on a photo, with the output computed from them in
// double precision; empty where the file (environment DEIT_TINY_ATTENTION) is not there.
std::vector<AttentionCase> deit_cases();

// The cross product of the course's shapes: tokens {1, 2, 15, 16, 17, 31, 33, 63, 65, 127}, batch
// {1, 3}, heads {1, 3, 12}, head_dim {32, 64, 128}, and a few of 197 and 577 tokens.
std::vector<AttentionShape> attention_shapes();

using AnyAttention = std::function<void(const half* Q, const half* K, const half* V, half* O,
                                        const AttentionShape& shape, cudaStream_t stream)>;

struct Outcome : Verdict {
  std::vector<half> output;
};

// Runs attention with O filled with NaN between two guard areas and compares.
Outcome run_attention(const AnyAttention& attention, const AttentionCase& problem);

}  // namespace lab::testing
