// The checks on whole programs, as nvcc compiles them: tiles, reductions, cooperative groups, CUB
// and single-pass scans are silent; a program with a race says where and exits with 86. Each case
// runs this program again (its "child:" cases) with the checks on.
//
// Longer than 600 lines: findings are told by file and line, so that kernels and what is expected of
// them stand in one file.
#include <doctest/doctest.h>

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#include <cub/cub.cuh>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "arrays.cuh"
#include "child_process.h"

namespace cg = cooperative_groups;

// (Barriers in shared memory, whose constructors do nothing.)
#pragma nv_diag_suppress static_var_with_dynamic_init

namespace {

using namespace vgpu_tests;

constexpr int kTile = 16;

// c = a b for square matrices; without the second barrier a fast warp overwrites what others still
// read.
template <bool kBarriers>
__global__ void multiply(const float* a, const float* b, float* c, int n) {
  __shared__ float a_tile[kTile][kTile], b_tile[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k += kTile) {
    a_tile[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
    b_tile[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
    if (kBarriers) __syncthreads();
  }
  c[row * n + column] = sum;
}

__global__ void warp_sums(const float* x, float* sums) {
  __shared__ float partial[32];
  float v = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  v = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  if (threadIdx.x == 0) atomicAdd(sums, v);
}

// The last steps of a tree reduction within one warp, in shared memory.
template <bool kSync>
__global__ void tree_sum(const float* x, float* out) {
  __shared__ float s[256];
  const int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int d = 128; d >= 32; d /= 2) {
    if (t < d) s[t] += s[t + d];
    __syncthreads();
  }
  if (t < 32) {
    for (int d = 16; d; d /= 2) {
      const float other = s[t + d];
      if (kSync) __syncwarp();
      s[t] += other;
      if (kSync) __syncwarp();
    }
    if (t == 0) *out = s[0];
  }
}

__global__ void histogram(const int* x, int n, int* bins) {
  __shared__ int local[64];
  if (threadIdx.x < 64) local[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&local[x[i] & 63], 1);
  __syncthreads();
  if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

// Groups of 4 warps meet in shared memory that the system reserves.
__global__ void large_tiles(int* out) {
  __shared__ cg::block_tile_memory<256> memory;
  const auto tile = cg::tiled_partition<128>(cg::this_thread_block(memory));
  out[threadIdx.x] = cg::reduce(tile, static_cast<int>(threadIdx.x), cg::plus<int>());
}
__global__ void grid_sum(const float* x, float* partial, float* out) {
  const cg::grid_group grid = cg::this_grid();
  const cg::thread_block block = cg::this_thread_block();
  const auto warp = cg::tiled_partition<32>(block);
  __shared__ float s[8];
  const float v = cg::reduce(warp, x[grid.thread_rank()], cg::plus<float>());
  if (warp.thread_rank() == 0) s[warp.meta_group_rank()] = v;
  block.sync();
  if (block.thread_rank() == 0) {
    float sum = 0;
    for (unsigned i = 0; i < warp.meta_group_size(); ++i) sum += s[i];
    partial[blockIdx.x] = sum;
  }
  grid.sync();
  if (grid.thread_rank() == 0) {
    float sum = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) sum += partial[i];
    *out = sum;
  }
  grid.sync();
  if (block.thread_rank() == 0) partial[blockIdx.x] = *out;
}

// The programming guide's sum: the last block to finish adds up what the others left.
__device__ unsigned finished;
template <bool kFence>
__global__ void last_block_sum(const float* x, volatile float* partial, float* out) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    float sum = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) sum += x[blockIdx.x * blockDim.x + i];
    const_cast<float*>(partial)[blockIdx.x] = sum;
    if (kFence) __threadfence();
    last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x) return;
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += partial[i];
  *out = sum;
}

__global__ void halves(__half* x) {
  __shared__ __half s[256];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  s[threadIdx.x] = x[i];
  __syncthreads();
  x[i] = s[threadIdx.x ^ 1];
}

