// The device: selection, properties, limits, versions, errors.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "../runtime/capture.h"
#include "face.h"

namespace vgpu::cudart {
namespace {

constexpr int kVersion = CUDART_VERSION;
constexpr char kPciBusId[] = "0000:01:00.0";

Error check_device(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

// Limits of textures and surfaces: those of compute capability 7.5 to 12.0, which share them. Nothing
// for other attributes.
std::optional<int> texture_limit(int attr) {
  // clang-format off
  switch (attr) {
    case cudaDevAttrTextureAlignment: return 512;
    case cudaDevAttrMaxTexture1DWidth: return 131072;
    case cudaDevAttrMaxTexture2DWidth: return 131072;
    case cudaDevAttrMaxTexture2DHeight: return 65536;
    case cudaDevAttrMaxTexture3DWidth: return 16384;
    case cudaDevAttrMaxTexture3DHeight: return 16384;
    case cudaDevAttrMaxTexture3DDepth: return 16384;
    case cudaDevAttrMaxTexture2DLayeredWidth: return 32768;
    case cudaDevAttrMaxTexture2DLayeredHeight: return 32768;
    case cudaDevAttrMaxTexture2DLayeredLayers: return 2048;
    case cudaDevAttrSurfaceAlignment: return 512;
    case cudaDevAttrMaxTexture1DLayeredWidth: return 32768;
    case cudaDevAttrMaxTexture1DLayeredLayers: return 2048;
    case cudaDevAttrMaxTexture2DGatherWidth: return 32768;
    case cudaDevAttrMaxTexture2DGatherHeight: return 32768;
    case cudaDevAttrMaxTexture3DWidthAlt: return 8192;
    case cudaDevAttrMaxTexture3DHeightAlt: return 8192;
    case cudaDevAttrMaxTexture3DDepthAlt: return 32768;
    case cudaDevAttrMaxTextureCubemapWidth: return 32768;
    case cudaDevAttrMaxTextureCubemapLayeredWidth: return 32768;
    case cudaDevAttrMaxTextureCubemapLayeredLayers: return 2046;
    case cudaDevAttrMaxSurface1DWidth: return 32768;
    case cudaDevAttrMaxSurface2DWidth: return 131072;
    case cudaDevAttrMaxSurface2DHeight: return 65536;
    case cudaDevAttrMaxSurface3DWidth: return 16384;
    case cudaDevAttrMaxSurface3DHeight: return 16384;
    case cudaDevAttrMaxSurface3DDepth: return 16384;
    case cudaDevAttrMaxSurface1DLayeredWidth: return 32768;
    case cudaDevAttrMaxSurface1DLayeredLayers: return 2048;
    case cudaDevAttrMaxSurface2DLayeredWidth: return 32768;
    case cudaDevAttrMaxSurface2DLayeredHeight: return 32768;
    case cudaDevAttrMaxSurface2DLayeredLayers: return 2048;
    case cudaDevAttrMaxSurfaceCubemapWidth: return 32768;
    case cudaDevAttrMaxSurfaceCubemapLayeredWidth: return 32768;
    case cudaDevAttrMaxSurfaceCubemapLayeredLayers: return 2046;
    case cudaDevAttrMaxTexture1DLinearWidth: return 268435456;
    case cudaDevAttrMaxTexture2DLinearWidth: return 131072;
    case cudaDevAttrMaxTexture2DLinearHeight: return 65000;
    case cudaDevAttrMaxTexture2DLinearPitch: return 2097120;
    case cudaDevAttrMaxTexture2DMipmappedWidth: return 32768;
    case cudaDevAttrMaxTexture2DMipmappedHeight: return 32768;
    case cudaDevAttrMaxTexture1DMipmappedWidth: return 32768;
    default: return std::nullopt;
  }
  // clang-format on
}

// A figure that the device file does not know is 0.
std::optional<int> attribute(const DeviceSpec& spec, int attr) {
  const bool hopper = spec.major >= 9;
  const auto khz = [](double mhz) { return std::isfinite(mhz) ? static_cast<int>(mhz * 1000) : 0; };
  // clang-format off
  switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock: return spec.max_threads_per_block;
    case cudaDevAttrMaxBlockDimX: return 1024;
    case cudaDevAttrMaxBlockDimY: return 1024;
    case cudaDevAttrMaxBlockDimZ: return 64;
    case cudaDevAttrMaxGridDimX: return 2147483647;
    case cudaDevAttrMaxGridDimY: return 65535;
    case cudaDevAttrMaxGridDimZ: return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock: return spec.shared_per_block;
    case cudaDevAttrTotalConstantMemory: return 65536;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMaxPitch: return 2147483647;
    case cudaDevAttrMaxRegistersPerBlock: return spec.registers_per_block;
    case cudaDevAttrClockRate: return khz(spec.sm_clock_mhz);
    case cudaDevAttrGpuOverlap: return 1;
    case cudaDevAttrMultiProcessorCount: return spec.sm_count;
    case cudaDevAttrKernelExecTimeout: return 0;
    case cudaDevAttrIntegrated: return 0;
    case cudaDevAttrCanMapHostMemory: return 1;
    case cudaDevAttrComputeMode: return cudaComputeModeDefault;
    case cudaDevAttrConcurrentKernels: return 1;
    case cudaDevAttrEccEnabled: return 0;
    case cudaDevAttrPciBusId: return 1;
    case cudaDevAttrPciDeviceId: return 0;
    case cudaDevAttrTccDriver: return 0;
    case cudaDevAttrMemoryClockRate: return khz(spec.memory_clock_mhz);
    case cudaDevAttrGlobalMemoryBusWidth: return spec.memory_bus_bits;
    case cudaDevAttrL2CacheSize: return static_cast<int>(spec.l2_bytes);
    case cudaDevAttrMaxThreadsPerMultiProcessor: return spec.max_warps_per_sm * 32;
    case cudaDevAttrAsyncEngineCount: return 3;
    case cudaDevAttrUnifiedAddressing: return 1;
    case cudaDevAttrPciDomainId: return 0;
    case cudaDevAttrTexturePitchAlignment: return 32;
    case cudaDevAttrComputeCapabilityMajor: return spec.major;
    case cudaDevAttrComputeCapabilityMinor: return spec.minor;
    case cudaDevAttrStreamPrioritiesSupported: return 1;
    case cudaDevAttrGlobalL1CacheSupported: return 1;
    case cudaDevAttrLocalL1CacheSupported: return 1;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return spec.shared_per_sm;
    case cudaDevAttrMaxRegistersPerMultiprocessor: return spec.registers_per_sm;
    case cudaDevAttrManagedMemory: return 1;
    case cudaDevAttrIsMultiGpuBoard: return 0;
    case cudaDevAttrMultiGpuBoardGroupID: return 0;
    case cudaDevAttrHostNativeAtomicSupported: return 0;
    case cudaDevAttrSingleToDoublePrecisionPerfRatio:
      return spec.fp64_fma_per_clock_sm > 0
                 ? static_cast<int>(spec.fp32_fma_per_clock_sm / spec.fp64_fma_per_clock_sm)
                 : 0;
    case cudaDevAttrPageableMemoryAccess: return 0;
    case cudaDevAttrConcurrentManagedAccess: return 1;
    case cudaDevAttrComputePreemptionSupported: return 1;
    case cudaDevAttrCanUseHostPointerForRegisteredMem: return 1;
    case cudaDevAttrCooperativeLaunch: return spec.cooperative;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return spec.shared_per_block_optin;
    case cudaDevAttrCanFlushRemoteWrites: return 0;
    case cudaDevAttrHostRegisterSupported: return 1;
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables: return 0;
    case cudaDevAttrDirectManagedMemAccessFromHost: return 0;
    case cudaDevAttrMaxBlocksPerMultiprocessor: return spec.max_blocks_per_sm;
    case cudaDevAttrMaxPersistingL2CacheSize: return 0;
    case cudaDevAttrMaxAccessPolicyWindowSize: return 0;
    case cudaDevAttrReservedSharedMemoryPerBlock: return spec.shared_reserved;
    case cudaDevAttrSparseCudaArraySupported: return 0;
    case cudaDevAttrHostRegisterReadOnlySupported: return 1;
    case cudaDevAttrTimelineSemaphoreInteropSupported: return 0;
    case cudaDevAttrMemoryPoolsSupported: return 1;
    case cudaDevAttrGPUDirectRDMASupported: return 0;
    case cudaDevAttrGPUDirectRDMAFlushWritesOptions: return 0;
    case cudaDevAttrGPUDirectRDMAWritesOrdering: return 0;
    case cudaDevAttrMemoryPoolSupportedHandleTypes: return 0;
    case cudaDevAttrClusterLaunch: return hopper && spec.clusters;
    case cudaDevAttrDeferredMappingCudaArraySupported: return 0;
    case cudaDevAttrIpcEventSupport: return 0;
    case cudaDevAttrMemSyncDomainCount: return hopper ? 4 : 1;
    case cudaDevAttrNumaConfig: return 0;
    case cudaDevAttrNumaId: return -1;
    case cudaDevAttrMpsEnabled: return 0;
    case cudaDevAttrHostNumaId: return -1;
    // The others, up to the last that the header knows, are abilities that this device lacks.
    default:
      if (const auto limit = texture_limit(attr)) return limit;
      return attr > 0 && attr < cudaDevAttrMax ? std::optional<int>(0) : std::nullopt;
  }
  // clang-format on
}

cudaDeviceProp properties(const DeviceSpec& spec) {
  const auto value = [&](cudaDeviceAttr attr) { return attribute(spec, attr).value_or(0); };
  cudaDeviceProp p;
  std::memset(&p, 0, sizeof p);
  std::snprintf(p.name, sizeof p.name, "%s", spec.name.c_str());
  std::snprintf(p.uuid.bytes, sizeof p.uuid.bytes, "vgpu-%s", spec.key.c_str());
  p.totalGlobalMem = static_cast<std::size_t>(spec.memory_bytes);
  p.sharedMemPerBlock = static_cast<std::size_t>(spec.shared_per_block);
  p.regsPerBlock = spec.registers_per_block;
  p.warpSize = 32;
  p.memPitch = 2147483647;
  p.maxThreadsPerBlock = spec.max_threads_per_block;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 2147483647;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.totalConstMem = 65536;
  p.major = spec.major;
  p.minor = spec.minor;
  p.textureAlignment = 512;
  p.texturePitchAlignment = 32;
  p.multiProcessorCount = spec.sm_count;
  p.canMapHostMemory = 1;
  p.maxTexture1D = value(cudaDevAttrMaxTexture1DWidth);
  p.maxTexture1DMipmap = value(cudaDevAttrMaxTexture1DMipmappedWidth);
  p.maxTexture2D[0] = value(cudaDevAttrMaxTexture2DWidth);
  p.maxTexture2D[1] = value(cudaDevAttrMaxTexture2DHeight);
  p.maxTexture2DMipmap[0] = value(cudaDevAttrMaxTexture2DMipmappedWidth);
  p.maxTexture2DMipmap[1] = value(cudaDevAttrMaxTexture2DMipmappedHeight);
  p.maxTexture2DLinear[0] = value(cudaDevAttrMaxTexture2DLinearWidth);
  p.maxTexture2DLinear[1] = value(cudaDevAttrMaxTexture2DLinearHeight);
  p.maxTexture2DLinear[2] = value(cudaDevAttrMaxTexture2DLinearPitch);
  p.maxTexture2DGather[0] = value(cudaDevAttrMaxTexture2DGatherWidth);
  p.maxTexture2DGather[1] = value(cudaDevAttrMaxTexture2DGatherHeight);
  p.maxTexture3D[0] = value(cudaDevAttrMaxTexture3DWidth);
  p.maxTexture3D[1] = value(cudaDevAttrMaxTexture3DHeight);
  p.maxTexture3D[2] = value(cudaDevAttrMaxTexture3DDepth);
  p.maxTexture3DAlt[0] = value(cudaDevAttrMaxTexture3DWidthAlt);
  p.maxTexture3DAlt[1] = value(cudaDevAttrMaxTexture3DHeightAlt);
  p.maxTexture3DAlt[2] = value(cudaDevAttrMaxTexture3DDepthAlt);
  p.maxTextureCubemap = value(cudaDevAttrMaxTextureCubemapWidth);
  p.maxTexture1DLayered[0] = value(cudaDevAttrMaxTexture1DLayeredWidth);
  p.maxTexture1DLayered[1] = value(cudaDevAttrMaxTexture1DLayeredLayers);
  p.maxTexture2DLayered[0] = value(cudaDevAttrMaxTexture2DLayeredWidth);
  p.maxTexture2DLayered[1] = value(cudaDevAttrMaxTexture2DLayeredHeight);
  p.maxTexture2DLayered[2] = value(cudaDevAttrMaxTexture2DLayeredLayers);
  p.maxTextureCubemapLayered[0] = value(cudaDevAttrMaxTextureCubemapLayeredWidth);
  p.maxTextureCubemapLayered[1] = value(cudaDevAttrMaxTextureCubemapLayeredLayers);
  p.maxSurface1D = value(cudaDevAttrMaxSurface1DWidth);
  p.maxSurface2D[0] = value(cudaDevAttrMaxSurface2DWidth);
  p.maxSurface2D[1] = value(cudaDevAttrMaxSurface2DHeight);
  p.maxSurface3D[0] = value(cudaDevAttrMaxSurface3DWidth);
  p.maxSurface3D[1] = value(cudaDevAttrMaxSurface3DHeight);
  p.maxSurface3D[2] = value(cudaDevAttrMaxSurface3DDepth);
  p.maxSurface1DLayered[0] = value(cudaDevAttrMaxSurface1DLayeredWidth);
  p.maxSurface1DLayered[1] = value(cudaDevAttrMaxSurface1DLayeredLayers);
  p.maxSurface2DLayered[0] = value(cudaDevAttrMaxSurface2DLayeredWidth);
  p.maxSurface2DLayered[1] = value(cudaDevAttrMaxSurface2DLayeredHeight);
  p.maxSurface2DLayered[2] = value(cudaDevAttrMaxSurface2DLayeredLayers);
  p.maxSurfaceCubemap = value(cudaDevAttrMaxSurfaceCubemapWidth);
  p.maxSurfaceCubemapLayered[0] = value(cudaDevAttrMaxSurfaceCubemapLayeredWidth);
  p.maxSurfaceCubemapLayered[1] = value(cudaDevAttrMaxSurfaceCubemapLayeredLayers);
  p.surfaceAlignment = 512;
  p.concurrentKernels = 1;
  p.pciBusID = 1;
  p.asyncEngineCount = value(cudaDevAttrAsyncEngineCount);
  p.unifiedAddressing = 1;
  p.memoryBusWidth = spec.memory_bus_bits;
  p.l2CacheSize = value(cudaDevAttrL2CacheSize);
  p.maxThreadsPerMultiProcessor = spec.max_warps_per_sm * 32;
  p.streamPrioritiesSupported = 1;
  p.globalL1CacheSupported = 1;
  p.localL1CacheSupported = 1;
  p.sharedMemPerMultiprocessor = static_cast<std::size_t>(spec.shared_per_sm);
  p.regsPerMultiprocessor = spec.registers_per_sm;
  p.managedMemory = 1;
  p.concurrentManagedAccess = 1;
  p.computePreemptionSupported = 1;
  p.canUseHostPointerForRegisteredMem = 1;
  p.cooperativeLaunch = spec.cooperative;
  p.sharedMemPerBlockOptin = static_cast<std::size_t>(spec.shared_per_block_optin);
  p.maxBlocksPerMultiProcessor = spec.max_blocks_per_sm;
  p.reservedSharedMemPerBlock = static_cast<std::size_t>(spec.shared_reserved);
  p.hostRegisterSupported = 1;
  p.hostRegisterReadOnlySupported = 1;
  p.memoryPoolsSupported = 1;
  p.clusterLaunch = value(cudaDevAttrClusterLaunch);
#if CUDART_VERSION < 13000
  p.clockRate = value(cudaDevAttrClockRate);
  p.memoryClockRate = value(cudaDevAttrMemoryClockRate);
  p.deviceOverlap = 1;
  p.singleToDoublePrecisionPerfRatio = value(cudaDevAttrSingleToDoublePrecisionPerfRatio);
#endif
  return p;
}

std::optional<std::size_t> default_limit(Runtime& runtime, int limit) {
  switch (limit) {
    case cudaLimitStackSize:
      return Machine::kStackLimit;
    case cudaLimitPrintfFifoSize:
      return 1u << 20;
    case cudaLimitMallocHeapSize:
      return runtime.machine().heap_limit;
    case cudaLimitDevRuntimePendingLaunchCount:
      return 2048;
    case cudaLimitMaxL2FetchGranularity:
      return 64;
    case cudaLimitPersistingL2CacheSize:
      return 0;
    default:
      return std::nullopt;
  }
}

Error get_properties(cudaDeviceProp* prop, int device) {
  return api(
      [&](Runtime& runtime) -> Error {
        if (!prop) return cudaErrorInvalidValue;
        if (const Error error = check_device(device); error != cudaSuccess) return error;
        *prop = properties(runtime.spec());
        return cudaSuccess;
      },
      Context::not_needed);
}

}  // namespace
}  // namespace vgpu::cudart

