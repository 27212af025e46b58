// STARTER
//| // Exercise 4, from an empty function: grouped queries. Large language models give several heads of
//| // Q one head of K and V in common, so that less of K and V must be kept and loaded, and when they
//| // write text they ask for one token or a few at a time: few queries, many keys.
//| //
//| //   O[h] = softmax(scale Q[h] K[g]ᵀ) V[g]        g = h / (heads / kv_heads)
//| //
//| // A product of the tensor cores has 16 rows, whether there are 16 queries or not. With 5 queries, a
//| // kernel that takes one head after the other multiplies 11 rows of nothing.
//| //
//| // Here nothing is given but the function. Kernel, tiles, grid and launch are yours. Then
//| // `make exercise4 && ./run --task task2.cuh` grades it: 30 points for right results, 20 for no
//| // finding of any check, and 50 for
//| //
//| //   20  both products on the tensor cores, padded to whole tiles of 16 rows once for each head of K
//| //       and V, not once for each head of Q
//| //   10  fp32 instructions: those of the softmax, 16 for each score
//| //   10  K and V: loaded once for 16 rows
//| //    5  loads of V are coalesced
//| //    5  stores: O, once, and nothing else
// SOLUTION
// Exercise 4, grouped queries: a solution. The exercise itself is in task2.cuh.
//
// The heads of a group lie one after the other in Q and in O: with their queries they are the rows
// of one matrix, [batch, kv_heads, group x queries, head_dim], whose rows all look at the same
// keys.
// END
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cmath>
#include <cstdint>

#include "../../../common/attention/shape.h"

namespace exercise {

// SOLUTION
namespace wmma = nvcuda::wmma;

constexpr int kHeadDim = 64;
constexpr int kTile = 16;     // rows, columns and depth of one WMMA product, query rows of a block
constexpr int kKeyTile = 64;  // keys in shared memory at a time
constexpr int kPad = 8;  // halves or floats: what a warp touches at a time is in different banks
constexpr float kLog2E = 1.44269504f;  // exp(x) = 2^(x log2(e))

using QueryFragment = wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, half, wmma::row_major>;
using KeyFragment = wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, half, wmma::row_major>;
using WeightFragment = wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, half, wmma::row_major>;
using ValueFragment = wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, half, wmma::row_major>;
using Accumulator = wmma::fragment<wmma::accumulator, kTile, kTile, kTile, float>;

// What a block, a warp, keeps in shared memory. Q is in fragments before there are scores.
struct alignas(32) Tiles {
  half k[kHeadDim][kKeyTile + kPad];  // transposed
  half v[kKeyTile][kHeadDim + kPad];
  union {
    half q[kTile][kHeadDim + kPad];
    float s[kTile][kKeyTile + kPad];  // scores, then factors of O, at the end O itself
  };
  half p[kTile][kKeyTile + kPad];  // weights
};

// Copies kRows rows of [.., head_dim] from global memory to a tile, 16 bytes a lane. Rows from
// `valid` on become zero.
template <int kRows>
__device__ void load_rows(const half* rows_global, int valid, half (*tile)[kHeadDim + kPad]) {
  constexpr int kPieces = kHeadDim / 8;  // pieces of 16 bytes per row
  for (int i = threadIdx.x; i < kRows * kPieces; i += 32) {
    const int row = i / kPieces, d = i % kPieces * 8;
    *reinterpret_cast<uint4*>(&tile[row][d]) =
        row < valid ? *reinterpret_cast<const uint4*>(rows_global + row * kHeadDim + d) : uint4{};
  }
}

// K likewise, but transposed and neighbouring lanes along the keys: 16 bytes of a key's row go to 8
// rows of the tile.
__device__ inline void load_transposed(const half* rows_global, int valid,
                                       half (*tile)[kKeyTile + kPad]) {
  for (int i = threadIdx.x; i < kKeyTile * kHeadDim / 8; i += 32) {
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
  const int row = threadIdx.x / 2, first = threadIdx.x % 2 * 8;
  __syncwarp();  // s has been read
  for (int column = first; column < first + 8; ++column) s[row][column] = factor;
  __syncwarp();
  Accumulator factor_frag;
  wmma::load_matrix_sync(factor_frag, &s[0][0], kKeyTile + kPad, wmma::mem_row_major);
  for (Accumulator& o : o_frag)
    for (int i = 0; i < o.num_elements; ++i) o.x[i] *= factor_frag.x[i];
}

__global__ void __launch_bounds__(32)
    attention_kernel(const half* Q,  // [batch, kv_heads, rows, head_dim], as O
                     const half* K,  // [batch, kv_heads, keys, head_dim]
                     const half* V,  // [batch, kv_heads, keys, head_dim]
                     half* O, int rows, int keys, float scale_log2) {
  // A block is one warp: one (batch, head of K and V) and 16 of the rows that look at its keys.
  __shared__ Tiles tiles;
  const int lane = threadIdx.x;
  const int row_blocks = (rows + kTile - 1) / kTile;
  const int first_row = blockIdx.x % row_blocks * kTile;
  const int64_t matrix = blockIdx.x / row_blocks;
  const int64_t first_q = (matrix * rows + first_row) * kHeadDim;  // in elements, of O too
  K += matrix * keys * kHeadDim;
  V += matrix * keys * kHeadDim;

  load_rows<kTile>(Q + first_q, rows - first_row, tiles.q);
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
    // Load: keys past the last one are zero, a weight of 0 does not save us from NaN in V.
    const int64_t first_element = int64_t(first_key) * kHeadDim;
    load_transposed(K + first_element, keys - first_key, tiles.k);
    load_rows<kKeyTile>(V + first_element, keys - first_key, tiles.v);
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
    __syncwarp();  // the scores are there

    // Softmax, in units of log2.
    float weight[kKeyTile / 2];
    float tile_max = -INFINITY;
    for (int i = 0; i < kKeyTile / 2; ++i) {
      const bool exists = first_key + column(i) < keys;
      weight[i] = exists ? tiles.s[row][column(i)] * scale_log2 : -INFINITY;
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
        wmma::load_matrix_sync(v_frag, &tiles.v[j][d], kHeadDim + kPad);
        wmma::mma_sync(o_frag[d / kTile], p_frag, v_frag, o_frag[d / kTile]);
      }
    }
    __syncwarp();  // before the next tiles overwrite these
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
    if (first_row + o_row < rows)
      *reinterpret_cast<half2*>(O + first_q + o_row * kHeadDim + d) =
          __floats2half2_rn(tiles.s[o_row][d], tiles.s[o_row][d + 1]);
  }
}
// END

