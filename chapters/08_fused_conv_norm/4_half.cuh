// Step 4, fp16 storage: x, weights, residual and y take 2 bytes each. Sums, statistics, gamma and
// beta are fp32. Grid barrier and plan are step 2's; the tiles are in half_tile.cuh.
#pragma once

#include <cmath>

#include "3_tensor.cuh"
#include "parts/half_tile.cuh"

namespace fused_conv_norm {

// How elements in fp16 are loaded and stored, one or four side by side.
template <>
struct Access<half> {
  static __device__ void load(const half* from, float (&value)[1]) {
    value[0] = __half2float(*from);
  }
  static __device__ void store(const float (&value)[1], half* to) {
    *to = __float2half_rn(value[0]);
  }
  static __device__ void load(const half* from, float (&value)[4]) {
    const uint2 bits = *reinterpret_cast<const uint2*>(from);
    const float2 first = __half22float2(*reinterpret_cast<const half2*>(&bits.x)),
                 second = __half22float2(*reinterpret_cast<const half2*>(&bits.y));
    value[0] = first.x, value[1] = first.y, value[2] = second.x, value[3] = second.y;
  }
  static __device__ void store(const float (&value)[4], half* to) {
    const half2 first = __floats2half2_rn(value[0], value[1]),
                second = __floats2half2_rn(value[2], value[3]);
    *reinterpret_cast<uint2*>(to) = {*reinterpret_cast<const unsigned*>(&first),
                                     *reinterpret_cast<const unsigned*>(&second)};
  }
};

struct HalfTiles {
  using Element = half;

  // What a product costs follows from the reads of shared memory that it takes.
  static std::array<TileName, 3> by_cost(const ConvNormShape& shape, const DeviceLimits& limits) {
    const auto cost = [&]<TileName kName>(double each) {
      const bool possible = limits.shared_bytes >= 4 * Tile<kName>::kExchangeFloats;
      return TileCost{possible ? cost_of<kName>(shape, limits.sm_count, each) : HUGE_VAL, kName};
    };
    return cheapest_first({cost.template operator()<kHalfHuge>(0.8),
                           cost.template operator()<kHalfLarge>(1),
                           cost.template operator()<kHalfSmall>(2)});
  }
  template <class Use>
  static void with(TileName name, int stride, const Use& use) {
    with_tile<kHalfHuge, kHalfLarge, kHalfSmall>(name, stride, use);
  }
};

// Elements of the packed weights of a shape. They depend on its channels, filter, stride and
// upsampling, with the latter on padding, too; not on batch, height and width.
inline int64_t packed_elements(const ConvNormShape& shape) {
  require_conv_norm_shape(shape);
  const HalfPlan plan = Tile<kHalfSmall>::plan(shape, nullptr, nullptr, {});
  return 8 * Packing(plan).before(shape.upsample == 2 ? 4 : 1, plan);
}

// weight [out_channels, in_channels, kernel, kernel] as half_fused() takes it. packed begins at a
// multiple of 16 bytes. Once for a network: the result does for all calls.
// Throws std::invalid_argument naming shape and limit, std::runtime_error when CUDA refuses.
inline void pack_weights(const half* weight, half* packed, const ConvNormShape& shape,
                         cudaStream_t stream) {
  const int64_t fragments = packed_elements(shape) / 8;
  if (!weight || !packed || !is_aligned(packed, 16))
    refuse_shape(shape,
                 "weight and packed must not be null, and packed must begin at a multiple of 16 "
                 "bytes");
  launch(pack_kernel, (fragments + kPackThreads - 1) / kPackThreads, kPackThreads, 0, shape, stream,
         weight, reinterpret_cast<uint4*>(packed), fragments,
         Tile<kHalfSmall>::plan(shape, nullptr, nullptr, {}));
}

inline void require_half_arguments(const half* x, const half* packed, const float* gamma,
                                   const float* beta, const half* y, const ConvNormShape& shape) {
  require_arguments(x, packed, gamma, beta, y, shape);
  require_tensor_cores<kFp16>(shape);
  if (!is_aligned(packed, 16))
    refuse_shape(shape, "packed weights must begin at a multiple of 16 bytes");
}

// As tensor_fused(), or always in two passes, with arrays in fp16 and weights as pack_weights() left
// them. Products of such numbers are exact in fp32; y is rounded once, when it is stored, and is
// infinite beyond 65504. Rows of x that begin at multiples of 8 bytes are loaded faster.
inline void half_two_passes(const half* x, const half* packed, const float* gamma,
                            const float* beta, const half* residual, half* y,
                            const ConvNormShape& shape, cudaStream_t stream) {
  require_half_arguments(x, packed, gamma, beta, y, shape);
  // Between the passes the values are in fp32: fp16 would round what the norm is still to magnify.
  Workspace conv(shape.y_elements(), shape, stream);
  both_passes<HalfTiles>(x, packed, gamma, beta, residual, conv.data(), y, shape, stream);
}
inline void half_fused(const half* x, const half* packed, const float* gamma, const float* beta,
                       const half* residual, half* y, const ConvNormShape& shape,
                       cudaStream_t stream) {
  require_half_arguments(x, packed, gamma, beta, y, shape);
  if (!fused_in_one_launch<HalfTiles>(x, packed, gamma, beta, residual, y, shape, stream))
    half_two_passes(x, packed, gamma, beta, residual, y, shape, stream);
}

}  // namespace fused_conv_norm
