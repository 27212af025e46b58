// Step 1, base: a block for each row, its sums by a tree in shared memory.
#pragma once

#include "parts/elements.cuh"

namespace layer_norm {

// The sum over the block's threads, in all of them: half of the threads add the other half's, until
// there is one left.
__device__ inline float sum_by_tree(float own, float (&sums)[kThreads]) {
  sums[threadIdx.x] = own;
  __syncthreads();
  for (int half_of = kThreads / 2; half_of > 0; half_of /= 2) {
    if (threadIdx.x < half_of) sums[threadIdx.x] += sums[threadIdx.x + half_of];
    __syncthreads();
  }
  const float sum = sums[0];
  __syncthreads();  // the next sum overwrites it
  return sum;
}

template <class T>
__global__ void __launch_bounds__(kThreads) base_kernel(const T* x,      // [rows, columns]
                                                        const T* scale,  // [columns]
                                                        const T* bias,   // [columns]
                                                        T* y,            // [rows, columns]
                                                        const Shape shape) {
  __shared__ float sums[kThreads];
  const int columns = shape.columns;
  const T* from = x + int64_t(blockIdx.x) * columns;
  T* to = y + int64_t(blockIdx.x) * columns;

  // The row's mean.
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += kThreads) sum += widened(from[i]);
  const float mean = sum_by_tree(sum, sums) / float(columns);

  // Its variance, from the row again: distances from the mean keep their digits.
  float squares = 0.0f;
  for (int i = threadIdx.x; i < columns; i += kThreads) {
    const float distance = widened(from[i]) - mean;
    squares += distance * distance;
  }
  const float variance = sum_by_tree(squares, sums) / float(columns);

  // Write, from the row a third time.
  const float factor = rsqrtf(variance + shape.epsilon);
  for (int i = threadIdx.x; i < columns; i += kThreads)
    to[i] = rounded<T>((widened(from[i]) - mean) * factor * widened(scale[i]) + widened(bias[i]));
}

// LayerNorm as Shape says. y may be x. Throws std::invalid_argument naming the shape and the limit
// when it cannot, std::runtime_error when CUDA refuses.
template <class T>
void base(const T* x, const T* scale, const T* bias, T* y, const Shape& shape,
          cudaStream_t stream) {
  require_arguments(shape, x, scale, bias, y);
  base_kernel<T><<<shape.rows, kThreads, 0, stream>>>(x, scale, bias, y, shape);
  require_launched(cudaGetLastError(), shape);
}

}  // namespace layer_norm
