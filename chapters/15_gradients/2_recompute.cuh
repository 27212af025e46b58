// Step 2, recompute: neither P nor dS goes to memory. A block owns a column of 32 keys and walks over
// all queries, 32 at a time. It computes P of these anew, from the log-sum-exp that the forward pass
// has saved, and keeps dK and dV of its keys in registers. dQ of a query gets a share from each
// column: blocks add theirs atomically, in fp32.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "../../common/attention/launch.cuh"
#include "../../common/tile/tile.cuh"
#include "../13_flash_attention/parts/power_of_2.cuh"
#include "parts/dots.cuh"
#include "parts/pointers.h"

namespace gradients {

constexpr float kLog2E = 1.44269504f;
constexpr int kTile = 32;                                // keys of a block, and queries of a tile
constexpr int kRecomputeThreads = 256;                   // 8 warps
constexpr int kOfWarp = kTile * 32 / kRecomputeThreads;  // rows of a tile that a warp has: 4

template <int kHeadDim>
struct RecomputeTiles {
  tile::SharedTile<half, kTile, kHeadDim, tile::Padded> k, v, q, d_o;
  float p[kTile][kTile], ds[kTile][kTile];  // [query, key]
  float log2_sum[kTile], dots[kTile];       // one for each query
};

// Rows of [.., head_dim], 16 bytes a thread; rows from `valid` on become zero.
template <class Tile>
__device__ void load_tile(const half* from, int valid, Tile& to) {
  for (int i = threadIdx.x; i < Tile::kRows * Tile::kPieces; i += kRecomputeThreads) {
    const int row = i / Tile::kPieces;
    tile::store_piece(to.address(row, i % Tile::kPieces),
                      row < valid ? reinterpret_cast<const uint4*>(from)[i] : uint4{});
  }
}

// 8 elements of a row, as fp32.
struct Eight {
  float value[8];
};
template <class Tile>
__device__ Eight eight_at(Tile& tile, int row, int piece) {
  const EightHalves halves = reinterpret_cast<const EightHalves&>(tile.at(row, 8 * piece));
  Eight result;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __half22float2(halves.pair(i));
    result.value[2 * i] = pair.x, result.value[2 * i + 1] = pair.y;
  }
  return result;
}
__device__ inline void add_product(float& sum, const Eight& left, const Eight& right) {
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += left.value[i] * right.value[i];
}

