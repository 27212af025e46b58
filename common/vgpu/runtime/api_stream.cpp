// Streams and events. Work runs at the call that submits it, so everything in a stream has always
// ended; events take the host's clock, so an elapsed time is the time that the virtual GPU took.
#include <algorithm>

#include "runtime.h"

namespace vgpu::runtime {
namespace {

constexpr int kGreatestPriority = -5;

Error create_stream(cudaStream_t* handle, unsigned flags, int priority) {
  return api([&](Runtime& runtime) -> Error {
    if (!handle || (flags != cudaStreamDefault && flags != cudaStreamNonBlocking))
      return cudaErrorInvalidValue;
    auto stream = std::make_unique<Stream>();
    stream->id = runtime.next_stream_id++;
    stream->flags = flags;
    stream->priority = std::clamp(priority, kGreatestPriority, 0);
    runtime.streams.insert(stream.get());
    *handle = reinterpret_cast<cudaStream_t>(stream.release());
    return cudaSuccess;
  });
}

// body(stream) for an existing stream.
template <class F>
Error with_stream(cudaStream_t handle, bool per_thread, F&& body) {
  return api([&](Runtime& runtime) -> Error {
    Stream* stream = runtime.find_stream(handle, per_thread);
    return stream ? body(*stream) : cudaErrorInvalidResourceHandle;
  });
}

template <class F>
Error with_event(cudaEvent_t handle, F&& body) {
  return api([&](Runtime& runtime) -> Error {
    const auto it = runtime.events.find(reinterpret_cast<Event*>(handle));
    return it == runtime.events.end() ? cudaErrorInvalidResourceHandle : body(**it);
  });
}

Error wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags, bool per_thread) {
  return with_event(event, [&](Event&) -> Error {
    if (flags != cudaEventWaitDefault && flags != cudaEventWaitExternal)
      return cudaErrorInvalidValue;
    return on_stream(stream, per_thread, [] { return cudaSuccess; });
  });
}

Error record(cudaEvent_t event, cudaStream_t stream, unsigned flags, bool per_thread) {
  return with_event(event, [&](Event& e) -> Error {
    if (flags != cudaEventRecordDefault && flags != cudaEventRecordExternal)
      return cudaErrorInvalidValue;
    return on_stream(stream, per_thread, [&] {
      e.recorded = true;
      e.time = std::chrono::steady_clock::now();
      return cudaSuccess;
    });
  });
}

Error elapsed(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return api([&](Runtime& runtime) -> Error {
    if (!milliseconds) return cudaErrorInvalidValue;
    const auto from = runtime.events.find(reinterpret_cast<Event*>(start));
    const auto to = runtime.events.find(reinterpret_cast<Event*>(end));
    for (const auto& it : {from, to})
      if (it == runtime.events.end() || !(*it)->recorded || ((*it)->flags & cudaEventDisableTiming))
        return cudaErrorInvalidResourceHandle;
    const std::chrono::duration<float, std::milli> time = (*to)->time - (*from)->time;
    *milliseconds = time.count();
    return cudaSuccess;
  });
}

Error get_attribute(cudaStream_t handle, cudaStreamAttrID attr, cudaStreamAttrValue* value,
                    bool per_thread) {
  return with_stream(handle, per_thread, [&](Stream& stream) -> Error {
    if (!value) return cudaErrorInvalidValue;
    switch (number_of(attr)) {
      case cudaLaunchAttributePriority:
        value->priority = stream.priority;
        return cudaSuccess;
      case cudaLaunchAttributeSynchronizationPolicy:
        value->syncPolicy = stream.sync_policy.syncPolicy;
        return cudaSuccess;
      case cudaLaunchAttributeAccessPolicyWindow:
        value->accessPolicyWindow = stream.window.accessPolicyWindow;
        return cudaSuccess;
      case cudaLaunchAttributeMemSyncDomain:
        value->memSyncDomain = cudaLaunchMemSyncDomainDefault;
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}

Error set_attribute(cudaStream_t handle, cudaStreamAttrID attr, const cudaStreamAttrValue* value,
                    bool per_thread) {
  return with_stream(handle, per_thread, [&](Stream& stream) -> Error {
    if (!value) return cudaErrorInvalidValue;
    switch (number_of(attr)) {
      case cudaLaunchAttributePriority:
        stream.priority = std::clamp(value->priority, kGreatestPriority, 0);
        return cudaSuccess;
      case cudaLaunchAttributeSynchronizationPolicy:
        stream.sync_policy = *value;
        return cudaSuccess;
      case cudaLaunchAttributeAccessPolicyWindow:
        stream.window = *value;
        return cudaSuccess;
      case cudaLaunchAttributeMemSyncDomainMap:
      case cudaLaunchAttributeMemSyncDomain:
        return cudaSuccess;  // about speed only
      default:
        return cudaErrorInvalidValue;
    }
  });
}

Error copy_attributes(cudaStream_t to, cudaStream_t from, bool per_thread) {
  return api([&](Runtime& runtime) -> Error {
    Stream* target = runtime.find_stream(to, per_thread);
    const Stream* source = runtime.find_stream(from, per_thread);
    if (!target || !source) return cudaErrorInvalidResourceHandle;
    target->priority = source->priority;
    target->sync_policy = source->sync_policy;
    target->window = source->window;
    return cudaSuccess;
  });
}

Error synchronize(cudaStream_t handle, bool per_thread) {
  return with_stream(handle, per_thread, [](Stream&) { return cudaSuccess; });
}
Error get_priority(cudaStream_t handle, int* priority, bool per_thread) {
  return with_stream(handle, per_thread, [&](Stream& stream) -> Error {
    if (!priority) return cudaErrorInvalidValue;
    *priority = stream.priority;
    return cudaSuccess;
  });
}
Error get_flags(cudaStream_t handle, unsigned* flags, bool per_thread) {
  return with_stream(handle, per_thread, [&](Stream& stream) -> Error {
    if (!flags) return cudaErrorInvalidValue;
    *flags = stream.flags;
    return cudaSuccess;
  });
}
Error get_id(cudaStream_t handle, unsigned long long* id, bool per_thread) {
  return with_stream(handle, per_thread, [&](Stream& stream) -> Error {
    if (!id) return cudaErrorInvalidValue;
    *id = stream.id;
    return cudaSuccess;
  });
}
Error get_device(cudaStream_t handle, int* device, bool per_thread) {
  return with_stream(handle, per_thread, [&](Stream&) -> Error {
    if (!device) return cudaErrorInvalidValue;
    *device = 0;
    return cudaSuccess;
  });
}
Error is_capturing(cudaStream_t handle, cudaStreamCaptureStatus* status, bool per_thread) {
  return with_stream(handle, per_thread, [&](Stream&) -> Error {
    if (!status) return cudaErrorInvalidValue;
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
  });
}
// No stream captures, so there is no more to tell about it.
Error capture_info(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                   cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                   const cudaGraphEdgeData** edges, std::size_t* number, bool per_thread) {
  const Error error = is_capturing(handle, status, per_thread);
  if (error != cudaSuccess) return error;
  if (id) *id = 0;
  if (graph) *graph = nullptr;
  if (dependencies) *dependencies = nullptr;
  if (edges) *edges = nullptr;
  if (number) *number = 0;
  return cudaSuccess;
}
Error attach(cudaStream_t handle, void* pointer, std::size_t, unsigned flags, bool per_thread) {
  return with_stream(handle, per_thread, [&](Stream&) -> Error {
    const auto allocation = Runtime::get().memory().find(reinterpret_cast<std::uint64_t>(pointer));
    if (!allocation || allocation->kind != MemoryKind::managed) return cudaErrorInvalidValue;
    const bool known =
        flags == cudaMemAttachGlobal || flags == cudaMemAttachHost || flags == cudaMemAttachSingle;
    return known ? cudaSuccess : cudaErrorInvalidValue;
  });
}

}  // namespace
}  // namespace vgpu::runtime

using namespace vgpu::runtime;

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return create_stream(stream, cudaStreamDefault, 0);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return create_stream(stream, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return create_stream(stream, flags, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return api([&](Runtime& runtime) -> Error {
    Stream* stream = reinterpret_cast<Stream*>(handle);
    if (!runtime.streams.erase(stream)) return cudaErrorInvalidResourceHandle;
    delete stream;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return synchronize(stream, false); }
VGPU_API cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream) {
  return synchronize(stream, true);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return synchronize(stream, false); }
VGPU_API cudaError_t cudaStreamQuery_ptsz(cudaStream_t stream) { return synchronize(stream, true); }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return wait_event(stream, event, flags, false);
}
VGPU_API cudaError_t cudaStreamWaitEvent_ptsz(cudaStream_t stream, cudaEvent_t event,
                                              unsigned int flags) {
  return wait_event(stream, event, flags, true);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return get_priority(stream, priority, false);
}
VGPU_API cudaError_t cudaStreamGetPriority_ptsz(cudaStream_t stream, int* priority) {
  return get_priority(stream, priority, true);
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  return get_flags(stream, flags, false);
}
VGPU_API cudaError_t cudaStreamGetFlags_ptsz(cudaStream_t stream, unsigned int* flags) {
  return get_flags(stream, flags, true);
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return get_id(stream, id, false);
}
VGPU_API cudaError_t cudaStreamGetId_ptsz(cudaStream_t stream, unsigned long long* id) {
  return get_id(stream, id, true);
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return get_device(stream, device, false);
}
VGPU_API cudaError_t cudaStreamGetDevice_ptsz(cudaStream_t stream, int* device) {
  return get_device(stream, device, true);
}

cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaStreamAttrID attr,
                                   cudaStreamAttrValue* value) {
  return get_attribute(stream, attr, value, false);
}
VGPU_API cudaError_t cudaStreamGetAttribute_ptsz(cudaStream_t stream, cudaStreamAttrID attr,
                                                 cudaStreamAttrValue* value) {
  return get_attribute(stream, attr, value, true);
}
cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID attr,
                                   const cudaStreamAttrValue* value) {
  return set_attribute(stream, attr, value, false);
}
VGPU_API cudaError_t cudaStreamSetAttribute_ptsz(cudaStream_t stream, cudaStreamAttrID attr,
                                                 const cudaStreamAttrValue* value) {
  return set_attribute(stream, attr, value, true);
}
cudaError_t cudaStreamCopyAttributes(cudaStream_t to, cudaStream_t from) {
  return copy_attributes(to, from, false);
}
VGPU_API cudaError_t cudaStreamCopyAttributes_ptsz(cudaStream_t to, cudaStream_t from) {
  return copy_attributes(to, from, true);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return is_capturing(stream, status, false);
}
VGPU_API cudaError_t cudaStreamIsCapturing_ptsz(cudaStream_t stream,
                                                cudaStreamCaptureStatus* status) {
  return is_capturing(stream, status, true);
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, std::size_t* number) {
  return capture_info(stream, status, id, graph, dependencies, edges, number, false);
}
VGPU_API cudaError_t cudaStreamGetCaptureInfo_ptsz(cudaStream_t stream,
                                                   cudaStreamCaptureStatus* status,
                                                   unsigned long long* id, cudaGraph_t* graph,
                                                   const cudaGraphNode_t** dependencies,
                                                   const cudaGraphEdgeData** edges,
                                                   std::size_t* number) {
  return capture_info(stream, status, id, graph, dependencies, edges, number, true);
}
#else  // toolkits 12 have three of them
#undef cudaStreamGetCaptureInfo
VGPU_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                              unsigned long long* id) {
  return capture_info(stream, status, id, nullptr, nullptr, nullptr, nullptr, false);
}
VGPU_API cudaError_t cudaStreamGetCaptureInfo_ptsz(cudaStream_t stream,
                                                   cudaStreamCaptureStatus* status,
                                                   unsigned long long* id) {
  return capture_info(stream, status, id, nullptr, nullptr, nullptr, nullptr, true);
}
VGPU_API cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream,
                                                 cudaStreamCaptureStatus* status,
                                                 unsigned long long* id, cudaGraph_t* graph,
                                                 const cudaGraphNode_t** dependencies,
                                                 std::size_t* number) {
  return capture_info(stream, status, id, graph, dependencies, nullptr, number, false);
}
VGPU_API cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream,
                                                 cudaStreamCaptureStatus* status,
                                                 unsigned long long* id, cudaGraph_t* graph,
                                                 const cudaGraphNode_t** dependencies,
                                                 const cudaGraphEdgeData** edges,
                                                 std::size_t* number) {
  return capture_info(stream, status, id, graph, dependencies, edges, number, false);
}
#endif

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void* pointer, std::size_t length,
                                     unsigned int flags) {
  return attach(stream, pointer, length, flags, false);
}
VGPU_API cudaError_t cudaStreamAttachMemAsync_ptsz(cudaStream_t stream, void* pointer,
                                                   std::size_t length, unsigned int flags) {
  return attach(stream, pointer, length, flags, true);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned int flags) {
  return api([&](Runtime& runtime) -> Error {
    constexpr unsigned kKnown =
        cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    if (!handle || (flags & ~kKnown)) return cudaErrorInvalidValue;
    if (flags & cudaEventInterprocess) return cudaErrorNotSupported;
    auto event = std::make_unique<Event>();
    event->flags = flags;
    runtime.events.insert(event.get());
    *handle = reinterpret_cast<cudaEvent_t>(event.release());
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return api([&](Runtime& runtime) -> Error {
    Event* event = reinterpret_cast<Event*>(handle);
    if (!runtime.events.erase(event)) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return record(event, stream, cudaEventRecordDefault, false);
}
VGPU_API cudaError_t cudaEventRecord_ptsz(cudaEvent_t event, cudaStream_t stream) {
  return record(event, stream, cudaEventRecordDefault, true);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  return record(event, stream, flags, false);
}
VGPU_API cudaError_t cudaEventRecordWithFlags_ptsz(cudaEvent_t event, cudaStream_t stream,
                                                   unsigned int flags) {
  return record(event, stream, flags, true);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return with_event(event, [](Event&) { return cudaSuccess; });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return cudaEventQuery(event); }

#undef cudaEventElapsedTime
VGPU_API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return elapsed(milliseconds, start, end);
}
VGPU_API cudaError_t cudaEventElapsedTime_v2(float* milliseconds, cudaEvent_t start,
                                             cudaEvent_t end) {
  return elapsed(milliseconds, start, end);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  if (!mode || number_of(*mode) < cudaStreamCaptureModeGlobal ||
      number_of(*mode) > cudaStreamCaptureModeRelaxed)
    return remember(cudaErrorInvalidValue);
  thread_local cudaStreamCaptureMode of_thread = cudaStreamCaptureModeGlobal;
  std::swap(of_thread, *mode);
  return cudaSuccess;
}
