// Step 4, persistent: only as many blocks as the device holds at once. Each keeps to queries that
// follow one another, so that it stages the small levels once an image; the last queries go, few at
// a time, to whichever warp is free.
#pragma once

#include "staging.cuh"

namespace persistent_deformable_attention {

// One block an SM, so that nothing is staged twice there; with 28 warps a thread may have 72
// registers, and needs them.
constexpr int kPersistentThreads = 896;
constexpr int kFixedShare = 15, kOfShares = 16;  // of the queries are dealt out in advance
constexpr int kFewQueries = 16;  // that a free warp fetches at once: (image, head) and a chunk

// The queries of all planes, (image, head), one plane after the other, and who takes them.
struct Work {
  int queries;  // in all
  int fixed;    // the first of them, which blocks share evenly
  int chunks;   // of kFewQueries, that the rest is
};
inline Work work_of(const DeformableShape& shape) {
  Work work;
  work.queries = int(shape.rows());
  work.fixed = int(shape.rows() * kFixedShare / kOfShares);
  work.chunks = (work.queries - work.fixed + kFewQueries - 1) / kFewQueries;
  return work;
}

template <int kChannels>
__global__ void __launch_bounds__(kPersistentThreads, 1)
    persistent_kernel(const half* value,      // [batch, pixels, heads, channels]
                      const half* locations,  // [batch, queries, heads, levels, points, (x, y)]
                      const half* weights,    // [batch, queries, heads, levels, points]
                      half* out,              // [batch, queries, heads, channels]
                      unsigned* fetched,      // chunks so far, 0 at the start
                      const __grid_constant__ Problem problem,
                      const __grid_constant__ Staging staging, const __grid_constant__ Work work) {
  using G = Group<kChannels>;
  extern __shared__ uint4 staged[];  // [staged pixels, pieces]
  const int warp = threadIdx.x / 32, row = threadIdx.x % 32 / G::kLanes;

  int at = int(int64_t(work.fixed) * blockIdx.x / gridDim.x);  // of this block's own share
  const int end = int(int64_t(work.fixed) * (blockIdx.x + 1) / gridDim.x);
  for (;;) {
    int first, last;  // this warp's next queries
    const bool own = at < end;
    if (own) {
      // Stage: once a plane, of which a block has hundreds of queries or all.
      const int plane = at / problem.queries;
      last = min((plane + 1) * problem.queries, end);
      __syncthreads();
      stage_levels<kChannels>(value, plane, problem, staging, kPersistentThreads, staged);
      __syncthreads();
      first = at + warp * G::kRowsPerWarp;
      at = last;
    } else {
      // A warp that has nothing left to do fetches a few queries of the rest. That is too little
      // to stage for: all levels come from global memory.
      unsigned chunk = 0;
      if (threadIdx.x % 32 == 0) chunk = atomicAdd(fetched, 1u);
      chunk = __shfl_sync(0xffffffffu, chunk, 0);
      if (chunk >= unsigned(work.chunks)) return;
      first = work.fixed + int(chunk) * kFewQueries;
      last = min(first + kFewQueries, work.queries);
    }
    // Sample: warps go on without waiting for each other.
    for (; first < last; first += own ? kPersistentThreads / G::kLanes : G::kRowsPerWarp) {
      const int mine = min(first + row, last - 1);
      take_query<kChannels>(value, locations, weights, out, mine / problem.queries,
                            mine % problem.queries, first + row < last, problem, staging, staged,
                            own);
    }
  }
}

// As many blocks as the device holds at once, but none without a full round of queries.
template <int kChannels>
unsigned persistent_blocks(const DeformableShape& shape, const Staging& staging) {
  int device = 0, sm_count = 0, blocks_per_sm = 0;
  require_launched(cudaGetDevice(&device), shape);
  cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device);
  const auto kernel = persistent_kernel<kChannels>;
  require_launched(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        staging.bytes),
                   shape);
  require_launched(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                       &blocks_per_sm, kernel, kPersistentThreads, staging.bytes),
                   shape);
  constexpr int kAtOnce = kPersistentThreads / Group<kChannels>::kLanes;
  const int64_t rounds = (shape.rows() + kAtOnce - 1) / kAtOnce;
  return unsigned(std::min(int64_t(sm_count) * blocks_per_sm, rounds));
}

template <int kChannels>
void launch_persistent(const half* value, const half* locations, const half* weights, half* out,
                       const DeformableShape& shape, cudaStream_t stream) {
  const Staging staging = plan_staging(shape, shared_memory().of_block);
  const unsigned blocks = persistent_blocks<kChannels>(shape, staging);
  // The counter is this launch's own, set to 0 in the stream's order.
  unsigned* fetched = nullptr;
  require_launched(cudaMallocAsync(reinterpret_cast<void**>(&fetched), sizeof *fetched, stream),
                   shape);
  cudaError_t error = cudaMemsetAsync(fetched, 0, sizeof *fetched, stream);
  if (error == cudaSuccess) {
    persistent_kernel<kChannels><<<blocks, kPersistentThreads, staging.bytes, stream>>>(
        value, locations, weights, out, fetched, problem_of(shape), staging, work_of(shape));
    error = cudaGetLastError();
  }
  const cudaError_t freed = cudaFreeAsync(fetched, stream);
  require_launched(error, shape);
  require_launched(freed, shape);
}

// As shared(). Which block computes an element differs from run to run, how it does so never: the
// bits are always the same.
inline void persistent(const half* value, const half* locations, const half* weights, half* out,
                       const DeformableShape& shape, cudaStream_t stream) {
  require_arguments(value, locations, weights, out, shape);
  const auto launch = shape.channels == 16   ? launch_persistent<16>
                      : shape.channels == 32 ? launch_persistent<32>
                                             : launch_persistent<64>;
  launch(value, locations, weights, out, shape, stream);
}

}  // namespace persistent_deformable_attention