template <int kHeadDim>
__global__ void __launch_bounds__(kRecomputeThreads)
    recompute_kernel(const half* Q,  // [batch, heads, tokens, head_dim], as all halves
                     const half* K, const half* V, const half* dO,
                     const float* log_sum_exp,  // [batch, heads, tokens]
                     const float* dots,         // the same
                     float* dQ_sums, half* dK, half* dV, int tokens, float scale) {
  constexpr int kDims = kHeadDim / 32;  // a lane's share of a row: lane, lane + 32, ...
  __shared__ RecomputeTiles<kHeadDim> tiles;
  const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * kOfWarp;  // the warp's first row
  const int key_tiles = (tokens + kTile - 1) / kTile;
  const int first_key = blockIdx.x % key_tiles * kTile;
  const int64_t matrix = int64_t(blockIdx.x / key_tiles) * tokens;  // in rows

  load_tile(K + (matrix + first_key) * kHeadDim, tokens - first_key, tiles.k);
  load_tile(V + (matrix + first_key) * kHeadDim, tokens - first_key, tiles.v);
  float dK_sum[kOfWarp][kDims] = {}, dV_sum[kOfWarp][kDims] = {};
  for (int first = 0; first < tokens; first += kTile) {
    // The next 32 queries. Those past the end have weights of 2^-inf.
    __syncthreads();
    load_tile(Q + (matrix + first) * kHeadDim, tokens - first, tiles.q);
    load_tile(dO + (matrix + first) * kHeadDim, tokens - first, tiles.d_o);
    if (threadIdx.x < kTile) {
      const bool there = first + threadIdx.x < tokens;
      const int64_t row = matrix + first + threadIdx.x;
      tiles.log2_sum[threadIdx.x] = there ? log_sum_exp[row] * kLog2E : INFINITY;
      tiles.dots[threadIdx.x] = there ? dots[row] : 0.0f;
    }
    __syncthreads();

    // P and dS of a key a lane and 4 queries a warp. Keys past the end have no weight: of a row whose
    // scores are all far below 0, a score of 0 would have an infinite one.
    float score[kOfWarp] = {}, dP[kOfWarp] = {};
    for (int piece = 0; piece < kHeadDim / 8; ++piece) {
      const Eight key = eight_at(tiles.k, lane, piece), value = eight_at(tiles.v, lane, piece);
#pragma unroll
      for (int i = 0; i < kOfWarp; ++i) {
        add_product(score[i], eight_at(tiles.q, own + i, piece), key);
        add_product(dP[i], eight_at(tiles.d_o, own + i, piece), value);
      }
    }
#pragma unroll
    for (int i = 0; i < kOfWarp; ++i) {
      const float exponent = fmaf(score[i], scale * kLog2E, -tiles.log2_sum[own + i]);
      const float p = first_key + lane < tokens ? flash_attention::power_of_2(exponent) : 0.0f;
      tiles.p[own + i][lane] = p;
      tiles.ds[own + i][lane] = p * (dP[i] - tiles.dots[own + i]);
    }
    __syncthreads();

    // dV += Pᵀ dO and dK += dSᵀ Q, of 4 keys a warp; dQ += dS K, of 4 queries.
    float dQ_share[kOfWarp][kDims] = {};
    for (int row = 0; row < kTile; ++row)
#pragma unroll
      for (int d = 0; d < kDims; ++d) {
        const int column = lane + 32 * d;
        const float q = __half2float(tiles.q.at(row, column)),
                    d_o = __half2float(tiles.d_o.at(row, column)),
                    k = __half2float(tiles.k.at(row, column));
#pragma unroll
        for (int i = 0; i < kOfWarp; ++i) {
          dV_sum[i][d] += tiles.p[row][own + i] * d_o;
          dK_sum[i][d] += tiles.ds[row][own + i] * q;
          dQ_share[i][d] += tiles.ds[own + i][row] * k;
        }
      }
#pragma unroll
    for (int i = 0; i < kOfWarp; ++i)
#pragma unroll
      for (int d = 0; d < kDims; ++d)
        if (first + own + i < tokens)
          atomicAdd(dQ_sums + (matrix + first + own + i) * kHeadDim + lane + 32 * d,
                    dQ_share[i][d]);
  }

  // Each key once.
#pragma unroll
  for (int i = 0; i < kOfWarp; ++i)
#pragma unroll
    for (int d = 0; d < kDims; ++d)
      if (first_key + own + i < tokens) {
        const int64_t at = (matrix + first_key + own + i) * kHeadDim + lane + 32 * d;
        dK[at] = __float2half(dK_sum[i][d] * scale);
        dV[at] = __float2half(dV_sum[i][d]);
      }
}

template <int kHeadDim>
void launch_recompute(const GradientPointers& p, const AttentionShape& shape, cudaStream_t stream) {
  recompute_kernel<kHeadDim><<<blocks_for(shape, kTile), kRecomputeThreads, 0, stream>>>(
      p.Q, p.K, p.V, p.dO, p.log_sum_exp, dots_behind_sums(p, shape), p.workspace, p.dK, p.dV,
      shape.tokens, shape.scale);
  require_launched(cudaGetLastError(), shape, "gradients, recompute");
}
inline void recompute(const GradientPointers& p, const AttentionShape& shape, cudaStream_t stream) {
  require_gradients(p, shape);
  const auto of_head_dim = shape.head_dim == 32   ? launch_recompute<32>
                           : shape.head_dim == 64 ? launch_recompute<64>
                                                  : launch_recompute<128>;
  of_head_dim(p, shape, stream);
}

}  // namespace gradients
