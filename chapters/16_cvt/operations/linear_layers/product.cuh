// A product of two operands in tf32, with what stands behind it done where the sums are. Long sums
// are split in shares, each computed by a block of its own and kept in a place of its own; who adds
// them does so in their order.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>

#include "../../../11_mlp/parts/launch.cuh"
#include "operands.cuh"

namespace linear_layers {

template <int kRows_, int kColumns_, int kWarpRows_, int kWarpColumns_>
struct ProductTile {
  static constexpr int kRows = kRows_, kColumns = kColumns_;
  static constexpr int kWarpRows = kWarpRows_, kWarpColumns = kWarpColumns_;
  static constexpr int kWarpsAcross = kColumns / kWarpColumns;
  static constexpr int kThreads = 32 * (kRows / kWarpRows) * kWarpsAcross;
  static constexpr int kLefts = kWarpRows / 32, kRights = kWarpColumns / 32;
};
using SmallProduct = ProductTile<64, 64, 32, 32>;
using LargeProduct = ProductTile<128, 128, 64, 32>;

// sums[m, n] = Σ over k left(m, k) right(n, k). Left and Right are Along or Across. Finish:
//   struct Finish { static constexpr bool kSumsLeft; prepare(column);
//                   store(prepared, share, row, column, four sums);
//                   store_left_sum(share, row, sum); }
// kSumsLeft: the sums of left over k, too, from numbers that are not rounded.
struct ProductSize {
  int rows, columns, slices, slices_of_share;
};

// Floats become tf32.
template <int kCount>
__device__ void round_all(uint32_t (&operands)[kCount][2][4]) {
#pragma unroll
  for (auto& operand : operands)
#pragma unroll
    for (auto& half_of_step : operand)
#pragma unroll
      for (uint32_t& bits : half_of_step) bits = tile::to_tf32(bits);
}

template <class T, template <class, int, int> class LeftKind,
          template <class, int, int> class RightKind, class Left, class Right, class Finish>
__device__ void product_tile(const Left& left, const Right& right, const Finish& finish,
                             const ProductSize& size) {
  using LeftTiles = LeftKind<Left, T::kRows, T::kThreads>;
  using RightTiles = RightKind<Right, T::kColumns, T::kThreads>;
  struct Stage {
    typename LeftTiles::Tile left;
    typename RightTiles::Tile right;
  };
  extern __shared__ __align__(128) unsigned char shared_memory[];
  Stage* const memory = reinterpret_cast<Stage*>(shared_memory);

  // Which outputs are the block's, the warp's.
  const int across = (size.columns + T::kColumns - 1) / T::kColumns;
  const int first_row = blockIdx.x / across * T::kRows;
  const int first_column = blockIdx.x % across * T::kColumns;
  const int warp = threadIdx.x / 32, share = blockIdx.y;
  const int warp_row = warp / T::kWarpsAcross * T::kWarpRows;
  const int warp_column = warp % T::kWarpsAcross * T::kWarpColumns;
  // Warps beyond the last row or column copy, and multiply nothing.
  const bool works = first_row + warp_row < size.rows && first_column + warp_column < size.columns;
  const bool sums_left = Finish::kSumsLeft && first_column + warp_column == 0;

  const LeftTiles of_left(left, first_row);
  const RightTiles of_right(right, first_column);
  const int begin = share * size.slices_of_share;
  const int end = min(begin + size.slices_of_share, size.slices);
  const auto copy = [&](int slice, int stage) {
    if (slice < end) {
      of_left.copy(left, slice, memory[stage].left);
      of_right.copy(right, slice, memory[stage].right);
    }
    tile::end_copies();
  };

  tile::Sums sums[T::kLefts][2][T::kRights][4];
  float left_sums[T::kLefts][4] = {};
  tile::Stages<kStages> stages;
  for (int i = 0; i < stages.kAhead; ++i) copy(begin + i, i);
  for (int slice = begin; slice < end; ++slice, stages.next()) {
    stages.wait();
    copy(slice + stages.kAhead, stages.write);
    if (!works) continue;
    const Stage& stage = memory[stages.read];
#pragma unroll
    for (int step = 0; step < kSlice / 8; ++step) {
      uint32_t lefts[T::kLefts][2][4], rights[T::kRights][2][4];
#pragma unroll
      for (int i = 0; i < T::kLefts; ++i) {
        LeftTiles::load(lefts[i], stage.left, warp_row + 32 * i, step);
        if (sums_left)
#pragma unroll
          for (int q = 0; q < 4; ++q)
            left_sums[i][q] += __uint_as_float(lefts[i][0][q]) + __uint_as_float(lefts[i][1][q]);
      }
#pragma unroll
      for (int j = 0; j < T::kRights; ++j)
        RightTiles::load(rights[j], stage.right, warp_column + 32 * j, step);
      round_all(lefts), round_all(rights);
#pragma unroll
      for (int i = 0; i < T::kLefts; ++i)
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          const auto& l = lefts[i];
          const tile::LeftFragment<float> left_frag{
              {l[0][2 * b], l[0][2 * b + 1], l[1][2 * b], l[1][2 * b + 1]}};
#pragma unroll
          for (int j = 0; j < T::kRights; ++j)
#pragma unroll
            for (int q = 0; q < 4; ++q)
              tile::multiply_add(sums[i][b][j][q], left_frag,
                                 tile::RightFragment<float>{{rights[j][0][q], rights[j][1][q]}});
        }
    }
  }
  tile::wait_for_copies<0>();
  if (!works) return;

