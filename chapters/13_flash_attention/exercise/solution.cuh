// STARTER
//| // Exercise 13, from an empty function: causal attention, as a language model has it. Query i sees keys
//| // 0 to i and no other:
//| //
//| //   O[i] = sum over j <= i of w[i, j] V[j]      w[i] = softmax of Q[i] · K[j] scale, over j <= i
//| //
//| // Half of the scores are never asked for. A tile of keys that lies wholly behind a tile of rows needs
//| // neither loads nor products; the tile on the diagonal needs a mask.
//| //
//| // Nothing is given but the function. Kernel, grid and launch are yours; common/tile/tile.cuh has ldmatrix,
//| // mma.sync and asynchronous copies. Then `make exercise13 && ./run` grades it: 30 points for right
//| // results, 20 for no finding of any check, and 50 for
//| //
//| //   20  multiply-adds on tensor cores: no more than tiles of 64 rows and 64 keys on and below the
//| //       diagonal have
//| //   10  K and V: of these tiles alone, loaded once for 64 rows
//| //   10  scores and weights in registers: shared memory gets Q, K, V and O and nothing else
//| //    5  no bank conflicts
//| //    5  stores: O, once, and nothing else
// SOLUTION
// Our solution of exercise 13: causal attention with scores and weights in registers.
// END
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

// SOLUTION
#include <cmath>
// END
#include <cstdint>

#include "../../../common/attention/launch.cuh"
#include "../../../common/attention/shape.h"
#include "../../../common/tile/tile.cuh"

namespace exercise {

// STARTER
//| // O = causal attention of each (batch, head).
//| //   Q, K, V, O  [batch, heads, tokens, head_dim] fp16, contiguous, on the device, at multiples of 16
//| //               bytes
//| //   shape       shape.batch, shape.heads, shape.tokens: any from 1 on; shape.head_dim: 32, 64 or 128;
//| //               shape.scale, by which Q Kᵀ is multiplied
//| //   stream      for all that is launched
// SOLUTION
constexpr int kTile = 64;  // query rows of a block, and keys at a time
constexpr int kWarps = 4, kThreads = 32 * kWarps, kWarpRows = kTile / kWarps;

template <int kHeadDim>
using Tile = tile::SharedTile<half, kTile, kHeadDim, tile::Swizzled>;

template <int kHeadDim>
struct Tiles {
  Tile<kHeadDim> q;  // at the end O
  struct {
    Tile<kHeadDim> k, v;
  } stages[2];
};

// Asks for 64 rows of [.., head_dim]. Rows from `valid` on become zero: their weights are 0, but 0
// times what lay there may be NaN.
template <int kHeadDim>
__device__ void copy_rows(const half* from, int valid, Tile<kHeadDim>& to) {
  constexpr int kPieces = Tile<kHeadDim>::kPieces;
#pragma unroll
  for (int i = threadIdx.x; i < kTile * kPieces; i += kThreads) {
    const int row = i / kPieces, piece = i % kPieces;
    const bool there = row < valid;
    tile::copy_async(to.address(row, piece), from + (there ? row * kHeadDim + 8 * piece : 0),
                     there);
  }
}

// Two sums side by side as fp16.
__device__ inline uint32_t half_pair(const tile::Sums& sums, int i) {
  const half2 pair = __floats2half2_rn(sums.value[i], sums.value[i + 1]);
  return reinterpret_cast<const uint32_t&>(pair);
}

// What a warp knows of its 16 rows. Scores come in units of log2, keys in blocks of 8.
template <int kHeadDim>
struct Rows {
  tile::LeftFragment<half> q[kHeadDim / 16];
  tile::Sums o[kHeadDim / 8];
  float row_max[2] = {-INFINITY, -INFINITY};
  float row_sum[2] = {0, 0};  // the sums of this lane's weights

  __device__ void multiply_keys(tile::Sums (&s)[kTile / 8], const Tile<kHeadDim>& k) const {
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; ++d)
#pragma unroll
      for (int j = 0; j < kTile / 8; j += 2) {
        tile::RightFragment<half> right[2];
        tile::load_right(right, k, 8 * j, 2 * d);
        tile::multiply_add(s[j], q[d], right[0]);
        tile::multiply_add(s[j + 1], q[d], right[1]);
      }
  }

