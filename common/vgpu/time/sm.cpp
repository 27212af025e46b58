// The clockwork: which warp issues when, and what it waits for until then.
#include "sm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "sm_machine.h"

namespace vgpu::time {
namespace {

constexpr const char* kStallNames[kStalls] = {"selected",
                                              "not_selected",
                                              "long_scoreboard",
                                              "short_scoreboard",
                                              "wait",
                                              "math_pipe_throttle",
                                              "mio_throttle",
                                              "lg_throttle",
                                              "tex_throttle",
                                              "barrier",
                                              "membar",
                                              "branch_resolving",
                                              "drain",
                                              "imc_miss",
                                              "no_instructions",
                                              "dispatch",
                                              "sleeping",
                                              "misc"};

constexpr std::uint32_t kLineInstructions = 8;  // instructions of 16 bytes in a line of 128
constexpr std::size_t kOnItsWay = 4096;         // lines that can be known to be under way

double rate_of(double bytes_per_clock) { return bytes_per_clock > 0 ? bytes_per_clock : 1e12; }
std::size_t index_of(Stall stall) { return static_cast<std::size_t>(stall); }
std::size_t index_of(Unit unit) { return static_cast<std::size_t>(unit); }

}  // namespace

std::string_view stall_name(Stall stall) { return kStallNames[index_of(stall)]; }

SmResult simulate(const SmRequest& request) { return Sm(request).run(); }

Sm::Sm(const SmRequest& request)
    : request_(request),
      timing_(*request.timing),
      l2_rate_(rate_of(request.l2_bytes_per_clock)),
      dram_rate_(rate_of(request.dram_bytes_per_clock)),
      places_(static_cast<std::size_t>(std::max(1, request.resident))),
      l1_(request.l1_bytes, 4, SectoredCache::Index::linear),
      has_l1_(request.l1_bytes >= kLineBytes),
      on_its_way_(kOnItsWay),
      constants_(request.code->code.size()),
      by_instr_(request.code->code.size()) {
  decode();
  out_.issued_by_instr.resize(ops_.size());
  out_.block_begin.resize(request.blocks);
  out_.block_end.resize(request.blocks);
  const auto lines = static_cast<std::size_t>(
      std::max(1.0, timing_.code_cache_bytes.value / 16 / kLineInstructions));
  code_tags_.assign(lines, ~0u);
  code_there_.assign(lines, 0);
  for (Scheduler& s : schedulers_)
    s.code.assign(
        static_cast<std::size_t>(std::max(1.0, timing_.l0_instructions.value / kLineInstructions)),
        ~0u);
}

// ---- Blocks and what happens at a clock of its own ----

void Sm::add(Event event) {
  event.order = event_order_++;
  events_.push_back(event);
  std::push_heap(events_.begin(), events_.end());
}

void Sm::happen(const Event& event) {
  switch (event.what) {
    case Event::start:
      start_block(event.who, event.at);
      break;
    case Event::land:
      // The block may have gone while its last copies were under way.
      for (const auto& place : places_)
        if (place.get() == event.block && place && place->number == event.number)
          change(*place, event.memory, event.at);
      break;
    case Event::let_go:
      release(event.who, event.at);
      break;
    case Event::ended:
      block_ended(*places_[static_cast<std::size_t>(event.who)], event.at);
      break;
  }
}

void Sm::start_block(int place, double at) {
  if (next_block_ >= request_.blocks) return;
  auto& slot = places_[static_cast<std::size_t>(place)];
  slot = std::make_unique<Block>();
  Block& block = *slot;
  block.number = next_block_++;
  block.place = place;
  block.begin = block.end = at;
  block.steps = request_.block(block.number);
  out_.block_begin[block.number] = at;
  const int warps = static_cast<int>(block.steps.size());
  if (warps_per_block_ == 0) {
    warps_per_block_ = warps;
    warps_.resize(places_.size() * static_cast<std::size_t>(warps));
    last_activity_.assign(warps_.size(), -1);
  }
  block.running = std::min(warps, warps_per_block_);
  ++running_;
  for (int i = 0; i < block.running; ++i) {
    const int w = place * warps_per_block_ + i;
    Warp& warp = warps_[static_cast<std::size_t>(w)];
    warp = Warp{};
    warp.groups.reserve(8);
    warp.steps = block.steps[static_cast<std::size_t>(i)].get();
    warp.block = &block;
    warp.index = static_cast<std::uint32_t>(i);
    warp.scheduler = w % kSchedulers;
    warp.alive = true;
    warp.cursor = at + i * timing_.warp_launch.value;
    last_activity_[static_cast<std::size_t>(w)] = -1;
    Scheduler& s = schedulers_[static_cast<std::size_t>(warp.scheduler)];
    warp.slot = static_cast<int>(s.order.size());
    s.order.push_back(w);
    s.wake.push_back(kAsleep);
    if (warp.steps->next(warp.step)) {
      warp.op = &ops_[warp.step.instr];
      go_on(warp);
    } else {
      warp_ended(warp, warp.cursor);
    }
  }
  if (warps == 0) add({at, 0, Event::ended, place, {}, nullptr, 0});
}

void Sm::warp_ended(Warp& warp, double at) {
  Block& block = *warp.block;
  warp.alive = false;
  const double gone = std::max(at, std::ceil(warp.stores));
  charge(warp, warp.step.instr, Stall::drain, at, gone);
  block.end = std::max(block.end, gone);
  if (--block.running == 0) {
    add({block.end, 0, Event::ended, block.place, {}, nullptr, 0});
    return;
  }
  // Those who wait for the whole block wait for one less.
  for (Block::Barrier& barrier : block.barriers)
    if (barrier.whole && !barrier.waiting.empty()) complete(block, barrier, at);
}

void Sm::block_ended(Block& block, double at) {
  out_.block_end[block.number] = at;
  last_end_ = std::max(last_end_, at);
  --running_;
  // Its warps leave the schedulers; the others keep their age.
  for (Scheduler& s : schedulers_) {
    std::size_t kept = 0;
    const int last = s.last >= 0 ? s.order[static_cast<std::size_t>(s.last)] : -1;
    s.last = -1;
    for (std::size_t i = 0; i < s.order.size(); ++i) {
      const int w = s.order[i];
      Warp& warp = warps_[static_cast<std::size_t>(w)];
      if (warp.block == &block) continue;
      warp.slot = static_cast<int>(kept);
      if (w == last) s.last = warp.slot;
      s.order[kept] = w;
      s.wake[kept++] = s.wake[i];
    }
    s.order.resize(kept);
    s.wake.resize(kept);
  }
  if (next_block_ < request_.blocks)
    add({at + timing_.block_launch.value, 0, Event::start, block.place, {}, nullptr, 0});
}

SmResult Sm::run() {
  const std::uint64_t first = std::min<std::uint64_t>(places_.size(), request_.blocks);
  for (std::uint64_t i = 0; i < first; ++i)
    add({static_cast<double>(i) * timing_.block_stagger.value,
         0,
         Event::start,
         static_cast<int>(i),
         {},
         nullptr,
         0});
  const std::uint64_t most =
      request_.most_instructions ? request_.most_instructions : ~std::uint64_t{0};
  while (true) {
    double at = events_.empty() ? kNever : events_.front().at;
    for (const Scheduler& s : schedulers_) at = std::min(at, s.next);
    if (at == kNever) {
      if (running_ == 0 || !assume(now_)) break;
      continue;
    }
    now_ = at;
    if (out_.issued >= most) {
      out_.complete = false;
      break;
    }
    while (!events_.empty() && events_.front().at <= at) {
      std::pop_heap(events_.begin(), events_.end());
      const Event event = events_.back();
      events_.pop_back();
      happen(event);
    }
    // Who is first at the shared units goes round.
    const int begin = static_cast<int>(static_cast<std::uint64_t>(at) & 3);
    for (int i = 0; i < kSchedulers; ++i) {
      const int s = (begin + i) & 3;
      if (schedulers_[static_cast<std::size_t>(s)].next <= at) schedule(s, at);
    }
  }
  if (running_ > 0 && out_.complete) out_.stuck = why_stuck();
  return result();
}

// The pipe of Nsight Compute that an instruction counts for, "" for none: its lsu takes barriers,
// shuffles and special registers as well, constants are none of it.
static std::string_view pipe_of(const Op& op) {
  switch (op.unit) {
    case Unit::fma_heavy:
    case Unit::fma_lite:
      return "fma";
    case Unit::alu:
      return "alu";
    case Unit::half:
      return "fp16";
    case Unit::fp64:
      return "fp64";
    case Unit::special:
      return "xu";
    case Unit::tensor:
      return "tensor";
    case Unit::uniform:
      return "uniform";
    case Unit::memory:
      return op.kind == Kind::constant ? "" : "lsu";
    case Unit::none:
      break;
  }
  return "";
}

std::vector<PipeUse> Sm::pipes() const {
  std::map<std::string_view, PipeUse> by_name;
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const std::string_view name = pipe_of(ops_[i]);
    if (name.empty() || out_.issued_by_instr[i] == 0) continue;
    PipeUse& pipe = by_name[name];
    pipe.name = name;
    pipe.issued += out_.issued_by_instr[i];
    pipe.share += static_cast<double>(out_.issued_by_instr[i]) * ops_[i].interval;
  }
  std::vector<PipeUse> used;
  for (auto& [name, pipe] : by_name) {
    const int units = kSchedulers * (name == "fma" && timing_.two_fma_pipes ? 2 : 1);
    pipe.share = out_.clocks > 0 ? std::min(1.0, pipe.share / (units * out_.clocks)) : 0;
    used.push_back(pipe);
  }
  return used;
}

