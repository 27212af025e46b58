// Step 1, loads in flight: chapter 6 with fewer instructions between its loads and its products.
//
//   tiles     all but the last have kKeyTile keys: no bound is tested, trip counts are constants
//   loads     a thread asks for its pieces of K and of V before it stores the first of either
//   weights   2^(score scale - maximum scale): one FMA, one ex2.approx
//   the last  tile is code of its own, which alone knows that keys may be missing
//
// All scores must grow with q k then: the sign of the scale goes to Q.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "../../common/attention/launch.cuh"
#include "../../common/attention/shape.h"
#include "../02_tiling/parts/online_softmax.cuh"
#include "../04_wmma/parts/rows.cuh"
#include "parts/load_rows.cuh"
#include "parts/power_of_2.cuh"

namespace loads_in_flight {

using flash_attention::load_rows, flash_attention::power_of_2, flash_attention::PaddedRows;
using tiling::OnlineSoftmax;
using wmma_attention::scale_rows, wmma_attention::store_half4;

namespace wmma = nvcuda::wmma;

constexpr int kTile = 16;  // rows, columns and depth of one WMMA product, rows of a warp
constexpr int kPad = 8;  // halves or floats behind each row, so that rows start in different banks

using QueryFragment = wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, half, wmma::row_major>;
using KeyFragment = wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, half, wmma::col_major>;
using WeightFragment = wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, half, wmma::row_major>;
using ValueFragment = wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, half, wmma::row_major>;
using Accumulator = wmma::fragment<wmma::accumulator, kTile, kTile, kTile, float>;

// What a warp keeps in shared memory. Q is in fragments before there are scores.
template <int kHeadDim, int kKeyTile>
struct Tiles {
  union {
    PaddedRows<kTile, kHeadDim> q;
    float s[kTile][kKeyTile + kPad];  // scores, then factors of O, at the end O itself
  };
  half p[kTile][kKeyTile + kPad];  // weights
};

// What a block keeps in shared memory.
template <int kHeadDim, int kKeyTile, int kWarps>
struct BlockTiles {  // aligned as WMMA requires
  PaddedRows<kKeyTile, kHeadDim> k, v;
  Tiles<kHeadDim, kKeyTile> warps[kWarps];
};

// OnlineSoftmax of scores that are not yet scaled: a weight is 2^((score - row_max) scale).
struct ScaledSoftmax : OnlineSoftmax<2> {
  float scale;  // positive, in units of log2

  template <int kCount>
  __device__ float update(float (&scores)[kCount]) {
    float new_max = row_max;
    for (const float score : scores) new_max = fmaxf(new_max, score);
    new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, 1));
    const float factor = power_of_2((row_max - new_max) * scale);
    row_max = new_max;
    row_sum *= factor;
    const float scaled_max = new_max * scale;
    for (float& score : scores) {
      score = power_of_2(fmaf(score, scale, -scaled_max));
      row_sum += score;
    }
    return factor;
  }
};

// Loads four neighbouring numbers of shared memory with one instruction (PTX ISA, ld). Of the same in
// C++ nvcc now and then makes two loads of 8 bytes, which have bank conflicts.
__device__ inline float4 load_float4(const float* where) {
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(unsigned(__cvta_generic_to_shared(where)))
               : "memory");
  return x;
}

// Warps that an SM must have registers for: 16 with 128 registers a thread, or 8 with 255. head_dim
// 128 takes the latter, since its fragments of Q and O alone need 128.
constexpr int resident_warps(int head_dim) { return head_dim < 128 ? 16 : 8; }

