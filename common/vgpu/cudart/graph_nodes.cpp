// Nodes: made of the API's structures, read and changed.
#include "graph.h"

namespace vgpu::cudart {
namespace {

// A node's arguments in one buffer instead of an array of pointers (CU_LAUNCH_PARAM_...).
Error packed(void** extra, std::vector<std::byte>& params) {
  const void* buffer = nullptr;
  const std::size_t* size = nullptr;
  for (; extra[0]; extra += 2) {
    const auto what = reinterpret_cast<std::uintptr_t>(extra[0]);
    if (what == 1)
      buffer = extra[1];
    else if (what == 2)
      size = static_cast<const std::size_t*>(extra[1]);
    else
      return cudaErrorInvalidValue;
  }
  // (a structure's size may have padding at its end)
  if (!buffer || !size || *size < params.size()) return cudaErrorInvalidValue;
  std::memcpy(params.data(), buffer, params.size());
  return cudaSuccess;
}

Error kernel_of(void* function, dim3 grid, dim3 block, unsigned shared, void** args, void** extra,
                Operation& out) {
  Runtime& runtime = Runtime::get();
  const LaunchConfig config{dim3_of(grid), dim3_of(block), {1, 1, 1}, shared, false};
  KernelOp op;
  if (args && extra) return cudaErrorInvalidValue;
  if (extra) {
    op.kernel = runtime.find_kernel(function);
    if (!op.kernel) return cudaErrorInvalidDeviceFunction;
    if (const Error error = load_kernel(*op.kernel); error != cudaSuccess) return error;
    op.function = function;
    op.config = config;
    op.params.resize(op.kernel->function->param_bytes);
    if (const Error error = packed(extra, op.params); error != cudaSuccess) return error;
  } else if (const Error error = make_kernel(function, config, args, op); error != cudaSuccess) {
    return error;
  }
  out = std::move(op);
  return check(out);
}

Error alloc_of(cudaMemAllocNodeParams& params, Operation& out) {
  if (number_of(params.poolProps.allocType) != cudaMemAllocationTypePinned || params.bytesize == 0)
    return cudaErrorInvalidValue;
  if (number_of(params.poolProps.location.type) != cudaMemLocationTypeDevice ||
      number_of(params.poolProps.handleTypes) != cudaMemHandleTypeNone)
    return cudaErrorNotSupported;
  if (params.poolProps.location.id != 0) return cudaErrorInvalidDevice;
  AllocOp op;
  if (const Error error = make_alloc(params.bytesize, op); error != cudaSuccess) return error;
  op.properties = params.poolProps;
  params.dptr = op.pointer;
  out = std::move(op);
  return cudaSuccess;
}

Error child_of(cudaGraph_t graph, bool owned, Operation& out) {
  const Graph* source = find_graph(graph);
  if (!source) return cudaErrorInvalidValue;
  if (source->has_memory_nodes() && !owned) return cudaErrorNotSupported;
  ChildOp child{source->clone()};
  child.graph->in_node = true;
  out = std::move(child);
  return cudaSuccess;
}

Error event_of(cudaEvent_t event, bool record, Operation& out) {
  if (!Runtime::get().find_event(event)) return cudaErrorInvalidValue;
  if (record)
    out = RecordOp{event};
  else
    out = WaitOp{event};
  return cudaSuccess;
}

Error free_of(void* pointer, Operation& out) {
  if (!is_device_address(pointer)) return cudaErrorInvalidValue;
  out = FreeOp{pointer};
  return cudaSuccess;
}

// make(operation) fills the operation of a new node.
template <class F>
Error add(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before,
          std::size_t number, F&& make) {
  return with_graph(graph, [&](Runtime&, Graph& g) -> Error {
    std::vector<Node*> dependencies;
    Operation operation;
    if (!node) return cudaErrorInvalidValue;
    if (const Error error = nodes_of(g, before, number, dependencies); error != cudaSuccess)
      return error;
    for (std::size_t i = 0; i < dependencies.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (dependencies[i] == dependencies[j]) return cudaErrorInvalidValue;
    if (const Error error = make(operation); error != cudaSuccess) return error;
    *node = handle(g.add(std::move(operation), dependencies));
    return cudaSuccess;
  });
}

// make(operation) fills what becomes of a node; it stays of its type.
template <class F>
Error set(cudaGraphNode_t node, F&& make) {
  return with_node(node, [&](Runtime&, Node& n) -> Error {
    Operation operation;
    if (const Error error = make(operation); error != cudaSuccess) return error;
    if (operation.index() != n.operation.index()) return cudaErrorInvalidValue;
    if (const auto* old = std::get_if<KernelOp>(&n.operation)) {  // attributes are not parameters
      auto& fresh = std::get<KernelOp>(operation);
      fresh.hints = old->hints;
      fresh.config.cluster = old->config.cluster;
      fresh.config.cooperative = old->config.cooperative;
    }
    n.operation = std::move(operation);
    return cudaSuccess;
  });
}

Error get_attribute(const KernelOp& op, int id, cudaLaunchAttributeValue& value) {
  switch (id) {
    case cudaLaunchAttributeClusterDimension:
      value.clusterDim.x = op.config.cluster.x;
      value.clusterDim.y = op.config.cluster.y;
      value.clusterDim.z = op.config.cluster.z;
      return cudaSuccess;
    case cudaLaunchAttributeCooperative:
      value.cooperative = op.config.cooperative;
      return cudaSuccess;
    case cudaLaunchAttributeAccessPolicyWindow:
    case cudaLaunchAttributePriority:
    case cudaLaunchAttributeClusterSchedulingPolicyPreference:
    case cudaLaunchAttributeMemSyncDomain:
    case cudaLaunchAttributeMemSyncDomainMap:
    case cudaLaunchAttributePreferredSharedMemoryCarveout:
      value = hint(op.hints, id);
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}
Error set_attribute(KernelOp& op, int id, const cudaLaunchAttributeValue& value) {
  cudaLaunchAttributeValue known;
  if (const Error error = get_attribute(op, id, known); error != cudaSuccess) return error;
  LaunchConfig config = op.config;
  if (id == cudaLaunchAttributeClusterDimension)
    config.cluster = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
  if (id == cudaLaunchAttributeCooperative) config.cooperative = value.cooperative != 0;
  if (const Error error = check_launch(*op.kernel, config); error != cudaSuccess) return error;
  op.config = config;
  set_hint(op.hints, id, value);
  return cudaSuccess;
}

template <class Event>
Error get_event(cudaGraphNode_t node, cudaEvent_t* event) {
  return with_operation<Event>(node, [&](Event& op) -> Error {
    if (!event) return cudaErrorInvalidValue;
    *event = static_cast<cudaEvent_t>(op.event);
    return cudaSuccess;
  });
}

}  // namespace

Error operation_of(const cudaKernelNodeParams* p, Operation& out) {
  if (!p) return cudaErrorInvalidValue;
  return kernel_of(p->func, p->gridDim, p->blockDim, p->sharedMemBytes, p->kernelParams, p->extra,
                   out);
}
Error operation_of(const cudaMemcpy3DParms* p, Operation& out) {
  if (!p) return cudaErrorInvalidValue;
  if (p->srcArray || p->dstArray) return cudaErrorNotSupported;
  if (number_of(p->kind) < cudaMemcpyHostToHost || number_of(p->kind) > cudaMemcpyDefault)
    return cudaErrorInvalidMemcpyDirection;
  if (!p->srcPtr.ptr || !p->dstPtr.ptr) return cudaErrorInvalidValue;
  out = copy_of(*p);
  return cudaSuccess;
}
Error operation_of(const cudaMemsetParams* p, Operation& out) {
  if (!p || !p->dst || p->height == 0 || p->width == 0) return cudaErrorInvalidValue;
  if (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4)
    return cudaErrorInvalidValue;
  if (p->height > 1 && p->pitch < p->width * p->elementSize) return cudaErrorInvalidValue;
  out = fill_of(*p);
  return cudaSuccess;
}
Error operation_of(const cudaHostNodeParams* p, Operation& out) {
  if (!p || !p->fn) return cudaErrorInvalidValue;
  out = HostOp{p->fn, p->userData, {}};
  return cudaSuccess;
}
Error copy_1d_operation(void* dst, const void* src, std::size_t count, cudaMemcpyKind kind,
                        Operation& out) {
  const auto params = params_of(make_copy(dst, count, src, count, count, 1, number_of(kind)));
  return count == 0 ? cudaErrorInvalidValue : operation_of(&params, out);
}
Error symbol_operation(const void* symbol, const void* other, std::size_t count, std::size_t offset,
                       cudaMemcpyKind kind, bool to_symbol, Operation& out) {
  CopyOp op;
  if (!other || count == 0) return cudaErrorInvalidValue;
  const Error error =
      make_symbol_copy(symbol, offset, count, other, to_symbol, number_of(kind), op);
  if (error == cudaSuccess) out = op;
  return error;
}

Error operation_of(cudaGraphNodeParams* p, bool fresh, Operation& out) {
  if (!p) return cudaErrorInvalidValue;
  switch (number_of(p->type)) {
    case cudaGraphNodeTypeKernel: {
      const auto& k = p->kernel;
      return kernel_of(k.func, k.gridDim, k.blockDim, k.sharedMemBytes, k.kernelParams, k.extra,
                       out);
    }
    case cudaGraphNodeTypeMemcpy:
      return operation_of(&p->memcpy.copyParams, out);
    case cudaGraphNodeTypeMemset: {
      const auto& m = p->memset;
      const cudaMemsetParams params{m.dst, m.pitch, m.value, m.elementSize, m.width, m.height};
      return operation_of(&params, out);
    }
    case cudaGraphNodeTypeHost: {
      const cudaHostNodeParams params{p->host.fn, p->host.userData};
      return operation_of(&params, out);
    }
    case cudaGraphNodeTypeGraph:
      return child_of(p->graph.graph, false, out);
    case cudaGraphNodeTypeEmpty:
      out = EmptyOp{};
      return cudaSuccess;
    case cudaGraphNodeTypeWaitEvent:
      return event_of(p->eventWait.event, false, out);
    case cudaGraphNodeTypeEventRecord:
      return event_of(p->eventRecord.event, true, out);
    case cudaGraphNodeTypeMemAlloc: {
      if (!fresh) return cudaErrorNotSupported;
      cudaMemAllocNodeParams params{};
      params.poolProps = p->alloc.poolProps;
      params.bytesize = p->alloc.bytesize;
      const Error error = alloc_of(params, out);
      p->alloc.dptr = params.dptr;
      return error;
    }
    case cudaGraphNodeTypeMemFree:
      return fresh ? free_of(p->free.dptr, out) : cudaErrorNotSupported;
    case cudaGraphNodeTypeConditional:
    case cudaGraphNodeTypeExtSemaphoreSignal:
    case cudaGraphNodeTypeExtSemaphoreWait:
      say("nodes for conditions and external semaphores are not supported by the virtual GPU");
      return cudaErrorNotSupported;
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace vgpu::cudart

using namespace vgpu::cudart;

// ---- kernels ------------------------------------------------------------------------------------

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* before, std::size_t number,
                                   const cudaKernelNodeParams* params) {
  return add(node, graph, before, number, [&](Operation& op) { return operation_of(params, op); });
}
cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* params) {
  return set(node, [&](Operation& op) { return operation_of(params, op); });
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* params) {
  return with_operation<KernelOp>(node, [&](KernelOp& op) -> Error {
    if (!params) return cudaErrorInvalidValue;
    if (const Error error = load_kernel(*op.kernel); error != cudaSuccess) return error;
    op.pointers.clear();
    for (const auto& param : op.kernel->function->params)
      op.pointers.push_back(op.params.data() + param.offset);
    *params = {const_cast<void*>(op.function),
               dim3_of(op.config.grid),
               dim3_of(op.config.block),
               static_cast<unsigned>(op.config.dynamic_shared),
               op.pointers.empty() ? nullptr : op.pointers.data(),
               nullptr};
    return cudaSuccess;
  });
}
cudaError_t cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t to, cudaGraphNode_t from) {
  return with_operation<KernelOp>(to, [&](KernelOp& target) -> Error {
    Node* node = find_node(from);
    const KernelOp* source = node ? std::get_if<KernelOp>(&node->operation) : nullptr;
    if (!source) return cudaErrorInvalidValue;
    target.hints = source->hints;
    target.config.cluster = source->config.cluster;
    target.config.cooperative = source->config.cooperative;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID attr,
                                            cudaLaunchAttributeValue* value) {
  return with_operation<KernelOp>(node, [&](KernelOp& op) -> Error {
    return value ? get_attribute(op, number_of(attr), *value) : cudaErrorInvalidValue;
  });
}
cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID attr,
                                            const cudaLaunchAttributeValue* value) {
  return with_operation<KernelOp>(node, [&](KernelOp& op) -> Error {
    return value ? set_attribute(op, number_of(attr), *value) : cudaErrorInvalidValue;
  });
}

// ---- copies and fills ---------------------------------------------------------------------------

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* before, std::size_t number,
                                   const cudaMemcpy3DParms* params) {
  return add(node, graph, before, number, [&](Operation& op) { return operation_of(params, op); });
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* before, std::size_t number, void* dst,
                                     const void* src, std::size_t count, cudaMemcpyKind kind) {
  return add(node, graph, before, number,
             [&](Operation& op) { return copy_1d_operation(dst, src, count, kind, op); });
}
cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t* node, cudaGraph_t graph,
                                           const cudaGraphNode_t* before, std::size_t number,
                                           const void* symbol, const void* src, std::size_t count,
                                           std::size_t offset, cudaMemcpyKind kind) {
  return add(node, graph, before, number, [&](Operation& op) {
    return symbol_operation(symbol, src, count, offset, kind, true, op);
  });
}
cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t* node, cudaGraph_t graph,
                                             const cudaGraphNode_t* before, std::size_t number,
                                             void* dst, const void* symbol, std::size_t count,
                                             std::size_t offset, cudaMemcpyKind kind) {
  return add(node, graph, before, number, [&](Operation& op) {
    return symbol_operation(symbol, dst, count, offset, kind, false, op);
  });
}
cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms* params) {
  return with_operation<CopyOp>(node, [&](CopyOp& op) -> Error {
    if (!params) return cudaErrorInvalidValue;
    *params = params_of(op);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const cudaMemcpy3DParms* params) {
  return set(node, [&](Operation& op) { return operation_of(params, op); });
}
cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* dst, const void* src,
                                           std::size_t count, cudaMemcpyKind kind) {
  return set(node, [&](Operation& op) { return copy_1d_operation(dst, src, count, kind, op); });
}
cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node, const void* symbol,
                                                 const void* src, std::size_t count,
                                                 std::size_t offset, cudaMemcpyKind kind) {
  return set(node, [&](Operation& op) {
    return symbol_operation(symbol, src, count, offset, kind, true, op);
  });
}
cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void* dst,
                                                   const void* symbol, std::size_t count,
                                                   std::size_t offset, cudaMemcpyKind kind) {
  return set(node, [&](Operation& op) {
    return symbol_operation(symbol, dst, count, offset, kind, false, op);
  });
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* before, std::size_t number,
                                   const cudaMemsetParams* params) {
  return add(node, graph, before, number, [&](Operation& op) { return operation_of(params, op); });
}
cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, cudaMemsetParams* params) {
  return with_operation<FillOp>(node, [&](FillOp& op) -> Error {
    if (!params) return cudaErrorInvalidValue;
    *params = params_of(op);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const cudaMemsetParams* params) {
  return set(node, [&](Operation& op) { return operation_of(params, op); });
}

// ---- the others ---------------------------------------------------------------------------------

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                 const cudaGraphNode_t* before, std::size_t number,
                                 const cudaHostNodeParams* params) {
  return add(node, graph, before, number, [&](Operation& op) { return operation_of(params, op); });
}
cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, cudaHostNodeParams* params) {
  return with_operation<HostOp>(node, [&](HostOp& op) -> Error {
    if (!params) return cudaErrorInvalidValue;
    *params = {op.function, op.data};
    return cudaSuccess;
  });
}
cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const cudaHostNodeParams* params) {
  return set(node, [&](Operation& op) { return operation_of(params, op); });
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                       const cudaGraphNode_t* before, std::size_t number,
                                       cudaGraph_t child) {
  return add(node, graph, before, number,
             [&](Operation& op) { return child_of(child, false, op); });
}
cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t* graph) {
  return with_operation<ChildOp>(node, [&](ChildOp& op) -> Error {
    if (!graph) return cudaErrorInvalidValue;
    *graph = reinterpret_cast<cudaGraph_t>(op.graph.get());
    return cudaSuccess;
  });
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                  const cudaGraphNode_t* before, std::size_t number) {
  return add(node, graph, before, number, [](Operation& op) -> Error {
    op = EmptyOp{};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                        const cudaGraphNode_t* before, std::size_t number,
                                        cudaEvent_t event) {
  return add(node, graph, before, number, [&](Operation& op) { return event_of(event, true, op); });
}
cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                      const cudaGraphNode_t* before, std::size_t number,
                                      cudaEvent_t event) {
  return add(node, graph, before, number,
             [&](Operation& op) { return event_of(event, false, op); });
}
cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return get_event<RecordOp>(node, event);
}
cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return get_event<WaitOp>(node, event);
}
cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return set(node, [&](Operation& op) { return event_of(event, true, op); });
}
cudaError_t cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return set(node, [&](Operation& op) { return event_of(event, false, op); });
}

cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* before, std::size_t number,
                                     cudaMemAllocNodeParams* params) {
  return add(node, graph, before, number, [&](Operation& op) -> Error {
    return params ? alloc_of(*params, op) : cudaErrorInvalidValue;
  });
}
cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, cudaMemAllocNodeParams* params) {
  return with_operation<AllocOp>(node, [&](AllocOp& op) -> Error {
    if (!params) return cudaErrorInvalidValue;
    *params = {};
    if (op.properties.has_value()) {
      params->poolProps = std::any_cast<const cudaMemPoolProps&>(op.properties);
    } else {  // made by cudaMallocAsync
      params->poolProps.allocType = cudaMemAllocationTypePinned;
      params->poolProps.location.type = cudaMemLocationTypeDevice;
    }
    params->bytesize = op.bytes;
    params->dptr = op.pointer;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                    const cudaGraphNode_t* before, std::size_t number,
                                    void* pointer) {
  return add(node, graph, before, number, [&](Operation& op) { return free_of(pointer, op); });
}
cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void* pointer) {
  return with_operation<FreeOp>(node, [&](FreeOp& op) -> Error {
    if (!pointer) return cudaErrorInvalidValue;
    std::memcpy(pointer, &op.pointer, sizeof op.pointer);
    return cudaSuccess;
  });
}

#if CUDART_VERSION >= 13000
cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph,
                             const cudaGraphNode_t* before, const cudaGraphEdgeData* data,
                             std::size_t number, cudaGraphNodeParams* params) {
  if (!plain(data, number)) return remember(cudaErrorNotSupported);
  return add(node, graph, before, number,
             [&](Operation& op) { return operation_of(params, true, op); });
}
#else
#undef cudaGraphAddNode
VGPU_API cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                      const cudaGraphNode_t* before, std::size_t number,
                                      cudaGraphNodeParams* params) {
  return add(node, graph, before, number,
             [&](Operation& op) { return operation_of(params, true, op); });
}
VGPU_API cudaError_t cudaGraphAddNode_v2(cudaGraphNode_t* node, cudaGraph_t graph,
                                         const cudaGraphNode_t* before,
                                         const cudaGraphEdgeData* data, std::size_t number,
                                         cudaGraphNodeParams* params) {
  if (!plain(data, number)) return remember(cudaErrorNotSupported);
  return add(node, graph, before, number,
             [&](Operation& op) { return operation_of(params, true, op); });
}
#endif
cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, cudaGraphNodeParams* params) {
  return set(node, [&](Operation& op) { return operation_of(params, false, op); });
}
