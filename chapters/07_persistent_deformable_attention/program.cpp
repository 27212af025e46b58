// The program of chapter 7: flags and environment, memory, problem, steps, photo.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <set>

#include "../../common/lab/errors.h"
#include "../../common/lab/program.h"
#include "../../common/lab/report.h"
#include "../../common/lab/tensors.h"
#include "../../common/lab/images.h"
#include "../../common/lab/device.h"
#include "problem.h"
#include "../../common/lab/files.h"
#include "../../common/lab/flags.h"
#include "../../common/lab/progress.h"
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
    throw UsageError(format("--size '%d': must be a multiple of 8 pixels, for four levels",
                            options.size));
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
      throw UsageError(format("%s: tensor '%s': element %zu is %g, fp16 holds finite values up to "
                              "65504",
                              path.c_str(), name, i, double(tensor.values[i])));
  }
  return halves;
}

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

DeformableProblem input_deformable(const std::string& path) {
  const std::vector<Tensor> tensors =
      read_safetensors(path, {"value", "sampling_locations", "attention_weights"});
  const Tensor &value = tensors[0], &locations = tensors[1], &weights = tensors[2];
  const Numbers sizes = read_numbers(path, "spatial_shapes");
  const auto fail = [&](const std::string& why) { throw UsageError(path + ": " + why); };
  if (value.shape.size() != 4)
    fail("tensor 'value' has shape " + text_of(value.shape) +
         ", [batch, pixels, heads, channels] is needed");
  if (sizes.shape.size() != 2 || sizes.shape[1] != 2 || sizes.shape[0] < 1 ||
      sizes.shape[0] > kMaxLevels)
    fail("tensor 'spatial_shapes' has shape " + text_of(sizes.shape) +
         ", [levels, 2] with 1 to 5 levels is needed: height and width of each");
  if (locations.shape.size() != 6)
    fail("tensor 'sampling_locations' has shape " + text_of(locations.shape) +
         ", [batch, queries, heads, levels, points, 2] is needed");
  for (const Tensor* tensor : {&value, &locations})
    for (const int64_t size : tensor->shape)
      if (size < 1 || size > kMaxQueries * int64_t(100))
        fail("a dimension of " + text_of(tensor->shape) + " is out of range");
  DeformableProblem problem;
  DeformableShape& shape = problem.shape;
  shape = {int(value.shape[0]),     int(locations.shape[1]), int(value.shape[2]),
           int(value.shape[3]),     int(sizes.shape[0]),     int(locations.shape[4]), {}};
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
      fail(std::string("tensor '") + name + "' has shape " + text_of(tensor.shape) + ", " +
           text_of(needed) + " is needed to go with the others");
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

// The oracle's output of a problem, some rows after the others to tell how far it is.
class Expected {
 public:
  Expected(const DeformableProblem& problem) : shape_(problem.shape) {
    std::atomic<double> share = 0;
    const Progress progress("CPU reference of " + describe(shape_),
                            [&] { return share.load(); });
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
    std::vector<DeformableArrays> arrays =
        upload(random_deformable(shape, distribution, seed), 1);
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
    if (!name.empty() && name != step.name) continue;
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

ExitCode deformable_program(int argc, char** argv, const char* chapter, const char* about,
                            const std::vector<DeformableStep>& all_steps) {
  DeformableOptions all = deformable_options(argc, argv, about);
  Options& options = all.common;
  DeformableProblem problem;
  Image photo;
  if (!options.input.empty()) problem = input_deformable(options.input);
  if (all.draws) photo = load_image(options.image);

  const Device device = open_device();
  const bool is_virtual = device.is_virtual;
  complete_for(device, options);
  std::vector<std::string> left_out;
  const std::vector<DeformableStep> steps = chosen_steps(all_steps, all.step, left_out);
  if (all.preset.empty()) all.preset = is_virtual ? "small" : "full";
  if (options.batch == 0)
    options.batch = all.preset == "small" ? 2 : all.preset == "medium" ? 8 : 48;
  if (all.queries == 0) all.queries = 15422;
  if (all.channels == 0) all.channels = 32;
  if (options.input.empty()) {
    problem.shape = course_deformable_shape(options.batch, all.queries);
    problem.shape.heads = all.heads;
    problem.shape.channels = all.channels;
    problem.shape.points = all.points;
  }
  const DeformableShape& shape = problem.shape;
  require_deformable_shape(shape);

  // On the device the four arrays, in rotated copies. On the host they are there in fp16 and, for
  // the reference, in float; its output in double, the kernel's in fp16.
  const double bytes = bytes_of(shape);
  const int copies = rotation_copies(device, bytes);
  require_memory(device, bytes * copies, 3 * bytes + 12.0 * double(shape.out_elements()),
                 "deformable attention of shape " + describe(shape));
  if (options.input.empty()) {
    const Progress progress("making the problem");
    problem = random_deformable(shape, all.distribution, options.seed);
  }

  ReportHead head{chapter,
                  options,
                  device,
                  problem.source,
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
  if (options.input.empty())
    head.details.emplace_back("distribution", format("\"%s\"", name_of(all.distribution)));
  Report report(head);
  const Expected expected(problem);
  if (!options.input.empty()) expected.require_fp16_range(options.input);
  std::vector<DeformableArrays> arrays = upload(problem, copies, is_virtual);

  // Least traffic, and a multiply-add for each channel of each of a sample's four pixels.
  const Cost cost{bytes, 8.0 * double(shape.samples()) * shape.channels};
  std::vector<half> out;
  const DeformableStep& wide = all_steps[1];
  double loaded = 0;                // bytes that its loads ask for
  std::set<std::string> unlimited;  // steps whose limit leaves something out
  for (const DeformableStep& step : steps) {
    arrays[0].out.fill_nan();
    check(cudaDeviceSynchronize());
    const half* watched = arrays[0].out.data();
    const bool once = is_virtual && options.warmup + options.iterations == 1;
    const Progress progress(step.name, [=, count = arrays[0].out.size()] {
      return once ? share_written(watched, count) : -1;
    });
    const StepLaunch run = [&](int i, cudaStream_t stream) {
      run_step(step, arrays[i % copies], shape, stream);
    };
    const Timing timing = time_step(device, run, copies, options.warmup, options.iterations);
    if (step.name == wide.name) loaded = vgpu::counter("/global/load/bytes_asked");
    if (vgpu::counter("/distributed_shared/load/requests") > 0) unlimited.insert(step.name);
    out = arrays[0].out.download();
    report.add(step.name, timing, cost, expected.compared(out));
  }
  const auto add_ratio = [&](const std::string& after, const std::string& before) {
    if (!unlimited.count(after) && !unlimited.count(before)) report.add_ratio(after, before);
  };
  for (size_t i = 1; i < steps.size(); ++i)
    add_ratio(steps[i].name, steps[i].before.empty() ? steps[i - 1].name : steps[i].before);
  for (const std::string& name : unlimited)
    report.note(name + ": its bound leaves out what comes from other blocks' shared memory, since "
                "how fast\nthat comes is not published. So no ratio is shown.");
  for (const std::string& why : left_out) report.note(why);
  if (is_virtual && loaded > 0) {
    // What its L1 delivers, 128 bytes a clock and SM, and what could be computed with that.
    const double l1 = 128.0 * device.sm_count * device.clock_hz;
    report.note(format("arithmetic intensity of %s: %.2f FLOP for each byte its loads ask for.\n"
                       "The L1 delivers at most %.1f TB/s, enough for %.0f TFLOP/s; fp32 units do "
                       "%.0f: faster multiplying\nwould not help.",
                       wide.name.c_str(), cost.flops / loaded, l1 / 1e12,
                       cost.flops / loaded * l1 / 1e12, device.fp32_flop_per_s / 1e12));
  }

  if (options.profile) {
    vgpu::set_cache_model(true);
    DeformableShape one = shape;
    one.batch = 1;
    for (const DeformableStep& step : steps) {
      const Progress progress(step.name + ", cache model");
      add_hit_rates(step, one, options.seed, report);
    }
    vgpu::set_cache_model(false);
  }
  if (!options.output.empty())
    write_safetensors(options.output,
                      {{"out",
                        {{shape.batch, shape.queries, int64_t(shape.heads) * shape.channels},
                         to_float(out),
                         "F16"}}});

  // The photo: the last step on its pyramid, compared as all else is.
  if (all.draws) {
    const DeformableProblem pyramid = photo_deformable(photo, options.size);
    std::vector<DeformableArrays> a = upload(pyramid, 1);
    run_step(steps.back(), a[0], pyramid.shape);
    check(cudaDeviceSynchronize());
    const std::vector<half> directions = a[0].out.download();
    const Comparison right = Expected(pyramid).compared(directions);
    save_image(options.out, draw_directions(pyramid.photo, options.size, directions));
    report.note(format("%s: %s of %s, %d x %d pixels, seen by 32 oriented filters in 4 levels",
                       options.out.c_str(), steps.back().name.c_str(),
                       file_name(options.image).c_str(), options.size, options.size));
    report.require(right.pass, "on the photo: " + right.describe());
  }
  return report.finish();
}

}  // namespace

int deformable_main(int argc, char** argv, const char* chapter, const char* about,
                    const std::vector<DeformableStep>& steps) {
  return guarded_main(chapter,
                      [&] { return deformable_program(argc, argv, chapter, about, steps); });
}

}  // namespace lab
