// Races: two threads access the same bytes, at least one writes, and nothing orders them.
//
// What orders (happens before): a thread's own program, barriers of the block (threads that take
// part, by what they did before they arrived), __syncwarp (the lanes in its mask), and release ->
// acquire chains: a fence and then an atomic or a volatile or relaxed store (or a store.release),
// seen by an atomic or a volatile or relaxed load that a fence, a barrier or a __syncwarp follows
// (or a load.acquire). Each has a scope, and orders the block, the cluster or the grid. An atomic
// operation that sees a release acquires by itself: the common last-block and lock idioms have no
// fence behind it. An mbarrier tells those who wait for a phase what arrived in it and before.
// Shuffles, votes and the like order no writes (see pass_on).
//
// Accesses are compared by time: a counter that grows at each such event. Each warp's accesses
// carry the time of its last event, and a thread knows of each other one up to which time what it
// did is over (check/known.h). Blocks of a cluster also meet at its barrier, and a block must not end
// before what others do to its shared memory is over. Most questions are answered by two numbers: when the block's last
// barrier was, and when the warp last met.
#include <array>
#include <bit>
#include <deque>
#include <map>
#include <unordered_map>

#include "../core/access.h"
#include "../ptx/forms.h"
#include "checks.h"
#include "known.h"
#include "shadow.h"

namespace vgpu {
namespace {

// An instruction executed by a warp since the warp's last event.
struct Record {
  Time time = 0;
  std::uint64_t block = 0;
  std::uint32_t warp = 0;
  std::uint32_t bytes = 0;
  const Instr* instr = nullptr;
  const Function* function = nullptr;
  Access access = Access::load;
};

// What a thread knew when it executed a fence: what its next flag tells.
struct Fence {
  std::uint32_t references = 0;
  Knowledge known;
};

// Whom a release, an acquire or a fence is for.
enum Scope : int { kGridScope, kClusterScope, kBlockScope, kScopes };
Scope scope_of(const Instr& instr) {
  return instr.order & kOrderBlock     ? kBlockScope
         : instr.order & kOrderCluster ? kClusterScope
                                       : kGridScope;
}

struct Lane {
  Knowledge known;                        // beyond what its block and its warp know
  std::array<Knowledge, kScopes> seen;    // of flags it read, what a fence of this scope
                                          // makes known
  std::array<Ref<Fence>, kScopes> fence;  // the last one of at least this scope
};

// Up to when lanes of a warp know each other.
struct Meetings {
  using Pairs = std::array<std::array<Time, kWarpSize>, kWarpSize>;  // [knows][of]
  Time all = 0;
  std::unique_ptr<Pairs> pairs;
  Time until(int lane, std::uint32_t of) const {
    return pairs ? std::max(all, (*pairs)[static_cast<std::size_t>(lane)][of]) : all;
  }
  void add(std::uint32_t mask, Time now);  // of some of the lanes
};

struct WarpState {
  std::uint32_t index = 0, born = 0;
  Trace key = 0;            // the warp's bits of a trace
  Time now = 0;             // of its accesses
  Meetings met;             // what a lane did is over
  Meetings read;            // what a lane read it has
  Knowledge known, fenced;  // of all its lanes
  std::unique_ptr<std::array<Lane, kWarpSize>> lanes;
  struct Recent {
    const Instr* instr = nullptr;
    Access access = Access::load;
    Time time = 0;
    std::uint32_t record = 0;
  };
  std::array<Recent, 32> recent;
  Lane& lane(int i) {
    if (!lanes) lanes = std::make_unique<std::array<Lane, kWarpSize>>();
    return (*lanes)[static_cast<std::size_t>(i)];
  }
};

// A place that threads tell each other through: what its value releases, and to whom.
struct Flag {
  static constexpr std::uint64_t kNobody = ~0ull, kSeveral = ~0ull - 1;
  Knowledge to_grid;               // by releases of that scope
  std::uint64_t teller = kNobody;  // the block whose threads did that
  // By block and scope what its threads released; to the grid only once several blocks have.
  std::map<std::pair<std::uint64_t, Scope>, Knowledge> by;
  // An mbarrier object: what has arrived in the phase that is not complete.
  Knowledge arriving;
};

struct Arrival {
  std::uint32_t warp, mask;
  bool wait;
  Time time;
  Knowledge known;
};

// The last access of a warp to the shared memory of another block.
struct Visit {
  std::uint32_t record = 0;
  int lane = 0;
  std::uint64_t address = 0;
};

struct BlockState {
  Block* block = nullptr;
  std::unordered_map<Trace, Visit> visits;  // of other blocks' warps, by their keys
  Knowledge ended;                          // what its threads knew when they ended
  Time barrier = 0;                         // all threads know each other up to here
  bool mbarriers = false;                   // it uses mbarrier objects
  std::uint32_t first_record = 0;           // older ones in reused shadow are of other blocks
  Knowledge known, fenced;
  std::vector<WarpState> warps;
  std::array<std::vector<Arrival>, 16> arrivals;
  std::vector<std::unique_ptr<ShadowPage>> shared;
  std::unordered_map<std::uint64_t, Flag> flags;  // in shared memory
};

// What those who have arrived at a cluster's barrier knew, in this phase and the last one.
struct ClusterState {
  Knowledge arriving, told;
};

class RaceCheck final : public Observer {
 public:
  void launch_begin(Launch& launch) override {
    launch_ = &launch;
    const std::uint64_t blocks = launch.request.grid.count();
    root_ = 2;
    for (std::uint64_t reach = 32; reach < blocks; reach *= 32) ++root_;
  }
  void launch_end(Launch&, std::vector<std::string>& findings) override {
    findings_.take(findings);
  }

  void block_begin(Block& block) override {
    auto state = std::make_unique<BlockState>();
    state->block = &block;
    state->barrier = clock_;
    state->first_record = next_record_;
    state->warps.resize(block.warps.size());
    ++clock_;
    for (std::uint32_t i = 0; i < state->warps.size(); ++i) {
      WarpState& warp = state->warps[i];
      warp.index = i;
      warp.born = block.warps[i].live;
      warp.key = (block.linear * block.launch.warps_per_block + i + 1) << kTraceWarpShift;
      warp.now = clock_;
    }
    const std::size_t pages = (block.launch.shared_bytes + kPageBytes - 1) / kPageBytes;
    while (state->shared.size() < pages && !spare_.empty()) {
      state->shared.push_back(std::move(spare_.back()));
      spare_.pop_back();
    }
    state->shared.resize(pages);
    blocks_[&block] = std::move(state);
  }
  void block_end(Block& block) override {
    const auto it = blocks_.find(&block);
    if (it == blocks_.end()) return;
    for (auto& page : it->second->shared)
      if (page) spare_.push_back(std::move(page));
    if (current_ == it->second.get()) current_ = nullptr;
    clusters_.erase(&block.cluster);
    blocks_.erase(it);
  }

