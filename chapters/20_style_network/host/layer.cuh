// What computes a layer, and its weights on the device.
#pragma once

#include "../../../common/lab.cuh"
#include "../../08_fused_conv_norm/kernels/instances.cuh"
#include "../kernel.cuh"
#include "network.h"

namespace lab {

// A step of chapter 8.
struct LayerStep {
  std::string name;
  style_network::ConvNormFunction function;
  bool variant = false;  // only where --step asks for it

  // How it computes a layer: "fused", or "two passes" where the output does not fit on the chip.
  std::string path(const ConvNormShape& shape) const {
    using namespace fused_conv_norm;
    return variant || known_plan_of<Fp32Tiles>(shape).fits ? name : "two passes";
  }
};

struct DeviceLayer {
  DeviceArray<float> weight, gamma, beta;
  explicit DeviceLayer(const StyleLayer& layer)
      : weight(layer.weight, "weight"), gamma(layer.gamma, "gamma"), beta(layer.beta, "beta") {}
  ConvNormParameters parameters() const {
    return {weight.data(), nullptr, gamma.data(), beta.data()};
  }
};

}  // namespace lab
