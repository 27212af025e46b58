// Memory pools and hints about managed memory. The virtual GPU has one pool of its own and as many
// as a program makes; a pool only counts, all memory comes from the same place.
#include <algorithm>
#include <cstring>

#include "../runtime/capture.h"
#include "face.h"

namespace vgpu::cudart {
namespace {

Pool* find_pool(Runtime& runtime, cudaMemPool_t handle) {
  Pool* pool = reinterpret_cast<Pool*>(handle);
  if (pool == &runtime.default_pool) return pool;
  return runtime.pools.count(pool) ? pool : nullptr;
}

template <class F>
Error with_pool(cudaMemPool_t handle, F&& body) {
  return api([&](Runtime& runtime) -> Error {
    Pool* pool = find_pool(runtime, handle);
    return pool ? body(*pool) : cudaErrorInvalidValue;
  });
}

// True for the attributes that are an int, false for those that are a 64-bit count of bytes.
bool is_int(cudaMemPoolAttr attr) {
  return attr == cudaMemPoolReuseFollowEventDependencies ||
         attr == cudaMemPoolReuseAllowOpportunistic ||
         attr == cudaMemPoolReuseAllowInternalDependencies;
}

Error give_pool(cudaMemPool_t* out, int device, bool current) {
  return api([&](Runtime& runtime) -> Error {
    if (!out) return cudaErrorInvalidValue;
    if (device != 0) return cudaErrorInvalidDevice;
    *out = reinterpret_cast<cudaMemPool_t>(current ? runtime.current_pool : &runtime.default_pool);
    return cudaSuccess;
  });
}

// Hints and moves of managed memory change nothing here; the range is checked all the same.
Error managed_range(Runtime& runtime, const void* pointer, std::size_t count) {
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  const auto allocation = runtime.memory().find(address);
  if (!allocation || allocation->kind != MemoryKind::managed || count == 0 ||
      !runtime.memory().translate(address, count))
    return cudaErrorInvalidValue;
  return cudaSuccess;
}

Error advise(const void* pointer, std::size_t count, int device) {
  return api([&](Runtime& runtime) -> Error {
    if (device != 0 && device != cudaCpuDeviceId) return cudaErrorInvalidDevice;
    return managed_range(runtime, pointer, count);
  });
}

Error prefetch(const void* pointer, std::size_t count, int device, cudaStream_t stream,
               bool per_thread) {
  return api([&](Runtime& runtime) -> Error {
    if (device != 0 && device != cudaCpuDeviceId) return cudaErrorInvalidDevice;
    Stream* in = runtime.find_stream(stream, per_thread);
    if (!in) return cudaErrorInvalidResourceHandle;
    for (const Error error : {refuse_implicit(runtime, *in), refuse_captured(*in)})
      if (error != cudaSuccess) return error;
    return managed_range(runtime, pointer, count);
  });
}

int device_of(cudaMemLocation location) {
  return number_of(location.type) == cudaMemLocationTypeDevice ? location.id : cudaCpuDeviceId;
}

}  // namespace
}  // namespace vgpu::cudart

