// How the steps from `registers` on cut a product: a block computes a tile of y, its warps parts of
// that tile, and k goes by in slices that lie in shared memory.
#pragma once

#include <utility>

#include "../../../common/tile/tile.cuh"
#include "launch.cuh"

namespace mlp {

// kRows x kColumns outputs of a block, kWarpRows x kWarpColumns of a warp; kSlice columns of x and
// weight, in halves, are in shared memory at a time.
template <int kRows_, int kColumns_, int kWarpRows_, int kWarpColumns_, int kSlice_ = 64>
struct BlockTile {
  static constexpr int kRows = kRows_, kColumns = kColumns_;
  static constexpr int kWarpRows = kWarpRows_, kWarpColumns = kWarpColumns_;
  static constexpr int kWarpsAcross = kColumns / kWarpColumns;
  static constexpr int kThreads = 32 * (kRows / kWarpRows) * kWarpsAcross;
  static constexpr int kLefts = kWarpRows / 16, kRights = kWarpColumns / 8;  // products of a warp
  static constexpr int kBlocks = 256 / kThreads;  // on an SM, of up to 255 registers a thread
  template <class Element>
  static constexpr int kSlice = kSlice_* int(sizeof(half)) / int(sizeof(Element));
  static_assert(kWarpRows % 16 == 0 && kWarpColumns % 32 == 0 && 256 % kThreads == 0);
};

// What of both operands is in shared memory at a time.
template <class Element, class T, template <int> class Layout>
struct Stage {
  tile::SharedTile<Element, T::kRows, T::template kSlice<Element>, Layout> x;
  tile::SharedTile<Element, T::kColumns, T::template kSlice<Element>, Layout> weight;
};

// Which outputs are a block's and a warp's. Neighbouring blocks have the same rows of x.
template <class T>
struct Place {
  int first_row, first_column;     // where the block's tile begins in y
  unsigned warp_row, warp_column;  // where the warp begins in the block's tile

  __device__ explicit Place(int n) {
    const int across = (n + T::kColumns - 1) / T::kColumns, warp = int(threadIdx.x / 32);
    first_row = blockIdx.x / across * T::kRows;
    first_column = blockIdx.x % across * T::kColumns;
    warp_row = warp / T::kWarpsAcross * T::kWarpRows;
    warp_column = warp % T::kWarpsAcross * T::kWarpColumns;
  }
};

// What most steps take, and what a device with less shared memory does: a T4 has 64 KiB of it.
using LargeTile = BlockTile<128, 128, 64, 64>;
using SmallTile = BlockTile<64, 64, 32, 32>;

template <class T>
unsigned blocks_of(const Shape& shape) {
  return unsigned(divide_up(shape.m, T::kRows)) * unsigned(divide_up(shape.n, T::kColumns));
}

// A warp's sums: tile::Sums of 16 x 8 outputs each.
template <class T>
using WarpSums = tile::Sums[T::kLefts][T::kRights];

// A warp's operands of one step: kDepth columns of x and weight, from a slice in shared memory.
template <class T, class Element>
struct Operands {
  tile::LeftFragment<Element> left[T::kLefts];
  tile::RightFragment<Element> right[T::kRights / 2][2];

  template <class SliceStage>
  __device__ void load(const SliceStage& stage, int step, const Place<T>& place) {
#pragma unroll
    for (int i = 0; i < T::kLefts; ++i)
      tile::load_left(left[i], stage.x, place.warp_row + 16 * i, 2 * step);
#pragma unroll
    for (int j = 0; j < T::kRights / 2; ++j)
      tile::load_right(right[j], stage.weight, place.warp_column + 16 * j, 2 * step);
  }
  // Adds their products to the warp's sums.
  __device__ void multiply(WarpSums<T>& sums) const {
#pragma unroll
    for (int i = 0; i < T::kLefts; ++i)
#pragma unroll
      for (int j = 0; j < T::kRights; ++j)
        tile::multiply_add(sums[i][j], left[i], right[j / 2][j % 2]);
  }
};

// Two neighbouring outputs: what mma.sync gives a lane side by side.
template <class Element>
struct alignas(2 * sizeof(Element)) Pair {
  Element value[2];
};

// Calls store(row, column, Pair) for each two neighbouring outputs of the warp: of y, rounded.
template <class T, class Element, class Store>
__device__ void for_each_pair(const WarpSums<T>& sums, const Place<T>& place, const Store& store) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < T::kLefts; ++i)
#pragma unroll
    for (int j = 0; j < T::kRights; ++j)
