// Style transfer: a trained network from a file, and the program that sends
// a photo through it, layer after layer.
#pragma once

#include "../../../common/lab/errors.h"
#include "problem.h"

namespace lab {

// ---- The network --------------------------------------------------------------------------------

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

// The layer's problem on a picture of that size. TensorFlow's SAME padding with zeros: y has
// ceil(size / stride) or 2 size pixels.
ConvNormShape style_shape(const StyleLayer& layer, int height, int width);

// What runs at a time: a layer, or the two of a residual block.
struct StyleStage {
  std::string name;  // "conv1", "res1"
  size_t first = 0;  // of the network's layers
  bool residual = false;
  ConvNormShape shape;  // of each of its layers
};
std::vector<StyleStage> style_stages(const std::vector<StyleLayer>& network, int height, int width);

// ---- Program ------------------------------------------------------------------------------------

// What the chapter brings; see its network.cuh.
struct StyleKernels {
  ConvNormFunction conv_norm;
  void (*residual_block)(ConvNormFunction step, const float* x, const ConvNormParameters& first,
                         const ConvNormParameters& second, float* between, float* y,
                         ConvNormShape shape, cudaStream_t stream);
  void (*planes_of)(const unsigned char* rgb, float* planes, int height, int width,
                    cudaStream_t stream);
  void (*pixels_of)(const float* planes, unsigned char* rgb, int plane_height, int plane_width,
                    int height, int width, cudaStream_t stream);
  std::string (*path)(const ConvNormShape& shape);  // "fused", "two passes": how it is computed
};

// True when the arguments ask for this program: --style is among them.
bool style_asked(int argc, const char* const* argv);

// main() of `--style`: flags, weights, photo, memory, the layers one after the other (each compared
// with the reference), the picture; errors become one line on stderr and the exit code.
int style_main(int argc, char** argv, const char* chapter, const StyleKernels& kernels);

}  // namespace lab
