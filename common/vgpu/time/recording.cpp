#include "recording.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "../core/access.h"
#include "../core/block.h"
#include "../core/cluster.h"
#include "../core/coalescing.h"
#include "../core/instruction_set.h"

namespace vgpu::time {
namespace {

constexpr std::uint64_t kLocalMemory = 1ull << 60;  // where local memory lies for the L1
constexpr std::size_t kPieces = 4096;               // line pieces that are allocated together
constexpr double kNoticeable = 1.05;                // so much more work than SM 0 has

// The block that the host thread runs now.
struct Running {
  const void* owner = nullptr;
  const Block* block = nullptr;
  void* state = nullptr;
};
thread_local Running running;

// How many different values lanes in `mask` have.
std::uint32_t different(const std::uint32_t* values, std::uint32_t mask) {
  std::array<std::uint32_t, kWarpSize> sorted;
  std::size_t count = 0;
  for (std::uint32_t rest = mask; rest; rest &= rest - 1)
    sorted[count++] = values[std::countr_zero(rest)];
  const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(count);
  std::sort(sorted.begin(), end);
  return static_cast<std::uint32_t>(std::unique(sorted.begin(), end) - sorted.begin());
}

// How many lanes share their address with how many: for each lane that is in `mask`, the lanes of the
// mask at its address, itself included; 0 for others.
std::array<std::uint8_t, kWarpSize> lanes_at_address(const std::uint64_t* addresses,
                                                     std::uint32_t mask) {
  std::array<std::uint8_t, kWarpSize> found{};
  for (std::uint32_t left = mask; left;) {
    const std::uint64_t at = addresses[std::countr_zero(left)];
    std::uint32_t same = 0;
    for (std::uint32_t rest = left; rest; rest &= rest - 1)
      if (addresses[std::countr_zero(rest)] == at) same |= rest & -rest;
    for (std::uint32_t rest = same; rest; rest &= rest - 1)
      found[static_cast<std::size_t>(std::countr_zero(rest))] =
          static_cast<std::uint8_t>(std::popcount(same));
    left &= ~same;
  }
  return found;
}

// The most lanes that want one bank of shared memory, those at the same address counted each.
std::uint8_t lanes_at_bank(const std::uint32_t* offsets, std::uint32_t mask, std::uint32_t bytes) {
  std::array<std::uint8_t, kSharedBanks> lanes{};
  for (std::uint32_t rest = mask; rest; rest &= rest - 1)
    for (std::uint32_t word = 0; word < std::max(1u, bytes / 4); ++word)
      ++lanes[(offsets[std::countr_zero(rest)] / 4 + word) % kSharedBanks];
  return *std::max_element(lanes.begin(), lanes.end());
}

// The k-th of numbers below `most` that are spread evenly, and in step with no period of the work: multiples of
// the golden ratio.
std::uint64_t spread(std::uint64_t k, std::uint64_t most) {
  return static_cast<std::uint64_t>(std::fmod(0.6180339887 * static_cast<double>(k), 1.0) *
                                    static_cast<double>(most));
}

}  // namespace

Recorder::Recorder(std::shared_ptr<Recording> into, int rounds)
    : recording_(std::move(into)), rounds_(rounds) {}

bool Recorder::watches(std::uint64_t cluster) const {
  return (cluster / stride_ < chosen_.size() && chosen_[cluster / stride_] == cluster) ||
         std::find(probes_.begin(), probes_.end(), cluster) != probes_.end();
}

// A few clusters all over the grid. Where all blocks of an SM run together, as those of a persistent
// kernel, these are all of some SMs: the busiest of them decides.
void Recorder::choose_probes(std::uint64_t clusters) {
  if (whole_sms_) {
    const std::uint64_t sms = std::max(kLeastSms, kProbes / recording_->blocks_of_sm);
    for (std::uint64_t k = 1; k <= sms; ++k) {
      const std::uint64_t sm = spread(k, stride_);
      for (std::uint64_t cluster = sm; cluster < clusters; cluster += stride_)
        if (!watches(cluster)) probes_.push_back(cluster);
    }
    return;
  }
  for (std::uint64_t k = 0; k < kProbes; ++k) {
    std::uint64_t cluster = (2 * k + 1) * clusters / (2 * kProbes);
    if (cluster % stride_ == 0 && cluster + 1 < clusters) ++cluster;  // on an SM other than 0
    if (!watches(cluster)) probes_.push_back(cluster);
  }
}

void Recorder::launch_begin(Launch& launch) {
  lay_out(launch);
  const LaunchRequest& request = launch.request;
  const auto sms = static_cast<std::uint64_t>(std::max(1, launch.machine.spec().sm_count));
  cluster_blocks_ = request.cluster.count();
  stride_ = std::max<std::uint64_t>(1, sms / cluster_blocks_);
  const std::uint64_t clusters = request.grid.count() / cluster_blocks_;
  recording_->grid_blocks = request.grid.count();
  recording_->blocks_of_sm = (clusters + stride_ - 1) / stride_;
  const auto resident = static_cast<std::uint64_t>(std::max(1, request.resident_blocks_per_sm));
  const std::uint64_t of_sm = recording_->blocks_of_sm;
  // Which block an SM gets in a later round depends on when it has a place for it.
  const bool any = of_sm > 2 * resident;
  if (recording_->why.empty())
    for (std::uint64_t k = 0; k < std::min(of_sm, static_cast<std::uint64_t>(rounds_) * resident);
         ++k)
      chosen_.push_back(std::min(clusters - 1, k * stride_ + (any ? spread(k, stride_) : 0)));
  recording_->blocks.resize(chosen_.size());
  recording_->cluster_blocks = cluster_blocks_;
  whole_sms_ = recording_->blocks_of_sm > 1 && recording_->blocks_of_sm <= resident;
  if ((launch.only_sampled || recording_->layout.global_atomics || whole_sms_) && !chosen_.empty())
    choose_probes(clusters);
  recording_->probes.resize(probes_.size());
}

void Recorder::block_begin(Block& block) {
  if (!watches(block.cluster.number) || block.rank != 0) return;
  const auto probe = std::find(probes_.begin(), probes_.end(), block.cluster.number);
  BlockRecord& record = probe != probes_.end()
                            ? recording_->probes[static_cast<std::size_t>(probe - probes_.begin())]
                            : recording_->blocks[block.cluster.number / stride_];
  auto state = std::make_unique<BlockState>();
  state->record = &record;
  state->probe = probe != probes_.end();
  record.linear = block.linear;
  record.warps.resize(block.warps.size());
  state->warps.resize(block.warps.size());
  const Layout& layout = recording_->layout;
  for (std::size_t w = 0; w < block.warps.size(); ++w) {
    record.warps[w].issued.resize(layout.ordinals);
    record.warps[w].outcomes.resize(layout.branches);
    record.warps[w].events.resize(layout.events);
    state->warps[w].branch.resize(layout.branches);
    state->warps[w].poll.resize(layout.events);
    state->warps[w].untold.resize(layout.events);
  }
  const std::lock_guard lock(mutex_);
  running_[&block] = std::move(state);
  running = {};
}

void Recorder::block_end(Block& block) {
  const std::lock_guard lock(mutex_);
  if (const auto found = running_.find(&block); found != running_.end())
    share_phases(*found->second);
  running_.erase(&block);
  running = {};
}

// The busiest of the SMs that were recorded as a whole becomes the one that is simulated.
void Recorder::launch_end(Launch&, std::vector<std::string>&) {
  if (!whole_sms_ || recording_->blocks.empty()) return;
  struct Sm {
    double instructions = 0;
    bool cut = false;
    std::vector<BlockRecord*> blocks;
  };
  std::map<std::uint64_t, Sm> sms;
  const auto add = [&](BlockRecord& block, std::uint64_t cluster) {
    Sm& sm = sms[cluster % stride_];
    for (const WarpRecord& warp : block.warps)
      sm.instructions += static_cast<double>(warp.instructions);
    sm.cut |= block.cut || block.warps.empty();
    sm.blocks.push_back(&block);
  };
  for (std::size_t i = 0; i < probes_.size(); ++i) add(recording_->probes[i], probes_[i]);
  for (std::size_t i = 0; i < recording_->blocks.size(); ++i)
    add(recording_->blocks[i], i * stride_);
  std::uint64_t chosen = 0;  // until one has noticeably more to do
  for (const auto& [number, sm] : sms) {
    recording_->most_of_sm = std::max(recording_->most_of_sm, sm.instructions);
    const double least = (chosen ? 1 : kNoticeable) * sms[chosen].instructions;
    if (!sm.cut && sm.instructions > least) chosen = number;
  }
  if (chosen == 0) return;
  std::vector<BlockRecord> blocks, probes;
  for (auto& [number, sm] : sms)
    for (BlockRecord* const block : sm.blocks)
      (number == chosen ? blocks : probes).push_back(std::move(*block));
  recording_->blocks_of_sm = blocks.size();
  recording_->sm = chosen * cluster_blocks_;
  recording_->blocks = std::move(blocks);
  recording_->probes = std::move(probes);
}

Recorder::BlockState* Recorder::state_of(const Block& block) {
  if (running.owner == this && running.block == &block)
    return static_cast<BlockState*>(running.state);
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(&block);
  running = {this, &block, found == running_.end() ? nullptr : found->second.get()};
  return static_cast<BlockState*>(running.state);
}

void Recorder::instruction(Warp& warp, const Instr& instr, std::uint32_t mask, std::uint32_t on) {
  BlockState* const block = state_of(*warp.block);
  const Layout::Line* const line = block ? recording_->layout.at(instr.ptx_line) : nullptr;
  if (!line) return;
  WarpState& state = block->warps[warp.index];
  WarpRecord& record = block->record->warps[warp.index];
  if (block->probe && (!whole_sms_ || state.cut)) {
    ++record.instructions;
    return;
  }
  if (state.cut) return;
  if (line->instr == &instr) ++record.issued[line->ordinal];
  if (++record.instructions % 1024 == 0) {
    auto& recorded = block->probe ? recorded_of_probes_ : recorded_;
    if (recorded.fetch_add(1024, std::memory_order_relaxed) > (block->probe ? kMost / 4 : kMost))
      state.cut = block->record->cut = true;
  }
  switch (line->role) {
    case Layout::Role::branch: {
      const std::uint8_t outcome =
          instr.flow == Flow::branch_table
              ? kTaken
              : static_cast<std::uint8_t>((on ? kTaken : 0) | (mask & ~on ? kNotTaken : 0));
      auto& outcomes = record.outcomes[line->slot];
      WarpState::Seen& seen = state.branch[line->slot];
      // A loop that only asks again whether others have got further is one question.
      const bool waits = !outcomes.empty() && outcomes.back() == outcome &&
                         seen.activity == state.activity && seen.polls != state.polls;
      seen = {state.activity, state.polls};
      if (!waits) outcomes.push_back(outcome);
      return;
    }
    case Layout::Role::memory:
    case Layout::Role::mbarrier:
    case Layout::Role::barrier: {
      MemoryEvent event;
      event.bypasses_l1 = line->bypasses_l1;
      if (on) event.mbarrier = line->mbarrier;
      record.events[line->slot].push_back(event);
      if (on && !line->polls) ++state.activity;
      return;
    }
    default:
      return;
  }
}

MemoryEvent* Recorder::last_event(Warp& warp, const Instr& instr, const Layout::Line*& line) {
  BlockState* const block = state_of(*warp.block);
  line = block ? recording_->layout.at(instr.ptx_line) : nullptr;
  if (!line || line->role < Layout::Role::memory || (block->probe && !whole_sms_) ||
      block->warps[warp.index].cut)
    return nullptr;
  auto& events = block->record->warps[warp.index].events[line->slot];
  return events.empty() ? nullptr : &events.back();
}

// Adds the lines that lanes touch to an event, in ascending order.
std::span<LinePiece> Recorder::add_lines(BlockRecord& record, MemoryEvent& event,
                                         const std::uint64_t* addresses, std::uint32_t mask,
                                         std::uint32_t bytes) {
  std::array<LinePiece, 128> found;
  std::size_t count = 0;
  const auto add = [&](std::uint64_t sector) {
    const LinePiece piece{sector >> 2, static_cast<std::uint8_t>(1u << (sector & 3))};
    if (count && found[count - 1].line == piece.line) {
      found[count - 1].sectors |= piece.sectors;
    } else if (count < found.size()) {
      found[count++] = piece;
    }
  };
  for (const LinePiece& piece : event.lines)
    if (count < found.size() / 2) found[count++] = piece;
  for (std::uint32_t rest = mask; rest; rest &= rest - 1) {
    const std::uint64_t at = addresses[std::countr_zero(rest)];
    for (std::uint64_t s = at / kSectorBytes; s <= (at + bytes - 1) / kSectorBytes; ++s) add(s);
  }
  std::sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count),
            [](const LinePiece& a, const LinePiece& b) { return a.line < b.line; });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (kept && found[kept - 1].line == found[i].line)
      found[kept - 1].sectors |= found[i].sectors;
    else
      found[kept++] = found[i];
  }
  if (record.pieces.empty() || record.pieces_used + kept > kPieces) {
    record.pieces.push_back(std::make_unique<LinePiece[]>(kPieces));
    recorded_.fetch_add(kPieces / 4, std::memory_order_relaxed);  // as large as so many events
    record.pieces_used = 0;
  }
  LinePiece* const to = record.pieces.back().get() + record.pieces_used;
  std::copy_n(found.begin(), kept, to);
  record.pieces_used += kept;
  event.lines = {to, kept};
  return {to, kept};
}

