// The program: flags, data, training with progress and checkpoints, what it is compared with,
// pictures.
#include "program.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>

#include "../../../common/json/json.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/report.h"
#include "../../../common/lab/tensors.h"
#include "../train/pictures.h"
#include "../train/reference.h"
#include "../train/trainer.h"

namespace cvt {
namespace {

using lab::format;
using lab::UsageError;
using Clock = std::chrono::steady_clock;

constexpr int kMaxBatch = 1024, kMaxSteps = 1'000'000, kShown = 3;
constexpr int kCheckpointSteps = 50;  // from one checkpoint to the next
constexpr int kGoldenSteps = 20;      // that PyTorch's losses are known of
constexpr int kLinearImages =
    60'000;  // that the linear classifier sees, each as often as that needs

// ---- What is asked for --------------------------------------------------------------------------

struct Asked {
  lab::Options common;
  Settings settings;
  std::string data, checkpoint, resume, infer;
  int held_out = 500, stop_after = kMaxSteps;
};

double parse_rate(const std::string& text) {
  char* end = nullptr;
  const double rate = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !(rate > 0 && rate <= 1e6))
    throw UsageError("--lr '" + text + "': must be a number above 0, up to 1000000");
  return rate;
}

// "training.png" → "training_misread.png"
std::string misread_path(const std::string& out) {
  const size_t dot = out.rfind('.');
  return out.substr(0, dot) + "_misread" + out.substr(dot);
}

void require_consistent(const lab::Flags& flags, Asked& asked) {
  if (!asked.infer.empty()) {
    flags.refuse({"--steps", "--batch", "--lr", "--data", "--held-out", "--resume", "--stop-after",
                  "--seed", "--out"},
                 "does not go with --infer, which trains nothing");
    if (asked.checkpoint.empty())
      throw UsageError(
          "--infer needs --checkpoint FILE, a trained net: ./run --steps 800 --checkpoint "
          "FILE trains one");
    for (const auto& [flag, file] :
         {std::pair("--json", asked.common.json), std::pair("--look", asked.common.look)})
      if (!file.empty()) lab::require_writable(flag, file);
    lab::require_distinct({{"--checkpoint", asked.checkpoint},
                           {"--infer", asked.infer},
                           {"--json", asked.common.json},
                           {"--look", asked.common.look}});
    return;
  }
  if (!asked.resume.empty())
    flags.refuse({"--steps", "--batch", "--lr", "--seed"},
                 "does not go with --resume: the checkpoint's own goes on");
  if (asked.data.empty()) flags.refuse({"--held-out"}, "goes only with --data");
  const std::string saved = asked.checkpoint;
  if (saved.empty()) {
    if (asked.resume.empty())
      flags.refuse({"--stop-after"},
                   "goes only with --checkpoint FILE or --resume FILE: else the "
                   "steps are lost");
    asked.checkpoint = asked.resume;
    if (!asked.resume.empty()) lab::require_writable("--resume", asked.resume);
  }
  if (!saved.empty() && access(saved.c_str(), F_OK) == 0 &&
      (asked.resume.empty() || !lab::same_file(saved, asked.resume)))
    throw UsageError("--checkpoint " + saved + ": is there already: --resume " + saved +
                     " goes on with it; else name another file");
  if (!saved.empty()) lab::require_writable("--checkpoint", saved);
  lab::require_files(asked.common);
  lab::require_writable("--out", misread_path(asked.common.out));
  lab::require_distinct({{"--checkpoint", asked.checkpoint},
                         {"--json", asked.common.json},
                         {"--look", asked.common.look},
                         {"--out", asked.common.out},
                         {"the misread images of --out", misread_path(asked.common.out)}});
}

Asked asked_for(int argc, char** argv) {
  Asked asked;
  lab::Options& options = asked.common;
  Settings& settings = asked.settings;
  options.out = "training.png";
  lab::Flags flags(
      "Chapter 16: trains a small CvT on photos of garments (Fashion-MNIST).",
      "Without flags: a few steps on 400 of the 500 photos in data/fashion_mnist; the other 100 "
      "are held\n"
      "out. A whole training: ./run --steps 800 --checkpoint cvt.safetensors. Ctrl-C leaves a\n"
      "checkpoint. As the first flag --component NAME shows one operation:\n"
      "projection, linear, layer_norm, attention or embedding (--component NAME --help).");
  flags.number("--steps", settings.steps, 1, kMaxSteps, "N", format("steps (%d)", settings.steps));
  flags.number("--batch", settings.batch, 2, kMaxBatch, "N",
               format("images a step (%d)", settings.batch));
  flags.option(
      "--lr", [&](const std::string& text) { settings.rate = parse_rate(text); }, "RATE",
      format("AdamW's rate at its highest (%g)", settings.rate));
  flags.number("--seed", settings.seed, uint64_t(0), uint64_t(1) << 40, "N",
               "of first weights, order and augmentation (1)");
  flags.text("--data", asked.data, "DIR",
             "folder with the IDX files of the whole set, train-images-idx3-ubyte and so on");
  flags.number("--held-out", asked.held_out, 1, 10'000, "N",
               "with --data: of the test images so many are read (500)");
  flags.text("--checkpoint", asked.checkpoint, "FILE",
             "safetensors, written every 50 steps and at the end; --infer reads it");
  flags.text("--resume", asked.resume, "FILE", "goes on with that checkpoint");
  flags.number("--stop-after", asked.stop_after, 1, kMaxSteps, "N",
               "steps of this run; --resume goes on with the rest");
  flags.text("--infer", asked.infer, "PHOTO", "says which garment a photo shows, PNG or JPEG");
  flags.text("--out", options.out, "FILE",
             "curve of the losses, .png or .jpg (training.png); beside it\n"
             "..._misread: the held-out images that it reads wrong");
  flags.text("--json", options.json, "FILE", "result as JSON");
  flags.look_flag(options);
  flags.parse(argc, argv);
  require_consistent(flags, asked);
  if (!asked.resume.empty()) settings = settings_of(asked.resume);
  options.seed = settings.seed;
  options.batch = settings.batch;
  return asked;
}

// ---- Training -----------------------------------------------------------------------------------

volatile sig_atomic_t interrupted = 0;

// The first Ctrl-C is noted, the second one ends the program.
void catch_interrupt() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

// "./run --resume cvt.safetensors goes on"
std::string going_on(const Asked& asked, const std::string& path) {
  std::string data;
  if (!asked.data.empty())
    data = " --data " + lab::shell_word(asked.data) + format(" --held-out %d", asked.held_out);
  return "./run --resume " + lab::shell_word(path) + data + " goes on";
}

// Where the run was interrupted: leaves a checkpoint, says how to go on, ends as by the signal.
[[noreturn]] void leave(const Trainer& trainer, const Asked& asked) {
  std::string path = asked.checkpoint;
  for (int i = 1; path.empty(); ++i) {
    const std::string candidate = format("interrupted-%d.safetensors", i);
    if (access(candidate.c_str(), F_OK) != 0) path = candidate;
  }
  trainer.save(path);
  std::printf("interrupted after step %lld: %s\n", static_cast<long long>(trainer.steps_done()),
              going_on(asked, path).c_str());
  std::fflush(stdout);
  signal(SIGINT, SIG_DFL);
  raise(SIGINT);
  _exit(130);
}

struct Trained {
  std::vector<double> seconds;                    // of each step in this run
  std::vector<std::pair<int64_t, int>> held_out;  // images read right behind a step
};

int right_of(Net& net, const Dataset& data) {
  std::vector<int> all(data.count);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<int> answered =
      answers(logits_of(net, pixels(data, all), data.count), net.shape().classes);
  int right = 0;
  for (int i = 0; i < data.count; ++i) right += answered[i] == data.labels[i];
  return right;
}

Trained train(Trainer& trainer, const Asked& asked, const Split& split) {
  catch_interrupt();
  const int steps = trainer.settings().steps, every = std::max(1, steps / 20);
  const bool watches = steps >= 100;
  const Clock::time_point start = Clock::now();
  const auto seconds = [](Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count();
  };
  Trained result;
  int right = 0, seen = 0;
  std::printf("%8s %9s %22s %9s\n", "step", "loss", "right in these steps", "seconds");
  for (int done = 0; trainer.steps_done() < steps && done < asked.stop_after; ++done) {
    const Clock::time_point begin = Clock::now();
    const float loss = trainer.step();
    lab::check(cudaDeviceSynchronize());  // the way back and AdamW belong to the step's time
    result.seconds.push_back(seconds(begin));
    right += trainer.right_in_batch(), seen += trainer.settings().batch;
    const int64_t step = trainer.steps_done();
    if (step % every == 0 || step == steps) {
      std::printf("%8lld %9.4f %21.0f%% %9.1f\n", static_cast<long long>(step), double(loss),
                  100.0 * right / seen, seconds(start));
      std::fflush(stdout);
      right = seen = 0;
    }
    if (!asked.checkpoint.empty() && step % kCheckpointSteps == 0) trainer.save(asked.checkpoint);
    if (watches && step % std::max(1, steps / 4) == 0 && step < steps) {
      result.held_out.push_back({step, right_of(trainer.net(), split.held_out)});
      std::printf("%8lld held out: %d of %d right\n", static_cast<long long>(step),
                  result.held_out.back().second, split.held_out.count);
    }
    if (interrupted) leave(trainer, asked);
  }
  if (!asked.checkpoint.empty()) trainer.save(asked.checkpoint);
  signal(SIGINT, SIG_DFL);
  if (interrupted) leave(trainer, asked);
  return result;
}

// ---- What the result is compared with -----------------------------------------------------------

// PyTorch's losses of the same run: in double precision; the tolerance is four times the largest
// distance that rounding all operands to tf32 made there, to nearest or towards zero.
lab::Comparison compare_losses(const Trainer& trainer, const Asked& asked) {
  const Settings &run = trainer.settings(), usual;
  if (!asked.data.empty() || run.seed != usual.seed || run.batch != usual.batch ||
      run.rate != usual.rate || run.warm_up != usual.warm_up)
    return lab::Comparison::none();
  const lab::Array golden = lab::read_npy(lab::repository_path("data/golden/cvt_losses.npy"));
  if (golden.values.size() < 4 * kGoldenSteps)
    throw UsageError(format("data/golden/cvt_losses.npy has %zu numbers, must have 4 rows of %d",
                            golden.values.size(), int(kGoldenSteps)));
  const size_t count = std::min<size_t>(kGoldenSteps, trainer.losses().size());
  const auto loss = [&](size_t row, size_t step) {
    return golden.values[row * kGoldenSteps + step];
  };
  std::vector<double> expected;
  lab::Tolerance tolerance;
  for (size_t i = 0; i < count; ++i) {
    expected.push_back(loss(0, i));
    for (const size_t row : {2, 3})
      tolerance.atol = std::max(tolerance.atol, 4 * std::abs(loss(row, i) - loss(0, i)));
  }
  tolerance.relative_l2 = tolerance.atol / *std::min_element(expected.begin(), expected.end());
  const std::vector<float> got(trainer.losses().begin(), trainer.losses().begin() + int64_t(count));
  return lab::compare(got, expected, tolerance, {int64_t(count)});
}

struct Linear {
  int right = -1;
  double decay = 0;
};

// The best of four strengths of regularization, chosen on the held-out images themselves: that
// favours it.
Linear best_linear(const Split& split) {
  const auto all = [](const Dataset& data) {
    std::vector<int> numbers(data.count);
    std::iota(numbers.begin(), numbers.end(), 0);
    return pixels(data, numbers);
  };
  const std::vector<float> images = all(split.training), held_out = all(split.held_out);
  const int passes = std::max(1, kLinearImages / split.training.count);
  Linear best;
  for (const double decay : {0.01, 0.03, 0.1, 0.3}) {
    const std::vector<float> weights =
        train_linear(images, split.training.labels, kClasses, passes, decay);
    const std::vector<int> answered =
        linear_answers(weights, held_out, split.held_out.count, kClasses);
    const int right =
        int(std::lround(accuracy(answered, split.held_out.labels) * split.held_out.count));
    if (right > best.right) best = {right, decay};
  }
  return best;
}

std::string with_interval(int right, int count) {
  const Interval bounds = interval_of(right, count);
  return format("%d of %d right (%.1f%%; 95%% interval %.0f%% to %.0f%%)", right, count,
                100.0 * right / count, 100 * bounds.low, 100 * bounds.high);
}

// Reads the held-out images, draws those misread, most certain ones first. Returns how many are
// right.
int judge_held_out(Net& net, const Dataset& data, const std::string& path) {
  std::vector<int> all(data.count);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<float> logits = logits_of(net, pixels(data, all), data.count);
  const int classes = net.shape().classes;
  const std::vector<int> answered = answers(logits, classes);
  std::vector<Misread> misread;
  for (int i = 0; i < data.count; ++i)
    if (answered[i] != data.labels[i])
      misread.push_back(
          {i, data.labels[i], answered[i],
           probabilities(&logits[size_t(i) * size_t(classes)], classes)[answered[i]]});
  std::stable_sort(misread.begin(), misread.end(), [](const Misread& one, const Misread& other) {
    return one.probability > other.probability;
  });
  const std::string shown = misread.size() > 24 ? ", the 24 most certain:" : ":";
  lab::save_image(
      path, misread_sheet(data, misread,
                          format("%zu of %d held-out images misread", misread.size(), data.count) +
                              (misread.empty() ? "" : shown)));
  return data.count - int(misread.size());
}

// ---- The program --------------------------------------------------------------------------------

void require_tf32(const lab::Device& device) {
  if (device.major < 8)
    throw lab::LackError(format("%s is sm_%d%d: products in tf32 need sm_80 or newer",
                                device.name.c_str(), device.major, device.minor));
}

lab::ReportHead report_head(const Asked& asked, const Trainer& trainer, const Split& split,
                            const lab::Device& device) {
  const Settings& settings = trainer.settings();
  json::Value losses = json::Value::array();
  for (const float loss : trainer.losses()) losses.push_back(double(loss));
  return {"16_cvt",
          asked.common,
          device,
          format("%s: %d images to train, %d held out",
                 asked.data.empty() ? "data/fashion_mnist" : asked.data.c_str(),
                 split.training.count, split.held_out.count),
          "CvT: " + describe(trainer.net().shape()) +
              format(", %lld parameters; batch %d",
                     static_cast<long long>(trainer.net().layout().numbers), settings.batch),
          {{"batch", settings.batch},
           {"steps", trainer.steps_done()},
           {"parameters", trainer.net().layout().numbers},
           {"training_images", split.training.count},
           {"held_out_images", split.held_out.count}},
          {{"rate", format("%.9g", settings.rate)}},
          {{"losses", losses.dump()}}};
}

lab::Timing timing_of(std::vector<double> seconds) {
  lab::Timing timing;
  timing.host_time = true;
  timing.samples = int(seconds.size());
  timing.spread = timing.std_us = std::nan("");
  if (seconds.empty()) return timing;
  std::sort(seconds.begin(), seconds.end());
  timing.median_us = 1e6 * seconds[seconds.size() / 2];
  timing.min_us = 1e6 * seconds[0];
  timing.mean_us =
      1e6 * std::accumulate(seconds.begin(), seconds.end(), 0.0) / double(seconds.size());
  return timing;
}

void draw(const Asked& asked, const Trainer& trainer, int right, const Split& split,
          lab::Report& report) {
  if (trainer.losses().empty()) return;
  const std::string& out = asked.common.out;
  lab::save_image(out, loss_curve(trainer.losses(),
                                  format("%lld steps of %d images: %d of %d held-out right",
                                         static_cast<long long>(trainer.steps_done()),
                                         trainer.settings().batch, right, split.held_out.count)));
  report.note(out + ": the losses; " + misread_path(out) + ": held-out images that it reads wrong");
}

lab::ExitCode train_program(const Asked& asked) {
  const lab::Device device = lab::open_device();
  lab::begin_look(device, asked.common);
  require_tf32(device);
  const Split split = asked.data.empty() ? read_excerpt() : read_folder(asked.data, asked.held_out);
  if (asked.settings.batch > split.training.count)
    throw UsageError(format(asked.resume.empty()
                                ? "--batch '%d': must be at most %d, the training images"
                                : "--resume: was trained with a batch of %d, here are %d training "
                                  "images: --data DIR names its own",
                            asked.settings.batch, split.training.count));
  Trainer trainer(NetShape{}, split.training, asked.settings);
  if (!asked.resume.empty()) {
    trainer.resume(asked.resume);
    std::printf("%s: goes on behind step %lld of %d\n", asked.resume.c_str(),
                static_cast<long long>(trainer.steps_done()), trainer.settings().steps);
  }
  const Trained trained = train(trainer, asked, split);
  const int right = judge_held_out(trainer.net(), split.held_out, misread_path(asked.common.out));
  const Linear linear = best_linear(split);

  lab::Report report(report_head(asked, trainer, split, device));
  const lab::Comparison comparison = compare_losses(trainer, asked);
  const lab::Timing timing = timing_of(trained.seconds);
  report.add_beside("training step", timing, comparison);
  report.note(
      comparison.skipped
          ? "losses: not compared, PyTorch's are known of the default settings alone"
          : format("losses: of %lld steps compared with PyTorch's: %s, largest difference %.1e",
                   static_cast<long long>(comparison.count), comparison.pass ? "PASS" : "FAIL",
                   comparison.max_abs_error));
  if (timing.samples > 0)
    report.note(format("a step took %.3g ms on this machine (median)", 1e-3 * timing.median_us));
  report.add_number("training step", "held_out_right", right);
  report.add_number("training step", "linear_right", linear.right);
  report.add_number("training step", "linear_decay", linear.decay);
  if (!trainer.losses().empty())
    report.add_number("training step", "last_loss", trainer.losses().back());
  draw(asked, trainer, right, split, report);
  report.note("held out, this net:        " + with_interval(right, split.held_out.count));
  report.note("held out, linear classifier: " + with_interval(linear.right, split.held_out.count) +
              format(", the best of four, L2 %g", linear.decay));
  if (trainer.steps_done() < trainer.settings().steps && !asked.checkpoint.empty())
    report.note(format("%lld of %d steps are done: %s",
                       static_cast<long long>(trainer.steps_done()), trainer.settings().steps,
                       going_on(asked, asked.checkpoint).c_str()));
  return report.finish();
}

// ---- One photo ----------------------------------------------------------------------------------

// The photo's centre as the training images are: 28 x 28, a light garment on black. A light
// background is turned around; `turned` says so.
std::vector<float> garment_of(const lab::Image& photo, bool& turned) {
  const lab::Image small = lab::square(photo, kSide);
  std::vector<double> grey;
  double border = 0, count = 0;
  for (int i = 0; i < kSide * kSide; ++i) {
    const unsigned char* rgb = small.rgb.data() + 3 * size_t(i);
    grey.push_back(0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]);
    const int x = i % kSide, y = i / kSide;
    if (x > 1 && x < kSide - 2 && y > 1 && y < kSide - 2) continue;
    border += grey.back(), ++count;
  }
  turned = border / count > 127.5;
  std::vector<float> pixels;
  for (const double value : grey) pixels.push_back(normalized(turned ? 255 - value : value));
  return pixels;
}

