// What the flags of chapter 8 say, and the problem and the steps that they name.
#pragma once

#include "../../../common/lab/device.h"
#include "../../../common/lab/program.h"
#include "problem.h"

namespace lab {

struct ConvNormOptions : Options {
  ConvNormShape shape;  // random tensors'; with --input stride and padding alone count
  std::string preset;   // that the shape comes from; empty: none was named
  std::string step;     // empty: all, and instance norm alone
  bool with_residual = false, draws = true;
  std::string precision = "fp32", storage = "fp32";

  bool half_storage() const { return storage == "fp16"; }
};

// Throws UsageError; for --help prints the help, which begins with `about`, and exits with 0.
ConvNormOptions conv_norm_options(int argc, char** argv, const char* about);

// Those that --precision and --storage ask for, as --step chooses among them. Throws UsageError where
// there is none of that name.
std::vector<ConvNormStep> chosen_steps(const ConvNormOptions& options,
                                       std::vector<ConvNormStep> steps);
// Throws LackError where the device cannot run one of the steps.
void require_runnable(const ConvNormOptions& options, const std::vector<ConvNormStep>& steps);

// A file's tensors or the photo under its filters; of random tensors the shape alone: they are made
// when it is known that there is memory for them. Throws UsageError for what is wrong with a file.
ConvNormProblem conv_norm_input(const ConvNormOptions& options);
// With the random tensors, and numbers as the steps' arrays hold them. Throws UsageError for one that
// the format of arrays or products cannot hold.
ConvNormProblem conv_norm_problem(const ConvNormOptions& options, ConvNormProblem input);
// How many copies of the arrays to use in turn. half_step: as for upload(). Throws LackError, before
// anything is taken, where device or host have not enough memory for them.
int copies_in_memory(const Device& device, const ConvNormShape& shape,
                     const HalfConvNorm& half_step);

// What the reference says of the problem; nothing with --predict, which compares nothing. Throws
// UsageError where that is beyond a format's range.
ConvNormExpected expected_output(const ConvNormOptions& options, const ConvNormProblem& problem);

// The tensors of a file; stride, padding and eps are those of `filter`. Throws UsageError naming
// file, tensor and what is needed.
ConvNormProblem input_conv_norm(const std::string& path, const ConvNormShape& filter);

}  // namespace lab
