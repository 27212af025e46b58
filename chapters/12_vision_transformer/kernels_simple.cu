// The simple components, and those of chapters that compute no attention (components.h).
#include "components.h"
#include "simple.cuh"

namespace vision_transformer {

const std::vector<Choice<EmbedFunction>>& embed_choices() {
  static const std::vector<Choice<EmbedFunction>> kChoices = {{"simple", simple::embed, 12}};
  return kChoices;
}

const std::vector<Choice<NormFunction>>& norm_choices() {
  static const std::vector<Choice<NormFunction>> kChoices = {{"simple", simple::layer_norm, 12}};
  return kChoices;
}

const std::vector<Choice<LinearFunction>>& linear_choices() {
  static const std::vector<Choice<LinearFunction>> kChoices = {{"simple", simple::linear, 12}};
  return kChoices;
}

void split_heads(const half* qkv, half* q, half* k, half* v, const HeadsShape& shape,
                 cudaStream_t stream) {
  simple::split(qkv, q, k, v, shape, stream);
}

void merge_heads(const half* by_heads, half* merged, const HeadsShape& shape, cudaStream_t stream) {
  simple::merge(by_heads, merged, shape, stream);
}

void take_class_tokens(const half* x, half* y, const NetShape& shape, cudaStream_t stream) {
  simple::class_tokens(x, y, shape.batch, shape.tokens(), shape.width, stream);
}

}  // namespace vision_transformer
