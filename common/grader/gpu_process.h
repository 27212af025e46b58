// The process that has the virtual GPU and runs a student's code case by case.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "build.h"
#include "grade.h"
#include "process.h"
#include "student_process.h"

namespace lab::grader {

// What is wanted of a run.
enum class Mode {
  cases,     // their results
  checks,    // with all checks
  measured,  // with all checks, and counters
};

// What a process that runs a student's code for some cases reports back.
struct Outcome {
  CaseState state = CaseState::begun;
  std::string message;   // why it failed, in words
  std::string output;    // the output of a case that ended, as it lay on the device
  Printed printed;       // what the student's code printed, in Mode::cases
  std::string findings;  // the virtual GPU's words on this case, or in the other modes on all
};

// In front of the names of arguments in counters: other allocations have names that the student
// chooses, and no identifier begins with it.
inline const char* const kArgument = "=";

// The library cannot be loaded, in words.
struct BuildError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Runs the cases with these numbers in one process until one fails; returns at least one outcome,
// in the order of `numbers`. folder: for what the process writes. ended: how the process ended.
// Its output is kept in Mode::cases only: elsewhere it would be the same again. Throws BuildError.
std::vector<Outcome> run_cases(const Task& task, const std::vector<Case>& cases,
                               const Library& library, int entry, Mode mode,
                               const std::vector<size_t>& numbers, const std::string& folder,
                               const Limits& limits, Ended& ended);

// The process's main(), reached by grader_main when the first flag is --child.
int child_main(int argc, char** argv);

}  // namespace lab::grader
