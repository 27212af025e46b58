// Clocks of one GPU architecture that no datasheet has: how long an instruction takes until its
// result is there, and how many clocks it keeps its unit. From microbenchmarks, published and (one
// day) own.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/device_spec.h"
#include "machine_code.h"
#include "opcodes.h"

namespace vgpu::time {

struct Constant {
  double value = 0;
  std::string source;  // a document, or "guessed" and from what
};

// Clocks are those of the SM. A latency counts from the clock in which the instruction issues to
// the first one in which an instruction that waits for its scoreboard may issue. An interval is how
// long one warp instruction keeps the unit of its scheduler.
struct Timing {
  std::string why;  // "" or why there are none: "compute capability 6.1 is not known, only ..."
  int major = 0, minor = 0;

  // Intervals.
  Constant fp32, imad, alu, half, fp64, special, uniform, memory_issue, redux;
  Constant wide_factor;        // IMAD.WIDE and .HI against IMAD
  bool two_fma_pipes = false;  // FP32 goes to either of two half-warp pipes, IMAD to one of them
  bool imad_on_both = false;   // ... or IMAD to either as well
  bool half_on_fma = false;    // HFMA2 shares a pipe with IMAD
  bool half_on_both = false;   // ... or takes either, as FP32 does
  // Tensor cores: multiply-adds a clock and SM of dense products, by what is summed and multiplied.
  Constant tensor_fp16, tensor_fp16_fp32_sums, tensor_tf32, tensor_int8, tensor_fp64;
  Constant tensor_slowdown;  // warp-wide mma against the peak, a factor of at least 1

  // Latencies.
  Constant alu_latency, special_latency, shuffle_latency, vote_latency, fp64_latency,
      tensor_latency, constant_latency, special_register_latency, uniform_latency;
  Constant shared_latency, matrix_latency, shared_atomic_latency;
  Constant l1_latency, l2_latency, dram_latency, atomic_latency, store_latency, read_latency;
  Constant page_latency;  // more for the first access to a page
  Constant remote_shared_latency, bulk_latency, mbarrier_latency;
  Constant barrier_latency, cluster_barrier_latency, branch_latency, fence_latency,
      fence_block_latency, sleep_clocks;
  Constant constant_miss;  // more for the first load of a place in the constant bank

  // Rates and queues.
  Constant wavefront_clocks;   // the shared-memory pipe's for 128 bytes
  Constant request_clocks;     // the load/store unit's least for a warp instruction
  Constant sectors_per_clock;  // what the L1 delivers
  Constant line_clocks;        // the L1 tags' for each line of a request
  Constant memory_queue;       // clocks of work that may wait before the load/store unit
  Constant requests_beyond;    // bytes that may wait for the way to the L2
  // Clocks of atomic operations at the L2: in one SM's stream each lane; in one line of the L2 each
  // request, each lane with an address of its own, each lane that shares its address.
  Constant atomic_sector, atomic_word, line_request, line_lane, line_meeting;
  Constant remote_bytes_per_clock, bulk_interval;
  Constant tensor_line;      // the copy engine's for each line that a row of a tensor's box touches
  Constant partial_store;    // L2 time of sectors that are written in part, over that of whole ones
  Constant partial_written;  // the least share of them that reaches DRAM
  Constant l2_bytes_per_clock;  // what one SM gets while all ask
  Constant dram_share;          // the part of the datasheet's bandwidth that a stream of loads gets
  Constant dram_written;        // the time that a byte written takes of it, over that of one read
  Constant l2_share;            // the part of the L2 that holds different data

  // Instruction fetch.
  Constant l0_instructions, l0_miss, code_cache_bytes, code_latency, code_line_clocks;

  // Blocks and launches.
  Constant block_launch;   // clocks from the end of a block to the first warp of the next
  Constant warp_launch;    // clocks between the first and the second warp of a block, and so on
  Constant block_stagger;  // clocks between the first blocks of one SM
  Constant launch_us, graph_node_us, cooperative_us, grid_barrier_us;

  // Clocks between two tensor instructions of a scheduler, by name ("HMMA.16816.F32"); the
  // warp-wide products that a name does not tell count as m16n8k16 of halves.
  double tensor_interval(std::string_view name) const;
  // The same of a product of a warpgroup, for each of its warps, at the tensor cores' peak rate.
  double warpgroup_interval(const Tensor& product) const;
  // Clocks that the SM's shared memory needs for its B, and for A if that is there as well.
  double warpgroup_reads(const Tensor& product, bool reads_a) const;
  // Clocks for which a line of the L2 is busy with atomic operations.
  double line_clocks_of(double requests, double lanes, double meeting) const {
    return std::max(requests * line_request.value,
                    (lanes - meeting) * line_lane.value + meeting * line_meeting.value);
  }
  // Each constant with its name, for lists and documents.
  std::vector<std::pair<std::string_view, const Constant*>> all() const;
};

// Constants for a device; Timing::why is not empty when its architecture is not known.
Timing timing_of(const DeviceSpec& device);

}  // namespace vgpu::time