template <int kHeadDim, int kKeyTile, int kWarps>
__global__ void __launch_bounds__(32 * kWarps, resident_warps(kHeadDim) / kWarps)
    attention_kernel(const half* Q,  // [batch, heads, tokens, head_dim], as all four
                     const half* K, const half* V, half* O, int tokens, float scale_log2) {
  // A block is one (batch, head) and 16 query rows for each of its warps.
  constexpr int kThreads = 32 * kWarps, kQueryRows = kTile * kWarps;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  auto& block = *reinterpret_cast<BlockTiles<kHeadDim, kKeyTile, kWarps>*>(shared_memory);
  const unsigned thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  auto& tiles = block.warps[warp];
  const int row_blocks = (tokens + kQueryRows - 1) / kQueryRows;
  const int first_row = blockIdx.x % row_blocks * kQueryRows + warp * kTile;
  const int64_t matrix = int64_t(blockIdx.x / row_blocks) * tokens * kHeadDim;  // in elements

  // Q once. Rows past the last token are zero: nobody reads their results, but NaN must not arise.
  load_rows<false, 32>({Q + matrix + int64_t(first_row) * kHeadDim}, tokens - first_row, lane,
                       {&tiles.q});
  __syncwarp();
  QueryFragment q_frag[kHeadDim / kTile];
  const half sign = scale_log2 > 0 ? 1 : scale_log2 < 0 ? -1 : 0;
  for (int d = 0; d < kHeadDim; d += kTile) {
    wmma::load_matrix_sync(q_frag[d / kTile], &tiles.q.at(0, d), kHeadDim + kPad);
    if (scale_log2 > 0) continue;
    for (int i = 0; i < q_frag[0].num_elements; ++i) q_frag[d / kTile].x[i] *= sign;
  }

  // Who computes what: the warp computes the products, two lanes the softmax of a row. The two take
  // 4 keys each in turn. So the 4 rows that 8 lanes read at a time lie in 32 different banks.
  const unsigned row = lane / 2;
  const auto column = [lane](int i) { return i / 4 * 8 + lane % 2 * 4 + i % 4; };
  ScaledSoftmax softmax{{}, scale_log2 == 0 ? 1 : fabsf(scale_log2)};
  Accumulator o_frag[kHeadDim / kTile];
  for (Accumulator& o : o_frag) wmma::fill_fragment(o, 0.0f);

  const half *k_global = K + matrix, *v_global = V + matrix;  // where the tile begins
  const auto update = [&](auto whole, int keys) {
    constexpr bool kWhole = decltype(whole)::value;
    // Load K and V, the whole block. Keys past the last token are zero, since a weight of 0
    // does not save us from NaN in V.
    load_rows<kWhole, kThreads>({k_global, v_global}, keys, thread, {&block.k, &block.v});
    __syncthreads();

    // A warp without rows has helped to load, and now waits for the others.
    if (first_row < tokens) {
      // Scores: 16 keys at a time, summed up over head_dim in registers.
#pragma unroll
      for (int j = 0; j < kKeyTile; j += kTile) {
        Accumulator s_frag;
        wmma::fill_fragment(s_frag, 0.0f);
        for (int d = 0; d < kHeadDim; d += kTile) {
          KeyFragment k_frag;
          wmma::load_matrix_sync(k_frag, &block.k.at(j, d), kHeadDim + kPad);
          wmma::mma_sync(s_frag, q_frag[d / kTile], k_frag, s_frag);
        }
        wmma::store_matrix_sync(&tiles.s[0][j], s_frag, kKeyTile + kPad, wmma::mem_row_major);
      }
      __syncwarp();

      // Softmax: the weights of this tile, and what the larger maximum makes of the tiles before.
      alignas(16) float weight[kKeyTile / 2];
      for (int i = 0; i < kKeyTile / 2; i += 4)
        reinterpret_cast<float4&>(weight[i]) = load_float4(&tiles.s[row][column(i)]);
      if (!kWhole)
        for (int i = 0; i < kKeyTile / 2; ++i) weight[i] = column(i) < keys ? weight[i] : -INFINITY;
      const float factor = softmax.update(weight);
      for (int i = 0; i < kKeyTile / 2; i += 4)
        store_half4(&tiles.p[row][column(i)], reinterpret_cast<float4&>(weight[i]));

      // Update O. It is rescaled only where the maximum of at least one of the 16 rows has grown.
      if (__any_sync(0xffffffffu, factor != 1.0f)) scale_rows(o_frag, factor, tiles.s);
      __syncwarp();
#pragma unroll
      for (int j = 0; j < kKeyTile; j += kTile) {
        WeightFragment p_frag;
        wmma::load_matrix_sync(p_frag, &tiles.p[0][j], kKeyTile + kPad);
        for (int d = 0; d < kHeadDim; d += kTile) {
          ValueFragment v_frag;
          wmma::load_matrix_sync(v_frag, &block.v.at(j, d), kHeadDim + kPad);
          wmma::mma_sync(o_frag[d / kTile], p_frag, v_frag, o_frag[d / kTile]);
        }
      }
    }
    __syncthreads();
    k_global += kKeyTile * kHeadDim;
    v_global += kKeyTile * kHeadDim;
  };
  int keys = tokens;  // keys that are left
  for (; keys > kKeyTile; keys -= kKeyTile) update(std::true_type{}, keys);
  update(std::false_type{}, keys);
  if (first_row >= tokens) return;

  // Write O once, divided by the sum of the weights: as many columns at a time as s has room for.
  scale_rows(o_frag, softmax.inverse_sum(), tiles.s);
  half* o_global = O + matrix + int64_t(first_row) * kHeadDim;
  constexpr int kColumns = kKeyTile < kHeadDim ? kKeyTile : kHeadDim;
  for (int first_d = 0; first_d < kHeadDim; first_d += kColumns) {
    __syncwarp();
    for (int d = 0; d < kColumns; d += kTile)
      wmma::store_matrix_sync(&tiles.s[0][d], o_frag[(first_d + d) / kTile], kKeyTile + kPad,
                              wmma::mem_row_major);
    __syncwarp();
    for (int i = lane; i < kTile * kColumns / 4; i += 32) {
      const int o_row = i / (kColumns / 4), d = i % (kColumns / 4) * 4;
      if (first_row + o_row < tokens)
        store_half4(o_global + o_row * kHeadDim + first_d + d, load_float4(&tiles.s[o_row][d]));
    }
  }
}

