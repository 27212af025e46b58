// Chapter 3's tests, of both of its steps: right on every shape, same bits twice, planted bugs found,
// what the counters say worked out by hand, and the machine code.
#include <doctest/doctest.h>

#include "../../../common/attention/test_cases.h"
#include "../../../common/attention/test_ladder.h"
#include "../../../common/lab/device.h"
#include "../../02_tiling/kernel.cuh"
#include "../1_coalesced_loads.cuh"
#include "../2_coalescing.cuh"
#include "03_coalescing/no_padding.cuh"  // variants/no_padding.diff

using namespace lab::testing;

TEST_CASE("attention: every shape") {
  check_every_shape(coalesced_loads::attention);
  check_every_shape(coalescing::attention);
}
TEST_CASE("attention: unusual scores") {
  check_unusual_scores(coalesced_loads::attention);
  check_unusual_scores(coalescing::attention);
}
TEST_CASE("attention: rounded once") {
  check_rounding(coalesced_loads::attention);
  check_rounding(coalescing::attention);
}
TEST_CASE("attention: arrays from PyTorch") {
  check_pytorch(coalesced_loads::attention);
  check_pytorch(coalescing::attention);
}
TEST_CASE("attention: a trained DeiT-Tiny") { check_deit_tiny(coalescing::attention); }
TEST_CASE("attention: the same bits twice") {
  check_same_bits(coalesced_loads::attention);
  check_same_bits(coalescing::attention);
}
TEST_CASE("attention: what it cannot do it refuses") {
  check_refusals(coalesced_loads::attention, 3);
  check_refusals(coalescing::attention, 3);
}
TEST_CASE("checked: without a finding") {
  if (rerun_with_checks("checked*")) return;
  check_without_findings(coalesced_loads::attention);
  check_without_findings(coalescing::attention);
  check_without_findings(no_padding::attention);
}
TEST_CASE("no padding: right, and lanes meet in banks") {
  check_every_shape(no_padding::attention);
  if (skipped_without_counters("counters")) return;
  run_for_counters(no_padding::attention, 1, 2, 197, 64);
  // Only the scores' loads of K: 8 lanes read the same banks of 8 rows, 32 wavefronts instead of 4.
  // 13 blocks of rows in each of 2 heads, 4 tiles, 4 warps, 8 pieces of a row.
  CHECK(shared_conflicts() == 26 * 4 * 4 * 8 * (32 - 4));
}
TEST_CASE("all checks, six schedules") { check_all_checks("chapter3"); }
TEST_CASE("program: the whole way on a photo") {
  check_program("chapter3", {"tiling", "coalesced loads", "4 rows a warp"});
}
TEST_CASE("program: a variant runs where --step names it and nowhere else") {
  check_variant("chapter3", "no padding", "coalesced loads");
}
TEST_CASE("on a T4") { check_on_t4("counters*,attention: arrays*,attention: the same bits*"); }
TEST_CASE("machine code: no spills") { check_machine_code("chapters/03_coalescing"); }

// What a block of either step takes from memory and leaves there: they load alike.
void check_bytes(const AnyAttention& attention, int heads, int tokens, int head_dim) {
  run_for_counters(attention, 1, heads, tokens, head_dim);
  const double row_blocks = (tokens + 15) / 16, elements = double(heads) * tokens * head_dim;
  for (const char* array : {"K", "V"}) {
    CAPTURE(array);
    // Each block of 16 query rows asks for all keys once.
    const double bytes = row_blocks * elements * 2;
    CHECK(counted(array, "load/bytes_asked") == bytes);
    CHECK(counted(array, "load/requests") ==
          row_blocks * heads * row_requests(tokens, 2 * head_dim, 16));
    CHECK(counted(array, "load/sectors") == bytes / 32);
  }
  CHECK(counted("Q", "load/bytes_asked") == elements * 2);
  CHECK(counted("Q", "load/requests") == heads * row_requests(tokens, 2 * head_dim, 16));
  CHECK(counted("Q", "load/sectors") == elements * 2 / 32);
  // The only stores are O, each element once, 32 neighbours of 2 bytes a request.
  CHECK(lab::vgpu::counter("/global/store/bytes_asked") == elements * 2);
  CHECK(counted("O", "store/bytes_asked") == elements * 2);
  CHECK(counted("O", "store/requests") == elements / 32);
  CHECK(counted("O", "store/sectors") == elements * 2 / 32);
  CHECK(lab::vgpu::counter("/local/store/requests") == 0);
}

