// Tensor files: headers that lie, tensors that do not fit, numbers that lead beyond a format's range.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "attention/inputs.h"
#include "bad_input.h"
#include "lab/tensors.h"
#include "testing/testing.h"

using namespace bad_input;
namespace fs = std::filesystem;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> ramp(int count) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(float(i * 7 % 11 - 5) / 4);
  return values;
}

Tensor tensor(const std::string& name, const std::string& shape, const std::vector<float>& values) {
  return {name, "F32", shape, f32(values)};
}

// Inputs that are right, by chapter.
std::vector<Tensor> attention() {
  return {tensor("q", "[1, 1, 3, 32]", ramp(96)), tensor("k", "[1, 1, 3, 32]", ramp(96)),
          tensor("v", "[1, 1, 3, 32]", ramp(96))};
}
std::vector<Tensor> deformable() {
  return {tensor("value", "[1, 5, 1, 16]", ramp(80)),
          tensor("spatial_shapes", "[2, 2]", {2, 2, 1, 1}),
          tensor("sampling_locations", "[1, 1, 1, 2, 4, 2]", std::vector<float>(16, 0.5f)),
          tensor("attention_weights", "[1, 1, 1, 2, 4]", std::vector<float>(8, 0.125f))};
}
std::vector<Tensor> convolution() {
  return {tensor("x", "[1, 2, 4, 4]", ramp(32)), tensor("weight", "[2, 2, 3, 3]", ramp(36)),
          tensor("gamma", "[2]", {1, 2}), tensor("beta", "[2]", {0, 1})};
}

struct Reader {
  std::string program;
  std::vector<Tensor> good;
};
std::vector<Reader> readers() {
  return {{"chapter1", attention()}, {"chapter7", deformable()}, {"chapter8", convolution()}};
}

Command reads_tensors(const std::string& program) {
  if (program == "chapter7") return {program, {"--input", "tensors", "--step", "simple"}};
  return {program, {"--input", "tensors"}};
}

void given(const std::string& program, const std::string& content, const std::vector<int>& codes,
           std::vector<std::string> words = {}) {
  Bench::get().write("tensors", content);
  if (codes == std::vector<int>{2}) words.push_back("tensors: ");
  expect(reads_tensors(program), codes, words);
}

std::vector<Tensor> changed(std::vector<Tensor> tensors, const Tensor& by) {
  for (Tensor& tensor : tensors)
    if (tensor.name == by.name) {
      tensor = by;
      return tensors;
    }
  tensors.push_back(by);
  return tensors;
}

std::string header_of(const std::string& file) {
  std::uint64_t length = 0;
  file.copy(reinterpret_cast<char*>(&length), 8);
  return file.substr(8, length);
}

std::string replaced(std::string text, const std::string& part, const std::string& by) {
  const std::size_t at = text.find(part);
  REQUIRE(at != std::string::npos);
  return text.replace(at, part.size(), by);
}

}  // namespace

