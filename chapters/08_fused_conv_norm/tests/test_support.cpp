#include "test_support.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "../../../common/lab/files.h"
#include "test_golden.h"

namespace lab::testing {

ConvNormTrial conv_norm_trial(const std::string& name, const ConvNormProblem& problem) {
  return {name, problem, expected_conv_norm(problem)};
}

ConvNormTrial conv_norm_trial(const ConvNormShape& shape, uint64_t seed, bool with_residual) {
  return conv_norm_trial(describe(shape) + (with_residual ? ", residual" : ""),
                         random_conv_norm(shape, seed, with_residual));
}

std::string wrong_with_nans(const AnyConvNorm& step, ConvNormTrial trial) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const ConvNormShape& shape = trial.problem.shape;
  const size_t image = size_t(shape.y_elements() / shape.batch);
  trial.problem.x[shape.width + 1] = nan;
  for (size_t i = 3; i < trial.problem.residual.size(); i += 7) trial.problem.residual[i] = nan;
  ConvNormOutcome outcome = run_conv_norm(step, trial);
  if (outcome.y.size() != trial.expected.y.size()) return outcome.details;
  for (size_t i = 0; i < outcome.y.size(); ++i) {
    if (i >= image && i % 7 != 3) continue;
    // By its bits, as in every comparison here.
    if ((std::bit_cast<uint32_t>(outcome.y[i]) & 0x7fffffff) <= 0x7f800000)
      return format("element %zu is %g and must be NaN", i, double(outcome.y[i]));
    outcome.y[i] = 0;
    trial.expected.y[i] = 0;
  }
  const Comparison others =
      compare(outcome.y, trial.expected.y, trial.expected.tolerance, {shape.y_elements()});
  return others.pass ? "" : others.describe();
}

ConvNormTrial flat_planes(int height, int width) {
  ConvNormShape shape;
  shape.batch = 2, shape.out_channels = 9, shape.height = height, shape.width = width;
  shape.kernel = 1;
  shape = same_padded(shape);
  ConvNormProblem problem = random_conv_norm(shape, 1, true);
  // 10 bits, and powers of two. 35 shares of 1/35 of either do not add up to it in fp32.
  for (size_t i = 0; i < problem.x.size(); ++i) problem.x[i] = i < problem.x.size() / 2 ? 611 : 681;
  for (int c = 0; c < 9; ++c) {
    problem.weight[c] = float(1 << c % 3);
    problem.beta[c] = float(c - 4) / 8;
  }
  problem.bias.clear();
  for (float& value : problem.residual) value = std::round(value * 16) / 16;
  ConvNormTrial trial = conv_norm_trial(describe(shape) + ", flat", problem);
  trial.expected.tolerance = Tolerance{};
  return trial;
}

std::vector<ConvNormTrial> conv_norm_golden_trials() {
  std::vector<ConvNormTrial> trials;
  for (const ConvNormCase& c : conv_norm_golden_cases()) {
    ConvNormTrial trial;
    trial.name = c.name + " (PyTorch)";
    trial.problem = {c.shape, c.x, c.weight, c.bias, c.gamma, c.beta, c.residual, trial.name, {}};
    trial.expected.conv = c.conv;
    trial.expected.y = c.y;
    trial.expected.tolerance = conv_norm_tolerance(trial.problem, c.conv);
    trials.push_back(std::move(trial));
  }
  return trials;
}

std::vector<ConvNormShape> conv_norm_shapes() {
  std::vector<ConvNormShape> shapes;
  int number = 0;
  for (const int kernel : {1, 3, 4, 5, 9})
    for (const int stride : {1, 2})
      for (const Padding padding : {Padding::kZero, Padding::kReflect}) {
        ConvNormShape s;
        s.kernel = kernel, s.stride = stride, s.padding = padding;
        s.height = number % 3 ? 13 : 19, s.width = number % 3 ? 20 : 11;
        s.batch = 1 + number % 2;
        s.in_channels = std::array{3, 8, 5, 1, 12}[number % 5];
        s.out_channels = std::array{3, 37, 8, 70}[number % 4];
        shapes.push_back(same_padded(s));
        ++number;
      }
  for (const int kernel : {1, 3, 4, 9}) {  // upsampled, odd and even padding
    ConvNormShape s;
    s.kernel = kernel, s.upsample = 2;
    s.height = 7, s.width = 6, s.in_channels = 5, s.out_channels = 9;
    s.pad_top = s.pad_bottom = kernel - 1, s.pad_left = kernel / 2, s.pad_right = kernel - 1;
    shapes.push_back(s);
  }
  return shapes;
}

ConvNormOutcome run_conv_norm(const AnyConvNorm& step, const ConvNormTrial& trial, int shift) {
  const ConvNormProblem& p = trial.problem;
  const ConvNormShape& shape = p.shape;
  const GuardedInput<float> x(p.x, "x", shift), weight(p.weight, "weight", shift),
      bias(p.bias, "bias", shift), gamma(p.gamma, "gamma", shift), beta(p.beta, "beta", shift),
      residual(p.residual, "residual", shift);
  GuardedOutput<float> y(size_t(shape.y_elements()), "y", shift);

  ConvNormOutcome outcome;
  const auto launch = [&] {
    step(x.data(), weight.data(), bias.data(), gamma.data(), beta.data(), residual.data(), y.data(),
         shape, nullptr);
  };
  if (!ran(launch, outcome)) return outcome;

  const bool guards = y.download(outcome.y);
  outcome.comparison =
      compare(outcome.y, trial.expected.y, trial.expected.tolerance,
              {shape.batch, shape.out_channels, shape.out_height(), shape.out_width()});
  outcome.judge(guards && x.untouched() && weight.untouched() && bias.untouched() &&
                gamma.untouched() && beta.untouched() && residual.untouched());
  return outcome;
}

}  // namespace lab::testing
