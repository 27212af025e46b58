// Which operation comes after which, as a GPU would have it. Operations (kernels, copies, fills, nodes of
// graphs) run at the call that submits them. Here they are numbered, and two observers are told of
// each: the check of streams (check/streams.h) and the timeline (profile/timeline.h).
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "../check/streams.h"
#include "../profile/timeline.h"

namespace vgpu::runtime {

// Where the timeline shows an operation, and what it needs to know of it.
struct Shown {
  std::uint32_t graph = 0;  // 0: in a stream
  std::string lane;         // "stream 3"
  int priority = 0;
  std::size_t group = 0;  // the launch of the graph
};

class OperationOrder {
 public:
  // Either may be null, and the timeline may come and go.
  std::unique_ptr<StreamCheck> check;
  std::unique_ptr<DeviceTimeline> timeline;

  Timeline new_timeline() { return check ? check->new_timeline() : next_timeline_++; }
  OperationNumber last() const { return check ? check->last() : number_; }

  // An operation begins on a timeline, everything in `before` is over; it ends. `what`, `where` and
  // `host` as StreamCheck::begin has them. end(): `before` with the operation itself. One that was not
  // `done` takes no time.
  void begin(Timeline timeline, const Clock& before, const Clock& host, std::string what,
             std::string where, const Shown& shown);
  Clock end(bool done);
  // The operation that is under way, to be filled by who executes it; null without a timeline.
  DeviceTimeline::Operation* shown() { return shown_ ? &*shown_ : nullptr; }

  // The host waits until all of `clock` is over.
  void host_waits(const Clock& clock);
  void host_waits_for_all();

  // For the check; nothing without it.
  bool active() const { return check && check->active(); }
  void touch(const std::shared_ptr<Allocation>& allocation, std::uint64_t offset,
             std::uint64_t bytes, Touch touch) {
    if (check) check->touch(allocation, offset, bytes, touch);
  }
  void forget(std::uint32_t allocation) {
    if (check) check->forget(allocation);
  }

 private:
  Timeline next_timeline_ = 1, current_ = 0;
  OperationNumber number_ = 0;
  Clock before_;
  std::optional<DeviceTimeline::Operation> shown_;
};

}  // namespace vgpu::runtime
