// How many blocks of a launch fit on one SM at a time, and what stops the next one.
#pragma once
#include <cstdint>
#include <string>

#include "../core/device_spec.h"

namespace vgpu {

struct Occupancy {
  int blocks_per_sm = 0;  // resident at the same time; 0: the launch does not fit on this device
  int warps_per_sm = 0;
  double fraction = 0;  // warps_per_sm / the most that an SM holds; 0 to 1
  std::string limiter;  // "registers", "shared memory", "warps", "blocks", joined by " and " if
                        // several are equal; in words what does not fit when it does not
};

// The rules of NVIDIA's occupancy calculator (cuda_occupancy.h): registers are given to whole warps
// in units of register_unit and a warp's registers lie in one of the SM's four partitions; shared
// memory is given to a block with the system's share on top, rounded up to shared_unit.
//   registers               per thread; 0 (unknown) is taken as no limit
//   shared_bytes_per_block  static + dynamic, without the system's share
//   block_threads           1 and more
Occupancy occupancy(const DeviceSpec& device, int registers, std::int64_t shared_bytes_per_block,
                    int block_threads);

// Rounds in which the device works off `blocks` blocks; 12.5 means that the 13th is half empty.
// 0 when none fits.
double waves(const DeviceSpec& device, const Occupancy& occupancy, std::uint64_t blocks);

}  // namespace vgpu
