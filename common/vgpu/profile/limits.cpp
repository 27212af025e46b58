#include "limits.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace vgpu {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Machine code that needs at least this share of the clocks of PTX's accesses counts as having the
// same ones: blocks that were not simulated may differ by as much.
constexpr double kJoined = 0.95;

// "fma.rn.f32" of "@%p1 fma.rn.f32 %f1, ...;", as its words between dots.
std::vector<std::string_view> words_of(std::string_view ptx) {
  const std::string_view blanks = " \t";
  auto skip = [&] { ptx.remove_prefix(std::min(ptx.find_first_not_of(blanks), ptx.size())); };
  skip();
  if (!ptx.empty() && ptx.front() == '@') {
    ptx.remove_prefix(std::min(ptx.find_first_of(blanks), ptx.size()));
    skip();
  }
  std::string_view name = ptx.substr(0, std::min(ptx.find_first_of(" \t;"), ptx.size()));
  std::vector<std::string_view> words;
  while (!name.empty()) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    words.push_back(name.substr(0, dot));
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  return words;
}

// Results that one lane of an instruction takes from a multiply-add pipe: 0, 1 or 2 (packed types).
double results_per_lane(const InstrReport& instruction) {
  const auto words = words_of(instruction.ptx);
  if (words.empty()) return 0;
  const std::string_view opcode = words.front();
  if (opcode != "add" && opcode != "sub" && opcode != "mul" && opcode != "fma" && opcode != "mad")
    return 0;
  const std::string_view type = words.back();
  return type.ends_with("x2") ? 2 : 1;
}

// Is the limit of this pipe the sum of one class of instructions?
bool class_of(Pipe pipe, OpClass& op_class) {
  switch (pipe) {
    case Pipe::fp32:
      op_class = OpClass::fp32;
      return true;
    case Pipe::fp16:
      op_class = OpClass::fp16;
      return true;
    case Pipe::fp64:
      op_class = OpClass::fp64;
      return true;
    case Pipe::special:
      op_class = OpClass::special;
      return true;
    default:
      return false;
  }
}

// Does at least one machine instruction come of it, whatever ptxas does?
bool takes_issue_slot(const InstrReport& instruction) {
  switch (instruction.op_class) {
    case OpClass::fp32:
    case OpClass::fp16:
    case OpClass::fp64: {
      const auto words = words_of(instruction.ptx);  // signs become modifiers of operands
      return words.empty() || (words.front() != "neg" && words.front() != "abs");
    }
    case OpClass::memory:  // parameters and constants become operands
      return instruction.space != Space::param && instruction.space != Space::constant;
    case OpClass::special:
    case OpClass::tensor:
    case OpClass::shuffle:
    case OpClass::barrier:
    case OpClass::atomic:
      return true;
    default:
      return false;
  }
}

// Clocks of all SMs together that the tensor cores need; NaN when a figure is unknown. The types
// take turns in them, so their times add up.
double tensor_clocks(const LaunchCounters& counters, const DeviceSpec& device) {
  // What mma.sync lacks of the peak is given for fp16; it lacks as much for the other types.
  const double share =
      device.tensor_mma_sync_fp16_fma_per_clock_sm / device.tensor_fp16_fma_per_clock_sm;
  const auto warpgroup = [&](WarpgroupType type) {
    return counters.tensor_multiply_adds_warpgroup[static_cast<std::size_t>(type)];
  };
  using enum WarpgroupType;
  const std::uint64_t wg_sums = warpgroup(f16_sums), wg_f8_sums = warpgroup(f8_sums_f16),
                      wg_f16 = warpgroup(WarpgroupType::f16), wg_f8 = warpgroup(f8),
                      wg_tf32 = warpgroup(tf32), wg_int8 = warpgroup(int8), wg_b1 = warpgroup(b1);
  // By mma.sync and wmma: what is not wgmma's. (Those in fp8 add up in fp32.)
  const std::uint64_t mma_sums = counters.tensor_multiply_adds_f16_sums - wg_sums - wg_f8_sums,
                      mma_f8 = counters.tensor_multiply_adds_f8 - wg_f8 - wg_f8_sums,
                      mma_f16 = counters.tensor_multiply_adds_f16 - mma_sums - mma_f8 - wg_f16 -
                                wg_sums - wg_f8 - wg_f8_sums,
                      int4 = counters.tensor_multiply_adds_int4;
  const double full = device.tensor_fp16_fma_per_clock_sm;
  const struct {
    std::uint64_t multiply_adds;
    double rate;
  } types[] = {
      {mma_sums, device.tensor_mma_sync_fp16_fma_per_clock_sm},
      {mma_f8, device.tensor_mma_sync_fp8_fma_per_clock_sm},
      {mma_f16, device.tensor_mma_sync_fp16_fp32_sums_fma_per_clock_sm},
      {counters.tensor_multiply_adds_tf32 - wg_tf32, share * device.tensor_tf32_fma_per_clock_sm},
      {counters.tensor_multiply_adds_int8 - int4 - wg_int8,
       share * device.tensor_int8_fma_per_clock_sm},
      {int4, 2 * share * device.tensor_int8_fma_per_clock_sm},
      // wgmma reaches the peak, with sums in fp32 as well.
      {wg_f16 + wg_sums, full},
      {wg_f8 + wg_f8_sums, 2 * full},
      {wg_tf32, device.tensor_tf32_fma_per_clock_sm},
      {wg_int8, device.tensor_int8_fma_per_clock_sm},
      {wg_b1, 8 * device.tensor_int8_fma_per_clock_sm}};
  double clocks = 0;
  for (const auto& type : types) {
    if (type.multiply_adds == 0) continue;
    clocks += type.rate > 0 ? static_cast<double>(type.multiply_adds) / type.rate : kNaN;
  }
  return clocks;
}

}  // namespace

