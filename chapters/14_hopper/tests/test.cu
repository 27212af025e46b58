// Chapter 14's tests: each step right on every shape, same bits twice, refused by name where it cannot
// run, silent under all checks.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "../../../common/attention/reference.h"
#include "../../../common/attention/test_cases.h"
#include "../../../common/attention/test_ladder.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/program.h"
#include "../kernels.h"
#include "../parts/requirement.cuh"
#include "internals.h"

using namespace lab::testing;

namespace {

const std::vector<const char*> kSteps = {"tensor maps", "wgmma", "specialized", "persistent"};
AnyAttention step(const char* name) {
  return lab::chosen_steps(name, hopper::steps()).front().attention;
}
// Says so and returns true where there is no device that can run this chapter.
bool cannot_run(const std::string& what) {
  if (skipped(what)) return true;
  const std::string missing = hopper::missing_requirement();
  if (!missing.empty()) MESSAGE("skipped: " << what << ": this chapter " << missing);
  return !missing.empty();
}
// `check` of each step.
void each(const std::string& what, const std::function<void(const AnyAttention&)>& check) {
  if (cannot_run(what)) return;
  for (const char* name : kSteps) {
    CAPTURE(name);
    check(step(name));
  }
}

}  // namespace

// Around the sizes of tiles, warps and tails, with heads behind each other; fewer than
// check_every_shape() has, since each step is held against all.
TEST_CASE("attention: every shape") {
  each("every shape", [](const AnyAttention& attention) {
    for (const int head_dim : {32, 64, 128})
      for (const int tokens : {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 81, 127, 128, 129, 197})
        check_right(attention, random_case(tokens % 3 == 1 ? 2 : 1, tokens % 2 ? 3 : 1, tokens,
                                           head_dim, tokens));
    check_right(attention, random_case(1, 1, 577, 64));
  });
}
TEST_CASE("attention: one block an SM") {
  if (cannot_run("one block")) return;
  check_right(step("one block"), random_case(1, 3, 130, 64));
  if (skipped_without_counters("blocks of an SM")) return;
  run_for_counters(step("one block"), 1, 1, 65, 64);
  CHECK(lab::vgpu::counter("/occupancy/blocks_per_sm") == 1);
  run_for_counters(step("wgmma"), 1, 1, 65, 64);
  CHECK(lab::vgpu::counter("/occupancy/blocks_per_sm") == 2);
}
// A persistent kernel on a grid of so many blocks: each gets several items. So many heads are dealt together.
// head_dim 64.
AnyAttention persistent_on(int blocks, int together = 2, const void* mutant = nullptr) {
  return [=](const half* Q, const half* K, const half* V, half* O, const AttentionShape& shape,
             cudaStream_t stream) {
    hopper::launch_persistent_on(blocks, together, mutant, Q, K, V, O, shape, stream);
  };
}
TEST_CASE("attention: blocks with several items, and unequally many") {
  if (cannot_run("several items")) return;
  // Items of one, two and six tiles; the second row block of a head with and without a second warpgroup.
  for (const int tokens : {1, 64, 65, 130, 193, 330}) {
    CAPTURE(tokens);
    // One head at a time, all together, and of five heads the last one by itself. With 16 blocks some have no item
    // but in rows behind the first.
    for (const int together : {1, 2, 5})
      for (const int blocks : {1, 4})
        check_right(persistent_on(blocks, together), random_case(1, 5, tokens, 64));
    check_right(persistent_on(16, 2), random_case(1, 5, tokens, 64));
  }
  // More items than blocks: two of these on an SM, with head_dim 128 one.
  int sms = 0;
  lab::check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  for (const int head_dim : {64, 128}) {
    check_right(step("persistent"), random_case(3, 100, 17, head_dim));
    if (lab::vgpu::present())
      CHECK(lab::vgpu::counter("/grid/0") == std::min(300, (head_dim == 64 ? 2 : 1) * sms));
  }
  check_right(step("head by head"), random_case(1, 3, 197, 64));
}
TEST_CASE(
    "attention: heads are dealt together as long as the L2 has room for their keys and values") {
  if (cannot_run("heads together")) return;
  int bytes = 0;
  cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, 0);
  const auto together = [](int batch, int tokens) {
    AttentionShape shape = random_case(1, 1, 1, 64).problem.shape;
    shape.batch = batch, shape.heads = 12, shape.tokens = tokens;
    return hopper::heads_dealt_together(shape);
  };
  // K and V of a head: 256 bytes a token.
  CHECK(together(32, 577) == std::min(384, bytes / 2 / (256 * 577)));
  CHECK(together(1, 197) == 12);
  CHECK(together(32, 1 << 20) == 1);
}
TEST_CASE("attention: maxima that grow by less than the threshold, and by more") {
  if (cannot_run("growing maxima")) return;
  // In units of log2 by 5.8, 11.5 and 17.3 from tile to tile; fp16 holds weights up to 2^16.
  for (const double move : {4., 8., 12.})
    check_right(persistent_on(1), stepped_case(1, 2, 193, 64, {0, move, 2 * move, 3 * move}));
}
TEST_CASE("attention: warpgroups without turns") {
  if (cannot_run("no turns")) return;
  // A second warpgroup with rows and without, one tile and more than a ring has stages.
  for (const int tokens : {33, 81, 330})
    check_right(step("no turns"), random_case(1, 2, tokens, 64));
  for (const int head_dim : {32, 128})
    check_right(step("no turns"), random_case(1, 2, 81, head_dim));
  if (skipped_without_counters("barriers")) return;
  // Of two warpgroups with three tiles, each of four warps: a barrier before the scores of each tile, a
  // barrier behind, and the first turn; the first warpgroup waits for the other's last one.
  const auto barriers = [](const AnyAttention& attention) {
    run_for_counters(attention, 1, 1, 129, 64);
    return lab::vgpu::counter("/classes/barrier/warp");
  };
  CHECK(barriers(step("specialized")) - barriers(step("no turns")) == 4 * (2 * 3 * 2 + 1 + 1));
}
// The multicast kernel on a grid of so many blocks: its clusters get several items. head_dim 64.
AnyAttention multicast_on(int blocks, const void* mutant = nullptr) {
  return [=](const half* Q, const half* K, const half* V, half* O, const AttentionShape& shape,
             cudaStream_t stream) {
    hopper::launch_multicast_on(blocks, mutant, Q, K, V, O, shape, stream);
  };
}
TEST_CASE("attention: tiles of K and V for two blocks at once") {
  if (cannot_run("multicast")) return;
  for (const int head_dim : {32, 64, 128})
    for (const int tokens : {1, 33, 130, 197, 330})
      check_right(step("multicast"), random_case(1, 3, tokens, head_dim));
  // Several items of a cluster, and more tiles than a ring has stages. With 65 tokens one block of each
  // cluster has no rows, with 330 one of each second item.
  for (const int tokens : {65, 200, 330})
    for (const int blocks : {2, 4})
      check_right(multicast_on(blocks), random_case(1, 5, tokens, 64));
  if (skipped_without_counters("copies")) return;
  // 330 tokens are three row blocks. A half of a tile, 32 keys, comes for two row blocks at once; one behind
  // the last key comes from nowhere. The fourth row block, which does not exist, shares them too.
  run_for_counters(step("multicast"), 1, 2, 330, 64);
  for (const char* array : {"K", "V"}) {
    CAPTURE(array);
    CHECK(counted(array, "copy_engine/load/copies") == 2 * 2 * std::ceil(330 / 32.0));
    CHECK(counted(array, "copy_engine/load/bytes") == 2 * 2 * 330 * 64 * 2);
  }
  run_for_counters(step("persistent"), 1, 2, 330, 64);
  CHECK(counted("K", "copy_engine/load/bytes") == 2 * 3 * 330 * 64 * 2);
}
TEST_CASE("attention: a new scale with every larger maximum") {
  if (cannot_run("every maximum")) return;
  const AnyAttention every = step("every maximum");
  for (const int head_dim : {32, 64, 128}) check_right(every, random_case(1, 2, 81, head_dim));
  check_right(every, stepped_case(1, 1, 129, 64, {0, -100, 100}));
}
TEST_CASE("attention: some exponentials as polynomials") {
  if (cannot_run("polynomials")) return;
  for (const int head_dim : {32, 64, 128})
    check_right(step("polynomials"), random_case(1, 2, 81, head_dim));
  check_right(step("polynomials"), stepped_case(1, 1, 129, 64, {0, -100, 100}));
  if (skipped_without_counters("exponentials")) return;
  // Of 128 x 128 weights a quarter.
  const auto exponentials = [](const AnyAttention& attention) {
    run_for_counters(attention, equal_scores(1, 128, 64));
    return lab::vgpu::counter("/classes/special/thread");
  };
  CHECK(exponentials(step("persistent")) - exponentials(step("polynomials")) == 128 * 128 / 4);
}

