// Step 3: the kernels on tiles of tensor cores.
#include "instances.cuh"

namespace fused_conv_norm {
FUSED_CONV_NORM_LAUNCHES(template, TensorTiles<kTf32>);
FUSED_CONV_NORM_LAUNCHES(template, TensorTiles<kFp16>);
template decltype(lacking<kTf32>) lacking<kTf32>;
template decltype(lacking<kFp16>) lacking<kFp16>;
}  // namespace fused_conv_norm
