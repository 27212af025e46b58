#include "reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace reference {

void row_moments(const double* x, const ::layer_norm::Shape& shape, double* mean, double* factor) {
  const int64_t columns = shape.columns;
#pragma omp parallel for
  for (int64_t row = 0; row < shape.rows; ++row) {
    const double* values = x + row * columns;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < columns; ++i) sum += values[i];
    const double middle = sum / double(columns);
    for (int64_t i = 0; i < columns; ++i) squares += (values[i] - middle) * (values[i] - middle);
    if (mean) mean[row] = middle;
    if (factor) factor[row] = 1 / std::sqrt(squares / double(columns) + double(shape.epsilon));
  }
}

void layer_norm(const double* x, const double* scale, const double* bias,
                const ::layer_norm::Shape& shape, double* y) {
  const int64_t columns = shape.columns;
  std::vector<double> mean(shape.rows), factor(shape.rows);
  row_moments(x, shape, mean.data(), factor.data());
#pragma omp parallel for
  for (int64_t row = 0; row < shape.rows; ++row)
    for (int64_t i = 0; i < columns; ++i)
      y[row * columns + i] = scale[i] * (x[row * columns + i] - mean[row]) * factor[row] + bias[i];
}

void layer_norm_backward(const double* dy, const double* x, const double* scale,
                         const ::layer_norm::Shape& shape, double* dx, double* dscale,
                         double* dbias) {
  const int64_t columns = shape.columns;
  std::vector<double> mean(shape.rows), factor(shape.rows);
  row_moments(x, shape, mean.data(), factor.data());
#pragma omp parallel for
  for (int64_t row = 0; row < shape.rows; ++row) {
    const double *values = x + row * columns, *grads = dy + row * columns;
    double mean_g = 0, mean_gn = 0;
    for (int64_t i = 0; i < columns; ++i) {
      const double g = grads[i] * scale[i];
      mean_g += g / double(columns);
      mean_gn += g * (values[i] - mean[row]) * factor[row] / double(columns);
    }
    for (int64_t i = 0; i < columns; ++i) {
      const double n = (values[i] - mean[row]) * factor[row];
      dx[row * columns + i] = factor[row] * (grads[i] * scale[i] - mean_g - n * mean_gn);
    }
  }
  std::fill(dscale, dscale + columns, 0.0);
  std::fill(dbias, dbias + columns, 0.0);
  for (int64_t row = 0; row < shape.rows; ++row)
    for (int64_t i = 0; i < columns; ++i) {
      const double grad = dy[row * columns + i];
      dscale[i] += grad * (x[row * columns + i] - mean[row]) * factor[row];
      dbias[i] += grad;
    }
}

}  // namespace reference
