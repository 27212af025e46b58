// The device, function attributes, occupancy, streams and events; every exported name; the texts of
// errors, against the real runtime where that is installed.
#include <doctest/doctest.h>

#include <cuda.h>
#include <cuda_occupancy.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "toolkit.h"

namespace {

__global__ void small(float* p) { p[threadIdx.x] *= 2; }
// Many live values, so that registers limit the occupancy.
__global__ void __launch_bounds__(256) large(float* p, int n) {
  float v[48];
#pragma unroll
  for (int i = 0; i < 48; ++i) v[i] = p[i * 256 + threadIdx.x];
  for (int k = 0; k < n; ++k)
#pragma unroll
    for (int i = 0; i < 48; ++i) v[i] = v[i] * v[(i + 7) % 48] + p[k];
#pragma unroll
  for (int i = 0; i < 48; ++i) p[i * 256 + threadIdx.x] = v[i];
}

// Doubles the box of 8 x 4 words at (6, -1), in its place.
__global__ void double_box(const __grid_constant__ CUtensorMap map) {
#if __CUDA_ARCH__ >= 900
  __shared__ alignas(128) int box[4][8];
  __shared__ alignas(8) uint64_t object;
  const auto address = [](const void* p) { return unsigned(__cvta_generic_to_shared(p)); };
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(address(&object)));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 128;" ::"r"(address(&object)));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
        "{6, -1}], [%2];" ::"r"(address(box)),
        "l"(&map), "r"(address(&object))
        : "memory");
  }
  __syncthreads();
  asm volatile(
      "{\n.reg .pred p;\nagain: mbarrier.try_wait.parity.shared.b64 p, [%0], 0;\n@!p bra "
      "again;\n}" ::"r"(address(&object))
      : "memory");
  box[threadIdx.x / 8][threadIdx.x % 8] *= 2;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0)
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {6, -1}], [%1];\n"
        "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::"l"(&map),
        "r"(address(box))
        : "memory");
#endif
}

#define CHECK_OK(call) CHECK((call) == cudaSuccess)

template <class F>
const void* function_of(F* kernel) {
  return reinterpret_cast<const void*>(kernel);
}

}  // namespace

TEST_CASE("device: there is one, the H200 unless VGPU_DEVICE says otherwise") {
  int count = 0, device = -1;
  CHECK_OK(cudaGetDeviceCount(&count));
  CHECK(count == 1);
  CHECK_OK(cudaGetDevice(&device));
  CHECK(device == 0);
  CHECK_OK(cudaSetDevice(0));
  CHECK(cudaSetDevice(1) == cudaErrorInvalidDevice);
  CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
  cudaDeviceProp p{};
  CHECK_OK(cudaGetDeviceProperties(&p, 0));
  CHECK(std::string(p.name) == "NVIDIA H200");
  CHECK(p.major == 9);
  CHECK(p.minor == 0);
  CHECK(p.multiProcessorCount == 132);
  CHECK(p.warpSize == 32);
  CHECK(p.maxThreadsPerBlock == 1024);
  CHECK(p.sharedMemPerBlock == 49152);
  CHECK(p.sharedMemPerBlockOptin == 227 * 1024);
  CHECK(p.sharedMemPerMultiprocessor == 228 * 1024);
  CHECK(p.regsPerMultiprocessor == 65536);
  CHECK(p.maxThreadsPerMultiProcessor == 2048);
  CHECK(p.clusterLaunch == 1);
  CHECK(cudaGetDeviceProperties(&p, 1) == cudaErrorInvalidDevice);
  CHECK(cudaGetDeviceProperties(nullptr, 0) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

TEST_CASE("device: attributes agree with properties") {
  cudaDeviceProp p{};
  CHECK_OK(cudaGetDeviceProperties(&p, 0));
  const std::pair<cudaDeviceAttr, std::size_t> pairs[] = {
      {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
      {cudaDevAttrMaxBlockDimX, p.maxThreadsDim[0]},
      {cudaDevAttrMaxBlockDimZ, p.maxThreadsDim[2]},
      {cudaDevAttrMaxGridDimX, p.maxGridSize[0]},
      {cudaDevAttrMaxGridDimY, p.maxGridSize[1]},
      {cudaDevAttrMaxSharedMemoryPerBlock, p.sharedMemPerBlock},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, p.sharedMemPerBlockOptin},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, p.sharedMemPerMultiprocessor},
      {cudaDevAttrReservedSharedMemoryPerBlock, p.reservedSharedMemPerBlock},
      {cudaDevAttrTotalConstantMemory, p.totalConstMem},
      {cudaDevAttrWarpSize, p.warpSize},
      {cudaDevAttrMaxRegistersPerBlock, p.regsPerBlock},
      {cudaDevAttrMaxRegistersPerMultiprocessor, p.regsPerMultiprocessor},
      {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
      {cudaDevAttrL2CacheSize, p.l2CacheSize},
      {cudaDevAttrGlobalMemoryBusWidth, p.memoryBusWidth},
      {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
      {cudaDevAttrMaxBlocksPerMultiprocessor, p.maxBlocksPerMultiProcessor},
      {cudaDevAttrComputeCapabilityMajor, p.major},
      {cudaDevAttrComputeCapabilityMinor, p.minor},
      {cudaDevAttrCooperativeLaunch, p.cooperativeLaunch},
      {cudaDevAttrClusterLaunch, p.clusterLaunch},
      {cudaDevAttrManagedMemory, p.managedMemory},
      {cudaDevAttrUnifiedAddressing, p.unifiedAddressing},
      {cudaDevAttrMemoryPoolsSupported, p.memoryPoolsSupported},
  };
  for (const auto& [attribute, expected] : pairs) {
    CAPTURE(static_cast<int>(attribute));
    int value = -1;
    CHECK_OK(cudaDeviceGetAttribute(&value, attribute, 0));
    CHECK(static_cast<std::size_t>(value) == expected);
  }
  // Every attribute that the header knows has a value.
  for (int a = 1; a < cudaDevAttrMax; ++a) {
    int value = 0;
    CHECK_OK(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(a), 0));
  }
  int value = 0;
  CHECK(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(100000), 0) ==
        cudaErrorInvalidValue);
  CHECK(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(0), 0) == cudaErrorInvalidValue);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 1) == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
}

