// Problems of attention for the exercises, and their reference.
#include <cmath>
#include <limits>

#include "grader.h"
#include "lab_files.h"

namespace lab::grader {

std::string AttentionTensors::describe() const {
  return format("[batch %d, heads %d, %d queries, %d keys, head_dim %d]", batch, heads, queries,
                keys, head_dim);
}

AttentionTensors random_tensors(int batch, int heads, int queries, int keys, int head_dim,
                                uint64_t seed) {
  AttentionTensors t{batch, heads, queries, keys, head_dim, float(1 / std::sqrt(double(head_dim))),
                     {},    {},    {}};
  AttentionProblem problem = random_attention({batch, heads, keys, head_dim, t.scale}, seed);
  // Where there are more queries than keys the rows of Q repeat, each time weaker, so that no two
  // queries have the same output.
  for (int matrix = 0; matrix < batch * heads; ++matrix)
    for (int query = 0; query < queries; ++query)
      for (int d = 0; d < head_dim; ++d) {
        const half q = problem.q[(int64_t(matrix) * keys + query % keys) * head_dim + d];
        const float factor = 1.0f / float(1 + query / keys);
        t.Q.push_back(query < keys ? q : __float2half(__half2float(q) * factor));
      }
  t.K = std::move(problem.k);
  t.V = std::move(problem.v);
  return t;
}

AttentionTensors moved(AttentionTensors t, double offset) {
  // The first element of every query and key gives all their scores the same summand.
  constexpr float kQuery = 32;
  for (size_t i = 0; i < t.Q.size(); i += t.head_dim) t.Q[i] = __float2half(kQuery);
  for (size_t i = 0; i < t.K.size(); i += t.head_dim)
    t.K[i] = __float2half(float(offset / double(t.scale)) / kQuery);
  return t;
}

std::vector<double> expected(const AttentionTensors& t, const ChangeScore& change) {
  std::vector<double> O(t.Q.size());
#pragma omp parallel for
  for (int matrix = 0; matrix < t.batch * t.heads; ++matrix) {
    const half* K = &t.K[int64_t(matrix) * t.keys * t.head_dim];
    const half* V = &t.V[int64_t(matrix) * t.keys * t.head_dim];
    std::vector<double> weights(t.keys);
    for (int query = 0; query < t.queries; ++query) {
      const int64_t row = (int64_t(matrix) * t.queries + query) * t.head_dim;
      double row_max = -std::numeric_limits<double>::infinity(), row_sum = 0;
      for (int key = 0; key < t.keys; ++key) {
        double dot = 0;
        for (int d = 0; d < t.head_dim; ++d)
          dot += to_double(t.Q[row + d]) * to_double(K[int64_t(key) * t.head_dim + d]);
        double score = dot * double(t.scale);
        if (change) score = change(matrix / t.heads, matrix % t.heads, query, key, score);
        weights[key] = score;
        row_max = std::fmax(row_max, score);
      }
      for (double& weight : weights) row_sum += weight = std::exp(weight - row_max);
      for (int key = 0; key < t.keys; ++key)
        for (int d = 0; d < t.head_dim; ++d)
          O[row + d] += weights[key] / row_sum * to_double(V[int64_t(key) * t.head_dim + d]);
    }
  }
  return O;
}

Case attention_case(const AttentionTensors& t, const std::vector<double>& expected) {
  double most = 0;
  for (const half value : t.V) most = std::fmax(most, std::abs(to_double(value)));
  Case result;
  result.name = t.describe();
  result.dims = {t.batch, t.heads, t.queries, t.head_dim};
  result.tolerance = Tolerance::attention(most);
  result.expected = expected;
  result.hint_not_finite =
      "NaN comes from 0/0 or from infinity minus infinity: does the search for a row's maximum "
      "begin "
      "at -INFINITY, does each row have a key that counts, and is what it is divided by above 0?";
  return result;
}

}  // namespace lab::grader
