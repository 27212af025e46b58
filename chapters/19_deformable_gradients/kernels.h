// The chapter's steps, compiled once in kernels.cu for its program and its tests.
#pragma once

#include <vector>

#include "host/problem.h"

namespace lab::deformable {

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
// In the order of the lesson.
const std::vector<GradientStep>& gradient_steps();

// The step with these arrays.
inline void run(const GradientStep& step, GradientArrays& a, const DeformableShape& shape,
                cudaStream_t stream) {
  step.function(a.value.data(), a.locations.data(), a.weights.data(), a.grad_out.data(),
                a.grad_value.data(), a.grad_locations.data(), a.grad_weights.data(), shape, stream);
}

}  // namespace lab::deformable
