#include "cache.h"

#include <algorithm>
#include <bit>
#include <span>

namespace vgpu {
namespace {

// NVIDIA says neither. An L1 of few sets with many lines each, whatever its size, is how the model
// of a GV100 in Accel-Sim has it (4 sets, line number modulo 4, sectored, write-through), which was
// fitted to microbenchmarks. 16 lines a set for the L2, with folded addresses in place of the
// unpublished spread over its slices, is a choice that keeps conflicts rare.
constexpr std::uint32_t kL1Sets = 4;
constexpr std::uint32_t kL2Ways = 16;

constexpr std::uint64_t kKiB = 1024;

std::uint32_t full_sectors(const LineBytes& bytes) {
  std::uint32_t mask = 0;
  for (std::uint32_t s = 0; s < kSectorsPerLine; ++s) mask |= std::uint32_t{bytes[s] == ~0u} << s;
  return mask;
}

std::uint64_t ones(std::uint32_t mask) { return static_cast<std::uint64_t>(std::popcount(mask)); }

}  // namespace

SectoredCache::SectoredCache(std::uint64_t bytes, std::uint32_t sets, Index index)
    : sets_(std::max(1u, sets)),
      ways_(static_cast<std::uint32_t>(std::max<std::uint64_t>(1, bytes / kLineBytes / sets_))),
      index_(index),
      slots_(std::size_t{sets_} * ways_),
      by_set_(sets_),
      buckets_(std::bit_ceil(slots_.size()), kNobody) {}

std::uint32_t SectoredCache::set_of(std::uint64_t line) const {
  if (index_ == Index::folded) line ^= line / sets_ ^ line / sets_ / sets_;
  return static_cast<std::uint32_t>(line % sets_);
}

std::uint32_t& SectoredCache::bucket_of(std::uint64_t line) {
  return buckets_[(line * 0x9E3779B97F4A7C15ull >> 32) & (buckets_.size() - 1)];
}

void SectoredCache::expect(std::uint64_t line) { __builtin_prefetch(&bucket_of(line)); }

std::uint32_t SectoredCache::find(std::uint64_t line) {
  std::uint32_t slot = bucket_of(line);
  while (slot != kNobody && slots_[slot].line != line) slot = slots_[slot].next;
  return slot;
}

// Makes a slot the newest of its set.
void SectoredCache::touch(std::uint32_t slot) {
  Set& set = by_set_[slot / ways_];
  if (set.newest == slot) return;
  Slot& s = slots_[slot];
  if (s.newer != kNobody) {  // out of the list, in which somebody is newer
    slots_[s.newer].older = s.older;
    (s.older == kNobody ? set.oldest : slots_[s.older].newer) = s.newer;
  }
  s.older = set.newest;
  s.newer = kNobody;
  (set.newest == kNobody ? set.oldest : slots_[set.newest].newer) = slot;
  set.newest = slot;
}

std::uint32_t SectoredCache::find_or_place(std::uint64_t line) {
  std::uint32_t slot = find(line);
  if (slot == kNobody) {
    empty_ = false;
    const std::uint32_t number = set_of(line);
    Set& set = by_set_[number];
    if (set.used < ways_) {
      slot = number * ways_ + set.used++;
    } else {
      slot = set.oldest;
      Slot& old = slots_[slot];
      written_back_ += ones(old.dirty);
      std::uint32_t* link = &bucket_of(old.line);
      while (*link != slot) link = &slots_[*link].next;
      *link = old.next;
    }
    Slot& s = slots_[slot];
    s.line = line;
    s.present = {};
    s.dirty = 0;
    std::uint32_t& head = bucket_of(line);
    s.next = head;
    head = slot;
  }
  touch(slot);
  return slot;
}

std::uint32_t SectoredCache::read(std::uint64_t line, std::uint32_t sectors, bool allocate) {
  std::uint32_t slot;
  if (allocate) {
    slot = find_or_place(line);
  } else {
    slot = find(line);
    if (slot == kNobody) return 0;
    touch(slot);
  }
  Slot& s = slots_[slot];
  const std::uint32_t there = full_sectors(s.present) & sectors;
  if (allocate)
    for (std::uint32_t i = 0; i < kSectorsPerLine; ++i)
      if (sectors >> i & 1) s.present[i] = ~0u;
  return there;
}

SectoredCache::Written SectoredCache::write(std::uint64_t line, const LineBytes& bytes,
                                            bool dirty) {
  Slot& s = slots_[find_or_place(line)];
  std::uint32_t sectors = 0;
  for (std::uint32_t i = 0; i < kSectorsPerLine; ++i) sectors |= std::uint32_t{bytes[i] != 0} << i;
  Written result;
  result.there = full_sectors(s.present) & sectors;
  for (std::uint32_t i = 0; i < kSectorsPerLine; ++i) s.present[i] |= bytes[i];
  if (dirty) {
    result.dirtied = sectors & ~s.dirty;
    s.dirty |= sectors;
  }
  return result;
}

void SectoredCache::drop(std::uint64_t line, std::uint32_t sectors) {
  const std::uint32_t slot = find(line);
  if (slot == kNobody) return;
  slots_[slot].dirty &= ~sectors;
  for (std::uint32_t i = 0; i < kSectorsPerLine; ++i)
    if (sectors >> i & 1) slots_[slot].present[i] = 0;
}

void SectoredCache::clear() {
  if (empty_) return;
  std::fill(slots_.begin(), slots_.end(), Slot{});
  std::fill(by_set_.begin(), by_set_.end(), Set{});
  std::fill(buckets_.begin(), buckets_.end(), kNobody);
  empty_ = true;
}

std::uint64_t SectoredCache::clean() {
  std::uint64_t sectors = 0;
  for (Slot& slot : slots_) {
    sectors += ones(slot.dirty);
    slot.dirty = 0;
  }
  return sectors;
}

CacheHierarchy::CacheHierarchy(int sm_count, std::uint64_t l1_bytes, std::uint64_t l2_bytes,
                               std::shared_ptr<SectoredCache> l2)
    : l1_bytes_(l1_bytes),
      l1_(static_cast<std::size_t>(std::max(1, sm_count))),
      l2_(std::move(l2)) {
  if (!l2_) {
    const auto sets = static_cast<std::uint32_t>(l2_bytes / kLineBytes / kL2Ways);
    l2_ = std::make_shared<SectoredCache>(l2_bytes, sets, SectoredCache::Index::folded);
  }
  before_ = l2_->written_back();
}

void CacheHierarchy::load(SectoredCache& l1, std::uint64_t line, std::uint32_t sectors, L1Use use,
                          CacheCounters& counters) {
  std::uint32_t missing = sectors;
  if (use == L1Use::cached || use == L1Use::no_allocate)
    missing &= ~l1.read(line, sectors, use == L1Use::cached);
  counters.l1_hits += ones(sectors & ~missing);
  if (!missing) return;
  const std::uint32_t found = l2_->read(line, missing);
  counters.l2_sectors += ones(missing);
  counters.l2_hits += ones(found);
  counters.dram_read += ones(missing & ~found);
}

const std::vector<LineTraffic>& CacheHierarchy::request(int sm, const std::uint64_t* addresses,
                                                        std::uint32_t mask, std::uint32_t bytes,
                                                        Access access, L1Use use) {
  // The lines of the request, in the order in which the lanes name them.
  std::size_t count = 0;
  std::uint64_t highest = 0;
  for (std::uint32_t rest = mask; rest; rest &= rest - 1) {
    const std::uint64_t address = addresses[std::countr_zero(rest)];
    const std::uint64_t line = address / kLineBytes;
    std::size_t i = count;
    if (count && line <= highest) {
      i = count - 1;  // mostly the line of the lane before
      if (pieces_[i].line != line)
        for (i = 0; i < count && pieces_[i].line != line;) ++i;
    }
    if (i == count) {
      pieces_[count].line = line;
      pieces_[count].address = address;
      pieces_[count].sectors = 0;
      if (access != Access::load) pieces_[count].bytes = {};
      ++count;
      highest = std::max(highest, line);
    }
    Piece& piece = pieces_[i];
    piece.address = std::min(piece.address, address);
    const auto sector = static_cast<std::uint32_t>(address / kSectorBytes % kSectorsPerLine);
    piece.sectors |= 1u << sector;
    if (access == Access::load) continue;
    const auto first = static_cast<std::uint32_t>(address % kSectorBytes);
    piece.bytes[sector] |= (bytes >= 32 ? ~0u : (1u << bytes) - 1) << first;
  }
  auto& own = l1_[static_cast<std::size_t>(sm) % l1_.size()];
  if (!own) own = std::make_unique<SectoredCache>(l1_bytes_, kL1Sets, SectoredCache::Index::linear);
  SectoredCache& l1 = *own;
  // The caches of many SMs are more than a host cache holds: ask for all lines before any is used
  for (std::size_t i = 0; i < count; ++i) l1.expect(pieces_[i].line);
  traffic_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const Piece& piece = pieces_[i];
    LineTraffic& traffic = traffic_.emplace_back();
    traffic.address = piece.address;
    CacheCounters& c = traffic.counters;
    if (use != L1Use::none) c.l1_sectors = ones(piece.sectors);
    if (access == Access::load) {
      load(l1, piece.line, piece.sectors, use, c);
      continue;
    }
    if (access == Access::store && use == L1Use::cached)
      c.l1_hits = ones(l1.write(piece.line, piece.bytes, false).there);
    else
      l1.drop(piece.line, piece.sectors);
    c.l2_sectors = c.l2_hits = ones(piece.sectors);  // a store never waits for DRAM
    if (access == Access::atomic) {                  // works on what is there, so it must be
      c.l2_hits = ones(l2_->read(piece.line, piece.sectors));
      c.dram_read = c.l2_sectors - c.l2_hits;
    }
    c.dram_written = ones(l2_->write(piece.line, piece.bytes, true).dirtied);
  }
  return traffic_;
}

