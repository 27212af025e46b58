// The program of chapter 8: flags, memory, problem, steps, instance norm alone, picture.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "../../common/lab/errors.h"
#include "../../common/lab/program.h"
#include "../../common/lab/report.h"
#include "../../common/lab/tensors.h"
#include "../../common/lab/images.h"
#include "../../common/lab/device.h"
#include "problem.h"
#include "../../common/lab/files.h"
#include "../../common/lab/flags.h"
#include "reference.h"

namespace lab {
namespace {

constexpr int kMaxBatch = 4096, kMaxChannels = 65536, kMaxSide = 65536, kMaxSize = 1024;

struct ConvNormOptions {
  Options common;
  ConvNormShape shape;  // of a random problem; of a file's the way of the filter
  std::string preset;   // that it comes from
  bool with_residual = false, draws = true;
  std::string precision = "fp32", storage = "fp32";

  bool has(const std::string& of_products) const {
    return of_products == "fp32" || precision.find(of_products) != std::string::npos;
  }
};

ConvNormOptions conv_norm_options(int argc, char** argv, const char* about) {
  ConvNormOptions result;
  Options& options = result.common;
  ConvNormShape& shape = result.shape;
  options.batch = 1;
  options.out = "responses.png";
  std::string padding = "zero";
  int batch = 0, in_channels = 0, out_channels = 0, height = 0, width = 0, kernel = 0, stride = 0;
  Flags flags(
      about,
      "The problem is a photo under 32 filters (--image, --size), random tensors as soon as\n"
      "--preset or one of a shape's flags is given, or a file (--input; F16 or F32).");
  flags.text("--preset", result.preset, "NAME",
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
  flags.text("--precision", result.precision, "NAME",
             "fp32, tf32, fp16 or tf32,fp16 (fp32): all but fp32 add\nsteps on tensor cores, which "
             "round what goes into products;\narrays and sums stay fp32");
  flags.text("--storage", result.storage, "NAME",
             "fp32 or fp16 (fp32): of x, weight, residual and y.\nfp16 rounds them, and adds a "
             "step on such arrays\n(with --precision fp16, which goes without saying)");
  flags.given("--residual", result.with_residual, "random tensors with one to add");
  flags.number("--size", options.size, 16, kMaxSize, "PIXELS", "photo's side (224)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.text("--out", options.out, "FILE", "photo and filters' answers, .png or .jpg");
  flags.text("--input", options.input, "FILE",
             "safetensors: x [N, C, H, W], weight, gamma, beta; bias,\nresidual if there are");
  flags.text("--output", options.output, "FILE", "safetensors: out, F32");
  flags.run_flags(options, "of random tensors (1)");
  flags.parse(argc, argv);

  require_one_of("--padding", padding, {"zero", "reflect"});
  require_one_of("--precision", result.precision, {"fp32", "tf32", "fp16", "tf32,fp16"});
  require_one_of("--storage", result.storage, {"fp32", "fp16"});
  if (result.storage == "fp16") {
    if (!flags.given("--precision")) result.precision = "fp16";
    if (!result.has("fp16"))
      throw UsageError("--storage fp16: does not go with --precision " + result.precision +
                       ", numbers in fp16 are multiplied as such (--precision fp16)");
  }
  bool random = result.with_residual;
  for (const char* flag : {"--preset", "--batch", "--in-channels", "--out-channels", "--height",
                           "--width", "--kernel"})
    random = random || flags.given(flag);
  const bool filtered = flags.given("--stride") || flags.given("--padding");
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
  result.draws = options.input.empty() && !random && !filtered;
  if (!result.draws) options.out.clear();
  if (result.draws && options.image.empty())
    options.image = repository_path("data/images/chelsea.png");

  shape = preset_conv_norm(result.preset.empty() ? "small" : result.preset);
  const auto take = [](int given, int& into) { into = given ? given : into; };
  take(batch, shape.batch), take(in_channels, shape.in_channels);
  take(out_channels, shape.out_channels), take(height, shape.height), take(width, shape.width);
  take(kernel, shape.kernel), take(stride, shape.stride);
  shape.padding = padding == "zero" ? Padding::kZero : Padding::kReflect;
  options.batch = shape.batch;
  require_files(options);
  return result;
}

// ---- A user's tensors ---------------------------------------------------------------------------

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

ConvNormProblem input_conv_norm(const std::string& path, const ConvNormShape& way) {
  std::vector<Tensor> tensors =
      read_safetensors(path, {"x", "weight", "gamma", "beta"}, {"bias", "residual"});
  const std::vector<int64_t>&x = tensors[0].shape, &weight = tensors[1].shape;
  const auto fail = [&](const std::string& why) { throw UsageError(path + ": " + why); };
  if (x.size() != 4)
    fail("tensor 'x' has shape " + text_of(x) + ", [batch, in_channels, height, width] is needed");
  if (weight.size() != 4 || weight[2] != weight[3] || weight[1] != x[1])
    fail("tensor 'weight' has shape " + text_of(weight) + ", [out_channels, " +
         std::to_string(x[1]) + ", kernel, kernel] is needed to go with x");
  for (const auto* shape : {&x, &weight})
    for (const int64_t size : *shape)
      if (size < 1 || size > INT32_MAX)
        fail("a dimension of " + text_of(*shape) + " is out of range");
  ConvNormProblem p;
  p.shape = way;
  p.shape.batch = int(x[0]), p.shape.in_channels = int(x[1]), p.shape.height = int(x[2]);
  p.shape.width = int(x[3]), p.shape.out_channels = int(weight[0]);
  p.shape.kernel = int(weight[2]);
  p.shape = same_padded(p.shape);
  try {
    require_conv_norm_shape(p.shape);
  } catch (const std::invalid_argument& error) {
    fail(error.what());
  }
  const auto require = [&](const char* name, const Tensor& tensor,
                           const std::vector<int64_t>& needed) {
    if (tensor.shape != needed)
      fail(std::string("tensor '") + name + "' has shape " + text_of(tensor.shape) + ", " +
           text_of(needed) + " is needed to go with the others");
  };
  require("gamma", tensors[2], {weight[0]});
  require("beta", tensors[3], {weight[0]});
  if (is_there(tensors[4])) require("bias", tensors[4], {weight[0]});
  if (is_there(tensors[5]))
    require("residual", tensors[5], {x[0], weight[0], p.shape.out_height(), p.shape.out_width()});
  const char* names[] = {"x", "weight", "gamma", "beta", "bias", "residual"};
  std::vector<float>* const into[] = {&p.x, &p.weight, &p.gamma, &p.beta, &p.bias, &p.residual};
  for (int t = 0; t < 6; ++t) {
    for (size_t i = 0; i < tensors[t].values.size(); ++i)
      if (!std::isfinite(tensors[t].values[i]))
        fail(format("tensor '%s': element %zu is %g, a finite number is needed", names[t], i,
                    double(tensors[t].values[i])));
    *into[t] = std::move(tensors[t].values);
  }
  p.source = file_name(path);
  return p;
}

// ---- Steps --------------------------------------------------------------------------------------

// What counters say of a step's launches: how often its output is stored, and whether anything that
// was stored is read again.
std::string traffic(const std::string& name, const std::vector<Timing>& launches,
                    const ConvNormShape& shape, bool half_storage) {
  double all = 0, stored = 0, outputs = 0, read_again = 0;
  const double elements = double(shape.y_elements());
  for (const Timing& launch : launches) {
    const auto counters = nlohmann::json::parse(launch.counters, nullptr, false);
    const auto number = [&](const std::string& pointer) {
      const nlohmann::json::json_pointer at(pointer);
      return counters.is_object() && counters.contains(at) ? counters.at(at).get<double>() : 0.0;
    };
    all += number("/global/store/bytes_asked");
    for (const auto& [array, bytes] : {std::pair<std::string, double>("conv", 4), {"y", 4},
                                       {"y16", 2}}) {
      stored += number("/allocations/" + array + "/store/bytes_asked");
      outputs += number("/allocations/" + array + "/store/bytes_asked") / bytes / elements;
      read_again += number("/allocations/" + array + "/load/bytes_asked") / bytes / elements;
    }
  }
  return format("%s: %zu launch%s; output (%s) written %.3f times, read again %.3f times%s",
                name.c_str(), launches.size(), launches.size() == 1 ? "" : "es",
                human_bytes((half_storage ? 2 : 4) * elements).c_str(), outputs, read_again,
                all > stored ? ("; moments " + human_bytes(all - stored)).c_str() : "");
}

// fp16 ends at 65504: beyond it operands would be infinite.
void require_fp16_range(const ConvNormProblem& problem) {
  for (const auto& [name, values] : {std::pair("x", &problem.x), {"weight", &problem.weight}})
    for (size_t i = 0; i < values->size(); ++i)
      if (!(std::abs((*values)[i]) <= 65504))
        throw UsageError(
            format("--precision fp16: element %zu of %s is %g, fp16 ends at 65504; "
                   "tf32 has the range of fp32",
                   i, name, double((*values)[i])));
}

ExitCode conv_norm_program(int argc, char** argv, const char* chapter, const char* about,
                           const std::vector<ConvNormStep>& all_steps,
                           const std::vector<NormStep>& norms) {
  ConvNormOptions all = conv_norm_options(argc, argv, about);
  std::vector<ConvNormStep> steps;
  HalfConvNorm half_step;
  for (const ConvNormStep& step : all_steps) {
    if (!all.has(step.precision)) continue;
    if (step.half_storage() && all.storage != "fp16") continue;
    steps.push_back(step);
    if (step.half_storage()) half_step = step.in_fp16;
  }
  Options& options = all.common;
  ConvNormProblem problem;
  if (!options.input.empty())
    problem = input_conv_norm(options.input, all.shape);
  else if (all.draws) {
    problem = photo_conv_norm(load_image(options.image), options.size);
    problem.source = format("%s, %d x %d pixels, under 32 filters of 9 x 9 (edges and lines)",
                            file_name(options.image).c_str(), options.size, options.size);
  } else {
    problem.shape = same_padded(all.shape);
  }
  const ConvNormShape shape = problem.shape;
  require_conv_norm_shape(shape);

  const Device device = open_device();
  const bool is_virtual = device.is_virtual;
  if (options.profile && !is_virtual)
    throw LackError(
        std::string("--profile reads the virtual GPU's counters (make DEVICE=vgpu); on "
                    "this GPU: ncu --set full ./run"));
  for (const ConvNormStep& step : steps)
    if (const std::string why = step.lacking ? step.lacking() : ""; !why.empty())
      throw LackError("--precision " + all.precision + ": " + why);
  if (options.warmup < 0) options.warmup = is_virtual ? 0 : 5;
  if (options.iterations == 0) options.iterations = is_virtual ? 1 : 50;

  // On the device x, weights, residual, y and two more of its size; on the host x and weights, and
  // y in double several times.
  const double inputs = 4.0 * double(shape.x_elements() + shape.weight_elements()),
               output = 4.0 * double(shape.y_elements());
  const bool half_storage = half_step.run;
  const double halves =  // packed weights are longer by what channels are filled up
      half_storage ? (inputs + 2 * output) / 2 + 2.0 * double(half_step.packed_elements(shape)) : 0;
  const int copies = rotation_copies(device, (inputs + output) / (half_storage ? 2 : 1));
  require_memory(device, (inputs + 3 * output + halves) * copies + output,
                 2 * inputs + 8 * output + halves, "convolution of shape " + describe(shape));
  if (problem.x.empty()) problem = random_conv_norm(shape, options.seed, all.with_residual);
  if (half_storage)
    problem = rounded_to_fp16(std::move(problem));
  else if (all.has("fp16"))
    require_fp16_range(problem);

  ReportHead head{chapter,
                  options,
                  device,
                  problem.source,
                  describe(shape) + (all.precision == "fp32" ? "" : ", " + all.precision) +
                      (half_storage ? " storage" : ""),
                  {{"batch", shape.batch},
                   {"in_channels", shape.in_channels},
                   {"out_channels", shape.out_channels},
                   {"height", shape.height},
                   {"width", shape.width},
                   {"kernel", shape.kernel},
                   {"stride", shape.stride}},
                  {}};
  if (all.precision != "fp32") head.details = {{"precision", '"' + all.precision + '"'}};
  if (half_storage) head.details.emplace_back("storage", "\"fp16\"");
  if (!all.preset.empty()) head.details.emplace_back("preset", "\"" + all.preset + "\"");
  Report report(head);
  const ConvNormExpected expected = expected_conv_norm(problem);
  require_fp32_range(problem, expected);
  if (half_storage)
    for (const double y : expected.y)
      if (std::abs(y) > 65504)
        throw UsageError(format("--storage fp16: y reaches %g, fp16 ends at 65504", y));
  std::vector<ConvNormArrays> arrays = upload(problem, copies, half_step);
  const Tolerance of_rounded =
      all.precision == "fp32" ? expected.tolerance : rounded_products_tolerance(problem, expected);
  const auto compared = [&](const std::vector<float>& y, const ConvNormStep& step) {
    return compare(y, expected.y,
                   step.half_storage()         ? fp16_storage_tolerance(expected.tolerance)
                   : step.precision == "fp32" ? expected.tolerance
                                              : of_rounded,
                   {shape.batch, shape.out_channels, shape.out_height(), shape.out_width()});
  };
  const auto clear = [&](const ConvNormStep& step) {
    step.half_storage() ? arrays[0].in_fp16->y.fill_nan() : arrays[0].y.fill_nan();
  };
  const auto result_of = [&](const ConvNormStep& step) {
    return step.half_storage() ? to_float(arrays[0].in_fp16->y.download())
                               : arrays[0].y.download();
  };

  std::vector<float> y;
  for (const ConvNormStep& step : steps) {
    const Cost cost = conv_norm_cost(shape, !problem.residual.empty(), step.precision,
                                     step.half_storage() ? 2 : 4);
    // Once for a network: its time is a line of its own.
    std::vector<Timing> packing;
    if (step.half_storage()) {
      const Launch pack = [&](int i) { arrays[i % copies].pack(step.in_fp16, shape); };
      packing = time_stages(device, {pack}, options.warmup, options.iterations);
      for (ConvNormArrays& a : arrays) a.pack(step.in_fp16, shape);
    }
    clear(step);
    const StepLaunch run = [&](int i, cudaStream_t stream) {
      ConvNormArrays& a = arrays[i % copies];
      step.half_storage() ? a.run(step.in_fp16, shape, stream)
                          : a.run(step.function, shape, stream);
    };
    const Timing whole = time_step(device, run, copies, options.warmup, options.iterations);
    y = result_of(step);
    // Its launches, each alone. Only now: a step may have found out that it needs more of them.
    const auto stages = step.stages(shape);
    std::vector<Timing> timings;
    if (stages.size() > 1) {
      std::vector<Launch> launches;
      for (const auto& stage : stages)
        launches.push_back([&](int i) { stage.second(arrays[i % copies]); });
      clear(step);
      timings = time_stages(device, launches, options.warmup, options.iterations);
      const Comparison right = compared(result_of(step), step);
      for (size_t i = 0; i < stages.size(); ++i)
        report.add_launch(stages[i].first, timings[i], {}, right, Report::Errors::kOfStep);
    }
    if (timings.empty()) {
      timings = {whole};
      report.add(step.name, whole, cost, compared(y, step));
    } else {
      report.add_total(step.name, whole, cost, compared(y, step));
    }
    if (step.plan) report.note(step.name + ": " + step.plan(shape));
    if (is_virtual) report.note(traffic(step.name, timings, shape, step.half_storage()));
    for (const Timing& timing : packing) {
      report.add_beside("pack weights", timing, compared(y, step));
      report.note("pack weights: once for a network, not at each call of " + step.name);
    }
  }
  for (size_t i = 1; i < steps.size(); ++i) report.add_ratio(steps[i].name, steps[i - 1].name);

  // Instance norm alone, on what the convolution makes.
  const NormShape norm{shape.batch, shape.out_channels, int(shape.plane()), shape.eps};
  const std::vector<float> conv(expected.conv.begin(), expected.conv.end());
  std::vector<double> normalized(conv.begin(), conv.end());
  reference::instance_norm(normalized.data(), problem.gamma.data(), problem.beta.data(), norm.batch,
                           norm.channels, norm.plane, double(norm.eps), normalized.data());
  for (ConvNormArrays& a : arrays) a.conv.upload(conv);
  for (const NormStep& step : norms) {
    arrays[0].y.fill_nan();
    const StepLaunch launch = [&](int i, cudaStream_t stream) {
      ConvNormArrays& a = arrays[i % copies];
      step.function(a.conv.data(), a.gamma.data(), a.beta.data(), a.y.data(), norm, stream);
    };
    const Timing timing = time_step(device, launch, copies, options.warmup, options.iterations);
    report.add(step.name, timing, {2 * output, 8.0 * double(shape.y_elements())},
               compare(arrays[0].y.download(), normalized, expected.tolerance,
                       {norm.batch, norm.channels, norm.plane}));
  }
  for (size_t i = 1; i < norms.size(); ++i) report.add_ratio(norms[i].name, norms[i - 1].name);

  if (!options.output.empty())
    write_safetensors(
        options.output,
        {{"out",
          {{shape.batch, shape.out_channels, shape.out_height(), shape.out_width()}, y, "F32"}}});
  if (all.draws) {
    save_image(options.out, draw_responses(problem.photo, shape, y));
    report.note(format("%s: the photo, and what %s answers for edges in 8 directions",
                       options.out.c_str(), steps.back().name.c_str()));
  }
  return report.finish();
}

}  // namespace

int conv_norm_main(int argc, char** argv, const char* chapter, const char* about,
                   const std::vector<ConvNormStep>& steps, const std::vector<NormStep>& norms) {
  return guarded_main(chapter,
                      [&] { return conv_norm_program(argc, argv, chapter, about, steps, norms); });
}

}  // namespace lab
