#include "kernel_time.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "../profile/cache.h"
#include "../profile/report.h"
#include "walk.h"

namespace vgpu::time {
namespace {

// Memory instructions whose counts differ between PTX and machine code by more than this share: the
// branches were not understood, and a time from them would be made up.
constexpr double kMostDiffering = 0.08;

// Machine instructions that are simulated at most; what is left is taken to go on as it went.
constexpr std::uint64_t kMostSimulated = 40u << 20;

struct Played {
  std::vector<std::vector<Walker::Way>> ways;  // by block, warp
  std::vector<std::uint64_t> instructions;     // by block
};

// Sectors that the blocks of one SM ask of the L2, with an L1 in between and the warps taking turns
// at each memory instruction.
struct Traffic {
  double asked = 0, beyond = 0;  // load sectors asked of the L1, and those that it has not
  double stored = 0;             // sectors of stores
};
Traffic traffic(const Walker& walker, const Recording& recording, const Played& played,
                std::size_t blocks, std::uint64_t l1_bytes) {
  Traffic sum;
  SectoredCache l1(std::max<std::uint64_t>(l1_bytes, 4096), 4, SectoredCache::Index::folded);
  struct Turn {
    std::unique_ptr<WarpSteps> steps;
  };
  std::vector<Turn> turns;
  for (std::size_t b = 0; b < blocks; ++b)
    for (std::size_t w = 0; w < recording.blocks[b].warps.size(); ++w)
      turns.push_back({walker.steps(recording.blocks[b].warps[w], played.ways[b][w])});
  const auto request = [&](const MemoryEvent& event) {
    for (const LinePiece& piece : event.lines) {
      const int asked = __builtin_popcount(piece.sectors);
      sum.asked += asked;
      if (event.bypasses_l1) {
        sum.beyond += asked;
        continue;
      }
      const std::uint32_t there = l1.read(piece.line, piece.sectors);
      sum.beyond += asked - __builtin_popcount(there & piece.sectors);
    }
  };
  for (bool any = true; any;) {
    any = false;
    for (Turn& turn : turns) {
      Step step;
      while (turn.steps && turn.steps->next(step)) {
        if (!step.event || step.event->lines.empty()) continue;
        const Kind kind = walker.kind(step.instr);
        if (kind == Kind::global_store || kind == Kind::local_store)
          for (const LinePiece& piece : step.event->lines)
            sum.stored += __builtin_popcount(piece.sectors);
        if (kind != Kind::global_load && kind != Kind::async_copy && kind != Kind::local_load)
          continue;
        request(*step.event);
        any = true;
        break;
      }
    }
  }
  return sum;
}

// Sectors of 32 bytes that a launch reads and writes at all.
struct Distinct {
  double read = 0, written = 0;
};
// When only some blocks were executed, all of them are taken to touch so many times as much, up to
// the sizes of the allocations.
Distinct distinct_sectors(const LaunchCounters& counters, const Recording& recording) {
  if (!counters.sampled)
    return {static_cast<double>(counters.distinct_sectors_read),
            static_cast<double>(counters.distinct_sectors_written)};
  const double times =
      static_cast<double>(recording.grid_blocks) /
      static_cast<double>(std::max<std::uint64_t>(
          1, (recording.blocks.size() + recording.probes.size()) * recording.cluster_blocks));
  Distinct sum;
  for (const AllocationReport& a : counters.allocations) {
    const double most = static_cast<double>(a.bytes) / 32;
    sum.read += std::min(most, times * static_cast<double>(a.sectors_read));
    sum.written += std::min(most, times * static_cast<double>(a.sectors_written));
  }
  return sum;
}

// Clocks of an SM for all of its blocks, from those that were simulated.
double all_blocks(const SmResult& sm, std::uint64_t simulated, std::uint64_t all,
                  std::uint64_t resident) {
  if (all <= simulated) return sm.clocks;
  std::vector<double> ends = sm.block_end;
  std::sort(ends.begin(), ends.end());
  // Between the end of the first round and that of the one before the last the SM is full.
  const std::size_t from = std::min<std::size_t>(resident, ends.size()) - 1;
  const std::size_t to = ends.size() > 2 * resident ? ends.size() - resident - 1 : ends.size() - 1;
  const double per_block = to > from && ends[to] > ends[from]
                               ? (ends[to] - ends[from]) / static_cast<double>(to - from)
                               : sm.clocks / static_cast<double>(simulated);
  return sm.clocks + per_block * static_cast<double>(all - simulated);
}

// Standard deviation over mean of the PTX instructions of the blocks that were executed.
double spread(const Recording& recording, std::size_t blocks) {
  double sum = 0, squares = 0, count = 0;
  const auto add = [&](const BlockRecord& block) {
    double own = 0;
    for (const WarpRecord& warp : block.warps) own += static_cast<double>(warp.instructions);
    sum += own;
    squares += own * own;
    ++count;
  };
  for (std::size_t b = 0; b < blocks; ++b) add(recording.blocks[b]);
  for (const BlockRecord& block : recording.probes)
    if (!block.warps.empty()) add(block);
  return sum > 0 ? std::sqrt(std::max(0.0, squares * count / (sum * sum) - 1)) : 0;
}

// How many times as much as SM 0 the SM executes that decides.
double unevenness(const LaunchCounters& counters, double busy_sms, bool many_rounds) {
  if (counters.sampled || counters.issued_by_sm.empty() || !counters.issued_by_sm[0]) return 1;
  double most = 0, sum = 0;
  for (const std::uint64_t n : counters.issued_by_sm) {
    most = std::max(most, static_cast<double>(n));
    sum += static_cast<double>(n);
  }
  // With more blocks than places the SM that is done first gets the next block.
  return (many_rounds ? sum / busy_sms : most) / static_cast<double>(counters.issued_by_sm[0]);
}

void by_line(const SmResult& sm, const MachineCode& code, const LaunchCounters& counters,
             PredictedTime& out) {
  std::map<std::uint32_t, PredictedLine> lines;
  for (std::size_t i = 0; i < code.code.size() && i < sm.stalls_by_instr.size(); ++i) {
    if (!sm.issued_by_instr[i]) continue;
    PredictedLine& line = lines[code.code[i].ptx_line];
    line.ptx_line = code.code[i].ptx_line;
    line.issued += static_cast<double>(sm.issued_by_instr[i]);
    line.stalls.resize(kStalls);
    for (int s = 0; s < kStalls; ++s)
      line.stalls[static_cast<std::size_t>(s)] +=
          static_cast<double>(sm.stalls_by_instr[i][static_cast<std::size_t>(s)]);
  }
  for (const InstrReport& instr : counters.instructions) {
    const auto line = lines.find(instr.ptx_line);
    if (line == lines.end()) continue;
    line->second.file = instr.file;
    line->second.line = instr.line;
  }
  for (auto& [number, line] : lines) out.lines.push_back(std::move(line));
}

}  // namespace

PredictedTime predict(const Recording& recording, const LaunchCounters& counters,
                      const MachineCodeOrWhy& code, const DeviceSpec& device, bool cooperative,
                      std::vector<Activity>* timeline) {
  PredictedTime out;
  out.asked = true;
  const Timing timing = timing_of(device);
  const auto refuse = [&](std::string why) {
    out.why = std::move(why);
    return out;
  };
  if (!timing.why.empty()) return refuse(timing.why);
  if (!code.why.empty()) return refuse(code.why);
  if (!recording.why.empty()) return refuse(counters.kernel + ": " + recording.why);
  const Walker walker(code.code, recording.layout);
  if (!walker.why().empty()) return refuse(counters.kernel + ": " + walker.why());

  Played played;
  Walker::Agreement agreement;
  std::size_t blocks = 0;
  std::uint64_t length = 0;
  bool cut = false;
  for (const BlockRecord& block : recording.blocks) {
    if (block.warps.empty()) break;
    if (block.cut && blocks > 0) break;
    auto& ways = played.ways.emplace_back();
    std::uint64_t instructions = 0;
    for (const WarpRecord& warp : block.warps) {
      ways.push_back(walker.walk(warp));
      if (ways.back().lost) return refuse(counters.kernel + ": " + ways.back().why);
      instructions += walker.length(ways.back());
      walker.compare(warp, ways.back(), agreement);
    }
    length += instructions;
    played.instructions.push_back(instructions);
    ++blocks;
    cut |= block.cut;
    if (length > kMostSimulated) break;
  }
  if (blocks == 0) return refuse(counters.kernel + ": no block of it was recorded");
  out.agreement = 1 - agreement.share();
  if (agreement.share() > kMostDiffering)
    return refuse(counters.kernel + ": machine code and PTX take different ways (" +
                  agreement.worst + ")");
  if (cut)
    return refuse(counters.kernel + ": one block of it executes too much to be recorded");

  const Occupancy occupancy = occupancy_of(counters, device);
  const auto resident = static_cast<std::uint64_t>(std::max(1, occupancy.blocks_per_sm));
  const std::uint64_t of_sm = std::max<std::uint64_t>(blocks, recording.blocks_of_sm);
  const std::uint64_t together = std::min(resident, of_sm);

  const double busy_sms = static_cast<double>(
      std::min<std::uint64_t>(recording.grid_blocks, static_cast<std::uint64_t>(device.sm_count)));
  const double uneven = unevenness(counters, busy_sms, of_sm > 2 * resident);
  if (uneven > kMostUneven || uneven < 1 / kMostUneven ||
      (counters.sampled && spread(recording, blocks) > kMostSpread))
    return refuse(counters.kernel + ": how much a block does differs from block to block, so that a "
                  "few of them do not tell" +
                  (counters.sampled ? " (VGPU_TIME=1 executes all)" : ""));

  SmRequest request;
  request.code = &code.code;
  request.timing = &timing;
  request.blocks = blocks;
  request.resident = static_cast<int>(resident);
  request.block = [&](std::uint64_t n) {
    BlockSteps steps;
    for (std::size_t w = 0; w < recording.blocks[n].warps.size(); ++w)
      steps.push_back(walker.steps(recording.blocks[n].warps[w], played.ways[n][w]));
    return steps;
  };
  request.l1_bytes =
      l1_beside_shared(device, counters.static_shared + counters.dynamic_shared,
                       static_cast<int>(together));
  const double share =
      static_cast<double>(recording.grid_blocks) / static_cast<double>(std::min<std::size_t>(
          blocks, static_cast<std::size_t>(together)));
  const Traffic asked = traffic(walker, recording, played,
                                std::min<std::size_t>(blocks, together), request.l1_bytes);
  const Distinct distinct = distinct_sectors(counters, recording);
  const double l2_sectors = asked.beyond * share;
  if (counters.cache.modelled) {
    double l2 = 0, read = 0;
    for (const CacheCounters& c : counters.cache.by_access) {
      l2 += static_cast<double>(c.l2_sectors);
      read += static_cast<double>(c.dram_read);
    }
    request.l2_miss = l2 > 0 ? read / l2 : 0;
  } else if (l2_sectors > 0) {
    request.l2_miss = std::min(1.0, distinct.read / l2_sectors);
  }
  if (asked.stored > 0)
    request.l2_written = std::min(1.0, distinct.written / (asked.stored * share));
  out.l2_miss_rate = request.l2_miss;
  out.l1_hit_rate = asked.asked > 0 ? 1 - asked.beyond / asked.asked : 0;
  // Clocks a microsecond.
  const double clock = device.load_clock_mhz > 0 ? device.load_clock_mhz : device.sm_clock_mhz;
  const double dram_bytes_us = device.dram_gb_s * timing.dram_share.value * 1e3;
  // SMs that work at the same time share the DRAM; what idle ones leave, one cannot take in full.
  request.l2_bytes_per_clock = timing.l2_bytes_per_clock.value;
  request.dram_bytes_per_clock =
      std::min(dram_bytes_us / clock / busy_sms, timing.l2_bytes_per_clock.value);
  request.timeline_blocks = timeline ? static_cast<int>(together) : 0;
  SmResult sm = simulate(request);
  if (*sm.stuck) return refuse(counters.kernel + ": the simulated warps wait for ever (" + sm.stuck + ")");
  if (timeline) *timeline = std::move(sm.timeline);

  out.blocks_simulated = blocks;
  out.blocks_of_sm = of_sm;
  double clocks = all_blocks(sm, blocks, of_sm, together);
  clocks *= uneven;  // blocks of other SMs may have more to do than those that were recorded
  out.clocks = clocks;
  out.sm_us = clocks / clock;
  out.dram_us = counters.cache.modelled
                    ? static_cast<double>(counters.cache.dram_read + counters.cache.dram_written) *
                          32 / dram_bytes_us
                    : (distinct.read + distinct.written) * 32 / dram_bytes_us;
  out.launch_us = timing.launch_us.value + (cooperative ? timing.cooperative_us.value : 0);
  std::uint64_t barriers = 0;
  for (const BlockRecord& block : recording.blocks)
    barriers = std::max(barriers, block.grid_barriers);
  out.barrier_us = static_cast<double>(barriers) * timing.grid_barrier_us.value;
  out.us = out.launch_us + std::max(out.sm_us, out.dram_us) + out.barrier_us;
  out.error = kStatedError;
  out.issue_share =
      static_cast<double>(sm.issued) / (sm.clocks * std::max(1, device.schedulers_per_sm));
  out.machine_instructions = static_cast<double>(length) / static_cast<double>(blocks) *
                             static_cast<double>(recording.grid_blocks);
  out.bytes_in_flight = sm.bytes_in_flight;
  out.bytes_wanted = request.dram_bytes_per_clock * timing.dram_latency.value;
  double all = 0;
  for (const double s : sm.stalls) all += s;
  for (int s = 0; s < kStalls; ++s) {
    out.stall_names.emplace_back(stall_name(static_cast<Stall>(s)));
    out.stalls.push_back(all > 0 ? sm.stalls[static_cast<std::size_t>(s)] / all : 0);
  }
  by_line(sm, code.code, counters, out);
  return out;
}

}  // namespace vgpu::time
