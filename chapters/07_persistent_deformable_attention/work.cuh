// What steps 4 to 6 share: blocks that live as long as the launch, and who takes which queries.
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

// A place where nothing is staged.
struct Nowhere {
  __device__ bool has(int) const { return false; }
  __device__ auto loader(int) const {
    return [](int) { return uint4{}; };
  }
};

// A warp that has nothing left to do fetches a few queries of the rest, until there are none. That
// is too little to stage for: all levels come from global memory.
template <int kChannels>
__device__ void take_rest(const Arrays& arrays, unsigned* fetched, const Problem& problem,
                          const Work& work) {
  using G = Group<kChannels>;
  for (;;) {
    unsigned chunk = 0;
    if (threadIdx.x % 32 == 0) chunk = atomicAdd(fetched, 1u);
    chunk = __shfl_sync(0xffffffffu, chunk, 0);
    if (chunk >= unsigned(work.chunks)) return;
    const int first = work.fixed + int(chunk) * kFewQueries;
    const int last = min(first + kFewQueries, work.queries);
    Nowhere nowhere;
    for (int at = first + G::row(); at - G::row() < last; at += G::kRowsPerWarp) {
      const int mine = min(at, last - 1);  // it may lie in the next plane
      take_query<kChannels>(arrays, mine / problem.queries, mine % problem.queries, at < last,
                            problem, nowhere);
    }
  }
}

// The counter of fetched chunks of one launch, 0 in the stream's order when the launch begins.
// Calls launch(counter) and throws std::runtime_error when CUDA refuses anything.
template <class Launch>
void with_counter(const DeformableShape& shape, cudaStream_t stream, Launch launch) {
  unsigned* fetched = nullptr;
  require_launched(cudaMallocAsync(reinterpret_cast<void**>(&fetched), sizeof *fetched, stream),
                   shape);
  cudaError_t error = cudaMemsetAsync(fetched, 0, sizeof *fetched, stream);
  if (error == cudaSuccess) error = launch(fetched);
  const cudaError_t freed = cudaFreeAsync(fetched, stream);
  require_launched(error, shape);
  require_launched(freed, shape);
}

// As many blocks of kPersistentThreads as the device holds at once, but none without a full round
// of queries. `bytes` of dynamic shared memory a block.
template <int kChannels, class Kernel>
unsigned persistent_blocks(Kernel kernel, const DeformableShape& shape, int bytes) {
  int device = 0, sm_count = 0, blocks_per_sm = 0;
  require_launched(cudaGetDevice(&device), shape);
  cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device);
  require_launched(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                   shape);
  require_launched(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, kernel,
                                                                 kPersistentThreads, bytes),
                   shape);
  constexpr int kAtOnce = kPersistentThreads / Group<kChannels>::kLanes;
  const int64_t rounds = (shape.rows() + kAtOnce - 1) / kAtOnce;
  return unsigned(std::min(int64_t(sm_count) * blocks_per_sm, rounds));
}

// Why the current device or this build cannot run steps that need compute capability 9.0: "" when
// it can. `kernel` is one of the step.
template <class Kernel>
std::string lacks_hopper(Kernel kernel) {
  int device = 0, major = 0, minor = 0;
  cudaFuncAttributes attributes{};
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (major < 9)
    return "needs compute capability 9.0 or newer, this device has " + std::to_string(major) + "." +
           std::to_string(minor);
  if (cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion < 90)
    return "needs a build for sm_90 or newer, this one is for sm_" +
           std::to_string(attributes.ptxVersion) + " (make ARCH=sm_" + std::to_string(major) +
           std::to_string(minor) + ")";
  return "";
}

}  // namespace persistent_deformable_attention
