// Chapter 13's tests: each step right on every shape, same bits twice, planted bugs found, what the
// counters say worked out by hand, and the machine code.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "../../../common/attention/launch.cuh"
#include "../../../common/attention/test_cases.h"
#include "../../../common/attention/test_ladder.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/program.h"
#include "../kernels.h"

using namespace lab::testing;

namespace {

AnyAttention step(const char* name) {
  return lab::chosen_steps(name, flash_attention::steps()).front().attention;
}
// `check` of each step of this chapter.
void each(const std::function<void(const AnyAttention&)>& check) {
  for (const char* name : {"loads in flight", "registers", "pipeline", "ragged"}) {
    CAPTURE(name);
    check(step(name));
  }
}

}  // namespace

TEST_CASE("attention: every shape, loads in flight") { check_every_shape(step("loads in flight")); }
TEST_CASE("attention: every shape, registers") { check_every_shape(step("registers")); }
TEST_CASE("attention: every shape, pipeline") { check_every_shape(step("pipeline")); }
TEST_CASE("attention: every shape, ragged") { check_every_shape(step("ragged")); }
TEST_CASE("attention: every shape, small tiles") { check_every_shape(step("small tiles")); }
TEST_CASE("attention: each number of keys behind the last whole tile") {
  if (skipped("each number of keys")) return;
  for (int tokens = 64; tokens < 72; ++tokens)
    check_right(step("ragged"), random_case(1, 1, tokens, 64, tokens));
  for (const int head_dim : {32, 64, 128})
    for (const int tokens : {72, 80, 95, 111, 119, 128, 129, 144})
      check_right(step("ragged"), random_case(1, 1, tokens, head_dim, tokens));
}
TEST_CASE("attention: so many heads that a block has eight warps, loads in flight") {
  if (skipped("eight warps")) return;
  // (On a T4. There tiles of 64 keys do not fit beside eight warps' rows.)
  check_right(step("loads in flight"), random_case(2, 20, 65, 128));
}
TEST_CASE("attention: unusual scores") { each(check_unusual_scores); }
TEST_CASE("attention: rounded once") { each(check_rounding); }
TEST_CASE("attention: arrays from PyTorch") { each(check_pytorch); }
TEST_CASE("attention: a trained DeiT-Tiny") { each(check_deit_tiny); }
TEST_CASE("attention: the same bits twice") { each(check_same_bits); }
TEST_CASE("attention: what it cannot do it refuses") {
  each([](const AnyAttention& attention) { check_refusals(attention, 4); });
}
TEST_CASE("checked: without a finding") {
  if (rerun_with_checks("checked*")) return;  // once for all steps
  each(check_without_findings);
  check_without_findings(step("small tiles"));
}
TEST_CASE("all checks, six schedules") {
  check_all_checks("chapter13", {{"--tokens", "83", "--heads", "1", "--head-dim", "64"},
                                 {"--tokens", "71", "--heads", "1", "--head-dim", "128"}});
}
TEST_CASE("program: the whole way on a photo") {
  check_program("chapter13", {"coalesced K", "loads in flight", "registers", "pipeline", "ragged"});
}
TEST_CASE("program: a variant runs where --step names it and nowhere else") {
  check_variant("chapter13", "small tiles", "ragged");
}
TEST_CASE("on a T4") {
  check_twin_on_t4("counters*,attention: arrays*,attention: the same bits*,attention: so many*");
}
TEST_CASE("machine code: no spills") { check_machine_code("chapters/13_flash_attention"); }

// ---- Counters -----------------------------------------------------------------------------------

