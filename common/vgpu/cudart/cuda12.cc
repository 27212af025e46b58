// The CUDA runtime as programs built with CUDA 12 know it: the same functions under the version name
// libcudart.so.12. Most are the ones of CUDA 13, reached by a jump; the others, whose parameters or
// structs changed, are below. Only in libvgpu.so: version names mean nothing in a program.
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>

#include "cuda_api.h"

#if defined(__aarch64__)
#define BRANCH_TO(target) "b " #target  // the linker puts an entry of the PLT between
#else
#define BRANCH_TO(target) "jmp " #target "@PLT"
#endif
// NAME@libcudart.so.12 does what `target` of this library does.
#define JUMP(name, target)                                                      \
  asm(".text\n.globl v12_" #name "\n.type v12_" #name ", %function\nv12_" #name \
      ": " BRANCH_TO(target) "\n.symver v12_" #name ", " #name "@libcudart.so.12\n");
#define SAME(name) JUMP(name, name)

#if CUDART_VERSION >= 13000
#define OTHER(name)  // it is here
#else
#define OTHER(name) SAME(name)
#endif
// SAME(name) for each function of the library, OTHER(name) for those that are JUMP or NEW(name, ...) here.
#include "cuda12.inc"

#if CUDART_VERSION >= 13000

// What CUDA 12 calls ..._v2 and ..._v3 are the plain names of CUDA 13.
JUMP(cudaEventElapsedTime_v2, cudaEventElapsedTime)
JUMP(cudaGraphAddDependencies_v2, cudaGraphAddDependencies)
JUMP(cudaGraphAddNode_v2, cudaGraphAddNode)
JUMP(cudaGraphGetEdges_v2, cudaGraphGetEdges)
JUMP(cudaGraphNodeGetDependencies_v2, cudaGraphNodeGetDependencies)
JUMP(cudaGraphNodeGetDependentNodes_v2, cudaGraphNodeGetDependentNodes)
JUMP(cudaGraphRemoveDependencies_v2, cudaGraphRemoveDependencies)
JUMP(cudaMemAdvise_v2, cudaMemAdvise)
JUMP(cudaMemPrefetchAsync_v2, cudaMemPrefetchAsync)
JUMP(cudaMemPrefetchAsync_v2_ptsz, cudaMemPrefetchAsync_ptsz)
JUMP(cudaSignalExternalSemaphoresAsync_v2, cudaSignalExternalSemaphoresAsync)
JUMP(cudaSignalExternalSemaphoresAsync_v2_ptsz, cudaSignalExternalSemaphoresAsync_ptsz)
JUMP(cudaWaitExternalSemaphoresAsync_v2, cudaWaitExternalSemaphoresAsync)
JUMP(cudaWaitExternalSemaphoresAsync_v2_ptsz, cudaWaitExternalSemaphoresAsync_ptsz)
JUMP(cudaStreamGetCaptureInfo_v3, cudaStreamGetCaptureInfo)
JUMP(cudaStreamGetCaptureInfo_v3_ptsz, cudaStreamGetCaptureInfo_ptsz)
JUMP(cudaStreamUpdateCaptureDependencies_v2, cudaStreamUpdateCaptureDependencies)
JUMP(cudaStreamUpdateCaptureDependencies_v2_ptsz, cudaStreamUpdateCaptureDependencies_ptsz)
// The functions of a time when a thread was a device context.
JUMP(cudaThreadExit, cudaDeviceReset)
JUMP(cudaThreadSynchronize, cudaDeviceSynchronize)
JUMP(cudaThreadGetLimit, cudaDeviceGetLimit)
JUMP(cudaThreadSetLimit, cudaDeviceSetLimit)
JUMP(cudaThreadGetCacheConfig, cudaDeviceGetCacheConfig)
JUMP(cudaThreadSetCacheConfig, cudaDeviceSetCacheConfig)

namespace vgpu::runtime {
void say_once(const std::string& key, const std::string& text);
}
namespace vgpu::cudart {
int not_supported();
}

namespace {

cudaError_t refuse(const char* name) {
  vgpu::runtime::say_once(name,
                          std::string(name) + " of CUDA 12 is not supported by the virtual GPU");
  return static_cast<cudaError_t>(vgpu::cudart::not_supported());
}

cudaMemLocation location_of(int device) {
  cudaMemLocation location{};
  location.type = device == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  location.id = device == cudaCpuDeviceId ? 0 : device;
  return location;
}

// cudaDeviceProp as CUDA 12 lays it out: what 13 has, in the same order, with these in between.
class Properties12 {
 public:
  static constexpr std::size_t kBytes = 1032;
  explicit Properties12(const cudaDeviceProp& now) : now_(reinterpret_cast<const char*>(&now)) {}

  // Members that end at `end`, an offset in 13's struct, or before.
  Properties12& up_to(std::size_t end) {
    std::memcpy(bytes_ + at_, now_ + taken_, end - taken_);
    at_ += end - taken_;
    taken_ = end;
    return *this;
  }
  Properties12& insert(int value) {
    std::memcpy(bytes_ + at_, &value, sizeof value);
    at_ += sizeof value;
    return *this;
  }
  // What follows begins at a multiple of 8 in both.
  Properties12& align() {
    at_ = (at_ + 7) / 8 * 8;
    taken_ = (taken_ + 7) / 8 * 8;
    return *this;
  }
  const char* bytes() const { return bytes_; }

 private:
  const char* now_;
  std::size_t at_ = 0, taken_ = 0;
  char bytes_[kBytes] = {};
};

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? value : 0;
}

}  // namespace

