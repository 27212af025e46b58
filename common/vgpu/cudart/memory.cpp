// Device, managed and pinned memory: allocation, release, attributes of pointers.
#include <algorithm>
#include <cstdio>

#include "../runtime/capture.h"
#include "face.h"

namespace vgpu::cudart {
namespace {

constexpr std::size_t kPitch = 512;  // bytes; rows of cudaMallocPitch begin at multiples

Error allocate(Runtime& runtime, void** pointer, std::size_t size, MemoryKind kind) {
  if (!pointer) return cudaErrorInvalidValue;
  *pointer = nullptr;
  if (size == 0) return cudaSuccess;
  const auto allocation = runtime.memory().allocate(size, kind);
  if (!allocation) {
    const double gib = 1 << 30, limit = static_cast<double>(runtime.memory().limit());
    char text[160];
    std::snprintf(
        text, sizeof text,
        "out of memory: %.1f GiB asked for, %.1f GiB of %.1f are in use (the host must have "
        "them, too)",
        static_cast<double>(size) / gib, static_cast<double>(runtime.memory().used()) / gib,
        limit / gib);
    say_once("out of memory", text);  // programs try smaller and smaller sizes
    return cudaErrorMemoryAllocation;
  }
  *pointer = reinterpret_cast<void*>(allocation->base);
  return cudaSuccess;
}

Error pitched(Runtime& runtime, void** pointer, std::size_t* pitch, std::size_t width,
              std::size_t rows) {
  if (!pointer || !pitch) return cudaErrorInvalidValue;
  std::size_t size = 0;
  if (width > SIZE_MAX - kPitch) return cudaErrorMemoryAllocation;
  *pitch = (width + kPitch - 1) / kPitch * kPitch;
  if (__builtin_mul_overflow(*pitch, rows, &size)) return cudaErrorMemoryAllocation;
  return allocate(runtime, pointer, size, MemoryKind::device);
}

Error host_allocate(Runtime& runtime, void** pointer, std::size_t size, unsigned flags) {
  constexpr unsigned kKnown =
      cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
  if (flags & ~kKnown) return cudaErrorInvalidValue;
  const Error error = allocate(runtime, pointer, size, MemoryKind::pinned);
  // All pinned memory is mapped, as unified addressing has it.
  if (error == cudaSuccess && *pointer)
    runtime.host_allocations[reinterpret_cast<std::uint64_t>(*pointer)] =
        flags | cudaHostAllocMapped;
  return error;
}

Error pool_allocate(Runtime& runtime, void** pointer, std::size_t size, Pool& pool) {
  const Error error = allocate(runtime, pointer, size, MemoryKind::device);
  if (error == cudaSuccess && *pointer) {
    pool.used += size;
    pool.high = std::max(pool.high, pool.used);
    runtime.pool_of[reinterpret_cast<std::uint64_t>(*pointer)] = &pool;
  }
  return error;
}

// cudaMallocAsync in a stream that captures: adds a node that will allocate the memory. Its address is
// known at once.
Error reserve(void** pointer, std::size_t size, cudaStream_t stream, bool per_thread) {
  AllocOp op;
  if (const Error error = make_alloc(size, op); error != cudaSuccess) return error;
  const Error error = submit(stream, per_thread, op, {"cudaMallocAsync"});
  if (error == cudaSuccess) *pointer = op.pointer;
  return error;
}

Error malloc_in_order(Runtime& runtime, void** pointer, std::size_t size, Pool& pool,
                      cudaStream_t handle, bool per_thread) {
  Stream* stream = runtime.find_stream(handle, per_thread);
  if (!stream) return cudaErrorInvalidResourceHandle;
  const HostCall call(runtime, "cudaMallocAsync", timeline_us::kSubmit);
  if (const Error error = refuse_implicit(runtime, *stream); error != cudaSuccess) return error;
  if (capture_of(*stream)) {
    if (!pointer) return cudaErrorInvalidValue;
    return reserve(pointer, size, handle, per_thread);
  }
  const Error error = pool_allocate(runtime, pointer, size, pool);
  if (error != cudaSuccess || !*pointer || !runtime.order) return error;
  // For the check of streams the allocation counts as a write: uses must come after it.
  run_ordered(*stream, "cudaMallocAsync", [&] {
    const auto a = runtime.memory().find(reinterpret_cast<std::uint64_t>(*pointer));
    runtime.order->touch(a, 0, a->size, Touch::write);
    return Status::success;
  });
  return cudaSuccess;
}

Error malloc_async(void** pointer, std::size_t size, cudaStream_t stream, bool per_thread) {
  return api([&](Runtime& runtime) -> Error {
    return malloc_in_order(runtime, pointer, size, *runtime.current_pool, stream, per_thread);
  });
}

Error malloc_from_pool(void** pointer, std::size_t size, cudaMemPool_t handle, cudaStream_t stream,
                       bool per_thread) {
  return api([&](Runtime& runtime) -> Error {
    Pool* pool = reinterpret_cast<Pool*>(handle);
    if (pool != &runtime.default_pool && !runtime.pools.count(pool)) return cudaErrorInvalidValue;
    return malloc_in_order(runtime, pointer, size, *pool, stream, per_thread);
  });
}

Error free_async(void* pointer, cudaStream_t stream, bool per_thread) {
  return api([&](Runtime&) -> Error {
    if (!pointer) return cudaErrorInvalidValue;
    return submit(stream, per_thread, FreeOp{pointer}, {"cudaFreeAsync"});
  });
}

// For the check of streams: cudaFree of memory of a pool waits for nobody. It comes after what the host has
// waited for.
void free_unordered(Runtime& runtime, std::uint64_t address) {
  if (!runtime.order || !runtime.order->check) return;
  StreamCheck& check = *runtime.order->check;
  const auto allocation = runtime.memory().find(address);
  if (!allocation || allocation->base != address) return;
  check.begin(check.new_timeline(), runtime.host, runtime.host, "cudaFree",
              "of memory from cudaMallocAsync, which waits for nobody");
  check.touch(allocation, 0, allocation->size, Touch::write);
  check.end();
}

// Calls that may wait for the device, or make others wait: not while a stream captures. `name` and `us`
// are for the timeline.
template <class F>
Error unsafe(const char* name, double us, F&& body) {
  return api([&](Runtime& runtime) -> Error {
    const HostCall call(runtime, name, us);
    if (const Error error = refuse_unsafe(runtime); error != cudaSuccess) return error;
    return body(runtime);
  });
}

}  // namespace

}  // namespace vgpu::cudart

