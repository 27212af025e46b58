// Deformable attention: the oracle agrees with PyTorch and with numbers worked out by hand; random
// problems and the photo's are what they promise.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "../../../common/lab/images.h"
#include "../host/reference.h"
#include "test_support.h"

namespace {

std::vector<double> reference_of(const lab::DeformableProblem& problem) {
  std::vector<double> out(problem.shape.out_elements());
  reference::deformable_attention(lab::to_float(problem.value).data(),
                                  lab::to_float(problem.locations).data(),
                                  lab::to_float(problem.weights).data(), problem.shape, out.data());
  return out;
}

}  // namespace

TEST_CASE("deformable reference: PyTorch's arrays to 12 digits") {
  const std::vector<lab::testing::DeformableCase> cases = lab::testing::deformable_golden_cases();
  REQUIRE(cases.size() >= 6);
  for (const lab::testing::DeformableCase& one : cases) {
    CAPTURE(one.name);
    const DeformableShape& s = one.problem.shape;
    require_deformable_shape(s);
    const lab::Tolerance exact{.atol = 1e-12, .rtol = 1e-12, .relative_l2 = 1e-12};
    const lab::Comparison result = lab::compare(reference_of(one.problem), one.expected, exact,
                                                {s.batch, s.queries, s.heads, s.channels});
    CHECK_MESSAGE(result.pass, result.describe());
  }
}

TEST_CASE("deformable reference: a 2 x 3 level by hand") {
  // Values of the first channel:  1  2  4
  //                               8 16 32   the other channels are 0.
  const DeformableShape shape{1, 1, 1, 16, 1, 4, {{2, 3}}};
  std::vector<float> value(6 * 16, 0.0f), locations(8), weights(4, 0.0f);
  for (int pixel = 0; pixel < 6; ++pixel) value[pixel * 16] = float(1 << pixel);
  std::vector<double> out(16);
  const auto at = [&](double x, double y) {  // pixels
    std::fill(locations.begin(), locations.end(), 0.5f);
    locations[2] = float((x + 0.5) / 3);
    locations[3] = float((y + 0.5) / 2);
    weights[1] = 2;
    reference::deformable_attention(value.data(), locations.data(), weights.data(), shape,
                                    out.data());
    CHECK(std::all_of(out.begin() + 1, out.end(), [](double v) { return v == 0; }));
    return out[0];
  };
  CHECK(at(0, 0) == doctest::Approx(2 * 1));
  CHECK(at(1.5, 0.5) == doctest::Approx(2 * (2 + 4 + 16 + 32) / 4.0));
  CHECK(at(-0.5, 1) == doctest::Approx(2 * 8 / 2.0));
  CHECK(at(2.25, 1.5) == doctest::Approx(2 * 32 * 0.75 * 0.5));
  CHECK(at(-1, 0) == 0);
  CHECK(at(7, 0) == 0);
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(at(std::nan(""), 0) == 0);
  CHECK(at(0, -infinity) == 0);
}

TEST_CASE("deformable reference: some rows alone are those of the whole") {
  const auto whole = lab::testing::deformable_case({2, 5, 3, 16, 2, 4, {{3, 4}, {1, 2}}},
                                                   lab::Distribution::kUniform, 3, true);
  const lab::DeformableProblem& p = whole.problem;
  std::vector<double> rows(4 * 16);
  reference::deformable_attention_rows(
      lab::to_float(p.value).data(), lab::to_float(p.locations).data(),
      lab::to_float(p.weights).data(), p.shape, 13, 4, rows.data());
  for (size_t i = 0; i < rows.size(); ++i) CHECK(rows[i] == whole.expected[13 * 16 + i]);
}

