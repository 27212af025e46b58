// The kernels on arrays in fp32.
#include "kernels.cuh"

namespace layer_norm {

template lab::LayerNormKernels<float> kernels<float>();

}  // namespace layer_norm