// A kernel and what its launch needs: keys a tile, and bytes of shared memory per block.
struct Step {
  AttentionKernel kernel;
  int key_tile, shared_bytes;
};

// The step with 64 keys a tile where that fits into shared_limit, a device's bytes of shared memory
// for a block, else with 32, which always fits (compute capability 7.5, the least, has 64 KiB).
template <int kWarps>
Step step_for(int head_dim, int shared_limit) {
  return with_head_dim(head_dim, [&](auto constant) -> Step {
    constexpr int kHeadDim = constant, kLarge = sizeof(BlockTiles<kHeadDim, 64, kWarps>);
    if constexpr (kLarge > 64 * 1024)
      if (kLarge > shared_limit)
        return {attention_kernel<kHeadDim, 32, kWarps>, 32,
                sizeof(BlockTiles<kHeadDim, 32, kWarps>)};
    return {attention_kernel<kHeadDim, 64, kWarps>, 64, kLarge};
  });
}

// Q, K, V, O: [batch, heads, tokens, head_dim] fp16, contiguous; O = softmax(Q Kᵀ scale) V with
// fp32 accumulation. All four start at a multiple of 16 bytes. Throws std::invalid_argument
// naming what is wrong and the limit when it cannot, std::runtime_error when CUDA refuses.
// kWarps: 2, 4 or 8 warps a block.
template <int kWarps>
void attention_with(const half* Q, const half* K, const half* V, half* O,
                    const AttentionShape& shape, cudaStream_t stream) {
  require_attention_shape(shape);
  require_alignment({Q, K, V, O}, "Q, K, V and O");
  const Step step = step_for<kWarps>(shape.head_dim, shared_limit());
  allow_shared_memory(step.kernel, step.shared_bytes);
  step.kernel<<<blocks_for(shape, kTile * kWarps), 32 * kWarps, step.shared_bytes, stream>>>(
      Q, K, V, O, shape.tokens, log2_scale(shape));
  require_launched(cudaGetLastError(), shape);
}

// The same with as many warps as suit the shape and the device.
inline void attention(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, cudaStream_t stream) {
  require_attention_shape(shape);
  with_warps(shape, kTile, [&](auto warps) { attention_with<warps>(Q, K, V, O, shape, stream); });
}

}  // namespace loads_in_flight
