// The launches of each step, one by one, and in words how fused() launches a shape.
#pragma once

#include <memory>

#include "../kernels/instances.cuh"
#include "problem.h"

namespace fused_conv_norm {

using Launches = std::vector<lab::ConvNormStep::NamedLaunch>;

// The launches of three_passes(), each between arrays of its own.
inline Launches three_passes_launches(const ConvNormShape& shape) {
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
Launches two_launches(const ConvNormShape& shape,
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
Launches fused_launches(const ConvNormShape& shape) {
  return two_launches<Tiles>(shape, fp32_arrays<Tiles>);
}
inline Launches half_launches(const ConvNormShape& shape) {
  return two_launches<HalfTiles>(shape, [](lab::ConvNormArrays& a) -> PassArrays<HalfTiles> {
    return {a.in_fp16->x.data(), a.in_fp16->packed.data(),
            a.has_residual ? a.in_fp16->residual.data() : nullptr, a.conv.data(),
            a.in_fp16->y.data()};
  });
}
// What fused() does where the output does not fit, also where it does.
inline Launches two_passes_launches(const ConvNormShape& shape) {
  return two_launches<Fp32Tiles>(shape, fp32_arrays<Fp32Tiles>, true);
}

// "one launch: 128 blocks ..." or "two passes: ...", for people; what this thread knows of it.
template <class Tiles>
std::string describe_plan(const ConvNormShape& shape) {
  const LaunchPlan plan = known_plan_of<Tiles>(shape);
  const DeviceLimits limits = device_limits();
  const auto text = [](int64_t number) { return std::to_string(number); };
  const auto kib = [&](int64_t bytes) { return text((bytes + 1023) / 1024) + " KiB"; };
  if (plan.refused)
    return "two passes: the device refused one launch of " + text(plan.blocks) + " blocks with " +
           kib(plan.shared_bytes) + " of shared memory each,\nthough " + text(plan.blocks_of_sm) +
           " of them should be resident on each of " + text(limits.sm_count) + " SMs (" +
           cudaGetErrorName(cudaErrorCooperativeLaunchTooLarge) + ")";
  if (!plan.fits)
    return "two passes: " + kib(shape.y_elements() * 4 / limits.sm_count) +
           " of the output for each of " + text(limits.sm_count) +
           " SMs do not fit (shared: " + kib(limits.shared_bytes) + ")";
  std::string tile;
  Tiles::with(plan.tile, shape.stride, [&]<TileName kName, int>() {
    tile = text(Tile<kName>::kTileChannels) + " channels x " + text(Tile<kName>::kTilePixels) +
           " pixels)";
  });
  return "one launch: " + text(plan.blocks) + " blocks keep " + text(plan.tiles_of_block) +
         (plan.tiles_of_block == 1 ? " tile" : " tiles") + " each (" + tile + ", all on chip";
}

}  // namespace fused_conv_norm
