// A block in flight, the worker (host thread) that runs it, and the launch it belongs to.
#pragma once
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>

#include "cluster.h"
#include "machine.h"
#include "observer.h"
#include "random.h"
#include "ranking.h"
#include "straight.h"
#include "waiting.h"
#include "warp.h"
#include "warpgroup.h"

namespace vgpu {

// Which 32-byte sectors of an allocation a launch touched; one byte each, set by any worker.
struct TouchMap {
  std::shared_ptr<Allocation> allocation;
  struct Free {
    void operator()(std::uint8_t* p) const { std::free(p); }
  };
  std::unique_ptr<std::uint8_t[], Free> read, written;
  std::size_t sectors = 0;
};

// What one worker knows of one memory instruction: the window it last hit, and its counters.
struct Site {
  std::uint64_t low = 1, high = 0;     // device addresses [low, high) of the allocation last hit
  std::ptrdiff_t bias = 0;             // host address = device address + bias
  GlobalCounters* counters = nullptr;  // for that allocation
  std::uint8_t *read = nullptr,
               *written = nullptr;  // touch maps, offset so that address/32 indexes
  std::uint64_t marked_first =
      ~std::uint64_t{0};  // sectors that were marked last, see count_global
  std::int64_t marked_stride = 0;
  SharedCounters shared;
  RemoteCounters remote;
  GlobalCounters local;
};

struct FunctionState {
  const Function* function = nullptr;
  std::vector<InstrCounters> counts;
  std::vector<Site> sites;
};

struct Launch;

// Memory that ended blocks leave to the next ones: fresh pages cost more than many a block.
class Spares {
 public:
  // Zeroed.
  std::unique_ptr<std::byte[]> take(std::size_t bytes);
  void leave(std::unique_ptr<std::byte[]> memory, std::size_t bytes);
  std::unique_ptr<WarpCopies> take_copies();
  void leave(std::unique_ptr<WarpCopies> copies);

 private:
  std::multimap<std::size_t, std::unique_ptr<std::byte[]>> memory_;  // by size
  std::vector<std::unique_ptr<WarpCopies>> copies_;
};

// Who is told about the blocks of a cluster.
struct Audience {
  std::vector<Observer*> all;
  std::vector<Observer*> followers;  // observers that want every instruction
};

// One host thread.
struct Worker {
  explicit Worker(Launch& l) : launch(l) {}
  Launch& launch;
  std::unordered_map<const Function*, std::unique_ptr<FunctionState>> functions;
  // By function, memory_site and allocation.
  using Key = std::tuple<const Function*, std::uint32_t, std::uint32_t>;
  std::map<Key, GlobalCounters> by_allocation;
  std::map<Key, BulkCounters> bulk_by_allocation;
  bool counting = false;
  const Audience* audience = nullptr;  // null: nobody looks
  RunStraight straight = run_straight;
  // From now on blocks run that this audience watches.
  void attend(const Audience& watching) {
    audience = watching.all.empty() ? nullptr : &watching;
    straight = watching.followers.empty() ? run_straight : run_straight_followed;
  }
  template <class F>
  void notify(F f) {
    if (audience)
      for (Observer* observer : audience->all) f(*observer);
  }
  std::uint32_t sectors_per_clock = 4;      // what the named device's L1 delivers
  double l1_clocks = 0, shared_clocks = 0;  // what the running block takes
  std::uint64_t tensor_f16 = 0, tensor_f16_sums = 0, tensor_f8 = 0, tensor_tf32 = 0,
                tensor_int8 = 0, tensor_int4 = 0, async_bytes = 0;
  std::uint64_t most_bulk_under_way = 0;  // as in LaunchCounters
  WarpgroupWork warpgroup_work = {};      // the part of these by wgmma
  std::uint64_t frame_bytes = 0;          // bytes of frames of calls in flight
  Loops loops;
  Spares spares;
  std::uint64_t time = 0;  // virtual clock base, grows with each finished block
  FunctionState& state_of(const Function& function);
};

struct Launch {
  Launch(Machine& m, const LaunchRequest& r, std::atomic<std::uint64_t>& heap)
      : machine(m),
        request(r),
        memory(m.memory()),
        params(r.params.begin(), r.params.end()),
        heap_used(heap) {}
  ~Launch() {
    for (const auto& allocation : freed) memory.dispose(*allocation);
  }
  Machine& machine;
  const LaunchRequest& request;
  Memory& memory;
  std::vector<std::byte> params;
  std::byte* constants = nullptr;  // the module's
  std::uint64_t constant_bytes = 0;
  // A block's static and dynamic shared memory, and what is reserved, for kernels that use it.
  std::uint32_t shared_bytes = 0, reserved_shared = 0;
  std::uint32_t dynamic_shared_base = 0;
  bool ranked_shared = false;  // addresses of it have the block's rank: clusters of several blocks
  std::uint32_t warps_per_block = 0;
  std::uint32_t stack_bytes = 0;  // local memory a thread for called functions
  std::uint64_t grid_id = 0;
  std::atomic<std::uint64_t>& heap_used;  // bytes of the device heap in use
  // Copies in flight point into memory: once there was one, what kernels free stays until the end.
  std::atomic<bool> async_copies{false};
  std::vector<std::shared_ptr<Allocation>> freed;
  std::uint64_t workspace = 0;  // device address, zeroed; grid-wide barriers live in it
  static constexpr std::uint64_t kWorkspaceBytes = 4096;
  bool in_workspace(std::uint64_t address) const {
    return workspace && address >= workspace && address - workspace < kWorkspaceBytes;
  }
  std::uint64_t seed = 0;  // for a shuffled schedule, 0: none
  bool hostile = false;    // it is a hostile one (ranking.h)
  // Every warp of every resident block lets the others go on at each memory instruction, so that
  // accesses come interleaved, as from a GPU (for the cache model).
  bool small_turns = false;
  // Blocks that fetch from a counter in a loop let others fetch, too: see Block::may_fetch.
  bool fair = false;
  // The kernel looks at memory that others may write, so it may wait for them.
  bool may_wait = false;
  // Observers of every block, and observers of blocks in sampled clusters.
  Audience everywhere, with_samplers;
  bool sampled(std::uint64_t cluster) const;
  bool only_sampled = false;                                   // the other blocks are not executed
  std::atomic<std::uint64_t> executed_blocks{0};               // when only_sampled: how many are
  std::mutex mutex;                                            // guards what follows
  std::map<std::uint32_t, std::unique_ptr<TouchMap>> touched;  // by allocation id
  std::vector<double> l1_clocks_by_sm, shared_clocks_by_sm;
  std::vector<std::uint64_t> issued_by_sm;
  std::vector<std::vector<std::uint64_t>> issued_to_grid_barrier;  // see LaunchCounters
  // The fault that is reported: that of the first cluster in the grid that has one. Clusters behind it
  // end early and clusters before it run on, so the report does not depend on which host thread was
  // quicker. (Without clusters each block is a cluster.)
  Fault fault;
  std::atomic<std::uint64_t> fault_cluster{~0ull};
  std::uint64_t start_time = 0;  // virtual nanoseconds at the launch

