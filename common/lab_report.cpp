// The report: lines for people, JSON and CSV for programs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "lab.cuh"
#include "lab_files.h"

namespace lab {
namespace {

using Json = nlohmann::ordered_json;

// "12.3 us", three digits and their unit.
std::string human_time(double us) {
  if (!std::isfinite(us)) return "-";
  const char* units[] = {"ns", "us", "ms", "s"};
  double value = us * 1e3;
  int unit = 0;
  for (; value >= 999.5 && unit < 3; ++unit) value /= 1e3;
  return format("%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, units[unit]);
}

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

// "32.0 on K": the array whose loads take most sectors a request; 2 would do for fp16, 4 for fp32.
std::string most_sectors(const Json& counters) {
  double most = 0;
  std::string text = "-";
  const Json arrays = counters.value("allocations", Json::object());
  for (const auto& [name, array] : arrays.items()) {
    const Json sectors = array.value("/load/sectors_per_request"_json_pointer, Json());
    if (!sectors.is_number() || sectors.get<double>() <= most) continue;
    most = sectors.get<double>();
    text = format("%.1f on %s", most, name.c_str());
  }
  return text;
}

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
  rows_.push_back({name, timing, cost, comparison, false});
}

void Report::add_total(const std::string& name, const Timing& timing, const Cost& cost,
                       const Comparison& comparison) {
  rows_.push_back({name, timing, cost, comparison, true});
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

double Report::modelled_limit_us(size_t row) const {
  if (!rows_[row].total) {
    const Json us = counters_of(rows_[row].timing.counters).value("/limit/us"_json_pointer, Json());
    return us.is_number() ? us.get<double>() : std::nan("");
  }
  double sum = 0;
  for (size_t i = row; i-- > 0 && !rows_[i].total;) sum += modelled_limit_us(i);
  return sum;
}

std::string Report::table() const {
  const Device& device = head_.device;
  std::string text =
      format("device   %s%s, compute capability %d.%d, %d SMs, %s\n", device.name.c_str(),
             device.is_virtual ? " (virtual GPU)" : "", device.major, device.minor, device.sm_count,
             human_bytes(device.memory_bytes).c_str());
  text += "problem  " + head_.source + "\n         " + head_.shape + "\n\n";

  if (device.is_virtual)
    text += format("%-14s %9s %14s %10s %14s %9s %8s  %s\n", "kernel", "host time",
                   "modelled limit", "set by", "sectors/load", "max error", "rel. L2", "result");
  else
    text += format("%-14s %7s %7s %6s %7s %6s %7s %6s %6s %7s %7s  %s\n", "kernel", "median", "min",
                   "spread", "graph", "GB/s", "TFLOP/s", "bound", "share", "error", "rel. L2",
                   "result");
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    const double us = row.timing.median_us;
    const std::string max_error = format("%.1e", row.comparison.max_abs_error);
    const std::string l2 = format("%.1e", row.comparison.relative_l2);
    const char* result = row.comparison.pass ? "PASS" : "FAIL";
    if (device.is_virtual) {
      const Json counters = counters_of(row.timing.counters);
      const auto limit = counters.value("/limit/name"_json_pointer, std::string("-"));
      text += format(
          "%-14s %9s %14s %10s %14s %9s %8s  %s\n", row.name.c_str(), human_time(us).c_str(),
          human_time(modelled_limit_us(i)).c_str(), row.total ? "the sum" : limit.c_str(),
          row.total ? "-" : most_sectors(counters).c_str(), max_error.c_str(), l2.c_str(), result);
    } else {
      const Bound bound = bound_of(device, row.cost);
      text += format("%-14s %7s %7s %6s %7s %6s %7s %6s %6s %7s %7s  %s\n", row.name.c_str(),
                     human_time(us).c_str(), human_time(row.timing.min_us).c_str(),
                     or_dash(100 * row.timing.spread, "%.1f%%").c_str(),
                     human_time(row.timing.graph_us).c_str(),
                     or_dash(row.cost.bytes / us / 1e3, "%.0f").c_str(),
                     or_dash(row.cost.flops / us / 1e6, "%.2f").c_str(),
                     std::isfinite(bound.us) ? bound.name : "-",
                     or_dash(100 * bound.us / us, "%.1f%%").c_str(), max_error.c_str(), l2.c_str(),
                     result);
    }
  }

  if (device.is_virtual)
    text +=
        "\nhost time: wall time of the virtual GPU on this machine's CPU, no GPU's time.\n"
        "modelled limit: a lower bound from counters, the busiest pipe at its peak, caches cold.\n";
  else if (device.dram_bytes_per_s > 0 && device.fp32_flop_per_s > 0)
    text += format(
        "\nGB/s and TFLOP/s: of what the step must move and compute at least.\nshare: of the "
        "bound, DRAM at %.2f TB/s, fp32 at %.1f, tensor cores at %.0f or their tf32\nat %.0f "
        "TFLOP/s "
        "(%s).\n",
        device.dram_bytes_per_s / 1e12, device.fp32_flop_per_s / 1e12,
        device.tensor_flop_per_s / 1e12, device.tensor_flop_per_s / 2e12, device.ceilings.c_str());
  else
    text += "\nThe ceilings of this device are not known: no bound, no share.\n";
  text += timing_notes();
  // What is wrong has no speed.
  const bool right = std::all_of(rows_.begin(), rows_.end(),
                                 [](const Row& row) { return row.comparison.pass; });
  for (const Ratio& ratio : right ? ratios_ : std::vector<Ratio>())
    text += format("%s against %s: %s %s instead of %s, a ratio of %.2f\n", ratio.after.c_str(),
                   ratio.before.c_str(), device.is_virtual ? "a modelled limit of" : "a median of",
                   human_time(ratio.after_us).c_str(), human_time(ratio.before_us).c_str(),
                   ratio.before_us / ratio.after_us);
  for (const std::string& note : notes_) text += note + "\n";
  for (const Row& row : rows_)
    if (!row.comparison.pass) text += row.name + ": " + row.comparison.describe() + "\n";
  return text;
}

std::string Report::timing_notes() const {
  bool graphs = false, stages = false;
  std::string refusals;
  for (const Row& row : rows_) {
    graphs = graphs || std::isfinite(row.timing.graph_us);
    stages = stages || (row.timing.stages > 1 && !row.timing.host_time);
    if (!row.timing.no_graph.empty())
      refusals += row.name + ": not timed in a CUDA graph: " + row.timing.no_graph + "\n";
  }
  std::string text;
  if (graphs)
    text += "graph: a call when many are replayed from a CUDA graph, at no cost to the host.\n";
  if (stages)
    text += "Stages of a step are timed one by one: each has the time of an event in it.\n";
  return text + refusals;
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
      if (!row.total) line["counters"] = counters_of(timing.counters);
    }
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
      if (!row.total) std::printf("\n%s\n", row.timing.profile.c_str());
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
