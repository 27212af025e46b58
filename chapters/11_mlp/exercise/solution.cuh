// STARTER
//| // Exercise 11: a gated product. Newer transformers have two first layers in their MLP, and one is
//| // the other's gate:
//| //
//| //   y = gelu(x gateᵀ) ∘ (x upᵀ)         ∘: element by element
//| //
//| // Two launches would load x twice, store both products and load them again. One kernel can multiply
//| // each slice of x with the slices of both weights, and the gate meets its product in registers.
//| //
//| // The kernel is the chapter's third step on tiles of 64 x 64, cut down to one product. Fill the
//| // four holes, then `make exercise11 && ./run`. Besides right results you are asked for one launch,
//| // x asked for once a tile, y stored once, and no bank conflict.
// SOLUTION
// Our solution of exercise 11, a gated product: y = gelu(x gateᵀ) ∘ (x upᵀ) in one launch.
// END
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "../../../common/tile/tile.cuh"
#include "../shape.h"

namespace exercise {

constexpr int kTile = 64, kSlice = 64;  // rows and columns of a block; columns of x at a time
constexpr int kWarpTile = 32;           // rows and columns of a warp
constexpr int kThreads = 128, kStages = 3;

using Tile = tile::SharedTile<half, kTile, kSlice, tile::Swizzled>;
struct Stage {
  // STARTER
  //| Tile x, gate;  // hole 1: up has a tile, too
  // SOLUTION
  Tile x, gate, up;
  // END
};

// GELU, exactly.
__device__ inline float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); }

// This thread's copies of a slice of `array` [rows, k]: 64 rows from first_row on, 64 columns from
// `depth` on. Rows beyond the array are its last one again, columns beyond it are zeros.
__device__ inline void copy_slice(const half* array, int first_row, int rows, int depth, int k,
                                  const Tile& to) {
  for (int i = threadIdx.x; i < kTile * Tile::kPieces; i += kThreads) {
    const int row = i / Tile::kPieces, piece = i % Tile::kPieces, column = depth + 8 * piece;
    tile::copy_async(to.address(row, piece),
                     array + int64_t(min(first_row + row, rows - 1)) * k + column, column < k);
  }
}

using Sums = tile::Sums[2][4];  // a warp's 32 x 32 outputs

// sums += the warp's rows of a slice of x times its rows of a slice of a weight.
__device__ inline void multiply_slice(Sums& sums, const Tile& x, const Tile& weight, int warp_row,
                                      int warp_column) {
#pragma unroll
  for (int piece = 0; piece < Tile::kPieces; piece += 2) {
    tile::LeftFragment<half> left[2];
    tile::RightFragment<half> right[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      tile::load_left(left[i], x, warp_row + 16 * i, piece);
      tile::load_right(right[i], weight, warp_column + 16 * i, piece);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) tile::multiply_add(sums[i][j], left[i], right[j / 2][j % 2]);
  }
}

__global__ void __launch_bounds__(kThreads) gated_kernel(const half* __restrict__ x,     // [m, k]
                                                         const half* __restrict__ gate,  // [n, k]
                                                         const half* __restrict__ up,    // [n, k]
                                                         half* __restrict__ y,           // [m, n]
                                                         int m, int n, int k) {
  extern __shared__ uint4 shared[];
  Stage* const memory = reinterpret_cast<Stage*>(shared);
  const int across = (n + kTile - 1) / kTile, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_row = blockIdx.x / across * kTile, first_column = blockIdx.x % across * kTile;
  const int warp_row = warp / 2 * kWarpTile, warp_column = warp % 2 * kWarpTile;

  const auto copy = [&](int slice, Stage& to) {
    if (slice * kSlice < k) {
      copy_slice(x, first_row, m, slice * kSlice, k, to.x);
      copy_slice(gate, first_column, n, slice * kSlice, k, to.gate);
      // STARTER
      //| // hole 2: the slice of up comes with the same group of copies
      // SOLUTION
      copy_slice(up, first_column, n, slice * kSlice, k, to.up);
      // END
    }
    tile::end_copies();
  };
  // STARTER
  //| Sums gates;  // hole 3: sums of x upᵀ, too
  // SOLUTION
  Sums gates, ups;
  // END
  tile::Stages<kStages> stages;
  for (int slice = 0; slice < stages.kAhead; ++slice) copy(slice, memory[slice]);
  for (int slice = 0; slice * kSlice < k; ++slice) {
    stages.wait();
    copy(slice + stages.kAhead, memory[stages.write]);
    const Stage& stage = memory[stages.read];
    multiply_slice(gates, stage.x, stage.gate, warp_row, warp_column);
    // SOLUTION
    multiply_slice(ups, stage.x, stage.up, warp_row, warp_column);
    // END
    stages.next();
  }

#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int row = first_row + warp_row + 16 * i + tile::Sums::row(lane, v);
        const int column = first_column + warp_column + 8 * j + tile::Sums::column(lane, v);
        // STARTER
        //| // hole 4: the product of both, in fp32, and rounded once
        //| const float result = gelu(gates[i][j].value[v]);
        // SOLUTION
        const float result = gelu(gates[i][j].value[v]) * ups[i][j].value[v];
        // END
        if (row < m && column < n) y[int64_t(row) * n + column] = __float2half(result);
      }
}

// y = gelu(x gateᵀ) ∘ (x upᵀ). Any m and n; k a multiple of 8.
inline void gated(const half* x, const half* gate, const half* up, half* y,
                  const ProductShape& shape, cudaStream_t stream) {
  require_shape(shape);
  require_pieces(shape, x, gate, 8);
  constexpr int kBytes = kStages * int(sizeof(Stage));
  cudaFuncSetAttribute(gated_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  const unsigned blocks =
      unsigned((shape.m + kTile - 1) / kTile) * unsigned((shape.n + kTile - 1) / kTile);
  gated_kernel<<<blocks, kThreads, kBytes, stream>>>(x, gate, up, y, shape.m, shape.n, shape.k);
}

}  // namespace exercise
