// Tests of attention with fewer keys than queries.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "../../../common/lab/device.h"
#include "../../../common/testing/checks.h"
#include "test_operations.h"

using namespace lab::testing;
using namespace cvt;
using namespace cvt::testing;
namespace ref = cvt::reference;

namespace {

std::string name_of(const CrossShape& s) {
  return std::to_string(s.batch) + " x " + std::to_string(s.queries) + " queries, " +
         std::to_string(s.keys) + " keys, " + std::to_string(s.heads) + " heads of " +
         std::to_string(s.head_dim);
}

struct Problem {
  CrossShape shape;
  std::vector<float> q, k, v, d_o;
};
// sharp: how far scores spread; shifted: by what all scores of a row are moved.
Problem problem(CrossShape shape, uint64_t seed, double sharp = 2, double shifted = 0) {
  const int width = shape.heads * shape.head_dim;
  const size_t of_q = size_t(shape.batch) * shape.queries * width,
               of_k = size_t(shape.batch) * shape.keys * width;
  if (shape.scale == 0) shape.scale = float(1 / std::sqrt(double(width)));
  Problem p{shape, numbers(of_q, seed, sharp), numbers(of_k, seed + 1), numbers(of_k, seed + 2),
            numbers(of_q, seed + 3)};
  if (shifted != 0) {
    for (size_t i = 0; i < of_q; i += size_t(shape.head_dim))
      p.q[i] = std::round(float(shifted / double(shape.scale)));
    for (size_t i = 0; i < of_k; i += size_t(shape.head_dim)) p.k[i] = 1.0f;
  }
  return p;
}

// Weights and dS are rounded to tf32, by 2^-11 of themselves, and 2^ in ex2.approx is good to 2^-22
// of itself; scores, sums of head_dim products, are wrong by some 2^-24 of their size, which is
// weights' relative error.
double relative_error(const Problem& p) {
  const double score = lab::max_abs(widened(p.q)) * lab::max_abs(widened(p.k)) *
                       std::abs(p.shape.scale) * std::sqrt(double(p.shape.head_dim));
  return 0x1p-11 + 4 * score * 0x1p-24;
}

Trial forward_trial(const Problem& p) {
  const auto expected = ref::attention(widened(p.q), widened(p.k), widened(p.v), p.shape);
  const double error = relative_error(p);
  const double of_sum = 1e-6 * (1 + lab::max_abs(expected.log_sum_exp));
  return {name_of(p.shape),
          {{"q", p.q}, {"k", p.k}, {"v", p.v}},
          {{"o", expected.o, {2 * error * lab::max_abs(widened(p.v)), 0, 2 * error}},
           {"log-sum-exp", expected.log_sum_exp, {of_sum, 1e-6, 1e-5}}}};
}
Operation forward_operation(const CrossShape& shape) {
  return [=](const std::vector<const float*>& in, const std::vector<float*>& out,
             cudaStream_t stream) {
    cross_attention_forward(in[0], in[1], in[2], out[0], out[1], shape, stream);
  };
}

Trial backward_trial(const Problem& p) {
  const Array q = widened(p.q), k = widened(p.k), v = widened(p.v), d_o = widened(p.d_o);
  const auto forward = ref::attention(q, k, v, p.shape);
  const auto d = ref::attention_gradients(q, k, v, d_o, p.shape);
  const std::vector<float> o(forward.o.begin(), forward.o.end()),
      log_sum_exp(forward.log_sum_exp.begin(), forward.log_sum_exp.end());
  // dP and D are sums of head_dim products; their roundings count as those of weights.
  const double error = 2 * relative_error(p) + 4 * 0x1p-24 * lab::max_abs(forward.log_sum_exp);
  // With one key every weight is 1: dQ and dK are zero, and an error has no share of them. (The virtual GPU
  // computes them without any error.)
  const auto tolerance = [&](int which) {
    const bool zero = p.shape.keys == 1 && which < 2 && !lab::vgpu::present();
    return lab::Tolerance{error * d.largest_terms[which] + 1e-6, 0,
                          zero ? std::numeric_limits<double>::infinity() : 4 * error + 1e-3};
  };
  return {
      name_of(p.shape) + ", back",
      {{"q", p.q}, {"k", p.k}, {"v", p.v}, {"o", o}, {"log-sum-exp", log_sum_exp}, {"dO", p.d_o}},
      {{"dq", d.q, tolerance(0)}, {"dk", d.k, tolerance(1)}, {"dv", d.v, tolerance(2)}}};
}
Operation backward_operation(const CrossShape& shape) {
  return [=](const std::vector<const float*>& in, const std::vector<float*>& out,
             cudaStream_t stream) {
    cross_attention_backward(in[0], in[1], in[2], in[3], in[4], in[5], out[0], out[1], out[2],
                             shape, stream);
  };
}

void check_both(const Problem& p) {
  check_trial(forward_operation(p.shape), forward_trial(p));
  check_trial(backward_operation(p.shape), backward_trial(p));
}

}  // namespace

