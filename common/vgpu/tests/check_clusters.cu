// Programs with clusters, as nvcc compiles them, under all checks: a histogram in distributed
// shared memory, a reduction, a ring of st.async, tiles by multicast, copies from block to block.
// The right ones are silent in any order, those with a planted bug say where and exit with 86. Each
// case runs this program again (its "child:" cases) with the checks on.
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <doctest/doctest.h>
#include <unistd.h>
#include <cuda/barrier>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cuda/ptx>
#include <numeric>
#include <string>
#include <vector>

#include "arrays.cuh"
#include "child_process.h"

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

namespace {

using namespace vgpu_tests;

constexpr int kThreads = 64, kBlocks = 4;  // threads per block, blocks per cluster

// Bins spread over the blocks of a cluster. Without the barrier a block counts what others have not
// added yet.
template <bool kBarrier>
__global__ void histogram(const int* in, int n, int bins, int* out) {
  extern __shared__ int part[];
  const auto cluster = cg::this_cluster();
  const int each = bins / cluster.num_blocks();
  for (int i = threadIdx.x; i < each; i += blockDim.x) part[i] = 0;
  cluster.sync();
  for (int i = cg::this_grid().thread_rank(); i < n; i += cg::this_grid().num_threads())
    atomicAdd(cluster.map_shared_rank(part, in[i] / each) + in[i] % each, 1);
  if (kBarrier)
    cluster.sync();
  else
    __syncthreads();
  for (int i = threadIdx.x; i < each; i += blockDim.x)
    atomicAdd(out + cluster.block_rank() * each + i, part[i]);
  cluster.sync();
}

// The last block adds up what all have. Without the barrier at the end they may be gone.
template <bool kBarrier>
__global__ void sum(const int* in, int* out) {
  __shared__ int partial;
  const auto cluster = cg::this_cluster();
  if (threadIdx.x == 0) partial = 0;
  __syncthreads();
  atomicAdd(&partial, in[cg::this_grid().thread_rank()]);
  cluster.sync();
  if (cluster.block_rank() == cluster.num_blocks() - 1 && threadIdx.x == 0) {
    int all = 0;
    for (unsigned r = 0; r < cluster.num_blocks(); ++r)
      all += *cluster.map_shared_rank(&partial, r);
    out[blockIdx.x / cluster.num_blocks()] = all;
  }
  if (kBarrier) cluster.sync();
}

__device__ void await(std::uint64_t* barrier, unsigned phase) {
  while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, barrier, phase)) {
  }
}

// Values go round a ring of blocks: each thread sends its one to the next block, which waits for
// all.
template <bool kWait>
__global__ void ring(int* values, int rounds) {
  __shared__ alignas(16) int arrived[2][kThreads];
  __shared__ std::uint64_t barrier[2];
  const auto cluster = cg::this_cluster();
  const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
  if (threadIdx.x == 0)
    for (auto& b : barrier) ptx::mbarrier_init(&b, 1);
  cluster.sync();
  int mine = values[cg::this_grid().thread_rank()];
  for (int r = 0; r < rounds; ++r) {
    const int slot = r % 2;
    if (threadIdx.x == 0)
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared,
                                     &barrier[slot], sizeof arrived[slot]);
    ptx::st_async(cluster.map_shared_rank(&arrived[slot][threadIdx.x], next), mine,
                  cluster.map_shared_rank(&barrier[slot], next));
    if (kWait)
      await(&barrier[slot], r / 2 % 2);
    else
      cluster.sync();
    mine = arrived[slot][threadIdx.x] + 1;
    cluster.sync();  // the slot is free again
  }
  values[cg::this_grid().thread_rank()] = mine;
  if (!kWait)
    for (int slot = 0; slot < 2; ++slot) await(&barrier[slot], 0);
  cluster.sync();
}

