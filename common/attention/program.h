// The programs of the attention chapters: flags and problem, and the ladder of their steps.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "inputs.h"
#include "lab.cuh"
#include "lab/device.h"
#include "lab/errors.h"
#include "lab/program.h"
#include "lab/report.h"

namespace lab {

struct AttentionOptions : Options {
  AttentionOptions() { out = "attention.png"; }

  int heads = 12, tokens = 197, head_dim = 64;
  std::string patch;
  std::string step;  // empty: all of the chapter's
  bool random = false, all = false;
};

// Throws UsageError for anything that is not right; prints the help and exits with 0 for --help.
AttentionOptions parse_options(int argc, const char* const* argv, const std::string& about);

// A step that a chapter's program runs: its own or, to compare with, the one before.
struct LadderStep {
  std::string name;
  AttentionFunction attention;
  bool tensor_cores = false;
  // The launches that attention() consists of, by name, where there are several.
  std::vector<std::pair<std::string, std::function<void(AttentionArrays&)>>> stages = {};
  bool variant = false;  // tried and not kept: run only where --step asks for it
};

// Everything that a chapter gets.
struct Run {
  std::string chapter;       // "01_naive_attention"
  AttentionOptions options;  // complete
  Device device;
  AttentionProblem problem;
  std::vector<LadderStep> steps;  // of the chapter's steps those that are asked for

  ReportHead head() const;
};

// The chosen query's heat map of `attention` to options.out and the output to options.output.
void write_outputs(const Run& run, AttentionFunction attention, const std::vector<half>& output,
                   Report& report);

struct AttentionChapter {
  const char* name;                                       // "01_naive_attention"
  const char* about;                                      // a sentence for --help
  int64_t (*scratch_bytes)(const AttentionShape& shape);  // device memory beyond Q, K, V and O
  ExitCode (*run)(const Run& run);                        // run_ladder where steps are all there is
  // What --step chooses from. Without a device: it is asked before there is one.
  std::vector<LadderStep> steps = {};
};

// main() of chapters on attention: flags, input, device and memory in that order, then the chapter;
// errors become one line on stderr and the exit code.
int attention_main(int argc, char** argv, const AttentionChapter& chapter);

// ---- The ladder of attention steps --------------------------------------------------------------

// The step of that name, or without a name all that are no variants. Throws UsageError with all the
// names where there is none.
std::vector<LadderStep> chosen_steps(const std::string& name, const std::vector<LadderStep>& steps);

// Compares each step with the reference, times it, and reports it and its ratio to the step before
// it; the heat map and the output are the last step's. Of `steps` only those that --step asks for.
ExitCode run_ladder(const Run& run, const std::vector<LadderStep>& steps);
// The same of run.steps.
ExitCode run_ladder(const Run& run);

// "4 warps: 127 registers, 45 KiB shared: an SM holds 4 blocks, 16 of 64 warps", from the CUDA
// runtime.
std::string describe_occupancy(const std::string& name, const void* kernel, int threads,
                               int shared_bytes);
// --all: runs the programs of chapters 1 to 6, 13 and 14 beside this one with the same arguments,
// leaves out what this device cannot run, and prints and writes (--json) their own lines as one
// ladder. Returns the worst of their codes.
ExitCode run_all(int argc, char** argv, const AttentionOptions& options);

}  // namespace lab
