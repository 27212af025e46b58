// STARTER
//| // Exercise 6, from an empty function: Q, K and V in one array. In a Vision Transformer one product
//| // with a matrix of weights makes Q, K and V of all tokens, and its rows are tokens: of each token
//| // there is first Q of all heads, then K of all heads, then V.
//| //
//| //   qkv [batch, tokens, 3, heads, head_dim]   O [batch, tokens, heads, head_dim]
//| //
//| // The next layer wants O likewise, token by token. To sort qkv into the three arrays of the chapter
//| // would cost another trip to memory and back; here attention reads it as it lies.
//| //
//| // Nothing is given but the function. Kernel, tiles, grid and launch are yours. Then
//| // `make exercise6 && ./run --task task2.cuh` grades it: 30 points for right results, 20 for no
//| // finding of any check, and 50 for
//| //
//| //   15  bytes loaded: Q once, K and V once for 64 query rows, nothing from memory of your own
//| //   10  loads are coalesced: no sector is moved in vain
//| //    5  and they are 16 bytes a lane
//| //   10  shared memory: bank conflicts cost at most 2 %
//| //    5  both products on the tensor cores
//| //    5  stores: O, once, and nothing else
// SOLUTION
// Exercise 6, Q, K and V in one array: a solution. The exercise itself is in task2.cuh.
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
constexpr int kTile = 16;     // rows, columns and depth of one WMMA product, query rows of a warp
constexpr int kKeyTile = 64;  // keys in shared memory at a time
constexpr int kWarps = 4;     // per block
constexpr int kThreads = 32 * kWarps;
constexpr int kQueryRows = kTile * kWarps;  // queries per block
constexpr int kPad = 8;  // halves or floats: what a warp touches at a time is in different banks
constexpr float kLog2E = 1.44269504f;  // exp(x) = 2^(x log2(e))

using QueryFragment = wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, half, wmma::row_major>;
using KeyFragment = wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, half, wmma::col_major>;
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
struct alignas(32) BlockTiles {
  half k[kKeyTile][kHeadDim + kPad];
  half v[kKeyTile][kHeadDim + kPad];
  Tiles warps[kWarps];
};

// Copies kRows rows of head_dim elements, which begin `stride` elements apart in global memory, to
// a tile with kCount threads, this one being number `thread` of them, 16 bytes at a time: 8
// neighbouring lanes have a row, which is 4 whole sectors. Rows from `valid` on become zero.
template <int kRows, int kCount>
__device__ void load_rows(const half* rows_global, int64_t stride, int valid, int thread,
                          half (*tile)[kHeadDim + kPad]) {
  constexpr int kPieces = kHeadDim / 8;  // pieces of 16 bytes per row
  for (int i = thread; i < kRows * kPieces; i += kCount) {
    const int row = i / kPieces, d = i % kPieces * 8;
    *reinterpret_cast<uint4*>(&tile[row][d]) =
        row < valid ? *reinterpret_cast<const uint4*>(rows_global + row * stride + d) : uint4{};
  }
}

// Rounds four neighbouring numbers to fp16 and stores them at once.
__device__ inline void store_half4(half* where, float4 x) {
  const half2 low = __floats2half2_rn(x.x, x.y), high = __floats2half2_rn(x.z, x.w);
  *reinterpret_cast<uint64_t*>(where) = reinterpret_cast<const uint32_t&>(low) |
                                        uint64_t(reinterpret_cast<const uint32_t&>(high)) << 32;
}

// Multiplies each row of O by the factor that the row's two lanes have. Which lane holds which
// element of a fragment is not documented, so the factors become a fragment too, through s.
__device__ inline void scale_rows(Accumulator (&o_frag)[kHeadDim / kTile], float factor,
                                  float (*s)[kKeyTile + kPad]) {
  const int row = threadIdx.x % 32 / 2, first = threadIdx.x % 2 * 4;
  __syncwarp();  // s has been read
  for (int column = first; column < kTile; column += 8)
    reinterpret_cast<float4&>(s[row][column]) = make_float4(factor, factor, factor, factor);
  __syncwarp();
  Accumulator factor_frag;
  wmma::load_matrix_sync(factor_frag, &s[0][0], kKeyTile + kPad, wmma::mem_row_major);
  for (Accumulator& o : o_frag)
    for (int i = 0; i < o.num_elements; ++i) o.x[i] *= factor_frag.x[i];
}

