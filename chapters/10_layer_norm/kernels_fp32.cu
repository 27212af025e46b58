// The kernels on arrays in fp32, see kernels.cuh.
#include "kernels.cuh"

namespace layer_norm {
LAYER_NORM_LAUNCHES(template, float);
}  // namespace layer_norm