TEST_CASE("device: versions, limits, bus id") {
  int version = 0;
  CHECK_OK(cudaRuntimeGetVersion(&version));
  CHECK(version == CUDART_VERSION);
  CHECK_OK(cudaDriverGetVersion(&version));
  CHECK(version >= CUDART_VERSION);
  std::size_t value = 0;
  CHECK_OK(cudaDeviceGetLimit(&value, cudaLimitMallocHeapSize));
  CHECK(value == 8 << 20);
  CHECK_OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 32 << 20));
  CHECK_OK(cudaDeviceGetLimit(&value, cudaLimitMallocHeapSize));
  CHECK(value == 32 << 20);
  CHECK_OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 8 << 20));
  CHECK_OK(cudaDeviceGetLimit(&value, cudaLimitStackSize));
  CHECK(value == 1024);
  CHECK(cudaDeviceGetLimit(&value, static_cast<cudaLimit>(99)) == cudaErrorUnsupportedLimit);
  char id[32] = {};
  int device = -1;
  CHECK_OK(cudaDeviceGetPCIBusId(id, sizeof id, 0));
  CHECK_OK(cudaDeviceGetByPCIBusId(&device, id));
  CHECK(device == 0);
  CHECK(cudaDeviceGetPCIBusId(id, 4, 0) == cudaErrorInvalidValue);
  void* function = id;
  cudaDriverEntryPointQueryResult result{};
  CHECK(cudaGetDriverEntryPointByVersion("cuInit", &function, 12000, 0, &result) ==
        cudaErrorNotSupported);
  CHECK(function == nullptr);
  CHECK(cudaGetLastError() == cudaErrorNotSupported);
}

TEST_CASE(
    "driver's functions: those that make tensor maps are found, and a kernel uses what they make") {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  Encode encode = nullptr, same = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const auto at = [](auto& function) { return reinterpret_cast<void**>(&function); };
  CHECK_OK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", at(encode), 12000,
                                            cudaEnableDefault, &result));
  CHECK(result == cudaDriverEntryPointSuccess);
  REQUIRE((encode != nullptr));
  CHECK_OK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", at(same), 11080,
                                            cudaEnableDefault, &result));
  CHECK(result == cudaDriverEntryPointVersionNotSufficent);
  CHECK((same == nullptr));
#if CUDART_VERSION < 13000
  CHECK_OK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", at(same), cudaEnableDefault, &result));
  CHECK((same == encode));
