// Exercise 4, from an empty function: grouped queries. Large language models give several heads of
// Q one head of K and V in common, so that less of K and V must be kept and loaded, and when they
// write text they ask for one token or a few at a time: few queries, many keys.
//
//   O[h] = softmax(scale Q[h] K[g]ᵀ) V[g]        g = h / (heads / kv_heads)
//
// A product of the tensor cores has 16 rows, whether there are 16 queries or not. With 5 queries, a
// kernel that takes one head after the other multiplies 11 rows of nothing.
//
// Here nothing is given but the function. Kernel, tiles, grid and launch are yours. Then
// `make exercise4 && ./run --task task2.cuh` grades it: 30 points for right results, 20 for no
// finding of any check, and 50 for
//
//   20  both products on the tensor cores, padded to whole tiles of 16 rows once for each head of K
//       and V, not once for each head of Q
//   10  fp32 instructions: those of the softmax, 16 for each score
//   10  K and V: loaded once for 16 rows
//    5  loads of V are coalesced
//    5  stores: O, once, and nothing else
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cmath>
#include <cstdint>

#include "../../../common/attention/shape.h"

namespace exercise {

// O = softmax(Q Kᵀ scale) V, where head h of Q and O looks at head h / (heads / kv_heads) of K and
// V.
//   Q, O      [batch, heads, queries, head_dim 64] fp16
//   K, V      [batch, kv_heads, keys, head_dim 64] fp16; all four contiguous, on the device,
//             starting at multiples of 16 bytes
//   shape     of Q: batch, heads, tokens (the number of queries) from 1 on; head_dim 64; scale, by
//             which scores are multiplied
//   kv_heads  divides heads: 1 to heads
//   keys      1 or more; with queries it has nothing to do
//   stream    for all that is launched
inline void attention(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, int kv_heads, int keys, cudaStream_t stream) {
  // HOLE: all of it. Kernels go above this function, their launches here.
  (void)Q, (void)K, (void)V, (void)O, (void)shape, (void)kv_heads, (void)keys, (void)stream;
}

}  // namespace exercise

// Hints, one after the other: go on to the next when you are stuck.
//
// 1. Make it right before you make it fast: the chapter's kernel with one head of Q at a time
//    solves the problem, with another number of keys than of queries and another matrix of K and V.
// 2. Which queries may be rows of the same product? All that look at the same keys, and these are
//    more than those of one head.
// 3. Write down where the rows of the heads of one group lie in Q. How far is the last row of one
//    head from the first of the next?
// 4. The number of rows is a multiple of 16 no more often than before: the last 16 need zeros, and
//    only rows that exist are stored.
