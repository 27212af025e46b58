// The report: lines for people, JSON and CSV for programs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
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
  return name ? name->get<std::string>() : "-";
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
      const Json* const found = counters.find_path(pointer);
      return found && found->is_number() ? found->get<double>() : 0;
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
  };
  std::vector<size_t> launches_of(size_t row) const;  // of a total; of a step, itself
  std::vector<size_t> order() const;                  // of the table: a step before its launches
  std::string table() const;
  std::string lines() const;
  std::vector<std::string> cells(size_t row) const;
  std::string ratio_notes() const;
  std::string ratio_of(const std::string& name) const;
  std::string timing_notes() const;
  std::string json() const;
  std::string csv() const;
  double modelled_limit_us(size_t row) const;
  size_t row_of(const std::string& name) const;
  struct Ratio {
    std::string after, before;
    double before_us, after_us;
  };
  ReportHead head;
  std::vector<Row> rows;
  std::vector<Ratio> ratios;
  std::vector<std::string> notes;
  bool failed = false;
};

Report::Report(ReportHead head) : body_(new Body{std::move(head), {}, {}, {}}) {}
Report::~Report() = default;
Report::Report(Report&&) noexcept = default;
void Report::note(const std::string& line) { body_->notes.push_back(line); }

void Report::add_number(const std::string& line, const std::string& name, double value) {
  body_->rows[body_->row_of(line)].numbers.emplace_back(name, value);
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
                        const Comparison& comparison, Errors of) {
  body_->rows.push_back({name, timing, cost, comparison, Body::Kind::kLaunch, of});
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
  const auto us = [&](const std::string& name) {
    const size_t row = body_->row_of(name);
    return body_->head.device.is_virtual ? body_->modelled_limit_us(row)
                                         : body_->rows[row].timing.median_us;
  };
  body_->ratios.push_back({after, before, us(before), us(after)});
}

std::vector<size_t> Report::Body::launches_of(size_t row) const {
  if (rows[row].kind != Kind::kTotal) return {row};
  size_t first = row;
  while (first > 0 && rows[first - 1].kind == Kind::kLaunch) --first;
  std::vector<size_t> launches(row - first);
  std::iota(launches.begin(), launches.end(), first);
  return launches;
}

double Report::Body::modelled_limit_us(size_t row) const {
  double sum = 0;
  for (const size_t launch : launches_of(row)) {
    const Json counters = counters_of(rows[launch].timing.counters);
    const Json* const us = counters.find_path("/limit/us");
    sum += us && us->is_number() ? us->get<double>() : std::nan("");
  }
  return sum;
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

// The first ratio of that line; "" where it has none. What is wrong has no speed.
std::string Report::Body::ratio_of(const std::string& name) const {
  for (const Ratio& ratio : ratios)
    if (ratio.after == name)
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
                    max_error = own ? format("%.1e", line.comparison.max_abs_error) : "-",
                    l2 = own ? format("%.1e", line.comparison.relative_l2) : "-",
                    result = !pass ? "FAIL"
                             : own ? "PASS"
                                   : "";
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
            result};
  }
  Explained why;
  for (const size_t launch : launches_of(row)) why.add(counters_of(rows[launch].timing.counters));
  const double limit = modelled_limit_us(row);
  const auto over = [](double a, double b) { return b > 0 ? a / b : std::nan(""); };
  const std::string set_by =
      line.kind == Kind::kTotal ? "the sum" : largest_limit(counters_of(line.timing.counters));
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
          head.options.profile ? human_time(us) : ""};
}

std::string Report::Body::lines() const {
  TextTable table(
      head.device.is_virtual
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
  if (head.device.is_virtual) {
    explain(
        1,
        "lower bound    the modelled limit: the time that the busiest part of the GPU needs at its "
        "peak,\n               with cold caches. It is computed from counters and leaves out "
        "latency:\n               it is not a running time.\n");
    explain(2,
            "before/this    the bound of the step before, divided by this one's: no measured "
            "speed-up\n");
    const bool sums = std::any_of(rows.begin(), rows.end(),
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
  explain(head.device.is_virtual ? 8 : 9,
          "max error      the largest error of one element of the result\n"
          "rel. error     the errors of all elements (their norm), divided by the reference's "
          "norm\n");
  explain(11, head.device.is_virtual
                  ? "host time      of the virtual GPU on this machine's CPU: no GPU's time\n"
                  : "");
  return text;
}

// Ratios that the table does not say, or not with what.
std::string Report::Body::ratio_notes() const {
  std::string text;
  for (size_t i = 0; i < ratios.size(); ++i) {
    const Ratio& ratio = ratios[i];
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
                     ratio.after.c_str(), head.device.is_virtual ? "bounds" : "medians",
                     human_time(ratio.before_us).c_str(), human_time(ratio.after_us).c_str(),
                     how_much.c_str());
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
  json["warmup"] = head.options.warmup;
  json["iterations"] = head.options.iterations;

  bool pass = !failed;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
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
  for (const Ratio& ratio : ratios)
    json["ratios"].push_back({{"of", device.is_virtual ? "modelled limits" : "medians"},
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
                     "bytes,flops,modelled_limit_us,max_abs_error,relative_l2,pass\n";
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
            format(",%d\n", int(row.comparison.pass));
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
  if (vgpu::findings() > 0) {
    std::printf("%d findings of the virtual GPU's checks\n", vgpu::findings());
    return kFindings;
  }
  return kCorrect;
}

}  // namespace lab
