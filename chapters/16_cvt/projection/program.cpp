// The program of the convolutional projection: flags, problem, steps forward and back.
#include "program.h"

#include <optional>

#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/progress.h"
#include "../../../common/lab/report.h"
#include "../../../common/lab/tensors.h"
#include "arrays.h"

namespace lab::projection {
namespace {

constexpr int kMaxBatch = 4096, kMaxSize = 1024, kMaxChannels = 4096;

struct ProjectionOptions {
  Options common;
  std::string preset, dtype = "fp16";
  int height = 0, width = 0, channels = 0, class_tokens = -1;  // 0 and -1: the preset's
};

ProjectionOptions projection_options(int argc, char** argv) {
  ProjectionOptions result;
  Options& options = result.common;
  Flags flags(
      "CvT's convolutional projection: depthwise 3x3 and BatchNorm to q at stride 1 and to k and "
      "v\n"
      "at stride 2, forward and back, compared with the CPU reference.",
      "x is random, and so are the weights and the gradients that arrive.");
  flags.text(
      "--preset", result.preset, "NAME",
      "small: 2 maps of 14 x 14 x 64; cvt13-1, cvt13-2, cvt13-3: CvT-13's three stages at 224 "
      "pixels,\n56 x 56 x 64, 28 x 28 x 192 and 14 x 14 x 384 with a class token, in batches of "
      "32 (GPU: cvt13-1,\nvirtual GPU: small)");
  flags.number("--batch", options.batch, 1, kMaxBatch, "N", "maps, in place of the preset's");
  flags.number("--height", result.height, 1, kMaxSize, "N", "rows, in place of the preset's");
  flags.number("--width", result.width, 1, kMaxSize, "N", "columns, in place of the preset's");
  flags.number("--channels", result.channels, 1, kMaxChannels, "N", "in place of the preset's");
  flags.number("--class-tokens", result.class_tokens, 0, 1, "N",
               "0 or 1, in place of the preset's");
  flags.text("--dtype", result.dtype, "NAME",
             "fp16 or fp32: of x, maps and their gradients (fp16); weights and sums are fp32");
  flags.text("--output", options.output, "FILE",
             "safetensors: q, k, v before BatchNorm, dx, dw_q, dw_k and dw_v of the fused steps");
  flags.run_flags(options, "of the random problem (1)");
  flags.parse(argc, argv);
  if (!result.preset.empty())
    require_one_of("--preset", result.preset, {"small", "cvt13-1", "cvt13-2", "cvt13-3"});
  require_one_of("--dtype", result.dtype, {"fp16", "fp32"});
  require_files(options);
  return result;
}

cvt::ProjectionShape shape_of(const ProjectionOptions& asked, bool is_virtual) {
  const std::string preset = !asked.preset.empty() ? asked.preset
                             : is_virtual          ? "small"
                                                   : "cvt13-1";
  cvt::ProjectionShape shape = preset == "small"     ? cvt::ProjectionShape{2, 14, 14, 64, 0}
                               : preset == "cvt13-1" ? cvt::ProjectionShape{32, 56, 56, 64, 0}
                               : preset == "cvt13-2" ? cvt::ProjectionShape{32, 28, 28, 192, 0}
                                                     : cvt::ProjectionShape{32, 14, 14, 384, 1};
  if (asked.common.batch > 0) shape.batch = asked.common.batch;
  if (asked.height > 0) shape.height = asked.height;
  if (asked.width > 0) shape.width = asked.width;
  if (asked.channels > 0) shape.channels = asked.channels;
  if (asked.class_tokens >= 0) shape.class_tokens = asked.class_tokens;
  const double most = double(shape.batch) * shape.queries() * shape.channels;
  if (most >= double(1 << 30) * 2)
    throw UsageError(
        format("--batch %d, --height %d, --width %d and --channels %d: must be fewer "
               "than 2^31 numbers together",
               shape.batch, shape.height, shape.width, shape.channels));
  if (shape.batch * shape.out_height() * shape.out_width() < 2)
    throw UsageError(
        "one map of at most 2 x 2 pixels: BatchNorm's running variance needs at least 2 "
        "positions of k and v");
  return shape;
}

ReportHead report_head(const ProjectionOptions& asked, const Device& device,
                       const ProjectionProblem& problem) {
  const cvt::ProjectionShape& s = problem.shape;
  ReportHead head{
      "16_cvt",
      asked.common,
      device,
      format("random, seed %llu", (unsigned long long)asked.common.seed),
      format("[batch %d, height %d, width %d, channels %d], %d class tokens, %s", s.batch, s.height,
             s.width, s.channels, s.class_tokens, asked.dtype.c_str()),
      {{"batch", s.batch},
       {"height", s.height},
       {"width", s.width},
       {"channels", s.channels},
       {"class_tokens", s.class_tokens}},
      {}};
  head.details.emplace_back("dtype", "\"" + asked.dtype + "\"");
  head.details.emplace_back("component", "\"projection\"");
  return head;
}

// Steps on the arrays of one problem, in as many copies as rotation needs.
template <class T>
class Run {
 public:
  Run(const ProjectionOptions& asked, const Device& device, const ProjectionProblem& problem)
      : options_(asked.common),
        device_(device),
        problem_(problem),
        report_(report_head(asked, device, problem)) {
    if (!options_.predict) {
      const Progress progress("CPU reference");
      of_stored_ = expected_projection(problem, {.maps = true, .gradients = true});
      expected_ = expected_projection(problem);
    }
    const double bytes = backward_bytes(problem.shape, problem.storage);
    copies_ = rotation_copies(device, bytes);
    require_memory(device, 2 * bytes * copies_, 8 * bytes, "a convolutional projection");
    for (int i = 0; i < copies_; ++i) arrays_.emplace_back(problem);
  }