std::string_view issue_counts(const LaunchCounters& counters) {
  return counters.machine_instructions > 0 ? "machine instructions"
                                           : "PTX instructions that cannot be folded";
}

std::string_view pipe_name(Pipe pipe) {
  switch (pipe) {
    case Pipe::dram:
      return "DRAM";
    case Pipe::l2:
      return "L2";
    case Pipe::l1:
      return "L1/shared";
    case Pipe::distributed:
      return "distributed shared memory";
    case Pipe::fp32:
      return "fp32";
    case Pipe::fp16:
      return "fp16";
    case Pipe::fp64:
      return "fp64";
    case Pipe::special:
      return "special functions";
    case Pipe::tensor:
      return "tensor";
    case Pipe::issue:
      return "issue";
  }
  return "";
}

double cost_on(Pipe pipe, const InstrReport& instruction, const DeviceSpec& device, bool machine) {
  const auto issued = static_cast<double>(instruction.count.issued);
  OpClass op_class;
  if (class_of(pipe, op_class)) {
    if (instruction.op_class != op_class) return 0;
    return 32 * issued * (pipe == Pipe::special ? 1 : results_per_lane(instruction));
  }
  switch (pipe) {
    case Pipe::dram:
    case Pipe::l2: {
      const CacheCounters& c = instruction.cache;  // all zero without the cache model
      if (c.l1_sectors == 0 && c.l2_sectors == 0)
        return static_cast<double>(instruction.global.sectors + instruction.bulk.l2_sectors);
      return static_cast<double>(pipe == Pipe::l2 ? c.l2_sectors : c.dram_read + c.dram_written);
    }
    case Pipe::l1: {
      // A lower bound of the sum over requests of max(1 clock, bytes of their sectors / rate).
      const double rate = device.l1_bytes_per_clock_sm > 0 ? device.l1_bytes_per_clock_sm : 128;
      auto clocks = [rate](const GlobalCounters& c) {
        return std::max(32.0 * static_cast<double>(c.sectors) / rate,
                        static_cast<double>(c.requests));
      };
      return clocks(instruction.global) + clocks(instruction.local) +
             static_cast<double>(instruction.shared.wavefronts);
    }
    case Pipe::distributed:
      return static_cast<double>(instruction.remote.bytes_distinct);
    case Pipe::tensor:
      return instruction.op_class == OpClass::tensor ? issued : 0;
    case Pipe::issue:
      if (machine) return static_cast<double>(instruction.machine_instructions);
      return takes_issue_slot(instruction) ? issued : 0;
    default:
      return 0;
  }
}

