// Style transfer: the program's pictures are PyTorch's, and what it says, writes and refuses.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "../../../common/json/json.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/table.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/preload.h"
#include "../../../common/testing/testing.h"
#include "../../../common/testing/text.h"
#include "../../08_fused_conv_norm/tests/fewer_blocks.h"
#include "../host/network.h"

using lab::testing::contains;
using lab::testing::ProgramResult;
using lab::testing::TemporaryFolder;

namespace {

std::string golden_file(const std::string& file) {
  return lab::repository_path("data/golden/" + file);
}

// Weights trained by others, not part of the repository; empty where they are not there.
std::string trained_weights() {
  const char* path = std::getenv("STYLE_MATHURA");
  const std::string file =
      path ? path : lab::repository_path("../shared/data/style/ml5_mathura_fp16.safetensors");
  return access(file.c_str(), R_OK) == 0 ? file : "";
}

bool skipped(const std::string& what) {
  if (lab::testing::has_device()) return false;
  MESSAGE("skipped: " << what << ": there is no GPU, real or virtual");
  return true;
}

// The program's picture of a committed photo with PyTorch's: all but 0.1% of the pixels within one
// grey level in each colour.
void check_picture(const std::string& weights, const std::string& name, const std::string& size) {
  CAPTURE(name);
  CAPTURE(size);
  const TemporaryFolder folder;
  const ProgramResult result =
      lab::testing::run_program("chapter20",
                                {"--style", weights, "--image",
                                 golden_file("style_photo_" + size + ".png"), "--out", "out.png"},
                                folder.folder());
  CAPTURE(result.output);
  CAPTURE(result.errors);
  REQUIRE(result.exit_code == 0);
  const lab::Image got = lab::load_image(folder.path("out.png")),
                   expected = lab::load_image(golden_file("style_" + name + "_" + size + ".png"));
  REQUIRE(got.width == expected.width);
  REQUIRE(got.height == expected.height);
  const int pixels = got.width * got.height;
  int off = 0;
  for (int pixel = 0; pixel < pixels; ++pixel) {
    int largest = 0;
    for (int c = 0; c < 3; ++c)
      largest = std::max(largest,
                         std::abs(int(got.rgb[3 * pixel + c]) - int(expected.rgb[3 * pixel + c])));
    off += largest > 1;
  }
  CHECK(off <= pixels / 1000);
}

}  // namespace

TEST_CASE("style: pictures of a narrow network are PyTorch's") {
  if (skipped("style: pictures of a narrow network")) return;
  for (const char* size : {"64x64", "75x96"})
    check_picture(golden_file("style_narrow.safetensors"), "narrow", size);
}

TEST_CASE("style: pictures of a trained network are PyTorch's") {
  if (skipped("style: pictures of a trained network")) return;
  const std::string weights = trained_weights();
  if (weights.empty()) {
    MESSAGE("skipped: the trained network's weights are not there (STYLE_MATHURA)");
    return;
  }
  for (const char* size : {"64x64", "75x96"}) check_picture(weights, "mathura", size);
}

TEST_CASE("style: without a file the weights are random, on the photo's middle") {
  if (skipped("style: random weights")) return;
  const TemporaryFolder folder;
  const ProgramResult result =
      lab::testing::run_program("chapter20", {"--size", "12", "--json", "a.json"}, folder.folder());
  CAPTURE(result.output);
  CAPTURE(result.errors);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.output, "chelsea.png under random weights, 12 x 12 pixels"));
  CHECK(contains(result.output, "conv4    32 to 3, 12x12, 9x9"));
  const json::Value said = json::parse(lab::testing::file_content(folder.path("a.json")));
  CHECK(said["style"].get<std::string>() == "random weights");
  CHECK(said["pass"].get<bool>());
}

