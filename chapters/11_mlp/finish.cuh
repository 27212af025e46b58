// What stands behind a product, as a kernel of its own: y = act(y + bias) + residual, in place.
#pragma once

#include "launch.cuh"

namespace mlp {

constexpr int kFinishThreads = 256;

// kAtOnce elements a thread: 8, where all rows are whole pieces of 16 bytes, or 1.
template <int kAtOnce>
__global__ void finish_kernel(const half* __restrict__ bias,      // [n], or null
                              const half* __restrict__ residual,  // [m, n], or null
                              half* __restrict__ y,               // [m, n]
                              int64_t pieces, int row_pieces, bool with_gelu) {
  struct alignas(kAtOnce * sizeof(half)) Piece {
    half value[kAtOnce];
  };
  const int64_t piece = int64_t(blockIdx.x) * kFinishThreads + threadIdx.x;
  if (piece >= pieces) return;
  Piece* const at = reinterpret_cast<Piece*>(y) + piece;
  Piece values = *at, biases{}, residuals{};
  if (bias) biases = reinterpret_cast<const Piece*>(bias)[piece % row_pieces];
  if (residual) residuals = reinterpret_cast<const Piece*>(residual)[piece];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    float v = __half2float(values.value[i]) + __half2float(biases.value[i]);
    if (with_gelu) v = gelu(v);
    values.value[i] = __float2half(v + __half2float(residuals.value[i]));
  }
  *at = values;
}

// Nothing is launched where nothing stands behind the product.
inline void finish(const half* bias, const half* residual, half* y, const Shape& shape,
                   cudaStream_t stream) {
  if (!bias && !residual && !shape.gelu) return;
  bool whole = shape.n % 8 == 0;
  for (const half* const array : {bias, residual, static_cast<const half*>(y)})
    whole = whole && reinterpret_cast<uintptr_t>(array) % 16 == 0;
  const int at_once = whole ? 8 : 1;
  const int64_t pieces = shape.y_elements() / at_once;
  (whole ? finish_kernel<8>
         : finish_kernel<1>)<<<divide_up(pieces, kFinishThreads), kFinishThreads, 0, stream>>>(
      bias, residual, y, pieces, shape.n / at_once, shape.gelu);
  require_launched(shape);
}

}  // namespace mlp