// What lanes at these addresses of global memory mean for the L2, line by line.
void Recorder::add_atomics(BlockRecord& record, const Layout::Line& line,
                           const std::uint64_t* addresses, std::uint32_t mask) {
  const auto at_address = lanes_at_address(addresses, mask);
  for (std::uint32_t left = mask; left;) {
    const std::uint64_t at = addresses[std::countr_zero(left)] / kLineBytes;
    AtomicLine& sum = record.atomics[{at, line.slot}];
    ++sum.requests;
    std::uint32_t sectors = 0;
    for (std::uint32_t rest = left; rest; rest &= rest - 1) {
      const auto lane = static_cast<std::size_t>(std::countr_zero(rest));
      if (addresses[lane] / kLineBytes != at) continue;
      left &= ~(rest & -rest);
      sectors |= 1u << (addresses[lane] / kSectorBytes % 4);
      ++sum.lanes;
      sum.meeting += at_address[lane] > 1;
    }
    sum.sectors += std::popcount(sectors);
  }
}

// A poll that finds what the one before found is the same poll; else the warp got further.
void Recorder::poll_or_activity(WarpState& state, const Layout::Line& line,
                                std::vector<MemoryEvent>& events) {
  WarpState::Seen& seen = state.poll[line.slot];
  const auto same = [](const MemoryEvent& a, const MemoryEvent& b) {
    return a.offset == b.offset && a.home == b.home && a.lines.size() == b.lines.size() &&
           std::equal(a.lines.begin(), a.lines.end(), b.lines.begin(),
                      [](const LinePiece& x, const LinePiece& y) {
                        return x.line == y.line && x.sectors == y.sectors;
                      });
  };
  if (events.size() > 1 && seen.activity == state.activity &&
      same(events.back(), events[events.size() - 2])) {
    events.erase(events.end() - 2);
    ++state.polls;
  } else {
    ++state.activity;
  }
  seen.activity = state.activity;
}

