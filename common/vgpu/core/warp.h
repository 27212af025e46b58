// A warp in flight: its registers, the groups of lanes that run apart, and where they meet again.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "../ptx/program.h"
#include "fault.h"
#include "queue.h"

namespace vgpu {

class Block;
struct Worker;
struct InstrCounters;
struct Site;

// A counted pointer for objects that one host thread owns: no atomics.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* p) : p_(p) {
    if (p_) ++p_->references;
  }
  Ref(const Ref& o) : p_(o.p_) {
    if (p_) ++p_->references;
  }
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() {
    if (p_ && --p_->references == 0) delete p_;
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }

 private:
  T* p_ = nullptr;
};

// One activation of a function by (some lanes of) a warp.
struct Frame {
  std::uint32_t references = 0;
  const Function* function = nullptr;
  std::byte* registers = nullptr;  // function->register_bytes, aligned to 64
  std::byte* call_area = nullptr;  // [32][function->call_area_bytes], .param variables
  std::uint32_t local_base = 0;    // where its .local variables begin in each lane's stack
  std::uint32_t depth = 0;         // how many calls deep it is
  Ref<Frame> caller;
  const Instr* call = nullptr;      // the call instruction in the caller
  InstrCounters* counts = nullptr;  // its function's, by pc; null when nothing is counted
  Site* sites = nullptr;            // its function's, by memory_site
  std::unique_ptr<std::byte[]> storage;
  std::uint64_t* account = nullptr;  // where `bytes` of storage are counted
  std::uint64_t bytes = 0;
  ~Frame() {
    if (account) *account -= bytes;
  }
};

// Where lanes that took different ways wait for each other: the immediate post-dominator of a
// branch, or the instruction after a call.
struct Join {
  std::uint32_t references = 0;
  std::uint32_t pc = kNoJoin;
  Ref<Frame> frame;
  std::uint32_t pending = 0;  // lanes that may still come
  std::uint32_t arrived = 0;  // lanes that wait here
  Ref<Join> parent;
  // Spin detection: what the lanes that wait here have done in the present turn of their loop; see
  // Warp::watched.
  bool watched = false, changed = false;
  std::uint64_t sights = 0;
  template <class T>
  void take_turn(T& of) {
    watched |= of.watched;
    changed |= of.changed;
    sights += of.sights;
    of.watched = of.changed = false;
    of.sights = 0;
  }
  template <class T>
  void give_turn(T& to) {
    to.watched |= watched;
    to.changed |= changed;
    to.sights += sights;
    watched = changed = false;
    sights = 0;
  }
};

// Lanes that run together.
struct Fragment {
  enum class State : std::uint8_t { ready, at_barrier, at_sync, at_cluster };
  std::uint32_t pc = 0;
  std::uint32_t mask = 0;
  std::uint32_t sync_mask = 0;  // lanes of `mask` that the instruction waits with (guard)
  State state = State::ready;
  std::uint8_t barrier = 0;
  // Spin detection, see Warp::watched.
  std::uint32_t spins = 0;     // iterations of a waiting loop
  std::uint32_t quiet = 0;     // iterations in a row that neither loaded such memory nor wrote
  bool waiting = false;        // the last iteration loaded what an earlier one had loaded
  std::uint64_t seen[6] = {};  // Warp::sights of the last iterations and parts of iterations
  // Warp's fields of these names, for the iteration that was begun, while other lanes run.
  bool watched = false, changed = false;
  std::uint64_t sights = 0;
  Ref<Frame> frame;
  Ref<Join> join;
};

