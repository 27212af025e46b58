// Attention in fp32 with its projection inside or apart, against PyTorch's formula in double; what
// `inside` computes again; and ./run --projection.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "../../../common/attention/test_ladder.h"
#include "../../../common/json/json.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/random.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/testing.h"
#include "../kernels/fp32_steps.h"
#include "test_support.h"

using namespace vision_transformer;
using namespace lab::testing;
using reference::Doubles;

namespace {

std::vector<float> floats(int64_t count, uint64_t seed, double deviation) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = float(deviation * lab::normal(seed, i));
  return values;
}

struct Layer {
  explicit Layer(const HeadsShape& of, bool with_bias)
      : shape(of),
        width(of.heads * of.head_dim),
        x(floats(of.elements(), 1, 1)),
        weight(floats(3 * int64_t(width) * width, 2, 1 / std::sqrt(double(width)))),
        bias(floats(with_bias ? 3 * width : 0, 3, 0.5)) {
    qkv = reference::linear(in_double(x), weight, bias, {},
                            {of.batch * of.tokens, 3 * width, width, false});
    for (int part = 0; part < 3; ++part) by_heads.push_back(reference::split(qkv, part, of));
    o = reference::merge(reference::attention(by_heads[0], by_heads[1], by_heads[2], of, nullptr),
                         of);
    error = inside_error(in_double(x), weight, by_heads[0], by_heads[1], by_heads[2], of);
  }
  HeadsShape shape;
  int width;
  std::vector<float> x, weight, bias;
  Doubles qkv, o;
  std::vector<Doubles> by_heads;
  double error;
};

void check_array(GuardedOutput<float>& got, const Doubles& expected, double error) {
  std::vector<float> values;
  CHECK(got.download(values));
  const lab::Comparison comparison =
      lab::compare(values, expected, {.atol = 2 * error, .rtol = 0x1p-22, .relative_l2 = 1e-5},
                   {int64_t(values.size())});
  CAPTURE(comparison.describe());
  CHECK(comparison.pass);
}

