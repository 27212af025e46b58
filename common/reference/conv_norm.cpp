#include "conv_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace reference {
namespace {

// The pixel of x at place `at` of the padded axis; -1: it is a zero.
int source_of(int at, int size, const ConvNormShape& shape) {
  const int field = (size - 1) * shape.upsample + 1;
  if (shape.padding == Padding::kReflect) {
    if (at < 0) at = -at;
    if (at >= field) at = 2 * (field - 1) - at;
  }
  if (at < 0 || at >= field || at % shape.upsample != 0) return -1;
  return at / shape.upsample;
}

}  // namespace

void convolution(const float* x, const float* weight, const float* bias,
                 const ConvNormShape& shape, double* conv) {
  const int out_height = shape.out_height(), out_width = shape.out_width(), k = shape.kernel;
  // Where each column of the padded picture lies in x.
  std::vector<int> source_column((out_width - 1) * shape.stride + k);
  for (int at = 0; at < int(source_column.size()); ++at)
    source_column[at] = source_of(at - shape.pad_left, shape.width, shape);
#pragma omp parallel for
  for (int64_t plane = 0; plane < shape.planes(); ++plane) {
    const int64_t image = plane / shape.out_channels, channel = plane % shape.out_channels;
    double* out = conv + plane * shape.plane();
    std::fill(out, out + shape.plane(), bias ? double(bias[channel]) : 0.0);
    for (int64_t c = 0; c < shape.in_channels; ++c) {
      const float* in = x + (image * shape.in_channels + c) * shape.height * shape.width;
      const float* filter = weight + (channel * shape.in_channels + c) * k * k;
      for (int tap_y = 0; tap_y < k; ++tap_y)
        for (int tap_x = 0; tap_x < k; ++tap_x) {
          const double factor = filter[tap_y * k + tap_x];
          for (int row = 0; row < out_height; ++row) {
            const int from_row = source_of(row * shape.stride + tap_y - shape.pad_top,
                                           shape.height, shape);
            if (from_row < 0) continue;
            for (int column = 0; column < out_width; ++column) {
              const int from = source_column[column * shape.stride + tap_x];
              if (from >= 0)
                out[int64_t(row) * out_width + column] +=
                    factor * double(in[int64_t(from_row) * shape.width + from]);
            }
          }
        }
    }
  }
}

void instance_norm(const double* x, const float* gamma, const float* beta, int64_t batch,
                   int64_t channels, int64_t plane, double eps, double* y) {
#pragma omp parallel for
  for (int64_t p = 0; p < batch * channels; ++p) {
    const double* in = x + p * plane;
    double* out = y + p * plane;
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < plane; ++i) mean += in[i];
    mean /= double(plane);
    for (int64_t i = 0; i < plane; ++i) variance += (in[i] - mean) * (in[i] - mean);
    variance /= double(plane);
    const double factor = double(gamma[p % channels]) / std::sqrt(variance + eps);
    for (int64_t i = 0; i < plane; ++i)
      out[i] = factor * (in[i] - mean) + double(beta[p % channels]);
  }
}

void conv_norm(const float* x, const float* weight, const float* bias, const float* gamma,
               const float* beta, const float* residual, const ConvNormShape& shape, double* y) {
  convolution(x, weight, bias, shape, y);
  instance_norm(y, gamma, beta, shape.batch, shape.out_channels, shape.plane(), shape.eps, y);
  for (int64_t i = 0; i < shape.y_elements(); ++i) {
    if (residual) y[i] += double(residual[i]);
    if (shape.relu && y[i] < 0) y[i] = 0;  // NaN stays NaN
  }
}

}  // namespace reference
