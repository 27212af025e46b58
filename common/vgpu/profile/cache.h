// Caches as sets of 128-byte lines with 32-byte sectors, and the hierarchy of one GPU made of them:
// an L1 for each SM, one L2, DRAM. It knows where each sector is: no data, no time.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "../core/coalescing.h"
#include "../core/counters.h"
#include "../core/device_spec.h"

namespace vgpu {

inline constexpr std::uint32_t kSectorsPerLine = kLineBytes / kSectorBytes;
inline constexpr std::uint32_t kWholeLine = (1u << kSectorsPerLine) - 1;

// Written bytes of a line: one bit for each byte, one word for each sector.
using LineBytes = std::array<std::uint32_t, kSectorsPerLine>;

// A set-associative cache of lines; the least recently used line of a set makes way. `line` is an
// address divided by 128 everywhere, `sectors` a mask of 4 bits.
class SectoredCache {
 public:
  // How a line finds its set: its number modulo the sets, or that with the bits above folded in, so
  // that large powers of two do not meet in a few sets.
  enum class Index : std::uint8_t { linear, folded };

  // At least one line a set, whatever `bytes` says.
  SectoredCache(std::uint64_t bytes, std::uint32_t sets, Index index);

  // Which of `sectors` are there. With `allocate` all of them are there afterwards.
  std::uint32_t read(std::uint64_t line, std::uint32_t sectors, bool allocate = true);

  struct Written {
    std::uint32_t there = 0;    // sectors that were there before
    std::uint32_t dirtied = 0;  // sectors that were clean or absent and are dirty now
  };
  // Takes the bytes in, without reading the rest of their sectors: a sector is there when all its
  // bytes have been written or read. With `dirty` they are written back when the line makes way.
  Written write(std::uint64_t line, const LineBytes& bytes, bool dirty);

  // Only for speed: this line will be asked for soon.
  void expect(std::uint64_t line);

  // Forgets sectors, dirty or not.
  void drop(std::uint64_t line, std::uint32_t sectors);
  void clear();
  // Sectors that are dirty; they are clean afterwards.
  std::uint64_t clean();
  // Dirty sectors of lines that have made way so far.
  std::uint64_t written_back() const { return written_back_; }

  std::uint64_t bytes() const { return std::uint64_t{sets_} * ways_ * kLineBytes; }
  std::uint32_t sets() const { return sets_; }
  std::uint32_t ways() const { return ways_; }

 private:
  static constexpr std::uint32_t kNobody = ~0u;
  struct Slot {
    std::uint64_t line = 0;
    LineBytes present{};
    std::uint32_t dirty = 0;                         // mask of sectors
    std::uint32_t older = kNobody, newer = kNobody;  // in its set, by last use
    std::uint32_t next = kNobody;                    // in the same bucket
  };
  struct Set {
    std::uint32_t oldest = kNobody, newest = kNobody, used = 0;
  };
  std::uint32_t set_of(std::uint64_t line) const;
  std::uint32_t& bucket_of(std::uint64_t line);
  std::uint32_t find(std::uint64_t line);
  std::uint32_t find_or_place(std::uint64_t line);
  void touch(std::uint32_t slot);

  std::uint32_t sets_, ways_;
  Index index_;
  bool empty_ = true;
  std::uint64_t written_back_ = 0;
  std::vector<Slot> slots_;  // [sets][ways]
  std::vector<Set> by_set_;
  std::vector<std::uint32_t> buckets_;  // heads of chains: finding a line costs the same in any set
};

// How an instruction uses the L1. Atomics never do.
enum class L1Use : std::uint8_t {
  cached,       // ld, ld.ca, ld.nc, st, and the streaming hints (.cs, .lu, L1::evict_*)
  no_allocate,  // L1::no_allocate: reads a sector that the L1 has, brings none into it
  bypass,       // .cg, .cv, .wt, volatile, and ordered accesses beyond the block
  none,         // bulk copies: not asked of the L1 at all
};

// What happened to one line of a request.
struct LineTraffic {
  std::uint64_t address = 0;  // the line's first byte that was asked for
  CacheCounters counters;
};

// The caches of one device during a launch.
//   L1   one for each SM. Loads allocate and read the sectors that are missing. Stores go through
//        to the L2 and stay in the L1 as well: NVIDIA's whitepaper on the V100 says that it caches
//        stores, the Turing Tuning Guide that it writes through. Atomics, and stores that bypass,
//        drop what the L1 has of their sectors.
//   L2   one for all. Reads the sectors that are missing from DRAM; takes stores without reading,
//        by bytes; writes a dirty sector back, whole, when its line makes way.
class CacheHierarchy {
 public:
  // l1_bytes: of one SM, what shared memory leaves. `l2`: the L2 of the launch before, or null.
  CacheHierarchy(int sm_count, std::uint64_t l1_bytes, std::uint64_t l2_bytes,
                 std::shared_ptr<SectoredCache> l2 = nullptr);

  // One request of a warp on an SM: lanes in `mask` access `bytes` each at global addresses, each
  // aligned to `bytes` (1 to 32). The lines it touches, valid until the next request.
  const std::vector<LineTraffic>& request(int sm, const std::uint64_t* addresses,
                                          std::uint32_t mask, std::uint32_t bytes, Access access,
                                          L1Use use);
  // A fence beyond the block: later loads must see other blocks' stores.
  void invalidate_l1(int sm);

  // Writes back what is dirty, as if nobody used it again. Sectors written to DRAM so far are then
  // all of the launch's.
  void flush() { flushed_ += l2_->clean(); }
  std::uint64_t dram_written() const { return l2_->written_back() - before_ + flushed_; }

  const std::shared_ptr<SectoredCache>& l2() const { return l2_; }
  std::uint64_t l1_bytes() const { return l1_bytes_; }

 private:
  void load(SectoredCache& l1, std::uint64_t line, std::uint32_t sectors, L1Use use,
            CacheCounters& counters);

  std::uint64_t l1_bytes_;
  std::vector<std::unique_ptr<SectoredCache>> l1_;  // by SM, made at its first request
  std::shared_ptr<SectoredCache> l2_;
  std::uint64_t before_ = 0, flushed_ = 0;  // sectors
  std::vector<LineTraffic> traffic_;
  struct Piece {
    std::uint64_t line = 0, address = 0;
    std::uint32_t sectors = 0;
    LineBytes bytes{};
  };
  std::array<Piece, 32> pieces_;
};

// The unified L1's bytes that are left beside the shared memory of the blocks of a launch that are
// on an SM together: the smallest carve-out that the device knows and that holds them.
// shared_bytes_per_block: static + dynamic, without the system's share; blocks: resident on an SM.
std::uint64_t l1_beside_shared(const DeviceSpec& device, std::uint64_t shared_bytes_per_block,
                               int blocks);

}  // namespace vgpu