  void access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
              std::uint32_t bytes, Access access, Space space, const Places& places) override;
  void barrier_arrive(Warp& warp, const Instr&, std::uint32_t mask, int barrier,
                      bool wait) override;
  void barrier_complete(Block& block, int barrier) override;
  void warp_sync(Warp& warp, const Instr&, std::uint32_t mask, std::uint32_t members) override;
  void fence(Warp& warp, const Instr& instr, std::uint32_t mask) override;
  void cluster_arrive(Warp& warp, const Instr& instr, std::uint32_t mask) override;
  void cluster_complete(Cluster& cluster) override;
  void cluster_wait(Warp& warp, const Instr&, std::uint32_t mask) override;
  void mbarrier_phase(Block& home, std::uint32_t offset) override;
  void lanes_exit(Warp& warp, const Instr&, std::uint32_t mask) override;
  void copy_issue(Warp& warp, const Instr& instr, int lane, Block& to, std::uint32_t offset,
                  std::uint32_t bytes) override;
  void copy_land(Warp& warp, int lane, Block& to, std::uint32_t offset,
                 std::uint32_t bytes) override;

 private:
  // The access that is looked at.
  struct Now {
    Warp& warp;
    const Instr& instr;
    const Places* places;
    const Addresses* addresses;
    BlockState& block;
    BlockState& home;  // whose shared memory it is; else `block`
    WarpState& state;
    std::uint32_t bytes;
    Access access;
    Space space;
    Trace trace;                     // without the lane
    std::uint32_t oldest;            // records before this one are of nobody here
    std::uint32_t fine[2] = {0, 0};  // records that were found to come before, for all lanes
  };
  BlockState& state_of(Block& block) {
    if (!current_ || current_->block != &block) current_ = blocks_.at(&block).get();
    return *current_;
  }
  Record& record(std::uint32_t i) { return records_[i % records_.size()]; }
  bool forgotten(std::uint32_t i) const { return next_record_ - i > kRecords; }
  std::uint32_t record_for(WarpState& warp, Warp& w, const Instr& instr, std::uint32_t bytes,
                           Access access);
  std::uint32_t record_for(WarpState& warp, const Record& what);
  Knowledge known_of(BlockState& block, WarpState& warp, int lane);
  Knowledge known_of_warp(BlockState& block, WarpState& warp);
  void meet(Warp& warp, std::uint32_t mask);
  void pass_on(Warp& warp, std::uint32_t mask);
  void learn_lanes(Warp& warp, std::uint32_t mask, const Knowledge& told);
  void end(BlockState& block);
  void tick(WarpState& warp) { warp.now = ++clock_; }
  bool ordered(Now& now, int lane, Trace before);
  bool ordered_for_all(Now& now, Trace before);
  bool harmless(Now& now, int lane, Trace before, bool before_wrote, std::uint64_t address);
  void suspect(Now& now, int lane, Trace before, bool before_wrote, std::uint64_t address);
  void touch(Now& now, int lane, std::uint64_t address, bool many);
  void touch_loads(Now& now, std::uint32_t mask, const Addresses& a);
  bool touch_row(Now& now, const Addresses& a);
  bool row_fine(Now& now, const Trace* traces, std::uint32_t n, int per_lane, int first_lane);
  ShadowPage& page(Now& now, std::uint64_t address, int shift);
  void exchange(Now& now, std::uint32_t mask, const Addresses& a);
  static void tell(Flag& flag, std::uint64_t block, Scope scope, const Knowledge& told);
  static Knowledge told_to(const Flag& flag, const Block& block, Scope scope);
  Flag* find_flag(Now& now, std::uint64_t address);

