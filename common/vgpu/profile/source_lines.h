// The counters of a launch by source line, costliest first.
#pragma once
#include <string>
#include <vector>

#include "limits.h"

namespace vgpu {

struct LineReport {
  std::string function;  // the function of the line's first instruction
  std::string file;      // "" unknown (compiled without -lineinfo): a line of PTX then
  int line = 0;
  std::uint32_t ptx_line = 0;  // the PTX line of its costliest instruction
  InstrCounters count;
  std::uint64_t machine_instructions = 0;  // 0: unknown
  GlobalCounters global, local;
  BulkCounters bulk;
  SharedCounters shared;
  RemoteCounters remote;
  CacheCounters cache;  // all zero without the cache model
  double share = 0;     // its part of the cost on the largest limit, 0 to 1
};

// Instructions without a source line are reported one by one. Sorted by share, then file and line.
std::vector<LineReport> source_lines(const LaunchCounters& counters, const Limits& limits,
                                     const DeviceSpec& device);

}  // namespace vgpu