using namespace vgpu::cudart;

cudaError_t cudaGetDeviceCount(int* count) {
  if (!count) return remember(cudaErrorInvalidValue);
  const Error error = api([](Runtime&) { return cudaSuccess; }, Context::not_needed);
  *count = error == cudaSuccess ? 1 : 0;
  return error;
}

// Under version name 13 both names have the layout of the header that this library is compiled with;
// what programs of toolkits 12 ask for is in cuda12.cc.
#undef cudaGetDeviceProperties
VGPU_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  return get_properties(prop, device);
}
VGPU_API cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* prop, int device) {
  return get_properties(prop, device);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  return api(
      [&](Runtime& runtime) -> Error {
        if (!value) return cudaErrorInvalidValue;
        if (const Error error = check_device(device); error != cudaSuccess) return error;
        const auto result = attribute(runtime.spec(), number_of(attr));
        if (!result) return cudaErrorInvalidValue;
        *value = *result;
        return cudaSuccess;
      },
      Context::not_needed);
}

cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* prop) {
  return api(
      [&](Runtime&) -> Error {
        if (!device || !prop) return cudaErrorInvalidValue;
        *device = 0;
        return cudaSuccess;
      },
      Context::not_needed);
}

cudaError_t cudaSetDevice(int device) {
  return api([&](Runtime&) { return check_device(device); });
}