// cp.async: a copy that a lane has asked for, of at most 16 bytes.
struct PendingCopy {
  const std::byte* source = nullptr;
  std::uint32_t shared_offset = 0;
  std::uint8_t bytes = 0, source_bytes = 0;
};
class TensorBox;  // bulk.h
// A bulk copy or reduction from shared to global memory that has not landed (ops/bulk.cpp).
struct PendingBulk {
  const Instr* instr = nullptr;
  Ref<Frame> frame;           // where the warp stood
  std::uint64_t address = 0;  // in global memory
  std::uint32_t shared_offset = 0, bytes = 0;
  std::uint16_t byte_mask = 0xffff;           // which of each 16 bytes are copied
  std::uint64_t number = 0;                   // see LaneCopies::bulk_issued
  std::vector<std::byte> source;              // once it is read
  std::shared_ptr<const TensorBox> box = {};  // where a tensor copy goes
};
struct LaneCopies {
  std::uint64_t issued = 0;     // copies are numbered from 1
  Queue<PendingCopy> pending;   // the last of them, up to number `issued`
  Queue<std::uint64_t> groups;  // the number of each group's last copy
  // Bulk and tensor copies are numbered from 1.
  std::uint64_t bulk_issued = 0;
  std::vector<PendingBulk> bulk_open;
  Queue<std::vector<PendingBulk>> bulk_groups;
  void clear() {
    issued = 0;
    pending.clear();
    groups.clear();
    bulk_issued = 0;
    bulk_open.clear();
    bulk_groups.clear();
  }
};

using WarpCopies = std::array<LaneCopies, kWarpSize>;

// wgmma: a product under way. The warp has asked for it, the result is not in its registers yet.
struct PendingProduct {
  const Instr* instr = nullptr;
  Ref<Frame> frame;            // the function call in which the warp asked
  std::uint64_t a = 0, b = 0;  // matrix descriptors; a: 0 when A is in registers
  bool accumulates = false;    // the result is added to D (scale-d)
  std::uint64_t number = 0;    // the warp's products are counted
  // The operands, copied when the product was complete: the warp has not waited for it yet, and may
  // change its shared memory meanwhile.
  struct Operands {
    std::uint32_t a[4][kWarpSize];
    std::unique_ptr<std::uint32_t[][kWarpSize]> b;  // by core matrix
  };
  std::shared_ptr<const Operands> operands;
};
struct ProductGroup {
  std::vector<PendingProduct> products;  // products that are not computed yet
  std::uint64_t end = 0;                 // the number behind the last of them
};
struct WarpProducts {
  std::uint64_t issued = 0;          // products so far
  std::vector<PendingProduct> open;  // products that are in no group yet
  Queue<ProductGroup> groups;
};

class Warp {
 public:
  template <class T>
  T* lanes(Slot slot) {
    return reinterpret_cast<T*>(base[slot.bits & 1] + (slot.bits >> 1));
  }
  std::uint32_t& predicate(Slot slot) { return *lanes<std::uint32_t>(slot); }

  // [0] registers of the running frame, [1] constants of its function.
  std::byte* base[2] = {nullptr, nullptr};

  Block* block = nullptr;
  Worker* worker = nullptr;
  std::uint32_t index = 0;   // in its block
  std::uint32_t live = 0;    // lanes that exist and have not exited
  std::uint32_t active = 0;  // lanes of the running fragment (activemask)
  // Lanes at the cluster's barrier. cluster_arrived: they have arrived in the phase that is open.
  // cluster_passed: their phase is complete, and they have not executed its wait yet.
  std::uint32_t cluster_arrived = 0, cluster_passed = 0;
  std::uint32_t carry = 0;  // condition code of add.cc and the like, one bit a lane
  // Spin detection. A loop is waiting if an iteration wrote nothing that others can see and loaded
  // the same values from the same places as one of its last iterations. Only loads from memory that
  // others may write count.
  bool watched = false;         // this iteration has loaded from such memory
  bool changed = false;         // this iteration has written to memory that others see
  std::uint64_t sights = 0;     // hash of the addresses and values that this iteration has loaded
  std::uint64_t looked_at = 0;  // the last of these addresses, for messages
  void look(std::uint64_t address, std::uint64_t value) {
    watched = true;
    looked_at = address;
    sights = (sights ^ address) * 0x9E3779B97F4A7C15ull;
    sights = (sights ^ sights >> 29 ^ value) * 0xBF58476D1CE4E5B9ull;
  }
  Frame* frame = nullptr;            // the running fragment's
  std::byte* local = nullptr;        // [32][local_capacity] bytes of local memory
  std::uint32_t local_capacity = 0;  // per lane
  std::uint64_t instructions = 0;    // executed so far
  std::uint64_t slept = 0;           // clocks asked for by nanosleep
  std::vector<Fragment> fragments;
  std::unique_ptr<WarpCopies> copies;  // made at the first copy
  LaneCopies& copies_of(int lane) {
    if (!copies) make_copies();
    return (*copies)[static_cast<std::size_t>(lane)];
  }

