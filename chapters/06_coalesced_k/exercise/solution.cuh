// STARTER
//| // Exercise 6: a pipeline of two stages. In the chapter's kernel a block loads a tile, waits for it,
//| // works on it, waits for everybody, and only then loads the next: memory idles while it computes,
//| // and the other way round. With two tiles of K and of V the next ones are on their way while these
//| // are worked on, copied from global to shared memory without passing through registers
//| // (asynchronous copies, from compute capability 8.0 on):
//| //
//| //   __pipeline_memcpy_async(to, from, bytes, zeros)   begins a copy of 4, 8 or 16 bytes, the last
//| //                                                     `zeros` of them zeros; `from` must exist
//| //   __pipeline_commit()                               what this thread has begun is a group
//| //   __pipeline_wait_prior(n)                          waits until at most n of its groups, the
//| //                                                     newest, are still on their way
//| //
//| // Such a wait is for the thread's own copies; for those of others there must be a barrier after it.
//| // The problem is that of exercise 1, cross-attention, with as many queries as one picture has
//| // tokens and as many keys as another one. Fill the three holes, then `make exercise6 && ./run`.
//| // Besides right results you are asked for one barrier of the block for each tile where the chapter
//| // has two, and for tiles that still lie in different banks.
// SOLUTION
// Exercise 6, a pipeline of two stages: a solution. The exercise itself is in exercise.cuh.
// END
#pragma once

#include <cuda_fp16.h>
#include <cuda_pipeline_primitives.h>
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
constexpr int kStages = 2;    // tiles of K and of V: one is worked on, one is on its way
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
  half k[kStages][kKeyTile][kHeadDim + kPad];
  half v[kStages][kKeyTile][kHeadDim + kPad];
  Tiles warps[kWarps];
};

// Begins to copy kRows rows of [.., head_dim] from global memory to a tile with kCount threads,
// this one being number `thread` of them, 16 bytes at a time. Rows from `valid` on become zero. The
// copies have arrived when the thread has waited for them, and are there for others after a
// barrier.
template <int kRows, int kCount>
__device__ void load_rows_async(const half* rows_global, int valid, int thread,
                                half (*tile)[kHeadDim + kPad]) {
  constexpr int kPieces = kHeadDim / 8;  // pieces of 16 bytes per row
  for (int i = thread; i < kRows * kPieces; i += kCount) {
    const int row = i / kPieces, d = i % kPieces * 8;
    // STARTER
    //| // HOLE 1: begin the copy of 16 bytes to tile[row][d], or of zeros from row `valid` on.
    //| // Hint: one call. A row that does not exist has no address either: name one that does.
    //| *reinterpret_cast<uint4*>(&tile[row][d]) = uint4{};
    //| (void)rows_global, (void)valid;
    // SOLUTION
    const bool exists = row < valid;
    // The last argument: how many of the 16 bytes are zeros instead.
    __pipeline_memcpy_async(&tile[row][d], rows_global + (exists ? row : 0) * kHeadDim + d, 16,
                            exists ? 0 : 16);
    // END
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
    attention_kernel(const half* Q,  // [batch, heads, queries, head_dim]
                     const half* K,  // [batch, heads, keys, head_dim]
                     const half* V,  // [batch, heads, keys, head_dim]
                     half* O,        // [batch, heads, queries, head_dim]
                     int queries, int keys, float scale_log2) {
  // A block is one (batch, head) and 16 query rows for each of its warps.
  extern __shared__ __align__(128) unsigned char shared_memory[];
  BlockTiles& block = *reinterpret_cast<BlockTiles*>(shared_memory);
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  Tiles& tiles = block.warps[warp];
  const int row_blocks = (queries + kQueryRows - 1) / kQueryRows;
  const int first_row = blockIdx.x % row_blocks * kQueryRows + warp * kTile;
  const int64_t q_matrix = int64_t(blockIdx.x / row_blocks) * queries * kHeadDim;  // in elements
  const int64_t k_matrix = int64_t(blockIdx.x / row_blocks) * keys * kHeadDim;

  // Q, and the first tiles of K and V on their way behind it.
  const int q_rows = max(0, queries - first_row);
  load_rows_async<kTile, 32>(Q + q_matrix + int64_t(q_rows > 0 ? first_row : 0) * kHeadDim, q_rows,
                             lane, tiles.q);
  __pipeline_commit();
  const auto load_tiles = [&](int first_key, int stage) {
    const int64_t first_element = k_matrix + int64_t(first_key) * kHeadDim;
    load_rows_async<kKeyTile, kThreads>(K + first_element, keys - first_key, thread,
                                        block.k[stage]);
    load_rows_async<kKeyTile, kThreads>(V + first_element, keys - first_key, thread,
                                        block.v[stage]);
    __pipeline_commit();
  };
  load_tiles(0, 0);
  __pipeline_wait_prior(1);  // all but the last commit: Q
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

  for (int first_key = 0, stage = 0; first_key < keys; first_key += kKeyTile, stage ^= 1) {
    // STARTER
    //| // HOLE 2: wait for the tiles of this turn.
    //| // HOLE 3: send the next ones on their way into the other stage, if there are any.
    //| // Hint: the other stage was read in the turn before, by all warps. One barrier can stand for
    //| // two things: everybody's copies of this turn have arrived, and everybody is done with the turn
    //| // before. What must come before it, and what after?
    //| (void)load_tiles;
    // SOLUTION
    // The tiles of this turn have arrived, for all threads; and all are done with the other stage,
    // which the next tiles may now overwrite while these are worked on.
    __pipeline_wait_prior(0);
    __syncthreads();  // the tiles are there
    if (first_key + kKeyTile < keys) load_tiles(first_key + kKeyTile, stage ^ 1);
    // END

    // Scores: 16 keys at a time, summed up over head_dim in registers.
    for (int j = 0; j < kKeyTile; j += kTile) {
      Accumulator s_frag;
      wmma::fill_fragment(s_frag, 0.0f);
      for (int d = 0; d < kHeadDim; d += kTile) {
        KeyFragment k_frag;
        wmma::load_matrix_sync(k_frag, &block.k[stage][j][d], kHeadDim + kPad);
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
      weight[i] = first_key + column(i) < keys ? weight[i] * scale_log2 : -INFINITY;
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
        wmma::load_matrix_sync(v_frag, &block.v[stage][j][d], kHeadDim + kPad);
        wmma::mma_sync(o_frag[d / kTile], p_frag, v_frag, o_frag[d / kTile]);
      }
    }
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
    if (first_row + o_row < queries)
      *reinterpret_cast<half2*>(O + q_matrix + int64_t(first_row + o_row) * kHeadDim + d) =
          __floats2half2_rn(tiles.s[o_row][d], tiles.s[o_row][d + 1]);
  }
}

// Q, O: [batch, heads, shape.tokens, head_dim 64]; K, V: [batch, heads, keys, head_dim 64]; all
// fp16, contiguous, starting at multiples of 16 bytes. O = softmax(Q Kᵀ scale) V.
inline void attention(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, int keys, cudaStream_t stream) {
  const int row_blocks = (shape.tokens + kQueryRows - 1) / kQueryRows;
  // Two stages need more than the 48 KiB that a block gets without asking.
  cudaFuncSetAttribute(attention_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       sizeof(BlockTiles));
  attention_kernel<<<unsigned(shape.matrices() * row_blocks), kThreads, sizeof(BlockTiles),
                     stream>>>(Q, K, V, O, shape.tokens, keys, shape.scale * kLog2E);
}

}  // namespace exercise
