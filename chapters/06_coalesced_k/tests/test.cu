// Chapter 6's tests: right on every shape with 4 and with 8 warps, same bits twice, planted bugs
// found, what the counters say worked out by hand, and the machine code.
#include <doctest/doctest.h>

#include <algorithm>

#include "../../../common/attention/test_cases.h"
#include "../../../common/attention/test_ladder.h"
#include "../../../common/lab/device.h"
#include "../../05_multi_warp/kernel.cuh"
#include "../kernel.cuh"
#include "06_coalesced_k/no_padding.cuh"  // variants/no_padding.diff

using namespace lab::testing;

TEST_CASE("attention: every shape, as many warps as it takes") {
  check_every_shape(coalesced_k::attention);
}
TEST_CASE("attention: every shape, 4 warps") { check_every_shape(coalesced_k::attention_with<4>); }
TEST_CASE("attention: every shape, 8 warps") { check_every_shape(coalesced_k::attention_with<8>); }
TEST_CASE("attention: unusual scores") {
  check_unusual_scores(coalesced_k::attention_with<4>);
  check_unusual_scores(coalesced_k::attention_with<8>);
}
TEST_CASE("attention: rounded once") {
  check_rounding(coalesced_k::attention_with<4>);
  check_rounding(coalesced_k::attention_with<8>);
}
TEST_CASE("attention: arrays from PyTorch") {
  check_pytorch(coalesced_k::attention_with<4>);
  check_pytorch(coalesced_k::attention_with<8>);
}
TEST_CASE("attention: a trained DeiT-Tiny") {
  check_deit_tiny(coalesced_k::attention_with<4>);
  check_deit_tiny(coalesced_k::attention_with<8>);
}
TEST_CASE("attention: the same bits twice") {
  check_same_bits(coalesced_k::attention_with<4>);
  check_same_bits(coalesced_k::attention_with<8>);
}
TEST_CASE("attention: without padding") {
  if (skipped("no padding")) return;
  if (shared_limit() < 128 * 1024) return;  // on a T4 8 warps have smaller tiles
  for (const int tokens : {1, 17, 127, 197, 577})
    check_right(no_padding::attention, random_case(1, 2, tokens, 64, uint64_t(tokens)));
  check_right(no_padding::attention, stepped_case(1, 2, 197, 64, {0, 100, -100, 50}));
}
TEST_CASE("attention: what it cannot do it refuses") {
  check_refusals(coalesced_k::attention_with<4>, 4);
  check_refusals(coalesced_k::attention_with<8>, 4);
}
TEST_CASE("counters: without padding a fragment of K takes eight times as long") {
  if (skipped_without_counters("no padding")) return;
  if (shared_limit() < 128 * 1024) return;
  run_for_counters(no_padding::attention, 1, 12, 197, 64);
  // 13 warps with rows a head, 4 tiles, 16 fragments of 4 phases: 8 wavefronts where 1 would do.
  CHECK(lab::vgpu::counter("/shared/load/conflicts") == 12.0 * 13 * 4 * 16 * 4 * 7);
  CHECK(lab::vgpu::counter("/shared/store/conflicts") == 0);
}
TEST_CASE("checked: without a finding") { check_without_findings(coalesced_k::attention_with<4>); }
TEST_CASE("all checks, six schedules") { check_all_checks("chapter6"); }
TEST_CASE("program: the whole way on a photo") {
  check_program("chapter6", {"multi-warp", "coalesced K"});
}
TEST_CASE("program: a variant runs where --step names it and nowhere else") {
  check_variant("chapter6", "no padding", "coalesced K");
}
TEST_CASE("on a T4") { check_on_t4("counters*,attention: arrays*,attention: the same bits*"); }
TEST_CASE("machine code: no spills") { check_machine_code("chapters/06_coalesced_k"); }
TEST_CASE("machine code: a tile's loads do not wait for its stores" *
          doctest::test_suite("toolkit")) {
  check_load_groups("chapters/06_coalesced_k/kernel.cuh", 11,
                    [](const std::vector<int>& arguments) {
                      const int of_a_row = arguments[0] / 8;  // pieces of 16 bytes
                      // Q of a warp, then K and V of a tile, each thread's pieces of it at once.
                      const int tile = arguments[1] * of_a_row / (32 * arguments[2]);
                      return std::vector<int>{16 * of_a_row / 32, tile, tile};
                    });
}

