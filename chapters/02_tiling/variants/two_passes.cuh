// Chapter 2, tried and not kept: no online softmax. The block walks over the keys twice, in tiles of 64:
//
//   pass 1   the maximum of each row      K, and all scores
//   pass 2   weights, their sum, and O    K and V, and all scores once more
//
// In the second pass the maximum is final. So O is never rescaled, and a tile needs three barriers
// instead of four. The price: K is loaded twice, and each score is computed twice.
#pragma once

#include "../kernel.cuh"

namespace two_passes {

using tiling::kKeyTile, tiling::kQueryRows, tiling::kThreads, tiling::Tiles;

constexpr int kScoreRows = kQueryRows * kKeyTile / kThreads;  // a thread has one key, for 8 rows

// Scores of the tile's key `key` with kScoreRows query rows from `row` on; -inf for a key past the end.
template <int kHeadDim>
__device__ void compute_scores(const Tiles<kHeadDim>& tiles, int key, int row, bool valid,
                               float scale_log2, float (&score)[kScoreRows]) {
  for (float& s : score) s = 0.0f;
  for (int d = 0; d < kHeadDim; d += 2) {
    const float2 k = __half22float2(*reinterpret_cast<const half2*>(&tiles.k[key][d]));
    for (int r = 0; r < kScoreRows; ++r) {
      const float2 q = __half22float2(*reinterpret_cast<const half2*>(&tiles.q[row + r][d]));
      score[r] += q.x * k.x + q.y * k.y;
    }
  }
  for (float& s : score) s = valid ? s * scale_log2 : -INFINITY;
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
  for (int i = thread; i < kQueryRows * kHeadDim; i += kThreads) {
    const int row = i / kHeadDim, d = i % kHeadDim;
    tiles.q[row][d] = first_row + row < tokens ? Q[matrix + int64_t(first_row + row) * kHeadDim + d]
                                               : __float2half(0.0f);
  }

  // Who computes what, as in tiling: scores of one key, the reductions of one row, one column of O.
  constexpr int kLanesPerRow = kThreads / kQueryRows;
  constexpr int kOutputRows = kQueryRows * kHeadDim / kThreads;
  const int key = thread % kKeyTile, score_row = thread / kKeyTile * kScoreRows;
  const int row_of_lane = thread / kLanesPerRow, lane_of_row = thread % kLanesPerRow;
  const int output_d = thread % kHeadDim, output_row = thread / kHeadDim * kOutputRows;
  float score[kScoreRows], row_max[kScoreRows], row_sum[kScoreRows] = {};
  for (float& largest : row_max) largest = -INFINITY;

  // Pass 1: K alone, half a row a thread. Each thread keeps the maximum over its own keys.
  for (int first_key = 0; first_key < tokens; first_key += kKeyTile) {
    const bool valid = first_key + key < tokens;
    const half* row_global = K + matrix + int64_t(first_key + key) * kHeadDim;
    const int first_d = thread / kKeyTile * kHeadDim / 2;
    for (int d = first_d; d < first_d + kHeadDim / 2; ++d)
      tiles.k[key][d] = valid ? row_global[d] : __float2half(0.0f);
    __syncthreads();
    compute_scores(tiles, key, score_row, valid, scale_log2, score);
    for (int r = 0; r < kScoreRows; ++r) row_max[r] = fmaxf(row_max[r], score[r]);
    __syncthreads();
  }

  // The maximum of a row, over its 64 threads.
  for (int r = 0; r < kScoreRows; ++r) tiles.s[score_row + r][key] = row_max[r];
  __syncthreads();
  float largest = -INFINITY;
  for (int i = lane_of_row; i < kKeyTile; i += kLanesPerRow)
    largest = fmaxf(largest, tiles.s[row_of_lane][i]);
  for (int step = kLanesPerRow / 2; step > 0; step /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  if (lane_of_row == 0) tiles.factor[row_of_lane] = largest;
  __syncthreads();
  for (int r = 0; r < kScoreRows; ++r) row_max[r] = tiles.factor[score_row + r];

  // Pass 2: K and V as in tiling. Weights are final, and no sum is ever rescaled.
  float output[kOutputRows] = {};
  for (int first_key = 0; first_key < tokens; first_key += kKeyTile) {
    const bool loads_k = thread < kKeyTile, valid = first_key + key < tokens;
    const half* row_global = (loads_k ? K : V) + matrix + int64_t(first_key + key) * kHeadDim;
    half* row_tile = loads_k ? tiles.k[key] : tiles.v[key];
    for (int d = 0; d < kHeadDim; ++d) row_tile[d] = valid ? row_global[d] : __float2half(0.0f);
    __syncthreads();
    compute_scores(tiles, key, score_row, valid, scale_log2, score);
    for (int r = 0; r < kScoreRows; ++r) {
      const float weight = exp2f(score[r] - row_max[r]);
      row_sum[r] += weight;
      tiles.s[score_row + r][key] = weight;
    }
    __syncthreads();
    for (int j = 0; j < kKeyTile; ++j) {
      const float v = __half2float(tiles.v[j][output_d]);
      for (int r = 0; r < kOutputRows; ++r) output[r] += tiles.s[output_row + r][j] * v;
    }
    __syncthreads();
  }

  // The sum of a row's weights, then O.
  for (int r = 0; r < kScoreRows; ++r) tiles.s[score_row + r][key] = row_sum[r];
  __syncthreads();
  float sum = 0.0f;
  for (int i = lane_of_row; i < kKeyTile; i += kLanesPerRow) sum += tiles.s[row_of_lane][i];
  for (int step = kLanesPerRow / 2; step > 0; step /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane_of_row == 0) tiles.factor[row_of_lane] = 1.0f / sum;
  __syncthreads();
  for (int r = 0; r < kOutputRows; ++r) {
    const int row = first_row + output_row + r;
    if (row < tokens)
      O[matrix + int64_t(row) * kHeadDim + output_d] =
          __float2half(output[r] * tiles.factor[output_row + r]);
  }
}

// As tiling::attention().
inline void attention(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, cudaStream_t stream) {
  require_attention_shape(shape);
  const AttentionKernel kernel =
      kernel_for(shape.head_dim, attention_kernel<32>, attention_kernel<64>, attention_kernel<128>);
  kernel<<<blocks_for(shape, kQueryRows), kThreads, 0, stream>>>(Q, K, V, O, shape.tokens,
                                                                 log2_scale(shape));
  require_launched(cudaGetLastError(), shape);
}

}  // namespace two_passes
