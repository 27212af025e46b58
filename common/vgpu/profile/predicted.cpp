#include "predicted.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "report.h"

namespace vgpu {
namespace {

using Json = json::Value;

constexpr std::size_t kReasons = 6, kLines = 5;

std::string in_three_digits(double us) {
  if (us >= 1e6) return format("%.3g s", us / 1e6);
  if (us >= 1e3) return format("%.3g ms", us / 1e3);
  return format("%.3g us", us);
}

bool waits(const std::string& reason) { return reason != "selected"; }

// Indices of reasons by their share, largest first; clocks in which a warp issues left out.
std::vector<std::size_t> reasons(const PredictedTime& p, const std::vector<double>& stalls) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < stalls.size() && i < p.stall_names.size(); ++i)
    if (waits(p.stall_names[i]) && stalls[i] > 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return stalls[a] > stalls[b]; });
  return order;
}

}  // namespace

std::vector<WaitingLine> waiting_lines(const PredictedTime& predicted) {
  std::map<std::pair<std::string, int>, WaitingLine> lines;
  std::map<std::pair<std::string, int>, double> costliest;
  double all = 0;
  for (const PredictedLine& line : predicted.lines) {
    double clocks = 0;
    for (std::size_t i = 0; i < line.stalls.size(); ++i)
      if (waits(predicted.stall_names[i])) clocks += line.stalls[i];
    all += clocks;
    // A line of PTX that is of no source line stands for itself.
    const std::pair key(line.file,
                        line.file.empty() ? -static_cast<int>(line.ptx_line) : line.line);
    WaitingLine& sum = lines[key];
    sum.file = line.file;
    sum.line = line.line;
    sum.share += clocks;
    sum.stalls.resize(predicted.stall_names.size());
    for (std::size_t i = 0; i < line.stalls.size(); ++i) sum.stalls[i] += line.stalls[i];
    if (clocks >= costliest[key]) {
      costliest[key] = clocks;
      sum.ptx_line = line.ptx_line;
    }
  }
  std::vector<WaitingLine> out;
  for (auto& [key, line] : lines) {
    if (all > 0) line.share /= all;
    if (line.share > 0) out.push_back(std::move(line));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const WaitingLine& a, const WaitingLine& b) { return a.share > b.share; });
  return out;
}

json::Value predicted_json(const PredictedTime& p) {
  if (!p.asked) return Json(nullptr);
  if (!p.why.empty()) return {{"us", nullptr}, {"why", p.why}};
  Json stalls = Json::object();
  for (std::size_t i = 0; i < p.stalls.size(); ++i) stalls[p.stall_names[i]] = p.stalls[i];
  Json pipes = Json::object();
  for (const PredictedPipe& pipe : p.pipes)
    pipes[pipe.name] = {{"instructions", pipe.instructions}, {"share", pipe.share}};
  Json lines = Json::array();
  for (const WaitingLine& line : waiting_lines(p)) {
    Json why = Json::object();
    const double sum = std::accumulate(line.stalls.begin(), line.stalls.end(), 0.0);
    for (std::size_t i = 0; i < line.stalls.size(); ++i)
      if (line.stalls[i] > 0 && sum > 0) why[p.stall_names[i]] = line.stalls[i] / sum;
    lines.push_back({{"file", line.file},
                     {"line", line.line},
                     {"ptx_line", line.ptx_line},
                     {"share", line.share},
                     {"stalls", std::move(why)}});
  }
  return {{"us", p.us},
          {"error", p.error},
          {"launch_us", p.launch_us},
          {"sm_us", p.sm_us},
          {"dram_us", p.dram_us},
          {"dram_bytes", p.dram_bytes},
          {"barrier_us", p.barrier_us},
          {"clocks", p.clocks},
          {"clock_mhz", p.clock_mhz},
          {"clock_known", p.clock_known},
          {"memory_clocks", p.memory_clocks},
          {"joined_accesses", p.joined_accesses},
          {"issue_share", p.issue_share},
          {"machine_instructions", p.machine_instructions},
          {"pipes", std::move(pipes)},
          {"bytes_in_flight", p.bytes_in_flight},
          {"bytes_wanted", p.bytes_wanted},
          {"l1_hit_rate", p.l1_hit_rate},
          {"l2_miss_rate", p.l2_miss_rate},
          {"blocks_simulated", p.blocks_simulated},
          {"blocks_of_sm", p.blocks_of_sm},
          {"agreement", p.agreement},
          {"stalls", std::move(stalls)},
          {"lines", std::move(lines)}};
}

std::string predicted_words(const PredictedTime& p) {
  if (!p.asked || !p.why.empty()) return "";
  return in_three_digits(p.us) + format(" +-%.0f %%", 100 * p.error);
}

std::string predicted_text(const PredictedTime& p) {
  if (!p.asked) return "";
  if (!p.why.empty()) return "\nPredicted time: none; " + p.why + "\n";
  std::string out = "\nPredicted time: " + predicted_words(p) + "\n";
  out +=
      format("  launch %s, busiest SM %s, DRAM at least %s", in_three_digits(p.launch_us).c_str(),
             in_three_digits(p.sm_us).c_str(), in_three_digits(p.dram_us).c_str());
  if (p.barrier_us > 0) out += ", barriers of the grid " + in_three_digits(p.barrier_us);
  out += "\n" + format(
                    "  %llu of the busiest SM's %llu blocks simulated, in machine instructions; "
                    "issue slots used: %.0f %%\n",
                    static_cast<unsigned long long>(p.blocks_simulated),
                    static_cast<unsigned long long>(p.blocks_of_sm), 100 * p.issue_share);
  out += format("  at %.0f MHz%s\n", p.clock_mhz,
                p.clock_known ? "" : "; by how much tensor instructions lower it is not known");
  if (p.bytes_wanted > 0)
    out += format("  bytes in flight: %.0f an SM; to keep DRAM busy it would take %.0f\n",
                  p.bytes_in_flight, p.bytes_wanted);
  const auto order = reasons(p, p.stalls);
  const double all = std::accumulate(p.stalls.begin(), p.stalls.end(), 0.0);
  if (!order.empty() && all > 0) out += "  why warps wait, in shares of their time:\n";
  for (std::size_t i = 0; i < std::min(kReasons, order.size()); ++i) {
    const double share = p.stalls[order[i]] / all;
    if (share < 0.005) break;
    out += format("    %-22s %5.1f %%\n", p.stall_names[order[i]].c_str(), 100 * share);
  }
  const auto lines = waiting_lines(p);
  if (!lines.empty()) out += "  where they wait:\n";
  for (std::size_t i = 0; i < std::min(kLines, lines.size()); ++i) {
    const WaitingLine& line = lines[i];
    const auto why = reasons(p, line.stalls);
    const std::string where = line.file.empty() ? "PTX line " + std::to_string(line.ptx_line)
                                                : line.file + ":" + std::to_string(line.line);
    out += format("    %5.1f %%  %-58s %s\n", 100 * line.share,
                  where.size() > 58 ? where.substr(where.size() - 58).c_str() : where.c_str(),
                  why.empty() ? "" : p.stall_names[why[0]].c_str());
  }
  return out;
}

}  // namespace vgpu
