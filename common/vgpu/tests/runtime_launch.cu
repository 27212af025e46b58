// Launches through the runtime API: arguments, configurations that a GPU refuses, and what a kernel
// that goes wrong leaves behind.
#include <doctest/doctest.h>

#include <cuda_runtime.h>

#include <cstring>
#include <string>
#include <thread>

namespace {

struct Mixed {  // 40 bytes with padding inside
  char tag;
  double value;
  short pair[3];
  float3 vector;
};

__global__ void arguments(float* out, char c, Mixed m, long long n, dim3 d) {
  out[0] = c;
  out[1] = static_cast<float>(m.value) + m.tag;
  out[2] = m.pair[2] + m.vector.z;
  out[3] = static_cast<float>(n);
  out[4] = static_cast<float>(d.x + 10 * d.y + 100 * d.z);
}

__global__ void nothing() {}
__global__ void where(int* out) {
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = 1000 * block + thread;
}
__global__ void __launch_bounds__(64) at_most_64(int* out) { out[threadIdx.x] = 1; }
__global__ void with_shared(int* out, int last) {
  extern __shared__ int dynamic[];
  __shared__ int fixed[256];  // 1 KiB
  fixed[threadIdx.x] = 1;
  dynamic[last] = 7;
  __syncthreads();
  out[0] = dynamic[last] + fixed[0];
}
__global__ void write_at(int* p, long long index) { p[index] = 1; }
__global__ void write_bytes(char* p) { *reinterpret_cast<int*>(p) = 1; }
__global__ void stop() { __trap(); }

#define CHECK_OK(call) CHECK((call) == cudaSuccess)

// What a launch reports at once; clears it.
cudaError_t launched() {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) CHECK_OK(cudaDeviceSynchronize());
  return error;
}

struct IntArray {
  int* p = nullptr;
  explicit IntArray(int n) { CHECK_OK(cudaMalloc(&p, n * sizeof(int))); }
  ~IntArray() { cudaFree(p); }
};

}  // namespace

TEST_CASE("launch: arguments of every size arrive, padded as the compiler has it") {
  float* out = nullptr;
  CHECK_OK(cudaMalloc(&out, 5 * sizeof(float)));
  Mixed m{};
  m.tag = 2;
  m.value = 40.5;
  m.pair[2] = 30;
  m.vector.z = 0.25f;
  arguments<<<1, 1>>>(out, 'a', m, 1LL << 40, dim3(1, 2, 3));
  float host[5] = {};
  CHECK_OK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host[0] == 'a');
  CHECK(host[1] == 42.5f);
  CHECK(host[2] == 30.25f);
  CHECK(host[3] == 1099511627776.0f);
  CHECK(host[4] == 321);
  // The same through cudaLaunchKernel with an array of pointers.
  char c = 'b';
  long long n = -5;
  dim3 d(4, 5, 6);
  void* args[] = {&out, &c, &m, &n, &d};
  CHECK_OK(cudaLaunchKernel(reinterpret_cast<const void*>(&arguments), dim3(1), dim3(1), args, 0,
                            nullptr));
  CHECK_OK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host[0] == 'b');
  CHECK(host[3] == -5);
  CHECK(host[4] == 654);
  std::size_t offset = 0, size = 0;
  CHECK_OK(cudaFuncGetParamInfo(reinterpret_cast<const void*>(&arguments), 2, &offset, &size));
  CHECK(offset == 16);
  CHECK(size == sizeof(Mixed));
  CHECK(cudaFuncGetParamInfo(reinterpret_cast<const void*>(&arguments), 5, &offset, &size) ==
        cudaErrorInvalidValue);
  CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(&arguments), dim3(1), dim3(1), nullptr, 0,
                         nullptr) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK_OK(cudaFree(out));
}

