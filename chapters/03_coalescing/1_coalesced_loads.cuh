// Chapter 3, coalescing, step one: coalesced loads of 16 bytes, and the work dealt out as in chapter 2:
//
//   s = scale Q Kᵀ       scores of the tile        a thread has one key, for 8 rows
//   s = softmax so far   online softmax            8 lanes have one row
//   O = factor O + s V   rescaled and added up     a thread has one column, head_dim/8 rows
//
// One load of a warp brings 512 bytes from 16 sectors and uses all of them. Chapter 2 needs 8 loads for
// as many bytes, and each of them touches 32 sectors.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "../../common/attention/launch.cuh"
#include "../../common/attention/shape.h"
#include "../02_tiling/parts/online_softmax.cuh"

namespace coalesced_loads {

using tiling::OnlineSoftmax;

constexpr int kQueryRows = 16;  // queries per block
constexpr int kKeyTile = 64;    // keys in shared memory at a time
constexpr int kThreads = 128;   // per block
constexpr int kPad = 8;         // halves: 8 rows, 16 bytes of each, are in 32 different banks
constexpr int kScorePad = 8;    // floats: 4 rows, read by 8 lanes each, are in 32 different banks

// What a block keeps in shared memory.
template <int kHeadDim>
struct Tiles {
  half q[kQueryRows][kHeadDim + kPad];
  half k[kKeyTile][kHeadDim + kPad];
  half v[kKeyTile][kHeadDim + kPad];
  float s[kQueryRows][kKeyTile + kScorePad];  // scores, then weights
  float factor[kQueryRows];                   // what the rows of O must be multiplied with
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
  const int thread = threadIdx.x;
  const int row_blocks = (tokens + kQueryRows - 1) / kQueryRows;
  const int first_row = blockIdx.x % row_blocks * kQueryRows;
  const int64_t matrix = int64_t(blockIdx.x / row_blocks) * tokens * kHeadDim;  // in elements

  // Q once. Rows past the last token are zero: nobody reads their results, but NaN must not arise.
  load_rows<kQueryRows, kHeadDim>(Q + matrix + int64_t(first_row) * kHeadDim, tokens - first_row,
                                  tiles.q);

  // Who computes what: scores of one key, the softmax of one row, one column of O.
  constexpr int kScoreRows = kQueryRows * kKeyTile / kThreads, kLanesPerRow = kThreads / kQueryRows;
  constexpr int kOutputRows = kQueryRows * kHeadDim / kThreads;
  const int score_key = thread % kKeyTile, score_row = thread / kKeyTile * kScoreRows;
  const int softmax_row = thread / kLanesPerRow, softmax_lane = thread % kLanesPerRow;
  const int output_d = thread % kHeadDim, output_row = thread / kHeadDim * kOutputRows;
  OnlineSoftmax<kLanesPerRow> softmax;
  float output[kOutputRows] = {};

  for (int first_key = 0; first_key < tokens; first_key += kKeyTile) {
    // Load: the block's 128 threads together, K and then V. Keys past the last token are zero,
    // since a weight of 0 does not save us from NaN in V.
    const int64_t first_element = matrix + int64_t(first_key) * kHeadDim;
    load_rows<kKeyTile, kHeadDim>(K + first_element, tokens - first_key, tiles.k);
    load_rows<kKeyTile, kHeadDim>(V + first_element, tokens - first_key, tiles.v);
    __syncthreads();

    // Scores: lanes take neighbouring keys, 16 bytes at a time; Q is the same for the whole warp.
    float score[kScoreRows] = {};
    for (int d = 0; d < kHeadDim; d += 8) {
      const Float8 k = load8(&tiles.k[score_key][d]);
      for (int r = 0; r < kScoreRows; ++r) {
        const Float8 q = load8(&tiles.q[score_row + r][d]);
        for (int i = 0; i < 8; ++i) score[r] += q.x[i] * k.x[i];
      }
    }
    for (int r = 0; r < kScoreRows; ++r)
      tiles.s[score_row + r][score_key] =
          first_key + score_key < tokens ? score[r] * scale_log2 : -INFINITY;
    __syncthreads();

    // Softmax: the weights of this tile, and what the larger maximum makes of the tiles before.
    float weight[kKeyTile / kLanesPerRow];
    for (int i = 0; i < kKeyTile / kLanesPerRow; ++i)
      weight[i] = tiles.s[softmax_row][softmax_lane + i * kLanesPerRow];
    const float factor = softmax.update(weight);
    for (int i = 0; i < kKeyTile / kLanesPerRow; ++i)
      tiles.s[softmax_row][softmax_lane + i * kLanesPerRow] = weight[i];
    if (softmax_lane == 0) tiles.factor[softmax_row] = factor;
    __syncthreads();

    // Update O: lanes take neighbouring columns; a weight is the same for the whole warp.
    for (int r = 0; r < kOutputRows; ++r) output[r] *= tiles.factor[output_row + r];
    for (int j = 0; j < kKeyTile; ++j) {
      const float v = __half2float(tiles.v[j][output_d]);
      for (int r = 0; r < kOutputRows; ++r) output[r] += tiles.s[output_row + r][j] * v;
    }
    __syncthreads();
  }

  // Write O once, divided by the sum of the weights.
  const float inverse_sum = softmax.inverse_sum();
  if (softmax_lane == 0) tiles.factor[softmax_row] = inverse_sum;
  __syncthreads();
  for (int r = 0; r < kOutputRows; ++r) {
    const int row = first_row + output_row + r;
    if (row < tokens)
      O[matrix + int64_t(row) * kHeadDim + output_d] =
          __float2half(output[r] * tiles.factor[output_row + r]);
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

}  // namespace coalesced_loads
