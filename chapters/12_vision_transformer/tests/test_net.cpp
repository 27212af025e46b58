// What needs no device: the reference against PyTorch, photos and positions against Pillow and
// PyTorch, weights that are refused, the memory plan.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/random.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/testing.h"
#include "../../../common/testing/text.h"
#include "../host/resample.h"
#include "test_support.h"

using namespace vision_transformer;
using lab::testing::contains;
using lab::testing::TemporaryFolder;
using reference::Doubles;

namespace {

// What a call throws as a UsageError; "" where it throws nothing.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const lab::UsageError& error) {
    return error.what();
  }
  return "";
}

// The narrow net's tensors as they stand in its file.
std::vector<lab::NamedTensor> narrow_tensors() {
  const Weights weights = narrow_weights();
  std::vector<lab::NamedTensor> tensors;
  for_each_parameter(weights.parameters, weights.shape,
                     [&](const std::string& name, const std::vector<int64_t>& dims,
                         const std::vector<float>& values) {
                       tensors.emplace_back(name, lab::Tensor{dims, values, "F16"});
                     });
  return tensors;
}

lab::Tensor& tensor_of(std::vector<lab::NamedTensor>& tensors, const std::string& name) {
  return std::find_if(tensors.begin(), tensors.end(),
                      [&](const auto& tensor) { return tensor.first == name; })
      ->second;
}

}  // namespace

TEST_CASE("reference: each component of the narrow net is PyTorch's") {
  const Weights weights = narrow_weights();
  std::set<std::string> seen;
  reference::net(in_double(narrow_image()), weights.parameters, narrow_shape(), nullptr,
                 [&](const std::string& name, const Doubles& values) {
                   CAPTURE(name);
                   seen.insert(name);
                   const Doubles expected = narrow_expected(name);
                   // Both in double; the arrays are stored in fp32.
                   const lab::Comparison comparison = lab::compare(
                       values, expected, {.atol = 1e-6, .rtol = 0x1p-23, .relative_l2 = 0x1p-23},
                       {int64_t(expected.size())});
                   CAPTURE(comparison.describe());
                   CHECK(comparison.pass);
                 });
  CHECK(seen.size() == 1 + 2 * 7 + 2);
}

TEST_CASE("reference: of a trained net's logits PyTorch has the same") {
  const std::string file = trained_weights();
  if (file.empty()) {
    MESSAGE("skipped: reference of a trained net: no weights (DEIT_TINY)");
    return;
  }
  const Weights weights = read_weights(file, "", 224);
  for (const auto& [photo, name] : {std::pair("data/images/chelsea.png", "chelsea"),
                                    {"data/images/coffee_360x240.png", "coffee"}}) {
    CAPTURE(name);
    std::vector<float> image =
        normalized(crop_for_net(lab::load_image(lab::repository_path(photo)), 224));
    for (float& value : image) value = rounded_to_fp16(value);
    const Doubles logits =
        reference::net(in_double(image), weights.parameters, weights.shape, nullptr, {});
    const Doubles expected =
        lab::read_npy(golden("vit_" + std::string(name) + "_logits.npy")).values;
    // A level or two of a pixel may be rounded otherwise, half of 1/255/0.22 in 150528 numbers.
    const lab::Comparison comparison =
        lab::compare(logits, expected, {.atol = 2e-3, .rtol = 0, .relative_l2 = 1e-3}, {1000});
    CAPTURE(comparison.describe());
    CHECK(comparison.pass);
  }
}

TEST_CASE("positions: resampled as PyTorch does, to more and to fewer patches") {
  const lab::Array from = lab::read_npy(golden("vit_positions_5.npy"));
  for (const int to : {8, 3}) {
    CAPTURE(to);
    const Doubles got = resample_grid(from.values, 5, to, 8);
    const Doubles expected = lab::read_npy(golden(lab::format("vit_positions_%d.npy", to))).values;
    const lab::Comparison comparison =
        lab::compare(got, expected, {.atol = 1e-6, .rtol = 1e-6, .relative_l2 = 1e-6}, {to, to, 8});
    CAPTURE(comparison.describe());
    CHECK(comparison.pass);
  }
  // The class token's position stays, the others are resampled and rounded to fp16.
  std::vector<float> all(8, 3.0f);
  all.insert(all.end(), from.values.begin(), from.values.end());
  const std::vector<float> resampled = resampled_positions(all, 5, 8, 8);
  REQUIRE(resampled.size() == 8 * 65);
  CHECK(std::equal(all.begin(), all.begin() + 8, resampled.begin()));
  const Doubles expected = lab::read_npy(golden("vit_positions_8.npy")).values;
  CHECK(resampled[8] == rounded_to_fp16(float(expected[0])));
}

