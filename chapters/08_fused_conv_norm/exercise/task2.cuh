// Exercise 8, from an empty function: a convolution of each channel by itself (depthwise), then
// instance norm and ReLU. Networks for small devices convolve each channel with a filter of its own
// and mix the channels elsewhere:
//
//   conv(c, p) = Σ over the 3 x 3 pixels q around p of weight(c, q - p) · x(c, q)
//   y(c, p) = relu(gamma(c) · (conv(c, p) - mean(c)) / sqrt(variance(c) + eps) + beta(c))
//
// As in the chapter, nothing can be normalized before all of a plane has been convolved, and what
// has been convolved should not travel to memory and back. Who must wait for whom is another
// question here.
//
// Nothing is given but the function. Kernel, grid and launch are yours. Then
// `make exercise8 && ./run --task task2.cuh` grades it: 30 points for right results, also where the
// mean is 700 times the deviation, 20 for no finding of any check, and 50 for
//
//   15  stores: y, once, and nothing else
//    5  one launch
//   15  x: loaded once
//    5  no memory of your own
//    5  loads of x are coalesced
//    5  shared memory: bank conflicts cost at most 5 %
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../shape.h"

namespace exercise {

// y = relu(gamma (conv - mean) / sqrt(variance + eps) + beta), where conv is the 3x3 convolution of
// each channel with its own weights, and mean and variance (of the population) are those of one
// plane, an (image, channel), of conv.
//   x, y         [batch, channels, height, width] fp16
//   weight       [channels, 3, 3] fp16, rows first; conv is not mirrored: weight(0, 0) belongs to
//                the pixel above and to the left
//   gamma, beta  [channels] fp32; all contiguous, on the device
//   shape        in_channels = out_channels = channels; height and width from 2 on, height x width
//                up to 16384; eps; kernel 3, stride 1, reflection by 1 pixel on each side: beyond
//                the edge the picture is mirrored at its outermost pixel, pixel -1 is pixel 1
//   stream       for all that is launched
inline void depthwise_norm(const half* x, const half* weight, const float* gamma, const float* beta,
                           half* y, const ConvNormShape& shape, cudaStream_t stream) {
  // HOLE: all of it. Kernels go above this function, their launches here.
  (void)x, (void)weight, (void)gamma, (void)beta, (void)y, (void)shape, (void)stream;
}

}  // namespace exercise

// Hints, one after the other: go on to the next when you are stuck.
//
// 1. Which numbers must be known before the first pixel of a plane can be stored? From which pixels
//    of x do they come, of how many channels?
// 2. How many bytes has the largest plane in fp16? And how many may a block have in shared memory?
//    Whoever has all of x that its mean needs, waits for no other block.
// 3. Pixels beyond the edge: mirror row and column each by itself, -1 becomes 1, height becomes
//    height - 2. With 2 rows both neighbours of a row are the other one.
// 4. Wrong only where all values are large? Squares of large numbers have no digits left for small
//    deviations. Subtract something close to the mean first; a value of the plane will do.
// 5. NaN or infinity in a plane that is all one number? Its variance is 0; eps is there for it.
