// Chapter 8: convolution + instance norm + ReLU on one problem, compared with the CPU reference.
#include <memory>

#include "host/problem.h"
#include "kernels/kernels.cuh"

namespace {

namespace steps = fused_conv_norm;
using lab::ConvNormArrays;

// The launches of three_passes(), each between arrays of its own.
std::vector<lab::ConvNormStep::Stage> three_passes_stages(const ConvNormShape& shape) {
  const auto convolution = [shape](ConvNormArrays& a) {
    steps::convolution(a.x.data(), a.weight.data(), a.has_bias ? a.bias.data() : nullptr,
                       a.conv.data(), shape, nullptr);
  };
  const auto norm = [shape](ConvNormArrays& a) {
    steps::vectorized_norm(a.conv.data(), a.gamma.data(), a.beta.data(), a.y.data(),
                           steps::norm_shape(shape), nullptr);
  };
  const auto relu = [shape](ConvNormArrays& a) {
    steps::relu(a.y.data(), a.has_residual ? a.residual.data() : nullptr, shape, nullptr);
  };
  return {{"convolution", convolution}, {"instance norm", norm}, {"ReLU", relu}};
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
std::vector<lab::ConvNormStep::Stage> two_stages(
    const ConvNormShape& shape, PassArrays<Tiles> (*pass_arrays)(ConvNormArrays& arrays),
    bool always = false) {
  if (!always && steps::known_plan_of<Tiles>(shape).fits) return {};
  const auto moments =
      std::make_shared<lab::DeviceArray<float>>(steps::moments_floats<Tiles>(shape), "moments");
  const auto first = [=](ConvNormArrays& a) {
    const PassArrays<Tiles> p = pass_arrays(a);
    steps::first_pass<Tiles>(p.x, p.weight, p.conv, moments->data(), shape, nullptr);
  };
  const auto second = [=](ConvNormArrays& a) {
    const PassArrays<Tiles> p = pass_arrays(a);
    steps::second_pass<Tiles>(moments->data(), a.gamma.data(), a.beta.data(), p.residual, p.conv,
                              p.y, shape, nullptr);
  };
  return {{"first pass", first}, {"second pass", second}};
}
template <class Tiles>
PassArrays<Tiles> fp32_arrays(ConvNormArrays& a) {
  return {a.x.data(), a.weight.data(), a.has_residual ? a.residual.data() : nullptr, a.y.data(),
          a.y.data()};
}
template <class Tiles>
std::vector<lab::ConvNormStep::Stage> fused_stages(const ConvNormShape& shape) {
  return two_stages<Tiles>(shape, fp32_arrays<Tiles>);
}
// What fused() does where the output does not fit, also where it does.
std::vector<lab::ConvNormStep::Stage> always_two_stages(const ConvNormShape& shape) {
  return two_stages<steps::Fp32Tiles>(shape, fp32_arrays<steps::Fp32Tiles>, true);
}

// The step on tensor cores.
template <steps::Precision kPrecision>
lab::ConvNormStep tensor_step(const char* precision) {
  using Tiles = steps::TensorTiles<kPrecision>;
  return {std::string("fused ") + precision,
          steps::tensor_fused<kPrecision>,
          fused_stages<Tiles>,
          steps::describe_plan<Tiles>,
          precision,
          steps::lacking<kPrecision>};
}

// The step on arrays in fp16.
std::vector<lab::ConvNormStep::Stage> half_stages(const ConvNormShape& shape) {
  using Tiles = steps::HalfTiles;
  return two_stages<Tiles>(shape, [](ConvNormArrays& a) -> PassArrays<Tiles> {
    return {a.in_fp16->x.data(), a.in_fp16->packed.data(),
            a.has_residual ? a.in_fp16->residual.data() : nullptr, a.conv.data(),
            a.in_fp16->y.data()};
  });
}
lab::ConvNormStep half_step() {
  return {"half storage",
          nullptr,
          half_stages,
          steps::describe_plan<steps::HalfTiles>,
          "fp16",
          steps::lacking<steps::kFp16>,
          {steps::packed_elements, steps::pack_weights, steps::half_fused}};
}

}  // namespace

int main(int argc, char** argv) {
  return lab::conv_norm_main(argc, argv, "08_fused_conv_norm",
                             "Chapter 8: convolution, instance norm and ReLU, from three passes "
                             "over memory to one;\n"
                             "with --precision, on tensor cores; with --storage, on arrays in "
                             "fp16. (A network of such\nlayers, which repaints a photo, is "
                             "chapter 20.)",
                             {{"three passes", steps::three_passes, three_passes_stages, nullptr},
                              {"fused", steps::fused, fused_stages<steps::Fp32Tiles>,
                               steps::describe_plan<steps::Fp32Tiles>},
                              tensor_step<steps::kTf32>("tf32"),
                              tensor_step<steps::kFp16>("fp16"),
                              half_step(),
                              {.name = "two passes",
                               .function = steps::two_passes,
                               .stages = always_two_stages,
                               .variant = true}},
                             {{"naive norm", steps::naive_norm},
                              {"warp norm", steps::warp_reduced_norm},
                              {"vector norm", steps::vectorized_norm},
                              {"one-read norm", steps::one_read_norm}});
}