// A function of CUDA 12 that has to be made: NEW(name, result, parameters) body.
#define NEW(name, result, ...)                                                      \
  extern "C" __attribute__((visibility("default"))) result v12_##name(__VA_ARGS__); \
  asm(".symver v12_" #name ", " #name "@libcudart.so.12\n");                        \
  extern "C" __attribute__((visibility("default"))) result v12_##name(__VA_ARGS__)

NEW(cudaRuntimeGetVersion, cudaError_t, int* version) {
  const cudaError_t error = cudaRuntimeGetVersion(version);
  if (error == cudaSuccess) *version = 12090;  // the last of CUDA 12
  return error;
}

NEW(cudaGetDeviceProperties_v2, cudaError_t, void* properties, int device) {
  if (!properties) return cudaErrorInvalidValue;
  cudaDeviceProp now;
  if (const cudaError_t error = cudaGetDeviceProperties(&now, device); error != cudaSuccess)
    return error;
#define THROUGH(member) up_to(offsetof(cudaDeviceProp, member) + sizeof now.member)
  Properties12 then(now);
  then.THROUGH(maxGridSize).insert(attribute(cudaDevAttrClockRate, device)).align();
  then.THROUGH(texturePitchAlignment).insert(1);  // deviceOverlap
  then.THROUGH(multiProcessorCount).insert(attribute(cudaDevAttrKernelExecTimeout, device));
  then.THROUGH(canMapHostMemory).insert(attribute(cudaDevAttrComputeMode, device));
  then.THROUGH(maxTexture1DMipmap).insert(attribute(cudaDevAttrMaxTexture1DLinearWidth, device));
  then.THROUGH(maxSurfaceCubemapLayered).align();
  then.THROUGH(unifiedAddressing).insert(attribute(cudaDevAttrMemoryClockRate, device));
  then.THROUGH(localL1CacheSupported).align();
  then.THROUGH(hostNativeAtomicSupported)
      .insert(attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio, device));
  then.THROUGH(cooperativeLaunch).insert(0).align();  // cooperative launches on several devices
  then.THROUGH(accessPolicyMaxWindowSize).align();
  then.THROUGH(unifiedFunctionPointers);
#undef THROUGH
  std::memcpy(properties, then.bytes(), Properties12::kBytes);
  return cudaSuccess;
}
NEW(cudaGetDeviceProperties, cudaError_t, void*, int) {
  return refuse("cudaGetDeviceProperties (_v1)");
}

