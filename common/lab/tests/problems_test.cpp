// The inputs of the course do what they promise, and the oracle agrees with PyTorch.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "attention/inputs.h"
#include "attention/reference.h"
#include "attention/test_cases.h"
#include "lab.cuh"
#include "lab/errors.h"
#include "lab/images.h"
#include "lab/program.h"
#include "testing/testing.h"

using lab::AttentionProblem;

namespace {

double value(half x) { return double(x); }

bool same_bits(const std::vector<half>& a, const std::vector<half>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 2) == 0;
}

// Weights of one (batch, head), [tokens, tokens].
std::vector<double> weights_of(const AttentionProblem& problem, int64_t matrix) {
  const int N = problem.shape.tokens, D = problem.shape.head_dim;
  std::vector<double> weights(size_t(N) * N);
  const std::vector<float> q = lab::to_float(problem.q), k = lab::to_float(problem.k),
                           v = lab::to_float(problem.v);
  const int64_t base = matrix * N * D;
  reference::attention_head(&q[base], &k[base], &v[base], N, D, problem.shape.scale, nullptr,
                            weights.data(), nullptr);
  return weights;
}

}  // namespace

TEST_CASE("reference: PyTorch's arrays to 12 digits") {
  const std::vector<lab::testing::AttentionCase> cases = lab::testing::golden_cases();
  REQUIRE(cases.size() >= 6);
  for (const auto& [name, problem, expected, tolerance] : cases) {
    CAPTURE(name);
    const AttentionShape& shape = problem.shape;
    const std::vector<float> q = lab::to_float(problem.q), k = lab::to_float(problem.k),
                             v = lab::to_float(problem.v);
    // PyTorch had the scale in double, the kernels have it in float.
    const double scale = std::abs(shape.scale - 1 / std::sqrt(double(shape.head_dim))) < 1e-6
                             ? 1 / std::sqrt(double(shape.head_dim))
                             : double(shape.scale);
    const int64_t matrix = int64_t(shape.tokens) * shape.head_dim;
    std::vector<double> output(shape.elements());
    for (int64_t base = 0; base < shape.elements(); base += matrix)
      reference::attention_head(&q[base], &k[base], &v[base], shape.tokens, shape.head_dim, scale,
                                nullptr, nullptr, &output[base]);
    const lab::Tolerance exact{.atol = 1e-12, .rtol = 1e-12, .relative_l2 = 1e-12};
    const lab::Comparison result = lab::compare(
        output, expected, exact, {shape.batch, shape.heads, shape.tokens, shape.head_dim});
    CHECK_MESSAGE(result.pass, result.describe());

    // All heads at once, with the float scale: off by 2^-25 of the largest score, 2^-18 for 128.
    std::vector<double> whole(shape.elements());
    reference::attention(q.data(), k.data(), v.data(), shape, whole.data());
    const lab::Tolerance close{.atol = 1e-4, .rtol = 1e-4, .relative_l2 = 1e-5};
    const lab::Comparison all = lab::compare(
        whole, expected, close, {shape.batch, shape.heads, shape.tokens, shape.head_dim});
    CHECK_MESSAGE(all.pass, all.describe());
  }
}

TEST_CASE("reference: three tokens by hand") {
  // head_dim 1, scale 1: scores of query 1 against keys 0, ln 2, ln 4 are 0, ln 2, ln 4; weights
  // 1/7, 2/7, 4/7; values 7, 14, -7 give 1 + 4 - 4 = 1.
  const float Q[] = {1, 0, -1}, V[] = {7, 14, -7};
  const float K[] = {0, float(std::log(2.0)), float(std::log(4.0))};
  double scores[9], weights[9], O[3];
  reference::attention_head(Q, K, V, 3, 1, 1.0, scores, weights, O);
  CHECK(scores[1] == doctest::Approx(std::log(2.0)));
  CHECK(weights[0] == doctest::Approx(1.0 / 7));
  CHECK(weights[2] == doctest::Approx(4.0 / 7));
  CHECK(O[0] == doctest::Approx(1.0));
  CHECK(O[1] == doctest::Approx(14.0 / 3));  // all scores 0: the mean
  // Weights 4/7, 2/7, 1/7: 4 + 4 - 1.
  CHECK(O[2] == doctest::Approx(7.0));
}

TEST_CASE("reference: DeiT-Tiny's attention") {
  const std::vector<lab::testing::AttentionCase> cases = lab::testing::deit_cases();
  if (cases.empty()) MESSAGE("skipped: DeiT-Tiny's q, k, v are not there (DEIT_TINY_ATTENTION)");
  for (const auto& [name, problem, expected, tolerance] : cases) {
    CAPTURE(name);
    const AttentionShape& shape = problem.shape;
    std::vector<double> output(shape.elements());
    reference::attention(lab::to_float(problem.q).data(), lab::to_float(problem.k).data(),
                         lab::to_float(problem.v).data(), shape, output.data());
    // The file holds the double result rounded to fp32.
    const lab::Tolerance rounded{.atol = 1e-6, .rtol = 1e-6, .relative_l2 = 1e-6};
    const lab::Comparison result = lab::compare(
        output, expected, rounded, {shape.batch, shape.heads, shape.tokens, shape.head_dim});
    CHECK_MESSAGE(result.pass, result.describe());
  }
}

