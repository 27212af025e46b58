// Exercise 5: a padding mask. Pictures or sentences of different lengths are padded to one number
// of tokens, so that they fit in one array. Of batch entry b only the first lengths[b] keys are
// real (1 or more); what stands behind them must not be seen, and need not be loaded.
//
// The kernel is the chapter's for head_dim 64 with 4 warps, with three holes. Fill them, then
// `make exercise5 && ./run`. Besides right results you are asked that a block's warps share the
// work of loading, and that it stops at the last real key.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cmath>
#include <cstdint>

#include "../../../common/attention/shape.h"

namespace exercise {

namespace wmma = nvcuda::wmma;

constexpr int kHeadDim = 64;
constexpr int kTile = 16;     // rows, columns and depth of one WMMA product, query rows of a warp
constexpr int kKeyTile = 64;  // keys in shared memory at a time
constexpr int kWarps = 4;     // per block
constexpr int kThreads = 32 * kWarps;
constexpr int kQueryRows = kTile * kWarps;  // queries per block
constexpr int kPad = 8;  // halves or floats: what a warp touches at a time is in different banks
constexpr float kLog2E = 1.44269504f;  // exp(x) = 2^(x log2(e))

using QueryFragment = wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, half, wmma::row_major>;
using KeyFragment = wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, half, wmma::row_major>;
using WeightFragment = wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, half, wmma::row_major>;
using ValueFragment = wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, half, wmma::row_major>;
using Accumulator = wmma::fragment<wmma::accumulator, kTile, kTile, kTile, float>;

// What a warp keeps in shared memory. Q is in fragments before there are scores.
struct alignas(32) Tiles {
  union {
    half q[kTile][kHeadDim + kPad];
    float s[kTile][kKeyTile + kPad];  // scores, then factors of O, at the end O itself
  };
  half p[kTile][kKeyTile + kPad];  // weights
};

// What a block keeps in shared memory.
struct alignas(32) BlockTiles {       // aligned as WMMA requires
  half k[kHeadDim][kKeyTile + kPad];  // transposed
  half v[kKeyTile][kHeadDim + kPad];
  Tiles warps[kWarps];
};

// Copies kRows rows of [.., head_dim] from global memory to a tile with kCount threads, this one
// being number `thread` of them, 16 bytes at a time. Rows from `valid` on become zero.
template <int kRows, int kCount>
__device__ void load_rows(const half* rows_global, int valid, int thread,
                          half (*tile)[kHeadDim + kPad]) {
  constexpr int kPieces = kHeadDim / 8;  // pieces of 16 bytes per row
  for (int i = thread; i < kRows * kPieces; i += kCount) {
    const int row = i / kPieces, d = i % kPieces * 8;
    *reinterpret_cast<uint4*>(&tile[row][d]) =
        row < valid ? *reinterpret_cast<const uint4*>(rows_global + row * kHeadDim + d) : uint4{};
  }
}

// K likewise, but transposed and neighbouring threads along the keys: 16 bytes of a key's row go to
// 8 rows of the tile.
template <int kCount>
__device__ void load_transposed(const half* rows_global, int valid, int thread,
                                half (*tile)[kKeyTile + kPad]) {
  for (int i = thread; i < kKeyTile * kHeadDim / 8; i += kCount) {
    const int key = i % kKeyTile, d = i / kKeyTile * 8;
    const uint4 piece =
        key < valid ? *reinterpret_cast<const uint4*>(rows_global + key * kHeadDim + d) : uint4{};
    const half* elements = reinterpret_cast<const half*>(&piece);
    for (int e = 0; e < 8; ++e) tile[d + e][key] = elements[e];
  }
}

// Multiplies each row of O by the factor that the row's two lanes have. Which lane holds which
// element of a fragment is not documented, so the factors become a fragment too, through s.
__device__ inline void scale_rows(Accumulator (&o_frag)[kHeadDim / kTile], float factor,
                                  float (*s)[kKeyTile + kPad]) {
  const int row = threadIdx.x % 32 / 2, first = threadIdx.x % 2 * 8;
  __syncwarp();  // s has been read
  for (int column = first; column < first + 8; ++column) s[row][column] = factor;
  __syncwarp();
  Accumulator factor_frag;
  wmma::load_matrix_sync(factor_frag, &s[0][0], kKeyTile + kPad, wmma::mem_row_major);
  for (Accumulator& o : o_frag)
    for (int i = 0; i < o.num_elements; ++i) o.x[i] *= factor_frag.x[i];
}

__global__ void __launch_bounds__(kThreads)
    attention_kernel(const half* Q,  // [batch, heads, tokens, head_dim], as K, V and O
                     const half* K, const half* V,
                     const int* lengths,  // [batch], keys that are real
                     half* O, int heads, int tokens, float scale_log2) {
  // A block is one (batch, head) and 16 query rows for each of its warps.
  __shared__ BlockTiles block;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  Tiles& tiles = block.warps[warp];
  const int row_blocks = (tokens + kQueryRows - 1) / kQueryRows;
  const int first_row = blockIdx.x % row_blocks * kQueryRows + warp * kTile;
  const int matrix_number = blockIdx.x / row_blocks;
  const int64_t matrix = int64_t(matrix_number) * tokens * kHeadDim;  // in elements

  // HOLE 1: how many keys are real here?
  // Hint: matrix_number counts (batch, head), head by head. The loop over the tiles, the zeros in
  // load_rows and the mask below all follow this number.
  (void)lengths, (void)heads;
  const int keys = tokens;

  load_rows<kTile, 32>(Q + matrix + int64_t(first_row) * kHeadDim, tokens - first_row, lane,
                       tiles.q);
  __syncwarp();
  QueryFragment q_frag[kHeadDim / kTile];
  for (int d = 0; d < kHeadDim; d += kTile)
    wmma::load_matrix_sync(q_frag[d / kTile], &tiles.q[0][d], kHeadDim + kPad);

  // Who computes what: the warp its products; two lanes the softmax of a row, in turns of 4 keys.
  const int row = lane / 2;
  const auto column = [lane](int i) { return i / 4 * 8 + lane % 2 * 4 + i % 4; };
  float row_max = -INFINITY, row_sum = 0.0f;  // the sum of this lane's weights
  Accumulator o_frag[kHeadDim / kTile];
  for (Accumulator& o : o_frag) wmma::fill_fragment(o, 0.0f);

  for (int first_key = 0; first_key < keys; first_key += kKeyTile) {
    // Load with all warps. Keys past the last real one are zero: what stands there is nobody's, and
    // a weight of 0 does not save us from NaN in V.
    const int64_t first_element = matrix + int64_t(first_key) * kHeadDim;

    // HOLE 2: here each warp loads both tiles, all four the same. Let them share the work.
    // Hint: load_rows<kRows, kCount> and load_transposed<kCount> deal the pieces out to kCount
    // threads, numbered from 0.
    load_transposed<32>(K + first_element, keys - first_key, lane, block.k);
    load_rows<kKeyTile, 32>(V + first_element, keys - first_key, lane, block.v);

    // HOLE 3: whom must a warp wait for, here and at the end of the loop?
    // Hint: __syncwarp() waits for the lanes of the warp only. Who has written what this warp is
    // about to read? And who may still be reading what it is about to overwrite?
    __syncwarp();

    // Scores: 16 keys at a time, summed up over head_dim in registers.
    for (int j = 0; j < kKeyTile; j += kTile) {
      Accumulator s_frag;
      wmma::fill_fragment(s_frag, 0.0f);
      for (int d = 0; d < kHeadDim; d += kTile) {
        KeyFragment k_frag;
        wmma::load_matrix_sync(k_frag, &block.k[d][j], kKeyTile + kPad);
        wmma::mma_sync(s_frag, q_frag[d / kTile], k_frag, s_frag);
      }
      wmma::store_matrix_sync(&tiles.s[0][j], s_frag, kKeyTile + kPad, wmma::mem_row_major);
    }
    __syncwarp();  // the scores are there

    // Softmax, in units of log2.
    float weight[kKeyTile / 2];
    float tile_max = -INFINITY;
    for (int i = 0; i < kKeyTile / 2; ++i) {
      const bool real = first_key + column(i) < keys;
      weight[i] = real ? tiles.s[row][column(i)] * scale_log2 : -INFINITY;
      tile_max = fmaxf(tile_max, weight[i]);
    }
    tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffffu, tile_max, 1));
    const float new_max = fmaxf(row_max, tile_max), factor = exp2f(row_max - new_max);
    row_max = new_max;
    row_sum *= factor;
    for (int i = 0; i < kKeyTile / 2; ++i) {
      weight[i] = exp2f(weight[i] - row_max);
      row_sum += weight[i];
      tiles.p[row][column(i)] = __float2half(weight[i]);
    }

