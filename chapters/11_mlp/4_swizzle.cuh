// Step 4, swizzle: tiles of shared memory without the piece of padding behind each row. A row's
// pieces of 16 bytes lie in an order of their own instead:
//
//   rows of 128 bytes, all 32 banks; where pieces 0 and 1 of each row lie:
//
//     padded                      swizzled: piece p at p ^ (row % 8)
//     row 0 |0 1 . . . . . .      row 0 |0 1 . . . . . .
//     row 1 |_ 0 1 . . . . .      row 1 |1 0 . . . . . .
//     row 2 |. _ 0 1 . . . .      row 2 |. . 0 1 . . . .
//     row 3 |. . _ 0 1 . . .      row 3 |. . 1 0 . . . .
//
// Down a column of either picture each piece stands once in eight rows: ldmatrix reads it in one
// turn. But a row takes 128 bytes here and 144 there: three stages of 128 x 128 outputs are 96 KiB
// in place of 108, which fit where a block has 99 KiB at most (compute capability 8.6, 8.9, 12.0).
#pragma once

#include "3_pipeline.cuh"

namespace mlp {

template <class Element>
void swizzle_product(const Element* x, const Element* weight, Element* y, const Shape& shape,
                     cudaStream_t stream) {
  pipeline_product<tile::Swizzled>(x, weight, y, shape, stream);
}

// y = act(x weightᵀ + bias) + residual. x [m, k], weight [n, k], bias [n] or null, residual [m, n]
// or null, y [m, n]; sums in fp32, floats are multiplied in tf32. Throws std::invalid_argument
// naming shape and limit when it cannot, std::runtime_error where the device has no tf32.
template <class Element>
void swizzle(const Element* x, const Element* weight, const Element* bias, const Element* residual,
             Element* y, const Shape& shape, cudaStream_t stream) {
  swizzle_product(x, weight, y, shape, stream);
  finish(bias, residual, y, shape, stream);
}

}  // namespace mlp
