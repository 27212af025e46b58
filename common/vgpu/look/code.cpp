#include "code.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "../core/machine.h"
#include "../core/spelling.h"
#include "../ptx/paths.h"

namespace vgpu::look {
namespace {

using Json = json::Value;

constexpr std::size_t kSourceBytes = 400'000;  // bytes of a file; larger ones are left out

// Whether CUDA's own headers lie in one of the folders above.
bool of_toolkit(const std::filesystem::path& path) {
  std::error_code error;
  for (auto folder = path.parent_path(); folder.has_relative_path(); folder = folder.parent_path())
    if (std::filesystem::exists(folder / "cuda_runtime_api.h", error)) return true;
  return false;
}

Json source_json(const std::string& path) {
  Json json = {{"path", display_path(path)}, {"lines", nullptr}};
  if (of_toolkit(path)) {
    json["why"] = "a header of the CUDA toolkit";
    return json;
  }
  std::error_code error;
  std::ifstream file;
  if (std::filesystem::is_regular_file(path, error)) file.open(path, std::ios::binary);
  if (!file.is_open()) {
    json["why"] = "it cannot be read";
    return json;
  }
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  if (text.size() > kSourceBytes) {
    json["why"] = "it has more than " + std::to_string(kSourceBytes) + " bytes";
    return json;
  }
  json["lines"] = Json::array();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    json["lines"].push_back(std::move(line));
    at = end + 1;
  }
  return json;
}

// The functions whose lines are shown: the kernel, and of the others those that were executed.
std::vector<const Function*> functions_of(const Function& kernel, const LaunchCounters& counters) {
  std::set<std::uint32_t> executed;
  for (const InstrReport& r : counters.instructions) executed.insert(r.ptx_line);
  std::vector<const Function*> functions = {&kernel};
  for (const auto& [name, function] : kernel.module->functions) {
    if (function.get() == &kernel) continue;
    if (std::any_of(function->code.begin(), function->code.end(), [&](const Instr& instr) {
          return instr.ptx_line && executed.count(instr.ptx_line);
        }))
      functions.push_back(function.get());
  }
  return functions;
}

// A line of a function's body as it is shown; "" for what is no instruction and no label. It may hold
// declarations besides an instruction.
std::string shown_line(std::string_view text, bool is_instruction) {
  const std::size_t start = text.find_first_not_of(" \t{");
  if (start == text.npos) return "";
  std::string line(text.substr(start));
  if (!is_instruction &&
      (line.front() == '.' || line.front() == '}' || line.front() == ')' || line.starts_with("//")))
    return "";
  std::replace(line.begin(), line.end(), '\t', ' ');
  line.resize(line.find_last_not_of(" \r") + 1);
  return line;
}

// All costs of the instructions on a line.
struct Costs {
  std::uint64_t executed = 0, threads = 0;
  GlobalCounters global, local;
  SharedCounters shared;
  BulkCounters bulk;
  RemoteCounters remote;
};

void put(Json& to, const char* name, std::uint64_t value) {
  if (value) to[name] = value;
}

Json costs_json(const Costs& c, const PredictedLine* predicted,
                const std::vector<std::string>& names) {
  Json json = Json::object();
  put(json, "executed", c.executed);
  put(json, "threads", c.threads);
  put(json, "requests", c.global.requests);
  put(json, "sectors", c.global.sectors);
  put(json, "ideal", c.global.ideal_sectors);
  put(json, "shared_requests", c.shared.requests);
  put(json, "wavefronts", c.shared.wavefronts);
  put(json, "conflicts", c.shared.wavefronts - c.shared.ideal);
  put(json, "local_requests", c.local.requests);
  put(json, "local_sectors", c.local.sectors);
  put(json, "bulk_copies", c.bulk.copies);
  put(json, "bulk_bytes", c.bulk.bytes);
  put(json, "bulk_sectors", c.bulk.l2_sectors);
  put(json, "remote_requests", c.remote.requests);
  put(json, "remote_bytes", c.remote.bytes);
  if (!predicted) return json;
  double sum = 0;
  Json stalls = Json::object();
  for (std::size_t i = 0; i < predicted->stalls.size() && i < names.size(); ++i) {
    const double clocks = std::round(predicted->stalls[i]);
    sum += clocks;
    if (clocks > 0) stalls[names[i]] = static_cast<std::int64_t>(clocks);
  }
  if (sum > 0) {
    json["time"] = static_cast<std::int64_t>(sum);
    json["stalls"] = std::move(stalls);
  }
  put(json, "machine", static_cast<std::uint64_t>(std::llround(predicted->issued)));
  return json;
}

// "waits for scoreboards 0 1"
std::string scoreboards(std::uint8_t mask) {
  std::string text;
  for (int i = 0; i < 6; ++i)
    if (mask >> i & 1) text += " " + std::to_string(i);
  const bool several = (mask & (mask - 1)) != 0;
  return std::string("waits for scoreboard") + (several ? "s" : "") + text;
}

// A machine instruction in words: "@!P0 BRA 0x1f0", and what its control bits say.
std::string words_of(const time::MachineCode& code, const time::MachineInstr& instr) {
  std::string text;
  if (instr.guard != 7 || instr.guard_not)
    text = std::string("@") + (instr.guard_not ? "!" : "") + (instr.uniform_guard ? "UP" : "P") +
           (instr.guard == 7 ? std::string("T") : std::to_string(instr.guard)) + " ";
  text += instr.name < code.names.size() ? code.names[instr.name] : "?";
  if (instr.target >= 0 && static_cast<std::size_t>(instr.target) < code.code.size()) {
    char address[16];
    std::snprintf(address, sizeof address, " 0x%x",
                  code.code[static_cast<std::size_t>(instr.target)].address);
    text += address;
  }
  std::string control = "stall " + std::to_string(instr.stall);
  if (instr.write_barrier != 7)
    control += ", sets scoreboard " + std::to_string(instr.write_barrier) + " (result)";
  if (instr.read_barrier != 7)
    control += ", sets scoreboard " + std::to_string(instr.read_barrier) + " (sources)";
  if (instr.wait_mask) control += ", " + scoreboards(instr.wait_mask);
  return text + "  " + control;
}

// The names of the instructions on a line of PTX: "fma.rn.f32".
std::vector<std::string_view> instruction_names(std::string_view line) {
  std::vector<std::string_view> names;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(';'), line.size());
    std::string_view words = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    for (bool guard = true; guard;) {
      words.remove_prefix(std::min(words.find_first_not_of(" \t{}"), words.size()));
      guard = words.starts_with('@');
      if (guard) words.remove_prefix(std::min(words.find_first_of(" \t"), words.size()));
    }
    const std::string_view name = words.substr(0, words.find_first_of(" \t"));
    if (!name.empty() && name.front() != '.' && !name.starts_with("//")) names.push_back(name);
  }
  return names;
}

