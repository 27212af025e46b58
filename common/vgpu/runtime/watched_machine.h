// A machine whose launches are watched by what MachineOptions and a trace ask for: the checks, the
// cache model, the trace. core/ executes and knows nobody who looks on; here they meet.
#pragma once
#include <functional>
#include <memory>

#include "../core/machine.h"
#include "../profile/trace.h"
#include "../time/recording.h"

namespace vgpu {

class SectoredCache;

class WatchedMachine : public Machine {
 public:
  WatchedMachine(DeviceSpec spec, MachineOptions options);
  ~WatchedMachine();
  Tracer& tracer() { return tracer_; }
  // What was recorded of the last launch, for its time; null when it was not.
  std::shared_ptr<time::Recording> take_recording() { return std::move(recording_); }
  // Make one more observer of the launches to come, or null. None: only those of the options.
  std::function<std::unique_ptr<Observer>()> another;
  std::function<std::unique_ptr<Observer>(const Launch&)> look;
  // Launches are recorded for their time although the options do not ask for it.
  bool always_timed = false;

 private:
  std::vector<std::unique_ptr<Observer>> watch(const Launch& launch);
  Tracer tracer_;
  std::shared_ptr<time::Recording> recording_;
  std::shared_ptr<SectoredCache> l2_;  // what a launch leaves to the next one (CacheMode::warm)
};

}  // namespace vgpu
