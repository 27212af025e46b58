#include "conv_norm_tests.h"

#include <cstring>

#include "conv_golden_testing.h"

namespace lab::testing {
namespace {

constexpr int kGuard = 256;  // elements on either side of the output; keeps its alignment

// An input that begins `shift` elements behind a multiple of 16 bytes. Empty ones are null.
class Input {
 public:
  Input(const std::vector<float>& values, int shift, const char* name)
      : values_(values), shift_(shift), array_(values.size() + shift, name) {
    std::vector<float> padded(shift, 0.0f);
    padded.insert(padded.end(), values.begin(), values.end());
    if (!padded.empty()) array_.upload(padded);
  }
  const float* data() const { return values_.empty() ? nullptr : array_.data() + shift_; }
  bool untouched() const {
    const std::vector<float> now =
        values_.empty() ? values_ : array_.download(shift_, values_.size());
    return std::memcmp(now.data(), values_.data(), now.size() * sizeof(float)) == 0;
  }

 private:
  const std::vector<float>& values_;
  int shift_;
  DeviceArray<float> array_;
};

}  // namespace

ConvNormTrial conv_norm_trial(const std::string& name, const ConvNormProblem& problem) {
  return {name, problem, expected_conv_norm(problem)};
}

ConvNormTrial conv_norm_trial(const ConvNormShape& shape, uint64_t seed, bool with_residual) {
  return conv_norm_trial(describe(shape) + (with_residual ? ", residual" : ""),
                         random_conv_norm(shape, seed, with_residual));
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
  const size_t count = size_t(shape.y_elements());
  const Input x(p.x, shift, "x"), weight(p.weight, shift, "weight"), bias(p.bias, shift, "bias"),
      gamma(p.gamma, shift, "gamma"), beta(p.beta, shift, "beta"),
      residual(p.residual, shift, "residual");
  DeviceArray<float> y(count + 2 * kGuard + shift, "y");
  y.fill_nan();

  ConvNormOutcome outcome;
  try {
    step(x.data(), weight.data(), bias.data(), gamma.data(), beta.data(), residual.data(),
         y.data() + kGuard + shift, shape, nullptr);
    check(cudaGetLastError());
    check(cudaDeviceSynchronize());
  } catch (const std::exception& error) {
    outcome.caught_by = "error";
    outcome.details = error.what();
    return outcome;
  }

  const std::vector<float> guarded = y.download();
  const auto first = guarded.begin() + kGuard + shift;
  outcome.y.assign(first, first + ptrdiff_t(count));
  outcome.comparison =
      compare(outcome.y, trial.expected.y, trial.expected.tolerance,
              {shape.batch, shape.out_channels, shape.out_height(), shape.out_width()});

  const std::vector<unsigned char> nan((kGuard + shift) * sizeof(float), 0xff);
  const bool guards =
      std::memcmp(guarded.data(), nan.data(), nan.size()) == 0 &&
      std::memcmp(&*(first + ptrdiff_t(count)), nan.data(), kGuard * sizeof(float)) == 0;
  outcome.judge(guards && x.untouched() && weight.untouched() && bias.untouched() &&
                gamma.untouched() && beta.untouched() && residual.untouched());
  return outcome;
}

}  // namespace lab::testing
