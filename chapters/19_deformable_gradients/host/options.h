// What the flags of chapter 19 say, and the problem that they name.
#pragma once

#include "../../../common/lab/device.h"
#include "../../../common/lab/program.h"
#include "problem.h"

namespace lab::deformable {

struct GradientOptions : Options {
  std::string preset, step;  // empty: the device decides; all
  Distribution distribution = Distribution::kLocal;
  int heads = 1, queries = 0, channels = 32, points = 8;  // 0: the preset's
  bool draws = true;                                      // the last step works on a photo, too
};

// Throws UsageError; for --help prints the help, which begins with `about`, and exits with 0.
GradientOptions gradient_options(int argc, char** argv, const char* about);

// Device 0, with what the flags left to it chosen in `options`. Throws LackError.
Device open_device(GradientOptions& options);

// The random problem. Throws std::invalid_argument for a shape that no step takes, and LackError,
// before anything is taken, for want of memory.
GradientProblem gradient_problem(const GradientOptions& options, const Device& device);

}  // namespace lab::deformable
