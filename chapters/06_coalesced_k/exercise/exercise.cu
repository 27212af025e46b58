// Grades exercise 6, cross-attention with a pipeline of two stages, and Q, K and V in one array, in
// task2.cuh.
#include <cmath>

#include "../../../common/grader/attention_cases.h"
#include "../../../common/grader/grader.h"

namespace {

using namespace lab::grader;

Case of(const AttentionTensors& t, const std::vector<double>& expected) {
  Case result = attention_case(t, expected, {}, 64);
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
  return all;
}

// 2 heads of 256 queries, 4 blocks of 64 rows with 4 warps each, and 512 keys, 8 tiles of 64. All
// keys are alike, so that no maximum grows after the first tile and nobody has to rescale.
constexpr double kQueries = 256, kKeys = 512, kBlocks = 2 * 4, kWarps = kBlocks * 4, kTiles = 8;
constexpr double kTileBytes = kBlocks * kKeys * 64 * 2 * 2;  // K and V
constexpr double kProducts = 2 * kQueries * kKeys * 64;      // Q times K
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
     [](const Counters& c) { return c.moved_over_needed("K", "load", kProducts * 2); },
     "neighbouring lanes must copy neighbouring pieces of a row"},
    {"bank conflicts, share of the least number of wavefronts", 5, Aim::at_most, 0.02,
     [](const Counters& c) { return c.bank_conflict_share(2 * kProducts); },
     "rows of a tile need padding, so that they begin in different banks", Aim::share},
    {"bytes of all stores: only O, once", 5, Aim::exactly, 2 * kQueries * 64 * 2,
     [](const Counters& c) { return c.stored(); },
     "scores stay in shared memory; rows past the last token are not written", Aim::bytes},
};

// ---- task2.cuh ----------------------------------------------------------------------------------

Case packed(int batch, int heads, int tokens, uint64_t seed, double offset = 0) {
  AttentionTensors t = random_tensors(batch, heads, tokens, tokens, 64, seed);
  if (offset != 0) t = moved(std::move(t), offset);
  // Both token by token instead of head by head.
  const std::vector<double> of_heads = expected(t);
  std::vector<half> qkv;
  std::vector<double> of_tokens;
  for (int image = 0; image < batch; ++image)
    for (int token = 0; token < tokens; ++token) {
      const auto row = [&](int head) {
        return (int64_t(image * heads + head) * tokens + token) * 64;
      };
      for (const std::vector<half>* array : {&t.Q, &t.K, &t.V})
        for (int head = 0; head < heads; ++head)
          qkv.insert(qkv.end(), &(*array)[row(head)], &(*array)[row(head)] + 64);
      for (int head = 0; head < heads; ++head)
        of_tokens.insert(of_tokens.end(), &of_heads[row(head)], &of_heads[row(head)] + 64);
    }
  double most = 0;
  for (const half value : t.V) most = std::fmax(most, std::abs(double(value)));
  Case result;
  result.tolerance = lab::Tolerance::fp16_mean(most);
  result.expected = of_tokens;
  result.name = "[batch " + std::to_string(batch) + ", " + std::to_string(tokens) +
                " tokens, heads " + std::to_string(heads) + ", head_dim 64]";
  result.dims = {batch, tokens, heads, 64};
  result.arguments = {input("qkv", qkv), output("O"), value(t.query_shape())};
  result.hint_not_finite =
      offset != 0
          ? "scores are large here: a row's maximum, which begins at -INFINITY, must be "
            "subtracted before exp"
          : "NaN comes from 0/0 or from infinity minus infinity: does the search for a row's "
            "maximum begin at -INFINITY, and is each row divided by its own sum?";
  result.hint =
      tokens == 1
          ? "the one key has all the weight: O is V, of each head. (The element's indices are "
            "batch, token, head, d)"
      : heads == 1 && batch == 1 && tokens <= 64
          ? "one head and one tile of keys: how far is it from a token to the next one, in qkv and "
            "in O?"
      : tokens <= 64
          ? "one tile of keys: where do head and image begin, in qkv and in O? (The element's "
            "indices "
            "are batch, token, head, d)"
          : "several tiles: is each row of O rescaled with its own factor when its maximum grows? "
            "Which keys are past the last token, and who may still be reading a tile?";
  return result;
}

