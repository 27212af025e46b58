// STARTER
//| // Exercise 8: layer norm behind a 1x1 convolution. Many networks normalize each pixel by itself,
//| // over its channels, instead of each channel over its pixels:
//| //
//| //   conv(m, p) = Σ over input channels c of weight(m, c) · x(c, p)
//| //   y(m, p) = relu(gamma(m) · (conv(m, p) - mean(p)) / sqrt(variance(p) + eps) + beta(m))
//| //
//| // where mean and variance are those of one pixel's conv over all output channels m. As in the
//| // chapter, nothing can be normalized before all of it has been computed, and what has been computed
//| // should not travel to memory and back. But whoever must meet is fewer: a block that has all output
//| // channels of its pixels needs nobody else, and no barrier of the grid.
//| //
//| // Here a block has 64 pixels. A lane has two of them, 32 apart, and a warp 16 output channels:
//| // their convolutions, 16 for each of the two pixels, stay in registers. Fill the four holes, then
//| // `make exercise8 && ./run`. Besides right results, also where all values are around 1000, you are
//| // asked for one launch, one store of y, no memory of your own, and for x loaded once.
// SOLUTION
// Exercise 8, layer norm behind a 1x1 convolution: a solution. The exercise itself is in
// exercise.cuh.
// END
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

#include "../shape.h"

namespace exercise {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kPixels = 64;        // per block; a lane has two, 32 apart
constexpr int kWarpChannels = 16;  // output channels of a warp, one after the other
constexpr int kMaxChannels = kWarps * kWarpChannels;
constexpr int kDepth = 16;  // input channels in shared memory at a time

// What a block keeps in shared memory.
struct Tiles {
  float x[kDepth][kPixels];
  float weight[kMaxChannels][kDepth];  // neighbouring lanes store neighbours, all read the same
  float sums[kWarps][kPixels];         // what each warp knows of each pixel
};

// Input channels first_channel ... + kDepth - 1 of the block's pixels; zeros where there are none.
__device__ inline void load_x(const half* x,  // [in_channels, pixels], of this image
                              Tiles& tiles, int first_channel, int in_channels, int first_pixel,
                              int pixels) {
  for (int i = threadIdx.x; i < kDepth * kPixels; i += kThreads) {
    // STARTER
    //| // HOLE 1: load one value of x and store it to the tile, as a float.
    //| // Hint: choose k and pixel from i so that neighbouring lanes load neighbouring pixels. What is
    //| // not there, past the last input channel or the last pixel, is 0.
    //| tiles.x[i / kPixels][i % kPixels] = 0.0f;
    // SOLUTION
    const int k = i / kPixels, pixel = i % kPixels;
    const bool exists = first_channel + k < in_channels && first_pixel + pixel < pixels;
    tiles.x[k][pixel] =
        exists ? __half2float(x[int64_t(first_channel + k) * pixels + first_pixel + pixel]) : 0.0f;
    // END
  }
}

// The weights of these input channels, for all output channels.
__device__ inline void load_weight(const half* weight,  // [out_channels, in_channels]
                                   Tiles& tiles, int first_channel, int in_channels,
                                   int out_channels) {
  for (int i = threadIdx.x; i < kMaxChannels * kDepth; i += kThreads) {
    const int channel = i / kDepth, k = i % kDepth;
    const bool exists = channel < out_channels && first_channel + k < in_channels;
    tiles.weight[channel][k] =
        exists ? __half2float(weight[int64_t(channel) * in_channels + first_channel + k]) : 0.0f;
  }
}

// The block's total for each of this lane's two pixels, from one summand of each warp.
__device__ inline float2 sum_of_warps(float2 own, Tiles& tiles) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // STARTER
  //| // HOLE 2: leave this warp's summands in tiles.sums and add up those of all warps.
  //| // Hint: all lanes of a warp have different pixels, and lane l of every warp has the same two. Two
  //| // barriers are needed, for this function is called twice.
  //| (void)warp, (void)lane, (void)tiles;
  //| return own;
  // SOLUTION
  __syncthreads();  // what was there has been read
  tiles.sums[warp][lane] = own.x;
  tiles.sums[warp][lane + 32] = own.y;
  __syncthreads();  // the sums are there
  float2 sum = {0.0f, 0.0f};
  for (int w = 0; w < kWarps; ++w) {
    sum.x += tiles.sums[w][lane];
    sum.y += tiles.sums[w][lane + 32];
  }
  return sum;
  // END
}

