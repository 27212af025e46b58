// The checker is code under test: what must be rejected is, by which gate, and what is right
// passes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/inputs.h"
#include "attention/reference.h"
#include "lab.cuh"
#include "lab/images.h"

using lab::AttentionProblem;
using lab::Comparison;
using lab::Tolerance;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> reference_output(const AttentionProblem& problem) {
  std::vector<double> output(problem.shape.elements());
  reference::attention(lab::to_float(problem.q).data(), lab::to_float(problem.k).data(),
                       lab::to_float(problem.v).data(), problem.shape, output.data());
  return output;
}

std::vector<half> rounded(const std::vector<double>& values) {
  std::vector<half> halves;
  for (const double value : values) halves.push_back(__float2half(float(value)));
  return halves;
}

double largest(const std::vector<half>& values) {
  double most = 0;
  for (const half value : values) most = std::max(most, std::abs(double(__half2float(value))));
  return most;
}

Comparison compare_output(const AttentionProblem& problem, const std::vector<half>& got,
                          const std::vector<double>& right) {
  const AttentionShape& shape = problem.shape;
  return lab::compare(got, right, Tolerance::fp16_mean(largest(problem.v)),
                      {shape.batch, shape.heads, shape.tokens, shape.head_dim});
}

// The output of a kernel that drops the last `dropped` keys.
std::vector<double> without_last_keys(const AttentionProblem& problem, int dropped) {
  const int64_t N = problem.shape.tokens, D = problem.shape.head_dim;
  const std::vector<float> v = lab::to_float(problem.v), q = lab::to_float(problem.q),
                           k = lab::to_float(problem.k);
  std::vector<double> output(problem.shape.elements(), 0.0), weights(N * N);
  for (int64_t matrix = 0; matrix < problem.shape.matrices(); ++matrix) {
    const int64_t base = matrix * N * D;
    reference::attention_head(&q[base], &k[base], &v[base], int(N), int(D), problem.shape.scale,
                              nullptr, weights.data(), nullptr);
    for (int64_t row = 0; row < N; ++row) {
      double sum = 0;
      for (int64_t key = 0; key < N - dropped; ++key) sum += weights[row * N + key];
      for (int64_t key = 0; key < N - dropped; ++key)
        for (int64_t d = 0; d < D; ++d)
          output[base + row * D + d] += weights[row * N + key] / sum * v[base + key * D + d];
    }
  }
  return output;
}

// A photo that needs no file: colour bands, a disc and grain.
lab::Image test_photo() {
  lab::Image image{96, 80, {}};
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x)
      for (int c = 0; c < 3; ++c) {
        const bool disc = (x - 40) * (x - 40) + (y - 40) * (y - 40) < 500;
        const double wave = std::sin(0.21 * x * (c + 1) + 0.13 * y) + (disc ? 1.0 : 0.0);
        image.rgb.push_back(static_cast<unsigned char>(90 + 40 * wave + (x * 7 + y * 13 + c) % 11));
      }
  return image;
}

AttentionProblem problem_of(const std::string& kind) {
  if (kind == "photo") return lab::photo_attention(test_photo(), 64, 2, 1);
  if (kind == "1025 tokens") return lab::random_attention({1, 2, 1025, 32, 0.1767767f}, 3);
  return lab::random_attention({2, 3, 65, 64, 0.125f}, 2);
}

