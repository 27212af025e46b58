#include "capture.h"

#include <algorithm>

namespace vgpu::runtime {
namespace {

void invalidate(Capture& capture) { capture.invalid = true; }

}  // namespace

cudaStreamCaptureMode& thread_capture_mode() {
  thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

Node* Capture::add(Stream& stream, Operation operation) {
  Node* node = graph->add(std::move(operation), stream.tips);
  stream.tips = {node};
  return node;
}

Capture* capture_of(const Stream& stream) {
  return stream.capture && !stream.capture->ended ? stream.capture.get() : nullptr;
}

Error refuse_unsafe(Runtime& runtime) {
  const cudaStreamCaptureMode own = thread_capture_mode();
  if (own == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  Error error = cudaSuccess;
  for (const auto& capture : runtime.captures) {
    const bool here = capture->thread == std::this_thread::get_id() &&
                      capture->mode != cudaStreamCaptureModeRelaxed;
    const bool anywhere =
        own == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (!here && !anywhere) continue;
    invalidate(*capture);
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

Error refuse_while_capturing(Runtime& runtime) {
  for (const auto& capture : runtime.captures) invalidate(*capture);
  return runtime.captures.empty() ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

Error refuse_captured(const Stream& stream) {
  Capture* capture = capture_of(stream);
  if (!capture) return cudaSuccess;
  const bool was_invalid = capture->invalid;
  invalidate(*capture);
  return was_invalid ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnsupported;
}

Error refuse_captured(const Event& event) {
  if (!event.capture || event.capture->ended) return cudaSuccess;
  invalidate(*event.capture);
  return cudaErrorCapturedEvent;
}

Error refuse_implicit(Runtime& runtime, const Stream& stream) {
  if (!stream.legacy()) return cudaSuccess;
  Error error = cudaSuccess;
  for (const auto& capture : runtime.captures)
    if (std::any_of(capture->streams.begin(), capture->streams.end(),
                    [](const Stream* s) { return s->blocking(); })) {
      invalidate(*capture);
      error = cudaErrorStreamCaptureImplicit;
    }
  return error;
}

bool capture_record(Runtime& runtime, Stream& stream, Event& event, cudaEvent_t handle,
                    bool external, Error& error) {
  error = refuse_implicit(runtime, stream);
  if (error != cudaSuccess) return true;
  Capture* capture = capture_of(stream);
  if (!capture) return false;
  if (capture->invalid) {
    error = cudaErrorStreamCaptureInvalidated;
  } else if (external) {
    capture->add(stream, RecordOp{handle});
  } else {
    event.capture = stream.capture;
    event.tips = stream.tips;
  }
  return true;
}

bool capture_wait(Runtime& runtime, Stream& stream, Event& event, cudaEvent_t handle, bool external,
                  Error& error) {
  Capture* own = capture_of(stream);
  Capture* of_event = event.capture && !event.capture->ended ? event.capture.get() : nullptr;
  error = refuse_implicit(runtime, stream);
  if (error != cudaSuccess) return true;
  if (!own && !of_event) return false;
  const auto fail = [&](Error why) {
    if (own) invalidate(*own);
    if (of_event) invalidate(*of_event);
    error = why;
    return true;
  };
  if ((own && own->invalid) || (of_event && of_event->invalid))
    return fail(cudaErrorStreamCaptureInvalidated);
  if (external && own) {
    own->add(stream, WaitOp{handle});
    return true;
  }
  if (!of_event) return fail(cudaErrorStreamCaptureIsolation);
  if (own && own != of_event) return fail(cudaErrorStreamCaptureMerge);
  if (stream.legacy()) return fail(cudaErrorStreamCaptureImplicit);
  if (!own) {
    stream.capture = event.capture;
    stream.tips.clear();
    of_event->streams.insert(&stream);
  }
  for (Node* node : event.tips)
    if (find_node(node))
      if (std::find(stream.tips.begin(), stream.tips.end(), node) == stream.tips.end())
        stream.tips.push_back(node);
  return true;
}

void leave_capture(Stream& stream) {
  const std::shared_ptr<Capture> keep = stream.capture;
  Capture* capture = capture_of(stream);
  if (!capture) return;
  if (capture->origin == &stream) {
    capture->ended = true;
    std::erase_if(Runtime::get().captures, [&](const auto& c) { return c.get() == capture; });
    for (Stream* other : capture->streams)
      if (other != &stream) {
        other->tips.clear();
        if (other->capture.get() == capture) other->capture.reset();
      }
  } else {
    capture->streams.erase(&stream);
    capture->orphans.insert(capture->orphans.end(), stream.tips.begin(), stream.tips.end());
  }
}

}  // namespace vgpu::runtime
