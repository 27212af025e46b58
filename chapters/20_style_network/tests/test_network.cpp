// Style transfer: networks come out of files as they are or are refused in words, and sizes are
// those of SAME padding.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/testing.h"
#include "../../../common/testing/text.h"
#include "../../08_fused_conv_norm/host/reference.h"
#include "../host/network.h"

using lab::NamedTensor;
using lab::StyleLayer;
using lab::Tensor;
using lab::testing::contains;
using lab::testing::TemporaryFolder;

namespace {

std::string golden(const std::string& file) { return lab::repository_path("data/golden/" + file); }

std::vector<std::string> tensor_names() {
  std::vector<std::string> names;
  for (const StyleLayer& layer : lab::read_style_network(golden("style_narrow.safetensors")))
    for (const char* part : {".weight", ".in_gamma", ".in_beta"})
      names.push_back(layer.name + part);
  return names;
}

// What read_style_network() says of the narrow network after a change; empty if nothing.
std::string style_refusal(const std::function<void(std::vector<NamedTensor>&)>& change) {
  const std::vector<std::string> names = tensor_names();
  const std::vector<Tensor> tensors =
      lab::read_safetensors(golden("style_narrow.safetensors"), names);
  std::vector<NamedTensor> named;
  for (size_t i = 0; i < names.size(); ++i) named.emplace_back(names[i], tensors[i]);
  change(named);
  const TemporaryFolder folder;
  lab::write_safetensors(folder.path("net"), named);
  try {
    lab::read_style_network(folder.path("net"));
    return "";
  } catch (const lab::UsageError& error) {
    return error.what();
  }
}

Tensor& tensor(std::vector<NamedTensor>& tensors, const std::string& name) {
  for (auto& [n, t] : tensors)
    if (n == name) return t;
  throw std::invalid_argument(name);
}

// A tensor of another shape, with numbers in it.
Tensor of_shape(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return {shape, std::vector<float>(elements, 0.5f), "F32"};
}

}  // namespace

TEST_CASE("style network: layers, channels and transposed weights of a file") {
  const std::string path = golden("style_narrow.safetensors");
  const std::vector<StyleLayer> network = lab::read_style_network(path);
  REQUIRE(network.size() == 16);
  const int channels[] = {3, 4, 6, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 5, 4, 3};
  for (int l = 0; l < 16; ++l) {
    const StyleLayer& layer = network[l];
    CAPTURE(layer.name);
    CHECK(layer.in_channels == channels[l]);
    CHECK(layer.out_channels == channels[l + 1]);
    CHECK(layer.kernel == (l == 0 || l == 15 ? 9 : 3));
    CHECK(layer.stride == (l == 1 || l == 2 ? 2 : 1));
    CHECK(layer.upsample == (l == 13 || l == 14 ? 2 : 1));
    // No ReLU after the second of a residual block, nor at the end.
    const bool second = l >= 3 && l <= 12 && l % 2 == 0;
    CHECK(layer.relu == (!second && l != 15));
    CHECK(layer.weight.size() ==
          size_t(layer.out_channels) * layer.in_channels * layer.kernel * layer.kernel);
  }
  // One pixel of ones: what a transposed convolution leaves is its filter [in, out, tap], whose
  // upper left 2 x 2 taps lie in the first 2 x 2 pixels.
  const std::vector<Tensor> raw = lab::read_safetensors(path, {"deconv1.weight"});
  const ConvNormShape shape = lab::style_shape(network[13], 1, 1);
  const std::vector<float> x(8, 1.0f);
  std::vector<double> y(shape.y_elements());
  reference::convolution(x.data(), network[13].weight.data(), nullptr, shape, y.data());
  for (int m = 0; m < 5; ++m)
    for (int pixel = 0; pixel < 4; ++pixel) {
      double sum = 0;
      for (int c = 0; c < 8; ++c) sum += raw[0].values[(c * 5 + m) * 9 + pixel / 2 * 3 + pixel % 2];
      CHECK(y[m * 4 + pixel] == doctest::Approx(sum));
    }
}

