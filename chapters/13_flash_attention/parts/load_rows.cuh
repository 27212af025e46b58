// Rows of K, V or Q from global memory through registers to padded tiles: steps 1 and 2.
#pragma once

#include "../../../common/tile/tile.cuh"

namespace flash_attention {

constexpr int kMostLoads = 16;  // loads of 16 bytes that a thread waits for at a time: 64 registers

// Eight halves of nothing behind each row: rows that follow each other begin in different banks.
template <int kRows, int kHeadDim>
using PaddedRows = tile::SharedTile<half, kRows, kHeadDim, tile::Padded>;

// Copies rows of kArrays arrays [.., head_dim] to a tile each, 16 bytes a thread and neighbouring
// threads along head_dim. A thread loads all of its pieces, up to kMostLoads, before it stores the
// first. kWhole: all rows are there; else rows from `valid` on become zero.
template <bool kWhole, int kThreads, int kArrays, int kRows, int kHeadDim>
__device__ void load_rows(const half* const (&from)[kArrays], int valid, unsigned thread,
                          PaddedRows<kRows, kHeadDim>* const (&to)[kArrays]) {
  constexpr int kPieces = kHeadDim / 8;            // pieces of 16 bytes per row
  constexpr int kRowsAtOnce = kThreads / kPieces;  // with one piece a thread
  constexpr int kCount = kRows / kRowsAtOnce;      // pieces of a thread and an array
  static_assert(kCount * kRowsAtOnce == kRows);
  constexpr int kAtOnce = kCount * kArrays < kMostLoads ? kCount : kMostLoads / kArrays;
  // Shared memory takes 16 bytes of eight neighbouring lanes at a time: a row or half a row, at
  // head_dim 32 two rows. These two are taken four rows apart, where they lie in different banks.
  int first = thread / kPieces;
  if (kPieces < 8) first = first / 8 * 8 + first % 2 * 4 + first % 8 / 2;
  const int d = thread % kPieces * 8;
#pragma unroll 1
  for (int part = 0; part < kRows; part += kAtOnce * kRowsAtOnce) {
    uint4 piece[kArrays][kAtOnce];
#pragma unroll
    for (int i = 0; i < kArrays * kAtOnce; ++i) {
      const int row = part + first + i % kAtOnce * kRowsAtOnce;
      const half* const one = from[i / kAtOnce] + row * kHeadDim + d;
      const bool there = kWhole || row < valid;
      piece[i / kAtOnce][i % kAtOnce] = there ? *reinterpret_cast<const uint4*>(one) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kArrays * kAtOnce; ++i) {
      const int row = part + first + i % kAtOnce * kRowsAtOnce;
      tile::store_piece(to[i / kAtOnce]->address(row, d / 8), piece[i / kAtOnce][i % kAtOnce]);
    }
  }
}

}  // namespace flash_attention
