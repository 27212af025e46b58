// What an instruction asks for when it issues: units, memory, barriers.
#include <algorithm>
#include <bit>
#include <cmath>

#include "sm.h"
#include "sm_machine.h"

namespace vgpu::time {
namespace {

bool starts_with(std::string_view text, std::string_view head) {
  return text.substr(0, head.size()) == head;
}

void memory_op(Op& op, Act act, Stall busy, const Constant& latency) {
  op.act = act;
  op.unit = Unit::memory;
  op.busy = busy;
  op.queued = true;
  op.latency = static_cast<float>(latency.value);
}

}  // namespace

void Sm::decode() {
  ops_.reserve(request_.code->code.size());
  for (const MachineInstr& instr : request_.code->code) ops_.push_back(decode(instr));
}

// Unit, interval and latency of what computes.
static void compute_op(Op& op, Kind kind, const Timing& t, std::string_view name) {
  const auto on = [&](Unit unit, double interval, const Constant& latency) {
    op.unit = unit;
    op.interval = static_cast<float>(interval);
    op.latency = static_cast<float>(latency.value);
  };
  switch (kind) {
    case Kind::fp32:
      on(Unit::fma_heavy, t.two_fma_pipes ? 2 * t.fp32.value : t.fp32.value, t.alu_latency);
      if (t.two_fma_pipes) op.other = Unit::fma_lite;
      break;
    case Kind::imad:
      on(Unit::fma_heavy, t.imad_on_both ? 2 * t.imad.value : t.imad.value, t.alu_latency);
      if (t.imad_on_both) op.other = Unit::fma_lite;
      break;
    case Kind::fp16:
      if (t.half_on_fma) {
        on(Unit::fma_heavy, t.half_on_both ? 2 * t.half.value : t.half.value, t.alu_latency);
        if (t.half_on_both) op.other = Unit::fma_lite;
      } else {
        on(Unit::half, t.half.value, t.alu_latency);
      }
      break;
    case Kind::fp64:
      on(Unit::fp64, t.fp64.value, t.fp64_latency);
      break;
    case Kind::special:
    case Kind::convert:
      on(Unit::special, t.special.value, t.special_latency);
      break;
    case Kind::tensor:
      on(Unit::tensor, t.tensor_interval(name), t.tensor_latency);
      op.waits_for = Stall::math_pipe_throttle;
      break;
    case Kind::uniform:
      if (starts_with(name, "R2UR"))
        on(Unit::alu, t.alu.value, t.uniform_latency);
      else
        on(Unit::uniform, t.uniform.value, t.uniform_latency);
      break;
    case Kind::vote:
      if (starts_with(name, "VOTE"))
        on(Unit::alu, t.alu.value, t.vote_latency);
      else
        on(Unit::special, t.redux.value, t.vote_latency);
      break;
    default:
      on(Unit::alu, t.alu.value, t.alu_latency);
  }
}

// What goes the way to memory and comes back from there; false for anything else.
static bool memory_path_op(Op& op, Kind kind, const Timing& t) {
  switch (kind) {
    case Kind::shuffle:
      memory_op(op, Act::shuffle, Stall::mio_throttle, t.shuffle_latency);
      break;
    case Kind::shared_load:
      memory_op(op, Act::access, Stall::mio_throttle, t.shared_latency);
      break;
    case Kind::shared_atomic:
      memory_op(op, Act::access, Stall::mio_throttle, t.shared_atomic_latency);
      break;
    case Kind::shared_store:
    case Kind::matrix_store:
      memory_op(op, Act::store, Stall::mio_throttle, t.shared_latency);
      break;
    case Kind::matrix_load:
      memory_op(op, Act::access, Stall::mio_throttle, t.matrix_latency);
      break;
    case Kind::global_load:
    case Kind::local_load:
      memory_op(op, Act::access, Stall::lg_throttle, t.l1_latency);
      op.waits_for = Stall::long_scoreboard;
      break;
    case Kind::global_atomic:
      memory_op(op, Act::access, Stall::lg_throttle, t.atomic_latency);
      op.waits_for = Stall::long_scoreboard;
      break;
    case Kind::global_store:
    case Kind::local_store:
      memory_op(op, Act::store, Stall::lg_throttle, t.l2_latency);
      op.waits_for = Stall::long_scoreboard;
      break;
    case Kind::async_copy:
      memory_op(op, Act::copy, Stall::lg_throttle, t.l1_latency);
      op.waits_for = Stall::long_scoreboard;
      break;
    case Kind::bulk_copy:
      memory_op(op, Act::bulk, Stall::mio_throttle, t.bulk_latency);
      op.waits_for = Stall::long_scoreboard;
      break;
    default:
      return false;
  }
  return true;
}

Op Sm::decode(const MachineInstr& instr) const {
  const Timing& t = timing_;
  std::string_view name;
  if (instr.name < request_.code->names.size()) name = request_.code->names[instr.name];
  Op op;
  op.kind = instr.kind;
  op.write = instr.write_barrier;
  op.read = instr.read_barrier;
  op.mask = instr.wait_mask & 63;
  op.stall = static_cast<float>(std::max<int>(1, instr.stall));
  op.pending = instr.pending;
  op.bytes = instr.bytes;
  op.arrives_only =
      instr.arrives_only || (instr.kind == Kind::cluster_barrier && name.find("ARV") != name.npos);
  switch (instr.kind) {
    case Kind::constant:
      op.act = Act::constant;
      op.unit = Unit::memory;
      op.busy = Stall::mio_throttle;
      op.latency = static_cast<float>(t.constant_latency.value);
      break;
    case Kind::special_register:
      op.unit = Unit::memory;
      op.busy = Stall::mio_throttle;
      op.latency = static_cast<float>(t.special_register_latency.value);
      break;
    case Kind::async_commit:
      op.act = Act::commit;
      op.waits_for = Stall::long_scoreboard;
      break;
    case Kind::async_wait:
      op.act = Act::wait_copies;
      break;
    case Kind::warpgroup:
      op.act = instr.arrives_only ? Act::group_arrive : Act::wait_products;
      break;
    case Kind::barrier:
      op.act = Act::barrier;
      op.unit = Unit::memory;
      op.busy = Stall::mio_throttle;
      op.latency = static_cast<float>(t.barrier_latency.value);
      break;
    case Kind::cluster_barrier:
      op.act = Act::cluster_barrier;
      op.latency = static_cast<float>(t.cluster_barrier_latency.value);
      break;
    case Kind::mbarrier:
      op.act = starts_with(name, "ARRIVES") ? Act::deferred_mbarrier : Act::mbarrier;
      op.unit = Unit::memory;
      op.busy = Stall::mio_throttle;
      op.latency = static_cast<float>(t.mbarrier_latency.value);
      break;
    case Kind::fence:
      if (starts_with(name, "MEMBAR"))
        op.act = name.find(".CTA") != name.npos ? Act::fence_block : Act::fence;
      else if (name == "CCTL" || starts_with(name, "CCTL.IVALL"))
        op.act = Act::drop_l1;
      break;
    case Kind::sleep:
      if (starts_with(name, "NANOSLEEP")) op.act = Act::sleep;
      break;
    case Kind::branch:
    case Kind::call:
    case Kind::ret:
      op.act = Act::branch;
      break;
    case Kind::exit:
    case Kind::nop:
    case Kind::convergence:
      break;
    default:
      if (!memory_path_op(op, instr.kind, t)) compute_op(op, instr.kind, t, name);
  }
  if (const Tensor* const product = tensor_of(instr.flavour); product && product->of_warpgroup()) {
    op.act = Act::product;
    op.interval = static_cast<float>(t.warpgroup_interval(*product));
    op.shared = static_cast<float>(t.warpgroup_reads(*product, instr.reads_a));
    op.commits = instr.commits;
  }
  if (instr.kind == Kind::imad && instr.bytes == 8)  // IMAD.WIDE, IMAD.HI
    op.interval = static_cast<float>(op.interval * t.wide_factor.value);
  if (op.unit == Unit::memory) op.interval = static_cast<float>(t.memory_issue.value);
  return op;
}

void Sm::act(Warp& warp, int w, const Op& op, const MemoryEvent* event, double at) {
  const auto hold = [&](Stall why, double until) {
    charge(warp, warp.step.instr, why, warp.cursor, until);
    warp.cursor = std::max(warp.cursor, until);
  };
  switch (op.act) {
    case Act::constant: {
      std::uint8_t& known = constants_[warp.step.instr];
      settle(warp, op, at + op.latency + (known ? 0 : timing_.constant_miss.value),
             at + kSourcesRead);
      known = 1;
      return;
    }
    case Act::shuffle: {
      const double begin = load_store(
          std::max(timing_.request_clocks.value, timing_.wavefront_clocks.value), at, op);
      settle(warp, op, begin + op.latency, begin + kSourcesRead);
      return;
    }
    case Act::access:
    case Act::store:
    case Act::copy:
      if (event) {
        const double there = access(warp, op, *event, at);
        // A store that counts at an mbarrier, and mbarriers made of ordinary instructions (8.x).
        if (event->mbarrier == MemoryEvent::Mbarrier::complete)
          land(warp, *event, there);
        else if (event->mbarrier != MemoryEvent::Mbarrier::none)
          mbarrier(warp, w, op, *event, at);
        if (event->grid == MemoryEvent::Grid::arrive)
          arrive_at_grid(event->phase, there);
        else if (event->grid == MemoryEvent::Grid::look)
          look_at_grid(warp, w, op, event->phase);
        return;
      }
      break;
    case Act::commit: {
      const double before = warp.groups.empty() ? 0 : warp.groups.back();
      warp.groups.push_back(std::max({before, warp.copies, at}));
      settle(warp, op, warp.groups.back(), at + kSourcesRead);
      return;
    }
    case Act::wait_copies:
      if (warp.groups.size() > op.pending)
        warp.groups.erase(warp.groups.begin(), warp.groups.end() - op.pending);
      break;
    case Act::product:
      multiply(warp, w, op, at);
      return;
    case Act::group_arrive:
      meet_group(warp, w, op, at);
      return;
    case Act::wait_products:
      if (warp.product_groups.size() > op.pending)
        warp.product_groups.erase(warp.product_groups.begin(),
                                  warp.product_groups.end() - op.pending);
      break;
    case Act::barrier:
    case Act::cluster_barrier:
      barrier(warp, w, op, event, at);
      return;
    case Act::mbarrier:
    case Act::deferred_mbarrier:
      if (event) {
        mbarrier(warp, w, op, *event, at);
        return;
      }
      break;
    case Act::bulk:
      if (event) {
        bulk(warp, op, *event, at);
        return;
      }
      break;
    case Act::fence:
      hold(Stall::membar, std::max(at + timing_.fence_latency.value, std::ceil(warp.stores)));
      break;
    case Act::fence_block:
      hold(Stall::membar, at + timing_.fence_block_latency.value);
      break;
    case Act::drop_l1:
      if (has_l1_) l1_.clear();
      break;
    case Act::sleep:
      hold(Stall::sleeping, at + timing_.sleep_clocks.value);
      break;
    case Act::plain:
    case Act::branch:
      break;
  }
  settle(warp, op, at + op.latency, at + kSourcesRead);
}

// ---- Memory ----

// Takes the SM's load/store unit for some clocks; the clock at which it begins.
double Sm::load_store(double clocks, double at, const Op& op) {
  const double begin = std::max(lsu_, at);
  lsu_ = begin + clocks;
  out_.busy_by_kind[static_cast<std::size_t>(op.kind)] += clocks;
  return begin;
}

// Sectors from the L2, and the share that it does not have from DRAM; when the last one is there.
// weight: how many times as long as whole sectors they keep the way to the L2.
// miss: the share of the sectors that come from DRAM. `missed`: sectors from DRAM that earlier calls
// left over. cost: of DRAM, over that of loads.
double Sm::beyond_l1(std::uint32_t sectors, double at, double latency, double weight, double miss,
                     double& missed, double cost) {
  const double bytes = static_cast<double>(sectors) * kSectorBytes;
  const double rate = l2_rate_, dram_rate = dram_rate_;
  l2_ = std::max(l2_, at) + weight * bytes / rate;
  out_.l2_bytes += static_cast<std::uint64_t>(bytes);
  // The latency is that of one sector, whose own transfer it contains.
  double there = l2_ - kSectorBytes / rate + latency;
  missed += sectors * miss;
  if (missed >= sectors && sectors > 0) {
    missed -= sectors;
    dram_ = std::max(dram_, at) + cost * bytes / dram_rate;
    out_.dram_bytes += static_cast<std::uint64_t>(bytes);
    there = std::max(there, dram_ - kSectorBytes / dram_rate + latency +
                                timing_.dram_latency.value - timing_.l2_latency.value);
  }
  flight_ += bytes * (there - at);
  return there;
}

// When the address of a line is translated. The first access to a page that no launch before has
// touched of late waits for the page table. Blocks that begin with the launch do so all at once, each by
// itself; of later ones, which begin at different times on different SMs, some other SM's was there before.
double Sm::translated(const Block& block, std::uint64_t line, double at) {
  if (block.number >= places_.size()) return at;
  const std::uint64_t page = line / kPageLines * kMostBlocks + block.number % kMostBlocks;
  Page& known = pages_[page % pages_.size()];
  if (known.page != page) {
    known.page = page;
    known.there = request_.cold && request_.cold(line) ? at + timing_.page_latency.value : at;
  }
  return std::max(at, known.there);
}

// One line of a load; when its sectors are there.
double Sm::load_line(const Block& block, const LinePiece& piece, bool bypass, double at) {
  const auto asked = static_cast<std::uint32_t>(std::popcount(piece.sectors));
  out_.l1_sectors += asked;
  std::uint32_t missing = piece.sectors;
  double there = at + timing_.l1_latency.value;
  if (bypass) {
    if (has_l1_) l1_.drop(piece.line, piece.sectors);
  } else if (has_l1_) {
    const std::uint32_t hits = l1_.read(piece.line, piece.sectors);
    out_.l1_hits += static_cast<std::uint64_t>(std::popcount(hits));
    missing &= ~hits;
    const OnItsWay& way = on_its_way_[piece.line % on_its_way_.size()];
    if (hits && way.line == piece.line) there = std::max(there, way.there);
  }
  if (missing) {
    const double arrives = beyond_l1(static_cast<std::uint32_t>(std::popcount(missing)),
                                     translated(block, piece.line, at), timing_.l2_latency.value, 1,
                                     request_.l2_miss, missed_);
    OnItsWay& way = on_its_way_[piece.line % on_its_way_.size()];
    way.there = way.line == piece.line ? std::max(way.there, arrives) : arrives;
    way.line = piece.line;
    there = std::max(there, arrives);
  }
  return there;
}

// One line of a store or an atomic; when the L2 has it.
double Sm::store_line(const Block& block, const LinePiece& piece, const Op& op, double at,
                      double weight) {
  const auto sectors = static_cast<std::uint32_t>(std::popcount(piece.sectors));
  if (op.kind == Kind::global_atomic) {
    if (has_l1_) l1_.drop(piece.line, piece.sectors);
    const double words = piece.lanes * std::max(1, op.bytes / 4);
    const double clocks =
        std::max({sectors * timing_.atomic_sector.value, words * timing_.atomic_word.value,
                  request_.atomic_stretch *
                      timing_.line_clocks_of(1, std::max<double>(1, piece.lanes), piece.meeting)});
    atomic_ = std::max(atomic_, at) + clocks;
    const double served = atomic_ - timing_.atomic_word.value + timing_.atomic_latency.value;
    return std::max(
        served, beyond_l1(sectors, at, timing_.atomic_latency.value, 1, request_.l2_miss, missed_));
  }
  if (has_l1_) {
    LineBytes bytes{};
    for (std::uint32_t i = 0; i < kSectorsPerLine; ++i)
      if (piece.sectors >> i & 1) bytes[i] = ~0u;
    l1_.write(piece.line, bytes, false);
  }
  // Only the warp's end and its fences wait for it.
  const double written = weight > 1 ? timing_.partial_written.value : 0;
  const double wait = translated(block, piece.line, at) - at;  // nobody else's
  beyond_l1(sectors, at, 0, weight, std::max(request_.l2_written, written), written_,
            timing_.dram_written.value);
  // The L2 makes room for it in DRAM.
  return std::max(l2_ + timing_.store_latency.value, dram_) + wait;
}

double Sm::remote(double bytes, double at) {
  remote_ = std::max(remote_, at) + bytes / timing_.remote_bytes_per_clock.value;
  return remote_ - 4 / timing_.remote_bytes_per_clock.value + timing_.remote_shared_latency.value;
}

double Sm::access(Warp& warp, const Op& op, const MemoryEvent& event, double at) {
  double clocks = event.wavefronts * timing_.wavefront_clocks.value;
  if (!event.lines.empty()) {
    std::uint32_t sectors = 0;
    for (const LinePiece& piece : event.lines)
      sectors += static_cast<std::uint32_t>(std::popcount(piece.sectors));
    clocks += std::max(sectors / timing_.sectors_per_clock.value,
                       static_cast<double>(event.lines.size()) * timing_.line_clocks.value);
  }
  if (clocks == 0 && event.remote_lanes == 0) {  // no lane was active
    settle(warp, op, at + kSourcesRead, at + kSourcesRead);
    return at;
  }
  clocks = std::max(clocks, timing_.request_clocks.value);
  const double begin = load_store(clocks, at, op),
               end = begin + clocks - timing_.request_clocks.value;
  double there = event.lines.empty() ? end + op.latency : end;
  // A generic access that turned out to be of shared memory.
  if (event.lines.empty() && event.wavefronts && op.busy == Stall::lg_throttle)
    there = end + timing_.shared_latency.value;
  const bool stores = op.act == Act::store || op.kind == Kind::global_atomic;
  std::uint32_t sectors_asked = 0;
  for (const LinePiece& piece : event.lines)
    sectors_asked += static_cast<std::uint32_t>(std::popcount(piece.sectors));
  const bool partial = event.words && event.words * 4u < sectors_asked * kSectorBytes;
  const double weight = partial ? timing_.partial_store.value : 1;
  double passed = begin;
  for (const LinePiece& piece : event.lines) {
    const double line = stores ? store_line(*warp.block, piece, op, begin, weight)
                               : load_line(*warp.block, piece, event.bypasses_l1, begin);
    if (op.act == Act::store || op.write >= 6) passed = std::max(passed, line);
    // What comes out of the L1 comes in the order of its clocks.
    there = std::max(there, line + (end - begin));
  }
  if (event.remote_lanes)
    there = std::max(there, remote(static_cast<double>(event.remote_lanes) * op.bytes, begin));
  const double arrived = there;
  if (op.act == Act::store) {
    warp.stores = std::max(warp.stores, passed);
    there = end + kSourcesRead;
  } else if (op.act == Act::copy) {
    warp.copies = std::max(warp.copies, there);
  } else if (op.kind == Kind::global_atomic && op.write >= 6) {
    warp.stores = std::max({warp.stores, l2_ + timing_.store_latency.value, passed});
  }
  settle(warp, op, there, std::max(at, end) + timing_.read_latency.value);
  return arrived;
}

// Whether a copy of so many sectors comes from DRAM: all of it or none, since it is as a whole that the L2
// has it or not. The first copy does, if any.
bool Sm::comes_from_dram(std::uint32_t sectors) {
  if (sectors == 0 || request_.l2_miss == 0) return false;
  missed_copies_ += first_copy_ ? sectors : sectors * request_.l2_miss;
  first_copy_ = false;
  if (missed_copies_ < sectors) return false;
  missed_copies_ -= sectors;
  return true;
}

// A bulk copy: the warp goes on at once, the mbarrier hears of it when all bytes are there.
void Sm::bulk(Warp& warp, const Op& op, const MemoryEvent& event, double at) {
  // The engine makes the addresses of a tensor's rows itself, line by line. What other blocks of the
  // cluster copy here takes it as long, though they have asked for it.
  const double lines = event.requests + static_cast<double>(event.from_others) / kLineBytes;
  const double clocks = timing_.bulk_interval.value + lines * timing_.tensor_line.value;
  bulk_ = std::max(bulk_, at) + clocks;
  const double begin = bulk_ - clocks;
  out_.busy_by_kind[static_cast<std::size_t>(op.kind)] += clocks;
  const bool brings = event.brings();
  double there = event.tensor && brings ? bulk_ + timing_.bulk_latency.value : begin;
  // The engine takes as long beyond the network as it does beyond the L2.
  if (event.sent)
    there = remote(event.bytes, begin) + timing_.bulk_latency.value - timing_.l2_latency.value;
  // Line by line, by the rules of loads and stores: each comes from the L2 or from DRAM, or goes there.
  std::uint32_t left = event.engine_sectors();
  const bool cold = brings && comes_from_dram(left);
  for (double none = 0; left;) {
    const std::uint32_t sectors = std::min(left, kSectorsPerLine);
    if (brings)
      there = std::max(there, beyond_l1(sectors, begin, timing_.bulk_latency.value, 1, cold, none));
    else
      beyond_l1(sectors, begin, 0, 1, request_.l2_written, written_, timing_.dram_written.value);
    left -= sectors;
  }
  if (!brings && !event.sent) {
    const double written = l2_ + timing_.store_latency.value;
    warp.stores = std::max(warp.stores, written);
    warp.copies = std::max(warp.copies, written);
  }
  settle(warp, op, there, begin + kSourcesRead);
  // A multicast leaves the L2 once. Here lands what goes to this block, and what others send with it.
  const auto cluster = static_cast<std::uint64_t>(std::max(1, request_.cluster_blocks));
  const bool here = event.blocks == 0 || event.blocks >> warp.block->number % cluster & 1;
  MemoryEvent landed = event;
  landed.bytes = (here ? event.bytes : 0) + event.from_others;
  if (brings && landed.bytes) land(warp, landed, std::max(there, begin + clocks));
}

// The bytes of a copy count at its mbarrier once they are there.
void Sm::land(Warp& warp, const MemoryEvent& event, double there) {
  MemoryEvent landed = event;
  landed.mbarrier = MemoryEvent::Mbarrier::complete;
  if (Block* block = home(*warp.block, event.home))
    add({std::ceil(there), 0, Event::land, 0, landed, block, block->number});
}

}  // namespace vgpu::time
