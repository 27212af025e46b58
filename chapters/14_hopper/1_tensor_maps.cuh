// Step 1, tensor maps: a tile is one request to the copy engine, and no warp that multiplies has a hand
// in it.
//
//   maps       the host describes Q, K and V; one thread asks for a tile, and the engine computes
//              addresses, swizzles, and fills rows past the end with zeros
//   ring       stages with two mbarriers each: full when its tiles have come, empty when all have read
//   producer   a warp of its own, of which one lane asks; no barrier of the block is left in the loop
//   block      the producer has as many registers as the others, an eighth of the SM's: eight warps are
//              one block, and seven of them multiply
//
// The rest is chapter 13's `ragged`.
#pragma once

#include <type_traits>

#include "../13_flash_attention/parts/eight_keys.cuh"
#include "../13_flash_attention/parts/fragments.cuh"
#include "parts/maps.cuh"

namespace hopper {

using namespace flash_attention;  // what a warp computes with: fragments.cuh

template <int kHeadDim>
struct TensorMapsTiles {
  static constexpr int kWarps = 7, kThreads = 32 * (kWarps + 1);
  // Blocks of 16 rows that a warp has: two where their O and Q leave registers for the scores.
  static constexpr int kRowBlocks = kHeadDim < 128 ? 2 : 1;
  static constexpr int kQueryRows = 16 * kRowBlocks * kWarps;
  static constexpr int kKeyTile = kHeadDim < 128 ? 64 : 32;
  static constexpr int kStages = 4;

  tile::BoxTile<kQueryRows, kHeadDim> q;  // at the end O
  struct Stage {
    tile::BoxTile<kKeyTile, kHeadDim> k, v;
  } stages[kStages];
  tile::Barrier q_full, full[kStages], empty[kStages];
};

// How many of a warp's kMost blocks of 16 rows have one of the `rows` that are left. (In comparisons: from
// max(0, min(2, blocks)) == 2 ptxas 13.0 made code here that was false for more than two blocks.)
template <int kMost>
__device__ int blocks_with_rows(int rows) {
  static_assert(kMost == 1 || kMost == 2);
  return rows <= 0 ? 0 : kMost == 1 || rows <= 16 ? 1 : 2;
}

template <int kHeadDim>
__global__ void __launch_bounds__(TensorMapsTiles<kHeadDim>::kThreads, 1)
    tensor_maps_kernel(const __grid_constant__ TensorMaps maps,
                       half* O,  // [batch, heads, tokens, head_dim], as Q, K and V
                       int tokens, float scale_log2) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  // A block is one (batch, head) and 16 or 32 query rows for each of the warps that multiply.
  using Tiles = TensorMapsTiles<kHeadDim>;
  constexpr int kRowBlocks = Tiles::kRowBlocks, kKeyTile = Tiles::kKeyTile, kWarps = Tiles::kWarps;
  constexpr int kWarpRows = 16 * kRowBlocks, kQueryRows = Tiles::kQueryRows;
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  auto& tiles = *reinterpret_cast<Tiles*>(shared_memory);
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row_blocks = (tokens + kQueryRows - 1) / kQueryRows;
  const int block_row = blockIdx.x % row_blocks * kQueryRows, matrix = blockIdx.x / row_blocks;

  if (threadIdx.x == 0) {
    tiles.q_full.init(1);
    for (int s = 0; s < Tiles::kStages; ++s) {
      tiles.full[s].init(1);
      // Each warp that has rows says when it has read a stage.
      tiles.empty[s].init(min(kWarps, (tokens - block_row + kWarpRows - 1) / kWarpRows));
    }
    tile::fence_barriers();
  }
  __syncthreads();
  if (warp == kWarps) {
    if (lane == 0) produce(tiles, maps, block_row, matrix, tokens);
    return;
  }

  const int warp_row = (warp + blockIdx.x) % kWarps * kWarpRows, first_row = block_row + warp_row;
  const int own_blocks = blocks_with_rows<kRowBlocks>(tokens - first_row);
  if (own_blocks == 0) return;
  tiles.q_full.wait(0);
  tile::LeftFragment<half> q_frag[kRowBlocks][kHeadDim / 16];
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
    load_queries(q_frag[r], tiles.q, warp_row + 16 * r, scale_log2);

  RowSoftmax softmax[kRowBlocks];
  tile::Sums o_frag[kRowBlocks][kHeadDim / 8];
  const float scale = positive_scale(scale_log2);
  Ring<Tiles::kStages> ring;
  // 8 kKeyBlocks keys of the ring's stage, from `key` on, of which `keys` are there, for the first
  // kRows of the warp's blocks of rows.
  const auto update_rows = [&](auto rows, auto key_blocks, int key, int keys) {
    constexpr int kRows = decltype(rows)::value, kKeyBlocks = decltype(key_blocks)::value;
    const auto& [k, v] = tiles.stages[ring.stage];
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
  const auto update = [&](auto key_blocks, int key, int keys) {
    if (own_blocks == kRowBlocks)
      update_rows(std::integral_constant<int, kRowBlocks>{}, key_blocks, key, keys);
    else
      update_rows(std::integral_constant<int, 1>{}, key_blocks, key, keys);
  };
  int keys = tokens;  // keys that are left
  for (; keys >= kKeyTile; keys -= kKeyTile, ring.next()) {
    tiles.full[ring.stage].wait(ring.parity);
    update(std::integral_constant<int, kKeyTile / 8>{}, 0, kKeyTile);
    // The stage is the producer's again, when all lanes have read it.
    __syncwarp();
    if (lane == 0) tiles.empty[ring.stage].arrive();
  }
  if (keys > 0) tiles.full[ring.stage].wait(ring.parity);
  for (int key = 0; key < keys; key += 8) update(std::integral_constant<int, 1>{}, key, keys - key);

  // Write O once, divided by the sum of the weights, by way of the warp's rows of Q.
  half* const o_global = O + int64_t(matrix) * tokens * kHeadDim;
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r) {
    if (r >= own_blocks) break;
    softmax[r].divide(o_frag[r]);
    const int row = first_row + 16 * r;
    store_output(o_frag[r], tiles.q, warp_row + 16 * r, o_global + int64_t(row) * kHeadDim,
                 tokens - row);
  }
#endif
}

// Q, K, V, O: [batch, heads, tokens, head_dim] fp16, contiguous; O = softmax(Q Kᵀ scale) V with
// fp32 accumulation. All four start at a multiple of 16 bytes. Throws std::invalid_argument naming
// what is wrong and the limit when it cannot, std::runtime_error when the device lacks something or when
// CUDA refuses.
inline void tensor_maps(const half* Q, const half* K, const half* V, half* O,
                        const AttentionShape& shape, cudaStream_t stream) {
  require_arguments(Q, K, V, O, shape, "tensor maps");
  with_head_dim(shape.head_dim, [&](auto head_dim) {
    using Tiles = TensorMapsTiles<head_dim>;
    const auto kernel = tensor_maps_kernel<head_dim>;
    const TensorMaps maps =
        make_maps<decltype(Tiles::q), decltype(Tiles::Stage::k)>(Q, K, V, shape);
    allow_shared_memory(kernel, sizeof(Tiles));
    kernel<<<blocks_for(shape, Tiles::kQueryRows), Tiles::kThreads, sizeof(Tiles), stream>>>(
        maps, O, shape.tokens, log2_scale(shape));
  });
  require_launched(cudaGetLastError(), shape);
}

}  // namespace hopper
