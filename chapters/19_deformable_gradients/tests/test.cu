// Tests of the gradients of deformable attention: the reference against central differences and
// PyTorch, each step against the reference, counters by formula, bits, checks, the program.
//
// Longer than 600 lines: all cases share its problems, and a second .cu would compile the same headers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "../../../common/lab/device.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/random.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/checks.h"
#include "../../07_persistent_deformable_attention/host/reference.h"
#include "../../07_persistent_deformable_attention/parts/staging.cuh"
#include "../kernels.h"
#include "../parts/cells.cuh"
#include "../parts/rows.cuh"

using namespace lab::testing;
using namespace lab::deformable;
using lab::Distribution;

namespace {

struct GradientCase {
  std::string name;
  GradientProblem problem;
  ExpectedGradients expected;
};

// With `edges` half of the coordinates lie on borders, beside them, far outside or nowhere.
GradientCase gradient_case(const DeformableShape& shape, Distribution distribution, uint64_t seed,
                           bool edges) {
  GradientCase result{
      describe(shape) + (edges ? ", edges" : ""), random_gradients(shape, distribution, seed), {}};
  std::vector<half>& locations = result.problem.forward.locations;
  for (size_t i = 0; edges && i < locations.size(); ++i) {
    const int sample = int(i / 2 % size_t(shape.levels * shape.points));
    const LevelShape level = shape.level[sample / shape.points];
    const double size = i % 2 ? level.height : level.width;
    const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
    const double pixels[] = {-60000,   -1.5,       -1,   -0.5,       0,   0.5,      size - 1.5,
                             size - 1, size - 0.5, size, size + 0.5, nan, infinity, -infinity};
    const uint64_t choice = lab::random_bits(seed + 77, uint64_t(i)) % 28;
    if (choice < std::size(pixels))
      locations[i] = __float2half(float((pixels[choice] + 0.5) / size));
  }
  result.expected = expected_gradients(result.problem);
  return result;
}

// data/golden: the arrays that PyTorch computed in double precision, in place of the reference's.
std::vector<GradientCase> golden_cases() {
  const std::string folder = lab::repository_path("data/golden/");
  const std::string forward = file_content(folder + "deformable.json"),
                    backward = file_content(folder + "deformable_gradients.json");
  std::vector<GradientCase> cases;
  for (int i = 0; i < 6; ++i) {
    const std::string at = "/cases/" + std::to_string(i) + "/";
    const auto number = [&](const std::string& what) {
      return std::stoi(json_at(forward, at + what));
    };
    const std::string name = json_at(forward, at + "name");  // with its quotes
    REQUIRE(json_at(backward, at + "name") == name);
    DeformableShape shape{number("batch"),
                          number("queries"),
                          number("heads"),
                          number("channels"),
                          0,
                          number("points"),
                          {}};
    for (const std::string levels = json_at(forward, at + "levels");
         shape.levels < int(std::count(levels.begin(), levels.end(), '[')) - 1; ++shape.levels) {
      const std::string level = "levels/" + std::to_string(shape.levels);
      shape.level[shape.levels] = {number(level + "/0"), number(level + "/1")};
    }
    const auto read = [&](const char* array) {
      return lab::read_npy(folder + "deformable_" + name.substr(1, name.size() - 2) + "_" + array +
                           ".npy")
          .values;
    };
    const auto halves = [&](const char* array) {
      std::vector<half> result;
      for (const double v : read(array)) result.push_back(__float2half(float(v)));
      return result;
    };
    GradientCase result{name + " (PyTorch)",
                        {{shape, halves("value"), halves("locations"), halves("weights"), "", {}},
                         halves("grad_out")},
                        {}};
    result.expected = expected_gradients(result.problem);
    reference::DeformableGradients& gradients = result.expected.gradients;
    gradients.value = read("grad_value");
    gradients.locations = read("grad_locations");
    gradients.weights = read("grad_weights");
    cases.push_back(std::move(result));
  }
  return cases;
}

// Ragged in queries, heads, levels; one pixel wide or high; each number of channels and points.
std::vector<GradientCase> gradient_cases() {
  std::vector<GradientCase> cases;
  const auto add = [&](const DeformableShape& shape, Distribution distribution) {
    for (const bool edges : {false, true})
      cases.push_back(gradient_case(shape, distribution, 1 + cases.size(), edges));
  };
  add({1, 1, 1, 16, 1, 4, {{1, 1}}}, Distribution::kUniform);
  // 32 cells: the number that stands for "outside" is the first with so many bits.
  add({2, 19, 1, 16, 1, 4, {{3, 3}}}, Distribution::kUniform);
  add({2, 13, 3, 16, 2, 4, {{5, 4}, {1, 3}}}, Distribution::kUniform);
  add({1, 37, 1, 32, 4, 8, {{9, 16}, {5, 8}, {3, 4}, {2, 2}}}, Distribution::kLocal);
  add({3, 9, 2, 64, 3, 4, {{7, 1}, {4, 8}, {2, 2}}}, Distribution::kUniform);
  add({1, 11, 1, 64, 5, 8, {{8, 8}, {4, 4}, {2, 4}, {1, 2}, {1, 1}}}, Distribution::kLocal);
  return cases;
}

struct GradientOutcome : Verdict {
  std::vector<float> value, locations, weights;
  GradientComparisons comparisons;
};

// A step with its outputs full of NaN between guard areas.
using AnyGradients = std::function<std::remove_pointer_t<GradientFunction>>;
GradientOutcome run_gradients(const AnyGradients& step, const GradientCase& problem) {
  const lab::DeformableProblem& p = problem.problem.forward;
  const GuardedInput<half> value(p.value, "value"), locations(p.locations, "locations"),
      weights(p.weights, "weights"), grad_out(problem.problem.grad_out, "grad_out");
  GuardedOutput<float> grad_value(p.value.size(), "grad_value"),
      grad_locations(p.locations.size(), "grad_locations"),
      grad_weights(p.weights.size(), "grad_weights");
  GradientOutcome outcome;
  const auto launch = [&] {
    step(value.data(), locations.data(), weights.data(), grad_out.data(), grad_value.data(),
         grad_locations.data(), grad_weights.data(), p.shape, nullptr);
  };
  if (!ran(launch, outcome)) return outcome;
  bool untouched = grad_value.download(outcome.value);
  untouched = grad_locations.download(outcome.locations) && untouched;
  untouched = grad_weights.download(outcome.weights) && untouched;
  outcome.comparisons = compare_gradients(outcome.value, outcome.locations, outcome.weights,
                                          problem.expected, p.shape);
  outcome.comparison = outcome.comparisons.worst();
  outcome.judge(untouched && value.untouched() && locations.untouched() && weights.untouched() &&
                grad_out.untouched());
  return outcome;
}

void check_case(const GradientStep& step, const GradientCase& problem) {
  CAPTURE(step.name);
  CAPTURE(problem.name);
  const GradientOutcome outcome = run_gradients(step.function, problem);
  CAPTURE(outcome.details);
  CHECK(outcome.caught_by == "");
}

// The pixels that samples give a share to, over all samples; or how many samples have such a pixel.
double corners_inside(const GradientProblem& problem, bool samples = false) {
  const DeformableShape& shape = problem.shape();
  double corners = 0;
  for (int64_t s = 0; s < shape.samples(); ++s) {
    const LevelShape level = shape.level[s % (shape.levels * shape.points) / shape.points];
    int inside[2] = {};
    for (int axis = 0; axis < 2; ++axis) {
      const int size = axis ? level.height : level.width;
      const double at = double(problem.forward.locations[size_t(2 * s + axis)]) * size - 0.5;
      for (int next = 0; next < 2; ++next)
        inside[axis] +=
            std::isfinite(at) && std::floor(at) + next >= 0 && std::floor(at) + next < size;
    }
    corners += samples ? inside[0] * inside[1] > 0 : inside[0] * inside[1];
  }
  return corners;
}

// ---- The reference ------------------------------------------------------------------------------

// Σ grad_out · out, in double.
double loss(const GradientProblem& problem, const std::vector<float>& value,
            const std::vector<float>& locations, const std::vector<float>& weights) {
  std::vector<double> out(size_t(problem.shape().out_elements()));
  reference::deformable_attention(value.data(), locations.data(), weights.data(), problem.shape(),
                                  out.data());
  double sum = 0;
  for (size_t i = 0; i < out.size(); ++i) sum += double(problem.grad_out[i]) * out[i];
  return sum;
}

struct Arrays {
  std::vector<float> value, locations, weights;
};
// (loss at array[i] + up - loss at array[i] - down) / (up + down)
double difference(const GradientProblem& problem, Arrays arrays, std::vector<float> Arrays::*which,
                  size_t i, float up, float down) {
  float& element = (arrays.*which)[i];
  const float middle = element;
  element = middle + up;
  const double above = loss(problem, arrays.value, arrays.locations, arrays.weights);
  element = middle - down;
  return (above - loss(problem, arrays.value, arrays.locations, arrays.weights)) /
         double(up + down);
}

}  // namespace

