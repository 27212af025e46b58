// The steps of chapter 10 as choices of --norm (components.h).
#include "../../10_layer_norm/1_base.cuh"
#include "../../10_layer_norm/2_cub.cuh"
#include "../../10_layer_norm/3_warp.cuh"
#include "../../10_layer_norm/4_vector.cuh"
#include "../../10_layer_norm/5_rows.cuh"
#include "../components.h"

namespace vision_transformer {
namespace {

using Step = void (*)(const half* x, const half* scale, const half* bias, half* y,
                      const layer_norm::Shape& shape, cudaStream_t stream);

template <Step kStep>
void by(const half* x, const half* scale, const half* bias, half* y, const NormShape& shape,
        cudaStream_t stream) {
  kStep(x, scale, bias, y, {shape.rows, shape.columns, shape.epsilon}, stream);
}

}  // namespace

const std::vector<Choice<NormFunction>>& norm_choices() {
  static const std::vector<Choice<NormFunction>> kChoices = {
      simple_norm(),
      {"base", by<layer_norm::base<half>>, 10},
      {"cub", by<layer_norm::cub<half>>, 10},
      {"warp", by<layer_norm::warp<half>>, 10},
      {"vector", by<layer_norm::vector<half>>, 10},
      {"rows", by<layer_norm::rows<half>>, 10}};
  return kChoices;
}

}  // namespace vision_transformer
