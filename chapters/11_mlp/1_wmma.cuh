// Step 1, wmma: the product on the tensor cores by CUDA's own matrix functions. A block computes a
// tile of 64 x 64 outputs; its four warps have 32 x 32 each, four fragments of 16 x 16.
//
//   for each 32 columns of x and weight:
//     x_tile, weight_tile   shared fp16   loaded by all threads, 16 bytes each
//     sum += x_tile weight_tileᵀ          in fragments
//   sum  →  y_tile (shared fp32)  →  y    in a fragment no lane knows its row
//
// bias, GELU and residual follow in a launch of their own, which loads y and stores it again.
#pragma once

#include <mma.h>

#include "parts/finish.cuh"

namespace mlp {

constexpr int kWmmaTile = 64;  // rows and columns of a block
constexpr int kWmmaThreads = 128;
// Columns of x and weight in shared memory at a time, 64 bytes; and what lies behind each row, so
// that rows start in different banks.
template <class Element>
constexpr int kWmmaDepth = 64 / int(sizeof(Element));
template <class Element>
constexpr int kWmmaPad = 16 / int(sizeof(Element));
template <class Element>
using WmmaTile = Element[kWmmaTile][kWmmaDepth<Element> + kWmmaPad<Element>];

// What a fragment holds of such numbers, and how many columns: WMMA multiplies floats in tf32.
template <class Element>
struct WmmaInput {
  using Type = half;
  static constexpr int kColumns = 16;
  __device__ static Element rounded(Element value) { return value; }
};
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
template <>
struct WmmaInput<float> {
  using Type = nvcuda::wmma::precision::tf32;
  static constexpr int kColumns = 8;
  __device__ static float rounded(float v) { return nvcuda::wmma::__float_to_tf32(v); }
};
#endif

// Rows of [.., k] from global memory to a tile. Rows from `rows` and columns from `columns` on
// become zero. kAtOnce: elements a thread loads at a time, 16 bytes where k and the array's start
// allow it, or 1.
template <int kAtOnce, class Element>
__device__ void load_rows(const Element* from_global, int rows, int columns, int k,
                          WmmaTile<Element>& tile) {
  constexpr int kOfRow = kWmmaDepth<Element> / kAtOnce;  // loads
#pragma unroll
  for (int i = threadIdx.x; i < kWmmaTile * kOfRow; i += kWmmaThreads) {
    const int row = i / kOfRow, column = i % kOfRow * kAtOnce;
    const bool there = row < rows && column < columns;
    const Element* const from = from_global + int64_t(row) * k + column;
    if constexpr (kAtOnce > 1)
      *reinterpret_cast<uint4*>(&tile[row][column]) =
          there ? *reinterpret_cast<const uint4*>(from) : uint4{};
    else
      tile[row][column] = there ? *from : Element(0.0f);
  }
}

// A fragment of a tile, whose rows are those of x or the columns of its transposed weight.
template <class Fragment, class Element>
__device__ void load_fragment(Fragment& fragment, const WmmaTile<Element>& tile, int row,
                              int column) {
  nvcuda::wmma::load_matrix_sync(fragment, &tile[row][column],
                                 kWmmaDepth<Element> + kWmmaPad<Element>);
  for (auto& value : fragment.x) value = WmmaInput<Element>::rounded(value);
}

// The tile of one block.
template <class Element, int kAtOnce>
__device__ void wmma_tile(const Element* __restrict__ x,       // [m, k]
                          const Element* __restrict__ weight,  // [n, k]
                          Element* __restrict__ y,             // [m, n]
                          int m, int n, int k) {
  namespace wmma = nvcuda::wmma;
  using Input = WmmaInput<Element>;
  constexpr int kColumns = Input::kColumns;
  __shared__ alignas(32) WmmaTile<Element> x_tile;
  __shared__ alignas(32) WmmaTile<Element> weight_tile;
  __shared__ alignas(32) float y_tile[kWmmaTile][kWmmaTile + 8];

  // Neighbouring blocks have the same rows of x.
  const int tiles_across = (n + kWmmaTile - 1) / kWmmaTile;
  const int first_row = blockIdx.x / tiles_across * kWmmaTile;
  const int first_column = blockIdx.x % tiles_across * kWmmaTile;
  const int warp_row = threadIdx.x / 64 * 32, warp_column = threadIdx.x / 32 % 2 * 32;

  wmma::fragment<wmma::accumulator, 16, 16, kColumns, float> sum[2][2];
  for (auto& row : sum)
    for (auto& fragment : row) wmma::fill_fragment(fragment, 0.0f);

  for (int depth = 0; depth < k; depth += kWmmaDepth<Element>) {
    load_rows<kAtOnce>(x + int64_t(first_row) * k + depth, m - first_row, k - depth, k, x_tile);
    load_rows<kAtOnce>(weight + int64_t(first_column) * k + depth, n - first_column, k - depth, k,
                       weight_tile);
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kWmmaDepth<Element>; step += kColumns) {
      using Type = typename Input::Type;
      wmma::fragment<wmma::matrix_a, 16, 16, kColumns, Type, wmma::row_major> x_frag[2];
      wmma::fragment<wmma::matrix_b, 16, 16, kColumns, Type, wmma::col_major> weight_frag[2];
      for (int i = 0; i < 2; ++i) {
        load_fragment(x_frag[i], x_tile, warp_row + 16 * i, step);
        load_fragment(weight_frag[i], weight_tile, warp_column + 16 * i, step);
      }
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) wmma::mma_sync(sum[i][j], x_frag[i], weight_frag[j], sum[i][j]);
    }
    __syncthreads();  // before the tiles are loaded again
  }

  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      wmma::store_matrix_sync(&y_tile[warp_row + 16 * i][warp_column + 16 * j], sum[i][j],
                              kWmmaTile + 8, wmma::mem_row_major);
  __syncthreads();
  for (int i = threadIdx.x; i < kWmmaTile * kWmmaTile; i += kWmmaThreads) {
    const int row = i / kWmmaTile, column = i % kWmmaTile;
    if (first_row + row < m && first_column + column < n)
      y[int64_t(first_row + row) * n + first_column + column] = Element(y_tile[row][column]);
  }
}

