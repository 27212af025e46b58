#include "straight.h"

#include "block.h"

namespace vgpu {
namespace {

template <bool kFollowed>
Straight run(Warp& warp, const Instr* next, std::uint32_t mask, std::uint64_t stop_at) {
  InstrCounters* const counts = warp.frame->counts;
  for (; next->flow <= Flow::memory; ++next) {
    const std::uint32_t on = begin_instruction(warp, *next, mask, counts);
    if constexpr (kFollowed)
      for (Observer* follower : warp.worker->audience->followers)
        follower->instruction(warp, *next, mask, on);
    if (on) next->run(warp, *next, on);
    if (next->flow == Flow::memory && warp.instructions >= stop_at) [[unlikely]]
      return {next + 1, true};
  }
  return {next, false};
}

}  // namespace

Straight run_straight(Warp& warp, const Instr* next, std::uint32_t mask, std::uint64_t stop_at) {
  return run<false>(warp, next, mask, stop_at);
}
Straight run_straight_followed(Warp& warp, const Instr* next, std::uint32_t mask,
                               std::uint64_t stop_at) {
  return run<true>(warp, next, mask, stop_at);
}

}  // namespace vgpu
