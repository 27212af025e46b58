// Chapter 4, WMMA: both matrix products on the tensor cores, 16 x 16 x 16 elements at a time. One
// warp takes 16 query rows:
//
//   q_frag                registers    Q, loaded once
//   s     = q_frag Kᵀ     shared fp32  scores of the tile: in a fragment no lane knows its row
//   p     = softmax(s)    shared fp16  weights, the left operand of the second product
//   o_frag = o_frag + p V registers    rescaled where a row's maximum has grown
//
// Which lane holds which element of a fragment is not documented. So O is rescaled by a fragment of
// the same type, loaded from a tile that has each row's factor in all of its 16 columns.
// The flaw that chapter 3 mended comes back: WMMA wants K transposed. A lane loads its key's row, 16
// bytes at a time and a whole row apart from its neighbour's, and scatters it into shared memory.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cmath>
#include <cstdint>

#include "../../common/attention/launch.cuh"
#include "../../common/attention/shape.h"

namespace wmma_attention {

namespace wmma = nvcuda::wmma;

constexpr int kQueryRows = 16;  // queries per block
constexpr int kKeyTile = 64;    // keys in shared memory at a time
constexpr int kThreads = 32;    // per block
constexpr int kTile = 16;       // rows, columns and depth of one WMMA product, rows of a warp
constexpr int kMostLoads = 16;  // loads of 16 bytes that a thread waits for at a time: 64 registers
constexpr int kPad = 8;  // halves or floats behind each row, so that rows start in different banks

using QueryFragment = wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, half, wmma::row_major>;
using KeyFragment = wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, half, wmma::row_major>;
using WeightFragment = wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, half, wmma::row_major>;
using ValueFragment = wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, half, wmma::row_major>;
using Accumulator = wmma::fragment<wmma::accumulator, kTile, kTile, kTile, float>;

// What a block keeps in shared memory. Q is in fragments before there are scores.
template <int kHeadDim>
struct alignas(32) Tiles {            // aligned as WMMA requires
  half k[kHeadDim][kKeyTile + kPad];  // transposed
  half v[kKeyTile][kHeadDim + kPad];
  union {
    half q[kTile][kHeadDim + kPad];
    float s[kTile][kKeyTile + kPad];  // scores, then factors of O, at the end O itself
  };
  half p[kTile][kKeyTile + kPad];  // weights
};

// The softmax of one row whose scores come tile by tile, owned by kLanes neighbouring lanes that
// hold different keys. Scores are in units of log2: a weight is 2^(score - row_max).
// (M. Milakov, N. Gimelshein: Online normalizer calculation for softmax, 2018.)
template <int kLanes>
struct OnlineSoftmax {
  float row_max = -INFINITY;  // the largest score so far, the same in all lanes
  float row_sum = 0.0f;       // the sum of this lane's weights so far

  // Turns scores into weights and returns the factor, at most 1, by which all earlier sums must be
  // multiplied. At least one score of the row is not -inf.
  template <int kCount>
  __device__ float update(float (&scores)[kCount]) {
    float new_max = row_max;
    for (const float score : scores) new_max = fmaxf(new_max, score);
    for (int step = kLanes / 2; step > 0; step /= 2)
      new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, step));
    const float factor = exp2f(row_max - new_max);
    row_max = new_max;
    row_sum *= factor;
    for (float& score : scores) {
      score = exp2f(score - new_max);
      row_sum += score;
    }
    return factor;
  }

  // 1 / (sum of all weights): the factor at the end.
  __device__ float inverse_sum() const {
    float sum = row_sum;
    for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    return 1.0f / sum;
  }
};

