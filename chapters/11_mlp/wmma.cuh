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

#include "finish.cuh"

namespace mlp {

constexpr int kWmmaTile = 64;   // rows and columns of a block
constexpr int kWmmaDepth = 32;  // of k in shared memory at a time
constexpr int kWmmaThreads = 128;
constexpr int kWmmaPad = 8;  // halves behind each row, so that rows start in different banks

// Rows of [.., k] from global memory to a tile. Rows from `rows` and columns from `columns` on
// become zero. kAtOnce: halves a thread
// loads at a time, 8 where k and the array's start allow it, or 1.
template <int kAtOnce>
__device__ void load_rows(const half* from_global, int rows, int columns, int k,
                          half (*tile)[kWmmaDepth + kWmmaPad]) {
  constexpr int kOfRow = kWmmaDepth / kAtOnce;  // loads
#pragma unroll
  for (int i = threadIdx.x; i < kWmmaTile * kOfRow; i += kWmmaThreads) {
    const int row = i / kOfRow, column = i % kOfRow * kAtOnce;
    const bool there = row < rows && column < columns;
    const half* const from = from_global + int64_t(row) * k + column;
    if constexpr (kAtOnce == 8)
      *reinterpret_cast<uint4*>(&tile[row][column]) =
          there ? *reinterpret_cast<const uint4*>(from) : uint4{};
    else
      tile[row][column] = there ? *from : __float2half(0.0f);
  }
}

template <int kAtOnce>
__global__ void __launch_bounds__(kWmmaThreads)
    wmma_kernel(const half* __restrict__ x,       // [m, k]
                const half* __restrict__ weight,  // [n, k]
                half* __restrict__ y,             // [m, n]
                int m, int n, int k) {
  namespace wmma = nvcuda::wmma;
  __shared__ alignas(32) half x_tile[kWmmaTile][kWmmaDepth + kWmmaPad];
  __shared__ alignas(32) half weight_tile[kWmmaTile][kWmmaDepth + kWmmaPad];
  __shared__ alignas(32) float y_tile[kWmmaTile][kWmmaTile + kWmmaPad];

  // Neighbouring blocks have the same rows of x.
  const int tiles_across = (n + kWmmaTile - 1) / kWmmaTile;
  const int first_row = blockIdx.x / tiles_across * kWmmaTile;
  const int first_column = blockIdx.x % tiles_across * kWmmaTile;
  const int warp_row = threadIdx.x / 64 * 32, warp_column = threadIdx.x / 32 % 2 * 32;

  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][2];
  for (auto& row : sum)
    for (auto& fragment : row) wmma::fill_fragment(fragment, 0.0f);

  for (int depth = 0; depth < k; depth += kWmmaDepth) {
    load_rows<kAtOnce>(x + int64_t(first_row) * k + depth, m - first_row, k - depth, k, x_tile);
    load_rows<kAtOnce>(weight + int64_t(first_column) * k + depth, n - first_column, k - depth, k,
                       weight_tile);
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kWmmaDepth; step += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x_frag[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> weight_frag[2];
      for (int i = 0; i < 2; ++i) {
        wmma::load_matrix_sync(x_frag[i], &x_tile[warp_row + 16 * i][step], kWmmaDepth + kWmmaPad);
        wmma::load_matrix_sync(weight_frag[i], &weight_tile[warp_column + 16 * i][step],
                               kWmmaDepth + kWmmaPad);
      }
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) wmma::mma_sync(sum[i][j], x_frag[i], weight_frag[j], sum[i][j]);
    }
    __syncthreads();  // before the tiles are loaded again
  }

  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      wmma::store_matrix_sync(&y_tile[warp_row + 16 * i][warp_column + 16 * j], sum[i][j],
                              kWmmaTile + kWmmaPad, wmma::mem_row_major);
  __syncthreads();
  for (int i = threadIdx.x; i < kWmmaTile * kWmmaTile; i += kWmmaThreads) {
    const int row = i / kWmmaTile, column = i % kWmmaTile;
    if (first_row + row < m && first_column + column < n)
      y[int64_t(first_row + row) * n + first_column + column] = __float2half(y_tile[row][column]);
  }
}

// y = x weightᵀ. Any m, n, k.
inline void wmma_product(const half* x, const half* weight, half* y, const Shape& shape,
                         cudaStream_t stream) {
  require_product(shape, x, weight, y);
  const int64_t blocks = int64_t(divide_up(shape.m, kWmmaTile)) * divide_up(shape.n, kWmmaTile);
  const bool pieces = shape.k % 8 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0 &&
                      reinterpret_cast<uintptr_t>(weight) % 16 == 0;
  (pieces ? wmma_kernel<8> : wmma_kernel<1>)<<<unsigned(blocks), kWmmaThreads, 0, stream>>>(
      x, weight, y, shape.m, shape.n, shape.k);
  require_launched(shape);
}

// y = act(x weightᵀ + bias) + residual. x [m, k], weight [n, k], bias [n] or null, residual [m, n]
// or null, y [m, n]; sums in fp32. Throws std::invalid_argument naming shape and limit when it
// cannot.
inline void wmma(const half* x, const half* weight, const half* bias, const half* residual, half* y,
                 const Shape& shape, cudaStream_t stream) {
  wmma_product(x, weight, y, shape, stream);
  finish(bias, residual, y, shape, stream);
}

}  // namespace mlp