cudaError_t cudaInitDevice(int device, unsigned int, unsigned int) {
  return api([&](Runtime&) { return check_device(device); });
}

cudaError_t cudaGetDevice(int* device) {
  return api(
      [&](Runtime&) -> Error {
        if (!device) return cudaErrorInvalidValue;
        *device = 0;
        return cudaSuccess;
      },
      Context::not_needed);
}

cudaError_t cudaSetValidDevices(int* devices, int number) {
  return api([&](Runtime&) -> Error {
    if (number < 0 || (number > 0 && !devices)) return cudaErrorInvalidValue;
    for (int i = 0; i < number; ++i)
      if (devices[i] != 0) return cudaErrorInvalidDevice;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  return api([&](Runtime& runtime) -> Error {
    if (flags & ~static_cast<unsigned>(cudaDeviceMask)) return cudaErrorInvalidValue;
    runtime.device_flags = flags;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
  return api([&](Runtime& runtime) -> Error {
    if (!flags) return cudaErrorInvalidValue;
    *flags = runtime.device_flags | cudaDeviceMapHost;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return api([](Runtime& runtime) -> Error {
    const HostCall call(runtime, "cudaDeviceSynchronize", vgpu::timeline_us::kCall);
    if (const Error error = refuse_while_capturing(runtime); error != cudaSuccess) return error;
    runtime.host_waits_for_all();
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceReset() {
  const Error error = api(
      [](Runtime& runtime) {
        runtime.reset();
        return cudaSuccess;
      },
      Context::not_needed);
  if (error == cudaSuccess) last_error() = cudaSuccess;
  return error;
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value) {
  return api([&](Runtime& runtime) -> Error {
    if (!default_limit(runtime, number_of(limit))) return cudaErrorUnsupportedLimit;
    if (number_of(limit) == cudaLimitMallocHeapSize)
      runtime.machine().heap_limit = value;
    else
      runtime.limits[number_of(limit)] = value;
    if (number_of(limit) == cudaLimitStackSize)
      runtime.machine().stack_limit =
          static_cast<std::uint32_t>(std::min<std::size_t>(value, 1u << 30));
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit) {
  return api([&](Runtime& runtime) -> Error {
    if (!value) return cudaErrorInvalidValue;
    const auto by_default = default_limit(runtime, number_of(limit));
    if (!by_default) return cudaErrorUnsupportedLimit;
    const auto set = runtime.limits.find(number_of(limit));
    *value = set == runtime.limits.end() ? *by_default : set->second;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  return api([&](Runtime&) -> Error {
    if (!config) return cudaErrorInvalidValue;
    *config = cudaFuncCachePreferNone;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config) {
  return api([&](Runtime&) -> Error {
    const bool known = number_of(config) >= cudaFuncCachePreferNone &&
                       number_of(config) <= cudaFuncCachePreferEqual;
    return known ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config) {
  return api([&](Runtime&) -> Error {
    if (!config) return cudaErrorInvalidValue;
    *config = cudaSharedMemBankSizeFourByte;  // the only one since Kepler
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) {
  return api([](Runtime&) { return cudaSuccess; });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return api([&](Runtime&) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return api([&](Runtime&) -> Error {
    if (!id || length < static_cast<int>(sizeof kPciBusId)) return cudaErrorInvalidValue;
    if (const Error error = check_device(device); error != cudaSuccess) return error;
    std::memcpy(id, kPciBusId, sizeof kPciBusId);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  return api([&](Runtime&) -> Error {
    unsigned domain = 0, bus = 0, slot = 0;
    if (!device || !id) return cudaErrorInvalidValue;
    if (std::sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3 &&
        (domain = 0, std::sscanf(id, "%x:%x", &bus, &slot) != 2))
      return cudaErrorInvalidValue;
    if (domain != 0 || bus != 1 || slot != 0) return cudaErrorInvalidDevice;
    *device = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return api([&](Runtime&) -> Error {
    if (!can) return cudaErrorInvalidValue;
    *can = 0;
    return device == 0 && peer == 0 ? cudaSuccess : cudaErrorInvalidDevice;
  });
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned int) {
  return api([](Runtime&) { return cudaErrorInvalidDevice; });  // there is no second device
}
cudaError_t cudaDeviceDisablePeerAccess(int) {
  return api([](Runtime&) { return cudaErrorInvalidDevice; });
}

cudaError_t cudaCtxResetPersistingL2Cache() {
  return api([](Runtime&) { return cudaSuccess; });
}

// Declared in cuda_profiler_api.h only.
VGPU_API cudaError_t cudaProfilerStart() {
  return api([](Runtime&) { return cudaSuccess; });
}
VGPU_API cudaError_t cudaProfilerStop() {
  return api([](Runtime&) { return cudaSuccess; });
}

cudaError_t cudaDriverGetVersion(int* version) {
  if (!version) return remember(cudaErrorInvalidValue);
  *version = kVersion;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaGetLastError() {
  const Error error = last_error();
  // An error that broke the context stays until the reset, as on a GPU.
  if (error != Error(Runtime::get().sticky.load())) last_error() = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error(); }
const char* cudaGetErrorName(cudaError_t error) { return error_name(error); }
const char* cudaGetErrorString(cudaError_t error) { return error_text(error); }

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                            cudaChannelFormatKind kind) {
  return {x, y, z, w, kind};
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* status) {
  return driver_entry_point(symbol, function, CUDART_VERSION, status);
}
VGPU_API cudaError_t cudaGetDriverEntryPoint_ptsz(const char* symbol, void** function,
                                                  unsigned long long,
                                                  cudaDriverEntryPointQueryResult* status) {
  return driver_entry_point(symbol, function, CUDART_VERSION, status);
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                             unsigned int version, unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  return driver_entry_point(symbol, function, version, status);
}
VGPU_API cudaError_t
cudaGetDriverEntryPointByVersion_ptsz(const char* symbol, void** function, unsigned int version,
                                      unsigned long long, cudaDriverEntryPointQueryResult* status) {
  return driver_entry_point(symbol, function, version, status);
}
