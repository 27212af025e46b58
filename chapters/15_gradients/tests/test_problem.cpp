// The chapter's reference: against central differences, and what must hold of dS; and how sharp the
// tolerances are. No device needed.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "../host/reference.h"
#include "test_support.h"

using namespace lab::testing;

TEST_CASE("reference: PyTorch's arrays to 9 digits") {
  const std::vector<GradientCase> cases = gradient_golden_cases();
  REQUIRE(cases.size() == 4);
  for (const GradientCase& problem : cases) {
    CAPTURE(problem.name);
    const lab::GradientExpected own = lab::expected_gradients(problem.problem);
    const auto farthest = [](const std::vector<double>& got, const std::vector<double>& expected) {
      REQUIRE(got.size() == expected.size());
      double most = 0;
      for (size_t i = 0; i < got.size(); ++i)
        most = std::max(most, std::abs(got[i] - expected[i]) / (1 + std::abs(expected[i])));
      return most;
    };
    CHECK(farthest(own.O, problem.expected.O) < 1e-9);
    CHECK(farthest(own.log_sum_exp, problem.expected.log_sum_exp) < 1e-9);
    CHECK(farthest(own.dQ, problem.expected.dQ) < 1e-9);
    CHECK(farthest(own.dK, problem.expected.dK) < 1e-9);
    CHECK(farthest(own.dV, problem.expected.dV) < 1e-9);
  }
}

TEST_CASE("reference: gradients are central differences") {
  const AttentionShape shape{2, 1, 5, 32, 0.3f};
  const size_t elements = size_t(shape.elements());
  const lab::GradientProblem problem = lab::random_gradients(shape, 3);
  std::vector<float> arrays[3] = {lab::to_float(problem.attention.q),
                                  lab::to_float(problem.attention.k),
                                  lab::to_float(problem.attention.v)};
  for (float& q : arrays[0]) q *= 0.25f;  // not all of the weight on one key
  const std::vector<float> d_o = lab::to_float(problem.d_o);
  std::vector<double> gradient[3], O(elements);
  for (auto& array : gradient) array.resize(elements);
  const auto run = [&](double* dQ, double* dK, double* dV) {
    reference::attention_gradients(
        arrays[0].data(), arrays[1].data(), arrays[2].data(), d_o.data(), shape,
        {dQ, dK, dV, O.data(), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr});
  };
  run(gradient[0].data(), gradient[1].data(), gradient[2].data());
  std::vector<double> unused(elements);
  const auto loss = [&] {
    run(unused.data(), unused.data(), unused.data());
    double sum = 0;
    for (size_t i = 0; i < elements; ++i) sum += O[i] * double(d_o[i]);
    return sum;
  };
  // A step that float holds exactly beside numbers of this size, and its own distance.
  constexpr float kStep = 0x1p-11f;
  for (int which = 0; which < 3; ++which)
    for (size_t i = 0; i < elements; ++i) {
      float& number = arrays[which][i];
      const float before = number, up = before + kStep, down = before - kStep;
      number = up;
      const double above = loss();
      number = down;
      const double below = loss();
      number = before;
      CAPTURE(which);
      CAPTURE(i);
      CHECK((above - below) / (double(up) - double(down)) ==
            doctest::Approx(gradient[which][i]).epsilon(1e-5).scale(1));
    }
}

TEST_CASE("reference: rows of P add up to 1, rows of dS to 0, and D is the sum of dO O") {
  const lab::GradientProblem problem = lab::random_gradients({1, 2, 37, 64, 0.125f}, 5);
  const AttentionShape& shape = problem.attention.shape;
  std::vector<double> arrays[4], P(size_t(shape.scores())), dS(size_t(shape.scores()));
  for (auto& array : arrays) array.resize(size_t(shape.elements()));
  const std::vector<float> q = lab::to_float(problem.attention.q),
                           k = lab::to_float(problem.attention.k),
                           v = lab::to_float(problem.attention.v), d_o = lab::to_float(problem.d_o);
  reference::attention_gradients(
      q.data(), k.data(), v.data(), d_o.data(), shape,
      {arrays[0].data(), arrays[1].data(), arrays[2].data(), arrays[3].data(), nullptr, P.data(),
       dS.data(), nullptr, nullptr, nullptr});
  for (int64_t row = 0; row < shape.rows(); ++row) {
    double weights = 0, sum = 0, size = 0, dot = 0, mean = 0;
    for (int key = 0; key < shape.tokens; ++key) {
      const size_t at = size_t(row * shape.tokens + key);
      weights += P[at], sum += dS[at], size += std::abs(dS[at]);
      double dp = 0;
      for (int d = 0; d < shape.head_dim; ++d)
        dp += double(d_o[size_t(row * shape.head_dim + d)]) *
              double(v[size_t((row / shape.tokens * shape.tokens + key) * shape.head_dim + d)]);
      mean += P[at] * dp;
    }
    for (int d = 0; d < shape.head_dim; ++d) {
      const size_t at = size_t(row * shape.head_dim + d);
      dot += arrays[3][at] * double(d_o[at]);
    }
    CHECK(weights == doctest::Approx(1).epsilon(1e-12));
    CHECK(std::abs(sum) <= 1e-12 * (1 + size));
    CHECK(dot == doctest::Approx(mean).epsilon(1e-10).scale(1));
  }
}