// O = softmax(Q Kᵀ scale) V, where head h of Q and O looks at head h / (heads / kv_heads) of K and
// V.
//   Q, O      [batch, heads, queries, head_dim 64] fp16
//   K, V      [batch, kv_heads, keys, head_dim 64] fp16; all four contiguous, on the device,
//             starting at multiples of 16 bytes
//   shape     of Q: batch, heads, tokens (the number of queries) from 1 on; head_dim 64; scale, by
//             which scores are multiplied
//   kv_heads  divides heads: 1 to heads
//   keys      1 or more; with queries it has nothing to do
//   stream    for all that is launched
inline void attention(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, int kv_heads, int keys, cudaStream_t stream) {
  // STARTER
  //| // HOLE: all of it. Kernels go above this function, their launches here.
  //| (void)Q, (void)K, (void)V, (void)O, (void)shape, (void)kv_heads, (void)keys, (void)stream;
  // SOLUTION
  const int rows = shape.heads / kv_heads * shape.tokens;
  const int row_blocks = (rows + kTile - 1) / kTile;
  attention_kernel<<<unsigned(shape.batch * kv_heads * row_blocks), 32, 0, stream>>>(
      Q, K, V, O, rows, keys, shape.scale * kLog2E);
  // END
}

}  // namespace exercise
// STARTER
//|
//| // Hints, one after the other: go on to the next when you are stuck.
//| //
//| // 1. Make it right before you make it fast: the chapter's kernel with one head of Q at a time
//| //    solves the problem, with another number of keys than of queries and another matrix of K and V.
//| // 2. Which queries may be rows of the same product? All that look at the same keys, and these are
//| //    more than those of one head.
//| // 3. Write down where the rows of the heads of one group lie in Q. How far is the last row of one
//| //    head from the first of the next?
//| // 4. The number of rows is a multiple of 16 no more often than before: the last 16 need zeros, and
//| //    only rows that exist are stored.
// END