  // Scores become weights. A row has seen key 0 before any other, so that no maximum is -INFINITY.
  __device__ void softmax(tile::Sums (&s)[kTile / 8]) {
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = row_max[r];
      for (const tile::Sums& one : s)
        most = fmaxf(most, fmaxf(one.value[2 * r], one.value[2 * r + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      factor[r] = exp2f(row_max[r] - most);
      row_max[r] = most;
      row_sum[r] *= factor[r];
      for (tile::Sums& one : s)
        for (int i = 2 * r; i < 2 * r + 2; ++i)
          row_sum[r] += one.value[i] = exp2f(one.value[i] - most);
    }
    scale(factor);
  }

  __device__ void scale(const float (&factor)[2]) {
    for (tile::Sums& one : o)
      for (int i = 0; i < 4; ++i) one.value[i] *= factor[i / 2];
  }

  // The weights of 16 keys are a left operand as they are; ldmatrix transposes V.
  __device__ void multiply_values(const tile::Sums (&s)[kTile / 8], const Tile<kHeadDim>& v) {
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < kTile / 8; j += 2) {
      const tile::LeftFragment<half> weights = {
          {half_pair(s[j], 0), half_pair(s[j], 2), half_pair(s[j + 1], 0), half_pair(s[j + 1], 2)}};
#pragma unroll
      for (int d = 0; d < kHeadDim / 8; d += 2) {
        uint32_t right[4];
        tile::ldmatrix_transposed(right, v.address(8 * j + lane % 16, d + lane / 16));
        tile::multiply_add(o[d], weights, {{right[0], right[1]}});
        tile::multiply_add(o[d + 1], weights, {{right[2], right[3]}});
      }
    }
  }

  // Divides O by the sum of the weights and stores the first `count` rows, by way of `way`, of which
  // rows from `first` on are this warp's.
  __device__ void store(Tile<kHeadDim>& way, int first, half* to, int count) {
    const int lane = threadIdx.x % 32;
    float factor[2];
    for (int r = 0; r < 2; ++r) {
      float sum = row_sum[r] + __shfl_xor_sync(0xffffffffu, row_sum[r], 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      factor[r] = 1.0f / sum;
    }
    scale(factor);
#pragma unroll
    for (int d = 0; d < kHeadDim / 8; ++d)
      for (int i = 0; i < 4; i += 2)
        reinterpret_cast<uint32_t&>(
            way.at(first + tile::Sums::row(lane, i), 8 * d + tile::Sums::column(lane, i))) =
            half_pair(o[d], i);
    __syncwarp();
    for (int i = lane; i < kWarpRows * kHeadDim / 8; i += 32) {
      const int row = i / (kHeadDim / 8), d = i % (kHeadDim / 8) * 8;
      if (row < count)
        *reinterpret_cast<uint4*>(to + row * kHeadDim + d) =
            reinterpret_cast<const uint4&>(way.at(first + row, d));
    }
  }
};

// One block: 64 query rows of one (batch, head), 16 of them for each warp.
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    causal_kernel(const half* __restrict__ Q,  // [batch, heads, tokens, head_dim], as all four
                  const half* __restrict__ K, const half* __restrict__ V, half* __restrict__ O,
                  int tokens, float scale_log2) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  auto& tiles = *reinterpret_cast<Tiles<kHeadDim>*>(shared_memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row_blocks = (tokens + kTile - 1) / kTile;
  const int row_block = row_blocks - 1 - int(blockIdx.x % row_blocks);  // the longest ones first
  const int block_row = row_block * kTile, first_row = block_row + warp * kWarpRows;
  const int64_t matrix = int64_t(blockIdx.x / row_blocks) * tokens * kHeadDim;  // in elements
  const int key_tiles = row_block + 1;  // tiles that one of the block's rows sees

  const auto copy_keys = [&](int key_tile, int stage) {
    if (key_tile < key_tiles) {
      const int64_t from = matrix + int64_t(key_tile) * kTile * kHeadDim;
      copy_rows<kHeadDim>(K + from, tokens - key_tile * kTile, tiles.stages[stage].k);
      copy_rows<kHeadDim>(V + from, tokens - key_tile * kTile, tiles.stages[stage].v);
    }
    tile::end_copies();
  };
  copy_rows<kHeadDim>(Q + matrix + int64_t(block_row) * kHeadDim, tokens - block_row, tiles.q);
  copy_keys(0, 0);
  tile::Stages<2> turn;
  turn.wait();

  Rows<kHeadDim> rows;
#pragma unroll
  for (int d = 0; d < kHeadDim / 16; ++d)
    tile::load_left(rows.q[d], tiles.q, warp * kWarpRows, 2 * d);
  for (int key_tile = 0; key_tile < key_tiles; ++key_tile) {
    copy_keys(key_tile + 1, turn.write);
    if (first_row < tokens) {
      tile::Sums s[kTile / 8];
      rows.multiply_keys(s, tiles.stages[turn.read].k);
      // Only the last tile has keys behind a row's own.
      const bool diagonal = key_tile == row_block;
#pragma unroll
      for (int j = 0; j < kTile / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = key_tile * kTile + 8 * j + tile::Sums::column(lane, i);
          const int query = first_row + tile::Sums::row(lane, i);
          float& score = s[j].value[i];
          score = diagonal && key > query ? -INFINITY : score * scale_log2;
        }
      rows.softmax(s);
      rows.multiply_values(s, tiles.stages[turn.read].v);
    }
    turn.next();
    turn.wait();
  }
  if (first_row < tokens)
    rows.store(tiles.q, warp * kWarpRows, O + matrix + int64_t(first_row) * kHeadDim,
               tokens - first_row);
}

template <int kHeadDim>
void launch(const half* Q, const half* K, const half* V, half* O, const AttentionShape& shape,
            cudaStream_t stream) {
  constexpr int kBytes = sizeof(Tiles<kHeadDim>);  // more than 48 KiB, which takes a request
  cudaFuncSetAttribute(causal_kernel<kHeadDim>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       kBytes);
  causal_kernel<kHeadDim><<<blocks_for(shape, kTile), kThreads, kBytes, stream>>>(
      Q, K, V, O, shape.tokens, log2_scale(shape));
  require_launched(cudaGetLastError(), shape);
}

// O = causal attention: query i sees keys 0 to i.
// END
inline void causal(const half* Q, const half* K, const half* V, half* O,
                   const AttentionShape& shape, cudaStream_t stream) {
  // STARTER
  //| // HOLE: all of it. Kernels go above this function, their launches here.
  //| (void)Q, (void)K, (void)V, (void)O, (void)shape, (void)stream;
  // SOLUTION
  require_attention_shape(shape);
  const auto of_head_dim = shape.head_dim == 32   ? launch<32>
                           : shape.head_dim == 64 ? launch<64>
                                                  : launch<128>;
  of_head_dim(Q, K, V, O, shape, stream);
  // END
}

}  // namespace exercise
// STARTER
//|
//| // Hints, one after the other: go on to the next when you are stuck.
//| //
//| // 1. Write it without a mask first: the chapter's step *registers* with 64 rows a block, 16 a warp. The
//| //    results of tokens 1 are right then.
//| // 2. A block's last row sees as many keys as its number says, and one more. Where does its loop over
//| //    tiles end?
//| // 3. A lane has rows g and g + 8 and columns 2 t and 2 t + 1 of each block of 8 keys. tile::Sums::row()
//| //    and column() say so. Compare numbers that count from the start of the same sequence.
//| // 4. What is -INFINITY minus -INFINITY? In which order must tiles come so that each row's first tile has
//| //    a key that it sees?
//| // 5. Rows of K and V past the last token have weight 0. What is 0 times what happens to lie there?
//| // 6. Bank conflicts: at which addresses do the eight rows lie that ldmatrix reads at a time?
//| //    tile::Swizzled has an answer.
// END
