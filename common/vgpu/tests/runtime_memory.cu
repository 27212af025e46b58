// Memory through the runtime API: allocation, copies and fills in all forms, symbols, pools, and
// what each refuses.
#include <doctest/doctest.h>

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace {

__device__ int counter = 5;
__device__ double table[6] = {1, 2, 3, 4, 5, 6};
__constant__ float coefficient[4] = {1, 2, 4, 8};

__global__ void read_symbols(float* out) {
  out[threadIdx.x] = coefficient[threadIdx.x] * counter + static_cast<float>(table[threadIdx.x]);
}

#define CHECK_OK(call) CHECK((call) == cudaSuccess)
// An expected error; also leaves no last error behind.
#define CHECK_ERROR(expected, call)          \
  do {                                       \
    CHECK((call) == (expected));             \
    CHECK(cudaGetLastError() == (expected)); \
  } while (0)

template <class T>
T* device_array(std::size_t n) {
  T* p = nullptr;
  CHECK_OK(cudaMalloc(&p, n * sizeof(T)));
  return p;
}

void* past(void* p, std::size_t bytes) { return static_cast<char*>(p) + bytes; }

}  // namespace

TEST_CASE("memory: bytes make the round trip, in every direction") {
  std::vector<int> in(1000), out(1000, -1);
  std::iota(in.begin(), in.end(), 7);
  int* a = device_array<int>(1000);
  int* b = device_array<int>(1000);
  CHECK_OK(cudaMemcpy(a, in.data(), 4000, cudaMemcpyHostToDevice));
  CHECK_OK(cudaMemcpy(b, a, 4000, cudaMemcpyDeviceToDevice));
  CHECK_OK(cudaMemcpy(out.data(), b, 4000, cudaMemcpyDeviceToHost));
  CHECK(out == in);
  std::fill(out.begin(), out.end(), -1);
  CHECK_OK(cudaMemset(b, 0, 4000));
  CHECK_OK(cudaMemcpyAsync(b + 10, in.data(), 40, cudaMemcpyDefault, nullptr));
  CHECK_OK(cudaMemcpy(out.data(), b, 4000, cudaMemcpyDefault));
  CHECK(out[9] == 0);
  CHECK(out[10] == 7);
  CHECK(out[19] == 16);
  CHECK(out[20] == 0);
  CHECK_OK(cudaMemcpy(out.data() + 1, in.data(), 8, cudaMemcpyHostToHost));
  CHECK(out[1] == 7);
  CHECK_OK(cudaFree(a));
  CHECK_OK(cudaFree(b));
}

TEST_CASE("memory: a range that leaves its allocation is refused, by one byte") {
  std::vector<char> host(200);
  void* a = nullptr;
  CHECK_OK(cudaMalloc(&a, 100));
  CHECK_OK(cudaMemcpy(a, host.data(), 100, cudaMemcpyHostToDevice));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemcpy(a, host.data(), 101, cudaMemcpyHostToDevice));
  CHECK_ERROR(cudaErrorInvalidValue,
              cudaMemcpy(past(a, 1), host.data(), 100, cudaMemcpyHostToDevice));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemcpy(host.data(), a, 101, cudaMemcpyDeviceToHost));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemset(past(a, 60), 0, 41));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemset(a, 0, ~std::size_t{0}));
  CHECK_OK(cudaMemset(past(a, 60), 0, 40));
  CHECK_OK(cudaFree(a));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemset(a, 0, 1));  // after free
}

TEST_CASE("memory: pointers of the wrong side are refused") {
  std::vector<char> host(64);
  void *a = nullptr, *b = nullptr;
  CHECK_OK(cudaMalloc(&a, 64));
  CHECK_OK(cudaMalloc(&b, 64));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemcpy(host.data(), a, 64, cudaMemcpyHostToDevice));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemcpy(a, host.data(), 64, cudaMemcpyDeviceToHost));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemcpy(a, b, 64, cudaMemcpyHostToDevice));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemcpy(a, host.data(), 64, cudaMemcpyDeviceToDevice));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemcpy(a, b, 64, cudaMemcpyHostToHost));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemset(host.data(), 0, 64));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemcpy(a, nullptr, 64, cudaMemcpyHostToDevice));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemcpy(nullptr, a, 64, cudaMemcpyDeviceToHost));
  // Addresses that nobody has mapped.
  void* nowhere = reinterpret_cast<void*>(0x23456789a000);
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemcpy(a, nowhere, 64, cudaMemcpyHostToDevice));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemcpy(nowhere, a, 64, cudaMemcpyDefault));
  CHECK_ERROR(cudaErrorInvalidMemcpyDirection,
              cudaMemcpy(a, b, 64, static_cast<cudaMemcpyKind>(17)));
  CHECK_OK(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyHostToDevice));
  CHECK_OK(cudaFree(a));
  CHECK_OK(cudaFree(b));
}

