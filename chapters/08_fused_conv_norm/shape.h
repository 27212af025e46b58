// Convolution with instance norm in plain C++: what a kernel, a reference and a report must agree on
// and nothing else.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

// What a convolution reads outside of its picture: 0, or the picture mirrored at its outermost pixel
// (which does not appear twice).
enum class Padding { kZero, kReflect };

// y = relu(gamma · (conv - mean) / sqrt(variance + eps) + beta + residual), where mean and variance
// (of the population) are those of a plane, one (image, out_channel) of conv.
//   x         [batch, in_channels, height, width]
//   weight    [out_channels, in_channels, kernel, kernel]
//   bias, gamma, beta   [out_channels]
//   y, residual         [batch, out_channels, out_height, out_width]
// A transposed convolution of stride 2 is the convolution of x with zeros between its pixels
// (upsample 2), padded by kernel - 1, with the weight's rows, columns and channels turned round.
struct ConvNormShape {
  int batch = 1, in_channels = 1, out_channels = 1;
  int height = 1, width = 1;  // x's height and width
  int kernel = 3;             // 1, 3, 4, 5 or 9, square
  int stride = 1;             // 1 or 2
  int upsample = 1;           // 1; 2: zeros between the pixels of x; then stride is 1, padding zero
  int pad_top = 1, pad_left = 1, pad_bottom = 1, pad_right = 1;  // 0 to kernel - 1
  Padding padding = Padding::kZero;
  float eps = 1e-5f;
  bool relu = true;

  // What the filter moves over, without padding.
  int field_height() const { return (height - 1) * upsample + 1; }
  int field_width() const { return (width - 1) * upsample + 1; }
  int out_height() const { return (field_height() + pad_top + pad_bottom - kernel) / stride + 1; }
  int out_width() const { return (field_width() + pad_left + pad_right - kernel) / stride + 1; }
  int64_t x_elements() const { return int64_t(batch) * in_channels * height * width; }
  int64_t weight_elements() const { return int64_t(out_channels) * in_channels * kernel * kernel; }
  int64_t planes() const { return int64_t(batch) * out_channels; }  // planes of y
  int64_t plane() const { return int64_t(out_height()) * out_width(); }
  int64_t y_elements() const { return planes() * plane(); }
};

// Instance norm alone: batch x channels planes of `plane` pixels one after the other.
struct NormShape {
  int batch = 1, channels = 1;
  int plane = 1;
  float eps = 1e-5f;
};

// Pads so that y has ceil(height / stride) x ceil(width / stride) pixels, the odd pixel below and to
// the right (TensorFlow's SAME). With upsample 2, so that it has 2 height x 2 width pixels, those that
// a SAME convolution of stride 2 would come from; a kernel of 1 leaves one row and column out.
inline ConvNormShape same_padded(ConvNormShape shape) {
  if (shape.upsample == 2) {
    const int most = shape.kernel - 1, before = (shape.kernel + 1) / 2, after = shape.kernel / 2;
    shape.pad_top = shape.pad_left = before < most ? before : most;
    shape.pad_bottom = shape.pad_right = after < most ? after : most;
    return shape;
  }
  const auto total = [&](int size) {
    const int out = (size + shape.stride - 1) / shape.stride;
    const int pad = (out - 1) * shape.stride + shape.kernel - size;
    return pad > 0 ? pad : 0;
  };
  const int vertical = total(shape.height), horizontal = total(shape.width);
  shape.pad_top = vertical / 2, shape.pad_bottom = vertical - vertical / 2;
  shape.pad_left = horizontal / 2, shape.pad_right = horizontal - horizontal / 2;
  return shape;
}

// Where a layer's parameters lie, as ConvNormShape has them; bias may be null: zeros.
struct ConvNormParameters {
  const float *weight, *bias, *gamma, *beta;
};

// "[batch 1, channels 64 to 128, 256x256, kernel 3, stride 2, zeros 0 1 0 1]"; in the order top,
// bottom, left, right
inline std::string describe(const ConvNormShape& shape) {
  const auto text = [](int number) { return std::to_string(number); };
  return "[batch " + text(shape.batch) + ", channels " + text(shape.in_channels) + " to " +
         text(shape.out_channels) + ", " + text(shape.height) + "x" + text(shape.width) +
         ", kernel " + text(shape.kernel) + ", stride " + text(shape.stride) +
         (shape.upsample == 1 ? "" : ", upsample " + text(shape.upsample)) +
         (shape.padding == Padding::kZero ? ", zeros " : ", reflection ") + text(shape.pad_top) +
         " " + text(shape.pad_bottom) + " " + text(shape.pad_left) + " " + text(shape.pad_right) +
         "]";
}

[[noreturn]] inline void refuse_shape(const ConvNormShape& shape, const std::string& why) {
  throw std::invalid_argument("convolution of shape " + describe(shape) + ": " + why);
}

// The shapes that every convolution kernel takes.
// Throws std::invalid_argument naming the shape and the limit.
inline void require_conv_norm_shape(const ConvNormShape& shape) {
  const auto require = [&](bool ok, const char* limit) {
    if (!ok) refuse_shape(shape, limit);
  };
  const int k = shape.kernel;
  require(shape.batch >= 1 && shape.in_channels >= 1 && shape.out_channels >= 1 &&
              shape.height >= 1 && shape.width >= 1,
          "batch, channels, height and width must be at least 1");
  require(k == 1 || k == 3 || k == 4 || k == 5 || k == 9, "kernel must be 1, 3, 4, 5 or 9");
  require(shape.stride == 1 || shape.stride == 2, "stride must be 1 or 2");
  require(shape.upsample == 1 || shape.upsample == 2, "upsample must be 1 or 2");
  require(shape.upsample == 1 || (shape.stride == 1 && shape.padding == Padding::kZero),
          "upsample needs stride 1 and padding with zeros");
  for (const int pad : {shape.pad_top, shape.pad_left, shape.pad_bottom, shape.pad_right})
    require(pad >= 0 && pad < k, "padding must be 0 to kernel - 1");
  if (shape.padding == Padding::kReflect)
    require(shape.pad_top < shape.height && shape.pad_bottom < shape.height &&
                shape.pad_left < shape.width && shape.pad_right < shape.width,
            "padding by reflection must be less than height and width");
  const int64_t largest = INT32_MAX;
  require(shape.height < 1 << 29 && shape.width < 1 << 29,
          "height and width must be fewer than 2^29");
  require(shape.field_height() + shape.pad_top + shape.pad_bottom >= k &&
              shape.field_width() + shape.pad_left + shape.pad_right >= k,
          "the kernel must fit into the padded picture");
  require(int64_t(shape.in_channels) * shape.height <= largest / shape.width / shape.batch &&
              int64_t(shape.in_channels) * k * k <= largest / shape.out_channels &&
              int64_t(shape.out_channels) * shape.out_height() <=
                  largest / shape.out_width() / shape.batch,
          "x, weight and y must have fewer than 2^31 elements");
}