TEST_CASE("photo: taps add up to 1, the same size is the same photo, the crop is central") {
  for (const auto& [from, to] : {std::pair(300, 256), {5, 8}, {8, 5}, {7, 7}, {2, 1}}) {
    const std::vector<Taps> taps = bicubic_taps(from, to);
    REQUIRE(int(taps.size()) == to);
    for (const Taps& one : taps) {
      double sum = 0;
      for (const double weight : one.weights) sum += weight;
      CHECK(sum == doctest::Approx(1));
      CHECK(one.first >= 0);
      CHECK(one.first + int(one.weights.size()) <= from);
    }
  }
  lab::Image photo{20, 10, {}};
  for (int i = 0; i < 600; ++i)
    photo.rgb.push_back(static_cast<unsigned char>(lab::random_bits(1, uint64_t(i))));
  CHECK(resize_photo(photo, 20, 10).rgb == photo.rgb);
  // 256 x 512 pixels become 256 x 512, of which the middle is taken.
  lab::Image wide{512, 256, std::vector<unsigned char>(512 * 256 * 3)};
  for (int row = 0; row < 256; ++row)
    for (int column = 0; column < 512; ++column) {
      unsigned char* const pixel = &wide.rgb[size_t(row * 512 + column) * 3];
      pixel[0] = static_cast<unsigned char>(row),
      pixel[1] = static_cast<unsigned char>(column % 256);
      pixel[2] = static_cast<unsigned char>(column / 256);
    }
  const lab::Image square = crop_for_net(wide, 224);
  REQUIRE(square.rgb.size() == 224 * 224 * 3);
  CHECK(int(square.rgb[0]) == 16);   // the top: (256 - 224) / 2
  CHECK(int(square.rgb[1]) == 144);  // the left: (512 - 224) / 2
  const std::vector<float> planes = normalized(square);
  CHECK(planes[0] == doctest::Approx((16 / 255.0 - 0.485) / 0.229));
  CHECK(planes[224 * 224] == doctest::Approx((144 / 255.0 - 0.456) / 0.224));
  CHECK(planes[2 * 224 * 224] == doctest::Approx((0 - 0.406) / 0.225));
  CHECK(contains(refusal([] {
                   crop_for_net({7, 100, std::vector<unsigned char>(2100)}, 224);
                 }),
                 "7 x 100 pixels: its shorter side must have at least 8"));
}

TEST_CASE("weights: what is wrong with a file is named") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::vector<lab::NamedTensor>& tensors) {
    lab::write_safetensors(folder.path("w.safetensors"), tensors);
    return refusal([&] { read_weights(folder.path("w.safetensors"), narrow_shape(1), "narrow"); });
  };
  std::vector<lab::NamedTensor> tensors = narrow_tensors();
  CHECK(refused(tensors) == "");

  tensors.pop_back();
  CHECK(contains(refused(tensors), "narrow with timm's names: 1 tensors are missing (head.bias)"));
  tensors = narrow_tensors();
  tensor_of(tensors, "blocks.1.attn.qkv.weight").shape = {64, 192};
  CHECK(
      contains(refused(tensors),
               "1 of another shape (blocks.1.attn.qkv.weight is [64, 192], [192, 64] is needed)"));
  tensors = narrow_tensors();
  tensor_of(tensors, "norm.bias").dtype = "F32";
  tensor_of(tensors, "norm.bias").values[5] = 1e6f;
  CHECK(contains(refused(tensors), "tensor 'norm.bias': element 5 is 1e+06, fp16 has finite"));
  // Another file altogether: what it has is listed.
  CHECK(contains(refused({{"conv1.weight", {{1}, {1.0f}, "F16"}}}), "the file has conv1.weight"));
  // With a distillation token there is one position more, no square.
  tensors = narrow_tensors();
  lab::Tensor& position = tensor_of(tensors, "pos_embed");
  position.shape[1] = 18;
  position.values.resize(18 * 64);
  CHECK(contains(refused(tensors), "pos_embed is [1, 18, 64], [1, 17, 64] is needed"));
  // Cut off.
  const std::string whole = lab::read_file(golden("vit_narrow.safetensors"));
  folder.write("cut.safetensors", whole.substr(0, whole.size() / 2));
  CHECK(contains(
      refusal([&] { read_weights(folder.path("cut.safetensors"), narrow_shape(1), "narrow"); }),
      "out of range"));
  // No such width, and no such model.
  CHECK(contains(refusal([&] { read_weights(golden("vit_narrow.safetensors"), "", 224); }),
                 "must be 192 (tiny), 384 (small) or 768 (base)"));
  CHECK(contains(refusal([&] { read_weights(golden("vit_narrow.safetensors"), "small", 224); }),
                 "is not a Vision Transformer small"));
  CHECK(refusal([] { model_shape("huge"); }) == "--model 'huge': must be tiny, small or base");
}

