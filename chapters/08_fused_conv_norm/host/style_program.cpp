// The program of style transfer: flags, memory, the layers one after the other, the picture.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <span>

#include "../../../common/json/json.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/table.h"
#include "style.h"

namespace lab {
namespace {

constexpr int kMaxPhotoSize = 8192;      // pixels, of --size
constexpr double kReferenceFlops = 2e9;  // of a layer; beyond it some of its channels are compared

struct StyleOptions {
  Options common;
  std::string network;
  bool squared = false;  // to --size
};

StyleOptions style_options(int argc, char** argv) {
  StyleOptions result;
  Options& options = result.common;
  options.out = "styled.png";
  Flags flags("Chapter 8: a style-transfer network on a photo.",
              "The network is a safetensors file; STYLE.md in the chapter's folder says where to\n"
              "find one and what its tensors are called.");
  flags.text("--style", result.network, "FILE", "trained network, safetensors (F16 or F32)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.number("--size", options.size, 1, kMaxPhotoSize, "PIXELS",
               "squared photo's side (without it, the photo as it is)");
  flags.text("--out", options.out, "FILE", "styled picture, .png or .jpg (styled.png)");
  flags.number("--warmup", options.warmup, 0, 1000, "N",
               "runs of a layer before the timed ones (5; virtual: 0)");
  flags.number("--iterations", options.iterations, 1, 1000, "N",
               "timed runs of a layer (50; virtual: 1)");
  flags.text("--json", options.json, "FILE", "result as JSON");
  flags.given("--profile", options.profile, "host time of each layer (virtual GPU)");
  flags.given("--predict", options.predict,
              "predicted times alone (virtual GPU): executes only the\nblocks that they need, and "
              "writes no picture");
  flags.look_flag(options);
  std::string precision = "fp32", storage = "fp32";
  flags.text("--precision", precision, "NAME", "fp32, all that style transfer has");
  flags.text("--storage", storage, "NAME", "fp32, so too");
  flags.parse(argc, argv);
  if (options.predict) {
    flags.refuse({"--out"}, "does not go with --predict, which leaves results incomplete");
    flags.refuse({"--warmup", "--iterations"},
                 "does not go with --predict: each launch is predicted once");
    flags.refuse({"--profile"}, "does not go with --predict, whose host time says nothing");
    options.out.clear();
  }
  if (storage != "fp32")
    throw UsageError("--storage '" + storage +
                     "': does not go with --style, whose layers are stored in fp32");
  if (precision != "fp32")
    throw UsageError("--precision '" + precision +
                     "': does not go with --style, whose layers are computed in fp32");
  if (options.image.empty()) options.image = repository_path("data/images/chelsea.png");
  result.squared = flags.given("--size");
  require_files(options);
  for (const std::string& written : {options.out, options.json, options.look})
    if (!written.empty() && !result.network.empty() && same_file(written, result.network))
      throw UsageError("--style and an output name the same file " + written);
  return result;
}

// ---- What is compared ---------------------------------------------------------------------------

double flops_of(const ConvNormShape& shape) {  // a transposed convolution meets 1 pixel in 4
  return 2.0 * double(shape.y_elements()) * shape.in_channels * shape.kernel * shape.kernel /
         (shape.upsample * shape.upsample);
}

// One layer's y [out_channels, out_height, out_width] with the reference's from the same x; of a
// large one every n-th channel, which stands for itself: each plane is normalized alone. `residual`
// may be empty.
Comparison compare_layer(const StyleLayer& layer, const ConvNormShape& shape,
                         const std::vector<float>& x, const std::vector<float>& residual,
                         const std::vector<float>& y) {
  const int every = std::max(1, int(std::ceil(flops_of(shape) / kReferenceFlops)));
  ConvNormProblem part;
  part.shape = shape;
  part.shape.out_channels = (shape.out_channels + every - 1) / every;
  part.x = x;
  std::vector<float> got;
  const int64_t filter = int64_t(layer.weight.size()) / layer.out_channels, plane = shape.plane();
  for (int c = 0; c < shape.out_channels; c += every) {
    const auto append = [c](std::vector<float>& to, const std::vector<float>& from, int64_t count) {
      to.insert(to.end(), from.begin() + c * count, from.begin() + (c + 1) * count);
    };
    append(part.weight, layer.weight, filter);
    append(part.gamma, layer.gamma, 1);
    append(part.beta, layer.beta, 1);
    append(got, y, plane);
    if (!residual.empty()) append(part.residual, residual, plane);
  }
  const ConvNormExpected expected = expected_conv_norm(part);
  part.source = "--style: layer " + layer.name;
  require_fp32_range(part, expected);
  return compare(got, expected.y, expected.tolerance,
                 {part.shape.out_channels, shape.out_height(), shape.out_width()});
}

// The pixels with what the planes say: rounding is half a level.
Comparison compare_pixels(const std::vector<float>& planes, const ConvNormShape& shape,
                          const Image& picture) {
  const int height = shape.out_height(), width = shape.out_width();
  std::vector<double> expected, got(picture.rgb.begin(), picture.rgb.end());
  for (int row = height - picture.height; row < height; ++row)
    for (int column = width - picture.width; column < width; ++column)
      for (int c = 0; c < 3; ++c) {
        const double x = planes[(int64_t(c) * height + row) * width + column];
        expected.push_back(std::clamp(std::tanh(x) * 150 + 127.5, 0.0, 255.0));
      }
  return compare(got, expected, {.atol = 0.501, .rtol = 0, .relative_l2 = 1},
                 {picture.height, picture.width, 3});
}

// ---- Layers on the device -----------------------------------------------------------------------

struct DeviceLayer {
  DeviceArray<float> weight, gamma, beta;
  explicit DeviceLayer(const StyleLayer& layer)
      : weight(layer.weight, "weight"), gamma(layer.gamma, "gamma"), beta(layer.beta, "beta") {}
  ConvNormParameters parameters() const {
    return {weight.data(), nullptr, gamma.data(), beta.data()};
  }
};

// A line of the table: a layer or a residual block, how it went, and what was compared.
struct LayerResult {
  std::string name, shape, path;
  Timing timing;
  std::vector<Comparison> comparisons;  // none with --predict
  double predicted_us = std::nan("");   // of its launches together; NaN: none
  bool pass() const {
    return std::all_of(comparisons.begin(), comparisons.end(),
                       [](const Comparison& c) { return c.pass; });
  }
};

// What runs is on the screen while it runs, and the rest of its line when it is done. The virtual
// GPU has no time of its own but a predicted one: the host's is shown with --profile alone, as the
// last thing.
void print_table_head(const Device& device, const Options& options) {
  const char* const median = device.is_virtual ? "   predicted" : "   median";
  if (options.predict) {
    std::printf("%-8s %-45s %-12s%s\n", "layer", "channels, height x width, kernel", "path",
                median);
    return;
  }
  const bool host = device.is_virtual && options.profile;
  std::printf("%-8s %-45s %-12s%*s %7s %7s%s\n", "", "", "", int(std::strlen(median)), "", "max",
              "rel.", host ? "             host" : "");
  std::printf("%-8s %-45s %-12s%s %7s %7s  result%s\n", "layer", "channels, height x width, kernel",
              "path", median, "error", "error", host ? "     time" : "");
}
void print_layer(const LayerResult& line) {
  std::printf("%-8s %-45s ", line.name.c_str(), line.shape.c_str());
  std::fflush(stdout);
}
void print_layer_result(const LayerResult& line, const Device& device, const Options& options) {
  std::printf("%-12s", line.path.c_str());
  const std::string us = human_time(line.timing.median_us),
                    predicted = std::isnan(line.predicted_us) ? "-" : human_time(line.predicted_us);
  if (device.is_virtual)
    std::printf(" %11s", predicted.c_str());
  else
    std::printf(" %8s", us.c_str());
  if (options.predict) {
    std::puts("");
    std::fflush(stdout);
    return;
  }
  double max_error = 0, relative_l2 = 0;
  for (const Comparison& c : line.comparisons) {
    max_error = std::max(max_error, c.max_abs_error);
    relative_l2 = std::max(relative_l2, c.relative_l2);
  }
  std::printf(" %7.1e %7.1e  %s", max_error, relative_l2, line.pass() ? "PASS" : "FAIL");
  if (device.is_virtual && options.profile) std::printf("   %8s", us.c_str());
  std::puts("");
  std::fflush(stdout);
}

// "2 x 128 to 128, 56x56, 3x3"
std::string stage_text(const StyleStage& stage) {
  const ConvNormShape& s = stage.shape;
  std::string text = stage.residual ? "2 x " : "";
  text += format("%d to %d, %dx%d", s.in_channels, s.out_channels, s.height, s.width);
  if (s.out_height() != s.height || s.out_width() != s.width)
    text += format(" to %dx%d", s.out_height(), s.out_width());
  return text + format(", %dx%d", s.kernel, s.kernel) + (s.stride == 2 ? ", stride 2" : "") +
         (s.upsample == 2 ? ", transposed" : "");
}

// The most memory that any stage needs while it runs alone.
struct MemoryNeeds {
  int64_t elements = 1;         // of x or y, the larger one
  int64_t between = 1;          // elements between the two layers of a block
  double device = 0, host = 0;  // bytes
};
MemoryNeeds memory_of(const std::vector<StyleLayer>& network, const std::vector<StyleStage>& stages,
                      const Image& photo) {
  MemoryNeeds memory;
  double scratch = 0, weights = 0;
  for (const StyleLayer& layer : network)
    weights += 4.0 * double(layer.weight.size() + layer.gamma.size() + layer.beta.size());
  for (const StyleStage& stage : stages) {
    const int64_t x = stage.shape.x_elements(), y = stage.shape.y_elements();
    memory.elements = std::max({memory.elements, x, y});
    if (stage.residual) memory.between = std::max(memory.between, y);
    // Three passes keep two arrays like y more; the reference has x padded, conv and y in double.
    scratch = std::max(scratch, 8.0 * double(y));
    memory.host = std::max(memory.host, 4.0 * double(x + 2 * y) + 16.0 * double(x + y));
  }
  memory.device = weights + scratch + 4.0 * double(2 * memory.elements + memory.between) +
                  double(photo.rgb.size());
  memory.host += 2 * weights + 30.0 * double(photo.rgb.size());
  return memory;
}

// Runs `launch` as often as the options say and leaves the time in the line. A layer of the same
// shape as one of `before` takes as long: it is not predicted again, with --predict not launched.
void time_layer(LayerResult& line, std::span<const LayerResult> before, const Device& device,
                const Options& options, const std::function<void()>& launch) {
  print_layer(line);
  const auto alike = std::find_if(before.begin(), before.end(), [&](const LayerResult& other) {
    return other.shape == line.shape && std::isfinite(other.predicted_us);
  });
  const bool known = alike != before.end();
  if (known) line.predicted_us = alike->predicted_us;
  if (known && options.predict) return;
  const vgpu::Predicting predicting(device.is_virtual && !known);
  line.timing = time_stages(device, {[&](int) { launch(); }}, options.warmup, options.iterations,
                            /*predicted=*/false)[0];
  if (!known) line.predicted_us = predicting.us() / (options.warmup + options.iterations);
}

Image run_network(const std::vector<StyleLayer>& network, const std::vector<StyleStage>& stages,
                  const StyleKernels& kernels, const Image& photo, const Device& device,
                  const Options& options, const MemoryNeeds& memory,
                  std::vector<LayerResult>& lines) {
  DeviceArray<unsigned char> pixels(photo.rgb, "pixels");
  DeviceArray<float> x(memory.elements, "x"), y(memory.elements, "y");
  DeviceArray<float> between(memory.between, "between");
  kernels.planes_of(pixels.data(), x.data(), photo.height, photo.width, nullptr);
  check(cudaDeviceSynchronize());
  std::vector<float> x_host = x.download(0, photo.rgb.size());
  for (size_t i = 0; i < x_host.size(); ++i) {
    const size_t plane = photo.rgb.size() / 3;
    const double level = photo.rgb[i % plane * 3 + i / plane];
    if (std::abs(x_host[i] - level / 255) > 1e-6)
      throw std::runtime_error(
          format("planes_of: element %zu is %g, level %g was meant", i, double(x_host[i]), level));
  }

  for (const StyleStage& stage : stages) {
    const ConvNormShape& shape = stage.shape;
    const DeviceLayer first(network[stage.first]),
        second(network[stage.first + (stage.residual ? 1 : 0)]);
    const ConvNormParameters p = first.parameters();
    lines.push_back({stage.name, stage_text(stage), "", {}, {}});
    LayerResult& line = lines.back();
    const std::span before(lines.data(), lines.size() - 1);
    y.fill_nan();
    between.fill_nan();
    time_layer(line, before, device, options, [&] {
      if (stage.residual)
        kernels.residual_block(kernels.conv_norm, x.data(), p, second.parameters(), between.data(),
                               y.data(), shape, nullptr);
      else
        kernels.conv_norm(x.data(), p.weight, nullptr, p.gamma, p.beta, nullptr, y.data(), shape,
                          nullptr);
    });
    line.path = kernels.path(shape);  // what it was: a launch may have been refused
    if (options.predict) {
      print_layer_result(line, device, options);
      std::swap(x, y);
      continue;
    }
    std::vector<float> y_host = y.download(0, shape.y_elements());
    if (stage.residual) {
      const std::vector<float> middle = between.download(0, shape.y_elements());
      ConvNormShape last = shape;
      last.relu = false;
      line.comparisons = {compare_layer(network[stage.first], shape, x_host, {}, middle),
                          compare_layer(network[stage.first + 1], last, middle, x_host, y_host)};
    } else {
      line.comparisons = {compare_layer(network[stage.first], shape, x_host, {}, y_host)};
    }
    print_layer_result(line, device, options);
    std::swap(x, y);
    x_host = std::move(y_host);
  }

  Image picture = photo;
  const ConvNormShape& last = stages.back().shape;
  pixels.fill_nan();
  const std::string shape = format("%dx%d, clamp(150 tanh + 127.5)", photo.height, photo.width);
  lines.push_back({"pixels", shape, "", {}, {}});
  time_layer(lines.back(), {}, device, options, [&] {
    kernels.pixels_of(x.data(), pixels.data(), last.out_height(), last.out_width(), photo.height,
                      photo.width, nullptr);
  });
  picture.rgb = pixels.download();
  if (!options.predict) lines.back().comparisons = {compare_pixels(x_host, last, picture)};
  print_layer_result(lines.back(), device, options);
  return picture;
}

// Times of all layers together.
void print_sums(const std::vector<LayerResult>& lines, const Device& device,
                const Options& options) {
  double us = 0, predicted = 0;
  for (const LayerResult& line : lines) us += line.timing.median_us, predicted += line.predicted_us;
  if (!device.is_virtual) {
    std::printf("\nAll layers: %s, the sum of their medians\n", human_time(us).c_str());
    return;
  }
  const double error = vgpu::counter("/predicted/error");
  if (std::isfinite(predicted))
    std::printf("\nAll layers, predicted: %s +-%.0f%%, the sum of their launches\n",
                human_time(predicted).c_str(), 100 * error);
  else
    std::printf("\nAll layers, predicted: no sum, since not every layer has a time: %s\n",
                vgpu::prediction_refused() ? "switched off (VGPU_TIME=0)"
                : vgpu::can_predict()      ? "VGPU_TIME=1 says why"
                                           : "this virtual GPU does not predict times");
  if (options.profile)
    std::printf(
        "All layers: %s of host time, which the virtual GPU took on this machine's CPU: no "
        "GPU's time\n",
        human_time(us).c_str());
}

void write_json(const StyleOptions& all, const char* chapter, const Device& device,
                const Image& picture, const std::vector<LayerResult>& lines, bool pass) {
  json::Value result;
  result["chapter"] = chapter;
  result["style"] = file_name(all.network);
  result["image"] = file_name(all.common.image);
  result["height"] = picture.height;
  result["width"] = picture.width;
  result["device"] = {{"name", device.name}, {"virtual", device.is_virtual}};
  result["warmup"] = all.common.warmup;
  result["iterations"] = all.common.iterations;
  for (const LayerResult& line : lines) {
    json::Value entry = {{"name", line.name},
                         {"shape", line.shape},
                         {"path", line.path},
                         {"clock", line.timing.host_time ? "wall time on the host" : "CUDA events"},
                         {"median_us", line.timing.median_us},
                         {"min_us", line.timing.min_us},
                         {"predicted_us", line.predicted_us}};  // NaN: null
    for (const Comparison& c : line.comparisons)
      entry["comparisons"].push_back({{"compared_elements", c.count},
                                      {"wrong_elements", c.bad},
                                      {"max_abs_error", c.max_abs_error},
                                      {"relative_l2", c.relative_l2}});
    entry["pass"] = all.common.predict ? json::Value() : json::Value(line.pass());
    result["layers"].push_back(entry);
  }
  result["findings"] = vgpu::findings();
  result["pass"] = all.common.predict ? json::Value() : json::Value(pass);
  write_file(all.common.json, result.dump(2) + "\n");
}

ExitCode style_program(int argc, char** argv, const char* chapter, const StyleKernels& kernels) {
  StyleOptions all = style_options(argc, argv);
  Options& options = all.common;
  const std::vector<StyleLayer> network = read_style_network(all.network);
  Image photo = load_image(options.image);
  if (all.squared) photo = square(photo, options.size);
  std::vector<StyleStage> stages;
  try {
    stages = style_stages(network, photo.height, photo.width);
  } catch (const std::invalid_argument& error) {
    throw UsageError(format("%d x %d pixels are too many (fewer: --size PIXELS): %s", photo.width,
                            photo.height, error.what()));
  }
  const Device device = open_device();
  complete_for(device, options,
               "--profile shows what the virtual GPU takes (make DEVICE=vgpu); on this GPU: "
               "nsys profile ./run");
  const MemoryNeeds memory = memory_of(network, stages, photo);
  const std::string what = format("style transfer of %d x %d pixels", photo.width, photo.height);
  require_memory(device, memory.device, memory.host, what + " (a smaller picture: --size PIXELS)");

  double flops = 0;
  for (const StyleStage& stage : stages) flops += flops_of(stage.shape) * (stage.residual ? 2 : 1);
  std::printf("device   %s%s\nproblem  %s in the style of %s, %d x %d pixels, %.1f GFLOP\n\n",
              device.name.c_str(), device.is_virtual ? " (virtual GPU)" : "",
              file_name(options.image).c_str(), file_name(all.network).c_str(), photo.width,
              photo.height, flops / 1e9);
  print_table_head(device, options);
  std::vector<LayerResult> lines;
  const Image picture =
      run_network(network, stages, kernels, photo, device, options, memory, lines);

  bool pass = true;
  for (const LayerResult& line : lines) pass = pass && line.pass();
  print_sums(lines, device, options);
  if (options.predict) {
    std::puts(
        "Only the blocks that predicted times need were executed: there is no picture, and nothing "
        "was compared.");
    if (!options.json.empty()) write_json(all, chapter, device, picture, lines, pass);
    return kCorrect;
  }
  std::puts(
      "max error: the largest error of one element of the layer's output\n"
      "rel. error: the errors of all elements (their norm), divided by the reference's norm");
  const ConvNormShape& last = stages.back().shape;
  if (last.out_height() != photo.height || last.out_width() != photo.width)
    std::printf(
        "The network makes %d x %d pixels of it, multiples of 4; what is too much is cut "
        "off above\nand on the left, where padding had moved the picture from.\n",
        last.out_width(), last.out_height());
  for (const LayerResult& line : lines)
    for (const Comparison& c : line.comparisons)
      if (!c.pass) std::printf("%s: %s\n", line.name.c_str(), c.describe().c_str());
  save_image(options.out, picture);
  std::printf("%s: %d x %d pixels\n", options.out.c_str(), picture.width, picture.height);
  if (!options.json.empty()) write_json(all, chapter, device, picture, lines, pass);
  if (!pass) return kWrong;
  if (vgpu::findings() > 0) {
    std::printf("%d findings of the virtual GPU's checks\n", vgpu::findings());
    return kFindings;
  }
  return kCorrect;
}

}  // namespace

bool style_asked(int argc, const char* const* argv) {
  return std::any_of(argv + 1, argv + argc, [](const char* word) {
    return std::strcmp(word, "--style") == 0 || std::strncmp(word, "--style=", 8) == 0;
  });
}

int style_main(int argc, char** argv, const char* chapter, const StyleKernels& kernels) {
  return guarded_main(chapter, [&] { return style_program(argc, argv, chapter, kernels); });
}

}  // namespace lab
