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
  std::uint64_t issued = 0;   // warp instructions, those with no active lane included
  std::uint64_t lanes = 0;    // thread instructions
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

struct InstrReport {
  std::string function;        // display name
  std::string file;            // "" unknown
  int line = 0;
  std::uint32_t ptx_line = 0;
  std::string ptx;             // text of the instruction
  OpClass op_class = OpClass::integer;
  Space space = Space::generic;      // of a memory instruction (generic: as it resolved mostly)
  Access access = Access::load;
  InstrCounters count;
  GlobalCounters global;             // summed over allocations
  GlobalCounters local;              // thread-private memory: spills, stacks, local arrays
  SharedCounters shared;
};

struct AllocationReport {
  std::string name;            // given name, or "argument 2", or "allocation 7"
  std::uint64_t bytes = 0;     // its size
  std::array<GlobalCounters, 3> by_access;   // indexed by Access
  std::uint64_t sectors_read = 0, sectors_written = 0;  // distinct over the whole launch
};

struct LaunchCounters {
  std::string kernel;          // display name
  std::string mangled;
  std::uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  std::uint32_t static_shared = 0, dynamic_shared = 0;  // bytes
  int registers = 0;           // per thread from the cubin, 0 unknown
  int local_bytes = 0;         // per thread from the cubin (spills and arrays), -1 unknown
  std::uint64_t warps = 0, threads = 0;
  std::vector<InstrReport> instructions;     // only those executed at least once
  std::vector<AllocationReport> allocations; // only those touched
  std::vector<double> l1_clocks_by_sm;       // global and local requests, clocks of the L1 pipe
  std::vector<double> shared_clocks_by_sm;   // shared wavefronts
  std::vector<std::uint64_t> issued_by_sm;   // warp instructions of the blocks placed there, all classes
  std::uint64_t distinct_sectors_read = 0, distinct_sectors_written = 0;  // of the launch
  std::uint64_t tensor_multiply_adds_f16 = 0, tensor_multiply_adds_tf32 = 0, tensor_multiply_adds_int8 = 0;
  std::uint64_t async_copied_bytes = 0;
  double host_seconds = 0;
  int host_threads = 1;
};

}  // namespace vgpu
