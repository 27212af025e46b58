// Step 2, registers: the tensor cores' own instruction, mma.sync, in place of WMMA. Which lane
// holds which element is documented now, so that sums go from registers to y without a way through
// shared memory, and ldmatrix brings four times 8 x 8 halves of an operand in one instruction.
//
//   for each slice of k:
//     x, weight  →  shared   16 bytes a thread, padded rows
//     sums += x weightᵀ      a warp has 64 x 64 outputs: 32 products for 8 ldmatrix
//   sums  →  y               two neighbouring columns a lane
//
// Every thread waits for the slice that it has just asked for; nobody multiplies meanwhile.
#pragma once

#include "parts/block_tile.cuh"
#include "parts/finish.cuh"

namespace mlp {

template <class Element>
__global__ void __launch_bounds__(LargeTile::kThreads, LargeTile::kBlocks)
    registers_kernel(const Element* __restrict__ x,       // [m, k]
                     const Element* __restrict__ weight,  // [n, k]
                     Element* __restrict__ y,             // [m, n]
                     int m, int n, int k) {
  using T = LargeTile;
  constexpr int kSlice = T::kSlice<Element>;
  __shared__ Stage<Element, T, tile::Padded> stage;
  const Place<T> place(n);
  const RowPieces<T::kThreads, decltype(stage.x)> of_x(place.first_row, m, k);
  const RowPieces<T::kThreads, decltype(stage.weight)> of_weight(place.first_column, n, k);
  WarpSums<T> sums;
  for (int depth = 0; depth < k; depth += kSlice) {
    of_x.load(x, depth, k, stage.x);
    of_weight.load(weight, depth, k, stage.weight);
    __syncthreads();
#pragma unroll
    for (int step = 0; step < decltype(stage.x)::kPieces / 2; ++step) {
      Operands<T, Element> operands;
      operands.load(stage, step, place);
      operands.multiply(sums);
    }
    __syncthreads();  // before the next slice is stored
  }
  store_sums<T>(sums, y, m, n, place);
}

// y = x weightᵀ. Any m and n; rows of x and weight whole pieces of 16 bytes, at multiples of that.
template <class Element>
void registers_product(const Element* x, const Element* weight, Element* y, const Shape& shape,
                       cudaStream_t stream) {
  using T = LargeTile;
  require_product(shape, x, weight, y);
  require_pieces(shape, x, weight, tile::kOfPiece<Element>);
  require_element<Element>();
  registers_kernel<Element>
      <<<blocks_of<T>(shape), T::kThreads, 0, stream>>>(x, weight, y, shape.m, shape.n, shape.k);
  require_launched(shape);
}

// y = act(x weightᵀ + bias) + residual. x [m, k], weight [n, k], bias [n] or null, residual [m, n]
// or null, y [m, n]; sums in fp32, floats are multiplied in tf32. Throws std::invalid_argument
// naming shape and limit when it cannot, std::runtime_error where the device has no tf32.
template <class Element>
void registers(const Element* x, const Element* weight, const Element* bias,
               const Element* residual, Element* y, const Shape& shape, cudaStream_t stream) {
  registers_product(x, weight, y, shape, stream);
  finish(bias, residual, y, shape, stream);
}

}  // namespace mlp