TEST_CASE("weights: as many classes as the head has, positions for another size, seeded ones") {
  std::vector<lab::NamedTensor> tensors = narrow_tensors();
  for (const char* name : {"head.weight", "head.bias"}) {
    lab::Tensor& head = tensor_of(tensors, name);
    head.shape[0] = 7;
    head.values.resize(head.values.size() / 10 * 7);
  }
  const TemporaryFolder folder;
  lab::write_safetensors(folder.path("w.safetensors"), tensors);
  NetShape shape = narrow_shape(1);
  shape.size = 96;
  const Weights weights = read_weights(folder.path("w.safetensors"), shape, "narrow");
  CHECK(weights.shape.classes == 7);
  CHECK(weights.parameters.position.size() == 37 * 64);
  CHECK(weights.parameters.head_bias.size() == 7);

  const Weights one = random_weights(narrow_shape(), 1), other = random_weights(narrow_shape(), 2);
  CHECK(one.parameters.blocks[0].fc1_weight != one.parameters.blocks[1].fc1_weight);
  CHECK(one.parameters.head_weight != other.parameters.head_weight);
  CHECK(one.parameters.head_weight == random_weights(narrow_shape(), 1).parameters.head_weight);
  double squares = 0;
  for (const float value : one.parameters.blocks[0].fc1_weight) squares += double(value) * value;
  CHECK(std::sqrt(squares / (64 * 256)) == doctest::Approx(0.02).epsilon(0.05));
}

TEST_CASE("weights: a file with transformers' names becomes one with timm's") {
  if (std::system("command -v python3 >/dev/null") != 0) {
    MESSAGE("skipped: data/convert_deit.py: there is no python3");
    return;
  }
  // The narrow net as transformers stores it: fp32, other names, query, key and value apart.
  std::vector<lab::NamedTensor> renamed;
  for (auto& [name, tensor] : narrow_tensors()) {
    tensor.dtype = "F32";
    std::string to = name;
    const auto replaced = [&](const std::string& from, const std::string& by) {
      if (const size_t at = to.find(from); at != std::string::npos) to.replace(at, from.size(), by);
    };
    replaced("cls_token", "vit.embeddings.cls_token");
    replaced("pos_embed", "vit.embeddings.position_embeddings");
    replaced("patch_embed.proj", "vit.embeddings.patch_embeddings.projection");
    replaced("head.", "classifier.");
    if (name.starts_with("norm.")) to = "vit.layernorm" + name.substr(4);
    replaced("blocks.", "vit.encoder.layer.");
    replaced("attn.proj", "attention.output.dense");
    replaced("mlp.fc1", "intermediate.dense");
    replaced("mlp.fc2", "output.dense");
    replaced("norm1", "layernorm_before");
    replaced("norm2", "layernorm_after");
    if (name.find("attn.qkv") == std::string::npos) {
      renamed.emplace_back(to, tensor);
      continue;
    }
    const char* const parts[] = {"query", "key", "value"};
    const size_t third = tensor.values.size() / 3;
    for (size_t part = 0; part < 3; ++part) {
      lab::Tensor one = tensor;
      one.shape[0] /= 3;
      one.values.assign(tensor.values.begin() + ptrdiff_t(part * third),
                        tensor.values.begin() + ptrdiff_t((part + 1) * third));
      std::string own = to;
      own.replace(own.find("attn.qkv"), 8, std::string("attention.attention.") + parts[part]);
      renamed.emplace_back(own, one);
    }
  }
  const TemporaryFolder folder;
  lab::write_safetensors(folder.path("in.safetensors"), renamed);
  const std::string command = "python3 '" + lab::repository_path("data/convert_deit.py") + "' '" +
                              folder.path("in.safetensors") + "' '" +
                              folder.path("out.safetensors") + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  const Weights expected = narrow_weights(),
                got = read_weights(folder.path("out.safetensors"), narrow_shape(1), "narrow");
  std::vector<const std::vector<float>*> arrays;
  for_each_parameter(expected.parameters, expected.shape,
                     [&](const std::string&, const std::vector<int64_t>&,
                         const std::vector<float>& values) { arrays.push_back(&values); });
  size_t next = 0;
  for_each_parameter(
      got.parameters, got.shape,
      [&](const std::string& name, const std::vector<int64_t>&, const std::vector<float>& values) {
        CAPTURE(name);
        CHECK(values == *arrays[next++]);
      });
}