TEST_CASE("a polynomial's power of 2 is off by 8e-5 at most") {
  if (cannot_run("polynomial")) return;
  constexpr int kCount = 1 << 16;
  constexpr float kFirst = -126, kStep = 134.0f / kCount;  // to 8
  float* result = nullptr;
  lab::check(cudaMallocManaged(&result, kCount * sizeof(float)));
  hopper::powers_of_2(result, kFirst, kStep, kCount);
  lab::check(cudaDeviceSynchronize());
  double worst = 0;
  for (int i = 64; i < kCount; ++i)
    worst =
        std::fmax(worst, std::fabs(result[i] / std::exp2(double(kFirst + float(i) * kStep)) - 1));
  CHECK(worst < 8e-5);
  CHECK(worst > 6e-5);  // the bound is no larger than it must be
  hopper::powers_of_2(result, -INFINITY, 0, 1);
  lab::check(cudaDeviceSynchronize());
  CHECK(std::fabs(result[0]) <= 0x1p-126);
  lab::check(cudaFree(result));
}
TEST_CASE("attention: unusual scores") { each("unusual scores", check_unusual_scores); }
TEST_CASE("attention: rounded once") { each("rounding", check_rounding); }
TEST_CASE("attention: arrays from PyTorch") { each("arrays from PyTorch", check_pytorch); }
TEST_CASE("attention: a trained DeiT-Tiny") { each("a trained DeiT-Tiny", check_deit_tiny); }
TEST_CASE("attention: the same bits twice") { each("the same bits twice", check_same_bits); }
TEST_CASE("attention: what it cannot do it refuses") {
  for (const char* name : kSteps) check_refusals(step(name), 4);
}
TEST_CASE("checked: without a finding") { each("checks", check_without_findings); }
TEST_CASE("checked: blocks with several items, without a finding") {
  if (cannot_run("several items") || rerun_with_checks("checked: blocks*")) return;
  const int findings = lab::vgpu::findings();
  check_right(persistent_on(2), random_case(1, 5, 130, 64));
  check_right(multicast_on(2), random_case(1, 3, 330, 64));
  CHECK(lab::vgpu::findings() == findings);
}
TEST_CASE("all checks, six schedules") {
  // More tiles than a ring has stages.
  check_all_checks("chapter14", {{"--tokens", "330", "--heads", "1", "--head-dim", "32"},
                                 {"--tokens", "330", "--heads", "3", "--step", "multicast"},
                                 {"--tokens", "71", "--heads", "1", "--head-dim", "128"}});
}
TEST_CASE("machine code: no spills") { check_machine_code("chapters/14_hopper"); }
TEST_CASE("program: the whole way on a photo") {
  if (cannot_run("program")) return;
  std::vector<std::string> lines = {"ragged"};
  lines.insert(lines.end(), kSteps.begin(), kSteps.end());
  check_program("chapter14", lines);
}
TEST_CASE("program: a device that is no Hopper is refused by its name") {
  if (skipped_without_counters("refusal")) return;
  const TemporaryFolder folder;
  for (const auto& [name, capability] :
       {std::pair{"t4", "7.5"}, {"a100", "8.0"}, {"rtx5090", "12.0"}}) {
    CAPTURE(name);
    const Environment device("VGPU_DEVICE", name);
    const ProgramResult result = run_program("chapter14", {"--tokens", "9"}, folder.folder());
    CHECK(result.exit_code == lab::kLacking);
    CHECK(result.errors ==
          std::string("14_hopper: error: chapter 14 needs compute capability 9.0, that "
                      "of H100, H200 and GH200: this device has ") +
              capability + ", and code for sm_90a runs on no other\n");
  }
}

