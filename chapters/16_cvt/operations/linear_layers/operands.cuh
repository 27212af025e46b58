// Operands of products in tf32, whichever way they lie in memory, and what a warp takes of them.
//
// A product sums over k. An operand [rows, k] lies along it, as x in x wᵀ does: a row's neighbours
// are numbers of the sum, a piece of 16 bytes is a piece of what ldmatrix reads. Or it lies across
// it, [k, rows], as both do in dyᵀ x. ldmatrix transposes numbers of 16 bits only; but a lane of
// mma.sync.m16n8k8 wants, of row g, the numbers t and t + 4 of the sum. Of a tile [k, rows] it
// takes 16 bytes of lines t and t + 4: four rows at once, and which row a product calls its g-th is
// ours to choose. So rows have an order, the same for both kinds, and both cost two loads for 32
// rows:
//
//   row of 32 in memory   0  1  2  3  4 ...  15 16 17 18 19 20 ...
//   product . its row   0.0 1.0 2.0 3.0 0.2   3.6 0.1 1.1 2.1 3.1 0.3   four products of 8 rows
//
// A right operand's rows are columns of the result: a lane has 4 t to 4 t + 3 and 16 + 4 t to 16 +
// 4 t + 3 of each 32, two pieces, and a row's four lanes fill sectors.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "../../../../common/tile/tile.cuh"
#include "../operations.h"

namespace linear_layers {

using namespace cvt;

constexpr int kSlice = 32;  // numbers of a sum that are in shared memory at a time
constexpr int kStages = 3;  // slices: one is multiplied, two are on their way

__host__ __device__ inline unsigned row_of_product(unsigned row) { return row / 2 + row % 2 * 4; }
// Which of an operand's rows lies in row `row` of a tile along k.
__device__ inline int row_of_tile(unsigned row) {
  return int(row / 32 * 32 + 4 * row_of_product(row % 8) + row % 32 / 8);
}

// ---- Where numbers come from --------------------------------------------------------------------

// One number from global to shared memory, asynchronously; zero where `there` is false, and then
// nothing is read. PTX ISA, "Data Movement and Conversion Instructions: cp.async" (.ca, 4 bytes).
__device__ inline void copy_number(uint32_t to_shared, const float* from, bool there) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to_shared), "l"(from),
               "r"(there ? 4 : 0)
               : "memory");
#else
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to_shared), "f"(there ? *from : 0.0f) : "memory");
#endif
}
// `count` numbers from `from` on, at most four, zeros behind them; in one piece where they are
// whole ones.
__device__ inline void copy_four(uint32_t to_shared, const float* from, int count, bool whole) {
  if (whole) return tile::copy_async(to_shared, from, count > 0);
#pragma unroll
  for (int i = 0; i < 4; ++i) copy_number(to_shared + 4 * i, from + i, i < count);
}

// Row `row` of a product as a row in memory.
__host__ __device__ inline int64_t row_in_memory(const Rows& rows, int row) {
  if (rows.of_group == rows.count) return rows.first + row;
  return rows.first + int64_t(row / rows.of_group) * rows.pitch + row % rows.of_group;
}

// Rows of an array [.., columns].
struct Matrix {
  const float* array;
  Rows rows;
  int columns;
  bool whole;  // columns are whole pieces, and the array begins with one

  using Place = const float*;  // a row's beginning, null where there is none
  __device__ Place row(int row) const {
    return row < rows.count ? array + row_in_memory(rows, row) * columns : nullptr;
  }
  // Four numbers of a row.
  __device__ void copy(uint32_t to_shared, Place row, int column) const {
    copy_four(to_shared, row + column, row ? columns - column : 0, whole);
  }
};

inline bool whole_pieces(int columns, const float* array) {
  return columns % 4 == 0 && reinterpret_cast<uintptr_t>(array) % 16 == 0;
}
inline Matrix matrix(const float* array, const Rows& rows, int columns) {
  return {array, rows, columns, whole_pieces(columns, array)};
}

// ---- Tiles --------------------------------------------------------------------------------------

// kRows of Source's rows, whose columns are numbers of the sum.
template <class Source, int kRows, int kThreads>
struct Along {
  using Tile = tile::SharedTile<float, kRows, kSlice, tile::Swizzled>;
  static constexpr int kRowsAtOnce = kThreads / Tile::kPieces, kCount = kRows / kRowsAtOnce;
  typename Source::Place place[kCount];
  int tile_row, piece;

  __device__ Along(const Source& source, int first_row)
      : tile_row(threadIdx.x / Tile::kPieces), piece(threadIdx.x % Tile::kPieces) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      place[i] = source.row(first_row + row_of_tile(tile_row + i * kRowsAtOnce));
  }
  __device__ void copy(const Source& source, int slice, const Tile& to) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      source.copy(to.address(tile_row + i * kRowsAtOnce, piece), place[i],
                  slice * kSlice + 4 * piece);
  }
  // 32 rows from `row` on, 8 numbers of the sum: bits[h][q] is row q of four, number t + 4 h.
  __device__ static void load(uint32_t (&bits)[2][4], const Tile& from, int row, int step) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      tile::ldmatrix(bits[h], from.address(row + threadIdx.x % 32, 2 * step + h));
  }
};

// kRows of Source's columns, whose rows are numbers of the sum.
template <class Source, int kRows, int kThreads>
struct Across {
  using Tile = tile::SharedTile<float, kSlice, kRows, tile::Padded>;
  static constexpr int kLinesAtOnce = kThreads / Tile::kPieces, kCount = kSlice / kLinesAtOnce;
  int line, piece, column;

  __device__ Across(const Source&, int first_column)
      : line(threadIdx.x / Tile::kPieces),
        piece(threadIdx.x % Tile::kPieces),
        column(first_column + 4 * piece) {}
  __device__ void copy(const Source& source, int slice, const Tile& to) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int of_slice = line + i * kLinesAtOnce;
      source.copy(to.address(of_slice, piece), source.row(slice * kSlice + of_slice), column);
    }
  }
  __device__ static void load(uint32_t (&bits)[2][4], const Tile& from, int row, int step) {
    const unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint4 four = *reinterpret_cast<const uint4*>(
          from.bytes + Tile::Layout::byte_of(8 * step + 4 * h + t, row / 4 + row_of_product(g)));
      bits[h][0] = four.x, bits[h][1] = four.y, bits[h][2] = four.z, bits[h][3] = four.w;
    }
  }
};

}  // namespace linear_layers
