// Exercise 12, from an empty function: a net without a class token at its end. Many newer nets take the
// mean of the patches in its place, and normalize it:
//
//   m[b] = mean of x[b, p] over the patches p, the class token left out
//   y[b] = (m[b] - mean of m[b]) / sqrt(variance of m[b] + epsilon) · scale + bias
//
// In the chapter's net two launches stand here, "class token" and "norm", with an array between them.
// Such launches compute next to nothing, and each costs microseconds. Make one launch of them that
// reads each patch once and stores y and nothing else.
//
// Nothing is given but the function. Kernel, grid and launch are yours. Then
// `make exercise12 && ./run` grades it: 30 points for right results, 20 for no finding of any check, and
// 50 for
//
//   15  stores: y, once, and nothing else
//   10  one launch
//   15  x: each patch loaded once, the class token not at all
//   10  loads of x: nearly as few requests as 16 bytes a lane allow
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../shape.h"

namespace exercise {

// y[b] = LayerNorm of the mean of x[b, 1], x[b, 2] ... x[b, tokens - 1].
//   x            [batch, tokens, width] fp16; token 0 is the class token
//   scale, bias  [width] fp16
//   y            [batch, width] fp16; all contiguous, on the device, at multiples of 16 bytes
//   shape        shape.batch, shape.tokens() (at least 2), shape.width (a multiple of 8, up to 1024),
//                shape.epsilon
//   stream       for all that is launched
inline void pooled_norm(const half* x, const half* scale, const half* bias, half* y,
                        const vision_transformer::NetShape& shape, cudaStream_t stream) {
  // HOLE: all of it. Kernels go above this function, their launches here.
  (void)x, (void)scale, (void)bias, (void)y, (void)shape, (void)stream;
}

}  // namespace exercise

// Hints, one after the other: go on to the next when you are stuck.
//
// 1. Which numbers must be known before the first element of y can be stored? How much shared memory
//    do they take, and which threads may therefore belong to one image?
// 2. Patches lie one behind the other. Eight columns of a patch are 16 bytes; a row of 192 columns is
//    24 such pieces. What do lanes 24 to 31 load?
// 3. Several threads have sums of the same columns, from different patches. Who adds them up, and when
//    are all of them there?
// 4. A mean of numbers around 300 with a spread of 1: E[m²] - E[m]² loses all digits. The means are in
//    shared memory, so a second pass over them costs nothing.
// 5. Wrong only where patches are few? A group of threads without a patch adds zeros.
