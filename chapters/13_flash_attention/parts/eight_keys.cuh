// The products with 8 keys: step 4's tail.
#pragma once

#include "fragments.cuh"

namespace flash_attention {

// sums += left rightᵀ over 8 keys: left [16, 8] in two registers, right [8, 8] in one. PTX ISA,
// "Multiply-and-Accumulate Instruction: mma" (.m16n8k8).
__device__ inline void multiply_add_8(tile::Sums& sums, const uint32_t (&left)[2], uint32_t right) {
  float(&s)[4] = sums.value;
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
      : "r"(left[0]), "r"(left[1]), "r"(right));
}

// Scores of kRows blocks of rows with 8 keys: Q times rows of K from `key` on. One load brings two
// operands that follow each other along head_dim.
template <int kRows, int kRowBlocks, int kDepths, class Tile>
__device__ void multiply_scores(tile::Sums (&s_frag)[kRows][1],
                                const tile::LeftFragment<half> (&q_frag)[kRowBlocks][kDepths],
                                const Tile& k, unsigned key) {
  const unsigned lane = threadIdx.x % 32;
#pragma unroll
  for (int d = 0; d < kDepths; d += 2) {
    uint32_t k_frag[4];
    tile::ldmatrix(k_frag, k.address(key + lane % 8, 2 * d + lane / 8));
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      tile::multiply_add(s_frag[r][0], q_frag[r][d], {{k_frag[0], k_frag[1]}});
      tile::multiply_add(s_frag[r][0], q_frag[r][d + 1], {{k_frag[2], k_frag[3]}});
    }
  }
}

// O of kRows blocks of rows += weights of 8 keys times rows of V from `key` on.
template <int kRows, int kRowBlocks, int kValueBlocks, class Tile>
__device__ void multiply_values(tile::Sums (&o_frag)[kRowBlocks][kValueBlocks],
                                const tile::Sums (&weights)[kRows][1], const Tile& v,
                                unsigned key) {
  const unsigned lane = threadIdx.x % 32;
#pragma unroll
  for (int d = 0; d < kValueBlocks; d += 4) {
    uint32_t v_frag[4];  // 8 columns each
    tile::ldmatrix_transposed(v_frag, v.address(key + lane % 8, d + lane / 8));
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const uint32_t p_frag[2] = {half_pair(weights[r][0], 0), half_pair(weights[r][0], 2)};
#pragma unroll
      for (int i = 0; i < 4; ++i) multiply_add_8(o_frag[r][d + i], p_frag, v_frag[i]);
    }
  }
}

}  // namespace flash_attention