// A struct with padding at its end and one with padding inside, copied whole through shared memory.
struct Tail {
  double a;
  int b;
};
struct Inside {
  char a;
  int b;
};
struct alignas(16) Three {
  float x, y, z;
};
template <class T>
__global__ void copy_structs(const T* x, T* y) {
  __shared__ T s[64];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x ^ 1];
}
__global__ void sums_of_three(const Three* x, float* sums) {
  const Three v = x[threadIdx.x];
  sums[threadIdx.x] = v.x + v.y + v.z;
}
// Padding that is no padding.
__global__ void sums_of_four(const Three* x, float* sums) {
  const float4 v = reinterpret_cast<const float4*>(x)[threadIdx.x];
  sums[threadIdx.x] = v.x + v.y + v.z + v.w;
}

// Two sorted halves of a tile of which `count` elements are there: the merge looks at one element
// behind the end of a half, as merge sorts do, and does not take it.
__global__ void merge_halves(const int* x, int* out, int count) {
  __shared__ int s[64];
  if (threadIdx.x) return;
  for (int i = 0; i < count; ++i) s[i] = x[i];
  const int middle = count / 2;
  int left = 0, right = middle, a = s[left], b = s[right];
  for (int i = 0; i < count; ++i) {
    const bool take_right = right < count && (left >= middle || b < a);
    out[i] = take_right ? b : a;
    if (take_right)
      b = s[++right];
    else
      a = s[++left];
  }
}

// The largest of each thread's value and the one 32 further, where there is one.
template <bool kClamped>
__global__ void larger(const float* x, float* out, int count) {
  __shared__ float s[64];
  const int t = threadIdx.x;
  for (int i = t; i < count; i += 32) s[i] = x[i];
  __syncthreads();
  const float own = s[t], other = s[t + 32];
  const float seen = kClamped && t + 32 >= count ? own : other;
  if (t < 32) out[t] = own > seen ? own : seen;
}

__global__ void block_algorithms(const int* x, int* out) {
  using Reduce = cub::BlockReduce<int, 128>;
  using Scan = cub::BlockScan<int, 128>;
  __shared__ union {
    typename Reduce::TempStorage reduce;
    typename Scan::TempStorage scan;
  } storage;
  const int v = x[blockIdx.x * 128 + threadIdx.x];
  const int sum = Reduce(storage.reduce).Sum(v);
  __syncthreads();
  int before;
  Scan(storage.scan).ExclusiveSum(v, before);
  out[blockIdx.x * 128 + threadIdx.x] = before;
  if (threadIdx.x == 0) out[gridDim.x * 128 + blockIdx.x] = sum;
}

// The sum of n values; kSet: it begins at 0.
__device__ void add_to(float& sum, float value) { sum += value; }
template <bool kSet>
__global__ void sum_in_a_loop(const float* x, float* out, int n) {
  float sum;
  if constexpr (kSet) sum = 0;
  for (int i = 0; i < n; ++i) add_to(sum, x[i]);
  out[threadIdx.x] = sum;
}
// Set and used where the same condition holds; the compiler does not see that.
__global__ void set_where_used(const float* x, float* out, int n) {
  float value[2];
  for (int k = 0; k < 2; ++k)
    if (int(threadIdx.x) + 32 * k < n) value[k] = x[threadIdx.x + 32 * k];
  __syncwarp();
  for (int k = 0; k < 2; ++k)
    if (int(threadIdx.x) + 32 * k < n) out[threadIdx.x + 32 * k] = value[k];
}

// The toolkit's functions are inlined several levels deep, the same ones in each kernel; only the
// second kernel's are wrong.
__global__ void copies_in_order(const int* x, int* out) {
  __shared__ int s[32];
  __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncwarp();
  out[threadIdx.x] = s[31 - threadIdx.x];
}
constexpr int kUnwaitedCopy = __LINE__ + 4;
__global__ void copies_unwaited(const int* x, int* out, int ahead) {
  __shared__ int s[64];
  __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);
  __pipeline_memcpy_async(&s[32 + threadIdx.x], &x[threadIdx.x + ahead], 4);
  __pipeline_commit();
  out[threadIdx.x] = s[32 + threadIdx.x];
}
__global__ void sums_once(const int* x, int* out) {
  using Reduce = cub::BlockReduce<int, 128>;
  __shared__ typename Reduce::TempStorage storage;
  const int sum = Reduce(storage).Sum(x[threadIdx.x]);
  if (threadIdx.x == 0) *out = sum;
}
constexpr int kCrowdedSum = __LINE__ + 5;
__global__ void sums_without_barrier(const int* x, int* out, int times) {
  using Reduce = cub::BlockReduce<int, 128>;
  __shared__ typename Reduce::TempStorage storage;
  int sum = 0;
  for (int i = 0; i < times; ++i) sum += Reduce(storage).Sum(x[threadIdx.x] + i);
  if (threadIdx.x == 0) *out = sum;
}

