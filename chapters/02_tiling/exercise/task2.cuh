// Exercise 2, from an empty function: attention with a sliding window. In long sequences a token
// looks at its neighbourhood alone: query i sees the keys i - window to i + window, as far as they
// exist, and no other. Their weights are softmax over those keys alone.
//
//   O[i] = Σ_|i-j|<=window weight[i][j] V[j]     weight[i] = softmax over j of scale Q[i]·K[j]
//
// Here nothing is given but the function. Kernel, tiles, grid and launch are yours. Then
// `make exercise2 && ./run --task task2.cuh` grades it: 30 points for right results, 20 for no
// finding of any check, and 50 for what a tiled kernel is made for:
//
//   20  K and V: 16 query rows or more share each tile of 64 keys or fewer, and only tiles are
//       loaded in which one of these rows sees a key
//   10  stores: O, once, and nothing else; scores and weights stay on chip
//    5  Q is loaded once
//   10  loads of K are coalesced
//    5  shared memory: bank conflicts cost at most a tenth
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "../../../common/attention/shape.h"

namespace exercise {

// O = softmax(mask(Q Kᵀ scale)) V, where query i sees the keys i - window to i + window that exist.
//   Q, K, V, O   [batch, heads, tokens, head_dim 64] fp16, contiguous, on the device
//   shape        batch, heads and tokens from 1 on; head_dim 64; scale, by which scores are
//                multiplied
//   window       0 (a query sees itself alone) to 2^20, in tokens; it may be larger than tokens
//   stream       for all that is launched
inline void attention(const half* Q, const half* K, const half* V, half* O,
                      const AttentionShape& shape, int window, cudaStream_t stream) {
  // HOLE: all of it. Kernels go above this function, their launches here.
  (void)Q, (void)K, (void)V, (void)O, (void)shape, (void)window, (void)stream;
}

}  // namespace exercise

// Hints, one after the other: go on to the next when you are stuck.
//
// 1. Make it right before you make it fast. The chapter's kernel has all that is needed but the
//    window: begin with its phases (load, scores, softmax, update) and one tile size.
// 2. Which is the first key that any row of a block sees, and which the last? No others are loaded.
//    `window` may be larger than the sequence: both ends need a limit.
// 3. The mask has two sides, and keys past the last token are not seen however large the window is.
// 4. NaN in rows that begin late? In a tile in which a row sees no key yet its maximum is still
//    -INFINITY, and -INFINITY minus -INFINITY is NaN. Choose where the tiles begin so that this
//    does not happen, or take care of it.