#pragma unroll
      for (int v = 0; v < 4; v += 2)
        store(place.first_row + int(place.warp_row) + 16 * i + tile::Sums::row(lane, v),
              place.first_column + int(place.warp_column) + 8 * j + tile::Sums::column(lane, v),
              Pair<Element>{{Element(sums[i][j].value[v]), Element(sums[i][j].value[v + 1])}});
}

// Stores the warp's sums to y, two columns at a time; where rows of y do not begin at multiples of
// a pair's bytes, one.
template <class T, class Element>
__device__ void store_sums(const WarpSums<T>& sums, Element* y, int m, int n,
                           const Place<T>& place) {
  using Both = Pair<Element>;
  if (n % 2 == 0 && reinterpret_cast<uintptr_t>(y) % sizeof(Both) == 0)
    for_each_pair<T, Element>(sums, place, [&](int row, int column, Both both) {
      if (row < m && column < n) *reinterpret_cast<Both*>(y + int64_t(row) * n + column) = both;
    });
  else
    for_each_pair<T, Element>(sums, place, [&](int row, int column, Both both) {
      Element* const to = y + int64_t(row) * n + column;
      if (row < m && column < n) to[0] = both.value[0];
      if (row < m && column + 1 < n) to[1] = both.value[1];
    });
}

// Which row of an array lies in row `row` of a tile: the same one.
struct InOrder {
  __device__ static int source(unsigned row) { return int(row); }
};

// A thread's share of bringing rows [first_row, ...) of an array [rows, k] to a tile of shared
// memory, slice by slice: pieces of 16 bytes at the same place of rows that lie kRowsAtOnce apart.
// Rows beyond the array are its last one again, since nobody stores what they give; columns beyond
// it are zeros.
template <int kThreads, class Tile, class Order = InOrder>
class RowPieces {
 public:
  using Element = typename Tile::Element;
  static constexpr int kRowsAtOnce = kThreads / Tile::kPieces;
  static constexpr int kCount = Tile::kRows / kRowsAtOnce;
  static_assert(kCount * kRowsAtOnce == Tile::kRows && kThreads % Tile::kPieces == 0);

  __device__ RowPieces(int first_row, int rows, int k)
      : row_(threadIdx.x / Tile::kPieces), piece_(threadIdx.x % Tile::kPieces) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int row = min(first_row + Order::source(row_ + i * kRowsAtOnce), rows - 1);
      start_[i] = unsigned(row) * k + column();
    }
  }
  // Asynchronously, part `part` of `parts`. `depth`: the slice's first column.
  __device__ void copy(const Element* array, int depth, int k, const Tile& to, int part,
                       int parts) const {
#pragma unroll
    for (int i = part * kCount / parts; i < (part + 1) * kCount / parts; ++i)
      tile::copy_async(address(to, i), array + (start_[i] + depth), depth + column() < k);
  }
  // Through registers; all loads come before the first store.
  __device__ void load(const Element* array, int depth, int k, const Tile& to) const {
    uint4 piece[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      piece[i] = depth + column() < k ? *reinterpret_cast<const uint4*>(array + (start_[i] + depth))
                                      : uint4{};
#pragma unroll
    for (int i = 0; i < kCount; ++i) tile::store_piece(address(to, i), piece[i]);
  }

 private:
  __device__ int column() const { return int(piece_) * tile::kOfPiece<Element>; }
  __device__ uint32_t address(const Tile& to, int i) const {
    return to.address(row_ + i * kRowsAtOnce, piece_);
  }
  unsigned row_, piece_;    // row and piece of the thread's first copy
  unsigned start_[kCount];  // where in the array they begin, in slice 0
};

}  // namespace mlp