TEST_CASE("style: --step computes the layers by another step of chapter 8, to the same picture") {
  if (skipped("style: --step")) return;
  const TemporaryFolder folder;
  const auto picture = [&](const std::string& step, const std::string& path) {
    const ProgramResult result = lab::testing::run_program(
        "chapter20",
        {"--style", golden_file("style_narrow.safetensors"), "--size", "24", "--step", step},
        folder.folder());
    CAPTURE(result.output);
    CAPTURE(result.errors);
    REQUIRE(result.exit_code == 0);
    // All eleven lines but that of the pixels.
    size_t found = 0;
    for (size_t at = 0; (at = result.output.find("  " + path + "  ", at)) != std::string::npos;
         ++at)
      ++found;
    CHECK(found == 11);
    return lab::load_image(folder.path("styled.png")).rgb;
  };
  const std::vector<unsigned char> fused = picture("fused", "fused");
  for (const char* step : {"two passes", "three passes"}) {
    CAPTURE(step);
    const std::vector<unsigned char> other = picture(step, step);
    REQUIRE(other.size() == fused.size());
    int off = 0;
    for (size_t i = 0; i < fused.size(); ++i) off += std::abs(int(fused[i]) - int(other[i])) > 1;
    CHECK(off == 0);
  }
}

TEST_CASE("style: layers whose one launch is refused take two passes, and that is said") {
  if (skipped("style: refused launches")) return;
  if (!lab::vgpu::present()) {
    MESSAGE("skipped: style: refused launches: only the virtual GPU's functions can be replaced");
    return;
  }
  const TemporaryFolder folder;
  const lab::testing::Preloaded fewer_blocks(fused_conv_norm::kFewerBlocks);
  const ProgramResult result = lab::testing::run_program(
      "chapter20", {"--style", golden_file("style_narrow.safetensors"), "--size", "24"},
      folder.folder());
  CAPTURE(result.output);
  CAPTURE(result.errors);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.output, " two passes "));
  CHECK_FALSE(contains(result.output, " fused "));
}