#endif
  decltype(&cuTensorMapReplaceAddress) replace = nullptr;
  CHECK_OK(cudaGetDriverEntryPointByVersion("cuTensorMapReplaceAddress", at(replace), 13000,
                                            cudaEnableDefault, nullptr));
  decltype(&cuTensorMapEncodeIm2col) pixels = nullptr;
  CHECK_OK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeIm2col", at(pixels), 12000,
                                            cudaEnableDefault, nullptr));
  REQUIRE((replace && pixels));

  int* data = nullptr;
  CHECK_OK(cudaMalloc(&data, 2 * 16 * 16 * sizeof(int)));
  std::vector<int> numbers(2 * 16 * 16, 1);
  CHECK_OK(cudaMemcpy(data, numbers.data(), 4 * numbers.size(), cudaMemcpyDefault));
  CUtensorMap map;
  const cuuint64_t sizes[] = {12, 16}, strides[] = {64};
  cuuint32_t box[] = {8, 4};
  const cuuint32_t steps[] = {1, 1};
  const auto make = [&] {
    return encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, data, sizes, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CHECK(make() == CUDA_SUCCESS);
  double_box<<<1, 32>>>(map);
  CHECK_OK(cudaGetLastError());
  CHECK(replace(&map, data + 256) == CUDA_SUCCESS);
  double_box<<<1, 32>>>(map);
  CHECK_OK(cudaMemcpy(numbers.data(), data, 4 * numbers.size(), cudaMemcpyDefault));
  int wrong = 0;
  for (int i = 0; i < 512; ++i)
    wrong += numbers[i] != (i % 256 / 16 < 3 && i % 16 >= 6 && i % 16 < 12 ? 2 : 1);
  CHECK(wrong == 0);
  box[0] = 7;
  CHECK(make() == CUDA_ERROR_INVALID_VALUE);
  CHECK(replace(&map, reinterpret_cast<char*>(data) + 4) == CUDA_ERROR_INVALID_VALUE);
  CHECK(encode(nullptr, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, data, sizes, strides, box, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
               CU_TENSOR_MAP_L2_PROMOTION_NONE,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(cudaFree(data));
}

TEST_CASE("occupancy: as NVIDIA's own calculator has it, and by hand") {
  cudaDeviceProp properties{};
  CHECK_OK(cudaGetDeviceProperties(&properties, 0));
  const cudaOccDeviceProp device(properties);
  int compared = 0;
  for (const void* function : {function_of(small), function_of(large)}) {
    cudaFuncAttributes attributes{};
    CHECK_OK(cudaFuncGetAttributes(&attributes, function));
    CHECK(attributes.numRegs > 0);
    CHECK(attributes.binaryVersion == 90);
    for (const int threads : {1, 32, 33, 96, 128, 250, 256, 512, 768, 1000, 1024})
      for (const int shared : {0, 1, 1000, 10000, 24 << 10, 48 << 10, 100 << 10, 226 << 10}) {
        if (threads > attributes.maxThreadsPerBlock) continue;
        CHECK_OK(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      std::max(shared, 48 << 10)));
        CHECK_OK(cudaFuncGetAttributes(&attributes, function));
        cudaOccFuncAttributes occ(attributes);
        occ.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        cudaOccDeviceState state{};
        state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
        cudaOccResult expected{};
        REQUIRE(cudaOccMaxActiveBlocksPerMultiprocessor(&expected, &device, &occ, &state, threads,
                                                        shared) == CUDA_OCC_SUCCESS);
        int blocks = -1;
        CHECK_OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, shared));
        CAPTURE(attributes.numRegs);
        CAPTURE(threads);
        CAPTURE(shared);
        CHECK(blocks == expected.activeBlocksPerMultiprocessor);
        ++compared;
      }
  }
  CHECK(compared > 100);
  int blocks = -1;
  // 100 KiB + 1 KiB reserved: two blocks of 228 KiB. 512 threads: 2048 / 512 = 4 blocks.
  CHECK_OK(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function_of(small), 128, 100 << 10));
  CHECK(blocks == 2);
  CHECK_OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function_of(small), 512, 0));
  CHECK(blocks == 4);
  std::size_t bytes = 0;
  CHECK_OK(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, function_of(small), 2, 128));
  CHECK(bytes == 113 * 1024);  // 228 / 2 - 1
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &blocks, 128, 0) ==
        cudaErrorInvalidDeviceFunction);
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function_of(small), 0, 0) ==
        cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  int minimum_grid = 0, block_size = 0;
  CHECK_OK(cudaOccupancyMaxPotentialBlockSize(&minimum_grid, &block_size, small, 0, 0));
  CHECK(minimum_grid * block_size == 132 * 2048);
}

