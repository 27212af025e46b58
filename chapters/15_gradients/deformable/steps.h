// The steps, for the program and the tests. Their kernels are compiled once, in kernels_deformable.cu.
#pragma once

#include <vector>

#include "problem.h"

namespace lab::deformable {

struct GradientStep {
  std::string name;
  GradientFunction function;
};
// In the order in which they are told.
const std::vector<GradientStep>& gradient_steps();

}  // namespace lab::deformable
