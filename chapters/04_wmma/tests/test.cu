// Chapter 4's tests: right on every shape, same bits twice, planted bugs found, what the counters
// say worked out by hand, and the machine code.
#include <doctest/doctest.h>

#include <algorithm>

#include "../../../common/attention/test_cases.h"
#include "../../../common/attention/test_ladder.h"
#include "../../../common/lab/device.h"
#include "../../03_coalescing/2_coalescing.cuh"
#include "../kernel.cuh"
#include "04_wmma/four_loads.cuh"  // variants/four_loads.diff

using namespace lab::testing;

TEST_CASE("attention: every shape") { check_every_shape(wmma_attention::attention); }
TEST_CASE("attention: unusual scores") { check_unusual_scores(wmma_attention::attention); }
TEST_CASE("attention: rounded once") { check_rounding(wmma_attention::attention); }
TEST_CASE("attention: arrays from PyTorch") { check_pytorch(wmma_attention::attention); }
TEST_CASE("attention: a trained DeiT-Tiny") { check_deit_tiny(wmma_attention::attention); }
TEST_CASE("attention: the same bits twice") { check_same_bits(wmma_attention::attention); }
TEST_CASE("attention: what it cannot do it refuses") {
  check_refusals(wmma_attention::attention, 4);
}
TEST_CASE("checked: without a finding") {
  if (rerun_with_checks("checked*")) return;  // once for both
  check_without_findings(wmma_attention::attention);
  check_without_findings(four_loads::attention);
}
TEST_CASE("4 loads at a time: right, and counted as the kernel with 16") {
  check_every_shape(four_loads::attention);
  if (skipped_without_counters("counters")) return;
  std::vector<double> counts[2];
  for (const bool four : {false, true}) {
    const AnyAttention attention =
        four ? AnyAttention(four_loads::attention) : AnyAttention(wmma_attention::attention);
    run_for_counters(attention, 1, 2, 197, 64);
    for (const char* array : {"K", "V"})
      for (const char* what : {"load/requests", "load/sectors", "load/bytes_asked"})
        counts[four].push_back(counted(array, what));
    counts[four].push_back(shared_wavefronts());
    counts[four].push_back(lab::vgpu::counter("/tensor_macs"));
    counts[four].push_back(lab::vgpu::counter("/limit/us"));
  }
  CHECK(counts[0] == counts[1]);
}
TEST_CASE("all checks, six schedules") { check_all_checks("chapter4"); }
TEST_CASE("program: the whole way on a photo") {
  check_program("chapter4", {"coalescing", "wmma"});
}
TEST_CASE("program: a variant runs where --step names it and nowhere else") {
  check_variant("chapter4", "4 loads at a time", "wmma");
}
TEST_CASE("on a T4") { check_on_t4("counters*,attention: arrays*,attention: the same bits*"); }
TEST_CASE("machine code: no spills") { check_machine_code("chapters/04_wmma"); }
TEST_CASE("machine code: a tile's loads do not wait for its stores" *
          doctest::test_suite("toolkit")) {
  check_load_groups("chapters/04_wmma/kernel.cuh", 3, [](const std::vector<int>& arguments) {
    const int of_a_row = arguments[0] / 8;  // pieces of 16 bytes
    // Q, then K and V of a tile, at most 16 at a time.
    const int tile = std::min(64 * of_a_row / 32, 16);
    return std::vector<int>{16 * of_a_row / 32, tile, tile};
  });
}

TEST_CASE("counters: bytes by formula, and products of padded tiles on the tensor cores") {
  if (skipped_without_counters("counters")) return;
  const int heads = 2;
  for (const int tokens : {64, 197})
    for (const int head_dim : {32, 64, 128}) {
      CAPTURE(tokens);
      CAPTURE(head_dim);
      run_for_counters(coalescing::attention, 1, heads, tokens, head_dim);
      const double fp32_before = lab::vgpu::counter("/limits/fp32");
      const double limit_before = lab::vgpu::counter("/limit/us");

      run_for_counters(wmma_attention::attention, 1, heads, tokens, head_dim);
      const double row_blocks = (tokens + 15) / 16, elements = double(heads) * tokens * head_dim;
      // Each block of 16 query rows asks for all keys once.
      for (const char* array : {"K", "V"})
        CHECK(counted(array, "load/bytes_asked") == row_blocks * elements * 2);
      // K, the flaw: a request is 16 bytes of each of 32 rows, and moves a sector for each.
      CHECK(counted("K", "load/requests") ==
            row_blocks * heads * std::ceil(tokens / 32.0) * head_dim / 8);
      CHECK(counted("K", "load/sectors") == row_blocks * elements * 2 / 16);
      CHECK(counted("V", "load/requests") ==
            row_blocks * heads * row_requests(tokens, 2 * head_dim, 16));
      CHECK(counted("V", "load/sectors") == row_blocks * elements * 2 / 32);
      CHECK(counted("Q", "load/bytes_asked") == elements * 2);
      CHECK(counted("Q", "load/requests") == heads * row_requests(tokens, 2 * head_dim, 16));
      CHECK(lab::vgpu::counter("/global/store/bytes_asked") == elements * 2);
      CHECK(counted("O", "store/bytes_asked") == elements * 2);
      // O: 8 bytes a lane, of as many columns at a time as a tile has keys.
      const int columns = std::min(64, head_dim);
      CHECK(counted("O", "store/requests") ==
            heads * head_dim / columns * row_requests(tokens, 2 * columns, 8));
      CHECK(counted("O", "store/sectors") == elements * 2 / 32);
      CHECK(lab::vgpu::counter("/local/store/requests") == 0);

      // Both products, of rows in sixteens and keys in tiles of 64.
      const double padded = heads * row_blocks * 16 * double((tokens + 63) / 64 * 64);
      CHECK(lab::vgpu::counter("/tensor_macs") == 2 * padded * head_dim);
      // What is left to the fp32 units: at most 8 operations for each weight (scale, maximum,
      // difference, power with its care for tiny results, sum) and what rescales O.
      CHECK(lab::vgpu::counter("/classes/fp32/thread") <= padded * (8 + 2.0 * head_dim / 64));
      CHECK(lab::vgpu::counter("/limits/fp32") < fp32_before / 2);
      CHECK(lab::vgpu::counter("/limit/us") < limit_before);
    }
}