// Rank 0 brings each tile of `in` to all blocks at once, which add their own rank.
template <bool kWait>
__global__ void spread(const int* in, int tiles, int* out) {
  __shared__ alignas(128) int tile[kThreads];
  __shared__ std::uint64_t barrier;
  const auto cluster = cg::this_cluster();
  if (threadIdx.x == 0) ptx::mbarrier_init(&barrier, 1);
  cluster.sync();
  for (int t = 0; t < tiles; ++t) {
    if (threadIdx.x == 0)
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier,
                                     sizeof tile);
    cluster.sync();  // all expect it, and nobody reads the tile before any longer
    if (cluster.block_rank() == 0 && threadIdx.x == 0)
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
          "[%0], [%1], %2, [%3], %4;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(tile))),
          "l"(in + t * kThreads), "r"(static_cast<unsigned>(sizeof tile)),
          "r"(static_cast<unsigned>(__cvta_generic_to_shared(&barrier))),
          "h"(static_cast<std::uint16_t>((1 << cluster.num_blocks()) - 1))
          : "memory");
    if (kWait) await(&barrier, t % 2);
    out[(t * gridDim.x + blockIdx.x) * kThreads + threadIdx.x] =
        tile[threadIdx.x] + cluster.block_rank();
    if (!kWait) await(&barrier, t % 2);
  }
  cluster.sync();
}

// Each block copies its values to the next one. Without the barrier it writes new ones over those
// that are still to be copied.
template <bool kBarrier>
__global__ void shift(int* values) {
  __shared__ alignas(16) int mine[kThreads], arrived[kThreads];
  __shared__ std::uint64_t barrier;
  const auto cluster = cg::this_cluster();
  const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
  const int i = cg::this_grid().thread_rank();
  mine[threadIdx.x] = values[i];
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&barrier, 1);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier,
                                   sizeof mine);
  }
  ptx::fence_proxy_async();
  cluster.sync();
  if (threadIdx.x == 0)
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_shared,
                       cluster.map_shared_rank(arrived, next), mine, sizeof mine,
                       cluster.map_shared_rank(&barrier, next));
  if (kBarrier) await(&barrier, 0);
  if (kBarrier) cluster.sync();  // all have got theirs
  mine[threadIdx.x] = -1;
  if (!kBarrier) cluster.sync();
  if (!kBarrier) await(&barrier, 0);
  values[i] = arrived[threadIdx.x] + mine[threadIdx.x];
  cluster.sync();
}

// Reverses each block's values in shared memory, and the copy engine takes them out again.
template <bool kFence>
__global__ void reversed(const int* in, int* out) {
  __shared__ alignas(16) int tile[kThreads];
  tile[kThreads - 1 - threadIdx.x] = in[blockIdx.x * kThreads + threadIdx.x];
  if (kFence) ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x) return;
  ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + blockIdx.x * kThreads, tile,
                     sizeof tile);
  ptx::cp_async_bulk_commit_group();
  ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
}

// A barrier as the library has it, and a copy that it gives to the engine.
template <bool kSync>
__global__ void brought(const int* in, int* out) {
  __shared__ alignas(16) int tile[kThreads];
  using Barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ alignas(Barrier) unsigned char storage[sizeof(Barrier)];
  Barrier& barrier = *reinterpret_cast<Barrier*>(storage);
  if (threadIdx.x == 0) init(&barrier, kThreads);
  if (kSync) __syncthreads();
  cuda::memcpy_async(cg::this_thread_block(), tile, in + blockIdx.x * kThreads,
                     cuda::aligned_size_t<16>(sizeof tile), barrier);
  barrier.arrive_and_wait();
  out[blockIdx.x * kThreads + threadIdx.x] = tile[kThreads - 1 - threadIdx.x];
}

// In place, and then the neighbour's result: through the way for constant memory it may be an old one.
template <bool kPlain>
__global__ void neighbours(int* x, int* out) {
  const int t = threadIdx.x;
  x[t] = 2 * __ldg(x + t);
  __syncthreads();
  out[t] = kPlain ? x[t ^ 1] : __ldg(x + (t ^ 1));
}

// i * 7 % 32 for each of n.
std::vector<int> numbers(int n) {
  std::vector<int> values(n);
  for (int i = 0; i < n; ++i) values[i] = i * 7 % 32;
  return values;
}

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), int blocks, std::size_t shared, Args... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = shared;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kBlocks, 1, 1};
  config.attrs = &cluster;
  config.numAttrs = 1;
  CHECK_OK(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...));
  CHECK_OK(cudaDeviceSynchronize());
}