TEST_CASE("style: what the program says, writes and refuses") {
  if (skipped("style: what the program says")) return;
  const TemporaryFolder folder;
  const std::string network = golden_file("style_narrow.safetensors"),
                    photo = golden_file("style_photo_75x96.png");
  const auto run = [&](const std::vector<std::string>& arguments) {
    return lab::testing::run_program("chapter20", arguments, folder.folder());
  };
  const ProgramResult odd = run({"--style=" + network, "--image", photo, "--size", "21", "--json",
                                 "a.json", "--iterations", "2"});
  CAPTURE(odd.output);
  CAPTURE(odd.errors);
  CHECK(odd.exit_code == 0);
  CHECK(folder.names() == std::vector<std::string>{"a.json", "styled.png"});
  CHECK(lab::load_image(folder.path("styled.png")).width == 21);
  CHECK(contains(odd.output, "The network makes 24 x 24 pixels of it"));
  CHECK(contains(odd.output, "deconv2  5 to 4, 12x12 to 24x24, 3x3, transposed"));
  const std::string text = lab::testing::file_content(folder.path("a.json"));
  for (const char* part :
       {"\"res5\"", "\"path\"", "\"median_us\"", "\"pass\": true", "\"style_narrow.safetensors\""})
    CHECK(contains(text, part));

  // On the virtual GPU each layer's predicted time, and their sum.
  if (lab::vgpu::can_predict()) {
    const json::Value layers = json::parse(text)["layers"];
    CHECK(layers.size() == 12);
    double sum = 0;
    for (const json::Value& layer : layers) {
      CHECK(layer["predicted_us"].get<double>() > 0);
      sum += layer["predicted_us"].get<double>();
    }
    CHECK(contains(odd.output, "predicted"));
    CHECK(contains(odd.output, "All layers, predicted: " + lab::human_time(sum) + " +-25%"));
    // The five residual blocks have one shape.
    CHECK(layers.item(3)["predicted_us"].get<double>() ==
          layers.item(7)["predicted_us"].get<double>());

    const ProgramResult alone = run(
        {"--style=" + network, "--image", photo, "--size", "21", "--predict", "--json", "b.json"});
    CAPTURE(alone.output);
    CAPTURE(alone.errors);
    CHECK(alone.exit_code == 0);
    CHECK(contains(alone.output, "there is no picture, and nothing was compared"));
    CHECK_FALSE(contains(alone.output, "PASS"));
    CHECK(folder.names() == std::vector<std::string>{"a.json", "b.json", "styled.png"});
    const json::Value predicted = json::parse(lab::testing::file_content(folder.path("b.json")));
    CHECK(predicted["pass"].is_null());
    for (size_t i = 0; i < layers.size(); ++i) {
      const json::Value& layer = predicted["layers"].item(i);
      CAPTURE(layer["name"].get<std::string>());
      CHECK(layer["pass"].is_null());
      CHECK(layer["predicted_us"].get<double>() ==
            doctest::Approx(layers.item(i)["predicted_us"].get<double>()).epsilon(0.15));
    }
    setenv("VGPU_TIME", "0", 1);
    const ProgramResult off = run({"--style=" + network, "--image", photo, "--size", "21"});
    unsetenv("VGPU_TIME");
    CHECK(off.exit_code == 0);
    CHECK(contains(off.output, "no sum, since not every layer has a time: switched off"));
  }

  const auto refused = [&](const std::vector<std::string>& arguments, int code,
                           const std::string& message) {
    const ProgramResult result = run(arguments);
    CAPTURE(result.output);
    CAPTURE(result.errors);
    CHECK(result.exit_code == code);
    CHECK(contains(result.errors, message));
  };
  refused({"--style", "none"}, 2, "none");
  refused({"--style", photo}, 2, "bad header length");
  refused({"--style", network, "--size", "0"}, 2, "must be a whole number from 1 to 8192");
  refused({"--style", network, "--batch", "2"}, 2, "--batch");
  refused({"--style", network, "--predict", "--out", "x.png"}, 2, "does not go with --predict");
  refused({"--style", network, "--predict", "--iterations", "2"}, 2, "does not go with --predict");
  refused({"--style", network, "--predict", "--profile"}, 2, "does not go with --predict");
  refused({"--style", network, "--out", "x.bmp"}, 2, ".png, .jpg or .jpeg");
  refused({"--style", network, "--image", network}, 2, "is no PNG or JPEG");

  // More memory than a T4 has, said before any is taken: 2000 channels of 1000 x 1000 pixels.
  if (lab::vgpu::present()) {
    std::vector<lab::NamedTensor> tensors;
    int64_t before = 3;
    for (const lab::StyleLayer& layer : lab::read_style_network(network)) {
      const int64_t out = layer.name == "conv1" ? 2000 : layer.out_channels, k = layer.kernel;
      std::vector<int64_t> shape = {out, before, k, k};
      if (layer.upsample == 2) std::swap(shape[0], shape[1]);
      tensors.push_back(
          {layer.name + ".weight", {shape, std::vector<float>(out * before * k * k, 0.5f), "F16"}});
      for (const char* part : {".in_gamma", ".in_beta"})
        tensors.push_back({layer.name + part, {{out}, std::vector<float>(out, 0.5f), "F16"}});
      before = out;
    }
    lab::write_safetensors(folder.path("wide"), tensors);
    setenv("VGPU_DEVICE", "t4", 1);
    refused({"--style", "wide", "--image", photo, "--size", "1000"}, 3,
            "style transfer of 1000 x 1000 pixels (a smaller picture: --size PIXELS) needs");
    unsetenv("VGPU_DEVICE");
  }
  refused({"--step", "tiled"}, 2, "--step 'tiled': must be fused, two passes or three passes");
  refused({"--precision", "tf32"}, 2, "there is no such flag");
  const ProgramResult help = run({"--style", network, "--help"});
  CHECK(help.exit_code == 0);
  CHECK(contains(help.output, "squared photo's side"));
}
