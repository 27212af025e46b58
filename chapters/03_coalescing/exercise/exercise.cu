// Grades exercise 3, head_dim 80.
#include "../../../common/grader/attention_cases.h"
#include "../../../common/grader/grader.h"

namespace {

using namespace lab::grader;

constexpr int kHeadDim = 80;

Case of80(int batch, int heads, int tokens, uint64_t seed, double offset = 0) {
  AttentionTensors t = random_tensors(batch, heads, tokens, tokens, kHeadDim, seed);
  if (offset != 0) t = moved(std::move(t), offset);
  Case result = attention_case(t, expected(t), {}, 64);
  result.arguments = {input("Q", t.Q), input("K", t.K), input("V", t.V), output("O"),
                      value(t.query_shape())};
  if (offset != 0)
    result.hint_not_finite =
        "scores are large here: the row's maximum must be subtracted before exp";
  result.hint =
      "the last index of the first wrong element is d: 0 to 31, 32 to 63 or 64 to 79? And is the "
      "element before it right?";
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> all = {of80(1, 1, 1, 1),   of80(1, 2, 2, 2),  of80(3, 1, 15, 3),
                           of80(1, 1, 16, 4),  of80(1, 3, 17, 5), of80(1, 1, 33, 6),
                           of80(1, 2, 64, 7),  of80(2, 1, 65, 8), of80(1, 1, 100, 9, 150),
                           of80(1, 2, 127, 10)};
  all.push_back(of80(1, 1, 128, 11));
  all.push_back(of80(1, 2, 197, 12));
  return all;
}

// 2 heads of 128 tokens: 8 blocks of 16 rows in each read all keys once.
constexpr double kElements = 2 * 128 * kHeadDim, kBytes = 8 * kElements * 2;  // K's
constexpr double kProducts = kElements * 128;                                 // Q times K
Case measured() { return of80(1, 2, 128, 13); }

double both(const Counters& c,
            double (Counters::*counter)(const std::string&, const std::string&) const) {
  return (c.*counter)("K", "load") + (c.*counter)("V", "load");
}

const std::vector<Aim> kAims = {
    {"loads of K and V by a warp: 512 bytes each, 1.1 times that many", 20, Aim::at_most,
     1.1 * 2 * kBytes / 512, [](const Counters& c) { return both(c, &Counters::requests); },
     "a lane must load 16 bytes at a time, and hardly any lane may have nothing to load",
     Aim::number, 2 * kElements * 2 / 512},
    {"bytes of K and V that are loaded: once for 16 rows", 5, Aim::at_most, 2 * kBytes,
     [](const Counters& c) { return c.loaded_tiles(); }, "share each tile among 16 query rows",
     Aim::bytes, 2 * kElements * 2},
    {"sectors moved / needed, loads of K", 10, Aim::at_most, 1.05,
     [](const Counters& c) { return c.moved_over_needed("K", "load", kProducts * 2); },
     "neighbouring lanes must load neighbouring pieces, also from one row to the next"},
    {"sectors moved / needed, stores of O", 5, Aim::at_most, 1.1,
     [](const Counters& c) { return c.moved_over_needed("O", "store", 2 * kElements * 2); },
     "neighbouring lanes must take neighbouring columns of O"},
    {"bytes of all stores: only O, once", 5, Aim::exactly, kElements * 2,
     [](const Counters& c) { return c.stored(); },
     "O is written after the loop, by one lane for each element", Aim::bytes},
    {"bank conflicts, share of the least number of wavefronts", 5, Aim::at_most, 0.05,
     [](const Counters& c) { return c.bank_conflict_share(2 * kProducts); },
     "neighbouring lanes must take neighbouring columns: with columns 3 lane, 3 lane + 1, ... two "
     "lanes often meet in one bank, although rows are padded",
     Aim::share},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(
      argc, argv,
      {{.title = "Exercise 3: head_dim 80",
        .folder = "chapters/03_coalescing",
        .file = "exercise.cuh",
        .solution = "solution.cuh",
        .name_space = "exercise",
        .parameters =
            "const half*, const half*, const half*, half*, const AttentionShape&, cudaStream_t",
        .cases = cases,
        .measured = measured,
        .aims = kAims}});
}
