// What we got wrong: both sums in one go, variance = E[x²] - E[x]². Any row length, one read for the
// sums, no registers that keep the row; and no digits left where the mean is large beside the
// deviation: x² and mean² agree in all digits that fp32 has.
#pragma once

#include "../parts/elements.cuh"

namespace layer_norm {

template <class T>
__global__ void __launch_bounds__(kThreads) naive_variance_kernel(const T* x,  // [rows, columns]
                                                                  const T* scale,  // [columns]
                                                                  const T* bias,   // [columns]
                                                                  T* y,  // [rows, columns]
                                                                  const Shape shape) {
  const int columns = shape.columns, lane = threadIdx.x % 32;
  const int64_t row = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= shape.rows) return;
  const T* from = x + row * columns;
  T* to = y + row * columns;

  float sum = 0.0f, squares = 0.0f;
  for (int i = lane; i < columns; i += 32) {
    const float value = widened(from[i]);
    sum += value;
    squares += value * value;
  }
  const float mean = sum_of_warp(sum) / float(columns);
  const float variance = sum_of_warp(squares) / float(columns) - mean * mean;

  // Rounding may make it negative, and its root a NaN.
  const float factor = rsqrtf(fmaxf(variance, 0.0f) + shape.epsilon);
  for (int i = lane; i < columns; i += 32)
    to[i] = rounded<T>((widened(from[i]) - mean) * factor * widened(scale[i]) + widened(bias[i]));
}

// As the steps, and wrong where a row's mean is large. Throws as they do.
template <class T>
void naive_variance(const T* x, const T* scale, const T* bias, T* y, const Shape& shape,
                    cudaStream_t stream) {
  require_arguments(shape, x, scale, bias, y);
  naive_variance_kernel<T>
      <<<blocks_of(shape.rows, kWarps), kThreads, 0, stream>>>(x, scale, bias, y, shape);
  require_launched(cudaGetLastError(), shape);
}

}  // namespace layer_norm
