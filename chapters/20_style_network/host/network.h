// A style-transfer network: its layers and their weights, from a file or random, and their sizes on a photo.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../../08_fused_conv_norm/shape.h"

namespace lab {

// One convolution with instance norm, eps 1e-3.
struct StyleLayer {
  std::string name;  // "res1.conv2"
  int in_channels = 0, out_channels = 0, kernel = 0, stride = 1, upsample = 1;
  bool relu = true;
  std::vector<float> weight = {};  // as ConvNormShape has it, of transposed convolutions too
  std::vector<float> gamma = {}, beta = {};  // [out_channels]
};

// Convolutions 9x9, 3x3 and 3x3 of stride 2, five residual blocks of two 3x3 each, two transposed
// 3x3 that double the size, 9x9 to three channels, in this order. `path` is a safetensors file with
// for each layer NAME.weight [out, in, kernel, kernel] (transposed: [in, out, kernel, kernel]),
// NAME.in_gamma and NAME.in_beta [out], F16 or F32; names: conv1 conv2 conv3 res1.conv1 res1.conv2
// ... res5.conv2 deconv1 deconv2 conv4. The numbers of channels are the file's. Throws UsageError
// that names file, tensor and what would be right.
std::vector<StyleLayer> read_style_network(const std::string& path);

// The same layers with the channels of trained networks, 32, 64, 128 ... 128, 64, 32 and 3, and seeded
// normal weights, such that the convolutions' values are of size 1.
std::vector<StyleLayer> random_style_network(uint64_t seed);

// The layer's problem on a picture of that size. TensorFlow's SAME padding with zeros: y has
// ceil(size / stride) or 2 size pixels.
ConvNormShape style_shape(const StyleLayer& layer, int height, int width);

// What runs at a time: a layer, or the two of a residual block.
struct StyleStage {
  std::string name;  // "conv1", "res1"
  size_t first = 0;  // its place among the network's layers
  bool residual = false;
  ConvNormShape shape;  // each of its layers' shape

  size_t last() const { return first + (residual ? 1 : 0); }
};
// Throws std::invalid_argument where an array of some layer would be too large.
std::vector<StyleStage> style_stages(const std::vector<StyleLayer>& network, int height, int width);

// Floating-point operations of a layer; a transposed convolution meets 1 pixel in 4.
double flops_of(const ConvNormShape& shape);

}  // namespace lab