// What a block takes and leaves, with kWarps warps.
template <int kWarps>
void check_bytes() {
  const int heads = 2;
  for (const int tokens : {64, 197})
    for (const int head_dim : {32, 64, 128}) {
      CAPTURE(kWarps);
      CAPTURE(tokens);
      CAPTURE(head_dim);
      run_for_counters(coalesced_k::attention_with<kWarps>, 1, heads, tokens, head_dim);
      const int rows = 16 * kWarps;  // a block's
      const double row_blocks = (tokens + rows - 1) / rows;
      const double elements = double(heads) * tokens * head_dim, bytes = row_blocks * elements * 2;
      // Each block asks for all keys once.
      CHECK(counted("K", "load/bytes_asked") == bytes);
      CHECK(counted("V", "load/bytes_asked") == bytes);
      CHECK(counted("K", "load/sectors") == bytes / 32);
      CHECK(counted("K", "load/requests") ==
            row_blocks * heads * row_requests(tokens, 2 * head_dim, 16));
      CHECK(counted("V", "load/sectors") == bytes / 32);
      CHECK(counted("V", "load/requests") ==
            row_blocks * heads * row_requests(tokens, 2 * head_dim, 16));
      CHECK(counted("Q", "load/bytes_asked") == elements * 2);
      CHECK(counted("Q", "load/requests") == heads * row_requests(tokens, 2 * head_dim, 16));
      CHECK(counted("Q", "load/sectors") == elements * 2 / 32);
      CHECK(lab::vgpu::counter("/global/store/bytes_asked") == elements * 2);
      CHECK(counted("O", "store/bytes_asked") == elements * 2);
      CHECK(counted("O", "store/sectors") == elements * 2 / 32);
      CHECK(lab::vgpu::counter("/local/store/requests") == 0);

      // Both products, of rows in sixteens and keys in tiles: a warp without rows rests.
      const coalesced_k::Step step = coalesced_k::step_for<kWarps>(head_dim, shared_limit());
      const double key_tile = step.key_tile;
      const double warps_with_rows = (tokens + 15) / 16, tiles = std::ceil(tokens / key_tile);
      const double padded = heads * warps_with_rows * 16 * key_tile * tiles;
      CHECK(lab::vgpu::counter("/tensor_macs") == 2 * padded * head_dim);

      // O: 8 bytes a lane, of as many columns at a time as a tile has keys.
      const int columns = std::min(step.key_tile, head_dim);
      CHECK(counted("O", "store/requests") ==
            heads * head_dim / columns * row_requests(tokens, 2 * columns, 8));

      // Written to shared memory. By a block: Q of each warp, K and V of each tile. By a warp with
      // rows: scores and weights of each tile; factors of O, 16 columns, twice, in the first tile
      // and at the end; O itself. (All scores are equal: no later tile has factors.)
      run_for_counters(coalesced_k::attention_with<kWarps>, equal_scores(heads, tokens, head_dim));
      const double of_a_warp = 16 * (tiles * key_tile * (4 + 2) + 2 * 16 * 4 + head_dim * 4);
      CHECK(lab::vgpu::counter("/shared/store/bytes_asked") ==
            heads * (row_blocks * (tiles * 2 * key_tile * head_dim * 2 + rows * head_dim * 2) +
                     warps_with_rows * of_a_warp));
    }
}

TEST_CASE("counters: bytes by formula, for 4 and for 8 warps") {
  if (skipped_without_counters("counters")) return;
  check_bytes<4>();
  check_bytes<8>();
}

TEST_CASE("counters: what stands in shared memory") {
  if (skipped_without_counters("counters")) return;
  for (const int head_dim : {32, 64, 128}) {
    CAPTURE(head_dim);
    // Rows of K and V in fp16, padded by 8; a warp's scores in fp32 (or its rows of Q in fp16, when
    // these are more), and its weights in fp16.
    const auto bytes = [&](int keys, int warps) {
      return 2 * 2 * keys * (head_dim + 8) +
             warps * (std::max(64 * (keys + 8), 32 * (head_dim + 8)) + 32 * (keys + 8));
    };
    const int limit = shared_limit();
    const coalesced_k::Step four = coalesced_k::step_for<4>(head_dim, limit),
                            eight = coalesced_k::step_for<8>(head_dim, limit);
    CHECK(four.key_tile == 64);
    CHECK(four.shared_bytes == bytes(64, 4));
    CHECK(eight.key_tile == (bytes(64, 8) <= limit ? 64 : 32));
    CHECK(eight.shared_bytes == bytes(eight.key_tile, 8));
    run_for_counters(coalesced_k::attention_with<8>, 1, 1, 65, head_dim);
    CHECK(lab::vgpu::counter("/dynamic_shared") == eight.shared_bytes);
  }
}