// Collectives of tiles of several warps: one lane acquires for its warp, and a shuffle stands
// between reading a warp's slot and writing it again.
__global__ void large_tile_collectives(int* out) {
  __shared__ cg::block_tile_memory<256> memory;
  const auto tile = cg::tiled_partition<128>(cg::this_thread_block(memory));
  int v = static_cast<int>(threadIdx.x);
  for (int i = 0; i < 3; ++i) v = tile.shfl(v, i) + tile.any(v == 1) + cg::exclusive_scan(tile, 1);
  out[threadIdx.x] = v;
}
// Groups of lanes that diverge exchange through shared memory, with their own sync.
__global__ void coalesced(int* out) {
  __shared__ int s[64];
  if (threadIdx.x % 3) {
    const cg::coalesced_group group = cg::coalesced_threads();
    s[threadIdx.x] = static_cast<int>(group.thread_rank());
    group.sync();
    const int next = static_cast<int>((group.thread_rank() + 1) % group.size());
    out[threadIdx.x] = s[group.shfl(threadIdx.x, next)];
  }
}

// One warp fills a buffer for three others. Without `kWait` it fills it again as soon as all have
// come for the last filling, though they may still be reading.
template <bool kWait>
__global__ void refilled(const int* x, int* out) {
  using Barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ Barrier full, empty;
  __shared__ int buffer[32];
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    init(&full, 128);
    init(&empty, kWait ? 128 : 96);
  }
  __syncthreads();
  int sum = 0;
  for (int i = 0; i < 6; ++i) {
    if (threadIdx.x < 32) buffer[lane] = x[i * 32 + lane];
    full.arrive_and_wait();
    if (threadIdx.x >= 32) {
      sum += buffer[lane ^ 1];
      (void)empty.arrive();
    } else if (kWait) {
      empty.arrive_and_wait();
    }
  }
  out[threadIdx.x] = sum;
}
__global__ void pipelines(const int* x, int* out) {
  const cg::thread_block block = cg::this_thread_block();
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  __shared__ int stage[2][128];
  auto pipeline = cuda::make_pipeline(block, &state);
  int sum = 0;
  for (int i = 0; i < 5; ++i) {
    if (i < 4) {
      pipeline.producer_acquire();
      cuda::memcpy_async(block, stage[i % 2], x + i * 32, sizeof(int) * 128, pipeline);
      pipeline.producer_commit();
    }
    if (i == 0) continue;
    pipeline.consumer_wait();
    sum += stage[(i - 1) % 2][threadIdx.x ^ 37];
    pipeline.consumer_release();
  }
  out[threadIdx.x] = sum;
}

// Thread 32 leaves a word behind a release of this scope: of block 0 when `kOneBlock`, else of the
// block before.
template <cuda::thread_scope kScope, bool kOneBlock>
__global__ void handed_over(int* flags, int* words, int* out) {
  cuda::atomic_ref<int, kScope> flag(flags[blockIdx.x]), wait(flags[blockIdx.x - !kOneBlock]);
  if (threadIdx.x == 32) {
    words[blockIdx.x] = 7;
    flag.store(1, cuda::memory_order_release);
  }
  if (threadIdx.x == 0 && (kOneBlock || blockIdx.x > 0)) {
    while (wait.load(cuda::memory_order_acquire) == 0) {
    }
    out[blockIdx.x] = words[blockIdx.x - !kOneBlock];
  }
}
template <bool kWholeGrid>
__global__ void handed_over_by_fences(int* flags, int* words, int* out) {
  const auto fence = [] { kWholeGrid ? __threadfence() : __threadfence_block(); };
  if (threadIdx.x) return;
  words[blockIdx.x] = 7;
  fence();
  atomicExch(&flags[blockIdx.x], 1);
  if (blockIdx.x == 0) return;
  while (atomicAdd(&flags[blockIdx.x - 1], 0) == 0) {
  }
  fence();
  out[blockIdx.x] = words[blockIdx.x - 1];
}

