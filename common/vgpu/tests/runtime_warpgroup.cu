// A matrix product on warpgroups, as nvcc compiles it for sm_90a: one warpgroup fills tiles of shared memory
// and gives registers back, another takes them and multiplies. Against a plain loop, in usual and shuffled
// schedules and with the checks on; and with mistakes planted, each of which a check names. Each case runs
// this program again (its "child:" cases).
#include <doctest/doctest.h>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

#include "child_process.h"

namespace {

using namespace vgpu_tests;

// Tiles of 64 x 64: a line of 64 halves is the 128 bytes of the widest swizzle.
constexpr int kTile = 64, kGroup = 128, kStages = 2, kRegistersOfLoader = 40,
              kRegistersOfSums = 208;

// What the kernel leaves out.
enum class Mistake { none, proxy_fence, fence, wait, early_release, swizzle };

__device__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}
// A tile of 64 lines of 128 bytes, swizzled: 8 lines are 1024 bytes. From element `k` of the lines on.
__device__ std::uint64_t descriptor(const half* tile, int k) {
  const std::uint32_t start = shared_address(tile) + 2 * static_cast<std::uint32_t>(k);
  return (start & 0x3ffff) >> 4 | std::uint64_t{1} << 16 | std::uint64_t{1024 >> 4} << 32 |
         std::uint64_t{1} << 62;
}
__device__ void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void warpgroup_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kLeft>
__device__ void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// sums[64 x 64] += a[64 x 16] b[64 x 16]^T; the part of this thread.
__device__ void multiply(float (&s)[32], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
      "%10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
      "%28, "
      "%29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
      : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]),
        "+f"(s[7]), "+f"(s[8]), "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]),
        "+f"(s[14]), "+f"(s[15]), "+f"(s[16]), "+f"(s[17]), "+f"(s[18]), "+f"(s[19]), "+f"(s[20]),
        "+f"(s[21]), "+f"(s[22]), "+f"(s[23]), "+f"(s[24]), "+f"(s[25]), "+f"(s[26]), "+f"(s[27]),
        "+f"(s[28]), "+f"(s[29]), "+f"(s[30]), "+f"(s[31])
      : "l"(a), "l"(b));
}

__device__ void wait(std::uint64_t* barrier, std::uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n@!done "
      "bra "
      "AGAIN;\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
__device__ void arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

struct Tiles {
  half a[kStages][kTile * kTile], b[kStages][kTile * kTile];
};

// 64 lines from `row` on and 64 columns from `k` on of x[rows][columns], zeros beyond.
template <Mistake kMistake>
__device__ void fill(half* tile, const half* x, int rows, int columns, int row, int k) {
  for (int i = threadIdx.x; i < kTile * kTile; i += kGroup) {
    const int r = i / kTile, c = i % kTile;
    const int piece = kMistake == Mistake::swizzle ? c / 8 : c / 8 ^ r % 8;
    const bool inside = row + r < rows && k + c < columns;
    tile[r * kTile + piece * 8 + c % 8] = inside ? x[(row + r) * columns + k + c] : half(0);
  }
}

// c[m][n] = a[m][k] b[n][k]^T
template <Mistake kMistake>
__global__ void __launch_bounds__(2 * kGroup, 2)
    product(const half* a, const half* b, float* c, int m, int n, int k) {
  extern __shared__ __align__(1024) unsigned char storage[];
  auto& tiles = *reinterpret_cast<Tiles*>(storage);
  __shared__ std::uint64_t full[kStages], empty[kStages];
  if (threadIdx.x == 0)
    for (int s = 0; s < kStages; ++s) {
      asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&full[s])),
                   "r"(kGroup));
      asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&empty[s])),
                   "r"(kGroup));
    }
  __syncthreads();
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile, steps = (k + kTile - 1) / kTile;
  if (threadIdx.x < kGroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegistersOfLoader));
    for (int step = 0; step < steps; ++step) {
      const int s = step % kStages;
      if (step >= kStages) wait(&empty[s], step / kStages % 2 ^ 1);
      fill<kMistake>(tiles.a[s], a, m, k, row, step * kTile);
      fill<kMistake>(tiles.b[s], b, n, k, column, step * kTile);
      if (kMistake != Mistake::proxy_fence)
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      arrive(&full[s]);
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegistersOfSums));
  float sums[32] = {};
  for (int step = 0; step < steps; ++step) {
    const int s = step % kStages;
    wait(&full[s], step / kStages % 2);
    if (kMistake != Mistake::fence) warpgroup_fence();
    for (int i = 0; i < kTile; i += 16)
      multiply(sums, descriptor(tiles.a[s], i), descriptor(tiles.b[s], i));
    warpgroup_commit();
    if (kMistake == Mistake::early_release) arrive(&empty[s]);
    if (kMistake != Mistake::wait || step + 1 < steps) warpgroup_wait<0>();
    if (kMistake != Mistake::early_release) arrive(&empty[s]);
  }
  const int thread = threadIdx.x - kGroup, g = thread % 32 / 4, t = thread % 4;
  for (int i = 0; i < 32; ++i) {
    const int r = row + thread / 32 * 16 + g + i % 4 / 2 * 8,
              q = column + i / 4 * 8 + t * 2 + i % 2;
    if (r < m && q < n) c[r * n + q] = sums[i];
  }
}

