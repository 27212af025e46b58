// Processes with limits: the compiler on a student's file, and the student's code.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "grader.h"
#include "lab/errors.h"

namespace lab::grader {

struct Ended {
  int exit_code = -1;  // -1: it did not end by itself
  int signal = 0;      // the signal that ended it
  bool timed_out = false;
  std::string output;  // stdout and stderr, at most 1 MiB of them
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// Runs a program in `folder` with nothing to read, in a process group of its own that is killed
// after limits.seconds, and with limits on memory and on the size of the files that it writes. user: as
// whom, where it is not 0.
Ended run_limited(const std::vector<std::string>& command, const std::string& folder,
                  const Environment& environment, const Limits& limits, unsigned user = 0);

// What a process that runs a student's code for some cases reports back.
struct Outcome {
  enum How {
    right_so_far,
    failed,
    endless,
    too_much_memory,
    timed_out,
    printed_too_much
  } how = right_so_far;
  std::string message;   // why it failed, in words
  std::string output;    // the output of a case that ended, as it lay on the device
  Printed printed;       // what the student's code printed, in Mode::cases
  std::string findings;  // the virtual GPU's words on this case, or in the other modes on all
};

// In front of the names of arguments in counters: other allocations have names that the student
// chooses, and no identifier begins with it.
inline const char* const kArgument = "=";

// No file can be compiled here.
struct NoCompiler : LackError {
  using LackError::LackError;
};

// The library cannot be loaded, in words.
struct BuildError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One process that runs cases; see grader/child.cpp.
enum class Mode {
  cases,     // for their results
  checks,    // with all checks
  measured,  // with all checks, and counters
};

// Compiles files (each with its own name_space) into one library, whose entries are their numbers.
struct Source {
  std::string path, name_space;
};
struct Library {
  std::string path;
  std::string refused, message;       // as in Grade, when it could not be built
  std::vector<std::string> warnings;  // as in Grade, of each file, when it could
  // Files are compiled in a folder of their own; in messages they have the names they came with.
  std::string compiled_in, came_from;
  std::vector<std::string> texts = {};  // the files' content, when it could be built
  bool own_rights = false;              // as in Grade
  std::string as_handed_in(std::string text) const;
};
// Throws LackError where this machine is at fault.
Library build(const Task& task, const std::vector<Source>& sources, const std::string& folder,
              const Limits& limits);

// What is wrong with a file's directives, "" where nothing is: an exercise includes CUDA's and the
// standard library's headers in < >, and its task's own; it neither renames its lines nor hides warnings.
std::string include_mistake(const std::string& text, const std::vector<std::string>& own_headers);

// Runs the cases with these numbers in one process until one fails; returns at least one outcome,
// in the order of `numbers`. folder: for what the process writes. ended: how the process ended.
// Its output is kept in Mode::cases only: elsewhere it would be the same again. Throws BuildError.
std::vector<Outcome> run_cases(const Task& task, const std::vector<Case>& cases,
                               const Library& library, int entry, Mode mode,
                               const std::vector<size_t>& numbers, const std::string& folder,
                               const Limits& limits, Ended& ended);

// Points for an entry of a library. cases, measured: the task's.
Grade grade(const Task& task, const std::vector<Case>& cases, const Case& measured,
            const Library& library, int entry, const Limits& limits);

// The program student_host, beside this one.
std::string host_program();

// What to think about after findings of the virtual GPU or an error of CUDA; "" for other messages.
// text: the source that their lines are of.
std::string hint_for(const std::string& message, const std::string& text = "");
// The first stage of the same: what is seen, and where to look.
std::string first_look(const std::string& message);

// A name as it stands in the source: "helper(int)" of "_Z6helperi".
std::string demangled(const std::string& name);

// The process's main(), reached by grader_main when the first flag is --child.
int child_main(int argc, char** argv);

}  // namespace lab::grader