  // Decoded function, ready to run. Throws PtxError.
  std::function<const Function*(const Function*)> prepare;
  std::function<const Function*(std::uint64_t address)> function_at;
  TouchMap* touch_map(const std::shared_ptr<Allocation>& allocation);
  void print(std::string_view text);
  void stop_at(std::uint64_t cluster, Fault why);
};

struct Barrier {
  std::uint32_t arrived = 0;     // threads
  std::uint32_t expected = 0;    // threads; 0: all live ones
  bool any = false, all = true;  // reductions of bar.red
  std::uint32_t count = 0;
};

// A report that an mbarrier object will get once copies have landed. There are two kinds. With
// `bytes` 0 it is a thread's arrival, which counts after its cp.async copies (ops/mbarrier.cpp).
// Otherwise it is a copy of `bytes` bytes into the shared memory of the object's block.
class TensorBox;  // bulk.h
struct AsyncArrival {
  std::byte* object = nullptr;
  Warp* warp = nullptr;  // the warp that asked for it
  Ref<Frame> frame;      // the function call in which it asked
  const Instr* instr = nullptr;
  int lane = 0;
  // Number of the last copy that the arrival waits for. Of a bulk or tensor copy: its own number,
  // see LaneCopies::bulk_issued.
  std::uint64_t up_to = 0;
  std::uint32_t bytes = 0, shared_offset = 0;
  // The copy's source on the host: global memory, or the shared memory of the warp's block. Null for
  // st.async and red.async, whose data are in `value`.
  const std::byte* source = nullptr;
  std::shared_ptr<const TensorBox> box = {};  // what a tensor copy brings
  std::array<std::byte, 16> value = {};
};

// Reports that mbarrier objects of a block have not got yet.
class AsyncArrivals {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  // The bytes of copies that have not landed yet.
  std::uint64_t bytes() const { return bytes_; }
  void push(AsyncArrival arrival) {
    ++size_;
    bytes_ += arrival.bytes;
    by_object_[arrival.object].push(std::move(arrival));
  }
  // Removes the reports for one object and calls f for each, in the order in which they were asked for.
  template <class F>
  void take(const std::byte* object, F f) {
    const auto found = by_object_.find(object);
    if (found == by_object_.end()) return;
    while (!found->second.empty()) {
      AsyncArrival arrival = found->second.pop();
      --size_;
      bytes_ -= arrival.bytes;
      f(std::move(arrival));
    }
  }
  template <class F>
  void each(F f) const {
    for (const auto& [object, arrivals] : by_object_)
      for (const AsyncArrival& arrival : arrivals) f(arrival);
  }

 private:
  std::map<const std::byte*, Queue<AsyncArrival>> by_object_;
  std::size_t size_ = 0;
  std::uint64_t bytes_ = 0;
};

class Block {
 public:
  Block(Launch& launch, Worker& worker, Cluster& cluster, std::uint32_t rank, std::uint64_t linear);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  enum class Status { done, waiting, blocked };
  // Runs until all threads have exited, or until it only waits for what other blocks do; blocked: no
  // thread can go on before the cluster's barrier is complete. Throws Fault.
  Status run();

