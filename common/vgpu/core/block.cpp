// Blocks: barriers, the turn-taking of warps, and what happens when nobody can go on.
#include "block.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "access.h"

namespace vgpu {
namespace {

// Instructions after which a warp lets others go on even if it does not seem to wait for anything;
// the second one where it may.
constexpr std::uint64_t kShare = 1u << 22, kWaitShare = 1u << 12;
// Rounds of all warps turning in waiting loops before other blocks get their turn, and before lanes
// that wait for reconvergence are let go.
constexpr std::uint64_t kIdleRounds = 2;
constexpr std::uint64_t kReleaseRounds = 8;
constexpr std::uint64_t kShortTurns = 256;
constexpr std::uint32_t kBlockedTurns = 64;  // the same at the cluster's barrier
// Instructions after which other blocks get their turn in any case.
constexpr std::uint64_t kBlockShare = 1u << 28, kWaitBlockShare = 1u << 16;

// Turns that end with a second fetch, whatever it costs; then instructions that a turn has at least.
constexpr std::uint32_t kFairTurns = 32;
constexpr std::uint64_t kFetchShare = 1u << 12;

// In a hostile schedule: the most instructions that a block executes before others get a turn, and
// that a warp executes in a loop in which it waits.
constexpr std::uint64_t kHostileBlockShare = 256, kHostileWait = 64;

constexpr std::uint32_t kSmallLocal = 1024;

class Hash {
 public:
  void add(std::uint64_t word) {
    state_ = (state_ ^ word) * 0x9E3779B97F4A7C15ull;
    state_ ^= state_ >> 32;
  }
  void add(const std::byte* bytes, std::size_t count) {
    std::uint64_t part[4] = {4, 1, 2, 3};  // side by side: it may be megabytes
    std::size_t i = 0;
    for (; i + 32 <= count; i += 32)
      for (int k = 0; k < 4; ++k) {
        std::uint64_t word;
        std::memcpy(&word, bytes + i + 8 * k, 8);
        part[k] = (part[k] ^ word) * 0x9E3779B97F4A7C15ull;
        part[k] ^= part[k] >> 32;
      }
    for (const std::uint64_t p : part) add(p);
    for (; i < count; ++i) add(static_cast<std::uint64_t>(bytes[i]));
  }
  // The lanes' part of a register.
  void add_register(const std::byte* registers, Loop::Range range, std::uint32_t lanes) {
    const std::uint32_t bytes = range.end - range.begin;
    const std::byte* from = registers + range.begin;
    if (bytes == 4) {  // a predicate
      std::uint32_t mask;
      std::memcpy(&mask, from, 4);
      return add(mask & lanes);
    }
    if (lanes == kFullMask || bytes % (2 * kWarpSize)) return add(from, bytes);
    for (; lanes; lanes &= lanes - 1)
      add(from + static_cast<std::uint32_t>(std::countr_zero(lanes)) * (bytes / kWarpSize),
          bytes / kWarpSize);
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0x243F6A8885A308D3ull;
};

// Registers of a thread at the start of a kernel, in the units of 8 in which they are given out. 0: ptxas
// does not know them, for want of .maxnreg or of a number of threads and of blocks an SM, and ignores
// setmaxnreg.
std::uint32_t registers_at_entry(const Launch& launch) {
  const Function& function = *launch.request.function;
  const std::uint64_t threads = std::uint64_t{function.max_threads} * function.min_blocks;
  if (!function.max_registers && !threads) return 0;
  auto count = static_cast<std::uint64_t>(std::max(0, launch.request.attributes.registers));
  if (!count) count = function.max_registers;
  if (!count) {
    const auto all = static_cast<std::uint64_t>(launch.machine.spec().registers_per_sm);
    count = std::min<std::uint64_t>(all / threads / 8 * 8, 256);
  }
  return static_cast<std::uint32_t>((count + 7) / 8 * 8);
}

}  // namespace

std::string where(const Instr& instr, const Function& function) {
  const Location& location = function.module->locations[instr.location];
  if (location.line == 0) return "PTX line " + std::to_string(instr.ptx_line);
  return display_path(location.file) + ":" + std::to_string(location.line);
}

std::string describe(const Warp& warp, const Instr& instr, int lane, const std::string& what) {
  const Block& block = *warp.block;
  const Dim3& size = block.launch.request.block;
  const std::uint32_t t = warp.index * kWarpSize + static_cast<std::uint32_t>(lane);
  auto triple = [](std::uint32_t x, std::uint32_t y, std::uint32_t z) {
    return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
  };
  const Function& function = warp.frame ? *warp.frame->function : *block.launch.request.function;
  return where(instr, function) + ": error: " + what + " by thread " +
         triple(t % size.x, t / size.x % size.y, t / (size.x * size.y)) + " of block " +
         triple(block.index.x, block.index.y, block.index.z) + " in " +
         block.launch.request.function->display;
}

std::unique_ptr<std::byte[]> Spares::take(std::size_t bytes) {
  const auto found = memory_.find(bytes);
  if (found == memory_.end()) return std::make_unique<std::byte[]>(bytes);
  std::unique_ptr<std::byte[]> memory = std::move(found->second);
  memory_.erase(found);
  std::memset(memory.get(), 0, bytes);
  return memory;
}
void Spares::leave(std::unique_ptr<std::byte[]> memory, std::size_t bytes) {
  if (memory) memory_.emplace(bytes, std::move(memory));
}
std::unique_ptr<WarpCopies> Spares::take_copies() {
  if (copies_.empty()) return std::make_unique<WarpCopies>();
  std::unique_ptr<WarpCopies> copies = std::move(copies_.back());
  copies_.pop_back();
  return copies;
}
void Spares::leave(std::unique_ptr<WarpCopies> copies) {
  for (LaneCopies& lane : *copies) lane.clear();
  copies_.push_back(std::move(copies));
}

void Warp::make_copies() { copies = worker->spares.take_copies(); }

Block::Block(Launch& l, Worker& w, Cluster& c, std::uint32_t r, std::uint64_t linear_index)
    : launch(l), worker(w), cluster(c), rank(r), linear(linear_index) {
  const LaunchRequest& request = launch.request;
  const Function& function = *request.function;
  index.x = static_cast<std::uint32_t>(linear % request.grid.x);
  index.y = static_cast<std::uint32_t>(linear / request.grid.x % request.grid.y);
  index.z = static_cast<std::uint32_t>(linear / (std::uint64_t{request.grid.x} * request.grid.y));
  const auto threads = static_cast<std::uint32_t>(request.block.count());
  live_threads = threads;
  const auto sms = static_cast<std::uint64_t>(launch.machine.spec().sm_count);
  const std::uint64_t in_cluster = request.cluster.count();
  sm = (cluster.number % std::max<std::uint64_t>(1, sms / in_cluster) * in_cluster + rank) % sms;
  if (launch.seed) random_ = Random(launch.seed * 0x9E3779B97F4A7C15ull + linear);
  if (launch.hostile) {
    ranking_ = Ranking(launch.seed, linear + 1);
    for (std::uint32_t i = 0; i < launch.warps_per_block; ++i)
      ranks_.push_back({ranking_.place_of(i), false});
  }

  shared_storage_bytes_ = launch.shared_bytes + std::size_t{128};
  shared_storage_ = worker.spares.take(shared_storage_bytes_);
  const auto start = reinterpret_cast<std::uintptr_t>(shared_storage_.get());
  shared = shared_storage_.get() + ((start + 127) / 128 * 128 - start);

  // A kernel that calls functions needs a stack of a size that only running it tells.
  std::uint32_t local_bytes = function.local_bytes;
  if (!function.calls.empty())
    local_bytes += std::max<std::uint32_t>(kSmallLocal, launch.stack_bytes);
  const std::size_t frame_bytes =
      (function.register_bytes + std::size_t{kWarpSize} * function.call_area_bytes + 63) / 64 * 64;
  frame_storage_bytes_ = frame_bytes * launch.warps_per_block + 64;
  frame_storage_ = worker.spares.take(frame_storage_bytes_);
  if (local_bytes)
    local_storage_.reset(
        new std::byte[std::size_t{local_bytes} * kWarpSize * launch.warps_per_block]);
  const auto frames = reinterpret_cast<std::uintptr_t>(frame_storage_.get());
  std::byte* registers = frame_storage_.get() + ((frames + 63) / 64 * 64 - frames);

  entry_registers = registers_at_entry(launch);
  FunctionState& state = worker.state_of(function);
  warps = std::vector<Warp>(launch.warps_per_block);
  for (std::uint32_t i = 0; i < launch.warps_per_block; ++i) {
    Warp& warp = warps[i];
    warp.block = this;
    warp.worker = &worker;
    warp.index = i;
    warp.registers = entry_registers;
    const std::uint32_t lanes = std::min<std::uint32_t>(kWarpSize, threads - i * kWarpSize);
    warp.live = lanes == kWarpSize ? kFullMask : (1u << lanes) - 1;
    warp.local_capacity = local_bytes;
    warp.local =
        local_storage_ ? local_storage_.get() + std::size_t{local_bytes} * kWarpSize * i : nullptr;
    Ref<Frame> frame(new Frame);
    frame->function = &function;
    frame->registers = registers + frame_bytes * i;
    frame->call_area = frame->registers + function.register_bytes;
    frame->counts = worker.counting ? state.counts.data() : nullptr;
    frame->sites = state.sites.data();
    Fragment fragment;
    fragment.mask = warp.live;
    fragment.frame = frame;
    warp.frame = frame.get();
    warp.fragments.push_back(std::move(fragment));
  }
  worker.notify([&](Observer& o) { o.block_begin(*this); });
}

Block::~Block() {
  worker.notify([&](Observer& o) { o.block_end(*this); });
  worker.spares.leave(std::move(shared_storage_), shared_storage_bytes_);
  worker.spares.leave(std::move(frame_storage_), frame_storage_bytes_);
  for (Warp& warp : warps)
    if (warp.copies) worker.spares.leave(std::move(warp.copies));
}

void Block::arrived_at_grid() {
  std::uint64_t issued = 0;
  for (const Warp& warp : warps) issued += warp.instructions;
  const std::lock_guard lock(launch.mutex);
  auto& all = launch.issued_to_grid_barrier;
  if (all.size() <= grid_barriers_)
    all.resize(grid_barriers_ + 1, std::vector<std::uint64_t>(launch.issued_by_sm.size()));
  if (sm < all[grid_barriers_].size()) all[grid_barriers_][sm] += issued - issued_to_grid_barrier_;
  ++grid_barriers_;
  issued_to_grid_barrier_ = issued;
}

std::uint64_t Block::clock() const {
  std::uint64_t sum = worker.time;
  for (const Warp& warp : warps) sum += warp.instructions + warp.slept;
  return sum;
}

Block::Status Block::run() {
  executed_ = 0;
  fetched_ = gives_way_ = got_further = false;
  if (launch.hostile && !steady) return run_hostile();
  std::vector<std::uint32_t> order(warps.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  const bool may_wait = launch.may_wait || cluster.blocks.size() > 1;
  const std::uint64_t share =
      std::min(may_wait ? kWaitBlockShare : kBlockShare, launch.machine.instruction_limit);
  const std::uint64_t warp_share = std::min(may_wait ? kWaitShare : kShare, share);
  for (;;) {
    if (cluster.number > launch.fault_cluster) return Status::done;
    if (launch.seed && !steady) std::shuffle(order.begin(), order.end(), random_);
    bool ran = false, progress = false, alive = false;
    for (std::uint32_t i : order) {
      Warp& warp = warps[i];
      if (warp.done()) continue;
      alive = true;
      if (!warp.has_ready()) continue;
      ran = true;
      const std::uint64_t before = warp.instructions;
      const Warp::Status status = warp.run(steady               ? warp_share
                                           : launch.seed        ? 1 + random_() % 64
                                           : launch.small_turns ? 1
                                                                : warp_share);
      executed_ += warp.instructions - before;
      progress |= status != Warp::Status::waiting;
      if (cluster.number > launch.fault_cluster) return Status::done;
    }
    if (!alive) return Status::done;
    got_further |= progress;
    if (progress) {
      idle_rounds = 0;
      if (gives_way_) ++fair_turns_;
      if (gives_way_ || executed_ >= share || launch.small_turns) return Status::waiting;
      continue;
    }
    if (const auto status = idle(ran)) return *status;
  }
}

std::optional<Block::Status> Block::idle(bool ran) {
  ++idle_rounds;
  if (!ran && at_cluster_barrier()) {
    // Lanes at a join keep together unless others wait very long for what they may do.
    if (++blocked_turns_ % kBlockedTurns == 0 && release_joins()) return std::nullopt;
    return Status::blocked;
  }
  bool released = false;
  // Shuffled turns are short: as many of them as are worth a usual one count as one round.
  const bool short_turns = launch.small_turns || (launch.seed && !steady);
  if (!ran || idle_rounds >= kReleaseRounds * (short_turns ? kShortTurns : 1))
    released = release_joins();
  if (released) {
    idle_rounds = 0;
    if (ran) return Status::waiting;
    return std::nullopt;
  }
  if (!ran) deadlock();
  if (idle_rounds >= kIdleRounds) return Status::waiting;
  return std::nullopt;
}

// A warp runs up to its next memory instruction; then the ranking is asked again.
Block::Status Block::run_hostile() {
  const std::uint64_t share =
      std::min(1 + ranking_.random(kHostileBlockShare), launch.machine.instruction_limit);
  for (;;) {
    if (cluster.number > launch.fault_cluster) return Status::done;
    bool alive = false, ran = false;
    std::size_t next = warps.size();
    for (std::size_t i = 0; i < warps.size(); ++i) {
      if (warps[i].done()) continue;
      alive = true;
      if (!warps[i].has_ready()) continue;
      ran = true;
      if (!ranks_[i].asked && (next == warps.size() || ranks_[i].place < ranks_[next].place))
        next = i;
    }
    if (!alive) return Status::done;
    if (next == warps.size()) {  // each that is ready has been asked, none got further
      for (Rank& rank : ranks_) rank.asked = false;
      if (const auto status = idle(ran)) return *status;
      continue;
    }
    Warp& warp = warps[next];
    ranks_[next].asked = true;
    const bool waits = std::any_of(warp.fragments.begin(), warp.fragments.end(),
                                   [](const Fragment& f) { return f.waiting; });
    const std::uint64_t before = warp.instructions;
    const Warp::Status status = warp.run(waits ? kHostileWait : 1);
    executed_ += warp.instructions - before;
    if (status == Warp::Status::waiting) continue;
    got_further = true;
    idle_rounds = 0;
    ranks_[next].asked = false;
    if (ranking_.falls()) ranks_[next].place = ranking_.end();
    // Those before it that wait look again, often when there may be something new, not always: it costs
    // them a turn of their loop.
    if (ranking_.random(8) < (warp.changed ? 6 : 1))
      for (Rank& rank : ranks_) rank.asked = false;
    if (executed_ >= share) return Status::waiting;
  }
}

void Block::arrive(Warp& warp, Fragment& fragment, const Instr& instr, std::uint32_t mask,
                   int barrier, std::uint32_t expected, bool wait) {
  worker.notify([&](Observer& o) { o.barrier_arrive(warp, instr, mask, barrier, wait); });
  Barrier& b = barriers_[barrier];
  auto threads = static_cast<std::uint32_t>(std::popcount(mask));
  if (expected) {
    // Counts come in whole warps: the missing lanes of a partial last warp count with it.
    if (mask == warp.live) threads = kWarpSize;
    b.expected = expected;
  }
  b.arrived += threads;
  if (wait) {
    fragment.state = Fragment::State::at_barrier;
    fragment.barrier = static_cast<std::uint8_t>(barrier);
  } else {
    ++fragment.pc;
  }
  if (b.arrived >= (b.expected ? b.expected : live_threads)) complete_barrier(barrier);
}

void Block::complete_barrier(int barrier) {
  worker.notify([&](Observer& o) { o.barrier_complete(*this, barrier); });
  const Barrier done = barriers_[barrier];
  barriers_[barrier] = Barrier{};
  for (Warp& warp : warps)
    for (Fragment& f : warp.fragments) {
      if (f.state != Fragment::State::at_barrier || f.barrier != barrier) continue;
      const Instr& instr = f.frame->function->code[f.pc];
      if (instr.d[0].valid()) {  // bar.red
        std::byte* d = f.frame->registers + instr.d[0].offset();
        if (instr.variant == 0) {
          auto* counts = reinterpret_cast<std::uint32_t*>(d);
          for (int lane = 0; lane < kWarpSize; ++lane)
            if (f.mask >> lane & 1) counts[lane] = done.count;
        } else {
          const bool value = instr.variant == 1 ? done.all : done.any;
          auto& p = *reinterpret_cast<std::uint32_t*>(d);
          p = (p & ~f.mask) | (value ? f.mask : 0);
        }
      }
      f.state = Fragment::State::ready;
      ++f.pc;
    }
}

void Block::check_barriers() {
  for (int i = 0; i < 16; ++i) {
    Barrier& b = barriers_[i];
    if (b.arrived && b.arrived >= (b.expected ? b.expected : live_threads)) complete_barrier(i);
  }
}

void Block::reduce(int barrier, bool any, bool all, std::uint32_t count) {
  Barrier& b = barriers_[barrier];
  b.any |= any;
  b.all &= all;
  b.count += count;
}

void Block::threads_exited(Warp& warp, std::uint32_t lanes) {
  live_threads -= static_cast<std::uint32_t>(std::popcount(lanes));
  check_barriers();
  cluster.threads_exited(warp, lanes);
}

bool Block::may_fetch() {
  if (!launch.fair) return true;
  if (!fetched_ || (fair_turns_ >= kFairTurns && executed_ < kFetchShare)) return fetched_ = true;
  gives_way_ = true;
  return false;
}

bool Block::release_joins() {
  bool released = false;
  for (Warp& warp : warps) released |= warp.release_joins();
  return released;
}

bool Block::at_cluster_barrier() const {
  for (const Warp& warp : warps)
    for (const Fragment& f : warp.fragments)
      if (f.state == Fragment::State::at_cluster) return true;
  return false;
}

std::shared_ptr<Allocation> Block::host_memory_of(const Warp& warp) const {
  // Managed and pinned memory stand at the address that the host has for them.
  const auto allocation = launch.memory.find(warp.looked_at);
  const bool host = allocation && (allocation->kind == MemoryKind::managed ||
                                   allocation->kind == MemoryKind::pinned);
  return host ? allocation : nullptr;
}

bool Block::looks_at_host() const {
  for (const Warp& warp : warps)
    for (const Fragment& f : warp.fragments)
      if (f.waiting && host_memory_of(warp)) return true;
  return false;
}

std::uint64_t Block::state_hash(bool& reads_clock) const {
  Hash hash;
  hash.add(live_threads);
  hash.add(async_arrivals.size());
  for (const Barrier& b : barriers_) hash.add(std::uint64_t{b.arrived} << 32 | b.expected);
  for (const Warp& warp : warps) {
    hash.add(std::uint64_t{warp.live} << 32 | warp.carry);
    hash.add(std::uint64_t{warp.cluster_arrived} << 32 | warp.cluster_passed);
    hash.add(warp.turn_);
    hash.add(std::uint64_t{warp.registers} << 32 | warp.short_of);
    for (int lane = 0; warp.copies && lane < kWarpSize; ++lane) {
      const LaneCopies& copies = (*warp.copies)[static_cast<std::size_t>(lane)];
      hash.add(copies.issued);
      hash.add(std::uint64_t{copies.groups.size()} << 32 | copies.bulk_groups.size());
    }
    if (warp.products) {
      hash.add(warp.products->issued);
      hash.add(std::uint64_t{warp.products->open.size()} << 32 | warp.products->groups.size());
    }
    std::uint64_t stack = 0;
    for (const Fragment& f : warp.fragments) {
      if (f.changed && f.state == Fragment::State::ready) return 0;
      std::uint32_t lanes = f.mask;
      hash.add(std::uint64_t{f.pc} << 32 | f.mask);
      hash.add(std::uint64_t{f.sync_mask} << 32 | static_cast<std::uint32_t>(f.state) << 16 |
               f.barrier << 1 | f.waiting);
      for (const Join* join = f.join.get(); join; join = join->parent.get()) {
        hash.add(std::uint64_t{join->pending} << 32 | join->arrived);
        if (join->frame.get() == f.frame.get()) lanes |= join->arrived;
      }
      const Loop& loop = worker.loops.around(*f.frame->function, f.pc);
      reads_clock |= loop.reads_clock;
      for (const Frame* frame = f.frame.get(); frame; frame = frame->caller.get()) {
        const Function& function = *frame->function;
        hash.add(reinterpret_cast<std::uintptr_t>(&function));
        if (frame == f.frame.get() && !loop.calls)
          for (const Loop::Range& range : loop.decides)
            hash.add_register(frame->registers, range, lanes);
        else
          hash.add(frame->registers, function.register_bytes);
        hash.add(frame->call_area, std::size_t{kWarpSize} * function.call_area_bytes);
        stack = std::max<std::uint64_t>(stack, frame->local_base + function.local_bytes);
      }
    }
    stack = std::min<std::uint64_t>(stack, warp.local_capacity);
    for (int lane = 0; stack && lane < kWarpSize; ++lane)
      hash.add(warp.local + std::size_t{warp.local_capacity} * lane, stack);
  }
  return hash.value() | 1;
}

}  // namespace vgpu