  std::unique_ptr<WarpProducts> products;  // made at the first one
  // Registers per thread, which setmaxnreg changes. 0: not known.
  std::uint32_t registers = 0;
  // What the warp tries again in its next turn: setmaxnreg.inc for lack of so many registers, or a
  // wait for products that not all warps of the warpgroup have asked for.
  std::uint32_t short_of = 0;
  bool ahead_of_group = false;

  enum class Status : std::uint8_t {
    blocked,  // no fragment is ready
    waiting,  // every fragment that is ready turns in a waiting loop
    share_used,
  };
  // Runs ready fragments. `share`: instructions after which it stops (for shuffled schedules).
  Status run(std::uint64_t share);
  bool has_ready() const;
  bool done() const { return live == 0; }
  // Lets lanes that wait at a join go on without the others. False when nobody waits.
  bool release_joins();
  // Called when lanes have ended: nobody waits for them any longer.
  void drop_lanes(Fragment& fragment, std::uint32_t lanes);

 private:
  friend class Block;
  // The warp loop's own copy of the running fragment's place and lanes.
  struct Running {
    std::size_t current = 0;
    std::uint32_t pc = 0, mask = 0;
    std::uint64_t stop_at = 0;  // in instructions of the warp
    bool progress = false;
    void take_up(Warp& warp);
  };
  // Does the warp loop leave the running fragment, and why? switch_fragment: another fragment of the
  // warp goes first. gone: its lanes have ended, or wait in another fragment. yield: the warp has had
  // its share.
  enum class Leave : std::uint8_t { no, switch_fragment, gone, yield };
  void begin(Running& r);
  Leave step(Running& r, const Instr& instr);
  Leave branch(Running& r, const Instr& instr, std::uint32_t on);
  Leave branch_table(Running& r, const Instr& instr, std::uint32_t on);
  Leave after_jump(Running& r, bool backward);
  Leave meet(Running& r);
  Leave call(Running& r, const Instr& instr, std::uint32_t on);
  Leave end(Running& r, const Instr& instr, std::uint32_t on);
  Leave arrive(Running& r, const Instr& instr, std::uint32_t on);
  Leave sync(Running& r, const Instr& instr, std::uint32_t on);
  Leave fetch(Running& r, const Instr& instr, std::uint32_t on);
  Leave change_registers(Running& r, const Instr& instr, std::uint32_t on);
  void not_executed(const Instr& instr, std::uint32_t on);
  std::size_t turn_ = 0;  // fragment to start with
 public:
  std::size_t arriving_ = 0;  // fragment that executes a barrier instruction
 private:
  void diverge(std::size_t current, std::uint32_t taken, std::uint32_t target, const Instr& instr);
  Join* enclosing_join(std::size_t current, std::uint32_t pc);
  void complete_join(const Ref<Join>& join, const Fragment& last);
  std::size_t merge_into(std::size_t current);
  bool turn_of_loop(Fragment& fragment);
  bool still_waits(Fragment& fragment, std::uint32_t pc) const;
  void keep_turn(Fragment& fragment) const {
    fragment.watched = watched;
    fragment.changed = changed;
    fragment.sights = sights;
  }
  void make_copies();
  void run_gathered(const std::vector<std::size_t>& party, const Instr& instr, std::uint32_t have,
                    std::uint32_t named);
  bool try_warp_sync(std::size_t current, const Instr& instr, std::uint32_t mask);
  void enter_call(Fragment& fragment, const Instr& instr, std::uint32_t mask);
  void leave_call(std::size_t current, std::uint32_t mask);
  std::size_t pick_ready(std::size_t after) const;
};

}  // namespace vgpu