TEST_CASE("bad input: tensor files as a whole") {
  Bench& bench = Bench::get();
  bench.clear();
  for (const auto& [program, good] : readers()) {
    const std::string file = safetensors(good), header = header_of(file),
                      data = file.substr(8 + header.size());
    if (lab::testing::has_device()) given(program, file, {0});
    given(program, "", {2}, {"empty"});
    given(program, "1234567", {2}, {"7 bytes"});
    for (const std::uint64_t length :
         {std::uint64_t(0), std::uint64_t(1), std::uint64_t(file.size() - 7),
          std::uint64_t(100'000'001), std::uint64_t(1) << 31, std::uint64_t(1) << 63,
          ~std::uint64_t(0), ~std::uint64_t(7)}) {
      std::string wrong = file;
      wrong.replace(0, 8, reinterpret_cast<const char*>(&length), 8);
      given(program, wrong, {2}, {"header length " + std::to_string(length)});
    }
    const std::string zeros(8, '\0');
    given(program, safetensors(header + zeros, data), {2}, {"a byte 0"});
    given(program, safetensors(replaced(header, ",", ',' + zeros), data), {2}, {"a byte 0"});
    given(program, safetensors(header + "x", data), {2}, {"JSON"});
    given(program, safetensors(header + header, data), {2}, {"JSON"});
    given(program, safetensors("[" + header + "]", data), {2}, {"'{'"});
    given(program, safetensors(" " + header, data), {2}, {"'{'"});
    given(program, safetensors(header, data + "x"), {2}, {"1 bytes after the last tensor"});
    given(program, safetensors(header, data.substr(1)), {2}, {"data_offsets"});
    given(program, safetensors("{" + std::string(100'000, '['), data), {2}, {"nested"});
    std::string deep = "{\"x\":";
    for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
    given(program, safetensors(deep, data), {2}, {"nested"});
    given(program, safetensors(replaced(header, good[0].name, "\xff\xfe"), data), {2}, {"JSON"});
    given(program, safetensors(replaced(header, "F32", "F\xc3"), data), {2}, {"JSON"});
    given(program, safetensors(replaced(header, good[1].name, good[0].name), data), {2}, {"twice"});
    given(program, safetensors(replaced(header, "F32", "F33"), data), {2}, {"F33"});
    given(program, safetensors(replaced(header, "\"F32\"", "7"), data), {2}, {"dtype"});
    given(program, safetensors(replaced(header, "[0,", "[-1,"), data), {2}, {"data_offsets"});
    given(program, safetensors(replaced(header, "[0,", "[0.5,"), data), {2}, {"data_offsets"});
    given(program, safetensors(replaced(header, "[0,", "[4,"), data), {2}, {good[0].name});
    given(program, safetensors(replaced(header, "[0,", "[99999999999999999999,"), data), {2},
          {"data_offsets"});
    given(program,
          safetensors(replaced(header, "\"shape\":[", "\"shape\":[4294967296,4294967296,"), data),
          {2}, {good[0].name});
    given(program, safetensors(replaced(header, "\"shape\":[", "\"shape\":[-1,"), data), {2},
          {"shape"});
    given(program, safetensors(replaced(header, "{", "{\"__metadata__\":7,"), data), {2},
          {"__metadata__"});
    // The second tensor begins one element early: an overlap; late: a hole.
    const std::string end = std::to_string(good[0].data.size());
    const std::size_t second = header.find("[" + end + ",");
    REQUIRE(second != std::string::npos);
    for (const int shift : {-4, 4}) {
      std::string moved = header;
      const std::string to =
          std::to_string(good[0].data.size() + good[1].data.size() + std::size_t(shift));
      moved.replace(second, moved.find(']', second) - second,
                    "[" + std::to_string(int(good[0].data.size()) + shift) + "," + to);
      given(program, safetensors(moved, data), {2}, {shift < 0 ? "overlap" : "hole"});
    }
  }
  bench.clear();
}

TEST_CASE("bad input: tensors that are missing or do not fit") {
  Bench::get().clear();
  for (const auto& [program, good] : readers())
    for (std::size_t t = 0; t < good.size(); ++t) {
      std::vector<Tensor> tensors = good;
      tensors.erase(tensors.begin() + std::ptrdiff_t(t));
      given(program, safetensors(tensors), {2}, {"'" + good[t].name + "' is missing"});
      Tensor wrong = good[t];
      wrong.dtype = "U32";
      given(program, safetensors(changed(good, wrong)), {2}, {good[t].name, "U32"});
      wrong = good[t];
      wrong.dtype = "BF16", wrong.data.resize(wrong.data.size() / 2);
      given(program, safetensors(changed(good, wrong)), {2}, {good[t].name, "BF16"});
      for (const std::string shape : {"[]", "[0]", "[1]", "[0, 0, 0, 0]", "[1, 1, 1, 1]",
                                      "[1, 1, 1, 1, 1, 1, 1, 1, 1]", "[2, 3, 4, 5]"}) {
        int elements = 1;
        for (const char c : shape)
          if (c >= '0' && c <= '9') elements *= c - '0';
        given(program, safetensors(changed(good, tensor(good[t].name, shape, ramp(elements)))),
              {2});
      }
    }
  for (const auto& [shape, values] : std::vector<std::pair<std::string, std::vector<float>>>{
           {"[0]", {}}, {"[2]", {1, 2}}, {"[1, 0]", {}}, {"[1]", {kNan}}, {"[]", {kInfinity}}})
    given("chapter1", safetensors(changed(attention(), tensor("scale", shape, values))), {2},
          {"'scale'"});
  for (const std::string name : {"bias", "residual"})
    for (const std::string shape : {"[0]", "[1]", "[0, 2, 4, 4]", "[3]"})
      given("chapter8",
            safetensors(changed(convolution(), tensor(name, shape,
                                                      ramp(shape[1] - '0' == 3 ? 3
                                                           : shape == "[1]"    ? 1
                                                                               : 0)))),
            {2}, {name});
  for (const float size : {0.0f, -1.0f, 1.5f, 70'000.0f, kNan, kInfinity})
    given("chapter7",
          safetensors(changed(deformable(), tensor("spatial_shapes", "[2, 2]", {2, 2, size, 1}))),
          {2}, {"spatial_shapes"});
  Bench::get().clear();
}

TEST_CASE("bad input: numbers that overflow") {
  Bench::get().clear();
  const auto ones = [](int count, float value) {
    return std::vector<float>(std::size_t(count), value);
  };
  for (const float value : {1e38f, -1e38f, 65520.0f, kInfinity, kNan}) {
    for (const std::string name : {"q", "k", "v"})
      given("chapter1",
            safetensors(changed(attention(), tensor(name, "[1, 1, 3, 32]", ones(96, value)))), {2},
            {"'" + name + "'", "fp16 holds"});
    for (const auto& [name, shape, count] :
         {std::tuple("value", "[1, 5, 1, 16]", 80), {"attention_weights", "[1, 1, 1, 2, 4]", 8}})
      given("chapter7", safetensors(changed(deformable(), tensor(name, shape, ones(count, value)))),
            {2}, {name, "fp16 holds"});
  }
  // Each is a number of its format; what comes of them is none.
  if (!lab::testing::has_device()) return;
  for (const std::string program :
       {"chapter1", "chapter2", "chapter3", "chapter4", "chapter5", "chapter6"})
    for (const float scale : {3e38f, -3e38f, 1e36f}) {
      std::vector<Tensor> tensors = changed(attention(), tensor("scale", "[1]", {scale}));
      for (const std::string name : {"q", "k"})
        tensors = changed(tensors, tensor(name, "[1, 1, 3, 32]", ones(96, 100)));
      given(program, safetensors(tensors), {2}, {"overflows fp32", "score"});
    }
  given(
      "chapter7",
      safetensors(changed(changed(deformable(), tensor("value", "[1, 5, 1, 16]", ones(80, 60000))),
                          tensor("attention_weights", "[1, 1, 1, 2, 4]", ones(8, 1)))),
      {2}, {"overflows fp16"});
  for (const std::string flag : {"--precision=fp32", "--precision=tf32"})
    for (const float value : {1e38f, 3e38f, -3e38f})
      for (const std::string name : {"x", "weight"}) {
        std::vector<Tensor> tensors =
            changed(convolution(), tensor("x", "[1, 2, 4, 4]", ones(32, name == "x" ? value : 2)));
        tensors =
            changed(tensors, tensor("weight", "[2, 2, 3, 3]", ones(36, name == "x" ? 2 : value)));
        Bench::get().write("tensors", safetensors(tensors));
        expect({"chapter8", {"--input", "tensors", flag}}, {2}, {"overflows fp32"});
      }
  for (const std::string name : {"gamma", "beta", "bias"})
    given("chapter8",
          safetensors(changed(changed(convolution(), tensor("gamma", "[2]", {3e38f, 1})),
                              tensor(name, "[2]", {3e38f, 3e38f}))),
          {2}, {"overflows fp32"});
  Bench::get().clear();
}

TEST_CASE("bad input: headers with changed bytes, and cut files") {
  if (!lab::testing::has_device()) return;
  Bench::get().clear();
  Random random(5);
  for (const auto& [program, good] : readers()) {
    const std::string file = safetensors(good);
    const std::size_t header = 8 + header_of(file).size();
    for (int i = 0; i < 40; ++i) {
      std::string damaged = file;
      for (int n = 0; n < 1 + i % 3; ++n)
        damaged[random.below(i % 4 ? header : 16)] = char(random.below(256));
      given(program, damaged, {0, 2});  // a name of __metadata__ may have changed, and nothing else
    }
    for (int i = 0; i < 15; ++i)
      given(program, file.substr(0, 1 + random.below(file.size() - 1)), {2});
  }
  Bench::get().clear();
}

TEST_CASE("bad input: networks of --style") {
  Bench& bench = Bench::get();
  bench.clear();
  bench.write("photo.png", png(16, 16));
  const std::vector<std::string> layers = {"conv1",      "conv2",      "conv3",      "res1.conv1",
                                           "res1.conv2", "res2.conv1", "res2.conv2", "res3.conv1",
                                           "res3.conv2", "res4.conv1", "res4.conv2", "res5.conv1",
                                           "res5.conv2", "deconv1",    "deconv2",    "conv4"};
  const auto weight_of = [](const std::string& layer, float value) {
    const int out = layer == "conv4" ? 3 : 4, in = layer == "conv1" ? 3 : 4;
    const int kernel = layer == "conv1" || layer == "conv4" ? 9 : 3;
    std::vector<float> values = ramp(out * in * kernel * kernel);
    for (float& v : values) v *= value;
    return tensor(layer + ".weight",
                  "[" + std::to_string(out) + ", " + std::to_string(in) + ", " +
                      std::to_string(kernel) + ", " + std::to_string(kernel) + "]",
                  values);
  };
  std::vector<Tensor> good;
  for (const std::string& layer : layers) {
    const int out = layer == "conv4" ? 3 : 4;
    const std::string shape = "[" + std::to_string(out) + "]";
    good.push_back(weight_of(layer, 0.1f));
    good.push_back(tensor(layer + ".in_gamma", shape, std::vector<float>(std::size_t(out), 1)));
    good.push_back(tensor(layer + ".in_beta", shape, std::vector<float>(std::size_t(out), 0)));
  }
  const auto given_network = [&](const std::vector<Tensor>& tensors, const std::vector<int>& codes,
                                 const std::vector<std::string>& words) {
    bench.write("network", safetensors(tensors));
    expect({"chapter20", {"--style", "network", "--image", "photo.png", "--out", "drawn.png"}},
           codes, words, {"drawn.png"});
  };
  for (std::size_t t = 0; t < good.size(); t += 7) {
    std::vector<Tensor> tensors = good;
    tensors.erase(tensors.begin() + std::ptrdiff_t(t));
    given_network(tensors, {2}, {"network: ", "'" + good[t].name + "' is missing"});
    for (const std::string shape : {"[]", "[0]", "[5]", "[1, 2, 3, 4]"})
      given_network(changed(good, tensor(good[t].name, shape,
                                         ramp(shape == "[]"    ? 1
                                              : shape == "[0]" ? 0
                                              : shape == "[5]" ? 5
                                                               : 24))),
                    {2}, {"network: ", good[t].name});
  }
  if (!lab::testing::has_device()) return;
  given_network(good, {0}, {});
  for (const std::string layer : {"conv1", "conv3", "res4.conv2", "conv4"})
    given_network(changed(good, weight_of(layer, 2e38f)), {2},
                  {"--style: layer " + layer + ": overflows fp32"});
  bench.clear();
}
