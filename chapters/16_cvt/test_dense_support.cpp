#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "../../common/lab/random.h"
#include "test_dense.h"

namespace cvt::testing {

using lab::testing::GuardedInput;
using lab::testing::GuardedOutput;

Outcome run_trial(const Operation& operation, const Trial& trial, int shift) {
  std::vector<std::unique_ptr<GuardedInput<float>>> inputs;
  std::vector<std::unique_ptr<GuardedOutput<float>>> outputs;
  std::vector<const float*> from;
  std::vector<float*> to;
  for (const Input& input : trial.inputs) {
    inputs.push_back(std::make_unique<GuardedInput<float>>(input.values, input.name, shift));
    from.push_back(inputs.back()->data());
  }
  for (const Output& output : trial.outputs) {
    outputs.push_back(
        std::make_unique<GuardedOutput<float>>(output.expected.size(), output.name, shift));
    to.push_back(outputs.back()->data());
    if (!output.before.empty())
      lab::check(cudaMemcpy(to.back(), output.before.data(), output.before.size() * sizeof(float),
                            cudaMemcpyHostToDevice));
  }
  Outcome outcome;
  if (!lab::testing::ran([&] { operation(from, to); }, outcome)) return outcome;
  bool untouched = true;
  for (const auto& input : inputs) untouched = input->untouched() && untouched;
  outcome.outputs.resize(outputs.size());
  std::string wrong;
  for (size_t i = 0; i < outputs.size(); ++i) {
    untouched = outputs[i]->download(outcome.outputs[i]) && untouched;
    const Output& output = trial.outputs[i];
    const lab::Comparison comparison = lab::compare(
        outcome.outputs[i], output.expected, output.tolerance, {int64_t(output.expected.size())});
    if (i == 0 || (outcome.comparison.pass && !comparison.pass)) {
      outcome.comparison = comparison;
      wrong = output.name;
    }
  }
  outcome.judge(untouched);
  outcome.details = trial.name + ", " + wrong + ": " + outcome.details;
  return outcome;
}

std::vector<float> numbers(size_t count, uint64_t seed, double size, double middle) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const float value = float(lab::normal(seed, i) * size + middle);
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x1000) & ~0x1fffu;
    std::memcpy(&values[i], &bits, sizeof bits);
  }
  return values;
}

Array widened(const std::vector<float>& values) { return {values.begin(), values.end()}; }

double largest(const Array& values) {
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

lab::Tolerance for_sums(int length, const Array& left, const Array& right) {
  return lab::Tolerance::fp32_sum(length + 4, largest(left) * largest(right) + 1);
}

}  // namespace cvt::testing
