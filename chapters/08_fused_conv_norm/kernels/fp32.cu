// Steps 1 and 2: the kernels on tiles in fp32.
#include "instances.cuh"

namespace fused_conv_norm {
FUSED_CONV_NORM_LAUNCHES(template, Fp32Tiles);
FUSED_CONV_NORM_FIRST_STEP(template);
}  // namespace fused_conv_norm