void CacheHierarchy::invalidate_l1(int sm) {
  if (auto& l1 = l1_[static_cast<std::size_t>(sm) % l1_.size()]) l1->clear();
}

std::uint64_t l1_beside_shared(const DeviceSpec& device, std::uint64_t shared_bytes_per_block,
                               int blocks) {
  // CUDA C++ Programming Guide, Compute Capabilities: sizes of shared memory that a unified L1 can
  // be split into, in KiB.
  constexpr std::array<std::uint64_t, 2> k75 = {32, 64};
  constexpr std::array<std::uint64_t, 8> k80 = {0, 8, 16, 32, 64, 100, 132, 164};
  constexpr std::array<std::uint64_t, 6> k86 = {0, 8, 16, 32, 64, 100};
  constexpr std::array<std::uint64_t, 10> k90 = {0, 8, 16, 32, 64, 100, 132, 164, 196, 228};
  const int capability = 10 * device.major + device.minor;
  const std::span<const std::uint64_t> sizes =
      capability < 80                        ? std::span<const std::uint64_t>(k75)
      : capability == 80 || capability == 87 ? std::span<const std::uint64_t>(k80)
      : capability < 90 || capability >= 120 ? std::span<const std::uint64_t>(k86)
                                             : std::span<const std::uint64_t>(k90);
  const auto unit = static_cast<std::uint64_t>(std::max(1, device.shared_unit));
  const std::uint64_t of_block =
      (shared_bytes_per_block + static_cast<std::uint64_t>(device.shared_reserved) + unit - 1) /
      unit * unit;
  const std::uint64_t needed = of_block * static_cast<std::uint64_t>(std::max(1, blocks));
  std::uint64_t carve_out = sizes.back() * kKiB;
  for (const std::uint64_t size : sizes)
    if (size * kKiB >= needed) {
      carve_out = size * kKiB;
      break;
    }
  const auto all = static_cast<std::uint64_t>(device.l1_bytes);
  return all > carve_out ? all - carve_out : 0;
}

}  // namespace vgpu
