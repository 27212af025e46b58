// The cache model of a launch: an observer that sends every request through the caches.
#pragma once
#include <memory>
#include <unordered_map>

#include "../core/observer.h"
#include "cache.h"

namespace vgpu {

class CacheModel : public Observer {
 public:
  // What the launch before has left in the L2, and where this one leaves it; null: a cold L2, and
  // what is dirty at the end counts as written.
  explicit CacheModel(std::shared_ptr<SectoredCache>* warm_l2) : warm_l2_(warm_l2) {}

  // How many blocks of a launch are in flight together: as many as the SMs hold, but no more than
  // the host has room for. They take turns, so that the caches see their accesses interleaved.
  static std::uint64_t resident_blocks(const Launch& launch);
  std::uint64_t wants_resident(const Launch& launch) const override {
    return resident_blocks(launch);
  }

  void launch_begin(Launch& launch) override;
  void launch_end(Launch& launch, std::vector<std::string>& findings) override;
  void block_begin(Block& block) override;
  void block_end(Block& block) override;
  void access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& addresses,
              std::uint32_t bytes, Access access, Space space, const Places& places) override;
  void bulk_access(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                   std::uint32_t bytes, Access access, std::byte* host) override;
  void local_access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& physical,
                    std::uint32_t bytes, Access access) override;
  void fence(Warp& warp, const Instr& instr, std::uint32_t mask) override;

  void report(const Instr& instr, InstrReport& to) const override;
  void report(std::uint32_t allocation_id, AllocationReport& to) const override;
  void report(LaunchCounters& to) const override { to.cache = report_; }

 private:
  struct Site {
    bool known = false;
    L1Use use = L1Use::cached;
    bool acquires = false;  // beyond the block: what the L1 has is old
    CacheCounters counters;
    std::uint64_t low = 1, high = 0;      // addresses of the allocation hit last
    CacheCounters* allocation = nullptr;  // its counters
  };
  Site& site_of(Warp& warp, const Instr& instr);
  void send(Warp& warp, Site& site, L1Use use, std::uint32_t mask, const std::uint64_t* addresses,
            std::uint32_t bytes, Access access, bool of_allocations);
  int sm_of(const Block& block) const;

  std::shared_ptr<SectoredCache>* warm_l2_;
  std::unique_ptr<CacheHierarchy> caches_;
  int sms_ = 1;
  std::unordered_map<const Instr*, Site> sites_;
  std::unordered_map<std::uint32_t, CacheCounters> by_allocation_;
  // Local memory lies where the block's place on the device says, so that a block finds lines in
  // the caches that the one before it at this place has left.
  std::vector<const Block*> places_;
  std::unordered_map<const Block*, std::size_t> place_of_;
  CacheReport report_;
};

}  // namespace vgpu