TEST_CASE("labels: names with and without a synset's number, as many as classes") {
  const TemporaryFolder folder;
  folder.write("l.txt", "n02124075 Egyptian cat\nnightingale song\r\nn0212407x odd\n");
  CHECK(read_labels(folder.path("l.txt"), 3) ==
        std::vector<std::string>{"Egyptian cat", "nightingale song", "n0212407x odd"});
  CHECK(contains(refusal([&] { read_labels(folder.path("l.txt"), 1000); }),
                 "has 3 names, the net has 1000 classes"));
}

namespace {

// Two buffers that live at the same time and overlap in memory; "" where there are none.
std::string overlapping_buffers(const std::vector<Buffer>& buffers) {
  for (size_t i = 0; i < buffers.size(); ++i)
    for (size_t j = i + 1; j < buffers.size(); ++j) {
      const Buffer &a = buffers[i], &b = buffers[j];
      const bool together = a.first <= b.last && b.first <= a.last;
      const bool overlap = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      if (together && overlap) return a.name + " and " + b.name;
    }
  return "";
}

}  // namespace

TEST_CASE("memory plan: no place is used by two at once, and none is wasted") {
  // Three arrays in turn: two places are enough.
  std::vector<Buffer> chain = {{"a", 1000, 0, 1}, {"b", 1000, 1, 2}, {"c", 1000, 2, 3}};
  MemoryPlan plan = plan_memory(chain);
  CHECK(plan.bytes == 2 * 1024);
  CHECK(plan.separate_bytes == 3 * 1024);
  CHECK(plan.most_alive == 2 * 1024);
  CHECK(chain[0].offset == chain[2].offset);
  CHECK(overlapping_buffers(chain) == "");
  chain[1].offset = chain[0].offset;  // the check can fail
  CHECK(overlapping_buffers(chain) == "a and b");

  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<Buffer> buffers;
    for (uint64_t i = 0; i < 30; ++i) {
      const int first = int(lab::random_bits(seed, 3 * i) % 20);
      buffers.push_back({std::to_string(i), 1 + int64_t(lab::random_bits(seed, 3 * i + 1) % 5000),
                         first, first + int(lab::random_bits(seed, 3 * i + 2) % 6)});
    }
    plan = plan_memory(buffers);
    CAPTURE(seed);
    CHECK(overlapping_buffers(buffers) == "");
    CHECK(plan.bytes >= plan.most_alive);
    CHECK(plan.bytes <= plan.separate_bytes);
    for (const Buffer& buffer : buffers) {
      CHECK(buffer.offset % kPlanAlignment == 0);
      CHECK(buffer.offset + buffer.bytes <= plan.bytes);
    }
  }
  std::vector<Buffer> nothing = {{"empty", 0, 0, 1}};
  CHECK_THROWS_WITH_AS(plan_memory(nothing), doctest::Contains("buffer 'empty' has 0 bytes"),
                       std::invalid_argument);
}

TEST_CASE("shapes: what the net cannot do is refused by name") {
  NetShape shape;
  CHECK_NOTHROW(require_net_shape(shape));
  const auto refused = [](NetShape wrong, const std::string& why) {
    CHECK_THROWS_WITH_AS(require_net_shape(wrong), doctest::Contains(why.c_str()),
                         std::invalid_argument);
  };
  shape.size = 225;
  refused(shape, "multiple of the patch's 16 pixels");
  shape = {}, shape.heads = 4;
  refused(shape, "width / heads must be 32, 64 or 128");
  shape = {}, shape.batch = 0;
  refused(shape, "at least 1");
  shape = {}, shape.batch = 200'000;
  refused(shape, "more than 33554431 tokens");
}
