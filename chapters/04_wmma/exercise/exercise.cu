// Grades exercise 4, a table of biases in the scores, and grouped queries, in task2.cuh.
#include <cmath>

#include "../../../common/grader/attention_cases.h"
#include "../../../common/grader/grader.h"

namespace {

using namespace lab::grader;

Case biased(int batch, int heads, int tokens, uint64_t seed, double offset = 0) {
  AttentionTensors t = random_tensors(batch, heads, tokens, tokens, 64, seed);
  if (offset != 0) t = moved(std::move(t), offset);
  // No two heads and no two near distances alike, up to 3 in size.
  std::vector<float> bias;  // [heads, 2 tokens - 1]
  for (int head = 0; head < heads; ++head)
    for (int i = 0; i < 2 * tokens - 1; ++i)
      bias.push_back(3 * std::sin(float(i - tokens + 1) * 0.9f + float(head)));
  const auto with_bias = [bias, tokens](int, int head, int query, int key, double score) {
    return score + double(bias[head * (2 * tokens - 1) + key - query + tokens - 1]);
  };
  Case result = attention_case(t, expected(t, with_bias), with_bias, 64);
  result.arguments = {input("Q", t.Q),     input("K", t.K), input("V", t.V),
                      input("bias", bias), output("O"),     value(t.query_shape())};
  if (offset != 0)
    result.hint_not_finite =
        "scores are large here: the row's maximum must be subtracted before exp";
  result.hint =
      tokens == 1 ? "one key has all the weight, whatever its score: O is V"
      : tokens <= 64
          ? "one tile of keys: are product, scale and bias right (HOLE 1 and 2), is the bias that "
            "of "
            "this head, and is each row divided by its own sum (HOLE 3)? The element's indices are "
            "batch, head, query, d"
          : "several tiles: is each row of O rescaled with its own factor when its maximum grows?";
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> all = {biased(1, 1, 1, 1),   biased(1, 2, 2, 2),  biased(3, 1, 15, 3),
                           biased(1, 1, 16, 4),  biased(2, 3, 17, 5), biased(1, 1, 33, 6),
                           biased(1, 2, 64, 7),  biased(2, 1, 65, 8), biased(1, 1, 100, 9, 150),
                           biased(1, 2, 127, 10)};
  all.push_back(biased(1, 1, 128, 11));
  all.push_back(biased(1, 2, 197, 12));
  return all;
}

// 2 heads of 100 tokens: 7 blocks of 16 rows in each, 2 tiles of 64 keys for each of these.
constexpr double kTokens = 100, kHeads = 2;
constexpr double kScores = kHeads * (7 * 16) * (2 * 64);           // padding included
constexpr double kMultiplyAdds = kHeads * kTokens * kTokens * 64;  // one product, without padding
Case measured() { return biased(1, 2, 100, 13); }

const std::vector<Aim> kAims = {
    {"multiply-adds on the tensor cores: both products", 15, Aim::at_least, 2 * kMultiplyAdds,
     [](const Counters& c) { return c.on_tensor_cores(2 * kMultiplyAdds); },
     "Q Kᵀ and (weights) V are both products of 16 x 16 tiles: mma_sync"},
    {"fp32 instructions of all threads: 16 for each score", 10, Aim::at_most, 16 * kScores,
     [](const Counters& c) { return c.sum("/classes/fp32/thread"); },
     "only the softmax needs fp32 instructions; a product by hand takes 64 for each score",
     Aim::number, kHeads* kTokens* kTokens},
    {"bytes of K and V that are loaded: once for 16 rows", 5, Aim::at_most,
     kHeads * 7 * kTokens * 64 * 2 * 2, [](const Counters& c) { return c.loaded_tiles(); },
     "share each tile among 16 query rows, and do not load past the last token", Aim::bytes,
     kHeads* kTokens * 64 * 2 * 2},
    {"sectors moved / needed, loads of V", 10, Aim::at_most, 1.1,
     [](const Counters& c) { return c.moved_over_needed("V", "load", kMultiplyAdds * 2); },
     "neighbouring lanes must load neighbouring pieces of a row"},
    {"sectors moved / needed, loads of the bias", 5, Aim::at_most, 1.5,
     [](const Counters& c) { return c.moved_over_needed("bias", "load", kScores * 4); },
     "neighbouring keys of one query are neighbours in the table"},
    {"bytes of all stores: only O, once", 5, Aim::exactly, kHeads* kTokens * 64 * 2,
     [](const Counters& c) { return c.stored(); },
     "scores stay in shared memory; rows past the last token are not written", Aim::bytes},
};

// ---- task2.cuh ----------------------------------------------------------------------------------

// Heads of Q in a group, which share a head of K and V.
Case grouped(int batch, int kv_heads, int group, int queries, int keys, uint64_t seed,
             double offset = 0) {
  // The rows of a group's heads, one after the other, are the queries of the head that they share.
  AttentionTensors t = random_tensors(batch, kv_heads, group * queries, keys, 64, seed);
  if (offset != 0) t = moved(std::move(t), offset);
  Case result = attention_case(t, expected(t));
  const AttentionShape shape{batch, kv_heads * group, queries, 64, t.scale};
  result.name = "[batch " + std::to_string(batch) + ", heads " + std::to_string(shape.heads) +
                ", of K and V " + std::to_string(kv_heads) + ", " + std::to_string(queries) +
                " queries, " + std::to_string(keys) + " keys, head_dim 64]";
  result.dims = {batch, shape.heads, queries, 64};
  result.arguments = {input("Q", t.Q), input("K", t.K), input("V", t.V), output("O"),
                      value(shape),    value(kv_heads), value(keys)};
  if (offset != 0)
    result.hint_not_finite =
        "scores are large here: a row's maximum, which begins at -INFINITY, must be subtracted "
        "before exp";
  result.hint =
      keys == 1    ? "one key has all the weight, whatever its score: O is V"
      : group == 1 ? "as many heads of K and V as of Q: this is the chapter's problem, but for the "
                     "numbers of queries and keys, which are different"
      : keys <= 64
          ? "one tile of keys: which head of K and V does this head look at, and from which "
            "row of Q on do its queries lie?"
          : "several tiles: is each row of O rescaled with its own factor when its maximum "
            "grows? And which keys are past the last one?";
  return result;
}

std::vector<Case> group_cases() {
  std::vector<Case> all = {grouped(1, 1, 1, 1, 1, 1),         grouped(1, 2, 2, 1, 2, 2),
                           grouped(3, 1, 5, 1, 15, 3),        grouped(1, 3, 1, 40, 33, 4),
                           grouped(2, 2, 8, 2, 17, 5),        grouped(1, 1, 7, 3, 20, 6),
                           grouped(1, 2, 3, 16, 64, 7),       grouped(1, 1, 6, 1, 65, 8),
                           grouped(1, 2, 3, 11, 100, 9, 150), grouped(1, 1, 2, 33, 127, 10),
                           grouped(1, 1, 12, 3, 81, 11, -150)};
  all.push_back(grouped(2, 4, 4, 3, 197, 12));
  return all;
}

// 2 images of 8 heads, of which 4 share one of 2 heads of K and V; 5 queries. Of each head of K and
// V 20 rows, padded to 32, and 200 keys, 4 tiles of 64.
constexpr double kGroupMatrices = 2 * 2, kGroupRows = 4 * 5, kGroupKeys = 200;
constexpr double kGroupScores = kGroupMatrices * kGroupRows * kGroupKeys;
constexpr double kPaddedGroupScores = kGroupMatrices * 32 * 256;
Case group_measured() { return grouped(2, 2, 4, 5, int(kGroupKeys), 13); }

const std::vector<Aim> kGroupAims = {
    {"multiply-adds on the tensor cores: both products", 10, Aim::at_least, 2 * kGroupScores * 64,
     [](const Counters& c) { return c.on_tensor_cores(2 * kGroupScores * 64); },
     "Q Kᵀ and (weights) V are both products of 16 x 16 tiles: mma_sync"},
    {"multiply-adds on the tensor cores: padded once for each head of K and V", 10, Aim::at_most,
     2 * kPaddedGroupScores * 64,
     [](const Counters& c) { return c.on_tensor_cores(2 * kGroupScores * 64); },
     "what can stand in the other rows of a product whose head has 5 queries?", Aim::number,
     2 * kGroupScores * 64},
    {"fp32 instructions of all threads: 16 for each score", 10, Aim::at_most,
     16 * kPaddedGroupScores, [](const Counters& c) { return c.sum("/classes/fp32/thread"); },
     "only the softmax needs fp32 instructions; a product by hand takes 64 for each score",
     Aim::number, kGroupScores},
    {"bytes of K and V that are loaded: once for 16 rows", 10, Aim::at_most,
     kGroupMatrices * 2 * kGroupKeys * 64 * 2 * 2,
     [](const Counters& c) { return c.loaded_tiles(); },
     "rows of several heads can share a tile, and nothing is loaded past the last key", Aim::bytes,
     kGroupMatrices* kGroupKeys * 64 * 2 * 2},
    {"sectors moved / needed, loads of V", 5, Aim::at_most, 1.1,
     [](const Counters& c) { return c.moved_over_needed("V", "load", kGroupScores * 64 * 2); },
     "neighbouring lanes must load neighbouring pieces of a row"},
    {"bytes of all stores: only O, once", 5, Aim::exactly, kGroupMatrices* kGroupRows * 64 * 2,
     [](const Counters& c) { return c.stored(); },
     "scores stay in shared memory; rows that do not exist are not written", Aim::bytes},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(argc, argv,
                     {{.title = "Exercise 4: a table of biases in the scores",
                       .folder = "chapters/04_wmma",
                       .file = "exercise.cuh",
                       .solution = "solution.cuh",
                       .name_space = "exercise",
                       .parameters = "const half*, const half*, const half*, const float*, half*, "
                                     "const AttentionShape&, cudaStream_t",
                       .cases = cases,
                       .measured = measured,
                       .aims = kAims},
                      {.title = "Exercise 4, from an empty function: grouped queries",
                       .folder = "chapters/04_wmma",
                       .file = "task2.cuh",
                       .solution = "solution2.cuh",
                       .name_space = "exercise",
                       .parameters = "const half*, const half*, const half*, half*, "
                                     "const AttentionShape&, int, int, cudaStream_t",
                       .cases = group_cases,
                       .measured = group_measured,
                       .aims = kGroupAims}});
}
