// LayerNorm, with and without a residual, and its gradients in two stages: chapter 10.
#include "../../chapters/10_layer_norm/6_residual.cuh"
#include "../../chapters/10_layer_norm/7_backward.cuh"
#include "call.h"

// Compiled in the chapter's kernels_fp16.cu and kernels_fp32.cu, whose kernels.cuh names all steps.
namespace layer_norm {
#define LAYER_NORM_OF(T)                                   \
  extern template decltype(rows<T>) rows<T>;               \
  extern template decltype(residual<T>) residual<T>;       \
  extern template decltype(backward_dx<T>) backward_dx<T>; \
  extern template decltype(slab_sums<T>) slab_sums<T>
LAYER_NORM_OF(half);
LAYER_NORM_OF(float);
}  // namespace layer_norm

namespace operators {
namespace {

LayerNormShape shape_of(Call& call, const char* name, const vision_tensor* x, float epsilon) {
  const Sizes any = {{"rows"}, {"columns"}};
  const LayerNormShape shape{call.size(name, x, any, 0), call.size(name, x, any, 1), epsilon};
  require_shape(shape);
  return shape;
}

template <class T>
void forward(Call& call, const vision_tensor* x, const vision_tensor* residual,
             const vision_tensor* scale, const vision_tensor* bias, const vision_tensor* sum,
             const vision_tensor* y, const LayerNormShape& shape, cudaStream_t stream) {
  const Sizes all = {{"rows", shape.rows}, {"columns", shape.columns}};
  const Sizes columns = {{"columns", shape.columns}};
  const T* x_ = call.input<T>("x", x, all);
  const T* residual_ = call.optional_input<T>("residual", residual, all);
  const T* scale_ = call.input<T>("scale", scale, columns);
  const T* bias_ = call.input<T>("bias", bias, columns);
  if (!residual_ && sum) call.refuse("sum is given without residual, must be null then");
  T* sum_ = residual_ ? call.output<T>("sum", sum, all) : nullptr;
  T* y_ = call.output<T>("y", y, all);
  if (residual_)
    layer_norm::residual<T>(x_, residual_, scale_, bias_, sum_, y_, shape, stream);
  else
    layer_norm::rows<T>(x_, scale_, bias_, y_, shape, stream);
}

template <class T>
void backward(Call& call, const vision_tensor* dy, const vision_tensor* x,
              const vision_tensor* scale, const vision_tensor* dx, const vision_tensor* d_scale,
              const vision_tensor* d_bias, const LayerNormShape& shape, cudaStream_t stream) {
  const Sizes all = {{"rows", shape.rows}, {"columns", shape.columns}};
  const Sizes columns = {{"columns", shape.columns}};
  const T* dy_ = call.input<T>("dy", dy, all);
  const T* x_ = call.input<T>("x", x, all);
  const T* scale_ = call.input<T>("scale", scale, columns);
  T* dx_ = call.output<T>("dx", dx, all);
  float* d_scale_ = call.output<float>("d_scale", d_scale, columns);
  float* d_bias_ = call.output<float>("d_bias", d_bias, columns);
  const Scratch moments(int64_t(shape.rows) * int64_t(sizeof(layer_norm::Moments)), stream);
  const Scratch partials(layer_norm::partial_count(shape) * int64_t(sizeof(float)), stream);
  layer_norm::backward_dx<T>(dy_, x_, scale_, dx_, moments.as<layer_norm::Moments>(), shape,
                             stream);
  layer_norm::slab_sums<T>(dy_, x_, moments.as<layer_norm::Moments>(), partials.as<float>(), shape,
                           stream);
  layer_norm::column_sums(partials.as<float>(), d_scale_, d_bias_, shape, stream);
}

}  // namespace
}  // namespace operators

int vision_layer_norm_forward(const vision_tensor* x, const vision_tensor* residual,
                              const vision_tensor* scale, const vision_tensor* bias,
                              const vision_tensor* sum, const vision_tensor* y, float epsilon,
                              void* stream) {
  using namespace operators;
  return guarded([&] {
    Call call("layer_norm_forward");
    const auto run = call.float_type("x", x) == VISION_FLOAT16 ? forward<half> : forward<float>;
    run(call, x, residual, scale, bias, sum, y, shape_of(call, "x", x, epsilon),
        static_cast<cudaStream_t>(stream));
  });
}

int vision_layer_norm_backward(const vision_tensor* dy, const vision_tensor* x,
                               const vision_tensor* scale, const vision_tensor* dx,
                               const vision_tensor* d_scale, const vision_tensor* d_bias,
                               float epsilon, void* stream) {
  using namespace operators;
  return guarded([&] {
    Call call("layer_norm_backward");
    const auto run = call.float_type("dy", dy) == VISION_FLOAT16 ? backward<half> : backward<float>;
    run(call, dy, x, scale, dx, d_scale, d_bias, shape_of(call, "dy", dy, epsilon),
        static_cast<cudaStream_t>(stream));
  });
}