TEST_CASE("gradient reference: central differences, and on borders those towards the right") {
  // Sizes are powers of two and locations have 5 bits, so that all steps are exact.
  const DeformableShape shape{1, 5, 2, 16, 3, 4, {{4, 8}, {2, 2}, {1, 1}}};
  GradientProblem problem = random_gradients(shape, Distribution::kUniform, 3);
  for (size_t i = 0; i < problem.forward.locations.size(); ++i)
    problem.forward.locations[i] =
        float(int(lab::random_bits(4, i) % 48) - 8) / 32;  // some outside, some on borders
  const Arrays at{lab::to_float(problem.forward.value), lab::to_float(problem.forward.locations),
                  lab::to_float(problem.forward.weights)};
  const reference::DeformableGradients gradients =
      reference::deformable_gradients(at.value.data(), at.locations.data(), at.weights.data(),
                                      lab::to_float(problem.grad_out).data(), shape);
  const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-9 * (1 + std::abs(b)); };

  // The loss is linear in value and in weights: any step will do.
  for (size_t i = 0; i < at.value.size(); i += 7)
    CHECK(near(difference(problem, at, &Arrays::value, i, 0.5f, 0.5f), gradients.value[i]));
  for (size_t i = 0; i < at.weights.size(); ++i)
    CHECK(near(difference(problem, at, &Arrays::weights, i, 0.25f, 0.25f), gradients.weights[i]));
  // In a cell it is linear in x and in y, too. A location on a border of cells has a slope to
  // either side, and that to the right counts.
  int on_borders = 0, differing = 0;
  for (size_t i = 0; i < at.locations.size(); ++i) {
    const int sample = int(i / 2) % (shape.levels * shape.points);
    const LevelShape level = shape.level[sample / shape.points];
    const float pixel = at.locations[i] * float(i % 2 ? level.height : level.width) - 0.5f;
    const bool on_border = pixel == std::floor(pixel);
    const float step = 1.0f / 1024;
    CAPTURE(i);
    CHECK(near(difference(problem, at, &Arrays::locations, i, step, on_border ? 0.0f : step),
               gradients.locations[i]));
    on_borders += on_border;
    differing += on_border && !near(difference(problem, at, &Arrays::locations, i, 0.0f, step),
                                    gradients.locations[i]);
  }
  CHECK(on_borders > 20);
  CHECK(differing > 10);
}

