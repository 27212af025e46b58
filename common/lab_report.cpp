// The report: lines for people, JSON and CSV for programs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lab.cuh"
#include "lab_files.h"
#include "lab_table.h"

namespace lab {
namespace {

using Json = nlohmann::ordered_json;

std::string or_dash(double value, const char* layout) {
  char text[32];
  if (!std::isfinite(value) || value == 0) return "-";
  std::snprintf(text, sizeof text, layout, value);
  return text;
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
  Json json = Json::parse(text, nullptr, false);
  return json.is_discarded() ? Json::object() : json;
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

  void add(const Json& counters) {
    const auto number = [&](const std::string& pointer) {
      const Json::json_pointer at(pointer);
      return counters.contains(at) && counters.at(at).is_number() ? counters.at(at).get<double>()
                                                                  : 0;
    };
    for (const std::string access : {"load", "store", "atomic"}) {
      moved_bytes += 32 * number("/global/" + access + "/sectors") +
                     number("/copy_engine/" + access + "/bytes");
      wavefronts += number("/shared/" + access + "/wavefronts");
      conflicts += number("/shared/" + access + "/conflicts");
    }
    load_sectors += number("/global/load/sectors");
    fewest += number("/global/load/requests") * number("/global/load/ideal_sectors_per_request");
    issue_us += number("/limits/issue");
  }
};

std::string version_text(int version) {
  return format("%d.%d", version / 1000, version % 1000 / 10);
}

}  // namespace

Report::Report(const Run& run) {
  const AttentionShape& shape = run.problem.shape;
  head_ = {run.chapter,
           run.options,
           run.device,
           run.problem.source,
           describe(shape) + format(", scale %g", double(shape.scale)),
           {{"batch", shape.batch},
            {"heads", shape.heads},
            {"tokens", shape.tokens},
            {"head_dim", shape.head_dim}},
           {{"scale", Json(shape.scale).dump()}}};
}

void Report::add_number(const std::string& line, const std::string& name, double value) {
  rows_[row_of(line)].numbers.emplace_back(name, value);
}

void Report::require(bool ok, const std::string& otherwise) {
  if (ok) return;
  failed_ = true;
  notes_.push_back("FAIL: " + otherwise);
}

void Report::add(const std::string& name, const Timing& timing, const Cost& cost,
                 const Comparison& comparison) {
  rows_.push_back({name, timing, cost, comparison, Kind::kStep});
}

void Report::add_launch(const std::string& name, const Timing& timing, const Cost& cost,
                        const Comparison& comparison, Errors of) {
  rows_.push_back({name, timing, cost, comparison, Kind::kLaunch, of});
}

void Report::add_total(const std::string& name, const Timing& timing, const Cost& cost,
                       const Comparison& comparison) {
  rows_.push_back({name, timing, cost, comparison, Kind::kTotal});
}

void Report::add_beside(const std::string& name, const Timing& timing,
                        const Comparison& comparison) {
  rows_.push_back({name, timing, {}, comparison, Kind::kBeside, Errors::kOfStep});
}

size_t Report::row_of(const std::string& name) const {
  for (size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].name == name) return i;
  throw std::invalid_argument("no line '" + name + "' in the report");
}

void Report::add_ratio(const std::string& after, const std::string& before) {
  const auto us = [&](const std::string& name) {
    const size_t row = row_of(name);
    return head_.device.is_virtual ? modelled_limit_us(row) : rows_[row].timing.median_us;
  };
  ratios_.push_back({after, before, us(before), us(after)});
}

std::vector<size_t> Report::launches_of(size_t row) const {
  if (rows_[row].kind != Kind::kTotal) return {row};
  size_t first = row;
  while (first > 0 && rows_[first - 1].kind == Kind::kLaunch) --first;
  std::vector<size_t> launches(row - first);
  std::iota(launches.begin(), launches.end(), first);
  return launches;
}

double Report::modelled_limit_us(size_t row) const {
  double sum = 0;
  for (const size_t launch : launches_of(row)) {
    const Json us =
        counters_of(rows_[launch].timing.counters).value("/limit/us"_json_pointer, Json());
    sum += us.is_number() ? us.get<double>() : std::nan("");
  }
  return sum;
}

std::vector<size_t> Report::order() const {
  std::vector<size_t> order;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].kind == Kind::kLaunch) continue;
    order.push_back(i);
    if (rows_[i].kind == Kind::kTotal)
      for (const size_t launch : launches_of(i)) order.push_back(launch);
  }
  return order;
}

// The first ratio of that line; "" where it has none. What is wrong has no speed.
std::string Report::ratio_of(const std::string& name) const {
  for (const Ratio& ratio : ratios_)
    if (ratio.after == name)
      return rows_[row_of(name)].comparison.pass && rows_[row_of(ratio.before)].comparison.pass
                 ? times(ratio.before_us / ratio.after_us)
                 : "";
  return "";
}

