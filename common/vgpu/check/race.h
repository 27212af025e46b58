// Races: two threads access the same bytes, at least one writes, and nothing orders them.
//
// What orders (happens before): a thread's own program, barriers of the block (threads that take
// part, by what they did before they arrived), __syncwarp (the lanes in its mask), and release ->
// acquire chains: a fence and then an atomic or a volatile or relaxed store (or a store.release),
// seen by an atomic or a volatile or relaxed load that a fence follows (or a load.acquire). After a
// load of a flag in shared memory, a barrier or a __syncwarp acquires, too. Each has a scope: it
// orders the block, the cluster or the grid. An atomic operation that sees a release acquires by
// itself: the common last-block and lock idioms have no fence behind it. Who waits for a phase of
// an mbarrier knows what arrived in it and before. Shuffles, votes and the like order no writes
// (see pass_on).
//
// The products of a warpgroup read their operands as a thread of its own, to which a product's number
// is its time. A wait for products makes the waiting warp know this thread, and nothing else of the four
// warps. So does the copy engine for each thread that asks for bulk copies out of shared memory.
//
// Accesses are compared by time: a counter that grows at each such event. Each access carries the
// time of its warp's last event. For each other thread, a thread knows a time: accesses up to it
// are over (check/known.h). Blocks of a cluster also meet at its barrier, and a block must not end
// while another still accesses its shared memory. Two numbers answer most questions: the time of
// the block's last barrier, and the time when the warp last met.
//
// race.cpp looks at accesses; race_order.cpp keeps what orders them; race_words.cpp has the messages.
#pragma once
#include <array>
#include <deque>
#include <map>
#include <tuple>
#include <unordered_map>

#include "../core/access.h"
#include "../core/warpgroup.h"
#include "checks.h"
#include "known.h"
#include "shadow.h"

