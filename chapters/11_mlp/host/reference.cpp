#include "reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace reference {
namespace {

// The sum of products, in eight parts that a compiler may add up side by side.
template <class Left>
double dot(const Left* left, const float* right, int64_t count) {
  constexpr int kParts = 8;
  double parts[kParts] = {};
  int64_t i = 0;
  for (; i + kParts <= count; i += kParts)
    for (int p = 0; p < kParts; ++p) parts[p] += double(left[i + p]) * double(right[i + p]);
  for (; i < count; ++i) parts[0] += double(left[i]) * double(right[i]);
  return std::accumulate(parts, parts + kParts, 0.0);
}

template <class Each>
void for_rows_and_columns(const std::vector<int>& rows, int columns, const Each& each) {
  constexpr int kTogether = 64;  // columns, whose weights stay in the cache for all rows
#pragma omp parallel for schedule(dynamic)
  for (int first = 0; first < columns; first += kTogether)
    for (size_t row = 0; row < rows.size(); ++row)
      for (int column = first; column < std::min(columns, first + kTogether); ++column)
        each(row, column);
}

}  // namespace

double gelu(double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))); }

std::vector<double> product(const Product& a, const ::mlp::Shape& shape,
                            const std::vector<int>& rows) {
  std::vector<double> y(rows.size() * shape.n);
  for_rows_and_columns(rows, shape.n, [&](size_t row, int column) {
    const int64_t k = shape.k;
    double v = dot(a.x + rows[row] * k, a.weight + column * k, k);
    if (a.bias) v += double(a.bias[column]);
    if (shape.gelu) v = gelu(v);
    if (a.residual) v += double(a.residual[int64_t(rows[row]) * shape.n + column]);
    y[row * shape.n + column] = v;
  });
  return y;
}

double largest_sum_of_sizes(const Product& a, const ::mlp::Shape& shape,
                            const std::vector<int>& rows) {
  std::vector<double> largest(shape.n, 0.0);
  for_rows_and_columns(rows, shape.n, [&](size_t row, int column) {
    const float *x = a.x + int64_t(rows[row]) * shape.k,
                *weight = a.weight + int64_t(column) * shape.k;
    double sum = 0;
    for (int64_t i = 0; i < shape.k; ++i) sum += std::abs(double(x[i]) * double(weight[i]));
    largest[column] = std::max(largest[column], sum);
  });
  return *std::max_element(largest.begin(), largest.end());
}

MlpRows mlp(const Mlp& a, const std::vector<int>& rows) {
  MlpRows result;
  const ::mlp::Shape first{a.tokens, a.hidden, a.width, false};
  result.sums = product({a.x, a.w1, a.b1}, first, rows);
  result.hidden.resize(result.sums.size());
  std::transform(result.sums.begin(), result.sums.end(), result.hidden.begin(), gelu);
  result.y.resize(rows.size() * a.width);
  for_rows_and_columns(rows, a.width, [&](size_t row, int column) {
    result.y[row * a.width + column] =
        dot(&result.hidden[row * a.hidden], a.w2 + int64_t(column) * a.hidden, a.hidden) +
        double(a.b2[column]) + double(a.x[int64_t(rows[row]) * a.width + column]);
  });
  return result;
}

}  // namespace reference