SmResult Sm::result() {
  out_.clocks = running_ > 0 ? now_ : last_end_;
  out_.pipes = pipes();
  for (const GridBarrier& barrier : grid_barriers_) out_.grid_barriers.push_back(barrier.complete);
  out_.stalls_by_instr.resize(by_instr_.size());
  for (std::size_t i = 0; i < by_instr_.size(); ++i)
    for (std::size_t k = 0; k < kStalls; ++k) {
      out_.stalls[k] += by_instr_[i][k];
      out_.stalls_by_instr[i][k] = static_cast<float>(by_instr_[i][k]);
    }
  out_.bytes_in_flight = out_.clocks > 0 ? flight_ / out_.clocks : 0;
  std::stable_sort(out_.timeline.begin(), out_.timeline.end(),
                   [](const Activity& a, const Activity& b) {
                     return a.block != b.block ? a.block < b.block
                            : a.warp != b.warp ? a.warp < b.warp
                                               : a.begin < b.begin;
                   });
  return std::move(out_);
}

const char* Sm::why_stuck() const {
  bool at_barrier = false, at_mbarrier = false;
  for (const GridBarrier& barrier : grid_barriers_)
    if (!barrier.waiting.empty()) return "a barrier of the grid that not all blocks reach";
  for (const Warp& warp : warps_) {
    if (!warp.alive) continue;
    at_barrier |= warp.held;
    at_mbarrier |= warp.parked;
  }
  return at_barrier && at_mbarrier ? "a barrier and the phase of an mbarrier"
         : at_barrier              ? "a barrier that not enough warps reach"
         : at_mbarrier             ? "the phase of an mbarrier that is never complete"
                                   : "nothing that can come";
}

