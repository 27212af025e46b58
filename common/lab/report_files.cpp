// The report as JSON and as CSV, for programs.
#include <cmath>
#include <ctime>

#include "device.h"
#include "files.h"
#include "machine.h"
#include "program.h"
#include "report_body.h"

namespace lab {
namespace {

using Json = json::Value;

// JSON has no NaN: what is not known is null.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

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

json::Value device_json(const Device& device) {
  return {{"name", device.name},
          {"virtual", device.is_virtual},
          {"compute_capability", format("%d.%d", device.major, device.minor)},
          {"sm_count", device.sm_count},
          {"memory_bytes", device.memory_bytes},
          {"l2_bytes", device.l2_bytes},
          {"dram_bytes_per_s", number(device.dram_bytes_per_s)},
          {"fp32_flop_per_s", number(device.fp32_flop_per_s)},
          {"tensor_flop_per_s", number(device.tensor_flop_per_s)},
          {"ceilings", device.ceilings}};
}

std::string nvcc_version() { return version_text(CUDART_VERSION); }

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
  json["device"] = device_json(device);
  json["driver"] = version_text(driver);
  json["runtime"] = version_text(runtime);
  json["nvcc"] = nvcc_version();
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

}  // namespace lab
