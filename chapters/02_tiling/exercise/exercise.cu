// Grades exercise 2, causal attention; a sliding window, in task2.cuh; and the race to be found in
// bug.cuh.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "../../../common/grader/attention_cases.h"
#include "../../../common/grader/grader.h"

namespace {

using namespace lab::grader;

const char* const kParameters =
    "const half*, const half*, const half*, half*, const AttentionShape&, cudaStream_t";

Case of(const AttentionTensors& t, const ChangeScore& change = {}) {
  Case result = attention_case(t, expected(t, change), change, 64);
  result.arguments = {input("Q", t.Q), input("K", t.K), input("V", t.V), output("O"),
                      value(t.query_shape())};
  return result;
}

Case causal(int batch, int heads, int tokens, uint64_t seed, double offset = 0) {
  AttentionTensors t = random_tensors(batch, heads, tokens, tokens, 64, seed);
  if (offset != 0) t = moved(std::move(t), offset);
  Case result = of(t, [](int, int, int query, int key, double score) {
    return key <= query ? score : -std::numeric_limits<double>::infinity();
  });
  if (offset != 0)
    result.hint_not_finite =
        "scores are large here: the row's maximum must be subtracted before exp";
  result.hint = tokens == 1    ? "the one query sees the one key: O is V"
                : tokens <= 64 ? "all keys are in one tile here: which of them does a query see?"
                               : "several tiles: is all that was added up before, row_sum as well "
                                 "as O, rescaled when the maximum grows? And does the mask count "
                                 "keys from first_key on?";
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> all = {causal(1, 1, 1, 1),   causal(1, 2, 2, 2),  causal(3, 1, 15, 3),
                           causal(1, 1, 16, 4),  causal(1, 3, 17, 5), causal(1, 1, 33, 6),
                           causal(1, 2, 64, 7),  causal(2, 1, 65, 8), causal(1, 1, 100, 9, 150),
                           causal(1, 2, 127, 10)};
  all.push_back(causal(1, 1, 128, 11));
  all.push_back(causal(1, 2, 197, 12));
  return all;
}

// 2 heads of 192 tokens: 12 blocks of 16 rows in each. Tiles of 64 keys that a block needs: 1 for
// the first 4 blocks, 2 for the next 4, 3 for the last 4: 24 a head (all of them would be 36).
constexpr double kElements = 2 * 192 * 64, kTileBytes = 64 * 64 * 2;
constexpr double kProducts = kElements * 192;  // Q times K, all keys
Case measured() { return causal(1, 2, 192, 13); }

const std::vector<Aim> kAims = {
    {"bytes of K and V that are loaded: only tiles that a row sees", 20, Aim::at_most,
     2 * 24 * 2 * kTileBytes, [](const Counters& c) { return c.loaded_tiles(); },
     "a block's last row sees first_row + 16 keys: end the loop over the tiles there, and share "
     "each tile among 16 rows",
     Aim::bytes, 2 * kElements * 2},
    {"bytes of all stores: only O, once", 10, Aim::exactly, kElements * 2,
     [](const Counters& c) { return c.stored(); },
     "scores and weights stay in shared memory or registers; O is written after the loop",
     Aim::bytes},
    {"bytes of Q that are loaded: once", 5, Aim::at_most, kElements * 2,
     [](const Counters& c) { return c.bytes("Q", "load"); },
     "keep the 16 rows of Q in shared memory, loaded before the loop", Aim::bytes, kElements * 2},
    {"sectors moved / needed, loads of K", 10, Aim::at_most, 1.1,
     [](const Counters& c) { return c.moved_over_needed("K", "load", kProducts * 2); },
     "neighbouring lanes must load neighbouring elements of a row"},
    {"bank conflicts, share of the least number of wavefronts", 5, Aim::at_most, 0.1,
     [](const Counters& c) { return c.bank_conflict_share(2 * kProducts); },
     "lanes that read different rows of a tile meet in one bank unless rows are padded",
     Aim::share},
};

// ---- task2.cuh ----------------------------------------------------------------------------------

const char* const kWindowParameters =
    "const half*, const half*, const half*, half*, const AttentionShape&, int, cudaStream_t";

// What comes out when an end of the window is not where it should be, or a side has none.
std::vector<Case::Alternative> wrong_windows(const AttentionTensors& t, int window) {
  std::vector<Case::Alternative> all;
  const auto add = [&](int left, int right, const char* what) {
    const auto seen = [=](int, int, int query, int key, double score) {
      return key >= query - left && key <= query + right ? score
                                                         : -std::numeric_limits<double>::infinity();
    };
    all.push_back({expected(t, seen),
                   std::string("this comes out when ") + what +
                       ": query i sees i - window to i + window, both included",
                   true});
  };
  if (window > 0) {
    add(window - 1, window, "the first key of the window is left out");
    add(window, window - 1, "the last key of the window is left out");
    add(window - 1, window - 1, "the first and the last key of the window are left out");
  }
  add(window + 1, window, "one key before the window counts, too");
  add(window, window + 1, "one key behind the window counts, too");
  add(window + 1, window + 1, "one key more counts on each side of the window");
  add(t.keys, window, "all keys before the window count, too");
  add(window, t.keys, "all keys behind the window count, too");
  add(t.keys, t.keys, "all keys count, as if there were no window");
  return all;
}

Case windowed(int batch, int heads, int tokens, int window, uint64_t seed, double offset = 0) {
  AttentionTensors t = random_tensors(batch, heads, tokens, tokens, 64, seed);
  if (offset != 0) t = moved(std::move(t), offset);
  const auto seen = [window](int, int, int query, int key, double score) {
    return std::abs(key - query) <= window ? score : -std::numeric_limits<double>::infinity();
  };
  Case result = attention_case(t, expected(t, seen));
  result.alternatives = [t, window, others = result.alternatives] {
    std::vector<Case::Alternative> all = wrong_windows(t, window);
    for (Case::Alternative& other : others()) all.push_back(std::move(other));
    return all;
  };
  result.arguments = {input("Q", t.Q), input("K", t.K),        input("V", t.V),
                      output("O"),     value(t.query_shape()), value(window)};
  result.name += ", window " + std::to_string(window);
  result.hint_not_finite =
      offset != 0 ? "scores are large here: a row's maximum, which begins at -INFINITY, must be "
                    "subtracted before exp"
                  : "is there a row whose first tile has no key that it sees? Its maximum is still "
                    "-INFINITY then, and -INFINITY minus -INFINITY is NaN";
  result.hint =
      window == 0        ? "each query sees itself alone: O is V"
      : window >= tokens ? "the window is larger than the sequence: all keys count, and no other"
      : tokens <= 64
          ? "a query sees window keys on each side and itself: 2 window + 1, fewer at both "
            "ends"
          : "several tiles: which is the first and which the last that one of the block's "
            "rows sees? And is all that was added up before rescaled when a maximum grows?";
  return result;
}

std::vector<Case> window_cases() {
  std::vector<Case> all = {windowed(1, 1, 1, 0, 1),         windowed(1, 2, 2, 1, 2),
                           windowed(3, 1, 15, 3, 3),        windowed(1, 3, 17, 0, 4),
                           windowed(1, 1, 33, 1000, 5),     windowed(1, 2, 63, 5, 6),
                           windowed(2, 1, 65, 64, 7),       windowed(1, 1, 100, 20, 8, 150),
                           windowed(1, 1, 81, 33, 9, -150), windowed(1, 2, 127, 9, 10)};
  all.push_back(windowed(1, 2, 197, 70, 11));
  all.push_back(windowed(2, 1, 300, 3, 12));
  return all;
}

constexpr int kWindowTokens = 320, kWindow = 40;
constexpr double kWindowElements = 2 * kWindowTokens * 64;
Case window_measured() { return windowed(1, 2, kWindowTokens, kWindow, 13); }

// Bytes of K and V where blocks of 16 rows load whole tiles of 64 keys, of which the first begins
// at a multiple of 64.
double window_bytes() {
  double tiles = 0;
  for (int row = 0; row < kWindowTokens; row += 16)
    tiles +=
        std::min(kWindowTokens - 1, row + 15 + kWindow) / 64 - std::max(0, row - kWindow) / 64 + 1;
  return 2 * tiles * 2 * kTileBytes;
}

// NaN, which reaches no aim, where less is read from shared memory than K once.
double conflicts_of_tiles(const Counters& c) {
  constexpr double kWavefront = 128;  // bytes
  return c.sum("/shared/load/ideal") >= kWindowElements * 2 / kWavefront
             ? c.bank_conflict_share(2 * kWindowElements * kWindowTokens)
             : NAN;
}

const std::vector<Aim> kWindowAims = {
    {"bytes of K and V that are loaded: only tiles that a row sees", 20, Aim::at_most,
     window_bytes(), [](const Counters& c) { return c.loaded_tiles(); },
     "begin the loop over the tiles with the first key that the block's first row sees, end it "
     "with "
     "the last key of its last row, and share each tile among 16 rows",
     Aim::bytes, 2 * kWindowElements * 2},
    {"bytes of all stores: only O, once", 10, Aim::exactly, kWindowElements * 2,
     [](const Counters& c) { return c.stored(); },
     "scores and weights stay in shared memory or registers; O is written after the loop",
     Aim::bytes},
    {"bytes of Q that are loaded: once", 5, Aim::at_most, kWindowElements * 2,
     [](const Counters& c) { return c.bytes("Q", "load"); },
     "keep the block's rows of Q on chip, loaded before the loop", Aim::bytes, kWindowElements * 2},
    // So that who loads tiles in vain loses the points above alone: of all keys for each block.
    {"loads of K are coalesced: sectors, against blocks of 16 rows with all keys", 10, Aim::at_most,
     1.1 * (kWindowTokens / 16) * kWindowElements * 2 / 32,
     [](const Counters& c) { return c.sectors("K", "load") + c.sectors(kScratch, "load"); },
     "neighbouring lanes must load neighbouring elements of a row", Aim::number,
     kWindowElements * 2 / 32},
    {"bank conflicts, share of the least number of wavefronts", 5, Aim::at_most, 0.1,
     conflicts_of_tiles,
     "keep tiles in shared memory; lanes that read different rows of one meet in one bank unless "
     "rows are padded",
     Aim::share},
};

// ---- bug.cuh ------------------------------------------------------------------------------------

Case plain(int batch, int heads, int tokens, uint64_t seed) {
  const AttentionTensors t = random_tensors(batch, heads, tokens, tokens, 64, seed);
  Case result = of(t);
  result.hint = "warps run in another order here: who reads what before it is written?";
  return result;
}

std::vector<Case> bug_cases() {
  return {plain(1, 1, 17, 1), plain(1, 2, 33, 2), plain(2, 1, 48, 3), plain(1, 1, 65, 4)};
}
// 40 rows, a block of 4 warps each.
constexpr double kRows = 40;
Case bug_measured() { return plain(1, 1, 40, 5); }

const std::vector<Aim> kBugAims = {
    {"the mended kernel is hardly slower: instructions of the kind that mends it", 30, Aim::at_most,
     4 * kRows, [](const Counters& c) { return c.sum("/classes/barrier/warp"); },
     "one barrier is enough; none in the loop", Aim::number, kRows},
    {"bytes of K that are loaded: each key once for each row", 10, Aim::exactly, kRows* kRows * 128,
     [](const Counters& c) { return c.bytes("K", "load"); },
     "mend the kernel, do not write another", Aim::bytes},
    {"bytes of all stores: only O, once", 10, Aim::exactly, kRows * 128,
     [](const Counters& c) { return c.stored(); }, "mend the kernel, do not write another",
     Aim::bytes},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(argc, argv,
                     {{.title = "Exercise 2: causal attention",
                       .folder = "chapters/02_tiling",
                       .file = "exercise.cuh",
                       .solution = "solution.cuh",
                       .name_space = "exercise",
                       .parameters = kParameters,
                       .cases = cases,
                       .measured = measured,
                       .aims = kAims},
                      {.title = "Exercise 2, from an empty function: a sliding window",
                       .folder = "chapters/02_tiling",
                       .file = "task2.cuh",
                       .solution = "solution2.cuh",
                       .name_space = "exercise",
                       .parameters = kWindowParameters,
                       .cases = window_cases,
                       .measured = window_measured,
                       .aims = kWindowAims},
                      {.title = "Exercise 2, find the bug",
                       .folder = "chapters/02_tiling",
                       .file = "bug.cuh",
                       .solution = "",
                       .name_space = "exercise",
                       .parameters = kParameters,
                       .cases = bug_cases,
                       .measured = bug_measured,
                       .aims = kBugAims,
                       .schedule = "random:1",
                       .holes = false}});
}
