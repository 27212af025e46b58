#include "reference.h"

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

// Output channels that are computed together, so that a row of x is read once for all of them.
constexpr int64_t kTogether = 4;

// All planes of x, padded and with the zeros of upsample in place. The columns of a row are sorted
// by their remainder by stride: then what a tap meets along an output row lies side by side.
struct PaddedPicture {
  int64_t rows, columns, start_of_odd;  // a plane's; where odd columns begin (stride 2)
  std::vector<double> planes;

  PaddedPicture(const float* x, const ConvNormShape& shape)
      : rows((shape.out_height() - 1) * int64_t(shape.stride) + shape.kernel),
        columns((shape.out_width() - 1) * int64_t(shape.stride) + shape.kernel),
        start_of_odd((columns + 1) / 2),
        planes(int64_t(shape.batch) * shape.in_channels * rows * columns) {
#pragma omp parallel for
    for (int64_t row = 0; row < int64_t(shape.batch) * shape.in_channels * rows; ++row) {
      const int from_row = source_of(int(row % rows) - shape.pad_top, shape.height, shape);
      if (from_row < 0) continue;
      const float* in = x + (row / rows * shape.height + from_row) * shape.width;
      for (int64_t column = 0; column < columns; ++column) {
        const int from = source_of(int(column) - shape.pad_left, shape.width, shape);
        if (from < 0) continue;
        const int64_t at = shape.stride == 1 ? column : column / 2 + column % 2 * start_of_odd;
        planes[row * columns + at] = double(in[from]);
      }
    }
  }
};

// The sum over all inputs and taps for one row of `count` neighbouring output channels.
// picture: row `from` of the first input's padded plane; sums [count, out_width].
void convolve_row(const double* picture, const float* weight, int64_t count,
                  const ConvNormShape& shape, const PaddedPicture& padded, double* sums) {
  const int k = shape.kernel;
  const int64_t width = shape.out_width(), filter = int64_t(shape.in_channels) * k * k;
  for (int64_t c = 0; c < shape.in_channels; ++c)
    for (int64_t tap = 0; tap < k * k; ++tap) {
      const int64_t tap_x = tap % k;
      const double* in = picture + (c * padded.rows + tap / k) * padded.columns +
                         (shape.stride == 1 ? tap_x : tap_x / 2 + tap_x % 2 * padded.start_of_odd);
      const float* factor = weight + c * k * k + tap;
      if (count == kTogether) {
        const double f0 = factor[0], f1 = factor[filter], f2 = factor[2 * filter],
                     f3 = factor[3 * filter];
        double *s0 = sums, *s1 = s0 + width, *s2 = s1 + width, *s3 = s2 + width;
        for (int64_t i = 0; i < width; ++i) {
          s0[i] += f0 * in[i], s1[i] += f1 * in[i];
          s2[i] += f2 * in[i], s3[i] += f3 * in[i];
        }
      } else {
        for (int64_t m = 0; m < count; ++m) {
          const double f = factor[m * filter];
          double* s = sums + m * width;
          for (int64_t i = 0; i < width; ++i) s[i] += f * in[i];
        }
      }
    }
}

}  // namespace

void convolution(const float* x, const float* weight, const float* bias, const ConvNormShape& shape,
                 double* conv) {
  const PaddedPicture padded(x, shape);
  const int64_t height = shape.out_height(), width = shape.out_width();
  const int64_t groups = (shape.out_channels + kTogether - 1) / kTogether;
  const int64_t filter = int64_t(shape.in_channels) * shape.kernel * shape.kernel;
#pragma omp parallel
  {
    std::vector<double> sums(kTogether * width);
#pragma omp for
    for (int64_t task = 0; task < shape.batch * groups * height; ++task) {
      const int64_t row = task % height, image = task / height / groups;
      const int64_t first = task / height % groups * kTogether;
      const int64_t count = std::min(kTogether, shape.out_channels - first);
      for (int64_t m = 0; m < count; ++m)
        std::fill_n(&sums[m * width], width, bias ? double(bias[first + m]) : 0.0);
      const double* picture =
          &padded.planes[(image * shape.in_channels * padded.rows + row * shape.stride) *
                         padded.columns];
      convolve_row(picture, weight + first * filter, count, shape, padded, sums.data());
      for (int64_t m = 0; m < count; ++m)
        std::copy_n(&sums[m * width], width,
                    conv + ((image * shape.out_channels + first + m) * height + row) * width);
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
