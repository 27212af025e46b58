// Levels by the copy engine where there are several heads: one head's channels of each pixel lie alone in memory, so as plain bulk
// copies they would be thousands. A tensor map tells the copy engine how far apart they are, and one
// copy brings up to 256 pixels.
#pragma once

#include <cuda/ptx>

#include "../../../common/tile/tensor_map.cuh"
#include "work.cuh"

namespace persistent_deformable_attention {

// Pixels of a copy for a level of so many: as few copies as there can be, all of the same size, which
// keeps each one's place in shared memory a multiple of 128 bytes.
inline int box_of(int pixels) {
  const int copies = (pixels + 255) / 256;
  return (pixels + 8 * copies - 1) / (8 * copies) * 8;
}
// How large a level is in shared memory: what the last copy has too much is zeros.
inline int pixels_in_boxes(int pixels) { return (pixels + 255) / 256 * box_of(pixels); }

// The levels that are staged, each a tensor [batch, pixels, heads, channels].
struct LevelMaps {
  CUtensorMap map[kMaxLevels];
  int box[kMaxLevels];  // pixels of a copy
};

// Throws std::runtime_error naming the level when the driver refuses its map.
inline LevelMaps maps_of(const half* value, const DeformableShape& shape, const Staging& staging) {
  LevelMaps maps{};
  int64_t start = 0;
  const uint64_t row = uint64_t(shape.heads) * shape.channels * sizeof(half);
  for (int l = 0; l < shape.levels; ++l) {
    const int pixels = shape.level[l].height * shape.level[l].width;
    maps.box[l] = box_of(pixels);
    const half* const level = value + start * shape.heads * shape.channels;
    start += pixels;
    if (staging.first_pixel[l] < 0) continue;
    const cuuint64_t sizes[] = {cuuint64_t(shape.channels), cuuint64_t(shape.heads),
                                cuuint64_t(pixels), cuuint64_t(shape.batch)};
    const cuuint64_t strides[] = {shape.channels * sizeof(half), row,
                                  uint64_t(shape.pixels()) * row};
    const cuuint32_t box[] = {cuuint32_t(shape.channels), 1, cuuint32_t(maps.box[l]), 1};
    const cuuint32_t steps[] = {1, 1, 1, 1};
    const CUresult error = encode_tiled()(
        &maps.map[l], CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, const_cast<half*>(level), sizes, strides,
        box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (error != CUDA_SUCCESS)
      throw std::runtime_error("deformable attention of shape " + describe(shape) +
                               ": no tensor map for level " + std::to_string(l) + " (error " +
                               std::to_string(int(error)) + " of the driver)");
  }
  return maps;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
namespace ptx = cuda::ptx;

// The block's own shared memory while levels are still arriving. A lane waits when it first needs
// one of them; what comes from global memory it samples without waiting. Each later use waits
// again, which costs no more than a load: to remember that the levels are here would cost a
// register.
template <int kChannels>
struct ArrivingMemory {
  OwnMemory<kChannels> memory;
  uint64_t* arrived;
  uint32_t parity;  // parity of the phase in which the copies arrive: 0, 1, 0, 1, ...

  __device__ bool has(int l) const { return memory.has(l); }
  __device__ auto loader(int l) const {
    while (!ptx::mbarrier_try_wait_parity(arrived, parity)) {
    }
    return memory.loader(l);
  }
};

// As ask_for_levels(), by one thread.
template <int kChannels>
__device__ void ask_for_boxes(const LevelMaps& maps, int plane, const Problem& problem,
                              const Staging& staging, uint4* staged, uint64_t* arrived) {
  const int image = plane / problem.heads, head = plane % problem.heads;
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, arrived,
                                 staging.bytes);
  for (int l = 0; l < problem.levels; ++l) {
    if (staging.first_pixel[l] < 0) continue;
    const int pixels = problem.level[l].height * problem.level[l].width;
    for (int pixel = 0; pixel < pixels; pixel += maps.box[l]) {
      const int32_t corner[] = {0, head, pixel, image};
      ptx::cp_async_bulk_tensor(
          ptx::space_cluster, ptx::space_global,
          staged + (staging.first_pixel[l] + pixel) * Group<kChannels>::kPieces, &maps.map[l],
          corner, arrived);
    }
  }
}
#endif

template <int kChannels>
__global__ void __launch_bounds__(kPersistentThreads, 1)
    boxes_kernel(const half* value, const half* locations, const half* weights, half* out,
                 unsigned* fetched, const __grid_constant__ Problem problem,
                 const __grid_constant__ Staging staging, const __grid_constant__ Work work,
                 const __grid_constant__ LevelMaps maps) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint4 boxes[];  // [staged pixels, pieces]
  __shared__ uint64_t arrived;                     // mbarrier
  const Arrays arrays{value, locations, weights, out};
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&arrived, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);  // the engine sees it, too
  }

  const int begin = int(int64_t(work.fixed) * blockIdx.x / gridDim.x);
  const int end = int(int64_t(work.fixed) * (blockIdx.x + 1) / gridDim.x);
  uint32_t parity = 0;
  for (int plane = begin / problem.queries; plane * problem.queries < end; ++plane) {
    __syncthreads();  // nobody reads the plane before any longer
    if (threadIdx.x == 0 && staging.bytes > 0) {
      ptx::fence_proxy_async(ptx::space_shared);
      ask_for_boxes<kChannels>(maps, plane, problem, staging, boxes, &arrived);
    }
    ArrivingMemory<kChannels> place{{staging, boxes}, &arrived, parity};
    const int before = plane * problem.queries;
    take_queries<kChannels>(arrays, plane, max(begin - before, 0),
                            min(end - before, problem.queries), threadIdx.x / 32,
                            kPersistentThreads / 32, problem, place);
    parity ^= 1;
  }
  take_rest<kChannels>(arrays, fetched, problem, work);
#endif
}

template <int kChannels>
void launch_boxes(const half* value, const half* locations, const half* weights, half* out,
                  const DeformableShape& shape, cudaStream_t stream) {
  const auto kernel = boxes_kernel<kChannels>;
  // The mbarrier stands in front, and what it leaves free up to a multiple of 128 bytes.
  const Staging staging = plan_staging(shape, shared_memory().of_block - 128, 1, pixels_in_boxes);
  const LevelMaps maps = maps_of(value, shape, staging);
  const unsigned blocks = persistent_blocks<kChannels>(kernel, shape, staging.bytes);
  with_counter(shape, stream, [&](unsigned* fetched, const Work& work) {
    kernel<<<blocks, kPersistentThreads, staging.bytes, stream>>>(
        value, locations, weights, out, fetched, problem_of(shape), staging, work, maps);
    return cudaGetLastError();
  });
}

}  // namespace persistent_deformable_attention
