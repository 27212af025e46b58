#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "../../../common/json/json.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/images.h"
#include "checkpoints.h"
#include "pictures.h"

namespace training {

using lab::format;

constexpr const char* kLine = "training step";  // the report's

// ---- Steps --------------------------------------------------------------------------------------

StepTable::StepTable(Trainer& trainer, const Dataset& held_out)
    : trainer_(trainer),
      held_out_(held_out),
      every_(std::max(1, trainer.settings().steps / 20)),
      start_(std::chrono::steady_clock::now()) {
  std::printf("%8s %9s %22s %9s\n", "step", "loss", "right in these steps", "seconds");
}

void StepTable::add_step() {
  const int steps = trainer_.settings().steps;
  const int64_t step = trainer_.steps_done();
  right_ += trainer_.right_in_batch(), seen_ += trainer_.settings().batch;
  if (step % every_ == 0 || step == steps) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    std::printf("%8lld %9.4f %21.0f%% %9.1f\n", static_cast<long long>(step),
                double(trainer_.losses().back()), 100.0 * right_ / seen_, seconds.count());
    std::fflush(stdout);
    right_ = seen_ = 0;
  }
  if (steps >= 100 && step % (steps / 4) == 0 && step < steps)
    std::printf("%8lld held out: %d of %d right\n", static_cast<long long>(step),
                right_answers(trainer_.net(), held_out_), held_out_.count);
}

// ---- The report ---------------------------------------------------------------------------------

lab::ReportHead report_head(const char* chapter, const TrainingOptions& options,
                            const lab::Device& device, const Split& split, const Trainer& trainer) {
  const Settings& settings = trainer.settings();
  json::Value losses = json::Value::array();
  for (const float loss : trainer.losses()) losses.push_back(double(loss));
  return {chapter,
          options,
          device,
          format("%s: %d images to train, %d held out",
                 options.data.empty() ? "data/fashion_mnist" : options.data.c_str(),
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

void note_losses(const lab::Comparison& losses, const lab::Timing& time, lab::Report& report) {
  report.note(
      losses.skipped
          ? "losses: not compared, PyTorch's are known of the default settings alone"
          : format("losses: of %lld steps compared with PyTorch's: %s, largest difference %.1e",
                   static_cast<long long>(losses.count), losses.pass ? "PASS" : "FAIL",
                   losses.max_abs_error));
  if (time.samples > 0)
    report.note(format("a step took %.3g ms on this machine (median)", 1e-3 * time.median_us));
}

void add_numbers(const Trainer& trainer, int right, const Linear& linear, lab::Report& report) {
  report.add_number(kLine, "held_out_right", right);
  report.add_number(kLine, "linear_right", linear.right);
  report.add_number(kLine, "linear_decay", linear.decay);
  if (!trainer.losses().empty()) report.add_number(kLine, "last_loss", trainer.losses().back());
}

void draw_losses(const TrainingOptions& options, const Trainer& trainer, int right,
                 const Split& split, lab::Report& report) {
  if (trainer.losses().empty()) return;
  const std::string& out = options.out;
  lab::save_image(out, loss_curve(trainer.losses(),
                                  format("%lld steps of %d images: %d of %d held-out right",
                                         static_cast<long long>(trainer.steps_done()),
                                         trainer.settings().batch, right, split.held_out.count)));
  report.note(out + ": the losses; " + misread_path(out) + ": held-out images that it reads wrong");
}

namespace {

std::string with_interval(int right, int count) {
  const Interval bounds = interval_of(right, count);
  return format("%d of %d right (%.1f%%; 95%% interval %.0f%% to %.0f%%)", right, count,
                100.0 * right / count, 100 * bounds.low, 100 * bounds.high);
}

}  // namespace

void note_held_out(int right, const Linear& linear, const Split& split, lab::Report& report) {
  report.note("held out, this net:        " + with_interval(right, split.held_out.count));
  report.note("held out, linear classifier: " + with_interval(linear.right, split.held_out.count) +
              format(", the best of four, L2 %g", linear.decay));
}

void note_rest(const TrainingOptions& options, const Trainer& trainer, lab::Report& report) {
  if (trainer.steps_done() < trainer.settings().steps && !options.checkpoint.empty())
    report.note(format("%lld of %d steps are done: %s",
                       static_cast<long long>(trainer.steps_done()), trainer.settings().steps,
                       going_on(options, options.checkpoint).c_str()));
}

}  // namespace training
