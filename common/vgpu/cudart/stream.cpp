// Streams and events. Work runs at the call that submits it, so everything in a stream has always
// ended; events take the host's clock, so an elapsed time is the time that the virtual GPU took. What
// orders what on a GPU is kept all the same, for the check of streams. Capture: capture.cpp.
#include <algorithm>

#include "../runtime/capture.h"
#include "face.h"

namespace vgpu::cudart {
namespace {

constexpr int kGreatestPriority = -5;

Error create_stream(cudaStream_t* handle, unsigned flags, int priority) {
  return api([&](Runtime& runtime) -> Error {
    if (!handle || (flags != cudaStreamDefault && flags != cudaStreamNonBlocking))
      return cudaErrorInvalidValue;
    const HostCall call(runtime, "cudaStreamCreate", timeline_us::kObject);
    auto stream = std::make_unique<Stream>(runtime.next_stream_id++);
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
    Event* event = runtime.find_event(handle);
    return event ? body(*event) : cudaErrorInvalidResourceHandle;
  });
}

Error wait_event(cudaStream_t handle, cudaEvent_t event, unsigned flags, bool per_thread) {
  return with_event(event, [&](Event& e) -> Error {
    Runtime& runtime = Runtime::get();
    if (flags != cudaEventWaitDefault && flags != cudaEventWaitExternal)
      return cudaErrorInvalidValue;
    Stream* stream = runtime.find_stream(handle, per_thread);
    if (!stream) return cudaErrorInvalidResourceHandle;
    const HostCall call(runtime, "cudaStreamWaitEvent", timeline_us::kCall);
    Status status;
    if (capture_wait(runtime, *stream, e, event, flags == cudaEventWaitExternal, status))
      return status;
    if (!runtime.order) return cudaSuccess;
    // An event that was never recorded orders nothing.
    Clock clock = runtime.before(*stream);
    if (e.recorded) clock.join(e.clock);
    stream->waited_in_vain = !e.recorded;
    stream->ahead.reset();
    stream->clock = std::move(clock);
    return cudaSuccess;
  });
}

Error record(cudaEvent_t event, cudaStream_t handle, unsigned flags, bool per_thread) {
  return with_event(event, [&](Event& e) -> Error {
    Runtime& runtime = Runtime::get();
    if (flags != cudaEventRecordDefault && flags != cudaEventRecordExternal)
      return cudaErrorInvalidValue;
    Stream* stream = runtime.find_stream(handle, per_thread);
    if (!stream) return cudaErrorInvalidResourceHandle;
    const HostCall call(runtime, "cudaEventRecord", timeline_us::kCall);
    Status status;
    if (capture_record(runtime, *stream, e, event, flags == cudaEventRecordExternal, status))
      return status;
    e.capture.reset();
    e.recorded = true;
    e.time = std::chrono::steady_clock::now();
    if (runtime.order) e.clock = stream->clock = runtime.before(*stream);
    stream->ahead.reset();
    return cudaSuccess;
  });
}

// cudaEventQuery and cudaEventSynchronize. The event is always over. The check of streams notes that the
// host now knows this of the event and of all that came before it; on the timeline it has waited for it.
Error query_event(const char* name, cudaEvent_t handle) {
  return with_event(handle, [&](Event& event) -> Error {
    Runtime& runtime = Runtime::get();
    const HostCall call(runtime, name, timeline_us::kCall);
    for (const Error error : {refuse_captured(event), refuse_unsafe(runtime)})
      if (error != cudaSuccess) return error;
    if (event.recorded) runtime.host_waits(event.clock);
    return cudaSuccess;
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
    // A GPU says so only of events that are over.
    for (const auto& it : {from, to}) runtime.host.join((*it)->clock);
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
        value->syncPolicy = hint(stream.hints, number_of(attr)).syncPolicy;
        return cudaSuccess;
      case cudaLaunchAttributeAccessPolicyWindow:
        value->accessPolicyWindow = hint(stream.hints, number_of(attr)).accessPolicyWindow;
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
      case cudaLaunchAttributeAccessPolicyWindow:
        set_hint(stream.hints, number_of(attr), *value);
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
    target->hints = source->hints;
    return cudaSuccess;
  });
}

// cudaStreamSynchronize and cudaStreamQuery, as for events.
Error synchronize(const char* name, cudaStream_t handle, bool per_thread) {
  return with_stream(handle, per_thread, [&](Stream& stream) -> Error {
    Runtime& runtime = Runtime::get();
    const HostCall call(runtime, name, timeline_us::kCall);
    for (const Error error : {refuse_implicit(runtime, stream), refuse_captured(stream)})
      if (error != cudaSuccess) return error;
    if (runtime.order) runtime.host_waits(runtime.before(stream));
    return cudaSuccess;
  });
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
}  // namespace vgpu::cudart

using namespace vgpu::cudart;

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
    const HostCall call(runtime, "cudaStreamDestroy", vgpu::timeline_us::kObject);
    leave_capture(*stream);
    if (runtime.order && stream->blocking()) runtime.gone.join(stream->clock);
    delete stream;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return synchronize("cudaStreamSynchronize", stream, false);
}
VGPU_API cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream) {
  return synchronize("cudaStreamSynchronize", stream, true);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return synchronize("cudaStreamQuery", stream, false);
}
VGPU_API cudaError_t cudaStreamQuery_ptsz(cudaStream_t stream) {
  return synchronize("cudaStreamQuery", stream, true);
}

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

cudaError_t cudaEventQuery(cudaEvent_t event) { return query_event("cudaEventQuery", event); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return query_event("cudaEventSynchronize", event);
}

#undef cudaEventElapsedTime
VGPU_API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return elapsed(milliseconds, start, end);
}
VGPU_API cudaError_t cudaEventElapsedTime_v2(float* milliseconds, cudaEvent_t start,
                                             cudaEvent_t end) {
  return elapsed(milliseconds, start, end);
}
