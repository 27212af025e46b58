// Step 4's second kernel: dQ. A block owns 64 or 128 rows of queries and walks over all keys, as the
// forward pass does; S, dP and dS stay in registers.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "../../common/attention/launch.cuh"
#include "../../common/tile/tile.cuh"
#include "../13_flash_attention/parts/fragments.cuh"
#include "parts/dots.cuh"
#include "parts/pointers.h"
#include "parts/products.cuh"

namespace gradients {

template <int kHeadDim>
struct RowTiles {
  // Blocks of 16 queries that a warp has: two where their dQ leaves registers for the scores.
  static constexpr int kRowBlocks = kHeadDim < 128 ? 2 : 1;
  static constexpr int kQueries = 16 * kRowBlocks * kWarps, kKeys = kHeadDim < 128 ? 64 : 32;
  static constexpr int kAtOnce = 32;  // keys whose S and dP a warp holds

  tile::SharedTile<half, kQueries, kHeadDim, tile::Swizzled> q, d_o;  // at the end dQ
  struct {
    tile::SharedTile<half, kKeys, kHeadDim, tile::Swizzled> k, v;
  } stages[2];
};

// S and dP of 32 keys become dS; keys from `keys` on have none.
template <int kBlocks, int kPairs>
__device__ void row_gradients(tile::Sums (&s)[kBlocks][kPairs], tile::Sums (&dp)[kBlocks][kPairs],
                              const float (&log2_sum)[kBlocks][2], const float (&dots)[kBlocks][2],
                              float scale_log2, int keys) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b)
#pragma unroll
    for (int j = 0; j < kPairs; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool there = 8 * j + tile::Sums::column(lane, i) < keys;
        const float exponent = fmaf(s[b][j].value[i], scale_log2, -log2_sum[b][i / 2]);
        const float p = there ? flash_attention::power_of_2(exponent) : 0.0f;
        dp[b][j].value[i] = p * (dp[b][j].value[i] - dots[b][i / 2]);
      }
}

// The warp's queries and their dO, which all keys meet.
template <int kBlocks, int kDepths, class Tiles>
__device__ void load_rows_once(tile::LeftFragment<half> (&q_frag)[kBlocks][kDepths],
                               tile::LeftFragment<half> (&do_frag)[kBlocks][kDepths],
                               const Tiles& tiles, unsigned row) {
#pragma unroll
  for (int b = 0; b < kBlocks; ++b)
#pragma unroll
    for (int d = 0; d < kDepths; ++d) {
      tile::load_left(q_frag[b][d], tiles.q, row + 16 * b, 2 * d);
      tile::load_left(do_frag[b][d], tiles.d_o, row + 16 * b, 2 * d);
    }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 2)
    rows_kernel(const half* Q,  // [batch, heads, tokens, head_dim], as all halves
                const half* K, const half* V, const half* dO,
                const float* log_sum_exp,  // [batch, heads, tokens]
                const float* dots,         // the same
                half* dQ, int tokens, float scale) {
  using Tiles = RowTiles<kHeadDim>;
  using flash_attention::copy_rows;
  constexpr int kBlocks = Tiles::kRowBlocks, kKeys = Tiles::kKeys, kAtOnce = Tiles::kAtOnce;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  auto& tiles = *reinterpret_cast<Tiles*>(shared_memory);
  const unsigned thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int row_tiles = (tokens + Tiles::kQueries - 1) / Tiles::kQueries;
  const int first_query = blockIdx.x % row_tiles * Tiles::kQueries, warp_row = warp * 16 * kBlocks;
  const int64_t first_row = int64_t(blockIdx.x / row_tiles) * tokens;  // where (batch, head) begins
  const int64_t matrix = first_row * kHeadDim;                         // in elements

  // The queries once, and the first keys. What lies past the end is zero.
  const auto copy_keys = [&](int stage, int first) {
    copy_rows<kThreads>(K + matrix + int64_t(first) * kHeadDim, tokens - first, thread,
                        tiles.stages[stage].k);
    copy_rows<kThreads>(V + matrix + int64_t(first) * kHeadDim, tokens - first, thread,
                        tiles.stages[stage].v);
    tile::end_copies();
  };
  const int64_t queries = matrix + int64_t(first_query) * kHeadDim;
  copy_rows<kThreads>(Q + queries, tokens - first_query, thread, tiles.q);
  copy_rows<kThreads>(dO + queries, tokens - first_query, thread, tiles.d_o);
  copy_keys(0, 0);
  float log2_sum[kBlocks][2], own_dots[kBlocks][2];  // for rows g and g + 8 of each block
#pragma unroll
  for (int b = 0; b < kBlocks; ++b)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = first_query + warp_row + 16 * b + tile::Sums::row(lane, 2 * r);
      log2_sum[b][r] = query < tokens ? log_sum_exp[first_row + query] * 1.44269504f : INFINITY;
      own_dots[b][r] = query < tokens ? dots[first_row + query] : 0.0f;
    }

  tile::Stages<2> stages;
  tile::LeftFragment<half> q_frag[kBlocks][kHeadDim / 16], do_frag[kBlocks][kHeadDim / 16];
  tile::Sums dq_frag[kBlocks][kHeadDim / 8];
  for (int first = 0; first < tokens; first += kKeys) {
    stages.wait();
    if (first + kKeys < tokens) copy_keys(stages.write, first + kKeys);
    const auto& [k, v] = tiles.stages[stages.read];
    if (first == 0) load_rows_once(q_frag, do_frag, tiles, warp_row);
#pragma unroll 1
    for (int key = 0; key < kKeys; key += kAtOnce) {
      tile::Sums s_frag[kBlocks][kAtOnce / 8], dp_frag[kBlocks][kAtOnce / 8];
      flash_attention::multiply_scores(s_frag, q_frag, k, key);
      flash_attention::multiply_scores(dp_frag, do_frag, v, key);
      row_gradients(s_frag, dp_frag, log2_sum, own_dots, scale * 1.44269504f, tokens - first - key);
      flash_attention::multiply_values(dq_frag, dp_frag, k, key);
    }
    stages.next();
  }

  // Each query once, by way of the warp's rows of Q.
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const int row = warp_row + 16 * b;
    const float scales[2] = {scale, scale};
    flash_attention::scale_rows(dq_frag[b], scales);
    flash_attention::store_output(dq_frag[b], tiles.q, row, dQ + queries + row * kHeadDim,
                                  tokens - first_query - row);
  }
}

// ---- Launches -----------------------------------------------------------------------------------

template <int kHeadDim>
void launch_rows(const GradientPointers& p, const AttentionShape& shape, cudaStream_t stream) {
  using Tiles = RowTiles<kHeadDim>;
  const auto kernel = rows_kernel<kHeadDim>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Tiles));
  kernel<<<blocks_for(shape, Tiles::kQueries), kThreads, sizeof(Tiles), stream>>>(
      p.Q, p.K, p.V, p.dO, p.log_sum_exp, p.workspace, p.dQ, shape.tokens, shape.scale);
  require_launched(cudaGetLastError(), shape, "gradients, rows");
}
inline void rows(const GradientPointers& p, const AttentionShape& shape, cudaStream_t stream) {
  require_gradients(p, shape);
  const auto of_head_dim = shape.head_dim == 32   ? launch_rows<32>
                           : shape.head_dim == 64 ? launch_rows<64>
                                                  : launch_rows<128>;
  of_head_dim(p, shape, stream);
}

}  // namespace gradients
