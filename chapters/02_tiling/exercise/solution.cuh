// STARTER
//| // Exercise 2: causal attention. When tokens are words in a row, or the frames of a film, none may
//| // look ahead: query i sees the keys 0 to i and no other. Their weights are softmax over those keys
//| // alone.
//| //
//| //   O[i] = Σ_j<=i weight[i][j] V[j]        weight[i] = softmax over j <= i of scale Q[i]·K[j]
//| //
//| // The kernel is the chapter's for head_dim 64, with three holes. Fill them, then
//| // `make exercise2 && ./run`. Besides right results you are asked not to load tiles that nobody
//| // sees: half of all the keys, once there are many.
// SOLUTION
// Exercise 2, causal attention: a solution. The exercise itself is in exercise.cuh.
// END
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "../../../common/attention/shape.h"

namespace exercise {

constexpr int kHeadDim = 64;
constexpr int kQueryRows = 16;  // queries per block
constexpr int kKeyTile = 64;    // keys in shared memory at a time
constexpr int kThreads = 128;   // per block
constexpr int kLanes = 8;       // neighbouring threads that share a row in the softmax
constexpr int kPad = 2;         // halves: rows of an odd number of words start in different banks
constexpr int kScorePad = 8;    // floats: four rows of scores, 8 lanes each, use all 32 banks

// The largest of 8 neighbouring lanes' values, and their sum, in all 8 lanes.
__device__ inline float row_maximum(float x) {
  for (int step = kLanes / 2; step > 0; step /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}
__device__ inline float row_total(float x) {
  for (int step = kLanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

__global__ void __launch_bounds__(kThreads)
    attention_kernel(const half* Q,  // [batch, heads, tokens, head_dim], as all four
                     const half* K, const half* V, half* O, int tokens, float scale_log2) {
  // A block is one (batch, head) and 16 of its query rows.
  __shared__ half q_tile[kQueryRows][kHeadDim];
  __shared__ half k_tile[kKeyTile][kHeadDim + kPad];
  __shared__ half v_tile[kKeyTile][kHeadDim + kPad];
  __shared__ float s_tile[kQueryRows][kKeyTile + kScorePad];  // scores, then weights
  __shared__ float factor_tile[kQueryRows];                   // for the rows of O
  const int thread = threadIdx.x;
  const int row_blocks = (tokens + kQueryRows - 1) / kQueryRows;
  const int first_row = blockIdx.x % row_blocks * kQueryRows;
  const int64_t matrix = int64_t(blockIdx.x / row_blocks) * tokens * kHeadDim;  // in elements

  // Q once. Rows past the last token are zero: nobody reads their results.
  for (int i = thread; i < kQueryRows * kHeadDim; i += kThreads) {
    const int row = i / kHeadDim, d = i % kHeadDim;
    q_tile[row][d] = first_row + row < tokens ? Q[matrix + int64_t(first_row + row) * kHeadDim + d]
                                              : __float2half(0.0f);
  }

  // Who computes what: 8 scores of one key, 1/8 of the softmax of one row, 8 rows of one column.
  const int score_key = thread % kKeyTile, score_row = thread / kKeyTile * 8;
  const int softmax_row = thread / kLanes, softmax_lane = thread % kLanes;
  const int output_d = thread % kHeadDim, output_row = thread / kHeadDim * 8;
  float row_max = -INFINITY, row_sum = 0.0f;  // softmax_row's; the sum of this lane's weights
  float output[8] = {};

  // STARTER
  //| // HOLE 1: how many keys does the block with rows first_row, ..., first_row + 15 need?
  //| // Hint: as many as its last row sees. With all of them the result is right too, but tiles are
  //| // loaded in vain.
  //| const int last_key = tokens;
  // SOLUTION
  const int last_key = min(tokens, first_row + kQueryRows);
  // END
  for (int first_key = 0; first_key < last_key; first_key += kKeyTile) {
    // Load: keys past the last token are zero, a weight of 0 does not save us from NaN in V.
    for (int i = thread; i < kKeyTile * kHeadDim; i += kThreads) {
      const int key = i / kHeadDim, d = i % kHeadDim;
      const bool valid = first_key + key < tokens;
      const int64_t element = matrix + int64_t(first_key + key) * kHeadDim + d;
      k_tile[key][d] = valid ? K[element] : __float2half(0.0f);
      v_tile[key][d] = valid ? V[element] : __float2half(0.0f);
    }
    __syncthreads();

    // Scores: lanes take neighbouring keys.
    float score[8] = {};
    for (int d = 0; d < kHeadDim; d += 2) {
      const float2 k = __half22float2(*reinterpret_cast<half2*>(&k_tile[score_key][d]));
      for (int r = 0; r < 8; ++r) {
        const float2 q = __half22float2(*reinterpret_cast<half2*>(&q_tile[score_row + r][d]));
        score[r] += q.x * k.x + q.y * k.y;
      }
    }
    for (int r = 0; r < 8; ++r) {
      // STARTER
      //| // HOLE 2: which scores count?
      //| // Hint: a score of -INFINITY gives a weight of 0. The tile's keys begin with first_key, the
      //| // block's queries with first_row. Do keys past the last token need a condition of their own?
      //| s_tile[score_row + r][score_key] = score[r] * scale_log2;
      // SOLUTION
      const int query = first_row + score_row + r, key = first_key + score_key;
      s_tile[score_row + r][score_key] = key <= query ? score[r] * scale_log2 : -INFINITY;
      // END
    }
    __syncthreads();

    // Softmax: a lane has 8 scores of its row, in units of log2.
    // STARTER
    //| // HOLE 3: the online softmax. Make weights of this tile's scores, keep row_max and row_sum up
    //| // to date, and find the factor for what was added up with the maximum before.
    //| // Hint: lane softmax_lane has columns softmax_lane, softmax_lane + 8, ... of
    //| // s_tile[softmax_row]. row_maximum() makes one maximum of the 8 lanes'. A weight is
    //| // exp2f(score - row_max); what was computed with the old maximum must be multiplied by
    //| // exp2f(old - new), row_sum too.
    //| const float factor = 1.0f;
    // SOLUTION
    float tile_max = -INFINITY;
    for (int i = softmax_lane; i < kKeyTile; i += kLanes)
      tile_max = fmaxf(tile_max, s_tile[softmax_row][i]);
    const float new_max = fmaxf(row_max, row_maximum(tile_max));
    const float factor = exp2f(row_max - new_max);
    row_max = new_max;
    row_sum *= factor;
    for (int i = softmax_lane; i < kKeyTile; i += kLanes) {
      const float weight = exp2f(s_tile[softmax_row][i] - row_max);
      s_tile[softmax_row][i] = weight;
      row_sum += weight;
    }
    // END
    if (softmax_lane == 0) factor_tile[softmax_row] = factor;
    __syncthreads();

    // Update O: lanes take neighbouring columns.
    for (int r = 0; r < 8; ++r) output[r] *= factor_tile[output_row + r];
    for (int j = 0; j < kKeyTile; ++j) {
      const float v = __half2float(v_tile[j][output_d]);
      for (int r = 0; r < 8; ++r) output[r] += s_tile[output_row + r][j] * v;
    }
    __syncthreads();  // before the next tiles overwrite these
  }

  // Write O once, divided by the sum of the weights.
  row_sum = row_total(row_sum);
  if (softmax_lane == 0) factor_tile[softmax_row] = 1.0f / row_sum;
  __syncthreads();
  for (int r = 0; r < 8; ++r) {
    const int row = first_row + output_row + r;
    if (row < tokens)
      O[matrix + int64_t(row) * kHeadDim + output_d] =
          __float2half(output[r] * factor_tile[output_row + r]);
  }
}

// Q, K, V, O: [batch, heads, tokens, head_dim 64] fp16, contiguous. O = softmax(mask(Q Kᵀ scale))
// V, where query i sees keys 0 to i.
inline void attention(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, cudaStream_t stream) {
  const int row_blocks = (shape.tokens + kQueryRows - 1) / kQueryRows;
  const float scale_log2 = shape.scale * 1.44269504f;  // log2(e): exp(x) = 2^(x log2(e))
  attention_kernel<<<unsigned(shape.matrices() * row_blocks), kThreads, 0, stream>>>(
      Q, K, V, O, shape.tokens, scale_log2);
}

}  // namespace exercise