  static constexpr std::uint32_t kRecords = 1u << 22;
  Launch* launch_ = nullptr;
  int root_ = 2;
  Time clock_ = 1;
  std::unordered_map<Block*, std::unique_ptr<BlockState>> blocks_;
  BlockState* current_ = nullptr;
  std::unordered_map<Cluster*, ClusterState> clusters_;
  std::vector<Record> records_ = std::vector<Record>(1024);  // a ring once it has kRecords
  std::uint32_t next_record_ = 1;
  Shadow global_;
  std::vector<std::unique_ptr<ShadowPage>> spare_;
  std::unordered_map<std::uint64_t, Flag> flags_;
  Findings findings_;
};

std::uint32_t RaceCheck::record_for(WarpState& state, Warp& warp, const Instr& instr,
                                    std::uint32_t bytes, Access access) {
  // (handlers may pass a copy of the instruction)
  const Function* function = warp.frame->function;
  return record_for(state, {state.now, warp.block->linear, warp.index, bytes,
                            &function->code[instr.pc], function, access});
}

std::uint32_t RaceCheck::record_for(WarpState& state, const Record& what) {
  WarpState::Recent& recent =
      state.recent[(what.instr->pc * 2 + (what.access == Access::load)) % state.recent.size()];
  if (recent.instr == what.instr && recent.access == what.access && recent.time == state.now &&
      next_record_ - recent.record < kRecords / 2)
    return recent.record;
  if (next_record_ >= records_.size() && records_.size() < kRecords)
    records_.resize(records_.size() * 2);
  if (next_record_ == 0) next_record_ = 1;
  recent = {what.instr, what.access, state.now, next_record_++};
  record(recent.record) = what;
  return recent.record;
}

// ---- knowledge --------------------------------------------------------------------------------

Knowledge RaceCheck::known_of_warp(BlockState& block, WarpState& warp) {
  const std::uint64_t key = thread_key(block.block->linear, warp.index, 0);
  Knowledge k = learn(block.known, root_, key, kBlockLevel, block.barrier);
  k = learn(k, root_, key, kWarpLevel, warp.met.all);
  return join(k, warp.known);
}
Knowledge RaceCheck::known_of(BlockState& block, WarpState& warp, int lane) {
  Knowledge k = known_of_warp(block, warp);
  const std::uint64_t key =
      thread_key(block.block->linear, warp.index, static_cast<std::uint32_t>(lane));
  if (warp.met.pairs)
    for (std::uint32_t other = 0; other < kWarpSize; ++other)
      if (const Time t = (*warp.met.pairs)[static_cast<std::size_t>(lane)][other])
        k = learn(k, root_, (key & ~31ull) | other, kThreadLevel, t);
  k = learn(k, root_, key, kThreadLevel, warp.now);
  return warp.lanes ? join(k, warp.lane(lane).known) : k;
}

// What came before, for every lane of the warp.
bool RaceCheck::ordered_for_all(Now& now, Trace before) {
  const std::uint32_t i = record_of(before);
  if (i == now.fine[0] || i == now.fine[1]) return true;
  bool fine = i < now.oldest || forgotten(i);
  if (!fine) {
    const Record& r = record(i);
    const bool same_block = r.block == now.block.block->linear;
    fine = (same_block && r.time <= now.block.barrier) ||
           (same_block && r.warp == now.state.index && r.time <= now.state.met.all);
    if (!fine && (now.block.known || now.state.known)) {
      const std::uint64_t key = thread_key(r.block, r.warp, 0);
      fine = r.time <= known_until(now.block.known, key, kWarpLevel) ||
             r.time <= known_until(now.state.known, key, kWarpLevel);
    }
  }
  if (!fine) return false;
  now.fine[1] = now.fine[0];
  now.fine[0] = i;
  return true;
}

bool RaceCheck::ordered(Now& now, int lane, Trace before) {
  if (ordered_for_all(now, before)) return true;
  const Record& r = record(record_of(before));
  const bool same_warp = r.block == now.block.block->linear && r.warp == now.state.index;
  const bool many = before & kTraceMany;
  if (same_warp && lane_of(before) == lane && !many) return true;
  auto knows = [&](std::uint32_t of) {
    const std::uint64_t key = thread_key(r.block, r.warp, of);
    if (same_warp && r.time <= now.state.met.until(lane, of)) return true;
    return r.time <= known_until(now.block.known, key) ||
           r.time <= known_until(now.state.known, key) ||
           (now.state.lanes && r.time <= known_until(now.state.lane(lane).known, key));
  };
  // Of several lanes only one is remembered.
  return knows(static_cast<std::uint32_t>(lane_of(before)));
}

// ---- accesses ---------------------------------------------------------------------------------

ShadowPage& RaceCheck::page(Now& now, std::uint64_t address, int shift) {
  if (now.space == Space::global) return global_.page(address, shift);
  auto& page = now.home.shared[address >> kPageBits];
  if (!page) page = std::make_unique<ShadowPage>(shift);
  if (shift < page->shift()) page->refine(shift);
  return *page;
}

int shift_for(std::uint32_t bytes) { return bytes >= 4 ? 2 : bytes == 2 ? 1 : 0; }

// Whether all of a row of pieces, touched by lanes one after the other, was last touched by the
// same lanes or by something that came before.
bool RaceCheck::row_fine(Now& now, const Trace* traces, std::uint32_t n, int per_lane,
                         int first_lane) {
  const Trace first = traces[0];
  Trace others = 0, flags = 0, thread = 0;
  if (per_lane == 0) {
    const Trace mine = (now.trace & kTraceWarp) | static_cast<Trace>(first_lane) << 32;
    for (std::uint32_t i = 0; i < n; ++i) {
      others |= (traces[i] ^ first) & 0xffffffffu;
      flags |= traces[i];
      thread |= (traces[i] ^ (mine + (static_cast<Trace>(i) << 32))) & kTraceThread;
    }
  } else {
    for (std::uint32_t i = 0; i < n; ++i) {
      const Trace mine = (now.trace & kTraceWarp) |
                         static_cast<Trace>(first_lane + static_cast<int>(i >> per_lane)) << 32;
      others |= (traces[i] ^ first) & 0xffffffffu;
      flags |= traces[i];
      thread |= (traces[i] ^ mine) & kTraceThread;
    }
  }
  if (flags == 0) return true;
  if (flags & kTracePending) return false;
  return thread == 0 || (others == 0 && ordered_for_all(now, first));
}

// Lanes next to each other in memory, the usual case, without a look at each piece.
bool RaceCheck::touch_row(Now& now, const Addresses& a) {
  const int shift = shift_for(now.bytes);
  std::uint64_t address = a.v[0];
  int lane = 0;
  while (lane < kWarpSize) {  // page by page
    ShadowPage& p = page(now, address, shift);
    const int per_lane = std::countr_zero(now.bytes) - p.shift();  // log2 of pieces a lane
    const std::uint32_t at = static_cast<std::uint32_t>(address % kPageBytes) >> p.shift();
    const std::uint32_t pieces = (kPageBytes >> p.shift()) - at;
    const int lanes = std::min<int>(kWarpSize - lane, static_cast<int>(pieces >> per_lane));
    const std::uint32_t n = static_cast<std::uint32_t>(lanes) << per_lane;
    const bool strong = now.trace & kTraceStrong;
    const auto all_fine = [&](const Tables& t) {
      return row_fine(now, t.written, n, per_lane, lane) &&
             (now.access == Access::load || (row_fine(now, t.read, n, per_lane, lane) &&
                                             row_fine(now, t.read_before, n, per_lane, lane)));
    };
    const Tables own = (strong ? p.make_strong() : p.plain()).from(at);
    const bool fine = all_fine(p.plain().from(at)) &&
                      (!p.has_strong() || (strong && !(now.trace & kTraceVolatile)) ||
                       all_fine(p.strong().from(at)));
    if (!fine) {
      for (int i = 0; i < lanes; ++i)
        touch(now, lane + i, address + static_cast<std::uint32_t>(i) * now.bytes, false);
    } else {
      const Trace base = now.trace + (static_cast<Trace>(lane) << 32);
      if (now.access == Access::load) {
        for (std::uint32_t i = 0; i < n; ++i) {
          const Trace mine = base + (static_cast<Trace>(i >> per_lane) << 32);
          const Trace old = own.read[i];
          own.read_before[i] = ((old ^ mine) & kTraceThread) == 0 ? own.read_before[i] : old;
          own.read[i] = mine;
        }
      } else {
        for (std::uint32_t i = 0; i < n; ++i)
          own.written[i] = base + (static_cast<Trace>(i >> per_lane) << 32);
      }
    }
    lane += lanes;
    address += static_cast<std::uint64_t>(lanes) * now.bytes;
  }
  return true;
}

// mbarrier.inval, which no earlier operation on the object is held against: the destructor of
// cuda::pipeline executes it in one lane once a match has counted the lanes that are done.
bool invalidates(const Instr& instr, Access access) {
  return instr.op_class == OpClass::barrier && access == Access::store && !instr.a.valid();
}

// One lane's bytes. `many`: all lanes of the warp access the same.
void RaceCheck::touch(Now& now, int lane, std::uint64_t address, bool many) {
  ShadowPage& p = page(now, address, shift_for(now.bytes));
  const std::uint32_t at = static_cast<std::uint32_t>(address % kPageBytes) >> p.shift();
  const std::uint32_t n = std::max(1u, now.bytes >> p.shift());
  const Trace mine = now.trace | static_cast<Trace>(lane) << 32 | (many ? kTraceMany : 0);
  auto look = [&](Trace before, bool wrote) {
    if (before == 0) return;
    if ((before & kTraceStrong) && (mine & kTraceStrong) && !(before & mine & kTraceVolatile))
      return;
    if (((before ^ mine) & kTraceThread) == 0 && !(before & kTracePending)) return;
    const std::uint32_t i = record_of(before);
    if (!(before & kTracePending) && (i == now.fine[0] || i == now.fine[1])) return;
    suspect(now, lane, before, wrote, address);
  };
  const auto look_at = [&](const Tables& t, std::uint32_t i) {
    look(t.written[i], true);
    if (now.access == Access::load) return;
    look(t.read[i], false);
    look(t.read_before[i], false);
  };
  const bool strong = mine & kTraceStrong;
  const Tables own = (strong ? p.make_strong() : p.plain()).from(at), plain = p.plain().from(at);
  const bool others =
      p.has_strong() && (!strong || (mine & kTraceVolatile)) && !invalidates(now.instr, now.access);
  for (std::uint32_t i = 0; i < n; ++i) {
    look_at(plain, i);
    if (others) look_at(p.strong().from(at), i);
    if (now.access == Access::load) {
      const Trace old = own.read[i];
      if (record_of(old) == record_of(mine)) {
        own.read[i] = old | (((old ^ mine) & kTraceLane) | (mine & kTraceMany) ? kTraceMany : 0);
      } else {
        if ((old ^ mine) & kTraceThread) own.read_before[i] = old;
        own.read[i] = mine;
      }
    } else {
      const Trace old = own.written[i];
      own.written[i] = record_of(old) == record_of(mine) && ((old ^ mine) & kTraceLane)
                           ? mine | kTraceMany
                           : mine;
    }
  }
}

// touch() for scattered plain loads of one piece each, as when every lane walks along a row of its
// own.
void RaceCheck::touch_loads(Now& now, std::uint32_t mask, const Addresses& a) {
  const int shift = shift_for(now.bytes);
  std::uint64_t number = ~0ull;
  Tables t;
  bool whole = false;
  each_lane(mask, [&](int lane) {
    const std::uint64_t address = a.v[lane];
    if (address >> kPageBits != number) {
      number = address >> kPageBits;
      ShadowPage& p = page(now, address, shift);
      t = p.plain();
      whole = p.shift() == shift && !p.has_strong();
    }
    const std::uint32_t at = static_cast<std::uint32_t>(address % kPageBytes) >> shift;
    const Trace mine = now.trace | static_cast<Trace>(lane) << 32;
    const Trace w = whole ? t.written[at] : 0;
    const bool fine = w == 0 || (!(w & kTracePending) &&
                                 (record_of(w) == now.fine[0] || ((w ^ mine) & kTraceThread) == 0));
    const Trace old = whole ? t.read[at] : 0;
    if (!whole || !fine || record_of(old) == record_of(mine))
      return touch(now, lane, address, false);
    if ((old ^ mine) & kTraceThread) t.read_before[at] = old;
    t.read[at] = mine;
  });
}

// The bytes that a lane of `st` is about to write. False for other instructions.
bool value_to_store(Warp& warp, const Instr& instr, int lane, std::uint32_t bytes, std::byte* out) {
  if (instr.async || std::string_view(forms()[instr.form].opcode) != "st" || bytes > 32)
    return false;
  const std::uint32_t each = bytes / instr.elements;
  const std::uint32_t stride = std::max<std::uint32_t>(2, instr.a_bits / 8u);
  if (each > stride) return false;
  for (std::uint32_t k = 0; k < instr.elements; ++k) {
    const Slot slot = instr.elements == 1 ? instr.a : Slot{instr.list[k]};
    std::memcpy(out + k * each,
                warp.lanes<const std::byte>(slot) + static_cast<std::uint32_t>(lane) * stride,
                each);
  }
  return true;
}

// Conflicts that are none: both know that others are about, what was read is read, or nothing
// changes.
bool RaceCheck::harmless(Now& now, int lane, Trace before, bool before_wrote, std::uint64_t) {
  const Trace mine = now.trace;
  if ((before & kTraceStrong) && (mine & kTraceStrong)) {
    // Volatile does not make lanes of a warp wait for each other: the old warp-synchronous idiom.
    const Record& r = record(record_of(before));
    const bool same_warp = r.block == now.block.block->linear && r.warp == now.state.index;
    const bool idiom = same_warp && now.space == Space::shared && (before & kTraceVolatile) &&
                       (mine & kTraceVolatile);
    if (!idiom) return true;
  }
  const Record& r = record(record_of(before));
  if (!before_wrote && r.block == now.block.block->linear && r.warp == now.state.index &&
      r.time <= now.state.read.until(lane, static_cast<std::uint32_t>(lane_of(before))))
    return true;
  // Writing what is there already (or what the other lane writes) does no harm.
  if (now.access == Access::store && before_wrote && now.places) {
    std::byte value[32], other[32];
    if (!value_to_store(now.warp, now.instr, lane, now.bytes, value)) return false;
    if (record_of(before) == record_of(mine))
      return value_to_store(now.warp, now.instr, lane_of(before), now.bytes, other) &&
             std::memcmp(value, other, now.bytes) == 0;
    return std::memcmp(value, now.places->at(*now.addresses, lane), now.bytes) == 0;
  }
  return false;
}

void RaceCheck::suspect(Now& now, int lane, Trace before, bool before_wrote,
                        std::uint64_t address) {
  const bool pending = before & kTracePending;
  if (record_of(before) < now.oldest || forgotten(record_of(before))) return;
  if (!pending &&
      (ordered(now, lane, before) || harmless(now, lane, before, before_wrote, address)))
    return;
  const Record r = record(record_of(before));
  const Launch& launch = *launch_;
  const Function& function = *now.warp.frame->function;
  const std::string here = where(now.instr, function), there = where(*r.instr, *r.function);
  auto verb = [](Access access) {
    return std::string(access == Access::load    ? "read"
                       : access == Access::store ? "write"
                                                 : "atomic access");
  };
  const bool same_block = r.block == now.block.block->linear;
  const bool same_warp = same_block && r.warp == now.state.index;
  const std::string key = there + "|" + here + "|" + verb(r.access) + verb(now.access) +
                          (pending ? "p" : "") + (now.space == Space::shared ? "s" : "g") +
                          (same_warp    ? "w"
                           : same_block ? "b"
                                        : "");
  findings_.add(key, [&] {
    auto thread = [&](std::uint64_t warp, int l) {
      return "thread " + thread_text(launch, static_cast<std::uint32_t>(
                                                 warp * kWarpSize + static_cast<std::uint32_t>(l)));
    };
    std::string place = now.space == Space::shared
                            ? "shared memory at offset " + std::to_string(address)
                            : "global memory " + global_text(launch, address);
    if (&now.home != &now.block || (now.space == Space::shared && !same_block))
      place += " of block " + block_text(launch, now.home.block->linear);
    const std::string in = block_text(launch, r.block);
    std::string text = there + ": error: race: ";
    text += pending ? "asynchronous copy" : verb(r.access);
    text += " of " + bytes_text(r.bytes);
    text += (r.access == Access::load ? " from " : " to ") + place;
    text += " by " + thread(r.warp, lane_of(before));
    if (before & kTraceMany) text += " and others of its warp";
    if (!same_block) text += " of block " + in;
    text += " and " + verb(now.access) + " by " + thread(now.state.index, lane);
    if (!same_block) text += " of block " + block_text(launch, now.block.block->linear);
    text += here == there ? " at the same line" : " at " + here;
    const bool shuffled =
        same_warp &&
        r.time <= now.state.read.until(lane, static_cast<std::uint32_t>(lane_of(before)));
    text += pending      ? " before the copy was waited for"
            : same_warp  ? record_of(before) == record_of(now.trace) ? " in the same instruction"
                           : shuffled ? " without a __syncwarp between (a shuffle or vote is none)"
                                      : " without a __syncwarp between"
            : same_block ? " without a barrier between"
            : now.space == Space::shared
                ? " without a barrier of the cluster or a release and an acquire between"
                : " without a barrier of the grid or a release and an acquire between";
    if (same_block)
      text += ", in block " + in + " of ";
    else
      text += ", in ";
    text += launch.request.function->display;
    if (pending || r.instr->op_class == OpClass::barrier ||
        now.instr.op_class == OpClass::barrier ||
        !(before & kTraceStrong) == !(now.trace & kTraceStrong))
      return text;
    const bool reads = (before & kTraceStrong ? now.access : r.access) == Access::load;
    return text + (reads
                       ? "; a plain read beside atomic or volatile accesses is a data race: read "
                         "with volatile, cuda::atomic_ref or atomicAdd(p, 0)"
                       : "; a plain write beside atomic or volatile accesses is a data race: put a "
                         "barrier between, or write with volatile, cuda::atomic_ref or atomicExch");
  });
}

void RaceCheck::access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                       std::uint32_t bytes, Access access, Space space, const Places& places) {
  if (instr.async && space == Space::shared) return;  // copy_issue tells
  BlockState& block = state_of(*warp.block);
  WarpState& state = block.warps[warp.index];
  BlockState& home = places.owner ? *blocks_.at(places.owner) : block;
  const bool atomic = access == Access::atomic;
  Now now{warp,  instr, &places, &a,    block, home,
          state, bytes, access,  space, 0,     space == Space::shared ? home.first_record : 1};
  now.trace = state.key | record_for(state, warp, instr, bytes, access);
  home.mbarriers |= instr.op_class == OpClass::barrier;
  // (A relaxed arrival at an mbarrier tells nothing, but whoever waits for it knows that it is over.)
  if (places.owner && !(instr.op_class == OpClass::barrier && (instr.order & kOrderRelaxed))) {
    const int lane = std::countr_zero(mask);
    home.visits[state.key] = {record_of(now.trace), lane, a.v[lane]};
  }
  if (atomic)
    now.trace |= kTraceAtomic;
  else if (instr.order & (kOrderRelaxed | kOrderAcquire | kOrderRelease))
    now.trace |= kTraceRelaxed;
  else if (instr.order & kOrderVolatile)
    now.trace |= kTraceVolatile;
  if (a.strided && a.stride == static_cast<std::int64_t>(bytes)) {
    touch_row(now, a);
  } else if (a.strided && a.stride == 0 && access == Access::load) {
    touch(now, 0, a.v[0], true);
  } else if (access == Access::load && bytes <= 4 && !(now.trace & kTraceStrong)) {
    touch_loads(now, mask, a);
  } else {
    each_lane(mask, [&](int lane) { touch(now, lane, a.v[lane], false); });
  }
  if (now.trace & kTraceStrong)
    exchange(now, mask, a);
  else if (access == Access::store && instr.op_class == OpClass::barrier && !home.flags.empty())
    each_lane(mask, [&](int lane) { home.flags.erase(a.v[lane]); });  // mbarrier.init, .inval
}

