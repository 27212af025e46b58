// Executable graphs: made, changed, launched.
#include "../runtime/capture.h"
#include "graph.h"

namespace vgpu::cudart {
namespace {

// body(exec)
template <class F>
Error with_exec(cudaGraphExec_t handle, F&& body) {
  return api([&](Runtime& runtime) -> Error {
    const auto it = runtime.execs.find(handle);
    return it == runtime.execs.end() ? cudaErrorInvalidValue : body(*it->second);
  });
}
// body(exec, own node) for a node of the graph that it was made from.
template <class F>
Error with_exec_node(cudaGraphExec_t exec, cudaGraphNode_t node, F&& body) {
  return with_exec(exec, [&](Exec& e) -> Error {
    const auto it = e.of.find(find_node(node));
    return it == e.of.end() ? cudaErrorInvalidValue : body(e, *it->second);
  });
}

constexpr unsigned long long kKnownFlags =
    cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUpload |
    cudaGraphInstantiateFlagDeviceLaunch | cudaGraphInstantiateFlagUseNodePriority;

Error instantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags,
                  const Node** culprit) {
  return with_graph(graph, [&](Runtime& runtime, Graph& g) -> Error {
    if (!out || (flags & ~kKnownFlags)) return cudaErrorInvalidValue;
    *out = nullptr;
    const HostCall call(runtime, "cudaGraphInstantiate", timeline_us::kInstantiate);
    if (flags & cudaGraphInstantiateFlagDeviceLaunch) {
      say("cudaGraphInstantiateFlagDeviceLaunch is not supported by the virtual GPU");
      return cudaErrorNotSupported;
    }
    auto exec = std::make_shared<Exec>();
    exec->flags = flags;
    if (const Error error = exec->make(g, culprit); error != cudaSuccess) return error;
    *out = reinterpret_cast<cudaGraphExec_t>(exec.get());
    runtime.execs[exec.get()] = std::move(exec);
    return cudaSuccess;
  });
}

Error instantiate_with(cudaGraphExec_t* out, cudaGraph_t graph, cudaGraphInstantiateParams* params,
                       bool per_thread) {
  if (!params) return remember(cudaErrorInvalidValue);
  const Node* culprit = nullptr;
  const Error error = instantiate(out, graph, params->flags, &culprit);
  params->errNode_out = handle(culprit);
  params->result_out = error == cudaSuccess ? cudaGraphInstantiateSuccess
                       : culprit && error == cudaErrorInvalidValue
                           ? cudaGraphInstantiateInvalidStructure
                           : cudaGraphInstantiateError;
  if (error == cudaSuccess && (params->flags & cudaGraphInstantiateFlagUpload))
    return api([&](Runtime& runtime) -> Error {
      return runtime.find_stream(params->uploadStream, per_thread) ? cudaSuccess
                                                                   : cudaErrorInvalidResourceHandle;
    });
  return error;
}

// make(operation) fills what a node of an executable graph becomes.
template <class F>
Error set(cudaGraphExec_t exec, cudaGraphNode_t node, F&& make) {
  return with_exec_node(exec, node, [&](Exec& e, Node& own) -> Error {
    Operation operation;
    if (const Error error = make(operation); error != cudaSuccess) return error;
    if (own.operation.index() != operation.index()) return cudaErrorInvalidValue;
    if (const auto* old = std::get_if<KernelOp>(&own.operation)) {
      auto& fresh = std::get<KernelOp>(operation);
      fresh.hints = old->hints;
      fresh.config.cluster = old->config.cluster;
      fresh.config.cooperative = old->config.cooperative;
    }
    return e.replace(own, operation) == UpdateResult::success ? cudaSuccess : cudaErrorInvalidValue;
  });
}

Error set_event(cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event, bool record) {
  return set(exec, node, [&](Operation& op) -> Error {
    if (!Runtime::get().find_event(event)) return cudaErrorInvalidValue;
    if (record)
      op = RecordOp{event};
    else
      op = WaitOp{event};
    return cudaSuccess;
  });
}

Error set_child(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child) {
  return with_exec_node(exec, node, [&](Exec&, Node& own) -> Error {
    auto* op = std::get_if<ChildOp>(&own.operation);
    const Graph* source = find_graph(child);
    if (!op || !source) return cudaErrorInvalidValue;
    const Node *culprit = nullptr, *from = nullptr;
    Exec inner;
    inner.graph = op->graph;
    return inner.update(*source, &culprit, &from) == UpdateResult::success
               ? cudaSuccess
               : cudaErrorGraphExecUpdateFailure;
  });
}

// A launch of an executable graph that is under way. It is kept apart from the Exec because the lock is
// let go while a host function runs.
struct GraphRun {
  std::shared_ptr<Exec> exec;
  cudaStream_t stream = nullptr;
  bool per_thread = false;
  std::size_t next = 0;
  Clock start;
  std::vector<Clock> after;  // by step
  std::size_t shown = 0;     // the launch on the timeline
};

cudaGraphExecUpdateResult result_of(UpdateResult result) {
  switch (result) {
    case UpdateResult::success:
      return cudaGraphExecUpdateSuccess;
    case UpdateResult::topology_changed:
      return cudaGraphExecUpdateErrorTopologyChanged;
    case UpdateResult::node_type_changed:
      return cudaGraphExecUpdateErrorNodeTypeChanged;
    case UpdateResult::parameters_changed:
      return cudaGraphExecUpdateErrorParametersChanged;
    case UpdateResult::attributes_changed:
      return cudaGraphExecUpdateErrorAttributesChanged;
  }
  return cudaGraphExecUpdateError;
}

// Before a launch: frees memory that the launch before allocated and nobody freed, if the graph was
// instantiated with AutoFreeOnLaunch. Otherwise such memory is an error.
Error free_last(Runtime& runtime, const Exec& exec) {
  for (const Exec::Step& step : exec.steps) {
    const auto* op = std::get_if<AllocOp>(&step.node->operation);
    if (!op || !op->place || !runtime.graph_memory.contains(op->place->base)) continue;
    if (!(exec.flags & cudaGraphInstantiateFlagAutoFreeOnLaunch)) {
      say("cudaGraphLaunch: memory that the graph allocated at its last launch was not freed; free "
          "it, or instantiate with cudaGraphInstantiateFlagAutoFreeOnLaunch");
      return cudaErrorInvalidValue;
    }
    if (const Error error = release_memory(runtime, op->pointer); error != cudaSuccess)
      return error;
  }
  return cudaSuccess;
}

// Gets ready, or records the launch in the graph that the stream captures.
Error begin(Runtime& runtime, cudaGraphExec_t handle, GraphRun& run, bool& captured) {
  const auto it = runtime.execs.find(handle);
  Stream* stream = runtime.find_stream(run.stream, run.per_thread);
  if (it == runtime.execs.end()) return cudaErrorInvalidValue;
  if (!stream) return cudaErrorInvalidResourceHandle;
  run.exec = it->second;
  if (capture_of(*stream)) {
    captured = true;
    ChildOp child{run.exec->graph->clone()};
    child.graph->in_node = true;
    return submit(run.stream, run.per_thread, std::move(child), {"cudaGraphLaunch"});
  }
  if (const Error error = refuse_implicit(runtime, *stream); error != cudaSuccess) return error;
  if (const Error error = free_last(runtime, *run.exec); error != cudaSuccess) return error;
  if (!runtime.order) return cudaSuccess;
  run.start = runtime.before(*stream);
  run.start.join(run.exec->clock);
  run.after.resize(run.exec->steps.size());
  for (Timeline& timeline : run.exec->timelines)
    if (timeline == 0) timeline = runtime.order->new_timeline();
  if (DeviceTimeline* const shown = runtime.timeline()) {
    if (stream->timeline == 0) stream->timeline = runtime.order->new_timeline();
    if (run.exec->number == 0) run.exec->number = shown->new_graph();
    shown->name_lane(stream->timeline, 0, stream_text(*stream));
    run.shown = shown->begin_group(stream->timeline, "graph " + std::to_string(run.exec->number));
  }
  return cudaSuccess;
}

Error run_step(Runtime& runtime, GraphRun& run, std::size_t i, const std::string& where) {
  const Exec::Step& step = run.exec->steps[i];
  const Operation& operation = step.node->operation;
  const bool enabled = !run.exec->disabled.contains(step.node);
  struct InGraph {
    Runtime& runtime;
    explicit InGraph(Runtime& r) : runtime(r) { runtime.in_graph = true; }
    ~InGraph() { runtime.in_graph = false; }
  } const in_graph(runtime);
  if (!runtime.order) return enabled ? Error(vgpu::runtime::run(operation)) : cudaSuccess;
  Clock before = run.start;
  for (const std::size_t other : step.before) before.join(run.after[other]);
  if (const auto* wait = std::get_if<WaitOp>(&operation))
    if (const Event* event = runtime.find_event(wait->event); event && event->recorded)
      before.join(event->clock);
  if (!enabled) {
    run.after[i] = std::move(before);
    return cudaSuccess;
  }
  runtime.order->begin(
      run.exec->timelines[step.chain], before, runtime.host, name_of(operation), where,
      {run.exec->number, "branch " + std::to_string(step.chain + 1), 0, run.shown});
  const Error error = vgpu::runtime::run(operation);
  run.after[i] = runtime.order->end(error == cudaSuccess);
  if (const auto* record = std::get_if<RecordOp>(&operation))
    if (Event* event = runtime.find_event(record->event)) event->clock = run.after[i];
  return error;
}

// Runs steps up to the next host function, which is returned in `host`, or up to the last step (`host`
// is null then).
Error go_on(Runtime& runtime, GraphRun& run, const HostOp*& host) {
  Stream* stream = runtime.find_stream(run.stream, run.per_thread);
  if (!stream) return cudaErrorInvalidResourceHandle;
  const std::string where = runtime.order ? "of a graph in " + stream_text(*stream) : "";
  host = nullptr;
  while (run.next < run.exec->steps.size()) {
    if (runtime.sticky.load() != Status::success) return cudaSuccess;  // the next call will say so
    const std::size_t i = run.next++;
    if (const Error error = run_step(runtime, run, i, where); error != cudaSuccess) return error;
    host = std::get_if<HostOp>(&run.exec->steps[i].node->operation);
    if (host) return cudaSuccess;
  }
  if (runtime.order) {
    Clock end = run.start;
    for (const Clock& clock : run.after) end.join(clock);
    run.exec->clock = stream->clock = std::move(end);
  }
  return cudaSuccess;
}

Error launch_graph(cudaGraphExec_t exec, cudaStream_t stream, bool per_thread) {
  GraphRun run{nullptr, stream, per_thread, 0, {}, {}};
  bool captured = false;
  const HostOp* host = nullptr;
  Error error = api([&](Runtime& runtime) -> Error {
    const HostCall call(runtime, "cudaGraphLaunch", timeline_us::kLaunch);
    const Error begun = begin(runtime, exec, run, captured);
    return begun != cudaSuccess || captured ? begun : go_on(runtime, run, host);
  });
  while (error == cudaSuccess && host) {
    api([](Runtime& runtime)
            -> Error {  // the function may tell others that what is before it is over
      if (runtime.host_guard) runtime.host_guard->forget_all();
      return cudaSuccess;
    });
    const HostOp call = *host;
    call_host(call);
    error = api([&](Runtime& runtime) { return go_on(runtime, run, host); });
  }
  {  // somebody else may have destroyed it meanwhile
    std::lock_guard lock(Runtime::get().mutex);
    run.exec.reset();
  }
  run_destructors();
  return error;
}

Error upload(cudaGraphExec_t exec, cudaStream_t stream, bool per_thread) {
  return with_exec(exec, [&](Exec&) -> Error {
    Stream* in = Runtime::get().find_stream(stream, per_thread);
    return in ? refuse_captured(*in) : cudaErrorInvalidResourceHandle;
  });
}

bool may_be_disabled(const Node& node) {
  return std::holds_alternative<KernelOp>(node.operation) ||
         std::holds_alternative<CopyOp>(node.operation) ||
         std::holds_alternative<FillOp>(node.operation);
}

}  // namespace
}  // namespace vgpu::cudart

