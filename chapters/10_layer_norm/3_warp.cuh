// Step 3, warp: a warp for each row, which it reads once and keeps in registers. Lanes add up by
// shuffles, and no barrier is left.
#pragma once

#include "parts/elements.cuh"

namespace layer_norm {

// kKept: elements that a lane keeps; 32 of them for each lane's one cover the row.
template <class T, int kKept>
__global__ void __launch_bounds__(kThreads) warp_kernel(const T* x,      // [rows, columns]
                                                        const T* scale,  // [columns]
                                                        const T* bias,   // [columns]
                                                        T* y,            // [rows, columns]
                                                        const Shape shape) {
  const int columns = shape.columns, lane = threadIdx.x % 32;
  const int64_t row = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= shape.rows) return;
  const T* from = x + row * columns;
  T* to = y + row * columns;

  // The only read: neighbouring lanes have neighbouring elements. Beyond the row's end stands 0.
  float kept[kKept];
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int i = lane + k * 32;
    kept[k] = i < columns ? widened(from[i]) : 0.0f;
  }

  // Mean and variance, from registers.
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < kKept; ++k) sum += kept[k];
  const float mean = sum_of_warp(sum) / float(columns);
  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const float distance = lane + k * 32 < columns ? kept[k] - mean : 0.0f;
    squares += distance * distance;
  }
  const float variance = sum_of_warp(squares) / float(columns);

  // Write.
  const float factor = rsqrtf(variance + shape.epsilon);
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int i = lane + k * 32;
    if (i < columns)
      to[i] = rounded<T>((kept[k] - mean) * factor * widened(scale[i]) + widened(bias[i]));
  }
}

// LayerNorm as Shape says. y may be x. Throws std::invalid_argument naming the shape and the limit
// when it cannot, std::runtime_error when CUDA refuses.
template <class T>
void warp(const T* x, const T* scale, const T* bias, T* y, const Shape& shape,
          cudaStream_t stream) {
  require_arguments(shape, x, scale, bias, y);
  with_count<2, 4, 8, 16, 24, 32, 64, 128>((shape.columns + 31) / 32, [&]<int kKept>() {
    warp_kernel<T, kKept>
        <<<blocks_of(shape.rows, kWarps), kThreads, 0, stream>>>(x, scale, bias, y, shape);
  });
  require_launched(cudaGetLastError(), shape);
}

}  // namespace layer_norm
