#include "cache_model.h"

#include <algorithm>
#include <array>

#include "../core/access.h"
#include "../core/block.h"
#include "../core/spelling.h"

namespace vgpu {
namespace {

// Where local memory lies for the caches: beyond everything that a kernel can address.
constexpr std::uint64_t kLocalMemory = 1ull << 60;

// Host memory that blocks in flight may take. A full H200 needs 0.1 to 2 GB.
constexpr std::uint64_t kHostBytes = 1ull << 30;

}  // namespace

std::uint64_t CacheModel::resident_blocks(const Launch& launch) {
  const LaunchRequest& request = launch.request;
  const std::uint64_t places =
      static_cast<std::uint64_t>(std::max(1, launch.machine.spec().sm_count)) *
      static_cast<std::uint64_t>(std::max(1, request.resident_blocks_per_sm));
  const Function& f = *request.function;
  const std::uint64_t lanes = std::uint64_t{launch.warps_per_block} * kWarpSize;
  const std::uint64_t stack = f.calls.empty() ? 0 : launch.stack_bytes;
  const std::uint64_t of_block = launch.shared_bytes +
                                 lanes * (f.call_area_bytes + f.local_bytes + stack) +
                                 std::uint64_t{launch.warps_per_block} * (f.register_bytes + 1024);
  return std::max<std::uint64_t>(1, std::min({places, request.grid.count(),
                                              kHostBytes / std::max<std::uint64_t>(1, of_block)}));
}

void CacheModel::launch_begin(Launch& launch) {
  const DeviceSpec& device = launch.machine.spec();
  sms_ = std::max(1, device.sm_count);
  const std::uint64_t blocks = launch.request.grid.count();
  const auto sms = static_cast<std::uint64_t>(sms_);
  const int per_sm = static_cast<int>(std::min<std::uint64_t>(
      (blocks + sms - 1) / sms,
      static_cast<std::uint64_t>(std::max(1, launch.request.resident_blocks_per_sm))));
  caches_ = std::make_unique<CacheHierarchy>(
      sms_, l1_beside_shared(device, launch.shared_bytes, per_sm),
      static_cast<std::uint64_t>(std::max<std::int64_t>(0, device.l2_bytes)),
      warm_l2_ ? *warm_l2_ : nullptr);
  if (warm_l2_) *warm_l2_ = caches_->l2();
  report_.modelled = true;
  report_.warm = warm_l2_ != nullptr;
  report_.l1_bytes = caches_->l1_bytes();
  report_.l2_bytes = caches_->l2()->bytes();
  report_.resident_blocks =
      launch.request.cooperative ? blocks : std::min(blocks, resident_blocks(launch));
}

void CacheModel::launch_end(Launch&, std::vector<std::string>&) {
  if (!caches_) return;  // the launch failed before it began
  if (!warm_l2_) caches_->flush();
  report_.dram_written = caches_->dram_written();
  report_.dram_read = 0;
  for (const CacheCounters& c : report_.by_access) report_.dram_read += c.dram_read;
}

void CacheModel::block_begin(Block& block) {
  auto place = std::find(places_.begin(), places_.end(), nullptr);
  if (place == places_.end()) place = places_.insert(place, nullptr);
  *place = &block;
  place_of_[&block] = static_cast<std::size_t>(place - places_.begin());
}

void CacheModel::block_end(Block& block) {
  const auto place = place_of_.find(&block);
  if (place == place_of_.end()) return;
  places_[place->second] = nullptr;
  place_of_.erase(place);
}

int CacheModel::sm_of(const Block& block) const { return static_cast<int>(block.sm); }

CacheModel::Site& CacheModel::site_of(Warp& warp, const Instr& instr) {
  // An instruction may be passed as a copy: the element of the code is its name.
  const Function& function = *warp.frame->function;
  Site& site = sites_[&function.code[instr.pc]];
  if (site.known) return site;
  site.known = true;
  const std::string_view name = dotted_name(function, instr);
  const auto has = [&](std::string_view modifier) { return has_modifier(name, modifier); };
  const bool beyond_block = !has("cta");
  if (bypasses_l1(name))
    site.use = L1Use::bypass;
  else if (has("L1::no_allocate"))
    site.use = L1Use::no_allocate;
  site.acquires = has("acquire") && beyond_block;
  return site;
}

void CacheModel::send(Warp& warp, Site& site, L1Use use, std::uint32_t mask,
                      const std::uint64_t* addresses, std::uint32_t bytes, Access access,
                      bool of_allocations) {
  const int sm = sm_of(*warp.block);
  for (const LineTraffic& line : caches_->request(sm, addresses, mask, bytes, access, use)) {
    site.counters += line.counters;
    report_.by_access[static_cast<std::size_t>(access)] += line.counters;
    if (!of_allocations) continue;
    if (line.address < site.low || line.address >= site.high) {
      const auto allocation = warp.block->launch.memory.find(line.address);
      if (!allocation) continue;
      site.low = allocation->base;
      site.high = allocation->base + allocation->size;
      site.allocation = &by_allocation_[allocation->id];
    }
    *site.allocation += line.counters;
  }
  if (site.acquires) caches_->invalidate_l1(sm);
}

void CacheModel::access(Warp& warp, const Instr& instr, std::uint32_t mask,
                        const Addresses& addresses, std::uint32_t bytes, Access access, Space space,
                        const Places&) {
  if (space != Space::global) return;
  Site& site = site_of(warp, instr);
  send(warp, site, site.use, mask, addresses.v, bytes, access, true);
}

// Line by line, each in pieces of 16 bytes.
void CacheModel::bulk_access(Warp& warp, const Instr& instr, int, std::uint64_t address,
                             std::uint32_t bytes, Access access, std::byte*) {
  constexpr std::uint32_t kPiece = 16, kLine = 128;
  Site& site = site_of(warp, instr);
  const std::uint64_t end = address + bytes;
  address -= address % kPiece;  // a row of a tensor may begin between pieces
  while (address < end) {
    std::array<std::uint64_t, kLine / kPiece> pieces;
    std::size_t count = 0;
    do {
      pieces[count++] = address;
      address += kPiece;
    } while (address < end && address % kLine);
    send(warp, site, L1Use::none, (1u << count) - 1, pieces.data(), kPiece, access, true);
  }
}

void CacheModel::local_access(Warp& warp, const Instr& instr, std::uint32_t mask,
                              const Addresses& physical, std::uint32_t bytes, Access access) {
  const std::uint64_t place = place_of_[warp.block] * warp.block->warps.size() + warp.index;
  const std::uint64_t base = kLocalMemory + place * warp.local_capacity * kWarpSize;
  std::array<std::uint64_t, kWarpSize> addresses;
  for (std::size_t lane = 0; lane < kWarpSize; ++lane) addresses[lane] = base + physical.v[lane];
  Site& site = site_of(warp, instr);
  send(warp, site, site.use, mask, addresses.data(), bytes, access, false);
}

void CacheModel::fence(Warp& warp, const Instr& instr, std::uint32_t) {
  // membar.gl and .sys, fences with a scope beyond the block: loads must see what others wrote.
  if (!has_modifier(dotted_name(*warp.frame->function, instr), "cta"))
    caches_->invalidate_l1(sm_of(*warp.block));
}

void CacheModel::report(const Instr& instr, InstrReport& to) const {
  if (const auto site = sites_.find(&instr); site != sites_.end()) to.cache = site->second.counters;
}

void CacheModel::report(std::uint32_t allocation_id, AllocationReport& to) const {
  const auto found = by_allocation_.find(allocation_id);
  if (found != by_allocation_.end()) to.cache = found->second;
}

}  // namespace vgpu
