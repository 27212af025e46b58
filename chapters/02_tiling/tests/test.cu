// Chapter 2's tests: right on every shape, same bits twice, planted bugs found, what the counters
// say worked out by hand, and the machine code.
#include <doctest/doctest.h>

#include "../../../common/attention/test_cases.h"
#include "../../../common/attention/test_ladder.h"
#include "../../../common/lab/device.h"
#include "../kernel.cuh"
#include "../variants/two_passes.cuh"

using namespace lab::testing;

TEST_CASE("attention: every shape") { check_every_shape(tiling::attention); }
TEST_CASE("attention: unusual scores") { check_unusual_scores(tiling::attention); }
TEST_CASE("attention: rounded once") { check_rounding(tiling::attention); }
TEST_CASE("attention: arrays from PyTorch") { check_pytorch(tiling::attention); }
TEST_CASE("attention: a trained DeiT-Tiny") { check_deit_tiny(tiling::attention); }
TEST_CASE("attention: the same bits twice") { check_same_bits(tiling::attention); }
TEST_CASE("attention: what it cannot do it refuses") { check_refusals(tiling::attention, 0); }
TEST_CASE("checked: without a finding") {
  if (rerun_with_checks("checked*")) return;  // once for both
  check_without_findings(tiling::attention);
  check_without_findings(two_passes::attention);
}
TEST_CASE("two passes: right, and K asked for twice") {
  check_every_shape(two_passes::attention);
  check_unusual_scores(two_passes::attention);
  check_same_bits(two_passes::attention);
  if (skipped_without_counters("counters")) return;
  run_for_counters(two_passes::attention, 1, 2, 197, 64);
  const double bytes = 13 * 2 * 197 * 64 * 2;  // 13 blocks of rows in each of 2 heads
  CHECK(counted("K", "load/bytes_asked") == 2 * bytes);
  CHECK(counted("V", "load/bytes_asked") == bytes);
  CHECK(shared_conflicts() == 0);
}
TEST_CASE("all checks, six schedules") { check_all_checks("chapter2"); }
TEST_CASE("program: the whole way on a photo") { check_program("chapter2", {"naive", "tiling"}); }
TEST_CASE("program: a variant runs where --step names it and nowhere else") {
  check_variant("chapter2", "two passes", "tiling");
}
TEST_CASE("on a T4") { check_on_t4("counters*,attention: arrays*,attention: the same bits*"); }
TEST_CASE("machine code: no spills") { check_machine_code("chapters/02_tiling"); }

TEST_CASE("counters: bytes by formula, and one sector for each element of K and V") {
  if (skipped_without_counters("counters")) return;
  const int heads = 2;
  for (const int tokens : {64, 197})
    for (const int head_dim : {32, 64, 128}) {
      CAPTURE(tokens);
      CAPTURE(head_dim);
      run_for_counters(tiling::attention, 1, heads, tokens, head_dim);
      const double row_blocks = (tokens + 15) / 16, elements = double(heads) * tokens * head_dim;
      for (const char* array : {"K", "V"}) {
        // Each block of 16 query rows asks for all keys once.
        CHECK(counted(array, "load/bytes_asked") == row_blocks * elements * 2);
        // A request is one element of up to 32 rows: a warp's rows, or what is left of them.
        const double warps_of_keys = (tokens + 31) / 32;
        CHECK(counted(array, "load/requests") == row_blocks * heads * warps_of_keys * head_dim);
        CHECK(counted(array, "load/sectors") == row_blocks * elements);
      }
      CHECK(counted("Q", "load/bytes_asked") == elements * 2);
      CHECK(counted("Q", "load/requests") == elements / 32);
      CHECK(counted("Q", "load/sectors") == elements * 2 / 32);
      // The only stores are O, each element once, 32 neighbours of 2 bytes a request.
      CHECK(lab::vgpu::counter("/global/store/bytes_asked") == elements * 2);
      CHECK(counted("O", "store/bytes_asked") == elements * 2);
      CHECK(counted("O", "store/requests") == elements / 32);
      CHECK(counted("O", "store/sectors") == elements * 2 / 32);

      // Tiles: Q, K and V with a pad of 2 in fp16, scores with one of 8 in fp32, a factor a row.
      CHECK(lab::vgpu::counter("/static_shared") ==
            2 * (16 * head_dim + 2 * 64 * (head_dim + 2)) + 4 * (16 * (64 + 8) + 16));
      // Written: Q once; of each tile of keys K and V, scores, weights and factors; factors again.
      const double tiles = (tokens + 63) / 64;
      CHECK(lab::vgpu::counter("/shared/store/bytes_asked") ==
            heads * row_blocks *
                (16 * head_dim * 2 + tiles * (2 * 64 * head_dim * 2 + 2 * 16 * 64 * 4 + 16 * 4) +
                 16 * 4));
      CHECK(lab::vgpu::counter("/local/store/requests") == 0);
    }
}

TEST_CASE("counters: no bank conflicts") {
  if (skipped_without_counters("counters")) return;
  for (const int head_dim : {32, 64, 128}) {
    CAPTURE(head_dim);
    run_for_counters(tiling::attention, 1, 2, 197, head_dim);
    CHECK(shared_conflicts() == 0);
  }
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {

AnyAttention mutant_attention(const Mutants& mutants, size_t number) {
  return [&mutants, number](const half* Q, const half* K, const half* V, half* O,
                            const AttentionShape& shape, cudaStream_t stream) {
    launch(mutants.kernel(number, "attention_kernel", {shape.head_dim}),
           blocks_for(shape, tiling::kQueryRows), tiling::kThreads, 0, stream, Q, K, V, O,
           shape.tokens, log2_scale(shape));
  };
}

}  // namespace

TEST_CASE("planted bugs: each is caught, and by what" * doctest::test_suite("toolkit")) {
  check_planted_bugs("chapters/02_tiling/kernel.cuh", "tiling",
                     planted_bugs("02_tiling", "attention"), mutant_attention,
                     "const auto instance = &attention_kernel<64>;");
}
