// The program of chapter 15: flags, memory, problem, the forward pass, the steps, a picture.
#include <algorithm>
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
#include "problem.h"

namespace lab {
namespace {

using gradients::Pointers;
using gradients::Step;

constexpr int kMaxTokens = 65536, kMaxBatch = 65536, kMaxHeads = 4096, kMaxSize = 1024;

struct GradientOptions {
  Options common;
  int heads = 12, tokens = 197, head_dim = 64;
  bool random = false;
  std::string step;  // empty: all
  std::string patch;
};

// The token that --patch names on a photo of grid x grid patches.
int parse_patch(const std::string& patch, int grid) {
  const size_t comma = patch.find(',');
  if (comma == std::string::npos) throw UsageError("--patch '" + patch + "': must be ROW,COLUMN");
  const int row = parse_number("--patch row", patch.substr(0, comma), 0, grid - 1);
  const int column = parse_number("--patch column", patch.substr(comma + 1), 0, grid - 1);
  return 1 + row * grid + column;
}

GradientOptions gradient_options(int argc, char** argv, const char* about) {
  GradientOptions result;
  Options& options = result.common;
  options.out = "gradients.png";
  Flags flags(about,
              "The problem is a photo (--image, --size) whose attention shall give back its own\n"
              "tokens, or random tensors as soon as --heads, --tokens or --head-dim is given.\n"
              "--deformable as the first flag: the gradients of chapter 7's attention instead.");
  flags.number("--batch", options.batch, 1, kMaxBatch, "N", "images (GPU: 32, virtual GPU: 1)");
  flags.number("--heads", result.heads, 1, kMaxHeads, "N", "heads of random tensors (12)");
  flags.number("--tokens", result.tokens, 1, kMaxTokens, "N", "tokens of random tensors (197)");
  flags.option(
      "--head-dim",
      [&](const std::string& text) {
        if (text != "32" && text != "64" && text != "128")
          throw UsageError("--head-dim '" + text + "': must be 32, 64 or 128");
        result.head_dim = std::stoi(text);
      },
      "N", "values of a head of random tensors: 32, 64 or 128 (64)");
  flags.number("--size", options.size, 16, kMaxSize, "PIXELS",
               "photo's side, a multiple of 16 (224, that is 197 tokens)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.text("--patch", result.patch, "ROW,COLUMN", "whose gradient is drawn (the middle)");
  flags.text("--out", options.out, "FILE", "picture, .png or .jpg (gradients.png)");
  flags.text("--output", options.output, "FILE",
             "safetensors: out, the last step's dQ, dK and dV, F16");
  flags.text("--step", result.step, "NAME", "this step alone");
  flags.run_flags(options, "of random tensors, and of the shifts of a batch's photos (1)");
  flags.parse(argc, argv);

  result.random = flags.given("--heads") || flags.given("--tokens") || flags.given("--head-dim");
  if (result.random)
    flags.refuse(
        {"--image", "--size", "--patch", "--out"},
        "belongs to a photo, --heads, --tokens and --head-dim to random tensors: choose one");
  if (options.size % 16 != 0)
    throw UsageError(
        format("--size '%d': must be a multiple of 16 pixels, a patch's side", options.size));
  if (result.random) options.out.clear();
  flags.refuse_with_predict(options);
  if (options.predict) flags.refuse({"--patch"}, "belongs to a picture, which --predict has not");
  if (!result.random && options.image.empty())
    options.image = repository_path("data/images/chelsea.png");
  if (!result.patch.empty()) parse_patch(result.patch, options.size / 16);
  require_files(options);
  return result;
}

// The steps that are run. Throws UsageError where the one asked for is none.
std::vector<Step> chosen_steps(const std::vector<Step>& steps, const std::string& asked) {
  if (asked.empty()) return steps;
  std::string names;
  for (const Step& step : steps) {
    names += (names.empty() ? "" : &step == &steps.back() ? " or " : ", ") + step.name;
    if (step.name == asked) return {step};
  }
  throw UsageError("--step '" + asked + "': must be " + names);
}

// On the device, in as many copies as rotation needs; copy 0 is the checked one.
struct GradientArrays {
  DeviceArray<half> Q, K, V, O, dO, dQ, dK, dV;
  DeviceArray<float> log_sum_exp;

  Pointers pointers(DeviceArray<float>& workspace) {
    return {Q.data(),           K.data(),  V.data(),  O.data(),  dO.data(),
            log_sum_exp.data(), dQ.data(), dK.data(), dV.data(), workspace.data()};
  }
  void clear() {
    for (DeviceArray<half>* array : {&dQ, &dK, &dV}) array->fill_nan();
  }
};

struct GradientRun {
  GradientOptions asked;
  Device device;
  GradientProblem problem;
  std::optional<GradientExpected> expected;  // nothing with --predict
  int copies = 1;
  std::vector<GradientArrays> arrays;
  ForwardFunction forward;

  const AttentionShape& shape() const { return problem.attention.shape; }
};

// Arrays of the batch's first `images` images.
std::vector<GradientArrays> upload(const GradientProblem& problem, int copies) {
  const AttentionProblem& a = problem.attention;
  const size_t elements = size_t(a.shape.elements());
  std::vector<GradientArrays> arrays;
  for (int i = 0; i < copies; ++i) {
    const std::string copy = i ? " (copy " + std::to_string(i + 1) + ")" : "";
    const auto empty = [&](const char* name) { return DeviceArray<half>(elements, name + copy); };
    arrays.push_back({DeviceArray<half>(a.q, "Q" + copy), DeviceArray<half>(a.k, "K" + copy),
                      DeviceArray<half>(a.v, "V" + copy), empty("O"), empty("dO"), empty("dQ"),
                      empty("dK"), empty("dV"),
                      DeviceArray<float>(size_t(a.shape.rows()), "log_sum_exp" + copy)});
  }
  return arrays;
}

// O and log-sum-exp, then dO: of a photo it follows from O. Nothing of that is timed: numbers do not
// change how long a step takes, so that with --predict any will do.
void run_forward(GradientRun& run, Report& report) {
  const AttentionShape& shape = run.shape();
  GradientArrays& first = run.arrays[0];
  if (run.asked.common.predict) {
    for (GradientArrays& a : run.arrays) {
      a.O.upload(run.problem.attention.v);
      a.dO.upload(run.problem.attention.v);
      a.log_sum_exp.upload(std::vector<float>(size_t(shape.rows()), 8.0f));
    }
    return;
  }
  const Progress progress("forward pass");
  first.O.fill_nan();
  first.log_sum_exp.fill_nan();
  const std::vector<Timing> timings =
      time_stages(run.device, {[&](int) {
                    run.forward(first.Q.data(), first.K.data(), first.V.data(), first.O.data(),
                                first.log_sum_exp.data(), shape, nullptr);
                  }},
                  0, 1);
  const std::vector<half> output = first.O.download();
  const std::vector<float> log_sum_exp = first.log_sum_exp.download();
  if (!run.asked.random) run.problem.d_o = distance_gradient(run.problem.attention, output);
  run.expected = expected_gradients(run.problem);
  const GradientExpected& expected = *run.expected;
  Comparison right = compare(output, expected.O, expected.for_O,
                             {shape.batch, shape.heads, shape.tokens, shape.head_dim});
  if (right.pass) {
    const Comparison sums = compare(log_sum_exp, expected.log_sum_exp, expected.for_log_sum_exp,
                                    {shape.batch, shape.heads, shape.tokens});
    if (!sums.pass) right = sums;
  }
  report.add_beside("forward", timings[0], right);
  for (GradientArrays& a : run.arrays) {
    a.O.upload(output);
    a.dO.upload(run.problem.d_o);
    a.log_sum_exp.upload(log_sum_exp);
  }
}

// How many numbers of b have other bits than those of a.
int64_t changed(const std::vector<half>& a, const std::vector<half>& b) {
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += std::memcmp(&a[i], &b[i], sizeof(half)) != 0;
  return count;
}

void run_step(GradientRun& run, const Step& step, Report& report) {
  const Progress progress(step.name);
  const Options& options = run.asked.common;
  const AttentionShape& shape = run.shape();
  DeviceArray<float> workspace(size_t(step.workspace_of(shape)), "workspace");
  GradientArrays& checked = run.arrays[0];
  const auto compared = [&] {
    if (!run.expected) return Comparison::none();
    const GradientComparison result = compare_gradients(
        checked.dQ.download(), checked.dK.download(), checked.dV.download(), *run.expected, shape);
    if (!result.comparison.pass)
      report.note(step.name + ": " + result.array + ": " + result.comparison.describe());
    return result.comparison;
  };
  const auto clear = [&] {
    checked.clear();
    if (!options.predict) workspace.fill_nan();
  };

  clear();
  std::vector<Launch> stages;
  for (const gradients::Launch& launch : step.launches)
    stages.push_back([&](int i) {
      launch.function(run.arrays[i % run.copies].pointers(workspace), shape, nullptr);
    });
  const std::vector<Timing> timings =
      time_stages(run.device, stages, options.warmup, options.iterations);
  const Comparison right = compared();
  for (size_t i = 0; i < stages.size(); ++i)
    report.add_launch(step.launches[i].name, timings[i], {}, right, Report::Errors::kOfStep);

  const std::vector<half> before = checked.dQ.download();
  clear();
  const StepLaunch whole = [&](int i, cudaStream_t stream) {
    gradients::run(step, run.arrays[i % run.copies].pointers(workspace), shape, stream);
  };
  const Timing total =
      time_total(run.device, whole, run.copies, options.warmup, options.iterations, timings);
  report.add_total(step.name, total, gradient_cost(shape, step.tensor_cores), compared());
  if (!run.expected) return;
  const int64_t other = changed(before, checked.dQ.download());
  if (step.same_bits)
    report.require(other == 0, step.name + ": dQ had other bits the second time");
  else
    report.note(format(
        "%s, run again: %lld of %lld numbers of dQ have other bits\n(atomic additions may "
        "come in any order%s)",
        step.name.c_str(), static_cast<long long>(other), static_cast<long long>(before.size()),
        run.device.is_virtual ? "; the virtual GPU repeats its own" : ""));
}

void write_output(const GradientRun& run) {
  const AttentionShape& shape = run.shape();
  const GradientArrays& a = run.arrays[0];
  Tensor out{{3, shape.batch, shape.heads, shape.tokens, shape.head_dim}, {}, "F16"};
  for (const DeviceArray<half>* array : {&a.dQ, &a.dK, &a.dV}) {
    const std::vector<float> values = to_float(array->download());
    out.values.insert(out.values.end(), values.begin(), values.end());
  }
  write_safetensors(run.asked.common.output, {{"out", out}});
}

// For one patch to come out of attention as it went in: which keys would have to change. dK of the
// last step, with dO of that patch alone.
void draw(GradientRun& run, const Step& step, Report& report) {
  const AttentionProblem& problem = run.problem.attention;
  AttentionShape shape = problem.shape;
  shape.batch = 1;
  GradientArrays& arrays = run.arrays[0];
  const int token =
      run.asked.patch.empty() ? problem.chosen_token : parse_patch(run.asked.patch, problem.grid);
  DeviceArray<half> d_o(gradient_of_token(run.problem, token), "dO of one token");
  DeviceArray<float> workspace(size_t(step.workspace_of(shape)), "workspace");
  Pointers pointers = arrays.pointers(workspace);
  pointers.dO = d_o.data();
  vgpu::set_counters(false);
  gradients::run(step, pointers, shape, nullptr);
  check(cudaDeviceSynchronize());
  vgpu::set_counters(true);
  const std::vector<double> sizes =
      size_of_keys(arrays.dK.download(0, size_t(shape.elements())), shape);
  const Options& options = run.asked.common;
  save_image(options.out, draw_heat_map(problem.photo, problem.grid, token, sizes));
  const auto place = [&](int t) {
    return t == 0 ? std::string("the class token")
                  : format("patch %d,%d", (t - 1) / problem.grid, (t - 1) % problem.grid);
  };
  int next = -1;
  for (int t = 0; t < shape.tokens; ++t)
    if (t != token && (next < 0 || sizes[t] > sizes[next])) next = t;
  report.note(format(
      "%s: for %s to come out of attention as it went in, keys would have to\nchange; "
      "its own by %.3g, that of %s, the next, by %.3g",
      options.out.c_str(), place(token).c_str(), sizes[token], place(next).c_str(), sizes[next]));
}

ReportHead report_head(const char* chapter, const GradientRun& run) {
  const AttentionShape& shape = run.shape();
  return {chapter,
          run.asked.common,
          run.device,
          run.problem.attention.source,
          describe(shape) + format(", scale %g", double(shape.scale)),
          {{"batch", shape.batch},
           {"heads", shape.heads},
           {"tokens", shape.tokens},
           {"head_dim", shape.head_dim}},
          {{"scale", format("%.17e", double(shape.scale))}}};
}

// Throws LackError for want of memory, before any is taken.
void make_problem(GradientRun& run, const std::vector<Step>& steps) {
  const GradientOptions& asked = run.asked;
  const Options& options = asked.common;
  const int grid = options.size / 16;
  const AttentionShape shape =
      asked.random ? AttentionShape{options.batch, asked.heads, asked.tokens, asked.head_dim,
                                    float(1 / std::sqrt(double(asked.head_dim)))}
                   : AttentionShape{options.batch, 12, grid * grid + 1, 64, 0.125f};
  double workspace = 0;
  for (const Step& step : steps)
    workspace = std::max(workspace, 4.0 * double(step.workspace_of(shape)));
  const double once = 16.0 * double(shape.elements()) + 4.0 * double(shape.rows());
  run.copies = rotation_copies(run.device, once);
  require_memory(run.device, once * run.copies + workspace,
                 (8 + 12 * 8.0) * double(shape.elements()),
                 "gradients of attention of shape " + describe(shape));
  const Progress progress("making the problem");
  if (asked.random) {
    run.problem = random_gradients(shape, options.seed);
    return;
  }
  AttentionProblem& photo = run.problem.attention;
  photo = photo_attention(load_image(options.image), options.size, options.batch, options.seed);
  photo.source =
      format("%s, %d x %d pixels", file_name(options.image).c_str(), options.size, options.size);
}

ExitCode gradients_program(int argc, char** argv, const char* chapter, const char* about,
                           const std::vector<Step>& all, ForwardFunction forward) {
  GradientRun run;
  run.asked = gradient_options(argc, argv, about);
  run.forward = forward;
  Options& options = run.asked.common;
  const std::vector<Step> steps = chosen_steps(all, run.asked.step);
  run.device = open_device();
  complete_for(run.device, options);
  if (options.batch == 0) options.batch = run.device.is_virtual ? 1 : 32;
  make_problem(run, steps);
  run.arrays = upload(run.problem, run.copies);

  Report report(report_head(chapter, run));
  run_forward(run, report);
  for (const Step& step : steps) run_step(run, step, report);
  for (size_t i = 1; i < steps.size(); ++i) report.add_ratio(steps[i].name, steps[i - 1].name);
  if (!options.output.empty()) write_output(run);
  if (!options.out.empty() && !options.predict) draw(run, steps.back(), report);
  return report.finish();
}

}  // namespace

int gradients_main(int argc, char** argv, const char* chapter, const char* about,
                   const std::vector<Step>& steps, ForwardFunction forward) {
  return guarded_main(
      chapter, [&] { return gradients_program(argc, argv, chapter, about, steps, forward); });
}

}  // namespace lab
