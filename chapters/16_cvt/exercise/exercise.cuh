// Exercise 16, from an empty function: the gradients of a position encoding. Attention does not see
// where a token lies. Some nets tell it by a depthwise 3x3 convolution over the tokens' map, which
// is padded with zeros: a token beside the border gets less than one in the middle. The result is
// added to the token. The class token, the first of each sample, lies nowhere and stays as it is:
//
//   y[p] = x[p] + bias + sum over ty, tx of w[ty, tx] x[p + (ty - 1, tx - 1)]
//   y[class] = x[class]
//
// The loss has the gradient dy with respect to y. Wanted are dx, dw and dbias.
//
// Nothing is given but the function. Kernels, grid and launches are yours. Then
// `make exercise16 && ./run` grades it: 30 points for right results, 20 for no finding of any
// check, and 50 for
//
//   15  stores and atomics to global memory: the gradients, and ten sums a channel for each 7 rows
//       of a map
//   10  no atomics, in shared memory neither: the gradients have the same bits each time
//   10  x: each token of a map loaded once, class tokens not at all
//   10  dy and memory of your own: dy once and a row more for each 7 rows, and these sums once
//    5  no sectors of x and dy that were not asked for
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace exercise {

// dx, dw and dbias, in one array.
//   x, dy      [batch, 1 + height * width, channels] fp32; token 1 + row * width + column of a
//              sample lies in that row and column of its map, token 0 is the class token
//   w          [3, 3, channels] fp32
//   gradients  [batch * (1 + height * width) + 9 + 1, channels] fp32: dx, then dw, then dbias. It
//              holds NaN before the call
//   All are contiguous, on the device, at multiples of 16 bytes.
//   batch, channels   any from 1 on
//   height, width     1 to 64
//   stream            for all that is launched
inline void position_gradients(const float* x, const float* w, const float* dy, float* gradients,
                               int batch, int height, int width, int channels,
                               cudaStream_t stream) {
  // HOLE: all of it. Kernels go above this function, their launches here.
  (void)x, (void)w, (void)dy, (void)gradients;
  (void)batch, (void)height, (void)width, (void)channels, (void)stream;
}

}  // namespace exercise

// Hints, one after the other: go on to the next when you are stuck.
//
// 1. Which y does x[p] go into, and with which tap? Write dx[p] as a sum over these y. It is a
//    convolution of dy: which taps has it, and where do they lie?
// 2. Class tokens: what is dx there, and do they add to dw or dbias?
// 3. dw[ty, tx] is a sum over pairs of a y and an x. With y as the loop each of its rounds needs
//    nine numbers of x. What does it need with x as the loop, and who has loaded that already?
// 4. Lanes along which axis ask for whole sectors? What does a thread then have for itself, so that
//    it can add up ten sums in registers?
// 5. A block that has 7 rows of a map needs dy of 9. In shared memory all nine neighbours of a
//    token are one load of global memory each. Outside the map dy counts as 0.
// 6. A block's ten sums a channel go to memory of your own (cudaMallocAsync), each block's to its
//    own place. A second launch adds them up, in an order that is always the same.
