// STARTER
//| // Exercise 15, from an empty function: the gradient of a bias table. Attention within a window of an
//| // image adds a learned number to each score. It depends on where the two patches lie to each other,
//| // not on where they lie:
//| //
//| //   S[i, j] = scale Q[i] · K[j] + bias[offset of i and j]      P = softmax of each row of S
//| //   dBias[head, offset] = sum of dS[i, j] over all images and all pairs with this offset
//| //
//| // A grid of 14 x 14 patches has 38,416 pairs and 729 offsets. dS is the chapter's: what the softmax
//| // makes of dP = dO Vᵀ and D = the row's sum of dO ∘ O.
//| //
//| // Nothing is given but the function. Kernels, grid and launches are yours; common/tile/tile.cuh has
//| // ldmatrix, mma.sync and asynchronous copies. Then `make exercise15 && ./run` grades it: 30 points for
//| // right results, 20 for no finding of any check, and 50 for
//| //
//| //   20  stores and atomics to global memory: a table for each 64 rows of queries, D, and dBias; neither
//| //       scores nor an addition for each pair
//| //   10  no atomics, in shared memory neither: dBias has the same bits each time
//| //   10  multiply-adds on tensor cores: two products, of tiles of 64 rows and 64 keys
//| //   10  Q, K, V and dO: one pair of them loaded once, the other once for each 64 rows
// SOLUTION
// Our solution of exercise 15: the gradient of a bias table, without atomics.
// END
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
// SOLUTION
#include <stdexcept>
#include <string>
// END

#include "../../../common/attention/launch.cuh"
#include "../../../common/attention/shape.h"
#include "../../../common/tile/tile.cuh"

namespace exercise {

// STARTER
//| // dBias of attention with a bias table.
//| //   Q, K, V, O, dO  [batch, heads, tokens, head_dim] fp16
//| //   bias            [heads, 2 grid_height - 1, 2 grid_width - 1] fp16: that of query i and key j, which
//| //                   lie in rows yi, yj and columns xi, xj of the grid, is
//| //                   bias[head, yi - yj + grid_height - 1, xi - xj + grid_width - 1]
//| //   log_sum_exp     [batch, heads, tokens] fp32: ln of the sum of exp(S[i, j]) over j
//| //   dBias           as bias, but fp32. It holds NaN before the call
//| //   All are contiguous, on the device, at multiples of 16 bytes.
//| //   shape           shape.batch, shape.heads: any from 1 on; shape.head_dim: 32 or 64; shape.scale;
//| //                   shape.tokens: grid_height · grid_width, token y · grid_width + x lies in row y
//| //   grid_height, grid_width   1 to 32
//| //   stream          for all that is launched
// SOLUTION
constexpr int kTile = 64;  // query rows of a block, and keys at a time
constexpr int kWarps = 4, kThreads = 32 * kWarps, kWarpRows = kTile / kWarps;
constexpr int kPitch = kTile + 8;  // row to row in dS: stores of 8 bytes have no bank conflicts
constexpr float kLog2E = 1.44269504f;

// Patches are numbered as in a grid whose rows have 2 width - 1 columns: then the difference of two
// numbers says their offset, and no two offsets have the same difference.
struct Grid {
  int height, width;

