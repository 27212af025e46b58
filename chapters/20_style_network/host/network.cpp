// The network's layers, and how they come out of a file.
#include "network.h"

#include <cmath>
#include <utility>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/random.h"
#include "../../../common/lab/tensors.h"

namespace lab {
namespace {

constexpr float kStyleEps = 1e-3f;
constexpr int kMaxChannels = 4096;

// What the layers are, without what the file decides.
std::vector<StyleLayer> layers_without_weights() {
  std::vector<StyleLayer> layers = {{.name = "conv1", .kernel = 9},
                                    {.name = "conv2", .kernel = 3, .stride = 2},
                                    {.name = "conv3", .kernel = 3, .stride = 2}};
  for (int block = 1; block <= 5; ++block)
    for (int half = 1; half <= 2; ++half)
      layers.push_back({.name = "res" + std::to_string(block) + ".conv" + std::to_string(half),
                        .kernel = 3,
                        .relu = half == 1});
  layers.push_back({.name = "deconv1", .kernel = 3, .upsample = 2});
  layers.push_back({.name = "deconv2", .kernel = 3, .upsample = 2});
  layers.push_back({.name = "conv4", .kernel = 9, .relu = false});
  return layers;
}

bool is_residual(const StyleLayer& layer) { return layer.name.starts_with("res"); }

// [in, out, kernel, kernel] of a transposed convolution to [out, in, kernel, kernel] of the
// convolution over the spread picture: rows, columns and channels turned round.
std::vector<float> turned_round(const std::vector<float>& weight, int64_t in, int64_t out,
                                int64_t taps) {
  std::vector<float> result(weight.size());
  for (int64_t c = 0; c < in; ++c)
    for (int64_t m = 0; m < out; ++m)
      for (int64_t tap = 0; tap < taps; ++tap)
        result[(m * in + c) * taps + tap] = weight[(c * out + m) * taps + taps - 1 - tap];
  return result;
}

}  // namespace

std::vector<StyleLayer> read_style_network(const std::string& path) {
  std::vector<StyleLayer> network = layers_without_weights();
  std::vector<std::string> names;
  for (const StyleLayer& layer : network)
    for (const char* part : {".weight", ".in_gamma", ".in_beta"})
      names.push_back(layer.name + part);
  std::vector<Tensor> tensors = read_safetensors(path, names);

  const auto fail = [&](size_t tensor, const std::string& why) {
    throw UsageError(path + ": tensor '" + names[tensor] + "' " + why);
  };
  int64_t channels = 3;  // that the next layer must take
  for (size_t l = 0; l < network.size(); ++l) {
    StyleLayer& layer = network[l];
    const size_t weight = 3 * l;
    const bool transposed = layer.upsample == 2, last = l + 1 == network.size();
    const std::vector<int64_t>& shape = tensors[weight].shape;
    const int64_t k = layer.kernel;
    // Where the width is the file's choice, a number that is possible stands for it.
    const bool rank = shape.size() == 4;
    int64_t out = rank ? shape[transposed ? 1 : 0] : 0;
    if (is_residual(layer)) out = channels;
    if (last) out = 3;
    std::vector<int64_t> needed = {out, channels, k, k};
    if (transposed) std::swap(needed[0], needed[1]);
    if (shape != needed || out < 1 || out > kMaxChannels) {
      const std::string any = "1 to " + std::to_string(kMaxChannels);
      const std::string width = is_residual(layer) || last ? std::to_string(out) : any;
      const std::string before = std::to_string(channels);
      fail(weight,
           "has shape " + shape_text(shape) + ", [" + (transposed ? before : width) + ", " +
               (transposed ? width : before) + ", " + std::to_string(k) + ", " + std::to_string(k) +
               "] is needed: " + (transposed ? "[in, out" : "[out, in") + ", kernel, kernel]");
    }
    for (size_t part : {1, 2})
      if (tensors[weight + part].shape != std::vector<int64_t>{out})
        fail(weight + part, "has shape " + shape_text(tensors[weight + part].shape) + ", [" +
                                std::to_string(out) + "] is needed to go with " + names[weight]);
    for (size_t part : {0, 1, 2}) {
      const std::vector<float>& values = tensors[weight + part].values;
      for (size_t i = 0; i < values.size(); ++i)
        if (!std::isfinite(values[i]))
          fail(weight + part, "is not finite: element " + std::to_string(i) + " is " +
                                  (std::isnan(values[i]) ? "NaN" : "infinite"));
    }
    layer.in_channels = int(channels);
    layer.out_channels = int(out);
    layer.weight = transposed ? turned_round(tensors[weight].values, channels, out, k * k)
                              : std::move(tensors[weight].values);
    layer.gamma = std::move(tensors[weight + 1].values);
    layer.beta = std::move(tensors[weight + 2].values);
    channels = out;
  }
  return network;
}

std::vector<StyleLayer> random_style_network(uint64_t seed) {
  std::vector<StyleLayer> network = layers_without_weights();
  uint64_t stream = seed * 3 * network.size();
  int channels = 3;
  for (StyleLayer& layer : network) {
    layer.in_channels = channels;
    if (layer.name == "conv1" || layer.name == "deconv2")
      layer.out_channels = 32;
    else if (layer.name == "conv2" || layer.name == "deconv1")
      layer.out_channels = 64;
    else
      layer.out_channels = layer.name == "conv4" ? 3 : 128;
    channels = layer.out_channels;
    const int64_t taps = int64_t(layer.in_channels) * layer.kernel * layer.kernel;
    layer.weight =
        normals(taps * layer.out_channels, ++stream, layer.upsample / std::sqrt(double(taps)));
    layer.gamma = normals(layer.out_channels, ++stream, 0.25, 1);
    layer.beta = normals(layer.out_channels, ++stream, 0.5);
  }
  return network;
}

ConvNormShape style_shape(const StyleLayer& layer, int height, int width) {
  return same_padded({.in_channels = layer.in_channels,
                      .out_channels = layer.out_channels,
                      .height = height,
                      .width = width,
                      .kernel = layer.kernel,
                      .stride = layer.stride,
                      .upsample = layer.upsample,
                      .eps = kStyleEps,
                      .relu = layer.relu});
}

std::vector<StyleStage> style_stages(const std::vector<StyleLayer>& network, int height,
                                     int width) {
  std::vector<StyleStage> stages;
  for (size_t l = 0; l < network.size(); ++l) {
    const StyleLayer& layer = network[l];
    StyleStage stage{layer.name, l, is_residual(layer), style_shape(layer, height, width)};
    require_conv_norm_shape(stage.shape);
    height = stage.shape.out_height(), width = stage.shape.out_width();
    if (stage.residual) {
      stage.name = layer.name.substr(0, layer.name.find('.'));
      ++l;
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

double flops_of(const ConvNormShape& shape) {
  return 2.0 * double(shape.y_elements()) * shape.in_channels * shape.kernel * shape.kernel /
         (shape.upsample * shape.upsample);
}

}  // namespace lab
