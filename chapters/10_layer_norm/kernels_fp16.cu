// The kernels on arrays in fp16, see kernels.cuh.
#include "kernels.cuh"

namespace layer_norm {
LAYER_NORM_LAUNCHES(template, half);
}  // namespace layer_norm