TEST_CASE("gradient reference: 0 outside, and where a location is no number") {
  const DeformableShape shape{1, 1, 1, 16, 1, 4, {{4, 4}}};
  GradientProblem problem = random_gradients(shape, Distribution::kUniform, 3);
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  // Pixel -1.5, pixel 4, and two that are nowhere.
  const std::vector<float> locations = {-0.25f, 0.5f, 0.5f, 1.125f, nan, 0.5f, 0.5f, -infinity};
  const std::vector<float> value = lab::to_float(problem.forward.value),
                           weights = lab::to_float(problem.forward.weights);
  const reference::DeformableGradients gradients =
      reference::deformable_gradients(value.data(), locations.data(), weights.data(),
                                      lab::to_float(problem.grad_out).data(), shape);
  for (const std::vector<double>* array :
       {&gradients.value, &gradients.locations, &gradients.weights})
    for (const double element : *array) CHECK(element == 0);
}

TEST_CASE("gradient reference: arrays from PyTorch") {
  for (const GradientCase& problem : golden_cases()) {
    CAPTURE(problem.name);
    const reference::DeformableGradients ours = expected_gradients(problem.problem).gradients,
                                         &torch = problem.expected.gradients;
    const auto same = [](const std::vector<double>& got, const std::vector<double>& expected) {
      REQUIRE(got.size() == expected.size());
      double worst = 0, largest = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        worst = std::max(worst, std::abs(got[i] - expected[i]));
        largest = std::max(largest, std::abs(expected[i]));
      }
      CHECK(worst <= 1e-12 * largest);
      CHECK(largest > 0.1);
    };
    same(ours.value, torch.value);
    same(ours.locations, torch.locations);
    same(ours.weights, torch.weights);
  }
}

