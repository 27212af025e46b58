// Convolution, instance norm and ReLU: chapter 8's fused step, and its storage in fp16.
#include "../../chapters/08_fused_conv_norm/kernels/instances.cuh"
#include "call.h"

namespace operators {
namespace {

ConvNormShape shape_of(Call& call, const vision_tensor* x, const vision_tensor* weight,
                       const vision_conv_norm_options* options) {
  const Sizes of_x = {{"batch"}, {"in_channels"}, {"height"}, {"width"}};
  const Sizes of_weight = {{"out_channels"}, {"in_channels"}, {"kernel"}, {"kernel"}};
  if (!options) call.refuse("options is a null pointer");
  ConvNormShape shape;
  shape.batch = call.size("x", x, of_x, 0);
  shape.in_channels = call.size("x", x, of_x, 1);
  shape.height = call.size("x", x, of_x, 2);
  shape.width = call.size("x", x, of_x, 3);
  shape.out_channels = call.size("weight", weight, of_weight, 0);
  shape.kernel = call.size("weight", weight, of_weight, 2);
  shape.stride = options->stride;
  shape.pad_top = options->top, shape.pad_bottom = options->bottom;
  shape.pad_left = options->left, shape.pad_right = options->right;
  shape.padding = options->reflect ? Padding::kReflect : Padding::kZero;
  shape.eps = options->epsilon;
  shape.relu = options->relu != 0;
  if (!(shape.eps > 0 && shape.eps < 1))
    call.refuse("epsilon is " + std::to_string(shape.eps) + ", must lie between 0 and 1");
  require_conv_norm_shape(shape);
  return shape;
}

template <class T>
struct Arrays {
  const T *x, *weight, *residual;
  const float *gamma, *beta;
  T* y;
};
template <class T>
Arrays<T> arrays_of(Call& call, const ConvNormShape& s, const vision_tensor* x,
                    const vision_tensor* weight, const vision_tensor* gamma,
                    const vision_tensor* beta, const vision_tensor* residual,
                    const vision_tensor* y) {
  const Sizes channels = {{"out_channels", s.out_channels}};
  const Sizes of_y = {{"batch", s.batch},
                      {"out_channels", s.out_channels},
                      {"out_height", s.out_height()},
                      {"out_width", s.out_width()}};
  Arrays<T> a;
  a.x = call.input<T>("x", x,
                      {{"batch", s.batch},
                       {"in_channels", s.in_channels},
                       {"height", s.height},
                       {"width", s.width}});
  a.weight = call.input<T>("weight", weight,
                           {{"out_channels", s.out_channels},
                            {"in_channels", s.in_channels},
                            {"kernel", s.kernel},
                            {"kernel", s.kernel}});
  a.gamma = call.input<float>("gamma", gamma, channels);
  a.beta = call.input<float>("beta", beta, channels);
  a.residual = call.optional_input<T>("residual", residual, of_y);
  a.y = call.output<T>("y", y, of_y);
  return a;
}

}  // namespace
}  // namespace operators

int vision_conv_norm(const vision_tensor* x, const vision_tensor* weight,
                     const vision_tensor* gamma, const vision_tensor* beta,
                     const vision_tensor* residual, const vision_tensor* y,
                     const vision_conv_norm_options* options, void* stream) {
  using namespace operators;
  return guarded([&] {
    Call call("conv_norm");
    const auto on = static_cast<cudaStream_t>(stream);
    const bool in_half = call.float_type("x", x) == VISION_FLOAT16;
    const ConvNormShape shape = shape_of(call, x, weight, options);
    if (!in_half) {
      const auto a = arrays_of<float>(call, shape, x, weight, gamma, beta, residual, y);
      fused_conv_norm::fused(a.x, a.weight, nullptr, a.gamma, a.beta, a.residual, a.y, shape, on);
      return;
    }
    const auto a = arrays_of<half>(call, shape, x, weight, gamma, beta, residual, y);
    const Scratch packed(fused_conv_norm::packed_elements(shape) * int64_t(sizeof(half)), on);
    fused_conv_norm::pack_weights(a.weight, packed.as<half>(), shape, on);
    fused_conv_norm::half_fused(a.x, packed.as<half>(), a.gamma, a.beta, a.residual, a.y, shape,
                                on);
  });
}
