// The simple components (components.h).
#include "components.h"
#include "simple.cuh"

namespace vision_transformer {

Choice<EmbedFunction> simple_embed() { return {"simple", simple::embed, 12}; }
Choice<NormFunction> simple_norm() { return {"simple", simple::layer_norm, 12}; }
Choice<LinearFunction> simple_linear() { return {"simple", simple::linear, 12}; }

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
