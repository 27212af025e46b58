// Problems of attention's gradients, and how near a result must be.
#include "problem.h"

#include <algorithm>
#include <cmath>

#include "../../../common/lab/compare.h"
#include "../../../common/lab/random.h"
#include "reference.h"

namespace lab {

GradientProblem random_gradients(const AttentionShape& shape, uint64_t seed) {
  GradientProblem problem{random_attention(shape, seed), {}};
  problem.d_o.resize(size_t(shape.elements()));
  // (random_attention() takes the streams seed * 4 to seed * 4 + 3.)
  const uint64_t stream = ~(seed * 4);
#pragma omp parallel for
  for (int64_t i = 0; i < shape.elements(); ++i)
    problem.d_o[i] = __float2half(float(normal(stream, uint64_t(i))));
  return problem;
}

std::vector<half> distance_gradient(const AttentionProblem& problem,
                                    const std::vector<half>& output) {
  std::vector<half> result(output.size());
  for (size_t i = 0; i < output.size(); ++i)
    result[i] = __float2half(__half2float(output[i]) - __half2float(problem.v[i]));
  return result;
}

std::vector<half> gradient_of_token(const GradientProblem& problem, int token) {
  const AttentionShape& shape = problem.attention.shape;
  std::vector<half> result(size_t(shape.elements() / shape.batch), __float2half(0.0f));
  for (int head = 0; head < shape.heads; ++head) {
    const int64_t row = (int64_t(head) * shape.tokens + token) * shape.head_dim;
    std::copy_n(problem.d_o.begin() + row, shape.head_dim, result.begin() + row);
  }
  return result;
}

std::vector<double> size_of_keys(const std::vector<half>& d_k, const AttentionShape& shape) {
  std::vector<double> sizes(size_t(shape.tokens), 0.0);
  for (size_t i = 0; i < d_k.size(); ++i) {
    const double value = double(__half2float(d_k[i]));
    sizes[i / size_t(shape.head_dim) % size_t(shape.tokens)] += value * value;
  }
  for (double& size : sizes) size = std::sqrt(size);
  return sizes;
}

// ---- Expected -----------------------------------------------------------------------------------

namespace {

// errors: a bound for each element, before it is rounded to fp16.
Tolerance rounded(const std::vector<double>& errors, const std::vector<double>& expected) {
  constexpr double kUnit = 0x1p-11, kTiny = 0x1p-25;
  const double most = *std::max_element(errors.begin(), errors.end());
  const double all = l2_norm(expected);
  const double tiny = kTiny * std::sqrt(double(expected.size()));
  // Where all should be 0, as with one token, the absolute tolerance decides.
  const double spread = all > 0 ? (l2_norm(errors) + tiny) / all : INFINITY;
  return {most + kTiny, kUnit, 0.5 * spread + 0.75 * kUnit};
}

GradientExpected computed(const GradientProblem& problem) {
  const AttentionShape& shape = problem.attention.shape;
  const size_t elements = size_t(shape.elements());
  GradientExpected expected;
  for (std::vector<double>* array : {&expected.O, &expected.dQ, &expected.dK, &expected.dV})
    array->resize(elements);
  expected.log_sum_exp.resize(size_t(shape.rows()));
  std::vector<double> dQ_error(elements), dK_error(elements), dV_error(elements);
  const std::vector<float> q = to_float(problem.attention.q), k = to_float(problem.attention.k),
                           v = to_float(problem.attention.v), d_o = to_float(problem.d_o);
  reference::attention_gradients(q.data(), k.data(), v.data(), d_o.data(), shape,
                                 {expected.dQ.data(), expected.dK.data(), expected.dV.data(),
                                  expected.O.data(), expected.log_sum_exp.data(), nullptr, nullptr,
                                  dQ_error.data(), dK_error.data(), dV_error.data()});
  expected.for_dQ = rounded(dQ_error, expected.dQ);
  expected.for_dK = rounded(dK_error, expected.dK);
  expected.for_dV = rounded(dV_error, expected.dV);
  expected.for_O = Tolerance::fp16_mean(max_abs(problem.attention.v));
  // A sum of weights is off by (tokens + 8) 2^-24 of itself, and by what scores are off.
  const double score = std::abs(double(shape.scale)) * shape.head_dim *
                       max_abs(problem.attention.q) * max_abs(problem.attention.k);
  const double sum = 0x1p-24 * ((shape.head_dim + 8) * score + shape.tokens + 16);
  expected.for_log_sum_exp = {sum, 0x1p-20, 1};
  return expected;
}

}  // namespace

GradientExpected expected_gradients(const GradientProblem& problem) { return computed(problem); }

void set_tolerances(const GradientProblem& problem, GradientExpected& expected) {
  const GradientExpected own = computed(problem);
  expected.for_O = own.for_O;
  expected.for_log_sum_exp = own.for_log_sum_exp;
  expected.for_dQ = own.for_dQ;
  expected.for_dK = own.for_dK;
  expected.for_dV = own.for_dV;
}

GradientComparison compare_gradients(const std::vector<half>& dQ, const std::vector<half>& dK,
                                     const std::vector<half>& dV, const GradientExpected& expected,
                                     const AttentionShape& shape) {
  const std::vector<int64_t> dims = {shape.batch, shape.heads, shape.tokens, shape.head_dim};
  const GradientComparison all[] = {{compare(dQ, expected.dQ, expected.for_dQ, dims), "dQ"},
                                    {compare(dK, expected.dK, expected.for_dK, dims), "dK"},
                                    {compare(dV, expected.dV, expected.for_dV, dims), "dV"}};
  const GradientComparison* worst = &all[0];
  for (const GradientComparison& one : all) {
    if (!one.comparison.pass) return one;
    if (one.comparison.relative_l2 > worst->comparison.relative_l2) worst = &one;
  }
  return *worst;
}

Cost gradient_cost(const AttentionShape& shape, bool tensor_cores) {
  return {2.0 * 8 * double(shape.elements()) + 4.0 * double(shape.rows()),
          2.0 * 5 * double(shape.scores()) * shape.head_dim, tensor_cores};
}

Comparison compare_forward(const std::vector<half>& output, const std::vector<float>& log_sum_exp,
                           const GradientExpected& expected, const AttentionShape& shape) {
  const Comparison right = compare(output, expected.O, expected.for_O,
                                   {shape.batch, shape.heads, shape.tokens, shape.head_dim});
  if (!right.pass) return right;
  const Comparison sums = compare(log_sum_exp, expected.log_sum_exp, expected.for_log_sum_exp,
                                  {shape.batch, shape.heads, shape.tokens});
  return sums.pass ? right : sums;
}

// ---- On the device ------------------------------------------------------------------------------

double gradient_bytes(const AttentionShape& shape) {
  return 16.0 * double(shape.elements()) + 4.0 * double(shape.rows());
}

std::vector<GradientArrays> upload(const GradientProblem& problem, int copies) {
  const AttentionProblem& a = problem.attention;
  const size_t elements = size_t(a.shape.elements());
  std::vector<GradientArrays> arrays;
  for (int i = 0; i < copies; ++i) {
    const std::string copy = i ? " (copy " + std::to_string(i + 1) + ")" : "";
    const auto empty = [&](const char* name) { return DeviceArray<half>(elements, name + copy); };
    arrays.push_back({DeviceArray<half>(a.q, "Q" + copy), DeviceArray<half>(a.k, "K" + copy),
                      DeviceArray<half>(a.v, "V" + copy), empty("O"), empty("dO"), empty("dQ"),
                      empty("dK"), empty("dV"),
                      DeviceArray<float>(size_t(a.shape.rows()), "log_sum_exp" + copy)});
  }
  return arrays;
}

}  // namespace lab
