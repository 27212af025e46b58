// What the flags of chapter 10 say, and the problem that they name.
#pragma once

#include "../../../common/lab/device.h"
#include "../../../common/lab/program.h"
#include "problem.h"

namespace lab {

struct LayerNormOptions : Options {
  int rows = 0, columns = 768;  // of a random problem; no rows: the photo
  double mean = 0;
  Storage storage = Storage::kFp16;
  std::string step;  // empty: all, the residual and the way back
  bool naive = false;
  bool draws = false;
};

// Throws UsageError; for --help prints the help, which begins with `about`, and exits with 0.
LayerNormOptions layer_norm_options(int argc, char** argv, const char* about);

// Device 0, with what the flags left to it chosen in `options`. Throws LackError.
Device open_device(LayerNormOptions& options);

// A file's tensors, random ones or the photo's patches. Throws UsageError for what is wrong with the
// file, and LackError, before anything large is made, for want of memory.
LayerNormProblem layer_norm_problem(const LayerNormOptions& options, const Device& device);

}  // namespace lab
