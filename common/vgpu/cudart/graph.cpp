// Graphs as such: creation, nodes and edges, copies, pictures, user objects.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "../runtime/capture.h"
#include "graph.h"

namespace vgpu::cudart {
namespace {

// Gives a list as CUDA's functions do. Without an array (`wanted` false) only its length. Else as many
// elements as the array has room for, and null behind the last one.
template <class F>
void give(std::size_t* number, std::size_t there, bool wanted, F&& set) {
  if (wanted) {
    for (std::size_t i = 0; i < *number; ++i) set(i, i < there);
    *number = std::min(*number, there);
  } else {
    *number = there;
  }
}

Error give_nodes(const std::vector<const Node*>& nodes, cudaGraphNode_t* out,
                 cudaGraphEdgeData* edges, std::size_t* number) {
  if (!number) return cudaErrorInvalidValue;
  give(number, nodes.size(), out != nullptr, [&](std::size_t i, bool there) {
    out[i] = there ? handle(nodes[i]) : nullptr;
    if (edges) edges[i] = {};
  });
  return cudaSuccess;
}

Error get_edges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                cudaGraphEdgeData* edges, std::size_t* number) {
  return with_graph(graph, [&](Runtime&, Graph& g) -> Error {
    if (!number || (from == nullptr) != (to == nullptr)) return cudaErrorInvalidValue;
    std::vector<std::pair<const Node*, const Node*>> all;
    for (const auto& node : g.nodes)
      for (const Node* next : node->after) all.emplace_back(node.get(), next);
    give(number, all.size(), from != nullptr, [&](std::size_t i, bool there) {
      from[i] = there ? handle(all[i].first) : nullptr;
      to[i] = there ? handle(all[i].second) : nullptr;
      if (edges) edges[i] = {};
    });
    return cudaSuccess;
  });
}

Error dependencies(cudaGraphNode_t node, cudaGraphNode_t* out, cudaGraphEdgeData* edges,
                   std::size_t* number, bool after) {
  return with_node(node, [&](Runtime&, Node& n) -> Error {
    const auto& list = after ? n.after : n.before;
    return give_nodes({list.begin(), list.end()}, out, edges, number);
  });
}

Error change_edges(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                   const cudaGraphEdgeData* data, std::size_t number, bool add) {
  return with_graph(graph, [&](Runtime&, Graph& g) -> Error {
    std::vector<Node*> first, second;
    for (const auto& [handles, nodes] : {std::pair{from, &first}, std::pair{to, &second}})
      if (const Error error = nodes_of(g, handles, number, *nodes); error != cudaSuccess)
        return error;
    if (!plain(data, number)) return cudaErrorNotSupported;
    if (!add && number > 0 && g.has_memory_nodes()) return cudaErrorNotSupported;
    for (std::size_t i = 0; i < number; ++i)
      if (first[i] == second[i] || g.has_edge(*first[i], *second[i]) == add)
        return cudaErrorInvalidValue;
    for (std::size_t i = 0; i < number; ++i)
      add ? g.add_edge(*first[i], *second[i]) : g.remove_edge(*first[i], *second[i]);
    return cudaSuccess;
  });
}

cudaGraphNodeType type_of(const Operation& operation) {
  constexpr cudaGraphNodeType kTypes[] = {cudaGraphNodeTypeKernel,    cudaGraphNodeTypeMemcpy,
                                          cudaGraphNodeTypeMemset,    cudaGraphNodeTypeHost,
                                          cudaGraphNodeTypeGraph,     cudaGraphNodeTypeEmpty,
                                          cudaGraphNodeTypeWaitEvent, cudaGraphNodeTypeEventRecord,
                                          cudaGraphNodeTypeMemAlloc,  cudaGraphNodeTypeMemFree};
  static_assert(std::size(kTypes) == std::variant_size_v<Operation>);
  return kTypes[operation.index()];
}

// In the language of Graphviz.
void draw(std::ostream& out, const Graph& graph, const std::string& prefix, unsigned flags) {
  const auto wants = [&](unsigned flag) {
    return (flags & (flag | cudaGraphDebugDotFlagsVerbose)) != 0;
  };
  for (const auto& node : graph.nodes) {
    const std::string name = prefix + std::to_string(node->id);
    std::string label = std::to_string(node->id) + "\\n" + name_of(node->operation);
    if (const auto* k = std::get_if<KernelOp>(&node->operation)) {
      const auto triple = [](Dim3 d) {
        return std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z);
      };
      if (wants(cudaGraphDebugDotFlagsKernelNodeParams))
        label += "\\n<<<(" + triple(k->config.grid) + "), (" + triple(k->config.block) + "), " +
                 std::to_string(k->config.dynamic_shared) + ">>>";
    }
    if (const auto* c = std::get_if<CopyOp>(&node->operation))
      if (wants(cudaGraphDebugDotFlagsMemcpyNodeParams))
        label += "\\n" + std::to_string(c->width) + " x " + std::to_string(c->height) + " x " +
                 std::to_string(c->depth) + " bytes";
    if (const auto* f = std::get_if<FillOp>(&node->operation))
      if (wants(cudaGraphDebugDotFlagsMemsetNodeParams))
        label += "\\nvalue " + std::to_string(f->value) + ", " + std::to_string(f->width) + " x " +
                 std::to_string(f->height) + " elements of " + std::to_string(f->element_bytes) +
                 " bytes";
    if (const auto* child = std::get_if<ChildOp>(&node->operation)) {
      out << "subgraph \"cluster_" << name << "\" {\nlabel=\"" << label << "\";\n";
      draw(out, *child->graph, name + "_", flags);
      out << "}\n";
    }
    out << "\"" << name << "\" [shape=box, label=\"" << label << "\"];\n";
    for (const Node* next : node->after)
      out << "\"" << name << "\" -> \"" << prefix << next->id << "\";\n";
  }
}

