// What the programs of the attention chapters call, in the order in which each main.cu does: flags
// and problem, the reference, what is compared and reported.
#pragma once

#include <string>
#include <vector>

#include "inputs.h"
#include "lab.cuh"
#include "lab/device.h"
#include "lab/images.h"
#include "lab/program.h"
#include "lab/report.h"
#include "lab/steps.h"

namespace lab {

// ---- Flags and problem --------------------------------------------------------------------------

struct AttentionOptions : Options {
  AttentionOptions() { out = "attention.png"; }

  int heads = 12, tokens = 197, head_dim = 64;
  std::string patch;
  std::string step;  // empty: all of the chapter's
  bool random = false, all = false;
};

// A step that a chapter's program runs: its own or, to compare with, the one before. chosen_steps()
// of lab/steps.h gives those that --step asks for.
struct AttentionStep {
  std::string name;
  AttentionFunction attention = nullptr;
  bool tensor_cores = false;
  bool variant = false;  // tried and not kept: runs only where --step asks for it
};

// Throws UsageError for anything that is not right; for --help prints the help, which begins with
// `about` and the steps' names, and exits with 0.
AttentionOptions attention_options(int argc, const char* const* argv, const std::string& about,
                                   const std::vector<AttentionStep>& steps);

// What the flags name of a problem before its shape is known: the tensors of --input, the photo.
struct AttentionInput {
  AttentionProblem tensors;
  Image photo;
};

// Reads the files that the flags name. Called before the device is opened: what is wrong with them
// is said on every machine. Throws UsageError.
AttentionInput read_input(const AttentionOptions& options);

// Q, K and V: those of --input, a photo's or random ones. Throws LackError, before anything is
// taken, where there is not enough memory for them, for O, and on the device for `bytes_per_score`
// bytes a score besides; UsageError for a --patch that the photo has not.
AttentionProblem attention_problem(const AttentionOptions& options, AttentionInput input,
                                   const Device& device, int bytes_per_score = 0);

// ---- Results ------------------------------------------------------------------------------------

// O as the reference has it, [batch, heads, tokens, head_dim]; empty with --predict, which compares
// nothing.
std::vector<double> expected_output(const AttentionOptions& options,
                                    const AttentionProblem& problem);

// A step's O beside the expected one. Where that is empty, nothing is compared.
Comparison compare_output(const std::vector<half>& output, const std::vector<double>& expected,
                          const Tolerance& tolerance, const AttentionShape& shape);

// Least traffic and arithmetic of attention, whatever a step makes of it.
Cost attention_cost(const AttentionShape& shape, bool tensor_cores = false);

// What a report says of the run; `chapter`: the folder's name.
ReportHead report_head(const std::string& chapter, const AttentionOptions& options,
                       const Device& device, const AttentionProblem& problem);

// Reads the chosen query's attention off the kernels, draws it into --out and says in the report
// where most of it goes. The report fails if the weights do not add up to 1. Without a photo, and
// with --predict, there is no picture.
void write_heat_map(const AttentionOptions& options, const AttentionProblem& problem,
                    AttentionFunction attention, Report& report);

// Writes O to --output, where that is given.
void write_output(const AttentionOptions& options, const AttentionShape& shape,
                  const std::vector<half>& output);

// "4 warps: 127 registers, 45 KiB shared: an SM holds 4 blocks, 16 of 64 warps", from the CUDA
// runtime.
std::string describe_occupancy(const std::string& name, const void* kernel, int threads,
                               int shared_bytes);

// ---- All chapters -------------------------------------------------------------------------------

// --all: runs the programs of chapters 1 to 6, 13 and 14 beside this one with the same arguments,
// leaves out what this device cannot run, and prints and writes (--json) their own lines as one
// ladder. Returns the worst of their codes.
ExitCode run_all(int argc, char** argv, const AttentionOptions& options);

}  // namespace lab