  __host__ __device__ int row() const { return 2 * width - 1; }
  __host__ __device__ int cells() const { return (2 * height - 1) * row(); }
  __device__ int number(int token) const { return token / width * row() + token % width; }
  // The patch of a number, -1 where there is none.
  __device__ int token(int number) const {
    return number % row() < width ? number / row() * width + number % row() : -1;
  }
  // The cell of difference 0.
  __host__ __device__ int middle() const { return (height - 1) * row() + width - 1; }
};

template <int kHeadDim>
using Tile = tile::SharedTile<half, kTile, kHeadDim, tile::Swizzled>;

// Behind it lie two tables of a head: biases in units of log2, and sums.
template <int kHeadDim>
struct Shared {
  Tile<kHeadDim> q, d_o, k, v;
  float d_scores[kTile * kPitch];
  int query_numbers[kTile], key_numbers[kTile];
  int columns[4 * kTile];  // by key number minus the tile's first one: its column, or -1
  float tables[1];
};

// Asks for 64 rows of [.., head_dim]. Rows from `valid` on become zero.
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

// sums += the warp's 16 rows times all rows of a tile.
template <int kHeadDim>
__device__ void multiply(tile::Sums (&sums)[kTile / 8],
                         const tile::LeftFragment<half> (&left)[kHeadDim / 16],
                         const Tile<kHeadDim>& rows) {
#pragma unroll
  for (int d = 0; d < kHeadDim / 16; ++d)
#pragma unroll
    for (int j = 0; j < kTile / 8; j += 2) {
      tile::RightFragment<half> right[2];
      tile::load_right(right, rows, 8 * j, 2 * d);
      tile::multiply_add(sums[j], left[d], right[0]);
      tile::multiply_add(sums[j + 1], left[d], right[1]);
    }
}

// D of a row: dO from shared memory times O, which four lanes share.
template <int kHeadDim>
__device__ float dot_of_row(Tile<kHeadDim>& d_o, int row, const half* o) {
  float sum = 0;
  for (int piece = threadIdx.x % 4; piece < kHeadDim / 8; piece += 4) {
    const uint4 eight = reinterpret_cast<const uint4*>(o)[piece];
    for (int i = 0; i < 8; ++i)
      sum += __half2float(reinterpret_cast<const half*>(&eight)[i]) *
             __half2float(d_o.at(row, 8 * piece + i));
  }
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}

// Adds a tile's dS up: a thread has an offset, and of each row the one key that has it.
template <int kHeadDim>
__device__ void add_offsets(Shared<kHeadDim>& shared, float* sums, const Grid& grid, int queries,
                            int keys) {
  const int first_key = shared.key_numbers[0], last_key = shared.key_numbers[keys - 1];
  const int last = shared.query_numbers[queries - 1] - first_key;
  for (int offset = shared.query_numbers[0] - last_key + int(threadIdx.x); offset <= last;
       offset += kThreads) {
    float sum = 0;
    for (int row = 0; row < queries; ++row) {
      const int key = shared.query_numbers[row] - offset;  // its number
      if (key < first_key || key > last_key) continue;
      const int column = shared.columns[key - first_key];
      if (column >= 0) sum += shared.d_scores[row * kPitch + column];
    }
    sums[grid.middle() + offset] += sum;
  }
}

// One block: 64 query rows of one (batch, head), and the table of their pairs.
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    partial_tables(const half* __restrict__ Q,  // [batch, heads, tokens, head_dim], as K, V, O, dO
                   const half* __restrict__ K, const half* __restrict__ V,
                   const half* __restrict__ bias,  // [heads, cells]
                   const half* __restrict__ O,
                   const float* __restrict__ log_sum_exp,  // [batch, heads, tokens]
                   const half* __restrict__ dO,
                   float* __restrict__ partial,  // [batch, heads, row blocks, cells]
                   int heads, Grid grid, float scale_log2) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  auto& shared = *reinterpret_cast<Shared<kHeadDim>*>(shared_memory);
  const int tokens = grid.height * grid.width, cells = grid.cells();
  const int row_blocks = (tokens + kTile - 1) / kTile;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * kWarpRows;
  const int block_row = int(blockIdx.x % row_blocks) * kTile;
  const int64_t matrix = blockIdx.x / row_blocks;
  const int64_t first = matrix * tokens * kHeadDim, first_of_block = first + block_row * kHeadDim;
  float* const biases = shared.tables;
  float* const sums = shared.tables + cells;

  copy_rows<kHeadDim>(Q + first_of_block, tokens - block_row, shared.q);
  copy_rows<kHeadDim>(dO + first_of_block, tokens - block_row, shared.d_o);
  for (int cell = threadIdx.x; cell < cells; cell += kThreads) {
    biases[cell] = __half2float(bias[matrix % heads * cells + cell]) * kLog2E;
    sums[cell] = 0;
  }
  if (threadIdx.x < kTile) shared.query_numbers[threadIdx.x] = grid.number(block_row + threadIdx.x);
  tile::end_copies();
  tile::wait_for_copies<0>();
  __syncthreads();

  tile::LeftFragment<half> q[kHeadDim / 16], d_o[kHeadDim / 16];
#pragma unroll
  for (int d = 0; d < kHeadDim / 16; ++d) {
    tile::load_left(q[d], shared.q, warp_row, 2 * d);
    tile::load_left(d_o[d], shared.d_o, warp_row, 2 * d);
  }
  float dot[2], log2_sum[2];
  for (int r = 0; r < 2; ++r) {
    const int row = warp_row + lane / 4 + 8 * r, query = min(block_row + row, tokens - 1);
    dot[r] = dot_of_row<kHeadDim>(shared.d_o, row, O + first + query * kHeadDim);
    log2_sum[r] = log_sum_exp[matrix * tokens + query] * kLog2E;
  }

