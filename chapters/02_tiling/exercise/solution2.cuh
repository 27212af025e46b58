// STARTER
//| // Exercise 2, from an empty function: attention with a sliding window. In long sequences a token
//| // looks at its neighbourhood alone: query i sees the keys i - window to i + window, as far as they
//| // exist, and no other. Their weights are softmax over those keys alone.
//| //
//| //   O[i] = Σ_|i-j|<=window weight[i][j] V[j]     weight[i] = softmax over j of scale Q[i]·K[j]
//| //
//| // Here nothing is given but the function. Kernel, tiles, grid and launch are yours. Then
//| // `make exercise2 && ./run --task task2.cuh` grades it: 30 points for right results, 20 for no
//| // finding of any check, and 50 for what a tiled kernel is made for:
//| //
//| //   20  K and V: 16 query rows or more share each tile of 64 keys or fewer, and only tiles are
//| //       loaded in which one of these rows sees a key
//| //   10  stores: O, once, and nothing else; scores and weights stay on chip
//| //    5  Q is loaded once
//| //   10  loads of K are coalesced
//| //    5  shared memory: bank conflicts cost at most a tenth
// SOLUTION
// Exercise 2, sliding window: a solution. The exercise itself is in task2.cuh.
// END
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "../../../common/attention/shape.h"

namespace exercise {

// SOLUTION
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
                     const half* K, const half* V, half* O, int tokens, int window,
                     float scale_log2) {
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

  // Tiles from the first key that the first row sees to the last key that the last row sees. Each
  // row sees a key of the first tile, since its own first one is at most 15 keys further: its
  // maximum is finite from then on.
  const int begin = max(0, first_row - window);
  const int end = min(tokens, first_row + kQueryRows + window);
  for (int first_key = begin; first_key < end; first_key += kKeyTile) {
    // Load: what no row sees is zero, a weight of 0 does not save us from NaN in V.
    for (int i = thread; i < kKeyTile * kHeadDim; i += kThreads) {
      const int key = i / kHeadDim, d = i % kHeadDim;
      const bool valid = first_key + key < end;
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
      // Rows past the last one see what that one sees: some key.
      const int query = min(first_row + score_row + r, tokens - 1), key = first_key + score_key;
      const bool seen = key < tokens && abs(key - query) <= window;
      s_tile[score_row + r][score_key] = seen ? score[r] * scale_log2 : -INFINITY;
    }
    __syncthreads();

    // Softmax: a lane has 8 scores of its row, in units of log2.
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
// END

// O = softmax(mask(Q Kᵀ scale)) V, where query i sees the keys i - window to i + window that exist.
//   Q, K, V, O   [batch, heads, tokens, head_dim 64] fp16, contiguous, on the device
//   shape        batch, heads and tokens from 1 on; head_dim 64; scale, by which scores are
//                multiplied
//   window       0 (a query sees itself alone) to 2^20, in tokens; it may be larger than tokens
//   stream       for all that is launched
inline void attention(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, int window, cudaStream_t stream) {
  // STARTER
  //| // HOLE: all of it. Kernels go above this function, their launches here.
  //| (void)Q, (void)K, (void)V, (void)O, (void)shape, (void)window, (void)stream;
  // SOLUTION
  const int row_blocks = (shape.tokens + kQueryRows - 1) / kQueryRows;
  const float scale_log2 = shape.scale * 1.44269504f;  // log2(e): exp(x) = 2^(x log2(e))
  attention_kernel<<<unsigned(shape.matrices() * row_blocks), kThreads, 0, stream>>>(
      Q, K, V, O, shape.tokens, window, scale_log2);
  // END
}

}  // namespace exercise
// STARTER
//|
//| // Hints, one after the other: go on to the next when you are stuck.
//| //
//| // 1. Make it right before you make it fast. The chapter's kernel has all that is needed but the
//| //    window: begin with its phases (load, scores, softmax, update) and one tile size.
//| // 2. Which is the first key that any row of a block sees, and which the last? No others are loaded.
//| //    `window` may be larger than the sequence: both ends need a limit.
//| // 3. The mask has two sides, and keys past the last token are not seen however large the window is.
//| // 4. NaN in rows that begin late? In a tile in which a row sees no key yet its maximum is still
//| //    -INFINITY, and -INFINITY minus -INFINITY is NaN. Choose where the tiles begin so that this
//| //    does not happen, or take care of it.
// END
