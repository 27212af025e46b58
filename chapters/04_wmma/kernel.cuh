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
#include "../02_tiling/parts/online_softmax.cuh"
#include "parts/rows.cuh"

namespace wmma_attention {

using tiling::OnlineSoftmax;

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
  load_rows<kTile, kHeadDim, 32, kMostLoads>(Q + matrix + int64_t(first_row) * kHeadDim,
                                             tokens - first_row, lane, tiles.q);
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
    load_transposed<kHeadDim, kKeyTile, kThreads, kMostLoads>(K + first_element, tokens - first_key,
                                                              thread, tiles.k);
    load_rows<kKeyTile, kHeadDim, kThreads, kMostLoads>(V + first_element, tokens - first_key,
                                                        thread, tiles.v);
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