using namespace vgpu::cudart;

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  const Node* culprit = nullptr;
  return instantiate(exec, graph, flags, &culprit);
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long flags) {
  const Node* culprit = nullptr;
  return instantiate(exec, graph, flags, &culprit);
}
cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* exec, cudaGraph_t graph,
                                           cudaGraphInstantiateParams* params) {
  return instantiate_with(exec, graph, params, false);
}
VGPU_API cudaError_t cudaGraphInstantiateWithParams_ptsz(cudaGraphExec_t* exec, cudaGraph_t graph,
                                                         cudaGraphInstantiateParams* params) {
  return instantiate_with(exec, graph, params, true);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const Error error = api([&](Runtime& runtime) -> Error {
    return runtime.execs.erase(exec) ? cudaSuccess : cudaErrorInvalidValue;
  });
  run_destructors();
  return error;
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long* flags) {
  return with_exec(exec, [&](Exec& e) -> Error {
    if (!flags) return cudaErrorInvalidValue;
    *flags = e.flags;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return launch_graph(exec, stream, false);
}
VGPU_API cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t exec, cudaStream_t stream) {
  return launch_graph(exec, stream, true);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  return upload(exec, stream, false);
}
VGPU_API cudaError_t cudaGraphUpload_ptsz(cudaGraphExec_t exec, cudaStream_t stream) {
  return upload(exec, stream, true);
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* info) {
  return with_exec(exec, [&](Exec& e) -> Error {
    const Graph* source = find_graph(graph);
    if (info) *info = {cudaGraphExecUpdateError, nullptr, nullptr};
    if (!info || !source) return cudaErrorInvalidValue;
    const Node *culprit = nullptr, *from = nullptr;
    info->result = result_of(e.update(*source, &culprit, &from));
    info->errorNode = handle(culprit);
    info->errorFromNode = handle(from);
    return info->result == cudaGraphExecUpdateSuccess ? cudaSuccess
                                                      : cudaErrorGraphExecUpdateFailure;
  });
}

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node,
                                    unsigned int enabled) {
  return with_exec_node(exec, node, [&](Exec& e, Node& own) -> Error {
    if (!may_be_disabled(own)) return cudaErrorInvalidValue;
    if (enabled)
      e.disabled.erase(&own);
    else
      e.disabled.insert(&own);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node,
                                    unsigned int* enabled) {
  return with_exec_node(exec, node, [&](Exec& e, Node& own) -> Error {
    if (!enabled || !may_be_disabled(own)) return cudaErrorInvalidValue;
    *enabled = !e.disabled.contains(&own);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* params) {
  return set(exec, node, [&](Operation& op) { return operation_of(params, op); });
}
cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemcpy3DParms* params) {
  return set(exec, node, [&](Operation& op) { return operation_of(params, op); });
}
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node,
                                               void* dst, const void* src, std::size_t count,
                                               cudaMemcpyKind kind) {
  return set(exec, node,
             [&](Operation& op) { return copy_1d_operation(dst, src, count, kind, op); });
}
cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                     const void* symbol, const void* src,
                                                     std::size_t count, std::size_t offset,
                                                     cudaMemcpyKind kind) {
  return set(exec, node, [&](Operation& op) {
    return symbol_operation(symbol, src, count, offset, kind, true, op);
  });
}
cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                       void* dst, const void* symbol,
                                                       std::size_t count, std::size_t offset,
                                                       cudaMemcpyKind kind) {
  return set(exec, node, [&](Operation& op) {
    return symbol_operation(symbol, dst, count, offset, kind, false, op);
  });
}
cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemsetParams* params) {
  return set(exec, node, [&](Operation& op) { return operation_of(params, op); });
}
cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                           const cudaHostNodeParams* params) {
  return set(exec, node, [&](Operation& op) { return operation_of(params, op); });
}
cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                 cudaGraph_t child) {
  return set_child(exec, node, child);
}
cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                 cudaEvent_t event) {
  return set_event(exec, node, event, true);
}
cudaError_t cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node,
                                               cudaEvent_t event) {
  return set_event(exec, node, event, false);
}
cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                       cudaGraphNodeParams* params) {
  if (params && number_of(params->type) == cudaGraphNodeTypeGraph)
    return set_child(exec, node, params->graph.graph);
  return set(exec, node, [&](Operation& op) { return operation_of(params, false, op); });
}
