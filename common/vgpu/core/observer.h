// What checks and profiles see of an execution. Without observers the executor pays one test of a
// pointer per memory instruction and barrier; with any, a launch runs on one host thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "counters.h"
#include "../ptx/program.h"

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

  virtual void launch_begin(Launch&) {}
  // Adds findings, one message each, worded as describe() (core/block.h) does.
  virtual void launch_end(Launch&, std::vector<std::string>& findings) { (void)findings; }
  // Blocks of a grid; several may be in flight at once (cooperative launches, waiting blocks).
  virtual void block_begin(Block&) {}
  virtual void block_end(Block&) {}

  // Every instruction before it is executed, for those who ask: `mask` has come to it, its guard lets
  // `on` execute it. An operation of several lanes comes here when its lanes arrive, and is executed
  // at warp_sync().
  virtual bool wants_instructions() const { return false; }
  virtual void instruction(Warp&, const Instr&, std::uint32_t mask, std::uint32_t on) {
    (void)mask, (void)on;
  }

  // Lanes in `mask` access `bytes` each. `addresses`: in the state space named (global addresses;
  // offsets in shared memory, of the block that `places` says); `places`: where the bytes are on the
  // host. Called after the memory check and before the bytes move.
  virtual void access(Warp&, const Instr&, std::uint32_t mask, const Addresses& addresses,
                      std::uint32_t bytes, Access, Space, const Places& places) {
    (void)mask, (void)addresses, (void)bytes, (void)places;
  }

  // The side in global memory of a bulk copy or reduction that one lane asks for, in one allocation.
  // As accesses of 16 bytes by that lane, to those who do not want the whole.
  virtual void bulk_access(Warp&, const Instr&, int lane, std::uint64_t address,
                           std::uint32_t bytes, Access, std::byte* host);

  // Thread-private memory: spills, stacks, arrays. `physical`: byte offsets into the warp's local
  // memory as a GPU lays it out, the words of 32 lanes side by side. Only while counting.
  virtual void local_access(Warp&, const Instr&, std::uint32_t mask, const Addresses& physical,
                            std::uint32_t bytes, Access) {
    (void)mask, (void)physical, (void)bytes;
  }

  // Lanes in `mask` arrive at barrier `barrier` (and wait there, or only arrive).
  virtual void barrier_arrive(Warp&, const Instr&, std::uint32_t mask, int barrier, bool wait) {
    (void)mask, (void)barrier, (void)wait;
  }
  // All that were expected have arrived; those that wait go on.
  virtual void barrier_complete(Block&, int barrier) { (void)barrier; }
  // barrier.cluster: lanes arrive; all threads of the cluster have; lanes that wait (they go on at
  // once when their phase is complete, else when it completes).
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
  // The phase of the mbarrier object at this offset of the block's shared memory is complete, by
  // the access or the landed copy that was shown last.
  virtual void mbarrier_phase(Block& home, std::uint32_t offset) { (void)home, (void)offset; }
  // fence.proxy.async: between usual accesses and those of the copy engine; `instr.space` says to
  // which memory, generic to all.
  virtual void proxy_fence(Warp&, const Instr&, std::uint32_t mask) { (void)mask; }
  virtual void lanes_exit(Warp&, const Instr&, std::uint32_t mask) { (void)mask; }

  // An asynchronous copy of `bytes` to the shared memory of `to` (the lane's block or another one of
  // its cluster) by one lane: asked for, and landed.
  virtual void copy_issue(Warp&, const Instr&, int lane, Block& to, std::uint32_t shared_offset,
                          std::uint32_t bytes) {
    (void)lane, (void)to, (void)shared_offset, (void)bytes;
  }
  virtual void copy_land(Warp&, int lane, Block& to, std::uint32_t shared_offset,
                         std::uint32_t bytes) {
    (void)lane, (void)to, (void)shared_offset, (void)bytes;
  }
};

}  // namespace vgpu