// Outputs of kernels with a mistake, by the mistake's name.
std::vector<std::pair<std::string, std::vector<half>>> wrong_outputs(
    const AttentionProblem& problem, const std::vector<double>& right) {
  const AttentionShape& shape = problem.shape;
  const int64_t N = shape.tokens, D = shape.head_dim, matrix = N * D, count = shape.elements();
  std::vector<std::pair<std::string, std::vector<half>>> wrong;

  std::vector<half> one_bad = rounded(right);
  one_bad[matrix + 5 * D + 7] = __float2half(NAN);
  wrong.emplace_back("a NaN in one element", one_bad);
  one_bad[matrix + 5 * D + 7] = __float2half(INFINITY);
  wrong.emplace_back("an infinity in one element", one_bad);

  std::vector<half> last_row = rounded(right);
  std::fill_n(last_row.end() - D, D, __ushort_as_half(0xffff));
  wrong.emplace_back("the last row left as it was filled", last_row);

  wrong.emplace_back("zeros", std::vector<half>(count, __float2half(0)));
  double mean = 0;
  for (const double value : right) mean += value / double(count);
  wrong.emplace_back("a constant", std::vector<half>(count, __float2half(float(mean))));

  std::vector<double> means(count, 0.0), transposed(count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t base = i / matrix * matrix, row = i % matrix / D, d = i % D;
    for (int64_t token = 0; token < N; ++token)
      means[i] += __half2float(problem.v[base + token * D + d]) / double(N);
    transposed[base + d * N + row] = right[i];
  }
  wrong.emplace_back("mean(V): Q and K ignored", rounded(means));
  wrong.emplace_back("transposed: [head_dim, tokens]", rounded(transposed));

  wrong.emplace_back("the last key dropped", rounded(without_last_keys(problem, 1)));
  wrong.emplace_back("the last five keys dropped", rounded(without_last_keys(problem, 5)));

  std::vector<double> swapped = right, shifted = right;
  std::swap_ranges(swapped.begin(), swapped.begin() + matrix, swapped.begin() + matrix);
  wrong.emplace_back("two heads swapped", rounded(swapped));
  std::rotate(shifted.begin(), shifted.begin() + D, shifted.end());
  wrong.emplace_back("rows shifted by one", rounded(shifted));

  wrong.emplace_back("a stale buffer: another problem's output",
                     rounded(reference_output(lab::random_attention(shape, 99))));

  // Within the elementwise bound for most values; the relative L2 error takes them all.
  std::vector<double> scaled = right;
  for (double& value : scaled) value *= 1.002;
  wrong.emplace_back("everything 0.2% too large", rounded(scaled));
  return wrong;
}

}  // namespace

TEST_CASE("compare: what must be rejected") {
  for (const std::string kind : {"photo", "random", "1025 tokens"}) {
    CAPTURE(kind);
    const AttentionProblem problem = problem_of(kind);
    const std::vector<double> right = reference_output(problem);
    REQUIRE(compare_output(problem, rounded(right), right).pass);
    for (const auto& [mistake, output] : wrong_outputs(problem, right)) {
      const Comparison result = compare_output(problem, output, right);
      CAPTURE(mistake);
      CAPTURE(result.describe());
      CHECK_FALSE(result.pass);
      if (mistake == "a NaN in one element") {
        CHECK(result.bad == 1);
        CHECK(result.not_finite == 1);
        CHECK(result.first_bad == std::vector<int64_t>{0, 1, 5, 7});
      }
      if (mistake == "the last row left as it was filled")
        CHECK(result.not_finite == problem.shape.head_dim);
      if (mistake == "mean(V): Q and K ignored") CHECK(result.bad > result.count / 2);
      if (mistake == "everything 0.2% too large") CHECK(result.bad < result.count / 2);
    }
  }
}

TEST_CASE("compare: what must pass") {
  for (const std::string kind : {"photo", "random", "1025 tokens"}) {
    CAPTURE(kind);
    const AttentionProblem problem = problem_of(kind);
    const int64_t N = problem.shape.tokens, D = problem.shape.head_dim;

    // As the tensor-core steps do: the weights go through fp16, products are summed in fp32.
    const std::vector<float> q = lab::to_float(problem.q), k = lab::to_float(problem.k),
                             v = lab::to_float(problem.v);
    std::vector<double> weights(N * N), output(problem.shape.elements());
    for (int64_t matrix = 0; matrix < problem.shape.matrices(); ++matrix) {
      const int64_t base = matrix * N * D;
      reference::attention_head(&q[base], &k[base], &v[base], int(N), int(D), problem.shape.scale,
                                nullptr, weights.data(), nullptr);
      for (int64_t row = 0; row < N; ++row)
        for (int64_t d = 0; d < D; ++d) {
          float sum = 0;
          for (int64_t key = 0; key < N; ++key)
            sum +=
                __half2float(__float2half(float(weights[row * N + key]))) * v[base + key * D + d];
          output[base + row * D + d] = sum;
        }
    }
    const Comparison result = compare_output(problem, rounded(output), reference_output(problem));
    CAPTURE(result.describe());
    CHECK(result.pass);
    CHECK(result.relative_l2 > 1e-5);  // it is rounded, after all
  }
}