TEST_CASE("tolerance: a scale or D that is forgotten, a row shifted, a last key are outside") {
  for (const int head_dim : {32, 64, 128}) {
    const GradientCase problem = random_gradient_case(1, 2, 97, head_dim);
    const AttentionShape& shape = problem.problem.attention.shape;
    const lab::GradientExpected& e = problem.expected;
    const std::vector<int64_t> dims = {1, 2, 97, head_dim};
    const auto passes = [&](const std::vector<double>& got, const std::vector<double>& expected,
                            const lab::Tolerance& tolerance) {
      return lab::compare(got, expected, tolerance, dims).pass;
    };
    for (const auto& [right, tolerance] :
         {std::pair{e.dQ, e.for_dQ}, {e.dK, e.for_dK}, {e.dV, e.for_dV}}) {
      CHECK(passes(right, right, tolerance));
      std::vector<double> wrong = right;
      std::rotate(wrong.begin(), wrong.begin() + head_dim, wrong.end());
      CHECK(!passes(wrong, right, tolerance));
      wrong = right;
      for (double& x : wrong) x *= 1.02;
      CHECK(!passes(wrong, right, tolerance));
    }
    // Without D: dS = P dP. Its rows do not add up to 0, and dQ is off by D times the row's mean of K.
    std::vector<double> without = e.dQ;
    const std::vector<float> q = lab::to_float(problem.problem.attention.q),
                             k = lab::to_float(problem.problem.attention.k);
    std::vector<double> weighted(e.dQ.size()), unused(e.dQ.size()), unused2(e.dQ.size());
    // P K is what attention gives with K as its values.
    const std::vector<float> d_o = lab::to_float(problem.problem.d_o);
    reference::attention_gradients(q.data(), k.data(), k.data(), d_o.data(), shape,
                                   {unused.data(), unused2.data(), unused2.data(), weighted.data(),
                                    nullptr, nullptr, nullptr, nullptr, nullptr, nullptr});
    for (int64_t row = 0; row < shape.rows(); ++row) {
      double dot = 0;
      for (int d = 0; d < head_dim; ++d)
        dot += e.O[size_t(row * head_dim + d)] * double(d_o[size_t(row * head_dim + d)]);
      for (int d = 0; d < head_dim; ++d)
        without[size_t(row * head_dim + d)] +=
            double(shape.scale) * dot * weighted[size_t(row * head_dim + d)];
    }
    CHECK(!passes(without, e.dQ, e.for_dQ));
  }
}

TEST_CASE("problems: what gradients of a distance and of one token are") {
  lab::GradientProblem problem = lab::random_gradients({2, 3, 7, 32, 0.2f}, 1);
  std::vector<half> output(problem.attention.v.size(), __float2half(0.5f));
  problem.d_o = lab::distance_gradient(problem.attention, output);
  for (size_t i = 0; i < output.size(); ++i)
    CHECK(__half2float(problem.d_o[i]) ==
          doctest::Approx(0.5f - __half2float(problem.attention.v[i])).epsilon(1e-3).scale(1));
  const std::vector<half> one = lab::gradient_of_token(problem, 4);
  REQUIRE(one.size() == 3 * 7 * 32);
  for (size_t i = 0; i < one.size(); ++i)
    CHECK(__half2float(one[i]) == (i / 32 % 7 == 4 ? __half2float(problem.d_o[i]) : 0.0f));
  const std::vector<double> sizes = lab::size_of_keys(one, {1, 3, 7, 32, 0.2f});
  REQUIRE(sizes.size() == 7);
  CHECK(sizes[4] > 0);
  CHECK(sizes[3] == 0);
}
