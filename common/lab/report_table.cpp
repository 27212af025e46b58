// The report as a table for people, with the words that explain its columns.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "device.h"
#include "files.h"
#include "report_body.h"
#include "table.h"

namespace lab {
namespace {

std::string or_dash(double value, const char* layout) {
  char text[32];
  if (!std::isfinite(value) || value == 0) return "-";
  std::snprintf(text, sizeof text, layout, value);
  return text;
}

// An error; NaN where a comparison found a NaN, or was none.
std::string error_text(const Comparison& of, double error) {
  return of.skipped ? "-" : format("%.1e", error);
}

// What sets the modelled limit, "-" where that is not known.
std::string largest_limit(const json::Value& counters) {
  const json::Value* const name = counters.find_path("/limit/name");
  if (!name) return "-";
  const std::string text = name->get<std::string>();
  return text == "distributed shared memory" ? "cluster's shared" : text;  // a table is narrow
}

std::string percent(double share, double least = 0) {
  return std::isfinite(share) && share >= least ? format("%.0f%%", 100 * share) : "-";
}

// What explains the modelled limit of some launches together.
struct Explained {
  double moved_bytes = 0;                // sectors of global memory, and copy engines' bytes
  double load_sectors = 0, fewest = 0;   // and the fewest for the bytes that are asked for
  double wavefronts = 0, conflicts = 0;  // of shared memory, and those of them too many
  double issue_us = 0;

