// What the flags of chapter 11 say, and the problem and the steps that they name.
#pragma once

#include "../../../common/lab/device.h"
#include "../../../common/lab/program.h"
#include "problem.h"

namespace lab {

struct MlpOptions : Options {
  MlpSizes sizes;      // random tensors'
  std::string preset;  // that they come from; empty: none was named
  std::string step;    // empty: all
  std::string storage_name = "fp16";
  bool draws = true;

  Storage storage() const { return storage_name == "fp16" ? Storage::kFp16 : Storage::kFp32; }
};

// Throws UsageError; for --help prints the help, which begins with `about`, and exits with 0.
MlpOptions mlp_options(int argc, char** argv, const char* about);

// Those of the storage that --step names. Throws UsageError where there is none.
std::vector<MlpStep> chosen_steps(const MlpOptions& options, std::vector<MlpStep> steps);
// Throws LackError where the device cannot run one of the steps.
void require_runnable(const MlpOptions& options, const std::vector<MlpStep>& steps);

// A file's tensors or the photo's patches; of random tensors the sizes alone. Called before the device
// is opened: what is wrong with a file is said on every machine. Throws UsageError.
MlpProblem mlp_input(const MlpOptions& options);
// With the random tensors, and all rounded as they are stored.
MlpProblem mlp_problem(const MlpOptions& options, MlpProblem input);
// How many copies of the arrays to use in turn. Throws LackError, before anything is taken, where
// device or host have not enough memory for them.
int copies_in_memory(const Device& device, const MlpSizes& sizes, Storage storage);

}  // namespace lab
