// What checks and profiles see of an execution. Without observers the executor pays one test of a
// pointer per memory instruction and barrier. With any that watches all blocks, a launch runs on one
// host thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../ptx/program.h"
#include "counters.h"

namespace vgpu {

class Block;
class Cluster;
class Warp;
struct Addresses;
struct Launch;
struct Places;

class Observer {
 public:
  virtual ~Observer() = default;

  // A sampler watches some blocks only, those of the clusters for which watches() says so, and lets
  // the launch run on many host threads: it is told about different clusters by different threads.
  // Everybody else watches all blocks. (Without clusters each block is a cluster.)
  virtual bool samples() const { return false; }
  virtual bool watches(std::uint64_t cluster) const {
    (void)cluster;
    return true;
  }

  virtual void launch_begin(Launch&) {}
  // Adds findings, one message each, worded as describe() (core/block.h) does.
  virtual void launch_end(Launch&, std::vector<std::string>& findings) { (void)findings; }
  // How many blocks must be in flight together for this observer's model; they then take turns
  // after each memory instruction. 0: any number. Shuffled and hostile schedules ignore it.
  virtual std::uint64_t wants_resident(const Launch&) const { return 0; }
  // Adds what only the observer knows to the counters of an instruction (an element of
  // Function::code), of an allocation, and of the launch. After launch_end, when it is counted.
  virtual void report(const Instr&, InstrReport&) const {}
  virtual void report(std::uint32_t allocation_id, AllocationReport&) const { (void)allocation_id; }
  virtual void report(LaunchCounters&) const {}

  // Blocks of a grid; several may be in flight at once (cooperative launches, waiting blocks).
  virtual void block_begin(Block&) {}
  virtual void block_end(Block&) {}

  // Called before each instruction, for observers that want instructions. `mask`: the lanes that have
  // reached it. `on`: those of them that its guard lets execute it. An operation of several lanes is
  // announced here when its lanes arrive. It is executed later, at warp_sync().
  virtual bool wants_instructions() const { return false; }
  virtual void instruction(Warp&, const Instr&, std::uint32_t mask, std::uint32_t on) {
    (void)mask, (void)on;
  }

  // One memory instruction: each lane in `mask` accesses `bytes` bytes. `addresses` belong to the
  // state space that is passed: device addresses in global memory, offsets in shared memory (of the
  // block `places.owner`; null: the warp's own). `places` says where the bytes are on the host. Called
  // after the memory check and before the bytes move.
  virtual void access(Warp&, const Instr&, std::uint32_t mask, const Addresses& addresses,
                      std::uint32_t bytes, Access, Space, const Places& places) {
    (void)mask, (void)addresses, (void)bytes, (void)places;
  }

  // Loads of constant memory: `addresses` are offsets in the module's bank.
  virtual void constant_access(Warp&, const Instr&, std::uint32_t mask, const Addresses& addresses,
                               std::uint32_t bytes) {
    (void)mask, (void)addresses, (void)bytes;
  }

  // What a bulk copy or reduction that one lane asks for reads or writes in global memory. All of it
  // lies in one allocation. Observers that do not override this get it as calls of access(), 16 bytes
  // each (fewer where a row of a tensor begins or ends between), by that lane. A copy that it reads for is
  // the lane's last one, LaneCopies::bulk_issued.
  virtual void bulk_access(Warp&, const Instr&, int lane, std::uint64_t address,
                           std::uint32_t bytes, Access, std::byte* host);

  // A tensor copy (Instr::rank) that one lane asks for, behind the bulk_access() of each of its rows: the
  // bytes of shared memory that it fills or reads, at `shared_offset` of the warp's own block when it
  // reads them, and the sectors and the 128-byte lines of global memory that each row lies in.
  virtual void tensor_copy(Warp&, const Instr&, int lane, std::uint32_t shared_offset,
                           std::uint32_t bytes, std::uint32_t sectors, std::uint32_t lines) {
    (void)lane, (void)shared_offset, (void)bytes, (void)sectors, (void)lines;
  }

  // The 16-byte pieces, by offset in the block's shared memory, that a warp's share of a product of a
  // warpgroup reads of one operand. The reading lasts from where the product is asked for to where it is
  // waited for, and is told at both. `product` is the product's number in its warpgroup, from 1.
  // Observers that do not override this get it as calls of access().
  enum class Reading : std::uint8_t { begins, ends };
  virtual void operand_read(Warp&, const Instr&, std::span<const std::uint32_t> pieces, Reading,
                            std::uint64_t product);

  // `warp` has waited for the products of its warpgroup up to this number. All four warps have read
  // their operands.
  virtual void products_complete(Warp&, std::uint64_t product) { (void)product; }

  // Local memory, which is private to a thread: spills, stacks, arrays. `physical` are byte offsets
  // into the warp's local memory as a GPU lays it out: word 0 of all 32 lanes, then word 1 of all, and
  // so on. Only called in launches that are counted.
  virtual void local_access(Warp&, const Instr&, std::uint32_t mask, const Addresses& physical,
                            std::uint32_t bytes, Access) {
    (void)mask, (void)physical, (void)bytes;
  }

