// Streams that record a graph instead of running their work.
#pragma once
#include <set>
#include <thread>

#include "graph.h"

namespace vgpu::runtime {

// Whose unsafe calls a capture forbids: those of all threads, of its own thread, of nobody.
enum class CaptureMode { global, of_thread, relaxed };

// From cudaStreamBeginCapture to cudaStreamEndCapture, with all streams that have joined.
struct Capture {
  unsigned long long id = 0;
  Stream* origin = nullptr;
  CaptureMode mode = CaptureMode::global;
  std::thread::id thread;
  std::shared_ptr<Graph> graph;
  bool to_graph = false;  // the program's own graph: it has its handle already
  bool invalid = false;   // something went wrong; EndCapture will say so
  bool ended = false;
  std::set<Stream*> streams;   // `origin`, too
  std::vector<Node*> orphans;  // last nodes of streams that were destroyed
  // Adds a node behind what the stream has recorded.
  Node* add(Stream& stream, Operation operation);
};

// The mode of this thread (cudaThreadExchangeStreamCaptureMode).
CaptureMode& thread_capture_mode();

// The capture that the stream takes part in, null when it runs its work.
Capture* capture_of(const Stream& stream);

// For calls that may not be made while somebody captures. Each returns success, or the error and
// leaves the captures concerned invalid.
Status refuse_unsafe(Runtime& runtime);           // cudaMalloc and so on
Status refuse_while_capturing(Runtime& runtime);  // anywhere on the device
Status refuse_captured(const Stream& stream);     // this stream
Status refuse_captured(const Event& event);
// The legacy default stream would wait for a blocking stream that captures.
Status refuse_implicit(Runtime& runtime, const Stream& stream);

// Event record and wait while a stream captures. They return false when no capture takes part: then
// the caller handles the call as an ordinary one. `status` is the outcome when they return true.
bool capture_record(Runtime& runtime, Stream& stream, Event& event, Handle handle, bool external,
                    Status& status);
bool capture_wait(Runtime& runtime, Stream& stream, Event& event, Handle handle, bool external,
                  Status& status);
void leave_capture(Stream& stream);  // it is destroyed

}  // namespace vgpu::runtime
