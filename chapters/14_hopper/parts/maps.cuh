// What all steps of this chapter share: the tensor maps of Q, K and V, a ring of stages and who fills it.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "../../../common/attention/shape.h"
#include "../../../common/tile/tensor_map.cuh"
#include "../../../common/tile/tile_sm90.cuh"
#include "requirement.cuh"

namespace hopper {

// Whose turn it is among kCount stages, which all threads go through in the same order. full[stage]
// ends a phase when the stage's tiles have come, empty[stage] when all have read them; each has one
// phase a round, and so the round says which parity to wait for.
template <int kCount>
struct Ring {
  static_assert(kCount >= 2, "a stage to read and one to write");
  int stage = 0;
  uint32_t parity = 0;  // this round's parity

  __device__ void next() {
    stage = stage + 1 == kCount ? 0 : stage + 1;
    parity ^= stage == 0;
  }
};

// [matrices, tokens, head_dim] each; a box is what copy_tile() brings at once.
struct TensorMaps {
  CUtensorMap q, k, v;
};

// The map of an array [batch, heads, tokens, head_dim] as one of matrices: with three dimensions a box
// ends where its matrix does, and never reads the next head. Throws std::runtime_error when the driver
// refuses; `name` is what the message calls the array.
template <class Tile>
CUtensorMap make_map(const half* array, const AttentionShape& shape, const char* name) {
  CUtensorMap map;
  const uint64_t row = shape.head_dim * sizeof(half);  // bytes
  const cuuint64_t sizes[] = {cuuint64_t(shape.head_dim), cuuint64_t(shape.tokens),
                              cuuint64_t(shape.matrices())};
  const cuuint64_t strides[] = {row, row * shape.tokens};
  const cuuint32_t box[] = {Tile::kPanelColumns, Tile::kRows, 1};
  const cuuint32_t steps[] = {1, 1, 1};
  const CUtensorMapSwizzle swizzle =
      Tile::kPanelColumns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
  const CUresult error =
      encode_tiled()(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<half*>(array), sizes,
                     strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (error != CUDA_SUCCESS)
    throw std::runtime_error("attention of shape " + describe(shape) + ": no tensor map for " +
                             name + " (error " + std::to_string(int(error)) + " of the driver)");
  return map;
}

template <class QueryTile, class KeyTile>
TensorMaps make_maps(const half* Q, const half* K, const half* V, const AttentionShape& shape) {
  return {make_map<QueryTile>(Q, shape, "Q"), make_map<KeyTile>(K, shape, "K"),
          make_map<KeyTile>(V, shape, "V")};
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// One thread: asks for Q once, and for a stage of K and V whenever one is empty.
template <class Tiles>
__device__ void produce(Tiles& tiles, const TensorMaps& maps, int block_row, int matrix,
                        int tokens) {
  tiles.q_full.arrive_expecting(sizeof(tiles.q));
  tile::copy_tile(tiles.q, maps.q, block_row, matrix, tiles.q_full);
  Ring<Tiles::kStages> ring;
  for (int key = 0; key < tokens; key += Tiles::kKeyTile, ring.next()) {
    tiles.empty[ring.stage].wait(ring.parity ^ 1);  // nobody waits in the first round
    auto& [k, v] = tiles.stages[ring.stage];
    tile::Barrier& full = tiles.full[ring.stage];
    full.arrive_expecting(sizeof(k) + sizeof(v));
    tile::copy_tile(k, maps.k, key, matrix, full);
    tile::copy_tile(v, maps.v, key, matrix, full);
  }
}
#endif

}  // namespace hopper
