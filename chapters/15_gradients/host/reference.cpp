#include "reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace reference {
namespace {

constexpr double kHalf = 0x1p-11, kSingle = 0x1p-24;  // roundings of fp16 and fp32
constexpr double kTiny = 0x1p-25;                     // of fp16 below its normal numbers

double dot(const float* left, const float* right, int count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int d = 0; d < count; ++d) sum += double(left[d]) * double(right[d]);
  return sum;
}
// to += factor from
void add(double* to, double factor, const float* from, int count) {
#pragma omp simd
  for (int d = 0; d < count; ++d) to[d] += factor * double(from[d]);
}
void add_size(double* to, double factor, const float* from, int count) {
#pragma omp simd
  for (int d = 0; d < count; ++d) to[d] += factor * std::abs(double(from[d]));
}

// A (batch, head), from its first row on.
struct Head {
  const float *Q, *K, *V, *dO;
  int tokens, head_dim;
  double scale;
  AttentionGradients result;
  std::vector<double> p, dp, output;  // of a row

  const float* row_of(const float* array, int row) const { return array + int64_t(row) * head_dim; }
  double* row_of(double* array, int row) const { return array + int64_t(row) * head_dim; }
  double norm(const float* array, int row) const {
    const float* const values = row_of(array, row);
    return std::sqrt(dot(values, values, head_dim));
  }

  // Softmax of a row: p and output; returns the log-sum-exp.
  double forward(int query) {
    for (int key = 0; key < tokens; ++key)
      p[key] = scale * dot(row_of(Q, query), row_of(K, key), head_dim);
    const double most = *std::max_element(p.begin(), p.end());
    double sum = 0;
    for (double& weight : p) sum += weight = std::exp(weight - most);
    std::fill(output.begin(), output.end(), 0.0);
    for (int key = 0; key < tokens; ++key)
      add(output.data(), p[key] /= sum, row_of(V, key), head_dim);
    return most + std::log(sum);
  }

  void backward(int query, double log_sum_exp) {
    double mean = 0, from_output = 0;  // D, and how large its summands are
    for (int key = 0; key < tokens; ++key)
      mean += p[key] * (dp[key] = dot(row_of(dO, query), row_of(V, key), head_dim));
    for (int d = 0; d < head_dim; ++d)
      from_output += std::abs(output[d] * double(row_of(dO, query)[d]));
    for (int key = 0; key < tokens; ++key) {
      const double ds = p[key] * (dp[key] - mean);
      add(row_of(result.dV, key), p[key], row_of(dO, query), head_dim);
      add(row_of(result.dQ, query), scale * ds, row_of(K, key), head_dim);
      add(row_of(result.dK, key), scale * ds, row_of(Q, query), head_dim);
      if (result.P) result.P[int64_t(query) * tokens + key] = p[key];
      if (result.dS) result.dS[int64_t(query) * tokens + key] = ds;
      if (result.dQ_error) add_errors(query, key, ds, from_output, dp[key] - mean, log_sum_exp);
    }
  }

  void add_errors(int query, int key, double ds, double from_output, double distance,
                  double log_sum_exp) {
    const double additions = head_dim + 8;
    const double of_score = kSingle * (additions * std::abs(scale) * norm_q * norms_k[key] +
                                       4 * std::abs(log_sum_exp) + 8);
    const double of_dp = kSingle * additions * norm_d_o * norms_v[key];
    const double of_sums = (tokens + 8) * kSingle;
    const double p_error = p[key] * (of_score + kHalf + of_sums) + kTiny;
    const double ds_error = p[key] * (of_score * std::abs(distance) + of_dp +
                                      (kHalf + additions * kSingle) * from_output) +
                            (kHalf + of_sums) * std::abs(ds) + kTiny;
    const double scaled = std::abs(scale) * ds_error;
    add_size(row_of(result.dV_error, key), p_error, row_of(dO, query), head_dim);
    add_size(row_of(result.dQ_error, query), scaled, row_of(K, key), head_dim);
    add_size(row_of(result.dK_error, key), scaled, row_of(Q, query), head_dim);
  }

  double norm_q = 0, norm_d_o = 0;
  std::vector<double> norms_k, norms_v;

  void run() {
    p.resize(tokens), dp.resize(tokens), output.resize(head_dim);
    for (int key = 0; key < tokens; ++key) {
      norms_k.push_back(norm(K, key));
      norms_v.push_back(norm(V, key));
    }
    for (int query = 0; query < tokens; ++query) {
      const double log_sum_exp = forward(query);
      if (result.O) std::copy(output.begin(), output.end(), row_of(result.O, query));
      if (result.log_sum_exp) result.log_sum_exp[query] = log_sum_exp;
      norm_q = norm(Q, query), norm_d_o = norm(dO, query);
      backward(query, log_sum_exp);
    }
  }
};

}  // namespace

void attention_gradients(const float* Q, const float* K, const float* V, const float* dO,
                         const AttentionShape& shape, const AttentionGradients& result) {
  for (double* array :
       {result.dQ, result.dK, result.dV, result.dQ_error, result.dK_error, result.dV_error})
    if (array) std::fill(array, array + shape.elements(), 0.0);
#pragma omp parallel for
  for (int64_t matrix = 0; matrix < shape.matrices(); ++matrix) {
    const auto from = [&](auto* array, int64_t count) {
      return array ? array + matrix * count : array;
    };
    const int64_t elements = int64_t(shape.tokens) * shape.head_dim,
                  scores = int64_t(shape.tokens) * shape.tokens;
    Head head{
        .Q = Q + matrix * elements,
        .K = K + matrix * elements,
        .V = V + matrix * elements,
        .dO = dO + matrix * elements,
        .tokens = shape.tokens,
        .head_dim = shape.head_dim,
        .scale = shape.scale,
        .result = {from(result.dQ, elements), from(result.dK, elements), from(result.dV, elements),
                   from(result.O, elements), from(result.log_sum_exp, shape.tokens),
                   from(result.P, scores), from(result.dS, scores), from(result.dQ_error, elements),
                   from(result.dK_error, elements), from(result.dV_error, elements)},
        .p = {},
        .dp = {},
        .output = {},
        .norms_k = {},
        .norms_v = {}};
    head.run();
  }
}

}  // namespace reference
