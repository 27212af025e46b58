// Chapter 8: convolution + instance norm + ReLU on one problem, compared with the CPU reference;
// with --style, a network of them on a photo.
#include "../../common/lab_conv.h"
#include "../../common/lab_style.h"
#include "network.cuh"
#include "three_passes.cuh"

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

// Style transfer, each layer by the last step.
int style_main(int argc, char** argv) {
  const auto path = [](const ConvNormShape&) { return std::string("three passes"); };
  return lab::style_main(argc, argv, "08_fused_conv_norm",
                         {steps::three_passes, steps::residual_block, steps::planes_of,
                          steps::pixels_of, path});
}

}  // namespace

int main(int argc, char** argv) {
  if (lab::style_asked(argc, argv)) return style_main(argc, argv);
  return lab::conv_norm_main(argc, argv, "08_fused_conv_norm",
                             "Chapter 8: convolution, instance norm and ReLU, from three passes "
                             "over memory to one.",
                             {{"three passes", steps::three_passes, three_passes_stages, nullptr}},
                             {{"naive norm", steps::naive_norm},
                              {"warp norm", steps::warp_reduced_norm},
                              {"vector norm", steps::vectorized_norm},
                              {"one-read norm", steps::one_read_norm}});
}