template <class F>
Error with_object(cudaUserObject_t object, unsigned count, F&& body) {
  const Error error = api([&](Runtime& runtime) -> Error {
    UserObject* found = reinterpret_cast<UserObject*>(object);
    if (!runtime.user_objects.contains(found) || count == 0) return cudaErrorInvalidValue;
    return body(*found);
  });
  run_destructors();
  return error;
}

}  // namespace
}  // namespace vgpu::cudart

using namespace vgpu::cudart;

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned int flags) {
  return api([&](Runtime& runtime) -> Error {
    if (!graph || flags != 0) return cudaErrorInvalidValue;
    auto fresh = std::make_shared<Graph>();
    *graph = reinterpret_cast<cudaGraph_t>(fresh.get());
    runtime.graphs[fresh.get()] = std::move(fresh);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Error error = api([&](Runtime& runtime) -> Error {
    const auto it = runtime.graphs.find(graph);  // one in a child node is that node's
    if (it == runtime.graphs.end()) return cudaErrorInvalidValue;
    runtime.graphs.erase(it);
    return cudaSuccess;
  });
  run_destructors();
  return error;
}

cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t graph) {
  return with_graph(graph, [&](Runtime& runtime, Graph& g) -> Error {
    if (!clone) return cudaErrorInvalidValue;
    if (g.has_memory_nodes()) return cudaErrorNotSupported;
    auto fresh = g.clone();
    *clone = reinterpret_cast<cudaGraph_t>(fresh.get());
    runtime.graphs[fresh.get()] = std::move(fresh);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t* node, cudaGraphNode_t original,
                                     cudaGraph_t clone) {
  return with_graph(clone, [&](Runtime&, Graph& g) -> Error {
    if (!node) return cudaErrorInvalidValue;
    for (const auto& candidate : g.nodes)
      if (original && candidate->original == find_node(original)) {
        *node = handle(candidate.get());
        return cudaSuccess;
      }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  return with_node(node, [](Runtime& runtime, Node& n) -> Error {
    if (n.graph->has_memory_nodes()) return cudaErrorNotSupported;
    for (const auto& capture : runtime.captures) {
      std::erase(capture->orphans, &n);
      for (Stream* stream : capture->streams) std::erase(stream->tips, &n);
    }
    n.graph->remove(n);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return with_node(node, [&](Runtime&, Node& n) -> Error {
    if (!type) return cudaErrorInvalidValue;
    *type = type_of(n.operation);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* number) {
  return with_graph(graph, [&](Runtime&, Graph& g) {
    std::vector<const Node*> all;
    for (const auto& node : g.nodes) all.push_back(node.get());
    return give_nodes(all, nodes, nullptr, number);
  });
}
cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* number) {
  return with_graph(graph, [&](Runtime&, Graph& g) {
    std::vector<const Node*> roots;
    for (const auto& node : g.nodes)
      if (node->before.empty()) roots.push_back(node.get());
    return give_nodes(roots, nodes, nullptr, number);
  });
}

#if CUDART_VERSION >= 13000
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                              cudaGraphEdgeData* edges, std::size_t* number) {
  return get_edges(graph, from, to, edges, number);
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                         cudaGraphEdgeData* edges, std::size_t* number) {
  return dependencies(node, nodes, edges, number, false);
}
cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                           cudaGraphEdgeData* edges, std::size_t* number) {
  return dependencies(node, nodes, edges, number, true);
}
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                     const cudaGraphNode_t* to, const cudaGraphEdgeData* edges,
                                     std::size_t number) {
  return change_edges(graph, from, to, edges, number, true);
}
cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                        const cudaGraphNode_t* to, const cudaGraphEdgeData* edges,
                                        std::size_t number) {
  return change_edges(graph, from, to, edges, number, false);
}
#else  // toolkits 12 have them with and without edge data
#undef cudaGraphGetEdges
#undef cudaGraphNodeGetDependencies
#undef cudaGraphNodeGetDependentNodes
#undef cudaGraphAddDependencies
#undef cudaGraphRemoveDependencies
VGPU_API cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from,
                                       cudaGraphNode_t* to, std::size_t* number) {
  return get_edges(graph, from, to, nullptr, number);
}
VGPU_API cudaError_t cudaGraphGetEdges_v2(cudaGraph_t graph, cudaGraphNode_t* from,
                                          cudaGraphNode_t* to, cudaGraphEdgeData* edges,
                                          std::size_t* number) {
  return get_edges(graph, from, to, edges, number);
}
VGPU_API cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                                  std::size_t* number) {
  return dependencies(node, nodes, nullptr, number, false);
}
VGPU_API cudaError_t cudaGraphNodeGetDependencies_v2(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                                     cudaGraphEdgeData* edges,
                                                     std::size_t* number) {
  return dependencies(node, nodes, edges, number, false);
}
VGPU_API cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                                    std::size_t* number) {
  return dependencies(node, nodes, nullptr, number, true);
}
VGPU_API cudaError_t cudaGraphNodeGetDependentNodes_v2(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                                       cudaGraphEdgeData* edges,
                                                       std::size_t* number) {
  return dependencies(node, nodes, edges, number, true);
}
VGPU_API cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                              const cudaGraphNode_t* to, std::size_t number) {
  return change_edges(graph, from, to, nullptr, number, true);
}
VGPU_API cudaError_t cudaGraphAddDependencies_v2(cudaGraph_t graph, const cudaGraphNode_t* from,
                                                 const cudaGraphNode_t* to,
                                                 const cudaGraphEdgeData* edges,
                                                 std::size_t number) {
  return change_edges(graph, from, to, edges, number, true);
}
VGPU_API cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                                 const cudaGraphNode_t* to, std::size_t number) {
  return change_edges(graph, from, to, nullptr, number, false);
}
VGPU_API cudaError_t cudaGraphRemoveDependencies_v2(cudaGraph_t graph, const cudaGraphNode_t* from,
                                                    const cudaGraphNode_t* to,
                                                    const cudaGraphEdgeData* edges,
                                                    std::size_t number) {
  return change_edges(graph, from, to, edges, number, false);
}
#endif

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned int flags) {
  return with_graph(graph, [&](Runtime&, Graph& g) -> Error {
    if (!path) return cudaErrorInvalidValue;
    std::ofstream file(path);
    file << "digraph dot {\n";
    draw(file, g, "node_", flags);
    file << "}\n";
    file.flush();
    if (file) return cudaSuccess;
    say("cudaGraphDebugDotPrint: cannot write " + std::string(path));
    return cudaErrorOperatingSystem;
  });
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* pointer, cudaHostFn_t destroy,
                                 unsigned int references, unsigned int flags) {
  return api([&](Runtime& runtime) -> Error {
    if (!object || !destroy || references == 0 || references > 0x7fffffffu ||
        flags != cudaUserObjectNoDestructorSync)
      return cudaErrorInvalidValue;
    auto* fresh = new UserObject{pointer, destroy, references};
    runtime.user_objects.insert(fresh);
    *object = reinterpret_cast<cudaUserObject_t>(fresh);
    return cudaSuccess;
  });
}
cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned int count) {
  return with_object(object, count, [&](UserObject& o) {
    o.references += count;
    return cudaSuccess;
  });
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int count) {
  return with_object(object, count, [&](UserObject& o) {
    release(o, count);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                      unsigned int count, unsigned int flags) {
  return with_object(object, count, [&](UserObject& o) -> Error {
    Graph* g = find_graph(graph);
    if (!g || (flags & ~static_cast<unsigned>(cudaGraphUserObjectMove)))
      return cudaErrorInvalidValue;
    if (!(flags & cudaGraphUserObjectMove)) o.references += count;
    g->objects[&o] += count;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                       unsigned int count) {
  return with_object(object, count, [&](UserObject& o) -> Error {
    Graph* g = find_graph(graph);
    if (!g || !g->objects.contains(&o) || g->objects[&o] < count) return cudaErrorInvalidValue;
    if ((g->objects[&o] -= count) == 0) g->objects.erase(&o);
    release(o, count);
    return cudaSuccess;
  });
}

// Memory of graphs: all of it is given back when it is freed.
cudaError_t cudaDeviceGraphMemTrim(int device) {
  return api([&](Runtime&) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; });
}
cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType attr,
                                           void* value) {
  return api([&](Runtime& runtime) -> Error {
    if (device != 0) return cudaErrorInvalidDevice;
    const int number = number_of(attr);
    if (!value || number < cudaGraphMemAttrUsedMemCurrent ||
        number > cudaGraphMemAttrReservedMemHigh)
      return cudaErrorInvalidValue;
    const bool high =
        number == cudaGraphMemAttrUsedMemHigh || number == cudaGraphMemAttrReservedMemHigh;
    const std::uint64_t bytes = high ? runtime.graph_memory_high : runtime.graph_memory_used;
    std::memcpy(value, &bytes, sizeof bytes);
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType attr,
                                           void* value) {
  return api([&](Runtime& runtime) -> Error {
    if (device != 0) return cudaErrorInvalidDevice;
    std::uint64_t bytes = 0;
    if (value) std::memcpy(&bytes, value, sizeof bytes);
    if (!value || bytes != 0 ||  // a high-water mark can only be set back
        (number_of(attr) != cudaGraphMemAttrUsedMemHigh &&
         number_of(attr) != cudaGraphMemAttrReservedMemHigh))
      return cudaErrorInvalidValue;
    runtime.graph_memory_high = runtime.graph_memory_used;
    return cudaSuccess;
  });
}