NEW(cudaPointerGetAttributes, cudaError_t, void* attributes, const void* pointer) {
  if (!attributes) return cudaErrorInvalidValue;
  cudaPointerAttributes now;
  const cudaError_t error = cudaPointerGetAttributes(&now, pointer);
  if (error == cudaSuccess)
    std::memcpy(attributes, &now, offsetof(cudaPointerAttributes, reserved));
  return error;
}

NEW(cudaMemAdvise, cudaError_t, const void* pointer, std::size_t count, cudaMemoryAdvise advice,
    int device) {
  return cudaMemAdvise(pointer, count, advice, location_of(device));
}
NEW(cudaMemPrefetchAsync, cudaError_t, const void* pointer, std::size_t count, int device,
    cudaStream_t stream) {
  return cudaMemPrefetchAsync(pointer, count, location_of(device), 0, stream);
}
NEW(cudaMemPrefetchAsync_ptsz, cudaError_t, const void* pointer, std::size_t count, int device,
    cudaStream_t stream) {
  return cudaMemPrefetchAsync_ptsz(pointer, count, location_of(device), 0, stream);
}

// failIdx: the operation that failed, or this when it is none of them in particular.
NEW(cudaMemcpyBatchAsync, cudaError_t, void** to, void** from, std::size_t* sizes,
    std::size_t count, cudaMemcpyAttributes* attributes, std::size_t* indices,
    std::size_t attribute_count, std::size_t* failed, cudaStream_t stream) {
  if (failed) *failed = std::numeric_limits<std::size_t>::max();
  return cudaMemcpyBatchAsync(to, const_cast<const void**>(from), sizes, count, attributes, indices,
                              attribute_count, stream);
}
NEW(cudaMemcpyBatchAsync_ptsz, cudaError_t, void** to, void** from, std::size_t* sizes,
    std::size_t count, cudaMemcpyAttributes* attributes, std::size_t* indices,
    std::size_t attribute_count, std::size_t* failed, cudaStream_t stream) {
  if (failed) *failed = std::numeric_limits<std::size_t>::max();
  return cudaMemcpyBatchAsync_ptsz(to, const_cast<const void**>(from), sizes, count, attributes,
                                   indices, attribute_count, stream);
}
NEW(cudaMemcpy3DBatchAsync, cudaError_t, std::size_t count, cudaMemcpy3DBatchOp* list,
    std::size_t* failed, unsigned long long flags, cudaStream_t stream) {
  if (failed) *failed = std::numeric_limits<std::size_t>::max();
  return cudaMemcpy3DBatchAsync(count, list, flags, stream);
}
NEW(cudaMemcpy3DBatchAsync_ptsz, cudaError_t, std::size_t count, cudaMemcpy3DBatchOp* list,
    std::size_t* failed, unsigned long long flags, cudaStream_t stream) {
  if (failed) *failed = std::numeric_limits<std::size_t>::max();
  return cudaMemcpy3DBatchAsync_ptsz(count, list, flags, stream);
}

// Graphs without data on their edges.
NEW(cudaGraphAddDependencies, cudaError_t, cudaGraph_t graph, const cudaGraphNode_t* from,
    const cudaGraphNode_t* to, std::size_t count) {
  return cudaGraphAddDependencies(graph, from, to, nullptr, count);
}
NEW(cudaGraphRemoveDependencies, cudaError_t, cudaGraph_t graph, const cudaGraphNode_t* from,
    const cudaGraphNode_t* to, std::size_t count) {
  return cudaGraphRemoveDependencies(graph, from, to, nullptr, count);
}
NEW(cudaGraphAddNode, cudaError_t, cudaGraphNode_t* node, cudaGraph_t graph,
    const cudaGraphNode_t* dependencies, std::size_t count, cudaGraphNodeParams* params) {
  return cudaGraphAddNode(node, graph, dependencies, nullptr, count, params);
}
NEW(cudaGraphGetEdges, cudaError_t, cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
    std::size_t* count) {
  return cudaGraphGetEdges(graph, from, to, nullptr, count);
}
NEW(cudaGraphNodeGetDependencies, cudaError_t, cudaGraphNode_t node, cudaGraphNode_t* dependencies,
    std::size_t* count) {
  return cudaGraphNodeGetDependencies(node, dependencies, nullptr, count);
}
NEW(cudaGraphNodeGetDependentNodes, cudaError_t, cudaGraphNode_t node, cudaGraphNode_t* dependents,
    std::size_t* count) {
  return cudaGraphNodeGetDependentNodes(node, dependents, nullptr, count);
}
NEW(cudaGraphKernelNodeCopyAttributes, cudaError_t, cudaGraphNode_t from, cudaGraphNode_t to) {
  return cudaGraphKernelNodeCopyAttributes(to, from);
}