// ---- The steps ----------------------------------------------------------------------------------

TEST_CASE("deformable gradients: arrays from PyTorch") {
  if (skipped("deformable gradients: PyTorch")) return;
  for (const GradientCase& problem : golden_cases())
    for (const GradientStep& step : gradient_steps()) check_case(step, problem);
}

TEST_CASE("deformable gradients: right on every kind of shape, and on borders") {
  if (skipped("deformable gradients")) return;
  for (const GradientCase& problem : gradient_cases())
    for (const GradientStep& step : gradient_steps()) check_case(step, problem);
}

TEST_CASE("deformable gradients: replayed from a graph") {
  if (skipped("deformable gradients: graph")) return;
  const GradientCase problem =
      gradient_case({2, 13, 3, 16, 2, 4, {{5, 4}, {1, 3}}}, Distribution::kUniform, 8, true);
  for (const GradientStep& step : gradient_steps()) {
    CAPTURE(step.name);
    const GradientOutcome outcome = run_gradients(in_a_graph(step.function), problem);
    CHECK_MESSAGE(outcome.caught_by == "", outcome.details);
  }
}

TEST_CASE("deformable gradients: an impossible shape or address is refused by name") {
  if (skipped("deformable gradients: refusals")) return;
  const GradientCase problem =
      gradient_case({1, 3, 1, 16, 1, 4, {{2, 2}}}, Distribution::kUniform, 1, false);
  std::vector<GradientArrays> arrays = upload(problem.problem, 1);
  GradientArrays& a = arrays[0];
  for (const GradientStep& step : gradient_steps()) {
    CAPTURE(step.name);
    // moved: the array that begins in the middle of 16 bytes.
    const auto refused = [&](const DeformableShape& shape, int moved, const char* named) {
      const auto at = [&](auto* array, int number) { return array + (number == moved ? 1 : 0); };
      CAPTURE(moved);
      CHECK_THROWS_WITH_AS(step.function(at(a.value.data(), 0), at(a.locations.data(), 1),
                                         at(a.weights.data(), 2), at(a.grad_out.data(), 3),
                                         at(a.grad_value.data(), 4), at(a.grad_locations.data(), 5),
                                         at(a.grad_weights.data(), 6), shape, nullptr),
                           doctest::Contains(named), std::invalid_argument);
    };
    DeformableShape odd = problem.problem.shape();
    odd.channels = 24;
    refused(odd, -1, "channels must be 16, 32 or 64");
    for (int array = 0; array < 7; ++array)
      refused(problem.problem.shape(), array, "multiple of 16 bytes");
    if (!step.scratch_bytes) continue;
    const DeformableShape many{1, 1 << 26, 8, 16, 1, 4, {{2, 2}}};
    CHECK_THROWS_WITH_AS(step.scratch_bytes(many),
                         doctest::Contains("samples must be fewer than 2^31"),
                         std::invalid_argument);
  }
}

