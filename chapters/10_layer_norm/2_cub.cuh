// Step 2, cub: the same with the block's sum from CUB, the toolkit's library of such parts.
#pragma once

#include <cub/block/block_reduce.cuh>

#include "parts/elements.cuh"

namespace layer_norm {

using BlockSum = ::cub::BlockReduce<float, kThreads>;

// The sum over the block's threads, in all of them. CUB returns it in thread 0 alone.
__device__ inline float sum_by_cub(float own, BlockSum::TempStorage& storage, float& shared_sum) {
  const float sum = BlockSum(storage).Sum(own);
  if (threadIdx.x == 0) shared_sum = sum;
  __syncthreads();
  return shared_sum;
}

template <class T>
__global__ void __launch_bounds__(kThreads) cub_kernel(const T* x,      // [rows, columns]
                                                       const T* scale,  // [columns]
                                                       const T* bias,   // [columns]
                                                       T* y,            // [rows, columns]
                                                       const Shape shape) {
  // Each of the two sums has its own place, so that nobody waits until the first has been read.
  __shared__ BlockSum::TempStorage storage[2];
  __shared__ float shared_sum[2];
  const int columns = shape.columns;
  const T* from = x + int64_t(blockIdx.x) * columns;
  T* to = y + int64_t(blockIdx.x) * columns;

  // The row's mean.
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += kThreads) sum += widened(from[i]);
  const float mean = sum_by_cub(sum, storage[0], shared_sum[0]) / float(columns);

  // Its variance, from the row again.
  float squares = 0.0f;
  for (int i = threadIdx.x; i < columns; i += kThreads) {
    const float distance = widened(from[i]) - mean;
    squares += distance * distance;
  }
  const float variance = sum_by_cub(squares, storage[1], shared_sum[1]) / float(columns);

  // Write, from the row a third time.
  const float factor = rsqrtf(variance + shape.epsilon);
  for (int i = threadIdx.x; i < columns; i += kThreads)
    to[i] = rounded<T>((widened(from[i]) - mean) * factor * widened(scale[i]) + widened(bias[i]));
}

// LayerNorm as Shape says. y may be x. Throws std::invalid_argument naming the shape and the limit
// when it cannot, std::runtime_error when CUDA refuses.
template <class T>
void cub(const T* x, const T* scale, const T* bias, T* y, const Shape& shape, cudaStream_t stream) {
  require_arguments(shape, x, scale, bias, y);
  cub_kernel<T><<<shape.rows, kThreads, 0, stream>>>(x, scale, bias, y, shape);
  require_launched(cudaGetLastError(), shape);
}

}  // namespace layer_norm
