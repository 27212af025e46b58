// Step 6, residual: a transformer adds before it normalizes. The sum x + r is stored, since the next
// layer adds to it, and normalized while it is in registers.
#pragma once

#include "5_rows.cuh"

namespace layer_norm {

// ---- What it is held against: the sum by a kernel of its own ------------------------------------

// kWidth elements a thread; the last thread takes what is fewer.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    add_kernel(const T* x, const T* r, T* sum, int64_t elements) {
  const int64_t at = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
  if (at + kWidth <= elements) {
    using Wide = Piece<T, kWidth>;
    const Wide a = *reinterpret_cast<const Wide*>(x + at);
    const Wide b = *reinterpret_cast<const Wide*>(r + at);
    Wide result;
#pragma unroll
    for (int e = 0; e < kWidth; ++e)
      result.element[e] = rounded<T>(widened(a.element[e]) + widened(b.element[e]));
    *reinterpret_cast<Wide*>(sum + at) = result;
  } else {
    for (int64_t i = at; i < elements; ++i) sum[i] = rounded<T>(widened(x[i]) + widened(r[i]));
  }
}

// sum = x + r, all [rows, columns]; sum may be x or r. Throws std::invalid_argument naming the shape
// and the limit, std::runtime_error when CUDA refuses.
template <class T>
void add(const T* x, const T* r, T* sum, const Shape& shape, cudaStream_t stream) {
  require_arguments(shape, x, r, sum);
  const auto launch = [&]<int kWidth>() {
    add_kernel<T, kWidth><<<blocks_of(shape.elements(), kThreads * kWidth), kThreads, 0, stream>>>(
        x, r, sum, shape.elements());
  };
  const auto aligned = [](const T* array) { return reinterpret_cast<uintptr_t>(array) % 16 == 0; };
  if (aligned(x) && aligned(r) && aligned(sum))
    launch.template operator()<kWide<T>>();
  else
    launch.template operator()<1>();
  require_launched(cudaGetLastError(), shape);
}

// ---- The step -----------------------------------------------------------------------------------

template <class T, int kPieces>
__global__ void __launch_bounds__(kThreads) residual_kernel(const T* x,      // [rows, columns]
                                                            const T* r,      // [rows, columns]
                                                            const T* scale,  // [columns]
                                                            const T* bias,   // [columns]
                                                            T* sum,          // [rows, columns]
                                                            T* y,            // [rows, columns]
                                                            const Shape shape) {
  constexpr int kWidth = kWide<T>;
  using Wide = Piece<T, kWidth>;
  const int columns = shape.columns, pieces = columns / kWidth, lane = threadIdx.x % 32;
  const int64_t row = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= shape.rows) return;
  const int64_t first = row * pieces;

  // Both reads, all of them asked for before any is needed.
  Wide kept[kPieces], added[kPieces];
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int i = lane + p * 32;
    kept[p] = i < pieces ? reinterpret_cast<const Wide*>(x)[first + i] : Wide{};
    added[p] = i < pieces ? reinterpret_cast<const Wide*>(r)[first + i] : Wide{};
  }

  // The sum as memory holds it is what is normalized: the same bits as from two kernels.
  float total = 0.0f;
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      kept[p].element[e] = rounded<T>(widened(kept[p].element[e]) + widened(added[p].element[e]));
      total += widened(kept[p].element[e]);
    }
    if (lane + p * 32 < pieces) reinterpret_cast<Wide*>(sum)[first + lane + p * 32] = kept[p];
  }

  // Mean and variance, from registers.
  const float mean = sum_of_warp(total) / float(columns);
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
    reinterpret_cast<Wide*>(y)[first + i] = result;
  }
}

// Whether residual() can be one launch: rows are whole pieces of 16 bytes, and a lane has no more than 8
// of x and 8 of r (up to 2048 columns in fp16, 1024 in fp32). Registers for more would leave an SM so
// few warps that two kernels take less time.
template <class T>
bool residual_fits(const Shape& shape) {
  return shape.columns % kWide<T> == 0 && pieces_of_lane<T>(shape) <= 8;
}

// sum = x + r, y = LayerNorm(sum) as Shape says. sum may be x or r; y is another array. As add() and
// rows() where it cannot be one launch (residual_fits(), and arrays that start at a multiple of 16
// bytes). Throws std::invalid_argument naming the shape and the limit when it cannot,
// std::runtime_error when CUDA refuses.
template <class T>
void residual(const T* x, const T* r, const T* scale, const T* bias, T* sum, T* y,
              const Shape& shape, cudaStream_t stream) {
  require_arguments(shape, x, r, scale, bias, sum, y);
  if (!residual_fits<T>(shape) || !takes_pieces<T>(shape, x, r, scale, bias, sum, y)) {
    add(x, r, sum, shape, stream);
    return rows<T>(sum, scale, bias, y, shape, stream);
  }
  with_count<1, 2, 3, 4, 8>(pieces_of_lane<T>(shape), [&]<int kPieces>() {
    residual_kernel<T, kPieces>
        <<<blocks_of(shape.rows, kWarps), kThreads, 0, stream>>>(x, r, scale, bias, sum, y, shape);
  });
  require_launched(cudaGetLastError(), shape);
}

}  // namespace layer_norm
