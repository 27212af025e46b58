// STARTER
//| // Exercise 3: head_dim 80, as in ViT-H with its 16 heads of 1280 values. 80 is no power of two and
//| // no multiple of 32: a row has 10 pieces of 16 bytes, so that a warp's 32 lanes do not come out
//| // even with the rows, and 32 lanes with 2 columns of O each are too few, with 3 too many.
//| //
//| // The kernel is the chapter's, with three holes. Fill them, then `make exercise3 && ./run`. Besides
//| // right results you are asked for loads that are as wide and as coalesced as the chapter's.
// SOLUTION
// Exercise 3, head_dim 80: a solution. The exercise itself is in exercise.cuh.
// END
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "../../../common/attention/shape.h"

namespace exercise {

constexpr int kHeadDim = 80;
constexpr int kPieces = kHeadDim / 8;  // pieces of 16 bytes per row
constexpr int kQueryRows = 16;         // queries per block
constexpr int kKeyTile = 64;           // keys in shared memory at a time
constexpr int kThreads = 128;          // per block
constexpr int kWarps = kThreads / 32;
constexpr int kRowsPerWarp = kQueryRows / kWarps;
constexpr int kPad = 8;             // halves: 8 rows are in 32 different banks
constexpr int kColumnsPerLane = 3;  // lane, lane + 32, lane + 64: not all exist
constexpr int kKeysPerLane = kKeyTile / 32;

__device__ inline float warp_max(float x) {
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}
__device__ inline float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// Copies kRows rows of [.., head_dim] from global memory to a tile. Rows from `valid` on are zero.
template <int kRows>
__device__ void load_rows(const half* rows_global, int valid, half (*tile)[kHeadDim + kPad]) {
  // STARTER
  //| // HOLE 1: fill the tile, 16 bytes (uint4) at a time.
  //| // Hint: number all pieces of all rows, kRows * kPieces of them, so that neighbouring numbers are
  //| // neighbours in memory, and deal them out to threads threadIdx.x, threadIdx.x + kThreads, ...
  //| // Which row and which d has piece i? Both sides of the copy start at a multiple of 16 bytes. (One
  //| // warp alone would get the points too: that fewer loads are under way then, no counter shows.)
  //| (void)rows_global, (void)valid;
  //| for (int i = threadIdx.x; i < kRows * kHeadDim; i += kThreads)
  //|   tile[i / kHeadDim][i % kHeadDim] = __float2half(0.0f);
  // SOLUTION
  for (int i = threadIdx.x; i < kRows * kPieces; i += kThreads) {
    const int row = i / kPieces, d = i % kPieces * 8;
    *reinterpret_cast<uint4*>(&tile[row][d]) =
        row < valid ? *reinterpret_cast<const uint4*>(rows_global + row * kHeadDim + d) : uint4{};
  }
  // END
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

__global__ void __launch_bounds__(kThreads)
    attention_kernel(const half* Q,  // [batch, heads, tokens, head_dim], as all four
                     const half* K, const half* V, half* O, int tokens, float scale_log2) {
  // A block is one (batch, head) and 16 of its query rows, a warp 4 of them.
  __shared__ alignas(16) half q_tile[kQueryRows][kHeadDim + kPad];
  __shared__ alignas(16) half k_tile[kKeyTile][kHeadDim + kPad];
  __shared__ alignas(16) half v_tile[kKeyTile][kHeadDim + kPad];
  __shared__ float4 s_tile[kWarps][kKeyTile];  // weights of one key for the 4 rows of a warp
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row_blocks = (tokens + kQueryRows - 1) / kQueryRows;
  const int first_row = blockIdx.x % row_blocks * kQueryRows;
  const int64_t matrix = int64_t(blockIdx.x / row_blocks) * tokens * kHeadDim;  // in elements

  load_rows<kQueryRows>(Q + matrix + int64_t(first_row) * kHeadDim, tokens - first_row, q_tile);
  float row_max[kRowsPerWarp], row_sum[kRowsPerWarp] = {};  // the sum of this lane's weights
  for (float& m : row_max) m = -INFINITY;
  float output[kRowsPerWarp][kColumnsPerLane] = {};

  for (int first_key = 0; first_key < tokens; first_key += kKeyTile) {
    // Load: keys past the last token are zero, a weight of 0 does not save us from NaN in V.
    const int64_t first_element = matrix + int64_t(first_key) * kHeadDim;
    load_rows<kKeyTile>(K + first_element, tokens - first_key, k_tile);
    load_rows<kKeyTile>(V + first_element, tokens - first_key, v_tile);
    __syncthreads();

    // Scores: a lane has keys lane and lane + 32, for the 4 rows of its warp.
    float score[kRowsPerWarp][kKeysPerLane] = {};
#pragma unroll 2
    for (int d = 0; d < kHeadDim; d += 8) {
      Float8 k[kKeysPerLane];
      for (int j = 0; j < kKeysPerLane; ++j) k[j] = load8(&k_tile[lane + 32 * j][d]);
      for (int r = 0; r < kRowsPerWarp; ++r) {
        const Float8 q = load8(&q_tile[warp * kRowsPerWarp + r][d]);
        for (int j = 0; j < kKeysPerLane; ++j)
          for (int i = 0; i < 8; ++i) score[r][j] += q.x[i] * k[j].x[i];
      }
    }

    // Softmax: weights, in units of log2, and the factor for what was added up before.
    for (int r = 0; r < kRowsPerWarp; ++r) {
      float tile_max = -INFINITY;
      for (int j = 0; j < kKeysPerLane; ++j) {
        const bool valid = first_key + lane + 32 * j < tokens;
        score[r][j] = valid ? score[r][j] * scale_log2 : -INFINITY;
        tile_max = fmaxf(tile_max, score[r][j]);
      }
      const float new_max = fmaxf(row_max[r], warp_max(tile_max));
      const float factor = exp2f(row_max[r] - new_max);
      row_max[r] = new_max;
      row_sum[r] *= factor;
      for (float& x : score[r]) row_sum[r] += x = exp2f(x - new_max);
      for (float& x : output[r]) x *= factor;
    }
    for (int j = 0; j < kKeysPerLane; ++j)
      s_tile[warp][lane + 32 * j] = make_float4(score[0][j], score[1][j], score[2][j], score[3][j]);
    __syncwarp();  // the weights are the warp's own

    // Update O: lanes take neighbouring columns; a key's four weights are one load for all lanes.
#pragma unroll 4
    for (int j = 0; j < kKeyTile; ++j) {
      const float4 weight = s_tile[warp][j];
      for (int c = 0; c < kColumnsPerLane; ++c) {
        // STARTER
        //| // HOLE 2: which column d of O is the lane's c-th, and does it exist?
        //| // Hint: lanes take neighbouring columns, so that they read different banks; with c = 2 only
        //| // half of the lanes have one. What does v_tile[j][d] hold for d from 80 to 95?
        //| const int d = 0;
        // SOLUTION
        const int d = lane + 32 * c;
        if (d >= kHeadDim) continue;
        // END
        const float v = __half2float(v_tile[j][d]);
        output[0][c] += weight.x * v;
        output[1][c] += weight.y * v;
        output[2][c] += weight.z * v;
        output[3][c] += weight.w * v;
      }
    }
    __syncthreads();  // before the next tiles overwrite these
  }

  // Write O once, divided by the sum of the weights.
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const float inverse_sum = 1.0f / warp_sum(row_sum[r]);
    const int row = first_row + warp * kRowsPerWarp + r;
    if (row >= tokens) continue;
    // STARTER
    //| // HOLE 3: write output[r][0], output[r][1], output[r][2], times inverse_sum, to row `row` of O.
    //| // Hint: the columns are those of hole 2.
    //| O[matrix + int64_t(row) * kHeadDim] = __float2half(inverse_sum);
    // SOLUTION
    for (int c = 0; c < kColumnsPerLane; ++c)
      if (lane + 32 * c < kHeadDim)
        O[matrix + int64_t(row) * kHeadDim + lane + 32 * c] =
            __float2half(output[r][c] * inverse_sum);
    // END
  }
}

// Q, K, V, O: [batch, heads, tokens, head_dim 80] fp16, contiguous, all starting at a multiple of
// 16 bytes. O = softmax(Q Kᵀ scale) V.
inline void attention(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, cudaStream_t stream) {
  const int row_blocks = (shape.tokens + kQueryRows - 1) / kQueryRows;
  const float scale_log2 = shape.scale * 1.44269504f;  // log2(e): exp(x) = 2^(x log2(e))
  attention_kernel<<<unsigned(shape.matrices() * row_blocks), kThreads, 0, stream>>>(
      Q, K, V, O, shape.tokens, scale_log2);
}

}  // namespace exercise
