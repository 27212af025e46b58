// Step 4, persistent: only as many blocks as the device holds at once. Each keeps to queries that
// follow one another, so that it stages the small levels once an image; the last queries go, few at
// a time, to whichever warp is free.
#pragma once

#include "parts/work.cuh"

namespace persistent_deformable_attention {

template <int kChannels>
__global__ void __launch_bounds__(kPersistentThreads, 1)
    persistent_kernel(const half* value,      // [batch, pixels, heads, channels]
                      const half* locations,  // [batch, queries, heads, levels, points, (x, y)]
                      const half* weights,    // [batch, queries, heads, levels, points]
                      half* out,              // [batch, queries, heads, channels]
                      unsigned* fetched,      // chunks so far, 0 at the start and at the end
                      const __grid_constant__ Problem problem,
                      const __grid_constant__ Staging staging, const __grid_constant__ Work work) {
  extern __shared__ uint4 staged[];  // [staged pixels, pieces]
  const Arrays arrays{value, locations, weights, out};

  // This block's own share, plane by plane: of each it has hundreds of queries or all.
  const int begin = int(int64_t(work.fixed) * blockIdx.x / gridDim.x);
  const int end = int(int64_t(work.fixed) * (blockIdx.x + 1) / gridDim.x);
  for (int plane = begin / problem.queries; plane * problem.queries < end; ++plane) {
    // Stage, when nobody reads the plane before any longer.
    __syncthreads();
    stage_levels<kChannels>(value, plane, problem, staging, kPersistentThreads, staged);
    __syncthreads();
    // Sample: warps go on without waiting for each other.
    OwnMemory<kChannels> place{staging, staged};
    const int before = plane * problem.queries;
    take_queries<kChannels>(arrays, plane, max(begin - before, 0),
                            min(end - before, problem.queries), threadIdx.x / 32,
                            kPersistentThreads / 32, problem, place);
  }
  take_rest<kChannels>(arrays, fetched, problem, work);
}

template <int kChannels>
void launch_persistent(const half* value, const half* locations, const half* weights, half* out,
                       const DeformableShape& shape, cudaStream_t stream) {
  const Staging staging = plan_staging(shape, shared_memory().of_block);
  const auto kernel = persistent_kernel<kChannels>;
  const unsigned blocks = persistent_blocks<kChannels>(kernel, shape, staging.bytes);
  with_counter(shape, stream, [&](unsigned* fetched, const Work& work) {
    kernel<<<blocks, kPersistentThreads, staging.bytes, stream>>>(
        value, locations, weights, out, fetched, problem_of(shape), staging, work);
    return cudaGetLastError();
  });
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
