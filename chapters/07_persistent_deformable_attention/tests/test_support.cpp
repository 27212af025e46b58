#include "test_support.h"
#include "../../../common/attention/test_cases.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "../../../common/json/json.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/random.h"
#include "../host/reference.h"

namespace lab::testing {
namespace {

std::vector<half> to_half(const std::vector<double>& values) {
  std::vector<half> halves(values.size());
  for (size_t i = 0; i < values.size(); ++i) halves[i] = __float2half(float(values[i]));
  return halves;
}

void expect_reference(DeformableCase& result) {
  const DeformableProblem& p = result.problem;
  result.expected.resize(p.shape.out_elements());
  reference::deformable_attention(to_float(p.value).data(), to_float(p.locations).data(),
                                  to_float(p.weights).data(), p.shape, result.expected.data());
}

// A random problem whose samples lie in the middle of pixels, so that one pixel has all of each.
// Exactly, where sizes of levels are powers of two.
DeformableCase case_on_pixels(const DeformableShape& shape) {
  DeformableCase result;
  result.problem = random_deformable(shape, Distribution::kUniform, 1);
  std::vector<half>& locations = result.problem.locations;
  for (size_t i = 0; i < locations.size(); ++i) {
    const LevelShape level =
        shape.level[int64_t(i) / 2 % (shape.levels * shape.points) / shape.points];
    const int size = i % 2 ? level.height : level.width;
    locations[i] = __float2half((float(random_bits(5, i) % uint64_t(size)) + 0.5f) / float(size));
  }
  return result;
}

}  // namespace

DeformableCase deformable_case(const DeformableShape& shape, Distribution distribution,
                               uint64_t seed, bool edges) {
  DeformableCase result;
  result.name = describe(shape) + (edges ? ", edges" : "");
  result.problem = random_deformable(shape, distribution, seed);
  DeformableProblem& p = result.problem;
  for (int64_t i = 0; edges && i < int64_t(p.locations.size()); ++i) {
    const int64_t sample = i / 2 % (shape.levels * shape.points);
    const LevelShape level = shape.level[sample / shape.points];
    const double size = i % 2 ? level.height : level.width;
    const float nan = std::numeric_limits<float>::quiet_NaN(),
                infinity = std::numeric_limits<float>::infinity();
    const double pixels[] = {-60000,     -1.5,     -1,         -0.5, 0,          0.5,
                             size - 1.5, size - 1, size - 0.5, size, size + 0.5, 2 * size};
    const uint64_t choice = random_bits(seed + 77, uint64_t(i)) % 24;
    if (choice < 12) p.locations[i] = __float2half(float((pixels[choice] + 0.5) / size));
    if (choice == 12) p.locations[i] = __float2half(nan);
    if (choice == 13) p.locations[i] = __float2half(infinity);
    if (choice == 14) p.locations[i] = __float2half(-infinity);
  }
  expect_reference(result);
  return result;
}

DeformableCase exact_deformable_case(const DeformableShape& shape) {
  DeformableCase result = case_on_pixels(shape);
  DeformableProblem& p = result.problem;
  result.name = describe(shape) + ", exact";
  for (size_t i = 0; i < p.value.size(); ++i) {
    const float size = 1 + float(random_bits(6, i) % 256) / 256;
    p.value[i] = __float2half(i % 3 ? size : -size);
  }
  std::fill(p.weights.begin(), p.weights.end(), __float2half(1.0f / 32));
  expect_reference(result);
  for (double& sum : result.expected) sum = double(__float2half_rn(float(sum)));
  result.tolerance = Tolerance{};
  return result;
}

DeformableCase long_sum_case(const DeformableShape& shape) {
  DeformableCase result = case_on_pixels(shape);
  DeformableProblem& p = result.problem;
  result.name = describe(shape) + ", long sums";
  // Beside a value of at least 1, whose neighbours are 2^-10 away, 1.25 * 0.9 * 2^-12 is nothing.
  for (size_t i = 0; i < p.value.size(); ++i)
    p.value[i] = __float2half(1 + float(random_bits(6, i) % 256) / 1024);
  for (size_t i = 0; i < p.weights.size(); ++i)
    p.weights[i] = __float2half(int64_t(i) % (shape.levels * shape.points) ? 0.9f * 0x1p-12f : 1);
  expect_reference(result);
  return result;
}

std::vector<DeformableCase> deformable_golden_cases() {
  const std::string folder = repository_path("data/golden/");
  const json::Value manifest = json::parse(read_file(folder + "deformable.json"));
  std::vector<DeformableCase> cases;
  for (const json::Value& entry : manifest.at("cases")) {
    DeformableCase result;
    result.name = entry.at("name").get<std::string>() + " (PyTorch)";
    DeformableShape& shape = result.problem.shape;
    shape = {entry.at("batch").get<int>(),
             entry.at("queries").get<int>(),
             entry.at("heads").get<int>(),
             entry.at("channels").get<int>(),
             0,
             entry.at("points").get<int>(),
             {}};
    for (const json::Value& level : entry.at("levels"))
      shape.level[shape.levels++] = {level.item(0).get<int>(), level.item(1).get<int>()};
    const auto read = [&](const char* array, const std::vector<int64_t>& expected_shape) {
      const Array values =
          read_npy(folder + entry.at("arrays").at(array).at("file").get<std::string>());
      if (values.shape != expected_shape)
        throw UsageError(folder + ": " + result.name + ": " + array + " and manifest differ");
      return values.values;
    };
    const int64_t B = shape.batch, Q = shape.queries, H = shape.heads, C = shape.channels,
                  L = shape.levels, P = shape.points;
    result.problem.value = to_half(read("value", {B, shape.pixels(), H, C}));
    result.problem.locations = to_half(read("locations", {B, Q, H, L, P, 2}));
    result.problem.weights = to_half(read("weights", {B, Q, H, L, P}));
    result.problem.source = result.name;
    result.expected = read("out", {B, Q, H, C});
    cases.push_back(std::move(result));
  }
  return cases;
}

Outcome run_deformable(const AnyDeformable& step, const DeformableCase& problem) {
  const DeformableProblem& inputs = problem.problem;
  const DeformableShape& shape = inputs.shape;
  const GuardedInput<half> value(inputs.value, "value"), locations(inputs.locations, "locations"),
      weights(inputs.weights, "weights");
  GuardedOutput<half> out(size_t(shape.out_elements()), "out");

  Outcome outcome;
  const auto launch = [&] {
    step(value.data(), locations.data(), weights.data(), out.data(), shape, nullptr);
  };
  if (!ran(launch, outcome)) return outcome;

  const bool guards = out.download(outcome.output);
  double max_value = 0;
  for (const half v : inputs.value) max_value = std::max(max_value, std::abs(double(v)));
  // An output is a weighted mean of values, as that of attention is.
  outcome.comparison = compare(outcome.output, problem.expected,
                               problem.tolerance.value_or(Tolerance::fp16_mean(max_value)),
                               {shape.batch, shape.queries, shape.heads, shape.channels});

  outcome.judge(guards && value.untouched() && locations.untouched() && weights.untouched());
  return outcome;
}

}  // namespace lab::testing
