// STARTER
//| // Exercise 8, from an empty function: a convolution of each channel by itself (depthwise), then
//| // instance norm and ReLU. Networks for small devices convolve each channel with a filter of its own
//| // and mix the channels elsewhere:
//| //
//| //   conv(c, p) = Σ over the 3 x 3 pixels q around p of weight(c, q - p) · x(c, q)
//| //   y(c, p) = relu(gamma(c) · (conv(c, p) - mean(c)) / sqrt(variance(c) + eps) + beta(c))
//| //
//| // As in the chapter, nothing can be normalized before all of a plane has been convolved, and what
//| // has been convolved should not travel to memory and back. Who must wait for whom is another
//| // question here.
//| //
//| // Nothing is given but the function. Kernel, grid and launch are yours. Then
//| // `make exercise8 && ./run --task task2.cuh` grades it: 30 points for right results, also where the
//| // mean is 700 times the deviation, 20 for no finding of any check, and 50 for
//| //
//| //   15  stores: y, once, and nothing else
//| //    5  one launch
//| //   15  x: loaded once
//| //    5  no memory of your own
//| //    5  loads of x are coalesced
//| //    5  shared memory: bank conflicts cost at most 5 %
// SOLUTION
// Exercise 8, a convolution of each channel by itself: a solution. The exercise itself is in
// task2.cuh.
//
// All that must meet for the mean of a plane comes from this plane, which fits into shared memory:
// one block for each, and nobody waits for another block. The convolution costs 9 multiply-adds, so
// that it is computed again rather than kept.
// END
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../shape.h"

namespace exercise {
// SOLUTION

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kMaxPixels = 16384;  // pixels of a plane

// The sum over the block's threads, in all of them.
__device__ inline float sum_of_block(float own, float (&of_warps)[kWarps]) {
  for (int step = 16; step > 0; step /= 2) own += __shfl_xor_sync(0xffffffffu, own, step);
  __syncthreads();  // the sums before have been read
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
  __syncthreads();
  float sum = 0.0f;
  for (int warp = 0; warp < kWarps; ++warp) sum += of_warps[warp];
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    depthwise_norm_kernel(const half* x,       // [batch, channels, height, width]
                          const half* weight,  // [channels, 3, 3]
                          const float* gamma,  // [channels]
                          const float* beta,   // [channels]
                          half* y,             // as x
                          int channels, int height, int width, float eps) {
  // A block is one plane.
  __shared__ half plane[kMaxPixels];
  __shared__ float of_warps[kWarps];
  const int pixels = height * width, channel = blockIdx.x % channels;
  x += int64_t(blockIdx.x) * pixels;
  y += int64_t(blockIdx.x) * pixels;

  // x once, and the weights in registers.
  for (int i = threadIdx.x; i < pixels; i += kThreads) plane[i] = x[i];
  float w[9];
  for (int i = 0; i < 9; ++i) w[i] = __half2float(weight[channel * 9 + i]);
  __syncthreads();

  const auto mirrored = [](int i, int size) {
    return i < 0 ? -i : i < size ? i : 2 * size - 2 - i;
  };
  const auto conv = [&](int pixel) {
    const int row = pixel / width, column = pixel % width;
    float sum = 0.0f;
    for (int i = 0; i < 9; ++i)
      sum += w[i] * __half2float(plane[mirrored(row + i / 3 - 1, height) * width +
                                       mirrored(column + i % 3 - 1, width)]);
    return sum;
  };

  // Mean and variance, as distances from one of the values: they are small where the mean is large,
  // and keep their digits.
  const float middle = conv(0);
  float sum = 0.0f, squares = 0.0f;
  for (int i = threadIdx.x; i < pixels; i += kThreads) sum += conv(i) - middle;
  const float mean = sum_of_block(sum, of_warps) / float(pixels);
  for (int i = threadIdx.x; i < pixels; i += kThreads) {
    const float distance = conv(i) - middle - mean;
    squares += distance * distance;
  }
  const float variance = sum_of_block(squares, of_warps) / float(pixels);

  // Normalize, affine, ReLU, and the only store.
  const float factor = gamma[channel] / sqrtf(variance + eps), shift = beta[channel];
  for (int i = threadIdx.x; i < pixels; i += kThreads)
    y[i] = __float2half(fmaxf(factor * (conv(i) - middle - mean) + shift, 0.0f));
}
// END

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
  // STARTER
  //| // HOLE: all of it. Kernels go above this function, their launches here.
  //| (void)x, (void)weight, (void)gamma, (void)beta, (void)y, (void)shape, (void)stream;
  // SOLUTION
  depthwise_norm_kernel<<<unsigned(shape.planes()), kThreads, 0, stream>>>(
      x, weight, gamma, beta, y, shape.in_channels, shape.height, shape.width, shape.eps);
  // END
}

}  // namespace exercise
// STARTER
//|
//| // Hints, one after the other: go on to the next when you are stuck.
//| //
//| // 1. Which numbers must be known before the first pixel of a plane can be stored? From which pixels
//| //    of x do they come, of how many channels?
//| // 2. How many bytes has the largest plane in fp16? And how many may a block have in shared memory?
//| //    Whoever has all of x that its mean needs, waits for no other block.
//| // 3. Pixels beyond the edge: mirror row and column each by itself, -1 becomes 1, height becomes
//| //    height - 2. With 2 rows both neighbours of a row are the other one.
//| // 4. Wrong only where all values are large? Squares of large numbers have no digits left for small
//| //    deviations. Subtract something close to the mean first; a value of the plane will do.
//| // 5. NaN or infinity in a plane that is all one number? Its variance is 0; eps is there for it.
// END
