// Tests of the convolutional projection: the reference against central differences, each step against the
// reference, counters by formula, bits, checks.
#include <doctest/doctest.h>

#include <cmath>

#include "../../common/lab/device.h"
#include "../../common/lab/random.h"
#include "../../common/testing/checks.h"
#include "projection/arrays.h"

using namespace lab::testing;
using namespace lab::projection;
using cvt::ProjectionShape;

namespace {

struct Outcome {
  NamedComparison forward, backward;
  ProjectionResults results;
};

// A forward step, then a backward step on what it left.
template <class T>
Outcome run(size_t forward, const ProjectionProblem& problem, const ExpectedProjection& expected,
            bool running = true) {
  Arrays<T> arrays(problem, running);
  conv_projection::forward_steps<T>()[forward].run(arrays.forward(), problem.shape, nullptr);
  conv_projection::backward_steps<T>()[0].run(arrays.backward(), problem.shape, nullptr);
  lab::check(cudaDeviceSynchronize());
  Outcome outcome;
  outcome.results = arrays.download();
  outcome.forward = compare_forward(outcome.results, expected, problem.shape);
  outcome.backward = compare_backward(outcome.results, expected, problem.shape);
  return outcome;
}

std::string describe(const ProjectionShape& s) {
  return std::to_string(s.batch) + " x " + std::to_string(s.height) + " x " +
         std::to_string(s.width) + " x " + std::to_string(s.channels) + ", class tokens " +
         std::to_string(s.class_tokens);
}

constexpr size_t kNaive = 0, kFused = 1;
template <class T>
void check_problem(const ProjectionProblem& problem) {
  CAPTURE(describe(problem.shape));
  const ProjectionShape& s = problem.shape;
  const bool running = s.batch * s.out_height() * s.out_width() > 1;
  for (const size_t step : {kNaive, kFused}) {
    const ExpectedProjection expected = expected_projection(problem, step == kNaive);
    CAPTURE(conv_projection::forward_steps<T>()[step].name);
    const Outcome outcome = run<T>(step, problem, expected, running);
    CHECK_MESSAGE(outcome.forward.second.pass,
                  outcome.forward.first << ": " << outcome.forward.second.describe());
    CHECK_MESSAGE(outcome.backward.second.pass,
                  outcome.backward.first << ": " << outcome.backward.second.describe());
  }
}

void check_shape(const ProjectionShape& shape, uint64_t seed, double mean = 0) {
  check_problem<float>(random_projection(shape, Storage::kFp32, seed, mean));
  if (mean == 0) check_problem<half>(random_projection(shape, Storage::kFp16, seed));
}

// Ragged in all that is tiled: bands, strips, columns of a thread, groups of channels.
const std::vector<ProjectionShape> kShapes = {
    {2, 1, 1, 1, 0},    {3, 1, 1, 3, 1},   {3, 1, 7, 8, 0},    {1, 5, 3, 33, 1},
    {3, 5, 3, 64, 0},   {1, 13, 13, 3, 1}, {3, 13, 13, 33, 0}, {1, 14, 14, 200, 1},
    {1, 14, 14, 64, 0}, {1, 7, 61, 8, 1},  {1, 61, 30, 8, 0},  {1, 2, 17, 1, 1},
    {3, 28, 29, 33, 1},
};

}  // namespace

TEST_CASE("projection reference: gradients are central differences") {
  for (const ProjectionShape shape :
       {ProjectionShape{2, 3, 4, 2, 1}, ProjectionShape{3, 1, 1, 1, 0},
        ProjectionShape{1, 5, 2, 1, 0}}) {
    ProjectionProblem problem = random_projection(shape, Storage::kFp32, 5);
    const reference::ProjectionSizes sizes = problem.sizes();
    const auto loss = [&] {
      const reference::ProjectionOutputs out = reference::project(problem.in, sizes);
      double sum = 0;
      const size_t C = size_t(shape.channels);
      for (int i = 0; i < 3; ++i)
        for (size_t at = 0; at < out.maps[i].size(); ++at) {
          const bool token = at / C % size_t(sizes.tokens(i)) < size_t(shape.class_tokens);
          sum += problem.dy[i][at] *
                 (token ? out.maps[i][at]
                        : out.maps[i][at] * out.factor[i][at % C] + out.offset[i][at % C]);
        }
      return sum;
    };
    const reference::ProjectionDerivatives back = reference::project_back(
        problem.in, reference::project(problem.in, sizes), problem.dy, sizes);
    const auto check = [&](std::vector<double>& values, const std::vector<double>& gradient) {
      for (size_t i = 0; i < values.size(); ++i) {
        const double middle = values[i], step = 1e-5;
        values[i] = middle + step;
        const double above = loss();
        values[i] = middle - step;
        const double slope = (above - loss()) / (2 * step);
        values[i] = middle;
        CHECK(std::abs(slope - gradient[i]) <= 1e-6 * (1 + std::abs(gradient[i])));
      }
    };
    check(problem.in.x, back.dx);
    for (int i = 0; i < 3; ++i) {
      check(problem.in.w[i], back.dw[i]);
      check(problem.in.scale[i], back.dscale[i]);
      check(problem.in.shift[i], back.dshift[i]);
    }
  }
}

TEST_CASE("projection: right on ragged shapes") {
  if (skipped("projection: shapes")) return;
  for (size_t i = 0; i < kShapes.size(); ++i) check_shape(kShapes[i], 10 + i);
}

TEST_CASE("projection: right where a channel's mean is a thousand deviations") {
  if (skipped("projection: large means")) return;
  check_shape({2, 9, 11, 8, 1}, 3, 1000);
  check_shape({1, 6, 5, 3, 0}, 4, -1000);
}

TEST_CASE(
    "projection: a single position has no variance and no gradients but those of its class token") {
  if (skipped("projection: one position")) return;
  const ProjectionProblem problem = random_projection({1, 1, 1, 3, 1}, Storage::kFp32, 6);
  const ExpectedProjection expected = expected_projection(problem);
  const Outcome outcome = run<float>(kFused, problem, expected, false);
  CHECK_MESSAGE(outcome.forward.second.pass, outcome.forward.first);
  const double near_zero =
      16 * 0x1p-24 / std::sqrt(1e-5);  // roundings of dy times BatchNorm's factor
  for (int i = 0; i < 3; ++i) {
    CHECK(outcome.results.mean[i][0] == outcome.results.maps[i][3]);
    for (const double v : outcome.results.dw[i]) CHECK(std::abs(v) <= near_zero);
    CHECK(outcome.results.dscale[i] == std::vector<double>(3));
  }
  for (size_t c = 0; c < 3; ++c) {
    CHECK(outcome.results.dx[c] ==
          doctest::Approx(problem.dy[0][c] + problem.dy[1][c] + problem.dy[2][c]));
    CHECK(std::abs(outcome.results.dx[3 + c]) <= near_zero);
  }
}

TEST_CASE("checked projection: without a finding") {
  if (rerun_with_checks("checked projection*")) return;
  const int findings = lab::vgpu::findings();
  for (const ProjectionShape& shape :
       {ProjectionShape{3, 5, 3, 33, 1}, ProjectionShape{1, 30, 29, 8, 0},
        ProjectionShape{1, 14, 14, 72, 1}})
    check_shape(shape, 7);
  CHECK(lab::vgpu::findings() == findings);
}