void Recorder::access(Warp& warp, const Instr& instr, std::uint32_t mask,
                      const Addresses& addresses, std::uint32_t bytes, Access access, Space space,
                      const Places& places) {
  const Layout::Line* line = nullptr;
  MemoryEvent* event = last_event(warp, instr, line);
  const bool at_l2 = line && line->atomic && space == Space::global;
  if (at_l2) add_atomics(*state_of(*warp.block)->record, *line, addresses.v, mask);
  if (!event) return;
  BlockState& block = *state_of(*warp.block);
  WarpState& state = block.warps[warp.index];
  auto& events = block.record->warps[warp.index].events[line->slot];
  const auto offset = static_cast<std::uint32_t>(addresses.v[std::countr_zero(mask)]);
  if (line->role == Layout::Role::mbarrier) {
    Block& home = places.owner ? *places.owner : *warp.block;
    // (Told once for each block that the lanes reach: the furthest decides when all are there.)
    event->home = std::max(event->home, static_cast<std::uint8_t>(home.rank));
    event->offset = offset;
    std::uint64_t sum = 0;
    const auto* operand =
        instr.a.valid() && line->mbarrier != MemoryEvent::Mbarrier::wait && instr.a_bits != 64
            ? warp.lanes<const std::uint32_t>(instr.a)
            : nullptr;
    for (std::uint32_t rest = mask; rest; rest &= rest - 1)
      sum += operand ? operand[std::countr_zero(rest)] : 1;
    event->count += static_cast<std::uint32_t>(sum);
    if (line->mbarrier == MemoryEvent::Mbarrier::arrive_expect) {
      event->bytes = event->count;
      event->count = static_cast<std::uint32_t>(std::popcount(mask));
      if (event->bytes == 0) event->mbarrier = MemoryEvent::Mbarrier::arrive;
    }
    if (cluster_blocks_ > 1 && (line->mbarrier == MemoryEvent::Mbarrier::expect ||
                                line->mbarrier == MemoryEvent::Mbarrier::arrive_expect))
      block.announced.push_back({static_cast<std::uint32_t>(warp.index), line->slot,
                                 static_cast<std::uint32_t>(events.size() - 1), offset,
                                 block.phases[offset]});
    if (line->mbarrier == MemoryEvent::Mbarrier::wait) {
      event->phase = block.phases[offset];
      poll_or_activity(state, *line, events);
    }
    return;
  }
  if (space == Space::global) {
    if (warp.block->launch.in_workspace(addresses.v[std::countr_zero(mask)])) {
      if (access == Access::atomic) ++block.record->grid_barriers;
      event->grid = access == Access::atomic ? MemoryEvent::Grid::arrive : MemoryEvent::Grid::look;
      event->phase = static_cast<std::uint32_t>(block.record->grid_barriers);
    }
    event->lane_bytes = static_cast<std::uint16_t>(bytes);
    event->words = static_cast<std::uint16_t>(
        std::max<std::uint32_t>(1, static_cast<std::uint32_t>(std::popcount(mask)) * bytes / 4));
    const auto pieces = add_lines(*block.record, *event, addresses.v, mask, bytes);
    if (at_l2) {
      const auto at_address = lanes_at_address(addresses.v, mask);
      for (std::uint32_t rest = mask; rest; rest &= rest - 1) {
        const auto lane = static_cast<std::size_t>(std::countr_zero(rest));
        for (LinePiece& piece : pieces) {
          if (piece.line != addresses.v[lane] / kLineBytes) continue;
          ++piece.lanes;
          piece.meeting = static_cast<std::uint8_t>(piece.meeting + (at_address[lane] > 1));
        }
        event->same_address = std::max(event->same_address, at_address[lane]);
      }
    }
    if (line->polls) poll_or_activity(state, *line, events);
    return;
  }
  if (space != Space::shared) return;
  if (event->bytes) return;  // a bulk copy: bulk_land() says all
  std::uint32_t offsets[kWarpSize];
  for (int lane = 0; lane < kWarpSize; ++lane)
    offsets[lane] = static_cast<std::uint32_t>(addresses.v[lane]);
  const SharedShape shape = shared_request(offsets, mask, bytes);
  event->lane_bytes = static_cast<std::uint16_t>(bytes);
  event->words = static_cast<std::uint16_t>(different(offsets, mask) * std::max(1u, bytes / 4));
  event->wavefronts = static_cast<std::uint16_t>(event->wavefronts + shape.wavefronts);
  if (line->atomic) {
    const auto at_address = lanes_at_address(addresses.v, mask);
    event->same_address = *std::max_element(at_address.begin(), at_address.end());
    event->same_bank = lanes_at_bank(offsets, mask, bytes);
  }
  if (places.owner && places.owner != warp.block)
    event->remote_lanes =  // block by block, where a request reaches several
        static_cast<std::uint16_t>(event->remote_lanes + std::popcount(mask));
  if (line->polls) {
    event->offset = offset;
    poll_or_activity(state, *line, events);
  }
}

