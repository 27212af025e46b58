// Convolution and instance norm: the oracle agrees with PyTorch, with numbers worked out by hand
// and with the formula taken literally; shapes say and refuse what they should.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "../../../common/json/json.h"
#include "../../../common/lab.cuh"
#include "../../../common/lab/device.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/random.h"
#include "../../../common/testing/testing.h"
#include "../../../common/testing/text.h"
#include "../host/problem.h"
#include "../host/reference.h"
#include "test_golden.h"
#include "test_support.h"

using lab::testing::contains;
using lab::testing::ConvNormCase;
using lab::testing::or_null;

namespace {

std::vector<double> reference_output(const ConvNormCase& c) {
  std::vector<double> y(c.shape.y_elements());
  reference::conv_norm(c.x.data(), c.weight.data(), or_null(c.bias), c.gamma.data(), c.beta.data(),
                       or_null(c.residual), c.shape, y.data());
  return y;
}

// What 12 digits leave of numbers of that size.
lab::Tolerance digits(const std::vector<double>& values, double relative) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return {.atol = relative * largest, .rtol = relative, .relative_l2 = relative};
}

lab::Comparison compare(const std::vector<double>& got, const std::vector<double>& expected,
                        double relative, const ConvNormShape& s) {
  return lab::compare(got, expected, digits(expected, relative),
                      {s.batch, s.out_channels, s.out_height(), s.out_width()});
}

