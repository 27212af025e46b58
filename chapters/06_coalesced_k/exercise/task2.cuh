// Exercise 6, from an empty function: Q, K and V in one array. In a Vision Transformer one product
// with a matrix of weights makes Q, K and V of all tokens, and its rows are tokens: of each token
// there is first Q of all heads, then K of all heads, then V.
//
//   qkv [batch, tokens, 3, heads, head_dim]   O [batch, tokens, heads, head_dim]
//
// The next layer wants O likewise, token by token. To sort qkv into the three arrays of the chapter
// would cost another trip to memory and back; here attention reads it as it lies.
//
// Nothing is given but the function. Kernel, tiles, grid and launch are yours. Then
// `make exercise6 && ./run --task task2.cuh` grades it: 30 points for right results, 20 for no
// finding of any check, and 50 for
//
//   15  bytes loaded: Q once, K and V once for 64 query rows, nothing from memory of your own
//   10  loads are coalesced: no sector is moved in vain
//    5  and they are 16 bytes a lane
//   10  shared memory: bank conflicts cost at most 2 %
//    5  both products on the tensor cores
//    5  stores: O, once, and nothing else
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cmath>
#include <cstdint>

#include "../../../common/attention/shape.h"

namespace exercise {

// O = softmax(Q Kᵀ scale) V, for each image and head.
//   qkv      [batch, tokens, 3, heads, head_dim 64] fp16: of each token Q of all heads, then K,
//            then V
//   O        [batch, tokens, heads, head_dim 64] fp16; both contiguous, on the device, starting at
//            multiples of 16 bytes
//   shape    batch, heads and tokens from 1 on; head_dim 64; scale, by which scores are multiplied
//   stream   for all that is launched
inline void attention(const half* qkv, half* O, const AttentionShape& shape, cudaStream_t stream) {
  // HOLE: all of it. Kernels go above this function, their launches here.
  (void)qkv, (void)O, (void)shape, (void)stream;
}

}  // namespace exercise

// Hints, one after the other: go on to the next when you are stuck.
//
// 1. Write down, in elements, how far it is in qkv from a head to the next one, from Q of a head to
//    its K, and from a token to the next one. Try it on one token with two heads, then on two
//    tokens.
// 2. A row of head_dim 64 is still 128 bytes without a gap, whatever lies between two rows. How
//    many lanes, and how many bytes each, make of such rows loads of which every sector is needed?
// 3. Where do rows of a tile begin in shared memory? 16 bytes a lane are written 8 lanes at a time,
//    and read by load_matrix_sync from 8 rows at a time: both want 8 different groups of 4 banks.
// 4. Bank conflicts remain? They come from the tiles of scores and weights too, and from O on its
//    way out: 16 bytes a lane there, and rows that are padded as well.
