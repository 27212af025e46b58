// The chapter's steps, compiled once in kernels.cu for its program and its tests.
#pragma once

#include "host/problem.h"

namespace lab::deformable {

// In the order of the lesson.
const std::vector<GradientStep>& gradient_steps();

}  // namespace lab::deformable
