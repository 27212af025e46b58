// Tried and not kept, with head_dim 64 alone: 16 warps a block, with 256 query rows. One block fits on an
// SM, so its barriers stop all of the SM's warps, and the last block of a head has more warps without rows.
#pragma once

#include "../kernel.cuh"

namespace multi_warp {

// As attention(). Throws std::invalid_argument for another head_dim than 64, std::runtime_error on a device
// whose blocks have too little shared memory.
inline void attention_with_16_warps(const half* Q, const half* K, const half* V, half* O,
                                    const AttentionShape& shape, cudaStream_t stream) {
  require_attention_shape(shape);
  require_alignment({Q, K, V, O}, "Q, K, V and O");
  if (shape.head_dim != 64)
    throw std::invalid_argument("attention of shape " + describe(shape) +
                                " with 16 warps: head_dim must be 64");
  const auto kernel = attention_kernel<64, 64, 16>;
  constexpr int kBytes = sizeof(BlockTiles<64, 64, 16>);
  require_launched(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), shape);
  kernel<<<blocks_for(shape, 16 * kTile), 16 * 32, kBytes, stream>>>(Q, K, V, O, shape.tokens,
                                                                     log2_scale(shape));
  require_launched(cudaGetLastError(), shape);
}

}  // namespace multi_warp