template <class Element, int kAtOnce>
__global__ void __launch_bounds__(kWmmaThreads)
    wmma_kernel(const Element* __restrict__ x, const Element* __restrict__ weight,
                Element* __restrict__ y, int m, int n, int k) {
#if __CUDA_ARCH__ < 800
  if constexpr (std::is_same_v<Element, float>)
    __trap();  // no tf32: nobody launches it
  else
#endif
    wmma_tile<Element, kAtOnce>(x, weight, y, m, n, k);
}

// y = x weightᵀ. Any m, n, k.
template <class Element>
void wmma_product(const Element* x, const Element* weight, Element* y, const Shape& shape,
                  cudaStream_t stream) {
  constexpr int kOfPiece = 16 / int(sizeof(Element));
  require_product(shape, x, weight, y);
  require_element<Element>();
  const int64_t blocks = int64_t(divide_up(shape.m, kWmmaTile)) * divide_up(shape.n, kWmmaTile);
  const bool pieces = shape.k % kOfPiece == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0 &&
                      reinterpret_cast<uintptr_t>(weight) % 16 == 0;
  (pieces ? wmma_kernel<Element, kOfPiece>
          : wmma_kernel<Element, 1>)<<<unsigned(blocks), kWmmaThreads, 0, stream>>>(
      x, weight, y, shape.m, shape.n, shape.k);
  require_launched(shape);
}

// y = act(x weightᵀ + bias) + residual. x [m, k], weight [n, k], bias [n] or null, residual [m, n]
// or null, y [m, n]; sums in fp32, floats are multiplied in tf32. Throws std::invalid_argument
// naming shape and limit when it cannot, std::runtime_error where the device has no tf32.
template <class Element>
void wmma(const Element* x, const Element* weight, const Element* bias, const Element* residual,
          Element* y, const Shape& shape, cudaStream_t stream) {
  wmma_product(x, weight, y, shape, stream);
  finish(bias, residual, y, shape, stream);
}

}  // namespace mlp
