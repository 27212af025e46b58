// Kernels that do one thing n times. Each turn is a chain of dependent instructions (for their
// latency) or many independent ones (for their unit's rate), in inline PTX, so that the compiler
// neither moves nor drops them. What a kernel does before and after its loop does not depend on n,
// so that it cancels in the difference of two n.
#pragma once

#include <cooperative_groups.h>
#include <cstdint>

namespace calibrate {

constexpr int kUnroll = 32;    // instructions of a chain in one turn of a loop
constexpr int kBarriers = 96;  // of a turn; with more, the loop would leave the instruction cache
constexpr int kParallel = 8;   // independent chains of a thread where a rate is measured

// Clocks of block 0 from here to stop(), all of its warps. (On the virtual GPU this counts
// instructions; there the predicted time tells the clocks.)
class Clocks {
 public:
  __device__ Clocks() {
    __syncthreads();
    begin_ = clock64();
  }
  __device__ void stop(long long* clocks) const {
    __syncthreads();
    if (blockIdx.x == 0 && threadIdx.x == 0) *clocks = clock64() - begin_;
  }

 private:
  long long begin_;
};

// ---- chases of pointers: one thread, each load's address is what the last one loaded ----

static __global__ void l1_chase(const void* first, int n, long long* clocks, uint64_t* sink) {
  auto at = uint64_t(first);
  const Clocks watch;
#pragma unroll 1
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) asm volatile("ld.global.ca.u64 %0, [%0];" : "+l"(at));
  watch.stop(clocks);
  *sink = at;
}

// Past the L1: to the L2, and where that has not got it to DRAM.
static __global__ void l2_chase(const void* first, int n, long long* clocks, uint64_t* sink) {
  auto at = uint64_t(first);
  const Clocks watch;
#pragma unroll 1
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at));
  watch.stop(clocks);
  *sink = at;
}

constexpr uint32_t kSharedRing =
    64;  // places of 16 bytes, each with the address of the next four times

__device__ inline void fill_ring(uint4* ring) {
  const auto base = uint32_t(__cvta_generic_to_shared(ring));
  for (uint32_t i = threadIdx.x; i < kSharedRing; i += blockDim.x) {
    const uint32_t next = base + 16 * ((i + 5) % kSharedRing);
    ring[i] = make_uint4(next, next, next, next);
  }
  __syncthreads();
}

static __global__ void shared_chase(int n, long long* clocks, uint64_t* sink) {
  __shared__ uint4 ring[kSharedRing];
  fill_ring(ring);
  auto at = uint32_t(__cvta_generic_to_shared(ring));
  const Clocks watch;
#pragma unroll 1
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at));
  watch.stop(clocks);
  *sink = at;
}

// A matrix of eight rows that all lie at the same place: every lane gets the address of the next.
static __global__ void matrix_chase(int n, long long* clocks, uint64_t* sink) {
  __shared__ uint4 ring[kSharedRing];
  fill_ring(ring);
  auto at = uint32_t(__cvta_generic_to_shared(ring));
  const Clocks watch;
#pragma unroll 1
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int k = 0; k < kUnroll; ++k)
      asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%0];" : "+r"(at));
  watch.stop(clocks);
  if (threadIdx.x == 0) *sink = at;
}

// Two blocks of a cluster. One thread of block 0 chases generic pointers through the shared memory
// of block 1: with those, a load is one machine instruction.
static __global__ void cluster_chase(int n, long long* clocks, uint64_t* sink) {
#if __CUDA_ARCH__ >= 900
  __shared__ uint64_t ring[kSharedRing];
  const auto cluster = cooperative_groups::this_cluster();
  const uint64_t* const other = cluster.map_shared_rank(ring, 1);
  for (uint32_t i = threadIdx.x; i < kSharedRing; i += blockDim.x)
    ring[i] = uint64_t(other + (i + 5) % kSharedRing);
  cluster.sync();
  auto at = uint64_t(other);
  const Clocks watch;
  if (blockIdx.x == 0 && threadIdx.x == 0)
#pragma unroll 1
    for (int i = 0; i < n; ++i)
#pragma unroll
      for (int k = 0; k < kUnroll; ++k) asm volatile("ld.u64 %0, [%0];" : "+l"(at));
  watch.stop(clocks);
  cluster.sync();
  if (threadIdx.x == 0) sink[blockIdx.x] = at;
#endif
}

constexpr uint32_t kClusterBytes = 16384;