// ---- Issue ----

// The clock at which the warp's instruction finds its unit and queue free, `at` when now.
double Sm::blocked(const Scheduler& s, const Warp& warp, double at) {
  const Op& op = *warp.op;
  double until = s.unit[index_of(op.unit)];
  if (op.other != Unit::none) until = std::min(until, s.unit[index_of(op.other)]);
  if (op.unit == Unit::none) until = at;
  if (op.queued && !warp.step.no_lane) {
    until = std::max(until, lsu_ - timing_.memory_queue.value);
    const MemoryEvent* event = warp.step.event;
    if (event && (!event->lines.empty() || event->bytes)) {
      const double bytes = timing_.requests_beyond.value;
      until = std::max(until, l2_ - bytes / l2_rate_);
      until = std::max(until, dram_ - bytes / dram_rate_);
      if (op.kind == Kind::global_atomic)
        until = std::max(until, atomic_ - bytes / kSectorBytes * timing_.atomic_word.value);
    }
  }
  return until <= at ? at : std::ceil(until);
}

// One clock of a scheduler: greedy, then oldest.
void Sm::schedule(int number, double at) {
  Scheduler& s = schedulers_[static_cast<std::size_t>(number)];
  const auto now = static_cast<std::int64_t>(at);
  const std::size_t count = s.order.size();
  const auto take = [&](std::size_t i) {
    if (s.wake[i] > now) return false;
    Warp& warp = warps_[static_cast<std::size_t>(s.order[i])];
    const double until = blocked(s, warp, at);
    if (until <= at) return true;
    warp.throttled += until - at;
    s.wake[i] = static_cast<std::int64_t>(until);
    return false;
  };
  std::size_t chosen = count;
  if (s.last >= 0 && take(static_cast<std::size_t>(s.last)))
    chosen = static_cast<std::size_t>(s.last);
  else
    for (std::size_t i = 0; i < count; ++i)
      if (take(i)) {
        chosen = i;
        break;
      }
  if (chosen < count) {
    s.last = static_cast<int>(chosen);
    issue(s, s.order[chosen], at);
  }
  s.from = at + 1;
  std::int64_t next = kAsleep;
  const std::int64_t* wake = s.wake.data();
  for (std::size_t i = 0; i < s.wake.size(); ++i) next = std::min(next, wake[i]);
  s.next = next == kAsleep ? kNever : std::max(static_cast<double>(next), s.from);
}

