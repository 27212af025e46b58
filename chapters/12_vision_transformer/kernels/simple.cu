// The simple components (components.h), and where q, k and v come from.
#include <cmath>

#include "../1_simple.cuh"
#include "../3_inside.cuh"
#include "../components.h"
#include "fp32_steps.h"

namespace vision_transformer {

Choice<EmbedFunction> simple_embed() { return {"simple", simple::embed, 12}; }
Choice<NormFunction> simple_norm() { return {"simple", simple::layer_norm, 12}; }
Choice<LinearFunction> simple_linear() { return {"simple", simple::linear, 12}; }

const std::vector<Choice<Qkv>>& qkv_choices() {
  static const std::vector<Choice<Qkv>> kChoices = {
      {"split", {}, 12},
      {"by_heads", {.by_heads = projection::by_heads<half>}, 12},
      epilogue_qkv(),
      {"inside", {.inside = projection::inside<half>}, 12}};
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

// ---- In fp32 (fp32_steps.h) ---------------------------------------------------------------------

namespace vision_transformer::fp32 {
namespace {

float scale(const HeadsShape& shape) { return 1 / std::sqrt(float(shape.head_dim)); }

}  // namespace

void by_heads(const float* x, const float* weight, const float* bias, float* q, float* k, float* v,
              const HeadsShape& shape, cudaStream_t stream) {
  projection::by_heads(x, weight, bias, q, k, v, shape, stream);
}

void apart(const float* q, const float* k, const float* v, float* o, const HeadsShape& shape,
           cudaStream_t stream) {
  projection::apart(q, k, v, o, shape, scale(shape), stream);
}

void inside(const float* x, const float* weight, const float* bias, float* o,
            const HeadsShape& shape, cudaStream_t stream) {
  projection::inside(x, weight, bias, o, shape, scale(shape), stream);
}

void output(const float* o, const float* weight, const float* bias, float* y,
            const HeadsShape& shape, cudaStream_t stream) {
  projection::output(o, weight, bias, y, shape, stream);
}

}  // namespace vision_transformer::fp32