// Block 0 of two loads 16 bytes a thread from the other's shared memory, kParallel times in a turn.
static __global__ void cluster_stream(int n, long long* clocks, uint64_t* sink) {
#if __CUDA_ARCH__ >= 900
  __shared__ alignas(16) uint8_t bytes[kClusterBytes];
  for (uint32_t i = threadIdx.x; i < kClusterBytes; i += blockDim.x) bytes[i] = uint8_t(i);
  const auto cluster = cooperative_groups::this_cluster();
  const uint8_t* const other = cluster.map_shared_rank(bytes, 1);
  cluster.sync();
  uint32_t sum = 0, at = 16 * threadIdx.x;
  const Clocks watch;
  if (blockIdx.x == 0)
#pragma unroll 1
    for (int i = 0; i < n; ++i)
#pragma unroll
      for (int k = 0; k < kParallel; ++k) {
        uint4 v;
        asm volatile("ld.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(other + at));
        sum += v.x ^ v.y ^ v.z ^ v.w;
        at = (at + 512) % kClusterBytes;
      }
  watch.stop(clocks);
  cluster.sync();
  sink[blockIdx.x * blockDim.x + threadIdx.x] = sum;
#endif
}

// ---- units of arithmetic ----

// Sums of products of 16 x 8 x 16 halves (of 8 where there is no such instruction), `chains` of
// them.
template <int chains>
__device__ void multiply(float (&sums)[chains][4], uint32_t a) {
#pragma unroll
  for (int c = 0; c < chains; ++c) {
    float* d = sums[c];
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, "
        "{%4, %4}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a));
#else
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %4}, {%4}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a));
#endif
  }
}

// `chains` products one after the other, kUnroll / chains times in a turn.
template <int chains>
__global__ void tensor(int n, uint32_t a, long long* clocks, uint64_t* sink) {
  float sums[chains][4] = {};
  const Clocks watch;
#pragma unroll 1
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int k = 0; k < kUnroll / chains; ++k) multiply(sums, a);
  watch.stop(clocks);
  float sum = 0;
  for (int c = 0; c < chains; ++c) sum += sums[c][0] + sums[c][1] + sums[c][2] + sums[c][3];
  sink[blockIdx.x * blockDim.x + threadIdx.x] = uint64_t(__float_as_uint(sum));
}

// MUFU.EX2. (ptxas knows what the reciprocal of a reciprocal is.)
template <int chains>
__global__ void special(int n, float x, long long* clocks, uint64_t* sink) {
  float values[chains];
  for (int c = 0; c < chains; ++c) values[c] = x + float(c + threadIdx.x);
  const Clocks watch;
#pragma unroll 1
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int k = 0; k < kUnroll / chains; ++k)
#pragma unroll
      for (int c = 0; c < chains; ++c) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(values[c]));
  watch.stop(clocks);
  float sum = 0;
  for (int c = 0; c < chains; ++c) sum += values[c];
  sink[blockIdx.x * blockDim.x + threadIdx.x] = uint64_t(__float_as_uint(sum));
}

// F2I: the bits of each result are the next number.
template <int chains>
__global__ void convert(int n, float x, long long* clocks, uint64_t* sink) {
  float values[chains];
  for (int c = 0; c < chains; ++c) values[c] = x + float(c + threadIdx.x);
  const Clocks watch;
#pragma unroll 1
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int k = 0; k < kUnroll / chains; ++k)
#pragma unroll
      for (int c = 0; c < chains; ++c) {
        int whole;
        asm volatile("cvt.rni.s32.f32 %0, %1;" : "=r"(whole) : "f"(values[c]));
        values[c] = __int_as_float(whole);
      }
  watch.stop(clocks);
  float sum = 0;
  for (int c = 0; c < chains; ++c) sum += values[c];
  sink[blockIdx.x * blockDim.x + threadIdx.x] = uint64_t(__float_as_uint(sum));
}

// ---- barriers, launches ----

static __global__ void block_barrier(int n, long long* clocks) {
  const Clocks watch;
#pragma unroll 1
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int k = 0; k < kBarriers; ++k) asm volatile("bar.sync 0;" ::: "memory");
  watch.stop(clocks);
}

static __global__ void grid_barrier(int n, long long* clocks) {
  const Clocks watch;
#pragma unroll 1
  for (int i = 0; i < n; ++i) cooperative_groups::this_grid().sync();
  watch.stop(clocks);
}

// What the SM executes in a barrier of the grid, in a grid of one block, which waits for no other.
static __global__ void grid_barrier_alone(int n, uint32_t* arrived, long long* clocks) {
  const Clocks watch;
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    __syncthreads();
    // Written as in cooperative groups, so that the compiler makes the same of it: it does not know
    // that this is one thread, and adds up arrivals in the warp.
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
      const uint32_t blocks = gridDim.x * gridDim.y * gridDim.z;
      const bool first = blockIdx.x + blockIdx.y + blockIdx.z == 0;
      __threadfence();
      const uint32_t before = atomicAdd(arrived, first ? 0x80000000u - (blocks - 1) : 1u);
      while (((before ^ *static_cast<volatile uint32_t*>(arrived)) & 0x80000000u) == 0) {
      }
    }
    __syncthreads();
  }
  watch.stop(clocks);
}

static __global__ void empty() {}

// ---- the copy engine ----

