// What the flags of chapter 9 say, and the problem that they name.
#pragma once

#include "../../../common/lab/device.h"
#include "../../../common/lab/program.h"
#include "problem.h"

namespace patch_embedding {

struct PatchOptions : lab::Options {
  std::string step;  // empty: all
  int channels = 192, streams = 4;
  int part_patches = 4, part_channels = 16;  // of the steps that run on a part
  int patch_row = -1, patch_column = -1;     // the picture's; -1: in the middle

  Part part() const { return {1, part_patches, part_channels}; }
};

// Throws UsageError; for --help prints the help, which begins with `about`, and exits with 0.
PatchOptions patch_options(int argc, char** argv, const char* about);

// The photo's patches under random filters. Throws LackError, before anything is taken, for want of
// memory.
Problem photo_problem(const PatchOptions& options, const lab::Image& photo,
                      const lab::Device& device);

}  // namespace patch_embedding
