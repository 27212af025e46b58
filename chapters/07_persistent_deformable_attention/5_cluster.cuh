// Step 5, cluster: as persistent, but blocks that run side by side, a cluster, put their shared
// memory together and read each other's. So larger levels fit: each block stages its share of the
// pixels, and a lane reads a pixel from whichever block has it. Needs compute capability 9.0.
#pragma once

#include <cooperative_groups.h>

#include <array>

#include "parts/work.cuh"

namespace persistent_deformable_attention {

namespace cg = cooperative_groups;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// The cluster's shared memory: run r of a level is in block r % blocks.
template <int kChannels>
struct ClusterMemory {
  const Staging& staging;  // places are the same in each block
  uint4* staged;           // this block's [staged pixels, pieces]
  int shift;               // 1 << shift blocks

  __device__ bool has(int l) const { return staging.first_pixel[l] >= 0; }
  __device__ auto loader(int l) const {
    using G = Group<kChannels>;
    uint4* level_staged = staged + staging.first_pixel[l] * G::kPieces + G::piece();
    return [=, shift = shift](int pixel) {
      const int run = pixel / kRunPixels;
      const int place = (run >> shift) * kRunPixels + pixel % kRunPixels;
      const int owner = run & ((1 << shift) - 1);
      return *cg::this_cluster().map_shared_rank(level_staged + place * G::kPieces, owner);
    };
  }
};

// Copies this block's share of the levels that are to be staged, 16 bytes a thread.
template <int kChannels>
__device__ void stage_share(const half* value, int plane, const Problem& problem,
                            const Staging& staging, int rank, int shift, uint4* staged) {
  constexpr int kPieces = Group<kChannels>::kPieces;
  const int image = plane / problem.heads, head = plane % problem.heads;
  const int stride = problem.heads * kPieces;  // pieces from a pixel to the next
  const uint4* image_value = reinterpret_cast<const uint4*>(value) +
                             int64_t(image) * problem.pixels * stride + head * kPieces;
  for (int l = 0; l < problem.levels; ++l) {
    const Level level = problem.level[l];
    if (staging.first_pixel[l] < 0) continue;
    const int pixels = level.height * level.width;
    for (int i = threadIdx.x;; i += kPersistentThreads) {
      const int place = i / kPieces, run = (place / kRunPixels << shift) + rank;
      const int pixel = run * kRunPixels + place % kRunPixels;
      if (run * kRunPixels >= pixels) break;
      if (pixel < pixels)
        staged[staging.first_pixel[l] * kPieces + i] =
            __ldg(image_value + int64_t(level.start + pixel) * stride + i % kPieces);
    }
  }
}
#endif

template <int kChannels>
__global__ void __launch_bounds__(kPersistentThreads, 1)
    cluster_kernel(const half* value,      // [batch, pixels, heads, channels]
                   const half* locations,  // [batch, queries, heads, levels, points, (x, y)]
                   const half* weights,    // [batch, queries, heads, levels, points]
                   half* out,              // [batch, queries, heads, channels]
                   unsigned* fetched,      // chunks so far, 0 at the start and at the end
                   const __grid_constant__ Problem problem, const __grid_constant__ Staging staging,
                   const __grid_constant__ Work work) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ uint4 staged[];  // [staged pixels, pieces], this block's share
  const cg::cluster_group cluster = cg::this_cluster();
  const int rank = int(cluster.block_rank()), blocks = int(cluster.num_blocks());
  const int shift = __ffs(blocks) - 1, warp = rank * kPersistentThreads / 32 + threadIdx.x / 32;
  const Arrays arrays{value, locations, weights, out};

  // The cluster's own share of the queries.
  const int number = blockIdx.x / blocks, clusters = gridDim.x / blocks;
  const int begin = int(int64_t(work.fixed) * number / clusters);
  const int end = int(int64_t(work.fixed) * (number + 1) / clusters);
  for (int plane = begin / problem.queries; plane * problem.queries < end; ++plane) {
    cluster.sync();  // nobody reads the plane before any longer, from any block
    stage_share<kChannels>(value, plane, problem, staging, rank, shift, staged);
    cluster.sync();  // all shares are here
    ClusterMemory<kChannels> place{staging, staged, shift};
    const int before = plane * problem.queries;
    take_queries<kChannels>(arrays, plane, max(begin - before, 0),
                            min(end - before, problem.queries), warp,
                            blocks * kPersistentThreads / 32, problem, place);
  }
  // A block's shared memory goes when it ends: until then nobody may read it. Who arrives here has
  // read what it needs of it, and has something to do until all have.
  cluster.barrier_arrive();
  take_rest<kChannels>(arrays, fetched, problem, work);
  cluster.barrier_wait();
#endif
}

