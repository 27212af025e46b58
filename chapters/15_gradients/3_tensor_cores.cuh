// Step 3, tensor cores: the five products of step 2 on mma.sync. A warp owns 32 keys and computes with
// the transposed matrices Sᵀ and dPᵀ, [keys, queries]:
//
//   Sᵀ  = K Qᵀ       dPᵀ = V dOᵀ       into registers, 32 keys x 32 queries
//   dV += Pᵀ dO      dK += dSᵀ Q       what the first two write is what these read: registers again
//   dQ  = dS K                         over the keys of all warps: dSᵀ goes to shared memory
//
// Q and dO of the next queries are copied while these are multiplied; tiles are swizzled. Each warp adds
// up one part of dQ's tile and then to global memory, two neighbouring sums an access where there is one
// (sm_90). head_dim 128 leaves registers for 16 keys a warp.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "../../common/attention/launch.cuh"
#include "../../common/tile/tile.cuh"
#include "../13_flash_attention/parts/fragments.cuh"
#include "parts/dots.cuh"
#include "parts/pointers.h"
#include "parts/products.cuh"

namespace gradients {

// kQueries: of a tile.
template <int kHeadDim, int kQueries>
struct TensorTiles {
  // Blocks of 16 keys that a warp has: two where their dK and dV leave registers for the scores.
  static constexpr int kKeyBlocks = kHeadDim < 128 ? 2 : 1;
  static constexpr int kKeys = 16 * kKeyBlocks * kWarps;
  static constexpr int kAtOnce = kQueries < 32 ? kQueries : 32;  // queries whose Sᵀ, dPᵀ a warp has
  // Warps share dQ's tile in rows and columns.
  static constexpr int kOfRows = kQueries < 32 ? 1 : 2, kOfColumns = kWarps / kOfRows;
  static constexpr int kRows = kQueries / kOfRows, kColumns = kHeadDim / kOfColumns;

  tile::SharedTile<half, kKeys, kHeadDim, tile::Swizzled> k, v;  // at the end dK and dV
  struct {
    tile::SharedTile<half, kQueries, kHeadDim, tile::Swizzled> q, d_o;
    float log2_sum[kQueries], dots[kQueries];
  } stages[2];
  tile::SharedTile<half, kKeys, kQueries, tile::Swizzled> ds;  // dSᵀ, last: only for dQ
};

// Sᵀ and dPᵀ of 32 queries from `first` on become Pᵀ and dSᵀ.
template <int kBlocks, int kPairs>
__device__ void score_gradients(tile::Sums (&s)[kBlocks][kPairs], tile::Sums (&dp)[kBlocks][kPairs],
                                const float* log2_sum, const float* dots, float scale_log2,
                                int keys) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const float2 sums = *reinterpret_cast<const float2*>(log2_sum + 8 * j + lane % 4 * 2),
                 means = *reinterpret_cast<const float2*>(dots + 8 * j + lane % 4 * 2);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // Keys past the end have no weight: their score is 0, and where all others lie far below, that
        // would be an infinite one.
        const bool there = 16 * b + tile::Sums::row(lane, i) < keys;
        const float exponent = fmaf(s[b][j].value[i], scale_log2, -(i % 2 ? sums.y : sums.x));
        const float p = there ? flash_attention::power_of_2(exponent) : 0.0f;
        s[b][j].value[i] = p;
        dp[b][j].value[i] = p * (dp[b][j].value[i] - (i % 2 ? means.y : means.x));
      }
  }
}

// Adds two neighbouring sums to global memory, from a multiple of 8 bytes.
__device__ inline void add_pair(float* to, float first, float second) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)),
               "f"(first), "f"(second)
               : "memory");
#else
  atomicAdd(to, first);
  atomicAdd(to + 1, second);
#endif
}

// 16 kBlocks x 8 kPairs of dSᵀ to the tile, rounded to fp16.
template <int kBlocks, int kPairs, class Tile>
__device__ void store_transposed(const tile::Sums (&ds)[kBlocks][kPairs], Tile& to, int key,
                                 int query) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b)