using namespace vgpu::cudart;

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return give_pool(pool, device, false);
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return give_pool(pool, device, true);
}
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t handle) {
  return api([&](Runtime& runtime) -> Error {
    Pool* pool = find_pool(runtime, handle);
    if (device != 0) return cudaErrorInvalidDevice;
    if (!pool) return cudaErrorInvalidValue;
    runtime.current_pool = pool;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* handle, const cudaMemPoolProps* properties) {
  return api([&](Runtime& runtime) -> Error {
    if (!handle || !properties || number_of(properties->allocType) != cudaMemAllocationTypePinned)
      return cudaErrorInvalidValue;
    if (number_of(properties->location.type) != cudaMemLocationTypeDevice ||
        number_of(properties->handleTypes) != cudaMemHandleTypeNone)
      return cudaErrorNotSupported;
    if (properties->location.id != 0) return cudaErrorInvalidDevice;
    auto pool = std::make_unique<Pool>();
    runtime.pools.insert(pool.get());
    *handle = reinterpret_cast<cudaMemPool_t>(pool.release());
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t handle) {
  return api([&](Runtime& runtime) -> Error {
    Pool* pool = reinterpret_cast<Pool*>(handle);
    if (!runtime.pools.erase(pool)) return cudaErrorInvalidValue;  // the default pool stays
    if (runtime.current_pool == pool) runtime.current_pool = &runtime.default_pool;
    std::erase_if(runtime.pool_of, [&](const auto& entry) { return entry.second == pool; });
    delete pool;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, std::size_t) {
  return with_pool(handle, [](Pool&) { return cudaSuccess; });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attr, void* value) {
  return with_pool(handle, [&](Pool& pool) -> Error {
    if (!value) return cudaErrorInvalidValue;
    std::uint64_t bytes = 0;
    switch (number_of(attr)) {
      case cudaMemPoolReuseFollowEventDependencies:
      case cudaMemPoolReuseAllowOpportunistic:
      case cudaMemPoolReuseAllowInternalDependencies: {
        int flag = 0;
        std::memcpy(&flag, value, sizeof flag);
        pool.attributes[attr] = static_cast<std::uint64_t>(flag != 0);
        return cudaSuccess;
      }
      case cudaMemPoolAttrReleaseThreshold:
        std::memcpy(&bytes, value, sizeof bytes);
        pool.attributes[attr] = bytes;
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemHigh:
      case cudaMemPoolAttrUsedMemHigh:
        std::memcpy(&bytes, value, sizeof bytes);
        if (bytes != 0) return cudaErrorInvalidValue;  // a high-water mark can only be set back
        pool.high = pool.used;
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attr, void* value) {
  return with_pool(handle, [&](Pool& pool) -> Error {
    if (!value) return cudaErrorInvalidValue;
    std::uint64_t bytes = 0;
    switch (number_of(attr)) {
      case cudaMemPoolAttrUsedMemCurrent:
      case cudaMemPoolAttrReservedMemCurrent:
        bytes = pool.used;
        break;
      case cudaMemPoolAttrUsedMemHigh:
      case cudaMemPoolAttrReservedMemHigh:
        bytes = pool.high;
        break;
      case cudaMemPoolAttrReleaseThreshold:
      case cudaMemPoolReuseFollowEventDependencies:
      case cudaMemPoolReuseAllowOpportunistic:
      case cudaMemPoolReuseAllowInternalDependencies: {
        const auto it = pool.attributes.find(attr);
        bytes = it != pool.attributes.end() ? it->second : is_int(attr) ? 1 : 0;
        break;
      }
      default:
        return cudaErrorInvalidValue;
    }
    if (is_int(attr)) {
      const int flag = static_cast<int>(bytes);
      std::memcpy(value, &flag, sizeof flag);
    } else {
      std::memcpy(value, &bytes, sizeof bytes);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t handle, const cudaMemAccessDesc* list,
                                 std::size_t count) {
  return with_pool(handle, [&](Pool&) -> Error {
    if (count > 0 && !list) return cudaErrorInvalidValue;
    for (std::size_t i = 0; i < count; ++i)
      if (number_of(list[i].location.type) != cudaMemLocationTypeDevice || list[i].location.id != 0)
        return cudaErrorInvalidDevice;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t handle,
                                 cudaMemLocation* location) {
  return with_pool(handle, [&](Pool&) -> Error {
    if (!flags || !location) return cudaErrorInvalidValue;
    if (number_of(location->type) != cudaMemLocationTypeDevice || location->id != 0)
      return cudaErrorInvalidDevice;
    *flags = cudaMemAccessFlagsProtReadWrite;
    return cudaSuccess;
  });
}

// Toolkits 12 name the forms that take a cudaMemLocation ..._v2; in 13 they have the plain names.
#if CUDART_VERSION >= 13000
cudaError_t cudaMemAdvise(const void* pointer, std::size_t count, cudaMemoryAdvise,
                          cudaMemLocation location) {
  return advise(pointer, count, device_of(location));
}
cudaError_t cudaMemPrefetchAsync(const void* pointer, std::size_t count, cudaMemLocation location,
                                 unsigned int, cudaStream_t stream) {
  return prefetch(pointer, count, device_of(location), stream, false);
}
VGPU_API cudaError_t cudaMemPrefetchAsync_ptsz(const void* pointer, std::size_t count,
                                               cudaMemLocation location, unsigned int,
                                               cudaStream_t stream) {
  return prefetch(pointer, count, device_of(location), stream, true);
}
#else
cudaError_t cudaMemAdvise(const void* pointer, std::size_t count, cudaMemoryAdvise, int device) {
  return advise(pointer, count, device);
}
cudaError_t cudaMemPrefetchAsync(const void* pointer, std::size_t count, int device,
                                 cudaStream_t stream) {
  return prefetch(pointer, count, device, stream, false);
}
VGPU_API cudaError_t cudaMemPrefetchAsync_ptsz(const void* pointer, std::size_t count, int device,
                                               cudaStream_t stream) {
  return prefetch(pointer, count, device, stream, true);
}
VGPU_API cudaError_t cudaMemAdvise_v2(const void* pointer, std::size_t count, cudaMemoryAdvise,
                                      cudaMemLocation location) {
  return advise(pointer, count, device_of(location));
}
VGPU_API cudaError_t cudaMemPrefetchAsync_v2(const void* pointer, std::size_t count,
                                             cudaMemLocation location, unsigned int,
                                             cudaStream_t stream) {
  return prefetch(pointer, count, device_of(location), stream, false);
}
VGPU_API cudaError_t cudaMemPrefetchAsync_v2_ptsz(const void* pointer, std::size_t count,
                                                  cudaMemLocation location, unsigned int,
                                                  cudaStream_t stream) {
  return prefetch(pointer, count, device_of(location), stream, true);
}
#endif