// What matters first, then what explains it, then errors. Where a line has no number of its own, as
// a launch that is compared with others alone, it has none.
std::vector<std::string> Report::cells(size_t row) const {
  const Row& line = rows_[row];
  const bool own = line.errors == Errors::kOfLaunch, pass = line.comparison.pass;
  const double us = line.timing.median_us;
  const std::string name = (line.kind == Kind::kLaunch ? "  " : "") + line.name,
                    ratio = ratio_of(line.name),
                    max_error = own ? format("%.1e", line.comparison.max_abs_error) : "-",
                    l2 = own ? format("%.1e", line.comparison.relative_l2) : "-",
                    result = !pass ? "FAIL"
                             : own ? "PASS"
                                   : "";
  if (!head_.device.is_virtual) {
    const Bound bound = bound_of(head_.device, line.cost);
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
            result};
  }
  Explained why;
  for (const size_t launch : launches_of(row)) why.add(counters_of(rows_[launch].timing.counters));
  const double limit = modelled_limit_us(row);
  const auto over = [](double a, double b) { return b > 0 ? a / b : std::nan(""); };
  const std::string set_by =
      line.kind == Kind::kTotal
          ? "the sum"
          : counters_of(line.timing.counters).value("/limit/name"_json_pointer, std::string("-"));
  return {name,
          human_time(limit),
          ratio,
          set_by,
          times(over(why.moved_bytes, line.cost.bytes)),
          times(over(why.load_sectors, why.fewest)),
          percent(over(why.conflicts, why.wavefronts), 0.005),
          percent(over(why.issue_us, limit)),
          max_error,
          l2,
          result,
          head_.options.profile ? human_time(us) : ""};
}

std::string Report::lines() const {
  TextTable table(
      head_.device.is_virtual
          ? std::vector<std::string>{"step", "lower\nbound", "before/\nthis", "<set by",
                                     "moved/\nneeded", "sectors/\nideal", "bank\nconflicts",
                                     "issue", "max\nerror", "rel.\nerror", "<result", "host\ntime"}
          : std::vector<std::string>{"step", "median", "before/\nthis", "min", "spread",
                                     "in a\ngraph", "share of\nthe bound", "GB/s", "TFLOP/s",
                                     "max\nerror", "rel.\nerror", "<result"});
  for (const size_t row : order()) table.add(cells(row));
  std::string text = table.text() + "\n";
  // A line for each column that is not plain, where it is shown.
  const auto explain = [&](size_t column, const char* words) {
    if (table.used(column)) text += words;
  };
  if (head_.device.is_virtual) {
    explain(
        1,
        "lower bound    the modelled limit: the time that the busiest part of the GPU needs at its "
        "peak,\n               with cold caches. It is computed from counters and leaves out "
        "latency:\n               it is not a running time.\n");
    explain(2,
            "before/this    the bound of the step before, divided by this one's: no measured "
            "speed-up\n");
    const bool sums = std::any_of(rows_.begin(), rows_.end(),
                                  [](const Row& row) { return row.kind == Kind::kTotal; });
    explain(3, sums ? "set by         the busiest part; the sum: of the launches, indented below "
                      "the step\n"
                    : "set by         the busiest part\n");
    explain(4,
            "moved/needed   bytes of all sectors loaded and stored, divided by the fewest that do "
            "the work\n");
    explain(5,
            "sectors/ideal  sectors loaded, divided by the fewest that hold the bytes asked for\n");
    explain(6, "bank conflicts the share of shared memory's wavefronts that they add\n");
    explain(7, "issue          the share of the bound that issuing the instructions takes\n");
  } else {
    explain(2, "before/this    the median of the step before over this one's\n");
  }
  explain(head_.device.is_virtual ? 8 : 9,
          "max error      the largest error of one element of the result\n"
          "rel. error     the errors of all elements (their norm), divided by the reference's "
          "norm\n");
  explain(11, head_.device.is_virtual
                  ? "host time      of the virtual GPU on this machine's CPU: no GPU's time\n"
                  : "");
  return text;
}

// Ratios that the table does not say, or not with what.
std::string Report::ratio_notes() const {
  std::string text;
  for (size_t i = 0; i < ratios_.size(); ++i) {
    const Ratio& ratio = ratios_[i];
    const size_t after = row_of(ratio.after), before = row_of(ratio.before);
    if (!rows_[after].comparison.pass || !rows_[before].comparison.pass) continue;
    const bool first = std::none_of(ratios_.begin(), ratios_.begin() + int64_t(i),
                                    [&](const Ratio& r) { return r.after == ratio.after; });
    bool between = false;  // another step stands between the two
    for (size_t row = std::min(before, after) + 1; row < after; ++row)
      between = between || rows_[row].kind == Kind::kStep || rows_[row].kind == Kind::kTotal;
    const std::string how_much = times(ratio.before_us / ratio.after_us);
    if (!first)
      text += format("%s to %s, all steps in between: %s %s to %s, %s\n", ratio.before.c_str(),
                     ratio.after.c_str(), head_.device.is_virtual ? "bounds" : "medians",
                     human_time(ratio.before_us).c_str(), human_time(ratio.after_us).c_str(),
                     how_much.c_str());
    else if (between)
      text += format("%s: the step before is %s\n", ratio.after.c_str(), ratio.before.c_str());
  }
  return text;
}

