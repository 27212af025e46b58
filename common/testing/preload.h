// Programs that are run with some of CUDA's functions replaced, as a device that refuses something
// would, or to count calls. Plain declarations; no test framework.
#pragma once

#include <map>
#include <string>

#include "testing.h"

namespace lab::testing {

// Compiles C++ with the environment's CXX (g++) to a library that programs load before all others,
// as long as this lives (LD_PRELOAD). Only a program with CUDA's functions in a shared library, as
// on the virtual GPU, takes the ones of `source` instead. Throws std::runtime_error with what the
// compiler said.
class Preloaded {
 public:
  explicit Preloaded(const std::string& source);
  ~Preloaded();
  Preloaded(const Preloaded&) = delete;
  Preloaded& operator=(const Preloaded&) = delete;

 private:
  lab::TemporaryFolder folder_;  // in /tmp: a path in LD_PRELOAD ends at a blank
  std::string before_;
};

// How often a program that was run to its end has called each of CUDA's functions that allocate,
// set memory, launch or ask for occupancy: by name, 0 where it is missing.
struct CountedRun {
  ProgramResult result;
  std::map<std::string, int> calls;
};
CountedRun run_counting_calls(const std::string& program,
                              const std::vector<std::string>& arguments);

}  // namespace lab::testing
