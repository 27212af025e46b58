// Chapter 5's tests: right on every shape with 4 and with 8 warps, same bits twice, planted bugs
// found, what the counters say worked out by hand, and the machine code.
#include <doctest/doctest.h>

#include <algorithm>

#include "../../../common/attention/test_cases.h"
#include "../../../common/attention/test_ladder.h"
#include "../../../common/lab/device.h"
#include "../../04_wmma/kernel.cuh"
#include "../kernel.cuh"
#include "../variants/sixteen_warps.cuh"
#include "05_multi_warp/more_resident.cuh"  // variants/more_resident.diff

using namespace lab::testing;

TEST_CASE("attention: every shape, as many warps as it takes") {
  check_every_shape(multi_warp::attention);
}
TEST_CASE("attention: every shape, 4 warps") { check_every_shape(multi_warp::attention_with<4>); }
TEST_CASE("attention: every shape, 8 warps") { check_every_shape(multi_warp::attention_with<8>); }
TEST_CASE("attention: unusual scores") {
  check_unusual_scores(multi_warp::attention_with<4>);
  check_unusual_scores(multi_warp::attention_with<8>);
}
TEST_CASE("attention: rounded once") {
  check_rounding(multi_warp::attention_with<4>);
  check_rounding(multi_warp::attention_with<8>);
}
TEST_CASE("attention: arrays from PyTorch") {
  check_pytorch(multi_warp::attention_with<4>);
  check_pytorch(multi_warp::attention_with<8>);
}
TEST_CASE("attention: a trained DeiT-Tiny") {
  check_deit_tiny(multi_warp::attention_with<4>);
  check_deit_tiny(multi_warp::attention_with<8>);
}
TEST_CASE("attention: the same bits twice") {
  check_same_bits(multi_warp::attention_with<4>);
  check_same_bits(multi_warp::attention_with<8>);
}
TEST_CASE("attention: more warps, with head_dim 64") {
  if (skipped("more warps")) return;
  if (shared_limit() < 128 * 1024) return;  // a block of 16 warps needs 126 KiB
  for (const AnyAttention& attention : {AnyAttention(multi_warp::attention_with_16_warps),
                                        AnyAttention(more_resident::attention)}) {
    for (const int tokens : {1, 17, 127, 257, 577})
      check_right(attention, random_case(1, 2, tokens, 64, uint64_t(tokens)));
    check_right(attention, stepped_case(1, 2, 197, 64, {0, 100, -100, 50}));
  }
  const AttentionShape narrow = random_case(1, 1, 16, 32).problem.shape;
  CHECK_THROWS_AS(
      multi_warp::attention_with_16_warps(nullptr, nullptr, nullptr, nullptr, narrow, nullptr),
      std::invalid_argument);
}
TEST_CASE("attention: what it cannot do it refuses") {
  check_refusals(multi_warp::attention_with<4>, 4);
  check_refusals(multi_warp::attention_with<8>, 4);
}
TEST_CASE("checked: without a finding") { check_without_findings(multi_warp::attention_with<4>); }
TEST_CASE("counters: more warps ask for less or reside in greater number, and what that costs") {
  if (skipped_without_counters("more warps")) return;
  if (shared_limit() < 128 * 1024) return;
  run_for_counters(multi_warp::attention_with_16_warps, 1, 2, 577, 64);
  CHECK(counted("K", "load/bytes_asked") == 3.0 * 2 * 577 * 64 * 2);  // 577 rows: 3 times 256
  CHECK(lab::vgpu::counter("/occupancy/blocks_per_sm") == 1);
  CHECK(lab::vgpu::counter("/local_bytes_per_thread") == 0);
  run_for_counters(more_resident::attention, 1, 2, 577, 64);
  CHECK(counted("K", "load/bytes_asked") == 5.0 * 2 * 577 * 64 * 2);
  CHECK(lab::vgpu::counter("/occupancy/blocks_per_sm") == 3);
  CHECK(lab::vgpu::counter("/local_bytes_per_thread") > 0);
}
TEST_CASE("all checks, six schedules") { check_all_checks("chapter5"); }
TEST_CASE("program: the whole way on a photo") {
  check_program("chapter5", {"wmma", "4 warps", "8 warps"});
}
TEST_CASE("program: variants run where --step names them and nowhere else") {
  check_variant("chapter5", "16 warps", "8 warps");
  check_variant("chapter5", "24 resident", "8 warps");
}
TEST_CASE("on a T4") { check_on_t4("counters*,attention: arrays*,attention: the same bits*"); }
TEST_CASE("machine code: no spills") { check_machine_code("chapters/05_multi_warp"); }
TEST_CASE("machine code: a tile's loads do not wait for its stores" *
          doctest::test_suite("toolkit")) {
  check_load_groups("chapters/05_multi_warp/kernel.cuh", 11, [](const std::vector<int>& arguments) {
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
      run_for_counters(multi_warp::attention_with<kWarps>, 1, heads, tokens, head_dim);
      const int rows = 16 * kWarps;  // a block's
      const double row_blocks = (tokens + rows - 1) / rows;
      const double elements = double(heads) * tokens * head_dim, bytes = row_blocks * elements * 2;
      // Each block asks for all keys once.
      CHECK(counted("K", "load/bytes_asked") == bytes);
      CHECK(counted("V", "load/bytes_asked") == bytes);
      // K, the flaw: a request is 16 bytes of each of 32 rows, and moves a sector for each.
      CHECK(counted("K", "load/requests") ==
            row_blocks * heads * std::ceil(tokens / 32.0) * head_dim / 8);
      CHECK(counted("K", "load/sectors") == bytes / 16);
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
      const multi_warp::Step step = multi_warp::step_for<kWarps>(head_dim, shared_limit());
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
      run_for_counters(multi_warp::attention_with<kWarps>, equal_scores(heads, tokens, head_dim));
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

TEST_CASE("counters: the tile is what the device has room for") {
  if (skipped_without_counters("counters")) return;
  const int limit = shared_limit();
  const bool small = limit == 64 * 1024;  // a T4
  CHECK((small || limit > 128 * 1024));
  for (const int head_dim : {32, 64, 128}) {
    CAPTURE(head_dim);
    const multi_warp::Step four = multi_warp::step_for<4>(head_dim, limit);
    const multi_warp::Step eight = multi_warp::step_for<8>(head_dim, limit);
    CHECK(four.key_tile == 64);
    CHECK(eight.key_tile == (small && head_dim > 32 ? 32 : 64));
    // K or V: key_tile rows of head_dim (K: the other way round), padded by 8; a warp's scores in
    // fp32 (or its rows of Q in fp16, when these are more), and its weights in fp16.
    const auto bytes = [&](int keys, int warps) {
      return 2 * (head_dim * (keys + 8) + keys * (head_dim + 8)) +
             warps * (std::max(64 * (keys + 8), 32 * (head_dim + 8)) + 32 * (keys + 8));
    };
    CHECK(four.shared_bytes == bytes(four.key_tile, 4));
    CHECK(eight.shared_bytes == bytes(eight.key_tile, 8));
    run_for_counters(multi_warp::attention_with<8>, 1, 1, 65, head_dim);
    CHECK(lab::vgpu::counter("/dynamic_shared") == eight.shared_bytes);
    // Registers stop neither two blocks of 8 warps nor four of 4, unless fragments take them all.
    const double fewest = small ? 1 : head_dim < 128 ? 2 : 1;
    CHECK(lab::vgpu::counter("/occupancy/blocks_per_sm") >= fewest);
    run_for_counters(multi_warp::attention_with<4>, 1, 1, 65, head_dim);
    CHECK(lab::vgpu::counter("/occupancy/blocks_per_sm") >= (small ? 1 : 2 * fewest));
  }
}

TEST_CASE("counters: no bank conflicts") {
  if (skipped_without_counters("counters")) return;
  for (const int head_dim : {32, 64, 128})
    for (const AnyAttention& attention : {AnyAttention(multi_warp::attention_with<4>),
                                          AnyAttention(multi_warp::attention_with<8>)}) {
      CAPTURE(head_dim);
      run_for_counters(attention, 1, 2, 197, head_dim);
      CHECK(shared_wavefronts() > 0);
      CHECK(shared_conflicts() == 0);
    }
}

TEST_CASE("counters: a lower limit than chapter 4's where all SMs have work") {
  if (skipped_without_counters("counters")) return;
  // As many heads of 128 tokens as SMs: 8, 2 or 1 blocks on each.
  const int heads = lab::open_device().sm_count;
  for (const int head_dim : {32, 64, 128}) {
    CAPTURE(head_dim);
    run_for_counters(wmma_attention::attention, 1, heads, 128, head_dim);
    const double one = lab::vgpu::counter("/limit/us");
    run_for_counters(multi_warp::attention_with<4>, 1, heads, 128, head_dim);
    const double four = lab::vgpu::counter("/limit/us");
    CHECK(four < one);
    run_for_counters(multi_warp::attention_with<8>, 1, heads, 128, head_dim);
    CHECK(lab::vgpu::counter("/limit/us") < one);
  }
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {

// The mutants with 4 warps, which all have 64 keys a tile.
AnyAttention mutant_attention(const Mutants& mutants, size_t number) {
  return [&mutants, number](const half* Q, const half* K, const half* V, half* O,
                            const AttentionShape& shape, cudaStream_t stream) {
    const multi_warp::Step step = multi_warp::step_for<4>(shape.head_dim, shared_limit());
    launch(mutants.kernel(number, "attention_kernel", {shape.head_dim, step.key_tile, 4}),
           blocks_for(shape, 64), 128, step.shared_bytes, stream, Q, K, V, O, shape.tokens,
           log2_scale(shape));
  };
}

}  // namespace

TEST_CASE("planted bugs: each is caught, and by what") {
  check_planted_bugs("chapters/05_multi_warp/kernel.cuh", "multi_warp",
                     planted_bugs("05_multi_warp", "attention"), mutant_attention,
                     "const auto instance = &attention_kernel<64, 64, 4>;");
}
