// Exercise 13, from an empty function: causal attention, as a language model has it. Query i sees keys
// 0 to i and no other:
//
//   O[i] = sum over j <= i of w[i, j] V[j]      w[i] = softmax of Q[i] · K[j] scale, over j <= i
//
// Half of the scores are never asked for. A tile of keys that lies wholly behind a tile of rows needs
// neither loads nor products; the tile on the diagonal needs a mask.
//
// Nothing is given but the function. Kernel, grid and launch are yours; common/tile/tile.cuh has ldmatrix,
// mma.sync and asynchronous copies. Then `make exercise13 && ./run` grades it: 30 points for right
// results, 20 for no finding of any check, and 50 for
//
//   20  multiply-adds on tensor cores: no more than tiles of 64 rows and 64 keys on and below the
//       diagonal have
//   10  K and V: of these tiles alone, loaded once for 64 rows
//   10  scores and weights in registers: shared memory gets Q, K, V and O and nothing else
//    5  no bank conflicts
//    5  stores: O, once, and nothing else
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../../../common/attention/launch.cuh"
#include "../../../common/attention/shape.h"
#include "../../../common/tile/tile.cuh"

namespace exercise {

// O = causal attention of each (batch, head).
//   Q, K, V, O  [batch, heads, tokens, head_dim] fp16, contiguous, on the device, at multiples of 16
//               bytes
//   shape       shape.batch, shape.heads, shape.tokens: any from 1 on; shape.head_dim: 32, 64 or 128;
//               shape.scale, by which Q Kᵀ is multiplied
//   stream      for all that is launched
inline void causal(const half* Q, const half* K, const half* V, half* O,
                   const AttentionShape& shape, cudaStream_t stream) {
  // HOLE: all of it. Kernels go above this function, their launches here.
  (void)Q, (void)K, (void)V, (void)O, (void)shape, (void)stream;
}

}  // namespace exercise

// Hints, one after the other: go on to the next when you are stuck.
//
// 1. Write it without a mask first: the chapter's step *registers* with 64 rows a block, 16 a warp. The
//    results of tokens 1 are right then.
// 2. A block's last row sees as many keys as its number says, and one more. Where does its loop over
//    tiles end?
// 3. A lane has rows g and g + 8 and columns 2 t and 2 t + 1 of each block of 8 keys. tile::Sums::row()
//    and column() say so. Compare numbers that count from the start of the same sequence.
// 4. What is -INFINITY minus -INFINITY? In which order must tiles come so that each row's first tile has
//    a key that it sees?
// 5. Rows of K and V past the last token have weight 0. What is 0 times what happens to lie there?
// 6. Bank conflicts: at which addresses do the eight rows lie that ldmatrix reads at a time?
//    tile::Swizzled has an answer.
