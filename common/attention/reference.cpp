#include "reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace reference {
namespace {

// One query against all keys. Scratch: scores and weights of the row, [tokens].
void attention_row(const float* query, const float* K, const float* V, int tokens, int head_dim,
                   double scale, double* scores, double* weights, double* output) {
  for (int key = 0; key < tokens; ++key) {
    const float* key_row = K + int64_t(key) * head_dim;
    double dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int d = 0; d < head_dim; ++d) dot += double(query[d]) * double(key_row[d]);
    scores[key] = dot * scale;
  }

  const double row_max = *std::max_element(scores, scores + tokens);
  double row_sum = 0;
  for (int key = 0; key < tokens; ++key) row_sum += weights[key] = std::exp(scores[key] - row_max);
  for (int key = 0; key < tokens; ++key) weights[key] /= row_sum;

  if (!output) return;
  std::fill(output, output + head_dim, 0.0);
  for (int key = 0; key < tokens; ++key) {
    const float* value_row = V + int64_t(key) * head_dim;
    for (int d = 0; d < head_dim; ++d) output[d] += weights[key] * double(value_row[d]);
  }
}

}  // namespace

void attention_head(const float* Q, const float* K, const float* V, int tokens, int head_dim,
                    double scale, double* scores, double* weights, double* O) {
#pragma omp parallel
  {
    std::vector<double> row_scores(tokens), row_weights(tokens);
#pragma omp for
    for (int query = 0; query < tokens; ++query) {
      const int64_t row = int64_t(query) * tokens;
      attention_row(Q + int64_t(query) * head_dim, K, V, tokens, head_dim, scale, row_scores.data(),
                    row_weights.data(), O ? O + int64_t(query) * head_dim : nullptr);
      if (scores) std::copy(row_scores.begin(), row_scores.end(), scores + row);
      if (weights) std::copy(row_weights.begin(), row_weights.end(), weights + row);
    }
  }
}

void attention(const float* Q, const float* K, const float* V, const AttentionShape& shape,
               double* O) {
  const int64_t matrix_elements = int64_t(shape.tokens) * shape.head_dim;
  for (int64_t matrix = 0; matrix < shape.matrices(); ++matrix) {
    const int64_t offset = matrix * matrix_elements;
    attention_head(Q + offset, K + offset, V + offset, shape.tokens, shape.head_dim, shape.scale,
                   nullptr, nullptr, O + offset);
  }
}

}  // namespace reference
