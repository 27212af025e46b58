// Predicted times of a program's launches by kernel, told at its end (VGPU_TIME).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "../core/counters.h"
#include "../core/device_spec.h"

namespace vgpu::runtime {

class TimeTable {
 public:
  void add(const LaunchCounters& counters);
  // "" when nothing was added. 100 columns; the kernel that takes longest first.
  std::string text(const DeviceSpec& device) const;

 private:
  struct Row {
    std::string kernel;
    std::uint64_t launches = 0, unknown = 0;  // unknown: those without a predicted time
    double us = 0;
    std::string why;             // why the first launch without one has none
    std::vector<double> stalls;  // weighted with the time
    std::vector<std::string> names;
  };
  std::vector<Row> rows_;
  double error_ = 0;
  bool sampled_ = false;
};

}  // namespace vgpu::runtime
