// Straight-line code: the instructions between two that the warp loop itself must handle.
#pragma once
#include <cstdint>

#include "../ptx/program.h"

namespace vgpu {

struct Straight {
  const Instr* next;        // the first instruction that was not executed
  bool share_used = false;  // it stopped in the middle, since the warp has had its share
};

// Executes instructions from `next` on for the lanes in `mask`: up to the first whose flow is neither
// plain nor memory, or up to a memory instruction with which `stop_at` is reached. Counts them in
// Warp::instructions and, where the frame counts, in its counts. Another implementation of this one
// function (Worker::straight) executes the same code in another way.
using RunStraight = Straight (*)(Warp& warp, const Instr* next, std::uint32_t mask,
                                 std::uint64_t stop_at);

Straight run_straight(Warp& warp, const Instr* next, std::uint32_t mask, std::uint64_t stop_at);
// The same, showing each instruction to those who follow.
Straight run_straight_followed(Warp& warp, const Instr* next, std::uint32_t mask,
                               std::uint64_t stop_at);

}  // namespace vgpu
