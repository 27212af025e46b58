// What the executor counts in one launch, raw: per instruction, and per instruction and allocation.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "../ptx/types.h"

namespace vgpu {

enum class Access : std::uint8_t { load, store, atomic };

// One instruction of the kernel or of a function it calls.
struct InstrCounters {
  std::uint64_t issued = 0;  // warp instructions, those with no active lane included
  std::uint64_t lanes = 0;   // thread instructions
};

// Global (and local) accesses of one instruction to one allocation.
struct GlobalCounters {
  std::uint64_t requests = 0;        // executed by a warp with at least one active lane
  std::uint64_t sectors = 0;         // distinct 32-byte pieces per request
  std::uint64_t lines = 0;           // distinct 128-byte lines per request
  std::uint64_t bytes_asked = 0;     // active lanes x bytes of the access
  std::uint64_t bytes_distinct = 0;  // distinct bytes per request
  std::uint64_t ideal_sectors = 0;   // bytes_distinct / 32 rounded up per request

  GlobalCounters& operator+=(const GlobalCounters& other) {
    requests += other.requests;
    sectors += other.sectors;
    lines += other.lines;
    bytes_asked += other.bytes_asked;
    bytes_distinct += other.bytes_distinct;
    ideal_sectors += other.ideal_sectors;
    return *this;
  }
};

struct SharedCounters {
  std::uint64_t requests = 0, wavefronts = 0, ideal = 0, bytes_asked = 0;

  SharedCounters& operator+=(const SharedCounters& other) {
    requests += other.requests;
    wavefronts += other.wavefronts;
    ideal += other.ideal;
    bytes_asked += other.bytes_asked;
    return *this;
  }
};

// Bulk copies between global and shared memory. The copy engine moves them: they are no requests of
// the load/store unit, and do not pass the L1.
struct BulkCounters {
  std::uint64_t copies = 0;      // that threads asked for, those of 0 bytes left out
  std::uint64_t bytes = 0;       // in global memory; a multicast's count once
  std::uint64_t l2_sectors = 0;  // 32-byte pieces that hold them, of each copy

  BulkCounters& operator+=(const BulkCounters& other) {
    copies += other.copies;
    bytes += other.bytes;
    l2_sectors += other.l2_sectors;
    return *this;
  }
};

// Accesses to the shared memory of other blocks of the cluster (distributed shared memory).
struct RemoteCounters {
  std::uint64_t requests = 0;  // by warps, with at least one lane that reaches another block
  std::uint64_t bytes = 0;     // for these lanes; all bytes of asynchronous copies
  // Bytes that several lanes of a request ask for count once; bulk copies do not count.
  std::uint64_t bytes_distinct = 0;

  RemoteCounters& operator+=(const RemoteCounters& other) {
    requests += other.requests;
    bytes += other.bytes;
    bytes_distinct += other.bytes_distinct;
    return *this;
  }
};

// What the cache model makes of global and local accesses, in sectors of 32 bytes. All zero without
// the model. A hit in the L2 is a sector that needs no read from DRAM: stores never do.
struct CacheCounters {
  std::uint64_t l1_sectors = 0, l1_hits = 0;  // asked of the L1, those that bypass it included
  // Loads that missed the L1, stores, atomics, and bulk copies, which are not among l1_sectors.
  std::uint64_t l2_sectors = 0, l2_hits = 0;
  std::uint64_t dram_read = 0;     // = l2_sectors - l2_hits
  std::uint64_t dram_written = 0;  // sectors made dirty, which DRAM gets sooner or later