TEST_CASE("compare: the largest absolute value, of any type") {
  CHECK(lab::max_abs(std::vector<double>{1, -3, 2}) == 3);
  CHECK(lab::max_abs(std::vector<float>{-0.5f, 0.25f}) == 0.5);
  CHECK(lab::max_abs(std::vector<half>{__float2half(-65504.0f), __float2half(1.0f)}) == 65504);
  CHECK(lab::max_abs(std::vector<double>{}) == 0);
}

TEST_CASE("compare: the gates one by one") {
  const std::vector<double> expected = {1, -2, 0, 4};
  const Tolerance loose{.atol = 0.1, .rtol = 0.1, .relative_l2 = 1};

  SUBCASE("at the bound and just beyond it") {
    // 0.1 + 0.1 * 4 = 0.5 are allowed at 4, 0.1 at 0.
    CHECK(lab::compare(std::vector<double>{1, -2, 0, 4.5}, expected, loose, {4}).pass);
    const Comparison result =
        lab::compare(std::vector<double>{1, -2, 0.125, 4.5}, expected, loose, {2, 2});
    CHECK_FALSE(result.pass);
    CHECK(result.bad == 1);
    CHECK(result.first_bad == std::vector<int64_t>{1, 0});
    CHECK(result.expected == 0);
    CHECK(result.got == 0.125);
    CHECK(result.max_abs_error == 0.5);
  }
  SUBCASE("relative L2 by hand") {
    // Errors 3 and 4, norm of expected: sqrt(1 + 4 + 16) = sqrt(21).
    const Tolerance wide{.atol = 10, .rtol = 0, .relative_l2 = 1};
    const Comparison result = lab::compare(std::vector<double>{4, -2, 4, 4}, expected, wide, {4});
    CHECK(result.relative_l2 == doctest::Approx(5 / std::sqrt(21.0)));
    CHECK(result.bad == 0);
    CHECK_FALSE(result.pass);
  }
  SUBCASE("a NaN or an infinity passes no tolerance") {
    const Tolerance anything{.atol = kInfinity, .rtol = kInfinity, .relative_l2 = kInfinity};
    for (const double bad : {kNan, kInfinity, -kInfinity}) {
      CHECK_FALSE(
          lab::compare(std::vector<double>{bad}, std::vector<double>{1}, anything, {1}).pass);
      CHECK_FALSE(lab::compare(std::vector<double>{1}, std::vector<double>{bad}, loose, {1}).pass);
      CHECK_FALSE(
          lab::compare(std::vector<double>{bad}, std::vector<double>{bad}, loose, {1}).pass);
    }
  }
  SUBCASE("zeros where zeros are expected pass, anything else there does not") {
    const std::vector<double> zeros(4, 0.0);
    CHECK(lab::compare(zeros, zeros, loose, {4}).pass);
    CHECK_FALSE(lab::compare(std::vector<double>{0, 0, 0, 1e-3}, zeros, loose, {4}).pass);
  }
  SUBCASE("nothing compared is nothing shown") {
    CHECK_FALSE(lab::compare(std::vector<double>{}, std::vector<double>{}, loose, {0}).pass);
  }
  SUBCASE("sizes that do not fit are the caller's mistake") {
    CHECK_THROWS_AS(lab::compare(std::vector<double>{1}, expected, loose, {4}),
                    std::invalid_argument);
    CHECK_THROWS_AS(lab::compare(expected, expected, loose, {5}), std::invalid_argument);
  }
  SUBCASE("the description names place, values and numbers") {
    const std::string text =
        lab::compare(std::vector<double>{1, -2, kNan, 9}, expected, loose, {2, 2}).describe();
    CAPTURE(text);
    CHECK(text.find("2 of 4 wrong (1 not finite)") != std::string::npos);
    CHECK(text.find("first at [1, 0]: expected 0, got nan") != std::string::npos);
    CHECK(text.find("relative L2") == std::string::npos);  // of a NaN there is none
  }
  SUBCASE("more elements than one piece of the streamed comparison") {
    std::vector<double> many(5000), got;
    for (size_t i = 0; i < many.size(); ++i) many[i] = double(i);
    got = many;
    got[4321] = -1;
    const Comparison result = lab::compare(got, many, loose, {50, 100});
    CHECK(result.first_bad == std::vector<int64_t>{43, 21});
    CHECK(result.bad == 1);
  }
}