TEST_CASE("counters: no bank conflict at all, those of the K tile included") {
  if (skipped_without_counters("counters")) return;
  for (const int head_dim : {32, 64, 128})
    for (const AnyAttention& attention : {AnyAttention(coalesced_k::attention_with<4>),
                                          AnyAttention(coalesced_k::attention_with<8>)}) {
      CAPTURE(head_dim);
      run_for_counters(attention, 1, 2, 197, head_dim);
      CHECK(shared_wavefronts() > 0);
      CHECK(shared_conflicts() == 0);
    }
}

TEST_CASE("counters: a lower limit than chapter 5's") {
  if (skipped_without_counters("counters")) return;
  const int heads = lab::open_device().sm_count;  // 128 tokens each: 2 blocks an SM, or 1
  for (const int head_dim : {32, 64, 128}) {
    CAPTURE(head_dim);
    // Of the pipe of L1 and shared memory, where the K load is, and no other one rises above it.
    // (On a T4, DRAM is slower than that for so few tokens, and its limit stays as it is.)
    const auto limits = [&](const AnyAttention& attention) {
      run_for_counters(attention, 1, heads, 128, head_dim);
      return std::pair(lab::vgpu::counter("/limits/L1~1shared"), lab::vgpu::counter("/limit/us"));
    };
    for (const auto& [before, after] :
         {std::pair<AnyAttention, AnyAttention>(multi_warp::attention_with<4>,
                                                coalesced_k::attention_with<4>),
          std::pair<AnyAttention, AnyAttention>(multi_warp::attention_with<8>,
                                                coalesced_k::attention_with<8>)}) {
      const auto [pipe_before, limit_before] = limits(before);
      const auto [pipe_after, limit_after] = limits(after);
      CHECK(pipe_after < pipe_before);
      CHECK(limit_after <= limit_before);
    }
  }
}

TEST_CASE("the ladder: each step's modelled limit is lower than the one before") {
  if (skipped("the ladder") || skipped_without_counters("the ladder")) return;
  // 132 heads of 128 tokens: as many heads as an H200 has SMs.
  const std::vector<std::string> arguments = {"--batch", "11", "--heads", "12", "--tokens", "128"};
  std::vector<std::pair<std::string, double>> steps;
  for (const int chapter : {2, 4, 6})
    for (const auto& [name, us] : modelled_limits("chapter" + std::to_string(chapter), arguments))
      if (name != "scores" && name != "softmax" && name != "values") steps.emplace_back(name, us);
  REQUIRE(steps.size() == 6);  // naive tiling, coalescing wmma, multi-warp coalesced K
  for (size_t i = 1; i < steps.size(); ++i) {
    CAPTURE(steps[i].first);
    CHECK(steps[i].second < steps[i - 1].second);
  }
}

TEST_CASE(
    "the ladder: the last step has the smallest modelled limit, whatever the number of blocks") {
  if (skipped("the ladder") || skipped_without_counters("the ladder")) return;
  for (const char* tokens : {"197", "577"}) {
    CAPTURE(tokens);
    const std::vector<std::string> arguments = {"--heads", "12", "--tokens", tokens};
    const auto last = modelled_limits("chapter6", arguments);
    REQUIRE(last.size() == 2);
    for (const auto& [name, us] : modelled_limits("chapter5", arguments)) {
      CAPTURE(name);
      CHECK(last[1].second < us);
    }
    CHECK(last[1].second < last[0].second);
  }
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {

// The mutants with 4 warps, which all have 64 keys a tile.
AnyAttention mutant_attention(const Mutants& mutants, size_t number) {
  return [&mutants, number](const half* Q, const half* K, const half* V, half* O,
                            const AttentionShape& shape, cudaStream_t stream) {
    const coalesced_k::Step step = coalesced_k::step_for<4>(shape.head_dim, shared_limit());
    launch(mutants.kernel(number, "attention_kernel", {shape.head_dim, step.key_tile, 4}),
           blocks_for(shape, 64), 128, step.shared_bytes, stream, Q, K, V, O, shape.tokens,
           log2_scale(shape));
  };
}

}  // namespace

TEST_CASE("planted bugs: each is caught, and by what") {
  check_planted_bugs("chapters/06_coalesced_k/kernel.cuh", "coalesced_k",
                     planted_bugs("06_coalesced_k", "attention"), mutant_attention,
                     "const auto instance = &attention_kernel<64, 64, 4>;");
}
