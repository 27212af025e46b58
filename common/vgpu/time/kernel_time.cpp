#include "kernel_time.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <unordered_map>

#include "../profile/cache.h"
#include "../profile/report.h"
#include "walk.h"

namespace vgpu::time {
namespace {

// Memory instructions whose counts differ between PTX and machine code by more than this share: the
// branches were not understood, and a time from them would be made up. Below, the instructions that are
// too many or too few are a third of the stated error at most.
constexpr double kMostDiffering = 0.08;

// At most so many machine instructions are simulated. The rest is assumed to take as long each.
constexpr std::uint64_t kMostSimulated = 40u << 20;

constexpr const char* kDiffers =
    "how much a block does differs from block to block, so that a few of them do not tell";

struct Played {
  std::vector<std::vector<Walker::Way>> ways;  // by block, warp
};

// Sectors that the blocks of one SM ask of the L2, with an L1 in between and the warps taking turns
// at each memory instruction.
struct Traffic {
  double asked = 0, beyond = 0;  // load sectors asked of the L1, and its misses
  double copied = 0;             // by the copy engine into shared memory: none asks the L1
  double stored = 0;  // sectors of stores, of those by the copy engine and its reductions as well
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
        if (!step.event) continue;
        const Kind kind = walker.kind(step.instr);
        if (kind == Kind::bulk_copy)
          (step.event->brings() ? sum.copied : sum.stored) += step.event->engine_sectors();
        if (step.event->lines.empty()) continue;
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

// Bytes that a launch reads and writes at all. When only some blocks were executed, all of them are taken to
// touch so many times as much, up to the sizes of the allocations.
std::vector<Touched> touched_arrays(const LaunchCounters& counters, const Recording& recording) {
  const auto executed =
      (recording.blocks.size() + recording.probes.size()) * recording.cluster_blocks;
  const double times = counters.sampled
                           ? static_cast<double>(recording.grid_blocks) /
                                 static_cast<double>(std::max<std::uint64_t>(1, executed))
                           : 1;
  std::vector<Touched> arrays;
  for (const AllocationReport& a : counters.allocations) {
    const auto bytes = [&](std::uint64_t sectors) {
      return std::min(static_cast<double>(a.bytes),
                      times * static_cast<double>(sectors) * kSectorBytes);
    };
    arrays.push_back({a.address, a.bytes, bytes(a.sectors_read), bytes(a.sectors_written)});
  }
  return arrays;
}

// Clocks for which lines of the L2 are busy with atomic operations: the busiest one, and all lines with
// those of one block.
struct AtomicLines {
  double busiest = 0, of_block = 0;
};
// Blocks of all parts of the grid have been looked at. An address that at least a quarter of them
// shares is taken to be every block's; another one for those blocks' own.
constexpr double kSharedByAll = 0.25;
AtomicLines atomic_lines(const Recording& recording, const Walker& walker, const Timing& timing) {
  AtomicLines sum;
  struct Line {
    double clocks = 0, blocks = 0;
  };
  std::unordered_map<std::uint64_t, Line> lines;
  double blocks = 0;
  const auto add = [&](const BlockRecord& block) {
    if (block.warps.empty()) return;
    ++blocks;
    std::unordered_map<std::uint64_t, double> own;
    for (const auto& [place, line] : block.atomics)
      own[place.line] += walker.joins_lanes(place.slot)
                             ? timing.line_clocks_of(line.requests, line.requests, 0)
                             : timing.line_clocks_of(line.requests, line.lanes, line.meeting);
    for (const auto& [line, clocks] : own) {
      lines[line].clocks += clocks;
      ++lines[line].blocks;
      sum.of_block += clocks;
    }
  };
  for (const BlockRecord& block : recording.blocks) add(block);
  for (const BlockRecord& block : recording.probes) add(block);
  for (const auto& [number, line] : lines) {
    const bool everybodys = line.blocks > 1 && line.blocks >= kSharedByAll * blocks;
    const double times = everybodys ? static_cast<double>(recording.grid_blocks) / blocks : 1;
    sum.busiest = std::max(sum.busiest, times * line.clocks);
  }
  if (blocks > 0) sum.of_block /= blocks;
  return sum;
}

double instructions_of(const BlockRecord& block) {
  double sum = 0;
  for (const WarpRecord& warp : block.warps) sum += static_cast<double>(warp.instructions);
  return sum;
}

// Clocks of an SM for all of its blocks, from the clocks of the simulated ones. `left`: how many
// blocks were not simulated, in blocks with the average work of the simulated ones.
double all_blocks(const SmResult& sm, const Recording& recording, std::size_t simulated,
                  double left, std::uint64_t resident) {
  if (left == 0) return sm.clocks;
  std::vector<std::pair<double, double>> ends;  // clock, instructions
  double all = 0;
  for (std::size_t b = 0; b < simulated; ++b) {
    ends.emplace_back(sm.block_end[b], instructions_of(recording.blocks[b]));
    all += ends.back().second;
  }
  std::sort(ends.begin(), ends.end());
  // Between the end of the first round and that of the one before the last the SM is full.
  const std::size_t from = std::min<std::size_t>(resident, ends.size()) - 1;
  const std::size_t to = ends.size() > 2 * resident ? ends.size() - resident - 1 : ends.size() - 1;
  double between = 0;
  for (std::size_t b = from + 1; b <= to; ++b) between += ends[b].second;
  const double per_instruction = between > 0 && ends[to].first > ends[from].first
                                     ? (ends[to].first - ends[from].first) / between
                                     : sm.clocks / all;
  return sm.clocks + per_instruction * left * all / static_cast<double>(simulated);
}

// What the other blocks of the SM do, as blocks that do as much as the simulated ones: from what all of
// them executed, or, when only some were executed, from what these did.
double blocks_left(const Recording& recording, const LaunchCounters& counters,
                   std::size_t simulated, std::uint64_t of_sm) {
  if (of_sm <= simulated) return 0;
  double own = 0;
  for (std::size_t b = 0; b < simulated; ++b) own += instructions_of(recording.blocks[b]);
  const auto left = static_cast<double>(of_sm - simulated);
  if (own == 0) return left;
  own /= static_cast<double>(simulated);
  if (!counters.sampled && recording.cluster_blocks == 1 &&
      recording.sm < counters.issued_by_sm.size() && counters.issued_by_sm[recording.sm])
    return std::max(0.0, static_cast<double>(counters.issued_by_sm[recording.sm]) / own -
                             static_cast<double>(simulated));
  double sum = own * static_cast<double>(simulated), count = static_cast<double>(simulated);
  for (const BlockRecord& block : recording.probes)
    if (!block.warps.empty()) {
      sum += instructions_of(block);
      ++count;
    }
  return left * sum / count / own;
}

// PTX instructions of the grid over those of the simulated blocks. Where these are the busiest SM's, others
// have less.
double grid_over_simulated(const Recording& recording, const LaunchCounters& counters,
                           std::size_t simulated) {
  const auto grid = static_cast<double>(recording.grid_blocks);
  double own = 0;
  for (std::size_t b = 0; b < simulated; ++b) own += instructions_of(recording.blocks[b]);
  if (recording.cluster_blocks > 1 || own == 0) return grid / static_cast<double>(simulated);
  double sum = own, count = static_cast<double>(simulated);
  if (!counters.sampled && !counters.issued_by_sm.empty()) {
    sum = 0;
    for (const std::uint64_t n : counters.issued_by_sm) sum += static_cast<double>(n);
    return sum / own;
  }
  for (const BlockRecord& block : recording.probes)
    if (!block.warps.empty()) {
      sum += instructions_of(block);
      ++count;
    }
  return sum / count * grid / own;
}

// The PTX instructions of the blocks that were executed: the standard deviation of their mean, over that mean.
double mean_off_by(const Recording& recording, std::size_t blocks) {
  double sum = 0, squares = 0, count = 0;
  const auto add = [&](const BlockRecord& block) {
    const double own = instructions_of(block);
    sum += own;
    squares += own * own;
    ++count;
  };
  for (std::size_t b = 0; b < blocks; ++b) add(recording.blocks[b]);
  for (const BlockRecord& block : recording.probes)
    if (!block.warps.empty()) add(block);
  if (sum == 0) return 0;
  return std::sqrt(std::max(0.0, squares * count / (sum * sum) - 1) / count);
}

// How many times as much as the simulated block, the only one of its SM, the longest of the blocks that
// were looked at executes.
double longest_of_one_each(const Recording& recording) {
  const double own = instructions_of(recording.blocks[0]);
  double most = own;
  for (const BlockRecord& block : recording.probes)
    if (!block.warps.empty()) most = std::max(most, instructions_of(block));
  return own > 0 ? most / own : 1;
}

// What the simulated SM executes of a launch, what the SM with the most, and all. Of a cluster's SMs, which
// are neighbours, each counts as their mean: its blocks wait for each other, and which of them asks more
// often whether the others are there says nothing.
struct OfSms {
  double own = 0, most = 0, sum = 0;
};
OfSms of_sms(const Recording& recording, const std::vector<std::uint64_t>& by_sm) {
  const std::size_t together = std::max<std::size_t>(1, recording.cluster_blocks);
  OfSms of;
  for (std::size_t sm = 0; sm < by_sm.size(); sm += together) {
    double of_cluster = 0;
    const std::size_t end = std::min(sm + together, by_sm.size());
    for (std::size_t i = sm; i < end; ++i) of_cluster += static_cast<double>(by_sm[i]);
    const double mean = of_cluster / static_cast<double>(together);
    if (sm <= recording.sm && recording.sm < end) of.own = mean;
    of.most = std::max(of.most, mean);
    of.sum += of_cluster;
  }
  return of;
}

// How many times as long as the simulated SM a launch takes of which all blocks meet at barriers of the
// grid. From one barrier to the next each SM waits for the one that has most to do there.
double stretch_of_barriers(const Recording& recording, const LaunchCounters& counters,
                           const SmResult& sm) {
  std::vector<std::uint64_t> rest = counters.issued_by_sm;
  double clocks = 0, begin = 0;
  const auto add = [&](const std::vector<std::uint64_t>& by_sm, double end) {
    const OfSms of = of_sms(recording, by_sm);
    clocks += (end - begin) * (of.own > 0 ? of.most / of.own : 1);
    begin = end;
  };
  for (std::size_t k = 0; k < sm.grid_barriers.size(); ++k) {
    const std::vector<std::uint64_t>& here = counters.issued_to_grid_barrier[k];
    add(here, sm.grid_barriers[k]);
    for (std::size_t i = 0; i < rest.size(); ++i) rest[i] -= std::min(rest[i], here[i]);
  }
  add(rest, sm.clocks);
  return clocks / sm.clocks;
}

// How many times as much as the simulated SM the one executes that decides.
double unevenness(const Recording& recording, const LaunchCounters& counters, double busy_sms,
                  bool many_rounds) {
  if (counters.sampled && recording.most_of_sm > 0) {
    double own = 0;
    for (const BlockRecord& block : recording.blocks) own += instructions_of(block);
    return own > 0 ? recording.most_of_sm / own : 1;
  }
  if (counters.sampled) return recording.blocks_of_sm == 1 ? longest_of_one_each(recording) : 1;
  if (recording.sm >= counters.issued_by_sm.size() || !counters.issued_by_sm[recording.sm])
    return 1;
  const OfSms of = of_sms(recording, counters.issued_by_sm);
  // With more blocks than places the SM that is done first gets the next block.
  return (many_rounds ? of.sum / busy_sms : of.most) / of.own;
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

// One prediction, from what was recorded to the times. Each step returns "" or why there is none.
class Prediction {
 public:
  Prediction(const Recording& recording, const LaunchCounters& counters, const MachineCode& code,
             const DeviceSpec& device, const Timing& timing, const Residency& left,
             const std::vector<Touched>& arrays)
      : recording_(recording),
        counters_(counters),
        device_(device),
        timing_(timing),
        left_(left),
        arrays_(arrays),
        code_(code),
        walker_(code, recording.layout) {
    out.asked = true;
  }
  PredictedTime out;

  // Which machine instructions the recorded blocks execute.
  std::string walk() {
    if (!walker_.why().empty()) return walker_.why();
    Walker::Agreement agreement;
    bool cut = false;
    for (const BlockRecord& block : recording_.blocks) {
      if (block.warps.empty() || (block.cut && blocks_ > 0)) break;
      auto& ways = played_.ways.emplace_back();
      for (const WarpRecord& warp : block.warps) {
        ways.push_back(walker_.walk(warp));
        if (ways.back().lost) return ways.back().why;
        length_ += walker_.length(ways.back());
        multiplies_ |= walker_.multiplies(ways.back());
        walker_.compare(warp, ways.back(), agreement);
      }
      ++blocks_;
      cut |= block.cut;
      if (length_ > kMostSimulated) break;
    }
    if (blocks_ == 0) return "no block of it was recorded";
    out.agreement = 1 - agreement.share();
    if (agreement.share() > kMostDiffering)
      return "machine code and PTX take different ways (" + agreement.worst + ")";
    return cut ? "one block of it executes too much to be recorded" : "";
  }

  // What one SM gets, and whether the recorded blocks tell how much that is.
  std::string place() {
    resident_ =
        static_cast<std::uint64_t>(std::max(1, occupancy_of(counters_, device_).blocks_per_sm));
    of_sm_ = std::max<std::uint64_t>(blocks_, recording_.blocks_of_sm);
    together_ = std::min(resident_, of_sm_);
    busy_sms_ = static_cast<double>(std::min<std::uint64_t>(
        recording_.grid_blocks, static_cast<std::uint64_t>(device_.sm_count)));
    uneven_ = stretch_ = unevenness(recording_, counters_, busy_sms_, of_sm_ > 2 * resident_);
    // The busiest SM decides only where all blocks of an SM run together. The SMs with the last
    // blocks of a ragged grid do not count.
    const bool by_mean =
        counters_.sampled && recording_.blocks_of_sm > 1 && recording_.most_of_sm == 0;
    if (uneven_ <= kMostUneven && uneven_ >= 1 / kMostUneven &&
        !(by_mean && mean_off_by(recording_, blocks_) > kMostOffBy))
      return "";
    return kDiffers + std::string(counters_.sampled ? " (VGPU_TIME=1 executes all)" : "");
  }

  // Plays the blocks on the SM.
  std::string play(SimulatedBlocks* more) {
    SmRequest request;
    request.code = &code_;
    request.timing = &timing_;
    request.blocks = blocks_;
    request.resident = static_cast<int>(resident_);
    request.block = [this](std::uint64_t n) {
      BlockSteps steps;
      for (std::size_t w = 0; w < recording_.blocks[n].warps.size(); ++w)
        steps.push_back(walker_.steps(recording_.blocks[n].warps[w], played_.ways[n][w]));
      return steps;
    };
    request.l1_bytes = l1_beside_shared(device_, counters_.static_shared + counters_.dynamic_shared,
                                        static_cast<int>(together_));
    request.timeline_blocks = !more ? 0 : more->first_alone ? 1 : static_cast<int>(together_);
    share_traffic(request);
    sm_ = simulate(request);
    if (*sm_.stuck) return std::string("the simulated warps wait for ever (") + sm_.stuck + ")";
    if (!sm_.grid_barriers.empty() &&
        sm_.grid_barriers.size() == counters_.issued_to_grid_barrier.size())
      stretch_ = stretch_of_barriers(recording_, counters_, sm_);
    if (stretch_ > kMostUneven) return kDiffers;
    if (more)
      *more = {more->first_alone, std::move(sm_.timeline), sm_.issued_by_instr, sm_.stalls_by_instr,
               sm_.clocks};
    out.bytes_wanted = request.dram_bytes_per_clock * timing_.dram_latency.value;
    return "";
  }

  void add_up(bool cooperative, bool in_graph) {
    out.blocks_simulated = blocks_;
    out.blocks_of_sm = of_sm_;
    // Blocks of other SMs may have more work than the recorded ones.
    out.clocks =
        stretch_ * all_blocks(sm_, recording_, blocks_,
                              blocks_left(recording_, counters_, blocks_, of_sm_), together_);
    out.clock_mhz = clock();
    out.clock_known = !multiplies_ || device_.tensor_clock_mhz > 0;
    out.sm_us = out.clocks / clock();
    double accesses = 0;
    for (const Kind kind :
         {Kind::shared_load, Kind::shared_store, Kind::shared_atomic, Kind::matrix_load,
          Kind::matrix_store, Kind::global_load, Kind::global_store, Kind::global_atomic,
          Kind::local_load, Kind::local_store, Kind::async_copy})
      accesses += sm_.busy_by_kind[static_cast<std::size_t>(kind)];
    const double shuffles = sm_.busy_by_kind[static_cast<std::size_t>(Kind::shuffle)];
    out.memory_clocks = (accesses + shuffles) * uneven_ * static_cast<double>(of_sm_) /
                        static_cast<double>(blocks_);
    out.joined_accesses = joined(accesses);
    double read = dram_read_, written = dram_written_;
    if (counters_.cache.modelled) {
      read = static_cast<double>(counters_.cache.dram_read) * kSectorBytes;
      written = static_cast<double>(counters_.cache.dram_written) * kSectorBytes;
    }
    out.dram_bytes = read + written;
    out.dram_us = (read + written * timing_.dram_written.value) / dram_bytes_us();
    out.launch_us = (in_graph ? timing_.graph_node_us.value : timing_.launch_us.value) +
                    (cooperative ? timing_.cooperative_us.value : 0);
    std::uint64_t barriers = 0;
    for (const BlockRecord& block : recording_.blocks)
      barriers = std::max(barriers, block.grid_barriers);
    out.barrier_us = static_cast<double>(barriers) * timing_.grid_barrier_us.value;
    out.us = out.launch_us + std::max(out.sm_us, out.dram_us) + out.barrier_us;
    out.error = kStatedError;
    out.issue_share =
        static_cast<double>(sm_.issued) / (sm_.clocks * std::max(1, device_.schedulers_per_sm));
    out.machine_instructions =
        static_cast<double>(length_) * grid_over_simulated(recording_, counters_, blocks_);
    for (const PipeUse& pipe : sm_.pipes)
      out.pipes.push_back({std::string(pipe.name),
                           out.machine_instructions * static_cast<double>(pipe.issued) /
                               static_cast<double>(sm_.issued),
                           pipe.share});
    out.bytes_in_flight = sm_.bytes_in_flight;
    double all = 0;
    for (const double s : sm_.stalls) all += s;
    for (int s = 0; s < kStalls; ++s) {
      out.stall_names.emplace_back(stall_name(static_cast<Stall>(s)));
      out.stalls.push_back(all > 0 ? sm_.stalls[static_cast<std::size_t>(s)] / all : 0);
    }
    by_line(sm_, code_, counters_, out);
  }

 private:
  // Clocks a microsecond.
  double clock() const { return device_.clock_mhz(multiplies_); }
  // The clocks of the simulated blocks' accesses over those that PTX's accesses would take: both of an
  // instruction of PTX, since the simulated blocks are not all that one SM executes.
  double joined(double accesses) const {
    double by_ptx = 0, all = 0, own = 0;
    for (const auto* by_sm : {&counters_.l1_clocks_by_sm, &counters_.shared_clocks_by_sm})
      for (const double clocks : *by_sm) by_ptx += clocks;
    for (const std::uint64_t issued : counters_.issued_by_sm) all += static_cast<double>(issued);
    for (std::size_t b = 0; b < blocks_; ++b) own += instructions_of(recording_.blocks[b]);
    return by_ptx > 0 && own > 0 ? accesses / own * all / by_ptx : 1;
  }
  // What of the L2 holds data once.
  double l2_bytes() const { return timing_.l2_share.value * static_cast<double>(device_.l2_bytes); }
  double dram_bytes_us() const { return device_.dram_gb_s * timing_.dram_share.value * 1e3; }

  // What all SMs share, and this one's part of it: SMs that work at the same time share the DRAM; what
  // idle ones leave, one cannot take in full.
  void share_traffic(SmRequest& request) {
    const auto simulated = std::min<std::size_t>(blocks_, static_cast<std::size_t>(together_));
    const double times =
        static_cast<double>(recording_.grid_blocks) / static_cast<double>(simulated);
    const Traffic asked = traffic(walker_, recording_, played_, simulated, request.l1_bytes);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> cold;  // addresses
    for (const Touched& array : arrays_) {
      const double there = left_.there(array, l2_bytes());
      dram_read_ += array.read - there;
      if (there == 0) cold.emplace_back(array.address, array.address + array.size);
      dram_written_ += array.written;
    }
    request.cold = [cold](std::uint64_t line) {
      return std::any_of(cold.begin(), cold.end(), [&](const auto& of) {
        return of.first / kLineBytes <= line && line * kLineBytes < of.second;
      });
    };
    if (counters_.cache.modelled) {
      double l2 = 0, read = 0;
      for (const CacheCounters& c : counters_.cache.by_access) {
        l2 += static_cast<double>(c.l2_sectors);
        read += static_cast<double>(c.dram_read);
      }
      request.l2_miss = l2 > 0 ? read / l2 : 0;
    } else if (const double l2 = asked.beyond + asked.copied; l2 > 0) {
      request.l2_miss = std::min(1.0, dram_read_ / (l2 * times * kSectorBytes));
    }
    if (asked.stored > 0)
      request.l2_written = std::min(1.0, dram_written_ / (asked.stored * times * kSectorBytes));
    if (recording_.layout.global_atomics)
      if (const AtomicLines lines = atomic_lines(recording_, walker_, timing_); lines.of_block > 0)
        request.atomic_stretch = lines.busiest / (lines.of_block * static_cast<double>(of_sm_));
    out.l2_miss_rate = request.l2_miss;
    out.l1_hit_rate = asked.asked > 0 ? 1 - asked.beyond / asked.asked : 0;
    request.l2_bytes_per_clock = timing_.l2_bytes_per_clock.value;
    request.dram_bytes_per_clock =
        std::min(dram_bytes_us() / clock() / busy_sms_, timing_.l2_bytes_per_clock.value);
  }

  const Recording& recording_;
  const LaunchCounters& counters_;
  const DeviceSpec& device_;
  const Timing& timing_;
  const Residency& left_;  // before it
  const std::vector<Touched>& arrays_;
  const MachineCode& code_;
  const Walker walker_;
  Played played_;
  double dram_read_ = 0, dram_written_ = 0;  // bytes; without those that are in the L2 at the begin
  SmResult sm_;
  std::size_t blocks_ = 0;                                 // that are simulated
  std::uint64_t length_ = 0;                               // machine instructions of them
  bool multiplies_ = false;                                // on the tensor cores
  std::uint64_t resident_ = 1, of_sm_ = 1, together_ = 1;  // blocks of an SM
  double busy_sms_ = 1;
  double uneven_ = 1;   // how many times as much the busiest SM executes
  double stretch_ = 1;  // how many times as long the launch takes: as uneven_, or by its barriers
};

}  // namespace

PredictedTime predict(const Recording& recording, const LaunchCounters& counters,
                      const MachineCodeOrWhy& code, const DeviceSpec& device, bool cooperative,
                      Residency& left, SimulatedBlocks* blocks, bool in_graph) {
  const Timing timing = timing_of(device);
  const std::vector<Touched> arrays = touched_arrays(counters, recording);
  std::string why = !timing.why.empty() ? timing.why : !code.why.empty() ? code.why : recording.why;
  PredictedTime predicted;
  if (why.empty()) {
    Prediction prediction(recording, counters, code.code, device, timing, left, arrays);
    why = prediction.walk();
    if (why.empty()) why = prediction.place();
    if (why.empty()) why = prediction.play(blocks);
    if (why.empty()) {
      prediction.add_up(cooperative, in_graph);
      predicted = std::move(prediction.out);
    }
    if (!why.empty()) why = counters.kernel + ": " + why;
  } else if (why == recording.why) {
    why = counters.kernel + ": " + why;
  }
  left.touch(arrays);
  predicted.asked = true;
  predicted.why = std::move(why);
  return predicted;
}

}  // namespace vgpu::time
