// Attention and its gradients: chapter 13's last step, chapter 15's tensor cores and deterministic
// dQ.
#include "../../chapters/13_flash_attention/4_ragged.cuh"
#include "../../chapters/15_gradients/kernels.h"
#include "call.h"

namespace operators {
namespace {

constexpr int kAlignment = 16;

AttentionShape shape_of(Call& call, const vision_tensor* q, float scale) {
  const Sizes any = {{"batch"}, {"heads"}, {"tokens"}, {"head_dim"}};
  const AttentionShape shape{call.size("q", q, any, 0), call.size("q", q, any, 1),
                             call.size("q", q, any, 2), call.size("q", q, any, 3), scale};
  require_attention_shape(shape);
  return shape;
}
Sizes sizes_of(const AttentionShape& shape) {
  return {{"batch", shape.batch},
          {"heads", shape.heads},
          {"tokens", shape.tokens},
          {"head_dim", shape.head_dim}};
}
Sizes rows_of(const AttentionShape& shape) {
  return {{"batch", shape.batch}, {"heads", shape.heads}, {"tokens", shape.tokens}};
}

// The chapter's step of that name.
const gradients::Step& step_named(const char* name) {
  for (const gradients::Step& step : gradients::steps())
    if (step.name == name) return step;
  throw std::runtime_error("attention_backward: chapter 15 has no step " + std::string(name));
}

}  // namespace
}  // namespace operators

int vision_attention_forward(const vision_tensor* q, const vision_tensor* k, const vision_tensor* v,
                             const vision_tensor* o, const vision_tensor* log_sum_exp, float scale,
                             void* stream) {
  using namespace operators;
  return guarded([&] {
    Call call("attention_forward");
    const AttentionShape shape = shape_of(call, q, scale);
    const Sizes sizes = sizes_of(shape);
    const half* Q = call.input<half>("q", q, sizes, kAlignment);
    const half* K = call.input<half>("k", k, sizes, kAlignment);
    const half* V = call.input<half>("v", v, sizes, kAlignment);
    half* O = call.output<half>("o", o, sizes, kAlignment);
    float* sums = call.optional_output<float>("log_sum_exp", log_sum_exp, rows_of(shape));
    const auto on = static_cast<cudaStream_t>(stream);
    if (sums)
      gradients::forward_pass(Q, K, V, O, sums, shape, on);
    else
      flash_attention::ragged(Q, K, V, O, shape, on);
  });
}

int vision_attention_backward(const vision_tensor* q, const vision_tensor* k,
                              const vision_tensor* v, const vision_tensor* o,
                              const vision_tensor* log_sum_exp, const vision_tensor* d_o,
                              const vision_tensor* dq, const vision_tensor* dk,
                              const vision_tensor* dv, float scale, int deterministic,
                              void* stream) {
  using namespace operators;
  return guarded([&] {
    Call call("attention_backward");
    const AttentionShape shape = shape_of(call, q, scale);
    const Sizes sizes = sizes_of(shape);
    GradientPointers p{};
    p.Q = call.input<half>("q", q, sizes, kAlignment);
    p.K = call.input<half>("k", k, sizes, kAlignment);
    p.V = call.input<half>("v", v, sizes, kAlignment);
    p.O = call.input<half>("o", o, sizes, kAlignment);
    p.log_sum_exp = call.input<float>("log_sum_exp", log_sum_exp, rows_of(shape));
    p.dO = call.input<half>("d_o", d_o, sizes, kAlignment);
    p.dQ = call.output<half>("dq", dq, sizes, kAlignment);
    p.dK = call.output<half>("dk", dk, sizes, kAlignment);
    p.dV = call.output<half>("dv", dv, sizes, kAlignment);
    const gradients::Step& step = step_named(deterministic ? "deterministic" : "tensor cores");
    const auto on = static_cast<cudaStream_t>(stream);
    const Scratch workspace(step.workspace_of(shape) * int64_t(sizeof(float)), on);
    p.workspace = workspace.as<float>();
    gradients::run(step, p, shape, on);
  });
}
