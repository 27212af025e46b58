// What the race check has found, in words. race.cpp decides what is a race.
#pragma once
#include <string>

#include "race.h"

namespace vgpu::race {

// Two accesses to the same bytes that nothing orders.
struct Conflict {
  const Launch& launch;
  // The earlier access: what was recorded of it, and the lane. `earlier_many`: other lanes of its warp
  // accessed the bytes with the same instruction.
  Record earlier;
  int earlier_lane = 0;
  bool earlier_many = false, earlier_strong = false;
  // The later one. Strong accesses are atomic, volatile or relaxed.
  Record later;
  int later_lane = 0;
  bool later_strong = false;
  bool same_instruction = false;
  bool pending = false;  // the earlier one is an asynchronous copy that nobody has waited for
  bool shuffled =
      false;  // the later lane has met the earlier one in a shuffle since, which is no barrier
  // Where the bytes are. `home`: the block whose shared memory it is.
  Space space = Space::global;
  std::uint64_t address = 0, home = 0;

  bool same_block() const { return earlier.block == later.block; }
  bool same_warp() const { return same_block() && earlier.warp == later.warp; }
};

// Conflicts of the same key are told once. Those of the same place have the same key.
std::string key_of(const Conflict& conflict);
Place place_of(const Conflict& conflict);
std::string words(const Conflict& conflict);

// An access to the shared memory of block `home`, which ends before the access is known to be over.
std::string words_for_end(const Launch& launch, const Record& access, const Visit& visit,
                          std::uint64_t home);
// The end of a thread that has not waited until its bulk copy has read the block's shared memory.
std::string words_for_source(const Warp& warp, const Instr& instr, int lane, std::uint32_t bytes);
// The same as words_for_end() for an asynchronous copy that has not landed.
std::string words_for_end(const Launch& launch, const AsyncArrival& copy, std::uint64_t home);

}  // namespace vgpu::race
