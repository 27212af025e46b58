// The problem of exercise 15 in double precision, plain C++: attention whose scores get a bias that
// depends on where two patches lie to each other, and the gradient of that table of biases.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

namespace bias_table {

// Tokens are the patches of a grid, row by row.
struct Problem {
  int batch, heads, height, width, head_dim;
  double scale;
  std::vector<double> Q, K, V, dO;  // [batch, heads, tokens, head_dim]
  std::vector<double> bias;         // [heads, 2 height - 1, 2 width - 1]

  int tokens() const { return height * width; }
  int64_t cells() const { return int64_t(2 * height - 1) * (2 * width - 1); }  // in a head's table
  // The cell of the offset from key to query: (0, 0) is in the middle.
  int64_t cell(int query, int key) const {
    const int down = query / width - key / width, right = query % width - key % width;
    return int64_t(down + height - 1) * (2 * width - 1) + (right + width - 1);
  }
};

// What is known of a query's row.
struct Row {
  int batch, head, query;
  std::vector<double> weights;    // P, of each key
  std::vector<double> d_weights;  // dP = dO Vᵀ
  std::vector<double> output;     // O
  double log_sum_exp;             // log(sum of exp(score))
  double dot;                     // D = dO · O
};

// Visits all rows, in order.
inline void each_row(const Problem& p, const std::function<void(const Row&)>& visit) {
  const int tokens = p.tokens(), head_dim = p.head_dim;
  Row row;
  row.weights.resize(size_t(tokens));
  row.d_weights.resize(size_t(tokens));
  for (row.batch = 0; row.batch < p.batch; ++row.batch)
    for (row.head = 0; row.head < p.heads; ++row.head)
      for (row.query = 0; row.query < tokens; ++row.query) {
        const int64_t matrix = (int64_t(row.batch) * p.heads + row.head) * tokens * head_dim;
        const double* const q = &p.Q[size_t(matrix + int64_t(row.query) * head_dim)];
        const double* const d_o = &p.dO[size_t(matrix + int64_t(row.query) * head_dim)];
        double most = -INFINITY, sum = 0;
        for (int key = 0; key < tokens; ++key) {
          double score = 0, d_weight = 0;
          for (int d = 0; d < head_dim; ++d) {
            const size_t of_key = size_t(matrix + int64_t(key) * head_dim + d);
            score += q[d] * p.K[of_key];
            d_weight += d_o[d] * p.V[of_key];
          }
          score = score * p.scale + p.bias[size_t(row.head * p.cells() + p.cell(row.query, key))];
          row.weights[size_t(key)] = score;
          row.d_weights[size_t(key)] = d_weight;
          most = std::max(most, score);
        }
        for (const double score : row.weights) sum += std::exp(score - most);
        row.log_sum_exp = most + std::log(sum);
        row.output.assign(size_t(head_dim), 0.0);
        for (int key = 0; key < tokens; ++key) {
          double& weight = row.weights[size_t(key)];
          weight = std::exp(weight - row.log_sum_exp);
          for (int d = 0; d < head_dim; ++d)
            row.output[size_t(d)] += weight * p.V[size_t(matrix + int64_t(key) * head_dim + d)];
        }
        row.dot = 0;
        for (int d = 0; d < head_dim; ++d) row.dot += d_o[d] * row.output[size_t(d)];
        visit(row);
      }
}

// A table with what `term` says of each pair added up: [heads, 2 height - 1, 2 width - 1].
using Term = std::function<double(const Row& row, int key)>;
inline std::vector<double> summed(const Problem& p, const Term& term) {
  std::vector<double> table(size_t(p.heads * p.cells()));
  each_row(p, [&](const Row& row) {
    for (int key = 0; key < p.tokens(); ++key)
      table[size_t(row.head * p.cells() + p.cell(row.query, key))] += term(row, key);
  });
  return table;
}

// dS of one pair: P (dP - D).
inline double d_score(const Row& row, int key) {
  return row.weights[size_t(key)] * (row.d_weights[size_t(key)] - row.dot);
}

// dBias.
inline std::vector<double> gradient(const Problem& p) { return summed(p, d_score); }

// The sum of dO · O, of which dBias is the gradient.
inline double loss(const Problem& p) {
  double sum = 0;
  each_row(p, [&](const Row& row) { sum += row.dot; });
  return sum;
}

}  // namespace bias_table