namespace vgpu::race {

// Who accesses memory: a thread, or on behalf of a warpgroup a product, or of a thread the copy engine.
enum class Actor : std::uint8_t { thread, product, sender, fetcher };

// An instruction executed by a warp since the warp's last event.
struct Record {
  Time time =
      0;  // not of a thread: the product's number in its warpgroup, the copy's in its thread
  std::uint64_t block = 0;
  std::uint32_t warp = 0;
  std::uint32_t bytes = 0;
  const Instr* instr = nullptr;
  const Function* function = nullptr;
  Access access = Access::load;
  Actor by = Actor::thread;
};

// The two instructions of a conflict with their functions, and its kind: what its finding's key is made of.
using Place = std::tuple<const Instr*, const Function*, const Instr*, const Function*, unsigned>;

// What a thread knew when it executed a fence: what its next flag tells.
struct Fence {
  std::uint32_t references = 0;
  Knowledge known;
};

// Whom a release, an acquire or a fence is for.
enum Scope : int { kGridScope, kClusterScope, kBlockScope, kScopes };
inline Scope scope_of(const Instr& instr) {
  return instr.order & kOrderBlock     ? kBlockScope
         : instr.order & kOrderCluster ? kClusterScope
                                       : kGridScope;
}

struct Lane {
  Knowledge known;                        // beyond what its block and its warp know
  std::array<Knowledge, kScopes> seen;    // by flags it read: what a fence of this scope
                                          // makes known
  Knowledge seen_here;                    // the same for flags in shared memory: by a barrier
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
  void add(std::uint32_t mask, Time now);  // the lanes in `mask` meet
};

struct WarpState {
  std::uint32_t index = 0, born = 0;
  Trace key = 0;            // the warp's bits of a trace
  Time now = 0;             // the time of its accesses
  Meetings met;             // until when a lane's accesses are over
  Meetings read;            // until when a lane's reads have their values
  Knowledge known, fenced;  // what all its lanes know
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
  std::unordered_map<Trace, Visit> visits;  // by the keys of other blocks' warps
  Knowledge ended;                          // what its threads knew when they ended
  Time barrier = 0;                         // all threads know each other up to here
  bool mbarriers = false;                   // it uses mbarrier objects
  std::uint32_t first_record = 0;           // older ones in reused shadow are of other blocks
  Knowledge known, fenced;
  std::array<Knowledge, kScopes> seen;  // by threads before a barrier, as Lane::seen
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
    // Behind the keys of the threads come those of products and two of the copy engine.
    const Function& kernel = *launch.request.function;
    const std::uint64_t keys = uses_wgmma(kernel) || uses_bulk_copies(kernel) ? 4 * blocks : blocks;
    root_ = 2;
    for (std::uint64_t reach = 32; reach < keys; reach *= 32) ++root_;
  }
  void launch_end(Launch&, std::vector<std::string>& findings) override {
    // One missing barrier is one finding: also where some of its pairs are of one warp, or of one block.
    findings_.each_key([&](const std::string& key) {
      const std::string lines = key.substr(0, key.size() - 1);
      if (key.ends_with("w")) findings_.drop(key, lines + "b");
      if (key.ends_with("w") || key.ends_with("b")) findings_.drop(key, lines);
    });
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
  void operand_read(Warp& warp, const Instr& instr, std::span<const std::uint32_t> pieces,
                    Reading reading, std::uint64_t product) override;
  void products_complete(Warp& warp, std::uint64_t product) override;
  void bulk_access(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                   std::uint32_t bytes, Access access, std::byte* host) override;
  void bulk_land(Warp& warp, const Instr& instr, int lane, const Block& to, std::uint32_t mbarrier,
                 std::uint32_t bytes, std::uint64_t copy) override;
  void source_read(Warp& warp, const Instr& instr, int lane, std::uint32_t offset,
                   std::uint32_t bytes, std::uint64_t copy) override;
  void sources_read(Warp& warp, int lane, std::uint64_t copy) override;
  void source_landed(Warp& warp, int lane, std::uint32_t offset, std::uint32_t bytes,
                     std::uint64_t copy) override;
  void source_given_up(Warp& warp, const Instr& instr, int lane, std::uint32_t bytes) override;
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
    Trace trace;           // without the lane
    std::uint32_t oldest;  // older ones, of earlier blocks in the same shared memory, do not count
    Actor by = Actor::thread;
    std::uint32_t fine[2] = {0, 0};  // the last two records that ordered_for_all() found ordered
  };
  BlockState& state_of(Block& block) {
    if (!current_ || current_->block != &block) current_ = blocks_.at(&block).get();
    return *current_;
  }
  Record& record(std::uint32_t i) { return records_[i % records_.size()]; }
  bool forgotten(std::uint32_t i) const { return next_record_ - i > kRecords; }
  // Whom knowledge is asked about: who reads operands for the warp, who reads sources of copies for the
  // thread, and who made an access.
  std::uint64_t operand_key(std::uint64_t block, std::uint32_t warp) const {
    return thread_key(launch_->request.grid.count() + block, warp / kWarpsOfGroup, 0);
  }
  std::uint64_t engine_key(Actor by, std::uint64_t block, std::uint32_t warp,
                           std::uint32_t lane) const {
    const std::uint64_t behind = by == Actor::sender ? 2 : 3;
    return thread_key(behind * launch_->request.grid.count() + block, warp, lane);
  }
  std::uint64_t knowledge_key(const Record& r, std::uint32_t lane) const {
    return r.by == Actor::thread    ? thread_key(r.block, r.warp, lane)
           : r.by == Actor::product ? operand_key(r.block, r.warp)
                                    : engine_key(r.by, r.block, r.warp, lane);
  }
  std::uint32_t record_for(WarpState& warp, Warp& w, const Instr& instr, std::uint32_t bytes,
                           Access access);
  std::uint32_t record_for(WarpState& warp, const Record& what);
  static constexpr std::uint32_t kAsidePiece = 16;
  Now aside(Warp& warp, const Instr& instr, Actor by, Space space, Time number,
            std::uint32_t bytes);
  Knowledge known_of(BlockState& block, WarpState& warp, int lane);
  Knowledge known_of_warp(BlockState& block, WarpState& warp);
  void meet(Warp& warp, std::uint32_t mask);
  void pass_on(Warp& warp, std::uint32_t mask);
  void learn_lanes(Warp& warp, std::uint32_t mask, const Knowledge& told);
  void end(BlockState& block);
  void tick(WarpState& warp) { warp.now = ++clock_; }
  bool ordered(Now& now, int lane, Trace before);
  bool ordered_for_all(Now& now, Trace before);
  bool harmless(Now& now, int lane, Trace before, bool before_wrote);
  void suspect(Now& now, int lane, Trace before, bool before_wrote, std::uint64_t address);
  void touch(Now& now, int lane, std::uint64_t address, bool many);
  void touch_loads(Now& now, std::uint32_t mask, const Addresses& a);
  void touch_row(Now& now, const Addresses& a);
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
  std::map<Place, std::size_t> known_;  // numbers of findings
};

}  // namespace vgpu::race