__global__ void __launch_bounds__(kThreads)
    attention_kernel(const half* qkv,  // [batch, tokens, 3, heads, head_dim]
                     half* O,          // [batch, tokens, heads, head_dim]
                     int heads, int tokens, float scale_log2) {
  // A block is one (batch, head) and 16 query rows for each of its warps.
  __shared__ BlockTiles block;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  Tiles& tiles = block.warps[warp];
  const int row_blocks = (tokens + kQueryRows - 1) / kQueryRows;
  const int first_row = blockIdx.x % row_blocks * kQueryRows + warp * kTile;
  const int head = blockIdx.x / row_blocks % heads;
  const int64_t image = blockIdx.x / row_blocks / heads;
  // From a token to the next one, in elements. Of a token, all heads of Q come before those of K.
  const int64_t o_stride = int64_t(heads) * kHeadDim, stride = 3 * o_stride;
  const half* Q = qkv + image * tokens * stride + head * kHeadDim;
  const half *K = Q + o_stride, *V = K + o_stride;
  O += image * tokens * o_stride + head * kHeadDim;

  load_rows<kTile, 32>(Q + first_row * stride, stride, tokens - first_row, lane, tiles.q);
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
    // Load with all warps. Keys past the last token are zero: a weight of 0 does not save us from
    // NaN in V.
    const int64_t first_element = first_key * stride;
    load_rows<kKeyTile, kThreads>(K + first_element, stride, tokens - first_key, thread, block.k);
    load_rows<kKeyTile, kThreads>(V + first_element, stride, tokens - first_key, thread, block.v);
    __syncthreads();  // the tiles are there

    // Scores: 16 keys at a time, summed up over head_dim in registers.
    for (int j = 0; j < kKeyTile; j += kTile) {
      Accumulator s_frag;
      wmma::fill_fragment(s_frag, 0.0f);
      for (int d = 0; d < kHeadDim; d += kTile) {
        KeyFragment k_frag;
        wmma::load_matrix_sync(k_frag, &block.k[j][d], kHeadDim + kPad);
        wmma::mma_sync(s_frag, q_frag[d / kTile], k_frag, s_frag);
      }
      wmma::store_matrix_sync(&tiles.s[0][j], s_frag, kKeyTile + kPad, wmma::mem_row_major);
    }
    __syncwarp();  // the scores are there

    // Softmax, in units of log2.
    alignas(16) float weight[kKeyTile / 2];
    float tile_max = -INFINITY;
    for (int i = 0; i < kKeyTile / 2; i += 4)
      reinterpret_cast<float4&>(weight[i]) = reinterpret_cast<float4&>(tiles.s[row][column(i)]);
    for (int i = 0; i < kKeyTile / 2; ++i) {
      weight[i] = first_key + column(i) < tokens ? weight[i] * scale_log2 : -INFINITY;
      tile_max = fmaxf(tile_max, weight[i]);
    }
    tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffffu, tile_max, 1));
    const float new_max = fmaxf(row_max, tile_max), factor = exp2f(row_max - new_max);
    row_max = new_max;
    row_sum *= factor;
    for (int i = 0; i < kKeyTile / 2; ++i) row_sum += weight[i] = exp2f(weight[i] - row_max);
    for (int i = 0; i < kKeyTile / 2; i += 4)
      store_half4(&tiles.p[row][column(i)], reinterpret_cast<float4&>(weight[i]));

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
    __syncthreads();  // before the next tiles overwrite these
  }

  // Write O once, divided by the sum of the weights.
  row_sum += __shfl_xor_sync(0xffffffffu, row_sum, 1);
  scale_rows(o_frag, 1.0f / row_sum, tiles.s);
  __syncwarp();
  for (int d = 0; d < kHeadDim; d += kTile)
    wmma::store_matrix_sync(&tiles.s[0][d], o_frag[d / kTile], kKeyTile + kPad,
                            wmma::mem_row_major);
  __syncwarp();
  for (int i = lane; i < kTile * kHeadDim / 4; i += 32) {
    const int o_row = i / (kHeadDim / 4), d = i % (kHeadDim / 4) * 4;
    if (first_row + o_row < tokens)
      store_half4(O + (first_row + o_row) * o_stride + d,
                  reinterpret_cast<float4&>(tiles.s[o_row][d]));
  }
}
// END

// O = softmax(Q Kᵀ scale) V, for each image and head.
//   qkv      [batch, tokens, 3, heads, head_dim 64] fp16: of each token Q of all heads, then K,
//            then V
//   O        [batch, tokens, heads, head_dim 64] fp16; both contiguous, on the device, starting at
//            multiples of 16 bytes
//   shape    batch, heads and tokens from 1 on; head_dim 64; scale, by which scores are multiplied
//   stream   for all that is launched
inline void attention(const half* qkv, half* O, const AttentionShape& shape, cudaStream_t stream) {
  // STARTER
  //| // HOLE: all of it. Kernels go above this function, their launches here.
  //| (void)qkv, (void)O, (void)shape, (void)stream;
  // SOLUTION
  const int row_blocks = (shape.tokens + kQueryRows - 1) / kQueryRows;
  attention_kernel<<<unsigned(shape.matrices() * row_blocks), kThreads, 0, stream>>>(
      qkv, O, shape.heads, shape.tokens, shape.scale * kLog2E);
  // END
}

}  // namespace exercise
// STARTER
//|
//| // Hints, one after the other: go on to the next when you are stuck.
//| //
//| // 1. Write down, in elements, how far it is in qkv from a head to the next one, from Q of a head to
//| //    its K, and from a token to the next one. Try it on one token with two heads, then on two
//| //    tokens.
//| // 2. A row of head_dim 64 is still 128 bytes without a gap, whatever lies between two rows. How
//| //    many lanes, and how many bytes each, make of such rows loads of which every sector is needed?
//| // 3. Where do rows of a tile begin in shared memory? 16 bytes a lane are written 8 lanes at a time,
//| //    and read by load_matrix_sync from 8 rows at a time: both want 8 different groups of 4 banks.
//| // 4. Bank conflicts remain? They come from the tiles of scores and weights too, and from O on its
//| //    way out: 16 bytes a lane there, and rows that are padded as well.
// END
