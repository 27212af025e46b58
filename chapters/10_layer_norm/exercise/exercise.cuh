// Exercise 10, from an empty function: gated RMS norm. Language models put a gate in front of their norm
// and leave out the mean:
//
//   h = x · gate / (1 + exp(-gate))
//   y = h / sqrt(mean of h² + epsilon) · weight
//
// As in the chapter, memory is everything: what you read twice takes twice as long. Here there are two
// arrays to read, and something between the load and the sum that nobody wants to compute twice.
//
// Nothing is given but the function. Kernel, grid and launch are yours. Then
// `make exercise10 && ./run` grades it: 30 points for right results, 20 for no finding of any check, and
// 50 for
//
//   15  stores: y, once, and nothing else
//    5  one launch
//   10  x: loaded once
//   10  gate: loaded once
//   10  loads of x: as few requests as 16 bytes a lane allow
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../shape.h"

namespace exercise {

// y = h / sqrt(mean of h² + epsilon) · weight with h = x · gate / (1 + exp(-gate)); the mean is the
// row's.
//   x, gate, y   [rows, columns] fp16
//   weight       [columns] fp16; all contiguous, on the device, starting at a multiple of 16 bytes
//   shape        rows; columns from 64 to 1024, any number; epsilon
//   stream       for all that is launched
inline void gated_rms_norm(const half* x, const half* gate, const half* weight, half* y,
                           const LayerNormShape& shape, cudaStream_t stream) {
  // HOLE: all of it. Kernels go above this function, their launches here.
  (void)x, (void)gate, (void)weight, (void)y, (void)shape, (void)stream;
}

}  // namespace exercise

// Hints, one after the other: go on to the next when you are stuck.
//
// 1. Which numbers must be known before the first element of a row can be stored? Who has all of
//    them, if a warp takes a row, and how do its lanes add up?
// 2. A row of 768 is 24 elements a lane. Where can they wait until the sum is known?
// 3. Squares of fp16 numbers: 300² is more than fp16 holds. And a sum of 768 of them has more digits
//    than fp16 has.
// 4. Wrong only where columns are no multiple of 8? Then the second row does not begin at a multiple
//    of 16 bytes.
// 5. Wrong only where columns are few? A lane without an element of the row adds nothing to the sum,
//    and the mean is divided by columns, not by what lanes have room for.