TEST_CASE("deformable reference: the weights' gradient against differences of the output") {
  // The output is linear in the weights: a step of 1 gives the exact difference.
  const DeformableShape shape{2, 3, 2, 16, 2, 4, {{3, 4}, {1, 2}}};
  lab::DeformableProblem p =
      lab::testing::deformable_case(shape, lab::Distribution::kUniform, 9, true).problem;
  std::vector<float> value = lab::to_float(p.value), locations = lab::to_float(p.locations),
                     weights = lab::to_float(p.weights), grad_out(shape.out_elements());
  for (size_t i = 0; i < grad_out.size(); ++i) grad_out[i] = float(i % 13) - 6.0f;
  const auto loss = [&] {
    std::vector<double> out(shape.out_elements());
    reference::deformable_attention(value.data(), locations.data(), weights.data(), shape,
                                    out.data());
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += double(grad_out[i]) * out[i];
    return sum;
  };
  std::vector<double> gradient(shape.samples());
  reference::deformable_weight_gradient(value.data(), locations.data(), grad_out.data(), shape,
                                        gradient.data());
  const double before = loss();
  int outside = 0;
  for (size_t i = 0; i < gradient.size(); ++i) {
    weights[i] += 1;
    CHECK(loss() - before == doctest::Approx(gradient[i]).epsilon(1e-6));
    weights[i] -= 1;
    outside += gradient[i] == 0;
  }
  CHECK(outside > 0);  // some points are, and some locations are NaN
  CHECK(outside < int(gradient.size()) * 3 / 4);
}

TEST_CASE("deformable problems: distributions, weights and the course's size") {
  const DeformableShape full = lab::course_deformable_shape(48, 15422);
  CHECK(full.pixels() == 19560);
  CHECK(lab::deformable_cost(full).bytes / 1024 / 1024 == doctest::Approx(238).epsilon(0.002));

  const DeformableShape shape = lab::course_deformable_shape(1, 400);
  for (const auto distribution : {lab::Distribution::kLocal, lab::Distribution::kUniform}) {
    const lab::DeformableProblem problem = lab::random_deformable(shape, distribution, 5);
    const std::vector<float> x = lab::to_float(problem.locations),
                             w = lab::to_float(problem.weights);
    double spread = 0;  // how far x is from each query's mean in level 0, in pixels
    for (int query = 0; query < shape.queries; ++query) {
      double mean = 0, sum = 0, square = 0;
      for (int p = 0; p < 8; ++p) mean += x[query * 64 + 2 * p] / 8;
      for (int p = 0; p < 8; ++p) square += std::pow(160 * (x[query * 64 + 2 * p] - mean), 2);
      spread += square / 7 / shape.queries;
      for (int i = 0; i < 32; ++i) sum += w[query * 32 + i];
      CHECK(sum == doctest::Approx(1).epsilon(0.002));
    }
    // Normal offsets of 2 pixels have a variance of 4; uniform ones over 160 pixels 160² / 12.
    const bool local = distribution == lab::Distribution::kLocal;
    CHECK(spread == doctest::Approx(local ? 4 : 160 * 160 / 12.0).epsilon(0.1));
  }
}

TEST_CASE("deformable problems: a photo of stripes shows their direction") {
  // Upright stripes: along x the picture changes, so that filters across x answer most.
  lab::Image stripes{64, 64, {}};
  for (int i = 0; i < 64 * 64; ++i) stripes.rgb.insert(stripes.rgb.end(), 3, i % 8 < 4 ? 30 : 220);
  const lab::DeformableProblem problem = lab::photo_deformable(stripes, 64);
  CHECK(problem.shape.queries == 64 * 64);
  CHECK(problem.shape.pixels() == 64 * 64 + 32 * 32 + 16 * 16 + 8 * 8);
  const std::vector<double> out = reference_of(problem);
  const double* middle = &out[(32 * 64 + 32) * 32];
  CHECK(std::max_element(middle, middle + 16) == middle);            // edges across x
  CHECK(std::max_element(middle + 16, middle + 32) == middle + 16);  // lines, too
  std::vector<half> halves;
  for (const double v : out) halves.push_back(__float2half(float(v)));
  const lab::Image picture = lab::draw_directions(problem.photo, 64, halves);
  CHECK(picture.width > 2 * picture.height);
}
