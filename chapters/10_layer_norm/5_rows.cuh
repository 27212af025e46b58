// Step 5, rows: a warp takes several rows at once. All their loads are in flight together, and scale
// and bias are loaded once for all of them.
#pragma once

#include "4_vector.cuh"

namespace layer_norm {

constexpr int kRows = 2;        // rows that a warp takes at once
constexpr int kMostPieces = 4;  // per lane and row: registers for two longer rows keep warps out

template <class T, int kPieces>
__global__ void __launch_bounds__(kThreads) rows_kernel(const T* x,      // [rows, columns]
                                                        const T* scale,  // [columns]
                                                        const T* bias,   // [columns]
                                                        T* y,            // [rows, columns]
                                                        const Shape shape) {
  constexpr int kWidth = kWide<T>;
  using Wide = Piece<T, kWidth>;
  const int columns = shape.columns, pieces = columns / kWidth, lane = threadIdx.x % 32;
  const int64_t first = (int64_t(blockIdx.x) * kWarps + threadIdx.x / 32) * kRows;
  if (first >= shape.rows) return;
  const Wide* from = reinterpret_cast<const Wide*>(x + first * columns);
  Wide* to = reinterpret_cast<Wide*>(y + first * columns);
  const int here = int(min(int64_t(kRows), shape.rows - first));  // the last warp may have fewer

  // The only read of x. A row that is not there is full of zeros, and nobody stores it.
  Wide kept[kRows][kPieces];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int i = lane + p * 32;
      kept[r][p] = r < here && i < pieces ? from[r * pieces + i] : Wide{};
    }

  // Mean and variance of each row. The rows' shuffles do not wait for each other.
  float mean[kRows], factor[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < kPieces; ++p)
#pragma unroll
      for (int e = 0; e < kWidth; ++e) sum += widened(kept[r][p].element[e]);
    mean[r] = sum_of_warp(sum) / float(columns);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float squares = 0.0f;
#pragma unroll
    for (int p = 0; p < kPieces; ++p)
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const float value = widened(kept[r][p].element[e]);
        const float distance = lane + p * 32 < pieces ? value - mean[r] : 0.0f;
        squares += distance * distance;
      }
    factor[r] = rsqrtf(sum_of_warp(squares) / float(columns) + shape.epsilon);
  }

  // Write: each piece of scale and bias serves all rows.
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int i = lane + p * 32;
    if (i >= pieces) continue;
    const Wide scales = reinterpret_cast<const Wide*>(scale)[i];
    const Wide biases = reinterpret_cast<const Wide*>(bias)[i];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Wide result;
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        result.element[e] = rounded<T>((widened(kept[r][p].element[e]) - mean[r]) * factor[r] *
                                           widened(scales.element[e]) +
                                       widened(biases.element[e]));
      if (r < here) to[r * pieces + i] = result;
    }
  }
}

// LayerNorm as Shape says. As vector() where a lane has more than kMostPieces of a row (beyond 1024
// columns in fp16, 512 in fp32), as warp() where rows cannot be moved 16 bytes at a time
// (takes_pieces()). y may be x. Throws std::invalid_argument naming the shape and the limit when it
// cannot, std::runtime_error when CUDA refuses.
template <class T>
void rows(const T* x, const T* scale, const T* bias, T* y, const Shape& shape,
          cudaStream_t stream) {
  require_arguments(shape, x, scale, bias, y);
  const bool launched =
      takes_pieces<T>(shape, x, scale, bias, y) &&
      with_count<1, 2, 3, kMostPieces>(pieces_of_lane<T>(shape), [&]<int kPieces>() {
        rows_kernel<T, kPieces><<<blocks_of(shape.rows, kWarps * kRows), kThreads, 0, stream>>>(
            x, scale, bias, y, shape);
      });
  if (!launched) return vector(x, scale, bias, y, shape, stream);
  require_launched(cudaGetLastError(), shape);
}

}  // namespace layer_norm
