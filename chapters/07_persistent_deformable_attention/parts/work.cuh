// What steps 4 to 6 share: blocks that live as long as the launch, and who takes which queries.
#pragma once

#include <map>
#include <mutex>

#include "staging.cuh"

namespace persistent_deformable_attention {

// One block an SM, so that nothing is staged twice there; with 28 warps a thread may have 72
// registers, and needs them.
constexpr int kPersistentThreads = 896;
constexpr int kFixedShare = 15, kOfShares = 16;  // 15/16 of all queries are dealt out in advance
constexpr int kFewQueries = 16;  // a chunk: the queries that a free warp fetches at once

// The queries of all planes, (image, head), one plane after the other, and who takes them.
struct Work {
  int queries;  // all queries of all planes
  int fixed;    // how many of the first queries the blocks share evenly
  int chunks;   // the rest, in chunks of kFewQueries
};
// With all_in_advance there is no rest, and nobody fetches.
inline Work work_of(const DeformableShape& shape, bool all_in_advance = false) {
  Work work;
  work.queries = int(shape.rows());
  work.fixed = all_in_advance ? work.queries : int(shape.rows() * kFixedShare / kOfShares);
  work.chunks = (work.queries - work.fixed + kFewQueries - 1) / kFewQueries;
  return work;
}

// For take_query(): nothing is staged, so all levels come from global memory.
struct Nowhere {
  __device__ bool has(int) const { return false; }
  __device__ auto loader(int) const {
    return [](int) { return uint4{}; };
  }
};

// Computes the queries that were not dealt out in advance: a warp that has finished its own fetches
// kFewQueries at a time until there are none. Staging would not pay for so few, so all levels come
// from global memory. The counter is 0 again when the launch ends: a warp fetches in vain exactly
// once, so the number of fetches is known, and atomicInc() wraps at the last one.
template <int kChannels>
__device__ void take_rest(const Arrays& arrays, unsigned* fetched, const Problem& problem,
                          const Work& work) {
  using G = Group<kChannels>;
  if (work.chunks == 0) return;
  const unsigned last_question = work.chunks + gridDim.x * (kPersistentThreads / 32) - 1;
  for (;;) {
    unsigned chunk = 0;
    if (threadIdx.x % 32 == 0) chunk = atomicInc(fetched, last_question);
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

// Counters of fetched chunks, 0 whenever no launch uses them: they begin so with the module, also
// after cudaDeviceReset(), which has to follow a launch that broke off.
constexpr int kCounters = 1024;
__device__ unsigned fetched_chunks[kCounters];

// The counter of a stream. Launches of one stream never overlap, so each stream has one, until all
// kCounters are taken. Null for streams that come later, and while the stream is recorded into a
// graph: a graph's replays may overlap with other launches. Throws std::runtime_error when CUDA
// refuses anything.
inline unsigned* counter_of(cudaStream_t stream, const DeformableShape& shape) {
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  require_launched(cudaStreamIsCapturing(stream, &capturing), shape);
  if (capturing != cudaStreamCaptureStatusNone) return nullptr;
  int device = 0;
  unsigned long long id = 0;  // the stream's id: unlike its handle it never comes again
  unsigned* counters = nullptr;
  require_launched(cudaGetDevice(&device), shape);
  require_launched(cudaStreamGetId(stream, &id), shape);
  require_launched(cudaGetSymbolAddress(reinterpret_cast<void**>(&counters), fetched_chunks),
                   shape);
  static std::mutex mutex;
  static int threads = 0;
  thread_local int thread = 0;  // the host thread's number: each has its own cudaStreamPerThread
  using Key = std::pair<unsigned long long, int>;
  static std::map<int, std::map<Key, int>> numbers;  // by device, stream and thread
  const std::lock_guard lock(mutex);
  if (thread == 0) thread = ++threads;
  std::map<Key, int>& known = numbers[device];
  const Key key(id, stream == cudaStreamPerThread ? thread : 0);
  auto found = known.find(key);
  if (found == known.end()) {
    if (known.size() == kCounters) return nullptr;
    found = known.emplace(key, int(known.size())).first;
  }
  return counters + found->second;
}

// Calls launch(counter, work) with the stream's counter; where there is none, with work that needs
// none: all queries are dealt out in advance. Throws std::runtime_error when CUDA refuses anything.
template <class Launch>
void with_counter(const DeformableShape& shape, cudaStream_t stream, Launch launch) {
  unsigned* const fetched = counter_of(stream, shape);
  require_launched(launch(fetched, work_of(shape, !fetched)), shape);
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
