// All steps of the chapter, for the program and its tests. Their kernels are compiled once, in
// kernels_fp16.cu and kernels_fp32.cu. Whoever includes a step's own header instead compiles that
// step's kernels.
#pragma once

#include "backward.cuh"
#include "bandwidth.cuh"
#include "base.cuh"
#include "cub.cuh"
#include "naive_variance.cuh"
#include "residual.cuh"

namespace layer_norm {

// The functions through which all else reaches those kernels. `template` in front defines them,
// `extern template` says that they are defined elsewhere.
#define LAYER_NORM_LAUNCHES(declared, T)                  \
  declared decltype(copy<T>) copy<T>;                     \
  declared decltype(base<T>) base<T>;                     \
  declared decltype(cub<T>) cub<T>;                       \
  declared decltype(warp<T>) warp<T>;                     \
  declared decltype(vector<T>) vector<T>;                 \
  declared decltype(rows<T>) rows<T>;                     \
  declared decltype(naive_variance<T>) naive_variance<T>; \
  declared decltype(add<T>) add<T>;                       \
  declared decltype(residual<T>) residual<T>;             \
  declared decltype(backward_dx<T>) backward_dx<T>;       \
  declared decltype(slab_sums<T>) slab_sums<T>;           \
  declared decltype(backward_atomics<T>) backward_atomics<T>

LAYER_NORM_LAUNCHES(extern template, half);
LAYER_NORM_LAUNCHES(extern template, float);

}  // namespace layer_norm