TEST_CASE("deformable gradients, counters: atomics are corners inside times channels") {
  if (skipped_without_counters("deformable gradients: counters")) return;
  const GradientCase problem =
      gradient_case({2, 37, 1, 32, 2, 8, {{9, 16}, {3, 4}}}, Distribution::kUniform, 5, true);
  const double row_bytes = 32 * 4, corners = corners_inside(problem.problem);
  CHECK(corners < 4 * double(problem.problem.shape().samples()));
  const auto run = [&](size_t step) {
    REQUIRE(run_gradients(gradient_steps()[step].function, problem).caught_by == "");
    CHECK(lab::vgpu::counter("/local/store/requests") == 0);
    CHECK(counted("value", "load/bytes_asked") == corners * row_bytes / 2);
  };
  run(0);  // a warp has one row
  CHECK(counted("grad_value", "atomic/bytes_asked") == corners * row_bytes);
  CHECK(counted("grad_value", "atomic/requests") == corners);
  run(1);  // 16 bytes a lane, eight lanes a row
  CHECK(counted("grad_value", "atomic/bytes_asked") == corners * row_bytes);
  CHECK(lab::vgpu::counter("/classes/atomic/thread") == corners * 8);
  CHECK(counted("grad_weights", "store/bytes_asked") ==
        4 * double(problem.problem.shape().samples()));

  // Both levels fit in shared memory, and each image has one block: it hands each pixel on once.
  const GradientOutcome outcome = run_gradients(gradient_steps()[2].function, problem);
  REQUIRE(outcome.caught_by == "");
  double touched = 0;
  for (size_t i = 0; i < outcome.value.size(); i += 4)
    touched +=
        std::any_of(&outcome.value[i], &outcome.value[i] + 4, [](float v) { return v != 0; });
  CHECK(touched < double(outcome.value.size()) / 4);
  CHECK(counted("grad_value", "atomic/bytes_asked") == touched * 16);
  CHECK(lab::vgpu::counter("/shared/atomic/bytes_asked") == corners * row_bytes);
  CHECK(shared_conflicts() == 0);
}

TEST_CASE(
    "deformable gradients, counters: sorted adds nothing atomically, each pixel is stored once") {
  if (skipped_without_counters("deformable gradients: counters")) return;
  const GradientCase problem =
      gradient_case({2, 37, 1, 32, 2, 8, {{9, 16}, {3, 4}}}, Distribution::kUniform, 5, true);
  const DeformableShape& shape = problem.problem.shape();
  const GradientStep& step = gradient_steps()[3];
  const double samples = double(shape.samples()), corners = corners_inside(problem.problem),
               inside = corners_inside(problem.problem, true);
  std::vector<GradientArrays> arrays = upload(problem.problem, 1);
  lab::DeviceArray<char> scratch(step.scratch_bytes(shape), "scratch");
  for (const GradientStage& stage : step.stages) {
    CAPTURE(stage.name);
    stage.launch(arrays[0], shape, scratch.data(), nullptr);
    lab::check(cudaDeviceSynchronize());
    CHECK(!(counted("grad_value", "atomic/requests") > 0));  // NaN: not touched at all
    if (stage.name == "cells") {
      CHECK(counted("locations", "load/bytes_asked") == 4 * samples);
      CHECK(counted("scratch", "store/bytes_asked") == 8 * samples);
    }
    if (stage.name == "corners") {
      CHECK(counted("grad_out", "load/bytes_asked") == inside * 64);
      CHECK(counted("weights", "load/bytes_asked") == inside * 8 * 2);  // in all lanes of a group
    }
    if (stage.name == "pixels")
      CHECK(counted("grad_value", "store/bytes_asked") == 4 * double(shape.value_elements()));
    if (stage.name == "samples") CHECK(counted("value", "load/bytes_asked") == corners * 64);
  }
  const GradientComparisons right =
      compare_gradients(arrays[0].grad_value.download(), arrays[0].grad_locations.download(),
                        arrays[0].grad_weights.download(), problem.expected, shape);
  CHECK_MESSAGE(right.worst().pass, right.worst().describe());

  // What --predict takes in place of sorting is what sorting leaves.
  const std::vector<char> sorted = scratch.download();
  scratch.fill_nan();
  step.fill_scratch(problem.problem, scratch.data());
  const std::vector<char> filled = scratch.download();
  size_t same = 0;
  const size_t parts = 4 * (4 * size_t(samples) + size_t(2 * (10 * 17 + 4 * 5) + 1));
  for (size_t i = 0; i < filled.size(); ++i) same += filled[i] == sorted[i];
  CHECK(same >= parts);
}

