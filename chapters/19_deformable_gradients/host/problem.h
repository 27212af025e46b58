// Problems of the gradients of deformable attention: chapter 7's, with a gradient of the output.
#pragma once

#include "../../07_persistent_deformable_attention/host/problem.h"
#include "reference.h"

namespace lab::deformable {

struct GradientProblem {
  DeformableProblem forward;   // value, locations, weights
  std::vector<half> grad_out;  // [batch, queries, heads, channels]

  const DeformableShape& shape() const { return forward.shape; }
};

// Seeded; the gradient of the output is normal.
GradientProblem random_gradients(const DeformableShape& shape, Distribution distribution,
                                 uint64_t seed);

// A photo's pyramid of oriented filters (chapter 7), and the loss ½ Σ out² of the queries in the
// middle third of the picture: how strongly filters answer there. Its gradient is out itself.
GradientProblem photo_gradients(const Image& photo, int size);

// ---- What is expected ---------------------------------------------------------------------------

struct ExpectedGradients {
  reference::DeformableGradients gradients;
  // In fp32 a sum is off by at most 2^-24 of its size for each term and for each product in it.
  // value's sums have a term a sample, the others' one a channel and corner.
  Tolerance for_value, for_locations, for_weights;
};
ExpectedGradients expected_gradients(const GradientProblem& problem);

// ---- On the device ------------------------------------------------------------------------------

struct GradientArrays {
  DeviceArray<half> value, locations, weights, grad_out;
  DeviceArray<float> grad_value, grad_locations, grad_weights;

  void clear() {  // an element that is not written is wrong
    for (DeviceArray<float>* array : {&grad_value, &grad_locations, &grad_weights})
      array->fill_nan();
  }
};
// In as many copies as rotation needs; copy 0 is the checked one. The gradients are NaN.
std::vector<GradientArrays> upload(const GradientProblem& problem, int copies);

// Least traffic, of the seven arrays once; and for each channel of each corner a product with the
// gradient of the output for the sums, and one for the pixel.
double gradient_bytes(const DeformableShape& shape);
Cost gradient_cost(const DeformableShape& shape);

struct GradientComparisons {
  Comparison value, locations, weights;
  // The first of them that fails, or the one of value.
  const Comparison& worst() const;
};
GradientComparisons compare_gradients(const std::vector<float>& value,
                                      const std::vector<float>& locations,
                                      const std::vector<float>& weights,
                                      const ExpectedGradients& expected,
                                      const DeformableShape& shape);

// The photo, and over it how large the gradient of value is at each pixel, of all levels together.
// grad_value: [pixels, channels] of photo_gradients(photo, size).
Image draw_gradient(const Image& photo, int size, const std::vector<float>& grad_value);

// ---- Steps --------------------------------------------------------------------------------------

// The type of every step.
using GradientFunction = void (*)(const half* value, const half* locations, const half* weights,
                                  const half* grad_out, float* grad_value, float* grad_locations,
                                  float* grad_weights, const DeformableShape& shape,
                                  cudaStream_t stream);

// A part of a step, launched by itself where each is timed.
struct GradientStage {
  std::string name;
  void (*launch)(GradientArrays& arrays, const DeformableShape& shape, void* scratch,
                 cudaStream_t stream);
  Cost (*cost)(const DeformableShape& shape);
  bool one_kernel = true;
};

struct GradientStep {
  std::string name;
  GradientFunction function;
  // The stages of a step hand results over in `scratch`. fill_scratch() computes them on the host
  // for stages whose predecessors have not run as a whole (--predict).
  std::vector<GradientStage> stages = {};
  size_t (*scratch_bytes)(const DeformableShape& shape) = nullptr;
  void (*fill_scratch)(const GradientProblem& problem, void* scratch) = nullptr;
};
// The step with these arrays.
inline void run(const GradientStep& step, GradientArrays& a, const DeformableShape& shape,
                cudaStream_t stream) {
  step.function(a.value.data(), a.locations.data(), a.weights.data(), a.grad_out.data(),
                a.grad_value.data(), a.grad_locations.data(), a.grad_weights.data(), shape, stream);
}

}  // namespace lab::deformable
