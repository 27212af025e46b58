// What a warp of a traced block does, for the SM simulator: machine instructions in the order in
// which it executes them, and what each asks of memory.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "machine_code.h"

namespace vgpu::time {

// Sectors of one 128-byte line.
struct LinePiece {
  std::uint64_t line = 0;    // device address / 128
  std::uint8_t sectors = 0;  // bit i: bytes 32 i to 32 i + 31
  // An atomic operation's lanes in this line, and how many of them share an address.
  std::uint8_t lanes = 0, meeting = 0;
};

// One execution of an instruction that touches memory. All zero: no lane was active.
struct MemoryEvent {
  std::span<const LinePiece> lines;  // global and local memory, in ascending order
  std::uint16_t wavefronts = 0;      // clocks of the shared-memory pipe
  std::uint16_t words = 0;       // 32-bit words that lanes ask for; in shared memory different ones
  std::uint16_t lane_bytes = 0;  // bytes that a lane asks for
  std::uint16_t remote_lanes = 0;  // lanes that reach the shared memory of another block
  // The most lanes of an atomic operation that share an address; in shared memory also the most
  // lanes that want one bank, which are served one after the other.
  std::uint8_t same_address = 0, same_bank = 0;
  std::uint32_t bytes = 0;     // bulk copy: all of it
  std::uint32_t sectors = 0;   // tensor copy: what its rows ask of the L2,
  std::uint32_t requests = 0;  // and in how many lines, row by row
  bool tensor = false;         // so that none is none: all of the box is outside
  // Bulk copy into shared memory: bit i is the block of rank i that it goes to; 0: its own. `sent` is set
  // when it comes from shared memory, by the network between SMs.
  std::uint16_t blocks = 0;
  bool sent = false;
  // Bulk copy, expect, arrive_expect: bytes that other blocks of the cluster copy here for the same phase.
  std::uint32_t from_others = 0;
  bool bypasses_l1 = false;  // .cg, volatile, atomics ...
  // Barrier of a cooperative grid: the block arrives there, or looks whether all blocks have, of `phase`.
  enum class Grid : std::uint8_t { none, arrive, look };
  Grid grid = Grid::none;
  // mbarrier operations: which one (block of the cluster, offset in its shared memory) and what.
  enum class Mbarrier : std::uint8_t { none, init, arrive, expect, arrive_expect, wait, complete };
  Mbarrier mbarrier = Mbarrier::none;
  std::uint8_t home = 0;  // rank of the block whose mbarrier it is
  std::uint32_t offset = 0;
  // init: expected arrivals; arrive: how many; expect: bytes; arrive_expect: arrivals, and `bytes`
  // bytes; complete: `bytes` are there once this copy has landed
  std::uint32_t count = 0;
  std::uint32_t phase = 0;            // wait: how many phases must be complete, from 1; grid: which
  std::uint8_t barrier = 0;           // bar.sync: number
  std::uint32_t barrier_threads = 0;  // bar.sync: threads that take part; 0: the whole block

  // Bulk and tensor copies: whether it brings data into shared memory, and the sectors of 32 bytes that it
  // asks of the L2 or sends there. A copy between blocks has none; a multicast has each once.
  bool brings() const { return mbarrier != Mbarrier::none; }
  std::uint32_t engine_sectors() const { return sent ? 0 : tensor ? sectors : (bytes + 31) / 32; }
};

struct Step {
  std::uint32_t instr = 0;             // index into MachineCode::code
  const MemoryEvent* event = nullptr;  // null: nothing but the instruction
  bool no_lane = false;                // its guard is false for all lanes
};

// Gives the steps of one warp, one after the other; as lazily as it likes.
class WarpSteps {
 public:
  virtual ~WarpSteps() = default;
  virtual bool next(Step& step) = 0;  // false: the warp has ended
};

// One block, ready to be placed on the simulated SM: its warps in order.
using BlockSteps = std::vector<std::unique_ptr<WarpSteps>>;

}  // namespace vgpu::time
