// Tried and not kept: the tile of K without padding, as it lies in memory. All rows of it begin in
// the same bank at head_dim 64, so the 8 rows of a fragment come one after the other.
#pragma once

#include "../kernel.cuh"

namespace coalesced_k {

template <int kHeadDim, int kWarps>
void launch_without_padding(const half* Q, const half* K, const half* V, half* O,
                            const AttentionShape& shape, cudaStream_t stream) {
  constexpr int kKeyTile = 64;
  const auto kernel = attention_kernel<kHeadDim, kKeyTile, kWarps, 0>;
  constexpr int kBytes = sizeof(Tiles<kHeadDim, kKeyTile, kWarps, 0>);
  require_launched(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), shape);
  kernel<<<blocks_for(shape, kTile * kWarps), 32 * kWarps, kBytes, stream>>>(
      Q, K, V, O, shape.tokens, log2_scale(shape));
  require_launched(cudaGetLastError(), shape);
}

// As attention(), with head_dim 64 alone: std::invalid_argument for another, std::runtime_error on a
// device whose blocks have too little shared memory.
inline void attention_without_padding(const half* Q, const half* K, const half* V, half* O,
                                      const AttentionShape& shape, cudaStream_t stream) {
  require_attention_shape(shape);
  require_alignment({Q, K, V, O}, "Q, K, V and O");
  if (shape.head_dim != 64)
    throw std::invalid_argument("no padding, shape " + describe(shape) + ": head_dim must be 64");
  const int warps = warps_for(shape, kTile);
  const auto launch = warps == 2   ? launch_without_padding<64, 2>
                      : warps == 4 ? launch_without_padding<64, 4>
                                   : launch_without_padding<64, 8>;
  launch(Q, K, V, O, shape, stream);
}

}  // namespace coalesced_k
