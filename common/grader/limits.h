// How far a student's code may go.
#pragma once

#include <cstdint>

#include "isolation.h"

namespace lab::grader {

struct Limits {
  double seconds = 30;                 // wall time of one process; the compiler has at least 60
  uint64_t instructions = 50'000'000;  // warp instructions in one launch
  double memory_bytes = 4.0 * (1ull << 30);
  double file_bytes = 64 << 20;  // per file that is written, and for what a case prints
  Isolation isolation = Isolation::none;
  bool isolation_required = false;  // refuses to grade with less, for the compiler as well
};

}  // namespace lab::grader
