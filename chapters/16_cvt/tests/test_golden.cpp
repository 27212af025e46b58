// Tests of the formulas in double, which kernels are compared with: what PyTorch computed, within a
// rounding.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "../../../common/json/json.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/testing.h"
#include "../host/reference.h"

using namespace lab::testing;
namespace ref = cvt::reference;
using ref::Array;

namespace {

// The arrays of one operation in data/golden, by name: data/golden/make_cvt.py.
std::map<std::string, Array> golden(const std::string& operation) {
  const std::string folder = lab::repository_path("data/golden/");
  const std::string listed = file_content(folder + "cvt.json");
  const lab::Array all = lab::read_npy(folder + "cvt_" + operation + ".npy");
  const json::Value entries = json::parse(listed)["operations"][operation];
  std::map<std::string, Array> found;
  auto next = all.values.begin();
  for (const json::Value& entry : entries) {
    int64_t count = 1;
    for (const json::Value& size : entry["shape"]) count *= size.get<int64_t>();
    REQUIRE(all.values.end() - next >= count);
    found[entry["name"].get<std::string>()] = {next, next + count};
    next += count;
  }
  REQUIRE(next == all.values.end());
  return found;
}

void check_same(const std::string& name, const Array& got, const Array& expected) {
  CAPTURE(name);
  REQUIRE(!expected.empty());
  REQUIRE(got.size() == expected.size());
  double largest = 0, worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    worst = std::max(worst, std::abs(got[i] - expected[i]));
  }
  CHECK(worst <= 1e-12 * (1 + largest));
}

}  // namespace

TEST_CASE(
    "formulas: the convolutional projection, its running statistics and gradients are PyTorch's") {
  for (const int class_tokens : {0, 1}) {
    auto array = golden("projection_" + std::to_string(class_tokens));
    const cvt::reference::ProjectionSizes sizes{2, 7, 5, 8, class_tokens};
    const auto three = [&](const std::string& name) {
      return std::array<Array, 3>{array[name + "q"], array[name + "k"], array[name + "v"]};
    };
    const cvt::reference::ProjectionInputs in{array["x"], three("w_"), three("scale_"),
                                              three("shift_")};
    const cvt::reference::ProjectionOutputs out = cvt::reference::project(in, sizes);
    const auto back = cvt::reference::project_back(in, out, three("d"), sizes);
    check_same("dx", back.dx, array["dx"]);
    for (int which = 0; which < 3; ++which) {
      const std::string of = std::string(1, "qkv"[which]);
      CAPTURE(of);
      Array y = out.maps[which];
      for (size_t i = 0; i < y.size(); ++i)
        if (int(i / 8) % sizes.tokens(which) >= class_tokens)
          y[i] = y[i] * out.factor[which][i % 8] + out.offset[which][i % 8];
      check_same("y", y, array[of]);
      const double count = sizes.positions(which);
      Array mean = array["mean_before_" + of], variance = array["variance_before_" + of];
      for (size_t c = 0; c < mean.size(); ++c) {
        mean[c] += 0.1 * (out.mean[which][c] - mean[c]);
        variance[c] += 0.1 * (out.variance[which][c] * count / (count - 1) - variance[c]);
      }
      check_same("running mean", mean, array["running_mean_" + of]);
      check_same("running variance", variance, array["running_variance_" + of]);
      check_same("dw", back.dw[which], array["dw_" + of]);
      check_same("dscale", back.dscale[which], array["dscale_" + of]);
      check_same("dshift", back.dshift[which], array["dshift_" + of]);
    }
  }
}

TEST_CASE("formulas: embedding, attention and cross entropy are PyTorch's, and their gradients") {
  for (const auto& [name, shape] :
       {std::pair{"embed_7", cvt::EmbedShape{2, 11, 11, 1, 8, 7, 4, 2}},
        std::pair{"embed_3", cvt::EmbedShape{2, 5, 5, 8, 16, 3, 2, 1}}}) {
    auto array = golden(name);
    check_same(name, ref::embed(array["x"], array["w"], array["bias"], shape), array["y"]);
    const auto d = ref::embed_gradients(array["x"], array["w"], array["dy"], shape);
    check_same("dx", d.x, array["dx"]);
    check_same("dw", d.w, array["dw"]);
    check_same("dbias", d.bias, array["dbias"]);
  }
  auto array = golden("attention");
  const cvt::CrossShape shape{2, 17, 5, 2, 32, 0.125f};
  check_same("o", ref::attention(array["q"], array["k"], array["v"], shape).o, array["o"]);
  const auto d = ref::attention_gradients(array["q"], array["k"], array["v"], array["do"], shape);
  check_same("dq", d.q, array["dq"]);
  check_same("dk", d.k, array["dk"]);
  check_same("dv", d.v, array["dv"]);
  for (const auto& [name, smoothing] :
       {std::pair{"cross_entropy_0.0", 0.0}, std::pair{"cross_entropy_0.1", 0.1}}) {
    auto loss = golden(name);
    const auto got = ref::cross_entropy(loss["logits"], {0, 2, 4, 6, 8}, 10, smoothing);
    check_same(name, {got.loss}, loss["loss"]);
    check_same("dlogits", got.dlogits, loss["dlogits"]);
  }
}

TEST_CASE("formulas: LayerNorm, linear layer with GELU and three steps of AdamW are PyTorch's") {
  auto array = golden("layer_norm");
  check_same("y", ref::layer_norm(array["x"], array["scale"], array["shift"], 7, 40).y, array["y"]);
  const auto norm = ref::layer_norm_gradients(array["x"], array["scale"], array["dy"], 7, 40);
  check_same("dx", norm.x, array["dx"]);
  check_same("dscale", norm.scale, array["dscale"]);
  check_same("dshift", norm.shift, array["dshift"]);
  array = golden("linear_gelu");
  const Array before = ref::linear(array["x"], array["w"], array["bias"], 9, 36, 24);
  Array y = before, dy = array["dy"];
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = ref::gelu(before[i]), dy[i] *= ref::gelu_derivative(before[i]);
  check_same("y", y, array["y"]);
  const auto linear = ref::linear_gradients(array["x"], array["w"], dy, 9, 36, 24);
  check_same("dx", linear.x, array["dx"]);
  check_same("dw", linear.w, array["dw"]);
  check_same("dbias", linear.bias, array["dbias"]);
  array = golden("adamw");
  Array parameters = array["first"], m(50, 0.0), v(50, 0.0);
  const auto gradients = array["gradients"].begin();
  for (int step = 0; step < 3; ++step)
    ref::adamw(parameters, {gradients + 50 * step, gradients + 50 * (step + 1)}, m, v, step + 1,
               {0x1p-7f, 0.875f, 0.984375f, 1e-8f, 0.125f});
  check_same("m", m, array["m"]);
  check_same("v", v, array["v"]);
  check_same("parameters", parameters, array["parameters"]);
}