  // Write: of each 32 rows and 32 columns a lane has 4 rows and two pieces of 4 columns.
  const int lane = threadIdx.x % 32;
  const int row = first_row + warp_row + 4 * int(row_of_product(lane / 4));
#pragma unroll
  for (int j = 0; j < 2 * T::kRights; ++j) {
    const int column = first_column + warp_column + 16 * j + lane % 4 * 4;
    if (column >= size.columns) continue;
    const auto prepared = finish.prepare(column);
#pragma unroll
    for (int i = 0; i < 4 * T::kLefts; ++i) {
      // Row 4 σ + e is in block e / 2, its row g + 8 (e % 2).
      const auto& of_row = sums[i / 4][i % 4 / 2][j / 2];
      const int at = i % 2 * 2 + j % 2, here = row + i / 4 * 32 + i % 4;
      if (here < size.rows)
        finish.store(prepared, share, here, column,
                     make_float4(of_row[0].value[at], of_row[1].value[at], of_row[2].value[at],
                                 of_row[3].value[at]));
    }
  }
  if constexpr (Finish::kSumsLeft)
    if (sums_left)
#pragma unroll
      for (int i = 0; i < 4 * T::kLefts; ++i) {
        float sum = left_sums[i / 4][i % 4];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        const int here = row + i / 4 * 32 + i % 4;
        if (lane % 4 == 0 && here < size.rows) finish.store_left_sum(share, here, sum);
      }
}

template <class T, template <class, int, int> class LeftKind,
          template <class, int, int> class RightKind, class Left, class Right, class Finish>
__global__ void __launch_bounds__(T::kThreads)
    product_kernel(const __grid_constant__ Left left, const __grid_constant__ Right right,
                   const __grid_constant__ Finish finish,
                   const __grid_constant__ ProductSize size) {
  product_tile<T, LeftKind, RightKind>(left, right, finish, size);
}

// ---- Launch -------------------------------------------------------------------------------------

inline int divide_up(int64_t a, int64_t b) { return int((a + b - 1) / b); }

// Throws std::runtime_error with CUDA's reason where it has refused `what`.
inline void require_cuda(const std::string& what, cudaError_t error = cudaGetLastError()) {
  if (error != cudaSuccess) throw std::runtime_error(what + ": " + cudaGetErrorString(error));
}

// Throws std::invalid_argument: "linear layer of shape [...]: rows must be at least 1".
inline void require_that(bool ok, const std::string& what, const std::string& limit) {
  if (!ok) throw std::invalid_argument(what + ": " + limit);
}

// Memory of the stream's, given back in its order.
template <class T>
class Scratch {
 public:
  Scratch(int64_t count, const std::string& what, cudaStream_t stream) : stream_(stream) {
    void* memory = nullptr;
    require_cuda(what, cudaMallocAsync(&memory, size_t(count) * sizeof(T), stream));
    data_ = static_cast<T*>(memory);
  }
  ~Scratch() { cudaFreeAsync(data_, stream_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  cudaStream_t stream_;
};

// Large tiles where they give every SM two blocks.
inline bool takes_large_tiles(int64_t rows, int64_t columns, int shares) {
  const int64_t blocks = int64_t(divide_up(rows, LargeProduct::kRows)) *
                         divide_up(columns, LargeProduct::kColumns) * shares;
  return columns > LargeProduct::kColumns / 2 &&
         blocks >= 2 * mlp::device_attribute(cudaDevAttrMultiProcessorCount);
}

template <class T, template <class, int, int> class LeftKind,
          template <class, int, int> class RightKind, class Left, class Right, class Finish>
void launch_product_of(const Left& left, const Right& right, const Finish& finish,
                       const ProductSize& size, const std::string& what, cudaStream_t stream) {
  constexpr int kBytes =
      kStages * int(sizeof(typename LeftKind<Left, T::kRows, T::kThreads>::Tile) +
                    sizeof(typename RightKind<Right, T::kColumns, T::kThreads>::Tile));
  const auto kernel = product_kernel<T, LeftKind, RightKind, Left, Right, Finish>;
  require_cuda(what,
               cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  const dim3 blocks(
      unsigned(divide_up(size.rows, T::kRows)) * unsigned(divide_up(size.columns, T::kColumns)),
      unsigned(std::max(1, divide_up(size.slices, size.slices_of_share))));
  kernel<<<blocks, T::kThreads, kBytes, stream>>>(left, right, finish, size);
  require_cuda(what);
}

// Throws std::runtime_error where the device has no tf32 or CUDA refuses.
template <template <class, int, int> class LeftKind, template <class, int, int> class RightKind,
          class Left, class Right, class Finish>
void launch_product(const Left& left, const Right& right, const Finish& finish, int rows,
                    int columns, int sum_length, int shares, const std::string& what,
                    cudaStream_t stream) {
  mlp::require_element<float>();
  const int slices = divide_up(sum_length, kSlice);
  const ProductSize size{rows, columns, slices, std::max(1, divide_up(slices, shares))};
  (takes_large_tiles(rows, columns, shares)
       ? launch_product_of<LargeProduct, LeftKind, RightKind, Left, Right, Finish>
       : launch_product_of<SmallProduct, LeftKind, RightKind, Left, Right, Finish>)(left, right,
                                                                                    finish, size,
                                                                                    what, stream);
}

// In how many shares a sum goes: as many as give each SM two blocks, of at least four slices.
inline int shares_of(int rows, int columns, int sum_length) {
  const int64_t tiles =
      int64_t(divide_up(rows, SmallProduct::kRows)) * divide_up(columns, SmallProduct::kColumns);
  const int64_t wanted =
      divide_up(2 * mlp::device_attribute(cudaDevAttrMultiProcessorCount), tiles);
  const int slices = divide_up(sum_length, kSlice);
  const int at_most = int(std::max<int64_t>(1, std::min<int64_t>(wanted, slices / 4)));
  return divide_up(slices, divide_up(slices, at_most));  // none of them empty
}

}  // namespace linear_layers