using namespace vgpu::cudart;
using vgpu::MemoryKind;
namespace timeline_us = vgpu::timeline_us;

cudaError_t cudaMalloc(void** pointer, std::size_t size) {
  return unsafe("cudaMalloc", timeline_us::kAllocate, [&](Runtime& runtime) {
    return allocate(runtime, pointer, size, MemoryKind::device);
  });
}

cudaError_t cudaFree(void* pointer) {
  return unsafe("cudaFree", timeline_us::kAllocate, [&](Runtime& runtime) -> Error {
    const auto address = reinterpret_cast<std::uint64_t>(pointer);
    if (runtime.pool_of.contains(address))
      free_unordered(runtime, address);
    else
      runtime.host_waits_for_all();  // as cudaFree does on every GPU so far
    return release_memory(runtime, pointer);
  });
}

cudaError_t cudaMallocAsync(void** pointer, std::size_t size, cudaStream_t stream) {
  return malloc_async(pointer, size, stream, false);
}
VGPU_API cudaError_t cudaMallocAsync_ptsz(void** pointer, std::size_t size, cudaStream_t stream) {
  return malloc_async(pointer, size, stream, true);
}
cudaError_t cudaMallocFromPoolAsync(void** pointer, std::size_t size, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  return malloc_from_pool(pointer, size, pool, stream, false);
}
VGPU_API cudaError_t cudaMallocFromPoolAsync_ptsz(void** pointer, std::size_t size,
                                                  cudaMemPool_t pool, cudaStream_t stream) {
  return malloc_from_pool(pointer, size, pool, stream, true);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return free_async(pointer, stream, false);
}
VGPU_API cudaError_t cudaFreeAsync_ptsz(void* pointer, cudaStream_t stream) {
  return free_async(pointer, stream, true);
}

cudaError_t cudaMallocPitch(void** pointer, std::size_t* pitch, std::size_t width,
                            std::size_t height) {
  return unsafe("cudaMallocPitch", timeline_us::kAllocate,
                [&](Runtime& runtime) { return pitched(runtime, pointer, pitch, width, height); });
}

cudaError_t cudaMalloc3D(cudaPitchedPtr* pitched_pointer, cudaExtent extent) {
  return unsafe("cudaMalloc3D", timeline_us::kAllocate, [&](Runtime& runtime) -> Error {
    std::size_t rows = 0;
    if (!pitched_pointer) return cudaErrorInvalidValue;
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows))
      return cudaErrorMemoryAllocation;
    cudaPitchedPtr result{nullptr, 0, extent.width, extent.height};
    const Error error = pitched(runtime, &result.ptr, &result.pitch, extent.width, rows);
    if (error == cudaSuccess) *pitched_pointer = result;
    return error;
  });
}

cudaError_t cudaMallocManaged(void** pointer, std::size_t size, unsigned int flags) {
  return unsafe("cudaMallocManaged", timeline_us::kPin, [&](Runtime& runtime) -> Error {
    // Unlike cudaMalloc, managed memory of no bytes is refused.
    if (size == 0 || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost))
      return cudaErrorInvalidValue;
    return allocate(runtime, pointer, size, MemoryKind::managed);
  });
}