// The histogram of every course, and the counter of every second one.
template <bool kBarrier>
__global__ void count_all(const int* x, int* out) {
  __shared__ int sum;
  if (threadIdx.x == 0) sum = 0;
  if (kBarrier) __syncthreads();
  atomicAdd(&sum, x[threadIdx.x]);
  __syncthreads();
  if (threadIdx.x == 0) *out = sum;
}
// Lanes leave a word, vote, and read another lane's.
template <bool kSync>
__global__ void vote_between(int* out) {
  __shared__ int s[32];
  s[threadIdx.x] = static_cast<int>(threadIdx.x);
  const int any = __any_sync(0xffffffffu, threadIdx.x == 5);
  if (kSync) __syncwarp();
  out[threadIdx.x] = s[threadIdx.x ^ 1] + any;
}

void check_silent(const std::string& name) {
  for (const char* order : {"", "VGPU_SCHEDULE=random:1", "VGPU_SCHEDULE=random:2"}) {
    const Result result = child(std::string("VGPU_CHECK=all ") + order, name);
    CHECK_MESSAGE(result.code == 0, name << " " << order << ":\n" << result.text);
  }
}
void check_found(const std::string& name, const std::string& text) {
  const Result result = child("VGPU_CHECK=all", name);
  CHECK_MESSAGE(result.code == 86, name << ":\n" << result.text);
  CHECK_MESSAGE(result.text.find(text) != std::string::npos, name << ":\n" << result.text);
  CHECK(child("VGPU_CHECK=memory", name).code == 0);
}

template <bool kBarriers>
void run_multiply() {
  const std::vector<float> ones(32 * 32, 1.0f);
  float *a = device(ones), *b = device(ones), *c = empty<float>(32 * 32);
  multiply<kBarriers><<<dim3(2, 2), dim3(kTile, kTile)>>>(a, b, c, 32);
  CHECK_OK(cudaDeviceSynchronize());
}
template <bool kSync>
void run_tree() {
  float *x = device(std::vector<float>(256, 1.0f)), *out = empty<float>(1);
  tree_sum<kSync><<<1, 256>>>(x, out);
  if (kSync) CHECK(host(out, 1)[0] == 256.0f);
}
template <bool kFence>
void run_last_block() {
  float *x = device(std::vector<float>(256, 1.0f)), *partial = empty<float>(8),
        *out = empty<float>(1);
  last_block_sum<kFence><<<8, 32>>>(x, partial, out);
  CHECK(host(out, 1)[0] == 256.0f);
}

}  // namespace

