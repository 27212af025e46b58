// Grades exercise 6, cross-attention with a pipeline of two stages.
#include "../../common/grader.h"

namespace {

using namespace lab::grader;

Case of(const AttentionTensors& t, const std::vector<double>& expected) {
  Case result = attention_case(t, expected);
  result.arguments = {input("Q", t.Q), input("K", t.K),        input("V", t.V),
                      output("O"),     value(t.query_shape()), value(t.keys)};
  return result;
}

Case cross(int batch, int heads, int queries, int keys, uint64_t seed, double offset = 0) {
  AttentionTensors t = random_tensors(batch, heads, queries, keys, 64, seed);
  if (offset != 0) t = moved(std::move(t), offset);
  Case result = of(t, expected(t));
  if (offset != 0)
    result.hint_not_finite =
        "scores are large here: the row's maximum must be subtracted before exp";
  result.hint = keys <= 64 ? "one tile of keys: has it arrived when it is read, and is it zero "
                             "past the last key?"
                           : "several tiles: which stage is read, and which one is written, in "
                             "the second turn?";
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> all = {cross(1, 1, 1, 1, 1),         cross(1, 2, 17, 2, 2),
                           cross(3, 1, 64, 15, 3),       cross(1, 1, 65, 16, 4),
                           cross(1, 3, 2, 33, 5),        cross(1, 1, 33, 64, 6),
                           cross(1, 2, 16, 65, 7),       cross(2, 1, 100, 128, 8),
                           cross(1, 1, 80, 100, 9, 150), cross(1, 2, 31, 127, 10)};
  all.push_back(cross(1, 1, 15, 192, 11));
  all.push_back(cross(1, 2, 197, 250, 12));
  all[11].checked = false;
  return all;
}

// 2 heads of 256 queries, 4 blocks of 64 rows with 4 warps each, and 512 keys, 8 tiles of 64. All
// keys are alike, so that no maximum grows after the first tile and nobody has to rescale.
constexpr double kQueries = 256, kKeys = 512, kBlocks = 2 * 4, kWarps = kBlocks * 4, kTiles = 8;
constexpr double kTileBytes = kBlocks * kKeys * 64 * 2 * 2;  // of K and V
Case measured() {
  AttentionTensors t = random_tensors(1, 2, int(kQueries), int(kKeys), 64, 13);
  for (size_t i = 0; i < t.K.size(); ++i) t.K[i] = t.K[i % 64];
  return of(t, expected(t));
}

const std::vector<Aim> kAims = {
    {"bytes that are copied asynchronously: K and V, once for 64 rows", 15, Aim::at_least,
     kTileBytes, [](const Counters& c) { return c.sum("/async_copied_bytes"); },
     "__pipeline_memcpy_async for all of K and V", Aim::bytes},
    {"bytes of K and V that are loaded: once for 64 rows", 5, Aim::at_most, kTileBytes,
     [](const Counters& c) { return c.loaded_tiles(); },
     "share each tile among the block's 64 query rows", Aim::bytes, 2 * kKeys * 64 * 2 * 2},
    // For each tile a warp must wait for its copies, then with the block, twice with its own lanes
    // (scores, weights), and commit the next copies; and there is Q, and O at the end.
    {"barriers, commits and waits of a warp: 5 for each tile, and 12", 15, Aim::at_most,
     kWarps*(5 * kTiles + 12), [](const Counters& c) { return c.sum("/classes/barrier/warp"); },
     "with two stages one __syncthreads() for each tile is enough, beside two __syncwarp()",
     Aim::number, kWarps},
    {"sectors moved / needed, loads of K", 5, Aim::at_most, 1.02,
     [](const Counters& c) { return c.moved_over_needed("K", "load"); },
     "neighbouring lanes must copy neighbouring pieces of a row"},
    {"bank conflicts, share of the least number of wavefronts", 5, Aim::at_most, 0.02,
     [](const Counters& c) { return c.bank_conflict_share(); },
     "rows of a tile need padding, so that they begin in different banks", Aim::share},
    {"bytes of all stores: only O, once", 5, Aim::exactly, 2 * kQueries * 64 * 2,
     [](const Counters& c) { return c.stored(); },
     "scores stay in shared memory; rows past the last token are not written", Aim::bytes},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(argc, argv,
                     {{.title = "Exercise 6: a pipeline of two stages",
                       .folder = "chapters/06_coalesced_k",
                       .file = "exercise.cuh",
                       .solution = "solution.cuh",
                       .name_space = "exercise",
                       .parameters = "const half*, const half*, const half*, half*, const "
                                     "AttentionShape&, int, cudaStream_t",
                       .cases = cases,
                       .measured = measured,
                       .aims = kAims}});
}
