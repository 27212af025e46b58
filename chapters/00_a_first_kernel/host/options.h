// What the flags of chapter 0 say, and the problem that they name.
#pragma once

#include "../../../common/lab/device.h"
#include "../../../common/lab/program.h"
#include "problem.h"

namespace lab {

struct PhotoOptions : Options {
  int height = 0, width = 0;  // of random pixels; 0: the photo
  std::string step;           // empty: all
  bool draws = false;
};

// Throws UsageError; for --help prints the help, which begins with `about`, and exits with 0.
PhotoOptions photo_options(int argc, char** argv, const char* about);

// The photo or random pixels. Throws LackError, before anything is taken, for want of memory.
PhotoProblem photo_problem(const PhotoOptions& options, const Device& device);

}  // namespace lab
