#include "time_table.h"

#include <algorithm>
#include <cstdio>

namespace vgpu::runtime {
namespace {

std::string cell(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

// The reason for which warps wait most, in words: "long_scoreboard 61 %".
std::string main_reason(const std::vector<double>& stalls, const std::vector<std::string>& names) {
  std::size_t most = names.size();
  double sum = 0;
  for (std::size_t i = 0; i < stalls.size() && i < names.size(); ++i) {
    sum += stalls[i];
    if (names[i] != "selected" && (most == names.size() || stalls[i] > stalls[most])) most = i;
  }
  if (most == names.size() || sum <= 0) return "";
  return names[most] + cell(" %.0f %%", 100 * stalls[most] / sum);
}

}  // namespace

void TimeTable::add(const LaunchCounters& counters) {
  auto row = std::find_if(rows_.begin(), rows_.end(),
                          [&](const Row& r) { return r.kernel == counters.kernel; });
  if (row == rows_.end()) {
    rows_.push_back({counters.kernel, 0, 0, 0, "", {}, {}});
    row = rows_.end() - 1;
  }
  ++row->launches;
  const PredictedTime& p = counters.predicted;
  sampled_ |= counters.sampled;
  if (!p.why.empty()) {
    if (!row->unknown++) row->why = p.why;
    return;
  }
  row->us += p.us;
  error_ = std::max(error_, p.error);
  row->names = p.stall_names;
  row->stalls.resize(p.stalls.size());
  for (std::size_t i = 0; i < p.stalls.size(); ++i) row->stalls[i] += p.stalls[i] * p.us;
}

std::string TimeTable::text(const DeviceSpec& device) const {
  if (rows_.empty()) return "";
  std::vector<const Row*> order;
  for (const Row& row : rows_) order.push_back(&row);
  std::stable_sort(order.begin(), order.end(),
                   [](const Row* a, const Row* b) { return a->us > b->us; });
  char line[256];
  std::string out = "predicted time on " + device.name +
                    (error_ > 0 ? cell(", each +-%.0f %%", 100 * error_) : ": none") + "\n";
  if (sampled_) out += "only the blocks that it needs were executed: results are incomplete\n";
  std::snprintf(line, sizeof line, "%-38s %9s %12s %12s  %s\n", "kernel", "launches", "total, us",
                "mean, us", "warps wait most for");
  out += line;
  for (const Row* row : order) {
    std::string name = row->kernel;
    if (name.size() > 38) name = name.substr(0, 35) + "...";
    const std::uint64_t known = row->launches - row->unknown;
    std::snprintf(line, sizeof line, "%-38s %9llu %12s %12s  %s\n", name.c_str(),
                  static_cast<unsigned long long>(row->launches),
                  known ? cell("%.2f", row->us).c_str() : "-",
                  known ? cell("%.2f", row->us / static_cast<double>(known)).c_str() : "-",
                  known ? main_reason(row->stalls, row->names).c_str() : "");
    out += line;
    out.resize(out.find_last_not_of(" \n") + 1);
    out += "\n";
    if (row->unknown) {
      std::snprintf(line, sizeof line,
                    "  %llu without: ", static_cast<unsigned long long>(row->unknown));
      out += line + row->why + "\n";
    }
  }
  return out;
}

}  // namespace vgpu::runtime