// Whether this is the one lane of its warp that copies. (Of threadIdx.x == 0 ptxas does not know
// that it is one lane: it makes a loop over lanes of each copy.)
__device__ inline bool elected() {
  uint32_t chosen = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}"
               : "=r"(chosen));
#endif
  return chosen;
}

__device__ inline void make_mbarrier(uint32_t at) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Of shared::cluster the code for 12.0 asks first whose shared memory it is. Toolkits before 12.8
// have no other form.
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1208
#define OWN_BLOCK "cta"
#else
#define OWN_BLOCK "cluster"
#endif

// Begins a phase of an mbarrier that is complete when so many copies of 64 bytes are there.
template <int copies>
__device__ void begin_copies(uint32_t into, const void* from, uint32_t mbarrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mbarrier),
               "r"(64 * copies)
               : "memory");
#pragma unroll
  for (int c = 0; c < copies; ++c)
    asm volatile("cp.async.bulk.shared::" OWN_BLOCK
                 ".global.mbarrier::complete_tx::bytes [%0], [%1], 64, "
                 "[%2];" ::"r"(into + 64 * c),
                 "l"(static_cast<const char*>(from) + 64 * c), "r"(mbarrier)
                 : "memory");
#endif
}

__device__ inline void wait_for_phase(uint32_t mbarrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n\t.reg .pred p;\nagain:\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t"
      "@!p bra again;\n\t}" ::"r"(mbarrier),
      "r"(parity)
      : "memory");
#endif
}

// One lane: a phase for each turn, with no copy or with one. The difference is the copy's latency.
template <int copies>
__global__ void bulk_chain(const void* from, int n, long long* clocks, uint64_t* sink) {
  __shared__ alignas(128) uint8_t to[64];
  __shared__ uint64_t mbarrier;
  const auto at = uint32_t(__cvta_generic_to_shared(&mbarrier));
  const auto into = uint32_t(__cvta_generic_to_shared(to));
  const bool copying = elected();
  if (copying) make_mbarrier(at);
  const Clocks watch;
  if (copying)
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
      begin_copies<copies>(into, from, at);
      wait_for_phase(at, i & 1);
    }
  watch.stop(clocks);
  sink[threadIdx.x] = to[threadIdx.x];
}

constexpr int kCopyingWarps = 8, kCopies = 24;  // of a warp in a turn

// One lane of each warp: kCopies in a turn, and the next turn's begin before they are waited for.
static __global__ void bulk_stream(const void* from, int n, long long* clocks, uint64_t* sink) {
  __shared__ alignas(128) uint8_t to[kCopyingWarps][64 * kCopies];
  __shared__ uint64_t mbarriers[kCopyingWarps][2];
  const uint32_t warp = threadIdx.x / 32;
  const auto at = uint32_t(__cvta_generic_to_shared(mbarriers[warp]));
  const auto into = uint32_t(__cvta_generic_to_shared(to[warp]));
  const bool copying = elected();
  if (copying) {
    make_mbarrier(at);
    make_mbarrier(at + 8);
  }
  const Clocks watch;
  if (copying) {
    begin_copies<kCopies>(into, from, at);
#pragma unroll 1
    for (int i = 1; i < n; ++i) {
      begin_copies<kCopies>(into, from, at + 8 * (i & 1));
      wait_for_phase(at + 8 * ((i - 1) & 1), (i - 1) >> 1 & 1);
    }
    wait_for_phase(at + 8 * ((n - 1) & 1), (n - 1) >> 1 & 1);
  }
  watch.stop(clocks);
  sink[threadIdx.x] = to[warp][threadIdx.x % 32];
}

// ---- bandwidth ----

// Each block reads n times as much as its threads at once, past the L1, in a ring of `count` times
// 16 bytes, a power of two. The blocks begin at different places.
static __global__ void l2_stream(const uint4* data, unsigned count, int n, long long* clocks,
                                 uint64_t* sink) {
  const Clocks watch;
  uint32_t sum = 0;
  unsigned at = blockIdx.x * 977u * blockDim.x + threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int k = 0; k < kParallel; ++k) {
      uint4 v;
      asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "l"(data + (at & (count - 1))));
      sum += v.x ^ v.y ^ v.z ^ v.w;
      at += blockDim.x;
    }
  watch.stop(clocks);
  sink[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// The grid reads n times as much as its threads at once, each byte once.
static __global__ void dram_stream(const uint4* data, int n, long long* clocks, uint64_t* sink) {
  const Clocks watch;
  uint32_t sum = 0;
  const size_t threads = size_t(gridDim.x) * blockDim.x;
  const uint4* at = data + size_t(blockIdx.x) * blockDim.x + threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int k = 0; k < kParallel; ++k) {
      uint4 v;
      asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "l"(at));
      sum += v.x ^ v.y ^ v.z ^ v.w;
      at += threads;
    }
  watch.stop(clocks);
  sink[size_t(blockIdx.x) * blockDim.x + threadIdx.x] = sum;
}

}  // namespace calibrate