  // Lanes in `mask` arrive at barrier `barrier` (and wait there, or only arrive).
  virtual void barrier_arrive(Warp&, const Instr&, std::uint32_t mask, int barrier, bool wait) {
    (void)mask, (void)barrier, (void)wait;
  }
  // All expected threads have arrived, and the waiting ones go on.
  virtual void barrier_complete(Block&, int barrier) { (void)barrier; }
  // The three events of barrier.cluster. cluster_arrive: lanes of a warp arrive. cluster_complete: all
  // threads of the cluster have arrived, so the phase ends. cluster_wait: lanes come to wait; they go
  // on at once when their phase has ended, else when it ends.
  virtual void cluster_arrive(Warp&, const Instr&, std::uint32_t mask) { (void)mask; }
  virtual void cluster_complete(Cluster&) {}
  virtual void cluster_wait(Warp&, const Instr&, std::uint32_t mask) { (void)mask; }
  // The lanes in `mask` have met in an operation of several lanes; `members`: the union of their
  // member masks, lanes that have exited included. `instr` may be a copy whose operands are gathered
  // from several places: its registers can be read, its address means nothing.
  virtual void warp_sync(Warp&, const Instr&, std::uint32_t mask, std::uint32_t members) {
    (void)mask, (void)members;
  }
  virtual void fence(Warp&, const Instr&, std::uint32_t mask) { (void)mask; }
  // A phase of an mbarrier object is complete. The object lies at `offset` in the shared memory of
  // `home`. What completed the phase is the access or the copy that was reported just before.
  virtual void mbarrier_phase(Block& home, std::uint32_t offset) { (void)home, (void)offset; }
  // fence.proxy.async orders ordinary accesses and those of the copy engine. `instr.space` names the
  // memory that it is for; Space::generic means all memory.
  virtual void proxy_fence(Warp&, const Instr&, std::uint32_t mask) { (void)mask; }
  // griddepcontrol.wait, or .launch_dependents: of a kernel that may begin before the one in front of it has
  // ended, the lanes wait for that end; or they let such a kernel behind their own begin.
  virtual void grid_dependency(Warp&, std::uint32_t mask, bool waits) { (void)mask, (void)waits; }
  virtual void lanes_exit(Warp&, const Instr&, std::uint32_t mask) { (void)mask; }

  // An asynchronous copy of one lane into the shared memory of block `to`, which is the lane's own
  // block or another of its cluster. copy_issue: the lane asks for it. copy_land: its bytes arrive.
  virtual void copy_issue(Warp&, const Instr&, int lane, Block& to, std::uint32_t shared_offset,
                          std::uint32_t bytes) {
    (void)lane, (void)to, (void)shared_offset, (void)bytes;
  }
  virtual void copy_land(Warp&, int lane, Block& to, std::uint32_t shared_offset,
                         std::uint32_t bytes) {
    (void)lane, (void)to, (void)shared_offset, (void)bytes;
  }
  // A bulk copy out of the shared memory of the lane's block. source_read: the lane asks for the lane's
  // `copy`th one, which may read its source from now on. sources_read: the lane has waited, and its copies
  // up to this one have read theirs. source_landed: somebody has waited for this copy, which reports to an
  // mbarrier. source_given_up: the lane ends without a wait.
  virtual void source_read(Warp&, const Instr&, int lane, std::uint32_t shared_offset,
                           std::uint32_t bytes, std::uint64_t copy) {
    (void)lane, (void)shared_offset, (void)bytes, (void)copy;
  }
  virtual void sources_read(Warp&, int lane, std::uint64_t copy) { (void)lane, (void)copy; }
  virtual void source_landed(Warp&, int lane, std::uint32_t shared_offset, std::uint32_t bytes,
                             std::uint64_t copy) {
    (void)lane, (void)shared_offset, (void)bytes, (void)copy;
  }
  virtual void source_given_up(Warp&, const Instr&, int lane, std::uint32_t bytes) {
    (void)lane, (void)bytes;
  }
  // A bulk copy into shared memory as a whole, once for each block that it goes to. bulk_issue: one lane
  // asks for it, behind bulk_access() or tensor_copy(). bulk_land: its bytes are there, and the mbarrier
  // at this offset of that block hears of the lane's `copy`th one.
  virtual void bulk_issue(Warp&, const Instr&, const Block& to, std::uint32_t bytes) {
    (void)to, (void)bytes;
  }
  virtual void bulk_land(Warp&, const Instr&, int lane, const Block& to, std::uint32_t mbarrier,
                         std::uint32_t bytes, std::uint64_t copy) {
    (void)lane, (void)to, (void)mbarrier, (void)bytes, (void)copy;
  }
};

}  // namespace vgpu