TEST_CASE("counters: bytes by formula, 512 of them a request, each sector used whole") {
  if (skipped_without_counters("counters")) return;
  const int heads = 2;
  for (const int tokens : {64, 197})
    for (const int head_dim : {32, 64, 128}) {
      CAPTURE(tokens);
      CAPTURE(head_dim);
      const double row_blocks = (tokens + 15) / 16, tiles = (tokens + 63) / 64;
      check_bytes(coalesced_loads::attention, heads, tokens, head_dim);
      // Tiles: rows of Q, K and V in fp16, padded by 8; scores with a pad of 8 in fp32, factors.
      const int tile_bytes = 2 * (16 + 64 + 64) * (head_dim + 8);
      CHECK(lab::vgpu::counter("/static_shared") == tile_bytes + 4 * (16 * (64 + 8) + 16));
      // Written: Q once; of each tile of keys K and V, scores, weights and factors; factors again.
      const double loaded = 16 * head_dim * 2 + tiles * 2 * 64 * head_dim * 2;
      CHECK(lab::vgpu::counter("/shared/store/bytes_asked") ==
            heads * row_blocks * (loaded + tiles * (2 * 16 * 64 * 4 + 16 * 4) + 16 * 4));

      check_bytes(coalescing::attention, heads, tokens, head_dim);
      // The same rows, and of each key and warp four weights in fp32, which are written for each tile.
      CHECK(lab::vgpu::counter("/static_shared") == tile_bytes + 4 * 64 * 16);
      CHECK(lab::vgpu::counter("/shared/store/bytes_asked") ==
            heads * row_blocks * (loaded + tiles * 4 * 64 * 16));
    }
}

TEST_CASE("counters: no bank conflicts, and each step's limit is lower than that before") {
  if (skipped_without_counters("counters")) return;
  for (const int head_dim : {32, 64, 128}) {
    CAPTURE(head_dim);
    run_for_counters(tiling::attention, 1, 2, 197, head_dim);
    double before = lab::vgpu::counter("/limit/us");
    for (const AnyAttention& attention :
         {AnyAttention(coalesced_loads::attention), AnyAttention(coalescing::attention)}) {
      run_for_counters(attention, 1, 2, 197, head_dim);
      CHECK(lab::vgpu::counter("/limit/us") < before);
      CHECK(shared_conflicts() == 0);
      before = lab::vgpu::counter("/limit/us");
    }
  }
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {

// Both steps have the same grid and block.
AnyAttention kernel_of(const Mutants& mutants, size_t number) {
  return [&mutants, number](const half* Q, const half* K, const half* V, half* O,
                            const AttentionShape& shape, cudaStream_t stream) {
    launch(mutants.kernel(number, "attention_kernel", {shape.head_dim}),
           blocks_for(shape, coalescing::kQueryRows), coalescing::kThreads, 0, stream, Q, K, V, O,
           shape.tokens, log2_scale(shape));
  };
}

}  // namespace

TEST_CASE("planted bugs: each is caught, and by what" * doctest::test_suite("toolkit")) {
  if (rerun_with_checks("planted bugs*")) return;
  check_planted_bugs("chapters/03_coalescing/1_coalesced_loads.cuh", "coalesced_loads",
                     planted_bugs("03_coalescing", "coalesced loads"), kernel_of,
                     "const auto instance = &attention_kernel<64>;");
  check_planted_bugs("chapters/03_coalescing/2_coalescing.cuh", "coalescing",
                     planted_bugs("03_coalescing", "4 rows a warp"), kernel_of,
                     "const auto instance = &attention_kernel<64>;");
}
