// How good a training is: its losses beside PyTorch's, its answers beside those of a linear classifier.
#pragma once

#include "../../../common/lab.cuh"
#include "options.h"

namespace training {

// How many of the images the net reads right.
int right_answers(Net& net, const Dataset& data);

// PyTorch's losses of the same run, in double precision, of the first 20 steps with default settings. The tolerance is
// four times the largest distance that rounding all operands to tf32 made there, to nearest or towards zero.
lab::Comparison compare_losses(const TrainingOptions& options, const Trainer& trainer);

// Reads the held-out images and draws those misread, most certain ones first. Returns how many are right.
int judge_held_out(const TrainingOptions& options, Net& net, const Dataset& held_out);

// A linear classifier: how many held-out images it reads right, and its regularization.
struct Linear {
  int right = -1;
  double decay = 0;
};
// The best of four strengths of regularization, chosen on the held-out images themselves: that
// favours it.
Linear best_linear(const Split& split);

}  // namespace training