__global__ void __launch_bounds__(kThreads)
    conv_layer_norm_kernel(const half* x,       // [batch, in_channels, pixels]
                           const half* weight,  // [out_channels, in_channels]
                           const float* gamma,  // [out_channels]
                           const float* beta,   // [out_channels]
                           half* y,             // [batch, out_channels, pixels]
                           int in_channels, int out_channels, int pixels, float eps) {
  __shared__ Tiles tiles;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int blocks = (pixels + kPixels - 1) / kPixels;  // blocks per image
  const int image = blockIdx.x / blocks, first_pixel = blockIdx.x % blocks * kPixels;
  const int first_own = warp * kWarpChannels;
  const int own_channels = min(kWarpChannels, out_channels - first_own);  // 0 or less: none
  x += int64_t(image) * in_channels * pixels;
  y += int64_t(image) * out_channels * pixels;

  // The convolution of two pixels for 16 channels, in registers.
  float2 conv[kWarpChannels] = {};
  for (int first_channel = 0; first_channel < in_channels; first_channel += kDepth) {
    __syncthreads();  // the tiles have been read
    load_x(x, tiles, first_channel, in_channels, first_pixel, pixels);
    load_weight(weight, tiles, first_channel, in_channels, out_channels);
    __syncthreads();  // the tiles are there
    for (int k = 0; k < kDepth; ++k) {
      const float left = tiles.x[k][lane], right = tiles.x[k][lane + 32];
      for (int c = 0; c < kWarpChannels; ++c) {
        const float factor = tiles.weight[first_own + c][k];
        conv[c].x += factor * left;
        conv[c].y += factor * right;
      }
    }
  }

  // STARTER
  //| // Mean and variance of a pixel over all channels.
  //| // HOLE 3: the means, and what to multiply the distances from them with.
  //| // Hint: sum_of_warps() twice, first of the values, then of the squares of their distances from
  //| // the mean: they are in registers, so that looking at them twice costs nothing, and a large mean
  //| // takes none of their digits. Channels that do not exist (c >= own_channels) are 0 there, but
  //| // their distance from the mean is not.
  //| const float2 mean = {0.0f, 0.0f}, factor = {1.0f, 1.0f};
  //| (void)sum_of_warps, (void)eps;
  // SOLUTION
  // Mean and variance of a pixel over all channels. The values stay where they are, in registers,
  // so that looking at them twice costs nothing, and squares are of distances from the mean: a
  // large mean takes none of their digits.
  float2 sum = {0.0f, 0.0f};
  for (int c = 0; c < kWarpChannels; ++c)
    if (c < own_channels) sum.x += conv[c].x, sum.y += conv[c].y;
  sum = sum_of_warps(sum, tiles);
  const float2 mean = {sum.x / out_channels, sum.y / out_channels};
  float2 squares = {0.0f, 0.0f};
  for (int c = 0; c < kWarpChannels; ++c)
    if (c < own_channels) {
      squares.x += (conv[c].x - mean.x) * (conv[c].x - mean.x);
      squares.y += (conv[c].y - mean.y) * (conv[c].y - mean.y);
    }
  squares = sum_of_warps(squares, tiles);
  const float2 factor = {1.0f / sqrtf(squares.x / out_channels + eps),
                         1.0f / sqrtf(squares.y / out_channels + eps)};
  // END

  // Normalize, affine, ReLU, and the only store.
  for (int c = 0; c < kWarpChannels; ++c) {
    if (c >= own_channels) break;
    const int channel = first_own + c, pixel = first_pixel + lane;
    const float g = gamma[channel], b = beta[channel];
    const float left = g * (conv[c].x - mean.x) * factor.x + b;
    const float right = g * (conv[c].y - mean.y) * factor.y + b;
    // STARTER
    //| // HOLE 4: ReLU, and store both to y, where there are such pixels.
    //| // Hint: y is [batch, out_channels, pixels], and already points to this image.
    //| (void)pixel, (void)left, (void)right;
    // SOLUTION
    half* row = y + int64_t(channel) * pixels;
    if (pixel < pixels) row[pixel] = __float2half(fmaxf(left, 0.0f));
    if (pixel + 32 < pixels) row[pixel + 32] = __float2half(fmaxf(right, 0.0f));
    // END
  }
}

// y = relu(gamma (conv - mean) / sqrt(variance + eps) + beta), where conv is the 1x1 convolution of
// x and mean and variance are those of one pixel over all output channels.
// x [batch, in_channels, height, width], weight [out_channels, in_channels], gamma, beta
// [out_channels], y [batch, out_channels, height, width]. Of the shape, kernel 1, stride 1 and no
// padding are meant. Throws std::invalid_argument for more than 128 output channels.
inline void conv_layer_norm(const half* x, const half* weight, const float* gamma,
                            const float* beta, half* y, const ConvNormShape& shape,
                            cudaStream_t stream) {
  if (shape.out_channels > kMaxChannels)
    throw std::invalid_argument("conv_layer_norm of shape " + describe(shape) +
                                ": at most 128 output channels");
  const int pixels = shape.height * shape.width;
  const int blocks = (pixels + kPixels - 1) / kPixels;
  conv_layer_norm_kernel<<<shape.batch * blocks, kThreads, 0, stream>>>(
      x, weight, gamma, beta, y, shape.in_channels, shape.out_channels, pixels, shape.eps);
}

}  // namespace exercise
