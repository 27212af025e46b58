// What steps 2 to 4 launch before and after their products.
//
//   dots      D = sum of dO ∘ O over each row. It is step 1's sum of P ∘ dP, since
//             Σ_j P_ij dP_ij = Σ_d dO_id Σ_j P_ij V_jd; it needs no row of P
//   finish    dQ of its sums in fp32, times scale
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../../../common/attention/launch.cuh"
#include "pointers.h"

namespace gradients {

constexpr int kDotsThreads = 256;
// 8 elements that one access of 16 bytes brings.
struct EightHalves {
  uint4 bits;
  __device__ const half2& pair(int i) const { return reinterpret_cast<const half2*>(&bits)[i]; }
  __device__ half2& pair(int i) { return reinterpret_cast<half2*>(&bits)[i]; }
};

// 16 bytes a lane: 4, 8 or 16 lanes have a row. Clears dQ's sums on the way, where there are any.
template <int kHeadDim>
__global__ void __launch_bounds__(kDotsThreads)
    dots_kernel(const half* O,          // [batch, heads, tokens, head_dim]
                const half* dO,         // the same
                float* dots,            // [batch, heads, tokens]
                float* dQ_sums,         // [batch, heads, tokens, head_dim], or null
                int64_t pieces) {       // pieces of 8 elements in all rows
  constexpr int kLanes = kHeadDim / 8;  // lanes per row
  const int64_t piece = int64_t(blockIdx.x) * kDotsThreads + threadIdx.x;
  float sum = 0.0f;
  if (piece < pieces) {
    const EightHalves o = reinterpret_cast<const EightHalves*>(O)[piece];
    const EightHalves d_o = reinterpret_cast<const EightHalves*>(dO)[piece];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 left = __half22float2(o.pair(i)), right = __half22float2(d_o.pair(i));
      sum += left.x * right.x + left.y * right.y;
    }
    if (dQ_sums) {
      reinterpret_cast<float4*>(dQ_sums)[2 * piece] = float4{};
      reinterpret_cast<float4*>(dQ_sums)[2 * piece + 1] = float4{};
    }
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (piece < pieces && piece % kLanes == 0) dots[piece / kLanes] = sum;
}

// 8 elements a thread.
__global__ void __launch_bounds__(kDotsThreads)
    finish_kernel(const float* dQ_sums,  // [batch, heads, tokens, head_dim]
                  half* dQ,              // the same
                  int64_t pieces, float scale) {
  const int64_t piece = int64_t(blockIdx.x) * kDotsThreads + threadIdx.x;
  if (piece >= pieces) return;
  const float4 first = reinterpret_cast<const float4*>(dQ_sums)[2 * piece],
               second = reinterpret_cast<const float4*>(dQ_sums)[2 * piece + 1];
  EightHalves result;
  result.pair(0) = __floats2half2_rn(first.x * scale, first.y * scale);
  result.pair(1) = __floats2half2_rn(first.z * scale, first.w * scale);
  result.pair(2) = __floats2half2_rn(second.x * scale, second.y * scale);
  result.pair(3) = __floats2half2_rn(second.z * scale, second.w * scale);
  reinterpret_cast<EightHalves*>(dQ)[piece] = result;
}

// ---- Launches -----------------------------------------------------------------------------------

// The sums of dQ [elements], then D [rows]: what steps with atomic additions need.
inline int64_t sums_workspace(const AttentionShape& shape) {
  return shape.elements() + shape.rows();
}
inline float* dots_behind_sums(const GradientPointers& p, const AttentionShape& shape) {
  return p.workspace + shape.elements();
}

// Throws unless shape and arrays are what steps 2 to 4 take.
inline void require_gradients(const GradientPointers& p, const AttentionShape& shape) {
  require_attention_shape(shape);
  require_alignment(
      {p.Q, p.K, p.V, p.O, p.dO, p.dQ, p.dK, p.dV, reinterpret_cast<const half*>(p.workspace)},
      "Q, K, V, O, dO, dQ, dK, dV and the workspace");
}

inline void launch_dots(const GradientPointers& p, float* dots, float* dQ_sums,
                        const AttentionShape& shape, cudaStream_t stream) {
  require_gradients(p, shape);
  const int64_t pieces = shape.elements() / 8;
  const unsigned blocks =
      grid_of((pieces + kDotsThreads - 1) / kDotsThreads, shape, "gradients, dots");
  const auto kernel = shape.head_dim == 32   ? dots_kernel<32>
                      : shape.head_dim == 64 ? dots_kernel<64>
                                             : dots_kernel<128>;
  kernel<<<blocks, kDotsThreads, 0, stream>>>(p.O, p.dO, dots, dQ_sums, pieces);
  require_launched(cudaGetLastError(), shape, "gradients, dots");
}

// D behind dQ's sums, which become 0.
inline void dots_and_zeros(const GradientPointers& p, const AttentionShape& shape,
                           cudaStream_t stream) {
  launch_dots(p, dots_behind_sums(p, shape), p.workspace, shape, stream);
}

inline void finish(const GradientPointers& p, const AttentionShape& shape, cudaStream_t stream) {
  require_gradients(p, shape);
  const int64_t pieces = shape.elements() / 8;
  const unsigned blocks =
      grid_of((pieces + kDotsThreads - 1) / kDotsThreads, shape, "gradients, finish");
  finish_kernel<<<blocks, kDotsThreads, 0, stream>>>(p.workspace, p.dQ, pieces, shape.scale);
  require_launched(cudaGetLastError(), shape, "gradients, finish");
}

}  // namespace gradients
