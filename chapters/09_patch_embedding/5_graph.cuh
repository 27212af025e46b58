// Step 5, graph: what the step before submits is recorded once, as a CUDA graph. To run it again is one
// call.
#pragma once

#include "4_resident.cuh"

namespace patch_embedding {

// Launches are kernels of the graph, which the host launches as one.
inline Traffic graph_traffic(const Part& part) { return resident_traffic(part); }

// The recorded copies and launches of resident() for one part. All that it is given must outlive it.
class Graph {
 public:
  Graph(const Inputs& in, const Shape& shape, const Part& part, half* patches, half* answers,
        void* memory, cudaStream_t stream)
      : in_(in), shape_(shape), part_(part), patches_(patches), answers_(answers), stream_(stream) {
    require_shape(shape, part);
    require_success(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    cudaGraph_t graph = nullptr;
    try {
      submit_resident(in, patches, answers, shape, part, memory, stream);
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph) cudaGraphDestroy(graph);
      throw;
    }
    require_success(cudaStreamEndCapture(stream, &graph), "capture");
    const cudaError_t made = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    require_success(made, "graph");
  }
  ~Graph() { cudaGraphExecDestroy(exec_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // The tokens of the part for what the image holds now. Throws as channel_launches().
  void replay(half* tokens) {
    write_class_rows(in_, tokens, shape_, part_);
    sort_by_patches(in_.image, patches_, shape_, part_.images, part_.patches);
    require_success(cudaGraphLaunch(exec_, stream_), "graph");
    require_success(cudaStreamSynchronize(stream_), "all outputs");
    place_answers(answers_, tokens, shape_, part_);
  }

 private:
  Inputs in_;
  Shape shape_;
  Part part_;
  half *patches_, *answers_;
  cudaStream_t stream_;
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace patch_embedding
