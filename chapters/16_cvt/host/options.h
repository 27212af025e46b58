// Flags of chapter 16, and the operation that they name.
#pragma once

#include <memory>

#include "../../../common/lab/program.h"
#include "operation.h"

namespace lab {

struct CvtOptions : Options {
  std::string component = "projection", preset, step;
  // The projection's alone. 0 and -1: the preset's.
  std::string dtype = "fp16";
  int height = 0, width = 0, channels = 0, class_tokens = -1;
};

// Throws UsageError; for --help prints the help, which begins with `about`, and exits with 0.
CvtOptions cvt_options(int argc, char** argv, const char* about);

// Device 0, with what the flags left to it chosen in `options`. Throws LackError for want of tf32, too.
Device open_device(CvtOptions& options);

// An operation with random arrays on the device. Both throw UsageError for sizes that no array can have, LackError
// for want of memory.
// The convolutional projection, in steps of several launches (projection_steps.cpp).
std::unique_ptr<Operation> projection_operation(CvtOptions& options, const Device& device);
// A linear layer, LayerNorm, attention or embedding (components.cpp).
std::unique_ptr<Operation> component_operation(const CvtOptions& options, const Device& device);

}  // namespace lab
