// Runs a program with limits on time, memory and output.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "limits.h"

namespace lab::grader {

struct Ended {
  int exit_code = -1;  // -1: it did not end by itself
  int signal = 0;      // the signal that ended it
  bool timed_out = false;
  std::string output;  // stdout and stderr, at most 1 MiB of them
};

// "the program crashed (Segmentation fault)", or with which exit status it ended.
std::string describe_end(int signal, int exit_code);

using Environment = std::vector<std::pair<std::string, std::string>>;

// Runs a program in `folder` with nothing to read, in a process group of its own that is killed
// after limits.seconds, and with limits on memory and on the size of the files that it writes. user: as
// whom, where it is not 0.
Ended run_limited(const std::vector<std::string>& command, const std::string& folder,
                  const Environment& environment, const Limits& limits, unsigned user = 0);

}  // namespace lab::grader