// What require_conv_norm_shape says against it, empty if nothing.
std::string refusal(const ConvNormShape& shape) {
  try {
    require_conv_norm_shape(shape);
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("conv-norm reference: PyTorch's arrays to 12 digits") {
  const std::vector<ConvNormCase> cases = lab::testing::conv_norm_golden_cases();
  std::set<std::array<int, 3>> seen;  // kernel, stride, padding
  for (const ConvNormCase& c : cases) {
    CAPTURE(c.name);
    require_conv_norm_shape(c.shape);
    std::vector<double> conv(c.shape.y_elements());
    reference::convolution(c.x.data(), c.weight.data(), or_null(c.bias), c.shape, conv.data());
    lab::Comparison result = compare(conv, c.conv, 1e-12, c.shape);
    CHECK_MESSAGE(result.pass, result.describe());
    // A mean of 1e4 takes 4 digits of the deviations.
    result = compare(reference_output(c), c.y, 1e-11, c.shape);
    CHECK_MESSAGE(result.pass, result.describe());
    if (c.values == "normal" && c.shape.upsample == 1)
      seen.insert({c.shape.kernel, c.shape.stride, int(c.shape.padding)});
  }
  for (const int kernel : {1, 3, 4, 5, 9})
    for (const int stride : {1, 2})
      for (const int padding : {0, 1}) {
        CAPTURE(kernel);
        CAPTURE(stride);
        CAPTURE(padding);
        CHECK(seen.count({kernel, stride, padding}) == 1);
      }
  for (const char* kind : {"bias 1e4", "x 1e4", "huge", "beyond", "denormal"}) {
    CAPTURE(kind);
    CHECK(std::any_of(cases.begin(), cases.end(),
                      [&](const ConvNormCase& c) { return c.values == kind; }));
  }
}

TEST_CASE("conv-norm reference: four pixels by hand") {
  // x = 1 2 / 3 4, taps 1 (upper left) and 10 (middle), zeros around: pixel (i, j) is
  // 10 x(i, j) + x(i-1, j-1), so 10 20 / 30 41. Mean 25.25, deviations -15.25 -5.25 4.75 15.75.
  const ConvNormShape shape{.height = 2, .width = 2, .eps = 0};
  const std::vector<float> x = {1, 2, 3, 4}, weight = {1, 0, 0, 0, 10, 0, 0, 0, 0};
  const float bias = 7, gamma = 2, beta = 1;
  std::vector<double> y(4);
  reference::convolution(x.data(), weight.data(), &bias, shape, y.data());
  CHECK(y == std::vector<double>{17, 27, 37, 48});
  const double deviation =
      std::sqrt((15.25 * 15.25 + 5.25 * 5.25 + 4.75 * 4.75 + 15.75 * 15.75) / 4);
  reference::conv_norm(x.data(), weight.data(), &bias, &gamma, &beta, nullptr, shape, y.data());
  CHECK(y[0] == 0);  // 1 - 2.6 behind the ReLU
  CHECK(y[1] == doctest::Approx(1 - 2 * 5.25 / deviation));
  CHECK(y[2] == doctest::Approx(1 + 2 * 4.75 / deviation));
  CHECK(y[3] == doctest::Approx(1 + 2 * 15.75 / deviation));
  // Mirrored at the outermost pixel, what is left above (0, 0) is x(1, 1) = 4.
  ConvNormShape mirrored = shape;
  mirrored.padding = Padding::kReflect;
  reference::convolution(x.data(), weight.data(), nullptr, mirrored, y.data());
  CHECK(y == std::vector<double>{14, 23, 32, 41});
  // A plane of one value has variance 0: beta is left.
  const std::vector<float> same = {5, 5, 5, 5};
  ConvNormShape pixel{.height = 2,
                      .width = 2,
                      .kernel = 1,
                      .pad_top = 0,
                      .pad_left = 0,
                      .pad_bottom = 0,
                      .pad_right = 0};
  reference::conv_norm(same.data(), x.data(), nullptr, &gamma, &beta, x.data(), pixel, y.data());
  CHECK(y == std::vector<double>{2, 3, 4, 5});
}

TEST_CASE("conv-norm reference: more channels than are computed together, rows by the formula") {
  const ConvNormShape shape = same_padded({.batch = 2,
                                           .in_channels = 5,
                                           .out_channels = 6,
                                           .height = 9,
                                           .width = 11,
                                           .kernel = 5,
                                           .stride = 2});
  std::vector<float> x(shape.x_elements()), weight(shape.weight_elements());
  for (size_t i = 0; i < x.size(); ++i) x[i] = float(int(lab::random_bits(1, i) % 17) - 8);
  for (size_t i = 0; i < weight.size(); ++i)
    weight[i] = float(int(lab::random_bits(2, i) % 17) - 8);
  std::vector<double> conv(shape.y_elements());
  reference::convolution(x.data(), weight.data(), nullptr, shape, conv.data());
  int64_t wrong = 0;
  for (int64_t i = 0; i < int64_t(conv.size()); ++i) {
    const int64_t column = i % shape.out_width(), row = i / shape.out_width() % shape.out_height();
    const int64_t plane = i / shape.plane(), m = plane % 6, n = plane / 6;
    double sum = 0;  // whole numbers: exact in any order
    for (int c = 0; c < 5; ++c)
      for (int tap = 0; tap < 25; ++tap) {
        const int64_t at_y = row * 2 + tap / 5 - shape.pad_top,
                      at_x = column * 2 + tap % 5 - shape.pad_left;
        if (at_y >= 0 && at_y < 9 && at_x >= 0 && at_x < 11)
          sum += x[((n * 5 + c) * 9 + at_y) * 11 + at_x] * weight[(m * 5 + c) * 25 + tap];
      }
    wrong += conv[i] != sum;
  }
  CHECK(wrong == 0);
}

TEST_CASE("conv-norm reference: NaN is passed on, behind the ReLU too") {
  const ConvNormShape shape{.height = 3,
                            .width = 3,
                            .kernel = 1,
                            .pad_top = 0,
                            .pad_left = 0,
                            .pad_bottom = 0,
                            .pad_right = 0};
  std::vector<float> x(9, 1.0f), one = {1.0f};
  x[4] = std::nanf("");
  std::vector<double> y(9);
  reference::conv_norm(x.data(), one.data(), nullptr, one.data(), one.data(), nullptr, shape,
                       y.data());
  CHECK(std::all_of(y.begin(), y.end(), [](double value) { return std::isnan(value); }));
}

TEST_CASE("conv-norm shapes: SAME padding, sizes and words") {
  // TensorFlow's: max((ceil(size / stride) - 1) stride + kernel - size, 0), half of it first.
  const auto padded = [](int height, int width, int kernel, int stride) {
    return same_padded({.height = height, .width = width, .kernel = kernel, .stride = stride});
  };
  const auto pads = [](const ConvNormShape& s) {
    return std::array<int, 4>{s.pad_top, s.pad_bottom, s.pad_left, s.pad_right};
  };
  CHECK(pads(padded(8, 9, 3, 2)) == std::array<int, 4>{0, 1, 1, 1});
  CHECK(pads(padded(8, 9, 9, 1)) == std::array<int, 4>{4, 4, 4, 4});
  CHECK(pads(padded(8, 9, 4, 1)) == std::array<int, 4>{1, 2, 1, 2});
  CHECK(pads(padded(1, 2, 5, 2)) == std::array<int, 4>{2, 2, 1, 2});
  CHECK(pads(padded(8, 9, 1, 2)) == std::array<int, 4>{0, 0, 0, 0});
  for (const int kernel : {1, 3, 4, 5, 9})
    for (const int stride : {1, 2})
      for (int size = 1; size < 20; ++size) {
        const ConvNormShape shape = padded(size, size + 3, kernel, stride);
        CHECK(refusal(shape) == "");
        CHECK(shape.out_height() == (size + stride - 1) / stride);
        CHECK(shape.out_width() == (size + 3 + stride - 1) / stride);
      }
  for (const int kernel : {3, 4, 5, 9}) {
    const ConvNormShape shape =
        same_padded({.height = 5, .width = 1, .kernel = kernel, .upsample = 2});
    CHECK(refusal(shape) == "");
    CHECK(shape.out_height() == 10);
    CHECK(shape.out_width() == 2);
  }
  CHECK(pads(same_padded({.kernel = 3, .upsample = 2})) == std::array<int, 4>{2, 1, 2, 1});
  CHECK(refusal(same_padded({.kernel = 1, .upsample = 2})) == "");

  const ConvNormShape shape = same_padded({.batch = 2,
                                           .in_channels = 64,
                                           .out_channels = 128,
                                           .height = 256,
                                           .width = 255,
                                           .stride = 2});
  CHECK(describe(shape) ==
        "[batch 2, channels 64 to 128, 256x255, kernel 3, stride 2, zeros 0 1 1 1]");
  CHECK(describe(same_padded({.height = 4, .width = 5, .upsample = 2})) ==
        "[batch 1, channels 1 to 1, 4x5, kernel 3, stride 1, upsample 2, zeros 2 1 2 1]");
  CHECK(contains(describe({.padding = Padding::kReflect}), "reflection 1 1 1 1"));
  CHECK(shape.x_elements() == 2 * 64 * 256 * 255);
  CHECK(shape.weight_elements() == 128 * 64 * 9);
  CHECK(shape.planes() == 256);
  CHECK(shape.plane() == 128 * 128);
  CHECK(shape.y_elements() == 256 * 128 * 128);
}

TEST_CASE("conv-norm shapes: every limit, and what is just inside") {
  const ConvNormShape good{
      .batch = 2, .in_channels = 3, .out_channels = 4, .height = 5, .width = 6};
  CHECK(refusal(good) == "");
  const auto changed = [&](auto change) {
    ConvNormShape shape = good;
    change(shape);
    return refusal(shape);
  };
  const char* at_least = "batch, channels, height and width must be at least 1";
  for (int ConvNormShape::*size :
       {&ConvNormShape::batch, &ConvNormShape::in_channels, &ConvNormShape::out_channels,
        &ConvNormShape::height, &ConvNormShape::width}) {
    for (const int value : {0, -1, INT32_MIN})
      CHECK(contains(changed([&](auto& s) { s.*size = value; }), at_least));
    CHECK(changed([&](auto& s) { s.*size = 1; }) == "");
  }
  for (const int kernel : {-1, 0, 2, 6, 7, 8, 10})
    CHECK(contains(changed([&](auto& s) { s.kernel = kernel; }), "kernel must be 1, 3, 4, 5 or 9"));
  for (const int stride : {-1, 0, 3})
    CHECK(contains(changed([&](auto& s) { s.stride = stride; }), "stride must be 1 or 2"));
  for (const int upsample : {0, 3, 4})
    CHECK(contains(changed([&](auto& s) { s.upsample = upsample; }), "upsample must be 1 or 2"));
  const char* upsampled = "upsample needs stride 1 and padding with zeros";
  CHECK(contains(changed([&](auto& s) { s.upsample = s.stride = 2; }), upsampled));
  CHECK(contains(changed([&](auto& s) { s.upsample = 2, s.padding = Padding::kReflect; }),
                 upsampled));
  CHECK(changed([&](auto& s) { s.upsample = 2; }) == "");

  for (int ConvNormShape::*pad : {&ConvNormShape::pad_top, &ConvNormShape::pad_bottom,
                                  &ConvNormShape::pad_left, &ConvNormShape::pad_right}) {
    for (const int value : {-1, 3, INT32_MAX})
      CHECK(contains(changed([&](auto& s) { s.*pad = value; }), "padding must be 0 to kernel - 1"));
    for (const int value : {0, 2}) CHECK(changed([&](auto& s) { s.*pad = value; }) == "");
    // A picture of one pixel has nothing to mirror; of 3 there are 2 beside the outermost one.
    const auto mirrored = [&](int size, int value) {
      return changed([&](auto& s) {
        s.padding = Padding::kReflect;
        s.height = s.width = size;
        s.pad_top = s.pad_bottom = s.pad_left = s.pad_right = size > 1 ? 1 : 0;
        s.kernel = size > 1 ? 5 : 1;
        if (size == 1) s.kernel = 3, s.pad_top = s.pad_bottom = s.pad_left = s.pad_right = 0;
        s.*pad = value;
      });
    };
    CHECK(contains(mirrored(1, 1), "padding by reflection must be less than height and width"));
    CHECK(contains(mirrored(3, 3), "padding by reflection must be less than height and width"));
    CHECK(mirrored(3, 2) == "");
  }

  const char* fit = "the kernel must fit into the padded picture";
  const auto small = [&](int height, int width, int pad) {
    return changed([&](auto& s) {
      s.kernel = 5, s.height = height, s.width = width;
      s.pad_top = s.pad_left = pad, s.pad_bottom = s.pad_right = 1;
    });
  };
  CHECK(contains(small(1, 4, 2), fit));
  CHECK(contains(small(4, 1, 2), fit));
  CHECK(small(2, 2, 2) == "");

  // 2^31 elements are one too many. 46341² is the first square beyond it.
  const char* elements = "x, weight and y must have fewer than 2^31 elements";
  const auto single = [](int channels, int out_channels, int height, int width, int batch = 1) {
    return refusal({.batch = batch,
                    .in_channels = channels,
                    .out_channels = out_channels,
                    .height = height,
                    .width = width,
                    .kernel = 1,
                    .pad_top = 0,
                    .pad_left = 0,
                    .pad_bottom = 0,
                    .pad_right = 0});
  };
  CHECK(single(1, 1, 46340, 46340) == "");
  CHECK(contains(single(1, 1, 46341, 46341), elements));
  CHECK(contains(single(2, 1, 32768, 32768), elements));     // x
  CHECK(contains(single(1, 2, 32768, 32768), elements));     // y
  CHECK(contains(single(1, 1, 32768, 32768, 2), elements));  // both, by the batch
  CHECK(contains(single(46341, 46341, 1, 1), elements));     // weight
  CHECK(single(46340, 46340, 1, 1) == "");
  CHECK(contains(single(1, 1, 1 << 29, 1), "height and width must be fewer than 2^29"));
  CHECK(contains(single(1, 1, 1, 1 << 29), "height and width must be fewer than 2^29"));
  CHECK(single(1, 1, 1, (1 << 29) - 1) == "");
  CHECK(contains(single(1, 1, INT32_MAX, INT32_MAX), "2^29"));
  CHECK(contains(single(INT32_MAX, INT32_MAX, 1, 1, INT32_MAX), elements));

  // The shape itself is part of the message.
  CHECK(contains(changed([](auto& s) { s.kernel = 7; }),
                 "convolution of shape [batch 2, channels 3 to 4, 5x6, kernel 7, stride 1, zeros 1 "
                 "1 1 1]: kernel"));
}

TEST_CASE("conv-norm cost: each step is held against the units that its precision asks for") {
  // 128 -> 128 channels, 128 x 128, 3 x 3; an operation is half a multiply-add.
  const ConvNormShape deep = lab::preset_conv_norm("deep");
  const double elements = 2 * 128. * 128 * 128 + 128. * 128 * 9, flops = 4831838208;
  const lab::Cost fp32 = lab::conv_norm_cost(deep, false, "fp32");
  CHECK(fp32.bytes == 4 * elements);
  CHECK(fp32.flops == flops);
  CHECK_FALSE(fp32.tensor_cores);
  const lab::Cost tf32 = lab::conv_norm_cost(deep, true, "tf32");
  CHECK(tf32.bytes == 4 * (elements + 128. * 128 * 128));
  CHECK(tf32.tensor_cores);
  CHECK(tf32.tensor_rate == 0.5);
  const lab::Cost fp16 = lab::conv_norm_cost(deep, false, "fp16", 2);
  CHECK(fp16.bytes == 2 * elements);
  CHECK(fp16.flops == flops);
  CHECK(fp16.tensor_cores);
  CHECK(fp16.tensor_rate == 1);
}

namespace {

// The files of the chapter that `file` includes, itself and those that they include among them.
std::set<std::string> kernel_files(const std::string& file) {
  std::set<std::string> found;
  std::vector<std::string> waiting = {file};
  while (!waiting.empty()) {
    const std::string name = waiting.back();
    waiting.pop_back();
    if (!found.insert(name).second) continue;
    std::istringstream lines(
        lab::testing::file_content(lab::repository_path("chapters/08_fused_conv_norm/" + name)));
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("#include \"") && line.ends_with(".cuh\""))
        waiting.push_back(
            (std::filesystem::path(name).parent_path() / line.substr(10, line.size() - 11))
                .lexically_normal()
                .string());
  }
  return found;
}

}  // namespace

TEST_CASE("conv-norm files: fused is read in six, and no step knows a later one") {
  CHECK(kernel_files("2_fused.cuh") ==
        std::set<std::string>{"2_fused.cuh", "parts/convolve.cuh", "parts/moments.cuh",
                              "parts/plane_moments.cuh", "parts/tiles.cuh",
                              "parts/two_passes.cuh"});
  for (const char* step : {"1_three_passes.cuh", "2_fused.cuh"})
    for (const std::string& name : kernel_files(step)) {
      CAPTURE(name);
      std::string text =
          lab::testing::file_content(lab::repository_path("chapters/08_fused_conv_norm/" + name));
      std::transform(text.begin(), text.end(), text.begin(),
                     [](char c) { return std::tolower(c); });
      for (const char* later : {"tf32", "fp16", "half", "tensor", "mma.sync"}) {
        CAPTURE(later);
        CHECK(text.find(later) == std::string::npos);
      }
    }
  for (const std::string& name : kernel_files("1_three_passes.cuh"))
    CHECK(lab::testing::file_content(lab::repository_path("chapters/08_fused_conv_norm/" + name))
              .find("fused()") == std::string::npos);
}

TEST_CASE("conv-norm program: --step names one step, of which a variant runs only so") {
  if (!lab::testing::has_device()) {
    MESSAGE("skipped: --step: there is no device");
    return;
  }
  const lab::testing::TemporaryFolder folder;
  const auto has_lines = [&](std::vector<std::string> arguments, const char* step) {
    for (const char* more :
         {"--in-channels", "4", "--out-channels", "8", "--height", "12", "--width", "12"})
      arguments.push_back(more);
    const auto result = lab::testing::run_program("chapter8", arguments, folder.folder());
    CAPTURE(result.output);
    CAPTURE(result.errors);
    REQUIRE(result.exit_code == 0);
    return result.output.find(std::string("\n") + step + " ") != std::string::npos;
  };
  const std::vector<std::string> alone = {"--step", "two passes"};
  for (const char* line : {"two passes", "  first pass", "  second pass"})
    CHECK(has_lines(alone, line));
  for (const char* line : {"fused", "three passes", "naive norm"})
    CHECK_FALSE(has_lines(alone, line));
  CHECK(has_lines({}, "fused"));
  CHECK_FALSE(has_lines({}, "two passes"));
}

TEST_CASE("conv-norm program: --predict has times of all launches and no results") {
  if (!lab::testing::has_device() || !lab::vgpu::present()) {
    MESSAGE("skipped: --predict: there is no virtual GPU");
    return;
  }
  const lab::testing::TemporaryFolder folder;
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--predict", "--in-channels", "8", "--out-channels", "16",
                                       "--height", "20", "--width", "20"});
    return lab::testing::run_program("chapter8", arguments, folder.folder());
  };
  const lab::testing::ProgramResult result =
      run({"--json", "out.json", "--storage", "fp16", "--precision", "tf32,fp16"});
  CAPTURE(result.errors);
  REQUIRE(result.exit_code == 0);
  CHECK(folder.names() == std::vector<std::string>{"out.json"});  // no picture
  CHECK(result.output.find("FAIL") == std::string::npos);
  CHECK(result.output.find("PASS") == std::string::npos);
  CHECK(result.output.find("read again") == std::string::npos);  // counters are not of all blocks
  const json::Value result_file = json::parse(lab::testing::file_content(folder.path("out.json")));
  std::map<std::string, double> us;
  for (const json::Value& kernel : result_file.at("kernels")) {
    const auto name = kernel.at("name").get<std::string>();
    CAPTURE(name);
    CHECK(kernel.at("pass").is_null());
    // A time, or in words why there is none: never neither, never both.
    CHECK(kernel.at("predicted_us").is_null() == kernel.at("predicted_why").is_string());
    if (kernel.at("predicted_us").is_null()) continue;
    us[name] = kernel.at("predicted_us").get<double>();
    CHECK(us[name] > 0);
  }
  REQUIRE(us["three passes"] > 0);
  CHECK(us["three passes"] ==
        doctest::Approx(us["convolution"] + us["instance norm"] + us["ReLU"]));
  for (const std::string flag : {"--output", "--iterations", "--warmup"}) {
    CAPTURE(flag);
    const auto refused = run({flag, "1"});
    CHECK(refused.exit_code == 2);
    CHECK(refused.errors.find(flag + " does not go with --predict") != std::string::npos);
  }
}
