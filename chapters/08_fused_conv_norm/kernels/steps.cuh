// The chapter's steps as the program runs them: whole, and launch by launch.
#pragma once

#include <memory>

#include "../host/problem.h"
#include "kernels.cuh"

namespace fused_conv_norm {

using Stages = std::vector<lab::ConvNormStep::Stage>;

// The launches of three_passes(), each between arrays of its own.
inline Stages three_passes_stages(const ConvNormShape& shape) {
  const auto convolve = [shape](lab::ConvNormArrays& a) {
    convolution(a.x.data(), a.weight.data(), a.has_bias ? a.bias.data() : nullptr, a.conv.data(),
                shape, nullptr);
  };
  const auto norm = [shape](lab::ConvNormArrays& a) {
    vectorized_norm(a.conv.data(), a.gamma.data(), a.beta.data(), a.y.data(), norm_shape(shape),
                    nullptr);
  };
  const auto rectify = [shape](lab::ConvNormArrays& a) {
    relu(a.y.data(), a.has_residual ? a.residual.data() : nullptr, shape, nullptr);
  };
  return {{"convolution", convolve}, {"instance norm", norm}, {"ReLU", rectify}};
}

// What the two passes of fused() are given, with those tiles.
template <class Tiles>
struct PassArrays {
  const typename Tiles::Element *x, *weight, *residual;
  float* conv;
  typename Tiles::Element* y;
};
// The two passes as launches. None where fused() is one launch because the output fits on the chip,
// unless `always`. pass_arrays(arrays): what both are given of all arrays.
template <class Tiles>
Stages two_stages(const ConvNormShape& shape,
                  PassArrays<Tiles> (*pass_arrays)(lab::ConvNormArrays& arrays),
                  bool always = false) {
  if (!always && known_plan_of<Tiles>(shape).fits) return {};
  const auto moments =
      std::make_shared<lab::DeviceArray<float>>(moments_floats<Tiles>(shape), "moments");
  const auto first = [=](lab::ConvNormArrays& a) {
    const PassArrays<Tiles> p = pass_arrays(a);
    first_pass<Tiles>(p.x, p.weight, p.conv, moments->data(), shape, nullptr);
  };
  const auto second = [=](lab::ConvNormArrays& a) {
    const PassArrays<Tiles> p = pass_arrays(a);
    second_pass<Tiles>(moments->data(), a.gamma.data(), a.beta.data(), p.residual, p.conv, p.y,
                       shape, nullptr);
  };
  return {{"first pass", first}, {"second pass", second}};
}
template <class Tiles>
PassArrays<Tiles> fp32_arrays(lab::ConvNormArrays& a) {
  return {a.x.data(), a.weight.data(), a.has_residual ? a.residual.data() : nullptr, a.y.data(),
          a.y.data()};
}
template <class Tiles>
Stages fused_stages(const ConvNormShape& shape) {
  return two_stages<Tiles>(shape, fp32_arrays<Tiles>);
}
inline Stages half_stages(const ConvNormShape& shape) {
  return two_stages<HalfTiles>(shape, [](lab::ConvNormArrays& a) -> PassArrays<HalfTiles> {
    return {a.in_fp16->x.data(), a.in_fp16->packed.data(),
            a.has_residual ? a.in_fp16->residual.data() : nullptr, a.conv.data(),
            a.in_fp16->y.data()};
  });
}
// What fused() does where the output does not fit, also where it does.
inline Stages always_two_stages(const ConvNormShape& shape) {
  return two_stages<Fp32Tiles>(shape, fp32_arrays<Fp32Tiles>, true);
}

// The step on tensor cores.
template <Precision kPrecision>
lab::ConvNormStep tensor_step(const char* precision) {
  using Tiles = TensorTiles<kPrecision>;
  return {std::string("fused ") + precision,
          tensor_fused<kPrecision>,
          fused_stages<Tiles>,
          describe_plan<Tiles>,
          precision,
          lacking<kPrecision>};
}

// The step on arrays in fp16.
inline lab::ConvNormStep half_step() {
  return {"half storage",
          nullptr,
          half_stages,
          describe_plan<HalfTiles>,
          "fp16",
          lacking<kFp16>,
          {packed_elements, pack_weights, half_fused}};
}

// In the order of the lesson, the variant at the end.
inline std::vector<lab::ConvNormStep> steps() {
  return {
      {"three passes", three_passes, three_passes_stages},
      {"fused", fused, fused_stages<Fp32Tiles>, describe_plan<Fp32Tiles>},
      tensor_step<kTf32>("tf32"),
      tensor_step<kFp16>("fp16"),
      half_step(),
      {.name = "two passes", .function = two_passes, .stages = always_two_stages, .variant = true}};
}

// Instance norm alone.
inline std::vector<lab::NormStep> norms() {
  return {{"naive norm", naive_norm},
          {"warp norm", warp_reduced_norm},
          {"vector norm", vectorized_norm},
          {"one-read norm", one_read_norm}};
}

}  // namespace fused_conv_norm