// ---- flags ------------------------------------------------------------------------------------

Flag* RaceCheck::find_flag(Now& now, std::uint64_t address) {
  auto& flags = now.space == Space::shared ? now.home.flags : flags_;
  if (flags.empty()) return nullptr;
  const auto it = flags.find(address);
  return it == flags.end() ? nullptr : &it->second;
}

void RaceCheck::tell(Flag& flag, std::uint64_t block, Scope scope, const Knowledge& told) {
  if (!told) return;
  if (scope == kGridScope) {
    if (flag.teller == Flag::kNobody) flag.teller = block;
    if (flag.teller != block && flag.teller != Flag::kSeveral) {  // now it matters who said what
      flag.by[{flag.teller, kGridScope}] = flag.to_grid;
      flag.teller = Flag::kSeveral;
    }
    flag.to_grid = join(flag.to_grid, told);
    if (flag.teller == block) return;
  }
  Knowledge& by = flag.by[{block, scope}];
  by = join(by, told);
}

// What an acquire of this scope by the block's threads learns: of each release that is for the
// block by a block that the acquire is for.
Knowledge RaceCheck::told_to(const Flag& flag, const Block& block, Scope scope) {
  Knowledge all;
  if (scope == kGridScope || flag.teller == block.linear) all = flag.to_grid;
  if (flag.by.empty() && (flag.teller == block.linear || scope != kClusterScope)) return all;
  for (const auto& other : block.cluster.blocks) {
    if (scope == kClusterScope && flag.teller == other->linear) all = join(all, flag.to_grid);
    for (const Scope release : {kGridScope, kClusterScope, kBlockScope}) {
      if (other.get() != &block && (scope == kBlockScope || release == kBlockScope)) continue;
      const auto it = flag.by.find({other->linear, release});
      if (it != flag.by.end()) all = join(all, it->second);
    }
  }
  return all;
}

