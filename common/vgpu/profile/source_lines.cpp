#include "source_lines.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace vgpu {
std::vector<LineReport> source_lines(const LaunchCounters& counters, const Limits& limits,
                                     const DeviceSpec& device) {
  const Pipe pipe = limits.largest ? limits.largest->pipe : Pipe::issue;
  struct Entry {
    LineReport report;
    double cost = 0, costliest = -1;
  };
  std::map<std::tuple<std::string, int, std::string, std::uint32_t>, Entry> by_line;
  double all = 0;
  const bool machine = std::any_of(
      counters.instructions.begin(), counters.instructions.end(),
      [](const InstrReport& instruction) { return instruction.machine_instructions > 0; });
  for (const InstrReport& instruction : counters.instructions) {
    const bool known = !instruction.file.empty();
    Entry& entry = known ? by_line[{instruction.file, instruction.line, "", 0}]
                         : by_line[{"", 0, instruction.function, instruction.ptx_line}];
    LineReport& report = entry.report;
    if (entry.costliest < 0) {
      report.function = instruction.function;
      report.file = instruction.file;
      report.line = known ? instruction.line : 0;
    }
    const double cost = cost_on(pipe, instruction, device, machine);
    if (cost > entry.costliest) {
      entry.costliest = cost;
      report.ptx_line = instruction.ptx_line;
    }
    entry.cost += cost;
    all += cost;
    report.count.issued += instruction.count.issued;
    report.count.lanes += instruction.count.lanes;
    report.machine_instructions += instruction.machine_instructions;
    report.global += instruction.global;
    report.local += instruction.local;
    report.bulk += instruction.bulk;
    report.shared += instruction.shared;
    report.remote += instruction.remote;
    report.cache += instruction.cache;
  }
  std::vector<LineReport> lines;
  for (auto& [key, entry] : by_line) {
    entry.report.share = all > 0 ? entry.cost / all : 0;
    lines.push_back(std::move(entry.report));
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const LineReport& a, const LineReport& b) { return a.share > b.share; });
  return lines;
}

}  // namespace vgpu
