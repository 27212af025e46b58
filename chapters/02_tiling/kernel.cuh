// Chapter 2, tiling: attention in one kernel. A block takes 16 query rows and walks over the keys
// in tiles of 64, which all of its rows share in shared memory:
//
//   s = scale Q Kᵀ       scores of the tile        a thread has one key, for 8 rows
//   s = softmax so far   online softmax            8 lanes have one row
//   O = factor O + s V   rescaled and added up     a thread has one column, head_dim/8 rows
//
// The tokens x tokens matrix never leaves the chip: the only stores are O. A flaw is left: a thread
// loads one key's row, element by element. So the 32 lanes of a warp ask for 32 sectors at a time and
// use 2 bytes of each.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "../../common/attention/launch.cuh"
#include "../../common/attention/shape.h"
#include "parts/online_softmax.cuh"

namespace tiling {

constexpr int kQueryRows = 16;  // queries per block
constexpr int kKeyTile = 64;    // keys in shared memory at a time
constexpr int kThreads = 128;   // per block
constexpr int kPad = 2;         // halves: rows of an odd number of words start in different banks
constexpr int kScorePad = 8;    // floats: 4 rows, read by 8 lanes each, are in 32 different banks

// What a block keeps in shared memory.
template <int kHeadDim>
struct Tiles {
  half q[kQueryRows][kHeadDim];
  half k[kKeyTile][kHeadDim + kPad];
  half v[kKeyTile][kHeadDim + kPad];
  float s[kQueryRows][kKeyTile + kScorePad];  // scores, then weights
  float factor[kQueryRows];                   // what the rows of O must be multiplied with
};

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
  for (int i = thread; i < kQueryRows * kHeadDim; i += kThreads) {
    const int row = i / kHeadDim, d = i % kHeadDim;
    tiles.q[row][d] = first_row + row < tokens ? Q[matrix + int64_t(first_row + row) * kHeadDim + d]
                                               : __float2half(0.0f);
  }

  // Who computes what: scores of one key, the softmax of one row, one column of O.
  constexpr int kScoreRows = kQueryRows * kKeyTile / kThreads, kLanesPerRow = kThreads / kQueryRows;
  constexpr int kOutputRows = kQueryRows * kHeadDim / kThreads;
  const int score_key = thread % kKeyTile, score_row = thread / kKeyTile * kScoreRows;
  const int softmax_row = thread / kLanesPerRow, softmax_lane = thread % kLanesPerRow;
  const int output_d = thread % kHeadDim, output_row = thread / kHeadDim * kOutputRows;
  OnlineSoftmax<kLanesPerRow> softmax;
  float output[kOutputRows] = {};

  for (int first_key = 0; first_key < tokens; first_key += kKeyTile) {
    // Load: one thread, one row, the lower half of the block from K, the upper half from V. Keys
    // past the last token are zero, since a weight of 0 does not save us from NaN in V.
    const int key = thread % kKeyTile;
    const bool loads_k = thread < kKeyTile;
    const half* row_global = (loads_k ? K : V) + matrix + int64_t(first_key + key) * kHeadDim;
    half* row_tile = loads_k ? tiles.k[key] : tiles.v[key];
    for (int d = 0; d < kHeadDim; ++d)
      row_tile[d] = first_key + key < tokens ? row_global[d] : __float2half(0.0f);
    __syncthreads();

    // Scores: lanes take neighbouring keys; an element of Q is the same for the whole warp.
    float score[kScoreRows] = {};
    for (int d = 0; d < kHeadDim; d += 2) {
      const float2 k = __half22float2(*reinterpret_cast<half2*>(&tiles.k[score_key][d]));
      for (int r = 0; r < kScoreRows; ++r) {
        const float2 q = __half22float2(*reinterpret_cast<half2*>(&tiles.q[score_row + r][d]));
        score[r] += q.x * k.x + q.y * k.y;
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
// fp32 accumulation. Throws std::invalid_argument naming the shape and the limit when it cannot,
// std::runtime_error when CUDA refuses the launch.
inline void attention(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, cudaStream_t stream) {
  require_attention_shape(shape);
  const AttentionKernel kernel =
      kernel_for(shape.head_dim, attention_kernel<32>, attention_kernel<64>, attention_kernel<128>);
  kernel<<<blocks_for(shape, kQueryRows), kThreads, 0, stream>>>(Q, K, V, O, shape.tokens,
                                                                 log2_scale(shape));
  require_launched(cudaGetLastError(), shape);
}

}  // namespace tiling
