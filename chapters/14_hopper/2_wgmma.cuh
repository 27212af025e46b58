// Step 2, wgmma: four warps multiply together, and operands stay in shared memory.
//
//   scores     64 queries times a tile of keys, one request for 16 of head_dim: Q and K are read from where
//              the copy engine has put them
//   values     weights come from registers, in which the softmax has left them; V from shared memory
//   tail       of 16, 32, 48 or 64 keys: one product of that width instead of some of 8 keys
//   block      two warpgroups and the producer, with so few registers that an SM holds two blocks
//
// No fragment of K, V or Q is loaded by a warp any more. The rest is step 1's.
#pragma once

#include "parts/products.cuh"

namespace hopper {

template <int kHeadDim>
struct WgmmaTiles {
  static constexpr int kGroups = 2, kBlocks = kHeadDim < 128 ? 2 : 1;  // blocks per SM
  static constexpr int kThreads = kGroupThreads * kGroups + 32;
  static constexpr int kQueryRows = kGroupRows * kGroups;
  static constexpr int kKeyTile = 64;
  static constexpr int kStages = 4;

  tile::BoxTile<kQueryRows, kHeadDim> q;  // at the end O
  struct Stage {
    tile::BoxTile<kKeyTile, kHeadDim> k, v;
  } stages[kStages];
  tile::Barrier q_full, full[kStages], empty[kStages];
};

template <int kHeadDim>
__global__ void __launch_bounds__(WgmmaTiles<kHeadDim>::kThreads, WgmmaTiles<kHeadDim>::kBlocks)
    wgmma_kernel(const __grid_constant__ TensorMaps maps,
                 half* O,  // [batch, heads, tokens, head_dim], as Q, K and V
                 int tokens, float scale_log2) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  // A block is one (batch, head) and 64 query rows for each of its warpgroups.
  using Tiles = WgmmaTiles<kHeadDim>;
  constexpr int kKeyTile = Tiles::kKeyTile, kGroups = Tiles::kGroups;
  constexpr int kQueryRows = Tiles::kQueryRows;
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  auto& tiles = *reinterpret_cast<Tiles*>(shared_memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp / 4;
  const int row_blocks = (tokens + kQueryRows - 1) / kQueryRows;
  const int block_row = blockIdx.x % row_blocks * kQueryRows, matrix = blockIdx.x / row_blocks;

  if (threadIdx.x == 0) {
    tiles.q_full.init(1);
    for (int s = 0; s < Tiles::kStages; ++s) {
      tiles.full[s].init(1);
      // Each warp of a warpgroup that has rows says when it has read a stage.
      tiles.empty[s].init(4 * min(kGroups, (tokens - block_row + kGroupRows - 1) / kGroupRows));
    }
    tile::fence_barriers();
  }
  __syncthreads();
  if (group == kGroups) {
    if (lane == 0) produce(tiles, maps, block_row, matrix, tokens);
    return;
  }

  const int group_row = group * kGroupRows;
  const int warp_row = group_row + warp % 4 * 16, first_row = block_row + warp_row;
  if (block_row + group_row >= tokens) return;
  tiles.q_full.wait(0);
  sign_queries(tiles.q, group_row, scale_log2, 1 + group);

  RowSoftmax softmax;
  tile::Sums o_frag[kHeadDim / 8];
  const float scale = positive_scale(scale_log2);
  Ring<Tiles::kStages> ring;
  // The first kKeys keys of the ring's stage, of which `keys` are there.
  const auto update = [&](auto key_count, int keys) {
    constexpr int kKeys = decltype(key_count)::value;
    tile::Sums s[kKeys / 8];
    const auto& [k, v] = tiles.stages[ring.stage];
    tiles.full[ring.stage].wait(ring.parity);
    tile::warpgroup_fence();
    ask_for_scores<kKeys>(s, tiles.q, group_row, k);
    tile::end_products();
    tile::wait_for_products<0>();

    // Softmax: the weights of these keys, and what the larger maximum makes of those before.
    if (keys < kKeys) leave_out(s, keys);
    softmax.update(s, scale, o_frag);
    tile::LeftFragment<half> weights[kKeys / 16];
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) weights[j] = left_operand(s[2 * j], s[2 * j + 1]);

    tile::warpgroup_fence();
    ask_for_values<kKeys / 16>(o_frag, weights, v);
    tile::end_products();
    tile::wait_for_products<0>();
    // The stage is the producer's again, when all warps have waited for their products.
    if (lane == 0) tiles.empty[ring.stage].arrive();
    ring.next();
  };
  int keys = tokens;  // keys that are left
  for (; keys >= kKeyTile; keys -= kKeyTile)
    update(std::integral_constant<int, kKeyTile>{}, kKeyTile);
  if (keys > 0) with_width(keys, [&](auto width) { update(width, keys); });

  // Write O once, divided by the sum of the weights, by way of the warp's rows of Q.
  if (first_row >= tokens) return;
  softmax.divide(o_frag);
  store_output(o_frag, tiles.q, warp_row, O + (int64_t(matrix) * tokens + first_row) * kHeadDim,
               tokens - first_row);
#endif
}

// As tensor_maps().
inline void wgmma(const half* Q, const half* K, const half* V, half* O, const AttentionShape& shape,
                  cudaStream_t stream) {
  require_arguments(Q, K, V, O, shape, "wgmma");
  with_head_dim(shape.head_dim, [&](auto head_dim) {
    using Tiles = WgmmaTiles<head_dim>;
    const auto kernel = wgmma_kernel<head_dim>;
    const TensorMaps maps =
        make_maps<decltype(Tiles::q), decltype(Tiles::Stage::k)>(Q, K, V, shape);
    allow_shared_memory(kernel, sizeof(Tiles));
    kernel<<<blocks_for(shape, Tiles::kQueryRows), Tiles::kThreads, sizeof(Tiles), stream>>>(
        maps, O, shape.tokens, log2_scale(shape));
  });
  require_launched(cudaGetLastError(), shape);
}

}  // namespace hopper