template <bool kRight>
void run_histogram() {
  const std::vector<int> values = numbers(1000);
  std::vector<int> want(32);
  for (const int v : values) ++want[v];
  int* out = device(std::vector<int>(32));
  launch(histogram<kRight>, 8, 8 * sizeof(int), device(values), 1000, 32, out);
  const std::vector<int> got = host(out, 32);
  if (kRight) CHECK(got == want);
}
template <bool kRight>
void run_sum() {
  const std::vector<int> values = numbers(8 * kThreads);
  int* out = device(std::vector<int>(2));
  launch(sum<kRight>, 8, 0, device(values), out);
  const std::vector<int> got = host(out, 2);
  for (int c = 0; c < 2; ++c)
    CHECK(got[c] == std::accumulate(values.begin() + c * kBlocks * kThreads,
                                    values.begin() + (c + 1) * kBlocks * kThreads, 0));
}
template <bool kRight>
void run_ring() {
  const int rounds = kRight ? 5 : 2;
  const std::vector<int> values = numbers(2 * kBlocks * kThreads);
  int* p = device(values);
  launch(ring<kRight>, 2 * kBlocks, 0, p, rounds);
  const std::vector<int> got = host(p, values.size());
  for (int i = 0; i < static_cast<int>(values.size()) && kRight; ++i) {
    const int block = i / kThreads,
              from = block / kBlocks * kBlocks + (block + 3 * rounds) % kBlocks;
    CHECK(got[i] == values[from * kThreads + i % kThreads] + rounds);
  }
}
template <bool kRight>
void run_spread() {
  const int tiles = 3;
  const std::vector<int> values = numbers(tiles * kThreads);
  int* out = device(std::vector<int>(tiles * 2 * kBlocks * kThreads));
  launch(spread<kRight>, 2 * kBlocks, 0, device(values), tiles, out);
  const std::vector<int> got = host(out, tiles * 2 * kBlocks * kThreads);
  for (int i = 0; i < static_cast<int>(got.size()) && kRight; ++i) {
    const int tile = i / (2 * kBlocks * kThreads), block = i / kThreads % (2 * kBlocks);
    CHECK(got[i] == values[tile * kThreads + i % kThreads] + block % kBlocks);
  }
}
template <bool kRight>
void run_shift() {
  const std::vector<int> values = numbers(kBlocks * kThreads);
  int* p = device(values);
  launch(shift<kRight>, kBlocks, 0, p);
  const std::vector<int> got = host(p, values.size());
  int wrong = 0;
  for (int i = 0; i < static_cast<int>(got.size()); ++i)
    wrong += got[i] != values[(i + 3 * kThreads) % (kBlocks * kThreads)] - 1;
  CHECK((wrong == 0) == kRight);  // copies are late on purpose: the bug shows each time
}

void check_found(const std::string& name, const std::string& text) {
  const Result result = child("VGPU_CHECK=all", name);
  CHECK_MESSAGE(result.code == 86, name << ":\n" << result.text);
  CHECK_MESSAGE(result.text.find(text) != std::string::npos, name << ":\n" << result.text);
  CHECK(child("VGPU_CHECK=memory", name).code == 0);
}

template <class Kernel>
void run_reversing(Kernel kernel) {
  std::vector<int> values(2 * kThreads), want;
  std::iota(values.begin(), values.end(), 0);
  for (int b = 0; b < 2; ++b)
    for (int i = kThreads; i-- > 0;) want.push_back(b * kThreads + i);
  int *in = device(values), *out = device(std::vector<int>(values.size(), 0));
  kernel<<<2, kThreads>>>(in, out);
  CHECK(host(out, values.size()) == want);
}
template <bool kPlain>
void run_neighbours() {
  int *x = device(std::vector<int>(kThreads, 3)), *out = device(std::vector<int>(kThreads, 0));
  neighbours<kPlain><<<1, kThreads>>>(x, out);
  CHECK(host(out, kThreads) == std::vector<int>(kThreads, 6));
}

}  // namespace

