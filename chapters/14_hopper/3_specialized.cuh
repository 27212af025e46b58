// Step 3, specialized: warpgroups are what their work needs, and take turns.
//
//   registers  the producer is a warpgroup that gives its registers back; those that multiply take them
//   ahead      the scores of the next tile are asked for before the values of this one: while both are
//              multiplied nobody waits for anything but the scores
//   turns      of two warpgroups one asks for products while the other one has its exponentials
//
// The rest is step 2's.
#pragma once

#include "parts/products.cuh"

namespace hopper {

template <int kHeadDim>
struct SpecializedTiles {
  static constexpr int kGroups = 2, kBlocks = kHeadDim < 128 ? 2 : 1;  // blocks per SM
  static constexpr int kThreads = kGroupThreads * (kGroups + 1);
  // Registers per thread: few in the producer, many in the warpgroups that multiply.
  static constexpr int kFewRegisters = 24, kManyRegisters = kBlocks == 2 ? 104 : 240;
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
__global__ void __launch_bounds__(SpecializedTiles<kHeadDim>::kThreads,
                                  SpecializedTiles<kHeadDim>::kBlocks)
    specialized_kernel(const __grid_constant__ TensorMaps maps,
                       half* O,  // [batch, heads, tokens, head_dim], as Q, K and V
                       int tokens, float scale_log2) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  // A block is one (batch, head) and 64 query rows for each of its warpgroups.
  using Tiles = SpecializedTiles<kHeadDim>;
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
    tile::give_registers_back<Tiles::kFewRegisters>();
    if (warp % 4 == 0 && lane == 0) produce(tiles, maps, block_row, matrix, tokens);
    return;
  }

  tile::take_registers<Tiles::kManyRegisters>();

  const int group_row = group * kGroupRows;
  const int warp_row = group_row + warp % 4 * 16, first_row = block_row + warp_row;
  if (block_row + group_row >= tokens) return;
  const bool takes_turns = block_row + kGroupRows < tokens;
  const int own_turn = 3 + group, others_turn = 3 + (group ^ 1);  // barriers
  if (takes_turns && group == 1) tile::arrive_at<2 * kGroupThreads>(others_turn);
  tiles.q_full.wait(0);
  sign_queries(tiles.q, group_row, scale_log2, 1 + group);

  RowSoftmax softmax;
  tile::Sums o_frag[kHeadDim / 8];
  tile::LeftFragment<half> weights[kKeyTile / 16];  // for the tile in stage `now`
  const float scale = positive_scale(scale_log2);
  Ring<Tiles::kStages> now, next;
  // The scores of the first kKeys keys of stage `next`, of which `keys` are there, and meanwhile the
  // values of the tile before.
  const auto advance = [&](auto width, auto has_values, int keys) {
    constexpr int kKeys = decltype(width)::value;
    constexpr bool kHasValues = decltype(has_values)::value;
    tile::Sums s[kKeys / 8];
    tiles.full[next.stage].wait(next.parity);
    if (takes_turns) tile::meet<2 * kGroupThreads>(own_turn);
    tile::warpgroup_fence();
    ask_for_scores<kKeys>(s, tiles.q, group_row, tiles.stages[next.stage].k);
    tile::end_products();
    if constexpr (kHasValues) {
      ask_for_values<kKeyTile / 16>(o_frag, weights, tiles.stages[now.stage].v);
      tile::end_products();
    }
    if (takes_turns) tile::arrive_at<2 * kGroupThreads>(others_turn);
    tile::wait_for_products<kHasValues>();

    // Softmax: the weights of these keys, and what the larger maximum makes of those before.
    if (keys < kKeys) leave_out(s, keys);
    float factor[2];
    softmax.update(s, scale, factor);
    if constexpr (kHasValues) {
      tile::wait_for_products<0>();
      // The stage is the producer's again, when all warps have waited for their products.
      if (lane == 0) tiles.empty[now.stage].arrive();
      now.next();
      if (__any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f))
        scale_rows(o_frag, factor);
    }
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) weights[j] = left_operand(s[2 * j], s[2 * j + 1]);
    next.next();
  };
  const int last = tokens - (tokens - 1) / kKeyTile * kKeyTile;  // keys of the last tile
  if (tokens <= kKeyTile) {
    with_width(last, [&](auto width) { advance(width, std::false_type{}, last); });
  } else {
    advance(std::integral_constant<int, kKeyTile>{}, std::false_type{}, kKeyTile);
    for (int keys = tokens - kKeyTile; keys > kKeyTile; keys -= kKeyTile)
      advance(std::integral_constant<int, kKeyTile>{}, std::true_type{}, kKeyTile);
    with_width(last, [&](auto width) { advance(width, std::true_type{}, last); });
  }
  if (takes_turns && group == 0) tile::meet<2 * kGroupThreads>(own_turn);  // the other's last one
  with_width(last, [&](auto width) {
    tile::warpgroup_fence();
    ask_for_values<decltype(width)::value / 16>(o_frag, weights, tiles.stages[now.stage].v);
    tile::end_products();
    tile::wait_for_products<0>();
  });

  // Write O once, divided by the sum of the weights, by way of the warp's rows of Q.
  if (first_row >= tokens) return;
  softmax.divide(o_frag);
  store_output(o_frag, tiles.q, warp_row, O + (int64_t(matrix) * tokens + first_row) * kHeadDim,
               tokens - first_row);
#endif
}

// As tensor_maps().
inline void specialized(const half* Q, const half* K, const half* V, half* O,
                        const AttentionShape& shape, cudaStream_t stream) {
  require_arguments(Q, K, V, O, shape, "specialized");
  with_head_dim(shape.head_dim, [&](auto head_dim) {
    using Tiles = SpecializedTiles<head_dim>;
    const auto kernel = specialized_kernel<head_dim>;
    const TensorMaps maps =
        make_maps<decltype(Tiles::q), decltype(Tiles::Stage::k)>(Q, K, V, shape);
    allow_shared_memory(kernel, sizeof(Tiles));
    kernel<<<blocks_for(shape, Tiles::kQueryRows), Tiles::kThreads, sizeof(Tiles), stream>>>(
        maps, O, shape.tokens, log2_scale(shape));
  });
  require_launched(cudaGetLastError(), shape);
}

}  // namespace hopper
