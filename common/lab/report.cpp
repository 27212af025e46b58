// The report: lines for people, JSON and CSV for programs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>
#include <numeric>

#include "device.h"
#include "files.h"
#include "json/json.h"
#include "lab.cuh"
#include "lab/report.h"
#include "program.h"
#include "report.h"
#include "table.h"

namespace lab {
namespace {

using Json = json::Value;

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

// The least time that DRAM and the units that compute allow, and which of the two it is.
struct Bound {
  double us = std::nan("");
  const char* name = "unknown";
};

Bound bound_of(const Device& device, const Cost& cost) {
  const double peak =
      cost.tensor_cores ? device.tensor_flop_per_s * cost.tensor_rate : device.fp32_flop_per_s;
  if (device.dram_bytes_per_s <= 0 || peak <= 0) return {};
  const double dram = 1e6 * cost.bytes / device.dram_bytes_per_s, compute = 1e6 * cost.flops / peak;
  if (dram >= compute) return {dram, "DRAM"};
  return {compute, !cost.tensor_cores ? "fp32" : cost.tensor_rate == 1 ? "tensor" : "tf32"};
}

// JSON has no NaN: what is not known is null.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json counters_of(const std::string& text) {
  Json json = json::parse_or_null(text);
  return json.is_null() ? Json::object() : json;
}

// What sets the modelled limit, "-" where that is not known.
std::string largest_limit(const Json& counters) {
  const Json* const name = counters.find_path("/limit/name");
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

  void add(const Json& counters, double launches) {
    const auto number = [&](const std::string& pointer) {
      const Json* const found = counters.find_path(pointer);
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

// What the virtual GPU predicts for one launch or several together.
struct Predicted {
  double us = std::nan(""), error = std::nan("");      // the error as a share of it
  std::string why;                                     // there is none; "" where there is one
  std::vector<std::pair<std::string, double>> stalls;  // why warps wait: shares of their time
};

std::string why_not_asked() {
  return !vgpu::can_predict()         ? "this virtual GPU does not predict times"
         : vgpu::prediction_refused() ? "switched off (VGPU_TIME=0)"
                                      : "none was asked for";
}

Predicted predicted_of(const Json& counters) {
  Predicted launch;
  const Json* const us = counters.find_path("/predicted/us");
  if (!us || !us->is_number()) {
    const Json* const why = counters.find_path("/predicted/why");
    launch.why = why ? why->get<std::string>() : why_not_asked();
    return launch;
  }
  launch.us = us->get<double>();
  launch.error = counters.at("predicted").at("error").get<double>();
  if (const Json* const stalls = counters.find_path("/predicted/stalls"))
    for (size_t i = 0; i < stalls->size(); ++i)
      launch.stalls.emplace_back(stalls->names()[i], stalls->item(i).get<double>());
  return launch;
}

// Times add up, stalls by how long each launch takes; without one of the launches there is no sum.
Predicted sum_of(const std::vector<Predicted>& launches) {
  if (launches.size() == 1) return launches[0];
  Predicted sum;
  sum.us = sum.error = 0;
  for (const Predicted& launch : launches) {
    if (!launch.why.empty()) {
      Predicted none;
      none.why = launch.why;
      return none;
    }
    sum.us += launch.us;
    sum.error = std::max(sum.error, launch.error);
    for (const auto& [name, share] : launch.stalls) {
      const auto same = std::find_if(sum.stalls.begin(), sum.stalls.end(),
                                     [&](const auto& stall) { return stall.first == name; });
      if (same == sum.stalls.end())
        sum.stalls.emplace_back(name, share * launch.us);
      else
        same->second += share * launch.us;
    }
  }
  for (auto& [name, share] : sum.stalls) share /= sum.us;
  return sum;
}

// A text as a CSV file has it.
std::string quoted_cell(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string version_text(int version) {
  return format("%d.%d", version / 1000, version % 1000 / 10);
}

}  // namespace

// The lines as they came in, and what is made of them.
struct Report::Body {
  enum class Kind { kStep, kLaunch, kTotal, kBeside };
  struct Row {
    std::string name;
    Timing timing;
    Cost cost;
    Comparison comparison;
    Kind kind;
    Errors errors = Errors::kOfLaunch;  // of what this line wrote itself
    std::vector<std::pair<std::string, double>> numbers = {};
    int launches = 1;  // alike, which the line stands for; its counters are those of one
  };
  std::vector<size_t> launches_of(size_t row) const;  // of a total; of a step, itself
  std::vector<size_t> order() const;                  // of the table: a step before its launches
  std::string table() const;
  std::string stated_error() const;
  std::vector<std::string> heads() const;
  std::string lines() const;
  std::vector<std::string> cells(size_t row) const;
  std::string ratio_notes() const;
  std::string ratio_of(const std::string& name) const;
  std::string timing_notes() const;
  std::string json() const;
  std::string csv() const;
  std::string prediction_notes() const;
  const Json& counters(size_t row) const;
  double modelled_limit_us(size_t row) const;
  Predicted predicted(size_t row) const;
  double predicted_us(size_t row) const { return predicted(row).us; }
  double measured_us(size_t row) const { return rows[row].timing.median_us; }
  std::string launches_text(size_t row) const;
  double share_of_total(size_t row, double (Body::*us)(size_t) const) const;
  size_t row_of(const std::string& name) const;
  struct Ratio {
    const char* of;  // what is divided: "medians", "predicted times" or "modelled limits"
    std::string after, before;
    double before_us, after_us;
    bool of_bounds() const { return of == kOfBounds; }
  };
  static constexpr const char* kOfBounds = "modelled limits";
  ReportHead head;
  std::vector<Row> rows;
  std::vector<Ratio> ratios;
  std::vector<std::string> notes;
  bool failed = false;
  // What counters() has read, with its text: it is long, and each cell of the table asks for it.
  mutable std::map<size_t, std::pair<std::string, Json>> read = {};
};

Report::Report(ReportHead head) : body_(new Body{std::move(head), {}, {}, {}}) {}
Report::~Report() = default;
Report::Report(Report&&) noexcept = default;
void Report::note(const std::string& line) { body_->notes.push_back(line); }

void Report::add_number(const std::string& line, const std::string& name, double value) {
  body_->rows[body_->row_of(line)].numbers.emplace_back(name, value);
}

double Report::predicted_us(const std::string& line) const {
  return body_->predicted_us(body_->row_of(line));
}

void Report::require(bool ok, const std::string& otherwise) {
  if (ok) return;
  body_->failed = true;
  body_->notes.push_back("FAIL: " + otherwise);
}

void Report::add(const std::string& name, const Timing& timing, const Cost& cost,
                 const Comparison& comparison) {
  body_->rows.push_back({name, timing, cost, comparison, Body::Kind::kStep});
}

void Report::add_launch(const std::string& name, const Timing& timing, const Cost& cost,
                        const Comparison& comparison, Errors of, int launches) {
  body_->rows.push_back({name, timing, cost, comparison, Body::Kind::kLaunch, of, {}, launches});
}

void Report::add_total(const std::string& name, const Timing& timing, const Cost& cost,
                       const Comparison& comparison) {
  body_->rows.push_back({name, timing, cost, comparison, Body::Kind::kTotal});
}

void Report::add_beside(const std::string& name, const Timing& timing,
                        const Comparison& comparison) {
  body_->rows.push_back({name, timing, {}, comparison, Body::Kind::kBeside, Errors::kOfStep});
}

size_t Report::Body::row_of(const std::string& name) const {
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].name == name) return i;
  throw std::invalid_argument("no line '" + name + "' in the report");
}

void Report::add_ratio(const std::string& after, const std::string& before) {
  const size_t after_row = body_->row_of(after), before_row = body_->row_of(before);
  if (!body_->head.device.is_virtual) {
    body_->ratios.push_back({"medians", after, before, body_->rows[before_row].timing.median_us,
                             body_->rows[after_row].timing.median_us});
    return;
  }
  const double before_us = body_->predicted(before_row).us,
               after_us = body_->predicted(after_row).us;
  if (std::isfinite(before_us / after_us))
    body_->ratios.push_back({"predicted times", after, before, before_us, after_us});
  else
    body_->ratios.push_back({Body::kOfBounds, after, before, body_->modelled_limit_us(before_row),
                             body_->modelled_limit_us(after_row)});
}

std::vector<size_t> Report::Body::launches_of(size_t row) const {
  if (rows[row].kind != Kind::kTotal) return {row};
  size_t first = row;
  while (first > 0 && rows[first - 1].kind == Kind::kLaunch) --first;
  std::vector<size_t> launches(row - first);
  std::iota(launches.begin(), launches.end(), first);
  return launches;
}

const Json& Report::Body::counters(size_t row) const {
  const std::string& text = rows[row].timing.counters;
  const auto [it, added] = read.try_emplace(row);
  if (added || it->second.first != text) it->second = {text, counters_of(text)};
  return it->second.second;
}

double Report::Body::modelled_limit_us(size_t row) const {
  double sum = 0;
  for (const size_t launch : launches_of(row)) {
    const Json* const us = counters(launch).find_path("/limit/us");
    if (counters(launch).contains("sampled")) return std::nan("");  // of the executed blocks alone
    sum += us && us->is_number() ? us->get<double>() * rows[launch].launches : std::nan("");
  }
  return sum;
}

Predicted Report::Body::predicted(size_t row) const {
  std::vector<Predicted> launches;
  for (const size_t launch : launches_of(row)) {
    launches.push_back(predicted_of(counters(launch)));
    launches.back().us *= rows[launch].launches;
  }
  return sum_of(launches);
}

std::vector<size_t> Report::Body::order() const {
  std::vector<size_t> order;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].kind == Kind::kLaunch) continue;
    order.push_back(i);
    if (rows[i].kind == Kind::kTotal)
      for (const size_t launch : launches_of(i)) order.push_back(launch);
  }
  return order;
}

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
            or_dash(100 * line.timing.spread, "%.1f%%"),
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
        "with cold\n               caches; such predictions are off by some " +
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
  text += "problem  " + head.source + "\n         " + head.shape + "\n\n" + lines();
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