bool same_bits(GuardedOutput<float>& a, GuardedOutput<float>& b) {
  std::vector<float> left, right;
  return a.download(left) && b.download(right) &&
         std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("projection: inside and apart are right, and have the same bits") {
  if (skipped("projection")) return;
  // Ragged tokens; heads that fill a group of 64 columns in part, wholly, and several; one token.
  const std::vector<HeadsShape> shapes = {{1, 65, 1, 128}, {2, 83, 2, 64}, {1, 1, 3, 32},
                                          {1, 70, 1, 256}, {3, 17, 2, 40}, {1, 130, 8, 16},
                                          {1, 33, 1, 168}};
  for (const HeadsShape& shape : shapes)
    for (const bool with_bias : {false, true}) {
      if (with_bias && shape.head_dim > 64) continue;
      CAPTURE(shape.tokens);
      CAPTURE(shape.head_dim);
      CAPTURE(with_bias);
      const Layer layer(shape, with_bias);
      const GuardedInput<float> x(layer.x, "x"), weight(layer.weight, "w"), bias(layer.bias, "b");
      GuardedOutput<float> q(layer.x.size(), "q"), k(layer.x.size(), "k"), v(layer.x.size(), "v"),
          inside(layer.x.size(), "inside"), apart(layer.x.size(), "apart");
      fp32::by_heads(x.data(), weight.data(), bias.data(), q.data(), k.data(), v.data(), shape,
                     nullptr);
      fp32::apart(q.data(), k.data(), v.data(), apart.data(), shape, nullptr);
      fp32::inside(x.data(), weight.data(), bias.data(), inside.data(), shape, nullptr);
      lab::check(cudaDeviceSynchronize());
      const double of_product = product_error(in_double(layer.x), layer.weight, layer.width);
      check_array(q, layer.by_heads[0], of_product);
      check_array(k, layer.by_heads[1], of_product);
      check_array(v, layer.by_heads[2], of_product);
      check_array(inside, layer.o, layer.error);
      check_array(apart, layer.o, layer.error);
      // The same sums in the same order, and a float in memory is a float in a register.
      CHECK(same_bits(inside, apart));
      CHECK((x.untouched() && weight.untouched() && bias.untouched()));
    }
}

TEST_CASE("projection: large scores, and rows far below the largest score so far") {
  if (skipped("projection")) return;
  // The first tile's keys score lowest and highest in turn: sums are rescaled both ways.
  const HeadsShape shape{1, 150, 1, 64};
  Layer layer(shape, false);
  for (float& value : layer.x) value *= 6;
  layer.qkv = reference::linear(in_double(layer.x), layer.weight, {}, {}, {150, 192, 64, false});
  for (int part = 0; part < 3; ++part)
    layer.by_heads[part] = reference::split(layer.qkv, part, shape);
  layer.o = reference::merge(
      reference::attention(layer.by_heads[0], layer.by_heads[1], layer.by_heads[2], shape, nullptr),
      shape);
  const lab::DeviceArray<float> x(layer.x, "x"), weight(layer.weight, "w");
  GuardedOutput<float> o(layer.x.size(), "o");
  fp32::inside(x.data(), weight.data(), nullptr, o.data(), shape, nullptr);
  lab::check(cudaDeviceSynchronize());
  std::vector<float> got;
  CHECK(o.download(got));
  const lab::Comparison comparison =
      lab::compare(got, layer.o, {.atol = 2e-3, .rtol = 0x1p-22, .relative_l2 = 1e-4}, {150, 64});
  CAPTURE(comparison.describe());
  CHECK(comparison.pass);
}

TEST_CASE("projection: rows whose scores all lie far below 0, and far above") {
  if (skipped("projection")) return;
  const HeadsShape shape{1, 70, 1, 64};
  for (const float score : {-300.0f, 300.0f}) {
    CAPTURE(score);
    auto q = floats(shape.elements(), 1, 1), k = floats(shape.elements(), 2, 1);
    const auto v = floats(shape.elements(), 3, 1);
    for (size_t row = 0; row < q.size(); row += 64) q[row] = 8 * score, k[row] = 1;  // scale 1/8
    const lab::DeviceArray<float> on_q(q, "q"), on_k(k, "k"), on_v(v, "v");
    GuardedOutput<float> o(v.size(), "o");
    fp32::apart(on_q.data(), on_k.data(), on_v.data(), o.data(), shape, nullptr);
    lab::check(cudaDeviceSynchronize());
    const Doubles expected =
        reference::attention(in_double(q), in_double(k), in_double(v), shape, nullptr);
    std::vector<float> got;
    CHECK(o.download(got));
    // A score of 300 is rounded by 2^-16, and its weight by as much of itself.
    const lab::Comparison comparison = lab::compare(
        got, expected, {.atol = 4 * 0x1p-16, .rtol = 0, .relative_l2 = 4 * 0x1p-16}, {70, 64});
    CAPTURE(comparison.describe());
    CHECK(comparison.pass);
  }
}

TEST_CASE("projection: what cannot be done is refused by name") {
  if (skipped("projection")) return;
  lab::DeviceArray<float> array(4096, "array");
  float* const p = array.data();
  const auto refused = [&](const HeadsShape& shape, const float* x, const char* why) {
    CHECK_THROWS_WITH_AS(fp32::inside(x, p, nullptr, p, shape, nullptr), doctest::Contains(why),
                         std::invalid_argument);
  };
  refused({1, 1, 1, 512}, p, "head_dim 512]: head_dim must be a multiple of 8, and at most 256");
  refused({1, 1, 1, 12}, p, "head_dim 12]: head_dim must be a multiple of 8");
  refused({1, 0, 1, 64}, p, "tokens 0, heads 1, head_dim 64]: batch, tokens and heads must be at");
  refused({1, 1, 1, 8}, p + 1, "start at a multiple of 16 bytes");
  refused({1, 1, 1, 8}, nullptr, "must be there");
}

TEST_CASE("projection: counters by formula, of what is loaded again") {
  if (skipped_without_counters("projection")) return;
  const HeadsShape shape{2, 83, 2, 64};
  const Layer layer(shape, true);
  const lab::DeviceArray<float> x(layer.x, "x"), weight(layer.weight, "w"), bias(layer.bias, "b");
  lab::DeviceArray<float> q(layer.x.size(), "q"), k(layer.x.size(), "k"), v(layer.x.size(), "v"),
      o(layer.x.size(), "o");
  const double rows = 2 * 83, width = 128, tiles = 2, head_rows = 2 * 2 * 83;
  fp32::inside(x.data(), weight.data(), bias.data(), o.data(), shape, nullptr);
  lab::check(cudaDeviceSynchronize());
  CHECK(counted("x", "load/bytes_asked") == 4 * head_rows * width * (1 + 2 * tiles));
  CHECK(counted("w", "load/bytes_asked") == 4 * 2 * 2 * tiles * (1 + 2 * tiles) * 64 * width);
  CHECK(counted("o", "store/bytes_asked") == 4 * rows * width);
  CHECK(fp32::projected_times(shape) == (1 + 2 * tiles) / 3);
  fp32::by_heads(x.data(), weight.data(), bias.data(), q.data(), k.data(), v.data(), shape,
                 nullptr);
  lab::check(cudaDeviceSynchronize());
  CHECK(counted("x", "load/bytes_asked") == 4 * rows * width * (3 * width / 64));
  CHECK(counted("w", "load/bytes_asked") == 4 * 3 * width * width * 3);
  fp32::apart(q.data(), k.data(), v.data(), o.data(), shape, nullptr);
  lab::check(cudaDeviceSynchronize());
  CHECK(counted("q", "load/bytes_asked") == 4 * rows * width);
  CHECK(counted("k", "load/bytes_asked") == 4 * rows * width * tiles);
  CHECK(counted("v", "load/bytes_asked") == 4 * rows * width * tiles);
}

TEST_CASE("checked: projection, without a finding") {
  if (rerun_with_checks("checked: projection*")) return;
  const int findings = lab::vgpu::findings();
  const Layer layer({1, 83, 1, 72}, true);
  const lab::DeviceArray<float> x(layer.x, "x"), weight(layer.weight, "w"), bias(layer.bias, "b");
  lab::DeviceArray<float> q(layer.x.size(), "q"), k(layer.x.size(), "k"), v(layer.x.size(), "v"),
      o(layer.x.size(), "o"), y(layer.x.size(), "y");
  fp32::by_heads(x.data(), weight.data(), bias.data(), q.data(), k.data(), v.data(), layer.shape,
                 nullptr);
  fp32::apart(q.data(), k.data(), v.data(), o.data(), layer.shape, nullptr);
  fp32::inside(x.data(), weight.data(), bias.data(), o.data(), layer.shape, nullptr);
  fp32::output(o.data(), weight.data(), bias.data(), y.data(), layer.shape, nullptr);
  lab::check(cudaDeviceSynchronize());
  CHECK(lab::vgpu::findings() == findings);
}

TEST_CASE("program: --projection compares each launch, and refuses what it cannot do") {
  if (skipped("program")) return;
  const TemporaryFolder folder;
  const auto ran = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "--projection");
    return run_program("chapter12", arguments, folder.folder());
  };
  const ProgramResult result = ran({"--tokens", "83", "--width", "64", "--heads", "2", "--json",
                                    "r.json", "--output", "o.safetensors"});
  CAPTURE(result.output);
  CAPTURE(result.errors);
  REQUIRE(result.exit_code == 0);
  CHECK(result.output.find("inside multiplies x with weights 1.67 times as often as apart") !=
        std::string::npos);
  const json::Value written = json::parse(file_content(folder.path("r.json")));
  CHECK(written["kernels"].size() == 3 + 1 + 2 + 1);
  for (const json::Value& line : written["kernels"]) CHECK(line["pass"].get<bool>());
  CHECK(written["ratios"].item(0)["after"].get<std::string>() == "inside");
  CHECK(lab::read_safetensors(folder.path("o.safetensors"), {"out"})[0].shape ==
        std::vector<int64_t>{1, 83, 64});
  for (const auto& [arguments, words] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--width", "100"}, "--width '100': must be a multiple of 8 times the 4 heads"},
           {{"--width", "512", "--heads", "1"},
            "head_dim must be a multiple of 8, and at most 256"},
           {{"--predict", "--output", "x.safetensors"}, "--output does not go with --predict"},
           {{"--sizes", "--tokens", "64"}, "--tokens does not go with --sizes"},
           {{"--image", "x"}, "--image belongs to the net: not with --projection"},
           {{"--tokens", "0"}, "--tokens '0': must be a whole number from 1 to 4096"}}) {
    const ProgramResult refused = ran(arguments);
    CAPTURE(words);
    CAPTURE(refused.errors);
    CHECK(refused.exit_code == 2);
    CHECK(refused.errors.find(words) != std::string::npos);
  }
}