TEST_CASE("deformable gradients: sorted has the same bits in every order, the others have not") {
  if (skipped_without_counters("deformable gradients: bits")) return;
  const TemporaryFolder folder;
  const auto bits = [&](const std::string& step, const char* schedule) {
    setenv("VGPU_SCHEDULE", schedule, 1);
    const ProgramResult result = run_program(
        "chapter19", {"--step", step, "--queries", "40", "--output", "bits"}, folder.folder());
    unsetenv("VGPU_SCHEDULE");
    CAPTURE(result.errors);
    REQUIRE(result.exit_code == 0);
    return lab::read_safetensors(folder.path("bits"),
                                 {"grad_value", "grad_locations", "grad_weights"});
  };
  for (const GradientStep& step : gradient_steps()) {
    CAPTURE(step.name);
    const auto first = bits(step.name, "random:1"), second = bits(step.name, "random:2");
    CHECK(first[1].values == second[1].values);
    CHECK(first[2].values == second[2].values);
    CHECK((first[0].values == second[0].values) == (step.name == "sorted"));
  }
}

TEST_CASE("checked deformable gradients: without a finding") {
  if (rerun_with_checks("checked deformable gradients*")) return;
  const int findings = lab::vgpu::findings();
  for (const DeformableShape& shape :
       {DeformableShape{2, 13, 3, 16, 2, 4, {{5, 4}, {1, 3}}},
        DeformableShape{1, 37, 1, 32, 3, 8, {{9, 16}, {5, 8}, {2, 2}}}}) {
    const GradientCase problem = gradient_case(shape, Distribution::kUniform, 7, true);
    for (const GradientStep& step : gradient_steps()) check_case(step, problem);
  }
  CHECK(lab::vgpu::findings() == findings);
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {

namespace steps = ::deformable_gradients;

// Two images of 37 queries: the last block has rows that do not exist.
const DeformableShape kPlanted{2, 37, 1, 32, 2, 8, {{9, 16}, {3, 4}}};

// The kernels of that file with each bug in turn, launched as `launches(kernel by name, ...)` says.
using FindKernel =
    std::function<const void*(const std::string& name, const std::vector<int>& arguments)>;
void check_planted(const std::string& file, const std::string& instances,
                   const std::vector<Mutant>& bugs,
                   const std::function<void(const FindKernel&, const steps::Arrays&,
                                            const DeformableShape&)>& launches) {
  const Mutants mutants("chapters/19_deformable_gradients/" + file, "deformable_gradients", bugs,
                        instances, Mutants::kKernelsOnly);
  const GradientCase problem = gradient_case(kPlanted, Distribution::kUniform, 5, true);
  check_each_bug(bugs, 1, [&](size_t number, size_t) {
    const AnyGradients step = [&](const half* value, const half* locations, const half* weights,
                                  const half* grad_out, float* grad_value, float* grad_locations,
                                  float* grad_weights, const DeformableShape& shape, cudaStream_t) {
      lab::check(cudaMemset(grad_value, 0, size_t(shape.value_elements()) * sizeof(float)));
      launches(
          [&](const std::string& name, const std::vector<int>& arguments) {
            return mutants.kernel(number, name, arguments);
          },
          {value, locations, weights, grad_out, grad_value, grad_locations, grad_weights}, shape);
    };
    return named(problem.name, run_gradients(step, problem));
  });
}

}  // namespace

TEST_CASE("planted bugs in gradients by atomics: each is caught, and by what" *
          doctest::test_suite("toolkit")) {
  if (rerun_with_checks("planted bugs in gradients by atomics*")) return;
  check_planted(
      "1_atomics.cuh",
      "template __global__ void atomics_kernel<32>(const half*, const half*, const half*, "
      "const half*, float*, float*, float*, const __grid_constant__ Problem);\n",
      planted_bugs("19_deformable_gradients", "atomics"),
      [](const FindKernel& kernel, const steps::Arrays& a, const DeformableShape& shape) {
        launch(kernel("atomics_kernel", {32}), unsigned(shape.rows() + 7) / 8, 256, 0, nullptr,
               a.value, a.locations, a.weights, a.grad_out, a.grad_value, a.grad_locations,
               a.grad_weights, steps::problem_of(shape));
      });
}

TEST_CASE("planted bugs in packed gradients: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in packed gradients*")) return;
  check_planted("2_packed.cuh",
                "template __global__ void packed_kernel<32>(const Arrays, const __grid_constant__ "
                "Problem);\n",
                planted_bugs("19_deformable_gradients", "packed"),
                [](const FindKernel& kernel, const steps::Arrays& a, const DeformableShape& shape) {
                  launch(kernel("packed_kernel", {32}), unsigned(shape.rows() + 31) / 32, 256, 0,
                         nullptr, a, steps::problem_of(shape));
                });
}

