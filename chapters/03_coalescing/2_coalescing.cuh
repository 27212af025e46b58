// Chapter 3, coalescing, step two: the loads of step one, and the work dealt out anew:
//
//   s = scale Q Kᵀ       scores of the tile        a warp has 4 rows of its own, a lane 2 keys
//   s = softmax so far   online softmax            32 lanes have one row
//   O = factor O + s V   rescaled and added up     a lane has head_dim/32 columns of these 4 rows
//
// A lane's 8 scores, of 2 keys and 4 rows, take 6 loads of shared memory; 1 key and 8 rows would
// take 9. A warp reads only its own weights, so the block's barriers guard Q, K and V alone.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "../../common/attention/launch.cuh"
#include "../../common/attention/shape.h"
#include "../02_tiling/parts/online_softmax.cuh"

namespace coalescing {

using tiling::OnlineSoftmax;

constexpr int kQueryRows = 16;  // queries per block
constexpr int kKeyTile = 64;    // keys in shared memory at a time
constexpr int kThreads = 128;   // per block
constexpr int kPad = 8;         // halves: 8 rows, 16 bytes of each, are in 32 different banks
constexpr int kWarps = kThreads / 32, kRowsPerWarp = kQueryRows / kWarps;

// What a block keeps in shared memory.
template <int kHeadDim>
struct Tiles {
  half q[kQueryRows][kHeadDim + kPad];
  half k[kKeyTile][kHeadDim + kPad];
  half v[kKeyTile][kHeadDim + kPad];
  float4 s[kWarps][kKeyTile];  // weights of one key for the 4 rows of a warp
};

// Copies rows of [.., head_dim] from global memory to a tile of kRows rows, 16 bytes a thread and
// neighbouring threads along head_dim. Rows from `valid` on become zero.
template <int kRows, int kHeadDim>
__device__ void load_rows(const half* rows_global, int valid, half (*tile)[kHeadDim + kPad]) {
  constexpr int kPieces = kHeadDim / 8;  // pieces of 16 bytes per row
  for (int i = threadIdx.x; i < kRows * kPieces; i += kThreads) {
    // Shared memory takes 16 bytes of eight neighbouring lanes at a time: a row or half a row, at
    // head_dim 32 two rows. These two are taken four rows apart, where they lie in different banks.
    int row = i / kPieces;
    if (kPieces < 8) row = row / 8 * 8 + row % 2 * 4 + row % 8 / 2;
    const int d = i % kPieces * 8;
    *reinterpret_cast<uint4*>(&tile[row][d]) =
        row < valid ? *reinterpret_cast<const uint4*>(rows_global + row * kHeadDim + d) : uint4{};
  }
}

// Eight neighbouring elements of a tile.
struct Float8 {
  float x[8];
};
__device__ inline Float8 load8(const half* tile) {
  const uint4 bits = *reinterpret_cast<const uint4*>(tile);
  const half2* pairs = reinterpret_cast<const half2*>(&bits);
  Float8 result;
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __half22float2(pairs[i]);
    result.x[2 * i] = pair.x;
    result.x[2 * i + 1] = pair.y;
  }
  return result;
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    attention_kernel(const half* Q,  // [batch, heads, tokens, head_dim], as all four
                     const half* K, const half* V, half* O, int tokens, float scale_log2) {
  // A block is one (batch, head) and 16 of its query rows.
  __shared__ Tiles<kHeadDim> tiles;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row_blocks = (tokens + kQueryRows - 1) / kQueryRows;
  const int first_row = blockIdx.x % row_blocks * kQueryRows;
  const int64_t matrix = int64_t(blockIdx.x / row_blocks) * tokens * kHeadDim;  // in elements

  // Q once. Rows past the last token are zero: nobody reads their results, but NaN must not arise.
  load_rows<kQueryRows, kHeadDim>(Q + matrix + int64_t(first_row) * kHeadDim, tokens - first_row,
                                  tiles.q);

  // Who computes what: a warp has 4 rows, a lane 2 keys, then columns lane, lane + 32, ...
  constexpr int kKeysPerLane = kKeyTile / 32, kColumnsPerLane = kHeadDim / 32;
  OnlineSoftmax<32> softmax[kRowsPerWarp];
  float output[kRowsPerWarp][kColumnsPerLane] = {};

  for (int first_key = 0; first_key < tokens; first_key += kKeyTile) {
    // Load: the block's 128 threads together, K and then V. Keys past the last token are zero,
    // since a weight of 0 does not save us from NaN in V.
    const int64_t first_element = matrix + int64_t(first_key) * kHeadDim;
    load_rows<kKeyTile, kHeadDim>(K + first_element, tokens - first_key, tiles.k);
    load_rows<kKeyTile, kHeadDim>(V + first_element, tokens - first_key, tiles.v);
    __syncthreads();

    // Scores: lanes take neighbouring keys, 16 bytes at a time; Q is the same for the whole warp.
    float score[kRowsPerWarp][kKeysPerLane] = {};
#pragma unroll 2
    for (int d = 0; d < kHeadDim; d += 8) {
      Float8 k[kKeysPerLane];
      for (int j = 0; j < kKeysPerLane; ++j) k[j] = load8(&tiles.k[lane + 32 * j][d]);
      for (int r = 0; r < kRowsPerWarp; ++r) {
        const Float8 q = load8(&tiles.q[warp * kRowsPerWarp + r][d]);
        for (int j = 0; j < kKeysPerLane; ++j)
          for (int i = 0; i < 8; ++i) score[r][j] += q.x[i] * k[j].x[i];
      }
    }
    for (int j = 0; j < kKeysPerLane; ++j)
      for (int r = 0; r < kRowsPerWarp; ++r)
        score[r][j] = first_key + lane + 32 * j < tokens ? score[r][j] * scale_log2 : -INFINITY;

    // Softmax: the weights of this tile, and what the larger maximum makes of the tiles before.
    for (int r = 0; r < kRowsPerWarp; ++r) {
      const float factor = softmax[r].update(score[r]);
      for (int c = 0; c < kColumnsPerLane; ++c) output[r][c] *= factor;
    }
    for (int j = 0; j < kKeysPerLane; ++j)
      tiles.s[warp][lane + 32 * j] =
          make_float4(score[0][j], score[1][j], score[2][j], score[3][j]);
    __syncwarp();

    // Update O: lanes take neighbouring columns; a weight is the same for the whole warp.
#pragma unroll 8
    for (int j = 0; j < kKeyTile; ++j) {
      alignas(16) float weight[kRowsPerWarp];
      reinterpret_cast<float4&>(weight) = tiles.s[warp][j];
      for (int c = 0; c < kColumnsPerLane; ++c) {
        const float v = __half2float(tiles.v[j][lane + 32 * c]);
        for (int r = 0; r < kRowsPerWarp; ++r) output[r][c] += weight[r] * v;
      }
    }
    __syncthreads();
  }

  // Write O once, divided by the sum of the weights.
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const float inverse_sum = softmax[r].inverse_sum();
    const int row = first_row + warp * kRowsPerWarp + r;
    for (int c = 0; c < kColumnsPerLane; ++c)
      if (row < tokens)
        O[matrix + int64_t(row) * kHeadDim + lane + 32 * c] =
            __float2half(output[r][c] * inverse_sum);
  }
}

// Q, K, V, O: [batch, heads, tokens, head_dim] fp16, contiguous; O = softmax(Q Kᵀ scale) V with
// fp32 accumulation. Q, K and V start at a multiple of 16 bytes. Throws std::invalid_argument
// naming what is wrong and the limit when it cannot, std::runtime_error when CUDA refuses.
inline void attention(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, cudaStream_t stream) {
  require_attention_shape(shape);
  require_alignment({Q, K, V}, "Q, K and V");
  const AttentionKernel kernel =
      kernel_for(shape.head_dim, attention_kernel<32>, attention_kernel<64>, attention_kernel<128>);
  kernel<<<blocks_for(shape, kQueryRows), kThreads, 0, stream>>>(Q, K, V, O, shape.tokens,
                                                                 log2_scale(shape));
  require_launched(cudaGetLastError(), shape);
}

}  // namespace coalescing