std::vector<Case> packed_cases() {
  std::vector<Case> all = {packed(1, 1, 1, 1),        packed(1, 2, 1, 2),
                           packed(1, 2, 2, 3),        packed(3, 1, 15, 4),
                           packed(1, 3, 17, 5),       packed(2, 2, 33, 6),
                           packed(1, 1, 64, 7),       packed(1, 5, 65, 8),
                           packed(1, 1, 100, 9, 150), packed(1, 1, 81, 10, -150)};
  all.push_back(packed(1, 2, 127, 11));
  all.push_back(packed(2, 3, 197, 12));
  return all;
}

// 2 images of 150 tokens and 3 heads: 3 blocks of 64 rows for each image and head.
constexpr double kPackedScores = 2 * 3 * 150.0 * 150;
constexpr double kPackedBytes = 2 * 3 * 150 * 64 * 2;  // each of Q, K, V and O
Case packed_measured() { return packed(2, 3, 150, 13); }

// NaN, which reaches no aim, where less is read from shared memory than K once.
double conflicts_of_tiles(const Counters& c) {
  constexpr double kWavefront = 128;  // bytes
  return c.sum("/shared/load/ideal") >= kPackedBytes / kWavefront
             ? c.bank_conflict_share(2 * kPackedScores * 64)
             : NAN;
}

const std::vector<Aim> kPackedAims = {
    {"bytes that are loaded: Q once, K and V once for 64 rows", 15, Aim::at_most,
     (1 + 2 * 3) * kPackedBytes,
     [](const Counters& c) { return c.bytes("qkv", "load") + c.bytes(kScratch, "load"); },
     "read qkv as it lies, and share each tile among the block's 64 query rows", Aim::bytes,
     3 * kPackedBytes},
    {"sectors moved / needed, loads of qkv", 10, Aim::at_most, 1.02,
     [](const Counters& c) {
       return c.moved_over_needed("qkv", "load", 2 * kPackedScores * 64 * 2);
     },
     "8 neighbouring lanes, 16 bytes each, are a whole row"},
    {"load requests of warps: 16 bytes a lane", 5, Aim::at_most,
     1.1 * (1 + 2 * 3) * kPackedBytes / 512,
     [](const Counters& c) { return c.requests("qkv", "load") + c.requests(kScratch, "load"); },
     "load uint4, 8 elements at a time", Aim::number, 3 * kPackedBytes / 512},
    {"bank conflicts, share of the least number of wavefronts", 10, Aim::at_most, 0.02,
     conflicts_of_tiles, "rows of a tile need padding, so that they begin in different banks",
     Aim::share},
    {"multiply-adds on the tensor cores: both products", 5, Aim::at_least, 2 * kPackedScores * 64,
     [](const Counters& c) { return c.on_tensor_cores(2 * kPackedScores * 64); },
     "Q Kᵀ and (weights) V are both products of 16 x 16 tiles: mma_sync"},
    {"bytes of all stores: only O, once", 5, Aim::exactly, kPackedBytes,
     [](const Counters& c) { return c.stored(); },
     "nothing is sorted into memory of your own; rows past the last token are not written",
     Aim::bytes},
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
                       .aims = kAims},
                      {.title = "Exercise 6, from an empty function: Q, K and V in one array",
                       .folder = "chapters/06_coalesced_k",
                       .file = "task2.cuh",
                       .solution = "solution2.cuh",
                       .name_space = "exercise",
                       .parameters = "const half*, half*, const AttentionShape&, cudaStream_t",
                       .cases = packed_cases,
                       .measured = packed_measured,
                       .aims = kPackedAims}});
}
