// Tried and not kept, with head_dim 64 alone:
//
//   16 warps     a block with 256 query rows. One fits on an SM, so its barriers stop all of the
//                SM's warps, and the last block of a head has more warps without rows.
//   24 resident  8 warps a block as before, but registers for 24 warps on an SM instead of 16. A
//                thread has 80 then. O, Q and the loads under way want more: some of them go to
//                local memory.
#pragma once

#include "../kernel.cuh"

namespace multi_warp {

// As attention(), with kWarps a block and registers for kResident on an SM. Throws
// std::invalid_argument for another head_dim than 64, std::runtime_error on a device whose blocks
// have too little shared memory.
template <int kWarps, int kResident>
void attention_of_more(const half* Q, const half* K, const half* V, half* O,
                       const AttentionShape& shape, cudaStream_t stream) {
  require_attention_shape(shape);
  require_alignment({Q, K, V, O}, "Q, K, V and O");
  if (shape.head_dim != 64)
    throw std::invalid_argument("attention of shape " + describe(shape) +
                                " with more warps: head_dim must be 64");
  const auto kernel = attention_kernel<64, 64, kWarps, kResident>;
  constexpr int kBytes = sizeof(Tiles<64, 64, kWarps>);
  require_launched(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), shape);
  kernel<<<blocks_for(shape, kTile * kWarps), 32 * kWarps, kBytes, stream>>>(
      Q, K, V, O, shape.tokens, log2_scale(shape));
  require_launched(cudaGetLastError(), shape);
}

}  // namespace multi_warp