TEST_CASE("attention: forward and back, any queries and keys, each head_dim") {
  if (skipped("attention")) return;
  uint64_t seed = 1;
  for (const CrossShape& shape : {CrossShape{1, 1, 1, 1, 32, 0},
                                  {1, 5, 1, 1, 16, 0},
                                  {2, 49, 16, 1, 32, 0},
                                  {1, 64, 32, 2, 64, 0},
                                  {1, 65, 33, 3, 32, 0},
                                  {2, 17, 31, 2, 16, 0},
                                  {1, 50, 17, 2, 64, 0},
                                  {1, 3, 70, 1, 64, 0},
                                  {1, 129, 97, 1, 16, 0}})
    check_both(problem(shape, seed += 10));
}

TEST_CASE("attention: scores that dominate, are equal, lie far below and far above 0") {
  if (skipped("attention")) return;
  const CrossShape shape{1, 37, 21, 2, 32, 0};
  check_both(problem(shape, 200, 40));
  check_both(problem(shape, 210, 0));
  check_both(problem(shape, 220, 1, -300));
  check_both(problem(shape, 230, 1, 300));
  CrossShape negative = shape;
  negative.scale = -0.2f;
  check_both(problem(negative, 240));
}

TEST_CASE("attention: what it does not take is refused by name") {
  if (skipped("attention")) return;
  const float* const there = reinterpret_cast<const float*>(256);
  float* const to = reinterpret_cast<float*>(256);
  const auto refused = [&](const CrossShape& shape, const char* why) {
    try {
      cross_attention_forward(there, there, there, to, to, shape, nullptr);
      FAIL_CHECK("it was not refused");
    } catch (const std::invalid_argument& error) {
      CAPTURE(error.what());
      CHECK(std::string(error.what()).find(why) != std::string::npos);
    }
  };
  // One array after the other begins in the middle of 16 bytes.
  const CrossShape shape{1, 4, 4, 1, 32, 1};
  for (int moved = 0; moved < 8; ++moved) {
    CAPTURE(moved);
    const auto place = [&](int array) {
      return reinterpret_cast<float*>(array == moved ? 260 : 256);
    };
    const auto off = doctest::Contains("multiples of 16 bytes");
    if (moved < 4)
      CHECK_THROWS_WITH_AS(
          cross_attention_forward(place(0), place(1), place(2), place(3), to, shape, nullptr), off,
          std::invalid_argument);
    CHECK_THROWS_WITH_AS(
        cross_attention_backward(place(0), place(1), place(2), place(3), there, place(4), place(5),
                                 place(6), place(7), shape, nullptr),
        off, std::invalid_argument);
  }
  refused({1, 4, 4, 1, 48, 1}, "head_dim 48]: head_dim must be 16, 32 or 64");
  refused({1, 0, 4, 1, 32, 1}, "queries 0, keys 4");
  refused({1, 4, 0, 1, 32, 1}, "keys 0");
  refused({1, 4, 4, 1, 32, std::nanf("")}, "scale must be finite");
}