#pragma unroll
    for (int j = 0; j < kPairs; ++j)
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        reinterpret_cast<uint32_t&>(to.at(key + 16 * b + tile::Sums::row(lane, i),
                                          query + 8 * j + tile::Sums::column(lane, i))) =
            flash_attention::half_pair(ds[b][j], i);
}

// The warp's part of dQ's tile, over all keys; queries from `queries` on are not there.
template <int kHeadDim, class Tiles>
__device__ void add_queries(const Tiles& tiles, float* dQ_sums, int queries) {
  constexpr int kRowBlocks = Tiles::kRows / 16, kBlocks = Tiles::kColumns / 8;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = warp / Tiles::kOfColumns * Tiles::kRows,
            column = warp % Tiles::kOfColumns * Tiles::kColumns;
  tile::Sums sums[kRowBlocks][kBlocks];
#pragma unroll
  for (int key = 0; key < Tiles::kKeys; key += 16) {
    // dSᵀ lies as [key, query]: transposed on the way it is a left operand.
    tile::LeftFragment<half> ds_frag[kRowBlocks];
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r)
      tile::ldmatrix_transposed(
          ds_frag[r].registers,
          tiles.ds.address(key + lane / 16 * 8 + lane % 8, row / 8 + 2 * r + lane / 8 % 2));
#pragma unroll
    for (int d = 0; d < kBlocks; d += 2) {
      tile::RightFragment<half> k_frag[2];
      flash_attention::load_values(k_frag, tiles.k, key, column / 8 + d);
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r) {
        tile::multiply_add(sums[r][d], ds_frag[r], k_frag[0]);
        tile::multiply_add(sums[r][d + 1], ds_frag[r], k_frag[1]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const int query = row + 16 * r + tile::Sums::row(lane, i);
      float* const to = dQ_sums + query * kHeadDim + column + tile::Sums::column(lane, i);
      if (query < queries)
#pragma unroll
        for (int d = 0; d < kBlocks; ++d)
          add_pair(to + 8 * d, sums[r][d].value[i], sums[r][d].value[i + 1]);
    }
}

// kSumsQueries: dQ, too.
template <bool kSumsQueries, int kHeadDim, int kQueries>
__global__ void __launch_bounds__(kThreads, 2)
    tensor_kernel(const half* Q,  // [batch, heads, tokens, head_dim], as all halves
                  const half* K, const half* V, const half* dO,
                  const float* log_sum_exp,  // [batch, heads, tokens]
                  const float* dots,         // the same
                  float* dQ_sums, half* dK, half* dV, int tokens, float scale) {
  using Tiles = TensorTiles<kHeadDim, kQueries>;
  using flash_attention::copy_rows;
  constexpr int kBlocks = Tiles::kKeyBlocks, kAtOnce = Tiles::kAtOnce;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  auto& tiles = *reinterpret_cast<Tiles*>(shared_memory);
  const unsigned thread = threadIdx.x, warp = thread / 32;
  const int key_tiles = (tokens + Tiles::kKeys - 1) / Tiles::kKeys;
  const int first_key = blockIdx.x % key_tiles * Tiles::kKeys, warp_key = warp * 16 * kBlocks;
  const int64_t first_row = int64_t(blockIdx.x / key_tiles) * tokens;  // where (batch, head) begins
  const int64_t matrix = first_row * kHeadDim;                         // in elements

  // The keys once, and the first queries. What lies past the end is zero; queries there have weights
  // of 2^-inf.
  const auto copy_queries = [&](int stage, int first) {
    auto& to = tiles.stages[stage];
    copy_rows<kThreads>(Q + matrix + int64_t(first) * kHeadDim, tokens - first, thread, to.q);
    copy_rows<kThreads>(dO + matrix + int64_t(first) * kHeadDim, tokens - first, thread, to.d_o);
    tile::end_copies();
    if (thread < kQueries) {
      const bool there = first + int(thread) < tokens;
      const int64_t row = first_row + first + thread;
      to.log2_sum[thread] = there ? log_sum_exp[row] * 1.44269504f : INFINITY;
      to.dots[thread] = there ? dots[row] : 0.0f;
    }
  };
  const int64_t keys = matrix + int64_t(first_key) * kHeadDim;
  copy_rows<kThreads>(K + keys, tokens - first_key, thread, tiles.k);
  copy_rows<kThreads>(V + keys, tokens - first_key, thread, tiles.v);
  copy_queries(0, 0);
  tile::Stages<2> stages;
  tile::Sums dk_frag[kBlocks][kHeadDim / 8], dv_frag[kBlocks][kHeadDim / 8];
  for (int first = 0; first < tokens; first += kQueries) {
    stages.wait();
    if (first + kQueries < tokens) copy_queries(stages.write, first + kQueries);
    const auto& now = tiles.stages[stages.read];
#pragma unroll 1
    for (int query = 0; query < kQueries; query += kAtOnce) {
      tile::Sums s_frag[kBlocks][kAtOnce / 8], dp_frag[kBlocks][kAtOnce / 8];
      multiply_rows(s_frag, tiles.k, warp_key, now.q, query);
      multiply_rows(dp_frag, tiles.v, warp_key, now.d_o, query);
      score_gradients(s_frag, dp_frag, now.log2_sum + query, now.dots + query, scale * 1.44269504f,
                      tokens - first_key - warp_key);
      flash_attention::multiply_values(dv_frag, s_frag, now.d_o, query);
      flash_attention::multiply_values(dk_frag, dp_frag, now.q, query);
      if (kSumsQueries) store_transposed(dp_frag, tiles.ds, warp_key, query);
    }
    if (kSumsQueries) {
      __syncthreads();
      add_queries<kHeadDim>(tiles, dQ_sums + matrix + int64_t(first) * kHeadDim, tokens - first);
    }
    stages.next();
  }

  // Each key once, by way of the warp's rows of K and V.
  __syncthreads();
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const int row = warp_key + 16 * b, left = tokens - first_key - row;
    const float scales[2] = {scale, scale};
    flash_attention::scale_rows(dk_frag[b], scales);
    flash_attention::store_output(dk_frag[b], tiles.k, row, dK + keys + row * kHeadDim, left);
    flash_attention::store_output(dv_frag[b], tiles.v, row, dV + keys + row * kHeadDim, left);
  }
}

