// The program of chapter 8: flags, memory, problem, steps, instance norm alone, picture.
#include <algorithm>
#include <cmath>

#include "../../../common/json/json.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/report.h"
#include "../../../common/lab/steps.h"
#include "../../../common/lab/tensors.h"
#include "problem.h"
#include "reference.h"

namespace lab {
namespace {

constexpr int kMaxBatch = 4096, kMaxChannels = 65536, kMaxSide = 65536, kMaxSize = 1024;

struct ConvNormOptions {
  Options common;
  ConvNormShape shape;  // of random tensors; with --input stride and padding alone count
  std::string preset;   // that the shape comes from; empty: none was named
  std::string step;     // empty: all, and instance norm alone
  bool with_residual = false, draws = true;
  std::string precision = "fp32", storage = "fp32";

  // Whether steps whose products are in that format are run.
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
  flags.text("--step", result.step, "NAME", "this step of the convolution alone");
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

// The tensors of a file; stride, padding and eps are those of `filter`. Throws UsageError naming
// file, tensor and what is needed.
ConvNormProblem input_conv_norm(const std::string& path, const ConvNormShape& filter) {
  std::vector<Tensor> tensors =
      read_safetensors(path, {"x", "weight", "gamma", "beta"}, {"bias", "residual"});
  const std::vector<int64_t>&x = tensors[0].shape, &weight = tensors[1].shape;
  const auto fail = [&](const std::string& why) { throw UsageError(path + ": " + why); };
  if (x.size() != 4)
    fail("tensor 'x' has shape " + shape_text(x) +
         ", [batch, in_channels, height, width] is needed");
  if (weight.size() != 4 || weight[2] != weight[3] || weight[1] != x[1])
    fail("tensor 'weight' has shape " + shape_text(weight) + ", [out_channels, " +
         std::to_string(x[1]) + ", kernel, kernel] is needed to go with x");
  for (const auto* shape : {&x, &weight})
    for (const int64_t size : *shape)
      if (size < 1 || size > INT32_MAX)
        fail("a dimension of " + shape_text(*shape) + " is out of range");
  ConvNormProblem p;
  p.shape = filter;
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
      fail(std::string("tensor '") + name + "' has shape " + shape_text(tensor.shape) + ", " +
           shape_text(needed) + " is needed to go with the others");
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
std::string traffic_note(const std::string& name, const std::vector<Timing>& launches,
                         const ConvNormShape& shape, bool half_storage) {
  double all = 0, stored = 0, outputs = 0, read_again = 0;
  const double elements = double(shape.y_elements());
  for (const Timing& launch : launches) {
    const json::Value counters = json::parse_or_null(launch.counters);
    const auto number = [&](const std::string& pointer) {
      const json::Value* const found = counters.find_path(pointer);
      return found ? found->get<double>() : 0.0;
    };
    all += number("/global/store/bytes_asked");
    for (const auto& [array, bytes] :
         {std::pair<std::string, double>("conv", 4), {"y", 4}, {"y16", 2}}) {
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

// Beyond 65504 operands of fp16 would be infinite. Where the largest of an array lies below a format's normal numbers,
// all have fewer bits than its 11, and the bound on their rounding would not hold.
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

// ---- A run --------------------------------------------------------------------------------------

// What is run, on what, and what must come out of it.
struct ConvNormRun {
  ConvNormOptions asked;
  std::vector<ConvNormStep> steps;  // those asked for
  HalfConvNorm
      half_step;  // the functions of the one on arrays in fp16, where --storage asks for it
  Device device;
  ConvNormProblem problem;
  int copies = 1;  // of the arrays, in rotation
  std::vector<ConvNormArrays> arrays;
  ConvNormExpected expected;
  Tolerance of_rounded_products;  // of steps that round what goes into products

  bool half_storage() const { return half_step.run; }
  bool compares() const { return !asked.common.predict; }
};

// Those of the steps that --precision and --storage ask for, as --step chooses among them.
void choose_steps(ConvNormRun& run, std::vector<ConvNormStep> steps) {
  const bool fp16 = run.asked.storage == "fp16";
  std::erase_if(steps, [&](const ConvNormStep& step) {
    return !run.asked.has(step.precision) || (step.half_storage() && !fp16);
  });
  for (const ConvNormStep& step : steps)
    if (step.half_storage()) run.half_step = step.in_fp16;
  run.steps =
      chosen_steps(run.asked.step, steps, fp16 ? "" : "; --precision and --storage add others");
}

// A file's tensors, the photo under its filters, or of random tensors the shape alone: they are
// made when it is known that there is memory for them.
ConvNormProblem problem_asked_for(const ConvNormOptions& asked) {
  const Options& options = asked.common;
  ConvNormProblem problem;
  if (!options.input.empty()) {
    problem = input_conv_norm(options.input, asked.shape);
  } else if (asked.draws) {
    problem = photo_conv_norm(load_image(options.image), options.size);
    problem.source = format("%s, %d x %d pixels, under 32 filters of 9 x 9 (edges and lines)",
                            file_name(options.image).c_str(), options.size, options.size);
  } else {
    problem.shape = same_padded(asked.shape);
  }
  require_conv_norm_shape(problem.shape);
  return problem;
}

// Throws LackError where the device cannot do what is asked. Numbers of launches that were not
// given are those for this device.
void settle_on_device(ConvNormRun& run) {
  Options& options = run.asked.common;
  complete_for(run.device, options);
  for (const ConvNormStep& step : run.steps)
    if (const std::string why = step.lacking ? step.lacking() : ""; !why.empty())
      throw LackError("--precision " + run.asked.precision + ": " + why);
}

// How many copies of the arrays there are, and that there is memory for them: on the device x,
// weights, residual, y and two more of its size; on the host x and weights, and y in double several
// times. Throws LackError where there is not.
void settle_memory(ConvNormRun& run) {
  const ConvNormShape& shape = run.problem.shape;
  const double inputs = 4.0 * double(shape.x_elements() + shape.weight_elements()),
               output = 4.0 * double(shape.y_elements());
  double halves = 0;
  if (run.half_storage())  // packed weights are longer by what channels are filled up
    halves = (inputs + 2 * output) / 2 + 2.0 * double(run.half_step.packed_elements(shape));
  run.copies = rotation_copies(run.device, (inputs + output) / (run.half_storage() ? 2 : 1));
  require_memory(run.device, (inputs + 3 * output + halves) * run.copies + output,
                 2 * inputs + 8 * output + halves, "convolution of shape " + describe(shape));
}

// Random tensors where none are there yet; numbers as the steps' arrays hold them. Throws
// UsageError for one that fp16 cannot hold.
void complete_problem(ConvNormRun& run) {
  const ConvNormOptions& asked = run.asked;
  if (run.problem.x.empty())
    run.problem = random_conv_norm(run.problem.shape, asked.common.seed, asked.with_residual);
  if (run.half_storage())
    run.problem = rounded_to_fp16(std::move(run.problem));
  else if (asked.precision != "fp32")
    require_range(run.problem, run.asked.precision);
}

ReportHead report_head(const char* chapter, const ConvNormRun& run) {
  const ConvNormOptions& asked = run.asked;
  const ConvNormShape& shape = run.problem.shape;
  ReportHead head{chapter,
                  asked.common,
                  run.device,
                  run.problem.source,
                  describe(shape) + (asked.precision == "fp32" ? "" : ", " + asked.precision) +
                      (run.half_storage() ? " storage" : ""),
                  {{"batch", shape.batch},
                   {"in_channels", shape.in_channels},
                   {"out_channels", shape.out_channels},
                   {"height", shape.height},
                   {"width", shape.width},
                   {"kernel", shape.kernel},
                   {"stride", shape.stride}},
                  {}};
  if (asked.precision != "fp32") head.details = {{"precision", '"' + asked.precision + '"'}};
  if (run.half_storage()) head.details.emplace_back("storage", "\"fp16\"");
  if (!asked.preset.empty()) head.details.emplace_back("preset", "\"" + asked.preset + "\"");
  return head;
}

// What the reference says of the problem. Throws UsageError where that is beyond a format's range.
void expect(ConvNormRun& run) {
  run.expected = expected_conv_norm(run.problem);
  require_fp32_range(run.problem, run.expected);
  if (run.half_storage())
    for (const double y : run.expected.y)
      if (std::abs(y) > 65504)
        throw UsageError(format("--storage fp16: y reaches %g, fp16 ends at 65504", y));
}

// ---- A step of a run ----------------------------------------------------------------------------

Comparison compared(const ConvNormRun& run, const ConvNormStep& step, const std::vector<float>& y) {
  if (!run.compares()) return Comparison::none();
  const ConvNormShape& shape = run.problem.shape;
  const Tolerance& of_fp32 = run.expected.tolerance;
  return compare(y, run.expected.y,
                 step.half_storage()        ? fp16_storage_tolerance(of_fp32)
                 : step.precision == "fp32" ? of_fp32
                                            : run.of_rounded_products,
                 {shape.batch, shape.out_channels, shape.out_height(), shape.out_width()});
}

void clear_result(ConvNormRun& run, const ConvNormStep& step) {
  ConvNormArrays& a = run.arrays[0];
  step.half_storage() ? a.in_fp16->y.fill_nan() : a.y.fill_nan();
}
std::vector<float> result_of(const ConvNormRun& run, const ConvNormStep& step) {
  const ConvNormArrays& a = run.arrays[0];
  return step.half_storage() ? to_float(a.in_fp16->y.download()) : a.y.download();
}

// Packs the weights of all copies. Once for a network: the time is a line of its own, which is
// returned. Empty for a step that takes weights as they are.
std::vector<Timing> pack_weights(ConvNormRun& run, const ConvNormStep& step) {
  if (!step.half_storage()) return {};
  const ConvNormShape& shape = run.problem.shape;
  const Options& options = run.asked.common;
  const Launch pack = [&](int i) { run.arrays[i % run.copies].pack(step.in_fp16, shape); };
  std::vector<Timing> timings = time_stages(run.device, {pack}, options.warmup, options.iterations);
  for (ConvNormArrays& a : run.arrays) a.pack(step.in_fp16, shape);
  return timings;
}

// The launches that the step consists of, each alone, as lines of the report; none where it is one
// launch.
std::vector<Timing> run_launches(ConvNormRun& run, const ConvNormStep& step, Report& report) {
  const auto stages = step.stages(run.problem.shape);
  if (stages.size() <= 1) return {};
  const Options& options = run.asked.common;
  std::vector<Launch> launches;
  for (const auto& stage : stages)
    launches.push_back([&](int i) { stage.second(run.arrays[i % run.copies]); });
  clear_result(run, step);
  const std::vector<Timing> timings =
      time_stages(run.device, launches, options.warmup, options.iterations);
  const Comparison right = compared(run, step, result_of(run, step));
  for (size_t i = 0; i < stages.size(); ++i)
    report.add_launch(stages[i].first, timings[i], {}, right, Report::Errors::kOfStep);
  return timings;
}

// Runs, times and compares the step; its y is returned.
std::vector<float> run_step(ConvNormRun& run, const ConvNormStep& step, Report& report) {
  const ConvNormShape& shape = run.problem.shape;
  const Options& options = run.asked.common;
  const Cost cost = conv_norm_cost(shape, !run.problem.residual.empty(), step.precision,
                                   step.half_storage() ? 2 : 4);
  const std::vector<Timing> packing = pack_weights(run, step);
  clear_result(run, step);
  const StepLaunch launch = [&](int i, cudaStream_t stream) {
    ConvNormArrays& a = run.arrays[i % run.copies];
    step.half_storage() ? a.run(step.in_fp16, shape, stream) : a.run(step.function, shape, stream);
  };
  // The step as a whole comes first: it may find out that it needs more launches. Nothing is found
  // out where launches are predicted alone.
  std::vector<Timing> timings;
  if (!run.compares()) timings = run_launches(run, step, report);
  const bool of_several = step.stages(shape).size() > 1;
  const Timing whole =
      of_several
          ? time_total(run.device, launch, run.copies, options.warmup, options.iterations, timings)
          : time_step(run.device, launch, run.copies, options.warmup, options.iterations);
  std::vector<float> y = result_of(run, step);
  if (timings.empty()) timings = run_launches(run, step, report);
  if (timings.empty()) {
    timings = {whole};
    report.add(step.name, whole, cost, compared(run, step, y));
  } else {
    report.add_total(step.name, whole, cost, compared(run, step, y));
  }
  if (step.variant) report.add_number(step.name, "variant", 1);
  if (step.plan) report.note(step.name + ": " + step.plan(shape));
  if (run.device.is_virtual && run.compares())
    report.note(traffic_note(step.name, timings, shape, step.half_storage()));
  for (const Timing& timing : packing) {
    report.add_beside("pack weights", timing, compared(run, step, y));
    report.note("pack weights: once for a network, not at each call of " + step.name);
  }
  return y;
}

// Instance norm alone, on what the convolution makes.
void run_norms(ConvNormRun& run, const std::vector<NormStep>& norms, Report& report) {
  const ConvNormShape& shape = run.problem.shape;
  const Options& options = run.asked.common;
  const NormShape norm{shape.batch, shape.out_channels, int(shape.plane()), shape.eps};
  std::vector<double> normalized;
  if (run.compares()) {
    const std::vector<float> conv(run.expected.conv.begin(), run.expected.conv.end());
    normalized.assign(conv.begin(), conv.end());
    reference::instance_norm(normalized.data(), run.problem.gamma.data(), run.problem.beta.data(),
                             norm.batch, norm.channels, norm.plane, double(norm.eps),
                             normalized.data());
    for (ConvNormArrays& a : run.arrays) a.conv.upload(conv);
  }
  const Cost cost{8.0 * double(shape.y_elements()), 8.0 * double(shape.y_elements())};
  for (const NormStep& step : norms) {
    run.arrays[0].y.fill_nan();
    const StepLaunch launch = [&](int i, cudaStream_t stream) {
      ConvNormArrays& a = run.arrays[i % run.copies];
      step.function(a.conv.data(), a.gamma.data(), a.beta.data(), a.y.data(), norm, stream);
    };
    const Timing timing =
        time_step(run.device, launch, run.copies, options.warmup, options.iterations);
    report.add(step.name, timing, cost,
               run.compares()
                   ? compare(run.arrays[0].y.download(), normalized, run.expected.tolerance,
                             {norm.batch, norm.channels, norm.plane})
                   : Comparison::none());
  }
  for (size_t i = 1; i < norms.size(); ++i) report.add_ratio(norms[i].name, norms[i - 1].name);
}

// The last step's y as a file, and as a picture where the problem is a photo.
void write_results(const ConvNormRun& run, const std::vector<float>& y, Report& report) {
  const ConvNormShape& shape = run.problem.shape;
  const Options& options = run.asked.common;
  if (!options.output.empty())
    write_safetensors(
        options.output,
        {{"out",
          {{shape.batch, shape.out_channels, shape.out_height(), shape.out_width()}, y, "F32"}}});
  if (run.asked.draws && run.compares()) {
    save_image(options.out, draw_responses(run.problem.photo, shape, y));
    report.note(format("%s: the photo, and what %s answers for edges in 8 directions",
                       options.out.c_str(), run.steps.back().name.c_str()));
  }
}

ExitCode conv_norm_program(int argc, char** argv, const char* chapter, const char* about,
                           const std::vector<ConvNormStep>& all_steps,
                           const std::vector<NormStep>& norms) {
  ConvNormRun run;
  run.asked = conv_norm_options(argc, argv, about);
  choose_steps(run, all_steps);
  run.problem = problem_asked_for(run.asked);
  run.device = open_device();
  settle_on_device(run);
  settle_memory(run);
  complete_problem(run);

  Report report(report_head(chapter, run));
  if (run.compares()) expect(run);
  run.arrays = upload(run.problem, run.copies, run.half_step);
  run.of_rounded_products = run.asked.precision == "fp32" || !run.compares()
                                ? run.expected.tolerance
                                : rounded_products_tolerance(run.problem, run.expected);
  std::vector<float> y;
  for (const ConvNormStep& step : run.steps) y = run_step(run, step, report);
  for (size_t i = 1; i < run.steps.size(); ++i)
    report.add_ratio(run.steps[i].name, run.steps[i - 1].name);
  if (run.asked.step.empty()) run_norms(run, norms, report);
  write_results(run, y, report);
  return report.finish();
}

}  // namespace

int conv_norm_main(int argc, char** argv, const char* chapter, const char* about,
                   const std::vector<ConvNormStep>& steps, const std::vector<NormStep>& norms) {
  return guarded_main(chapter,
                      [&] { return conv_norm_program(argc, argv, chapter, about, steps, norms); });
}

}  // namespace lab