    // Update O. Where no row's maximum has grown there is nothing to rescale.
    if (__any_sync(0xffffffffu, factor != 1.0f)) scale_rows(o_frag, factor, tiles.s);
    __syncwarp();
    for (int j = 0; j < kKeyTile; j += kTile) {
      WeightFragment p_frag;
      wmma::load_matrix_sync(p_frag, &tiles.p[0][j], kKeyTile + kPad);
      for (int d = 0; d < kHeadDim; d += kTile) {
        ValueFragment v_frag;
        wmma::load_matrix_sync(v_frag, &block.v[j][d], kHeadDim + kPad);
        wmma::mma_sync(o_frag[d / kTile], p_frag, v_frag, o_frag[d / kTile]);
      }
    }
    __syncwarp();  // HOLE 3, its other half: the next tiles overwrite these
  }

  // Write O once, divided by the sum of the weights.
  row_sum += __shfl_xor_sync(0xffffffffu, row_sum, 1);
  scale_rows(o_frag, 1.0f / row_sum, tiles.s);
  __syncwarp();
  for (int d = 0; d < kHeadDim; d += kTile)
    wmma::store_matrix_sync(&tiles.s[0][d], o_frag[d / kTile], kKeyTile + kPad,
                            wmma::mem_row_major);
  __syncwarp();
  for (int i = lane; i < kTile * kHeadDim / 2; i += 32) {
    const int o_row = i / (kHeadDim / 2), d = i % (kHeadDim / 2) * 2;
    if (first_row + o_row < tokens)
      *reinterpret_cast<half2*>(O + matrix + int64_t(first_row + o_row) * kHeadDim + d) =
          __floats2half2_rn(tiles.s[o_row][d], tiles.s[o_row][d + 1]);
  }
}

// Q, K, V, O: [batch, heads, tokens, head_dim 64] fp16, contiguous, starting at multiples of 16
// bytes; lengths: [batch], from 1 to tokens. O = softmax(Q Kᵀ scale) V, where only the first
// lengths[b] keys of batch entry b count.
inline void attention(const half* Q, const half* K, const half* V, const int* lengths, half* O,
                      const AttentionShape& shape, cudaStream_t stream) {
  const int row_blocks = (shape.tokens + kQueryRows - 1) / kQueryRows;
  attention_kernel<<<unsigned(shape.matrices() * row_blocks), kThreads, 0, stream>>>(
      Q, K, V, lengths, O, shape.heads, shape.tokens, shape.scale * kLog2E);
}

}  // namespace exercise