TEST_CASE("planted bugs in privatized gradients: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in privatized gradients*")) return;
  check_planted(
      "3_privatized.cuh",
      "template __global__ void privatized_kernel<32>(const Arrays, const __grid_constant__ "
      "Problem, const __grid_constant__ Staging, int);\n",
      planted_bugs("19_deformable_gradients", "privatized"),
      [](const FindKernel& kernel, const steps::Arrays& a, const DeformableShape& shape) {
        DeformableShape twice = shape;  // plan_staging() counts 2 bytes a channel
        twice.channels *= 2;
        const auto staging = persistent_deformable_attention::plan_staging(twice, 48 * 1024);
        launch(kernel("privatized_kernel", {32}), 2u, 512, size_t(staging.bytes), nullptr, a,
               steps::problem_of(shape), staging, 1);
      });
}

TEST_CASE("planted bugs in sorted gradients: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in sorted gradients*")) return;
  check_planted(
      "parts/sort_kernels.cuh",
      "template __global__ void corners_kernel<32>(const Arrays, Sorting, const __grid_constant__ "
      "Problem, const __grid_constant__ Cells);\n"
      "template __global__ void pixels_kernel<32>(const Arrays, Sorting, const __grid_constant__ "
      "Problem, const __grid_constant__ Cells);\n"
      "template __global__ void samples_kernel<32>(const Arrays, const __grid_constant__ "
      "Problem);\n",
      planted_bugs("19_deformable_gradients", "sorted"),
      [](const FindKernel& kernel, const steps::Arrays& a, const DeformableShape& shape) {
        const steps::Problem problem = steps::problem_of(shape);
        const steps::Cells cells = steps::cells_of(shape);
        const int samples = int(shape.samples());
        lab::DeviceArray<unsigned> cell(size_t(samples), "cell"), sorted(size_t(samples), "sorted");
        lab::DeviceArray<int> sample(size_t(samples), "sample"), order(size_t(samples), "order"),
            first(size_t(cells.all) + 1, "first");
        lab::DeviceArray<float> corners(size_t(cells.all) * 4 * shape.channels, "corners");
        corners.fill_nan();
        const steps::Sorting sorting{cell.data(),  sample.data(),  sorted.data(), order.data(),
                                     first.data(), corners.data(), nullptr,       0};
        launch(kernel("cells_kernel", {}), unsigned(samples + 255) / 256, 256, 0, nullptr,
               a.locations, sorting, problem, cells, samples);
        // Sorted by the host.
        std::vector<unsigned> keys = cell.download();
        std::vector<int> numbers = sample.download();
        std::stable_sort(numbers.begin(), numbers.end(),
                         [&](int i, int j) { return keys[size_t(i)] < keys[size_t(j)]; });
        std::stable_sort(keys.begin(), keys.end());
        sorted.upload(keys);
        order.upload(numbers);
        launch(kernel("starts_kernel", {}), unsigned(cells.all + 256) / 256, 256, 0, nullptr,
               sorting, cells.all, samples);
        const unsigned pixels = unsigned(shape.batch * shape.pixels() * shape.heads);
        launch(kernel("corners_kernel", {32}), unsigned(cells.all + 7) / 8, 256, 0, nullptr, a,
               sorting, problem, cells);
        launch(kernel("pixels_kernel", {32}), (pixels + 31) / 32, 256, 0, nullptr, a, sorting,
               problem, cells);
        launch(kernel("samples_kernel", {32}), unsigned(shape.rows() + 31) / 32, 256, 0, nullptr, a,
               problem);
        lab::check(cudaDeviceSynchronize());
      });
}

