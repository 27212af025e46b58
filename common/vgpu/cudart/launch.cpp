// Launches: cudaLaunchKernel and its kin, host functions in streams.
#include "face.h"

namespace vgpu::cudart {
namespace {

Error launch_kernel(const void* function, const LaunchConfig& config, void** args,
                    cudaStream_t stream, bool per_thread, const char* name = "cudaLaunchKernel") {
  return api([&](Runtime& runtime) -> Error {
    KernelOp op;
    if (!runtime.find_kernel(function)) return cudaErrorInvalidDeviceFunction;
    if (!runtime.find_stream(stream, per_thread)) return cudaErrorInvalidResourceHandle;
    if (const Error error = make_kernel(function, config, args, op); error != cudaSuccess)
      return error;
    return submit(stream, per_thread, std::move(op), {name});
  });
}

Error launch_extended(const cudaLaunchConfig_t* config, const void* function, void** args,
                      bool per_thread) {
  if (!config || (config->numAttrs > 0 && !config->attrs)) return remember(cudaErrorInvalidValue);
  LaunchConfig launch{dim3_of(config->gridDim),
                      dim3_of(config->blockDim),
                      {0, 0, 0},
                      config->dynamicSmemBytes,
                      false};
  cudaEvent_t completion = nullptr;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    switch (number_of(attribute.id)) {
      case cudaLaunchAttributeClusterDimension:
        launch.cluster = {attribute.val.clusterDim.x, attribute.val.clusterDim.y,
                          attribute.val.clusterDim.z};
        break;
      case cudaLaunchAttributeCooperative:
        launch.cooperative = attribute.val.cooperative != 0;
        break;
      case cudaLaunchAttributeProgrammaticStreamSerialization:
        launch.programmatic = attribute.val.programmaticStreamSerializationAllowed != 0;
        break;
      case cudaLaunchAttributeProgrammaticEvent:
        say_once("programmatic event",
                 "cudaLaunchAttributeProgrammaticEvent: the event is recorded when the kernel has "
                 "ended, and no check looks for what depends on it earlier");
        completion = attribute.val.programmaticEvent.event;
        break;
      case cudaLaunchAttributeLaunchCompletionEvent:
        completion = attribute.val.launchCompletionEvent.event;
        break;
      // Hints about speed and overlap, which change no result: launches run one after the other.
      case cudaLaunchAttributeIgnore:
      case cudaLaunchAttributeAccessPolicyWindow:
      case cudaLaunchAttributeSynchronizationPolicy:
      case cudaLaunchAttributeClusterSchedulingPolicyPreference:
      case cudaLaunchAttributePriority:
      case cudaLaunchAttributeMemSyncDomainMap:
      case cudaLaunchAttributeMemSyncDomain:
      case cudaLaunchAttributePreferredClusterDimension:
      case cudaLaunchAttributePreferredSharedMemoryCarveout:
        break;
      case cudaLaunchAttributeDeviceUpdatableKernelNode:
        return remember(cudaErrorNotSupported);
      default:
        return remember(cudaErrorInvalidValue);
    }
  }
  const Error error =
      launch_kernel(function, launch, args, config->stream, per_thread, "cudaLaunchKernelExC");
  if (error == cudaSuccess && completion) return cudaEventRecord(completion, config->stream);
  return error;
}

// Host functions run in this thread at once, outside the lock; CUDA calls in them are refused.
Error run_callback(const char* name, cudaStream_t stream, bool per_thread, const HostOp& op) {
  bool captured = false;
  const Error error =
      api([&](Runtime&) { return submit(stream, per_thread, op, {name}, &captured); });
  if (error == cudaSuccess && !captured) call_host(op);
  return error;
}

Error add_callback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned flags,
                   bool per_thread) {
  if (!callback || flags != 0) return remember(cudaErrorInvalidValue);
  return run_callback("cudaStreamAddCallback", stream, per_thread,
                      {nullptr, data, [=] { callback(stream, cudaSuccess, data); }});
}

Error launch_host(cudaStream_t stream, cudaHostFn_t function, void* data, bool per_thread) {
  if (!function) return remember(cudaErrorInvalidValue);
  return run_callback("cudaLaunchHostFunc", stream, per_thread, {function, data, {}});
}

LaunchConfig simple(dim3 grid, dim3 block, std::size_t shared, bool cooperative = false) {
  return {dim3_of(grid), dim3_of(block), {0, 0, 0}, shared, cooperative};
}

}  // namespace
}  // namespace vgpu::cudart

using namespace vgpu::cudart;

VGPU_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  return cudaGetKernel(kernel, function);
}

VGPU_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                                        std::size_t shared, cudaStream_t stream) {
  return launch_kernel(kernel, simple(grid, block, shared), args, stream, false);
}
VGPU_API cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block,
                                             void** args, std::size_t shared, cudaStream_t stream) {
  return launch_kernel(kernel, simple(grid, block, shared), args, stream, true);
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** args,
                             std::size_t shared, cudaStream_t stream) {
  return launch_kernel(function, simple(grid, block, shared), args, stream, false);
}
VGPU_API cudaError_t cudaLaunchKernel_ptsz(const void* function, dim3 grid, dim3 block, void** args,
                                           std::size_t shared, cudaStream_t stream) {
  return launch_kernel(function, simple(grid, block, shared), args, stream, true);
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** args,
                                        std::size_t shared, cudaStream_t stream) {
  return launch_kernel(function, simple(grid, block, shared, true), args, stream, false,
                       "cudaLaunchCooperativeKernel");
}
VGPU_API cudaError_t cudaLaunchCooperativeKernel_ptsz(const void* function, dim3 grid, dim3 block,
                                                      void** args, std::size_t shared,
                                                      cudaStream_t stream) {
  return launch_kernel(function, simple(grid, block, shared, true), args, stream, true,
                       "cudaLaunchCooperativeKernel");
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** args) {
  return launch_extended(config, function, args, false);
}
VGPU_API cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t* config,
                                              const void* function, void** args) {
  return launch_extended(config, function, args, true);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return launch_host(stream, function, data, false);
}
VGPU_API cudaError_t cudaLaunchHostFunc_ptsz(cudaStream_t stream, cudaHostFn_t function,
                                             void* data) {
  return launch_host(stream, function, data, true);
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned int flags) {
  return add_callback(stream, callback, data, flags, false);
}
VGPU_API cudaError_t cudaStreamAddCallback_ptsz(cudaStream_t stream, cudaStreamCallback_t callback,
                                                void* data, unsigned int flags) {
  return add_callback(stream, callback, data, flags, true);
}