  ExitCode operator()() {
    const auto& forward = conv_projection::forward_steps<T>();
    for (const auto& step : forward) {
      const bool naive = &step == &forward.front();
      take(
          step, [&](Arrays<T>& arrays) { return arrays.forward(); },
          forward_cost(problem_.shape, problem_.storage),
          [&] {
            return compare_forward(arrays_[0].download(), naive ? *of_stored_ : *expected_,
                                   problem_.shape);
          });
      // Running statistics are brought forward once, and then they are compared.
      for (Arrays<T>& arrays : arrays_) arrays.reset_running(problem_);
    }
    // The maps of the last forward step are those that gradients need.
    const auto& back = conv_projection::backward_steps<T>();
    for (const auto& step : back) {
      const bool naive = &step == &back.front();
      take(
          step, [&](Arrays<T>& arrays) { return arrays.backward(); },
          backward_cost(problem_.shape, problem_.storage),
          [&] {
            return compare_backward(arrays_[0].download(), naive ? *of_stored_ : *expected_,
                                    problem_.shape);
          });
    }
    report_.add_ratio(back.back().name, back.front().name);
    report_.add_ratio(forward.back().name, forward.front().name);
    if (!options_.output.empty() && !options_.predict) write_output();
    return report_.finish();
  }

 private:
  void write_output() const {
    const ProjectionResults results = arrays_[0].download();
    const cvt::ProjectionShape& s = problem_.shape;
    const std::string type = std::is_same_v<T, half> ? "F16" : "F32";
    std::vector<NamedTensor> tensors;
    const auto add = [&](const std::string& name, const std::vector<int64_t>& shape,
                         const std::vector<double>& values, const std::string& stored) {
      tensors.push_back({name, {shape, {values.begin(), values.end()}, stored}});
    };
    for (int i = 0; i < 3; ++i)
      add(std::string(1, "qkv"[i]), {s.batch, i == 0 ? s.queries() : s.keys(), s.channels},
          results.maps[i], type);
    add("dx", {s.batch, s.queries(), s.channels}, results.dx, type);
    for (int i = 0; i < 3; ++i)
      add(
          std::string("dw_") + "qkv" [i], { s.channels, 3, 3 }, results.dw[i], "F32");
    write_safetensors(options_.output, tensors);
  }

  template <class Step, class ArgumentsOf, class Compare>
  void take(const Step& step, const ArgumentsOf& arguments_of, const Cost& cost,
            const Compare& compare) {
    const Progress progress(step.name);
    const cvt::ProjectionShape& shape = problem_.shape;
    DeviceArray<char> scratch(step.scratch_bytes(shape), "scratch");
    std::vector<std::vector<conv_projection::Launch>> launches;
    for (Arrays<T>& arrays : arrays_)
      launches.push_back(step.launches(arguments_of(arrays), scratch.data(), shape));
    std::vector<Timing> timings;
    for (size_t l = 0; l < launches[0].size(); ++l)
      timings.push_back(time_step(
          device_,
          [&](int i, cudaStream_t stream) { launches[size_t(i % copies_)][l].run(stream); },
          copies_, options_.warmup, options_.iterations));
    // What counts is what the step as a whole leaves on arrays that nothing has touched.
    for (Arrays<T>& arrays : arrays_) arrays.reset_running(problem_);
    Comparison right = Comparison::none();
    if (!options_.predict) {
      step.run(arguments_of(arrays_[0]), shape, nullptr);
      check(cudaDeviceSynchronize());
      const NamedComparison compared = compare();
      right = compared.second;
      report_.require(right.pass, step.name + ": " + compared.first + ": " + right.describe());
    }
    for (size_t l = 0; l < timings.size(); ++l) {
      const conv_projection::Launch& launch = launches[0][l];
      report_.add_launch(launch.name, timings[l], {launch.bytes, launch.flops}, right,
                         Report::Errors::kOfStep);
    }
    const Timing total = time_total(
        device_,
        [&](int i, cudaStream_t stream) {
          step.run(arguments_of(arrays_[size_t(i % copies_)]), shape, stream);
        },
        copies_, options_.warmup, options_.iterations, timings);
    report_.add_total(step.name, total, cost, right);
  }

  const Options& options_;
  const Device& device_;
  const ProjectionProblem& problem_;
  Report report_;
  std::optional<ExpectedProjection> expected_, of_stored_;
  int copies_ = 1;
  std::vector<Arrays<T>> arrays_;
};

ExitCode projection_program(int argc, char** argv) {
  ProjectionOptions asked = projection_options(argc, argv);
  const Device device = open_device();
  const cvt::ProjectionShape shape = shape_of(asked, device.is_virtual);
  asked.common.batch = shape.batch;
  complete_for(device, asked.common);
  const Storage storage = asked.dtype == "fp16" ? Storage::kFp16 : Storage::kFp32;
  // (Memory of the host: doubles of all arrays, and what the reference makes of them.)
  require_memory(device, 0, 40 * backward_bytes(shape, Storage::kFp16) / 14,
                 "the problem of a convolutional projection");
  const ProjectionProblem problem = [&] {
    const Progress progress("making the problem");
    return random_projection(shape, storage, asked.common.seed);
  }();
  return storage == Storage::kFp16 ? Run<half>(asked, device, problem)()
                                   : Run<float>(asked, device, problem)();
}

}  // namespace
}  // namespace lab::projection

int projection_main(int argc, char** argv) {
  return lab::guarded_main("16_cvt",
                           [&] { return lab::projection::projection_program(argc, argv); });
}
