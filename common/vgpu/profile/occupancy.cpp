#include "occupancy.h"

#include <algorithm>
#include <vector>

namespace vgpu {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return unit > 0 ? (value + unit - 1) / unit * unit : value;
}

Occupancy does_not_fit(std::string why) {
  Occupancy result;
  result.limiter = std::move(why);
  return result;
}

}  // namespace

Occupancy occupancy(const DeviceSpec& device, int registers, std::int64_t shared_bytes_per_block,
                    int block_threads) {
  if (block_threads < 1 || block_threads > device.max_threads_per_block)
    return does_not_fit("a block of " + std::to_string(block_threads) + " threads (1 to " +
                        std::to_string(device.max_threads_per_block) + " are possible)");
  if (registers > device.max_registers_per_thread)
    return does_not_fit(std::to_string(registers) + " registers per thread (at most " +
                        std::to_string(device.max_registers_per_thread) + ")");
  const std::int64_t block_limit = std::max(device.shared_per_block, device.shared_per_block_optin);
  if (shared_bytes_per_block > block_limit)
    return does_not_fit(std::to_string(shared_bytes_per_block) +
                        " bytes of shared memory per block (at most " +
                        std::to_string(block_limit) + ")");

  const std::int64_t warps = (block_threads + 31) / 32;
  struct Limit {
    const char* name;
    std::int64_t blocks;
  };
  std::vector<Limit> limits = {{"warps", device.max_warps_per_sm / warps},
                               {"blocks", device.max_blocks_per_sm}};
  if (registers > 0) {
    const std::int64_t per_warp = round_up(std::int64_t{registers} * 32, device.register_unit);
    const std::int64_t partitions = std::max(1, device.schedulers_per_sm);
    // The hardware's check takes registers for whole rows of warps, one in each partition.
    const std::int64_t per_block = per_warp * round_up(warps, partitions);
    if (per_block > device.registers_per_block)
      return does_not_fit(std::to_string(per_block) + " registers per block (at most " +
                          std::to_string(device.registers_per_block) + ")");
    const std::int64_t per_partition = device.registers_per_sm / partitions / per_warp;
    limits.push_back({"registers", per_partition * partitions / warps});
  }
  const std::int64_t shared =
      round_up(shared_bytes_per_block + device.shared_reserved, device.shared_unit);
  if (shared > 0) limits.push_back({"shared memory", device.shared_per_sm / shared});

  Occupancy result;
  std::int64_t least = limits[0].blocks;
  for (const Limit& limit : limits) least = std::min(least, limit.blocks);
  for (const Limit& limit : limits)
    if (limit.blocks == least)
      result.limiter += (result.limiter.empty() ? "" : " and ") + std::string(limit.name);
  result.blocks_per_sm = static_cast<int>(least);
  result.warps_per_sm = static_cast<int>(least * warps);
  result.fraction = static_cast<double>(result.warps_per_sm) / device.max_warps_per_sm;
  return result;
}

double waves(const DeviceSpec& device, const Occupancy& occupancy, std::uint64_t blocks) {
  const double at_once = static_cast<double>(device.sm_count) * occupancy.blocks_per_sm;
  return at_once > 0 ? static_cast<double>(blocks) / at_once : 0.0;
}

}  // namespace vgpu
