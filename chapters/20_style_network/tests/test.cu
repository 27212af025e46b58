// Pixels to planes and back, and a residual block, whichever step of chapter 8 computes it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "../../../common/lab/program.h"
#include "../../../common/lab/random.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/checks.h"
#include "../../08_fused_conv_norm/kernels/instances.cuh"
#include "../kernel.cuh"

namespace {

using namespace style_network;
using fused_conv_norm::fused, fused_conv_norm::three_passes, fused_conv_norm::two_passes;

bool skipped(const std::string& what) {
  if (lab::testing::has_device()) return false;
  MESSAGE("skipped: " << what << ": there is no GPU, real or virtual");
  return true;
}

// A view of an array as the steps take it.
struct Parameters {
  lab::DeviceArray<float> weight, gamma, beta;
  ConvNormParameters pointers() const {
    return {weight.data(), nullptr, gamma.data(), beta.data()};
  }
};

// All levels, the next 256 in another order: no period that a row, a block or a plane could have.
unsigned char level_at(size_t i) { return static_cast<unsigned char>(i * 37 + i / 256 * 11); }

}  // namespace

TEST_CASE("network: a residual block is PyTorch's, whichever step computes it") {
  if (skipped("network: a residual block")) return;
  const std::string folder = lab::repository_path("data/golden/");
  const lab::Array inputs = lab::read_npy(folder + "style_residual_inputs.npy"),
                   expected = lab::read_npy(folder + "style_residual_out.npy");
  REQUIRE(expected.shape == std::vector<int64_t>{2, 12, 7, 9});
  const ConvNormShape shape = same_padded(
      {.batch = 2, .in_channels = 12, .out_channels = 12, .height = 7, .width = 9, .eps = 1e-3f});
  size_t at = 0;
  const auto take = [&](int64_t count) {
    std::vector<float> values(inputs.values.begin() + at, inputs.values.begin() + at + count);
    at += count;
    return values;
  };
  const lab::DeviceArray<float> x(take(shape.x_elements()), "x");
  const auto parameters = [&] {
    const std::vector<float> weight = take(shape.weight_elements()), gamma = take(12),
                             beta = take(12);
    return Parameters{{weight, "weight"}, {gamma, "gamma"}, {beta, "beta"}};
  };
  const Parameters first = parameters(), second = parameters();
  REQUIRE(at == inputs.values.size());

  for (const auto& [name, step] : std::vector<std::pair<std::string, ConvNormFunction>>{
           {"three passes", three_passes}, {"two passes", two_passes}, {"fused", fused}}) {
    CAPTURE(name);
    lab::DeviceArray<float> between(shape.y_elements(), "between"), y(shape.y_elements(), "y");
    between.fill_nan();
    y.fill_nan();
    residual_block(step, x.data(), first.pointers(), second.pointers(), between.data(), y.data(),
                   shape, nullptr);
    lab::check(cudaDeviceSynchronize());
    // Sums of 108 products of size 4 or so, divided by their deviation, twice.
    double largest = 0;
    for (const double value : expected.values) largest = std::max(largest, std::abs(value));
    const lab::Comparison result = lab::compare(
        y.download(), expected.values, lab::Tolerance::fp32_sum(2 * 108, largest), {2, 12, 7, 9});
    CHECK_MESSAGE(result.pass, result.describe());
  }

  ConvNormShape narrower = shape;
  narrower.out_channels = 11;
  CHECK_THROWS_AS(residual_block(three_passes, x.data(), first.pointers(), second.pointers(),
                                 nullptr, nullptr, narrower, nullptr),
                  std::invalid_argument);
  ConvNormShape unpadded = shape;
  unpadded.pad_top = 0;
  CHECK_THROWS_AS(residual_block(three_passes, x.data(), first.pointers(), second.pointers(),
                                 nullptr, nullptr, unpadded, nullptr),
                  std::invalid_argument);
}

TEST_CASE("network: pixels to planes, every level") {
  if (skipped("network: pixels to planes")) return;
  const int height = 17, width = 31;  // 527 pixels: two blocks are full, the third is not
  std::vector<unsigned char> rgb(height * width * 3);
  for (size_t i = 0; i < rgb.size(); ++i) rgb[i] = level_at(i);
  const lab::DeviceArray<unsigned char> pixels(rgb, "rgb");
  lab::DeviceArray<float> planes(rgb.size() + 1, "planes");
  planes.fill_nan();
  to_planes(pixels.data(), planes.data(), height, width, nullptr);
  lab::check(cudaDeviceSynchronize());
  const std::vector<float> got = planes.download();
  int wrong = 0;
  for (int c = 0; c < 3; ++c)
    for (int pixel = 0; pixel < height * width; ++pixel)
      wrong += got[c * height * width + pixel] != float(rgb[pixel * 3 + c]) / 255.0f;
  CHECK(wrong == 0);
  CHECK(std::isnan(got.back()));  // nothing beyond the end
}

