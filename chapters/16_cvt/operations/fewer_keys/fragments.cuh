// What forward and backward of attention with fewer keys than queries share: tiles of rows of one
// head, and fragments of products in tf32.
//
// A tile [rows, head_dim] is read both ways. As an operand along head_dim, q kᵀ, ldmatrix takes it.
// As one whose rows are the numbers of the sum, p v, a lane takes 8 or 16 bytes of two rows; 16
// bytes behind each row keep both free of bank conflicts. p comes from a product before, and a lane
// has there columns 2 t and 2 t + 1 of 8, where the next product asks for numbers t and t + 4 of a
// sum. Sums may be taken in any order: rows 2 t and 2 t + 1 of the tile are called t and t + 4, and
// p stays in its registers.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "../../../13_flash_attention/parts/power_of_2.cuh"
#include "../linear_layers/product.cuh"

namespace fewer_keys {

using namespace cvt;
using namespace linear_layers;

constexpr int kAttentionThreads = 128;                 // 4 warps
constexpr int kOwnRows = kAttentionThreads / 32 * 16;  // rows per block: 16 a warp
constexpr float kLog2E = 1.44269504f;

template <int kRows, int kHeadDim>
using HeadTile = tile::SharedTile<float, kRows, kHeadDim, tile::Padded>;

// Rows [row, ...) of a head, `pitch` numbers apart, to a tile; rows from `count` on are zeros.
template <class Tile>
__device__ void copy_rows(Tile& to, const float* from, int pitch, int row, int count) {
#pragma unroll
  for (int i = threadIdx.x; i < Tile::kRows * Tile::kPieces; i += kAttentionThreads) {
    const int here = i / Tile::kPieces, piece = i % Tile::kPieces;
    const bool there = row + here < count;
    tile::copy_async(to.address(here, piece),
                     from + (there ? int64_t(row + here) * pitch + 4 * piece : 0), there);
  }
}

// sums[16, 8 kPairs] += left rows of `right`, from `row` on, over head_dim. left: a warp's 16 rows.
template <int kHeadDim, int kBlocks, class Tile>
__device__ void multiply_along(tile::Sums (&sums)[kBlocks],
                               const tile::LeftFragment<float> (&left)[kHeadDim / 8],
                               const Tile& right) {
#pragma unroll
  for (int step = 0; step < kHeadDim / 8; ++step)
#pragma unroll
    for (int b = 0; b < kBlocks; b += 2) {
      tile::RightFragment<float> right_frag[2];
      tile::load_right(right_frag, right, 8 * b, 2 * step);
      tile::multiply_add(sums[b], left[step], right_frag[0]);
      tile::multiply_add(sums[b + 1], left[step], right_frag[1]);
    }
}

// How many columns of head_dim a lane has side by side: 2 or 4 of each 8 kBeside.
template <int kHeadDim>
constexpr int kBeside = kHeadDim == 16 ? 2 : 4;

// sums[16, head_dim] += weights[16, 8 kBlocks] rows of `right`. Column 8 j + c of sums is, with n =
// kBeside, column j / n * 8 n + c n + j % n of head_dim: column_of().
template <int kHeadDim>
__device__ int column_of(int block, int column) {
  constexpr int kN = kBeside<kHeadDim>;
  return block / kN * 8 * kN + column * kN + block % kN;
}
template <int kHeadDim, int kBlocks, class Tile>
__device__ void multiply_across(tile::Sums (&sums)[kHeadDim / 8],
                                const tile::Sums (&weights)[kBlocks], Tile& right) {
  constexpr int kN = kBeside<kHeadDim>;
  struct alignas(4 * kN) Beside {
    uint32_t bits[kN];
  };
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const float(&w)[4] = weights[b].value;
    const tile::LeftFragment<float> left{
        {tile::to_tf32(__float_as_uint(w[0])), tile::to_tf32(__float_as_uint(w[2])),
         tile::to_tf32(__float_as_uint(w[1])), tile::to_tf32(__float_as_uint(w[3]))}};
#pragma unroll
    for (int d = 0; d < kHeadDim / 8; d += kN) {
      const Beside even = reinterpret_cast<const Beside&>(right.at(8 * b + 2 * t, 8 * d + kN * g));
      const Beside odd =
          reinterpret_cast<const Beside&>(right.at(8 * b + 2 * t + 1, 8 * d + kN * g));
#pragma unroll
      for (int n = 0; n < kN; ++n)
        tile::multiply_add(
            sums[d + n], left,
            tile::RightFragment<float>{{tile::to_tf32(even.bits[n]), tile::to_tf32(odd.bits[n])}});
    }
  }
}

