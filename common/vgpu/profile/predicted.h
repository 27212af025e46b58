// The predicted time of a launch in reports: what time/ has found out, for people and programs.
#pragma once
#include <string>
#include <vector>

#include "../../json/json.h"
#include "../core/counters.h"

namespace vgpu {

// What of its warps' clocks a source line costs, and why they wait there.
struct WaitingLine {
  std::string file;  // "" unknown: a line of PTX then
  int line = 0;
  std::uint32_t ptx_line = 0;  // its costliest
  double share = 0;            // its part of the clocks in which warps do not issue, 0 to 1
  std::vector<double> stalls;  // clocks by reason, in the order of PredictedTime::stall_names
};
// Costliest first. Clocks in which a warp issued are not waiting.
std::vector<WaitingLine> waiting_lines(const PredictedTime& predicted);

// The object "predicted" of a report; null when nobody asked for it.
json::Value predicted_json(const PredictedTime& predicted);

// "47.1 us +-25 %"; "" when there is none.
std::string predicted_words(const PredictedTime& predicted);
// The section of a text report, 100 columns; "" when nobody asked for it.
std::string predicted_text(const PredictedTime& predicted);

}  // namespace vgpu
