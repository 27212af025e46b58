// What streams and graphs are made of: kernels, copies, fills, host functions and so on, each with
// everything it needs, so that it can run at once, or later and as often as one likes.
#pragma once
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
  std::vector<std::byte> params;                       // as Function::params has them
  std::map<int, cudaLaunchAttributeValue> attributes;  // hints, only remembered
  std::vector<void*> pointers;                         // into `params`, for who asks
};
// Boxes of bytes. `dst_bytes` and `src_bytes`: where a symbol's bytes are, when it is one.
struct CopyOp {
  cudaMemcpy3DParms box{};
  std::byte *dst_bytes = nullptr, *src_bytes = nullptr;
};
struct FillOp {
  cudaMemsetParams box{};
  std::size_t depth = 1, slice_rows = 0;
};
struct HostOp {
  cudaHostFn_t function = nullptr;
  void* data = nullptr;
  cudaStreamCallback_t callback = nullptr;  // cudaStreamAddCallback's, instead of `function`
  cudaStream_t stream = nullptr;
};
struct ChildOp {
  std::shared_ptr<Graph> graph;
};
struct EmptyOp {};
struct WaitOp {
  cudaEvent_t event = nullptr;
};
struct RecordOp {
  cudaEvent_t event = nullptr;
};
// The address is reserved when the node is made; there is memory at it from the node's run on.
struct AllocOp {
  cudaMemAllocNodeParams params{};
  std::shared_ptr<Allocation> place;
};
struct FreeOp {
  void* pointer = nullptr;
};
// In the order of cudaGraphNodeType, see type_of.
using Operation = std::variant<KernelOp, CopyOp, FillOp, HostOp, ChildOp, EmptyOp, WaitOp, RecordOp,
                               AllocOp, FreeOp>;

cudaGraphNodeType type_of(const Operation& operation);
// "scale", "a memcpy node": what messages call it in a graph.
std::string name_of(const Operation& operation);

// Can it run, as far as one can tell before? For operations that are put into a graph.
Error check(const Operation& operation);
// Runs it. Not for HostOp and ChildOp, which need the lock to be let go (call_host, graph.h).
Error run(const Operation& operation);
void call_host(const HostOp& operation);

// copy.cpp
Error copy(const CopyOp& operation);
Error fill(const FillOp& operation);
CopyOp make_copy(void* dst, std::size_t dst_pitch, const void* src, std::size_t src_pitch,
                 std::size_t width, std::size_t height, int kind);
// `other` and `count` bytes of a symbol from `offset` on.
Error make_symbol_copy(const void* symbol, std::size_t offset, std::size_t count, const void* other,
                       bool to_symbol, int kind, CopyOp& out);
// Does the host wait for it, whatever the call is: is memory of the host that is not pinned
// written? And of the calls that say they are synchronous, does it wait for this one?
bool writes_pageable(const CopyOp& operation);
bool between_device_memory(const CopyOp& operation);

// An address for memory that a graph will allocate at each launch.
Error make_alloc(std::size_t size, AllocOp& out);

// The kernel of a launch, with its arguments copied. `args` may be null for none.
Error make_kernel(const void* function, const LaunchConfig& config, void** args, KernelOp& out);

// stream.cpp: how work gets into a stream.
struct Call {
  const char* name;          // "cudaMemcpyAsync", for messages
  bool synchronous = false;  // a call like cudaMemcpy, without "Async"
};
std::string stream_text(const Stream& stream);  // "stream 3", for messages
// Runs the operation in stream order, or adds it to the graph that the stream records. A HostOp is
// left to the caller to run, outside the lock, unless `captured` comes back true.
Error submit(cudaStream_t stream, bool per_thread, Operation operation, const Call& call,
             bool* captured = nullptr);

// The part of submit() that keeps the order: `body` runs as an operation of the stream.
template <class F>
Error run_ordered(Stream& stream, std::string name, F&& body) {
  Runtime& runtime = Runtime::get();
  if (!runtime.order) return body();
  if (stream.timeline == 0) stream.timeline = runtime.order->new_timeline();
  runtime.order->begin(stream.timeline, runtime.before(stream), runtime.host, std::move(name),
                       "in " + stream_text(stream));
  const Error error = body();
  stream.clock = runtime.order->end();
  return error;
}

}  // namespace vgpu::runtime
