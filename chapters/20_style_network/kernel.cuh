// What a style-transfer network has beside chapter 8's convolutions with instance norm: a residual block
// made of two of them, and the way from pixels to planes and back. The order of its layers stands in
// host/network.cpp.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>

#include "../08_fused_conv_norm/shape.h"

namespace style_network {

// The type of every step of chapter 8 on arrays in fp32.
using ConvNormFunction = void (*)(const float* x, const float* weight, const float* bias,
                                  const float* gamma, const float* beta, const float* residual,
                                  float* y, const ConvNormShape& shape, cudaStream_t stream);

// y = x + norm(conv(relu(norm(conv(x))))): both convolutions as in shape, the second without ReLU
// and with x as its residual. between, y [batch, out_channels, height, width], none of them x.
// Throws std::invalid_argument unless x and y have the same shape.
inline void residual_block(ConvNormFunction step, const float* x, const ConvNormParameters& first,
                           const ConvNormParameters& second, float* between, float* y,
                           ConvNormShape shape, cudaStream_t stream) {
  require_conv_norm_shape(shape);
  if (shape.in_channels != shape.out_channels || shape.out_height() != shape.height ||
      shape.out_width() != shape.width)
    throw std::invalid_argument("residual block of shape " + describe(shape) +
                                ": y must have the channels, height and width of x");
  shape.relu = true;
  step(x, first.weight, first.bias, first.gamma, first.beta, nullptr, between, shape, stream);
  shape.relu = false;
  step(between, second.weight, second.bias, second.gamma, second.beta, x, y, shape, stream);
}

constexpr int kPixelThreads = 256;  // per block, one pixel each

__global__ void planes_kernel(const unsigned char* rgb,  // [pixels, 3]
                              float* planes,             // [3, pixels]
                              int pixels) {
  const int pixel = blockIdx.x * kPixelThreads + threadIdx.x;
  if (pixel >= pixels) return;
  for (int c = 0; c < 3; ++c)
    planes[int64_t(c) * pixels + pixel] = rgb[int64_t(pixel) * 3 + c] / 255.0f;
}

// rgb [height, width, 3], 0 to 255; planes [3, height, width], 0 to 1.
inline void to_planes(const unsigned char* rgb, float* planes, int height, int width,
                      cudaStream_t stream) {
  const int pixels = height * width;
  planes_kernel<<<(pixels + kPixelThreads - 1) / kPixelThreads, kPixelThreads, 0, stream>>>(
      rgb, planes, pixels);
}

__global__ void pixels_kernel(const float* planes,  // [3, plane_height, plane_width]
                              unsigned char* rgb,   // [height, width, 3]
                              int plane_height, int plane_width, int height, int width) {
  const int pixel = blockIdx.x * kPixelThreads + threadIdx.x;
  if (pixel >= height * width) return;
  const int row = plane_height - height + pixel / width,
            column = plane_width - width + pixel % width;
  for (int c = 0; c < 3; ++c) {
    const float x = planes[(int64_t(c) * plane_height + row) * plane_width + column];
    // fminf and fmaxf would make a NaN 0: it stays what nobody takes for a result, a white dot.
    const float level = tanhf(x) * 150.0f + 127.5f;
    rgb[int64_t(pixel) * 3 + c] = level <= 0.0f    ? 0
                                  : level < 255.0f ? static_cast<unsigned char>(level + 0.5f)
                                                   : 255;
  }
}

// The lower right height x width pixels of the planes: clamp(tanh(x) 150 + 127.5, 0, 255), rounded.
// planes [3, plane_height, plane_width]; rgb [height, width, 3].
// Throws std::invalid_argument where the planes are smaller.
inline void to_pixels(const float* planes, unsigned char* rgb, int plane_height, int plane_width,
                      int height, int width, cudaStream_t stream) {
  if (height > plane_height || width > plane_width)
    throw std::invalid_argument("to_pixels: " + std::to_string(height) + "x" +
                                std::to_string(width) + " pixels of planes of " +
                                std::to_string(plane_height) + "x" + std::to_string(plane_width));
  pixels_kernel<<<(height * width + kPixelThreads - 1) / kPixelThreads, kPixelThreads, 0, stream>>>(
      planes, rgb, plane_height, plane_width, height, width);
}

}  // namespace style_network