// ---- Counters -----------------------------------------------------------------------------------

namespace {

double divide_up(double a, double b) { return std::ceil(a / b); }

constexpr int kStages = 4;  // a ring's
struct Sizes {
  int query_rows, key_tile;  // a block's
  int rows, keys;            // what the products' rows and keys are multiples of
  int q_barriers = 1;        // those of Q, of a block
};
// Two heads.
void check_counters(const char* name, const Sizes& sizes, int tokens, int head_dim) {
  using lab::vgpu::counter;
  CAPTURE(name);
  const auto& [query_rows, key_tile, rows, keys, q_barriers] = sizes;
  run_for_counters(step(name), 1, 2, tokens, head_dim);
  const double blocks = 2 * divide_up(tokens, query_rows);
  // A tile is a copy, or two of 64 columns each; rows past the end are filled in and not read.
  const double copies = blocks * divide_up(tokens, key_tile) * (head_dim == 128 ? 2 : 1);
  const double bytes = tokens * head_dim * 2.0;  // a head's
  for (const char* array : {"K", "V"}) {
    CAPTURE(array);
    CHECK(counted(array, "copy_engine/load/copies") == copies);
    CHECK(counted(array, "copy_engine/load/bytes") == blocks * bytes);
  }
  CHECK(counted("Q", "copy_engine/load/copies") == blocks * (head_dim == 128 ? 2 : 1));
  CHECK(counted("Q", "copy_engine/load/bytes") == 2 * bytes);
  // (What arrives are whole boxes.)
  const double rows_of_block = query_rows + 2 * divide_up(tokens, key_tile) * key_tile;
  CHECK(counter("/async_copied_bytes") == blocks * rows_of_block * head_dim * 2);
  // The load/store unit has nothing to do with any of it. It writes barriers once, and O.
  CHECK(counter("/global/load/requests") == 0);
  CHECK(counter("/global/store/bytes_asked") == 2 * bytes);
  CHECK(counter("/shared/store/bytes_asked") ==
        blocks * 8 * (q_barriers + 2 * kStages) + 2 * divide_up(tokens, 16) * 16 * head_dim * 2);
  CHECK(counter("/tensor_macs") ==
        2 * 2 * divide_up(tokens, rows) * rows * divide_up(tokens, keys) * keys * head_dim);
  CHECK(shared_conflicts() == 0);
}
}  // namespace

