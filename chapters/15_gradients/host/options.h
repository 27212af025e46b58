// What the flags of chapter 15 say, and the problem that they name.
#pragma once

#include "../../../common/lab/device.h"
#include "../../../common/lab/program.h"
#include "problem.h"

namespace lab {

struct GradientOptions : Options {
  int heads = 12, tokens = 197, head_dim = 64;
  bool random = false;
  std::string step;  // empty: all
  std::string patch;
};

// Throws UsageError; for --help prints the help, which begins with `about`, and exits with 0.
GradientOptions gradient_options(int argc, char** argv, const char* about);
// The token that --patch names on a photo of grid x grid patches. Throws UsageError.
int parse_patch(const std::string& patch, int grid);

// Device 0, with what the flags left to it chosen in `options`. Throws LackError.
Device open_device(GradientOptions& options);

// Random tensors, or a photo's, whose dO is not known before the forward pass. Throws LackError, before
// anything is taken, for want of memory, the steps' workspace included.
GradientProblem gradient_problem(const GradientOptions& options, const Device& device,
                                 const std::vector<gradients::Step>& steps);

}  // namespace lab
