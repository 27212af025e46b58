// Step 3, tensor cores: the fused step with its products in tf32 or fp16. Arrays, sums, statistics,
// grid barrier and stores are step 2's; only the tile differs.
#pragma once

#include "2_fused.cuh"
#include "parts/tensor_tile.cuh"

namespace fused_conv_norm {

// Kinds of tile for operands of that precision.
template <Precision kPrecision>
struct TensorTiles {
  using Element = float;
  static constexpr TileName kLargeTile = kPrecision == kTf32 ? kTf32Large : kFp16Large;
  static constexpr TileName kSmallTile = kPrecision == kTf32 ? kTf32Small : kFp16Small;

  // A product costs about twice as much in the small one, whose warps read twice the operands for
  // each. The large one's sums pass through 68 KiB, more than a block has before sm_80.
  static std::array<TileName, 2> by_cost(const ConvNormShape& shape, const DeviceLimits& limits) {
    const bool possible = limits.shared_bytes >= 80 * 1024;
    if (!possible) return {kSmallTile, kSmallTile};
    if (cost_of<kLargeTile>(shape, limits.sm_count, 1) <=
        cost_of<kSmallTile>(shape, limits.sm_count, 2))
      return {kLargeTile, kSmallTile};
    return {kSmallTile, kLargeTile};
  }
  template <class Use>
  static void with(TileName name, int stride, const Use& use) {
    with_tile<kLargeTile, kSmallTile>(name, stride, use);
  }
};

// Why the current device, or this program on it, has no tensor cores for that precision: words that
// name the precision, what is there and what would do; empty where it has.
template <Precision kPrecision>
std::string lacking() {
  int device = 0, major = 0, minor = 0;
  cudaFuncAttributes code{};
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess ||
      cudaFuncGetAttributes(&code, fused_kernel<TensorTiles<kPrecision>::kSmallTile, 1>) !=
          cudaSuccess)
    return "";  // the launch will say what is wrong
  const int of_device = 10 * major + minor, of_code = code.ptxVersion;
  constexpr int kNeeded = kPrecision == kTf32 ? 80 : 75;
  const std::string name = kPrecision == kTf32 ? "tf32" : "fp16";
  if (of_device < kNeeded)
    return name + " on tensor cores needs sm_" + std::to_string(kNeeded) +
           " or newer, this GPU is sm_" + std::to_string(of_device) +
           (kPrecision == kTf32 && of_device >= 75 ? ": fp16 is there" : "");
  if (of_code < kNeeded)
    return name + " on tensor cores needs code for sm_" + std::to_string(kNeeded) +
           " or newer, this program was built for sm_" + std::to_string(of_code) +
           ": make ARCH=sm_" + std::to_string(of_device);
  return "";
}
template <Precision kPrecision>
void require_tensor_cores(const ConvNormShape& shape) {
  const std::string why = lacking<kPrecision>();
  if (!why.empty()) refuse_shape(shape, why);
}

// As fused(), with x and weight rounded to tf32 or fp16 as they go into products (all arrays are fp32,
// and so are sums and everything behind them): each operand by up to 2^-11 of itself. fp16 ends at
// 65504, beyond which x and weight become infinite, and rounds what is below 2^-14 by up to 2^-25;
// tf32 has the range of fp32, and rounds what is below 2^-126 by up to 2^-137. Throws as fused(), and
// std::invalid_argument where the device has no such tensor cores.
template <Precision kPrecision>
void tensor_fused(const float* x, const float* weight, const float* bias, const float* gamma,
                  const float* beta, const float* residual, float* y, const ConvNormShape& shape,
                  cudaStream_t stream) {
  require_arguments(x, weight, gamma, beta, y, shape);
  require_tensor_cores<kPrecision>(shape);
  fused<TensorTiles<kPrecision>>(x, weight, bias, gamma, beta, residual, y, shape, stream);
}

}  // namespace fused_conv_norm
