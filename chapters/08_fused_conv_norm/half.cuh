// Step 4, fp16 storage: x, weights, residual and y take 2 bytes each. Sums, statistics, gamma and
// beta are fp32, grid barrier and plan those of fused.cuh; tiles are those of half_tile.cuh.
#pragma once

#include <cmath>

#include "half_tile.cuh"
#include "tensor.cuh"

namespace fused_conv_norm {

struct HalfTiles {
  using Element = half;

  // What a product costs follows from the reads of shared memory that it takes.
  static std::array<TileName, 3> by_cost(const ConvNormShape& shape, const DeviceLimits& limits) {
    const auto cost = [&]<int kName>(double each) {
      const bool possible = limits.shared_bytes >= 4 * Tile<kName>::kExchangeFloats;
      return std::pair(possible ? cost_of<kName>(shape, limits.sm_count, each) : HUGE_VAL,
                       TileName(kName));
    };
    std::array costs = {cost.template operator()<kHalfHuge>(0.8),
                        cost.template operator()<kHalfLarge>(1),
                        cost.template operator()<kHalfSmall>(2)};
    std::stable_sort(costs.begin(), costs.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    return {costs[0].second, costs[1].second, costs[2].second};
  }
  template <class Use>
  static void with(TileName name, int stride, const Use& use) {
    const auto with_stride = [&]<int kName>() {
      stride == 1 ? use.template operator()<kName, 1>() : use.template operator()<kName, 2>();
    };
    if (name == kHalfHuge) with_stride.template operator()<kHalfHuge>();
    if (name == kHalfLarge) with_stride.template operator()<kHalfLarge>();
    if (name == kHalfSmall) with_stride.template operator()<kHalfSmall>();
  }
};

// Elements of the packed weights of a shape. They depend on its channels, filter, stride and
// upsampling, with the latter on padding, too; not on batch, height and width.
inline int64_t packed_elements(const ConvNormShape& shape) {
  require_conv_norm_shape(shape);
  const Problem problem = problem_of<kHalfSmall>(shape, nullptr, nullptr, {});
  return 8 * Packing(problem).before(shape.upsample == 2 ? 4 : 1, problem);
}

// weight [out_channels, in_channels, kernel, kernel] as half_fused() takes it. packed begins at a
// multiple of 16 bytes. Once for a network: the result does for all calls.
// Throws std::invalid_argument naming shape and limit, std::runtime_error when CUDA refuses.
inline void pack_weights(const half* weight, half* packed, const ConvNormShape& shape,
                         cudaStream_t stream) {
  const int64_t fragments = packed_elements(shape) / 8;
  if (!weight || !packed || !is_aligned(packed, 16))
    throw std::invalid_argument("convolution of shape " + describe(shape) +
                                ": weight and packed must not be null, and packed must begin at "
                                "a multiple of 16 bytes");
  const unsigned blocks = unsigned((fragments + kPackThreads - 1) / kPackThreads);
  pack_kernel<<<blocks, kPackThreads, 0, stream>>>(
      weight, reinterpret_cast<uint4*>(packed), fragments,
      problem_of<kHalfSmall>(shape, nullptr, nullptr, {}));
  require_done(cudaGetLastError(), shape);
}

inline void require_half_arguments(const half* x, const half* packed, const float* gamma,
                                   const float* beta, const half* y, const ConvNormShape& shape) {
  require_arguments(x, packed, gamma, beta, y, shape);
  require_tensor_cores<kFp16>(shape);
  if (!is_aligned(packed, 16))
    throw std::invalid_argument("convolution of shape " + describe(shape) +
                                ": packed weights must begin at a multiple of 16 bytes");
}

// As tensor_fused() and tensor_two_passes(), with arrays in fp16 and weights as pack_weights() left
// them. Products of such numbers are exact in fp32; y is rounded once, when it is stored, and is
// infinite beyond 65504. Rows of x that begin at multiples of 8 bytes are loaded faster.
inline void half_two_passes(const half* x, const half* packed, const float* gamma,
                            const float* beta, const half* residual, half* y,
                            const ConvNormShape& shape, cudaStream_t stream) {
  require_half_arguments(x, packed, gamma, beta, y, shape);
  two_passes_on<HalfTiles>(x, packed, gamma, beta, residual, y, shape, stream);
}
inline void half_fused(const half* x, const half* packed, const float* gamma, const float* beta,
                       const half* residual, half* y, const ConvNormShape& shape,
                       cudaStream_t stream) {
  require_half_arguments(x, packed, gamma, beta, y, shape);
  fused_on<HalfTiles>(x, packed, gamma, beta, residual, y, shape, stream);
}

}  // namespace fused_conv_norm
