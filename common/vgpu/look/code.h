// Listings for the page: a kernel's PTX with what each instruction costs, its machine code, its source.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "../../json/json.h"
#include "../core/counters.h"
#include "../ptx/program.h"
#include "../time/kernel_time.h"

namespace vgpu::look {

// Source files that instructions come from, each once.
class Sources {
 public:
  // Its index; -1 for "", which is no file.
  int index_of(const std::string& path);
  // [{"path", "lines"}]; what cannot be read, and headers of the toolkit, have "lines" null and "why".
  const json::Value& json() const { return files_; }

 private:
  json::Value files_ = json::Value::array();
  std::map<std::string, int> index_;
};

// A kernel's PTX, behind it that of the functions which it calls.
struct PtxListing {
  json::Value lines = json::Value::array();
  std::map<std::uint32_t, int> index;  // by line of the module's text: its place in `lines`
  int at(std::uint32_t ptx_line) const {
    const auto found = index.find(ptx_line);
    return found == index.end() ? -1 : found->second;
  }
};
PtxListing list_ptx(const Function& kernel, const LaunchCounters& counters, Sources& sources);

// `blocks`: null when there is no predicted time.
json::Value list_machine_code(const time::MachineCode& code, const time::SimulatedBlocks* blocks,
                              const PtxListing& ptx);

// {"long_scoreboard": 12, ...} without zeros; and their sum.
json::Value stalls_json(const float* clocks, double& sum);

// Floating-point operations of a launch: of multiply-adds two, of additions and multiplications one.
struct Flops {
  double fp64 = 0, fp32 = 0, fp16 = 0, tensor = 0;
};
Flops count_flops(const LaunchCounters& counters);

}  // namespace vgpu::look
