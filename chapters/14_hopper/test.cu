// Chapter 14's tests: each step right on every shape, same bits twice, refused by name where it cannot
// run, silent under all checks.
#include <doctest/doctest.h>

#include "../../common/attention/test_cases.h"
#include "../../common/attention/test_ladder.h"
#include "../../common/lab/device.h"
#include "../../common/lab/program.h"
#include "maps.cuh"
#include "specialized.cuh"
#include "tensor_maps.cuh"
#include "wgmma.cuh"

using namespace lab::testing;

namespace {

struct Step {
  const char* name;
  AnyAttention attention;
};
const std::vector<Step>& steps() {
  static const std::vector<Step> all = {{"tensor maps", hopper::tensor_maps},
                                        {"wgmma", hopper::wgmma},
                                        {"specialized", hopper::specialized}};
  return all;
}
// Says so and returns true where there is no device that can run this chapter.
bool cannot_run(const std::string& what) {
  if (skipped(what)) return true;
  const std::string lack = hopper::lacks();
  if (!lack.empty()) MESSAGE("skipped: " << what << ": this chapter " << lack);
  return !lack.empty();
}
// `check` of each step.
void each(const std::string& what, const std::function<void(const AnyAttention&)>& check) {
  if (cannot_run(what)) return;
  for (const Step& step : steps()) {
    CAPTURE(step.name);
    check(step.attention);
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
  check_right(hopper::wgmma_of<true>, random_case(1, 3, 130, 64));
  if (skipped_without_counters("blocks of an SM")) return;
  run_for_counters(hopper::wgmma_of<true>, 1, 1, 65, 64);
  CHECK(lab::vgpu::counter("/occupancy/blocks_per_sm") == 1);
  run_for_counters(hopper::wgmma, 1, 1, 65, 64);
  CHECK(lab::vgpu::counter("/occupancy/blocks_per_sm") == 2);
}
TEST_CASE("attention: unusual scores") { each("unusual scores", check_unusual_scores); }
TEST_CASE("attention: rounded once") { each("rounding", check_rounding); }
TEST_CASE("attention: arrays from PyTorch") { each("arrays from PyTorch", check_pytorch); }
TEST_CASE("attention: a trained DeiT-Tiny") { each("a trained DeiT-Tiny", check_deit_tiny); }
TEST_CASE("attention: the same bits twice") { each("the same bits twice", check_same_bits); }
TEST_CASE("attention: what it cannot do it refuses") {
  for (const Step& step : steps()) check_refusals(step.attention, true);
}
TEST_CASE("checked: without a finding") { each("checks", check_without_findings); }
TEST_CASE("all checks, six schedules") {
  check_all_checks("chapter14", {{"--tokens", "83", "--heads", "1", "--head-dim", "64"},
                                 {"--tokens", "71", "--heads", "1", "--head-dim", "128"}});
}
TEST_CASE("program: the whole way on a photo") {
  if (cannot_run("program")) return;
  std::vector<std::string> lines = {"ragged"};
  for (const Step& step : steps()) lines.push_back(step.name);
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
