// All steps on arrays of one type, see kernels.h.
#pragma once

#include "1_base.cuh"
#include "2_cub.cuh"
#include "6_residual.cuh"
#include "7_backward.cuh"
#include "kernels.h"
#include "parts/bandwidth.cuh"
#include "variants/naive_variance.cuh"

namespace layer_norm {

template <class T>
lab::LayerNormKernels<T> kernels() {
  lab::LayerNormKernels<T> all;
  all.copy = copy<T>;
  all.steps = {{"base", base<T>},
               {"cub", cub<T>},
               {"warp", warp<T>},
               {"vector", vector<T>},
               {"rows", rows<T>}};
  all.naive_variance = {"E[x^2] - E[x]^2", naive_variance<T>};
  all.add = add<T>;
  all.residual = residual<T>;
  all.residual_fits = residual_fits<T>;
  all.backward_dx = backward_dx<T>;
  all.partial_count = partial_count;
  all.slab_sums = slab_sums<T>;
  all.column_sums = column_sums;
  all.atomics = backward_atomics<T>;
  return all;
}

}  // namespace layer_norm