  // Called by warps.
  void arrive(Warp& warp, Fragment& fragment, const Instr& instr, std::uint32_t mask, int barrier,
              std::uint32_t expected, bool wait);
  void reduce(int barrier, bool any, bool all, std::uint32_t count);  // bar.red's operands
  void threads_exited(Warp& warp, std::uint32_t lanes);
  // Fair shares of work: may the block execute an atomic in a loop that may fetch work from a shared
  // counter? Once in a turn; then other blocks have their turn, since on a GPU all run at the same
  // time. After kFairTurns such turns it may also fetch in the first instructions of a turn, as often
  // as it likes: short turns cost more than they share.
  bool may_fetch();
  // A thread has arrived at the barrier of the grid: what the block has executed counts to that barrier.
  void arrived_at_grid();
  bool release_joins();  // lanes that wait for others of their warp go on without them

  Launch& launch;
  Worker& worker;
  Cluster& cluster;
  std::uint32_t rank = 0;  // in the cluster
  std::uint64_t linear = 0;
  std::uint64_t sm = 0;  // where it is placed; a cluster is on consecutive ones
  Dim3 index;
  std::uint32_t live_threads = 0;
  std::vector<Warp> warps;
  std::byte* shared = nullptr;
  AsyncArrivals async_arrivals;
  // Registers per thread at the block's start, or 0 when no setmaxnreg can change them; and the
  // registers that no thread has now.
  std::uint32_t entry_registers = 0, free_registers = 0;
  std::vector<WarpgroupLog> warpgroups;  // made at the first product
  std::uint64_t idle_rounds = 0;         // rounds in which every warp only turned in waiting loops
  bool got_further = false;              // in the last run
  std::uint64_t clock() const;
  // Hash of all that decides what the block's loops do next while nobody writes to the memory that
  // they read. Equal hashes mean equal futures, apart from clocks: `reads_clock` becomes true when a
  // loop reads one. 0: unknown, because a loop's turn that has written is not over.
  std::uint64_t state_hash(bool& reads_clock) const;
  // Does a loop wait for memory that the host may write meanwhile?
  bool looks_at_host() const;
  // Turns in the usual order and of the usual length, whatever the schedule.
  bool steady = false;
  // Words for a deadlock of `resident` blocks that all wait in loops.
  std::string waits_for_ever(std::size_t resident);
  std::string runs_for_ever();  // the same for Machine::instruction_limit

 private:
  Status run_hostile();
  // After a round in which nobody got further (`ran`: somebody tried): what then. Nothing: go on.
  std::optional<Status> idle(bool ran);
  void complete_barrier(int barrier);
  void check_barriers();
  std::string others_stand(const Fragment& than);
  std::string stands(Warp& warp, const Fragment& fragment);
  std::shared_ptr<Allocation> host_memory_of(const Warp& warp) const;
  bool at_cluster_barrier() const;
  [[noreturn]] void deadlock();

  Barrier barriers_[16];
  std::uint64_t grid_barriers_ = 0,
                issued_to_grid_barrier_ = 0;  // arrivals; instructions until the last
  std::uint32_t blocked_turns_ = 0, fair_turns_ = 0;
  bool fetched_ = false, gives_way_ = false;  // in this turn
  std::uint64_t executed_ = 0;                // in this turn, by warps before the running one
  std::unique_ptr<std::byte[]> shared_storage_, local_storage_, frame_storage_;
  std::size_t shared_storage_bytes_ = 0, frame_storage_bytes_ = 0;
  Random random_;
  Ranking ranking_;  // orders the warps of a hostile schedule
  struct Rank {
    std::uint64_t place;
    bool asked;  // since somebody got further
  };
  std::vector<Rank> ranks_;
};

// Lands the copies of one lane up to this number, whatever their groups.
void land_copies(Warp& warp, int lane, std::uint64_t up_to);

// "kernel.cuh:42: error: WHAT by thread (3,0,0) of block (1,0,0) in scores_kernel"
std::string describe(const Warp& warp, const Instr& instr, int lane, const std::string& what);
std::string where(const Instr& instr, const Function& function);
// Where the function was called that is inlined at the instruction: the outermost place, "kernel.cuh:90",
// or "" when nothing is inlined or it is not known.
std::string where_called(const Instr& instr, const Function& function);

// Begins an instruction that the lanes in `mask` have reached: counts it, and returns the lanes that
// its guard lets execute it. `counts`: the running frame's counters, or null.
inline std::uint32_t begin_instruction(Warp& warp, const Instr& instr, std::uint32_t mask,
                                       InstrCounters* counts) {
  std::uint32_t on = mask;
  if (instr.guard.valid())
    on &= instr.guard_not ? ~warp.predicate(instr.guard) : warp.predicate(instr.guard);
  if (counts) {
    InstrCounters& count = counts[instr.pc];
    ++count.issued;
    count.lanes += static_cast<std::uint32_t>(std::popcount(on));
  }
  ++warp.instructions;
  return on;
}

}  // namespace vgpu
