// The table's lines: a component each, with all blocks' launches of it.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "../../../common/lab/progress.h"
#include "../../../common/lab/report.h"
#include "../../../common/lab/timing.h"
#include "run.h"

namespace vision_transformer {

// The stages of one component, all blocks': a line of the table.
struct Line {
  std::string component;
  std::vector<size_t> stages;
  bool of_several = false;  // launches of a stage: one of them
  lab::Timing timing = {};
  lab::Cost cost = {};
  lab::Comparison comparison = lab::Comparison::none();
};
// In the order of the net. A stage of several launches has a line for each.
std::vector<Line> lines_of(NetRun& run);
// `worst` becomes the first that failed, with the largest errors of both.
void keep_worst(lab::Comparison& worst, const lab::Comparison& one);

// Launches one after the other, and the line of each.
struct Launches {
  std::vector<lab::Launch> launches;
  std::vector<Line*> lines;
  bool first = true;  // no stage before does the same: the later ones are like it

  void add(const Launches& more);
  void run() const;
  // To each one's line.
  void add_timings(const std::vector<lab::Timing>& timings) const;
};
// What a stage of the run launches; scores as in NetRun::parts(). The lines must outlive it.
Launches launches_of(NetRun& run, const Stage& stage, float* scores, std::vector<Line>& lines);

// Of the net as a whole.
lab::Timing sum_of_timings(const std::vector<Line>& lines);
lab::Cost cost_of_net(const NetRun& run);

// Shows how much of the net's work is done.
class StageProgress {
 public:
  explicit StageProgress(const NetRun& run);
  void done(const Stage& stage);

 private:
  const NetRun& run_;
  std::atomic<double> all_ = 1, done_ = 0;
  lab::Progress progress_;
};

}  // namespace vision_transformer
