#include "watched_machine.h"

#include "../check/checks.h"
#include "../core/block.h"
#include "../profile/cache_model.h"

namespace vgpu {

WatchedMachine::WatchedMachine(DeviceSpec spec, MachineOptions options)
    : Machine(std::move(spec), options) {
  if (options.check_init) memory().track_writes();
  observers = [this](const Launch& launch) { return watch(launch); };
}
WatchedMachine::~WatchedMachine() = default;

std::vector<std::unique_ptr<Observer>> WatchedMachine::watch(const Launch& launch) {
  std::vector<std::unique_ptr<Observer>> observers =
      make_checks(options(), *launch.request.function);
  if (another)
    if (auto observer = another()) observers.push_back(std::move(observer));
  const CacheMode mode = options().cache;
  if (launch.request.count && mode != CacheMode::off)
    observers.push_back(std::make_unique<CacheModel>(mode == CacheMode::warm ? &l2_ : nullptr));
  recording_.reset();
  if (launch.request.count && (always_timed || options().time != TimeMode::off)) {
    recording_ = std::make_shared<time::Recording>();
    observers.push_back(std::make_unique<time::Recorder>(recording_, options().time_rounds));
  }
  if (look)
    if (auto observer = look(launch)) observers.push_back(std::move(observer));
  if (auto trace = tracer_.watch(launch)) observers.push_back(std::move(trace));
  return observers;
}

}  // namespace vgpu