TEST_CASE("function attributes: launch bounds and names") {
  cudaFuncAttributes attributes{};
  CHECK_OK(cudaFuncGetAttributes(&attributes, large));
  CHECK(attributes.maxThreadsPerBlock == 256);
  CHECK(attributes.numRegs > 48);
  CHECK(attributes.sharedSizeBytes == 0);
  CHECK_OK(cudaFuncGetAttributes(&attributes, small));
  CHECK(attributes.maxThreadsPerBlock == 1024);
  CHECK(attributes.localSizeBytes == 0);
  const char* name = nullptr;
  CHECK_OK(cudaFuncGetName(&name, function_of(small)));
  CHECK(std::string(name).find("small") != std::string::npos);
  cudaKernel_t kernel = nullptr;
  CHECK_OK(cudaGetKernel(&kernel, function_of(small)));
  cudaFuncAttributes same{};
  CHECK_OK(cudaFuncGetAttributes(&same, static_cast<const void*>(kernel)));
  CHECK(same.numRegs == attributes.numRegs);
  CHECK(cudaFuncGetAttributes(&attributes, &name) == cudaErrorInvalidDeviceFunction);
  CHECK(cudaGetLastError() == cudaErrorInvalidDeviceFunction);
}

TEST_CASE("streams: made, asked, destroyed") {
  cudaStream_t stream = nullptr;
  int least = 1, greatest = 1, priority = 1;
  CHECK_OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(greatest < least);
  CHECK_OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest - 10));
  CHECK_OK(cudaStreamGetPriority(stream, &priority));
  CHECK(priority == greatest);
  unsigned flags = 9;
  CHECK_OK(cudaStreamGetFlags(stream, &flags));
  CHECK(flags == cudaStreamNonBlocking);
  CHECK_OK(cudaStreamQuery(stream));
  CHECK_OK(cudaStreamSynchronize(stream));
  unsigned long long id = 0, other = 0;
  CHECK_OK(cudaStreamGetId(stream, &id));
  CHECK_OK(cudaStreamGetId(cudaStreamLegacy, &other));
  CHECK(id != other);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  CHECK_OK(cudaStreamIsCapturing(stream, &status));
  CHECK(status == cudaStreamCaptureStatusNone);
  int seen = 0;
  CHECK_OK(cudaLaunchHostFunc(
      stream, [](void* p) { *static_cast<int*>(p) = 5; }, &seen));
  CHECK_OK(cudaStreamSynchronize(stream));
  CHECK(seen == 5);
  // CUDA calls in a host function are not permitted.
  cudaError_t inside = cudaSuccess;
  CHECK_OK(cudaStreamAddCallback(
      stream,
      [](cudaStream_t, cudaError_t, void* p) {
        void* memory = nullptr;
        *static_cast<cudaError_t*>(p) = cudaMalloc(&memory, 4);
      },
      &inside, 0));
  CHECK_OK(cudaStreamSynchronize(stream));
  CHECK(inside == cudaErrorNotPermitted);
  cudaGetLastError();
  CHECK_OK(cudaStreamDestroy(stream));
  CHECK(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(nullptr) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamCreateWithFlags(&stream, 77) == cudaErrorInvalidValue);
  CHECK(cudaStreamCreate(nullptr) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK_OK(cudaStreamSynchronize(nullptr));
  CHECK_OK(cudaStreamSynchronize(cudaStreamPerThread));
}

TEST_CASE("events: order and elapsed time") {
  cudaEvent_t start = nullptr, end = nullptr, untimed = nullptr;
  CHECK_OK(cudaEventCreate(&start));
  CHECK_OK(cudaEventCreate(&end));
  CHECK_OK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, start, end) == cudaErrorInvalidResourceHandle);  // not recorded
  CHECK_OK(cudaEventQuery(start));
  const auto before = std::chrono::steady_clock::now();
  CHECK_OK(cudaEventRecord(start));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_OK(cudaEventRecord(end, cudaStreamPerThread));
  const std::chrono::duration<double, std::milli> real = std::chrono::steady_clock::now() - before;
  CHECK_OK(cudaEventSynchronize(end));
  CHECK_OK(cudaEventElapsedTime(&ms, start, end));
  CHECK(ms >= 19.9f);
  CHECK(ms <= real.count() + 0.1);
  CHECK_OK(cudaEventElapsedTime(&ms, end, start));
  CHECK(ms < 0);
  CHECK_OK(cudaEventRecord(untimed));
  CHECK(cudaEventElapsedTime(&ms, start, untimed) == cudaErrorInvalidResourceHandle);
  CHECK_OK(cudaStreamWaitEvent(nullptr, untimed, 0));
  CHECK_OK(cudaEventDestroy(untimed));
  CHECK(cudaEventRecord(untimed) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventDestroy(nullptr) == cudaErrorInvalidResourceHandle);
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  CHECK_OK(cudaEventDestroy(start));
  CHECK_OK(cudaEventDestroy(end));
}

