// Chapter 10's references and problems: against PyTorch and central differences; no device needed.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/random.h"
#include "../host/reference.h"
#include "test_support.h"

using namespace lab::testing;
using lab::Storage;

namespace {

double farthest(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  double most = 0;
  for (size_t i = 0; i < got.size(); ++i)
    most = std::max(most, std::abs(got[i] - expected[i]) / (1 + std::abs(expected[i])));
  return most;
}

}  // namespace

TEST_CASE("reference: PyTorch's arrays to 9 digits") {
  for (const LayerNormCase& problem : layer_norm_golden_cases()) {
    CAPTURE(problem.name);
    const lab::LayerNormExpected own = lab::expected_layer_norm(problem.problem);
    // Where the mean is 4096 times the deviation, double has lost four digits.
    CHECK(farthest(own.y, problem.expected.y) < 1e-9);
    CHECK(farthest(own.y_of_sum, problem.expected.y_of_sum) < 1e-9);
    CHECK(farthest(own.dx, problem.expected.dx) < 1e-9);
    CHECK(farthest(own.dscale, problem.expected.dscale) < 1e-9);
    CHECK(farthest(own.dbias, problem.expected.dbias) < 1e-9);
  }
}

TEST_CASE("reference: gradients are central differences") {
  const LayerNormShape shape{2, 64, 1e-3f};
  const lab::LayerNormProblem p = lab::random_layer_norm(shape, Storage::kFp32, 7, 0.5);
  const lab::LayerNormExpected expected = lab::expected_layer_norm(p);
  const auto loss = [&](const std::vector<double>& x, const std::vector<double>& scale,
                        const std::vector<double>& bias) {
    std::vector<double> y(x.size());
    reference::layer_norm(x.data(), scale.data(), bias.data(), shape, y.data());
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * p.dy[i];
    return sum;
  };
  constexpr double kStep = 1e-5;
  const auto check_gradient = [&](int which, const std::vector<double>& gradient) {
    std::vector<double> arrays[3] = {p.x, p.scale, p.bias};
    for (size_t i = 0; i < gradient.size(); ++i) {
      const double before = arrays[which][i];
      arrays[which][i] = before + kStep;
      const double above = loss(arrays[0], arrays[1], arrays[2]);
      arrays[which][i] = before - kStep;
      const double below = loss(arrays[0], arrays[1], arrays[2]);
      arrays[which][i] = before;
      CAPTURE(which);
      CAPTURE(i);
      CHECK((above - below) / (2 * kStep) == doctest::Approx(gradient[i]).epsilon(1e-5).scale(1));
    }
  };
  check_gradient(0, expected.dx);
  check_gradient(1, expected.dscale);
  check_gradient(2, expected.dbias);
  // What makes all of a row larger or moves it changes nothing but through epsilon.
  for (int row = 0; row < shape.rows; ++row) {
    double sum = 0;
    for (int i = 0; i < shape.columns; ++i) sum += expected.dx[row * shape.columns + i];
    CHECK(std::abs(sum) < 1e-12 * shape.columns);
  }
}

TEST_CASE("tolerance: a mean that is forgotten, a wrong row and a sample's variance are outside") {
  for (const Storage storage : {Storage::kFp16, Storage::kFp32}) {
    const LayerNormCase problem = layer_norm_case({20, 768, 1e-6f}, storage);
    const std::vector<double>& y = problem.expected.y;
    const auto passes = [&](const std::vector<double>& got) {
      return lab::compare(got, y, problem.expected.for_y, {20, 768}).pass;
    };
    CHECK(passes(y));
    std::vector<double> wrong = y;
    std::rotate(wrong.begin(), wrong.begin() + 768, wrong.end());
    CHECK(!passes(wrong));
    for (size_t i = 0; i < y.size(); ++i) {
      const double bias = problem.problem.bias[i % 768];
      wrong[i] = (y[i] - bias) * std::sqrt(767.0 / 768) + bias;
    }
    CHECK(!passes(wrong));  // 0.065 % of it, and one fp16 rounding is 0.05 %
  }
}

TEST_CASE("problems: photos' rows, seeds, and what the storage holds") {
  const lab::Image photo = lab::load_image(lab::repository_path("data/images/chelsea.png"));
  const lab::LayerNormProblem p = lab::photo_layer_norm(photo, 32, 2, Storage::kFp16, 1);
  CHECK(p.shape.rows == 2 * 5);
  CHECK(p.shape.columns == 768);
  for (int i = 0; i < 768; ++i) {  // the class token is the mean of the patches
    double mean = 0;
    for (int token = 1; token < 5; ++token) mean += p.x[token * 768 + i] / 4;
    CHECK(p.x[i] == doctest::Approx(mean).epsilon(0.01).scale(0.1));
  }
  CHECK(!std::equal(p.x.begin(), p.x.begin() + 5 * 768, p.x.begin() + 5 * 768));
  for (const double x : p.x) CHECK(x == lab::stored(x, Storage::kFp16));
  CHECK_THROWS_AS(lab::photo_layer_norm(photo, 40, 1, Storage::kFp16, 1), lab::UsageError);

  const LayerNormShape shape{3, 100, 1e-6f};
  CHECK(lab::random_layer_norm(shape, Storage::kFp32, 1).x ==
        lab::random_layer_norm(shape, Storage::kFp32, 1).x);
  CHECK(lab::random_layer_norm(shape, Storage::kFp32, 1).x !=
        lab::random_layer_norm(shape, Storage::kFp32, 2).x);
}