// Atomics, volatile and relaxed accesses: what the place tells the thread, and the thread the
// place.
void RaceCheck::exchange(Now& now, std::uint32_t mask, const Addresses& a) {
  BlockState& block = now.block;
  WarpState& warp = now.state;
  const Block& own = *block.block;
  const Scope scope = scope_of(now.instr);
  const bool object = now.instr.op_class == OpClass::barrier;
  const bool reads =
      now.access != Access::store && !(now.access == Access::atomic && !now.instr.d[0].valid());
  const bool writes = now.access != Access::load && !(object && now.instr.d_bits == 1);
  const bool at_once = now.access == Access::atomic || (now.instr.order & kOrderAcquire);
  // An arrival at an mbarrier releases unless it says .relaxed.
  const bool releases =
      (now.instr.order & kOrderRelease) || (object && !(now.instr.order & kOrderRelaxed));
  bool released = false;
  each_lane(mask, [&](int i) {
    Flag* flag = find_flag(now, a.v[i]);
    if (reads && flag) {
      Lane& lane = warp.lane(i);
      if (object) {
        Knowledge& to = now.instr.order & kOrderRelaxed ? lane.seen[kGridScope] : lane.known;
        to = join(to, flag->to_grid);
      } else if (at_once) {
        lane.known = join(lane.known, told_to(*flag, own, scope));
      } else {
        for (const Scope fence : {kGridScope, kClusterScope, kBlockScope})
          lane.seen[fence] = join(lane.seen[fence], told_to(*flag, own, std::max(scope, fence)));
      }
    }
    if (!writes) return;
    std::array<Knowledge, kScopes> told;
    if (releases) {
      told[scope] = known_of(block, warp, i);
      released = true;
    } else {
      told[scope] = join(block.fenced, warp.fenced);
      if (warp.lanes)
        for (const Scope fence : {kGridScope, kClusterScope, kBlockScope})
          if (const Ref<Fence>& f = warp.lane(i).fence[fence]) {
            Knowledge& to = told[std::max(scope, fence)];
            to = join(to, f->known);
          }
    }
    if (!flag && std::none_of(told.begin(), told.end(), [](const Knowledge& k) { return bool(k); }))
      return;
    auto& flags = now.space == Space::shared ? now.home.flags : flags_;
    Flag& to = flags[a.v[i]];
    if (object) {  // who waits for this phase is told, once it is complete
      for (const Scope s : {kGridScope, kClusterScope, kBlockScope})
        if (s != kBlockScope || &now.home == &now.block) to.arriving = join(to.arriving, told[s]);
      return;
    }
    if (now.access == Access::store) to = {};  // an atomic passes on what was there
    for (const Scope s : {kGridScope, kClusterScope, kBlockScope}) tell(to, own.linear, s, told[s]);
  });
  if (released) tick(warp);
}

