// Scores, weights and O in the registers of a warp: what steps 2 to 4 compute with. A warp's share of
// all three are blocks of 16 rows. Lane 4 g + t has of each the rows g and g + 8, and of every eight
// columns 2 t and 2 t + 1 (tile::Sums), so that four lanes share a row.
//
// What one product writes is what the next one reads: of two neighbouring blocks of 16 x 8 scores a
// lane has just those elements that it must bring as the left operand of the second product.
#pragma once

#include <cmath>

#include "../../../common/tile/tile.cuh"
#include "power_of_2.cuh"

namespace flash_attention {

constexpr int kWarps = 4, kThreads = 32 * kWarps;  // per block

// Copies rows of [.., head_dim] to a tile, 16 bytes a thread and neighbouring threads along
// head_dim, by asynchronous copies that the caller ends. Rows from `valid` on become zero.
template <int kThreads, class Tile>
__device__ void copy_rows(const half* from, int valid, unsigned thread, Tile& to) {
  constexpr int kRowsAtOnce = kThreads / Tile::kPieces;  // with one piece a thread
  static_assert(Tile::kRows % kRowsAtOnce == 0);
  const int first = thread / Tile::kPieces, piece = thread % Tile::kPieces;
#pragma unroll
  for (int i = 0; i < Tile::kRows; i += kRowsAtOnce) {
    const bool there = first + i < valid;
    tile::copy_async(to.address(first + i, piece),
                     from + (there ? (first + i) * Tile::kColumns + piece * 8 : 0), there);
  }
}

// A scale that grows with the score: its sign goes to Q, and of a scale of 0 everything.
__device__ inline float positive_scale(float scale_log2) {
  return scale_log2 == 0 ? 1 : fabsf(scale_log2);
}

// 16 rows of Q from `row` of a tile on, with the scale's sign.
template <int kDepths, class Tile>
__device__ void load_queries(tile::LeftFragment<half> (&q_frag)[kDepths], const Tile& from,
                             unsigned row, float scale_log2) {
  const half sign = scale_log2 > 0 ? 1 : scale_log2 < 0 ? -1 : 0;
#pragma unroll
  for (int d = 0; d < kDepths; ++d) {
    tile::load_left(q_frag[d], from, row, 2 * d);
    if (scale_log2 > 0) continue;
#pragma unroll
    for (uint32_t& pair : q_frag[d].registers) reinterpret_cast<half2&>(pair) *= half2{sign, sign};
  }
}

// Scores of kRows blocks of rows, in blocks of 8 keys: Q times rows of K from `key` on. What is
// loaded of K serves all blocks of rows.
template <int kRows, int kKeyBlocks, int kRowBlocks, int kDepths, class Tile>
__device__ void multiply_scores(tile::Sums (&s_frag)[kRows][kKeyBlocks],
                                const tile::LeftFragment<half> (&q_frag)[kRowBlocks][kDepths],
                                const Tile& k, unsigned key) {
  static_assert(kKeyBlocks % 2 == 0, "16 keys a load");
#pragma unroll
  for (int d = 0; d < kDepths; ++d)
#pragma unroll
    for (int j = 0; j < kKeyBlocks; j += 2) {
      tile::RightFragment<half> k_frag[2];
      tile::load_right(k_frag, k, key + 8 * j, 2 * d);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        tile::multiply_add(s_frag[r][j], q_frag[r][d], k_frag[0]);
        tile::multiply_add(s_frag[r][j + 1], q_frag[r][d], k_frag[1]);
      }
    }
}

// Scores from key number `keys` on become -inf: their weights are 0.
template <int kKeyBlocks>
__device__ void leave_out(tile::Sums (&s_frag)[kKeyBlocks], int keys) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kKeyBlocks; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (8 * j + tile::Sums::column(lane, i) >= keys) s_frag[j].value[i] = -INFINITY;
}

// Multiplies each row by its factor.
template <int kBlocks>
__device__ void scale_rows(tile::Sums (&o_frag)[kBlocks], const float (&factor)[2]) {
#pragma unroll
  for (tile::Sums& o : o_frag)
#pragma unroll
    for (int i = 0; i < 4; ++i) o.value[i] *= factor[i / 2];
}

// The softmax of 16 rows whose scores come tile by tile. A weight is 2^((score - row_max) scale);
// the scale is positive and in units of log2.
struct RowSoftmax {
  float row_max[2] = {-INFINITY, -INFINITY};  // the largest scores of rows g and g + 8 so far
  float row_sum[2] = {0, 0};                  // the sums of this lane's weights so far

