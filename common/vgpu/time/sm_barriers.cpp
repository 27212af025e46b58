// Barriers of the simulated SM: of blocks, clusters and in shared memory.
#include <algorithm>
#include <cmath>

#include "sm.h"
#include "sm_machine.h"

namespace vgpu::time {
namespace {
constexpr std::size_t kClusterBarrier = 16;
}  // namespace

void Sm::barrier(Warp& warp, int w, const Op& op, const MemoryEvent* event, double at) {
  Block& block = *warp.block;
  const bool cluster = op.act == Act::cluster_barrier;
  const std::size_t number = cluster ? kClusterBarrier : event ? event->barrier & 15 : 0;
  Block::Barrier& barrier = block.barriers[number];
  settle(warp, op, at + op.latency, at + kSourcesRead);
  const bool arrived_before = cluster && !op.arrives_only && warp.cluster_phase > 0;
  if (arrived_before && barrier.phases >= warp.cluster_phase) {  // the others are all there
    warp.cluster_phase = 0;
    charge(warp, warp.step.instr, Stall::barrier, warp.cursor, barrier.free);
    warp.cursor = std::max(warp.cursor, barrier.free);
    return;
  }
  if (!arrived_before) {
    const std::uint32_t threads = cluster || !event ? 0 : event->barrier_threads;
    barrier.whole = threads == 0;
    barrier.expected = static_cast<int>((threads + 31) / 32);
    barrier.latency = op.latency;
    ++barrier.arrived;
  }
  warp.cluster_phase = cluster && op.arrives_only ? barrier.phases + 1 : 0;
  if (!op.arrives_only) {
    barrier.waiting.push_back(w);
    warp.held = true;
    warp.hold = Stall::barrier;
    warp.held_at = warp.step.instr;
  }
  complete(block, barrier, at);
}

void Sm::complete(Block& block, Block::Barrier& barrier, double at) {
  if (barrier.arrived < (barrier.whole ? block.running : barrier.expected)) return;
  barrier.arrived = 0;
  ++barrier.phases;
  // The last to arrive has not fetched its next instruction yet: it is let go by an event, too.
  const double free = barrier.free = std::ceil(at + barrier.latency);
  for (const int w : barrier.waiting) add({free, 0, Event::let_go, w, {}, nullptr, 0});
  barrier.waiting.clear();
}

// The warps of a warpgroup wait for each other before a product.
void Sm::meet_group(Warp& warp, int w, const Op& op, double at) {
  Block::Barrier& group = warp.block->groups[warp.index / kGroupWarps % kMostGroups];
  settle(warp, op, at + kSourcesRead, at + kSourcesRead);
  group.whole = false;
  group.expected = kGroupWarps;
  ++group.arrived;
  group.waiting.push_back(w);
  warp.held = true;
  warp.hold = Stall::barrier;
  warp.held_at = warp.step.instr;
  complete(*warp.block, group, at);
}

// A product of a warpgroup begins on all four tensor cores at once, when its four warps have issued it. It
// is asynchronous: those who use its result wait for its group. Its operands come through the one port
// of the shared memory.
void Sm::multiply(Warp& warp, int w, const Op& op, double at) {
  std::vector<int>& here = warp.block->multiplying[warp.index / kGroupWarps % kMostGroups];
  settle(warp, op, at + kSourcesRead, at + kSourcesRead);
  here.push_back(w);
  warp.held = true;
  warp.hold = Stall::math_pipe_throttle;
  warp.held_at = warp.step.instr;
  if (here.size() < kGroupWarps) return;
  const auto tensor_of = [&](int i) -> double& {
    const int scheduler = warps_[static_cast<std::size_t>(i)].scheduler;
    return schedulers_[static_cast<std::size_t>(scheduler)]
        .unit[static_cast<std::size_t>(Unit::tensor)];
  };
  double begin = at;
  // (Each has taken its unit when it was issued.)
  for (const int i : here) begin = std::max(begin, tensor_of(i) - op.interval);
  shared_ = std::max(shared_, begin) + op.shared;
  const double end = std::max(begin + op.interval, shared_);
  for (const int i : here) {
    Warp& other = warps_[static_cast<std::size_t>(i)];
    tensor_of(i) = end;
    other.products = end + op.latency;
    if (op.commits) other.product_groups.push_back(other.products);
    add({std::ceil(at), 0, Event::let_go, i, {}, nullptr, 0});
  }
  here.clear();
}

Block* Sm::home(const Block& block, std::uint8_t rank) {
  const auto cluster = static_cast<std::uint64_t>(std::max(1, request_.cluster_blocks));
  const std::uint64_t number =
      cluster == 1 ? block.number : block.number / cluster * cluster + rank;
  for (const auto& place : places_)
    if (place && place->number == number && place->running > 0) return place.get();
  return nullptr;
}

Mbarrier& Sm::find(Block& block, std::uint32_t offset) {
  for (Mbarrier& barrier : block.mbarriers)
    if (barrier.offset == offset) return barrier;
  block.mbarriers.push_back({.offset = offset});
  return block.mbarriers.back();
}

void Sm::change(Block& block, const MemoryEvent& event, double at) {
  using Do = MemoryEvent::Mbarrier;
  Mbarrier& barrier = find(block, event.offset);
  switch (event.mbarrier) {
    case Do::init:
      barrier = {.offset = event.offset, .expected = event.count, .arrivals = event.count};
      return;
    case Do::arrive:
      barrier.arrivals -= event.count;
      break;
    case Do::expect:
      barrier.bytes += event.count;
      break;
    case Do::arrive_expect:
      barrier.bytes += event.bytes ? event.bytes : event.count;
      barrier.arrivals -= event.bytes ? event.count : 1;
      break;
    case Do::complete:
      barrier.bytes -= event.bytes;
      shared_ = std::max(shared_, at) +
                event.bytes / static_cast<double>(kLineBytes) * timing_.wavefront_clocks.value;
      break;
    case Do::none:
    case Do::wait:
      return;
  }
  if (barrier.arrivals > 0 || barrier.bytes != 0) return;
  ++barrier.phases;
  barrier.arrivals = barrier.expected;
  advance(block, barrier, at);
}

// Lets those go on whose phase is complete.
void Sm::advance(Block& block, Mbarrier& barrier, double at) {
  std::size_t kept = 0;
  const std::uint32_t phases = barrier.phases, offset = barrier.offset;
  for (std::size_t i = 0; i < block.waiting.size(); ++i) {
    const auto [w, event] = block.waiting[i];
    if (event.offset != offset || event.phase > phases) {
      block.waiting[kept++] = block.waiting[i];
      continue;
    }
    resolve(w, static_cast<int>(event.count), at + timing_.mbarrier_latency.value);
  }
  block.waiting.resize(kept);
}

void Sm::mbarrier(Warp& warp, int w, const Op& op, const MemoryEvent& event, double at) {
  const double done = at + op.latency;
  Block* block = home(*warp.block, event.home);
  if (event.mbarrier == MemoryEvent::Mbarrier::wait) {
    if (!block || find(*block, event.offset).phases >= event.phase) {
      settle(warp, op, done, at + kSourcesRead);
      return;
    }
    // Its scoreboard is free when the phase is complete; without one, the next instruction waits.
    const std::uint32_t scoreboard = op.write < 6 ? op.write : 6;
    ++warp.unknown[scoreboard];
    MemoryEvent waiting = event;
    waiting.count = scoreboard;
    block->waiting.emplace_back(w, waiting);
    Op only_read = op;
    only_read.write = 7;
    settle(warp, only_read, done, at + kSourcesRead);
    return;
  }
  settle(warp, op, done, at + kSourcesRead);
  if (!block) return;       // the cluster's block is absent
  if (event.from_others) {  // copies that others ask for when this block is ready for them
    MemoryEvent copy = event;
    copy.mbarrier = MemoryEvent::Mbarrier::complete;
    copy.bytes = event.from_others;
    const double clocks = timing_.bulk_latency.value + event.from_others / l2_rate_;
    add({std::ceil(at + clocks), 0, Event::land, 0, copy, block, block->number});
  }
  if (op.act == Act::deferred_mbarrier && warp.copies > at)
    add({std::ceil(warp.copies), 0, Event::land, 0, event, block, block->number});
  else if (block != warp.block || (request_.cluster_blocks <= 1 && event.home > 0))
    // (Without homes: a neighbour does here what this block does to a neighbour.)
    add({std::ceil(at + timing_.remote_shared_latency.value), 0, Event::land, 0, event, block,
         block->number});
  else
    change(*block, event, at);
}

// A block is at the barrier of the grid when its atomic operation is back. Those who look go on when the
// last block that lies on this SM is there: what they have read before that says no.
void Sm::arrive_at_grid(std::uint32_t phase, double there) {
  if (grid_barriers_.size() < phase) grid_barriers_.resize(phase);
  GridBarrier& barrier = grid_barriers_[phase - 1];
  barrier.complete = std::max(barrier.complete, std::ceil(there));
  if (++barrier.arrived < request_.blocks) return;
  for (const auto& [w, scoreboard] : barrier.waiting)
    resolve(w, static_cast<int>(scoreboard), barrier.complete);
  barrier.waiting.clear();
}

void Sm::look_at_grid(Warp& warp, int w, const Op& op, std::uint32_t phase) {
  if (phase == 0 || phase > grid_barriers_.size()) return;
  GridBarrier& barrier = grid_barriers_[phase - 1];
  const std::uint32_t scoreboard = op.write < 6 ? op.write : 6;
  ++warp.unknown[scoreboard];
  if (barrier.arrived < request_.blocks)
    barrier.waiting.emplace_back(w, scoreboard);
  else
    resolve(w, static_cast<int>(scoreboard), barrier.complete);
}

// All wait. Phases that absent blocks of the cluster would complete are taken to be complete.
bool Sm::assume(double at) {
  if (request_.cluster_blocks <= 1) return false;
  bool any = false;
  for (const auto& place : places_) {
    if (!place || place->running == 0) continue;
    const std::uint64_t cluster = static_cast<std::uint64_t>(request_.cluster_blocks);
    const std::uint64_t first = place->number / cluster * cluster;
    int present = 0;
    for (const auto& other : places_)
      present += other && other->number >= first && other->number < first + cluster;
    if (present >= request_.cluster_blocks) continue;
    while (!place->waiting.empty()) {
      const MemoryEvent event = place->waiting.front().second;
      Mbarrier& barrier = find(*place, event.offset);
      barrier.phases = std::max(barrier.phases + 1, event.phase);
      barrier.arrivals = barrier.expected;
      barrier.bytes = 0;
      ++out_.assumed;
      any = true;
      advance(*place, barrier, at + timing_.remote_shared_latency.value);
    }
  }
  return any;
}

}  // namespace vgpu::time
