// Step 6, bulk: as persistent, but the levels are brought by the bulk copy engine. One lane asks
// for a level and everybody goes on; whoever needs the level waits for it then, not before. With
// one head the copy costs no registers and hardly an instruction; with several it is thousands of
// small ones, one after the other, and parts/boxes.cuh has another way. Needs compute capability 9.0.
#pragma once

#include "parts/boxes.cuh"

namespace persistent_deformable_attention {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// Asks for the levels that are to be staged; by one warp. `arrived` is an mbarrier that awaits one
// arrival: it learns how many bytes are under way, and its phase is over when all have landed. With
// one head a level is one piece of memory, and one copy; with several each pixel's channels are,
// and lanes take turns: a copy takes its addresses from registers that the whole warp shares.
template <int kChannels>
__device__ void ask_for_levels(const half* value, int plane, const Problem& problem,
                               const Staging& staging, uint4* staged, uint64_t* arrived) {
  const int lane = threadIdx.x % 32;
  const int image = plane / problem.heads, head = plane % problem.heads;
  const int stride = problem.heads * kChannels;
  const half* image_value = value + int64_t(image) * problem.pixels * stride + head * kChannels;
  if (lane == 0)
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, arrived,
                                   staging.bytes);
  for (int l = 0; l < problem.levels; ++l) {
    const Level level = problem.level[l];
    if (staging.first_pixel[l] < 0) continue;
    const int pixels = level.height * level.width, each = problem.heads == 1 ? pixels : 1;
    for (int pixel = lane * each; pixel < pixels; pixel += 32 * each)
      ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global,
                         staged + (staging.first_pixel[l] + pixel) * Group<kChannels>::kPieces,
                         image_value + int64_t(level.start + pixel) * stride, each * kChannels * 2,
                         arrived);
  }
}
#endif

template <int kChannels>
__global__ void __launch_bounds__(kPersistentThreads, 1)
    bulk_kernel(const half* value,      // [batch, pixels, heads, channels]
                const half* locations,  // [batch, queries, heads, levels, points, (x, y)]
                const half* weights,    // [batch, queries, heads, levels, points]
                half* out,              // [batch, queries, heads, channels]
                unsigned* fetched,      // chunks so far, 0 at the start and at the end
                const __grid_constant__ Problem problem, const __grid_constant__ Staging staging,
                const __grid_constant__ Work work) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ uint4 staged[];  // [staged pixels, pieces]
  __shared__ uint64_t arrived;       // mbarrier
  const Arrays arrays{value, locations, weights, out};
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&arrived, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);  // the engine sees it, too
  }

  const int begin = int(int64_t(work.fixed) * blockIdx.x / gridDim.x);
  const int end = int(int64_t(work.fixed) * (blockIdx.x + 1) / gridDim.x);
  uint32_t parity = 0;
  for (int plane = begin / problem.queries; plane * problem.queries < end; ++plane) {
    // Ask, when nobody reads the plane before any longer, and do not wait.
    __syncthreads();
    if (threadIdx.x < 32 && staging.bytes > 0) {
      // What the block has read as usual comes before what the engine writes.
      ptx::fence_proxy_async(ptx::space_shared);
      ask_for_levels<kChannels>(value, plane, problem, staging, staged, &arrived);
    }
    ArrivingMemory<kChannels> place{{staging, staged}, &arrived, parity};
    const int before = plane * problem.queries;
    take_queries<kChannels>(arrays, plane, max(begin - before, 0),
                            min(end - before, problem.queries), threadIdx.x / 32,
                            kPersistentThreads / 32, problem, place);
    parity ^= 1;  // whoever took a query has seen the phase end
  }
  take_rest<kChannels>(arrays, fetched, problem, work);
#endif
}

template <int kChannels>
void launch_bulk(const half* value, const half* locations, const half* weights, half* out,
                 const DeformableShape& shape, cudaStream_t stream) {
  const auto kernel = bulk_kernel<kChannels>;
  // What the mbarrier takes is not there for levels.
  const Staging staging = plan_staging(shape, shared_memory().of_block - 16);
  const unsigned blocks = persistent_blocks<kChannels>(kernel, shape, staging.bytes);
  with_counter(shape, stream, [&](unsigned* fetched, const Work& work) {
    kernel<<<blocks, kPersistentThreads, staging.bytes, stream>>>(
        value, locations, weights, out, fetched, problem_of(shape), staging, work);
    return cudaGetLastError();
  });
}

inline std::string bulk_lacks() { return lacks_hopper(bulk_kernel<32>); }

// As persistent(). Throws std::runtime_error where bulk_lacks() says why.
inline void single_copies(const half* value, const half* locations, const half* weights, half* out,
                          const DeformableShape& shape, cudaStream_t stream) {
  require_arguments(value, locations, weights, out, shape);
  if (const std::string lack = bulk_lacks(); !lack.empty())
    throw std::runtime_error("deformable attention, step bulk: " + lack);
  const auto launch = shape.channels == 16   ? launch_bulk<16>
                      : shape.channels == 32 ? launch_bulk<32>
                                             : launch_bulk<64>;
  launch(value, locations, weights, out, shape, stream);
}

// The step: single_copies() for one head, or where the driver makes no tensor maps; else boxes. Throws
// std::runtime_error where bulk_lacks() says why.
inline void bulk(const half* value, const half* locations, const half* weights, half* out,
                 const DeformableShape& shape, cudaStream_t stream) {
  require_arguments(value, locations, weights, out, shape);
  if (shape.heads == 1 || !bulk_lacks().empty() || !encode_tiled())
    return single_copies(value, locations, weights, out, shape, stream);
  const auto launch = shape.channels == 16   ? launch_boxes<16>
                      : shape.channels == 32 ? launch_boxes<32>
                                             : launch_boxes<64>;
  launch(value, locations, weights, out, shape, stream);
}

}  // namespace persistent_deformable_attention