// A launch of `blocks` blocks in clusters of `of_cluster`.
struct ClusterLaunch {
  cudaLaunchAttribute dimension{};
  cudaLaunchConfig_t config{};

  ClusterLaunch(unsigned blocks, unsigned of_cluster, const Staging& staging, cudaStream_t stream) {
    dimension.id = cudaLaunchAttributeClusterDimension;
    dimension.val.clusterDim = {of_cluster, 1, 1};
    config.gridDim = blocks;
    config.blockDim = kPersistentThreads;
    config.dynamicSmemBytes = size_t(staging.bytes);
    config.stream = stream;
    config.attrs = &dimension;
    config.numAttrs = 1;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;
  ClusterLaunch& operator=(const ClusterLaunch&) = delete;
};

struct ClusterPlan {
  int blocks = 0;     // blocks per cluster
  int clusters = 0;   // clusters that the device holds at once
  Staging staging{};  // what each block keeps in shared memory
};

// The smallest clusters, of 2, 4 or 8 blocks, in which as many levels fit as can.
template <class Kernel>
ClusterPlan plan_clusters(Kernel kernel, const DeformableShape& shape) {
  const int capacity = shared_memory().of_block;
  require_launched(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, capacity), shape);
  ClusterPlan best;
  for (int blocks = 2; blocks <= 8; blocks *= 2) {  // 8: what every device allows
    ClusterPlan plan{blocks, 0, plan_staging(shape, capacity, blocks)};
    const ClusterLaunch launch(blocks, blocks, plan.staging, nullptr);
    require_launched(cudaOccupancyMaxActiveClusters(&plan.clusters, kernel, &launch.config), shape);
    if (plan.clusters > 0 && (best.blocks == 0 || plan.staging.levels > best.staging.levels))
      best = plan;
  }
  if (best.blocks == 0)
    throw std::runtime_error("deformable attention, step cluster: the device holds no cluster of " +
                             std::to_string(kPersistentThreads) + " threads a block");
  return best;
}

// The same, asked once for a device, channels and levels: the answers never change. The kernel may
// then have the shared memory of the plan, which cudaDeviceReset() forbids again.
template <int kChannels>
ClusterPlan known_clusters(const DeformableShape& shape) {
  std::array<int, 2 + 2 * kMaxLevels> key = {0, shape.levels};
  require_launched(cudaGetDevice(&key[0]), shape);
  for (int l = 0; l < shape.levels; ++l)
    key[2 + 2 * l] = shape.level[l].height, key[3 + 2 * l] = shape.level[l].width;
  static std::mutex mutex;
  static std::map<std::array<int, 2 + 2 * kMaxLevels>, ClusterPlan> known;
  const std::lock_guard lock(mutex);
  const auto kernel = cluster_kernel<kChannels>;
  auto found = known.find(key);
  if (found == known.end()) found = known.emplace(key, plan_clusters(kernel, shape)).first;
  require_launched(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        shared_memory().of_block),
                   shape);
  return found->second;
}

template <int kChannels>
void launch_cluster(const half* value, const half* locations, const half* weights, half* out,
                    const DeformableShape& shape, cudaStream_t stream) {
  const auto kernel = cluster_kernel<kChannels>;
  const ClusterPlan plan = known_clusters<kChannels>(shape);
  // None without a full round of queries.
  const int64_t at_once = plan.blocks * int64_t(kPersistentThreads) / Group<kChannels>::kLanes;
  const int64_t rounds = (shape.rows() + at_once - 1) / at_once;
  const unsigned clusters = unsigned(std::min<int64_t>(plan.clusters, rounds));
  const ClusterLaunch launch(clusters * plan.blocks, plan.blocks, plan.staging, stream);
  with_counter(shape, stream, [&](unsigned* fetched, const Work& work) {
    return cudaLaunchKernelEx(&launch.config, kernel, value, locations, weights, out, fetched,
                              problem_of(shape), plan.staging, work);
  });
}

inline std::string cluster_lacks() { return lacks_hopper(cluster_kernel<32>); }

// As persistent(). Throws std::runtime_error where cluster_lacks() says why.
inline void cluster(const half* value, const half* locations, const half* weights, half* out,
                    const DeformableShape& shape, cudaStream_t stream) {
  require_arguments(value, locations, weights, out, shape);
  if (const std::string lack = cluster_lacks(); !lack.empty())
    throw std::runtime_error("deformable attention, step cluster: " + lack);
  const auto launch = shape.channels == 16   ? launch_cluster<16>
                      : shape.channels == 32 ? launch_cluster<32>
                                             : launch_cluster<64>;
  launch(value, locations, weights, out, shape, stream);
}

}  // namespace persistent_deformable_attention
