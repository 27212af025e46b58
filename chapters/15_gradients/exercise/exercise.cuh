// Exercise 15, from an empty function: the gradient of a bias table. Attention within a window of an
// image adds a learned number to each score. It depends on where the two patches lie to each other,
// not on where they lie:
//
//   S[i, j] = scale Q[i] · K[j] + bias[offset of i and j]      P = softmax of each row of S
//   dBias[head, offset] = sum of dS[i, j] over all images and all pairs with this offset
//
// A grid of 14 x 14 patches has 38,416 pairs and 729 offsets. dS is the chapter's: what the softmax
// makes of dP = dO Vᵀ and D = the row's sum of dO ∘ O.
//
// Nothing is given but the function. Kernels, grid and launches are yours; common/tile/tile.cuh has
// ldmatrix, mma.sync and asynchronous copies. Then `make exercise15 && ./run` grades it: 30 points for
// right results, 20 for no finding of any check, and 50 for
//
//   20  stores and atomics to global memory: a table for each 64 rows of queries, D, and dBias; neither
//       scores nor an addition for each pair
//   10  no atomics, in shared memory neither: dBias has the same bits each time
//   10  multiply-adds on tensor cores: two products, of tiles of 64 rows and 64 keys
//   10  Q, K, V and dO: one pair of them loaded once, the other once for each 64 rows
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../../../common/attention/launch.cuh"
#include "../../../common/attention/shape.h"
#include "../../../common/tile/tile.cuh"

namespace exercise {

// dBias of attention with a bias table.
//   Q, K, V, O, dO  [batch, heads, tokens, head_dim] fp16
//   bias            [heads, 2 grid_height - 1, 2 grid_width - 1] fp16: that of query i and key j, which
//                   lie in rows yi, yj and columns xi, xj of the grid, is
//                   bias[head, yi - yj + grid_height - 1, xi - xj + grid_width - 1]
//   log_sum_exp     [batch, heads, tokens] fp32: ln of the sum of exp(S[i, j]) over j
//   dBias           as bias, but fp32. It holds NaN before the call
//   All are contiguous, on the device, at multiples of 16 bytes.
//   shape           shape.batch, shape.heads: any from 1 on; shape.head_dim: 32 or 64; shape.scale;
//                   shape.tokens: grid_height · grid_width, token y · grid_width + x lies in row y
//   grid_height, grid_width   1 to 32
//   stream          for all that is launched
inline void bias_gradient(const half* Q, const half* K, const half* V, const half* bias,
                          const half* O, const float* log_sum_exp, const half* dO, float* dBias,
                          const AttentionShape& shape, int grid_height, int grid_width,
                          cudaStream_t stream) {
  // HOLE: all of it. Kernels go above this function, their launches here.
  (void)Q, (void)K, (void)V, (void)bias, (void)O, (void)log_sum_exp, (void)dO, (void)dBias;
  (void)shape, (void)grid_height, (void)grid_width, (void)stream;
}

}  // namespace exercise

// Hints, one after the other: go on to the next when you are stuck.
//
// 1. Write it with an atomicAdd for each pair first, and set dBias to 0 before. What is dS of a grid of
//    one patch?
// 2. P needs no maximum and no sum any more: exp(S - log_sum_exp). Where scores are large, exp(S) alone
//    is infinite.
// 3. dS is the gradient of the score. The bias is added to the score as it is, the product Q Kᵀ with a
//    factor: whose gradient has that factor?
// 4. A block's pairs have few offsets. Let it add up a table of its own in shared memory and bring that
//    to global memory once; who adds up the blocks' tables, and in which order?
// 5. Without atomics: bring a tile of dS to shared memory. A thread that has an offset walks over the
//    tile's rows. Which key has that offset from row i, and is it in the tile?
// 6. With rows of 2 grid_width - 1 instead of grid_width, number(y, x) = y (2 grid_width - 1) + x: the
//    offset's cell is number(i) - number(j) and a constant.
