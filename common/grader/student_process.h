// The process of a student's code, seen from the grader's: see grader/wire.h.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "isolation.h"

namespace lab::grader {

// How far a case has come.
enum class CaseState {
  begun,  // and it has not ended yet, or not by itself
  done,   // its output is there, right or wrong
  failed,
  endless,
  too_much_memory,
  timed_out,
  printed_too_much,
  unloadable,  // the student's library is
};

// Ends a case.
struct StudentError : std::runtime_error {
  StudentError(CaseState state, const std::string& what) : std::runtime_error(what), state(state) {}
  CaseState state;
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