cudaError_t cudaMallocHost(void** pointer, std::size_t size) {
  return unsafe("cudaMallocHost", timeline_us::kPin, [&](Runtime& runtime) {
    return host_allocate(runtime, pointer, size, cudaHostAllocDefault);
  });
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t size, unsigned int flags) {
  return unsafe("cudaHostAlloc", timeline_us::kPin,
                [&](Runtime& runtime) { return host_allocate(runtime, pointer, size, flags); });
}

cudaError_t cudaFreeHost(void* pointer) {
  return unsafe("cudaFreeHost", timeline_us::kPin, [&](Runtime& runtime) -> Error {
    if (!pointer) return cudaSuccess;
    const auto address = reinterpret_cast<std::uint64_t>(pointer);
    if (!runtime.host_allocations.erase(address)) {
      say("cudaFreeHost: the memory is not of cudaMallocHost or cudaHostAlloc");
      return cudaErrorInvalidValue;
    }
    runtime.host_waits_for_all();
    runtime.memory().release(address);
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* pointer, std::size_t size, unsigned int flags) {
  return unsafe("cudaHostRegister", timeline_us::kPin, [&](Runtime& runtime) -> Error {
    constexpr unsigned kKnown = cudaHostRegisterPortable | cudaHostRegisterMapped |
                                cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
    if (!pointer || size == 0 || (flags & ~kKnown)) return cudaErrorInvalidValue;
    if (flags & cudaHostRegisterIoMemory) return cudaErrorNotSupported;
    const auto address = reinterpret_cast<std::uint64_t>(pointer);
    const auto overlaps = [&](const auto& a) {
      return a->base < address + size && address < a->base + std::max<std::uint64_t>(a->size, 1);
    };
    if (is_device_address(pointer)) return cudaErrorInvalidValue;
    const auto live = runtime.memory().live();
    if (std::any_of(live.begin(), live.end(), overlaps))
      return cudaErrorHostMemoryAlreadyRegistered;
    if (!host_bytes("cudaHostRegister", pointer, size)) return cudaErrorInvalidValue;
    if (!runtime.memory().adopt(pointer, size, MemoryKind::pinned)) return cudaErrorInvalidValue;
    runtime.host_registrations[address] = flags | cudaHostRegisterMapped;
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* pointer) {
  return unsafe("cudaHostUnregister", timeline_us::kPin, [&](Runtime& runtime) -> Error {
    const auto address = reinterpret_cast<std::uint64_t>(pointer);
    if (!pointer) return cudaErrorInvalidValue;
    if (!runtime.host_registrations.erase(address)) return cudaErrorHostMemoryNotRegistered;
    runtime.host_waits_for_all();
    runtime.memory().release(address);
    return cudaSuccess;
  });
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int flags) {
  return api([&](Runtime& runtime) -> Error {
    if (!device || flags != 0) return cudaErrorInvalidValue;
    *device = nullptr;
    const auto allocation = runtime.memory().find(reinterpret_cast<std::uint64_t>(host));
    if (!allocation ||
        (allocation->kind != MemoryKind::pinned && allocation->kind != MemoryKind::managed))
      return cudaErrorInvalidValue;
    *device = host;
    return cudaSuccess;
  });
}

cudaError_t cudaHostGetFlags(unsigned int* flags, void* host) {
  return api([&](Runtime& runtime) -> Error {
    if (!flags) return cudaErrorInvalidValue;
    const auto allocation = runtime.memory().find(reinterpret_cast<std::uint64_t>(host));
    if (!allocation) return cudaErrorInvalidValue;
    for (const auto* table : {&runtime.host_allocations, &runtime.host_registrations})
      if (const auto it = table->find(allocation->base); it != table->end()) {
        *flags = it->second;
        return cudaSuccess;
      }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return api([&](Runtime& runtime) -> Error {
    if (!free || !total) return cudaErrorInvalidValue;
    const std::uint64_t limit = runtime.memory().limit(), used = runtime.memory().used();
    *total = limit;
    *free = limit - std::min(limit, used);
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return api([&](Runtime& runtime) -> Error {
    if (!attributes) return cudaErrorInvalidValue;
    *attributes = {};
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    attributes->hostPointer = const_cast<void*>(pointer);
    const auto allocation = runtime.memory().find(reinterpret_cast<std::uint64_t>(pointer));
    if (!allocation) {
      // A device address that no allocation holds is nobody's host memory either.
      if (is_device_address(pointer)) return cudaErrorInvalidValue;
      return cudaSuccess;
    }
    attributes->device = 0;
    attributes->devicePointer = const_cast<void*>(pointer);
    switch (allocation->kind) {
      case MemoryKind::managed:
        attributes->type = cudaMemoryTypeManaged;
        break;
      case MemoryKind::pinned:
        attributes->type = cudaMemoryTypeHost;
        break;
      default:
        attributes->type = cudaMemoryTypeDevice;
        attributes->hostPointer = nullptr;
    }
    return cudaSuccess;
  });
}
