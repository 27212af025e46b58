// Step 4, persistent: a block stays on its SM and computes one item after the other, 128 query rows of
// a head each.
//
//   items      as many blocks as fit; block b takes items b, b + blocks, ... The first row blocks of heads
//              come before their last ones, which may be short
//   ahead      the ring knows no items: while the last tiles of one are multiplied, Q and the first
//              tiles of the next are on their way. For this there are two tiles of Q. The producer
//              makes the barriers, and asks for the first tiles before anybody waits
//   rescaling  a row's sums keep their scale until its maximum has grown by more than a factor of 2^8
//
// The rest is step 2's.
#pragma once

#include <algorithm>

#include "parts/products.cuh"

namespace hopper {

template <int kHeadDim>
struct PersistentTiles {
  static constexpr int kGroups = 2, kBlocks = kHeadDim < 128 ? 2 : 1;  // blocks per SM
  static constexpr int kThreads = kGroupThreads * kGroups + 32;
  static constexpr int kQueryRows = kGroupRows * kGroups;
  static constexpr int kKeyTile = 64;
  static constexpr int kStages = 4;

  tile::BoxTile<kQueryRows, kHeadDim> q[2];  // at the end of an item O
  struct Stage {
    tile::BoxTile<kKeyTile, kHeadDim> k, v;
  } stages[kStages];
  tile::Barrier q_full[2], q_empty[2], full[kStages], empty[kStages];
};

// A softmax whose weights are 2^((score - row_max) scale) for a row_max that is the largest score so far
// or less: they are at most 2^kMostGrowth. All sums of a row have one scale, which the division at the
// end takes out again. fp16 rounds weights up to 2^15 with the same relative error, so results are as
// exact as before.
struct LazySoftmax : RowSoftmax {
  static constexpr float kMostGrowth = 8;  // by which a row's maximum may grow, in units of log2

  // As RowSoftmax::update(). Multiplies the rows of O itself, where one of the warp's has grown by more.
  template <int kKeyBlocks, int kValueBlocks>
  __device__ void update(tile::Sums (&s_frag)[kKeyBlocks], float scale,
                         tile::Sums (&o_frag)[kValueBlocks]) {
    const float new_max[2] = {largest_score(s_frag, 0), largest_score(s_frag, 1)};
    const float growth = fmaxf(new_max[0] - row_max[0], new_max[1] - row_max[1]);
    if (__any_sync(0xffffffffu, growth * scale > kMostGrowth)) {
      float factor[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        factor[r] = power_of_2((row_max[r] - new_max[r]) * scale);
        row_sum[r] *= factor[r];
        row_max[r] = new_max[r];
      }
      scale_rows(o_frag, factor);
    }
    weigh(s_frag, 0, scale);
    weigh(s_frag, 1, scale);
  }
};

template <class Tiles>
using QueryTile = std::remove_all_extents_t<decltype(Tiles::q)>;

// The items of a block, in their order: of `together` heads all first row blocks, then all second
// ones, and so on to the last ones, which may be short; then the items of the next heads.
struct Items {
  int tokens, row_blocks, heads, together;
  int first = 0, row_block = 0;  // the first head dealt together; their items' row block
  int number = blockIdx.x;       // after find(): the head, counted from `first`