void Sm::issue(Scheduler& s, int w, double at) {
  Warp& warp = warps_[static_cast<std::size_t>(w)];
  const Op& op = *warp.op;
  const Step step = warp.step;
  ++out_.issued;
  ++out_.issued_by_instr[step.instr];
  // What lies between being ready and now.
  const double throttled = std::min(warp.throttled, at - warp.cursor);
  charge(warp, step.instr, op.busy, warp.cursor, warp.cursor + throttled);
  charge(warp, step.instr, Stall::not_selected, warp.cursor + throttled, at);
  charge(warp, step.instr, Stall::selected, at, at + 1);
  warp.throttled = 0;
  warp.cursor = at + 1;
  if (op.unit != Unit::none) {
    Unit unit = op.unit;
    if (op.other != Unit::none && s.unit[index_of(op.other)] <= at) unit = op.other;
    double& busy = s.unit[index_of(unit)];
    // An interval with a fraction: what waited for the next whole clock lost nothing.
    busy = (busy > at - 1 ? busy : at) + op.interval;
    if (!op.queued) out_.busy_by_kind[static_cast<std::size_t>(op.kind)] += op.interval;
  }
  s.wake[static_cast<std::size_t>(warp.slot)] = kAsleep;
  if (step.no_lane)
    settle(warp, op, at + 2, at + 2);
  else
    act(warp, w, op, step.event, at);
  fetch_step(warp, op, step.instr, at);
}

// Marks the scoreboards of an instruction: data there, sources read.
void Sm::settle(Warp& warp, const Op& op, double data, double read) {
  const auto mark = [&](std::uint8_t scoreboard, double until, Stall why) {
    if (scoreboard >= 6) return;
    double& free = warp.free[scoreboard];
    if (until >= free) {
      free = until;
      warp.why[scoreboard] = why;
    }
  };
  mark(op.write, data, op.waits_for);
  mark(op.read, read,
       op.kind == Kind::global_store || op.kind == Kind::local_store ? Stall::long_scoreboard
                                                                     : op.waits_for);
}

// The first thing that the warp's next instruction waits for.
void Sm::fetch_step(Warp& warp, const Op& before, std::uint32_t from, double at) {
  Step next;
  const double ready = at + before.stall;
  if (!warp.steps->next(next)) {
    warp.step.instr = from;
    warp.op = nullptr;
    if (warp.held) return;  // a barrier as the last instruction: its release ends the warp
    warp_ended(warp, at + 1);
    return;
  }
  const bool jumped = next.instr != from + 1;
  warp.step = next;
  warp.op = &ops_[next.instr];
  if (warp.held) return;
  charge(warp, next.instr, Stall::wait, warp.cursor, ready);
  warp.cursor = std::max(warp.cursor, ready);
  if (before.act == Act::branch && jumped) {
    const double resolved = at + timing_.branch_latency.value;
    charge(warp, next.instr, Stall::branch_resolving, warp.cursor, resolved);
    warp.cursor = std::max(warp.cursor, resolved);
  }
  if (next.instr / kLineInstructions != warp.line) {
    const double there = code_ready(warp, next.instr / kLineInstructions, jumped, warp.cursor);
    charge(warp, next.instr, Stall::no_instructions, warp.cursor, there);
    warp.cursor = std::max(warp.cursor, there);
  }
  look(warp);
}

// From warp.cursor on, at a block's begin or after a barrier.
void Sm::go_on(Warp& warp) {
  if (warp.step.instr / kLineInstructions != warp.line) {
    const double there = code_ready(warp, warp.step.instr / kLineInstructions, true, warp.cursor);
    charge(warp, warp.step.instr, Stall::no_instructions, warp.cursor, there);
    warp.cursor = std::max(warp.cursor, there);
  }
  look(warp);
}