std::string Report::Body::json() const {
  const Device& device = head.device;
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const std::time_t now = std::time(nullptr);
  char time[32];
  std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  const Commit commit = commit_of(repository_path("."));

  Json json;
  json["chapter"] = head.chapter;
  json["time"] = time;
  json["commit"] = commit.name;
  json["changed_files"] = commit.changed ? Json(*commit.changed) : Json(nullptr);
  json["device"] = {{"name", device.name},
                    {"virtual", device.is_virtual},
                    {"compute_capability", format("%d.%d", device.major, device.minor)},
                    {"sm_count", device.sm_count},
                    {"memory_bytes", device.memory_bytes},
                    {"l2_bytes", device.l2_bytes},
                    {"dram_bytes_per_s", number(device.dram_bytes_per_s)},
                    {"fp32_flop_per_s", number(device.fp32_flop_per_s)},
                    {"tensor_flop_per_s", number(device.tensor_flop_per_s)},
                    {"ceilings", device.ceilings}};
  json["driver"] = version_text(driver);
  json["runtime"] = version_text(runtime);
  json["nvcc"] = version_text(CUDART_VERSION);
  json["clocks"] = {{"peak_sm_hz", device.clock_hz}};
  if (!device.is_virtual)  // "1980 MHz, 3201 MHz", of SMs and memory; empty where there is no tool
    json["clocks"]["sm_and_memory_now"] =
        command_output("nvidia-smi -i 0 --query-gpu=clocks.sm,clocks.mem --format=csv,noheader");
  size_t free_bytes = 0, all_bytes = 0;
  if (!device.is_virtual && cudaMemGetInfo(&free_bytes, &all_bytes) == cudaSuccess)
    json["memory_in_use_bytes"] = all_bytes - free_bytes;  // of all programs on the GPU
  json["problem"]["source"] = head.source;
  for (const auto& [name, size] : head.sizes) json["problem"][name] = size;
  for (const auto& [name, detail] : head.details) json["problem"][name] = json::parse(detail);
  json["problem"]["seed"] = head.options.seed;
  for (const auto& [name, text] : head.data) json[name] = json::parse(text);
  json["warmup"] = head.options.warmup;
  json["iterations"] = head.options.iterations;

  bool pass = !failed;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const Timing& timing = row.timing;
    Json line;
    line["name"] = row.name;
    if (row.launches > 1) line["launches"] = row.launches;
    line["clock"] = timing.host_time ? "wall time on the host" : "CUDA events";
    line["median_us"] = timing.median_us;
    line["min_us"] = timing.min_us;
    line["mean_us"] = timing.mean_us;
    line["std_us"] = number(timing.std_us);
    line["spread"] = number(timing.spread);
    line["samples"] = timing.samples;
    if (!timing.host_time) {
      line["graph_us"] = number(timing.graph_us);
      if (!timing.no_graph.empty()) line["no_graph"] = timing.no_graph;
      line["stages_timed_together"] = timing.stages;
    }
    line["bytes"] = row.cost.bytes;
    line["flops"] = row.cost.flops;
    line["scratch_bytes"] = number(timing.scratch_bytes);
    if (!timing.host_time) {
      const Bound bound = bound_of(device, row.cost);
      line["gb_per_s"] = row.cost.bytes / timing.median_us / 1e3;
      line["tflop_per_s"] = row.cost.flops / timing.median_us / 1e6;
      line["bound"] = {{"name", bound.name}, {"us", number(bound.us)}};
      line["share_of_bound"] = number(bound.us / timing.median_us);
    } else {
      const Predicted time = predicted(i);
      line["predicted_us"] = number(time.us);
      line["predicted_error"] = number(time.error);
      line["predicted_why"] = time.why.empty() ? Json(nullptr) : Json(time.why);
      line["stalls"] = Json::object();
      for (const auto& [name, share] : time.stalls) line["stalls"][name] = share;
      line["modelled_limit_us"] = number(modelled_limit_us(i));
      if (row.kind != Kind::kTotal) line["counters"] = counters(i);
    }
    line["errors_of"] =
        row.errors == Errors::kOfLaunch ? "this line's output" : "the step's output";
    line["max_abs_error"] = number(row.comparison.max_abs_error);
    line["relative_l2"] = number(row.comparison.relative_l2);
    line["wrong_elements"] = row.comparison.bad;
    line["compared_elements"] = row.comparison.count;
    line["pass"] = row.comparison.skipped ? Json(nullptr) : Json(row.comparison.pass);
    for (const auto& [name, value] : row.numbers) line[name] = number(value);
    pass = pass && row.comparison.pass;
    json["kernels"].push_back(line);
  }
  for (const Ratio& ratio : ratios)
    json["ratios"].push_back({{"of", ratio.of},
                              {"after", ratio.after},
                              {"before", ratio.before},
                              {"after_us", number(ratio.after_us)},
                              {"before_us", number(ratio.before_us)},
                              {"ratio", number(ratio.before_us / ratio.after_us)}});
  json["notes"] = notes;
  json["findings"] = vgpu::findings();
  json["pass"] = pass;
  return json.dump(2) + "\n";
}

