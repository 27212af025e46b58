// The counters of one launch, and the limits modelled from them, for people and for programs.
#pragma once
#include <memory>
#include <string>

#include "../core/counters.h"
#include "../core/device_spec.h"
#include "devices.h"
#include "limits.h"
#include "occupancy.h"

namespace vgpu {

// What printf would print, cut at 511 characters.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

// Occupancy of the launch that the counters are of.
Occupancy occupancy_of(const LaunchCounters& counters, const DeviceSpec& device);

// One JSON object, on one line. Times are in microseconds, sizes in bytes; a ratio without a
// denominator is null; a limit that is not known is the text "unknown" or "not modelled".
//   kernel mangled device device_key grid[3] block[3] blocks warps threads
//   static_shared dynamic_shared registers (0: unknown) local_bytes_per_thread (-1: unknown)
//   warp_instructions thread_instructions active_lanes_per_instruction
//   classes.{fp32,fp16,fp64,special,tensor,memory,shuffle,barrier,atomic,integer,conversion,
//     control,move}.{warp,thread}
//   global.{load,store,atomic} and local.{..}: requests sectors sectors_per_request
//     ideal_sectors_per_request bytes_asked bytes_distinct efficiency
//   copy_engine.{load,store,atomic}: copies bytes l2_sectors; bulk copies to and from global memory
//     and bulk reductions, which are not among the above
//   shared.{load,store,atomic}: requests wavefronts ideal conflicts bytes_asked
//   allocations.NAME: bytes, load, store, atomic (as in global), copy_engine, sectors_read, sectors_written
//     (distinct over the launch). A second allocation of the same name is "NAME (2)". In a JSON
//     pointer "/" in a name is written "~1" and "~" is "~0".
//   dram_bytes dram_read_bytes dram_write_bytes: what the cache model moved; without it, distinct
//     sectors of the launch x 32
//   l2: "modelled", or "not modelled" without the cache model. With it also
//   cache.l1.{sectors,hits,hit_rate,bytes} cache.l2.{sectors,hits,hit_rate,bytes,start}
//     cache.dram_read_bytes cache.dram_write_bytes cache.resident_blocks, and the same without the
//     capacities for cache.{load,store,atomic}, allocations.NAME.cache and lines[].cache; there
//     dram_write_bytes are those of sectors that they made dirty
//   tensor_macs, tensor_macs_by_type.{f16,tf32,int8} async_copied_bytes
//   most_bulk_under_way: bytes of copies into a block's shared memory, the most at any time
//   occupancy.{blocks_per_sm,warps_per_sm,fraction,limiter,waves}
//   limits.{DRAM,L2,L1/shared,fp32,fp16,fp64,special functions,tensor,issue}: lower bounds, us
//   limit.{name,us}: the largest; "none" and 0 when nothing was counted
//   lines[]: file line function ptx_line warp_instructions thread_instructions requests sectors
//     sectors_per_request local_sectors wavefronts conflicts copy_engine limit_share; costliest first
//   host_seconds host_threads: how long the host took, which says nothing about a GPU
std::string report_json(const LaunchCounters& counters, const DeviceSpec& device);
// The numbers of such an object, which is made once for all that is asked.
class ReportNumbers {
 public:
  ReportNumbers(const LaunchCounters& counters, const DeviceSpec& device);
  ~ReportNumbers();
  ReportNumbers(ReportNumbers&&) = delete;
  // The one at "/global/load/sectors" or the like, NaN where there is none. Throws
  // std::invalid_argument for what is no JSON pointer.
  double at(const std::string& json_pointer) const;

 private:
  struct Object;
  std::unique_ptr<const Object> object_;
};

// The same for a terminal of 100 columns, with the five costliest source lines. Ends in a newline.
std::string report_text(const LaunchCounters& counters, const DeviceSpec& device);

}  // namespace vgpu