TEST_CASE("network: planes to pixels, rounded, clamped and cut") {
  if (skipped("network: planes to pixels")) return;
  const float infinity = std::numeric_limits<float>::infinity();
  // tanh saturates at -22.5 and 277.5, which are levels 0 and 255; x = 0 is 127.5, rounded up.
  const std::vector<std::pair<float, int>> levels = {
      {0.0f, 128},    {-infinity, 0}, {infinity, 255}, {-20.0f, 0}, {20.0f, 255},
      {1e-3f, 128},   {-1e-2f, 126},  {0.5f, 197},     {-0.5f, 58}, {1e-38f, 128},
      {1.2533f, 255}, {-1.2533f, 0},  {1.0f, 242},     {-1.0f, 13}, {std::nanf(""), 255}};
  const int plane_height = 8, plane_width = 12, height = 5, width = 11;
  std::vector<float> values(3 * plane_height * plane_width);
  const auto level = [&](int c, int row, int column) {
    const int at = (c * plane_height + row) * plane_width + column;
    return levels[lab::random_bits(1, uint64_t(at)) % levels.size()];
  };
  for (int c = 0; c < 3; ++c)
    for (int row = 0; row < plane_height; ++row)
      for (int column = 0; column < plane_width; ++column)
        values[(c * plane_height + row) * plane_width + column] = level(c, row, column).first;
  const lab::DeviceArray<float> planes(values, "planes");
  lab::DeviceArray<unsigned char> rgb(height * width * 3 + 1, "rgb");
  rgb.upload(std::vector<unsigned char>(rgb.size(), 77));
  to_pixels(planes.data(), rgb.data(), plane_height, plane_width, height, width, nullptr);
  lab::check(cudaDeviceSynchronize());
  const std::vector<unsigned char> got = rgb.download();
  for (int row = 0; row < height; ++row)
    for (int column = 0; column < width; ++column)
      for (int c = 0; c < 3; ++c) {
        const auto [x, expected] = level(c, row + 3, column + 1);
        CAPTURE(x);
        CHECK(int(got[(row * width + column) * 3 + c]) == expected);
      }
  CHECK(got.back() == 77);
  CHECK_THROWS_AS(
      to_pixels(planes.data(), rgb.data(), plane_height, plane_width, 9, width, nullptr),
      std::invalid_argument);
  CHECK_THROWS_AS(
      to_pixels(planes.data(), rgb.data(), plane_height, plane_width, height, 13, nullptr),
      std::invalid_argument);
}

TEST_CASE("lesson: blocks of a residual block's convolution on a small photo and on a large one") {
  if (skipped("lesson: blocks") || fused_conv_norm::device_limits().sm_count != 132) return;
  for (const auto& [size, blocks] : {std::pair{64, 16}, {224, 196}}) {
    CAPTURE(size);
    const ConvNormShape shape = same_padded(
        {.in_channels = 128, .out_channels = 128, .height = size / 4, .width = size / 4});
    const fused_conv_norm::LaunchPlan plan = fused_conv_norm::plan_of(shape);
    CHECK(plan.fits);
    CHECK(plan.blocks == blocks);
    CHECK(plan.tiles_of_block == 1);
  }
}

TEST_CASE("machine code: no spills") {
  lab::testing::check_machine_code("chapters/20_style_network");
}

TEST_CASE("network: planted bugs in the way from pixels to planes and back are caught" *
          doctest::test_suite("toolkit")) {
  if (skipped("network: planted bugs")) return;
  // 300 pixels: the second block of 256 is not full. Both ways must give the pixels back, through
  // planes whose tanh is undone on the way.
  const int height = 12, width = 25, pixels = height * width;
  std::vector<unsigned char> rgb(pixels * 3);
  for (size_t i = 0; i < rgb.size(); ++i) rgb[i] = level_at(i);
  // The last one is a memory error: after it the device does nothing any more.
  const std::vector<lab::testing::Mutant> bugs =
      lab::testing::planted_bugs("20_style_network", "pixels");
  const lab::testing::Mutants mutants("chapters/20_style_network/kernel.cuh", "style_network",
                                      bugs);
  const auto run = [&](size_t number) -> lab::testing::Verdict {
    lab::testing::Verdict verdict;
    const auto caught = [&](const char* by) {
      verdict.caught_by = by;
      return verdict;
    };
    const lab::DeviceArray<unsigned char> from(rgb, "rgb");
    lab::DeviceArray<float> planes(pixels * 3 + 1, "planes");
    planes.fill_nan();
    const auto to_planes = [&] {
      lab::testing::launch(mutants.kernel(number, "planes_kernel"), (pixels + 255) / 256, 256, 0,
                           nullptr, static_cast<const unsigned char*>(from.data()), planes.data(),
                           pixels);
    };
    if (!lab::testing::ran(to_planes, verdict)) return verdict;
    const std::vector<float> got = planes.download();
    if (!std::isnan(got.back())) return caught("guard");
    // One row more above; levels beyond both ends by twice what there is.
    const int plane_height = height + 1;
    std::vector<float> inputs(3 * plane_height * width, 0.5f);
    std::vector<unsigned char> expected(rgb.size());
    for (int c = 0; c < 3; ++c)
      for (int pixel = 0; pixel < pixels; ++pixel) {
        if (got[c * pixels + pixel] != float(rgb[pixel * 3 + c]) / 255.0f) return caught("element");
        const float level = 300.0f * got[c * pixels + pixel] - 22.4f;
        const float x = std::atanh(std::clamp((level - 127.5f) / 150, -0.999f, 0.999f));
        inputs[(c * plane_height + 1) * width + pixel] = x;
        const double exact = std::clamp(std::tanh(double(x)) * 150 + 127.5, 0.0, 255.0);
        expected[pixel * 3 + c] = static_cast<unsigned char>(exact + 0.5);
      }
    const lab::DeviceArray<float> input(inputs, "planes");
    lab::DeviceArray<unsigned char> to(rgb.size(), "rgb");
    const auto to_pixels = [&] {
      lab::testing::launch(mutants.kernel(number, "pixels_kernel"), (pixels + 255) / 256, 256, 0,
                           nullptr, static_cast<const float*>(input.data()), to.data(),
                           plane_height, width, height, width);
    };
    if (!lab::testing::ran(to_pixels, verdict)) return verdict;
    return to.download() == expected ? verdict : caught("element");
  };
  lab::testing::check_each_bug(bugs, 1, [&](size_t number, size_t) { return run(number); });
}
