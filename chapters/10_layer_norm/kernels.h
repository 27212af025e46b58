// The chapter's steps, compiled once in kernels_fp16.cu and kernels_fp32.cu for its program and its tests.
#pragma once

#include <string>

#include "host/problem.h"

namespace layer_norm {

// In the order of the lesson. T is half or float.
template <class T>
lab::LayerNormKernels<T> kernels();

// ---- For tests ----------------------------------------------------------------------------------

// How a step's kernel is launched, for tests that launch a mutant of it: "base", "warp", "vector", "rows",
// "residual", "dx"; "slab" and "finish", the two stages of sums over rows.
struct Grid {
  dim3 blocks;
  unsigned threads;
};
Grid grid_of(const std::string& kernel, const Shape& shape);

}  // namespace layer_norm