  __device__ bool left() const { return first < heads; }
  __device__ int matrix() const { return first + number; }
  __device__ int row(int rows) const { return row_block * rows; }
  __device__ void next() { number += gridDim.x, find(); }
  // (Subtracts: a block's first copies wait for this, and divisions are long.)
  __device__ void find() {
    for (int here; left() && number >= (here = min(together, heads - first)); number -= here)
      if (++row_block == row_blocks) row_block = 0, first += together;
  }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// As produce() in maps.cuh, item after item, with one ring for all of them.
template <class Tiles>
__device__ void produce_items(Tiles& tiles, const TensorMaps& maps, Items item) {
  Ring<2> q_ring;
  Ring<Tiles::kStages> ring;
  for (; item.left(); item.next(), q_ring.next()) {
    const int matrix = item.matrix();
    auto& q = tiles.q[q_ring.stage];
    tiles.q_empty[q_ring.stage].wait(q_ring.parity ^ 1);
    tiles.q_full[q_ring.stage].arrive_expecting(sizeof(q));
    tile::copy_tile(q, maps.q, item.row(Tiles::kQueryRows), matrix, tiles.q_full[q_ring.stage]);
    for (int key = 0; key < item.tokens; key += Tiles::kKeyTile, ring.next()) {
      tiles.empty[ring.stage].wait(ring.parity ^ 1);
      auto& [k, v] = tiles.stages[ring.stage];
      tile::Barrier& full = tiles.full[ring.stage];
      full.arrive_expecting(sizeof(k) + sizeof(v));
      tile::copy_tile(k, maps.k, key, matrix, full);
      tile::copy_tile(v, maps.v, key, matrix, full);
    }
  }
}
#endif

template <int kHeadDim>
__global__ void __launch_bounds__(PersistentTiles<kHeadDim>::kThreads,
                                  PersistentTiles<kHeadDim>::kBlocks)
    persistent_kernel(const __grid_constant__ TensorMaps maps,
                      half* O,  // [batch, heads, tokens, head_dim], as Q, K and V
                      int tokens, int row_blocks, int heads, int together, float scale_log2) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tiles = PersistentTiles<kHeadDim>;
  constexpr int kKeyTile = Tiles::kKeyTile, kGroups = Tiles::kGroups;
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  auto& tiles = *reinterpret_cast<Tiles*>(shared_memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp / 4;

  Items item{tokens, row_blocks, heads, together};
  item.find();
  constexpr int kReady = 3;  // a barrier of the block: the mbarriers are there
  if (group == kGroups) {
    if (lane == 0) {
      for (int i = 0; i < 2; ++i) tiles.q_full[i].init(1), tiles.q_empty[i].init(4 * kGroups);
      for (int s = 0; s < Tiles::kStages; ++s)
        tiles.full[s].init(1), tiles.empty[s].init(4 * kGroups);
      tile::fence_barriers();
    }
    __syncwarp();
    tile::arrive_at<Tiles::kThreads>(kReady);
    if (lane == 0) produce_items(tiles, maps, item);
    return;
  }
  tile::meet<Tiles::kThreads>(kReady);

  const int group_row = group * kGroupRows, warp_row = group_row + warp % 4 * 16;
  const float scale = positive_scale(scale_log2);
  Ring<2> q_ring;
  Ring<Tiles::kStages> ring;
  for (; item.left(); item.next(), q_ring.next()) {
    const int block_row = item.row(Tiles::kQueryRows), first_row = block_row + warp_row;
    if (block_row + group_row >= tokens) {  // no rows: these stages are the other warpgroup's
      for (int key = 0; key < tokens; key += kKeyTile, ring.next()) {
        tiles.full[ring.stage].wait(ring.parity);
        if (lane == 0) tiles.empty[ring.stage].arrive();
      }
      if (lane == 0) tiles.q_empty[q_ring.stage].arrive();
      continue;
    }
    auto& q = tiles.q[q_ring.stage];
    tiles.q_full[q_ring.stage].wait(q_ring.parity);
    sign_queries(q, group_row, scale_log2, 1 + group);
    LazySoftmax softmax;
    tile::Sums o_frag[kHeadDim / 8];
    // The first kKeys keys of the ring's stage, of which `keys` are there.
    const auto update = [&](auto key_count, int keys) {
      constexpr int kKeys = decltype(key_count)::value;
      tile::Sums s[kKeys / 8];
      const auto& [k, v] = tiles.stages[ring.stage];
      tiles.full[ring.stage].wait(ring.parity);
      tile::warpgroup_fence();
      ask_for_scores<kKeys>(s, q, group_row, k);
      tile::end_products();
      tile::wait_for_products<0>();

      // Softmax: the weights of these keys, and what a much larger maximum makes of those before.
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
    softmax.divide(o_frag);
    if (first_row < tokens)
      store_output(o_frag, q, warp_row,
                   O + (int64_t(item.matrix()) * tokens + first_row) * kHeadDim,
                   tokens - first_row);
    // The copy engine writes here next, by another way than the one these rows were written on.
    tile::fence_async();
    __syncwarp();
    if (lane == 0) tiles.q_empty[q_ring.stage].arrive();
  }
#endif
}

// Blocks of a persistent grid: as many as fit, `of_sm` on each SM, and no more than there are items.
inline int persistent_blocks(int items, int of_sm) {
  int device = 0, sms = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  return std::min(items, of_sm * sms);
}

// Heads whose items are dealt together: those whose K and V have room in half of the L2, where each row
// block finds them again.
inline int heads_together(const AttentionShape& shape) {
  int device = 0, bytes = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device);
  const int64_t of_head = 2 * sizeof(half) * int64_t(shape.tokens) * shape.head_dim;
  return int(std::clamp<int64_t>(bytes / 2 / of_head, 1, shape.matrices()));
}

// As tensor_maps().
inline void persistent(const half* Q, const half* K, const half* V, half* O,
                       const AttentionShape& shape, cudaStream_t stream) {
  require_arguments(Q, K, V, O, shape, "persistent");
  with_head_dim(shape.head_dim, [&](auto head_dim) {
    using Tiles = PersistentTiles<head_dim>;
    const auto kernel = persistent_kernel<head_dim>;
    const TensorMaps maps = make_maps<QueryTile<Tiles>, decltype(Tiles::Stage::k)>(Q, K, V, shape);
    const int items = int(blocks_for(shape, Tiles::kQueryRows)), heads = int(shape.matrices());
    allow_shared_memory(kernel, sizeof(Tiles));
    kernel<<<persistent_blocks(items, Tiles::kBlocks), Tiles::kThreads, sizeof(Tiles), stream>>>(
        maps, O, shape.tokens, items / heads, heads, heads_together(shape), log2_scale(shape));
  });
  require_launched(cudaGetLastError(), shape);
}

}  // namespace hopper
