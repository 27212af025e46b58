// Flags of chapter 8, and the problem and the steps that they name.
#include "options.h"

#include <algorithm>
#include <cmath>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/steps.h"

namespace lab {
namespace {

constexpr int kMaxBatch = 4096, kMaxChannels = 65536, kMaxSide = 65536, kMaxSize = 1024;

// Whether steps whose products are in that format are run.
bool multiplies_in(const ConvNormOptions& options, const std::string& format) {
  return format == "fp32" || options.precision.find(format) != std::string::npos;
}

}  // namespace

ConvNormOptions conv_norm_options(int argc, char** argv, const char* about) {
  ConvNormOptions options;
  ConvNormShape& shape = options.shape;
  options.batch = 1;
  options.out = "responses.png";
  std::string padding = "zero";
  int batch = 0, in_channels = 0, out_channels = 0, height = 0, width = 0, kernel = 0, stride = 0;
  Flags flags(
      about,
      "The problem is a photo under 32 filters (--image, --size), random tensors as soon as\n"
      "--preset or one of a shape's flags is given, or a file (--input; F16 or F32).");
  flags.text("--preset", options.preset, "NAME",
             "small (64 channels, 64x64, kernel 3), deep (128, 128x128,\n"
             "3), wide (64, 256x256, 3) or point (256, 64x64, 1)");
  flags.number("--batch", batch, 1, kMaxBatch, "N", "images (1)");
  flags.number("--in-channels", in_channels, 1, kMaxChannels, "N", "channels of x (64)");
  flags.number("--out-channels", out_channels, 1, kMaxChannels, "N", "channels of y (64)");
  flags.number("--height", height, 1, kMaxSide, "N", "pixels of x (64)");
  flags.number("--width", width, 1, kMaxSide, "N", "pixels of x (64)");
  flags.number("--kernel", kernel, 1, 9, "N", "the filter's side: 1, 3, 4, 5 or 9 (3)");
  flags.number("--stride", stride, 1, 2, "N", "1 or 2 (1); also of --input");
  flags.text("--padding", padding, "NAME",
             "zero or reflect (zero), to ceil(size / stride) pixels;\nalso of --input");
  flags.text("--precision", options.precision, "NAME",
             "fp32, tf32, fp16 or tf32,fp16 (fp32): all but fp32 add\nsteps on tensor cores, which "
             "round what goes into products;\narrays and sums stay fp32");
  flags.text("--storage", options.storage, "NAME",
             "fp32 or fp16 (fp32): of x, weight, residual and y.\nfp16 rounds them, and adds a "
             "step on such arrays\n(with --precision fp16, which goes without saying)");
  flags.text("--step", options.step, "NAME", "this step of the convolution alone");
  flags.given("--residual", options.with_residual, "random tensors with one to add");
  flags.number("--size", options.size, 16, kMaxSize, "PIXELS", "photo's side (224)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.text("--out", options.out, "FILE", "photo and filters' answers, .png or .jpg");
  flags.text("--input", options.input, "FILE",
             "safetensors: x [N, C, H, W], weight, gamma, beta; bias,\nresidual if there are");
  flags.text("--output", options.output, "FILE", "safetensors: out, F32");
  flags.run_flags(options, "of random tensors (1)");
  flags.parse(argc, argv);

  require_one_of("--padding", padding, {"zero", "reflect"});
  require_one_of("--precision", options.precision, {"fp32", "tf32", "fp16", "tf32,fp16"});
  require_one_of("--storage", options.storage, {"fp32", "fp16"});
  if (options.storage == "fp16") {
    if (!flags.given("--precision")) options.precision = "fp16";
    if (!multiplies_in(options, "fp16"))
      throw UsageError("--storage fp16: does not go with --precision " + options.precision +
                       ", numbers in fp16 are multiplied as such (--precision fp16)");
  }
  bool random = options.with_residual;
  for (const char* flag : {"--preset", "--batch", "--in-channels", "--out-channels", "--height",
                           "--width", "--kernel"})
    random = random || flags.given(flag);
  const bool filtered = flags.given("--stride") || flags.given("--padding");
  flags.refuse_with_predict(options);
  const bool photo = flags.given("--image") || flags.given("--size") || flags.given("--out");
  if (flags.given("--input")) {
    flags.refuse({"--preset", "--batch", "--in-channels", "--out-channels", "--height", "--width",
                  "--kernel", "--residual", "--seed"},
                 "does not go with --input: the file has its own shape");
    flags.refuse({"--image", "--size", "--out"},
                 "belongs to a photo, --input is one's own tensors");
  } else if ((random || filtered) && photo) {
    flags.refuse(
        {"--image", "--size", "--out"},
        "belongs to a photo and its filters, a shape's flags to random tensors: choose one");
  }
  options.draws = options.input.empty() && !random && !filtered;
  if (!options.draws) options.out.clear();
  if (options.draws && options.image.empty())
    options.image = repository_path("data/images/chelsea.png");

  shape = preset_conv_norm(options.preset.empty() ? "small" : options.preset);
  const auto take = [](int given, int& into) { into = given ? given : into; };
  take(batch, shape.batch), take(in_channels, shape.in_channels);
  take(out_channels, shape.out_channels), take(height, shape.height), take(width, shape.width);
  take(kernel, shape.kernel), take(stride, shape.stride);
  shape.padding = padding == "zero" ? Padding::kZero : Padding::kReflect;
  options.batch = shape.batch;
  require_files(options);
  return options;
}

// ---- Steps --------------------------------------------------------------------------------------

std::vector<ConvNormStep> chosen_steps(const ConvNormOptions& options,
                                       std::vector<ConvNormStep> steps) {
  std::erase_if(steps, [&](const ConvNormStep& step) {
    return !multiplies_in(options, step.precision) ||
           (step.half_storage() && !options.half_storage());
  });
  return chosen_steps(options.step, steps,
                      options.half_storage() ? "" : "; --precision and --storage add others");
}

void require_runnable(const ConvNormOptions& options, const std::vector<ConvNormStep>& steps) {
  for (const ConvNormStep& step : steps)
    if (const std::string why = step.lacking ? step.lacking() : ""; !why.empty())
      throw LackError("--precision " + options.precision + ": " + why);
}

// ---- The problem --------------------------------------------------------------------------------

ConvNormProblem conv_norm_input(const ConvNormOptions& options) {
  ConvNormProblem problem;
  if (!options.input.empty()) {
    problem = input_conv_norm(options.input, options.shape);
  } else if (options.draws) {
    problem = photo_conv_norm(load_image(options.image), options.size);
    problem.source = format("%s, %d x %d pixels, under 32 filters of 9 x 9 (edges and lines)",
                            file_name(options.image).c_str(), options.size, options.size);
  } else {
    problem.shape = same_padded(options.shape);
  }
  require_conv_norm_shape(problem.shape);
  return problem;
}

int copies_in_memory(const Device& device, const ConvNormShape& shape,
                     const HalfConvNorm& half_step) {
  // On the device x, weights, residual, y and two more of its size; on the host x and weights, and y in
  // double several times.
  const double inputs = 4.0 * double(shape.x_elements() + shape.weight_elements()),
               output = 4.0 * double(shape.y_elements());
  double halves = 0;
  if (half_step.run)  // packed weights are longer by what channels are filled up
    halves = (inputs + 2 * output) / 2 + 2.0 * double(half_step.packed_elements(shape));
  const int copies = rotation_copies(device, (inputs + output) / (half_step.run ? 2 : 1));
  require_memory(device, (inputs + 3 * output + halves) * copies + output,
                 2 * inputs + 8 * output + halves, "convolution of shape " + describe(shape));
  return copies;
}

namespace {

// Beyond 65504 operands of fp16 would be infinite. Where the largest of an array lies below a format's
// normal numbers, all have fewer bits than its 11, and the bound on their rounding would not hold.
void require_range(const ConvNormProblem& problem, const std::string& precision) {
  const bool fp16 = precision.find("fp16") != std::string::npos;
  const float least = fp16 ? 0x1p-14f : 0x1p-126f;
  for (const auto& [name, values] : {std::pair("x", &problem.x), {"weight", &problem.weight}}) {
    float largest = 0;
    for (size_t i = 0; i < values->size(); ++i) {
      const float size = std::abs((*values)[i]);
      largest = std::max(largest, size);
      if (fp16 && !(size <= 65504))
        throw UsageError(
            format("--precision fp16: element %zu of %s is %g, fp16 ends at 65504; "
                   "tf32 has the range of fp32",
                   i, name, double((*values)[i])));
    }
    if (largest > 0 && largest < least)
      throw UsageError(format(
          "--precision %s: the largest element of %s is %g, and below %g %s has fewer than "
          "11 bits; %s",
          precision.c_str(), name, double(largest), double(least), fp16 ? "fp16" : "tf32",
          fp16 ? "tf32 has the range of fp32" : "--precision fp32 has its steps of 1.4e-45"));
  }
}

}  // namespace

ConvNormProblem conv_norm_problem(const ConvNormOptions& options, ConvNormProblem input) {
  if (input.x.empty()) input = random_conv_norm(input.shape, options.seed, options.with_residual);
  if (options.half_storage()) return rounded_to_fp16(std::move(input));
  if (options.precision != "fp32") require_range(input, options.precision);
  return input;
}

ConvNormExpected expected_output(const ConvNormOptions& options, const ConvNormProblem& problem) {
  if (options.predict) return {};
  ConvNormExpected expected = expected_conv_norm(problem);
  require_fp32_range(problem, expected);
  if (options.half_storage())
    for (const double y : expected.y)
      if (std::abs(y) > 65504)
        throw UsageError(format("--storage fp16: y reaches %g, fp16 ends at 65504", y));
  if (options.precision != "fp32")
    expected.rounded_products = rounded_products_tolerance(problem, expected);
  return expected;
}

}  // namespace lab
