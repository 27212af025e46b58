// Grades exercise 13, causal attention with scores and weights in registers.
#include <cmath>
#include <limits>

#include "../../../common/grader/attention_cases.h"
#include "../../../common/grader/grader.h"

namespace {

using namespace lab::grader;

// Which keys a query sees.
using Sees = std::function<bool(int query, int key)>;
ChangeScore only(const Sees& sees) {
  return [sees](int, int, int query, int key, double score) {
    return sees(query, key) ? score : -std::numeric_limits<double>::infinity();
  };
}

// What comes out when the diagonal is not where it should be.
std::vector<Case::Alternative> wrong_masks(const AttentionTensors& t) {
  std::vector<Case::Alternative> all;
  const auto add = [&](const char* what, const Sees& sees) {
    all.push_back({expected(t, only(sees)),
                   std::string("this comes out when ") + what + ": query i sees keys 0 to i",
                   true});
  };
  add("the key behind a query's own counts, too",
      [](int query, int key) { return key <= query + 1; });
  for (const int tile : {8, 16, 32, 64, 128})
    if (tile < 2 * t.keys)
      add((std::to_string(tile) +
           " keys count as soon as one of them does, since no mask tells them apart")
              .c_str(),
          [tile](int query, int key) { return key / tile <= query / tile; });
  return all;
}

Case causal(int batch, int heads, int tokens, int head_dim, uint64_t seed, double offset = 0) {
  AttentionTensors t = random_tensors(batch, heads, tokens, tokens, head_dim, seed);
  if (offset != 0) t = moved(std::move(t), offset);
  const ChangeScore change = only([](int query, int key) { return key <= query; });
  Case result = attention_case(t, expected(t, change), change, 64);
  result.alternatives = [t, others = result.alternatives] {
    std::vector<Case::Alternative> all = wrong_masks(t);
    for (Case::Alternative& other : others()) all.push_back(std::move(other));
    return all;
  };
  result.arguments = {input("Q", t.Q), input("K", t.K), input("V", t.V), output("O"),
                      value(t.query_shape())};
  result.causes["factor"] +=
      ". Or a key behind the query's own counts whose row is zeros, past the last token";
  result.hint_not_finite =
      offset != 0 ? "scores are large here: the row's maximum must be subtracted before 2^x"
                  : "is there a row whose first tile has no key that it sees? Its maximum is still "
                    "-INFINITY then, and -INFINITY minus -INFINITY is NaN. And query 0 sees key 0";
  result.hint = tokens == 1    ? "the one query sees the one key: O is V"
                : tokens <= 64 ? "all keys fit into one tile here: which of them does a query see?"
                               : "several tiles: do the numbers that the mask compares count from "
                                 "the start of the sequence, keys as well as queries?";
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> all = {causal(1, 1, 1, 64, 1),       causal(1, 2, 2, 32, 2),
                           causal(3, 1, 15, 128, 3),     causal(1, 1, 17, 64, 4),
                           causal(1, 1, 64, 32, 5),      causal(2, 1, 65, 64, 6),
                           causal(1, 1, 81, 64, 7, 150), causal(1, 2, 100, 128, 8)};
  all.push_back(causal(2, 3, 130, 32, 9));
  all.push_back(causal(1, 2, 197, 64, 10));
  return all;
}

// 2 heads of 256 tokens: 4 tiles of 64 rows. Of the 4 tiles of 64 keys the first rows need 1, the next
// 2, then 3 and 4: 10 a head (all of them would be 16).
constexpr double kHeads = 2, kTokens = 256, kHeadDim = 64, kNeeded = 10;
constexpr double kBytes = kHeads * kTokens * kHeadDim * 2;               // each of Q, K, V and O
constexpr double kTileBytes = kHeads * kNeeded * 2 * 64 * kHeadDim * 2;  // K and V, all tiles
constexpr double kTileMacs = kHeads * kNeeded * 2 * 64 * 64 * kHeadDim;
constexpr double kSeenMacs = kHeads * 2 * (kTokens * (kTokens + 1) / 2) * kHeadDim;  // pairs seen
Case measured() { return causal(1, int(kHeads), int(kTokens), int(kHeadDim), 11); }

// A count where the products are made on tensor cores; NaN, which reaches no aim, elsewhere.
std::function<double(const Counters&)> on_tensor_cores(double (*count)(const Counters&)) {
  return [count](const Counters& c) {
    return c.on_tensor_cores(kSeenMacs) >= kSeenMacs ? count(c) : NAN;
  };
}

const std::vector<Aim> kAims = {
    {"multiply-adds on tensor cores: tiles that a row sees, both products", 20, Aim::at_most,
     kTileMacs, [](const Counters& c) { return c.on_tensor_cores(kSeenMacs); },
     "a block whose last row is i needs no tile from key i + 1 on, and a warp may stop even "
     "earlier",
     Aim::number, kSeenMacs},
    {"bytes of K and V that are loaded: those tiles, once for 64 rows", 10, Aim::at_most,
     kTileBytes, on_tensor_cores([](const Counters& c) { return c.loaded_tiles(); }),
     "what nobody multiplies need not be copied either; share each tile among 64 rows", Aim::bytes,
     2 * kBytes},
    {"bytes to shared memory: Q, K, V and O, no scores, no weights", 10, Aim::at_most,
     kTileBytes + 2 * kBytes,
     on_tensor_cores([](const Counters& c) { return c.brought_to_shared(); }),
     "the lane that has a score of the first product is the one that brings its weight to the "
     "second: round it there",
     Aim::bytes},
    {"bank conflicts, share of the least number of wavefronts", 5, Aim::exactly, 0,
     on_tensor_cores([](const Counters& c) { return c.bank_conflict_share(kSeenMacs); }),
     "eight rows that ldmatrix reads at a time must lie in different banks: swizzle or pad them, "
     "those of O on its way out too",
     Aim::share},
    {"bytes of all stores: only O, once", 5, Aim::exactly, kBytes,
     [](const Counters& c) { return c.stored(); },
     "scores and weights stay in registers; rows past the last token are not written", Aim::bytes},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(argc, argv,
                     {{.title = "Exercise 13, from an empty function: causal attention",
                       .folder = "chapters/13_flash_attention",
                       .file = "exercise.cuh",
                       .solution = "solution.cuh",
                       .name_space = "exercise",
                       .parameters = "const half*, const half*, const half*, half*, const "
                                     "AttentionShape&, cudaStream_t",
                       .cases = cases,
                       .measured = measured,
                       .aims = kAims,
                       .function = "causal"}});
}