template <Mistake kMistake>
int wrong_elements(int m, int n, int k) {
  const auto fill_host = [](std::vector<half>& x, unsigned seed) {
    for (half& v : x)
      v = half(static_cast<float>((seed = seed * 1664525u + 1013904223u) >> 28) - 7.f);
  };
  std::vector<half> a(m * k), b(n * k);
  fill_host(a, 1), fill_host(b, 2);
  half *da, *db;
  float* dc;
  REQUIRE(cudaMalloc(&da, a.size() * 2) == cudaSuccess);
  REQUIRE(cudaMalloc(&db, b.size() * 2) == cudaSuccess);
  REQUIRE(cudaMalloc(&dc, m * n * 4) == cudaSuccess);
  cudaMemcpy(da, a.data(), a.size() * 2, cudaMemcpyHostToDevice);
  cudaMemcpy(db, b.data(), b.size() * 2, cudaMemcpyHostToDevice);
  const auto kernel = product<kMistake>;
  REQUIRE(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               sizeof(Tiles)) == cudaSuccess);
  const dim3 grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile);
  kernel<<<grid, 2 * kGroup, sizeof(Tiles)>>>(da, db, dc, m, n, k);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  std::vector<float> c(m * n);
  cudaMemcpy(c.data(), dc, c.size() * 4, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float want = 0;
      for (int q = 0; q < k; ++q) want += float(a[i * k + q]) * float(b[j * k + q]);
      wrong += c[i * n + j] != want;
    }
  for (void* p : {static_cast<void*>(da), static_cast<void*>(db), static_cast<void*>(dc)})
    cudaFree(p);
  return wrong;
}

bool has(const Result& result, const std::string& part) {
  INFO(result.text);
  const bool found = result.text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

}  // namespace

TEST_CASE("child: right" * doctest::skip()) {
  CHECK(wrong_elements<Mistake::none>(100, 72, 200) == 0);
  CHECK(wrong_elements<Mistake::none>(64, 64, 64) == 0);
}
TEST_CASE("child: no proxy fence" * doctest::skip()) {
  wrong_elements<Mistake::proxy_fence>(64, 64, 64);
}
TEST_CASE("child: no fence" * doctest::skip()) { wrong_elements<Mistake::fence>(64, 64, 128); }
TEST_CASE("child: no wait" * doctest::skip()) {
  CHECK(wrong_elements<Mistake::wait>(64, 64, 64) > 0);
}
TEST_CASE("child: early release" * doctest::skip()) {
  wrong_elements<Mistake::early_release>(64, 64, 256);
}
TEST_CASE("child: no swizzle" * doctest::skip()) {
  CHECK(wrong_elements<Mistake::swizzle>(64, 64, 64) > 0);
}

TEST_CASE("warpgroups: a matrix product is right in every schedule and has no findings") {
  for (const char* environment :
       {"A=1", "VGPU_SCHEDULE=random:1", "VGPU_SCHEDULE=random:2", "VGPU_SCHEDULE=hostile:3",
        "VGPU_CHECK=all", "VGPU_CHECK=all VGPU_SCHEDULE=hostile:1", "VGPU_DEVICE=h100"}) {
    const Result result = child(environment, "right");
    INFO(std::string(environment) << ": " << result.text);
    CHECK(result.code == 0);
  }
}

TEST_CASE("warpgroups: mistakes in a matrix product are found, with their lines") {
  const Result proxy = child("VGPU_CHECK=proxy", "no proxy fence");
  CHECK(proxy.code == 86);
  has(proxy, "error: proxy: wgmma reads the bytes at offset");
  const Result fence = child("VGPU_CHECK=sync", "no fence");
  CHECK(fence.code == 86);
  has(fence, "error: sync: wgmma.mma_async before the warp's first wgmma.fence");
  const Result wait = child("VGPU_CHECK=sync", "no wait");
  CHECK(wait.code == 86);
  has(wait, "runtime_warpgroup.cu:");
  has(wait, "read of a register that is part of the accumulator of the wgmma.mma_async at");
  const Result release = child("VGPU_CHECK=race", "early release");
  CHECK(release.code == 86);
  has(release, "error: race");
  CHECK(child("A=1", "no swizzle").code == 0);
}

TEST_CASE("warpgroups: code for sm_90a is for devices of compute capability 9.0 alone") {
  for (const char* device : {"a100", "rtx5090"}) {
    const Result result = child("VGPU_DEVICE=" + std::string(device), "right");
    CHECK(result.code != 0);
    has(result, "sm_90a");
  }
}
