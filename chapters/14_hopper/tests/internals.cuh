// What tests call besides the steps, compiled with their kernels in kernels.cu.
#pragma once

#include "../1_tensor_maps.cuh"
#include "../2_wgmma.cuh"
#include "../3_specialized.cuh"
#include "../4_persistent.cuh"
#include "../variants/multicast.cuh"
#include "internals.h"

namespace hopper {
namespace {

template <class Tiles, class... Arguments>
void launch(const void* kernel, unsigned blocks, cudaStream_t stream, Arguments... arguments) {
  void* pointers[] = {&arguments...};
  lab::check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Tiles)));
  lab::check(cudaLaunchKernel(kernel, blocks, Tiles::kThreads, pointers, sizeof(Tiles), stream));
}
template <class Tiles>
int row_blocks_for(const AttentionShape& shape) {
  return (shape.tokens + Tiles::kQueryRows - 1) / Tiles::kQueryRows;
}
template <class Tiles>
void launch_rows(const void* kernel, const half* Q, const half* K, const half* V, half* O,
                 const AttentionShape& shape, cudaStream_t stream) {
  launch<Tiles>(kernel, blocks_for(shape, Tiles::kQueryRows), stream,
                make_maps<decltype(Tiles::q), decltype(Tiles::Stage::k)>(Q, K, V, shape), O,
                shape.tokens, log2_scale(shape));
}

}  // namespace

int heads_dealt_together(const AttentionShape& shape) { return heads_together(shape); }

void launch_persistent_on(int blocks, int together, const void* mutant, const half* Q,
                          const half* K, const half* V, half* O, const AttentionShape& shape,
                          cudaStream_t stream) {
  using Tiles = PersistentTiles<64>;
  launch<Tiles>(mutant ? mutant : reinterpret_cast<const void*>(persistent_kernel<64>), blocks,
                stream, make_maps<QueryTile<Tiles>, decltype(Tiles::Stage::k)>(Q, K, V, shape), O,
                shape.tokens, row_blocks_for<Tiles>(shape), int(shape.matrices()), together,
                log2_scale(shape));
}

void launch_multicast_on(int blocks, const void* mutant, const half* Q, const half* K,
                         const half* V, half* O, const AttentionShape& shape, cudaStream_t stream) {
  using Tiles = PersistentTiles<64>;
  using Part = tile::BoxTile<Tiles::kKeyTile / kSharing, 64>;
  const int row_blocks = row_blocks_for<Tiles>(shape);
  launch<Tiles>(mutant ? mutant : reinterpret_cast<const void*>(multicast_kernel<64>), blocks,
                stream, make_maps<QueryTile<Tiles>, Part>(Q, K, V, shape), O, shape.tokens,
                row_blocks, int(shape.matrices()) * ((row_blocks + 1) / 2), log2_scale(shape));
}

void launch_mutant(const std::string& step, const void* mutant, const half* Q, const half* K,
                   const half* V, half* O, const AttentionShape& shape, cudaStream_t stream) {
  const auto launch_it = step == "tensor maps" ? launch_rows<TensorMapsTiles<64>>
                         : step == "wgmma"     ? launch_rows<WgmmaTiles<64>>
                                               : launch_rows<SpecializedTiles<64>>;
  launch_it(mutant, Q, K, V, O, shape, stream);
}

}  // namespace hopper
