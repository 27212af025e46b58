// Grades exercise 1, cross-attention: as many queries as one picture has tokens, as many keys as
// another one has.
#include <cmath>

#include "../../../common/grader/attention_cases.h"
#include "../../../common/grader/grader.h"

namespace {

using namespace lab::grader;

Case cross(int batch, int heads, int queries, int keys, int head_dim, uint64_t seed,
           double offset = 0) {
  AttentionTensors t = random_tensors(batch, heads, queries, keys, head_dim, seed);
  if (offset != 0) t = moved(std::move(t), offset);
  Case result = attention_case(t, expected(t));
  result.arguments = {input("Q", t.Q), input("K", t.K),        input("V", t.V),
                      output("O"),     value(t.query_shape()), value(keys)};
  if (offset != 0)
    result.hint_not_finite =
        offset < 0
            ? "all scores are far below 0: at which value must the search for the maximum begin?"
            : "scores are large here: subtract the row's maximum before expf";
  result.hint = queries == keys ? "queries and keys are as many here: look at the first wrong "
                                  "element's index, [batch, head, query, d]"
                : keys < 32     ? "there are fewer keys than lanes in a warp"
                            : "queries and keys are not as many: is a row of K or V, or a row of "
                              "the scores, counted with the wrong number?";
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> all = {cross(1, 1, 1, 1, 64, 1),        cross(1, 2, 16, 16, 64, 2),
                           cross(1, 1, 32, 64, 32, 3),      cross(1, 1, 17, 33, 64, 4),
                           cross(2, 3, 31, 15, 32, 5),      cross(1, 1, 33, 2, 128, 6),
                           cross(1, 1, 2, 65, 64, 7),       cross(3, 1, 65, 63, 64, 8, -150),
                           cross(1, 2, 48, 80, 32, 9, 150), cross(1, 3, 15, 127, 64, 10)};
  all.push_back(cross(1, 2, 197, 50, 64, 11));
  all.push_back(cross(1, 1, 49, 197, 64, 12));
  return all;
}

// 2 heads of 64 queries and 96 keys: 12,288 scores, each the sum of 64 products.
constexpr double kScores = 2 * 64 * 96, kElements = 2 * 64 * 64;
constexpr double kProducts = kScores * 64;  // weights times elements of V
Case measured() { return cross(1, 2, 64, 96, 64, 13); }

// Sectors that the softmax, the launch that both loads and stores scores, moves for `times`
// accesses to all scores, over those that are needed. One lane alone, or all lanes at the same
// score, move 8 times as many. A fused kernel has no scratch and moves none.
double softmax(const Counters& counters, const char* access, int times) {
  return counters.load_and_store(kScratch).sectors(kScratch, access) / (times * kScores * 4 / 32);
}

// Of V and of the weights, whichever is worse.
double values(const Counters& counters) {
  return std::fmax(
      counters.moved_over_needed("V", "load", kProducts * 2),
      counters.load_or_store(kScratch).moved_over_needed(kScratch, "load", kProducts * 4));
}

const char* const kSoftmaxHint =
    "hole 2: does only one lane of the warp work, or do all read the same? Let lane l take keys l, "
    "l + 32, ..., so that neighbouring lanes are at neighbouring scores";

const std::vector<Aim> kAims = {
    {"softmax: sectors loaded / those of all scores three times", 15, Aim::at_most, 1.3,
     [](const Counters& c) { return softmax(c, "load", 3); }, kSoftmaxHint},
    {"softmax: sectors stored / those of all scores twice", 10, Aim::at_most, 1.3,
     [](const Counters& c) { return softmax(c, "store", 2); }, kSoftmaxHint},
    {"sectors moved / needed, loads of V and of the weights", 10, Aim::at_most, 1.1, values,
     "hole 3: neighbouring lanes must take neighbouring elements d of one row of O"},
    {"bytes of K that are loaded: each key once for each score", 5, Aim::at_most, kScores * 64 * 2,
     [](const Counters& c) { return c.bytes("K", "load"); },
     "compute each score once and keep it in memory", Aim::bytes, 2 * 96 * 64 * 2},
    {"bytes of O that are stored: each element once", 5, Aim::exactly, kElements * 2,
     [](const Counters& c) { return c.bytes("O", "store"); },
     "add up in a register and store O at the end, in a kernel", Aim::bytes},
    {"sectors moved / needed, stores of O", 5, Aim::at_most, 1.1,
     [](const Counters& c) { return c.moved_over_needed("O", "store", 2 * kElements * 2); },
     "hole 3: neighbouring lanes must take neighbouring elements d of one row of O"},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(
      argc, argv,
      {{"Exercise 1: cross-attention", "chapters/01_naive_attention", "exercise.cuh",
        "solution.cuh", "exercise",
        "const half*, const half*, const half*, half*, const AttentionShape&, int, cudaStream_t",
        cases, measured, kAims}});
}
