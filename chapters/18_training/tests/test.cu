// Tests of the whole net: its gradients and first losses beside PyTorch's in double precision.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include <cmath>

#include "../../../common/lab/program.h"
#include "../../../common/lab/random.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/checks.h"
#include "../../16_cvt/operations/operations.h"
#include "../net/net.h"

using namespace lab::testing;

namespace {

// The narrow net of data/golden/make_cvt.py, its images and labels.
constexpr int kBatch = 3, kSteps = 20;
training::NetShape narrow_shape() {
  return {20, 1, 5, 1, {{{7, 4, 2, 32, 1, 1}, {3, 2, 1, 32, 1, 1}, {3, 2, 1, 32, 2, 2}}}};
}
std::vector<float> narrow_images() {
  std::vector<float> images;
  for (int i = 0; i < kBatch * 20 * 20; ++i)
    images.push_back(float((2 * lab::uniform(77, uint64_t(i)) - 1) * 1.5));
  return images;
}
const std::vector<int> kLabels = {0, 1, 2};

void start(training::Net& net) {
  net.set_parameters(training::first_values(net.layout(), 5));
  net.set_running(training::first_running(net.layout()));
}

double distance(const float* got, const double* expected, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += (got[i] - expected[i]) * (got[i] - expected[i]);
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("net: all gradients of a step are PyTorch's, and the same bits twice") {
  if (!has_device()) return;
  training::Net net(narrow_shape(), kBatch);
  start(net);
  net.forward(narrow_images(), kBatch, true);
  net.loss(kLabels, 0.1f);
  net.backward();
  const std::vector<float> gradients = net.gradients();
  const std::string folder = lab::repository_path("data/golden/");
  const std::string listed = file_content(folder + "cvt.json");
  const lab::Array golden = lab::read_npy(folder + "cvt_narrow_gradients.npy");
  REQUIRE(golden.values.size() == size_t(net.layout().numbers));
  double all = 0;
  for (const double value : golden.values) all += value * value;
  const double* expected = golden.values.data();
  const auto norm_of = [&](const std::string& name) {
    for (size_t p = 0; p < net.layout().parameters.size(); ++p)
      if (net.layout().parameters[p].name == name)
        return std::stod(json_at(listed, "/gradients/" + std::to_string(p) + "/norm"));
    FAIL("no parameter " << name);
    return 0.0;
  };
  for (size_t p = 0; p < net.layout().parameters.size(); ++p) {
    const training::Parameter& one = net.layout().parameters[p];
    const std::string at = "/gradients/" + std::to_string(p) + "/";
    REQUIRE(json_at(listed, at + "name") == '"' + one.name + '"');
    // Four times what rounding operands to tf32 did in PyTorch; 2^-22 of all gradients for sums in
    // fp32.
    double bound = 4 * std::stod(json_at(listed, at + "tf32_distance")) + 0x1p-22 * std::sqrt(all);
    const double norm = std::stod(json_at(listed, at + "norm"));
    // 0 by nature, as softmax does not see what all keys have in common: rounding dS to tf32 leaves
    // 2^-11 of what the layer's weights get, twice that is allowed.
    if (norm < 1e-6) bound = 0x1p-10 * norm_of(one.name.substr(0, one.name.rfind('.')) + ".weight");
    CAPTURE(one.name);
    CHECK(distance(gradients.data() + one.first, expected, one.count()) <= bound);
    // The bound leaves no room for a missing gradient, but where it is 0 by nature: BatchNorm
    // undoes how a channel was scaled by the norm before it.
    CHECK((norm > bound || norm < 1e-6 || one.name.ends_with("norm1.weight")));
    expected += one.count();
  }
  net.forward(narrow_images(), kBatch, true);
  net.loss(kLabels, 0.1f);
  net.backward();
  CHECK(net.gradients() == gradients);
}

TEST_CASE("net: losses of eight steps of AdamW are PyTorch's") {
  if (!has_device()) return;
  training::Net net(narrow_shape(), kBatch);
  start(net);
  const training::Layout& layout = net.layout();
  lab::DeviceArray<float> m(std::vector<float>(layout.size), "m"),
      v(std::vector<float>(layout.size), "v");
  const lab::Array golden = lab::read_npy(lab::repository_path("data/golden/cvt_losses.npy"));
  REQUIRE(golden.values.size() == 6 * kSteps);
  double distance = 0;
  for (int step = 0; step < 8; ++step) {
    net.forward(narrow_images(), kBatch, true);
    const float loss = net.loss(kLabels, 0.1f);
    const double expected = golden.values[4 * kSteps + step];
    distance = std::max(distance, golden.values[5 * kSteps + step]);
    CAPTURE(step);
    CHECK(std::abs(loss - expected) <= 4 * distance);
    net.backward();
    for (const bool decayed : {true, false}) {
      const int64_t first = decayed ? 0 : layout.decayed;
      const cvt::AdamW options{.rate = float(0.003 * (step + 1) / 20),
                               .decay = decayed ? 0.05f : 0.0f};
      cvt::adamw(net.parameters_data() + first, net.gradients_data() + first, m.data() + first,
                 v.data() + first, (decayed ? layout.decayed : layout.size) - first, step + 1,
                 options, nullptr);
    }
  }
}

TEST_CASE("net: errors name what was wrong; a number that is not finite is found where it begins") {
  training::NetShape shape = narrow_shape();
  shape.stages[1].heads = 3;
  CHECK_THROWS_WITH(training::layout_of(shape),
                    "CvT, stage 1: width 32 with 3 heads: a head must have 16, 32 or 64 channels");
  const auto refused = [](const std::function<void(training::NetShape&)>& change) {
    training::NetShape changed = narrow_shape();
    change(changed);
    try {
      training::require_net_shape(changed);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused([](training::NetShape&) {}) == "");
  CHECK(refused([](training::NetShape& s) { s.size = 2; }) ==
        "CvT, stage 0: a map of 2 pixels a side is smaller than the embedding's kernel of 7");
  CHECK(refused([](training::NetShape& s) { s.stages[2].heads = 4; }) ==
        "CvT, stage 2: width 32 with 4 heads: a head must have 16, 32 or 64 channels");
  CHECK(refused([](training::NetShape& s) { s.stages[2].heads = 17, s.stages[2].width = 1088; }) ==
        "CvT, stage 2: width 1088, must be at most 1024, the LayerNorm's limit");
  CHECK(refused([](training::NetShape& s) { s.stages[0].kernel = 17; }) ==
        "CvT, stage 0: an embedding's kernel of 17, must be 1 to 16");
  CHECK(refused([](training::NetShape& s) { s.stages[0].stride = 0; }) ==
        "CvT, stage 0: an embedding's stride of 0, must be 1 to 16");
  CHECK(refused([](training::NetShape& s) { s.stages[1].padding = 3; }) ==
        "CvT, stage 1: an embedding's padding of 3, must be 0 to 2, below its kernel");
  CHECK(refused([](training::NetShape& s) { s.stages[1].blocks = 0; }) ==
        "CvT, stage 1: 0 blocks, must be at least 1");
  CHECK(refused([](training::NetShape& s) { s.mlp_ratio = 0; }) ==
        "CvT: 0 hidden values of the MLP a channel, must be at least 1");
  CHECK(refused([](training::NetShape& s) { s.in_channels = 0; }) ==
        "CvT: 20 pixels a side of 0 channels: both must be at least 1");
  CHECK(refused([](training::NetShape& s) { s.classes = 1; }) ==
        "CvT: 1 classes, must be at least 2");
  if (!has_device()) return;
  training::Net net(narrow_shape(), kBatch);
  start(net);
  CHECK_THROWS_WITH(net.forward(narrow_images(), 4, true), "CvT: a batch of 4, made for 1 to 3");
  CHECK_THROWS_AS(net.backward(), std::logic_error);
  net.forward(narrow_images(), kBatch, true);
  CHECK(net.first_not_finite() == "");
  CHECK_THROWS_WITH(net.loss({0, 5, 1}, 0), "CvT: label 5, must be from 0 to 4");
  std::vector<float> values = net.parameters();
  const int64_t at = net.layout().of("stages.1.blocks.0.fc1.weight");
  for (int i = 0; i < 32; ++i) values[at + i] = 3e38f;
  net.set_parameters(values);
  net.forward(narrow_images(), kBatch, true);
  CHECK(net.first_not_finite() == "stages.1.blocks.0.fc1");
  values[at] = std::nanf("");
  net.set_parameters(values);
  CHECK(net.first_not_finite() == "parameter stages.1.blocks.0.fc1.weight");
}
