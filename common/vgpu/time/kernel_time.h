// How long a launch takes on the device: the blocks of one SM, simulated, and what all SMs share.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "../core/counters.h"
#include "../core/device_spec.h"
#include "machine_code.h"
#include "recording.h"
#include "residency.h"
#include "sm.h"

namespace vgpu::time {

// What a prediction is printed with, as a share. From the published times that were never used for
// tuning (data/results/published.json of the course): see README.md, Predicted time.
inline constexpr double kStatedError = 0.25;

// A few blocks stand for all only when their mean does. When only they were executed: the standard deviation
// of the mean of their PTX instructions is at most this share of it.
inline constexpr double kMostOffBy = 0.09;
// When all were: SMs execute at most so many times as much as the one that is simulated, or as little.
inline constexpr double kMostUneven = 2;

// What is known of the simulated blocks besides, for who wants to see more than a time.
struct SimulatedBlocks {
  bool first_alone = false;          // activities are the first block's, not all resident blocks'
  std::vector<Activity> activities;  // what the first resident blocks' warps do
  // By machine instruction: how often it was issued, and clocks of the warps there by reason.
  std::vector<std::uint64_t> issued;
  std::vector<std::array<float, kStalls>> stalls;
  double clocks = 0;  // until the last of them has ended
};

// The prediction for a launch that was recorded and counted. `why` of the result says why there is none.
//   left       what the launches before have left in the L2; its arrays are added
//   blocks     null, or where more about the simulated blocks goes
//   in_graph   it is a node of a graph, not launched into a stream
PredictedTime predict(const Recording& recording, const LaunchCounters& counters,
                      const MachineCodeOrWhy& code, const DeviceSpec& device, bool cooperative,
                      Residency& left, SimulatedBlocks* blocks = nullptr, bool in_graph = false);

}  // namespace vgpu::time
