// Step 2, registers: the products are mma.sync's, which says where each element lies, and so scores
// and weights never leave the registers:
//
//   q_frag                registers    Q, loaded once
//   s_frag = q_frag Kᵀ    registers    scores of the tile, fp32
//   p_frag = softmax(s)   registers    weights, fp16: the same lanes, the same places
//   o_frag = o_frag + p V registers    rescaled where a row's maximum has grown
//
// Four lanes share a row: its maximum takes two shuffles. V is the right operand of the second
// product with its keys along the depth; ldmatrix transposes it on the way. Loads are step 1's.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "../../common/attention/launch.cuh"
#include "../../common/attention/shape.h"
#include "parts/fragments.cuh"
#include "parts/load_rows.cuh"

namespace flash_attention {

template <int kHeadDim>
struct RegistersTiles {
  static constexpr int kQueryRows = 16 * kWarps;
  static constexpr int kKeyTile = 64;

  PaddedRows<16, kHeadDim> q[kWarps];  // at the end O
  PaddedRows<kKeyTile, kHeadDim> k, v;
};

// Registers for so many blocks an SM: 16 warps of 128, or 8 warps of 255 where O alone takes 64. For
// sm_75, whose products are two of half the depth, 12 warps of 168.
constexpr int resident_blocks(int head_dim) {
#if __CUDA_ARCH__ >= 800
  return head_dim < 128 ? 4 : 2;
#else
  return head_dim < 128 ? 3 : 2;
#endif
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, resident_blocks(kHeadDim))
    registers_kernel(const half* Q,  // [batch, heads, tokens, head_dim], as all four
                     const half* K, const half* V, half* O, int tokens, float scale_log2) {
  // A block is one (batch, head) and 16 query rows for each of its warps.
  using Tiles = RegistersTiles<kHeadDim>;
  constexpr int kQueryRows = Tiles::kQueryRows, kKeyTile = Tiles::kKeyTile;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  auto& tiles = *reinterpret_cast<Tiles*>(shared_memory);
  const unsigned thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int row_blocks = (tokens + kQueryRows - 1) / kQueryRows;
  const int block_row = blockIdx.x % row_blocks * kQueryRows;
  const int first_row = block_row + warp * 16;
  const int64_t matrix = int64_t(blockIdx.x / row_blocks) * tokens * kHeadDim;  // in elements

  // Q once. Rows past the last token are zero: nobody reads their results, but NaN must not arise.
  auto& own = tiles.q[warp];
  load_rows<false, 32>({Q + matrix + int64_t(first_row) * kHeadDim}, tokens - first_row, lane,
                       {&own});
  __syncwarp();
  tile::LeftFragment<half> q_frag[1][kHeadDim / 16];
  load_queries(q_frag[0], own, 0, scale_log2);

  RowSoftmax softmax;
  tile::Sums o_frag[1][kHeadDim / 8];
  const float scale = positive_scale(scale_log2);
  int64_t first_element = matrix;  // where the current tile begins in K and V
  const auto update = [&](auto whole, int keys) {
    constexpr bool kWhole = decltype(whole)::value;
    // Load K and V, the whole block. Keys past the last token are zero, since a weight of 0 does
    // not save us from NaN in V.
    load_rows<kWhole, kThreads>({K + first_element, V + first_element}, keys, thread,
                                {&tiles.k, &tiles.v});
    __syncthreads();

    // A warp without rows has helped to load, and now waits for the others.
    if (first_row < tokens) {
      tile::Sums s_frag[1][kKeyTile / 8];
      multiply_scores(s_frag, q_frag, tiles.k, 0);
      if (!kWhole) leave_out(s_frag[0], keys);
      // Softmax: the weights of this tile, and what the larger maximum makes of those before.
      softmax.update(s_frag[0], scale, o_frag[0]);
      multiply_values(o_frag, s_frag, tiles.v, 0);
    }
    __syncthreads();
    first_element += kKeyTile * kHeadDim;
  };
  int keys = tokens;  // keys that are left
  for (; keys > kKeyTile; keys -= kKeyTile) update(std::true_type{}, keys);
  update(std::false_type{}, keys);
  if (first_row >= tokens) return;

  // Write O once, divided by the sum of the weights, by way of the warp's rows of Q.
  softmax.divide(o_frag[0]);
  store_output(o_frag[0], own, 0, O + matrix + int64_t(first_row) * kHeadDim, tokens - first_row);
}

// Q, K, V, O: [batch, heads, tokens, head_dim] fp16, contiguous; O = softmax(Q Kᵀ scale) V with
// fp32 accumulation. All four start at a multiple of 16 bytes. Throws std::invalid_argument naming
// what is wrong and the limit when it cannot, std::runtime_error when CUDA refuses.
inline void registers(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, cudaStream_t stream) {
  require_attention_shape(shape);
  require_alignment({Q, K, V, O}, "Q, K, V and O");
  with_head_dim(shape.head_dim, [&](auto head_dim) {
    using Tiles = RegistersTiles<head_dim>;
    const auto kernel = registers_kernel<head_dim>;
    allow_shared_memory(kernel, sizeof(Tiles));
    kernel<<<blocks_for(shape, Tiles::kQueryRows), kThreads, sizeof(Tiles), stream>>>(
        Q, K, V, O, shape.tokens, log2_scale(shape));
  });
  require_launched(cudaGetLastError(), shape);
}

}  // namespace flash_attention
