// What streams and graphs are made of: kernels, copies, fills, host functions and so on, each with
// everything it needs, so that it can run at once, or later and as often as one likes.
#pragma once
#include <any>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "runtime.h"

namespace vgpu::runtime {

struct Graph;

struct KernelOp {
  Kernel* kernel = nullptr;
  const void* function = nullptr;  // as the program named it
  LaunchConfig config;
  std::vector<std::byte> params;  // as Function::params has them
  std::map<int, Hint> hints;      // by number of the attribute
  std::vector<void*> pointers;    // into `params`, for who asks
};
// Which ends of a copy are memory of the device. Kinds of copies are kept as numbers, since a program
// may ask for one that does not exist.
enum CopyKind : int { kHostToHost, kHostToDevice, kDeviceToHost, kDeviceToDevice, kByPointer };
// One end of a copy: where the box begins in an array of rows.
struct CopyEnd {
  void* pointer = nullptr;
  std::size_t pitch = 0;                // bytes from row to row
  std::size_t row_bytes = 0, rows = 0;  // a slice's size, as the program gave it
  std::size_t x = 0, y = 0, z = 0;      // bytes, rows, slices
  void* array = nullptr;                // a texture's array, which is refused
  std::byte* bytes = nullptr;           // where a symbol's bytes are, when it is one
};
struct CopyOp {
  CopyEnd dst, src;
  std::size_t width = 0, height = 0, depth = 0;  // the box's size; width in bytes
  int kind = kHostToHost;
};
struct FillOp {
  void* pointer = nullptr;
  std::size_t pitch = 0;
  unsigned value = 0, element_bytes = 0;
  std::size_t width = 0, height = 0;  // width in elements
  std::size_t depth = 1, slice_rows = 0;
};
struct HostOp {
  void (*function)(void*) = nullptr;
  void* data = nullptr;
  std::function<void()> callback;  // a stream callback, instead of `function`; not for graphs
};
struct ChildOp {
  std::shared_ptr<Graph> graph;
};
struct EmptyOp {};
struct WaitOp {
  Handle event = nullptr;
};
struct RecordOp {
  Handle event = nullptr;
};
// The address is reserved when the node is made; there is memory at it from the node's run on.
struct AllocOp {
  void* pointer = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<Allocation> place;
  std::any properties;  // what the face was asked for, to be given back; empty: as for any memory
};
struct FreeOp {
  void* pointer = nullptr;
};
using Operation = std::variant<KernelOp, CopyOp, FillOp, HostOp, ChildOp, EmptyOp, WaitOp, RecordOp,
                               AllocOp, FreeOp>;

// "scale", "a memcpy node": what messages call it in a graph.
std::string name_of(const Operation& operation);

// Can it run, as far as one can tell before? For operations that are put into a graph.
Status check(const Operation& operation);
// Runs it. Not for HostOp and ChildOp, which need the lock to be let go (call_host, graph.h).
Status run(const Operation& operation);
void call_host(const HostOp& operation);

// copy.cpp
Status copy(const CopyOp& operation);
Status fill(const FillOp& operation);
CopyOp make_copy(void* dst, std::size_t dst_pitch, const void* src, std::size_t src_pitch,
                 std::size_t width, std::size_t height, int kind);
// `other` and `count` bytes of a symbol from `offset` on.
Status make_symbol_copy(const void* symbol, std::size_t offset, std::size_t count,
                        const void* other, bool to_symbol, int kind, CopyOp& out);
// Does the host wait for it, whatever the call is: is memory of the host that is not pinned
// written, or does nothing leave the host? And of the calls that say they are synchronous, does it wait for this
// one? (Managed memory is neither the host's nor the device's alone.)
bool writes_pageable(const CopyOp& operation);
bool reads_pageable(const CopyOp& operation);
bool between_host_memory(const CopyOp& operation);
bool between_device_memory(const CopyOp& operation);

// An address for memory that a graph will allocate at each launch.
Status make_alloc(std::size_t size, AllocOp& out);

// The kernel of a launch, with its arguments copied. `args` may be null for none.
Status make_kernel(const void* function, const LaunchConfig& config, void** args, KernelOp& out);

// stream.cpp: how work gets into a stream.
struct Call {
  const char* name;          // "cudaMemcpyAsync", for messages and the timeline
  bool synchronous = false;  // a call like cudaMemcpy, without "Async"
};
std::string stream_text(const Stream& stream);  // "stream 3", for messages
// Runs the operation in stream order, or adds it to the graph that the stream records. A HostOp is
// left to the caller to run, outside the lock, unless `captured` comes back true.
Status submit(Handle stream, bool per_thread, Operation operation, const Call& call,
              bool* captured = nullptr);

// The part of submit() that keeps the order: `body` runs as an operation of the stream. `programmatic`: it
// is a launch that may begin before the kernel in front of it has ended.
template <class F>
Status run_ordered(Stream& stream, std::string name, F&& body, bool programmatic = false) {
  Runtime& runtime = Runtime::get();
  if (!runtime.order) return body();
  if (stream.timeline == 0) stream.timeline = runtime.order->new_timeline();
  const std::string where = stream_text(stream);
  runtime.order->begin(stream.timeline, runtime.before(stream), runtime.host, std::move(name),
                       "in " + where, {0, where, stream.priority, 0});
  StreamCheck* const check = runtime.order->check.get();
  Stream::Ahead now{runtime.before(stream), {}};
  if (check && stream.waited_in_vain)
    check->add_hint("; " + where +
                    " has waited for an event that nobody had recorded, which orders "
                    "nothing: record it first");
  if (check && programmatic && stream.ahead) {
    now.begun = runtime.before(stream, stream.ahead->begun);
    check->begin_early(now.begun, runtime.before(stream, stream.ahead->over));
  }
  const Status status = body();
  const bool triggers = check && check->dependence().triggers;
  if (check) now.over = check->over();
  stream.clock.join(runtime.order->end(status == Status::success));
  stream.ahead.reset();
  if (triggers) stream.ahead = std::move(now);
  return status;
}

}  // namespace vgpu::runtime