TEST_CASE("counters: what stands in shared memory, and O is rescaled where a maximum grows") {
  if (skipped_without_counters("counters")) return;
  for (const int tokens : {64, 197})
    for (const int head_dim : {32, 64, 128}) {
      CAPTURE(tokens);
      CAPTURE(head_dim);
      run_for_counters(wmma_attention::attention, equal_scores(2, tokens, head_dim));
      // Rows of K (transposed), V and the weights in fp16, of scores in fp32, padded by 8; Q stands
      // where scores will.
      const int bytes = 2 * head_dim * 72 + 2 * 64 * (head_dim + 8) +
                        16 * std::max(2 * (head_dim + 8), 4 * 72) + 2 * 16 * 72;
      CHECK(lab::vgpu::counter("/static_shared") == (bytes + 31) / 32 * 32);
      // Written: Q; K, V, scores and weights of each tile; factors of O, 16 columns, twice, in the
      // first tile and at the end; O itself.
      const double tiles = (tokens + 63) / 64, row_blocks = (tokens + 15) / 16;
      CHECK(lab::vgpu::counter("/shared/store/bytes_asked") ==
            2 * row_blocks *
                (16 * head_dim * 2 + tiles * (2 * 64 * head_dim * 2 + 16 * 64 * (4 + 2)) +
                 2 * 16 * 16 * 4 + 16 * head_dim * 4));
    }
}

TEST_CASE("counters: with independent scores most of the later tiles rescale O") {
  if (skipped_without_counters("counters")) return;
  const int tiles = 16, row_blocks = 64, head_dim = 64;  // 1024 tokens
  run_for_counters(wmma_attention::attention, 1, 1, 1024, head_dim);
  // Written to shared memory beside the factors of rescalings: see the case above.
  const double others =
      2 * 16 * head_dim + tiles * (4 * 64 * head_dim + 6 * 16 * 64) + 4 * 16 * (16 + head_dim);
  const double factors = lab::vgpu::counter("/shared/store/bytes_asked") - row_blocks * others;
  const double later = factors / (4 * 16 * 16) - row_blocks;  // without those of the first tiles
  // Tile number t has a row's largest score so far with probability 1 / t, and one of 16 rows is
  // enough.
  double expected = 0.0, variance = 0.0;
  for (int t = 2; t <= tiles; ++t) {
    const double share = 1 - std::pow(1 - 1.0 / t, 16);
    expected += row_blocks * share;
    variance += row_blocks * share * (1 - share);
  }
  CHECK(later == std::floor(later));
  CHECK(std::abs(later - expected) < 4 * std::sqrt(variance));
  CHECK(later > 0.75 * row_blocks * (tiles - 1));
}

TEST_CASE("counters: no bank conflicts") {
  if (skipped_without_counters("counters")) return;
  for (const int head_dim : {32, 64, 128}) {
    CAPTURE(head_dim);
    run_for_counters(wmma_attention::attention, 1, 2, 197, head_dim);
    CHECK(shared_wavefronts() > 0);
    CHECK(shared_conflicts() == 0);
  }
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {

AnyAttention mutant_attention(const Mutants& mutants, size_t number) {
  return [&mutants, number](const half* Q, const half* K, const half* V, half* O,
                            const AttentionShape& shape, cudaStream_t stream) {
    launch(mutants.kernel(number, "attention_kernel", {shape.head_dim}),
           blocks_for(shape, wmma_attention::kQueryRows), wmma_attention::kThreads, 0, stream, Q, K,
           V, O, shape.tokens, log2_scale(shape));
  };
}

}  // namespace

TEST_CASE("planted bugs: each is caught, and by what") {
  check_planted_bugs("chapters/04_wmma/kernel.cuh", "wmma_attention",
                     planted_bugs("04_wmma", "attention"), mutant_attention,
                     "const auto instance = &attention_kernel<64>;");
}
