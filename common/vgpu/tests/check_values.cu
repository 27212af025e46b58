// Values and addresses that are wrong, in whole programs as nvcc compiles them. Each case runs this
// program again (its "child:" cases) with the checks on.
#include <doctest/doctest.h>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <vector>

#include "arrays.cuh"
#include "child_process.h"

namespace {

using namespace vgpu_tests;

__constant__ float small_table[16];
__device__ float large_table[64];

__global__ void look_up(const float* table, int n, float* y) {
  y[threadIdx.x] = table[threadIdx.x % n];
}
__global__ void fill_table(float* table) { table[threadIdx.x] = 3.0f * threadIdx.x; }
__global__ void look_up_small(float* y) { y[threadIdx.x] = small_table[threadIdx.x % 16]; }

// 1 + the sum of the numbers from n down to 1, with 128 bytes of stack a call.
__device__ __noinline__ int sum_down(int n, int* trail) {
  int mine[32];
  for (int i = 0; i < 32; ++i) mine[i] = n + i;
  if (n == 0) return trail[0];
  return sum_down(n - 1, mine) + mine[n & 31] - (n & 31);
}
__global__ void recurse(int n, int* y) {
  int zero[1] = {0};
  *y = sum_down(n, zero);
}
__device__ __noinline__ int largest(const int* x, int* room) {
  for (int i = 0; i < 1024; ++i) room[i] = x[i % 7] * i;
  return room[x[0] & 1023];
}
// Needs 4 KiB of stack, which ptxas knows.
__global__ void much_stack(const int* x, int* y) {
  int room[1024];
  *y = largest(x, room);
}

__global__ void twice(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
__global__ void invert(const unsigned char* x, unsigned char* y, std::size_t pitch, int width) {
  y[blockIdx.x * width + threadIdx.x] = 255 - x[blockIdx.x * pitch + threadIdx.x];
}
__global__ void pairs(const float* v, const float* c, float2* y) {
  y[threadIdx.x] = make_float2(v[threadIdx.x] * 2, c[threadIdx.x] * 0.5f);
}

// Online softmax of a row of 20, which a mask may blank out.
template <bool kGuarded>
__global__ void softmax(const float* x, float* y) {
  const int t = threadIdx.x;
  const float v = t < 20 ? x[blockIdx.x * 20 + t] : -INFINITY;
  float m = v;
  for (int d = 16; d; d /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, d));
  if (kGuarded && m == -INFINITY) m = 0;
  const float e = expf(v - m);
  float sum = e;
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (kGuarded) sum = fmaxf(sum, 1e-30f);
  if (t < 20) y[blockIdx.x * 20 + t] = e / sum;
}
// SiLU and its like go through infinities and come back.
__global__ void activations(const float* x, float* y, __half* z) {
  const float v = x[threadIdx.x];
  y[threadIdx.x] = v / (1 + expf(-v)) + (v > 20 ? v : log1pf(expf(v))) + powf(v, 2.0f) * 0;
  const __half h = __float2half(v);
  z[threadIdx.x] = __hdiv(h, __hadd(__float2half(1), hexp(__hneg(h))));
}

// A stencil's halo of one, for which the tile has no room; and a filter that begins before its taps.
template <int kRoom>
__global__ void differences(const float* x, float* y) {
  __shared__ float tile[kRoom], scale[64];
  const int t = threadIdx.x;
  tile[t] = x[t];
  scale[t] = 100;
  if (kRoom > 64 && t == 0) tile[kRoom - 1] = 0;
  __syncthreads();
  y[t] = (tile[t + 1] - tile[t]) * scale[t];
}
__constant__ float first_taps[5], taps[5];
__global__ void filter(const float* x, float* y, int before) {
  float sum = first_taps[before];
  for (int k = -before; k < 5; ++k) sum += taps[k] * x[threadIdx.x];
  y[threadIdx.x] = sum;
}

// child(name) exits with `code` and says `text`; "": nothing.
void check_says(const std::string& name, int code, const std::string& text,
                const std::string& checks = "all") {
  const Result result = child("VGPU_CHECK=" + checks, name);
  CHECK_MESSAGE(result.code == code, name << ":\n" << result.text);
  const bool said = result.text.find(text.empty() ? "error:" : text) != std::string::npos;
  CHECK_MESSAGE(said == !text.empty(), name << ":\n" << result.text);
}

}  // namespace

