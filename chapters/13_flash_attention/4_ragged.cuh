// Step 4, ragged: nothing is multiplied that nobody needs. Sizes are seldom multiples of a tile.
//
//   keys   behind the last whole tile they come 8 at a time: 197 tokens are 200 keys, not 256
//   rows   a warp whose second block of 16 rows lies past the end multiplies one; one without rows
//          is another in each block, so that no quarter of the SM has less to do than the others
//
// The rest is step 3's.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "../../common/attention/launch.cuh"
#include "../../common/attention/shape.h"
#include "parts/eight_keys.cuh"
#include "parts/fragments.cuh"

namespace flash_attention {

template <int kHeadDim>
struct RaggedTiles {
  // Blocks of 16 rows that a warp has: two where their O and Q leave registers for the scores.
  static constexpr int kRowBlocks = kHeadDim < 128 ? 2 : 1;
  static constexpr int kQueryRows = 16 * kRowBlocks * kWarps;
  static constexpr int kKeyTile = kHeadDim < 128 ? 64 : 32;

  tile::SharedTile<half, kQueryRows, kHeadDim, tile::Swizzled> q;  // at the end O
  struct {
    tile::SharedTile<half, kKeyTile, kHeadDim, tile::Swizzled> k, v;
  } stages[2];
};

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 2)
    ragged_kernel(const half* Q,  // [batch, heads, tokens, head_dim], as all four
                  const half* K, const half* V, half* O, int tokens, float scale_log2) {
  // A block is one (batch, head) and 16 or 32 query rows for each of its warps.
  using Tiles = RaggedTiles<kHeadDim>;
  constexpr int kRowBlocks = Tiles::kRowBlocks, kWarpRows = 16 * kRowBlocks;
  constexpr int kQueryRows = Tiles::kQueryRows, kKeyTile = Tiles::kKeyTile;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  auto& tiles = *reinterpret_cast<Tiles*>(shared_memory);
  const unsigned thread = threadIdx.x, warp = thread / 32;
  const int row_blocks = (tokens + kQueryRows - 1) / kQueryRows;
  const int block_row = blockIdx.x % row_blocks * kQueryRows;
  const int warp_row = (warp + blockIdx.x) % kWarps * kWarpRows, first_row = block_row + warp_row;
  const int own_blocks = max(0, min(kRowBlocks, (tokens - first_row + 15) / 16));
  const int64_t matrix = int64_t(blockIdx.x / row_blocks) * tokens * kHeadDim;  // in elements

  // Q once, and the first tile. Rows past the last token are zero, since NaN must not arise.
  const half *k_global = K + matrix, *v_global = V + matrix;  // the tile to copy next
  int to_copy = tokens;                                       // keys that are not yet copied
  const auto copy_tile = [&](int stage) {
    copy_rows<kThreads>(k_global, to_copy, thread, tiles.stages[stage].k);
    copy_rows<kThreads>(v_global, to_copy, thread, tiles.stages[stage].v);
    tile::end_copies();
    k_global += kKeyTile * kHeadDim;
    v_global += kKeyTile * kHeadDim;
    to_copy -= kKeyTile;
  };
  copy_rows<kThreads>(Q + matrix + int64_t(block_row) * kHeadDim, tokens - block_row, thread,
                      tiles.q);
  copy_tile(0);
  tile::Stages<2> stages;
  stages.wait();
  tile::LeftFragment<half> q_frag[kRowBlocks][kHeadDim / 16];
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
    load_queries(q_frag[r], tiles.q, warp_row + 16 * r, scale_log2);

  RowSoftmax softmax[kRowBlocks];
  tile::Sums o_frag[kRowBlocks][kHeadDim / 8];
  const float scale = positive_scale(scale_log2);
  // 8 kKeyBlocks keys of the stage to read, from `key` on, of which `keys` are there, for the first
  // kRows of the warp's blocks of rows.
  const auto update_rows = [&](auto rows, auto key_blocks, int key, int keys) {
    constexpr int kRows = decltype(rows)::value, kKeyBlocks = decltype(key_blocks)::value;
    const auto& [k, v] = tiles.stages[stages.read];
    tile::Sums s_frag[kRows][kKeyBlocks];
    multiply_scores(s_frag, q_frag, k, key);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (kKeyBlocks == 1) leave_out(s_frag[r], keys);
      // Softmax: the weights of these keys, and what the larger maximum makes of those before.
      softmax[r].update(s_frag[r], scale, o_frag[r]);
    }
    multiply_values(o_frag, s_frag, v, key);
  };
  // A warp without rows has helped to load, and now waits for the others.
  const auto update = [&](auto key_blocks, int key, int keys) {
    if (own_blocks == kRowBlocks)
      update_rows(std::integral_constant<int, kRowBlocks>{}, key_blocks, key, keys);
    else if (own_blocks > 0)
      update_rows(std::integral_constant<int, 1>{}, key_blocks, key, keys);
  };
  int keys = tokens;  // keys that are left
  for (; keys >= kKeyTile; keys -= kKeyTile) {
    // The next tile, into the stage that all warps have left behind.
    if (to_copy > 0) copy_tile(stages.write);
    update(std::integral_constant<int, kKeyTile / 8>{}, 0, kKeyTile);
    stages.next();
    stages.wait();
  }
  for (int key = 0; key < keys; key += 8) update(std::integral_constant<int, 1>{}, key, keys - key);

#pragma unroll
  // Write O once, divided by the sum of the weights, by way of the warp's rows of Q.
  for (int r = 0; r < kRowBlocks; ++r) {
    if (r >= own_blocks) break;
    softmax[r].divide(o_frag[r]);
    const int row = first_row + 16 * r;
    store_output(o_frag[r], tiles.q, warp_row + 16 * r, O + matrix + int64_t(row) * kHeadDim,
                 tokens - row);
  }
}

// Q, K, V, O: [batch, heads, tokens, head_dim] fp16, contiguous; O = softmax(Q Kᵀ scale) V with
// fp32 accumulation. All four start at a multiple of 16 bytes. Throws std::invalid_argument naming
// what is wrong and the limit when it cannot, std::runtime_error when CUDA refuses.
inline void ragged(const half* Q, const half* K, const half* V, half* O,
                   const AttentionShape& shape, cudaStream_t stream) {
  require_attention_shape(shape);
  require_alignment({Q, K, V, O}, "Q, K, V and O");
  with_head_dim(shape.head_dim, [&](auto head_dim) {
    using Tiles = RaggedTiles<head_dim>;
    const auto kernel = ragged_kernel<head_dim>;
    allow_shared_memory(kernel, sizeof(Tiles));
    kernel<<<blocks_for(shape, Tiles::kQueryRows), kThreads, sizeof(Tiles), stream>>>(
        Q, K, V, O, shape.tokens, log2_scale(shape));
  });
  require_launched(cudaGetLastError(), shape);
}

}  // namespace flash_attention
