// Kernels as functions: attributes, what may be set, occupancy.
#include <algorithm>

#include "face.h"

namespace vgpu::cudart {
namespace {

// Finds and loads the kernel of `function`, then runs body(kernel).
template <class F>
Error with_kernel(const void* function, F&& body) {
  return api([&](Runtime& runtime) -> Error {
    Kernel* kernel = runtime.find_kernel(function);
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    if (const Error error = load_kernel(*kernel); error != cudaSuccess) return error;
    return body(*kernel);
  });
}

// The architecture of the running code as 10 * major + minor.
int code_version(const Kernel& kernel) { return kernel.library->module->module->sm; }

Error set_attribute(Kernel& kernel, int attr, int value) {
  const DeviceSpec& spec = Runtime::get().spec();
  switch (attr) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
      if (value < 0 || value > spec.shared_per_block_optin - static_shared(kernel)) {
        say(display_name(kernel.name) + ": " + std::to_string(value) +
            " bytes of dynamic shared memory, " +
            std::to_string(spec.shared_per_block_optin - static_shared(kernel)) + " are possible");
        return cudaErrorInvalidValue;
      }
      kernel.max_dynamic_shared = value;
      return cudaSuccess;
    case cudaFuncAttributePreferredSharedMemoryCarveout:
      if (value < -1 || value > 100) return cudaErrorInvalidValue;
      kernel.carveout = value;
      return cudaSuccess;
    case cudaFuncAttributeRequiredClusterWidth:
    case cudaFuncAttributeRequiredClusterHeight:
    case cudaFuncAttributeRequiredClusterDepth:
      if (value < 0) return cudaErrorInvalidValue;
      if (kernel.function->required_cluster[0]) return cudaErrorNotPermitted;  // said when compiled
      kernel.required_cluster[attr - cudaFuncAttributeRequiredClusterWidth] = value;
      return cudaSuccess;
    case cudaFuncAttributeNonPortableClusterSizeAllowed:
      if (value != 0 && value != 1) return cudaErrorInvalidValue;
      kernel.nonportable_cluster = value;
      return cudaSuccess;
    case cudaFuncAttributeClusterSchedulingPolicyPreference:
      if (value < cudaClusterSchedulingPolicyDefault ||
          value > cudaClusterSchedulingPolicyLoadBalancing)
        return cudaErrorInvalidValue;
      kernel.cluster_scheduling = value;
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

Error max_active_blocks(int* blocks, const void* function, int threads, std::size_t shared,
                        unsigned flags) {
  return with_kernel(function, [&](Kernel& kernel) -> Error {
    if (!blocks || threads <= 0) return cudaErrorInvalidValue;
    if (flags & ~static_cast<unsigned>(cudaOccupancyDisableCachingOverride))
      return cudaErrorInvalidValue;
    *blocks = blocks_per_sm(kernel, threads, shared);
    return cudaSuccess;
  });
}

Dim3 cluster_of(const Kernel& kernel, const cudaLaunchConfig_t& config) {
  dim3 asked(0, 0, 0);
  for (unsigned i = 0; i < config.numAttrs; ++i)
    if (config.attrs[i].id == cudaLaunchAttributeClusterDimension)
      asked = dim3(config.attrs[i].val.clusterDim.x, config.attrs[i].val.clusterDim.y,
                   config.attrs[i].val.clusterDim.z);
  const Dim3 cluster = runtime::cluster_of(kernel, dim3_of(asked));
  return cluster.x || cluster.y || cluster.z ? cluster : Dim3{1, 1, 1};
}

bool sound(const cudaLaunchConfig_t* config) {
  return config && (config->numAttrs == 0 || config->attrs) && config->blockDim.x > 0 &&
         config->blockDim.y > 0 && config->blockDim.z > 0 && config->blockDim.x <= 1024 &&
         config->blockDim.y <= 1024 && config->blockDim.z <= 64;
}

}  // namespace
}  // namespace vgpu::cudart

using namespace vgpu::cudart;

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return with_kernel(function, [&](Kernel& kernel) -> Error {
    if (!attributes) return cudaErrorInvalidValue;
    *attributes = {};
    const vgpu::LoadedModule& module = *kernel.library->module;
    attributes->sharedSizeBytes = static_cast<std::size_t>(static_shared(kernel));
    attributes->constSizeBytes = module.constants ? module.constants->size() : 0;
    attributes->localSizeBytes = kernel.cubin.local_bytes >= 0
                                     ? static_cast<std::size_t>(kernel.cubin.local_bytes)
                                     : kernel.function->local_bytes;
    attributes->maxThreadsPerBlock = max_threads_per_block(kernel);
    attributes->numRegs = kernel.cubin.registers;
    attributes->ptxVersion = code_version(kernel);
    attributes->binaryVersion = code_version(kernel);
    attributes->maxDynamicSharedSizeBytes = max_dynamic_shared(kernel);
    attributes->preferredShmemCarveout = kernel.carveout;
    attributes->clusterDimMustBeSet = kernel.function->explicit_cluster;
    const vgpu::Dim3 cluster = vgpu::runtime::cluster_of(kernel, {0, 0, 0});
    attributes->requiredClusterWidth = static_cast<int>(cluster.x);
    attributes->requiredClusterHeight = static_cast<int>(cluster.y);
    attributes->requiredClusterDepth = static_cast<int>(cluster.z);
    attributes->clusterSchedulingPolicyPreference = kernel.cluster_scheduling;
    attributes->nonPortableClusterSizeAllowed = kernel.nonportable_cluster;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attr, int value) {
  return with_kernel(function,
                     [&](Kernel& kernel) { return set_attribute(kernel, number_of(attr), value); });
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attr, int value,
                                            int device) {
  if (device != 0) return remember(cudaErrorInvalidDevice);
  return cudaFuncSetAttribute(kernel, attr, value);
}

cudaError_t cudaFuncSetCacheConfig(const void* function, cudaFuncCache config) {
  return with_kernel(function, [&](Kernel&) -> Error {
    const bool known = number_of(config) >= cudaFuncCachePreferNone &&
                       number_of(config) <= cudaFuncCachePreferEqual;
    return known ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaFuncSetSharedMemConfig(const void* function, cudaSharedMemConfig) {
  return with_kernel(function, [](Kernel&) { return cudaSuccess; });
}

cudaError_t cudaFuncGetName(const char** name, const void* function) {
  return api([&](Runtime& runtime) -> Error {
    Kernel* kernel = runtime.find_kernel(function);
    if (!name) return cudaErrorInvalidValue;
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    *name = kernel->name.c_str();
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetParamInfo(const void* function, std::size_t index, std::size_t* offset,
                                 std::size_t* size) {
  return with_kernel(function, [&](Kernel& kernel) -> Error {
    if (!offset || index >= kernel.function->params.size()) return cudaErrorInvalidValue;
    *offset = kernel.function->params[index].offset;
    if (size) *size = kernel.function->params[index].size;
    return cudaSuccess;
  });
}

// Generated code asks once for each <<<...>>> in the program and keeps the handle, so a context
// that is broken at that moment must not matter.
cudaError_t cudaGetKernel(cudaKernel_t* handle, const void* function) {
  return api(
      [&](Runtime& runtime) -> Error {
        if (!handle) return cudaErrorInvalidValue;
        Kernel* kernel = runtime.find_kernel(function);
        if (!kernel) return cudaErrorInvalidDeviceFunction;
        *handle = reinterpret_cast<cudaKernel_t>(kernel);
        return cudaSuccess;
      },
      Context::not_needed);
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* handle, const void* function) {
  return api([&](Runtime& runtime) -> Error {
    if (!handle) return cudaErrorInvalidValue;
    Kernel* kernel = runtime.find_kernel(function);
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    *handle = reinterpret_cast<cudaFunction_t>(kernel);
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int threads, std::size_t shared) {
  return max_active_blocks(blocks, function, threads, shared, cudaOccupancyDefault);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                   const void* function,
                                                                   int threads, std::size_t shared,
                                                                   unsigned int flags) {
  return max_active_blocks(blocks, function, threads, shared, flags);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, const void* function,
                                                      int blocks, int threads) {
  return with_kernel(function, [&](Kernel& kernel) -> Error {
    if (!bytes || blocks <= 0 || threads <= 0) return cudaErrorInvalidValue;
    if (blocks_per_sm(kernel, threads, 0) < blocks) return cudaErrorInvalidValue;
    // The largest size with which that many blocks still fit: the function falls monotonously.
    const vgpu::DeviceSpec& spec = Runtime::get().spec();
    int low = 0;
    int high = std::max(spec.shared_per_block, spec.shared_per_block_optin) - static_shared(kernel);
    while (low < high) {
      const int middle = low + (high - low + 1) / 2;
      if (blocks_per_sm(kernel, threads, static_cast<std::uint64_t>(middle)) >= blocks)
        low = middle;
      else
        high = middle - 1;
    }
    *bytes = static_cast<std::size_t>(low);
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, const void* function,
                                                 const cudaLaunchConfig_t* config) {
  return with_kernel(function, [&](Kernel& kernel) -> Error {
    if (!size || !sound(config)) return cudaErrorInvalidValue;
    const vgpu::DeviceSpec& spec = Runtime::get().spec();
    if (!spec.clusters || spec.major < 9) return cudaErrorNotSupported;
    const int threads =
        static_cast<int>(config->blockDim.x * config->blockDim.y * config->blockDim.z);
    const int blocks = blocks_per_sm(kernel, threads, config->dynamicSmemBytes);
    *size = blocks == 0 ? 0 : static_cast<int>(max_cluster_blocks(kernel));
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* function,
                                           const cudaLaunchConfig_t* config) {
  return with_kernel(function, [&](Kernel& kernel) -> Error {
    if (!clusters || !sound(config)) return cudaErrorInvalidValue;
    const vgpu::DeviceSpec& spec = Runtime::get().spec();
    if (!spec.clusters || spec.major < 9) return cudaErrorNotSupported;
    const vgpu::Dim3 cluster = cluster_of(kernel, *config);
    const std::uint64_t size = std::uint64_t{cluster.x} * cluster.y * cluster.z;
    if (size == 0 || size > max_cluster_blocks(kernel)) return cudaErrorInvalidClusterSize;
    const int threads =
        static_cast<int>(config->blockDim.x * config->blockDim.y * config->blockDim.z);
    // How SMs are grouped is not published: this counts all of them, a GPU may fit fewer clusters.
    const int blocks = blocks_per_sm(kernel, threads, config->dynamicSmemBytes) * spec.sm_count;
    *clusters = blocks / static_cast<int>(size);
    return cudaSuccess;
  });
}
