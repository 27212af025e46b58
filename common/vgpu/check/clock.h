// What happens before an operation, as numbers. Operations (kernels, copies, fills) are numbered as
// they are submitted and lie on timelines, on each of which one is over before the next begins: a
// stream, a chain of nodes of an executable graph. A clock says up to which number each timeline is
// known to be over.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace vgpu {

using OperationNumber = std::uint64_t;
using Timeline = std::uint32_t;

class Clock {
 public:
  bool knows(Timeline timeline, OperationNumber number) const {
    if (number <= floor_) return true;
    const auto it = find(timeline);
    return it != known_.end() && it->first == timeline && number <= it->second;
  }
  void learn(Timeline timeline, OperationNumber number) {
    if (number <= floor_) return;
    const auto it = find(timeline);
    if (it != known_.end() && it->first == timeline)
      it->second = std::max(it->second, number);
    else
      known_.insert(it, {timeline, number});
  }
  // All operations up to `number` are over, on every timeline.
  void learn_all(OperationNumber number) {
    floor_ = std::max(floor_, number);
    std::erase_if(known_, [&](const auto& entry) { return entry.second <= floor_; });
  }
  void join(const Clock& other) {
    if (other.floor_ > floor_) learn_all(other.floor_);
    for (const auto& [timeline, number] : other.known_) learn(timeline, number);
  }
  OperationNumber floor() const { return floor_; }
  // What it knows beyond its floor, by timeline.
  using Known = std::vector<std::pair<Timeline, OperationNumber>>;  // sorted
  const Known& known() const { return known_; }

 private:
  Known::iterator find(Timeline timeline) {
    return std::lower_bound(known_.begin(), known_.end(), timeline,
                            [](const auto& entry, Timeline t) { return entry.first < t; });
  }
  Known::const_iterator find(Timeline timeline) const {
    return const_cast<Clock*>(this)->find(timeline);
  }
  OperationNumber floor_ = 0;
  Known known_;
};

}  // namespace vgpu
