// Rows on their way between global memory, tiles and fragments: chapters 4 to 6.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cstdint>

namespace wmma_attention {

// Copies rows of [.., head_dim] from global memory to a tile of kRows rows, 16 bytes a thread and
// neighbouring threads along head_dim. Rows from `valid` on become zero. A thread loads all of its
// pieces, up to kMostLoads, before it stores the first: it waits for memory once, not once a piece.
template <int kRows, int kHeadDim, int kThreads, int kMostLoads, int kStride>
__device__ void load_rows(const half* rows_global, int valid, unsigned thread,
                          half (*tile)[kStride]) {
  constexpr int kPieces = kHeadDim / 8;            // pieces of 16 bytes per row
  constexpr int kRowsAtOnce = kThreads / kPieces;  // with one piece a thread
  constexpr int kCount = kRows / kRowsAtOnce;      // pieces of a thread
  static_assert(kCount * kRowsAtOnce == kRows);
  constexpr int kAtOnce = kCount < kMostLoads ? kCount : kMostLoads;
  // Shared memory takes 16 bytes of eight neighbouring lanes at a time: a row or half a row, at
  // head_dim 32 two rows. These two are taken four rows apart, where they lie in different banks.
  int first = thread / kPieces;
  if (kPieces < 8) first = first / 8 * 8 + first % 2 * 4 + first % 8 / 2;
  const int d = thread % kPieces * 8;
#pragma unroll 1
  for (int part = 0; part < kRows; part += kAtOnce * kRowsAtOnce) {
    uint4 piece[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int row = part + first + i * kRowsAtOnce;
      const half* const from = rows_global + row * kHeadDim + d;
      piece[i] = row < valid ? *reinterpret_cast<const uint4*>(from) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      *reinterpret_cast<uint4*>(&tile[part + first + i * kRowsAtOnce][d]) = piece[i];
  }
}

// K likewise, but transposed: neighbouring threads along the keys. A thread loads 16 bytes of its
// key's row, far from its neighbours', and stores the 8 elements into 8 rows of the tile.
template <int kHeadDim, int kKeyTile, int kThreads, int kMostLoads, int kStride>
__device__ void load_transposed(const half* rows_global, int valid, unsigned thread,
                                half (*tile)[kStride]) {
  constexpr int kCount = kKeyTile * kHeadDim / 8 / kThreads;  // pieces of a thread
  static_assert(kKeyTile % kThreads == 0 || kThreads % kKeyTile == 0);
  constexpr int kAtOnce = kCount < kMostLoads ? kCount : kMostLoads;
  const int first_key = kThreads < kKeyTile ? thread : thread % kKeyTile;
  const int first_d = kThreads < kKeyTile ? 0 : thread / kKeyTile * 8;
#pragma unroll 1
  for (int part = 0; part < kHeadDim; part += kHeadDim * kAtOnce / kCount) {
    uint4 piece[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int key = first_key + i * kThreads % kKeyTile;
      const int d = part + first_d + i * kThreads / kKeyTile * 8;
      const half* const from = rows_global + key * kHeadDim + d;
      piece[i] = key < valid ? *reinterpret_cast<const uint4*>(from) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int key = first_key + i * kThreads % kKeyTile;
      const int d = part + first_d + i * kThreads / kKeyTile * 8;
      const half* elements = reinterpret_cast<const half*>(&piece[i]);
      for (int e = 0; e < 8; ++e) tile[d + e][key] = elements[e];
    }
  }
}

// Rounds four neighbouring numbers to fp16 and stores them with one instruction, as a number of 64
// bits. As two half2 they would be two stores wherever the compiler cannot prove that the address is
// a multiple of 8.
__device__ inline void store_half4(half* where, float4 x) {
  const half2 low = __floats2half2_rn(x.x, x.y), high = __floats2half2_rn(x.z, x.w);
  *reinterpret_cast<uint64_t*>(where) = reinterpret_cast<const uint32_t&>(low) |
                                        uint64_t(reinterpret_cast<const uint32_t&>(high)) << 32;
}

// Multiplies each row of O by its factor, which the row's two lanes pass in. The factors are written
// to the first 16 columns of s and loaded as a fragment of O's type: of two such fragments elements i
// belong to the same row.
template <class Accumulator, int kFragments, int kStride>
__device__ void scale_rows(Accumulator (&o_frag)[kFragments], float factor, float (*s)[kStride]) {
  const int row = threadIdx.x % 32 / 2, first = threadIdx.x % 2 * 4;
  __syncwarp();  // s has been read
  for (int column = first; column < 16; column += 8)
    reinterpret_cast<float4&>(s[row][column]) = make_float4(factor, factor, factor, factor);
  __syncwarp();
  Accumulator factor_frag;
  nvcuda::wmma::load_matrix_sync(factor_frag, &s[0][0], kStride, nvcuda::wmma::mem_row_major);
  for (Accumulator& o : o_frag)
    for (int i = 0; i < o.num_elements; ++i) o.x[i] *= factor_frag.x[i];
}

}  // namespace wmma_attention
