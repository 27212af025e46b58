// Grades exercise 5, a padding mask, and the bug to be found in bug.cuh.
#include <cmath>
#include <limits>

#include "../../../common/grader/attention_cases.h"
#include "../../../common/grader/grader.h"

namespace {

using namespace lab::grader;

Case masked(int heads, int tokens, const std::vector<int>& lengths, uint64_t seed,
            double offset = 0) {
  AttentionTensors t = random_tensors(int(lengths.size()), heads, tokens, tokens, 64, seed);
  if (offset != 0) t = moved(std::move(t), offset);
  const auto real = [lengths](int batch, int, int, int key, double score) {
    return key < lengths[batch] ? score : -std::numeric_limits<double>::infinity();
  };
  Case result = attention_case(t, expected(t, real), real, 64);
  result.name += ", lengths";
  for (const int length : lengths) result.name += " " + std::to_string(length);
  // What stands behind the real keys is nobody's: here NaN, which shows when it is touched.
  for (int matrix = 0; matrix < t.batch * heads; ++matrix)
    for (int key = lengths[matrix / heads]; key < tokens; ++key)
      for (int d = 0; d < 64; ++d)
        t.K[(int64_t(matrix) * tokens + key) * 64 + d] =
            t.V[(int64_t(matrix) * tokens + key) * 64 + d] = __float2half(NAN);
  result.arguments = {input("Q", t.Q),           input("K", t.K), input("V", t.V),
                      input("lengths", lengths), output("O"),     value(t.query_shape())};
  result.hint_not_finite =
      "keys behind the real ones are NaN here, and 0 times NaN is NaN: are rows past the last real "
      "key zeros in both tiles, and their scores -INFINITY?";
  if (offset != 0)
    result.hint_not_finite +=
        " And scores are large: the row's maximum must be subtracted before exp";
  result.hint =
      tokens <= 64
          ? "one tile of keys: is the number of real keys that of this batch entry?"
          : "several tiles: does a warp go on while others are still at the tile before, and does "
            "the loop go on to the last real key?";
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> all = {masked(1, 1, {1}, 1),
                           masked(1, 2, {2, 1}, 2),
                           masked(1, 15, {15, 7, 1}, 3),
                           masked(1, 16, {16, 3}, 4),
                           masked(3, 17, {16}, 5),
                           masked(1, 33, {20, 33}, 6),
                           masked(2, 64, {64}, 7),
                           masked(1, 65, {65, 64}, 8),
                           masked(1, 100, {70, 100}, 9, 150),
                           masked(1, 127, {1, 127, 65}, 10)};
  all.push_back(masked(1, 128, {128}, 11));
  all.push_back(masked(1, 197, {33, 130}, 12));
  return all;
}

// 2 heads of 150 tokens, 3 blocks of 64 rows in each; 150, 70 and 17 real keys in the three batch
// entries, which are 3, 2 and 1 tiles.
constexpr double kHeads = 2, kTokens = 150, kKeys = 150 + 70 + 17, kTiles = 3 + 2 + 1;
constexpr double kProducts = kHeads * kTokens * kKeys * 64;  // Q times K, real keys
Case measured() { return masked(2, 150, {150, 70, 17}, 13); }

double bytes_of_tiles(const Counters& c) { return c.loaded_tiles(); }

const std::vector<Aim> kAims = {
    {"bytes of K and V that are loaded: real keys, once for 64 rows", 25, Aim::at_most,
     kHeads * 3 * kKeys * 64 * 2 * 2, bytes_of_tiles,
     "end the loop over the tiles at the last real key, and let the warps share each tile",
     Aim::bytes, kHeads* kKeys * 64 * 2 * 2},
    {"multiply-adds on the tensor cores: both products of real keys", 5, Aim::at_least,
     2 * kProducts, [](const Counters& c) { return c.on_tensor_cores(2 * kProducts); },
     "both products are mma_sync's"},
    {"multiply-adds on the tensor cores: no tiles without a real key", 5, Aim::at_most,
     kHeads*(3 * 64) * (kTiles * 64) * 64 * 2,
     [](const Counters& c) { return c.on_tensor_cores(2 * kProducts); },
     "end the loop over the tiles at the last real key", Aim::number, 2 * kProducts},
    {"sectors moved / needed, loads of V", 10, Aim::at_most, 1.1,
     [](const Counters& c) { return c.moved_over_needed("V", "load", kProducts * 2); },
     "neighbouring lanes must load neighbouring pieces of a row"},
    {"bytes of all stores: only O, once", 5, Aim::exactly, 3 * kHeads* kTokens * 64 * 2,
     [](const Counters& c) { return c.stored(); },
     "scores stay in shared memory; rows past the last token are not written", Aim::bytes},
};

// ---- bug.cuh ------------------------------------------------------------------------------------

Case plain(int batch, int heads, int tokens, uint64_t seed) {
  const AttentionTensors t = random_tensors(batch, heads, tokens, tokens, 64, seed);
  Case result = attention_case(t, expected(t), {}, 64);
  result.arguments = {input("Q", t.Q), input("K", t.K), input("V", t.V), output("O"),
                      value(t.query_shape())};
  result.hint = tokens <= 64
                    ? "one tile of keys: this came out right before it was changed"
                    : "one tile of keys is right, two are not. What does a row that is wrong do "
                      "between two tiles that a row that is right need not do?";
  return result;
}

std::vector<Case> bug_cases() {
  std::vector<Case> all = {plain(1, 1, 64, 1), plain(1, 2, 80, 2), plain(2, 1, 100, 3),
                           plain(1, 1, 127, 4)};
  all.push_back(plain(1, 2, 130, 5));
  all.push_back(plain(1, 1, 197, 6));
  return all;
}
// 2 heads of 100 tokens: 2 blocks of 64 rows in each, 2 tiles of 64 keys for each of these.
Case bug_measured() { return plain(1, 2, 100, 7); }

const std::vector<Aim> kBugAims = {
    {"bytes of K and V that are loaded: once for 64 rows", 20, Aim::exactly,
     2 * 2 * 100 * 64 * 2 * 2, bytes_of_tiles, "mend the kernel, do not write another", Aim::bytes},
    {"multiply-adds on the tensor cores: both products", 20, Aim::exactly, 2.0 * 128 * 128 * 64 * 2,
     [](const Counters& c) { return c.on_tensor_cores(2.0 * 2 * 100 * 100 * 64); },
     "mend the kernel, do not write another"},
    {"bytes of all stores: only O, once", 10, Aim::exactly, 2 * 100 * 64 * 2,
     [](const Counters& c) { return c.stored(); }, "mend the kernel, do not write another",
     Aim::bytes},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(argc, argv,
                     {{.title = "Exercise 5: a padding mask",
                       .folder = "chapters/05_multi_warp",
                       .file = "exercise.cuh",
                       .solution = "solution.cuh",
                       .name_space = "exercise",
                       .parameters = "const half*, const half*, const half*, const int*, half*, "
                                     "const AttentionShape&, cudaStream_t",
                       .cases = cases,
                       .measured = measured,
                       .aims = kAims},
                      {.title = "Exercise 5, find the bug",
                       .folder = "chapters/05_multi_warp",
                       .file = "bug.cuh",
                       .solution = "",
                       .name_space = "exercise",
                       .parameters = "const half*, const half*, const half*, half*, "
                                     "const AttentionShape&, cudaStream_t",
                       .cases = bug_cases,
                       .measured = bug_measured,
                       .aims = kBugAims,
                       .holes = false}});
}