TEST_CASE("style network: what is wrong with a file is named, with what would be right") {
  CHECK(style_refusal([](auto&) {}) == "");
  const auto replaced = [](const std::string& name, const std::vector<int64_t>& shape) {
    return style_refusal([&](auto& tensors) { tensor(tensors, name) = of_shape(shape); });
  };
  const auto without = [](const std::string& name) {
    return style_refusal([&](auto& tensors) {
      std::erase_if(tensors, [&](const NamedTensor& t) { return t.first == name; });
    });
  };
  for (const std::string& name : tensor_names())
    CHECK(contains(without(name), "tensor '" + name + "' is missing, the file has conv1."));
  CHECK(contains(style_refusal([](auto& t) { t[0].first = "conv1.kernel"; }),
                 "tensor 'conv1.weight' is missing, the file has conv1.kernel"));

  CHECK(contains(replaced("conv1.weight", {4, 1, 9, 9}),
                 "'conv1.weight' has shape [4, 1, 9, 9], [1 to 4096, 3, 9, 9] is needed"));
  CHECK(contains(replaced("conv2.weight", {6, 4, 5, 5}), "[1 to 4096, 4, 3, 3] is needed"));
  CHECK(contains(replaced("conv2.weight", {6, 4, 9}), "has shape [6, 4, 9]"));
  CHECK(contains(replaced("conv2.weight", {0, 4, 3, 3}), "has shape [0, 4, 3, 3]"));
  CHECK(contains(replaced("conv2.weight", {4097, 4, 3, 3}), "1 to 4096"));
  CHECK(contains(replaced("conv3.weight", {8, 6, 3, 1}), "[1 to 4096, 6, 3, 3] is needed"));
  CHECK(contains(replaced("res4.conv2.weight", {7, 8, 3, 3}), "[8, 8, 3, 3] is needed: [out, in"));
  // Stored as an ordinary convolution: [out, in] where [in, out] is meant.
  CHECK(contains(replaced("deconv1.weight", {5, 8, 3, 3}),
                 "'deconv1.weight' has shape [5, 8, 3, 3], [8, 1 to 4096, 3, 3] is needed: [in, "
                 "out, kernel, kernel]"));
  CHECK(contains(replaced("conv4.weight", {4, 4, 9, 9}), "[3, 4, 9, 9] is needed"));
  CHECK(contains(replaced("res1.conv1.in_gamma", {1}),
                 "'res1.conv1.in_gamma' has shape [1], [8] is needed to go with "
                 "res1.conv1.weight"));
  CHECK(contains(replaced("conv2.in_beta", {6, 1}), "has shape [6, 1], [6] is needed"));
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  CHECK(contains(style_refusal([&](auto& t) { tensor(t, "conv3.weight").values[7] = nan; }),
                 "'conv3.weight' is not finite: element 7 is NaN"));
  CHECK(contains(style_refusal([&](auto& t) { tensor(t, "conv4.in_beta").values[2] = -infinity; }),
                 "'conv4.in_beta' is not finite: element 2 is infinite"));
  // Another number of channels is the file's own choice.
  CHECK(style_refusal([](auto& t) {
          tensor(t, "deconv2.weight") = of_shape({5, 7, 3, 3});
          tensor(t, "deconv2.in_gamma") = tensor(t, "deconv2.in_beta") = of_shape({7});
          tensor(t, "conv4.weight") = of_shape({3, 7, 9, 9});
        }) == "");
}

TEST_CASE("style network: sizes from layer to layer") {
  const std::vector<StyleLayer> network =
      lab::read_style_network(golden("style_narrow.safetensors"));
  for (const auto& [height, width] :
       {std::pair{224, 224}, {96, 75}, {225, 226}, {227, 1}, {1, 1}, {3, 2}}) {
    CAPTURE(height);
    CAPTURE(width);
    const std::vector<lab::StyleStage> stages = lab::style_stages(network, height, width);
    REQUIRE(stages.size() == 11);
    CHECK(stages[3].name == "res1");
    CHECK(stages[3].residual);
    CHECK(stages[3].first == 3);
    CHECK(stages[8].name == "deconv1");
    CHECK(stages[8].first == 13);
    for (const lab::StyleStage& stage : stages) CHECK(stage.shape.eps == 1e-3f);
    CHECK(stages[1].shape.out_height() == (height + 1) / 2);
    CHECK(stages[2].shape.out_width() == ((width + 1) / 2 + 1) / 2);
    CHECK(stages[7].shape.out_height() == (height + 3) / 4);
    CHECK(stages[10].shape.out_height() == (height + 3) / 4 * 4);
    CHECK(stages[10].shape.out_width() == (width + 3) / 4 * 4);
  }
  CHECK_THROWS_AS(lab::style_stages(network, 40000, 40000), std::invalid_argument);
}