std::string Report::table() const {
  const Device& device = head_.device;
  std::string text =
      format("device   %s%s, compute capability %d.%d, %d SMs, %s\n", device.name.c_str(),
             device.is_virtual ? " (virtual GPU)" : "", device.major, device.minor, device.sm_count,
             human_bytes(device.memory_bytes).c_str());
  text += "problem  " + head_.source + "\n         " + head_.shape + "\n\n" + lines();
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
  if (!more.empty() || !notes_.empty()) text += "\n" + more;
  for (const std::string& note : notes_) text += note + "\n";
  for (const Row& row : rows_)
    if (!row.comparison.pass) text += row.name + ": " + row.comparison.describe() + "\n";
  return text;
}

std::string Report::timing_notes() const {
  bool graphs = false, stages = false;
  std::vector<std::pair<std::string, std::string>> refusals;  // the reason, and of which lines
  for (const Row& row : rows_) {
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

std::string Report::json() const {
  const Device& device = head_.device;
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const std::time_t now = std::time(nullptr);
  char time[32];
  std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  const Commit commit = commit_of(repository_path("."));

  Json json;
  json["chapter"] = head_.chapter;
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
  json["problem"]["source"] = head_.source;
  for (const auto& [name, size] : head_.sizes) json["problem"][name] = size;
  for (const auto& [name, detail] : head_.details) json["problem"][name] = Json::parse(detail);
  json["problem"]["seed"] = head_.options.seed;
  json["warmup"] = head_.options.warmup;
  json["iterations"] = head_.options.iterations;

  bool pass = !failed_;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    const Timing& timing = row.timing;
    Json line;
    line["name"] = row.name;
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
      line["modelled_limit_us"] = number(modelled_limit_us(i));
      if (row.kind != Kind::kTotal) line["counters"] = counters_of(timing.counters);
    }
    line["errors_of"] =
        row.errors == Errors::kOfLaunch ? "this line's output" : "the step's output";
    line["max_abs_error"] = number(row.comparison.max_abs_error);
    line["relative_l2"] = number(row.comparison.relative_l2);
    line["wrong_elements"] = row.comparison.bad;
    line["compared_elements"] = row.comparison.count;
    line["pass"] = row.comparison.pass;
    for (const auto& [name, value] : row.numbers) line[name] = number(value);
    pass = pass && row.comparison.pass;
    json["kernels"].push_back(line);
  }
  for (const Ratio& ratio : ratios_)
    json["ratios"].push_back({{"of", device.is_virtual ? "modelled limits" : "medians"},
                              {"after", ratio.after},
                              {"before", ratio.before},
                              {"after_us", number(ratio.after_us)},
                              {"before_us", number(ratio.before_us)},
                              {"ratio", number(ratio.before_us / ratio.after_us)}});
  json["notes"] = notes_;
  json["findings"] = vgpu::findings();
  json["pass"] = pass;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string Report::csv() const {
  std::string names, sizes;
  for (const auto& [name, size] : head_.sizes) {
    names += name + ",";
    sizes += std::to_string(size) + ",";
  }
  std::string text = "chapter,device,virtual,kernel," + names +
                     "median_us,min_us,spread,samples,"
                     "bytes,flops,modelled_limit_us,max_abs_error,relative_l2,pass\n";
  const auto cell = [](double value) { return std::isfinite(value) ? format("%.9g", value) : ""; };
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    text += format("%s,\"%s\",%d,%s,", head_.chapter.c_str(), head_.device.name.c_str(),
                   int(head_.device.is_virtual), row.name.c_str()) +
            sizes;
    text += cell(row.timing.median_us) + "," + cell(row.timing.min_us) + "," +
            cell(row.timing.spread) + format(",%d,", row.timing.samples) + cell(row.cost.bytes) +
            "," + cell(row.cost.flops) + "," +
            (row.timing.host_time ? cell(modelled_limit_us(i)) : "") + "," +
            cell(row.comparison.max_abs_error) + "," + cell(row.comparison.relative_l2) +
            format(",%d\n", int(row.comparison.pass));
  }
  return text;
}

ExitCode Report::finish() const {
  std::fputs(table().c_str(), stdout);
  if (head_.options.profile)
    for (const Row& row : rows_)
      if (row.kind != Kind::kTotal) std::printf("\n%s\n", row.timing.profile.c_str());
  if (!head_.options.json.empty()) write_file(head_.options.json, json());
  if (!head_.options.csv.empty()) write_file(head_.options.csv, csv());

  bool pass = !failed_ && !rows_.empty();
  for (const Row& row : rows_) pass = pass && row.comparison.pass;
  if (!pass) return kWrong;
  if (vgpu::findings() > 0) {
    std::printf("%d findings of the virtual GPU's checks\n", vgpu::findings());
    return kFindings;
  }
  return kCorrect;
}

}  // namespace lab
