// The chapter's steps, compiled once in kernels.cu for its program and its tests.
#pragma once

#include <vector>

#include "host/problem.h"

namespace persistent_deformable_attention {

// In the order of the lesson, the variants at the end.
std::vector<lab::DeformableStep> steps();

}  // namespace persistent_deformable_attention