TEST_CASE("exports: every function of the real shared runtime is there, under its version" *
          doctest::test_suite("toolkit")) {
  std::ifstream list("common/vgpu/cudart/exports.txt");
  REQUIRE_MESSAGE(list.good(), "run in the repository's root");
  const std::string version = "libcudart.so." + std::to_string(CUDART_VERSION / 1000);
  std::string name;
  int number = 0;
  while (std::getline(list, name)) {
    ++number;
    CAPTURE(name);
    CHECK(dlvsym(RTLD_DEFAULT, name.c_str(), version.c_str()) != nullptr);
  }
  CHECK(number == 422);
  CHECK(dlsym(RTLD_DEFAULT, "vgpuPresent") != nullptr);
  // Nothing of the library's inside shows.
  CHECK(dlsym(RTLD_DEFAULT, "_ZN4vgpu7MachineD1Ev") == nullptr);
}

TEST_CASE("exports: a function that does not exist yet says so and returns an error") {
  cudaIpcMemHandle_t handle{};
  CHECK(cudaIpcGetMemHandle(&handle, nullptr) == cudaErrorNotSupported);
  CHECK(cudaGetLastError() == cudaErrorNotSupported);
  cudaArray_t array = nullptr;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  CHECK(format.x == 32);
  CHECK(format.f == cudaChannelFormatKindFloat);
  CHECK(cudaMallocArray(&array, &format, 16, 16, 0) == cudaErrorNotSupported);
  CHECK(cudaGetLastError() == cudaErrorNotSupported);
}

TEST_CASE("exports: no function crashes when all its arguments are null") {
  std::ifstream list("common/vgpu/cudart/exports.txt");
  REQUIRE_MESSAGE(list.good(), "run in the repository's root");
  std::string name;
  int called = 0;
  while (std::getline(list, name)) {
    if (name == "cudaCreateChannelDesc") continue;  // returns a structure to where the caller says
    using Function =
        int (*)(long, long, long, long, long, long, long, long, long, long, long, long);
    const auto function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name.c_str()));
    REQUIRE((function != nullptr));
    const pid_t child = fork();
    if (child == 0) {
      for (const int stream : {1, 2})
        if (!freopen("/dev/null", "w", stream == 1 ? stdout : stderr)) _exit(1);
      function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CAPTURE(name);
    CHECK(WIFEXITED(status));
    ++called;
  }
  CHECK(called == 421);
}

TEST_CASE("errors: names and texts are those of the real runtime, where that is installed" *
          doctest::test_suite("toolkit")) {
  CHECK(std::string(cudaGetErrorName(cudaErrorIllegalAddress)) == "cudaErrorIllegalAddress");
  CHECK(std::string(cudaGetErrorString(cudaErrorIllegalAddress)) ==
        "an illegal memory access was encountered");
  CHECK(std::string(cudaGetErrorName(static_cast<cudaError_t>(77777))) ==
        "unrecognized error code");
  void* const real =
      dlopen((vgpu_tests::cuda_libraries() + "/libcudart.so.13").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!real) {
    MESSAGE("no libcudart.so.13 of a toolkit: the texts were not compared");
    return;
  }
  using Text = const char* (*)(cudaError_t);
  const auto name = reinterpret_cast<Text>(dlsym(real, "cudaGetErrorName"));
  const auto text = reinterpret_cast<Text>(dlsym(real, "cudaGetErrorString"));
  REQUIRE((name != nullptr && text != nullptr));
  int known = 0;
  for (int code = -1; code < 1000; ++code) {
    const auto error = static_cast<cudaError_t>(code);
    CAPTURE(code);
    CHECK(std::string(cudaGetErrorName(error)) == name(error));
    CHECK(std::string(cudaGetErrorString(error)) == text(error));
    known += std::strcmp(name(error), "unrecognized error code") != 0;
  }
  CHECK(known > 100);
}
