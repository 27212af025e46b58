// Step 4: the kernels on tiles with arrays in fp16.
#include "instances.cuh"

namespace fused_conv_norm {
FUSED_CONV_NORM_LAUNCHES(template, HalfTiles);
}  // namespace fused_conv_norm
