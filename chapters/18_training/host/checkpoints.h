// A training that lasts: resumed from a checkpoint, saved on its way, left by Ctrl-C.
#pragma once

#include <string>

#include "options.h"

namespace training {

// Goes on where --resume's run was, and says so.
void resume(const TrainingOptions& options, Trainer& trainer);

// "./run --resume cvt.safetensors goes on"
std::string going_on(const TrainingOptions& options, const std::string& path);

// Writes --checkpoint every 50 steps and at the end. From its making to finish() the first Ctrl-C lets the step end,
// leaves a checkpoint, says how to go on, and ends the process as by the signal; the second one ends it at once.
class Checkpoints {
 public:
  Checkpoints(const TrainingOptions& options, const Trainer& trainer);
  void after_step() const;
  void finish() const;

 private:
  const TrainingOptions& options_;
  const Trainer& trainer_;
};

}  // namespace training