TEST_CASE("memory: what cudaMalloc and cudaFree refuse") {
  void* p = &p;
  CHECK_OK(cudaMalloc(&p, 0));
  CHECK(p == nullptr);
  CHECK_ERROR(cudaErrorInvalidValue, cudaMalloc(static_cast<void**>(nullptr), 16));
  CHECK_ERROR(cudaErrorMemoryAllocation, cudaMalloc(&p, std::size_t{1} << 45));
  CHECK_ERROR(cudaErrorMemoryAllocation, cudaMalloc(&p, ~std::size_t{0}));
  CHECK_OK(cudaFree(nullptr));
  int local = 0;
  CHECK_ERROR(cudaErrorInvalidValue, cudaFree(&local));
  CHECK_OK(cudaMalloc(&p, 64));
  CHECK_ERROR(cudaErrorInvalidValue, cudaFree(past(p, 8)));
  CHECK_OK(cudaFree(p));
  CHECK_ERROR(cudaErrorInvalidValue, cudaFree(p));  // twice
  void* pinned = nullptr;
  CHECK_OK(cudaMallocHost(&pinned, 64));
  CHECK_ERROR(cudaErrorInvalidValue, cudaFree(pinned));
  CHECK_ERROR(cudaErrorInvalidValue, cudaFreeHost(&local));
  CHECK_OK(cudaFreeHost(pinned));
  CHECK_OK(cudaFreeHost(nullptr));
}

TEST_CASE("memory: the device's memory is limited and given back") {
  std::size_t free_before = 0, total = 0, free_now = 0;
  CHECK_OK(cudaMemGetInfo(&free_before, &total));
  CHECK(total > std::size_t{100} << 30);  // an H200 has 140 GiB
  void* p = nullptr;
  CHECK_OK(cudaMalloc(&p, 1 << 20));
  CHECK_OK(cudaMemGetInfo(&free_now, &total));
  CHECK(free_before - free_now >= 1 << 20);
  void* q = nullptr;
  CHECK_ERROR(cudaErrorMemoryAllocation, cudaMalloc(&q, free_before));
  CHECK(q == nullptr);
  CHECK_OK(cudaFree(p));
  CHECK_OK(cudaMemGetInfo(&free_now, &total));
  CHECK(free_now == free_before);
}

TEST_CASE("memory: 2D copies move rows and leave what is between them") {
  // 5 rows of 12 bytes out of rows of 20 into pitched memory and back into rows of 16.
  std::vector<unsigned char> in(5 * 20), out(5 * 16, 0xee);
  std::iota(in.begin(), in.end(), 0);
  void* a = nullptr;
  std::size_t pitch = 0;
  CHECK_OK(cudaMallocPitch(&a, &pitch, 12, 5));
  CHECK(pitch >= 12);
  CHECK(pitch % 256 == 0);
  CHECK_OK(cudaMemset2D(a, pitch, 0x55, pitch, 5));
  CHECK_OK(cudaMemcpy2D(a, pitch, in.data(), 20, 12, 5, cudaMemcpyHostToDevice));
  CHECK_OK(cudaMemcpy2DAsync(out.data(), 16, a, pitch, 12, 5, cudaMemcpyDeviceToHost));
  for (int y = 0; y < 5; ++y)
    for (int x = 0; x < 16; ++x) CHECK(out[y * 16 + x] == (x < 12 ? in[y * 20 + x] : 0xee));
  unsigned char between = 0;
  CHECK_OK(cudaMemcpy(&between, past(a, 12), 1, cudaMemcpyDeviceToHost));
  CHECK(between == 0x55);
  CHECK_ERROR(cudaErrorInvalidPitchValue,
              cudaMemcpy2D(a, pitch, in.data(), 11, 12, 5, cudaMemcpyHostToDevice));
  CHECK_ERROR(cudaErrorInvalidValue,
              cudaMemcpy2D(a, pitch, in.data(), 20, 12, 7, cudaMemcpyHostToDevice));
  CHECK_ERROR(cudaErrorInvalidValue,
              cudaMemcpy2D(a, pitch, in.data(), 20, 12, ~std::size_t{0}, cudaMemcpyHostToDevice));
  CHECK_OK(cudaFree(a));
}

