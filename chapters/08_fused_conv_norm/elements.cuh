// Numbers as arrays hold them, fp32 or fp16, one or four side by side; in registers they are fp32.
#pragma once

#include <cuda_fp16.h>

#include "problem.cuh"

namespace fused_conv_norm {

// Of x, weight, residual and y, where tiles are of that kind.
template <int kName>
using Element = typename Tile<kName>::Element;

__device__ inline void load(const float* from, float (&value)[1]) { value[0] = *from; }
__device__ inline void load(const half* from, float (&value)[1]) { value[0] = __half2float(*from); }
__device__ inline void store(const float (&value)[1], float* to) { *to = value[0]; }
__device__ inline void store(const float (&value)[1], half* to) { *to = __float2half_rn(value[0]); }

// Four begin at a multiple of their size.
__device__ inline void load(const float* from, float (&value)[4]) {
  *reinterpret_cast<float4*>(value) = *reinterpret_cast<const float4*>(from);
}
__device__ inline void store(const float (&value)[4], float* to) {
  *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(value);
}
__device__ inline void load(const half* from, float (&value)[4]) {
  const uint2 bits = *reinterpret_cast<const uint2*>(from);
  const float2 first = __half22float2(*reinterpret_cast<const half2*>(&bits.x)),
               second = __half22float2(*reinterpret_cast<const half2*>(&bits.y));
  value[0] = first.x, value[1] = first.y, value[2] = second.x, value[3] = second.y;
}
__device__ inline void store(const float (&value)[4], half* to) {
  const half2 first = __floats2half2_rn(value[0], value[1]),
              second = __floats2half2_rn(value[2], value[3]);
  *reinterpret_cast<uint2*>(to) = {*reinterpret_cast<const unsigned*>(&first),
                                   *reinterpret_cast<const unsigned*>(&second)};
}

}  // namespace fused_conv_norm