std::string Report::Body::csv() const {
  std::string names, sizes;
  for (const auto& [name, size] : head.sizes) {
    names += name + ",";
    sizes += std::to_string(size) + ",";
  }
  std::string text = "chapter,device,virtual,kernel," + names +
                     "median_us,min_us,spread,samples,"
                     "bytes,flops,modelled_limit_us,max_abs_error,relative_l2,pass,"
                     "predicted_us,predicted_error,predicted_why,stalls\n";
  const auto cell = [](double value) { return std::isfinite(value) ? format("%.9g", value) : ""; };
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    text += format("%s,\"%s\",%d,%s,", head.chapter.c_str(), head.device.name.c_str(),
                   int(head.device.is_virtual), row.name.c_str()) +
            sizes;
    text += cell(row.timing.median_us) + "," + cell(row.timing.min_us) + "," +
            cell(row.timing.spread) + format(",%d,", row.timing.samples) + cell(row.cost.bytes) +
            "," + cell(row.cost.flops) + "," +
            (row.timing.host_time ? cell(modelled_limit_us(i)) : "") + "," +
            cell(row.comparison.max_abs_error) + "," + cell(row.comparison.relative_l2) +
            (row.comparison.skipped ? "," : format(",%d", int(row.comparison.pass)));
    if (row.timing.host_time) {
      const Predicted time = predicted(i);
      std::string stalls;
      for (const auto& [name, share] : time.stalls)
        if (share > 0) stalls += (stalls.empty() ? "" : " ") + name + "=" + format("%.4g", share);
      text += "," + cell(time.us) + "," + cell(time.error) + "," + quoted_cell(time.why) + "," +
              quoted_cell(stalls) + "\n";
    } else {
      text += ",,,,\n";
    }
  }
  return text;
}

ExitCode Report::finish() const {
  std::fputs(body_->table().c_str(), stdout);
  if (body_->head.options.profile)
    for (const Body::Row& row : body_->rows)
      if (row.kind != Body::Kind::kTotal) std::printf("\n%s\n", row.timing.profile.c_str());
  if (!body_->head.options.json.empty()) write_file(body_->head.options.json, body_->json());
  if (!body_->head.options.csv.empty()) write_file(body_->head.options.csv, body_->csv());

  bool pass = !body_->failed && !body_->rows.empty();
  for (const Body::Row& row : body_->rows) pass = pass && row.comparison.pass;
  if (!pass) return kWrong;
  if (body_->head.options.predict && body_->stated_error().empty()) return kLacking;  // said above
  if (vgpu::findings() > 0) {
    std::printf("%d findings of the virtual GPU's checks\n", vgpu::findings());
    return kFindings;
  }
  return kCorrect;
}

}  // namespace lab