lab::ExitCode infer_program(const Asked& asked) {
  const lab::Device device = lab::open_device();
  lab::begin_look(device, asked.common);
  require_tf32(device);
  const lab::Image photo = lab::load_image(asked.infer);
  lab::require_not_flat(photo);
  Net net(NetShape{}, 1);
  load_parameters(asked.checkpoint, net);
  bool turned = false;
  const std::vector<float> logits = logits_of(net, garment_of(photo, turned), 1);
  const std::vector<double> p = probabilities(logits.data(), kClasses);
  std::vector<int> order(kClasses);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int one, int other) { return p[one] > p[other]; });
  std::printf("%s shows, with probability:\n", lab::file_name(asked.infer).c_str());
  for (int i = 0; i < kShown; ++i)
    std::printf("  %5.1f%%  %s\n", 100 * p[order[i]], class_name(order[i]));
  if (turned) std::printf("Its light background was made dark, as in the training images.\n");
  std::printf("The net has these ten answers alone: it calls anything a garment, even a cat.\n");
  if (!asked.common.json.empty()) {
    json::Value result;
    result["photo"] = asked.infer;
    result["checkpoint"] = asked.checkpoint;
    for (int i = 0; i < kClasses; ++i)
      result["probabilities"].push_back({{"class", class_name(i)}, {"probability", p[i]}});
    lab::write_file(asked.common.json, result.dump() + "\n");
  }
  return lab::kCorrect;
}

}  // namespace

int cvt_main(int argc, char** argv) {
  return lab::guarded_main("16_cvt", [&] {
    const Asked asked = asked_for(argc, argv);
    return asked.infer.empty() ? train_program(asked) : infer_program(asked);
  });
}

}  // namespace cvt