  CacheCounters& operator+=(const CacheCounters& other) {
    l1_sectors += other.l1_sectors;
    l1_hits += other.l1_hits;
    l2_sectors += other.l2_sectors;
    l2_hits += other.l2_hits;
    dram_read += other.dram_read;
    dram_written += other.dram_written;
    return *this;
  }
};

// Multiply-adds of wgmma by the types of factors and sums, whose rates differ from those of mma.sync.
enum class WarpgroupType : std::uint8_t { f16_sums, f16, f8, f8_sums_f16, tf32, int8, b1 };
using WarpgroupWork = std::array<std::uint64_t, 7>;  // indexed by WarpgroupType

struct InstrReport {
  std::string function;  // display name
  std::string file;      // "" unknown
  int line = 0;
  std::uint32_t ptx_line = 0;
  std::string ptx;  // text of the instruction
  OpClass op_class = OpClass::integer;
  Space space = Space::generic;  // a memory instruction's (generic: as it resolved mostly)
  Access access = Access::load;
  bool copies_to_shared = false;  // reads global memory, while `access` speaks of shared memory
  Access global_access() const { return copies_to_shared ? Access::load : access; }
  InstrCounters count;
  // As in LaunchCounters, of this PTX instruction.
  std::uint64_t machine_instructions = 0;
  GlobalCounters global;  // summed over allocations
  GlobalCounters local;   // thread-private memory: spills, stacks, local arrays
  BulkCounters bulk;      // summed over allocations
  SharedCounters shared;
  RemoteCounters remote;
  CacheCounters cache;
};

struct AllocationReport {
  std::uint64_t address = 0;
  std::string name;                                     // see allocation_name() in core/access.h
  std::uint64_t bytes = 0;                              // its size
  std::array<GlobalCounters, 3> by_access;              // indexed by Access
  std::array<BulkCounters, 3> bulk;                     // likewise; reductions are atomics
  std::uint64_t sectors_read = 0, sectors_written = 0;  // distinct over the whole launch
  CacheCounters cache;
};

// The cache model's totals of a launch.
struct CacheReport {
  bool modelled = false;                   // without it, nothing of what follows counts
  bool warm = false;                       // the L2 began with what the launches before left in it
  std::array<CacheCounters, 3> by_access;  // indexed by Access
  std::uint64_t dram_read = 0;             // sectors
  std::uint64_t dram_written = 0;          // sectors, those still dirty at the end when not warm
  std::uint64_t l1_bytes = 0, l2_bytes = 0;  // capacity; L1: what shared memory leaves on an SM
  std::uint64_t resident_blocks = 0;         // blocks resident on the device, which took turns
};

// How long a launch is predicted to take on the device, and why. Plain data: time/ fills it.
struct PredictedLine {  // for one PTX line
  std::uint32_t ptx_line = 0;
  std::string file;  // "" unknown
  int line = 0;
  double issued = 0;           // machine instructions of the simulated SM
  std::vector<double> stalls;  // clocks of its warps by reason, in the order of stall_names
};
struct PredictedPipe {      // one of Nsight Compute's pipes (sm__inst_executed_pipe_*)
  std::string name;         // "alu", "fma", "fp16", "fp64", "lsu", "tensor", "uniform", "xu"
  double instructions = 0;  // machine instructions of all warps
  double share = 0;         // the part of the busiest SM's clocks in which it is taken, 0 to 1
};
struct PredictedTime {
  bool asked = false;        // false: nobody wanted it
  std::string why;           // not empty: why there is none, one sentence
  double us = 0;             // the whole launch, its own cost included
  double error = 0;          // as a share: 0.25 means that it is right to a quarter
  double launch_us = 0;      // what a launch costs before the first block runs
  double sm_us = 0;          // the busiest SM
  double dram_us = 0;        // bytes over the bandwidth that a stream gets
  double dram_bytes = 0;     // these bytes, in the whole launch
  double barrier_us = 0;     // barriers of a cooperative grid
  double clocks = 0;         // on the busiest SM
  double clock_mhz = 0;      // which it keeps
  bool clock_known = true;   // false: tensor instructions may lower it, nobody knows by how much
  double memory_clocks = 0;  // in which the busiest SM's load/store unit is taken
  // Clocks that accesses take as machine code has them, over those as PTX has them, on one SM. Below
  // 1 where ptxas has joined accesses to neighbours.
  double joined_accesses = 1;
  double issue_share = 0;            // the part of the issue slots that is used, 0 to 1
  double machine_instructions = 0;   // by all warps
  std::vector<PredictedPipe> pipes;  // pipes that the warps use
  double bytes_in_flight = 0;        // an SM's bytes on the way beyond the L1, mean over time
  double bytes_wanted = 0;           // latency x bandwidth of one SM: Little's law
  double l1_hit_rate = 0, l2_miss_rate = 0;
  std::uint64_t blocks_simulated = 0, blocks_of_sm = 0;
  double agreement = 1;  // share of memory instructions that PTX and machine code agree about
  std::vector<std::string> stall_names;  // Nsight Compute's
  std::vector<double> stalls;            // shares of all warps' clocks
  std::vector<PredictedLine> lines;
};

struct LaunchCounters {
  // How many were, when only the blocks that a prediction needs were executed (`sampled`); else all.
  std::uint64_t executed_blocks = 0;
  std::string kernel;  // display name
  std::string mangled;
  std::uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  std::uint32_t cluster[3] = {1, 1, 1};                 // blocks
  std::uint32_t static_shared = 0, dynamic_shared = 0;  // bytes
  int registers = 0;                                    // per thread from the cubin, 0 unknown
  int local_bytes = 0;  // per thread from the cubin (spills and arrays), -1 unknown
  std::uint64_t warps = 0, threads = 0;
  std::vector<InstrReport> instructions;      // only those executed at least once
  std::vector<AllocationReport> allocations;  // only those touched
  std::vector<double> l1_clocks_by_sm;        // global and local requests, clocks of the L1 pipe
  std::vector<double> shared_clocks_by_sm;    // shared wavefronts
  std::vector<std::uint64_t>
      issued_by_sm;  // warp instructions of the blocks placed there, all classes
  // The same by barrier of a cooperative grid: from the one before it until a block arrives there.
  std::vector<std::vector<std::uint64_t>> issued_to_grid_barrier;
  std::uint64_t distinct_sectors_read = 0, distinct_sectors_written = 0;  // in the whole launch
  // Machine instructions that the warps execute, from the machine code of this program; 0: unknown.
  // It may be unknown for single PTX instructions.
  std::uint64_t machine_instructions = 0;
  std::uint64_t tensor_multiply_adds_f16 = 0, tensor_multiply_adds_tf32 = 0,
                tensor_multiply_adds_int8 = 0;
  std::uint64_t tensor_multiply_adds_f16_sums = 0;    // those of _f16 whose sums are fp16 too
  std::uint64_t tensor_multiply_adds_f8 = 0;          // those of _f16 whose factors are fp8
  std::uint64_t tensor_multiply_adds_int4 = 0;        // those of _int8 whose factors have 4 bits
  WarpgroupWork tensor_multiply_adds_warpgroup = {};  // the part by wgmma; also single-bit products
  std::uint64_t async_copied_bytes = 0;
  // The most bytes of bulk and tensor copies into one block's shared memory that were asked for and
  // had not landed, at any time and in any block. Copies land as late as the program allows: the
  // number tells how far the program's copies run ahead of its waits.
  std::uint64_t most_bulk_under_way = 0;
  CacheReport cache;
  PredictedTime predicted;
  bool sampled = false;  // only the blocks that a prediction needs were executed, and counted
  double host_seconds = 0;
  int host_threads = 1;
};

}  // namespace vgpu