TEST_CASE("launch: every thread of a three-dimensional grid runs once") {
  const dim3 grid(3, 2, 2), block(5, 3, 4);
  const int threads = 12 * 60;
  IntArray out(threads);
  CHECK_OK(cudaMemset(out.p, 0xff, threads * 4));
  where<<<grid, block>>>(out.p);
  int host[threads];
  CHECK_OK(cudaMemcpy(host, out.p, sizeof host, cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int i = 0; i < threads; ++i) wrong += host[i] != 1000 * (i / 60) + i % 60;
  CHECK(wrong == 0);
}

TEST_CASE("launch: configurations outside the limits") {
  nothing<<<0, 1>>>();
  CHECK(launched() == cudaErrorInvalidConfiguration);
  nothing<<<1, 0>>>();
  CHECK(launched() == cudaErrorInvalidConfiguration);
  nothing<<<1, 1025>>>();
  CHECK(launched() == cudaErrorInvalidConfiguration);
  nothing<<<1, dim3(1, 1, 65)>>>();
  CHECK(launched() == cudaErrorInvalidConfiguration);
  nothing<<<1, dim3(32, 33, 1)>>>();
  CHECK(launched() == cudaErrorInvalidConfiguration);
  nothing<<<dim3(1, 65536, 1), 1>>>();
  CHECK(launched() == cudaErrorInvalidConfiguration);
  nothing<<<dim3(1, 1, 65536), 1>>>();
  CHECK(launched() == cudaErrorInvalidConfiguration);
  nothing<<<1, 1024>>>();
  CHECK(launched() == cudaSuccess);
  nothing<<<dim3(1, 65535, 1), 1>>>();
  CHECK(launched() == cudaSuccess);
  nothing<<<1, dim3(1, 16, 64)>>>();
  CHECK(launched() == cudaSuccess);

  IntArray out(64);
  at_most_64<<<1, 64>>>(out.p);
  CHECK(launched() == cudaSuccess);
  at_most_64<<<1, 65>>>(out.p);
  CHECK(launched() == cudaErrorInvalidValue);
  int not_a_kernel = 0;
  CHECK(cudaLaunchKernel(&not_a_kernel, dim3(1), dim3(1), nullptr, 0, nullptr) ==
        cudaErrorInvalidDeviceFunction);
  CHECK(cudaGetLastError() == cudaErrorInvalidDeviceFunction);
  nothing<<<1, 1, 0, reinterpret_cast<cudaStream_t>(&not_a_kernel)>>>();
  CHECK(launched() == cudaErrorInvalidResourceHandle);
}

TEST_CASE("launch: dynamic shared memory up to 48 KiB, more after asking, no more than there is") {
  IntArray out(1);
  const auto run = [&](int bytes) {
    with_shared<<<1, 32, bytes>>>(out.p, bytes / 4 - 1);
    return launched();
  };
  const auto* function = reinterpret_cast<const void*>(&with_shared);
  cudaFuncAttributes attributes{};
  CHECK_OK(cudaFuncGetAttributes(&attributes, function));
  CHECK(attributes.sharedSizeBytes == 1024);
  CHECK(attributes.maxDynamicSharedSizeBytes == 48 * 1024 - 1024);
  CHECK(run(47 * 1024) == cudaSuccess);
  int value = 0;
  CHECK_OK(cudaMemcpy(&value, out.p, 4, cudaMemcpyDeviceToHost));
  CHECK(value == 8);
  CHECK(run(47 * 1024 + 1) == cudaErrorInvalidValue);
  int optin = 0;
  CHECK_OK(cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  CHECK(optin == 227 * 1024);  // compute capability 9.0
  CHECK(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, optin) ==
        cudaErrorInvalidValue);  // 1 KiB is taken
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK_OK(
      cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, optin - 1024));
  CHECK(run(optin - 1024) == cudaSuccess);
  CHECK(run(optin - 1023) == cudaErrorInvalidValue);
  CHECK_OK(cudaFuncGetAttributes(&attributes, function));
  CHECK(attributes.maxDynamicSharedSizeBytes == optin - 1024);
}

TEST_CASE("launch: a cooperative grid must fit on the device") {
  int blocks = 0, sms = 0;
  const auto* function = reinterpret_cast<const void*>(&nothing);
  CHECK_OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 1024, 0));
  CHECK_OK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  CHECK(blocks == 2);  // 2048 threads a multiprocessor
  CHECK_OK(
      cudaLaunchCooperativeKernel(function, dim3(blocks * sms), dim3(1024), nullptr, 0, nullptr));
  CHECK(cudaLaunchCooperativeKernel(function, dim3(blocks * sms + 1), dim3(1024), nullptr, 0,
                                    nullptr) == cudaErrorCooperativeLaunchTooLarge);
  CHECK(cudaGetLastError() == cudaErrorCooperativeLaunchTooLarge);
  CHECK_OK(cudaDeviceSynchronize());
}

