// Step 4, vector: 16 bytes a lane in each access, so that a row of 768 in fp16 is three loads of a
// warp instead of 24.
#pragma once

#include "3_warp.cuh"

namespace layer_norm {

// kPieces: of 16 bytes, that a lane keeps of its row.
template <class T, int kPieces>
__global__ void __launch_bounds__(kThreads) vector_kernel(const T* x,      // [rows, columns]
                                                          const T* scale,  // [columns]
                                                          const T* bias,   // [columns]
                                                          T* y,            // [rows, columns]
                                                          const Shape shape) {
  constexpr int kWidth = kWide<T>;
  using Wide = Piece<T, kWidth>;
  const int columns = shape.columns, pieces = columns / kWidth, lane = threadIdx.x % 32;
  const int64_t row = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= shape.rows) return;
  const Wide* from = reinterpret_cast<const Wide*>(x + row * columns);
  Wide* to = reinterpret_cast<Wide*>(y + row * columns);

  // The only read, all of it asked for before any of it is needed.
  Wide kept[kPieces];
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int i = lane + p * 32;
    kept[p] = i < pieces ? from[i] : Wide{};
  }

  // Mean and variance, from registers.
  float sum = 0.0f;
#pragma unroll
  for (int p = 0; p < kPieces; ++p)
#pragma unroll
    for (int e = 0; e < kWidth; ++e) sum += widened(kept[p].element[e]);
  const float mean = sum_of_warp(sum) / float(columns);
  float squares = 0.0f;
#pragma unroll
  for (int p = 0; p < kPieces; ++p)
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      const float distance = lane + p * 32 < pieces ? widened(kept[p].element[e]) - mean : 0.0f;
      squares += distance * distance;
    }
  const float variance = sum_of_warp(squares) / float(columns);

  // Write.
  const float factor = rsqrtf(variance + shape.epsilon);
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int i = lane + p * 32;
    if (i >= pieces) continue;
    const Wide scales = reinterpret_cast<const Wide*>(scale)[i];
    const Wide biases = reinterpret_cast<const Wide*>(bias)[i];
    Wide result;
#pragma unroll
    for (int e = 0; e < kWidth; ++e)
      result.element[e] =
          rounded<T>((widened(kept[p].element[e]) - mean) * factor * widened(scales.element[e]) +
                     widened(biases.element[e]));
    to[i] = result;
  }
}

// LayerNorm as Shape says; as warp() where rows cannot be moved 16 bytes at a time (takes_pieces()).
// y may be x. Throws std::invalid_argument naming the shape and the limit when it cannot,
// std::runtime_error when CUDA refuses.
template <class T>
void vector(const T* x, const T* scale, const T* bias, T* y, const Shape& shape,
            cudaStream_t stream) {
  require_arguments(shape, x, scale, bias, y);
  if (!takes_pieces<T>(shape, x, scale, bias, y)) return warp(x, scale, bias, y, shape, stream);
  // In fp32 a row has twice as many pieces: up to 32 a lane.
  with_count<1, 2, 3, 4, 6, 8, 16, Shape::kMaxColumns / 32 / kWide<T>>(
      pieces_of_lane<T>(shape), [&]<int kPieces>() {
        vector_kernel<T, kPieces>
            <<<blocks_of(shape.rows, kWarps), kThreads, 0, stream>>>(x, scale, bias, y, shape);
      });
  require_launched(cudaGetLastError(), shape);
}

}  // namespace layer_norm