void Recorder::local_access(Warp& warp, const Instr& instr, std::uint32_t mask,
                            const Addresses& physical, std::uint32_t bytes, Access) {
  const Layout::Line* line = nullptr;
  MemoryEvent* event = last_event(warp, instr, line);
  if (!event) return;
  // Blocks that are resident one after the other find the lines that the last one has left.
  const std::uint64_t place =
      warp.block->cluster.number / stride_ %
      static_cast<std::uint64_t>(std::max(1, warp.block->launch.request.resident_blocks_per_sm));
  const std::uint64_t base = kLocalMemory + (place * 64 + warp.index) * (1ull << 24);
  std::array<std::uint64_t, kWarpSize> addresses;
  for (std::size_t lane = 0; lane < kWarpSize; ++lane) addresses[lane] = base + physical.v[lane];
  add_lines(*state_of(*warp.block)->record, *event, addresses.data(), mask, bytes);
}

void Recorder::barrier_arrive(Warp& warp, const Instr& instr, std::uint32_t mask, int barrier,
                              bool) {
  const Layout::Line* line = nullptr;
  MemoryEvent* const event = last_event(warp, instr, line);
  if (!event) return;
  event->barrier = static_cast<std::uint8_t>(barrier);
  if (instr.b.valid())
    event->barrier_threads = warp.lanes<const std::uint32_t>(instr.b)[std::countr_zero(mask)];
}

void Recorder::mbarrier_phase(Block& home, std::uint32_t offset) {
  if (BlockState* block = state_of(home)) ++block->phases[offset];
}

}  // namespace vgpu::time
