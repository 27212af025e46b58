#include "test_support.h"

namespace lab::testing {
namespace {

// Output: unsigned char for a photo, unsigned for a sum.
template <class Output, class Step, class Compare>
Verdict run(const Step& step, const PhotoCase& problem, const std::vector<unsigned char>& from,
            size_t outputs, const Compare& compare_output) {
  const GuardedInput<unsigned char> input(from, "input");
  GuardedOutput<Output> output(outputs, "output");
  Verdict verdict;
  const auto launch = [&] { step(input.data(), output.data(), problem.problem.shape, nullptr); };
  if (!ran(launch, verdict)) return verdict;
  std::vector<Output> got;
  const bool guards = output.download(got);
  verdict.comparison = compare_output(got);
  verdict.judge(guards && input.untouched());
  return verdict;
}

}  // namespace

PhotoCase photo_case(const PhotoShape& shape, uint64_t seed) {
  PhotoCase result{describe(shape), random_photo(shape, seed), {}};
  result.expected = expected_results(result.problem);
  return result;
}

std::vector<PhotoShape> photo_shapes() {
  return {{1, 1},   {1, 7},    {7, 1},    {1, 300},   {300, 1}, {2, 2},   {4, 5},  {8, 32},
          {9, 33},  {31, 33},  {32, 8},   {33, 31},   {64, 96}, {16, 16}, {5, 64}, {65, 3},
          {17, 15}, {197, 45}, {45, 197}, {100, 257}, {255, 1}, {1, 256}, {257, 1}};
}

Verdict run_grey(const Launched& step, const PhotoCase& problem) {
  const auto compare_output = [&](const std::vector<unsigned char>& got) {
    return compare_bytes(got, problem.expected.grey, problem.problem.shape);
  };
  return run<unsigned char>(step, problem, problem.problem.photo, problem.expected.grey.size(),
                            compare_output);
}

Verdict run_blur(const Launched& step, const PhotoCase& problem) {
  const auto compare_output = [&](const std::vector<unsigned char>& got) {
    return compare_bytes(got, problem.expected.blurred, problem.problem.shape);
  };
  return run<unsigned char>(step, problem, problem.expected.grey, problem.expected.grey.size(),
                            compare_output);
}

Verdict run_sum(const LaunchedSum& step, const PhotoCase& problem) {
  const auto compare_output = [&](const std::vector<unsigned>& got) {
    return compare_sum(got[0], problem.expected.sum);
  };
  return run<unsigned>(step, problem, problem.expected.grey, 1, compare_output);
}

}  // namespace lab::testing