// Floating-point operations of a lane.
double operations_of(std::string_view name) {
  const bool packed = name.find("x2") != name.npos;
  const std::string_view opcode = name.substr(0, name.find('.'));
  const double each = opcode == "fma" || opcode == "mad"                      ? 2
                      : opcode == "add" || opcode == "sub" || opcode == "mul" ? 1
                                                                              : 0;
  return packed ? 2 * each : each;
}

}  // namespace

int Sources::index_of(const std::string& path) {
  if (path.empty()) return -1;
  const std::string normal = normal_path(path);
  const auto [at, is_new] = index_.try_emplace(normal, static_cast<int>(files_.size()));
  if (is_new) files_.push_back(source_json(normal));
  return at->second;
}

PtxListing list_ptx(const Function& kernel, const LaunchCounters& counters, Sources& sources) {
  std::map<std::uint32_t, Costs> costs;
  for (const InstrReport& r : counters.instructions) {
    Costs& c = costs[r.ptx_line];
    c.executed += r.count.issued;
    c.threads += r.count.lanes;
    c.global += r.global;
    c.local += r.local;
    c.shared += r.shared;
    c.bulk += r.bulk;
    c.remote += r.remote;
  }
  const PredictedTime& predicted = counters.predicted;
  std::map<std::uint32_t, const PredictedLine*> times;
  for (const PredictedLine& line : predicted.lines) times[line.ptx_line] = &line;

  PtxListing listing;
  const Module& module = *kernel.module;
  for (const Function* function : functions_of(kernel, counters)) {
    std::map<std::uint32_t, const Instr*> instructions;  // by line: its first
    for (const Instr& instr : function->code)
      if (instr.ptx_line && instr.flow != Flow::join)
        instructions.try_emplace(instr.ptx_line, &instr);
    if (instructions.empty()) continue;
    const std::uint32_t first = instructions.begin()->first, last = instructions.rbegin()->first;
    for (std::uint32_t n = first; n <= last && n <= module.lines.size(); ++n) {
      const auto at = instructions.find(n);
      const std::string text = shown_line(module.lines[n - 1], at != instructions.end());
      if (text.empty()) continue;
      Json line = {{"t", text}, {"n", n}};
      if (at != instructions.end()) {
        const Location& location = module.locations[at->second->location];
        line["f"] = sources.index_of(location.file);
        line["l"] = location.line;
        const auto time = times.find(n);
        line["c"] = costs_json(costs[n], time == times.end() ? nullptr : time->second,
                               predicted.stall_names);
      } else {
        line["f"] = -1;
        line["l"] = 0;
      }
      listing.index[n] = static_cast<int>(listing.lines.size());
      listing.lines.push_back(std::move(line));
    }
  }
  return listing;
}

