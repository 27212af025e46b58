// Chapter 8's tests: each step right on every kernel, stride, padding and size, on large means and
// huge values; same bits twice, planted bugs found, what the counters say worked out by hand, and
// the machine code.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "../../common/conv_norm_tests.h"
#include "../../common/ladder_tests.h"
#include "three_passes.cuh"

namespace steps = fused_conv_norm;
using namespace lab::testing;

namespace {

struct NamedStep {
  const char* name;
  lab::ConvNormFunction function;
};
const std::vector<NamedStep> kSteps = {{"three passes", steps::three_passes}};

void check_steps(const ConvNormTrial& trial, int shift = 0) {
  for (const NamedStep& step : kSteps) {
    const ConvNormOutcome outcome = run_conv_norm(step.function, trial, shift);
    CAPTURE(step.name);
    CAPTURE(trial.name);
    CAPTURE(shift);
    CAPTURE(outcome.details);
    CHECK(outcome.caught_by == "");
  }
}

}  // namespace

TEST_CASE("right: every kernel, stride and padding, ragged sizes, several images") {
  if (skipped("right")) return;
  uint64_t seed = 1;
  for (const ConvNormShape& shape : conv_norm_shapes()) {
    check_steps(conv_norm_trial(shape, seed, seed % 3 == 0), seed % 4 == 0);
    ++seed;
  }
}

TEST_CASE("right: arrays from PyTorch, large means, one pixel, huge and denormal values") {
  if (skipped("arrays from PyTorch")) return;
  const std::vector<ConvNormTrial> trials = conv_norm_golden_trials();
  REQUIRE(trials.size() >= 30);
  for (const ConvNormTrial& trial : trials) check_steps(trial);
}
