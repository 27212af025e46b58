// What the tests of graphs share: kernels, streams and graphs that are destroyed at their end, counts.
#pragma once
#include <doctest/doctest.h>

#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace graph_tests {

__global__ void add(int* x, int value) { x[blockIdx.x * blockDim.x + threadIdx.x] += value; }
__global__ void scale(int* x, int factor) { x[blockIdx.x * blockDim.x + threadIdx.x] *= factor; }
__global__ void sum(const int* a, const int* b, int* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = a[i] + b[i];
}
__device__ int factor_on_device[2] = {2, 3};
__constant__ int factor_constant = 1;
__global__ void scale_by_symbols(int* x) {
  x[threadIdx.x] *= factor_on_device[1] * factor_constant;
}

// One step of a model that learns a number: gradient of (w - target)^2, then w -= rate * gradient.
__global__ void gradient(const float* w, const float* target, float* g) { *g = 2 * (*w - *target); }
__global__ void step(float* w, const float* g, float rate) { *w -= rate * *g; }

// A decoder's step: the next token follows from all before it.
__global__ void decode(int* tokens, int position) {
  int next = 0;
  for (int i = 0; i < position; ++i) next = (next * 31 + tokens[i]) % 1009;
  tokens[position] = next;
}

#define CHECK_OK(call) CHECK((call) == cudaSuccess)

constexpr int kCount = 64;

struct Ints {
  int* p = nullptr;
  explicit Ints(int value = 0) {
    CHECK_OK(cudaMalloc(&p, kCount * sizeof(int)));
    set(value);
  }
  ~Ints() { cudaFree(p); }
  void set(int value) {
    const std::vector<int> values(kCount, value);
    CHECK_OK(cudaDeviceSynchronize());  // cudaMemcpy does not wait for non-blocking streams
    CHECK_OK(cudaMemcpy(p, values.data(), kCount * sizeof(int), cudaMemcpyHostToDevice));
  }
  // The value that all have, -1 when they differ.
  int get() const {
    std::vector<int> values(kCount);
    CHECK_OK(cudaDeviceSynchronize());
    CHECK_OK(cudaMemcpy(values.data(), p, kCount * sizeof(int), cudaMemcpyDeviceToHost));
    for (const int v : values)
      if (v != values[0]) return -1;
    return values[0];
  }
};

struct Stream {
  cudaStream_t s = nullptr;
  explicit Stream(unsigned flags = cudaStreamNonBlocking) {
    CHECK_OK(cudaStreamCreateWithFlags(&s, flags));
  }
  ~Stream() { cudaStreamDestroy(s); }
  operator cudaStream_t() const { return s; }
};
struct Event {
  cudaEvent_t e = nullptr;
  Event() { CHECK_OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming)); }
  ~Event() { cudaEventDestroy(e); }
  operator cudaEvent_t() const { return e; }
};
struct Graph {
  cudaGraph_t g = nullptr;
  ~Graph() {
    if (g) CHECK_OK(cudaGraphDestroy(g));
  }
  operator cudaGraph_t() const { return g; }
};
struct Exec {
  cudaGraphExec_t e = nullptr;
  explicit Exec(cudaGraph_t graph, unsigned long long flags = 0) {
    CHECK_OK(cudaGraphInstantiate(&e, graph, flags));
  }
  ~Exec() {
    if (e) CHECK_OK(cudaGraphExecDestroy(e));
  }
  operator cudaGraphExec_t() const { return e; }
};

template <class... Args>
cudaGraphNode_t kernel_node(cudaGraph_t graph, std::vector<cudaGraphNode_t> before,
                            void (*kernel)(Args...), std::type_identity_t<Args>... args) {
  void* pointers[] = {&args...};
  cudaKernelNodeParams params{};
  params.func = reinterpret_cast<void*>(kernel);
  params.gridDim = dim3(1);
  params.blockDim = dim3(kCount);
  params.kernelParams = pointers;
  cudaGraphNode_t node = nullptr;
  CHECK_OK(cudaGraphAddKernelNode(&node, graph, before.data(), before.size(), &params));
  return node;
}
inline cudaKernelNodeParams params_of(void* function, void** args) {
  cudaKernelNodeParams params{};
  params.func = function;
  params.gridDim = dim3(1);
  params.blockDim = dim3(kCount);
  params.kernelParams = args;
  return params;
}

inline std::size_t count_nodes(cudaGraph_t graph) {
  std::size_t n = 0;
  CHECK_OK(cudaGraphGetNodes(graph, nullptr, &n));
  return n;
}
inline std::size_t count_edges(cudaGraph_t graph) {
  std::size_t n = 0;
  CHECK_OK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &n));
  return n;
}
inline cudaStreamCaptureStatus status_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status;
  CHECK_OK(cudaStreamIsCapturing(stream, &status));
  return status;
}
inline void begin(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  CHECK_OK(cudaStreamBeginCapture(stream, mode));
}
// Ends a capture that must have failed with `error`.
inline void ends_with(cudaStream_t stream, cudaError_t error) {
  cudaGraph_t graph = reinterpret_cast<cudaGraph_t>(1);
  CHECK(cudaStreamEndCapture(stream, &graph) == error);
  CHECK(graph == nullptr);
  CHECK(cudaGetLastError() == error);
  CHECK(status_of(stream) == cudaStreamCaptureStatusNone);
}

}  // namespace graph_tests
