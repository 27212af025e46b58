// The program of chapter 10: flags, memory, problem, a copy and the steps, residual, the way back.
#include <cmath>
#include <cstring>
#include <optional>

#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/progress.h"
#include "../../../common/lab/report.h"
#include "../../../common/lab/tensors.h"
#include "json/json.h"
#include "problem.h"

namespace lab {
namespace {

using layer_norm::Moments;
using layer_norm::Shape;

constexpr int kMaxBatch = 4096, kMaxRows = 10'000'000, kMaxSize = 1024;

struct LayerNormOptions {
  Options common;
  int rows = 0, columns = 768;  // of a random problem; no rows: the photo
  double mean = 0;
  Storage storage = Storage::kFp16;
  std::string step;  // empty: all, the residual and the way back
  bool naive = false;
  bool draws = false;
};

double parse_mean(const std::string& text) {
  double mean = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mean);
  if (error != std::errc() || end != text.data() + text.size() || !(std::abs(mean) <= 1e6))
    throw UsageError("--mean '" + text + "': must be a number from -1000000 to 1000000");
  return mean;
}

LayerNormOptions layer_norm_options(int argc, char** argv, const char* about) {
  LayerNormOptions result;
  Options& options = result.common;
  options.out = "normalized.png";
  std::string storage = "fp16", variance = "distances";
  Flags flags(about,
              "The problem is a photo's patches (--image, --size, --batch), random (--rows,\n"
              "--columns) or a file (--input).");
  flags.number("--batch", options.batch, 1, kMaxBatch, "N",
               "photos, shifted (GPU: 32, virtual GPU: 1)");
  flags.number("--size", options.size, 16, kMaxSize, "PIXELS",
               "photo's side, a multiple of 16 (224)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.text("--out", options.out, "FILE", "photo and its normalized patches, .png or .jpg");
  flags.number("--rows", result.rows, 1, kMaxRows, "N", "random rows in place of the photo");
  flags.number("--columns", result.columns, LayerNormShape::kMinColumns,
               LayerNormShape::kMaxColumns, "N", "of random rows (768)");
  flags.option(
      "--mean", [&](const std::string& text) { result.mean = parse_mean(text); }, "X",
      "added to all of x (0)");
  flags.text("--storage", storage, "NAME", "of all arrays: fp16 or fp32; sums are fp32 (fp16)");
  flags.text("--variance", variance, "NAME",
             "naive: also variance as E[x^2] - E[x]^2, which fails\nwhere the mean is large "
             "(distances)");
  flags.text("--step", result.step, "NAME", "this step alone");
  flags.text("--input", options.input, "FILE",
             "safetensors: x [rows, columns], scale and bias [columns], and\nresidual or dy, as x; "
             "F16 or F32");
  flags.text("--output", options.output, "FILE", "safetensors: out, the last step's y");
  flags.run_flags(options, "of random numbers (1)");
  flags.parse(argc, argv);

  require_one_of("--storage", storage, {"fp16", "fp32"});
  require_one_of("--variance", variance, {"distances", "naive"});
  result.storage = storage == "fp16" ? Storage::kFp16 : Storage::kFp32;
  result.naive = variance == "naive";
  if (flags.given("--input"))
    flags.refuse({"--rows", "--columns", "--batch", "--size", "--image", "--out", "--mean"},
                 "does not go with --input: the file has its own x");
  if (flags.given("--columns") && !flags.given("--rows"))
    throw UsageError("--columns needs --rows: the photo's rows have 768");
  if (flags.given("--rows"))
    flags.refuse({"--batch", "--size", "--image", "--out"}, "does not go with --rows: no photo");
  if (!flags.given("--rows")) result.rows = 0;
  if (options.size % 16 != 0)
    throw UsageError(format("--size '%d': must be a multiple of 16 pixels", options.size));
  flags.refuse_with_predict(options);
  const bool photo = result.rows == 0 && options.input.empty();
  result.draws = photo && !options.predict;
  if (!result.draws) options.out.clear();
  if (photo && options.image.empty()) options.image = repository_path("data/images/chelsea.png");
  require_files(options);
  return result;
}

// ---- A user's tensors ---------------------------------------------------------------------------

LayerNormProblem input_layer_norm(const LayerNormOptions& asked) {
  const std::string& path = asked.common.input;
  const std::vector<Tensor> tensors =
      read_safetensors(path, {"x", "scale", "bias"}, {"residual", "dy"});
  const auto fail = [&](const std::string& why) { throw UsageError(path + ": " + why); };
  const std::vector<int64_t>& size = tensors[0].shape;
  if (size.size() != 2)
    fail("tensor 'x' has shape " + shape_text(size) + ", [rows, columns] is needed");
  if (size[0] < 1 || size[0] > kMaxRows)
    fail(format("tensor 'x' has %lld rows, 1 to %d are needed", (long long)size[0], kMaxRows));
  if (size[1] < LayerNormShape::kMinColumns || size[1] > LayerNormShape::kMaxColumns)
    fail(format("tensor 'x' has %lld columns, 64 to 4096 are needed", (long long)size[1]));
  LayerNormProblem problem;
  problem.shape = {int(size[0]), int(size[1]), 1e-6f};
  problem.storage = asked.storage;
  // What is not in the file is random.
  LayerNormProblem others = random_layer_norm(problem.shape, asked.storage, asked.common.seed);
  const auto take = [&](size_t i, const char* name, std::vector<double>& values,
                        const std::vector<int64_t>& needed) {
    const Tensor& tensor = tensors[i];
    if (i >= 3 && !is_there(tensor)) return;
    if (tensor.shape != needed)
      fail(std::string("tensor '") + name + "' has shape " + shape_text(tensor.shape) + ", " +
           shape_text(needed) + " is needed");
    values.resize(tensor.values.size());
    for (size_t k = 0; k < values.size(); ++k) {
      values[k] = stored(double(tensor.values[k]), asked.storage);
      if (!std::isfinite(values[k]))
        fail(format("tensor '%s': element %zu is %g; finite values are needed%s", name, k,
                    double(tensor.values[k]),
                    asked.storage == Storage::kFp16 ? ", fp16 holds up to 65504" : ""));
    }
  };
  problem.residual = std::move(others.residual);
  problem.dy = std::move(others.dy);
  take(0, "x", problem.x, size);
  take(1, "scale", problem.scale, {size[1]});
  take(2, "bias", problem.bias, {size[1]});
  take(3, "residual", problem.residual, size);
  take(4, "dy", problem.dy, size);
  problem.source = file_name(path);
  return problem;
}

// ---- A run --------------------------------------------------------------------------------------

// On the device, in as many copies as rotation needs; copy 0 is the checked one.
template <class T>
struct LayerNormArrays {
  DeviceArray<T> x, residual, dy, scale, bias, y, sum, dx;
  DeviceArray<Moments> moments;
  DeviceArray<float> partials, dscale, dbias;
};

template <class T>
struct LayerNormRun {
  LayerNormOptions asked;
  LayerNormKernels<T> kernels;
  Device device;
  LayerNormProblem problem;
  std::optional<LayerNormExpected> expected;  // nothing with --predict
  int copies = 1;
  std::vector<LayerNormArrays<T>> arrays;

  const Shape& shape() const { return problem.shape; }
  Cost cost(int arrays_once) const {
    return layer_norm_cost(problem.shape, problem.storage, arrays_once);
  }
  LayerNormArrays<T>& of(int i) { return arrays[i % copies]; }
};

template <class T>
std::vector<LayerNormArrays<T>> upload(const LayerNormProblem& problem, int copies,
                                       int64_t partials) {
  const size_t elements = size_t(problem.shape.elements()), columns = size_t(problem.shape.columns);
  std::vector<LayerNormArrays<T>> arrays;
  for (int i = 0; i < copies; ++i) {
    const std::string copy = i ? " (copy " + std::to_string(i + 1) + ")" : "";
    const auto input = [&](const std::vector<double>& values, const char* name) {
      return DeviceArray<T>(stored_as<T>(values), name + copy);
    };
    arrays.push_back({input(problem.x, "x"), input(problem.residual, "residual"),
                      input(problem.dy, "dy"), input(problem.scale, "scale"),
                      input(problem.bias, "bias"), DeviceArray<T>(elements, "y" + copy),
                      DeviceArray<T>(elements, "sum" + copy), DeviceArray<T>(elements, "dx" + copy),
                      DeviceArray<Moments>(size_t(problem.shape.rows), "moments" + copy),
                      DeviceArray<float>(size_t(partials), "partials" + copy),
                      DeviceArray<float>(columns, "dscale" + copy),
                      DeviceArray<float>(columns, "dbias" + copy)});
  }
  return arrays;
}

template <class T>
Comparison compared(const LayerNormRun<T>& run, const DeviceArray<T>& got,
                    const std::vector<double>& expected, const Tolerance& tolerance) {
  return compare(got.download(), expected, tolerance, {run.shape().rows, run.shape().columns});
}

// A copy of the same bytes: what all steps are held against.
template <class T>
void run_copy(LayerNormRun<T>& run, Report& report) {
  run.arrays[0].y.fill_nan();
  const StepLaunch launch = [&](int i, cudaStream_t stream) {
    run.kernels.copy(run.of(i).x.data(), run.of(i).y.data(), run.shape(), stream);
  };
  const Options& options = run.asked.common;
  const Timing timing =
      time_step(run.device, launch, run.copies, options.warmup, options.iterations);
  Cost cost = run.cost(2);
  cost.flops = 0;
  report.add("copy", timing, cost,
             run.expected ? compared(run, run.arrays[0].y, run.problem.x, {}) : Comparison::none());
}

// The step's y, and what it took.
template <class T>
std::pair<std::vector<T>, Timing> run_step(LayerNormRun<T>& run, const LayerNormStep<T>& step,
                                           Report& report) {
  run.arrays[0].y.fill_nan();
  const Progress progress(step.name);
  const StepLaunch launch = [&](int i, cudaStream_t stream) {
    LayerNormArrays<T>& a = run.of(i);
    step.function(a.x.data(), a.scale.data(), a.bias.data(), a.y.data(), run.shape(), stream);
  };
  const Options& options = run.asked.common;
  const Timing timing =
      time_step(run.device, launch, run.copies, options.warmup, options.iterations);
  report.add(step.name, timing, run.cost(2),
             run.expected ? compared(run, run.arrays[0].y, run.expected->y, run.expected->for_y)
                          : Comparison::none());
  return {run.arrays[0].y.download(), timing};
}

// How long it took: measured on a GPU, on the virtual one predicted; NaN where that is not known.
double microseconds(const Device& device, const Timing& timing) {
  if (!device.is_virtual) return timing.median_us;
  const json::Value counters = json::parse_or_null(timing.counters);
  const json::Value* const us = counters.find_path("/predicted/us");
  return us && !us->is_null() ? us->get<double>() : std::nan("");
}
// Two launches beside one that does the same: "add, then rows: 10.6 us; fused residual: 5.03 us".
void note_beside(const Device& device, const std::string& two, const std::vector<Timing>& launches,
                 const std::string& one, const Timing& launch, Report& report) {
  double sum = 0;
  for (const Timing& part : launches) sum += microseconds(device, part);
  const double us = microseconds(device, launch);
  if (std::isfinite(sum / us))
    report.note(format("%s: %.3g us; %s: %.3g us, %.3gx as fast", two.c_str(), sum, one.c_str(), us,
                       sum / us));
}

// x + residual by a kernel of its own, and fused with the norm. norm: what the step took.
template <class T>
void run_residual(LayerNormRun<T>& run, const Timing& norm, Report& report) {
  const Options& options = run.asked.common;
  const Shape& shape = run.shape();
  LayerNormArrays<T>& checked = run.arrays[0];
  const auto sum_is_right = [&] {
    return run.expected ? compared(run, checked.sum, run.expected->sum, run.expected->for_sum)
                        : Comparison::none();
  };
  checked.sum.fill_nan();
  const StepLaunch add = [&](int i, cudaStream_t stream) {
    LayerNormArrays<T>& a = run.of(i);
    run.kernels.add(a.x.data(), a.residual.data(), a.sum.data(), shape, stream);
  };
  const Timing add_timing =
      time_step(run.device, add, run.copies, options.warmup, options.iterations);
  report.add("add", add_timing, run.cost(3), sum_is_right());
  if (!run.kernels.residual_fits(shape)) {
    report.note(
        "fused residual: none; rows this long, or not of whole pieces of 16 bytes, are not "
        "kept in registers");
    return;
  }
  checked.sum.fill_nan();
  checked.y.fill_nan();
  const StepLaunch fused = [&](int i, cudaStream_t stream) {
    LayerNormArrays<T>& a = run.of(i);
    run.kernels.residual(a.x.data(), a.residual.data(), a.scale.data(), a.bias.data(), a.sum.data(),
                         a.y.data(), shape, stream);
  };
  const Timing timing =
      time_step(run.device, fused, run.copies, options.warmup, options.iterations);
  Comparison right = sum_is_right();
  if (run.expected && right.pass)
    right = compared(run, checked.y, run.expected->y_of_sum, run.expected->for_y_of_sum);
  report.add("fused residual", timing, run.cost(4), right);
  note_beside(run.device, "add, then rows", {add_timing, norm}, "fused residual", timing, report);
}

// How many of dscale's and dbias' sums differ in any bit from those of the run before.
int sums_changed(const std::vector<float>& before, const std::vector<float>& now) {
  int changed = 0;
  for (size_t i = 0; i < now.size(); ++i)
    changed += std::memcmp(&before[i], &now[i], sizeof(float)) != 0;
  return changed;
}

// dx, then dscale and dbias both ways.
template <class T>
void run_backward(LayerNormRun<T>& run, Report& report) {
  const Options& options = run.asked.common;
  const Shape& shape = run.shape();
  LayerNormArrays<T>& checked = run.arrays[0];
  const StepLaunch dx = [&](int i, cudaStream_t stream) {
    LayerNormArrays<T>& a = run.of(i);
    run.kernels.backward_dx(a.dy.data(), a.x.data(), a.scale.data(), a.dx.data(), a.moments.data(),
                            shape, stream);
  };
  for (int i = 0; i < run.copies; ++i) run.of(i).dx.fill_nan(), run.of(i).moments.fill_nan();
  const Timing dx_timing =
      time_step(run.device, dx, run.copies, options.warmup, options.iterations);
  report.add("dx", dx_timing, run.cost(3),
             run.expected ? compared(run, checked.dx, run.expected->dx, run.expected->for_dx)
                          : Comparison::none());
  // All copies need their moments, whichever were timed.
  for (int i = 0; i < run.copies && run.expected; ++i) dx(i, nullptr);

  const auto sums = [&] {
    std::vector<float> both = checked.dscale.download();
    const std::vector<float> bias = checked.dbias.download();
    both.insert(both.end(), bias.begin(), bias.end());
    return both;
  };
  const auto right = [&] {
    if (!run.expected) return Comparison::none();
    const Comparison scale = compare(checked.dscale.download(), run.expected->dscale,
                                     run.expected->for_dscale, {shape.columns});
    return scale.pass ? compare(checked.dbias.download(), run.expected->dbias,
                                run.expected->for_dbias, {shape.columns})
                      : scale;
  };
  const auto slab = [&](LayerNormArrays<T>& a, cudaStream_t stream) {
    run.kernels.slab_sums(a.dy.data(), a.x.data(), a.moments.data(), a.partials.data(), shape,
                          stream);
  };
  const auto column = [&](LayerNormArrays<T>& a, cudaStream_t stream) {
    run.kernels.column_sums(a.partials.data(), a.dscale.data(), a.dbias.data(), shape, stream);
  };
  const auto clear = [&] {
    checked.partials.fill_nan(), checked.dscale.fill_nan(), checked.dbias.fill_nan();
  };

  clear();
  const auto timed = [&](const StepLaunch& launch) {
    return time_step(run.device, launch, run.copies, options.warmup, options.iterations);
  };
  const Timing slabs = timed([&](int i, cudaStream_t stream) { slab(run.of(i), stream); });
  for (int i = 1; i < run.copies && run.expected; ++i) slab(run.of(i), nullptr);
  const Timing columns = timed([&](int i, cudaStream_t stream) { column(run.of(i), stream); });
  const Comparison of_stages = right();
  const std::vector<float> first = sums();
  report.add("slab sums", slabs, run.cost(2), of_stages);
  const double partials = double(run.kernels.partials_of(shape));
  report.add("column sums", columns, {4 * (partials + 2.0 * shape.columns), partials}, of_stages);

  clear();
  const StepLaunch atomics = [&](int i, cudaStream_t stream) {
    LayerNormArrays<T>& a = run.of(i);
    run.kernels.atomics(a.dy.data(), a.x.data(), a.moments.data(), a.dscale.data(), a.dbias.data(),
                        shape, stream);
  };
  const Timing atomics_timing = timed(atomics);
  report.add("atomics", atomics_timing, run.cost(2), right());
  note_beside(run.device, "slab sums and column sums", {slabs, columns}, "atomics", atomics_timing,
              report);
  if (!run.expected) return;
  const std::vector<float> added = sums();
  atomics(0, nullptr);
  const int of_atomics = sums_changed(added, sums());
  clear();
  slab(checked, nullptr);
  column(checked, nullptr);
  const int of_two = sums_changed(first, sums());
  report.note(
      format("run again, %d of %d sums over rows have other bits by two stages, %d by "
             "atomics\n(which may come in any order)",
             of_two, 2 * shape.columns, of_atomics));
  report.require(of_two == 0, "two stages gave other bits the second time");
}

template <class T>
ReportHead report_head(const char* chapter, const LayerNormRun<T>& run) {
  const Shape& shape = run.shape();
  const char* const storage = run.problem.storage == Storage::kFp16 ? "fp16" : "fp32";
  ReportHead head{
      chapter,
      run.asked.common,
      run.device,
      run.problem.source,
      describe(shape) + ", " + storage + "; x " + human_bytes(double(shape.elements()) * sizeof(T)),
      {{"rows", shape.rows}, {"columns", shape.columns}},
      {}};
  head.details.emplace_back("storage", format("\"%s\"", storage));
  return head;
}

// The steps that are run. Throws UsageError where the one asked for is none.
template <class T>
std::vector<LayerNormStep<T>> chosen_steps(const LayerNormKernels<T>& kernels,
                                           const LayerNormOptions& asked) {
  std::vector<LayerNormStep<T>> all = kernels.steps;
  if (asked.naive) all.push_back(kernels.naive_variance);
  if (asked.step.empty()) return all;
  std::string names;
  for (const LayerNormStep<T>& step : all) {
    names += (names.empty() ? "" : &step == &all.back() ? " or " : ", ") + step.name;
    if (step.name == asked.step) return {step};
  }
  throw UsageError("--step '" + asked.step + "': must be " + names);
}

// The shape alone, before anything large is made.
Shape shape_asked_for(const LayerNormOptions& asked) {
  if (asked.rows > 0) return {asked.rows, asked.columns, 1e-6f};
  const int grid = asked.common.size / 16;
  return {asked.common.batch * (grid * grid + 1), 768, 1e-6f};
}

// Throws LackError for want of memory, before any is taken.
template <class T>
void make_problem(LayerNormRun<T>& run) {
  const LayerNormOptions& asked = run.asked;
  const Options& options = asked.common;
  const bool from_file = !options.input.empty();
  if (from_file) run.problem = input_layer_norm(asked);
  const Shape shape = from_file ? run.problem.shape : shape_asked_for(asked);
  require_shape(shape);
  const double array = double(shape.elements()) * sizeof(T);
  run.copies = rotation_copies(run.device, 2 * array);
  require_memory(run.device, 6.5 * array * run.copies, 10 * 8.0 * double(shape.elements()),
                 "layer norm of shape " + describe(shape));
  if (from_file) return;
  const Progress progress("making the problem");
  run.problem = asked.rows > 0
                    ? random_layer_norm(shape, asked.storage, options.seed, asked.mean)
                    : photo_layer_norm(load_image(options.image), options.size, options.batch,
                                       asked.storage, options.seed, asked.mean);
}

template <class T>
ExitCode layer_norm_program(const LayerNormOptions& asked, const char* chapter,
                            const LayerNormKernels<T>& kernels) {
  LayerNormRun<T> run;
  run.asked = asked;
  run.kernels = kernels;
  Options& options = run.asked.common;
  const std::vector<LayerNormStep<T>> steps = chosen_steps(kernels, asked);
  run.device = open_device();
  complete_for(run.device, options);
  if (options.batch == 0) options.batch = run.device.is_virtual ? 1 : 32;
  make_problem(run);

  Report report(report_head(chapter, run));
  if (!options.predict) {
    const Progress progress("CPU reference");
    run.expected = expected_layer_norm(run.problem);
    require_storage_range(run.problem, *run.expected);
  }
  run.arrays = upload<T>(run.problem, run.copies, kernels.partials_of(run.shape()));

  run_copy(run, report);
  std::vector<T> y;
  Timing last;
  for (const LayerNormStep<T>& step : steps) {
    auto [result, timing] = run_step(run, step, report);
    if (step.name == kernels.naive_variance.name) continue;
    y = std::move(result);
    last = timing;
  }
  for (size_t i = 1; i < steps.size(); ++i) report.add_ratio(steps[i].name, steps[i - 1].name);
  report.add_ratio(
      kernels.steps.back().name == steps.back().name ? steps.back().name : steps.front().name,
      "copy");
  if (run.shape().columns % (16 / int(sizeof(T))) != 0)
    report.note(
        format("%d columns are not whole pieces of 16 bytes: vector, rows and residual do "
               "as warp does",
               run.shape().columns));
  if (asked.step.empty()) {
    run_residual(run, last, report);
    run_backward(run, report);
  }
  if (!options.output.empty() && !options.predict)
    write_safetensors(options.output, {{"out",
                                        {{run.shape().rows, run.shape().columns},
                                         std::vector<float>(y.begin(), y.end()),
                                         run.problem.storage == Storage::kFp16 ? "F16" : "F32"}}});
  if (run.asked.draws) {
    save_image(options.out, draw_normalized(run.problem, std::vector<float>(y.begin(), y.end())));
    report.note(
        format("%s: the photo, and its patches normalized, each by itself", options.out.c_str()));
  }
  return report.finish();
}

}  // namespace

int layer_norm_main(int argc, char** argv, const char* chapter, const char* about,
                    const LayerNormKernels<half>& in_fp16, const LayerNormKernels<float>& in_fp32) {
  return guarded_main(chapter, [&] {
    const LayerNormOptions asked = layer_norm_options(argc, argv, about);
    return asked.storage == Storage::kFp16 ? layer_norm_program(asked, chapter, in_fp16)
                                           : layer_norm_program(asked, chapter, in_fp32);
  });
}

}  // namespace lab