TEST_CASE("memory: 3D copies with positions") {
  // A 3 x 4 x 2 box of a 6 x 5 x 4 volume goes to the corner of another one.
  constexpr std::size_t kW = 6, kH = 5, kD = 4;
  std::vector<unsigned char> in(kW * kH * kD), out(kW * kH * kD, 0);
  std::iota(in.begin(), in.end(), 1);
  cudaPitchedPtr volume{};
  CHECK_OK(cudaMalloc3D(&volume, make_cudaExtent(kW, kH, kD)));
  CHECK_OK(cudaMemset3D(volume, 0, make_cudaExtent(kW, kH, kD)));
  cudaMemcpy3DParms up{};
  up.srcPtr = make_cudaPitchedPtr(in.data(), kW, kW, kH);
  up.srcPos = make_cudaPos(2, 1, 1);
  up.dstPtr = volume;
  up.dstPos = make_cudaPos(1, 0, 2);
  up.extent = make_cudaExtent(3, 4, 2);
  up.kind = cudaMemcpyHostToDevice;
  CHECK_OK(cudaMemcpy3D(&up));
  cudaMemcpy3DParms down{};
  down.srcPtr = volume;
  down.dstPtr = make_cudaPitchedPtr(out.data(), kW, kW, kH);
  down.extent = make_cudaExtent(kW, kH, kD);
  down.kind = cudaMemcpyDeviceToHost;
  CHECK_OK(cudaMemcpy3D(&down));
  for (std::size_t z = 0; z < kD; ++z)
    for (std::size_t y = 0; y < kH; ++y)
      for (std::size_t x = 0; x < kW; ++x) {
        const bool inside = x >= 1 && x < 4 && y < 4 && z >= 2;
        const int expected = inside ? in[((z - 1) * kH + y + 1) * kW + x + 1] : 0;
        CHECK(out[(z * kH + y) * kW + x] == expected);
      }
  // Out of slices of 7 rows into those of 5.
  std::vector<unsigned char> tall(kW * 7 * kD);
  std::iota(tall.begin(), tall.end(), 50);
  up.srcPtr = make_cudaPitchedPtr(tall.data(), kW, kW, 7);
  CHECK_OK(cudaMemcpy3D(&up));
  CHECK_OK(cudaMemcpy3D(&down));
  for (std::size_t z = 2; z < kD; ++z)
    for (std::size_t y = 0; y < 4; ++y)
      for (std::size_t x = 1; x < 4; ++x)
        CHECK(out[(z * kH + y) * kW + x] == tall[((z - 1) * 7 + y + 1) * kW + x + 1]);
  up.srcPtr.pitch = 2;  // narrower than a row
  CHECK_ERROR(cudaErrorInvalidPitchValue, cudaMemcpy3D(&up));
  up.srcPtr.pitch = kW;
  up.dstPos.z = 3;  // two slices from the last one on
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemcpy3D(&up));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemcpy3D(nullptr));
  CHECK_OK(cudaFree(volume.ptr));
}

TEST_CASE("memory: pinned, registered and managed memory are the device's too") {
  int* pinned = nullptr;
  CHECK_OK(cudaHostAlloc(&pinned, 64, cudaHostAllocMapped));
  void* device = nullptr;
  CHECK_OK(cudaHostGetDevicePointer(&device, pinned, 0));
  CHECK(device == pinned);
  unsigned flags = 0;
  CHECK_OK(cudaHostGetFlags(&flags, pinned));
  CHECK((flags & cudaHostAllocMapped) != 0);
  CHECK_OK(cudaMemset(pinned, 1, 64));
  CHECK(pinned[15] == 0x01010101);
  CHECK_OK(cudaFreeHost(pinned));

  std::vector<int> own(256, 3);
  CHECK_OK(cudaHostRegister(own.data(), 512, cudaHostRegisterDefault));
  CHECK_ERROR(cudaErrorHostMemoryAlreadyRegistered,
              cudaHostRegister(own.data() + 2, 16, cudaHostRegisterDefault));
  CHECK_OK(cudaMemset(own.data(), 0, 512));
  CHECK(own[127] == 0);
  CHECK(own[128] == 3);
  CHECK_OK(cudaHostUnregister(own.data()));
  CHECK_ERROR(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(own.data()));
  CHECK(own[0] == 0);  // still the program's memory
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemset(own.data(), 0, 4));
  CHECK_ERROR(cudaErrorInvalidValue, cudaHostGetDevicePointer(&device, own.data(), 0));

  int* managed = nullptr;
  CHECK_OK(cudaMallocManaged(&managed, 64));
  managed[3] = 9;
  int read = 0;
  CHECK_OK(cudaMemcpy(&read, managed + 3, 4, cudaMemcpyDeviceToHost));
  CHECK(read == 9);
  CHECK_OK(cudaFree(managed));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMallocManaged(&managed, 0));
}

