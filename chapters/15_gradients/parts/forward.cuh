// The forward pass that the gradients need: O, and for each row the logarithm of the softmax' sum.
// Chapter 13's products without its pipeline; what it takes is not what this chapter is about.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "../../../common/attention/launch.cuh"
#include "../../../common/tile/tile.cuh"
#include "../../13_flash_attention/parts/fragments.cuh"

namespace gradients {

template <int kHeadDim>
struct ForwardTiles {
  static constexpr int kRows = 16 * flash_attention::kWarps, kKeyTile = kHeadDim < 128 ? 64 : 32;
  tile::SharedTile<half, kRows, kHeadDim, tile::Swizzled> q;  // at the end O
  tile::SharedTile<half, kKeyTile, kHeadDim, tile::Swizzled> k, v;
};

template <int kHeadDim>
__global__ void __launch_bounds__(flash_attention::kThreads)
    forward_kernel(const half* Q,  // [batch, heads, tokens, head_dim], as all four
                   const half* K, const half* V, half* O,
                   float* log_sum_exp,  // [batch, heads, tokens]
                   int tokens, float scale_log2) {
  using namespace flash_attention;
  using Tiles = ForwardTiles<kHeadDim>;
  constexpr float kLn2 = 0.693147181f;
  __shared__ Tiles tiles;
  const unsigned thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int row_blocks = (tokens + Tiles::kRows - 1) / Tiles::kRows;
  const int block_row = blockIdx.x % row_blocks * Tiles::kRows;
  const int64_t first_row = int64_t(blockIdx.x / row_blocks) * tokens;  // (batch, head) begins here
  const int64_t matrix = first_row * kHeadDim;

  copy_rows<kThreads>(Q + matrix + int64_t(block_row) * kHeadDim, tokens - block_row, thread,
                      tiles.q);
  tile::LeftFragment<half> q_frag[1][kHeadDim / 16];
  RowSoftmax softmax;
  tile::Sums o_frag[1][kHeadDim / 8];
  const float scale = positive_scale(scale_log2);
  for (int key = 0; key < tokens; key += Tiles::kKeyTile) {
    copy_rows<kThreads>(K + matrix + int64_t(key) * kHeadDim, tokens - key, thread, tiles.k);
    copy_rows<kThreads>(V + matrix + int64_t(key) * kHeadDim, tokens - key, thread, tiles.v);
    tile::end_copies();
    tile::wait_for_copies<0>();
    __syncthreads();
    if (key == 0) load_queries(q_frag[0], tiles.q, 16 * warp, scale_log2);
    tile::Sums s_frag[1][Tiles::kKeyTile / 8];
    multiply_scores(s_frag, q_frag, tiles.k, 0);
    leave_out(s_frag[0], tokens - key);
    float factor[2];
    softmax.update(s_frag[0], scale, factor);
    scale_rows(o_frag[0], factor);
    multiply_values(o_frag, s_frag, tiles.v, 0);
    __syncthreads();
  }

  float factor[2];
  softmax.inverse_sums(factor);
  scale_rows(o_frag[0], factor);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = block_row + 16 * warp + tile::Sums::row(lane, 2 * r);
    if (lane % 4 == 0 && row < tokens)
      log_sum_exp[first_row + row] = (softmax.row_max[r] * scale - log2f(factor[r])) * kLn2;
  }
  const int row = block_row + 16 * warp;
  store_output(o_frag[0], tiles.q, 16 * warp, O + matrix + int64_t(row) * kHeadDim, tokens - row);
}

// O = softmax(Q Kᵀ scale) V [batch, heads, tokens, head_dim] and log_sum_exp [batch, heads, tokens].
// Throws as attention's steps do.
inline void forward(const half* Q, const half* K, const half* V, half* O, float* log_sum_exp,
                    const AttentionShape& shape, cudaStream_t stream) {
  require_attention_shape(shape);
  require_alignment({Q, K, V, O}, "Q, K, V and O");
  const auto kernel = shape.head_dim == 32   ? forward_kernel<32>
                      : shape.head_dim == 64 ? forward_kernel<64>
                                             : forward_kernel<128>;
  kernel<<<blocks_for(shape, ForwardTiles<32>::kRows), flash_attention::kThreads, 0, stream>>>(
      Q, K, V, O, log_sum_exp, shape.tokens, log2_scale(shape));
  require_launched(cudaGetLastError(), shape);
}

}  // namespace gradients