  void add(const json::Value& counters, double launches) {
    const auto number = [&](const std::string& pointer) {
      const json::Value* const found = counters.find_path(pointer);
      return found && found->is_number() ? launches * found->get<double>() : 0;
    };
    for (const std::string access : {"load", "store", "atomic"}) {
      moved_bytes += 32 * number("/global/" + access + "/sectors") +
                     number("/copy_engine/" + access + "/bytes");
      wavefronts += number("/shared/" + access + "/wavefronts");
      conflicts += number("/shared/" + access + "/conflicts");
    }
    load_sectors += number("/global/load/sectors");
    fewest += number("/global/load/requests") * number("/global/load/ideal_sectors_per_request") /
              launches;
    issue_us += number("/limits/issue");
  }
};

}  // namespace

// The first ratio of that line; "" where it has none. What is wrong has no speed, and a ratio of
// bounds is no speed-up.
std::string Report::Body::ratio_of(const std::string& name) const {
  for (const Ratio& ratio : ratios)
    if (ratio.after == name && !ratio.of_bounds())
      return rows[row_of(name)].comparison.pass && rows[row_of(ratio.before)].comparison.pass
                 ? times(ratio.before_us / ratio.after_us)
                 : "";
  return "";
}

// What matters first, then what explains it, then errors. Where a line has no number of its own, as
// a launch that is compared with others alone, it has none.
std::vector<std::string> Report::Body::cells(size_t row) const {
  const Row& line = rows[row];
  const bool own = line.errors == Errors::kOfLaunch, pass = line.comparison.pass;
  const double us = line.timing.median_us;
  const std::string name = (line.kind == Kind::kLaunch ? "  " : "") + line.name,
                    ratio = ratio_of(line.name),
                    max_error =
                        own ? error_text(line.comparison, line.comparison.max_abs_error) : "-",
                    l2 = own ? error_text(line.comparison, line.comparison.relative_l2) : "-",
                    result = !pass                     ? "FAIL"
                             : !own                    ? ""
                             : line.comparison.skipped ? "not compared"
                                                       : "PASS";
  if (!head.device.is_virtual) {
    const Bound bound = bound_of(head.device, line.cost);
    const double share = line.cost.bytes + line.cost.flops > 0 ? bound.us / us : std::nan("");
    return {name,
            human_time(us),
            ratio,
            human_time(line.timing.min_us),
            or_dash(100 * line.timing.spread, line.timing.spread < 1 ? "%.1f%%" : "%.0f%%"),
            human_time(line.timing.graph_us),
            std::isfinite(share) ? format("%.1f%% %s", 100 * share, bound.name) : "-",
            or_dash(line.cost.bytes / us / 1e3, "%.0f"),
            or_dash(line.cost.flops / us / 1e6, "%.2f"),
            max_error,
            l2,
            result,
            launches_text(row),
            percent(share_of_total(row, &Body::measured_us))};
  }
  const bool predicts = !stated_error().empty();  // then the table is wide enough without "issue"
  const double limit = modelled_limit_us(row);
  Explained why;
  if (std::isfinite(limit))
    for (const size_t launch : launches_of(row)) why.add(counters(launch), rows[launch].launches);
  const auto over = [](double a, double b) { return b > 0 ? a / b : std::nan(""); };
  const std::string set_by = !std::isfinite(limit)       ? "-"
                             : line.kind == Kind::kTotal ? "the sum"
                                                         : largest_limit(counters(row));
  return {name,
          human_time(predicted(row).us),
          human_time(limit),
          ratio,
          set_by,
          times(why.moved_bytes > 0 ? over(why.moved_bytes, line.cost.bytes) : std::nan("")),
          times(over(why.load_sectors, why.fewest)),
          percent(over(why.conflicts, why.wavefronts), 0.005),
          predicts ? "" : percent(over(why.issue_us, limit)),
          max_error,
          l2,
          result,
          head.options.profile ? human_time(us) : "",
          launches_text(row),
          percent(share_of_total(row, &Body::predicted_us))};
}

// Only where a line stands for several launches; of a step, all of its lines'.
std::string Report::Body::launches_text(size_t row) const {
  if (std::all_of(rows.begin(), rows.end(), [](const Row& any) { return any.launches == 1; }))
    return "";
  int all = 0;
  for (const size_t launch : launches_of(row)) all += rows[launch].launches;
  return std::to_string(all);
}

// Of that time of the step that the next total names; NaN where no line stands for several launches.
double Report::Body::share_of_total(size_t row, double (Body::*us)(size_t) const) const {
  size_t total = row;
  while (total < rows.size() && rows[total].kind == Kind::kLaunch) ++total;
  if (launches_text(row).empty() || total == rows.size() || rows[total].kind != Kind::kTotal)
    return std::nan("");
  double sum = 0;
  for (const size_t launch : launches_of(total)) sum += (this->*us)(launch);
  return total == row ? std::nan("") : (this->*us)(row) / sum;
}

// The largest error that predictions are stated with, in percent: "25"; "" without predictions.
std::string Report::Body::stated_error() const {
  double most = -1;
  for (size_t i = 0; i < rows.size(); ++i)
    if (const Predicted line = predicted(i); std::isfinite(line.us))
      most = std::max(most, line.error);
  return most < 0 ? "" : format("%.0f", 100 * most);
}

std::vector<std::string> Report::Body::heads() const {
  if (!head.device.is_virtual)
    return {"step",       "median",      "before/\nthis",       "min",
            "spread",     "in a\ngraph", "share of\nthe bound", "GB/s",
            "TFLOP/s",    "max\nerror",  "rel.\nerror",         "<result",
            "times\nrun", "share"};
  return {"step",
          "predicted\n+-" + stated_error() + "%",
          "lower\nbound",
          "before/\nthis",
          "<set by",
          "moved/\nneeded",
          "sectors/\nideal",
          "bank\nconfl",
          "issue",
          "max\nerror",
          "rel.\nerror",
          "<result",
          "host\ntime",
          "times\nrun",
          "share"};
}

std::string Report::Body::lines() const {
  TextTable table(heads());
  for (const size_t row : order()) table.add(cells(row));
  bool told = false;  // names alone are no table
  for (size_t column = 1; column < heads().size(); ++column) told = told || table.used(column);
  if (!told) return "";
  std::string text = table.text() + "\n";
  // A line for each column that is not plain, where it is shown.
  const auto explain = [&](size_t column, const std::string& words) {
    if (table.used(column)) text += words;
  };
  const bool is_virtual = head.device.is_virtual;
  if (is_virtual) {
    explain(
        1,
        "predicted      how long this GPU takes: the kernel's machine code on one SM, simulated, "
        "as a\n               node of a CUDA graph; such predictions are off by some " +
            stated_error() + "%\n");
    explain(
        2,
        "lower bound    the modelled limit: the time that the busiest part of the GPU needs at its "
        "peak,\n               with cold caches. It is computed from counters and leaves out "
        "latency:\n               it is not a running time.\n");
    explain(3, "before/this    the predicted time of the step before, divided by this one's\n");
    const bool sums = std::any_of(rows.begin(), rows.end(),
                                  [](const Row& row) { return row.kind == Kind::kTotal; });
    explain(4, sums ? "set by         the busiest part; the sum: of the launches, indented below "
                      "the step\n"
                    : "set by         the busiest part\n");
    explain(5,
            "moved/needed   bytes of all sectors loaded and stored, divided by the fewest that do "
            "the work\n");
    explain(6,
            "sectors/ideal  sectors loaded, divided by the fewest that hold the bytes asked for\n");
    explain(7, "bank confl     the share of shared memory's wavefronts that bank conflicts add\n");
    explain(8, "issue          the share of the bound that issuing the instructions takes\n");
  } else {
    explain(2, "before/this    the median of the step before over this one's\n");
  }
  explain(9,
          "max error      the largest error of one element of the result\n"
          "rel. error     the errors of all elements (their norm), divided by the reference's "
          "norm\n");
  if (is_virtual)
    explain(12, "host time      of the virtual GPU on this machine's CPU: no GPU's time\n");
  explain(is_virtual ? 14 : 13, "share          of the step's time, by all launches of the line\n");
  if (head.options.predict)
    text +=
        "not compared   only the blocks that a predicted time needs were executed: results are "
        "incomplete\n";
  return text + prediction_notes();
}

// Which lines have no predicted time, and why.
std::string Report::Body::prediction_notes() const {
  if (!head.device.is_virtual) return "";
  std::vector<std::pair<std::string, std::string>> reasons;  // and of which lines
  for (const size_t row : order()) {
    if (rows[row].kind == Kind::kTotal) continue;  // its launches say it
    const std::string why = predicted(row).why;
    if (why.empty()) continue;
    const auto same = std::find_if(reasons.begin(), reasons.end(),
                                   [&](const auto& reason) { return reason.first == why; });
    if (same == reasons.end())
      reasons.emplace_back(why, rows[row].name);
    else
      same->second += ", " + rows[row].name;
  }
  std::string text;
  if (reasons.size() == 1 && stated_error().empty())
    return "No predicted times: " + reasons[0].first + "\n";
  for (const auto& [why, names] : reasons)
    text += "No predicted time of " + names + ": " + why + "\n";
  return text;
}

// Ratios that the table does not say, or not with what.
std::string Report::Body::ratio_notes() const {
  std::string text;
  for (size_t i = 0; i < ratios.size(); ++i) {
    const Ratio& ratio = ratios[i];
    if (ratio.of_bounds()) continue;
    const size_t after = row_of(ratio.after), before = row_of(ratio.before);
    if (!rows[after].comparison.pass || !rows[before].comparison.pass) continue;
    const bool first = std::none_of(ratios.begin(), ratios.begin() + int64_t(i),
                                    [&](const Ratio& r) { return r.after == ratio.after; });
    bool between = false;  // another step stands between the two
    for (size_t row = std::min(before, after) + 1; row < after; ++row)
      between = between || rows[row].kind == Kind::kStep || rows[row].kind == Kind::kTotal;
    const std::string how_much = times(ratio.before_us / ratio.after_us);
    if (!first)
      text += format("%s to %s, all steps in between: %s %s to %s, %s\n", ratio.before.c_str(),
                     ratio.after.c_str(), ratio.of, human_time(ratio.before_us).c_str(),
                     human_time(ratio.after_us).c_str(), how_much.c_str());
    else if (between)
      text += format("%s: the step before is %s\n", ratio.after.c_str(), ratio.before.c_str());
  }
  return text;
}

std::string Report::Body::table() const {
  const Device& device = head.device;
  std::string text =
      format("device   %s%s, compute capability %d.%d, %d SMs, %s\n", device.name.c_str(),
             device.is_virtual ? " (virtual GPU)" : "", device.major, device.minor, device.sm_count,
             human_bytes(device.memory_bytes).c_str());
  text += "problem  " + head.source + "\n         " + head.shape + "\n";
  if (const std::string told = lines(); !told.empty()) text += "\n" + told;
  if (!device.is_virtual && device.dram_bytes_per_s > 0 && device.fp32_flop_per_s > 0)
    text += format(
        "GB/s, TFLOP/s  of what the step must move and compute at least\n"
        "bound          the larger of two times: for that at %.2f TB/s of DRAM, and at %.1f "
        "TFLOP/s\n"
        "               of fp32, %.0f of tensor cores or %.0f of their tf32%s\n",
        device.dram_bytes_per_s / 1e12, device.fp32_flop_per_s / 1e12,
        device.tensor_flop_per_s / 1e12, device.tensor_flop_per_s / 2e12,
        device.ceilings.empty() ? "" : (",\n               " + device.ceilings).c_str());
  else if (!device.is_virtual)
    text += "The ceilings of this device are not known: no bound, no share.\n";
  text += timing_notes();
  const std::string more = ratio_notes();
  if (!more.empty() || !notes.empty()) text += "\n" + more;
  for (const std::string& note : notes) text += note + "\n";
  for (const Row& row : rows)
    if (!row.comparison.pass) text += row.name + ": " + row.comparison.describe() + "\n";
  return text;
}

std::string Report::Body::timing_notes() const {
  bool graphs = false, stages = false;
  std::vector<std::pair<std::string, std::string>> refusals;  // the reason, and of which lines
  for (const Row& row : rows) {
    graphs = graphs || std::isfinite(row.timing.graph_us);
    stages = stages || (row.timing.stages > 1 && !row.timing.host_time);
    if (row.timing.no_graph.empty()) continue;
    const auto same = std::find_if(refusals.begin(), refusals.end(), [&](const auto& refusal) {
      return refusal.first == row.timing.no_graph;
    });
    if (same == refusals.end())
      refusals.emplace_back(row.timing.no_graph, row.name);
    else
      same->second += ", " + row.name;
  }
  std::string text;
  if (graphs)
    text +=
        "in a graph     a call when many are replayed from a CUDA graph, at no cost to the host\n";
  if (stages)
    text += "Launches of a step are timed one by one: each has the time of an event in it.\n";
  for (const auto& [reason, names] : refusals)
    text += "Not timed in a CUDA graph: " + names + ":\n" + reason + "\n";
  return text;
}

}  // namespace lab
