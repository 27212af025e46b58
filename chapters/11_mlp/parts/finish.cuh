// What stands behind a product, as a kernel of its own: y = act(y + bias) + residual, in place.
#pragma once

#include "launch.cuh"

namespace mlp {

constexpr int kFinishThreads = 256;

// kAtOnce elements a thread: 16 bytes, where all rows are whole pieces of that, or 1.
template <class Element, int kAtOnce>
__global__ void finish_kernel(const Element* __restrict__ bias,      // [n], or null
                              const Element* __restrict__ residual,  // [m, n], or null
                              Element* __restrict__ y,               // [m, n]
                              int64_t pieces, int row_pieces, bool with_gelu) {
  struct alignas(kAtOnce * sizeof(Element)) Piece {
    Element value[kAtOnce];
  };
  const int64_t piece = int64_t(blockIdx.x) * kFinishThreads + threadIdx.x;
  if (piece >= pieces) return;
  Piece* const at = reinterpret_cast<Piece*>(y) + piece;
  Piece values = *at, biases{}, residuals{};
  if (bias) biases = reinterpret_cast<const Piece*>(bias)[piece % row_pieces];
  if (residual) residuals = reinterpret_cast<const Piece*>(residual)[piece];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    float v = float(values.value[i]) + float(biases.value[i]);
    if (with_gelu) v = gelu(v);
    values.value[i] = Element(v + float(residuals.value[i]));
  }
  *at = values;
}

// Nothing is launched where nothing stands behind the product.
template <class Element>
void finish(const Element* bias, const Element* residual, Element* y, const Shape& shape,
            cudaStream_t stream) {
  if (!bias && !residual && !shape.gelu) return;
  constexpr int kOfPiece = 16 / int(sizeof(Element));
  bool whole = shape.n % kOfPiece == 0;
  for (const Element* const array : {bias, residual, static_cast<const Element*>(y)})
    whole = whole && reinterpret_cast<uintptr_t>(array) % 16 == 0;
  const int at_once = whole ? kOfPiece : 1;
  const int64_t pieces = shape.y_elements() / at_once;
  (whole ? finish_kernel<Element, kOfPiece>
         : finish_kernel<Element,
                         1>)<<<divide_up(pieces, kFinishThreads), kFinishThreads, 0, stream>>>(
      bias, residual, y, pieces, shape.n / at_once, shape.gelu);
  require_launched(shape);
}

}  // namespace mlp