  // The largest score of row r, these scores included. At least one of a row is not -inf.
  template <int kKeyBlocks>
  __device__ float largest_score(const tile::Sums (&s_frag)[kKeyBlocks], int r) const {
    float new_max = row_max[r];
#pragma unroll
    for (const tile::Sums& s : s_frag)
      new_max = fmaxf(new_max, fmaxf(s.value[2 * r], s.value[2 * r + 1]));
    new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, 1));
    return fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, 2));
  }

  // Turns scores of row r into weights and adds them up.
  template <int kKeyBlocks>
  __device__ void weigh(tile::Sums (&s_frag)[kKeyBlocks], int r, float scale) {
    const float scaled_max = row_max[r] * scale;
#pragma unroll
    for (tile::Sums& s : s_frag)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        s.value[i] = power_of_2(fmaf(s.value[i], scale, -scaled_max));
        row_sum[r] += s.value[i];
      }
  }

  // Turns scores into weights. factor: at most 1, by which all earlier sums of each row must be
  // multiplied.
  template <int kKeyBlocks>
  __device__ void update(tile::Sums (&s_frag)[kKeyBlocks], float scale, float (&factor)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float new_max = largest_score(s_frag, r);
      factor[r] = power_of_2((row_max[r] - new_max) * scale);
      row_max[r] = new_max;
      row_sum[r] *= factor[r];
      weigh(s_frag, r, scale);
    }
  }

  // The same, and multiplies the rows of O, where one of the warp's maxima has grown.
  template <int kKeyBlocks, int kValueBlocks>
  __device__ void update(tile::Sums (&s_frag)[kKeyBlocks], float scale,
                         tile::Sums (&o_frag)[kValueBlocks]) {
    float factor[2];
    update(s_frag, scale, factor);
    if (__any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f)) scale_rows(o_frag, factor);
  }

  // 1 / (sum of all weights): the factors at the end.
  __device__ void inverse_sums(float (&factor)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = row_sum[r] + __shfl_xor_sync(0xffffffffu, row_sum[r], 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      factor[r] = 1.0f / sum;
    }
  }

  // Divides the rows of O by the sums of their weights, at the end.
  template <int kValueBlocks>
  __device__ void divide(tile::Sums (&o_frag)[kValueBlocks]) const {
    float factor[2];
    inverse_sums(factor);
    scale_rows(o_frag, factor);
  }
};

// Two neighbouring numbers of a row, rounded to fp16, in a register.
__device__ inline uint32_t half_pair(const tile::Sums& sums, int i) {
  const half2 pair = __floats2half2_rn(sums.value[i], sums.value[i + 1]);
  return reinterpret_cast<const uint32_t&>(pair);
}

// Weights of 16 keys as the left operand.
__device__ inline tile::LeftFragment<half> left_operand(const tile::Sums& first,
                                                        const tile::Sums& second) {
  return {{half_pair(first, 0), half_pair(first, 2), half_pair(second, 0), half_pair(second, 2)}};
}

// Two right operands of V: 16 keys from `key` on, columns of V in two blocks of 8 from `piece` on.
// ldmatrix transposes: an operand's rows are columns of V.
template <class Tile>
__device__ void load_values(tile::RightFragment<half> (&to)[2], const Tile& v, unsigned key,
                            unsigned piece) {
  const unsigned lane = threadIdx.x % 32;
  uint32_t r[4];
  tile::ldmatrix_transposed(r, v.address(key + lane % 16, piece + lane / 16));
  to[0] = {{r[0], r[1]}};
  to[1] = {{r[2], r[3]}};
}

// O of kRows blocks of rows += weights times rows of V from `key` on. What is loaded of V serves
// all blocks of rows.
template <int kRows, int kKeyBlocks, int kRowBlocks, int kValueBlocks, class Tile>
__device__ void multiply_values(tile::Sums (&o_frag)[kRowBlocks][kValueBlocks],
                                const tile::Sums (&weights)[kRows][kKeyBlocks], const Tile& v,
                                unsigned key) {
  static_assert(kKeyBlocks % 2 == 0, "16 keys a product");
#pragma unroll
  for (int j = 0; j < kKeyBlocks; j += 2) {
    tile::LeftFragment<half> p_frag[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) p_frag[r] = left_operand(weights[r][j], weights[r][j + 1]);
#pragma unroll
    for (int d = 0; d < kValueBlocks; d += 2) {
      tile::RightFragment<half> v_frag[2];
      load_values(v_frag, v, key + 8 * j, d);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        tile::multiply_add(o_frag[r][d], p_frag[r], v_frag[0]);
        tile::multiply_add(o_frag[r][d + 1], p_frag[r], v_frag[1]);
      }
    }
  }
}

// Rounds 16 rows of O and stores the first `rows` of them, 16 bytes a lane, by way of 16 rows of a
// tile, from first_row on, that nobody else needs. o_global: [.., head_dim].
template <int kValueBlocks, class Tile>
__device__ void store_output(const tile::Sums (&o_frag)[kValueBlocks], Tile& way,
                             unsigned first_row, half* o_global, int rows) {
  constexpr int kHeadDim = 8 * kValueBlocks;
  const int lane = threadIdx.x % 32;
  __syncwarp();  // the tile has been read
#pragma unroll
  for (int d = 0; d < kValueBlocks; ++d)
#pragma unroll
    for (int i = 0; i < 4; i += 2)
      reinterpret_cast<uint32_t&>(
          way.at(first_row + tile::Sums::row(lane, i), 8 * d + tile::Sums::column(lane, i))) =
          half_pair(o_frag[d], i);
  __syncwarp();
#pragma unroll
  for (int i = lane; i < 16 * kValueBlocks; i += 32) {
    // Padded rows of 64 bytes are read four rows apart, as load_rows() writes them.
    int row = i / kValueBlocks;
    if (Tile::Layout::kPitch == 80) row = row / 8 * 8 + row % 2 * 4 + row % 8 / 2;
    const int d = i % kValueBlocks * 8;
    if (row < rows)
      *reinterpret_cast<uint4*>(o_global + row * kHeadDim + d) =
          reinterpret_cast<const uint4&>(way.at(first_row + row, d));
  }
}

}  // namespace flash_attention
