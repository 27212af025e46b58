// The kernels on tiles with arrays in fp16, see kernels.cuh.
#include "kernels.cuh"

namespace fused_conv_norm {
FUSED_CONV_NORM_LAUNCHES(template, HalfTiles);
}  // namespace fused_conv_norm
