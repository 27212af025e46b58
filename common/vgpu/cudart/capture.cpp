// Stream capture: the calls that begin, end and look at it.
#include <algorithm>
#include <functional>
#include <unordered_set>

#include "../runtime/capture.h"
#include "graph.h"

namespace vgpu::cudart {
namespace {

template <class F>
Error with_captured(cudaStream_t handle, bool per_thread, F&& body) {
  return api([&](Runtime& runtime) -> Error {
    Stream* stream = runtime.find_stream(handle, per_thread);
    return stream ? body(runtime, *stream) : cudaErrorInvalidResourceHandle;
  });
}

bool sound(cudaStreamCaptureMode mode) {
  return number_of(mode) >= cudaStreamCaptureModeGlobal &&
         number_of(mode) <= cudaStreamCaptureModeRelaxed;
}

CaptureMode mode_of(cudaStreamCaptureMode mode) {
  return mode == cudaStreamCaptureModeGlobal        ? CaptureMode::global
         : mode == cudaStreamCaptureModeThreadLocal ? CaptureMode::of_thread
                                                    : CaptureMode::relaxed;
}
cudaStreamCaptureMode mode_of(CaptureMode mode) {
  return mode == CaptureMode::global      ? cudaStreamCaptureModeGlobal
         : mode == CaptureMode::of_thread ? cudaStreamCaptureModeThreadLocal
                                          : cudaStreamCaptureModeRelaxed;
}

Error begin(cudaStream_t handle, cudaStreamCaptureMode mode, bool per_thread,
            const std::function<Error(Runtime&, Capture&, std::vector<Node*>&)>& target) {
  return with_captured(handle, per_thread, [&](Runtime& runtime, Stream& stream) -> Error {
    if (!sound(mode)) return cudaErrorInvalidValue;
    if (stream.legacy()) return cudaErrorStreamCaptureUnsupported;
    if (capture_of(stream)) return cudaErrorIllegalState;
    auto capture = std::make_shared<Capture>();
    std::vector<Node*> tips;
    if (const Error error = target(runtime, *capture, tips); error != cudaSuccess) return error;
    capture->id = runtime.next_capture_id++;
    capture->origin = &stream;
    capture->mode = mode_of(mode);
    capture->thread = std::this_thread::get_id();
    capture->streams = {&stream};
    stream.capture = capture;
    stream.tips = std::move(tips);
    runtime.captures.insert(std::move(capture));
    return cudaSuccess;
  });
}

Error begin_new(cudaStream_t stream, cudaStreamCaptureMode mode, bool per_thread) {
  return begin(stream, mode, per_thread, [](Runtime&, Capture& capture, std::vector<Node*>&) {
    capture.graph = std::make_shared<Graph>();
    return cudaSuccess;
  });
}

Error begin_to_graph(cudaStream_t stream, cudaGraph_t handle, const cudaGraphNode_t* dependencies,
                     const cudaGraphEdgeData* data, std::size_t number, cudaStreamCaptureMode mode,
                     bool per_thread) {
  return begin(stream, mode, per_thread,
               [&](Runtime& runtime, Capture& capture, std::vector<Node*>& tips) -> Error {
                 const auto graph = runtime.graphs.find(handle);
                 if (graph == runtime.graphs.end()) return cudaErrorInvalidValue;
                 if (!plain(data, number)) return cudaErrorNotSupported;
                 capture.graph = graph->second;
                 capture.to_graph = true;
                 return nodes_of(*graph->second, dependencies, number, tips);
               });
}

// Have all streams of the capture joined its origin? They have if each node that they recorded comes
// before the origin's last nodes.
bool joined(const Capture& capture, const Stream& origin) {
  std::unordered_set<const Node*> reached;
  std::vector<const Node*> todo(origin.tips.begin(), origin.tips.end());
  while (!todo.empty()) {
    const Node* node = todo.back();
    todo.pop_back();
    if (!reached.insert(node).second) continue;
    todo.insert(todo.end(), node->before.begin(), node->before.end());
  }
  const auto all = [&](const std::vector<Node*>& nodes) {
    return std::all_of(nodes.begin(), nodes.end(),
                       [&](const Node* node) { return reached.contains(node); });
  };
  return all(capture.orphans) &&
         std::all_of(capture.streams.begin(), capture.streams.end(),
                     [&](const Stream* stream) { return all(stream->tips); });
}

Error end(cudaStream_t handle, cudaGraph_t* out, bool per_thread) {
  return with_captured(handle, per_thread, [&](Runtime& runtime, Stream& stream) -> Error {
    if (out) *out = nullptr;
    if (!capture_of(stream)) return cudaErrorIllegalState;
    if (!out) return cudaErrorInvalidValue;
    const std::shared_ptr<Capture> capture = stream.capture;
    if (capture->origin != &stream) {
      capture->invalid = true;
      return cudaErrorStreamCaptureUnmatched;
    }
    if (capture->mode != CaptureMode::relaxed && capture->thread != std::this_thread::get_id())
      return cudaErrorStreamCaptureWrongThread;
    const Error error = capture->invalid            ? cudaErrorStreamCaptureInvalidated
                        : !joined(*capture, stream) ? cudaErrorStreamCaptureUnjoined
                                                    : cudaSuccess;
    capture->ended = true;
    runtime.captures.erase(capture);
    for (Stream* other : capture->streams) {
      other->tips.clear();
      other->capture.reset();
    }
    const std::shared_ptr<Graph> graph = std::move(capture->graph);
    capture->graph.reset();
    if (error != cudaSuccess) return error;
    if (!capture->to_graph) runtime.graphs[graph.get()] = graph;
    *out = reinterpret_cast<cudaGraph_t>(graph.get());
    return cudaSuccess;
  });
}

Error is_capturing(cudaStream_t handle, cudaStreamCaptureStatus* status, bool per_thread) {
  return with_captured(handle, per_thread, [&](Runtime& runtime, Stream& stream) -> Error {
    if (!status) return cudaErrorInvalidValue;
    const Capture* capture = capture_of(stream);
    *status = !capture           ? cudaStreamCaptureStatusNone
              : capture->invalid ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
    // The legacy stream cannot be asked while a blocking stream captures: CUDA returns an error then.
    if (stream.legacy())
      for (const auto& other : runtime.captures)
        for (const Stream* s : other->streams)
          if (s->blocking()) return cudaErrorStreamCaptureImplicit;
    return cudaSuccess;
  });
}

Error capture_info(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                   cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                   const cudaGraphEdgeData** edges, std::size_t* number, bool per_thread) {
  const Error error = is_capturing(handle, status, per_thread);
  if (error != cudaSuccess) return error;
  return with_captured(handle, per_thread, [&](Runtime&, Stream& stream) -> Error {
    const Capture* capture = capture_of(stream);
    const bool active = capture && !capture->invalid;
    if (id) *id = active ? capture->id : 0;
    if (graph) *graph = active ? reinterpret_cast<cudaGraph_t>(capture->graph.get()) : nullptr;
    static_assert(sizeof(Node*) == sizeof(cudaGraphNode_t));
    if (dependencies)
      *dependencies =
          active ? reinterpret_cast<const cudaGraphNode_t*>(stream.tips.data()) : nullptr;
    if (edges) *edges = nullptr;  // all are full dependencies
    if (number) *number = active ? stream.tips.size() : 0;
    return cudaSuccess;
  });
}

Error update_dependencies(cudaStream_t handle, cudaGraphNode_t* nodes,
                          const cudaGraphEdgeData* data, std::size_t number, unsigned flags,
                          bool per_thread) {
  return with_captured(handle, per_thread, [&](Runtime&, Stream& stream) -> Error {
    const Capture* capture = capture_of(stream);
    if (!capture) return cudaErrorIllegalState;
    if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (flags != cudaStreamAddCaptureDependencies && flags != cudaStreamSetCaptureDependencies)
      return cudaErrorInvalidValue;
    if (!plain(data, number)) return cudaErrorNotSupported;
    std::vector<Node*> tips;
    if (const Error error = nodes_of(*capture->graph, nodes, number, tips); error != cudaSuccess)
      return error;
    if (flags == cudaStreamSetCaptureDependencies) stream.tips.clear();
    for (Node* node : tips)
      if (std::find(stream.tips.begin(), stream.tips.end(), node) == stream.tips.end())
        stream.tips.push_back(node);
    return cudaSuccess;
  });
}

}  // namespace
}  // namespace vgpu::cudart

