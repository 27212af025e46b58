// STARTER
//| // Exercise 4: a table of biases in the scores. Many transformers know where a key is by a number
//| // that they have learned for each head and each distance between key and query, and add to the
//| // score:
//| //
//| //   O = softmax(scale Q Kᵀ + B) V        B[head][query][key] = bias[head][key - query + tokens - 1]
//| //
//| // The table has [heads, 2 tokens - 1] entries in fp32: the distances -(tokens - 1) to tokens - 1.
//| // The kernel is the chapter's for head_dim 64, with three holes. Fill them, then
//| // `make exercise4 && ./run`. Besides right results you are asked to leave both products to the
//| // tensor cores; what is added must be added elsewhere, since a lane does not know which element of
//| // a fragment it holds.
// SOLUTION
// Exercise 4, a table of biases in the scores: a solution. The exercise itself is in exercise.cuh.
// END
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
struct alignas(32) Tiles {            // aligned as WMMA requires
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
  // STARTER
  //| // HOLE 3: multiply each row of o_frag by its factor. Lanes 2 row and 2 row + 1 have that of
  //| // `row`.
  //| // Hint: a fragment of the same type has its elements in the same lanes. Fill 16 columns of s with
  //| // each row's factor, load them into an Accumulator, and multiply element by element
  //| // (x[0], ..., x[num_elements - 1]). Where must the lanes wait for each other?
  //| (void)o_frag, (void)factor, (void)s;
  // SOLUTION
  const int row = threadIdx.x / 2, first = threadIdx.x % 2 * 8;
  __syncwarp();  // s has been read
  for (int column = first; column < first + 8; ++column) s[row][column] = factor;
  __syncwarp();
  Accumulator factor_frag;
  wmma::load_matrix_sync(factor_frag, &s[0][0], kKeyTile + kPad, wmma::mem_row_major);
  for (Accumulator& o : o_frag)
    for (int i = 0; i < o.num_elements; ++i) o.x[i] *= factor_frag.x[i];
  // END
}

__global__ void __launch_bounds__(32)
    attention_kernel(const half* Q,  // [batch, heads, tokens, head_dim], as K, V and O
                     const half* K, const half* V,
                     const float* bias,  // [heads, 2 tokens - 1]
                     half* O, int heads, int tokens, float scale) {
  // A block is one warp: one (batch, head) and 16 of its query rows.
  __shared__ Tiles tiles;
  const int lane = threadIdx.x;
  const int row_blocks = (tokens + kTile - 1) / kTile;
  const int first_row = blockIdx.x % row_blocks * kTile;
  const int matrix_number = blockIdx.x / row_blocks;
  const int64_t matrix = int64_t(matrix_number) * tokens * kHeadDim;  // in elements
  // bias of a key for query 0 of this head at [key]; each further query is one place earlier.
  const float* head_bias = bias + int64_t(matrix_number % heads) * (2 * tokens - 1) + tokens - 1;

  load_rows<kTile>(Q + matrix + int64_t(first_row) * kHeadDim, tokens - first_row, tiles.q);
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

  for (int first_key = 0; first_key < tokens; first_key += kKeyTile) {
    // Load: keys past the last token are zero, a weight of 0 does not save us from NaN in V.
    const int64_t first_element = matrix + int64_t(first_key) * kHeadDim;
    load_transposed(K + first_element, tokens - first_key, tiles.k);
    load_rows<kKeyTile>(V + first_element, tokens - first_key, tiles.v);
    __syncwarp();

    // Scores: 16 keys at a time, summed up over head_dim in registers.
    for (int j = 0; j < kKeyTile; j += kTile) {
      Accumulator s_frag;
      wmma::fill_fragment(s_frag, 0.0f);
      for (int d = 0; d < kHeadDim; d += kTile) {
        // STARTER
        //| // HOLE 1: s_frag += (16 columns of Q from d on) x (the same columns of 16 keys from j on)ᵀ.
        //| // Hint: Q is in q_frag[d / kTile]. K's tile lies transposed, as [d][key]: the operand's
        //| // rows are contiguous, as row_major in KeyFragment says, and kKeyTile + kPad halves apart.
        //| // load_matrix_sync, then mma_sync.
        //| KeyFragment k_frag;
        //| (void)k_frag;
        // SOLUTION
        KeyFragment k_frag;
        wmma::load_matrix_sync(k_frag, &tiles.k[d][j], kKeyTile + kPad);
        wmma::mma_sync(s_frag, q_frag[d / kTile], k_frag, s_frag);
        // END
      }
      wmma::store_matrix_sync(&tiles.s[0][j], s_frag, kKeyTile + kPad, wmma::mem_row_major);
    }
    __syncwarp();  // the scores are there

    // Softmax, in units of log2.
    float weight[kKeyTile / 2];
    float tile_max = -INFINITY;
    for (int i = 0; i < kKeyTile / 2; ++i) {
      const int key = first_key + column(i), query = first_row + row;
      // STARTER
      //| // HOLE 2: the score of this query and key, in natural units: product, scale, bias.
      //| // Hint: head_bias[key - query] is the entry for this head. Which entries are outside of the
      //| // table, because the key or the query is past the last token?
      //| (void)query, (void)head_bias, (void)scale;
      //| weight[i] = tiles.s[row][column(i)];
      // SOLUTION
      const bool valid = key < tokens && query < tokens;
      weight[i] = tiles.s[row][column(i)] * scale;
      if (valid) weight[i] += head_bias[key - query];
      // END
      weight[i] = key < tokens ? weight[i] * kLog2E : -INFINITY;
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
    if (first_row + o_row < tokens)
      *reinterpret_cast<half2*>(O + matrix + int64_t(first_row + o_row) * kHeadDim + d) =
          __floats2half2_rn(tiles.s[o_row][d], tiles.s[o_row][d + 1]);
  }
}

// Q, K, V, O: [batch, heads, tokens, head_dim 64] fp16, contiguous, starting at multiples of 16
// bytes; bias: [heads, 2 tokens - 1] fp32. O = softmax(Q Kᵀ scale + B) V with
// B[head][query][key] = bias[head][key - query + tokens - 1].
inline void attention(const half* Q, const half* K, const half* V, const float* bias, half* O,
                      const AttentionShape& shape, cudaStream_t stream) {
  const int row_blocks = (shape.tokens + kTile - 1) / kTile;
  attention_kernel<<<unsigned(shape.matrices() * row_blocks), 32, 0, stream>>>(
      Q, K, V, bias, O, shape.heads, shape.tokens, shape.scale);
}

}  // namespace exercise