TEST_CASE("child: tiles" * doctest::skip()) { run_multiply<true>(); }
TEST_CASE("child: tiles without the second barrier" * doctest::skip()) { run_multiply<false>(); }
TEST_CASE("child: tree" * doctest::skip()) { run_tree<true>(); }
TEST_CASE("child: tree without __syncwarp" * doctest::skip()) { run_tree<false>(); }
TEST_CASE("child: last block" * doctest::skip()) { run_last_block<true>(); }
TEST_CASE("child: last block without fence" * doctest::skip()) { run_last_block<false>(); }
TEST_CASE("child: warp sums" * doctest::skip()) {
  float *x = device(std::vector<float>(1024, 1.0f)), *out = device(std::vector<float>{0});
  warp_sums<<<8, 128>>>(x, out);
  CHECK(host(out, 1)[0] == 1024.0f);
}
TEST_CASE("child: histogram" * doctest::skip()) {
  std::vector<int> values(1000);
  std::iota(values.begin(), values.end(), 0);
  int *x = device(values), *bins = device(std::vector<int>(64, 0));
  histogram<<<4, 96>>>(x, 1000, bins);
  CHECK(host(bins, 64)[0] == 16);
}
TEST_CASE("child: grid" * doctest::skip()) {
  float *x = device(std::vector<float>(1024, 1.0f)), *partial = empty<float>(8),
        *out = empty<float>(1);
  void* args[] = {&x, &partial, &out};
  CHECK_OK(cudaLaunchCooperativeKernel(grid_sum, dim3(8), dim3(128), args, 0, nullptr));
  CHECK(host(partial, 8) == std::vector<float>(8, 1024.0f));
}
TEST_CASE("child: halves" * doctest::skip()) {
  __half* x = device(std::vector<__half>(512, __half(1.0f)));
  halves<<<2, 256>>>(x);
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: tiles of several warps" * doctest::skip()) {
  int* out = empty<int>(256);
  large_tiles<<<1, 256>>>(out);
  CHECK(host(out, 256)[0] == 127 * 64);
  CHECK(host(out, 256)[255] == (128 + 255) * 64);
}
TEST_CASE("child: collectives of tiles of several warps" * doctest::skip()) {
  large_tile_collectives<<<1, 256>>>(empty<int>(256));
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: coalesced groups" * doctest::skip()) {
  coalesced<<<1, 64>>>(empty<int>(64));
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: refilled" * doctest::skip()) {
  refilled<true><<<1, 128>>>(device(std::vector<int>(192, 1)), empty<int>(128));
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: refilled too early" * doctest::skip()) {
  refilled<false><<<1, 128>>>(device(std::vector<int>(192, 1)), empty<int>(128));
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: pipelines" * doctest::skip()) {
  pipelines<<<1, 128>>>(device(std::vector<int>(256, 1)), empty<int>(128));
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: scopes" * doctest::skip()) {
  const auto zeros = [] { return device(std::vector<int>(4, 0)); };
  handed_over<cuda::thread_scope_block, true><<<4, 64>>>(zeros(), zeros(), zeros());
  handed_over<cuda::thread_scope_device, true><<<4, 64>>>(zeros(), zeros(), zeros());
  handed_over<cuda::thread_scope_device, false><<<4, 64>>>(zeros(), zeros(), zeros());
  handed_over<cuda::thread_scope_system, false><<<4, 64>>>(zeros(), zeros(), zeros());
  handed_over_by_fences<true><<<4, 32>>>(zeros(), zeros(), zeros());
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: block scope between blocks" * doctest::skip()) {
  const auto zeros = [] { return device(std::vector<int>(4, 0)); };
  handed_over<cuda::thread_scope_block, false><<<4, 64>>>(zeros(), zeros(), zeros());
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: block fence between blocks" * doctest::skip()) {
  const auto zeros = [] { return device(std::vector<int>(4, 0)); };
  handed_over_by_fences<false><<<4, 32>>>(zeros(), zeros(), zeros());
  CHECK_OK(cudaDeviceSynchronize());
}
template <bool kBarrier>
void run_count() {
  int* out = empty<int>(1);
  count_all<kBarrier><<<1, 256>>>(device(std::vector<int>(256, 1)), out);
  CHECK(host(out, 1)[0] == 256);
}
TEST_CASE("child: count" * doctest::skip()) { run_count<true>(); }
TEST_CASE("child: count without a barrier" * doctest::skip()) { run_count<false>(); }
TEST_CASE("child: vote and __syncwarp" * doctest::skip()) {
  vote_between<true><<<1, 32>>>(empty<int>(32));
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: vote in place of __syncwarp" * doctest::skip()) {
  vote_between<false><<<1, 32>>>(empty<int>(32));
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: CUB in a block" * doctest::skip()) {
  int *x = device(std::vector<int>(512, 1)), *out = empty<int>(516);
  block_algorithms<<<4, 128>>>(x, out);
  const auto got = host(out, 516);
  CHECK(got[127] == 127);
  CHECK(got[515] == 128);
}
TEST_CASE("child: CUB on the device" * doctest::skip()) {
  const int n = 20000;
  int *x = device(std::vector<int>(n, 1)), *out = empty<int>(n), *sum = empty<int>(1);
  std::size_t bytes = 0, more = 0;
  CHECK_OK(cub::DeviceReduce::Sum(nullptr, bytes, x, sum, n));
  CHECK_OK(cub::DeviceScan::InclusiveSum(nullptr, more, x, out, n));
  char* storage = empty<char>(std::max(bytes, more));
  CHECK_OK(cub::DeviceReduce::Sum(storage, bytes, x, sum, n));
  CHECK(host(sum, 1)[0] == n);
  CHECK_OK(cub::DeviceScan::InclusiveSum(storage, more, x, out, n));
  CHECK(host(out, n)[n - 1] == n);
}
TEST_CASE("child: copies to parts" * doctest::skip()) {
  char *x = empty<char>(1024), *y = empty<char>(1024);
  CHECK_OK(cudaMemset(x, 0, 512));
  CHECK_OK(
      cudaMemcpy2D(x + 512, 64, std::vector<char>(512).data(), 64, 64, 8, cudaMemcpyHostToDevice));
  CHECK_OK(cudaMemcpy(y, x, 1024, cudaMemcpyDeviceToDevice));
  histogram<<<1, 64>>>(reinterpret_cast<int*>(y), 256, device(std::vector<int>(64, 0)));
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: half a copy" * doctest::skip()) {
  int* x = empty<int>(256);
  CHECK_OK(cudaMemset(x, 0, 1020));
  histogram<<<1, 64>>>(x, 256, device(std::vector<int>(64, 0)));
  CHECK_OK(cudaDeviceSynchronize());
}

