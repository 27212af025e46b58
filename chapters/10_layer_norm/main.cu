// Chapter 10: LayerNorm in six steps beside a copy of the same bytes, and its gradients, compared with
// the CPU reference.
#include "kernels.cuh"
#include "problem.h"

namespace {

template <class T>
lab::LayerNormKernels<T> kernels() {
  namespace steps = layer_norm;
  lab::LayerNormKernels<T> all;
  all.copy = steps::copy<T>;
  all.steps = {{"base", steps::base<T>},
               {"cub", steps::cub<T>},
               {"warp", steps::warp<T>},
               {"vector", steps::vector<T>},
               {"rows", steps::rows<T>}};
  all.naive_variance = {"E[x^2] - E[x]^2", steps::naive_variance<T>};
  all.add = steps::add<T>;
  all.residual = steps::residual<T>;
  all.residual_fits = steps::residual_fits<T>;
  all.backward_dx = steps::backward_dx<T>;
  all.partials_of = steps::partials_of;
  all.slab_sums = steps::slab_sums<T>;
  all.column_sums = steps::column_sums;
  all.atomics = steps::backward_atomics<T>;
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  return lab::layer_norm_main(argc, argv, "10_layer_norm",
                              "Chapter 10: LayerNorm, from a block for each row to what a copy "
                              "takes; the residual\nbefore it, and its gradients.",
                              kernels<half>(), kernels<float>());
}