TEST_CASE("launch: cudaLaunchKernelExC and its attributes") {
  IntArray out(4 * 32);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(4);
  config.blockDim = dim3(32);
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeCooperative;
  attributes[1].val.cooperative = 0;
  config.attrs = attributes;
  config.numAttrs = 2;
  CHECK_OK(cudaMemset(out.p, 0, 4 * 32 * 4));
  CHECK_OK(cudaLaunchKernelEx(&config, where, out.p));
  int value = 0;
  CHECK_OK(cudaMemcpy(&value, out.p + 127, 4, cudaMemcpyDeviceToHost));
  CHECK(value == 3031);
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {3, 1, 1};
  CHECK(cudaLaunchKernelEx(&config, where, out.p) == cudaErrorInvalidConfiguration);  // 4 % 3
  attributes[1].val.clusterDim = {16, 1, 1};
  config.gridDim = dim3(16);
  CHECK(cudaLaunchKernelEx(&config, where, out.p) == cudaErrorInvalidClusterSize);
  config.attrs = nullptr;
  CHECK(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(&where), nullptr) ==
        cudaErrorInvalidValue);
  CHECK(cudaLaunchKernelExC(nullptr, reinterpret_cast<const void*>(&where), nullptr) ==
        cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

TEST_CASE("launch: a kernel's fault is found by the next synchronizing call and stays") {
  struct Case {
    const char* what;
    void (*run)(int*);
    cudaError_t expected;
  };
  const Case cases[] = {
      {"out of bounds", [](int* p) { write_at<<<1, 1>>>(p, 16); }, cudaErrorIllegalAddress},
      {"below", [](int* p) { write_at<<<1, 1>>>(p, -1); }, cudaErrorIllegalAddress},
      {"null", [](int*) { write_at<<<1, 1>>>(nullptr, 0); }, cudaErrorIllegalAddress},
      {"misaligned", [](int* p) { write_bytes<<<1, 1>>>(reinterpret_cast<char*>(p) + 2); },
       cudaErrorMisalignedAddress},
      {"trap", [](int*) { stop<<<1, 1>>>(); }, cudaErrorLaunchFailure},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    int* p = nullptr;
    CHECK_OK(cudaMalloc(&p, 16 * sizeof(int)));
    c.run(p);
    CHECK(cudaGetLastError() == cudaSuccess);  // the launch itself was in order
    CHECK(cudaDeviceSynchronize() == c.expected);
    CHECK(cudaPeekAtLastError() == c.expected);
    CHECK(cudaGetLastError() == c.expected);
    CHECK(cudaGetLastError() == c.expected);  // it does not go away
    void* q = nullptr;
    CHECK(cudaMalloc(&q, 4) == c.expected);
    CHECK(cudaMemset(p, 0, 4) == c.expected);
    nothing<<<1, 1>>>();
    CHECK(cudaGetLastError() == c.expected);
    int count = 0;
    CHECK_OK(cudaGetDeviceCount(&count));  // asks nothing of the broken context
    CHECK_OK(cudaDeviceReset());
    CHECK(cudaGetLastError() == cudaSuccess);
    nothing<<<1, 1>>>();
    CHECK(launched() == cudaSuccess);
    CHECK(cudaFree(p) == cudaErrorInvalidValue);  // went with the reset
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  }
}

TEST_CASE("launch: the last error belongs to the thread") {
  nothing<<<0, 1>>>();
  cudaError_t other = cudaErrorUnknown;
  std::thread([&] { other = cudaGetLastError(); }).join();
  CHECK(other == cudaSuccess);
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("launch: from several threads at once") {
  constexpr int kThreads = 4;
  int* out = nullptr;
  CHECK_OK(cudaMalloc(&out, kThreads * 720 * sizeof(int)));
  std::thread threads[kThreads];
  int wrong[kThreads] = {};
  for (int t = 0; t < kThreads; ++t)
    threads[t] = std::thread([=, &wrong] {
      for (int round = 0; round < 20; ++round) {
        int host[720];
        where<<<dim3(3, 2, 2), dim3(5, 3, 4), 0, cudaStreamPerThread>>>(out + t * 720);
        cudaMemcpyAsync(host, out + t * 720, sizeof host, cudaMemcpyDefault, cudaStreamPerThread);
        cudaStreamSynchronize(cudaStreamPerThread);
        for (int i = 0; i < 720; ++i) wrong[t] += host[i] != 1000 * (i / 60) + i % 60;
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const int w : wrong) CHECK(w == 0);
  CHECK_OK(cudaFree(out));
}