// Scoreboards of the next instruction. Sets when the warp is looked at again.
void Sm::look(Warp& warp) {
  const Op& op = *warp.op;
  double free = warp.cursor;
  Stall why = Stall::misc;
  for (unsigned rest = op.mask | 1u << 6; rest; rest &= rest - 1) {
    const auto k = static_cast<std::size_t>(std::countr_zero(rest));
    if (warp.unknown[k]) {
      warp.parked = true;
      return;
    }
    if (warp.free[k] > free) {
      free = warp.free[k];
      why = warp.why[k];
    }
  }
  if (op.act == Act::wait_copies && warp.groups.size() > op.pending) {
    const double there = warp.groups[warp.groups.size() - op.pending - 1];
    if (there > free) {
      free = there;
      why = Stall::long_scoreboard;
    }
  }
  if (op.act == Act::wait_products && warp.product_groups.size() > op.pending) {
    const double there = warp.product_groups[warp.product_groups.size() - op.pending - 1];
    if (there > free) {
      free = there;
      why = Stall::math_pipe_throttle;
    }
  }
  free = std::ceil(free);
  charge(warp, warp.step.instr, why, warp.cursor, free);
  warp.cursor = free;
  wake(warp, free);
}

void Sm::wake(Warp& warp, double at) {
  Scheduler& s = schedulers_[static_cast<std::size_t>(warp.scheduler)];
  s.wake[static_cast<std::size_t>(warp.slot)] = static_cast<std::int64_t>(at);
  s.next = std::min(s.next, std::max(at, s.from));
}

// A barrier lets the warp go.
void Sm::release(int w, double at) {
  Warp& warp = warps_[static_cast<std::size_t>(w)];
  charge(warp, warp.held_at, warp.hold, warp.cursor, at);
  warp.held = false;
  warp.cursor = std::max(warp.cursor, at);
  if (warp.op)
    go_on(warp);
  else
    warp_ended(warp, warp.cursor);
}

// A writer that had no clock has one now.
void Sm::resolve(int w, int scoreboard, double at) {
  Warp& warp = warps_[static_cast<std::size_t>(w)];
  const auto k = static_cast<std::size_t>(scoreboard);
  --warp.unknown[k];
  warp.free[k] = std::max(warp.free[k], at);
  warp.why[k] = Stall::long_scoreboard;
  if (!warp.parked) return;
  warp.parked = false;
  look(warp);
}

// When a line of code is in the L0 of the warp's scheduler. A stream of lines one after the other
// is fetched ahead; only a jump waits for the L1.5.
double Sm::code_ready(Warp& warp, std::uint32_t line, bool jumped, double at) {
  warp.line = line;
  Scheduler& s = schedulers_[static_cast<std::size_t>(warp.scheduler)];
  std::uint32_t& l0 = s.code[line % s.code.size()];
  double there = at;
  const std::size_t set = line % code_tags_.size();
  if (l0 != line && jumped) there += timing_.l0_miss.value;
  l0 = line;
  if (code_tags_[set] != line) {
    code_tags_[set] = line;
    code_there_[set] = line == stream_next_
                           ? std::max(at, stream_there_ + timing_.code_line_clocks.value)
                           : at + timing_.code_latency.value;
    stream_next_ = line + 1;
    stream_there_ = code_there_[set];
  }
  return std::ceil(std::max(there, code_there_[set]));
}

void Sm::charge(Warp& warp, std::uint32_t instr, Stall why, double begin, double end) {
  if (end <= begin) return;
  by_instr_[instr][index_of(why)] += end - begin;
  if (warp.block->number >= static_cast<std::uint64_t>(std::max(0, request_.timeline_blocks)))
    return;
  const Kind kind = why == Stall::selected ? ops_[instr].kind : Kind::nop;
  const auto from = static_cast<std::uint64_t>(begin), to = static_cast<std::uint64_t>(end);
  int& last = last_activity_[static_cast<std::size_t>(&warp - warps_.data())];
  if (last >= 0) {
    Activity& before = out_.timeline[static_cast<std::size_t>(last)];
    if (before.state == why && before.instr == instr && before.end == from) {
      before.end = to;
      return;
    }
  }
  last = static_cast<int>(out_.timeline.size());
  out_.timeline.push_back(
      {static_cast<std::uint32_t>(warp.block->number), warp.index, from, to, why, kind, instr});
}

}  // namespace vgpu::time