using namespace vgpu::cudart;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return begin_new(stream, mode, false);
}
VGPU_API cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return begin_new(stream, mode, true);
}
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t* dependencies,
                                          const cudaGraphEdgeData* data, std::size_t number,
                                          cudaStreamCaptureMode mode) {
  return begin_to_graph(stream, graph, dependencies, data, number, mode, false);
}
VGPU_API cudaError_t cudaStreamBeginCaptureToGraph_ptsz(cudaStream_t stream, cudaGraph_t graph,
                                                        const cudaGraphNode_t* dependencies,
                                                        const cudaGraphEdgeData* data,
                                                        std::size_t number,
                                                        cudaStreamCaptureMode mode) {
  return begin_to_graph(stream, graph, dependencies, data, number, mode, true);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return end(stream, graph, false);
}
VGPU_API cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t* graph) {
  return end(stream, graph, true);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return is_capturing(stream, status, false);
}
VGPU_API cudaError_t cudaStreamIsCapturing_ptsz(cudaStream_t stream,
                                                cudaStreamCaptureStatus* status) {
  return is_capturing(stream, status, true);
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, std::size_t* number) {
  return capture_info(stream, status, id, graph, dependencies, edges, number, false);
}
VGPU_API cudaError_t cudaStreamGetCaptureInfo_ptsz(cudaStream_t stream,
                                                   cudaStreamCaptureStatus* status,
                                                   unsigned long long* id, cudaGraph_t* graph,
                                                   const cudaGraphNode_t** dependencies,
                                                   const cudaGraphEdgeData** edges,
                                                   std::size_t* number) {
  return capture_info(stream, status, id, graph, dependencies, edges, number, true);
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* nodes,
                                                const cudaGraphEdgeData* data, std::size_t number,
                                                unsigned int flags) {
  return update_dependencies(stream, nodes, data, number, flags, false);
}
VGPU_API cudaError_t cudaStreamUpdateCaptureDependencies_ptsz(cudaStream_t stream,
                                                              cudaGraphNode_t* nodes,
                                                              const cudaGraphEdgeData* data,
                                                              std::size_t number,
                                                              unsigned int flags) {
  return update_dependencies(stream, nodes, data, number, flags, true);
}
#else  // toolkits 12 have them with and without edge data
#undef cudaStreamGetCaptureInfo
VGPU_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                              unsigned long long* id) {
  return capture_info(stream, status, id, nullptr, nullptr, nullptr, nullptr, false);
}
VGPU_API cudaError_t cudaStreamGetCaptureInfo_ptsz(cudaStream_t stream,
                                                   cudaStreamCaptureStatus* status,
                                                   unsigned long long* id) {
  return capture_info(stream, status, id, nullptr, nullptr, nullptr, nullptr, true);
}
VGPU_API cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream,
                                                 cudaStreamCaptureStatus* status,
                                                 unsigned long long* id, cudaGraph_t* graph,
                                                 const cudaGraphNode_t** dependencies,
                                                 std::size_t* number) {
  return capture_info(stream, status, id, graph, dependencies, nullptr, number, false);
}
VGPU_API cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream,
                                                 cudaStreamCaptureStatus* status,
                                                 unsigned long long* id, cudaGraph_t* graph,
                                                 const cudaGraphNode_t** dependencies,
                                                 const cudaGraphEdgeData** edges,
                                                 std::size_t* number) {
  return capture_info(stream, status, id, graph, dependencies, edges, number, false);
}
#undef cudaStreamUpdateCaptureDependencies
VGPU_API cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream,
                                                         cudaGraphNode_t* nodes, std::size_t number,
                                                         unsigned int flags) {
  return update_dependencies(stream, nodes, nullptr, number, flags, false);
}
VGPU_API cudaError_t cudaStreamUpdateCaptureDependencies_v2(cudaStream_t stream,
                                                            cudaGraphNode_t* nodes,
                                                            const cudaGraphEdgeData* data,
                                                            std::size_t number,
                                                            unsigned int flags) {
  return update_dependencies(stream, nodes, data, number, flags, false);
}
#endif

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  if (!mode || !sound(*mode)) return remember(cudaErrorInvalidValue);
  const CaptureMode before = std::exchange(thread_capture_mode(), mode_of(*mode));
  *mode = mode_of(before);
  return cudaSuccess;
}
