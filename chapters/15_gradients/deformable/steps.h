// The steps, for the program and the tests. Their kernels are compiled once, in kernels_deformable.cu.
#pragma once

#include <vector>

#include "problem.h"

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
// In the order in which they are told.
const std::vector<GradientStep>& gradient_steps();

}  // namespace lab::deformable