template <bool kSumsQueries, int kHeadDim, int kQueries>
void launch_tensor_kernel(const GradientPointers& p, const float* dots, const AttentionShape& shape,
                          cudaStream_t stream) {
  using Tiles = TensorTiles<kHeadDim, kQueries>;
  constexpr size_t kBytes = kSumsQueries ? sizeof(Tiles) : offsetof(Tiles, ds);
  const auto kernel = tensor_kernel<kSumsQueries, kHeadDim, kQueries>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  kernel<<<blocks_for(shape, Tiles::kKeys), kThreads, kBytes, stream>>>(
      p.Q, p.K, p.V, p.dO, p.log_sum_exp, dots, kSumsQueries ? p.workspace : nullptr, p.dK, p.dV,
      shape.tokens, shape.scale);
  require_launched(cudaGetLastError(), shape, "gradients, columns");
}
// The larger tile of queries where the device's shared memory holds it: a T4 has 64 KiB.
template <bool kSumsQueries>
void launch_columns(const GradientPointers& p, const float* dots, const AttentionShape& shape,
                    cudaStream_t stream) {
  require_gradients(p, shape);
  const auto fits = [](size_t bytes) { return bytes <= size_t(shared_limit()); };
  const auto of_64 = fits(sizeof(TensorTiles<64, 64>)) ? launch_tensor_kernel<kSumsQueries, 64, 64>
                                                       : launch_tensor_kernel<kSumsQueries, 64, 32>;
  const auto of_128 = fits(sizeof(TensorTiles<128, 32>))
                          ? launch_tensor_kernel<kSumsQueries, 128, 32>
                          : launch_tensor_kernel<kSumsQueries, 128, 16>;
  const auto of_head_dim = shape.head_dim == 32   ? launch_tensor_kernel<kSumsQueries, 32, 64>
                           : shape.head_dim == 64 ? of_64
                                                  : of_128;
  of_head_dim(p, dots, shape, stream);
}

inline void tensor_cores(const GradientPointers& p, const AttentionShape& shape,
                         cudaStream_t stream) {
  launch_columns<true>(p, dots_behind_sums(p, shape), shape, stream);
}

}  // namespace gradients
