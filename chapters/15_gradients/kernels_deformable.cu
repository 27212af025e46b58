// Kernels of the gradients of deformable attention.
#include "deformable/steps.h"

#include "deformable/atomics.cuh"

namespace lab::deformable {

const std::vector<GradientStep>& gradient_steps() {
  static const std::vector<GradientStep> kSteps = {{"atomics", ::deformable_gradients::atomics}};
  return kSteps;
}

}  // namespace lab::deformable