void RaceCheck::mbarrier_phase(Block& home, std::uint32_t offset) {
  auto& flags = blocks_.at(&home)->flags;
  const auto it = flags.find(offset);
  if (it == flags.end()) return;
  Flag& flag = it->second;
  flag.to_grid = join(flag.to_grid, std::exchange(flag.arriving, {}));
}

void RaceCheck::fence(Warp& warp, const Instr& instr, std::uint32_t mask) {
  BlockState& block = state_of(*warp.block);
  WarpState& state = block.warps[warp.index];
  const Scope scope = scope_of(instr);
  if (state.lanes)
    each_lane(mask, [&](int i) {
      Lane& lane = state.lane(i);
      lane.known = join(lane.known, lane.seen[scope]);
      for (int s = scope; s < kScopes; ++s) lane.seen[static_cast<std::size_t>(s)] = {};
    });
  // Lanes without knowledge of their own share one; that it tells of all of them is no lie, since
  // they execute the fence together.
  Ref<Fence> common;
  each_lane(mask, [&](int i) {
    Lane& lane = state.lane(i);
    Ref<Fence> fence = common;
    if (!fence || lane.known || state.met.pairs) {
      fence = Ref<Fence>(new Fence);
      if (lane.known || state.met.pairs || mask != state.born) {
        fence->known = known_of(block, state, i);
      } else {
        fence->known = learn(known_of_warp(block, state), root_,
                             thread_key(warp.block->linear, warp.index, 0), kWarpLevel, state.now);
        common = fence;
      }
    }
    for (int s = scope; s < kScopes; ++s) lane.fence[static_cast<std::size_t>(s)] = fence;
  });
  tick(state);
}

// ---- meetings ---------------------------------------------------------------------------------

void RaceCheck::warp_sync(Warp& warp, const Instr& instr, std::uint32_t mask, std::uint32_t) {
  const bool barrier = instr.op_class == OpClass::barrier;
  // Lanes that execute it together meet only those that their masks name.
  const std::uint32_t* masks = instr.e.valid() ? warp.lanes<const std::uint32_t>(instr.e) : nullptr;
  while (mask) {
    std::uint32_t group = mask;
    if (masks) {
      const std::uint32_t named = masks[std::countr_zero(mask)];
      each_lane(mask, [&](int lane) {
        if (masks[lane] != named) group &= ~(1u << lane);
      });
    }
    if (barrier)
      meet(warp, group);
    else
      pass_on(warp, group);
    mask &= ~group;
  }
}

