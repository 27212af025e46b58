#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "../../../common/lab/random.h"
#include "test_operations.h"

namespace cvt::testing {

using lab::testing::GuardedInput;
using lab::testing::GuardedOutput;

Outcome run_trial(const Operation& operation, const Trial& trial,
                  const lab::testing::Shift& shift) {
  std::vector<std::unique_ptr<GuardedInput<float>>> inputs;
  std::vector<std::unique_ptr<GuardedOutput<float>>> outputs;
  std::vector<const float*> from;
  std::vector<float*> to;
  int array = 0;
  for (const Input& input : trial.inputs) {
    inputs.push_back(
        std::make_unique<GuardedInput<float>>(input.values, input.name, shift.of(array++)));
    from.push_back(inputs.back()->data());
  }
  for (const Output& output : trial.outputs) {
    outputs.push_back(std::make_unique<GuardedOutput<float>>(output.expected.size(), output.name,
                                                             shift.of(array++)));
    to.push_back(outputs.back()->data());
    if (!output.before.empty())
      lab::check(cudaMemcpy(to.back(), output.before.data(), output.before.size() * sizeof(float),
                            cudaMemcpyHostToDevice));
  }
  Outcome outcome;
  if (!lab::testing::ran([&] { operation(from, to, nullptr); }, outcome)) return outcome;
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

void check_trial(const Operation& operation, const Trial& trial, const lab::testing::Shift& shift) {
  const Outcome first = run_trial(operation, trial, shift);
  CAPTURE(shift.elements);
  CAPTURE(first.details);
  CHECK(first.caught_by == "");
  const Outcome replayed = run_trial(lab::testing::in_a_graph(operation), trial, shift);
  REQUIRE(replayed.outputs.size() == first.outputs.size());
  for (size_t i = 0; i < first.outputs.size(); ++i)
    CHECK(std::memcmp(first.outputs[i].data(), replayed.outputs[i].data(),
                      first.outputs[i].size() * sizeof(float)) == 0);
}

void check_moved_arrays(const Operation& operation, const Trial& trial) {
  for (int array = 0; array < int(trial.inputs.size() + trial.outputs.size()); ++array) {
    CAPTURE(array);
    const Outcome outcome = run_trial(operation, trial, {1, array});
    CHECK_MESSAGE(outcome.caught_by == "", outcome.details);
  }
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

lab::Tolerance for_sums(int length, const Array& left, const Array& right) {
  return lab::Tolerance::fp32_sum(length + 4, lab::max_abs(left) * lab::max_abs(right) + 1);
}

}  // namespace cvt::testing
