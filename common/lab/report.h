// What stands at the head of a report.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "device.h"
#include "lab/device.h"
#include "lab/program.h"
#include "program.h"

namespace lab {

// What a report says of the run behind it, whatever its problem is.
struct ReportHead {
  std::string chapter;
  Options options;
  Device device;
  std::string source;                                          // of the problem, for people
  std::string shape;                                           // so too, with all that matters
  std::vector<std::pair<std::string, int64_t>> sizes;          // of the problem: JSON and CSV
  std::vector<std::pair<std::string, std::string>> details;    // more, as JSON text: JSON alone
  std::vector<std::pair<std::string, std::string>> data = {};  // beside the problem: so too
};

}  // namespace lab