TEST_CASE("deformable gradients: the program's default run, its picture, its flags") {
  if (skipped("deformable gradients: program")) return;
  const TemporaryFolder folder;
  const auto run = [&](const std::vector<std::string>& arguments) {
    return run_program("chapter19", arguments, folder.folder());
  };
  std::vector<std::string> flags = on_a_gpu({"--batch", "1", "--heads", "1"});
  flags.insert(flags.end(), {"--queries", "50", "--size", "16", "--json", "a.json", "--out",
                             "a.png", "--output", "a.out"});
  const ProgramResult right = run(flags);
  CAPTURE(right.errors);
  REQUIRE(right.exit_code == 0);
  const std::string json = file_content(folder.path("a.json"));
  CHECK(json_at(json, "/problem/queries") == "50");
  for (const GradientStep& step : gradient_steps())
    CHECK(json.find("\"" + step.name + "\"") != std::string::npos);
  CHECK(file_content(folder.path("a.png")).size() > 1000);
  // --output has what the reference has.
  const GradientProblem problem =
      random_gradients(lab::course_deformable_shape(1, 50), Distribution::kLocal, 1);
  const std::vector<lab::Tensor> output =
      lab::read_safetensors(folder.path("a.out"), {"grad_value", "grad_locations", "grad_weights"});
  CHECK(output[1].shape == std::vector<int64_t>{1, 50, 1, 4, 8, 2});
  CHECK(compare_gradients(output[0].values, output[1].values, output[2].values,
                          expected_gradients(problem), problem.shape())
            .worst()
            .pass);

  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& named) {
    const ProgramResult result = run(arguments);
    CAPTURE(named);
    CAPTURE(result.errors);
    CHECK(result.exit_code == 2);
    CHECK(result.errors.find(named) != std::string::npos);
  };
  refused({"--step", "magic"}, "--step 'magic': must be atomics, packed, privatized or sorted");
  refused({"--channels", "48"}, "channels must be 16, 32 or 64");
  refused({"--size", "20"}, "--size '20': must be a multiple of 8");
  refused({"--preset", "huge"}, "--preset 'huge': must be tiny, small, medium or full");
  refused({"--predict", "--out", "x.png"}, "--predict");
  if (!lab::vgpu::can_predict()) return;
  const ProgramResult predicted = run({"--predict", "--queries", "500"});
  CAPTURE(predicted.errors);
  CHECK(predicted.exit_code == 0);
  CHECK(predicted.output.find("not compared") != std::string::npos);
}

TEST_CASE("deformable gradients on a T4") { check_twin_on_t4("deformable gradients: right*"); }
TEST_CASE("checked deformable gradients in other orders") {
  check_in_other_orders("checked deformable gradients: without*");
}
