// Modelled limits: the time that each pipe of a device needs for a launch's work at its peak rate.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../core/counters.h"
#include "../core/device_spec.h"

namespace vgpu {

enum class Pipe : std::uint8_t {
  dram,
  l2,
  l1,
  distributed,
  fp32,
  fp16,
  fp64,
  special,
  tensor,
  issue
};
inline constexpr int kPipes = 10;

// "DRAM", "L2", "L1/shared", "distributed shared memory", "fp32", "fp16", "fp64",
// "special functions", "tensor", "issue".
std::string_view pipe_name(Pipe pipe);

struct Limit {
  Pipe pipe = Pipe::dram;
  double us = 0;        // microseconds; NaN: see `unknown`
  std::string unknown;  // "" when us counts; "unknown": a figure of the device; "not modelled"
  // The limit for the accesses of the PTX, where machine code has fewer; 0: there are as many.
  double by_ptx_us = 0;
  bool known() const { return unknown.empty(); }
};

struct Limits {
  std::vector<Limit> all;          // one for each pipe, in the order of Pipe
  const Limit* largest = nullptr;  // null when none is known and above 0
  const Limit& of(Pipe pipe) const { return all[static_cast<int>(pipe)]; }

  Limits() = default;
  Limits(const Limits&) = delete;
  Limits(Limits&&) = default;
  Limits& operator=(Limits&&) = default;
};

// Lower bounds, each for itself: with clocks and bandwidths at the device's peak, everything else
// free and nothing ever waiting, a launch still needs this long. In detail:
//   DRAM       without the cache model: distinct 32-byte sectors of the launch, read and written,
//              over the memory's bandwidth, as if the L2 started empty and ended written back. Data that an earlier
//              launch left in the L2 costs less on a GPU. With the model: the bytes it has moved.
//   L2         sectors that the cache model's L1s let through, over the L2's bandwidth; not modelled
//              without it, since what the L1 catches is unknown then.
//   L1/shared  clocks of the global and local requests and of the shared wavefronts, which use one
//              pipe, on the SM that has most of them. Not bulk copies: the copy engine moves them
//              past that pipe, and how much it moves in a clock is not in NVIDIA's tables. Accesses
//              count as PTX has them, unless the machine code is known to need fewer clocks because
//              ptxas joins neighbours into wider ones (PredictedTime::joined_accesses): then its.
//   distributed shared memory   bytes that loads, stores and atomics of threads exchange with other
//              blocks of the cluster, each byte of a request once, over the rate of one SM. That
//              rate is the best that was measured, in NVIDIA's tables there is none. Not bulk
//              copies between blocks, nor multicasts: nobody has published what these reach.
//   fp32 fp16 fp64   additions, multiplications and fused ones of that type, 32 lanes a warp
//              instruction (two results a lane for packed types), over the rate of one SM. What
//              runs elsewhere or vanishes in ptxas (comparison, minimum, negation) is not counted.
//   special functions   likewise: warp instructions of the class.
//   tensor     multiply-adds by type, over the rate of mma.sync and wmma; those of wgmma over the full
//              rate, half as much again on cc 9.0. Of fp16 and bf16
//              those with sums in fp32 count apart: GeForce cards do half as many of them. So does
//              fp8, always with sums in fp32. Integers of 4 bits have twice the rate of 8 (from cc 9.0 on
//              they are slower than that, how much is not known).
//   issue      machine instructions of the warps, where they are known; else those PTX instructions
//              that ptxas cannot fold away (memory but not parameters and constants, floating point
//              but not signs, special, tensor, shuffle, barrier, atomic), which leaves out integer
//              arithmetic, moves, conversions and control. Over the schedulers of the SM that has
//              most of them.
// Arithmetic is spread evenly over the SMs that the grid can reach, which is the best case; where
// the executor has counted by SM, the placement of its blocks is taken.
Limits limits(const LaunchCounters& counters, const DeviceSpec& device);

// What the limit of issue has counted: "machine instructions" or, where these are not known, "PTX
// instructions that cannot be folded".
std::string_view issue_counts(const LaunchCounters& counters);

// What one instruction contributes to a limit, in that limit's own unit (sectors, clocks, results,
// warp instructions, bytes): only ratios between instructions mean something. 0: it has no part in
// it. Of issue: its machine instructions where `machine`, else PTX instructions.
double cost_on(Pipe pipe, const InstrReport& instruction, const DeviceSpec& device,
               bool machine = false);

}  // namespace vgpu