// A shuffle, vote or the like makes nothing visible that its lanes wrote (programming guide: "do
// not imply a memory barrier"). Two things hold nevertheless, and NVIDIA's own libraries build on
// them (the tiles of several warps of cooperative groups on both): what a lane read before, it has,
// so that a later write of another lane comes too late to change it; and what one of them has
// acquired from other warps, those have too that go by what it says.
void RaceCheck::pass_on(Warp& warp, std::uint32_t mask) {
  WarpState& state = state_of(*warp.block).warps[warp.index];
  const bool all = mask == warp.live;
  if (all)
    state.read = {state.now, nullptr};
  else
    state.read.add(mask, state.now);
  tick(state);
  if (!state.lanes) return;
  Knowledge known;
  each_lane(mask, [&](int i) { known = join(known, state.lane(i).known); });
  if (!known) return;
  if (all) state.known = join(state.known, known);
  each_lane(mask, [&](int i) { state.lane(i).known = all ? Knowledge() : known; });
}

void RaceCheck::meet(Warp& warp, std::uint32_t mask) {
  BlockState& block = state_of(*warp.block);
  WarpState& state = block.warps[warp.index];
  const bool all = mask == warp.live;
  if (state.lanes) {
    Knowledge known, fenced;
    each_lane(mask, [&](int i) {
      Lane& lane = state.lane(i);
      known = join(join(known, lane.known), lane.seen[kGridScope]);
      if (lane.fence[kClusterScope]) fenced = join(fenced, lane.fence[kClusterScope]->known);
    });
    if (all) {
      state.known = join(state.known, known);
      state.fenced = join(state.fenced, fenced);
    }
    each_lane(mask, [&](int i) {
      Lane& lane = state.lane(i);
      lane.seen = {};
      lane.known = all ? Knowledge() : known;
      if (!fenced) return;
      lane.fence[kGridScope] = lane.fence[kClusterScope] = {};
      if (all) return;
      lane.fence[kGridScope] = lane.fence[kClusterScope] = Ref<Fence>(new Fence);
      lane.fence[kGridScope]->known = fenced;
    });
  }
  if (mask == state.born) {  // lanes that have ended did not come: what they did is not over
    state.met = {state.now, nullptr};
  } else {
    state.met.add(mask, state.now);
  }
  tick(state);
}

void Meetings::add(std::uint32_t mask, Time now) {
  if (!pairs) pairs = std::make_unique<Pairs>();  // (all zero)
  std::array<Time, kWarpSize> sum{};
  each_lane(mask, [&](int i) {
    for (std::size_t k = 0; k < kWarpSize; ++k)
      sum[k] = std::max(sum[k], (*pairs)[static_cast<std::size_t>(i)][k]);
  });
  each_lane(mask, [&](int i) { sum[static_cast<std::size_t>(i)] = now; });
  each_lane(mask, [&](int i) { (*pairs)[static_cast<std::size_t>(i)] = sum; });
}

void RaceCheck::barrier_arrive(Warp& warp, const Instr&, std::uint32_t mask, int barrier,
                               bool wait) {
  BlockState& block = state_of(*warp.block);
  WarpState& state = block.warps[warp.index];
  Arrival arrival{warp.index, mask, wait, state.now, {}};
  if (!wait) {  // it goes on and learns more, which those who wait must not profit from
    each_lane(mask, [&](int i) { arrival.known = join(arrival.known, known_of(block, state, i)); });
    tick(state);
  }
  block.arrivals[static_cast<std::size_t>(barrier)].push_back(std::move(arrival));
}

void RaceCheck::barrier_complete(Block& of, int barrier) {
  BlockState& block = state_of(of);
  std::vector<Arrival> arrivals = std::move(block.arrivals[static_cast<std::size_t>(barrier)]);
  block.arrivals[static_cast<std::size_t>(barrier)].clear();
  std::uint32_t waiting = 0;
  Knowledge known, fenced;
  for (const Arrival& a : arrivals) {
    if (!a.wait) continue;
    waiting += static_cast<std::uint32_t>(std::popcount(a.mask));
    WarpState& warp = block.warps[a.warp];
    known = join(known, warp.known);
    fenced = join(fenced, warp.fenced);
    if (warp.lanes)
      each_lane(a.mask, [&](int i) {
        Lane& lane = warp.lane(i);
        lane.known = join(lane.known, lane.seen[kGridScope]);
        lane.seen = {};
        known = join(known, lane.known);
        if (lane.fence[kClusterScope]) fenced = join(fenced, lane.fence[kClusterScope]->known);
      });
  }
  if (waiting >= of.live_threads) {  // everybody: one number says it all
    block.known = join(block.known, known);
    block.fenced = join(block.fenced, fenced);
    block.barrier = clock_;
    ++clock_;
    for (WarpState& warp : block.warps) {
      warp.known = {};
      warp.fenced = {};
      warp.met.pairs.reset();
      warp.lanes.reset();
      warp.now = clock_;
    }
    return;
  }
  for (const Arrival& a : arrivals) {
    if (!a.wait) {
      known = join(known, a.known);
      continue;
    }
    WarpState& warp = block.warps[a.warp];
    const std::uint64_t key = thread_key(of.linear, a.warp, 0);
    if (a.mask == of.warps[a.warp].live) {
      known = learn(known, root_, key, kWarpLevel, a.time);
    } else {
      each_lane(a.mask, [&](int i) {
        known = learn(known, root_, key | static_cast<std::uint32_t>(i), kThreadLevel, a.time);
      });
    }
    if (warp.met.pairs)
      each_lane(a.mask, [&](int i) { known = join(known, known_of(block, warp, i)); });
  }
  for (const Arrival& a : arrivals) {
    if (!a.wait) continue;
    WarpState& warp = block.warps[a.warp];
    if (a.mask == of.warps[a.warp].live) {
      warp.known = join(warp.known, known);
      warp.fenced = join(warp.fenced, fenced);
      warp.met.all = std::max(warp.met.all, a.time);
    } else {
      each_lane(a.mask, [&](int i) { warp.lane(i).known = join(warp.lane(i).known, known); });
    }
    tick(warp);
  }
}

// ---- clusters ---------------------------------------------------------------------------------

