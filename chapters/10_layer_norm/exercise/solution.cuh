// STARTER
//| // Exercise 10, from an empty function: gated RMS norm. Language models put a gate in front of their norm
//| // and leave out the mean:
//| //
//| //   h = x · gate / (1 + exp(-gate))
//| //   y = h / sqrt(mean of h² + epsilon) · weight
//| //
//| // As in the chapter, memory is everything: what you read twice takes twice as long. Here there are two
//| // arrays to read, and something between the load and the sum that nobody wants to compute twice.
//| //
//| // Nothing is given but the function. Kernel, grid and launch are yours. Then
//| // `make exercise10 && ./run` grades it: 30 points for right results, 20 for no finding of any check, and
//| // 50 for
//| //
//| //   15  stores: y, once, and nothing else
//| //    5  one launch
//| //   10  x: loaded once
//| //   10  gate: loaded once
//| //   10  loads of x: as few requests as 16 bytes a lane allow
// SOLUTION
// Exercise 10, gated RMS norm: a solution. The exercise itself is in exercise.cuh.
//
// A warp takes a row and keeps what it has gated in registers: x and gate are read once, and the
// exponential is computed once. No mean is subtracted, so that one sum is enough.
// END
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../shape.h"

namespace exercise {

// SOLUTION
constexpr int kThreads = 128, kWarps = kThreads / 32;

// kWidth elements that one access moves.
template <int kWidth>
struct alignas(2 * kWidth) Piece {
  half element[kWidth];
};

template <int kWidth, int kPieces>
__global__ void __launch_bounds__(kThreads)
    gated_rms_norm_kernel(const half* x,       // [rows, columns]
                          const half* gate,    // [rows, columns]
                          const half* weight,  // [columns]
                          half* y,             // [rows, columns]
                          int rows, int columns, float epsilon) {
  using Wide = Piece<kWidth>;
  const int lane = threadIdx.x % 32, row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= rows) return;
  const int pieces = columns / kWidth;
  const int64_t first = int64_t(row) * pieces;

  // Both reads, before any of it is needed.
  Wide values[kPieces], gates[kPieces];
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int i = lane + p * 32;
    values[p] = i < pieces ? reinterpret_cast<const Wide*>(x)[first + i] : Wide{};
    gates[p] = i < pieces ? reinterpret_cast<const Wide*>(gate)[first + i] : Wide{};
  }

  // What is gated, and its squares. Beyond the row's end x is 0.
  float gated[kPieces][kWidth], squares = 0.0f;
#pragma unroll
  for (int p = 0; p < kPieces; ++p)
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      const float z = __half2float(gates[p].element[e]);
      gated[p][e] = __half2float(values[p].element[e]) * (z / (1.0f + expf(-z)));
      squares += gated[p][e] * gated[p][e];
    }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    squares += __shfl_xor_sync(0xffffffffu, squares, distance);
  const float factor = rsqrtf(squares / float(columns) + epsilon);

  // The only store.
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int i = lane + p * 32;
    if (i >= pieces) continue;
    const Wide weights = reinterpret_cast<const Wide*>(weight)[i];
    Wide result;
#pragma unroll
    for (int e = 0; e < kWidth; ++e)
      result.element[e] = __float2half(gated[p][e] * factor * __half2float(weights.element[e]));
    reinterpret_cast<Wide*>(y)[first + i] = result;
  }
}
// END

// y = h / sqrt(mean of h² + epsilon) · weight with h = x · gate / (1 + exp(-gate)); the mean is the
// row's.
//   x, gate, y   [rows, columns] fp16
//   weight       [columns] fp16; all contiguous, on the device, starting at a multiple of 16 bytes
//   shape        rows; columns from 64 to 1024, any number; epsilon
//   stream       for all that is launched
inline void gated_rms_norm(const half* x, const half* gate, const half* weight, half* y,
                           const LayerNormShape& shape, cudaStream_t stream) {
  // STARTER
  //| // HOLE: all of it. Kernels go above this function, their launches here.
  //| (void)x, (void)gate, (void)weight, (void)y, (void)shape, (void)stream;
  // SOLUTION
  const int blocks = (shape.rows + kWarps - 1) / kWarps;
  // Rows that are not whole pieces of 16 bytes do not begin at multiples of them.
  const auto kernel = shape.columns % 8 != 0     ? gated_rms_norm_kernel<1, 32>
                      : shape.columns <= 256     ? gated_rms_norm_kernel<8, 1>
                      : shape.columns <= 3 * 256 ? gated_rms_norm_kernel<8, 3>
                                                 : gated_rms_norm_kernel<8, 4>;
  kernel<<<blocks, kThreads, 0, stream>>>(x, gate, weight, y, shape.rows, shape.columns,
                                          shape.epsilon);
  // END
}

}  // namespace exercise
// STARTER
//|
//| // Hints, one after the other: go on to the next when you are stuck.
//| //
//| // 1. Which numbers must be known before the first element of a row can be stored? Who has all of
//| //    them, if a warp takes a row, and how do its lanes add up?
//| // 2. A row of 768 is 24 elements a lane. Where can they wait until the sum is known?
//| // 3. Squares of fp16 numbers: 300² is more than fp16 holds. And a sum of 768 of them has more digits
//| //    than fp16 has.
//| // 4. Wrong only where columns are no multiple of 8? Then the second row does not begin at a multiple
//| //    of 16 bytes.
//| // 5. Wrong only where columns are few? A lane without an element of the row adds nothing to the sum,
//| //    and the mean is divided by columns, not by what lanes have room for.
// END