  for (int first_key = 0; first_key < tokens; first_key += kTile) {
    const int keys = min(kTile, tokens - first_key);
    copy_rows<kHeadDim>(K + first + first_key * kHeadDim, keys, shared.k);
    copy_rows<kHeadDim>(V + first + first_key * kHeadDim, keys, shared.v);
    if (threadIdx.x < kTile) shared.key_numbers[threadIdx.x] = grid.number(first_key + threadIdx.x);
    for (int i = threadIdx.x; i < 4 * kTile; i += kThreads) {
      const int token = grid.token(grid.number(first_key) + i);
      shared.columns[i] = token < 0 || token >= first_key + keys ? -1 : token - first_key;
    }
    tile::end_copies();
    tile::wait_for_copies<0>();
    __syncthreads();
    if (block_row + warp_row < tokens) {
      tile::Sums s[kTile / 8], d_p[kTile / 8];
      multiply<kHeadDim>(s, q, shared.k);
      multiply<kHeadDim>(d_p, d_o, shared.v);
#pragma unroll
      for (int j = 0; j < kTile / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = warp_row + tile::Sums::row(lane, i);
          const int column = 8 * j + tile::Sums::column(lane, i);
          float d_score = 0;
          if (block_row + row < tokens && column < keys) {
            const int offset = shared.query_numbers[row] - shared.key_numbers[column];
            const float score = s[j].value[i] * scale_log2 + biases[grid.middle() + offset];
            d_score = exp2f(score - log2_sum[i / 2]) * (d_p[j].value[i] - dot[i / 2]);
          }
          shared.d_scores[row * kPitch + column] = d_score;
        }
    }
    __syncthreads();
    add_offsets(shared, sums, grid, min(kTile, tokens - block_row), keys);
    __syncthreads();
  }
  for (int cell = threadIdx.x; cell < cells; cell += kThreads)
    partial[int64_t(blockIdx.x) * cells + cell] = sums[cell];
}

// dBias of a cell: the tables of all images and row blocks, in order.
__global__ void add_tables(const float* __restrict__ partial, float* __restrict__ dBias, int batch,
                           int heads, int row_blocks, int cells) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, head = i / cells;
  if (i >= heads * cells) return;
  float sum = 0;
  for (int b = 0; b < batch; ++b)
    for (int block = 0; block < row_blocks; ++block)
      sum += partial[((int64_t(b) * heads + head) * row_blocks + block) * cells + i % cells];
  dBias[i] = sum;
}

// dBias[head, offset] = sum of dS over all images and pairs of that offset.
// END
inline void bias_gradient(const half* Q, const half* K, const half* V, const half* bias,
                          const half* O, const float* log_sum_exp, const half* dO, float* dBias,
                          const AttentionShape& shape, int grid_height, int grid_width,
                          cudaStream_t stream) {
  // STARTER
  //| // HOLE: all of it. Kernels go above this function, their launches here.
  //| (void)Q, (void)K, (void)V, (void)bias, (void)O, (void)log_sum_exp, (void)dO, (void)dBias;
  //| (void)shape, (void)grid_height, (void)grid_width, (void)stream;
  // SOLUTION
  require_attention_shape(shape);
  if (shape.tokens != grid_height * grid_width || shape.head_dim == 128)
    throw std::invalid_argument("gradient of a bias table, shape " + describe(shape) + ", grid " +
                                std::to_string(grid_height) + " x " + std::to_string(grid_width) +
                                ": tokens must be the patches of the grid, and head_dim 32 or 64");
  const Grid grid{grid_height, grid_width};
  const int row_blocks = (shape.tokens + kTile - 1) / kTile, cells = grid.cells();
  const unsigned blocks = blocks_for(shape, kTile);
  float* partial = nullptr;
  cudaMallocAsync(&partial, sizeof(float) * blocks * cells, stream);

  const auto kernel = shape.head_dim == 32 ? partial_tables<32> : partial_tables<64>;
  const int bytes =
      int(shape.head_dim == 32 ? sizeof(Shared<32>) : sizeof(Shared<64>)) + 2 * cells * 4;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  kernel<<<blocks, kThreads, bytes, stream>>>(Q, K, V, bias, O, log_sum_exp, dO, partial,
                                              shape.heads, grid, log2_scale(shape));
  const unsigned adders = grid_of((int64_t(shape.heads) * cells + 255) / 256, shape);
  add_tables<<<adders, 256, 0, stream>>>(partial, dBias, shape.batch, shape.heads, row_blocks,
                                         cells);
  cudaFreeAsync(partial, stream);
  require_launched(cudaGetLastError(), shape);
  // END
}

}  // namespace exercise
// STARTER
//|
//| // Hints, one after the other: go on to the next when you are stuck.
//| //
//| // 1. Write it with an atomicAdd for each pair first, and set dBias to 0 before. What is dS of a grid of
//| //    one patch?
//| // 2. P needs no maximum and no sum any more: exp(S - log_sum_exp). Where scores are large, exp(S) alone
//| //    is infinite.
//| // 3. dS is the gradient of the score. The bias is added to the score as it is, the product Q Kᵀ with a
//| //    factor: whose gradient has that factor?
//| // 4. A block's pairs have few offsets. Let it add up a table of its own in shared memory and bring that
//| //    to global memory once; who adds up the blocks' tables, and in which order?
//| // 5. Without atomics: bring a tile of dS to shared memory. A thread that has an offset walks over the
//| //    tile's rows. Which key has that offset from row i, and is it in the tile?
//| // 6. With rows of 2 grid_width - 1 instead of grid_width, number(y, x) = y (2 grid_width - 1) + x: the
//| //    offset's cell is number(i) - number(j) and a constant.
// END