TEST_CASE("child: a table of either kind" * doctest::skip()) {
  float *y = empty<float>(64), *p = nullptr;
  std::vector<float> values(64);
  for (int i = 0; i < 64; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i);
  CHECK_OK(cudaMemcpyToSymbol(large_table, values.data(), 256));
  CHECK_OK(cudaMemcpyToSymbol(small_table, values.data(), 64));
  CHECK_OK(cudaGetSymbolAddress(reinterpret_cast<void**>(&p), large_table));
  look_up<<<1, 64>>>(p, 64, y);
  CHECK(host(y, 64)[17] == 17);
  CHECK_OK(cudaGetSymbolAddress(reinterpret_cast<void**>(&p), small_table));
  look_up<<<1, 64>>>(p, 16, y);
  CHECK(host(y, 64)[17] == 1);
  // The address is that of the constant: what is written there kernels read by its name, and back.
  fill_table<<<1, 16>>>(p);
  look_up_small<<<1, 64>>>(y);
  CHECK(host(y, 64)[17 + 4] == 15);
  CHECK_OK(cudaMemcpy(p + 3, values.data() + 40, 4, cudaMemcpyHostToDevice));
  look_up_small<<<1, 64>>>(y);
  CHECK(host(y, 64)[3] == 40);
  CHECK(host(p, 16)[3] == 40);
  cudaPointerAttributes attributes;
  CHECK_OK(cudaPointerGetAttributes(&attributes, p));
  CHECK(attributes.type == cudaMemoryTypeDevice);
}
TEST_CASE("child: past a constant" * doctest::skip()) {
  float* p = nullptr;
  CHECK_OK(cudaGetSymbolAddress(reinterpret_cast<void**>(&p), small_table));
  look_up<<<1, 17>>>(p, 17, empty<float>(64));
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
}
TEST_CASE("child: constant by name" * doctest::skip()) {
  look_up<<<1, 64>>>(small_table, 16, empty<float>(64));
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
}
TEST_CASE("child: variable by name" * doctest::skip()) {
  look_up<<<1, 64>>>(large_table + 1, 16, empty<float>(64));
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
}
TEST_CASE("child: recursion" * doctest::skip()) {
  int* y = empty<int>(1);
  recurse<<<1, 1>>>(5, y);
  CHECK(host(y, 1)[0] == 1 + 15);
  CHECK_OK(cudaDeviceSetLimit(cudaLimitStackSize, 8192));
  recurse<<<1, 1>>>(20, y);
  CHECK(host(y, 1)[0] == 1 + 210);
  CHECK_OK(cudaDeviceSetLimit(cudaLimitStackSize, 1024));
  much_stack<<<1, 1>>>(device(std::vector<int>(7, 3)), y);
  CHECK(host(y, 1)[0] == 9);
}
TEST_CASE("child: deep recursion" * doctest::skip()) {
  recurse<<<1, 1>>>(20, empty<int>(1));
  CHECK(cudaDeviceSynchronize() != cudaSuccess);
}
TEST_CASE("child: a grid too small" * doctest::skip()) {
  float* y = empty<float>(1600);
  twice<<<6, 256>>>(device(std::vector<float>(1600, 1.0f)), y, 1600);
  host(y, 1600);
}
TEST_CASE("child: a grid" * doctest::skip()) {
  float* y = empty<float>(1600);
  twice<<<7, 256>>>(device(std::vector<float>(1600, 1.0f)), y, 1600);
  host(y, 1600);
}
TEST_CASE("child: pitch forgotten" * doctest::skip()) {
  unsigned char* x = nullptr;
  std::size_t pitch = 0;
  const std::vector<unsigned char> picture(2000, 7);
  CHECK_OK(cudaMallocPitch(&x, &pitch, 100, 20));
  CHECK_OK(cudaMemcpy2D(x, pitch, picture.data(), 100, 100, 20, cudaMemcpyHostToDevice));
  invert<<<20, 100>>>(x, empty<unsigned char>(2000), 100, 100);
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: half a pair" * doctest::skip()) {
  pairs<<<1, 64>>>(device(std::vector<float>(64, 1.0f)), empty<float>(64), empty<float2>(64));
  CHECK_OK(cudaDeviceSynchronize());
}
template <bool kGuarded>
void run_softmax() {
  std::vector<float> x(60, 1.0f);
  for (std::size_t i = 20; i < 40; ++i) x[i] = -INFINITY;
  softmax<kGuarded><<<3, 32>>>(device(x), empty<float>(60));
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: softmax of a blank row" * doctest::skip()) { run_softmax<false>(); }
TEST_CASE("child: softmax" * doctest::skip()) { run_softmax<true>(); }
TEST_CASE("child: activations" * doctest::skip()) {
  activations<<<1, 8>>>(device(std::vector<float>{-1000, -104, -12, 0, 0.5f, 12, 90, 1000}),
                        empty<float>(8), empty<__half>(8));
  CHECK_OK(cudaDeviceSynchronize());
}
template <int kRoom>
void run_differences() {
  differences<kRoom><<<1, 64>>>(device(std::vector<float>(64, 1.0f)), empty<float>(64));
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: halo without room" * doctest::skip()) { run_differences<64>(); }
TEST_CASE("child: halo" * doctest::skip()) { run_differences<65>(); }
void run_filter(int before) {
  filter<<<1, 32>>>(device(std::vector<float>(32, 1.0f)), empty<float>(32), before);
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: filter before its taps" * doctest::skip()) { run_filter(1); }
TEST_CASE("child: filter" * doctest::skip()) { run_filter(0); }

TEST_CASE("values: correct programs are silent") {
  for (const char* name : {"a table of either kind", "recursion", "a grid", "halo", "filter",
                           "softmax", "activations"})
    check_says(name, 0, "");
  check_says("a grid", 0, "", "copies");
}
TEST_CASE("values: constants and variables by a wrong address") {
  check_says(
      "past a constant", 86,
      "error: out-of-bounds read of 4 bytes, 0 bytes past allocation 'small_table' (64 bytes");
  check_says(
      "constant by name", 86,
      "which 'small_table' means on the host, and not the device's variable (pass the address "
      "that cudaGetSymbolAddress gives");
  check_says("variable by name", 86, "which 'large_table' means on the host");
}
TEST_CASE("values: recursion has the stack that cudaLimitStackSize says") {
  check_says("deep recursion", 86, "error: stack overflow: 1");
}
TEST_CASE("values: bytes that nobody wrote") {
  check_says("pitch forgotten", 86,
             "error: init: read of 1 byte that nobody wrote, at byte 100 of 'x'");
  check_says("half a pair", 86, "error: init: read of 4 bytes that nobody wrote, at byte 0 of 'c'");
  check_says("a grid too small", 0, "");  // copies are looked at where they are asked for
  check_says("a grid too small", 86,
             "error: init: a copy to the host reads byte 6144 of allocation ", "copies");
}
TEST_CASE("values: an infinity or NaN that a computation makes") {
  check_says("softmax of a blank row", 86,
             "error: finite: -inf - -inf is nan, and other lanes get it");
}
TEST_CASE("values: an index that reaches the neighbouring array") {
  check_says("halo without room", 86,
             "error: bounds: read of 4 bytes, 0 bytes past shared array 'tile' (256 bytes), where "
             "'scale' lies, by thread (63,0,0)");
  check_says(
      "filter before its taps", 86,
      "error: bounds: read of 4 bytes, 4 bytes before const array 'taps' (20 bytes), where '");
}