json::Value stalls_json(const float* clocks, double& sum) {
  Json stalls = Json::object();
  for (int s = 0; s < time::kStalls; ++s) {
    const double here = std::round(static_cast<double>(clocks[s]));
    sum += here;
    if (here > 0)
      stalls[std::string(time::stall_name(static_cast<time::Stall>(s)))] =
          static_cast<std::int64_t>(here);
  }
  return stalls;
}

json::Value list_machine_code(const time::MachineCode& code, const time::SimulatedBlocks* blocks,
                              const PtxListing& ptx) {
  Json list = Json::array();
  for (std::size_t i = 0; i < code.code.size(); ++i) {
    const time::MachineInstr& instr = code.code[i];
    Json line = {
        {"t", words_of(code, instr)}, {"pc", instr.address}, {"p", ptx.at(instr.ptx_line)}};
    if (blocks && i < blocks->issued.size() && i < blocks->stalls.size()) {
      double sum = 0;
      Json stalls = stalls_json(blocks->stalls[i].data(), sum);
      line["c"] = Json::object();
      put(line["c"], "executed", blocks->issued[i]);
      if (sum > 0) {
        line["c"]["time"] = static_cast<std::int64_t>(sum);
        line["c"]["stalls"] = std::move(stalls);
      }
    }
    list.push_back(std::move(line));
  }
  return list;
}

Flops count_flops(const LaunchCounters& counters) {
  Flops flops;
  std::map<std::uint32_t, std::vector<const InstrReport*>> by_line;
  for (const InstrReport& r : counters.instructions) by_line[r.ptx_line].push_back(&r);
  for (const auto& [line, reports] : by_line) {
    // Inline assembly may have several statements on a line.
    const std::vector<std::string_view> names = instruction_names(reports[0]->ptx);
    for (std::size_t i = 0; i < reports.size() && !names.empty(); ++i) {
      const InstrReport& r = *reports[i];
      double* const sum = r.op_class == OpClass::fp32   ? &flops.fp32
                          : r.op_class == OpClass::fp16 ? &flops.fp16
                          : r.op_class == OpClass::fp64 ? &flops.fp64
                                                        : nullptr;
      if (sum)
        *sum += operations_of(names[names.size() == reports.size() ? i : 0]) *
                static_cast<double>(r.count.lanes);
    }
  }
  flops.tensor = 2 * static_cast<double>(counters.tensor_multiply_adds_f16 +
                                         counters.tensor_multiply_adds_tf32 +
                                         counters.tensor_multiply_adds_int8);
  return flops;
}

}  // namespace vgpu::look