namespace {

double divide_up(double a, double b) { return std::ceil(a / b); }
// Rows of a block of pipeline and ragged, and keys of their tiles.
int block_rows(int head_dim) { return head_dim < 128 ? 128 : 64; }
int key_tile(int head_dim) { return head_dim < 128 ? 64 : 32; }
// Bytes of shared memory of each step's blocks with head_dim 64, whose rows are 128 bytes, padded 144.
// Tiles of 64 rows of K and V, and of each warp 16 rows of Q; in loads in flight these make room for
// 16 x 72 scores in fp32, and weights in fp16 stand beside them. pipeline and ragged have 128 rows of
// Q, and K and V twice.
constexpr int kLoadsInFlightBytes = 2 * 64 * 144 + 4 * 16 * 72 * (4 + 2);
constexpr int kRegistersBytes = 4 * 16 * 144 + 2 * 64 * 144;
constexpr int kPipelineBytes = 128 * 128 + 2 * 2 * 64 * 128;
void check_shared(int bytes, int head_dim) {
  if (head_dim == 64) CHECK(lab::vgpu::counter("/dynamic_shared") == bytes);
}

// What each step asks of global memory: Q once, K and V once for so many rows.
void check_bytes(int tokens, int head_dim, int rows) {
  const double elements = 2.0 * tokens * head_dim;  // 2 heads
  const double bytes = divide_up(tokens, rows) * elements * 2;
  CHECK(counted("K", "load/bytes_asked") == bytes);
  CHECK(counted("V", "load/bytes_asked") == bytes);
  CHECK(counted("K", "load/sectors") == bytes / 32);
  CHECK(counted("V", "load/sectors") == bytes / 32);
  CHECK(counted("Q", "load/bytes_asked") == elements * 2);
  CHECK(lab::vgpu::counter("/global/store/bytes_asked") == elements * 2);
  CHECK(counted("O", "store/sectors") == elements * 2 / 32);
  CHECK(lab::vgpu::counter("/local/store/requests") == 0);
}

}  // namespace

TEST_CASE("counters: bytes and multiply-adds by formula; scores and weights stay in registers") {
  if (skipped_without_counters("counters")) return;
  for (const int tokens : {64, 197})
    for (const int head_dim : {32, 64, 128}) {
      CAPTURE(tokens);
      CAPTURE(head_dim);
      const double key_tiles = divide_up(tokens, 64), row_blocks = divide_up(tokens, 16);
      const double of_block = block_rows(head_dim);
      const auto macs = [] { return lab::vgpu::counter("/tensor_macs"); };
      const auto stored = [] { return lab::vgpu::counter("/shared/store/bytes_asked"); };

      // Written to shared memory are Q of each block, the tiles of K and V, and O: nothing else.
      run_for_counters(step("registers"), 1, 2, tokens, head_dim);
      check_bytes(tokens, head_dim, 64);
      check_shared(kRegistersBytes, head_dim);
      CHECK(macs() == 2 * 2 * row_blocks * 16 * key_tiles * 64 * head_dim);
      const double blocks = divide_up(tokens, 64);
      CHECK(stored() == 2 * 2 * head_dim * (blocks * (64 + 2 * key_tiles * 64) + row_blocks * 16));

      run_for_counters(step("pipeline"), 1, 2, tokens, head_dim);
      check_bytes(tokens, head_dim, block_rows(head_dim));
      check_shared(kPipelineBytes, head_dim);
      const double warp_rows = of_block / 4, tile = key_tile(head_dim);
      const double warps = divide_up(tokens, warp_rows);
      CHECK(macs() == 2 * 2 * warps * warp_rows * divide_up(tokens, tile) * tile * head_dim);

      // 16 rows and 8 keys at a time. Whole tiles are copied, zeros behind the last key.
      run_for_counters(step("ragged"), 1, 2, tokens, head_dim);
      check_bytes(tokens, head_dim, block_rows(head_dim));
      check_shared(kPipelineBytes, head_dim);
      CHECK(macs() == 2 * 2 * row_blocks * 16 * divide_up(tokens, 8) * 8 * head_dim);
      const double copied =
          divide_up(tokens, of_block) * (of_block + 2 * divide_up(tokens, tile) * tile);
      CHECK(stored() == 2 * 2 * head_dim * (copied + row_blocks * 16));
    }
}

TEST_CASE("counters: multiply-adds over useful ones, ragged") {
  if (skipped_without_counters("counters")) return;
  for (const auto& [tokens, most] : {std::pair{197, 1.0720}, {577, 1.0385}, {1025, 1.0216}}) {
    CAPTURE(tokens);
    run_for_counters(step("ragged"), 1, 1, tokens, 64);
    const double useful = 2.0 * tokens * tokens * 64;
    CHECK(lab::vgpu::counter("/tensor_macs") / useful <= most);
  }
  // Smaller tiles multiply neither more nor less.
  const auto macs = [](const AnyAttention& attention) {
    run_for_counters(attention, 1, 1, 197, 64);
    return lab::vgpu::counter("/tensor_macs");
  };
  CHECK(macs(step("small tiles")) == macs(step("ragged")));
}

