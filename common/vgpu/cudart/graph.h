// What the API functions of graphs share: from handles to graphs and nodes.
#pragma once
#include "../runtime/graph.h"
#include "face.h"

namespace vgpu::cudart {

inline cudaGraphNode_t handle(const Node* node) {
  return reinterpret_cast<cudaGraphNode_t>(const_cast<Node*>(node));
}

// body(runtime, graph)
template <class F>
Error with_graph(cudaGraph_t graph, F&& body) {
  return api([&](Runtime& runtime) -> Error {
    Graph* found = find_graph(graph);
    return found ? body(runtime, *found) : cudaErrorInvalidValue;
  });
}
// body(runtime, node)
template <class F>
Error with_node(cudaGraphNode_t node, F&& body) {
  return api([&](Runtime& runtime) -> Error {
    Node* found = find_node(node);
    return found ? body(runtime, *found) : cudaErrorInvalidValue;
  });
}
// body(operation), for a node of that kind.
template <class Op, class F>
Error with_operation(cudaGraphNode_t node, F&& body) {
  return with_node(node, [&](Runtime&, Node& found) -> Error {
    Op* operation = std::get_if<Op>(&found.operation);
    return operation ? body(*operation) : cudaErrorInvalidValue;
  });
}

inline Error nodes_of(const Graph& graph, const cudaGraphNode_t* handles, std::size_t number,
                      std::vector<Node*>& out) {
  if (number > 0 && !handles) return cudaErrorInvalidValue;
  for (std::size_t i = 0; i < number; ++i) {
    Node* node = find_node(handles[i]);
    if (!node || node->graph != &graph) return cudaErrorInvalidValue;
    out.push_back(node);
  }
  return cudaSuccess;
}

// Only full dependencies are supported: no ports, no programmatic launch.
inline bool plain(const cudaGraphEdgeData* data, std::size_t number) {
  for (std::size_t i = 0; data && i < number; ++i)
    if (data[i].from_port || data[i].to_port || data[i].type) return false;
  return true;
}

// graph_nodes.cpp: operations from the API's structures. They say what is wrong with them.
Error operation_of(const cudaKernelNodeParams* params, Operation& out);
Error operation_of(const cudaMemcpy3DParms* params, Operation& out);
Error operation_of(const cudaMemsetParams* params, Operation& out);
Error operation_of(const cudaHostNodeParams* params, Operation& out);
// The operation of a node of any type. `fresh`: the node is new, and an allocation's address is
// written back.
Error operation_of(cudaGraphNodeParams* params, bool fresh, Operation& out);
Error copy_1d_operation(void* dst, const void* src, std::size_t count, cudaMemcpyKind kind,
                        Operation& out);
Error symbol_operation(const void* symbol, const void* other, std::size_t count, std::size_t offset,
                       cudaMemcpyKind kind, bool to_symbol, Operation& out);

}  // namespace vgpu::cudart
