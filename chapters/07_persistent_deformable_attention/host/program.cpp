// The program of chapter 7: flags and environment, memory, problem, steps, photo.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>

#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/progress.h"
#include "../../../common/lab/report.h"
#include "../../../common/lab/tensors.h"
#include "problem.h"
#include "reference.h"

namespace lab {
namespace {

constexpr int kMaxBatch = 4096, kMaxHeads = 64, kMaxQueries = 10'000'000, kMaxSize = 1024;

struct DeformableOptions {
  Options common;
  std::string preset;  // empty: the device decides
  std::string step;    // empty: all
  Distribution distribution = Distribution::kLocal;
  int heads = 1, queries = 0, channels = 0, points = 8;  // 0: the preset's
  bool draws = true;
};

// An environment variable in place of a flag that is not given.
template <class Number>
void from_environment(const char* name, const Flags& flags, const char* flag, Number most,
                      Number& value) {
  const char* text = std::getenv(name);
  if (text && *text && !flags.given(flag))
    value = parse_number(std::string("environment variable ") + name, text, Number(1), most);
}

DeformableOptions deformable_options(int argc, char** argv, const char* about) {
  DeformableOptions result;
  Options& options = result.common;
  options.out = "directions.png";
  std::string distribution = "local";
  Flags flags(about,
              "The problem is random (--preset and the flags that change it) or a file (--input);\n"
              "the last step also works on a photo (--image, --size) and draws what it finds.\n"
              "Environment, where the flag is not given: BATCH_SIZE, NUM_QUERY, CHANNELS,\n"
              "NUM_ITERATIONS.");
  flags.text("--preset", result.preset, "NAME",
             "small, medium or full: 2, 8 or 48 images (GPU: full, virtual GPU: small)");
  flags.text("--step", result.step, "NAME", "this step alone (all that the device can run)");
  flags.text("--distribution", distribution, "NAME",
             "of sampling points: local (2 pixels around a raster) or uniform (local)");
  flags.number("--batch", options.batch, 1, kMaxBatch, "N", "images, in place of the preset's");
  flags.number("--queries", result.queries, 1, kMaxQueries, "N", "queries of an image (15422)");
  flags.number("--heads", result.heads, 1, kMaxHeads, "N", "heads (1)");
  flags.number("--channels", result.channels, 16, 64, "N", "of a head: 16, 32 or 64 (32)");
  flags.number("--points", result.points, 4, 8, "N", "samples of a query in a level: 4 or 8 (8)");
  flags.number("--size", options.size, 16, kMaxSize, "PIXELS",
               "photo's side, a multiple of 8 (128; on the way to 4 levels)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.text("--out", options.out, "FILE", "photo and its directions, .png or .jpg");
  flags.text(
      "--input", options.input, "FILE",
      "safetensors: value, spatial_shapes, sampling_locations, attention_weights;\nF16 or F32, "
      "spatial_shapes also I64 or I32, height and width of each level");
  flags.text("--output", options.output, "FILE", "safetensors: out, F16");
  flags.run_flags(options, "of the random problem (1)");
  flags.parse(argc, argv);

  if (!result.preset.empty())
    require_one_of("--preset", result.preset, {"small", "medium", "full"});
  require_one_of("--distribution", distribution, {"local", "uniform"});
  result.distribution = distribution == "local" ? Distribution::kLocal : Distribution::kUniform;
  if (!flags.given("--size")) options.size = 128;
  if (options.size % 8 != 0)
    throw UsageError(
        format("--size '%d': must be a multiple of 8 pixels, for four levels", options.size));
  const bool reshaped = flags.given("--preset") || flags.given("--batch") ||
                        flags.given("--queries") || flags.given("--heads") ||
                        flags.given("--channels") || flags.given("--points");
  if (flags.given("--input")) {
    flags.refuse({"--preset", "--distribution", "--batch", "--queries", "--heads", "--channels",
                  "--points", "--seed"},
                 "does not go with --input: the file has its own shape");
  } else {
    from_environment("BATCH_SIZE", flags, "--batch", kMaxBatch, options.batch);
    from_environment("NUM_QUERY", flags, "--queries", kMaxQueries, result.queries);
    from_environment("CHANNELS", flags, "--channels", 64, result.channels);
  }
  from_environment("NUM_ITERATIONS", flags, "--iterations", 1'000'000, options.iterations);
  const bool photo_flags = flags.given("--image") || flags.given("--out") || flags.given("--size");
  result.draws = photo_flags || (!reshaped && options.input.empty());
  flags.refuse_with_predict(options);
  if (options.predict)
    flags.refuse({"--image", "--size"}, "belongs to a picture, which --predict has not");
  result.draws = result.draws && !options.predict;
  if (!result.draws) options.out.clear();
  if (result.draws && options.image.empty())
    options.image = repository_path("data/images/chelsea.png");
  require_files(options);
  return result;
}

// ---- A user's tensors ---------------------------------------------------------------------------

std::vector<half> halves_of(const std::string& path, const char* name, const Tensor& tensor,
                            bool finite) {
  std::vector<half> halves(tensor.values.size());
  for (size_t i = 0; i < halves.size(); ++i) {
    halves[i] = __float2half(tensor.values[i]);
    if (finite && !std::isfinite(__half2float(halves[i])))
      throw UsageError(
          format("%s: tensor '%s': element %zu is %g, fp16 holds finite values up to "
                 "65504",
                 path.c_str(), name, i, double(tensor.values[i])));
  }
  return halves;
}

DeformableProblem input_deformable(const std::string& path) {
  const std::vector<Tensor> tensors =
      read_safetensors(path, {"value", "sampling_locations", "attention_weights"});
  const Tensor &value = tensors[0], &locations = tensors[1], &weights = tensors[2];
  const Numbers sizes = read_numbers(path, "spatial_shapes");
  const auto fail = [&](const std::string& why) { throw UsageError(path + ": " + why); };
  if (value.shape.size() != 4)
    fail("tensor 'value' has shape " + shape_text(value.shape) +
         ", [batch, pixels, heads, channels] is needed");
  if (sizes.shape.size() != 2 || sizes.shape[1] != 2 || sizes.shape[0] < 1 ||
      sizes.shape[0] > kMaxLevels)
    fail("tensor 'spatial_shapes' has shape " + shape_text(sizes.shape) +
         ", [levels, 2] with 1 to 5 levels is needed: height and width of each");
  if (locations.shape.size() != 6)
    fail("tensor 'sampling_locations' has shape " + shape_text(locations.shape) +
         ", [batch, queries, heads, levels, points, 2] is needed");
  for (const Tensor* tensor : {&value, &locations})
    for (const int64_t size : tensor->shape)
      if (size < 1 || size > kMaxQueries * int64_t(100))
        fail("a dimension of " + shape_text(tensor->shape) + " is out of range");
  DeformableProblem problem;
  DeformableShape& shape = problem.shape;
  shape = {int(value.shape[0]),
           int(locations.shape[1]),
           int(value.shape[2]),
           int(value.shape[3]),
           int(sizes.shape[0]),
           int(locations.shape[4]),
           {}};
  for (int l = 0; l < shape.levels; ++l)
    for (int axis = 0; axis < 2; ++axis) {
      const long double size = sizes.values[2 * l + axis];
      const bool whole = size == std::floor(size);
      if (!(size >= 1 && size <= 65536) || !whole)
        fail("tensor 'spatial_shapes': level " + std::to_string(l) + " has a size of " +
             format(whole ? "%.0Lf" : "%Lg", size) + ", a whole number from 1 to 65536 is needed");
      (axis ? shape.level[l].width : shape.level[l].height) = int(size);
    }
  try {
    require_deformable_shape(shape);
  } catch (const std::invalid_argument& error) {
    fail(error.what());
  }
  const int64_t B = shape.batch, Q = shape.queries, H = shape.heads, L = shape.levels,
                P = shape.points;
  const auto require = [&](const char* name, const Tensor& tensor,
                           const std::vector<int64_t>& needed) {
    if (tensor.shape != needed)
      fail(std::string("tensor '") + name + "' has shape " + shape_text(tensor.shape) + ", " +
           shape_text(needed) + " is needed to go with the others");
  };
  require("value", value, {B, shape.pixels(), H, shape.channels});
  require("sampling_locations", locations, {B, Q, H, L, P, 2});
  require("attention_weights", weights, {B, Q, H, L, P});
  problem.value = halves_of(path, "value", value, true);
  problem.locations = halves_of(path, "sampling_locations", locations, false);
  problem.weights = halves_of(path, "attention_weights", weights, true);
  problem.source = file_name(path);
  return problem;
}

// ---- Steps --------------------------------------------------------------------------------------

// The output that the reference computes of a problem. It is computed some rows at a time, so that
// the progress shown is true.
class Expected {
 public:
  explicit Expected(const DeformableProblem& problem) : shape_(problem.shape) {
    std::atomic<double> share = 0;
    const Progress progress("CPU reference of " + describe(shape_), [&] { return share.load(); });
    const std::vector<float> value = to_float(problem.value),
                             locations = to_float(problem.locations),
                             weights = to_float(problem.weights);
    out_.resize(shape_.out_elements());
    constexpr int64_t kRows = 16384;
    for (int64_t row = 0; row < shape_.rows(); row += kRows) {
      reference::deformable_attention_rows(value.data(), locations.data(), weights.data(), shape_,
                                           row, std::min(kRows, shape_.rows() - row),
                                           &out_[row * shape_.channels]);
      share = double(std::min(row + kRows, shape_.rows())) / double(shape_.rows());
    }
    for (const float v : value) max_value_ = std::max(max_value_, std::abs(v));
  }
  // Throws UsageError where an output is beyond what fp16 holds.
  void require_fp16_range(const std::string& path) const {
    for (size_t i = 0; i < out_.size(); ++i)
      if (std::abs(out_[i]) > 65504)
        throw UsageError(
            format("%s: overflows fp16: element %zu of the output is %g, fp16 ends at "
                   "65504: smaller value or attention_weights",
                   path.c_str(), i, out_[i]));
  }
  // An output is a weighted mean of values, as attention's is: its tolerance.
  Comparison compared(const std::vector<half>& out) const {
    return compare(out, out_, Tolerance::fp16_mean(max_value_),
                   {shape_.batch, shape_.queries, shape_.heads, shape_.channels});
  }

 private:
  DeformableShape shape_;
  std::vector<double> out_;
  float max_value_ = 0;
};

void run_step(const DeformableStep& step, DeformableArrays& a, const DeformableShape& shape,
              cudaStream_t stream = nullptr) {
  step.function(a.value.data(), a.locations.data(), a.weights.data(), a.out.data(), shape, stream);
}

// The share of an array full of NaN that has been written, seen in 1000 places. out: what the host
// may look at while a kernel runs.
double share_written(const half* out, size_t count) {
  const size_t places = std::min<size_t>(count, 1000);
  size_t written = 0;
  for (size_t i = 0; i < places; ++i) {
    const volatile uint16_t* place =
        reinterpret_cast<const volatile uint16_t*>(out) + i * count / places;
    written += *place != 0xffff;
  }
  return double(written) / double(places);
}

// What the cache model says of a step's loads of values, for both distributions.
void add_hit_rates(const DeformableStep& step, const DeformableShape& shape, uint64_t seed,
                   Report& report) {
  std::string text = step.name + ": hits in L1 of what values ask for:";
  for (const Distribution distribution : {Distribution::kLocal, Distribution::kUniform}) {
    std::vector<DeformableArrays> arrays = upload(random_deformable(shape, distribution, seed), 1);
    run_step(step, arrays[0], shape);
    check(cudaDeviceSynchronize());
    const double rate = vgpu::counter("/allocations/value/cache/l1/hit_rate");
    report.add_number(step.name, std::string("l1_hit_rate_") + name_of(distribution), rate);
    text += format(" %.1f%% %s,", 100 * rate, name_of(distribution));
  }
  text.back() = ' ';
  report.note(text + format("(cache model, batch %d)", shape.batch));
}

// The step of that name, or all; those that lack something are left out, and said why. Throws
// UsageError for a name that is none, LackError where the one asked for lacks something.
std::vector<DeformableStep> chosen_steps(const std::vector<DeformableStep>& steps,
                                         const std::string& name,
                                         std::vector<std::string>& left_out) {
  std::vector<DeformableStep> chosen;
  std::string names;
  for (const DeformableStep& step : steps) {
    names += (names.empty() ? "" : &step == &steps.back() ? " or " : ", ") + step.name;
    if (name.empty() ? step.variant : name != step.name) continue;
    const std::string lack = step.lacks ? step.lacks() : "";
    if (lack.empty())
      chosen.push_back(step);
    else if (name.empty())
      left_out.push_back(step.name + " is left out: it " + lack);
    else
      throw LackError("--step " + name + ": it " + lack);
  }
  if (chosen.empty()) throw UsageError("--step '" + name + "': must be " + names);
  return chosen;
}

// ---- A run --------------------------------------------------------------------------------------

// What is run, and on what.
struct DeformableRun {
  DeformableOptions asked;
  std::vector<DeformableStep> steps;  // those asked for that the device can run
  Device device;
  DeformableProblem problem;
  int copies = 1;  // of the arrays, in rotation
  std::vector<DeformableArrays> arrays;
};

// What was not given is set to what suits the device.
void settle_defaults(DeformableRun& run) {
  DeformableOptions& asked = run.asked;
  Options& options = asked.common;
  const bool is_virtual = run.device.is_virtual;
  if (asked.preset.empty()) asked.preset = is_virtual ? "small" : "full";
  if (options.batch == 0)
    options.batch = asked.preset == "small" ? 2 : asked.preset == "medium" ? 8 : 48;
  if (asked.queries == 0) asked.queries = 15422;
  if (asked.channels == 0) asked.channels = 32;
}

// The problem: its shape where it is random, checked; how many copies there is memory for; then the
// numbers. Throws std::invalid_argument for a shape that no step takes, LackError for want of
// memory.
void make_problem(DeformableRun& run) {
  const DeformableOptions& asked = run.asked;
  const bool is_random = asked.common.input.empty();
  DeformableShape& shape = run.problem.shape;
  if (is_random) {
    shape = course_deformable_shape(asked.common.batch, asked.queries);
    shape.heads = asked.heads;
    shape.channels = asked.channels;
    shape.points = asked.points;
  }
  require_deformable_shape(shape);

  // On the device the four arrays, in rotated copies. On the host they are there in fp16 and, for
  // the reference, in float; its output in double, the kernel's in fp16.
  const double bytes = bytes_of(shape);
  run.copies = rotation_copies(run.device, bytes);
  require_memory(run.device, bytes * run.copies, 3 * bytes + 12.0 * double(shape.out_elements()),
                 "deformable attention of shape " + describe(shape));
  if (!is_random) return;
  const Progress progress("making the problem");
  run.problem = random_deformable(shape, asked.distribution, asked.common.seed);
}

ReportHead report_head(const char* chapter, const DeformableRun& run) {
  const DeformableShape& shape = run.problem.shape;
  const double bytes = bytes_of(shape);
  ReportHead head{chapter,
                  run.asked.common,
                  run.device,
                  run.problem.source,
                  describe(shape) + "\n         " + human_bytes(bytes) + " in all",
                  {{"batch", shape.batch},
                   {"queries", shape.queries},
                   {"heads", shape.heads},
                   {"channels", shape.channels},
                   {"levels", shape.levels},
                   {"points", shape.points},
                   {"pixels", shape.pixels()}},
                  {}};
  head.details.emplace_back("bytes", format("%.0f", bytes));
  if (run.asked.common.input.empty())
    head.details.emplace_back("distribution", format("\"%s\"", name_of(run.asked.distribution)));
  return head;
}

// Least traffic, and a multiply-add for each channel of each of a sample's four pixels.
Cost cost_of(const DeformableShape& shape) {
  return {bytes_of(shape), 8.0 * double(shape.samples()) * shape.channels};
}

// What the counters said while steps ran.
struct StepCounters {
  double loaded_by_wide = 0;        // bytes that the loads of the wide step ask for
  std::set<std::string> unlimited;  // steps whose modelled limit leaves something out
};

// Runs, times and compares the step; its output is returned.
std::vector<half> run_timed(DeformableRun& run, const DeformableStep& step,
                            const std::optional<Expected>& expected, const std::string& wide,
                            Report& report, StepCounters& counters) {
  const DeformableShape& shape = run.problem.shape;
  const Options& options = run.asked.common;
  DeformableArrays& checked = run.arrays[0];
  checked.out.fill_nan();
  check(cudaDeviceSynchronize());
  const half* watched = checked.out.data();
  const bool once = run.device.is_virtual && options.warmup + options.iterations == 1;
  const Progress progress(step.name, [=, count = checked.out.size()] {
    return once ? share_written(watched, count) : -1;
  });
  const StepLaunch launch = [&](int i, cudaStream_t stream) {
    run_step(step, run.arrays[i % run.copies], shape, stream);
  };
  const Timing timing =
      time_step(run.device, launch, run.copies, options.warmup, options.iterations);
  if (step.name == wide) counters.loaded_by_wide = vgpu::counter("/global/load/bytes_asked");
  if (vgpu::counter("/distributed_shared/load/requests") > 0 &&
      std::isnan(vgpu::counter("/limits/distributed shared memory")))
    counters.unlimited.insert(step.name);
  std::vector<half> out = checked.out.download();
  report.add(step.name, timing, cost_of(shape),
             expected ? expected->compared(out) : Comparison::none());
  if (step.variant) report.add_number(step.name, "variant", 1);
  return out;
}

// Each step against the one before, and why for some there is no ratio.
void add_ratios(const DeformableRun& run, const StepCounters& counters, Report& report) {
  const std::set<std::string>& unlimited = counters.unlimited;
  for (size_t i = 1; i < run.steps.size(); ++i) {
    const std::string& after = run.steps[i].name;
    const std::string& before =
        run.steps[i].before.empty() ? run.steps[i - 1].name : run.steps[i].before;
    if (!unlimited.count(after) && !unlimited.count(before)) report.add_ratio(after, before);
  }
  for (const std::string& name : unlimited)
    report.note(name +
                ": its bound leaves out what comes from other blocks' shared memory, since "
                "how fast\nthat comes on this device is not published. So no ratio is shown.");
}

// What the L1 delivers to the wide step's loads, 128 bytes a clock and SM, and what could be
// computed with that.
void note_intensity(const DeformableRun& run, const std::string& wide, double loaded,
                    Report& report) {
  const double flops = cost_of(run.problem.shape).flops;
  const double l1 = 128.0 * run.device.sm_count * run.device.clock_hz;
  report.note(
      format("arithmetic intensity of %s: %.2f FLOP for each byte its loads ask for.\n"
             "The L1 delivers at most %.1f TB/s, enough for %.0f TFLOP/s; fp32 units do "
             "%.0f: faster multiplying\nwould not help.",
             wide.c_str(), flops / loaded, l1 / 1e12, flops / loaded * l1 / 1e12,
             run.device.fp32_flop_per_s / 1e12));
}

// For --profile: hit rates of all steps on one image.
void add_all_hit_rates(const DeformableRun& run, Report& report) {
  vgpu::set_cache_model(true);
  DeformableShape one = run.problem.shape;
  one.batch = 1;
  for (const DeformableStep& step : run.steps) {
    const Progress progress(step.name + ", cache model");
    add_hit_rates(step, one, run.asked.common.seed, report);
  }
  vgpu::set_cache_model(false);
}

// The last step on the photo's pyramid, compared as all else is, and the picture of what it finds.
void draw_photo(const DeformableRun& run, const Image& photo, Report& report) {
  const Options& options = run.asked.common;
  const DeformableStep& step = run.steps.back();
  const DeformableProblem pyramid = photo_deformable(photo, options.size);
  std::vector<DeformableArrays> a = upload(pyramid, 1);
  run_step(step, a[0], pyramid.shape);
  check(cudaDeviceSynchronize());
  const std::vector<half> directions = a[0].out.download();
  const Comparison right = Expected(pyramid).compared(directions);
  save_image(options.out, draw_directions(pyramid.photo, options.size, directions));
  report.note(format("%s: %s of %s, %d x %d pixels, seen by 32 oriented filters in 4 levels",
                     options.out.c_str(), step.name.c_str(), file_name(options.image).c_str(),
                     options.size, options.size));
  report.require(right.pass, "on the photo: " + right.describe());
}

ExitCode deformable_program(int argc, char** argv, const char* chapter, const char* about,
                            const std::vector<DeformableStep>& all_steps) {
  DeformableRun run;
  run.asked = deformable_options(argc, argv, about);
  Options& options = run.asked.common;
  Image photo;
  if (!options.input.empty()) run.problem = input_deformable(options.input);
  if (run.asked.draws) photo = load_image(options.image);

  run.device = open_device();
  complete_for(run.device, options);
  std::vector<std::string> left_out;
  run.steps = chosen_steps(all_steps, run.asked.step, left_out);
  settle_defaults(run);
  make_problem(run);

  Report report(report_head(chapter, run));
  std::optional<Expected> expected;
  if (!options.predict) expected.emplace(run.problem);
  if (expected && !options.input.empty()) expected->require_fp16_range(options.input);
  run.arrays = upload(run.problem, run.copies, run.device.is_virtual);

  const std::string& wide = all_steps[1].name;
  StepCounters counters;
  std::vector<half> out;
  for (const DeformableStep& step : run.steps)
    out = run_timed(run, step, expected, wide, report, counters);
  add_ratios(run, counters, report);
  for (const std::string& why : left_out) report.note(why);
  if (run.device.is_virtual && counters.loaded_by_wide > 0 && !options.predict)
    note_intensity(run, wide, counters.loaded_by_wide, report);
  if (options.profile && !options.predict) add_all_hit_rates(run, report);
  if (!options.output.empty()) {
    const DeformableShape& shape = run.problem.shape;
    write_safetensors(options.output,
                      {{"out",
                        {{shape.batch, shape.queries, int64_t(shape.heads) * shape.channels},
                         to_float(out),
                         "F16"}}});
  }
  if (run.asked.draws) draw_photo(run, photo, report);
  return report.finish();
}

}  // namespace

int deformable_main(int argc, char** argv, const char* chapter, const char* about,
                    const std::vector<DeformableStep>& steps) {
  return guarded_main(chapter,
                      [&] { return deformable_program(argc, argv, chapter, about, steps); });
}

}  // namespace lab
