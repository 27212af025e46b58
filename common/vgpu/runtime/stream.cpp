// How work gets into a stream: it runs at the call that submits it, or becomes a node of the graph
// that the stream records. The order in which operations happen on a GPU is noted for those who want
// to know it (order.h).
#include <algorithm>

#include "capture.h"
#include "operation.h"

namespace vgpu::runtime {
namespace {

template <class... F>
struct Cases : F... {
  using F::operator()...;
};
template <class... F>
Cases(F...) -> Cases<F...>;

bool is_pinned_or_managed(const void* pointer) {
  const auto a = Runtime::get().memory().find(reinterpret_cast<std::uint64_t>(pointer));
  return a && (a->kind == MemoryKind::pinned || a->kind == MemoryKind::managed);
}

// A copy from memory that is not pinned goes through a staging buffer: the call returns when the last
// piece is in it. The timeline takes the end of the copy for that.
bool is_staged_in_pieces(const Operation& operation) {
  const auto* copy = std::get_if<CopyOp>(&operation);
  return copy && reads_pageable(*copy) && copy->width * copy->height * copy->depth > kStagedBytes;
}

// cudaMemcpy to the device from memory that is not pinned returns when its last part is in a staging buffer.
// Only VGPU_CHECK=host holds that against a program.
bool waits_for_all_but_the_last_part(const Operation& operation, const Call& call) {
  return Runtime::get().settings.host && call.synchronous && is_staged_in_pieces(operation) &&
         !writes_pageable(std::get<CopyOp>(operation));
}

// Does the call return only when the work is done?
bool host_waits_for(const Operation& operation, const Call& call) {
  if (waits_for_all_but_the_last_part(operation, call)) return false;
  if (const auto* copy = std::get_if<CopyOp>(&operation))
    return writes_pageable(*copy) || between_host_memory(*copy) ||
           (call.synchronous && !between_device_memory(*copy));
  if (const auto* fill = std::get_if<FillOp>(&operation))
    return call.synchronous && is_pinned_or_managed(fill->pointer);
  return false;
}

}  // namespace

std::string name_of(const Operation& operation) {
  constexpr const char* kNames[] = {"",
                                    "a memcpy node",
                                    "a memset node",
                                    "a host node",
                                    "a child graph",
                                    "an empty node",
                                    "an event wait node",
                                    "an event record node",
                                    "a memory allocation node",
                                    "a memory free node"};
  if (const auto* kernel = std::get_if<KernelOp>(&operation))
    return display_name(kernel->kernel->name);
  return kNames[operation.index()];
}

Status make_kernel(const void* function, const LaunchConfig& config, void** args, KernelOp& out) {
  Kernel* kernel = Runtime::get().find_kernel(function);
  if (!kernel) return Status::invalid_device_function;
  if (const Status status = load_kernel(*kernel); status != Status::success) return status;
  out.kernel = kernel;
  out.function = function;
  out.config = config;
  const Function& f = *kernel->function;
  out.params.assign(f.param_bytes, std::byte{0});
  if (!f.params.empty() && !args) return Status::invalid_value;
  for (std::size_t i = 0; i < f.params.size(); ++i) {
    const Param& param = f.params[i];
    if (!args[i] || param.offset > f.param_bytes || param.size > f.param_bytes - param.offset)
      return Status::invalid_value;
    std::memcpy(out.params.data() + param.offset, args[i], param.size);
  }
  return Status::success;
}

Status check(const Operation& operation) {
  Runtime& runtime = Runtime::get();
  if (const auto* kernel = std::get_if<KernelOp>(&operation)) {
    if (!runtime.kernels.contains(kernel->kernel)) return Status::invalid_device_function;
    return check_launch(*kernel->kernel, kernel->config);
  }
  if (const auto* wait = std::get_if<WaitOp>(&operation))
    return runtime.find_event(wait->event) ? Status::success : Status::invalid_value;
  if (const auto* record = std::get_if<RecordOp>(&operation))
    return runtime.find_event(record->event) ? Status::success : Status::invalid_value;
  return Status::success;
}

Status run(const Operation& operation) {
  Runtime& runtime = Runtime::get();
  if (runtime.host_guard) runtime.host_guard->lift();
  const auto touch_all = [&](const std::shared_ptr<Allocation>& a) {
    if (runtime.order) runtime.order->touch(a, 0, a->size, Touch::write);
  };
  return std::visit(
      Cases{[&](const KernelOp& op) -> Status {
              // The library of a graph's kernel may have been unloaded since.
              if (!runtime.kernels.contains(op.kernel)) return Status::invalid_device_function;
              return launch(*op.kernel, op.config, op.params);
            },
            [](const CopyOp& op) { return copy(op); }, [](const FillOp& op) { return fill(op); },
            [&](const RecordOp& op) -> Status {
              Event* event = runtime.find_event(op.event);
              if (!event) return Status::invalid_handle;
              event->recorded = true;
              event->time = std::chrono::steady_clock::now();
              event->capture.reset();
              return Status::success;
            },
            [&](const AllocOp& op) -> Status {
              if (op.bytes == 0) return Status::success;
              const auto fresh = runtime.memory().revive(*op.place);
              if (!fresh) return Status::out_of_memory;
              runtime.graph_memory[fresh->base] = fresh->size;
              runtime.graph_memory_used += fresh->size;
              runtime.graph_memory_high =
                  std::max(runtime.graph_memory_high, runtime.graph_memory_used);
              touch_all(fresh);
              return Status::success;
            },
            [&](const FreeOp& op) -> Status {
              const auto address = reinterpret_cast<std::uint64_t>(op.pointer);
              if (const auto a = runtime.memory().find(address); a && a->base == address)
                touch_all(a);
              return release_memory(runtime, op.pointer);
            },
            [](const auto&) -> Status { return Status::success; }},
      operation);
}

void call_host(const HostOp& operation) {
  struct Mark {
    Mark() { in_callback() = true; }
    ~Mark() { in_callback() = false; }
  } mark;
  if (operation.callback)
    operation.callback();
  else
    operation.function(operation.data);
}

Status submit(Handle handle, bool per_thread, Operation operation, const Call& call,
              bool* captured) {
  Runtime& runtime = Runtime::get();
  Stream* stream = runtime.find_stream(handle, per_thread);
  if (!stream) return Status::invalid_handle;
  const HostCall host_call(
      runtime, call.name,
      std::holds_alternative<KernelOp>(operation) ? timeline_us::kLaunch : timeline_us::kSubmit);
  if (const Status status = refuse_implicit(runtime, *stream); status != Status::success)
    return status;
  if (call.synchronous) {
    if (const Status status = refuse_captured(*stream); status != Status::success) return status;
    if (const Status status = refuse_unsafe(runtime); status != Status::success) return status;
  }
  const auto* const kernel = std::get_if<KernelOp>(&operation);
  const bool programmatic = kernel && kernel->config.programmatic;
  if (Capture* capture = capture_of(*stream)) {
    if (programmatic && runtime.order && runtime.order->check)
      say_once(
          "programmatic capture",
          "a graph captures a launch with cudaLaunchAttributeProgrammaticStreamSerialization: the "
          "graph runs it after the kernel in front of it, and no check looks for a missing "
          "cudaGridDependencySynchronize() there");
    if (capture->invalid) return Status::capture_invalidated;
    const auto* host = std::get_if<HostOp>(&operation);
    if (host && host->callback) return refuse_captured(*stream);  // cudaStreamAddCallback
    if (const Status status = check(operation); status != Status::success) return status;
    capture->add(*stream, std::move(operation));
    if (captured) *captured = true;
    return Status::success;
  }
  if (!runtime.order) return run(operation);
  std::string name = kernel ? name_of(operation) : call.name;
  if (waits_for_all_but_the_last_part(operation, call)) {
    runtime.host.join(runtime.before(*stream));
    name += " (from memory that is not pinned: it returns before its last part is there)";
  }
  const Status status = run_ordered(
      *stream, std::move(name), [&] { return run(operation); }, programmatic);
  if (runtime.host_guard && std::holds_alternative<HostOp>(operation))
    runtime.host_guard->forget_all();
  if (host_waits_for(operation, call)) runtime.host_waits(stream->clock);
  if (is_staged_in_pieces(operation)) runtime.order->host_waits(stream->clock);
  return status;
}

std::string stream_text(const Stream& stream) {
  if (stream.legacy()) return "the default stream";
  if (stream.id == 2) return "a thread's default stream";
  return "stream " + std::to_string(stream.id) +
         (stream.flags & Stream::kNonBlocking ? " (non-blocking)" : "");
}

}  // namespace vgpu::runtime