TEST_CASE("random problems: seeded, and peaked at one key each") {
  for (const int tokens : {2, 17, 197, 1025}) {
    for (const int head_dim : {32, 128}) {
      CAPTURE(tokens);
      CAPTURE(head_dim);
      const AttentionShape shape{1, 2, tokens, head_dim, float(1 / std::sqrt(double(head_dim)))};
      const AttentionProblem problem = lab::random_attention(shape, 5);
      const AttentionProblem again = lab::random_attention(shape, 5);
      const AttentionProblem other = lab::random_attention(shape, 6);
      CHECK(same_bits(problem.q, again.q));
      CHECK(same_bits(problem.k, again.k));
      CHECK(same_bits(problem.v, again.v));
      CHECK_FALSE(same_bits(problem.k, other.k));
      CHECK_FALSE(same_bits(problem.v, other.v));

      const std::vector<double> weights = weights_of(problem, 1);
      double mean_of_largest = 0;
      std::vector<bool> wanted(tokens, false);
      for (int query = 0; query < tokens; ++query) {
        const auto row = weights.begin() + int64_t(query) * tokens;
        const auto most = std::max_element(row, row + tokens);
        mean_of_largest += *most / tokens;
        wanted[most - row] = true;
      }
      CHECK(mean_of_largest > 0.35);  // far from uniform, 1 / tokens
      CHECK(mean_of_largest < 0.95);  // and from one-hot
      // Nearly every key is the one that some query wants, the last one too.
      CHECK(std::count(wanted.begin(), wanted.end(), true) > 0.6 * tokens);
    }
  }
}

TEST_CASE("random problems: V has no mean that a kernel could answer with") {
  const AttentionProblem problem = lab::random_attention({1, 1, 1025, 64, 0.125f}, 1);
  double sum = 0, squares = 0;
  for (const half x : problem.v) {
    sum += value(x);
    squares += value(x) * value(x);
  }
  const double count = double(problem.v.size());
  // The mean of 65600 standard normal values has deviation 0.004, that of their squares 0.0055.
  CHECK(std::abs(sum / count) < 0.02);
  CHECK(std::abs(squares / count - 1) < 0.03);
}

TEST_CASE("photos: patches, class token and heads are where they should be") {
  // 32 x 32: four patches. Every patch holds the same values but the first, so they can be told.
  lab::Image photo{32, 32, {}};
  for (int y = 0; y < 32; ++y)
    for (int x = 0; x < 32; ++x)
      for (int c = 0; c < 3; ++c)
        photo.rgb.push_back(
            static_cast<unsigned char>(x < 16 && y < 16 ? (x * 16 + y) % 251 : 6 * x + y + 3 * c));
  const AttentionProblem problem = lab::photo_attention(photo, 32, 3, 1);
  CHECK(problem.shape.batch == 3);
  CHECK(problem.shape.heads == 12);
  CHECK(problem.shape.tokens == 5);
  CHECK(problem.shape.head_dim == 64);
  CHECK(problem.shape.scale == 0.125f);
  CHECK(problem.grid == 2);
  CHECK(problem.chosen_token == 1 + 1 * 2 + 1);
  CHECK(same_bits(problem.q, problem.k));
  CHECK(same_bits(problem.q, problem.v));

  const auto vector = [&](int image, int head, int token) {
    return problem.q.begin() + ((int64_t(image) * 12 + head) * 5 + token) * 64;
  };
  for (int head = 0; head < 12; ++head)
    for (int token = 0; token < 5; ++token) {
      double sum = 0, squares = 0;
      for (int d = 0; d < 64; ++d) {
        const double x = value(vector(0, head, token)[d]);
        sum += x;
        squares += x * x;
      }
      CHECK(std::abs(sum) < 0.05);
      CHECK(squares == doctest::Approx(64).epsilon(0.002));
    }

  // Head 5 is channel 1 (heads 4 to 7), rows 4 to 7 of the patch; element 16 r + x is row 4 + r.
  // Patch 0,1 has 6 (16 + x) + (4 + r) + 3 there: its mean is over x = 0..15 and r = 0..3.
  const double mean = 6 * (16 + 7.5) + 5.5 + 3;
  double squares = 0;
  for (int r = 0; r < 4; ++r)
    for (int x = 0; x < 16; ++x) squares += std::pow(6 * (16 + x) + 4 + r + 3 - mean, 2);
  const double element = (6 * (16 + 9) + 4 + 2 + 3 - mean) * 8 / std::sqrt(squares);  // r 2, x 9
  CHECK(value(vector(0, 5, 2)[16 * 2 + 9]) == doctest::Approx(element).epsilon(0.002));

  // The images of a batch differ.
  CHECK_FALSE(std::equal(vector(0, 0, 0), vector(1, 0, 0), vector(1, 0, 0),
                         [](half a, half b) { return value(a) == value(b); }));
  CHECK_FALSE(std::equal(vector(1, 0, 0), vector(2, 0, 0), vector(2, 0, 0),
                         [](half a, half b) { return value(a) == value(b); }));

  CHECK_THROWS_AS(lab::photo_attention(photo, 40, 1, 1), lab::UsageError);
  const lab::Image flat{32, 32, std::vector<unsigned char>(32 * 32 * 3, 77)};
  CHECK_THROWS_WITH_AS(lab::photo_attention(flat, 32, 1, 1), doctest::Contains("one flat colour"),
                       lab::UsageError);
}

TEST_CASE("photos: the course's own give 197, 577 and 1025 peaked tokens") {
  const lab::Image photo = lab::load_image(lab::repository_path("data/images/chelsea.png"));
  for (const auto& [size, tokens] :
       {std::pair{224, 197}, std::pair{384, 577}, std::pair{512, 1025}}) {
    const AttentionProblem problem = lab::photo_attention(photo, size, 1, 1);
    CHECK(problem.shape.tokens == tokens);
    const std::vector<double> weights = weights_of(problem, 0);
    double most = 0;
    for (int query = 0; query < tokens; ++query) {
      const auto row = weights.begin() + int64_t(query) * tokens;
      most += *std::max_element(row, row + tokens) / tokens;
    }
    CHECK(most > 20.0 / tokens);  // uniform would be 1 / tokens
  }
}