// Capture.
NEW(cudaStreamGetCaptureInfo, cudaError_t, cudaStream_t stream, cudaStreamCaptureStatus* status,
    unsigned long long* id) {
  return cudaStreamGetCaptureInfo(stream, status, id, nullptr, nullptr, nullptr, nullptr);
}
NEW(cudaStreamGetCaptureInfo_ptsz, cudaError_t, cudaStream_t stream,
    cudaStreamCaptureStatus* status, unsigned long long* id) {
  return cudaStreamGetCaptureInfo_ptsz(stream, status, id, nullptr, nullptr, nullptr, nullptr);
}
NEW(cudaStreamGetCaptureInfo_v2, cudaError_t, cudaStream_t stream, cudaStreamCaptureStatus* status,
    unsigned long long* id, cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
    std::size_t* count) {
  return cudaStreamGetCaptureInfo(stream, status, id, graph, dependencies, nullptr, count);
}
NEW(cudaStreamGetCaptureInfo_v2_ptsz, cudaError_t, cudaStream_t stream,
    cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph,
    const cudaGraphNode_t** dependencies, std::size_t* count) {
  return cudaStreamGetCaptureInfo_ptsz(stream, status, id, graph, dependencies, nullptr, count);
}
NEW(cudaStreamUpdateCaptureDependencies, cudaError_t, cudaStream_t stream,
    cudaGraphNode_t* dependencies, std::size_t count, unsigned flags) {
  return cudaStreamUpdateCaptureDependencies(stream, dependencies, nullptr, count, flags);
}
NEW(cudaStreamUpdateCaptureDependencies_ptsz, cudaError_t, cudaStream_t stream,
    cudaGraphNode_t* dependencies, std::size_t count, unsigned flags) {
  return cudaStreamUpdateCaptureDependencies_ptsz(stream, dependencies, nullptr, count, flags);
}

// Gone in CUDA 13.
NEW(cudaSetDoubleForDevice, cudaError_t, double*) {
  return cudaSuccess;
}  // all devices have double precision
NEW(cudaSetDoubleForHost, cudaError_t, double*) { return cudaSuccess; }
NEW(cudaLaunchCooperativeKernelMultiDevice, cudaError_t, void*, unsigned, unsigned) {
  return refuse("cudaLaunchCooperativeKernelMultiDevice");
}
// The parameters of the first kind, of CUDA 10.
NEW(cudaSignalExternalSemaphoresAsync, cudaError_t, void*, void*, unsigned, cudaStream_t) {
  return refuse("cudaSignalExternalSemaphoresAsync");
}
NEW(cudaSignalExternalSemaphoresAsync_ptsz, cudaError_t, void*, void*, unsigned, cudaStream_t) {
  return refuse("cudaSignalExternalSemaphoresAsync");
}
NEW(cudaWaitExternalSemaphoresAsync, cudaError_t, void*, void*, unsigned, cudaStream_t) {
  return refuse("cudaWaitExternalSemaphoresAsync");
}
NEW(cudaWaitExternalSemaphoresAsync_ptsz, cudaError_t, void*, void*, unsigned, cudaStream_t) {
  return refuse("cudaWaitExternalSemaphoresAsync");
}

#endif