TEST_CASE("counters: two copies a tile, bytes and multiply-adds by formula") {
  if (cannot_run("counters") || skipped_without_counters("counters")) return;
  for (const int head_dim : {32, 64, 128})
    for (const int tokens : {64, 80, 197}) {
      CAPTURE(head_dim);
      CAPTURE(tokens);
      // Of tensor maps' seven warps each has two blocks of 16 rows, or one where O takes more registers.
      const Sizes of_tensor_maps =
          head_dim < 128 ? Sizes{7 * 32, 64, 16, 8} : Sizes{7 * 16, 32, 16, 8};
      check_counters("tensor maps", of_tensor_maps, tokens, head_dim);
      check_counters("wgmma", {128, 64, 64, 16}, tokens, head_dim);
      check_counters("specialized", {128, 64, 64, 16}, tokens, head_dim);
      // (As many items as blocks.)
      check_counters("persistent", {128, 64, 64, 16, 4}, tokens, head_dim);
    }
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {

// Head_dim 64, and more tiles than a ring has stages.
std::vector<AttentionCase> bug_cases() {
  std::vector<AttentionCase> cases = {random_case(1, 1, 33, 64), random_case(1, 2, 330, 64),
                                      stepped_case(1, 1, 129, 64, {0, -100, 100}),
                                      random_case(1, 7, 64, 64),  // one tile each
                                      stepped_case(1, 1, 129, 64, {0, 8, 16})};
  AttentionCase negative = random_case(1, 1, 65, 64);  // Q gets another sign
  negative.name += ", scale -0.125";
  lab::AttentionProblem& p = negative.problem;
  p.shape.scale = -0.125f;
  reference::attention(lab::to_float(p.q).data(), lab::to_float(p.k).data(),
                       lab::to_float(p.v).data(), p.shape, negative.expected.data());
  cases.push_back(negative);
  return cases;
}

// arguments: the kernel's as a template. attention: the launch of a kernel.
void check_bugs(const std::string& step, const std::vector<int>& arguments,
                const std::vector<Mutant>& bugs,
                const std::function<AnyAttention(const void* kernel)>& attention) {
  static const std::vector<AttentionCase> cases = bug_cases();
  std::string list;
  for (const int argument : arguments)
    list += (list.empty() ? "" : ", ") + std::to_string(argument);
  Mutants loaded(step_file("chapters/14_hopper", step), "hopper", bugs,
                 "const auto instance = &" + step + "_kernel<" + list + ">;", Mutants::kKernelsOnly,
                 step == "tensor_maps" ? Mutants::kQuickly : Mutants::kAsShipped);
  // From wgmma on no warp loads a fragment.
  CHECK((loaded.ptx().find("ldmatrix") == std::string::npos) == (step != "tensor_maps"));
  const auto run = [&](size_t number, size_t trial) {
    const AnyAttention mutant = attention(loaded.kernel(number, step + "_kernel", arguments));
    return named(cases[trial].name, run_attention(mutant, cases[trial]));
  };
  check_each_bug(bugs, cases.size(), run, [&] { loaded.reset(); });
}

// Of the steps without items.
void check_bugs(const std::string& step, const std::string& name, const std::vector<int>& arguments,
                const std::vector<Mutant>& bugs) {
  check_bugs(step, arguments, bugs, [=](const void* kernel) -> AnyAttention {
    return [=](const half* Q, const half* K, const half* V, half* O, const AttentionShape& shape,
               cudaStream_t stream) {
      hopper::launch_mutant(name, kernel, Q, K, V, O, shape, stream);
    };
  });
}

}  // namespace

TEST_CASE("planted bugs: each is caught, and by what" * doctest::test_suite("toolkit")) {
  if (cannot_run("planted bugs") || rerun_with_checks("planted bugs*")) return;
  check_bugs("tensor_maps", "tensor maps", {64}, planted_bugs("14_hopper", "tensor maps"));
  check_bugs("wgmma", "wgmma", {64}, planted_bugs("14_hopper", "wgmma"));
  check_bugs("specialized", "specialized", {64}, planted_bugs("14_hopper", "specialized"));
  check_bugs("persistent", {64}, planted_bugs("14_hopper", "persistent"),
             [](const void* kernel) { return persistent_on(1, 2, kernel); });
  check_bugs("multicast", {64}, planted_bugs("14_hopper", "multicast"),
             [](const void* kernel) { return multicast_on(2, kernel); });
}
