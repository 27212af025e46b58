// Chapter 18: a small CvT, of chapter 16's operations, is trained on photos of garments; its losses are compared
// with PyTorch's, its answers with those of a linear classifier.
#include <chrono>

#include "../../common/lab/program.h"
#include "../../common/lab/report.h"
#include "host/checkpoints.h"
#include "host/judge.h"
#include "host/photo.h"
#include "host/report.h"

using namespace training;

constexpr const char* kChapter = "18_training";
using Clock = std::chrono::steady_clock;

int main(int argc, char** argv) {
  return lab::guarded_main(kChapter, [&] {
    // Flags. With --infer a trained net reads one photo, and that is all.
    const TrainingOptions options = training_options(
        argc, argv, "Chapter 18: trains a small CvT on photos of garments (Fashion-MNIST).");
    const lab::Device device = open_device(options);
    if (!options.infer.empty()) return read_photo(options);

    // The images, of which some are held out, and the net: with seeded weights or a checkpoint's.
    const Split split = read_images(options);
    Trainer trainer(NetShape{}, split.training, options.settings);
    if (!options.resume.empty()) resume(options, trainer);
    const Settings& settings = trainer.settings();

    // Each step: forward, loss, the gradients of all weights, AdamW.
    StepTable table(trainer, split.held_out);
    Checkpoints checkpoints(options, trainer);
    std::vector<double> seconds;
    while (trainer.steps_done() < settings.steps && int(seconds.size()) < options.stop_after) {
      const Clock::time_point begin = Clock::now();
      trainer.step();
      lab::check(cudaDeviceSynchronize());  // the way back and AdamW belong to the step's time
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
      table.add_step();
      checkpoints.after_step();
    }
    checkpoints.finish();

    // Images that it never saw, beside what a linear classifier of their pixels makes of them.
    const int right = judge_held_out(options, trainer.net(), split.held_out);
    const Linear linear = best_linear(split);

    // The losses beside PyTorch's of the same run.
    lab::Report report(report_head(kChapter, options, device, split, trainer));
    const lab::Comparison losses = compare_losses(options, trainer);
    const lab::Timing time = timing_of(seconds);
    report.add_beside("training step", time, losses);
    note_losses(losses, time, report);
    add_numbers(trainer, right, linear, report);
    draw_losses(options, trainer, right, split, report);
    note_held_out(right, linear, split, report);
    note_rest(options, trainer, report);
    return report.finish();
  });
}