// Copies rows of [.., head_dim] from global memory to a tile of kRows rows, 16 bytes a thread and
// neighbouring threads along head_dim. Rows from `valid` on become zero. A thread loads all of its
// pieces, up to kMostLoads, before it stores the first: it waits for memory once, not once a piece.
template <int kRows, int kHeadDim, int kThreads>
__device__ void load_rows(const half* rows_global, int valid, unsigned thread,
                          half (*tile)[kHeadDim + kPad]) {
  constexpr int kPieces = kHeadDim / 8;            // pieces of 16 bytes per row
  constexpr int kRowsAtOnce = kThreads / kPieces;  // with one piece a thread
  constexpr int kCount = kRows / kRowsAtOnce;      // pieces of a thread
  static_assert(kCount * kRowsAtOnce == kRows);
  constexpr int kAtOnce = kCount < kMostLoads ? kCount : kMostLoads;
  // Shared memory takes 16 bytes of eight neighbouring lanes at a time: a row or half a row, at
  // head_dim 32 two rows. These two are taken four rows apart, where they lie in different banks.
  int first = thread / kPieces;
  if (kPieces < 8) first = first / 8 * 8 + first % 2 * 4 + first % 8 / 2;
  const int d = thread % kPieces * 8;
#pragma unroll 1
  for (int part = 0; part < kRows; part += kAtOnce * kRowsAtOnce) {
    uint4 piece[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int row = part + first + i * kRowsAtOnce;
      const half* const from = rows_global + row * kHeadDim + d;
      piece[i] = row < valid ? *reinterpret_cast<const uint4*>(from) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      *reinterpret_cast<uint4*>(&tile[part + first + i * kRowsAtOnce][d]) = piece[i];
  }
}

// K likewise, but transposed: neighbouring threads along the keys. A thread loads 16 bytes of its
// key's row, far from its neighbours', and stores the 8 elements into 8 rows of the tile.
template <int kHeadDim, int kKeyTile, int kThreads>
__device__ void load_transposed(const half* rows_global, int valid, unsigned thread,
                                half (*tile)[kKeyTile + kPad]) {
  constexpr int kCount = kKeyTile * kHeadDim / 8 / kThreads;  // pieces of a thread
  static_assert(kKeyTile % kThreads == 0);
  constexpr int kAtOnce = kCount < kMostLoads ? kCount : kMostLoads;
#pragma unroll 1
  for (int part = 0; part < kHeadDim; part += kHeadDim * kAtOnce / kCount) {
    uint4 piece[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int key = thread + i * kThreads % kKeyTile;
      const int d = part + i * kThreads / kKeyTile * 8;
      const half* const from = rows_global + key * kHeadDim + d;
      piece[i] = key < valid ? *reinterpret_cast<const uint4*>(from) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int key = thread + i * kThreads % kKeyTile;
      const int d = part + i * kThreads / kKeyTile * 8;
      const half* elements = reinterpret_cast<const half*>(&piece[i]);
      for (int e = 0; e < 8; ++e) tile[d + e][key] = elements[e];
    }
  }
}

// Rounds four neighbouring numbers to fp16 and stores them with one instruction, as a number of 64
// bits. As two half2 they would be two stores wherever the compiler cannot prove that the address is
// a multiple of 8.
__device__ inline void store_half4(half* where, float4 x) {
  const half2 low = __floats2half2_rn(x.x, x.y), high = __floats2half2_rn(x.z, x.w);
  *reinterpret_cast<uint64_t*>(where) = reinterpret_cast<const uint32_t&>(low) |
                                        uint64_t(reinterpret_cast<const uint32_t&>(high)) << 32;
}

// Multiplies each row of O by its factor, which the row's two lanes pass in. The factors are written
// to the first 16 columns of s and loaded as a fragment of O's type: of two such fragments elements i
// belong to the same row.
template <int kFragments, int kStride>
__device__ void scale_rows(Accumulator (&o_frag)[kFragments], float factor, float (*s)[kStride]) {
  const int row = threadIdx.x % 32 / 2, first = threadIdx.x % 2 * 4;
  __syncwarp();  // s has been read
  for (int column = first; column < kTile; column += 8)
    reinterpret_cast<float4&>(s[row][column]) = make_float4(factor, factor, factor, factor);
  __syncwarp();
  Accumulator factor_frag;
  wmma::load_matrix_sync(factor_frag, &s[0][0], kStride, wmma::mem_row_major);
  for (Accumulator& o : o_frag)
    for (int i = 0; i < o.num_elements; ++i) o.x[i] *= factor_frag.x[i];
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    attention_kernel(const half* Q,  // [batch, heads, tokens, head_dim], as all four
                     const half* K, const half* V, half* O, int tokens, float scale_log2) {
  // A block is one (batch, head) and 16 of its query rows, and has one warp.
  __shared__ Tiles<kHeadDim> tiles;
  const int thread = threadIdx.x, lane = thread;
  const int row_blocks = (tokens + kQueryRows - 1) / kQueryRows;
  const int first_row = blockIdx.x % row_blocks * kQueryRows;
  const int64_t matrix = int64_t(blockIdx.x / row_blocks) * tokens * kHeadDim;  // in elements

  // Q once. Rows past the last token are zero: nobody reads their results, but NaN must not arise.
  load_rows<kTile, kHeadDim, 32>(Q + matrix + int64_t(first_row) * kHeadDim, tokens - first_row,
                                 lane, tiles.q);
  __syncwarp();
  QueryFragment q_frag[kHeadDim / kTile];
  for (int d = 0; d < kHeadDim; d += kTile)
    wmma::load_matrix_sync(q_frag[d / kTile], &tiles.q[0][d], kHeadDim + kPad);

  // Who computes what: the warp computes the products, two lanes the softmax of a row. The two take
  // 4 keys each in turn. So the 4 rows that 8 lanes read at a time lie in 32 different banks.
  const unsigned row = lane / 2;
  const auto column = [lane](int i) { return i / 4 * 8 + lane % 2 * 4 + i % 4; };
  OnlineSoftmax<2> softmax;
  Accumulator o_frag[kHeadDim / kTile];
  for (Accumulator& o : o_frag) wmma::fill_fragment(o, 0.0f);

  for (int first_key = 0; first_key < tokens; first_key += kKeyTile) {
    // Load K, then V, the whole block. Keys past the last token are zero, since a weight of 0
    // does not save us from NaN in V.
    const int64_t first_element = matrix + int64_t(first_key) * kHeadDim;
    load_transposed<kHeadDim, kKeyTile, kThreads>(K + first_element, tokens - first_key, thread,
                                                  tiles.k);
    load_rows<kKeyTile, kHeadDim, kThreads>(V + first_element, tokens - first_key, thread, tiles.v);
    __syncwarp();

    // Scores: 16 keys at a time, summed up over head_dim in registers.
    for (int j = 0; j < kKeyTile; j += kTile) {
      Accumulator s_frag;
      wmma::fill_fragment(s_frag, 0.0f);
      for (int d = 0; d < kHeadDim; d += kTile) {
        KeyFragment k_frag;
        wmma::load_matrix_sync(k_frag, &tiles.k[d][j], kKeyTile + kPad);
        wmma::mma_sync(s_frag, q_frag[d / kTile], k_frag, s_frag);
      }
      wmma::store_matrix_sync(&tiles.s[0][j], s_frag, kKeyTile + kPad, wmma::mem_row_major);
    }
    __syncwarp();

    // Softmax: the weights of this tile, and what the larger maximum makes of the tiles before.
    alignas(16) float weight[kKeyTile / 2];
    for (int i = 0; i < kKeyTile / 2; i += 4)
      reinterpret_cast<float4&>(weight[i]) = reinterpret_cast<float4&>(tiles.s[row][column(i)]);
    for (int i = 0; i < kKeyTile / 2; ++i)
      weight[i] = first_key + column(i) < tokens ? weight[i] * scale_log2 : -INFINITY;
    const float factor = softmax.update(weight);
    for (int i = 0; i < kKeyTile / 2; i += 4)
      store_half4(&tiles.p[row][column(i)], reinterpret_cast<float4&>(weight[i]));

    // Update O. It is rescaled only where the maximum of at least one of the 16 rows has grown.
    if (__any_sync(0xffffffffu, factor != 1.0f)) scale_rows(o_frag, factor, tiles.s);
    __syncwarp();
    for (int j = 0; j < kKeyTile; j += kTile) {
      WeightFragment p_frag;
      wmma::load_matrix_sync(p_frag, &tiles.p[0][j], kKeyTile + kPad);
      for (int d = 0; d < kHeadDim; d += kTile) {
        ValueFragment v_frag;
        wmma::load_matrix_sync(v_frag, &tiles.v[j][d], kHeadDim + kPad);
        wmma::mma_sync(o_frag[d / kTile], p_frag, v_frag, o_frag[d / kTile]);
      }
    }
    __syncwarp();
  }

  // Write O once, divided by the sum of the weights: as many columns at a time as s has room for.
  scale_rows(o_frag, softmax.inverse_sum(), tiles.s);
  half* o_global = O + matrix + int64_t(first_row) * kHeadDim;
  constexpr int kColumns = kKeyTile < kHeadDim ? kKeyTile : kHeadDim;
  for (int first_d = 0; first_d < kHeadDim; first_d += kColumns) {
    __syncwarp();
    for (int d = 0; d < kColumns; d += kTile)
      wmma::store_matrix_sync(&tiles.s[0][d], o_frag[(first_d + d) / kTile], kKeyTile + kPad,
                              wmma::mem_row_major);
    __syncwarp();
    for (int i = lane; i < kTile * kColumns / 4; i += 32) {
      const int o_row = i / (kColumns / 4), d = i % (kColumns / 4) * 4;
      if (first_row + o_row < tokens)
        store_half4(o_global + o_row * kHeadDim + first_d + d,
                    reinterpret_cast<float4&>(tiles.s[o_row][d]));
    }
  }
}

// Q, K, V, O: [batch, heads, tokens, head_dim] fp16, contiguous; O = softmax(Q Kᵀ scale) V with
// fp32 accumulation. All four start at a multiple of 16 bytes. Throws std::invalid_argument
// naming what is wrong and the limit when it cannot, std::runtime_error when CUDA refuses.
inline void attention(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, cudaStream_t stream) {
  require_attention_shape(shape);
  require_alignment({Q, K, V, O}, "Q, K, V and O");
  const AttentionKernel kernel =
      kernel_for(shape.head_dim, attention_kernel<32>, attention_kernel<64>, attention_kernel<128>);
  kernel<<<blocks_for(shape, kQueryRows), kThreads, 0, stream>>>(Q, K, V, O, shape.tokens,
                                                                 log2_scale(shape));
  require_launched(cudaGetLastError(), shape);
}

}  // namespace wmma_attention