Limits limits(const LaunchCounters& counters, const DeviceSpec& device) {
  Limits result;
  result.all.resize(kPipes);
  for (int i = 0; i < kPipes; ++i) result.all[i].pipe = static_cast<Pipe>(i);

  // Work over a rate per microsecond; without work the limit is 0 whatever the device.
  auto set = [&](Pipe pipe, double work, double rate) {
    Limit& limit = result.all[static_cast<int>(pipe)];
    if (work == 0) return;
    if (rate > 0) {
      limit.us = work / rate;
    } else {
      limit.us = kNaN;
      limit.unknown = "unknown";
    }
  };

  const std::uint64_t blocks =
      std::uint64_t{counters.grid[0]} * counters.grid[1] * counters.grid[2];
  const double sms = static_cast<double>(
      std::min<std::uint64_t>(blocks, static_cast<std::uint64_t>(std::max(0, device.sm_count))));
  const double clocks = device.sm_clock_mhz;  // per microsecond

  const CacheReport& cache = counters.cache;
  const std::uint64_t sectors =
      cache.modelled ? cache.dram_read + cache.dram_written
                     : counters.distinct_sectors_read + counters.distinct_sectors_written;
  set(Pipe::dram, 32 * static_cast<double>(sectors), 1e3 * device.dram_gb_s);

  if (cache.modelled) {
    std::uint64_t l2_sectors = 0;
    for (const CacheCounters& c : cache.by_access) l2_sectors += c.l2_sectors;
    set(Pipe::l2, 32 * static_cast<double>(l2_sectors), 1e3 * device.l2_gb_s);
  } else {
    Limit& l2 = result.all[static_cast<int>(Pipe::l2)];
    l2.us = kNaN;
    l2.unknown = "not modelled";
  }

  // Sampled blocks lie on many SMs. What is said of one SM is then of as many blocks as are simulated, each the
  // mean of those that were executed.
  const double simulated = counters.sampled && counters.executed_blocks > 0
                               ? static_cast<double>(counters.predicted.blocks_simulated) /
                                     static_cast<double>(counters.executed_blocks)
                               : 0;
  double busiest_l1 = 0, all_l1 = 0;
  for (std::size_t sm = 0;
       sm < std::max(counters.l1_clocks_by_sm.size(), counters.shared_clocks_by_sm.size()); ++sm) {
    double here = 0;
    if (sm < counters.l1_clocks_by_sm.size()) here += counters.l1_clocks_by_sm[sm];
    if (sm < counters.shared_clocks_by_sm.size()) here += counters.shared_clocks_by_sm[sm];
    busiest_l1 = std::max(busiest_l1, here);
    all_l1 += here;
  }
  busiest_l1 = std::max(busiest_l1, simulated * all_l1);
  set(Pipe::l1, busiest_l1, clocks);
  const PredictedTime& predicted = counters.predicted;
  if (predicted.asked && predicted.why.empty() && predicted.joined_accesses < kJoined) {
    Limit& l1 = result.all[static_cast<int>(Pipe::l1)];
    l1.by_ptx_us = l1.us;
    l1.us *= predicted.joined_accesses;
  }

  auto total = [&](Pipe pipe) {
    double sum = 0;
    for (const InstrReport& instruction : counters.instructions)
      sum += cost_on(pipe, instruction, device);
    return sum;
  };
  set(Pipe::distributed, total(Pipe::distributed),
      device.distributed_bytes_per_clock_sm * sms * clocks);
  set(Pipe::fp32, total(Pipe::fp32), device.fp32_fma_per_clock_sm * sms * clocks);
  set(Pipe::fp16, total(Pipe::fp16), device.fp16_fma_per_clock_sm * sms * clocks);
  set(Pipe::fp64, total(Pipe::fp64), device.fp64_fma_per_clock_sm * sms * clocks);
  set(Pipe::special, total(Pipe::special), device.special_per_clock_sm * sms * clocks);

  const double tensor = tensor_clocks(counters, device);
  set(Pipe::tensor, tensor, std::isnan(tensor) ? kNaN : sms * clocks);

  // Assumed: the busiest SM's share of the counted instructions is its share of all PTX
  // instructions.
  double busiest = 0, all = 0;
  for (const std::uint64_t issued : counters.issued_by_sm) {
    busiest = std::max(busiest, static_cast<double>(issued));
    all += static_cast<double>(issued);
  }
  busiest = std::max(busiest, simulated * all);
  const double issued = counters.machine_instructions > 0
                            ? static_cast<double>(counters.machine_instructions)
                            : total(Pipe::issue);
  set(Pipe::issue, issued * (all > 0 ? busiest / all : 1 / std::max(1.0, sms)),
      device.schedulers_per_sm * clocks);

  for (const Limit& limit : result.all)
    if (limit.known() && limit.us > 0 && (!result.largest || limit.us > result.largest->us))
      result.largest = &limit;
  return result;
}

}  // namespace vgpu
