#include "capture.h"

#include <algorithm>

namespace vgpu::runtime {
namespace {

void invalidate(Capture& capture) { capture.invalid = true; }

}  // namespace

CaptureMode& thread_capture_mode() {
  thread_local CaptureMode mode = CaptureMode::global;
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

Status refuse_unsafe(Runtime& runtime) {
  const CaptureMode own = thread_capture_mode();
  if (own == CaptureMode::relaxed) return Status::success;
  Status status = Status::success;
  for (const auto& capture : runtime.captures) {
    const bool here =
        capture->thread == std::this_thread::get_id() && capture->mode != CaptureMode::relaxed;
    const bool anywhere = own == CaptureMode::global && capture->mode == CaptureMode::global;
    if (!here && !anywhere) continue;
    invalidate(*capture);
    status = Status::capture_unsupported;
  }
  return status;
}

Status refuse_while_capturing(Runtime& runtime) {
  for (const auto& capture : runtime.captures) invalidate(*capture);
  return runtime.captures.empty() ? Status::success : Status::capture_unsupported;
}

Status refuse_captured(const Stream& stream) {
  Capture* capture = capture_of(stream);
  if (!capture) return Status::success;
  const bool was_invalid = capture->invalid;
  invalidate(*capture);
  return was_invalid ? Status::capture_invalidated : Status::capture_unsupported;
}

Status refuse_captured(const Event& event) {
  if (!event.capture || event.capture->ended) return Status::success;
  invalidate(*event.capture);
  return Status::captured_event;
}

Status refuse_implicit(Runtime& runtime, const Stream& stream) {
  if (!stream.legacy()) return Status::success;
  Status status = Status::success;
  for (const auto& capture : runtime.captures)
    if (std::any_of(capture->streams.begin(), capture->streams.end(),
                    [](const Stream* s) { return s->blocking(); })) {
      invalidate(*capture);
      status = Status::capture_implicit;
    }
  return status;
}

bool capture_record(Runtime& runtime, Stream& stream, Event& event, Handle handle, bool external,
                    Status& status) {
  status = refuse_implicit(runtime, stream);
  if (status != Status::success) return true;
  Capture* capture = capture_of(stream);
  if (!capture) return false;
  if (capture->invalid) {
    status = Status::capture_invalidated;
  } else if (external) {
    capture->add(stream, RecordOp{handle});
  } else {
    event.capture = stream.capture;
    event.tips = stream.tips;
  }
  return true;
}

bool capture_wait(Runtime& runtime, Stream& stream, Event& event, Handle handle, bool external,
                  Status& status) {
  Capture* own = capture_of(stream);
  Capture* of_event = event.capture && !event.capture->ended ? event.capture.get() : nullptr;
  status = refuse_implicit(runtime, stream);
  if (status != Status::success) return true;
  if (!own && !of_event) return false;
  const auto fail = [&](Status why) {
    if (own) invalidate(*own);
    if (of_event) invalidate(*of_event);
    status = why;
    return true;
  };
  if ((own && own->invalid) || (of_event && of_event->invalid))
    return fail(Status::capture_invalidated);
  if (external && own) {
    own->add(stream, WaitOp{handle});
    return true;
  }
  if (!of_event) return fail(Status::capture_isolation);
  if (own && own != of_event) return fail(Status::capture_merge);
  if (stream.legacy()) return fail(Status::capture_implicit);
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