TEST_CASE("style network: random weights have the channels of trained networks") {
  const std::vector<StyleLayer> network = lab::random_style_network(1);
  REQUIRE(network.size() == 16);
  const int channels[] = {3,   32,  64,  128, 128, 128, 128, 128, 128,
                          128, 128, 128, 128, 128, 64,  32,  3};
  for (int l = 0; l < 16; ++l) {
    const StyleLayer& layer = network[l];
    CAPTURE(layer.name);
    CHECK(layer.in_channels == channels[l]);
    CHECK(layer.out_channels == channels[l + 1]);
    CHECK(int64_t(layer.weight.size()) == lab::style_shape(layer, 8, 8).weight_elements());
    CHECK(layer.gamma.size() == size_t(channels[l + 1]));
    CHECK(layer.beta.size() == size_t(channels[l + 1]));
    // Of size such that sums of products of normal numbers are of size 1; three of four taps of a
    // transposed convolution meet a zero.
    double squares = 0;
    for (const float w : layer.weight) squares += double(w) * double(w);
    const int zeros = layer.upsample * layer.upsample;
    CHECK(squares / layer.out_channels / zeros == doctest::Approx(1).epsilon(0.2));
  }
  CHECK(network[3].weight != network[4].weight);
  CHECK(network[3].weight == lab::random_style_network(1)[3].weight);
  CHECK(network[3].weight != lab::random_style_network(2)[3].weight);
}

TEST_CASE("style network: a dumped TensorFlow checkpoint becomes a file") {
  if (lab::command_output("python3 -c 'print(1)'") != "1") {
    MESSAGE("skipped: a dumped TensorFlow checkpoint: there is no python3");
    return;
  }
  // The narrow network as a dump: float32, filters [height, width, in, out], transposed ones
  // [height, width, out, in]; filter, beta and gamma of layer after layer.
  const TemporaryFolder folder;
  const std::string path = golden("style_narrow.safetensors");
  std::string manifest;
  int number = 0;
  for (const StyleLayer& layer : lab::read_style_network(path))
    for (const char* part : {".weight", ".in_beta", ".in_gamma"}) {
      const Tensor tensor = lab::read_safetensors(path, {layer.name + part})[0];
      std::vector<int64_t> shape = tensor.shape;
      std::vector<float> values = tensor.values;
      if (shape.size() == 4) {
        const int64_t a = shape[0], b = shape[1], taps = shape[2] * shape[3];
        for (int64_t i = 0; i < a * b * taps; ++i)
          values[i % taps * a * b + i / taps % b * a + i / taps / b] = tensor.values[i];
        shape = {shape[2], shape[3], b, a};
      }
      const std::string name = number ? "Variable_" + std::to_string(number) : "Variable";
      folder.write(name, std::string(reinterpret_cast<const char*>(values.data()),
                                     values.size() * sizeof(float)));
      manifest +=
          (number++ ? ", \"" : "\"") + name + "\": {\"filename\": \"" + name + "\", \"shape\": [";
      for (size_t i = 0; i < shape.size(); ++i)
        manifest += (i ? ", " : "") + std::to_string(shape[i]);
      manifest += "]}";
    }
  folder.write("manifest.json", "{" + manifest + "}");
  lab::command_output("python3 '" + lab::repository_path("data/convert_style.py") + "' '" +
                      folder.folder() + "' '" + folder.path("out") + "'");
  const std::vector<StyleLayer> made = lab::read_style_network(folder.path("out")),
                                expected = lab::read_style_network(path);
  for (size_t l = 0; l < made.size(); ++l) {
    CAPTURE(made[l].name);
    CHECK(made[l].weight == expected[l].weight);
    CHECK(made[l].gamma == expected[l].gamma);
    CHECK(made[l].beta == expected[l].beta);
  }
}
