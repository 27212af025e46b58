// Tests of chapter 8's step on tensor cores: right in tf32 and fp16 on every kernel, stride and
// padding, exact counts of tensor multiply-adds, planted bugs, checks, machine code.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "../../common/conv_norm_tests.h"
#include "../../common/ladder_tests.h"
#include "tensor.cuh"

namespace steps = fused_conv_norm;
using namespace lab::testing;

namespace {

struct TensorStep {
  const char* name;
  lab::ConvNormFunction function;
  steps::Precision precision;
};
const std::vector<TensorStep> kSteps = {
    {"fused, tf32", steps::tensor_fused<steps::kTf32>, steps::kTf32},
    {"fused, fp16", steps::tensor_fused<steps::kFp16>, steps::kFp16},
    {"two passes, tf32", steps::tensor_two_passes<steps::kTf32>, steps::kTf32},
    {"two passes, fp16", steps::tensor_two_passes<steps::kFp16>, steps::kFp16}};

// Steps that this device has.
bool there(const TensorStep& step) {
  return (step.precision == steps::kTf32 ? steps::lacking<steps::kTf32>()
                                         : steps::lacking<steps::kFp16>()) == "";
}

ConvNormTrial rounded(ConvNormTrial trial) {
  trial.expected.tolerance = lab::rounded_products_tolerance(trial.problem, trial.expected);
  return trial;
}

bool in_range_of_fp16(const lab::ConvNormProblem& problem) {
  for (const std::vector<float>* values : {&problem.x, &problem.weight})
    for (const float v : *values)
      if (std::abs(v) > 65504) return false;
  return true;
}

void check_steps(const ConvNormTrial& trial, size_t first = 0, size_t end = 4, int shift = 0) {
  const ConvNormTrial tolerant = rounded(trial);
  for (size_t i = first; i < end; ++i) {
    const TensorStep& step = kSteps[i];
    if (!there(step)) continue;
    if (step.precision == steps::kFp16 && !in_range_of_fp16(trial.problem)) continue;
    const ConvNormOutcome outcome = run_conv_norm(step.function, tolerant, shift);
    CAPTURE(step.name);
    CAPTURE(trial.name);
    CAPTURE(shift);
    CAPTURE(outcome.details);
    CHECK(outcome.caught_by == "");
  }
}

ConvNormShape shape_of(int batch, int in_channels, int out_channels, int height, int width,
                       int kernel, int stride = 1) {
  ConvNormShape s;
  s.batch = batch, s.in_channels = in_channels, s.out_channels = out_channels;
  s.height = height, s.width = width, s.kernel = kernel, s.stride = stride;
  return same_padded(s);
}

}  // namespace

TEST_CASE("tensor: right on every kernel, stride and padding, ragged sizes, several images") {
  if (skipped("tensor: right")) return;
  uint64_t seed = 1;
  for (const ConvNormShape& shape : conv_norm_shapes()) {
    // Two of the four steps each, in turns.
    check_steps(conv_norm_trial(shape, seed, seed % 3 == 0), seed % 2 * 2, seed % 2 * 2 + 2,
                seed % 4 == 0);
    ++seed;
  }
}
