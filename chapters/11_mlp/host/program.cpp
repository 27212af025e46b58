// The program of chapter 11: flags, memory, problem, steps, picture.
#include <algorithm>
#include <cmath>
#include <fstream>

#include "../../../common/json/json.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/report.h"
#include "../../../common/lab/tensors.h"
#include "problem.h"

namespace lab {
namespace {

constexpr int kMaxBatch = 4096, kMaxTokens = 1 << 20, kMaxWidth = 1 << 16, kMaxSize = 1024;
constexpr const char* kNames[] = {"x", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"};

struct MlpOptions {
  Options common;
  MlpSizes sizes;      // of random tensors
  std::string preset;  // that they come from; empty: none was named
  std::string step;    // empty: all
  std::string storage_name = "fp16";
  bool draws = true;

  Storage storage() const { return storage_name == "fp16" ? Storage::kFp16 : Storage::kFp32; }
};

MlpOptions mlp_options(int argc, char** argv, const char* about) {
  MlpOptions result;
  Options& options = result.common;
  options.batch = 1;
  options.out = "hidden.png";
  int tokens = 0, width = 0, hidden = 0;
  Flags flags(about,
              "The problem is a photo's patches as tokens of 768 values (--image, --size), random\n"
              "tensors as soon as --preset or a flag of a size is given, or a file (--input).");
  flags.text("--preset", result.preset, "NAME",
             "tokens x width to hidden: tiny (197x192 to 768),\nbase (197x768 to 3072), ffn512 "
             "(8x1024x512 to 2048),\nffn768 (4x2048x768 to 3072), ffn1024 (2x4096x1024 to 4096)");
  flags.number("--batch", options.batch, 1, kMaxBatch, "N", "images (1, or the preset's)");
  flags.number("--tokens", tokens, 1, kMaxTokens, "N", "of an image (197)");
  flags.number("--width", width, 1, kMaxWidth, "N", "values of a token (768)");
  flags.number("--hidden", hidden, 1, kMaxWidth, "N", "hidden units (4 times the width)");
  flags.text("--step", result.step, "NAME", "this step alone");
  flags.text("--storage", result.storage_name, "NAME",
             "fp16 or fp32 (fp16): of all arrays; fp32 is multiplied in\ntf32, by the steps that "
             "can");
  flags.number("--size", options.size, 16, kMaxSize, "PIXELS", "photo's side (224)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.text("--out", options.out, "FILE", "photo and hidden units' answers, .png or .jpg");
  flags.text("--input", options.input, "FILE",
             "safetensors: x [tokens, width] or [N, tokens, width],\nfc1.weight, fc1.bias, "
             "fc2.weight, fc2.bias; F16 or F32");
  flags.text("--output", options.output, "FILE", "safetensors: out, as --storage says");
  flags.run_flags(options, "of random tensors and weights (1)");
  flags.parse(argc, argv);

  require_one_of("--storage", result.storage_name, {"fp16", "fp32"});
  flags.refuse_with_predict(options);
  const bool random = !result.preset.empty() || tokens || width || hidden;
  const bool photo = flags.given("--image") || flags.given("--size") || flags.given("--out");
  if (flags.given("--input")) {
    flags.refuse({"--preset", "--batch", "--tokens", "--width", "--hidden", "--seed"},
                 "does not go with --input: the file has its own sizes");
    flags.refuse({"--image", "--size", "--out"},
                 "belongs to a photo, --input is one's own tensors");
  } else if (random && photo) {
    flags.refuse({"--image", "--size", "--out"},
                 "belongs to a photo, sizes to random tensors: choose one");
  }
  result.draws = options.input.empty() && !random;
  if (!result.draws) options.out.clear();
  if (result.draws && options.image.empty())
    options.image = repository_path("data/images/chelsea.png");
  MlpSizes& sizes = result.sizes;
  sizes = preset_mlp(result.preset.empty() ? "base" : result.preset);
  if (flags.given("--batch")) sizes.batch = options.batch;
  if (tokens) sizes.tokens = tokens;
  if (width) sizes.width = width, sizes.hidden = 4 * width;
  if (hidden) sizes.hidden = hidden;
  options.batch = sizes.batch;
  require_files(options);
  return result;
}

// ---- A user's tensors ---------------------------------------------------------------------------

// Throws UsageError naming file, tensor and what is needed.
MlpProblem input_mlp(const std::string& path) {
  std::vector<Tensor> tensors =
      read_safetensors(path, std::vector<std::string>(std::begin(kNames), std::end(kNames)));
  const auto fail = [&](const std::string& why) { throw UsageError(path + ": " + why); };
  const std::vector<int64_t>&x = tensors[0].shape, &w1 = tensors[1].shape;
  if (x.size() != 2 && x.size() != 3)
    fail("tensor 'x' has shape " + shape_text(x) +
         ", [tokens, width] or [batch, tokens, width] is "
         "needed");
  for (const Tensor& tensor : tensors)
    for (const int64_t size : tensor.shape)
      if (size < 1 || size > INT32_MAX)
        fail("a dimension of " + shape_text(tensor.shape) + " is out of range");
  const int64_t width = x.back(), hidden = w1.empty() ? 0 : w1[0];
  const std::vector<int64_t> needed[] = {x, {hidden, width}, {hidden}, {width, hidden}, {width}};
  MlpProblem p;
  std::vector<float>* const into[] = {&p.x, &p.w1, &p.b1, &p.w2, &p.b2};
  for (int t = 0; t < 5; ++t) {
    if (tensors[t].shape != needed[t])
      fail(std::string("tensor '") + kNames[t] + "' has shape " + shape_text(tensors[t].shape) +
           ", " + shape_text(needed[t]) + " is needed to go with the others");
    for (size_t i = 0; i < tensors[t].values.size(); ++i)
      if (!std::isfinite(tensors[t].values[i]))
        fail(format("tensor '%s': element %zu is %g, a finite number is needed", kNames[t], i,
                    double(tensors[t].values[i])));
    *into[t] = std::move(tensors[t].values);
  }
  const bool batched = x.size() == 3;
  p.sizes = {batched ? int(x[0]) : 1, int(x[x.size() - 2]), int(width), int(hidden)};
  p.source = file_name(path);
  return p;
}

// ---- A run --------------------------------------------------------------------------------------

struct MlpRun {
  MlpOptions asked;
  std::vector<MlpStep> steps;
  Device device;
  MlpProblem problem;
  int copies = 1;  // of the arrays, in rotation
  std::vector<MlpOnDevice> arrays;
  MlpExpected expected;

  bool compares() const { return !asked.common.predict; }
};

void choose_steps(MlpRun& run, const std::vector<MlpStep>& all_steps) {
  std::string names;
  for (const MlpStep& step : all_steps) {
    if (step.storage != run.asked.storage()) continue;
    names += (names.empty() ? "" : ", ") + step.name;
    if (run.asked.step.empty() ? !step.variant : run.asked.step == step.name)
      run.steps.push_back(step);
  }
  if (run.steps.empty())
    throw UsageError("--step '" + run.asked.step + "': with --storage " + run.asked.storage_name +
                     " it must be one of: " + names);
}

// A file's tensors or the photo's; of random tensors the sizes alone: they are made when it is
// known that there is memory for them.
MlpProblem problem_asked_for(const MlpOptions& asked) {
  const Options& options = asked.common;
  MlpProblem problem;
  if (!options.input.empty()) {
    problem = input_mlp(options.input);
  } else if (asked.draws) {
    problem = photo_mlp(load_image(options.image), options.size, options.batch, options.seed);
    problem.source = format("%s, %d x %d pixels, patches of 16 x 16; random weights, seed %llu",
                            file_name(options.image).c_str(), options.size, options.size,
                            static_cast<unsigned long long>(options.seed));
  } else {
    problem.sizes = asked.sizes;
  }
  const MlpSizes& s = problem.sizes;
  if (int64_t(s.batch) * s.tokens > INT32_MAX)
    throw UsageError(describe(s) + ": batch x tokens must be fewer than 2^31");
  require_shape(s.first());
  require_shape(s.second());
  return problem;
}

// Throws LackError where the device cannot do what is asked.
void settle_on_device(MlpRun& run) {
  complete_for(run.device, run.asked.common);
  for (const MlpStep& step : run.steps)
    if (const std::string why = step.lacking ? step.lacking() : ""; !why.empty())
      throw LackError("--storage " + run.asked.storage_name + ": " + why);
  const MlpSizes& s = run.problem.sizes;
  const double elements = 2.0 * s.rows() * s.width + 1.0 * s.rows() * s.hidden +
                          2.0 * s.width * s.hidden + s.width + s.hidden;
  const double bytes = elements * (run.asked.storage() == Storage::kFp16 ? 2 : 4);
  run.copies = rotation_copies(run.device, bytes);
  require_memory(run.device, bytes * run.copies, 12 * elements, "MLP of " + describe(s));
}

ReportHead report_head(const char* chapter, const MlpRun& run) {
  const MlpSizes& s = run.problem.sizes;
  ReportHead head{
      chapter,
      run.asked.common,
      run.device,
      run.problem.source,
      describe(s) + (run.asked.storage() == Storage::kFp32 ? ", fp32 in tf32" : ""),
      {{"batch", s.batch}, {"rows", s.rows()}, {"width", s.width}, {"hidden", s.hidden}},
      {}};
  if (run.asked.storage() == Storage::kFp32) head.details = {{"storage", "\"fp32\""}};
  if (!run.asked.preset.empty())
    head.details.emplace_back("preset", "\"" + run.asked.preset + "\"");
  return head;
}

// ---- A step of a run ----------------------------------------------------------------------------

std::vector<float> downloaded(const MlpRun& run, bool hidden) {
  const MlpOnDevice& a = run.arrays[0];
  if (a.fp16) return to_float((hidden ? a.fp16->hidden : a.fp16->y).download());
  return (hidden ? a.fp32->hidden : a.fp32->y).download();
}

// The rows of [.., columns] that are compared.
std::vector<float> rows_of(const std::vector<float>& all, const std::vector<int>& rows,
                           int columns) {
  std::vector<float> result;
  for (const int row : rows)
    result.insert(result.end(), all.begin() + int64_t(row) * columns,
                  all.begin() + int64_t(row + 1) * columns);
  return result;
}

Comparison compared(const MlpRun& run) {
  if (!run.compares()) return Comparison::none();
  const int width = run.problem.sizes.width;
  const MlpExpected& e = run.expected;
  return compare(rows_of(downloaded(run, false), e.rows, width), e.y, e.y_tolerance,
                 {int64_t(e.rows.size()), width});
}

void clear_result(MlpRun& run) {
  MlpOnDevice& a = run.arrays[0];
  if (a.fp16) a.fp16->y.fill_nan(), a.fp16->hidden.fill_nan();
  if (a.fp32) a.fp32->y.fill_nan(), a.fp32->hidden.fill_nan();
}

// The launches that the step consists of, each alone, as lines of the report.
std::vector<Timing> run_launches(MlpRun& run, const MlpStep& step, Report& report) {
  const auto stages = step.stages(run.problem.sizes);
  const Options& options = run.asked.common;
  std::vector<Launch> launches;
  for (const auto& stage : stages)
    launches.push_back([&](int i) { stage.second(run.arrays[i % run.copies]); });
  clear_result(run);
  const std::vector<Timing> timings =
      time_stages(run.device, launches, options.warmup, options.iterations);
  const Comparison right = compared(run);
  for (size_t i = 0; i < stages.size(); ++i)
    report.add_launch(stages[i].first, timings[i], {}, right, Report::Errors::kOfStep);
  return timings;
}

// Lines that are neither empty nor a comment alone; 0 where a file is not there.
int code_lines(const std::vector<std::string>& files) {
  int lines = 0;
  for (const std::string& file : files) {
    std::ifstream in(repository_path("chapters/11_mlp/" + file));
    if (!in) return 0;
    for (std::string line; std::getline(in, line);) {
      const size_t first = line.find_first_not_of(' ');
      lines += first != std::string::npos && line.compare(first, 2, "//") != 0;
    }
  }
  return lines;
}

// "wmma: 105 TFLOP/s as predicted, 119 lines of code without tile.cuh"; on a GPU by the measured
// time.
void note_rate(const MlpRun& run, const MlpStep& step, const std::vector<Timing>& timings,
               const Timing& whole, Report& report) {
  double us = run.device.is_virtual ? 0 : whole.median_us;
  for (const Timing& timing : timings) {
    if (!run.device.is_virtual) break;
    const json::Value counters = json::parse_or_null(timing.counters);
    const json::Value* const predicted = counters.find_path("/predicted/us");
    if (!predicted || !predicted->is_number()) return;
    us += predicted->get<double>();
  }
  const int lines = code_lines(step.files);
  if (us <= 0 || lines == 0) return;
  report.note(format("%s: %.3g TFLOP/s%s, %d lines of code without tile.cuh", step.name.c_str(),
                     mlp_cost(run.problem.sizes, step.storage).flops / us / 1e6,
                     run.device.is_virtual ? " as predicted" : "", lines));
}

void run_step(MlpRun& run, const MlpStep& step, Report& report) {
  const MlpSizes& sizes = run.problem.sizes;
  const Options& options = run.asked.common;
  const StepLaunch launch = [&](int i, cudaStream_t stream) {
    step.run(run.arrays[i % run.copies], sizes, stream);
  };
  const std::vector<Timing> timings = run_launches(run, step, report);
  clear_result(run);
  const Timing whole =
      time_total(run.device, launch, run.copies, options.warmup, options.iterations, timings);
  report.add_total(step.name, whole, mlp_cost(sizes, step.storage), compared(run));
  if (step.variant) report.add_number(step.name, "variant", 1);
  note_rate(run, step, timings, whole, report);
}

// The last step's y as a file, and the hidden units as a picture where the problem is a photo.
void write_results(const MlpRun& run, Report& report) {
  const MlpSizes& s = run.problem.sizes;
  const Options& options = run.asked.common;
  if (!options.output.empty())
    write_safetensors(options.output, {{"out",
                                        {{s.batch, s.tokens, s.width},
                                         downloaded(run, false),
                                         run.asked.storage() == Storage::kFp16 ? "F16" : "F32"}}});
  if (!run.asked.draws || !run.compares()) return;
  save_image(options.out, draw_hidden(run.problem.photo, s, downloaded(run, true)));
  report.note(format("%s: the photo, and what eight hidden units of %s answer to its patches",
                     options.out.c_str(), run.steps.back().name.c_str()));
}

ExitCode mlp_program(int argc, char** argv, const char* chapter, const char* about,
                     const std::vector<MlpStep>& all_steps) {
  MlpRun run;
  run.asked = mlp_options(argc, argv, about);
  choose_steps(run, all_steps);
  run.problem = problem_asked_for(run.asked);
  run.device = open_device();
  settle_on_device(run);
  const MlpOptions& asked = run.asked;
  if (run.problem.x.empty()) run.problem = random_mlp(run.problem.sizes, asked.common.seed);
  if (asked.storage() == Storage::kFp16) run.problem = rounded_to_fp16(std::move(run.problem));

  Report report(report_head(chapter, run));
  if (run.compares()) run.expected = expected_mlp(run.problem, asked.storage());
  const int rows = run.problem.sizes.rows();
  if (run.compares() && int(run.expected.rows.size()) < rows)
    report.note(format("compared: %zu of %d rows, spread over all of them",
                       run.expected.rows.size(), rows));
  run.arrays = upload(run.problem, asked.storage(), run.copies);
  for (const MlpStep& step : run.steps) run_step(run, step, report);
  for (size_t i = 1; i < run.steps.size(); ++i)
    report.add_ratio(run.steps[i].name, run.steps[i - 1].name);
  write_results(run, report);
  return report.finish();
}

}  // namespace

int mlp_main(int argc, char** argv, const char* chapter, const char* about,
             const std::vector<MlpStep>& steps) {
  return guarded_main(chapter, [&] {
    try {
      return mlp_program(argc, argv, chapter, about, steps);
    } catch (const std::invalid_argument& error) {  // a shape that a step refuses
      throw UsageError(error.what());
    }
  });
}

}  // namespace lab
