// The program of the gradients of deformable attention: flags, problem, steps, photo.
#include "program.h"

#include <cmath>
#include <optional>

#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/progress.h"
#include "../../../common/lab/report.h"
#include "../../../common/lab/steps.h"
#include "../../../common/lab/tensors.h"
#include "json/json.h"
#include "steps.h"

namespace lab::deformable {
namespace {

constexpr int kMaxBatch = 4096, kMaxHeads = 64, kMaxQueries = 10'000'000, kMaxSize = 256;

struct GradientOptions {
  Options common;
  std::string preset, step;  // empty: the device decides; all
  Distribution distribution = Distribution::kLocal;
  int heads = 1, queries = 0, channels = 32, points = 8;  // 0: the preset's
  bool draws = true;
};

GradientOptions gradient_options(int argc, char** argv) {
  GradientOptions result;
  Options& options = result.common;
  options.out = "gradient.png";
  std::string distribution = "local";
  Flags flags(
      "Gradients of multi-scale deformable attention (chapter 7): of value, of locations and\n"
      "of weights, compared with the CPU reference.",
      "The problem is random (--preset and the flags that change it); the last step also "
      "works\non a photo (--image, --size) and draws where its gradient is.");
  flags.text("--preset", result.preset, "NAME",
             "tiny: 1 image of 1000 queries; small, medium or full: 2, 8 or 48\nimages of 15422 "
             "(GPU: full, virtual GPU: tiny)");
  flags.text("--step", result.step, "NAME", "this step alone");
  flags.text("--distribution", distribution, "NAME",
             "of sampling points: local (2 pixels around a raster) or uniform (local)");
  flags.number("--batch", options.batch, 1, kMaxBatch, "N", "images, in place of the preset's");
  flags.number("--queries", result.queries, 1, kMaxQueries, "N",
               "queries of an image, in place of the preset's");
  flags.number("--heads", result.heads, 1, kMaxHeads, "N", "heads (1)");
  flags.number("--channels", result.channels, 16, 64, "N", "of a head: 16, 32 or 64 (32)");
  flags.number("--points", result.points, 4, 8, "N", "samples of a query in a level: 4 or 8 (8)");
  flags.number("--size", options.size, 16, kMaxSize, "PIXELS",
               "photo's side, a multiple of 8 (48; on the way to 4 levels)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.text("--out", options.out, "FILE", "photo and the gradient over it, .png or .jpg");
  flags.text("--output", options.output, "FILE",
             "safetensors: grad_value, grad_locations and grad_weights of the last step, F32");
  flags.run_flags(options, "of the random problem (1)");
  flags.parse(argc, argv);

  if (!result.preset.empty())
    require_one_of("--preset", result.preset, {"tiny", "small", "medium", "full"});
  require_one_of("--distribution", distribution, {"local", "uniform"});
  result.distribution = distribution == "local" ? Distribution::kLocal : Distribution::kUniform;
  if (!flags.given("--size")) options.size = 48;
  if (options.size % 8 != 0)
    throw UsageError(
        format("--size '%d': must be a multiple of 8 pixels, for four levels", options.size));
  const bool photo_flags = flags.given("--image") || flags.given("--out") || flags.given("--size");
  bool reshaped = false;
  for (const char* flag : {"--preset", "--batch", "--queries", "--heads", "--channels", "--points"})
    reshaped |= flags.given(flag);
  flags.refuse_with_predict(options);
  if (options.predict)
    flags.refuse({"--image", "--size"}, "belongs to a picture, which --predict has not");
  result.draws = (photo_flags || !reshaped) && !options.predict;
  if (!result.draws) options.out.clear();
  if (result.draws && options.image.empty())
    options.image = repository_path("data/images/chelsea.png");
  require_files(options);
  return result;
}

// ---- A run --------------------------------------------------------------------------------------

struct GradientRun {
  GradientOptions asked;
  Device device;
  std::vector<GradientStep> steps;
  GradientProblem problem;
  std::optional<ExpectedGradients> expected;  // nothing with --predict
  int copies = 1;
  std::vector<GradientArrays> arrays;

  const DeformableShape& shape() const { return problem.shape(); }
};

// The shape, checked, and how many copies there is memory for; then the numbers. Throws LackError
// for want of memory.
void make_problem(GradientRun& run) {
  GradientOptions& asked = run.asked;
  Options& options = asked.common;
  if (asked.preset.empty()) asked.preset = run.device.is_virtual ? "tiny" : "full";
  const std::string& preset = asked.preset;
  if (options.batch == 0)
    options.batch = preset == "tiny" ? 1 : preset == "small" ? 2 : preset == "medium" ? 8 : 48;
  if (asked.queries == 0) asked.queries = preset == "tiny" ? 1000 : 15422;
  DeformableShape shape = course_deformable_shape(options.batch, asked.queries);
  shape.heads = asked.heads;
  shape.channels = asked.channels;
  shape.points = asked.points;
  require_deformable_shape(shape);
  const double bytes = gradient_bytes(shape);
  run.copies = rotation_copies(run.device, bytes);
  require_memory(run.device, 1.5 * bytes * run.copies, 5 * bytes,
                 "gradients of deformable attention of shape " + describe(shape));
  const Progress progress("making the problem");
  run.problem = random_gradients(shape, asked.distribution, options.seed);
}

ReportHead report_head(const GradientRun& run) {
  const DeformableShape& shape = run.shape();
  const double bytes = gradient_bytes(shape);
  ReportHead head{"15_gradients",
                  run.asked.common,
                  run.device,
                  run.problem.forward.source,
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
  head.details.emplace_back("distribution",
                            format("\"%s\"", distribution_name(run.asked.distribution)));
  return head;
}

void run_step(const GradientStep& step, GradientArrays& a, const DeformableShape& shape,
              cudaStream_t stream = nullptr) {
  step.function(a.value.data(), a.locations.data(), a.weights.data(), a.grad_out.data(),
                a.grad_value.data(), a.grad_locations.data(), a.grad_weights.data(), shape, stream);
}

GradientComparisons compared(const GradientArrays& a, const ExpectedGradients& expected,
                             const DeformableShape& shape) {
  return compare_gradients(a.grad_value.download(), a.grad_locations.download(),
                           a.grad_weights.download(), expected, shape);
}

// The line of a step: compared, where there is something to compare with.
Comparison judged(const GradientRun& run, const std::string& name, Report& report) {
  if (!run.expected) return Comparison::none();
  const GradientComparisons right = compared(run.arrays[0], *run.expected, run.shape());
  report.require(right.locations.pass,
                 name + ": gradient of locations: " + right.locations.describe());
  report.require(right.weights.pass, name + ": gradient of weights: " + right.weights.describe());
  return right.value;
}

// What is predicted of a stage of several kernels: of each by itself, as a capture of the stage has them.
// Those that get no prediction are left out of the sum, and named in a note.
void add_up_kernels(const std::string& stage, const StepLaunch& launch, Timing& timing,
                    Report& report) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  check(cudaStreamCreate(&stream));
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  launch(0, stream);
  check(cudaStreamEndCapture(stream, &graph));
  size_t count = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  check(cudaGraphGetNodes(graph, nodes.data(), &count));
  double sum_us = 0, error = 0;
  int kernels = 0, unknown = 0;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    check(cudaGraphNodeGetType(node, &type));
    if (type == cudaGraphNodeTypeMemset) {
      cudaMemsetParams set{};
      check(cudaGraphMemsetNodeGetParams(node, &set));
      check(cudaMemset2D(set.dst, set.pitch, int(set.value), set.width * set.elementSize,
                         set.height));
    }
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaKernelNodeParams kernel{};
    check(cudaGraphKernelNodeGetParams(node, &kernel));
    const vgpu::Predicting predicting(true);
    check(cudaLaunchKernel(kernel.func, kernel.gridDim, kernel.blockDim, kernel.kernelParams,
                           kernel.sharedMemBytes, nullptr));
    check(cudaDeviceSynchronize());
    const double us = vgpu::counter("/predicted/us");
    ++kernels;
    unknown += !std::isfinite(us);
    if (!std::isfinite(us)) continue;
    sum_us += us;
    error = vgpu::counter("/predicted/error");
  }
  check(cudaGraphDestroy(graph));
  check(cudaStreamDestroy(stream));
  timing.counters.clear();
  if (unknown == kernels) return;
  timing.counters =
      json::Value(
          {{"predicted", {{"us", sum_us}, {"error", error}, {"stalls", json::Value::object()}}}})
          .dump();
  report.note(
      format("%s: %d kernels of CUB's; its time is the sum of %d. The others get no prediction.",
             stage.c_str(), kernels, kernels - unknown));
}

// The stages of a step one by one, then the step as a whole.
void run_stages(GradientRun& run, const GradientStep& step, const StepLaunch& whole,
                Report& report) {
  const Options& options = run.asked.common;
  const DeformableShape& shape = run.shape();
  DeviceArray<char> scratch(step.scratch_bytes(shape), "scratch");
  std::vector<Timing> timings;
  for (const GradientStage& stage : step.stages) {
    if (options.predict) step.fill_scratch(run.problem, scratch.data());
    const StepLaunch launch = [&](int i, cudaStream_t stream) {
      stage.launch(run.arrays[size_t(i % run.copies)], shape, scratch.data(), stream);
    };
    timings.push_back(
        time_step(run.device, launch, run.copies, options.warmup, options.iterations));
    if (!stage.one_kernel && run.device.is_virtual)
      add_up_kernels(stage.name, launch, timings.back(), report);
  }
  const Comparison of_stages = judged(run, step.name + " in stages", report);
  for (size_t i = 0; i < step.stages.size(); ++i)
    report.add_launch(step.stages[i].name, timings[i], step.stages[i].cost(shape), of_stages,
                      Report::Errors::kOfStep);
  GradientArrays& checked = run.arrays[0];
  checked.grad_value.fill_nan(), checked.grad_locations.fill_nan(), checked.grad_weights.fill_nan();
  const Timing total =
      time_total(run.device, whole, run.copies, options.warmup, options.iterations, timings);
  report.add_total(step.name, total, gradient_cost(shape), judged(run, step.name, report));
}

void run_timed(GradientRun& run, const GradientStep& step, Report& report) {
  const Options& options = run.asked.common;
  GradientArrays& checked = run.arrays[0];
  checked.grad_value.fill_nan(), checked.grad_locations.fill_nan(), checked.grad_weights.fill_nan();
  const Progress progress(step.name);
  const StepLaunch launch = [&](int i, cudaStream_t stream) {
    run_step(step, run.arrays[size_t(i % run.copies)], run.shape(), stream);
  };
  if (!step.stages.empty()) {
    run_stages(run, step, launch, report);
    return;
  }
  const Timing timing =
      time_step(run.device, launch, run.copies, options.warmup, options.iterations);
  report.add(step.name, timing, gradient_cost(run.shape()), judged(run, step.name, report));
}

void write_gradients(const GradientArrays& a, const DeformableShape& shape,
                     const std::string& path) {
  const int64_t B = shape.batch, Q = shape.queries, H = shape.heads, L = shape.levels,
                P = shape.points;
  write_safetensors(
      path,
      {{"grad_value", {{B, shape.pixels(), H, shape.channels}, a.grad_value.download(), "F32"}},
       {"grad_locations", {{B, Q, H, L, P, 2}, a.grad_locations.download(), "F32"}},
       {"grad_weights", {{B, Q, H, L, P}, a.grad_weights.download(), "F32"}}});
}

// The last step on the photo's pyramid, compared as all else is, and the picture.
void draw_photo(const GradientRun& run, const Image& photo, Report& report) {
  const Options& options = run.asked.common;
  const GradientStep& step = run.steps.back();
  const GradientProblem pyramid = photo_gradients(photo, options.size);
  std::vector<GradientArrays> a = upload(pyramid, 1);
  run_step(step, a[0], pyramid.shape());
  check(cudaDeviceSynchronize());
  const GradientComparisons right = compared(a[0], expected_gradients(pyramid), pyramid.shape());
  save_image(options.out,
             draw_gradient(pyramid.forward.photo, options.size, a[0].grad_value.download()));
  report.note(format(
      "%s: %s of %s, %d x %d pixels: where a change of the\npyramid changes what the queries "
      "of the picture's middle third find",
      options.out.c_str(), step.name.c_str(), file_name(options.image).c_str(), options.size,
      options.size));
  report.require(right.worst().pass, "on the photo: " + right.worst().describe());
}

ExitCode gradient_program(int argc, char** argv) {
  GradientRun run;
  run.asked = gradient_options(argc, argv);
  Options& options = run.asked.common;
  run.steps = chosen_steps(run.asked.step, gradient_steps());
  Image photo;
  if (run.asked.draws) photo = load_image(options.image);
  run.device = open_device();
  complete_for(run.device, options);
  make_problem(run);

  Report report(report_head(run));
  if (!options.predict) {
    const Progress progress("CPU reference");
    run.expected = expected_gradients(run.problem);
  }
  run.arrays = upload(run.problem, run.copies);
  for (const GradientStep& step : run.steps) run_timed(run, step, report);
  for (size_t i = 1; i < run.steps.size(); ++i)
    report.add_ratio(run.steps[i].name, run.steps[i - 1].name);
  if (!options.output.empty()) write_gradients(run.arrays[0], run.shape(), options.output);
  if (run.asked.draws) draw_photo(run, photo, report);
  return report.finish();
}

}  // namespace
}  // namespace lab::deformable

int deformable_main(int argc, char** argv) {
  // With or without the flag that led here.
  const bool flag = argc > 1 && std::string(argv[1]) == "--deformable";
  return lab::guarded_main("15_gradients", [&] {
    if (!flag) return lab::deformable::gradient_program(argc, argv);
    std::vector<char*> rest(argv, argv + argc);
    rest.erase(rest.begin() + 1);
    return lab::deformable::gradient_program(argc - 1, rest.data());
  });
}
