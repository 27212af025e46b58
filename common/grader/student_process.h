// The process of a student's code, seen from the grader's: see grader/wire.h.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "grader.h"
#include "isolation.h"

namespace lab::grader {

// Ends a case. `how` is the first word of its line in the report (grader/gpu_process.cpp): failed, memory,
// endless, printed, library.
struct StudentError : std::runtime_error {
  StudentError(const std::string& how, const std::string& what)
      : std::runtime_error(what), how(how) {}
  std::string how;
};

// A range of device memory.
struct Range {
  uint64_t first = 0, bytes = 0;
  bool holds(uint64_t address, uint64_t count) const {
    return address >= first && count <= bytes && address - first <= bytes - count;
  }
};

struct StudentProgram {
  std::string host, library, entry;  // the program student_host, the compiled file, its function
  Isolation isolation;
  int errors;        // an open file for what it writes on stderr
  std::string code;  // what the compiled file holds
};

// Has the student's process call its function with these arguments (the bytes of each) and executes
// what it asks for, until it comes back. output: what only kernels may write. Returns an error that
// the code did not ask for, beside CUDA's own last one. Throws StudentError.
cudaError_t call_student(const StudentProgram& program,
                         const std::vector<std::vector<char>>& arguments, const Range& output);

}  // namespace lab::grader
