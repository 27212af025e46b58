// Grades exercise 14, attention pooling through a ring of stages.
#include <cmath>

#include "../../../common/grader/attention_cases.h"
#include "../../../common/grader/grader.h"

namespace {

using namespace lab::grader;

constexpr int kHeadDim = 64, kTileKeys = 32, kStages = 4;  // as exercise.cuh has them

// Keys and values of one tile in place of another's: what a consumer reads that came too early or too
// late.
std::vector<double> with_tile_of(const AttentionTensors& t, int tile, int instead) {
  AttentionTensors other = t;
  const int64_t tile_elements = int64_t(kTileKeys) * kHeadDim, matrix = int64_t(t.keys) * kHeadDim;
  for (int64_t first = 0; first < int64_t(t.K.size()); first += matrix)
    for (int64_t i = 0; i < tile_elements && tile * tile_elements + i < matrix; ++i) {
      other.K[first + tile * tile_elements + i] = t.K[first + instead * tile_elements + i];
      other.V[first + tile * tile_elements + i] = t.V[first + instead * tile_elements + i];
    }
  return expected(other);
}

Case pooled(int batch, int heads, int patches, uint64_t seed) {
  const AttentionTensors t = random_tensors(batch, heads, 1, patches, kHeadDim, seed);
  Case result = attention_case(t, expected(t), {}, kTileKeys);
  result.name = "batch " + std::to_string(batch) + ", heads " + std::to_string(heads) +
                ", patches " + std::to_string(patches);
  result.sizes = {{"batch", batch}, {"heads", heads}, {"patches", patches}};
  result.arguments = {input("Q", t.Q), input("K", t.K), input("V", t.V), output("O"),
                      value(AttentionShape{batch, heads, patches, kHeadDim, t.scale})};
  const int tiles = (patches + kTileKeys - 1) / kTileKeys;
  result.alternatives = [t, tiles, others = result.alternatives] {
    std::vector<Case::Alternative> all;
    for (int tile = kStages; tile < tiles; ++tile)
      all.push_back({with_tile_of(t, tile, tile - kStages),
                     "this comes out when tile " + std::to_string(tile) +
                         " is taken to be there while its stage still has that of one round "
                         "before: for which parity do its readers wait?"});
    for (Case::Alternative& other : others()) all.push_back(std::move(other));
    return all;
  };
  result.hint =
      tiles == 1 ? "one tile, one stage: what is announced, what is asked for, and where does it "
                   "arrive?"
      : tiles <= kStages
          ? "several tiles, one round of the ring: which stage and which rows belong to a tile?"
          : "the ring goes round more than once: for which parity of which barrier does each side "
            "wait in the second round?";
  result.hint_not_finite =
      "something is read that is no key or value of this image: has the tile arrived when it is "
      "read?";
  return result;
}

std::vector<Case> cases() {
  // 1 to 4 tiles, then 5, 7, 9 and 30: up to eight rounds of the ring. Shared memory has room for fewer,
  // so that no ring has a stage for each.
  std::vector<Case> all = {pooled(1, 1, 32, 1),  pooled(2, 3, 1, 2),   pooled(1, 2, 45, 3),
                           pooled(1, 1, 128, 4), pooled(1, 2, 129, 5), pooled(2, 2, 197, 6),
                           pooled(1, 1, 288, 7), pooled(1, 2, 945, 8)};
  return all;
}

// 6 blocks of 13 tiles each, of which the last has 16 patches.
constexpr double kImages = 2, kHeads = 3, kPatches = 400, kTiles = 13;
constexpr double kBytes = kImages * kHeads * kPatches * kHeadDim * 2;  // each of K and V
constexpr double kStageBytes = 2 * kTileKeys * kHeadDim * 2;
Case measured() { return pooled(int(kImages), int(kHeads), int(kPatches), 9); }

const std::vector<Aim> kAims = {
    {"tensor copies: two a tile", 15, Aim::exactly, kImages* kHeads* kTiles * 2,
     [](const Counters& c) { return c.sum("/copy_engine/load/copies"); },
     "one copy brings kTileKeys rows of K, another one those of V; tiles past the last one are not "
     "asked for"},
    {"bytes of K and V: brought by the copy engine, once", 10, Aim::exactly, 2 * kBytes,
     [](const Counters& c) { return c.loaded_tiles(); },
     "no thread loads K or V itself, and no tile is asked for twice", Aim::bytes},
    {"bytes on their way to one block at once: all stages", 20, Aim::at_least, kStages* kStageBytes,
     [](const Counters& c) { return c.sum("/most_bulk_under_way"); },
     "whoever asks waits for nothing but room: as long as a stage is free, the next tile is asked "
     "for",
     Aim::bytes},
    {"bytes of all stores: only O, once", 5, Aim::exactly, kImages* kHeads* kHeadDim * 2,
     [](const Counters& c) { return c.stored(); }, "the consumers' part stays as it is",
     Aim::bytes},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(argc, argv,
                     {{.title = "Exercise 14: attention pooling through a ring of stages",
                       .folder = "chapters/14_hopper",
                       .file = "exercise.cuh",
                       .solution = "solution.cuh",
                       .name_space = "exercise",
                       .parameters = "const half*, const half*, const half*, half*, const "
                                     "AttentionShape&, cudaStream_t",
                       .cases = cases,
                       .measured = measured,
                       .aims = kAims,
                       .function = "pool"}});
}