TEST_CASE("memory: attributes of pointers") {
  cudaPointerAttributes attributes{};
  int local = 0;
  CHECK_OK(cudaPointerGetAttributes(&attributes, &local));
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  CHECK(attributes.devicePointer == nullptr);
  void *a = nullptr, *pinned = nullptr, *managed = nullptr;
  CHECK_OK(cudaMalloc(&a, 64));
  CHECK_OK(cudaMallocHost(&pinned, 64));
  CHECK_OK(cudaMallocManaged(&managed, 64));
  CHECK_OK(cudaPointerGetAttributes(&attributes, past(a, 5)));
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(attributes.device == 0);
  CHECK(attributes.devicePointer == past(a, 5));
  CHECK(attributes.hostPointer == nullptr);
  CHECK_OK(cudaPointerGetAttributes(&attributes, pinned));
  CHECK(attributes.type == cudaMemoryTypeHost);
  CHECK(attributes.hostPointer == pinned);
  CHECK_OK(cudaPointerGetAttributes(&attributes, managed));
  CHECK(attributes.type == cudaMemoryTypeManaged);
  CHECK_ERROR(cudaErrorInvalidValue, cudaPointerGetAttributes(nullptr, a));
  CHECK_OK(cudaFree(a));
  CHECK_OK(cudaFreeHost(pinned));
  CHECK_OK(cudaFree(managed));
}

TEST_CASE("memory: symbols are read and written by host and kernel") {
  std::size_t size = 0;
  CHECK_OK(cudaGetSymbolSize(&size, table));
  CHECK(size == sizeof table);
  int value = 0;
  CHECK_OK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
  CHECK(value == 5);
  value = 3;
  CHECK_OK(cudaMemcpyToSymbol(counter, &value, sizeof value));
  const double two[2] = {30, 40};
  CHECK_OK(
      cudaMemcpyToSymbolAsync(table, two, sizeof two, 2 * sizeof(double), cudaMemcpyHostToDevice));
  const float quarter = 0.25f;
  CHECK_OK(cudaMemcpyToSymbol(coefficient, &quarter, sizeof quarter, 3 * sizeof(float)));
  float* out = device_array<float>(4);
  read_symbols<<<1, 4>>>(out);
  float host[4] = {};
  CHECK_OK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host[0] == 1 * 3 + 1);
  CHECK(host[1] == 2 * 3 + 2);
  CHECK(host[2] == 4 * 3 + 30);
  CHECK(host[3] == 0.25f * 3 + 40);
  // Through its address, and a constant one too.
  void* address = nullptr;
  CHECK_OK(cudaGetSymbolAddress(&address, counter));
  CHECK_OK(cudaMemcpy(&value, address, sizeof value, cudaMemcpyDeviceToHost));
  CHECK(value == 3);
  CHECK_OK(cudaGetSymbolAddress(&address, coefficient));
  const float twice = 2;
  CHECK_OK(cudaMemcpy(address, &twice, sizeof twice, cudaMemcpyHostToDevice));
  read_symbols<<<1, 4>>>(out);
  CHECK_OK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host[0] == 2 * 3 + 1);
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemcpyToSymbol(counter, &value, 4, 1));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemcpyToSymbol(counter, &value, 5));
  CHECK_ERROR(cudaErrorInvalidSymbol, cudaMemcpyToSymbol(value, &value, 4));
  CHECK_ERROR(cudaErrorInvalidSymbol, cudaGetSymbolAddress(&address, value));
  CHECK_OK(cudaFree(out));
}

TEST_CASE("memory: stream-ordered allocation and pools") {
  cudaStream_t stream = nullptr;
  CHECK_OK(cudaStreamCreate(&stream));
  cudaMemPool_t pool = nullptr, own = nullptr;
  CHECK_OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  unsigned long long used = 1, high = 0, threshold = ~0ull;
  CHECK_OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  CHECK(used == 0);
  void* p = nullptr;
  CHECK_OK(cudaMallocAsync(&p, 1000, stream));
  CHECK_OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  CHECK(used >= 1000);
  CHECK_OK(cudaMemsetAsync(p, 0, 1000, stream));
  CHECK_OK(cudaFreeAsync(p, stream));
  CHECK_ERROR(cudaErrorInvalidValue, cudaFreeAsync(p, stream));
  CHECK_OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  CHECK_OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &high));
  CHECK(used == 0);
  CHECK(high >= 1000);
  CHECK_OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  unsigned long long read = 0;
  CHECK_OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &read));
  CHECK(read == threshold);
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  CHECK_OK(cudaMemPoolCreate(&own, &properties));
  CHECK_OK(cudaMallocFromPoolAsync(&p, 64, own, stream));
  CHECK_OK(cudaFreeAsync(p, stream));
  CHECK_OK(cudaMemPoolTrimTo(own, 0));
  CHECK_OK(cudaMemPoolDestroy(own));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemPoolTrimTo(own, 0));
  CHECK_ERROR(cudaErrorInvalidValue, cudaMemPoolDestroy(pool));  // the device's own
  CHECK_ERROR(cudaErrorInvalidResourceHandle,
              cudaMallocAsync(&p, 64, reinterpret_cast<cudaStream_t>(&p)));
  CHECK_OK(cudaStreamDestroy(stream));
}
