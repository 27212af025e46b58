// The program of chapter 0: flags, memory, problem, the steps, picture.
#include <chrono>
#include <cmath>
#include <optional>

#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/progress.h"
#include "../../../common/lab/report.h"
#include "../../../common/lab/table.h"
#include "../../../common/lab/tensors.h"
#include "json/json.h"
#include "problem.h"

namespace lab {
namespace {

struct PhotoOptions {
  Options common;
  int height = 0, width = 0;  // of random pixels; 0: the photo
  std::string step;           // empty: all
  bool draws = false;
};

constexpr int kMaxSize = 4096;  // its square is the most pixels that a step takes

PhotoOptions photo_options(int argc, char** argv, const char* about) {
  PhotoOptions result;
  Options& options = result.common;
  options.out = "blurred.png";
  Flags flags(about, "The problem is a photo (--image, --size) or random (--height, --width).");
  flags.number("--size", options.size, 1, kMaxSize, "PIXELS", "photo's side (224)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.text("--out", options.out, "FILE", "photo, grey and blurred, .png or .jpg");
  flags.number("--height", result.height, 1, PhotoShape::kMaxSide, "N",
               "random pixels in place of the photo: rows");
  flags.number("--width", result.width, 1, PhotoShape::kMaxSide, "N", "columns");
  flags.text("--step", result.step, "NAME",
             "this step alone. Two are run only so: 'sum serial', where one thread\nof a block "
             "adds, and race, whose sum is wrong");
  flags.text("--output", options.output, "FILE", "safetensors: out, the blurred photo, F32");
  flags.run_flags(options, "of random pixels (1)");
  flags.parse(argc, argv);

  if (flags.given("--height") != flags.given("--width"))
    throw UsageError("--height and --width go together: random pixels have both");
  const bool random = flags.given("--height");
  if (random)
    flags.refuse({"--size", "--image"},
                 "does not go with --height and --width: no photo is loaded");
  flags.refuse_with_predict(options);
  if (flags.given("--step"))
    flags.refuse({"--out", "--output"}, "does not go with --step: it needs all steps");
  result.draws = !options.predict && !flags.given("--step") && (!random || flags.given("--out"));
  if (!result.draws) options.out.clear();
  if (options.image.empty() && !random) options.image = repository_path("data/images/chelsea.png");
  require_files(options);
  return result;
}

// The steps that are run. Throws UsageError where the one asked for is none.
std::vector<PhotoStep> chosen_steps(const PhotoKernels& kernels, const std::string& asked) {
  std::vector<PhotoStep> chosen;
  std::string names;
  for (const PhotoStep& step : kernels.steps) {
    names += (names.empty() ? "" : &step == &kernels.steps.back() ? " or " : ", ") + step.name;
    if (asked.empty() ? !step.asked : asked == step.name) chosen.push_back(step);
  }
  if (chosen.empty()) throw UsageError("--step '" + asked + "': must be " + names);
  return chosen;
}

// ---- A run --------------------------------------------------------------------------------------

// On the device, in as many copies as rotation needs; copy 0 is the checked one.
struct PhotoArrays {
  DeviceArray<unsigned char> photo, grey, blurred;
  DeviceArray<unsigned> sum;
};

struct PhotoRun {
  PhotoOptions asked;
  Device device;
  PhotoProblem problem;
  std::optional<PhotoExpected> expected;  // nothing with --predict
  std::vector<PhotoArrays> arrays;

  PhotoArrays& of(int i) { return arrays[size_t(i) % arrays.size()]; }
  const Options& options() const { return asked.common; }
};

std::vector<PhotoArrays> upload(const PhotoProblem& problem, int copies) {
  std::vector<PhotoArrays> arrays;
  const size_t pixels = size_t(problem.shape.pixels());
  for (int i = 0; i < copies; ++i) {
    const std::string copy = i ? " (copy " + std::to_string(i + 1) + ")" : "";
    arrays.push_back({DeviceArray<unsigned char>(problem.photo, "photo" + copy),
                      DeviceArray<unsigned char>(pixels, "grey" + copy),
                      DeviceArray<unsigned char>(pixels, "blurred" + copy),
                      DeviceArray<unsigned>(1, "sum" + copy)});
  }
  return arrays;
}

StepLaunch launch_of(PhotoRun& run, const PhotoStep& step) {
  return [&run, step](int i, cudaStream_t stream) {
    PhotoArrays& a = run.of(i);
    const PhotoShape& shape = run.problem.shape;
    if (step.grey) step.grey(a.photo.data(), a.grey.data(), shape, stream);
    if (step.sum) step.sum(a.grey.data(), a.sum.data(), shape, stream);
    if (step.blur) step.blur(a.grey.data(), a.blurred.data(), shape, stream);
  };
}

// The least that has to move: each input and each output once.
Cost cost_of(const PhotoStep& step, const PhotoShape& shape) {
  const double pixels = double(shape.pixels());
  if (step.grey) return {pixels * (3 + 1), 0};
  if (step.sum) return {pixels + sizeof(unsigned), 0};
  return {pixels * 2, 0};
}

Comparison compared(const PhotoRun& run, const PhotoStep& step) {
  if (!run.expected) return Comparison::none();
  const PhotoArrays& a = run.arrays[0];
  if (step.grey) return compare_bytes(a.grey.download(), run.expected->grey, run.problem.shape);
  if (step.sum) return compare_sum(a.sum.download()[0], run.expected->sum);
  return compare_bytes(a.blurred.download(), run.expected->blurred, run.problem.shape);
}

Timing run_step(PhotoRun& run, const PhotoStep& step, Report& report) {
  const Progress progress(step.name);
  PhotoArrays& checked = run.arrays[0];
  if (step.grey) checked.grey.fill_nan();
  if (step.sum) checked.sum.fill_nan();
  if (step.blur) checked.blurred.fill_nan();
  const Timing timing = time_step(run.device, launch_of(run, step), int(run.arrays.size()),
                                  run.options().warmup, run.options().iterations);
  report.add(step.name, timing, cost_of(step, run.problem.shape), compared(run, step));
  return timing;
}

// What sums and blurs read is there in all copies, whichever of them were timed: by the steps that were
// run, or by the reference where only this step is.
void provide_grey(PhotoRun& run, const std::vector<PhotoStep>& steps) {
  if (!run.expected) return;
  if (steps.size() == 1)
    for (PhotoArrays& a : run.arrays) a.grey.upload(run.expected->grey);
  for (const PhotoStep& step : steps)
    if (step.grey)
      for (int i = 1; i < int(run.arrays.size()); ++i) launch_of(run, step)(i, nullptr);
}

// How long it took: measured on a GPU, on the virtual one predicted; NaN where that is not known.
double microseconds(const Device& device, const Timing& timing) {
  if (!device.is_virtual) return timing.median_us;
  const json::Value counters = json::parse_or_null(timing.counters);
  const json::Value* const us = counters.find_path("/predicted/us");
  return us && !us->is_null() ? us->get<double>() : std::nan("");
}

// Grey once more, all the way from the host's memory and back, and what its kernel takes of that.
void run_whole_way(PhotoRun& run, const PhotoKernels& kernels, double kernel_us, Report& report) {
  std::vector<unsigned char> grey(run.expected->grey.size());
  const auto now_us = [&] {
    if (run.device.is_virtual) return vgpu::clock_us();
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::micro>(now).count();
  };
  const vgpu::Predicting predicting(true);
  const double start_us = now_us();
  kernels.whole_way(run.problem.photo.data(), grey.data(), run.problem.shape);
  const double us = now_us() - start_us;
  report.require(grey == run.expected->grey, "the whole way gives another grey");
  if (std::isfinite(us) && std::isfinite(kernel_us))
    report.note("The whole way, photo in and grey out: " + human_time(us) + ", of which " +
                human_time(kernel_us) + " are the kernel's");
}

void note_mean(const PhotoRun& run, Report& report) {
  const double sum = run.arrays[0].sum.download()[0], pixels = double(run.problem.shape.pixels());
  report.note(format("Mean brightness: %.0f / %.0f = %.1f of 255", sum, pixels, sum / pixels));
}

// Throws LackError for want of memory, before any is taken.
int make_problem(PhotoRun& run) {
  const PhotoOptions& asked = run.asked;
  const Options& options = run.options();
  const PhotoShape shape = asked.height > 0 ? PhotoShape{asked.height, asked.width}
                                            : PhotoShape{options.size, options.size};
  require_shape(shape);
  const double bytes = double(shape.pixels()) * (3 + 1 + 1);
  const int copies = rotation_copies(run.device, bytes);
  require_memory(run.device, bytes * copies, 8 * bytes, "photo of shape " + describe(shape));
  run.problem = asked.height > 0 ? random_photo(shape, options.seed)
                                 : photo_problem(load_image(options.image), options.size);
  return copies;
}

ExitCode first_kernel_program(const PhotoOptions& asked, const char* chapter,
                              const PhotoKernels& kernels) {
  PhotoRun run;
  run.asked = asked;
  const std::vector<PhotoStep> steps = chosen_steps(kernels, asked.step);
  run.device = open_device();
  complete_for(run.device, run.asked.common);
  const int copies = make_problem(run);
  const PhotoShape& shape = run.problem.shape;
  Report report({chapter,
                 run.options(),
                 run.device,
                 run.problem.source,
                 describe(shape) + "; photo " + human_bytes(3.0 * double(shape.pixels())),
                 {{"height", shape.height}, {"width", shape.width}},
                 {}});
  if (!run.options().predict) run.expected = expected_of(run.problem);
  run.arrays = upload(run.problem, copies);

  double grey_us = std::nan("");
  for (const PhotoStep& step : steps) {
    if (!step.grey) provide_grey(run, steps);
    const Timing timing = run_step(run, step, report);
    if (step.asked) report.add_number(step.name, "variant", 1);
    if (step.grey) grey_us = microseconds(run.device, timing);
    const bool has_before = asked.step.empty() && !step.before.empty();
    if (has_before) report.add_ratio(step.name, step.before);
  }
  if (asked.step.empty() && run.expected) {
    note_mean(run, report);
    run_whole_way(run, kernels, grey_us, report);
  }
  if (!run.options().output.empty()) {
    const std::vector<unsigned char> blurred = run.arrays[0].blurred.download();
    write_safetensors(run.options().output, {{"out",
                                              {{shape.height, shape.width},
                                               std::vector<float>(blurred.begin(), blurred.end()),
                                               "F32"}}});
  }
  if (run.asked.draws) {
    save_image(run.options().out, draw_steps(run.problem, run.arrays[0].grey.download(),
                                             run.arrays[0].blurred.download()));
    report.note(format("%s: the photo, grey, blurred", run.options().out.c_str()));
  }
  return report.finish();
}

}  // namespace

int first_kernel_main(int argc, char** argv, const char* chapter, const char* about,
                      const PhotoKernels& kernels) {
  return guarded_main(chapter, [&] {
    return first_kernel_program(photo_options(argc, argv, about), chapter, kernels);
  });
}

}  // namespace lab