TEST_CASE("child: ways" * doctest::skip()) {
  run_reversing(reversed<true>);
  run_reversing(brought<true>);
  run_neighbours<true>();
}
TEST_CASE("child: no fence" * doctest::skip()) { run_reversing(reversed<false>); }
TEST_CASE("child: nobody waits" * doctest::skip()) { run_reversing(brought<false>); }
TEST_CASE("child: no plain load" * doctest::skip()) { run_neighbours<false>(); }

TEST_CASE("clusters: ways to memory that the hardware does not keep in step") {
  for (const char* order : {"", "VGPU_SCHEDULE=random:1", "VGPU_SCHEDULE=random:2"}) {
    const Result result = child(std::string("VGPU_CHECK=all ") + order, "ways");
    CHECK_MESSAGE(result.code == 0, order << ":\n" << result.text);
  }
  check_found("no fence",
              ", without a fence.proxy.async between, by thread (0,0,0) of block (0,0,0)");
  check_found("nobody waits", "which thread (0,0,0) initialized at ");
  check_found("no plain load", ": error: proxy: ld.global.nc (or __ldg) of 4 bytes at byte ");
}

TEST_CASE("child: right" * doctest::skip()) {
  run_histogram<true>();
  run_sum<true>();
  run_ring<true>();
  run_spread<true>();
  run_shift<true>();
}
TEST_CASE("child: histogram" * doctest::skip()) { run_histogram<false>(); }
TEST_CASE("child: sum" * doctest::skip()) { run_sum<false>(); }
TEST_CASE("child: ring" * doctest::skip()) { run_ring<false>(); }
TEST_CASE("child: spread" * doctest::skip()) { run_spread<false>(); }
TEST_CASE("child: shift" * doctest::skip()) { run_shift<false>(); }
TEST_CASE("child: older device" * doctest::skip()) {
  int value = 1;
  CHECK_OK(cudaDeviceGetAttribute(&value, cudaDevAttrClusterLaunch, 0));
  CHECK(value == 0);
}

TEST_CASE("clusters: right programs are silent, in any order") {
  for (const char* order :
       {"", "VGPU_SCHEDULE=random:1", "VGPU_SCHEDULE=random:2", "VGPU_CACHE=1"}) {
    const Result result = child(std::string("VGPU_CHECK=all ") + order, "right");
    CHECK_MESSAGE(result.code == 0, order << ":\n" << result.text);
  }
}

TEST_CASE("clusters: a barrier or a wait that is missing is found") {
  check_found(
      "histogram",
      " without a barrier of the cluster or a release and an acquire between, in histogram<false>");
  check_found("sum",
              ", and the end of that block, without a barrier of the cluster or a release and an "
              "acquire between, in sum<false>");
  check_found("ring", " before the copy was waited for, in ring<false>");
  check_found("spread", " before the copy was waited for, in spread<false>");
  CHECK(child("VGPU_CHECK=memory", "shift").code == 0);
}

TEST_CASE("clusters: devices before compute capability 9.0 have none") {
  CHECK(child("VGPU_DEVICE=a100", "older device").code == 0);
}

TEST_CASE("clusters: profiles count what reaches other blocks") {
  const Result result = child("VGPU_PROFILE=text", "sum");
  const std::size_t at = result.text.find("Distributed shared memory");
  REQUIRE_MESSAGE(at != std::string::npos, result.text);
  // Two clusters; one lane reads three other blocks and its own.
  int requests = 0, bytes = 0;
  const char* loads = std::strstr(result.text.c_str() + at, "loads");
  REQUIRE(loads != nullptr);
  CHECK(std::sscanf(loads, "loads %d %d", &requests, &bytes) == 2);
  CHECK(requests == 6);
  CHECK(bytes == 24);
  CHECK(result.text.find("  distributed shared memory >= ", at) != std::string::npos);
  // Compute capability 12.0 has clusters too, and nobody knows how quick they are there.
  const Result newer = child("VGPU_DEVICE=rtx5090 VGPU_PROFILE=text", "sum");
  CHECK_MESSAGE(newer.code == 0, newer.text);
  CHECK(newer.text.find("5090") != std::string::npos);
  CHECK(newer.text.find("  distributed shared memory    unknown: ") != std::string::npos);
  CHECK(result.text.find("cluster (4)") != std::string::npos);
}