TEST_CASE("child: copies in order" * doctest::skip()) {
  copies_in_order<<<1, 32>>>(device(std::vector<int>(32, 1)), empty<int>(32));
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: copies unwaited" * doctest::skip()) {
  copies_unwaited<<<1, 32>>>(device(std::vector<int>(32, 1)), empty<int>(32), 0);
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: copies from beyond" * doctest::skip()) {
  copies_unwaited<<<1, 32>>>(device(std::vector<int>(32, 1)), empty<int>(32), 32);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
}
TEST_CASE("child: sums once" * doctest::skip()) {
  sums_once<<<1, 128>>>(device(std::vector<int>(128, 1)), empty<int>(1));
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: sums without barrier" * doctest::skip()) {
  sums_without_barrier<<<1, 128>>>(device(std::vector<int>(128, 1)), empty<int>(1), 3);
  CHECK_OK(cudaDeviceSynchronize());
}

template <class T, class Fill>
void run_structs(Fill fill) {
  T *x = empty<T>(64), *y = empty<T>(64);
  fill(x);
  copy_structs<<<1, 64>>>(x, y);
  copy_structs<<<1, 64>>>(y, x);
  CHECK_OK(cudaDeviceSynchronize());
}
template <class T>
__global__ void fill_members(T* x) {
  x[threadIdx.x].a = 1;
  x[threadIdx.x].b = 2;
}
__global__ void fill_three(Three* x) { x[threadIdx.x].x = x[threadIdx.x].y = x[threadIdx.x].z = 1; }
TEST_CASE("child: structs with padding" * doctest::skip()) {
  run_structs<Tail>([](Tail* x) { fill_members<<<1, 64>>>(x); });
  run_structs<Inside>([](Inside* x) { fill_members<<<1, 64>>>(x); });
  run_structs<Three>([](Three* x) {
    fill_three<<<1, 64>>>(x);
    float* sums = empty<float>(64);
    sums_of_three<<<1, 64>>>(x, sums);
    CHECK(host(sums, 64) == std::vector<float>(64, 3.0f));
  });
}
TEST_CASE("child: padding used" * doctest::skip()) {
  Three* x = empty<Three>(64);
  fill_three<<<1, 64>>>(x);
  sums_of_four<<<1, 64>>>(x, empty<float>(64));
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: merge" * doctest::skip()) {
  const std::vector<int> values = {1, 4, 6, 7, 9, 2, 3, 5, 8, 10};
  int *x = device(values), *out = empty<int>(10);
  merge_halves<<<1, 32>>>(x, out, 10);
  CHECK(host(out, 10) == std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
}
TEST_CASE("child: clamped" * doctest::skip()) {
  float *x = device(std::vector<float>(40, 1.0f)), *out = empty<float>(32);
  larger<true><<<1, 32>>>(x, out, 40);
  CHECK(host(out, 32)[0] == 1.0f);
}
TEST_CASE("child: not clamped" * doctest::skip()) {
  float *x = device(std::vector<float>(40, 1.0f)), *out = empty<float>(32);
  larger<false><<<1, 32>>>(x, out, 40);
  CHECK_OK(cudaDeviceSynchronize());
}

TEST_CASE("child: sum" * doctest::skip()) {
  sum_in_a_loop<true><<<1, 32>>>(device(std::vector<float>(40, 1.0f)), empty<float>(32), 40);
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: sum that nothing was assigned to" * doctest::skip()) {
  sum_in_a_loop<false><<<1, 32>>>(device(std::vector<float>(40, 1.0f)), empty<float>(32), 40);
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: set where used" * doctest::skip()) {
  float* out = empty<float>(64);
  set_where_used<<<1, 32>>>(device(std::vector<float>(64, 2.0f)), out, 40);
  CHECK(host(out, 40) == std::vector<float>(40, 2.0f));
}

TEST_CASE("checks: correct programs are silent") {
  for (const char* name :
       {"sum", "set where used", "structs with padding", "merge", "clamped", "tiles", "tree",
        "last block", "warp sums", "histogram", "halves", "copies to parts",
        "tiles of several warps", "count", "vote and __syncwarp", "scopes"})
    check_silent(name);
}
TEST_CASE("checks: cooperative groups and CUB are silent") {
  for (const char* name :
       {"grid", "CUB in a block", "CUB on the device", "collectives of tiles of several warps",
        "coalesced groups", "refilled", "pipelines"})
    check_silent(name);
}
TEST_CASE("checks: programs with a planted bug exit with 86 and say where") {
  check_found("tiles without the second barrier",
              ": error: race: read of 4 bytes from shared memory");
  check_found("tree without __syncwarp",
              " without a __syncwarp between, in block (0,0,0) of tree_sum<false>");
  check_found("last block without fence",
              "without a barrier of the grid or a release and an acquire between, in "
              "last_block_sum<false>");
  check_found(
      "sum that nothing was assigned to",
      ": error: init: read of a variable that nothing was assigned to, by thread (0,0,0) of "
      "block (0,0,0) in sum_in_a_loop<false> (and 31 more)");
  check_found("padding used", ": error: init: read of 16 bytes that nobody wrote, at byte 12 of");
  check_found("not clamped",
              ": error: init: read of 4 bytes that nobody wrote, at offset 160 of the block's "
              "shared memory, by thread (8,0,0)");
  check_found(
      "count without a barrier",
      "without a barrier between, in block (0,0,0) of count_all<false>; a plain write beside "
      "atomic or volatile accesses is a data race");
  check_found("vote in place of __syncwarp",
              "without a __syncwarp between (a shuffle or vote is none), in block (0,0,0) of "
              "vote_between<false>");
  check_found("refilled too early",
              "without a barrier between, in block (0,0,0) of refilled<false>");
  check_found("block scope between blocks",
              "without a barrier of the grid or a release and an acquire "
              "between, in handed_over<");
  check_found("block fence between blocks",
              "without a barrier of the grid or a release and an acquire between, in "
              "handed_over_by_fences<false>");
  check_found("half a copy",
              "init: read of 4 bytes that nobody wrote, at byte 1020 of 'x' (1024 bytes, "
              "argument 1), by thread");
}

// child(name) says `text` of this line of this file.
void check_line(const std::string& name, int line, const std::string& text) {
  const Result result = child("VGPU_CHECK=all", name);
  CHECK_MESSAGE(result.text.find("check_programs.cu:" + std::to_string(line) +
                                 ": error: " + text) != std::string::npos,
                name << ", line " << line << ":\n"
                     << result.text);
}
TEST_CASE("checks: what is inlined from the toolkit is found at the line that called it") {
  check_silent("copies in order");
  check_silent("sums once");
  check_line("copies unwaited", kUnwaitedCopy, "race: asynchronous copy of 4 bytes to shared");
  check_line("copies from beyond", kUnwaitedCopy, "out-of-bounds read of 4 bytes");
  check_line("sums without barrier", kCrowdedSum, "race: write of 4 bytes to shared memory");
}
