// Grades exercise 6, a pipeline of two stages.
#include "../../common/grader.h"

namespace {

using namespace lab::grader;

Case of64(int batch, int heads, int tokens, uint64_t seed, double offset = 0) {
  AttentionTensors t = random_tensors(batch, heads, tokens, tokens, 64, seed);
  if (offset != 0) t = moved(std::move(t), offset);
  Case result = attention_case(t, expected(t));
  result.arguments = {input("Q", t.Q), input("K", t.K), input("V", t.V), output("O"),
                      value(t.query_shape())};
  result.hint = offset != 0    ? "scores are large here: the maximum must be subtracted"
                : tokens <= 64 ? "one tile of keys: has it arrived when it is read, and is it zero "
                                 "past the last token?"
                               : "several tiles: which stage is read, and which one is written, in "
                                 "the second turn?";
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> all = {of64(1, 1, 1, 1),   of64(1, 2, 2, 2),  of64(3, 1, 15, 3),
                           of64(1, 1, 16, 4),  of64(1, 3, 17, 5), of64(1, 1, 33, 6),
                           of64(1, 2, 64, 7),  of64(2, 1, 65, 8), of64(1, 1, 100, 9, 150),
                           of64(1, 2, 127, 10)};
  all.push_back(of64(1, 1, 128, 11));
  all.push_back(of64(1, 2, 197, 12));
  all.back().checked = false;
  return all;
}

// 2 heads of 256 tokens: 4 blocks of 64 rows, 4 warps each; 4 tiles of 64 keys. All keys are alike, so
// that no maximum grows after the first tile and nobody has to rescale.
constexpr double kTokens = 256, kBlocks = 2 * 4, kWarps = kBlocks * 4, kTiles = 4;
constexpr double kTileBytes = kBlocks * kTokens * 64 * 2 * 2;  // of K and V
Case measured() {
  AttentionTensors t = random_tensors(1, 2, int(kTokens), int(kTokens), 64, 13);
  for (size_t i = 0; i < t.K.size(); ++i) t.K[i] = t.K[i % 64];
  Case result = attention_case(t, {});
  result.arguments = {input("Q", t.Q), input("K", t.K), input("V", t.V), output("O"),
                      value(t.query_shape())};
  return result;
}

const std::vector<Aim> kAims = {
    {"bytes that are copied asynchronously: K and V, once for 64 rows", 15, Aim::at_least,
     kTileBytes, [](const Counters& c) { return c.sum("/async_copied_bytes"); },
     "__pipeline_memcpy_async for all of K and V"},
    {"bytes of K and V that are loaded: once for 64 rows", 5, Aim::at_most, kTileBytes,
     [](const Counters& c) { return c.bytes("K", "load") + c.bytes("V", "load"); },
     "share each tile among the block's 64 query rows"},
    {"barriers of warps: 3 for each tile, one of them the block's, and 8", 15, Aim::at_most,
     kWarps*(3 * kTiles + 8), [](const Counters& c) { return c.sum("/classes/barrier/warp"); },
     "with two stages one __syncthreads() for each tile is enough, beside two __syncwarp()"},
    {"sectors moved / needed, loads of K", 5, Aim::at_most, 1.02,
     [](const Counters& c) { return c.moved_over_needed("K", "load"); },
     "neighbouring lanes must copy neighbouring pieces of a row"},
    {"bank conflicts, share of the least number of wavefronts", 5, Aim::at_most, 0.02,
     [](const Counters& c) { return c.bank_conflict_share(); },
     "rows of a tile need padding, so that they begin in different banks"},
    {"bytes of all stores: only O, once", 5, Aim::exactly, 2 * kTokens * 64 * 2,
     [](const Counters& c) { return c.sum("/global/store/bytes_asked"); },
     "scores stay in shared memory; rows past the last token are not written"},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(
      argc, argv,
      {{.title = "Exercise 6: a pipeline of two stages",
        .folder = "chapters/06_coalesced_k",
        .file = "exercise.cuh",
        .solution = "solution.cuh",
        .name_space = "exercise",
        .parameters =
            "const half*, const half*, const half*, half*, const AttentionShape&, cudaStream_t",
        .cases = cases,
        .measured = measured,
        .aims = kAims}});
}
