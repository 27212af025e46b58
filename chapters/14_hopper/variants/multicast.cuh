// A variant of step 4 that did not pay, multicast: two blocks on two SMs, a cluster, share each tile of K
// and V.
//
//   items      a cluster takes two blocks of 128 query rows of one head at a time
//   copies     each block asks for half of a tile's keys, and the copy engine puts them into both blocks
//   ring       a stage is empty when the warps of both blocks have read it: they arrive at two barriers
//
// The rest is 4_persistent.cuh's.
#pragma once

#include "../4_persistent.cuh"

namespace hopper {

constexpr int kSharing = 2;  // blocks of a cluster

// The items of a cluster, in their order, and the row block that is this block's.
struct SharedItems {
  int tokens, row_blocks, count;  // count: all items of the grid
  int rank;                       // the block's rank in its cluster
  int number = blockIdx.x / kSharing;

  __device__ int pairs() const { return (row_blocks + kSharing - 1) / kSharing; }
  __device__ bool left() const { return number < count; }
  __device__ void next() { number += gridDim.x / kSharing; }
  __device__ int matrix() const { return number / pairs(); }
  // Where a head has an odd number of row blocks, the second of its last pair has no rows. The blocks take
  // turns at it, head by head.
  __device__ int row(int rows) const {
    return (kSharing * ((number + matrix()) % pairs()) + (rank ^ matrix() % kSharing)) * rows;
  }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// As produce_items(). This block's part of a tile goes to all blocks of the cluster.
template <class Tiles>
__device__ void produce_shared(Tiles& tiles, const TensorMaps& maps, SharedItems item) {
  constexpr int kPart = Tiles::kKeyTile / kSharing;
  const int first = item.rank * kPart;
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
      tile::multicast_rows<kPart>(k, first, maps.k, key + first, matrix, full, (1 << kSharing) - 1);
      tile::multicast_rows<kPart>(v, first, maps.v, key + first, matrix, full, (1 << kSharing) - 1);
    }
  }
}

// This warp has read a stage: both blocks write into it.
template <class Tiles>
__device__ void give_back(Tiles& tiles, int stage, int lane) {
  if (lane < kSharing) tiles.empty[stage].arrive_in(lane);
}
#endif

// (The compiler refuses clusters for GPUs that have none, in empty kernels, too.)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define IN_CLUSTERS __cluster_dims__(kSharing)
#else
#define IN_CLUSTERS
#endif
template <int kHeadDim>
__global__ void IN_CLUSTERS __launch_bounds__(PersistentTiles<kHeadDim>::kThreads,
                                              PersistentTiles<kHeadDim>::kBlocks)
    multicast_kernel(const __grid_constant__ TensorMaps maps,
                     half* O,  // [batch, heads, tokens, head_dim], as Q, K and V
                     int tokens, int row_blocks, int items, float scale_log2) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tiles = PersistentTiles<kHeadDim>;
  constexpr int kKeyTile = Tiles::kKeyTile, kGroups = Tiles::kGroups;
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  auto& tiles = *reinterpret_cast<Tiles*>(shared_memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp / 4;

  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) tiles.q_full[i].init(1), tiles.q_empty[i].init(4 * kGroups);
    for (int s = 0; s < Tiles::kStages; ++s)
      tiles.full[s].init(1), tiles.empty[s].init(4 * kGroups * kSharing);
    tile::fence_barriers();
  }
  tile::meet_cluster();
  SharedItems item{tokens, row_blocks, items, int(tile::cluster_rank())};
  if (group == kGroups) {
    if (lane == 0) produce_shared(tiles, maps, item);
    tile::meet_cluster();
    return;
  }

  const int group_row = group * kGroupRows, warp_row = group_row + warp % 4 * 16;
  const float scale = positive_scale(scale_log2);
  Ring<2> q_ring;
  Ring<Tiles::kStages> ring;
  for (; item.left(); item.next(), q_ring.next()) {
    const int block_row = item.row(Tiles::kQueryRows), first_row = block_row + warp_row;
    if (block_row + group_row >= tokens) {  // no rows: these stages are the other warpgroups'
      for (int key = 0; key < tokens; key += kKeyTile, ring.next()) {
        tiles.full[ring.stage].wait(ring.parity);
        give_back(tiles, ring.stage, lane);
      }
      // (A block may have no rows at all.)
      tiles.q_full[q_ring.stage].wait(q_ring.parity);
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

      if (keys < kKeys) leave_out(s, keys);
      softmax.update(s, scale, o_frag);
      tile::LeftFragment<half> weights[kKeys / 16];
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) weights[j] = left_operand(s[2 * j], s[2 * j + 1]);

      tile::warpgroup_fence();
      ask_for_values<kKeys / 16>(o_frag, weights, v);
      tile::end_products();
      tile::wait_for_products<0>();
      give_back(tiles, ring.stage, lane);
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
    tile::fence_async();
    __syncwarp();
    if (lane == 0) tiles.q_empty[q_ring.stage].arrive();
  }
  // Nobody ends while the other block may still arrive at barriers here.
  tile::meet_cluster();
#endif
}

#undef IN_CLUSTERS

// As tensor_maps().
inline void multicast(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, cudaStream_t stream) {
  require_arguments(Q, K, V, O, shape, "multicast");
  with_head_dim(shape.head_dim, [&](auto head_dim) {
    using Tiles = PersistentTiles<head_dim>;
    const auto kernel = multicast_kernel<head_dim>;
    TensorMaps maps = make_maps<QueryTile<Tiles>, decltype(Tiles::Stage::k)>(Q, K, V, shape);
    using Part = tile::BoxTile<Tiles::kKeyTile / kSharing, head_dim>;
    maps.k = make_map<Part>(K, shape, "K");
    maps.v = make_map<Part>(V, shape, "V");
    const int row_blocks = (shape.tokens + Tiles::kQueryRows - 1) / Tiles::kQueryRows;
    const int items = int(shape.matrices()) * ((row_blocks + kSharing - 1) / kSharing);
    const int blocks = persistent_blocks(kSharing * items, Tiles::kBlocks) / kSharing * kSharing;
    allow_shared_memory(kernel, sizeof(Tiles));
    kernel<<<blocks, Tiles::kThreads, sizeof(Tiles), stream>>>(maps, O, shape.tokens, row_blocks,
                                                               items, log2_scale(shape));
  });
  require_launched(cudaGetLastError(), shape);
}

}  // namespace hopper