void RaceCheck::cluster_arrive(Warp& warp, const Instr& instr, std::uint32_t mask) {
  BlockState& block = state_of(*warp.block);
  WarpState& state = block.warps[warp.index];
  Knowledge& to = clusters_[&warp.block->cluster].arriving;
  if (instr.order & kOrderRelaxed) {  // only what a fence before it has released
    to = join(to, join(block.fenced, state.fenced));
    if (state.lanes)
      each_lane(mask, [&](int i) {
        if (const Ref<Fence>& f = state.lane(i).fence[kClusterScope]) to = join(to, f->known);
      });
    return;
  }
  if (mask == warp.live) {
    const std::uint64_t key = thread_key(warp.block->linear, warp.index, 0);
    to = join(to, learn(known_of_warp(block, state), root_, key, kWarpLevel, state.now));
    if (state.lanes) each_lane(mask, [&](int i) { to = join(to, state.lane(i).known); });
  } else {
    each_lane(mask, [&](int i) { to = join(to, known_of(block, state, i)); });
  }
  tick(state);
}

void RaceCheck::learn_lanes(Warp& warp, std::uint32_t mask, const Knowledge& told) {
  WarpState& state = state_of(*warp.block).warps[warp.index];
  if (mask == warp.live)
    state.known = join(state.known, told);
  else
    each_lane(mask, [&](int i) { state.lane(i).known = join(state.lane(i).known, told); });
}

void RaceCheck::cluster_complete(Cluster& cluster) {
  ClusterState& state = clusters_[&cluster];
  state.told = std::exchange(state.arriving, {});
  for (const auto& block : cluster.blocks)
    for (Warp& warp : block->warps)
      for (const Fragment& f : warp.fragments)
        if (f.state == Fragment::State::at_cluster) learn_lanes(warp, f.mask, state.told);
}

void RaceCheck::cluster_wait(Warp& warp, const Instr&, std::uint32_t mask) {
  if (const std::uint32_t passing = mask & warp.cluster_passed)
    learn_lanes(warp, passing, clusters_[&warp.block->cluster].told);
}

void RaceCheck::lanes_exit(Warp& warp, const Instr&, std::uint32_t mask) {
  BlockState& block = state_of(*warp.block);
  if (!block.visits.empty()) {
    WarpState& state = block.warps[warp.index];
    block.ended = join(block.ended, known_of_warp(block, state));
    if (state.lanes)
      each_lane(mask, [&](int i) { block.ended = join(block.ended, state.lane(i).known); });
  }
  if (warp.block->live_threads == static_cast<std::uint32_t>(std::popcount(mask))) end(block);
}

// The block's last thread ends, and with it the shared memory that others may still be using.
void RaceCheck::end(BlockState& block) {
  const std::string gone = "block " + block_text(*launch_, block.block->linear);
  const auto thread = [&](const Record& r, int lane) {
    return "thread " +
           thread_text(*launch_, r.warp * kWarpSize + static_cast<std::uint32_t>(lane)) +
           " of block " + block_text(*launch_, r.block);
  };
  for (const auto& [key, visit] : block.visits) {
    if (forgotten(visit.record)) continue;
    const Record r = record(visit.record);
    const auto lane = static_cast<std::uint32_t>(visit.lane);
    if (r.time <= known_until(block.ended, thread_key(r.block, r.warp, lane))) continue;
    const std::string there = where(*r.instr, *r.function);
    findings_.add(there + "|end", [&] {
      return there + ": error: race: " +
             (r.access == Access::load    ? "read"
              : r.access == Access::store ? "write"
                                          : "atomic access") +
             " of " + bytes_text(r.bytes) + " at offset " + std::to_string(visit.address) +
             " of the shared memory of " + gone + " by " + thread(r, visit.lane) +
             ", and the end of that block, without a barrier of the cluster or a release and an "
             "acquire between, in " +
             launch_->request.function->display;
    });
  }
  block.block->async_arrivals.each([&](const AsyncArrival& copy) {
    if (copy.warp->block == block.block || !copy.bytes) return;
    const std::string there = where(*copy.instr, *copy.frame->function);
    findings_.add(there + "|flight", [&] {
      return there + ": error: race: asynchronous copy of " + bytes_text(copy.bytes) +
             " to the shared memory of " + gone + " by block " +
             block_text(*launch_, copy.warp->block->linear) +
             ", and the end of that block before it waited for the copy, in " +
             launch_->request.function->display;
    });
  });
}

// ---- asynchronous copies ----------------------------------------------------------------------

void RaceCheck::copy_issue(Warp& warp, const Instr& instr, int lane, Block& to,
                           std::uint32_t offset, std::uint32_t bytes) {
  BlockState& block = state_of(*warp.block);
  BlockState& home = *blocks_.at(&to);
  WarpState& state = block.warps[warp.index];
  const std::uint32_t each = std::min(bytes, 16u);  // bulk copies come in one piece
  Now now{warp,  instr, nullptr,       nullptr,       block, home,
          state, each,  Access::store, Space::shared, 0,     home.first_record};
  now.trace = state.key | record_for(state, warp, instr, bytes, Access::store);
  for (std::uint32_t at = offset; at < offset + bytes; at += each) {
    touch(now, lane, at, false);
    ShadowPage& p = page(now, at, 2);
    for (std::uint32_t i = 0; i < each >> p.shift(); ++i)
      p.written()[(at % kPageBytes >> p.shift()) + i] |= kTracePending;
  }
}

void RaceCheck::copy_land(Warp& warp, int lane, Block& to, std::uint32_t offset,
                          std::uint32_t bytes) {
  BlockState& home = *blocks_.at(&to);
  WarpState& state = state_of(*warp.block).warps[warp.index];
  const std::uint32_t each = std::min(bytes, 16u);
  for (std::uint32_t at = offset; at < offset + bytes; at += each) {
    auto& page = home.shared[at >> kPageBits];
    if (!page) continue;
    Trace* written = page->written() + (at % kPageBytes >> page->shift());
    for (std::uint32_t i = 0; i < each >> page->shift(); ++i) {
      Trace& t = written[i];
      if (!(t & kTracePending) || (t & kTraceWarp) != (state.key & kTraceWarp) ||
          lane_of(t) != lane)
        continue;
      const std::uint32_t n = record_of(t);
      if (n < home.first_record || forgotten(n) || home.mbarriers) {
        t = 0;  // an mbarrier tells those who wait for it, whoever they are
        continue;
      }
      // Written now, so far as others are concerned: what came between does not order it.
      Record landed = record(n);
      landed.time = state.now;
      t = (t & ~(kTracePending | 0xffffffffull)) | record_for(state, landed);
    }
  }
}

}  // namespace

std::unique_ptr<Observer> make_race_check() { return std::make_unique<RaceCheck>(); }

}  // namespace vgpu