// A warp's 16 rows of such sums, times factor[half of the rows], to rows [row, ...) of a head.
template <int kHeadDim>
__device__ void store_rows(const tile::Sums (&sums)[kHeadDim / 8], const float (&factor)[2],
                           float* to, int pitch, int row, int count) {
  constexpr int kN = kBeside<kHeadDim>;
  struct alignas(4 * kN) Beside {
    float value[kN];
  };
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int here = row + tile::Sums::row(lane, i);
    if (here >= count) continue;
#pragma unroll
    for (int d = 0; d < kHeadDim / 8; d += kN) {
      Beside beside;
#pragma unroll
      for (int n = 0; n < kN; ++n) beside.value[n] = sums[d + n].value[i] * factor[i / 2];
      *reinterpret_cast<Beside*>(to + int64_t(here) * pitch +
                                 column_of<kHeadDim>(d, tile::Sums::column(lane, i))) = beside;
    }
  }
}

// Which head a block works for, and where its rows begin: block (tile of rows, head, sample).
struct Head {
  int64_t first_query, first_key;  // indices of elements of q and k
  int64_t first_sum;               // index in log_sum_exp and dots
  int pitch;                       // numbers from row to row

  __device__ Head(const CrossShape& shape) {
    const int head = blockIdx.y, sample = blockIdx.z;
    pitch = shape.heads * shape.head_dim;
    first_query = int64_t(sample) * shape.queries * pitch + head * shape.head_dim;
    first_key = int64_t(sample) * shape.keys * pitch + head * shape.head_dim;
    first_sum = (int64_t(sample) * shape.heads + head) * shape.queries;
  }
};

// ---- Launch -------------------------------------------------------------------------------------

inline std::string describe(const CrossShape& s) {
  return "[batch " + std::to_string(s.batch) + ", queries " + std::to_string(s.queries) +
         ", keys " + std::to_string(s.keys) + ", heads " + std::to_string(s.heads) + ", head_dim " +
         std::to_string(s.head_dim) + "]";
}
// Throws std::invalid_argument naming shape and limit, std::runtime_error where there is no tf32.
inline std::string require_attention(const CrossShape& s,
                                     std::initializer_list<const float*> arrays) {
  const std::string what = "attention of shape " + describe(s);
  require_that(s.batch >= 1 && s.queries >= 1 && s.keys >= 1 && s.heads >= 1, what,
               "batch, queries, keys and heads must be at least 1");
  require_that(s.batch < 65536 && s.heads < 65536, what, "batch and heads must be below 65536");
  require_that(s.head_dim == 16 || s.head_dim == 32 || s.head_dim == 64, what,
               "head_dim must be 16, 32 or 64");
  require_that(std::isfinite(s.scale), what, "scale must be finite");
  for (const float* array : arrays) {
    require_that(array != nullptr, what, "an array is null");
    require_that(reinterpret_cast<uintptr_t>(array) % 16 == 0, what,
                 "arrays must begin at multiples of 16 bytes");
  }
  mlp::require_element<float>();
  return what;
}
// Calls run<kHeadDim>().
template <class Run>
void with_head_dim(int head_dim, const Run& run) {
  if (head_dim == 16) run.template operator()<16>();
  if (head_dim == 32) run.template operator()<32>();
  if (head_dim == 64) run.template operator()<64>();
}
template <class Kernel, class... Arguments>
void launch_attention(Kernel kernel, int rows, int bytes, const CrossShape& shape,
                      const std::string& what, cudaStream_t stream, Arguments... arguments) {
  require_cuda(what,
               cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const dim3 blocks(unsigned(divide_up(rows, kOwnRows)), unsigned(shape.heads),
                    unsigned(shape.batch));
  kernel<<<blocks, kAttentionThreads, bytes, stream>>>(arguments..., shape);
  require_cuda(what);
}

}  // namespace fewer_keys
