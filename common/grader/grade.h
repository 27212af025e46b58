// How a library built from a student's file becomes points: 30 for right results, 20 for no finding of any
// check, 50 for counters that show the chapter's idea. How points come about: chapters/README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "limits.h"
#include "task.h"

namespace lab::grader {

// A part of the points.
struct Item {
  std::string name;
  int points = 0, most = 0;
  std::string details;     // what was found, one line or several
  std::string hint;        // first stage, what is seen; empty at full points
  std::string cause = "";  // second stage, what it comes from; empty where there is none
};

// What the student's code printed, stdout and then stderr: the first lines, made fit to be shown.
struct Printed {
  std::string text;
  size_t more = 0;  // lines that are left out
};

struct Grade {
  std::string file;
  // Empty, or why there are no points at all: "build", "time", "instructions", "memory", "printed",
  // "output".
  std::string refused;
  std::string message;  // the reason in words, with the compiler's or the virtual GPU's
  std::vector<Item> items;
  int points() const;
  // The first case that was not right.
  struct Failure {
    std::string name, details;
    std::vector<int64_t> index;  // empty when there is no output to compare
    double expected = 0, got = 0;
  };
  std::vector<Failure> failures;  // none or one
  std::string warnings;           // the compiler's first ones with their lines
  // What the first case that was not right printed; if it printed nothing, the first case that did.
  Printed printed;
  std::string printed_in;                 // the case that printed it
  Isolation isolation = Isolation::none;  // how the code was isolated when it ran
  // It is other_user, and the compiler ran with the grader's rights all the same.
  bool own_rights = false;
  // --hint: a report has the hints up to this stage, and says whether there are more.
  int stage = 1;
};

struct Library;

// Points for an entry of a library. cases, measured: the task's.
Grade grade(const Task& task, const std::vector<Case>& cases, const Case& measured,
            const Library& library, int entry, const Limits& limits);

}  // namespace lab::grader
