// Step 6, graph: both products of an MLP as one CUDA graph. A launch costs the device a few
// microseconds of its own, in which nothing multiplies; a graph's node costs about half of that,
// and the host starts both products with one call.
#pragma once

#include <utility>

#include "5_epilogue.cuh"

namespace mlp {

// What launch(stream) launches, recorded once and replayed as often as one likes. Arrays and shapes
// are those of the recording.
class Graph {
 public:
  // Throws std::runtime_error with CUDA's reason where it cannot be recorded.
  template <class Launch>
  explicit Graph(const Launch& launch) {
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (error == cudaSuccess) {
      try {
        launch(stream);
      } catch (...) {
        cudaStreamEndCapture(stream, &graph);
        if (graph) cudaGraphDestroy(graph);
        cudaStreamDestroy(stream);
        throw;
      }
      error = cudaStreamEndCapture(stream, &graph);
    }
    if (error == cudaSuccess) error = cudaGraphInstantiate(&instance_, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    require(error);
  }
  Graph(Graph&& other) noexcept : instance_(std::exchange(other.instance_, nullptr)) {}
  Graph& operator=(Graph&&) = delete;
  ~Graph() {
    if (instance_) cudaGraphExecDestroy(instance_);
  }

  void replay(cudaStream_t stream) const { require(cudaGraphLaunch(instance_, stream)); }

 private:
  static void require(cudaError_t error) {
    if (error != cudaSuccess)
      throw std::runtime_error(std::string("graph of products: ") + cudaGetErrorString(error));
  }
  cudaGraphExec_t instance_ = nullptr;
};

// The arrays of an MLP: y = x + w2 gelu(w1 x + b1) + b2.
template <class Element>
struct MlpArrays {
  const Element* x;        // [tokens, width]
  const Element *w1, *b1;  // [hidden width, width], [hidden width]
  const Element *w2, *b2;  // [width, hidden width], [width]
  Element* hidden;         // [tokens, hidden width]
  Element* y;              // [tokens, width]
};

// Both products, one launch each. Throws as epilogue() does.
template <class Element>
void mlp_by_epilogue(const MlpArrays<Element>& a, int tokens, int width, int hidden_width,
                     cudaStream_t stream) {
  epilogue<Element>(a.x, a.w1, a.b1, nullptr, a.hidden, {tokens, hidden_width, width, true},
                    stream);
  epilogue<Element>(a.hidden, a.w2, a.b2, a.x, a.y, {tokens, width, hidden_width, false}, stream);
}

}  // namespace mlp
