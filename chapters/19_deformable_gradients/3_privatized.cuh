// Step 3, privatized: on small levels many samples meet in one pixel. A block adds them up in its own
// shared memory and hands each pixel on once.
#pragma once

#include "../07_persistent_deformable_attention/parts/staging.cuh"
#include "parts/rows.cuh"

namespace deformable_gradients {

using persistent_deformable_attention::Staging;

// One block an SM: the more rows a block has, the fewer pixels it hands on.
constexpr int kPrivatizedThreads = 512;

// A pixel's channels c, 4 + c, 8 + c, ... lie side by side: so lanes that add to neighbouring channels
// meet in no bank.
template <int kChannels>
__device__ int private_place(int pixel, int lane, int c) {
  return pixel * kChannels + c * Lanes<kChannels>::kOfRow + lane;
}

// Block b has chunk b % chunks of the queries of plane b / chunks, which is an image's head. Arrays as in
// atomics_kernel; grad_value is 0 to begin with.
template <int kChannels>
__global__ void __launch_bounds__(kPrivatizedThreads, 1)
    privatized_kernel(const Arrays arrays, const __grid_constant__ Problem problem,
                      const __grid_constant__ Staging staging, int chunks) {
  using L = Lanes<kChannels>;
  extern __shared__ float private_sums[];  // for the levels that fit: private_place()
  const int plane = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
  const int image = plane / problem.heads, head = plane % problem.heads, lane = L::lane();
  const int first = int(int64_t(problem.queries) * chunk / chunks);
  const int last = int(int64_t(problem.queries) * (chunk + 1) / chunks);
  float* image_grad =
      arrays.grad_value + (int64_t(image) * problem.pixels * problem.heads + head) * kChannels;
  const auto global_place = [&](int pixel, int of_lane) {
    return image_grad + int64_t(pixel) * problem.heads * kChannels + 4 * of_lane;
  };

  for (int i = threadIdx.x; i < staging.bytes / 4; i += kPrivatizedThreads) private_sums[i] = 0.0f;
  __syncthreads();

  constexpr int kAtOnce = kPrivatizedThreads / L::kOfRow;
  for (int at = first + threadIdx.x / 32 * L::kRowsPerWarp; at < last; at += kAtOnce) {
    const int query = min(at + L::row(), last - 1);
    const int64_t row = (int64_t(image) * problem.queries + query) * problem.heads + head;
    take_row<kChannels>(
        arrays, problem, row, at + L::row() < last, [&](int l, int pixel, float4 share) {
          const int staged = staging.first_pixel[l];
          if (staged < 0) {
            add_four(global_place(pixel, lane), share);
            return;
          }
          const int own = staged + pixel - problem.level[l].start;
#pragma unroll
          // The warp's rows begin with different channels: each then meets other banks.
          for (int step = 0; step < 4; ++step) {
            const int c = (step + L::row()) % 4;
            const float mine = c < 2 ? (c ? share.y : share.x) : (c == 2 ? share.z : share.w);
            atomicAdd(private_sums + private_place<kChannels>(own, lane, c), mine);
          }
        });
  }
  __syncthreads();

  // What the block has touched goes on to global memory.
  for (int l = 0; l < problem.levels; ++l) {
    const int staged = staging.first_pixel[l];
    if (staged < 0) continue;
    const int pixels = problem.level[l].height * problem.level[l].width;
    for (int i = threadIdx.x; i < pixels * L::kOfRow; i += kPrivatizedThreads) {
      const int pixel = i / L::kOfRow, of_lane = i % L::kOfRow;
      float4 sums{};
#pragma unroll
      for (int step = 0; step < 4; ++step) {  // in the same order of channels as above
        const int c = (step + pixel) % 4;
        const float sum = private_sums[private_place<kChannels>(staged + pixel, of_lane, c)];
        (c < 2 ? (c ? sums.y : sums.x) : (c == 2 ? sums.z : sums.w)) = sum;
      }
      if (sums.x != 0.0f || sums.y != 0.0f || sums.z != 0.0f || sums.w != 0.0f)
        add_four(global_place(problem.level[l].start + pixel, of_lane), sums);
    }
  }
}

// The levels whose gradient in fp32 fits in `capacity` bytes, the smallest first.
inline Staging plan_private(const DeformableShape& shape, int capacity) {
  DeformableShape twice = shape;  // plan_staging() counts 2 bytes a channel
  twice.channels *= 2;
  return persistent_deformable_attention::plan_staging(twice, capacity);
}

// Blocks of a plane: together as many as the device holds at once, none without a full round of rows.
inline int private_chunks(const DeformableShape& shape, int blocks_at_once) {
  const int rows_at_once = kPrivatizedThreads / (shape.channels / 4);
  const int rounds = (shape.queries + rows_at_once - 1) / rows_at_once;
  return std::clamp(int(blocks_at_once / (int64_t(shape.batch) * shape.heads)), 1, rounds);
}

// As atomics(), also what it throws.
inline void privatized(const half* value, const half* locations, const half* weights,
                       const half* grad_out, float* grad_value, float* grad_locations,
                       float* grad_weights, const DeformableShape& shape, cudaStream_t stream) {
  const Arrays arrays{value,      locations,      weights,     grad_out,
                      grad_value, grad_locations, grad_weights};
  require_arguments(
      shape, {value, locations, weights, grad_out, grad_value, grad_locations, grad_weights});
  clear_gradient(grad_value, shape, stream);
  const Staging staging =
      plan_private(shape, persistent_deformable_attention::shared_memory().of_block);
  with_channels(shape, [&]<int kChannels>() {
    const auto kernel = privatized_kernel<kChannels>;
    int device = 0, sm_count = 0, blocks_per_sm = 0;
    require_launched(cudaGetDevice(&device), shape);
    cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device);
    require_launched(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, staging.bytes),
        shape);
    require_launched(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                         &blocks_per_sm, kernel, kPrivatizedThreads, size_t(staging.bytes)),
                     shape);
    const int chunks = private_chunks(shape, sm_count * blocks_per_sm);
    const unsigned blocks = blocks_for(int64_t(shape.batch) * shape.heads * chunks, 1, shape);
    kernel<<<blocks, kPrivatizedThreads, size_t(staging.bytes), stream>>>(arrays, problem_of(shape),
                                                                          staging, chunks);
  });
}

}  // namespace deformable_gradients
