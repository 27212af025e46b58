// One SM, clock by clock: four schedulers, the warps of the resident blocks, the units' queues, the
// L1, and what lies behind it as latency and bandwidth.
//
// Left out: conflicts of register banks and the operand cache (ptxas arranges registers to avoid
// them), misses of the TLB, rows and refresh of DRAM, other SMs (their share of L2 and DRAM is
// taken off the rates; at the barrier of a grid only the blocks of this SM wait for each other), and
// that the blocks of a cluster lie on SMs of their own.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "events.h"
#include "timing.h"

namespace vgpu::time {

// Why a warp did not issue in a clock: Nsight Compute's names (smsp__pcsamp_warps_issue_stalled_*).
enum class Stall : std::uint8_t {
  selected,            // it issued
  not_selected,        // it could, another warp was taken
  long_scoreboard,     // global, local memory
  short_scoreboard,    // shared memory, special functions, shuffles
  wait,                // the fixed stall count of its last instruction
  math_pipe_throttle,  // its unit is busy
  mio_throttle,        // the queue to shared memory and special functions is full
  lg_throttle,         // the queue to global and local memory is full
  tex_throttle,
  barrier,
  membar,
  branch_resolving,
  drain,            // ended, stores under way
  imc_miss,         // constants
  no_instructions,  // instruction cache
  dispatch,
  sleeping,
  misc,
};
inline constexpr int kStalls = 18;
std::string_view stall_name(Stall stall);  // "long_scoreboard"

struct SmRequest {
  const MachineCode* code = nullptr;
  const Timing* timing = nullptr;  // constants of the device
  std::uint64_t blocks = 0;        // to run on this SM, one after the other as places get free
  int resident = 1;                // blocks at a time
  std::function<BlockSteps(std::uint64_t n)> block;  // makes the n-th, from 0
  // Blocks n with the same n / cluster_blocks are a cluster, and n % cluster_blocks is the rank
  // that MemoryEvent::home names. All blocks of a cluster share this SM if there are places.
  // Otherwise data of an absent block is assumed to arrive when everything waits for it
  // (SmResult::assumed). 1: every block has rank 0, homes only say that something goes through the
  // network between SMs, and each block is assumed to receive as much from its neighbours as it sends.
  int cluster_blocks = 1;
  std::uint64_t l1_bytes = 0;  // what shared memory leaves
  // Share of the sectors that the L2 is asked for and does not have, 0 to 1.
  double l2_miss = 0;
  // Whether a line of 128 bytes is of memory that launches before have not touched of late.
  std::function<bool(std::uint64_t line)> cold;
  // Share of the sectors that stores send to the L2 and that it sends on to DRAM, sooner or later.
  double l2_written = 0;
  // How many times as long as its own atomic operations a line of the L2 is busy for this SM, because
  // other SMs ask for the same line. 0: nobody shares any.
  double atomic_stretch = 0;
  // Bytes a clock that this SM gets of L2 and DRAM while all SMs are busy.
  double l2_bytes_per_clock = 0, dram_bytes_per_clock = 0;  // 0: no bound
  int timeline_blocks = 0;                                  // blocks whose warps' states are kept
  std::uint64_t most_instructions = 0;                      // stop after so many issued; 0: never
};

struct Activity {  // what a warp did over a while
  std::uint32_t block = 0, warp = 0;
  std::uint64_t begin = 0, end = 0;  // clocks
  Stall state = Stall::selected;
  Kind kind = Kind::nop;    // the kind of instruction that it issued (selected)
  std::uint32_t instr = 0;  // which it issued or waited to issue: index into code
};

// What one of Nsight Compute's pipes did (sm__inst_executed_pipe_*).
struct PipeUse {
  std::string_view name;     // "alu", "fma", "fp16", "fp64", "lsu", "tensor", "uniform", "xu"
  std::uint64_t issued = 0;  // machine instructions of warps
  double share = 0;          // part of this pipe's clocks in all schedulers, 0 to 1
};

struct SmResult {
  double clocks = 0;                           // until the last block has ended
  std::vector<double> block_begin, block_end;  // clocks, by block
  std::vector<double> grid_barriers;           // clocks at which all blocks are at a grid's barrier
  std::uint64_t issued = 0;                    // machine instructions of warps
  bool complete = true;                        // false: stopped at most_instructions
  std::array<double, kStalls> stalls{};        // warp clocks by reason, of all warps
  std::vector<PipeUse> pipes;                  // those that were used, by name
  // The same as `stalls` by instruction (index into code), and how often each was issued.
  std::vector<std::array<float, kStalls>> stalls_by_instr;
  std::vector<std::uint64_t> issued_by_instr;
  // Clocks of the unit by Kind, summed over the schedulers; memory: of the SM's one load/store
  // unit.
  std::array<double, 64> busy_by_kind{};
  std::uint64_t l1_sectors = 0, l1_hits = 0, l2_bytes = 0, dram_bytes = 0;
  double bytes_in_flight = 0;  // mean over time of bytes asked beyond the L1
  std::vector<Activity> timeline;
  std::uint64_t assumed = 0;  // phases of mbarriers taken to have come from absent blocks
  const char* stuck = "";     // "" or what the warps wait for that never comes
};
SmResult simulate(const SmRequest& request);

}  // namespace vgpu::time
