// What the flags of chapter 7 say: the problem, and which steps run on it.
#pragma once

#include "../../../common/lab/device.h"
#include "../../../common/lab/program.h"
#include "problem.h"

namespace lab {

struct DeformableOptions : Options {
  std::string preset;  // empty: the device decides
  std::string step;    // empty: all
  Distribution distribution = Distribution::kLocal;
  int heads = 1, queries = 0, channels = 0, points = 8;  // 0: the preset's
  bool draws = true;                                     // the last step works on a photo, too

  DeformableShape random_shape() const;
};

// From flags and environment. Throws UsageError; for --help prints the help, which begins with `about`,
// and exits with 0.
DeformableOptions deformable_options(int argc, char** argv, const char* about);

// Device 0, with what the flags left to it chosen in `options`. Throws LackError.
Device open_device(DeformableOptions& options);

// The tensors of a safetensors file. Throws UsageError naming file, tensor and what is needed.
DeformableProblem input_deformable(const std::string& path);

// chosen_steps() of lab/steps.h without those that the device lacks something for; why is added to
// left_out. Throws LackError where --step names such a one.
std::vector<DeformableStep> runnable_steps(const std::string& name,
                                           const std::vector<DeformableStep>& steps,
                                           std::vector<std::string>& left_out);

// How many copies of the arrays to use in turn. Throws LackError, before anything is taken, where
// device or host have not enough memory for them.
int copies_in_memory(const Device& device, const DeformableShape& shape);

}  // namespace lab
