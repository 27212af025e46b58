// Step 3, shared: the small levels are copied to shared memory by each block, which takes its
// samples of them from there.
#pragma once

#include "parts/staging.cuh"

namespace persistent_deformable_attention {

constexpr int kSharedThreads = 512;
constexpr int kSharedRows = 256;  // queries of a block: what it stages must pay

template <int kChannels>
__global__ void __launch_bounds__(kSharedThreads, 2)
    shared_kernel(const half* value,      // [batch, pixels, heads, channels]
                  const half* locations,  // [batch, queries, heads, levels, points, (x, y)]
                  const half* weights,    // [batch, queries, heads, levels, points]
                  half* out,              // [batch, queries, heads, channels]
                  const __grid_constant__ Problem problem,
                  const __grid_constant__ Staging staging) {
  // A block has one plane, an (image, head), and some of its queries.
  extern __shared__ uint4 staged[];  // [staged pixels, pieces]
  const int chunks = (problem.queries + kSharedRows - 1) / kSharedRows;
  const int plane = blockIdx.x / chunks;
  const int first = int(blockIdx.x % chunks) * kSharedRows;
  const int last = min(first + kSharedRows, problem.queries);

  stage_levels<kChannels>(value, plane, problem, staging, kSharedThreads, staged);
  __syncthreads();
  OwnMemory<kChannels> place{staging, staged};
  take_queries<kChannels>({value, locations, weights, out}, plane, first, last, threadIdx.x / 32,
                          kSharedThreads / 32, problem, place);
}

template <int kChannels>
void launch_shared(const half* value, const half* locations, const half* weights, half* out,
                   const DeformableShape& shape, cudaStream_t stream) {
  // Two blocks on an SM, each with its half of the shared memory; the driver keeps 1 KiB of each.
  const Staging staging = plan_staging(shape, shared_memory().of_sm / 2 - 1024);
  const int64_t chunks = (shape.queries + kSharedRows - 1) / kSharedRows;
  const unsigned blocks = blocks_for(chunks * shape.batch * shape.heads, 1, shape);
  const auto kernel = shared_kernel<kChannels>;
  require_launched(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, staging.bytes),
      shape);
  kernel<<<blocks, kSharedThreads, staging.bytes, stream>>>(value, locations, weights, out,
                                                            problem_of(shape), staging);
  require_launched(cudaGetLastError(), shape);
}

// As vectorized(), with as many of the small levels in shared memory as the device has room for.
inline void shared(const half* value, const half* locations, const half* weights, half* out,
                   const DeformableShape& shape, cudaStream_t stream) {
  require_arguments(value, locations, weights, out, shape);
  const auto launch = shape.channels == 16   ? launch_shared<16>
                      : shape.channels == 32 ? launch_shared<32>
                                             : launch_shared<64>;
  launch(value, locations, weights, out, shape, stream);
}

}  // namespace persistent_deformable_attention
