#include "order.h"

namespace vgpu::runtime {

void OperationOrder::begin(Timeline lane, const Clock& before, const Clock& host, std::string what,
                           std::string where, const Shown& shown) {
  before_ = before;
  current_ = lane;
  shown_.reset();
  if (timeline) {
    timeline->name_lane(lane, shown.graph, shown.lane);
    shown_.emplace();
    shown_->lane = lane;
    shown_->kind = DeviceTimeline::Kind::other;
    shown_->name = what;
    shown_->before = before.known();
    shown_->priority = shown.priority;
    shown_->group = shown.group;
  }
  if (check)
    check->begin(lane, before, host, std::move(what), std::move(where));
  else
    ++number_;
  if (shown_) shown_->number = last();
}

Clock OperationOrder::end(bool done) {
  if (shown_ && timeline) {
    if (!done) shown_->kind = DeviceTimeline::Kind::hidden;
    timeline->submit(std::move(*shown_));
  }
  shown_.reset();
  if (check) return check->end();
  Clock after = std::move(before_);
  after.learn(current_, number_);
  return after;
}

void OperationOrder::host_waits(const Clock& clock) {
  if (timeline) timeline->wait_for(clock.known());
}
void OperationOrder::host_waits_for_all() {
  if (timeline) timeline->wait_for_all();
}

}  // namespace vgpu::runtime
