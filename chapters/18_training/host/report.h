// What a training prints: its steps, its result, its pictures.
#pragma once

#include <chrono>
#include <vector>

#include "../../../common/lab/report.h"
#include "judge.h"

namespace training {

// The table that grows while the net is trained. Of 100 steps and more it also says, four times, how many of the
// held-out images are read right.
class StepTable {
 public:
  StepTable(Trainer& trainer, const Dataset& held_out);
  void add_step();  // the trainer's last one

 private:
  Trainer& trainer_;
  const Dataset& held_out_;
  const int every_;  // steps a line
  const std::chrono::steady_clock::time_point start_;
  int right_ = 0, seen_ = 0;  // images since the last line
};

lab::ReportHead report_head(const char* chapter, const TrainingOptions& options,
                            const lab::Device& device, const Split& split, const Trainer& trainer);
// How long the steps of this run took, on the host's clock.
lab::Timing timing_of(std::vector<double> seconds);

void note_losses(const lab::Comparison& losses, const lab::Timing& time, lab::Report& report);
void add_numbers(const Trainer& trainer, int right, const Linear& linear, lab::Report& report);
void draw_losses(const TrainingOptions& options, const Trainer& trainer, int right,
                 const Split& split, lab::Report& report);
void note_held_out(int right, const Linear& linear, const Split& split, lab::Report& report);
// How the run goes on where steps are left.
void note_rest(const TrainingOptions& options, const Trainer& trainer, lab::Report& report);

}  // namespace training