TEST_CASE("counters: pipeline's operands, half of registers' for each row") {
  if (skipped_without_counters("counters")) return;
  // 128 rows and 512 keys: of 16 or 32 rows a warp reads each tile once, and Q once.
  const auto wavefronts = [](const AnyAttention& attention) {
    run_for_counters(attention, equal_scores(1, 128, 64));
    return lab::vgpu::counter("/shared/load/wavefronts");
  };
  const double tile_wavefronts = 2 * 128 * 64 * 2 / 128.0;  // K and V, for one warp
  const double q_and_o = 2 * 128 * 64 * 2 / 128.0;
  CHECK(wavefronts(step("registers")) == 8 * tile_wavefronts + q_and_o);
  CHECK(wavefronts(step("pipeline")) == 4 * tile_wavefronts + q_and_o);
}

TEST_CASE("counters: no bank conflicts") {
  if (skipped_without_counters("counters")) return;
  for (const int head_dim : {32, 64, 128})
    each([&](const AnyAttention& attention) {
      CAPTURE(head_dim);
      run_for_counters(attention, 1, 2, 197, head_dim);
      CHECK(shared_wavefronts() > 0);
      CHECK(shared_conflicts() == 0);
    });
}

TEST_CASE("counters: loads in flight has chapter 6's products and bytes") {
  if (skipped_without_counters("counters")) return;
  for (const int head_dim : {32, 64, 128}) {
    CAPTURE(head_dim);
    run_for_counters(flash_attention::loads_in_flight_by_4_warps, 1, 2, 197, head_dim);
    check_bytes(197, head_dim, 64);
    check_shared(kLoadsInFlightBytes, head_dim);
    CHECK(lab::vgpu::counter("/tensor_macs") == 2 * 2 * 208 * 256 * head_dim);
  }
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {

// A step's kernel with 4 warps, of head_dim 64.
MutantAttention mutant(const char* kernel, const std::vector<int>& arguments, int rows,
                       int shared_bytes) {
  return [=](const Mutants& mutants, size_t number) -> AnyAttention {
    return [=, &mutants](const half* Q, const half* K, const half* V, half* O,
                         const AttentionShape& shape, cudaStream_t stream) {
      launch(mutants.kernel(number, kernel, arguments), blocks_for(shape, rows), 128,
             size_t(shared_bytes), stream, Q, K, V, O, shape.tokens, log2_scale(shape));
    };
  };
}

}  // namespace

TEST_CASE("planted bugs: each is caught, and by what" * doctest::test_suite("toolkit")) {
  if (rerun_with_checks("planted bugs*")) return;
  const std::string folder = "chapters/13_flash_attention/";
  check_planted_bugs(folder + "1_loads_in_flight.cuh", "loads_in_flight",
                     planted_bugs("13_flash_attention", "loads in flight"),
                     mutant("attention_kernel", {64, 64, 4}, 64, kLoadsInFlightBytes),
                     "const auto instance = &attention_kernel<64, 64, 4>;");
  check_planted_bugs(folder + "2_registers.cuh", "flash_attention",
                     planted_bugs("13_flash_attention", "registers"),
                     mutant("registers_kernel", {64}, 64, kRegistersBytes),
                     "const auto instance = &registers_kernel<64>;");
  check_planted_bugs(folder + "3_pipeline.cuh", "flash_attention",
                     planted_bugs("13_flash_attention", "pipeline"),
                     mutant("pipeline_kernel", {64}, 128, kPipelineBytes),
                     "const auto instance = &pipeline_kernel<64>;");
  check_planted_bugs(folder + "4_ragged.cuh", "flash_attention",
                     planted_bugs("13_flash_attention", "ragged"),
                     mutant("ragged_kernel", {64}, 128, kPipelineBytes),
                     "const auto instance = &ragged_kernel<64>;");
}
