// Reads of device or shared memory that nobody wrote.
//
// One byte beside each byte of memory says whether it was written: by the host's copies and fills,
// by kernels, by a module's initializers. That of device memory lives as long as its allocation
// (Memory::track_writes), that of shared memory as long as its block. Managed and pinned memory is
// the host's to write, unseen, and counts as written.
#include <unordered_map>

#include "../core/access.h"
#include "checks.h"

namespace vgpu {
namespace {

class InitCheck final : public Observer {
 public:
  void launch_end(Launch&, std::vector<std::string>& findings) override {
    findings_.take(findings);
  }
  void block_begin(Block& block) override {
    auto& written = shared_[&block];
    written.assign(block.launch.shared_bytes, 0);
    std::fill_n(written.rbegin(), block.launch.reserved_shared, 1);  // the system's: zeros
  }
  void block_end(Block& block) override {
    shared_.erase(&block);
    block_ = nullptr;
  }

  void access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
              std::uint32_t bytes, Access access, Space space, const Places& places) override {
    if (space == Space::shared) {
      Block* const of = places.owner ? places.owner : warp.block;
      if (block_ != of) {
        block_ = of;
        of_block_ = shared_.at(block_).data();
      }
      look(warp, instr, mask, a, bytes, access, space, of_block_, 0);
      return;
    }
    const Extent extent = extent_of(a, bytes);
    Window& window = windows_[instr.memory_site % std::size(windows_)];
    if (extent.low >= window.low && extent.high + bytes <= window.high) {
      if (window.written)
        look(warp, instr, mask, a, bytes, access, space, window.written, window.low);
      return;
    }
    std::uint32_t todo = mask;  // lane by lane, since they may touch several allocations
    while (todo) {
      const std::uint64_t first = a.v[std::countr_zero(todo)];
      window.allocation = warp.block->launch.memory.find(first);
      if (!window.allocation) return;
      window.low = window.allocation->base;
      window.high = window.low + window.allocation->size;
      window.written =
          window.allocation->all_written() ? nullptr : window.allocation->written.get();
      std::uint32_t here = 0;
      each_lane(todo, [&](int lane) {
        here |= std::uint32_t{a.v[lane] >= window.low && a.v[lane] + bytes <= window.high} << lane;
      });
      if (!here) return;
      Addresses part = a;
      part.strided = a.strided && here == mask;
      if (window.written)
        look(warp, instr, here, part, bytes, access, space, window.written, window.low);
      todo &= ~here;
    }
  }
  void copy_land(Warp&, int, Block& to, std::uint32_t offset, std::uint32_t bytes) override {
    std::memset(shared_.at(&to).data() + offset, 1, bytes);
  }

 private:
  struct Window {
    std::uint64_t low = 1, high = 0;
    std::uint8_t* written = nullptr;  // null: all of it was
    std::shared_ptr<Allocation> allocation;
  };

  static bool all_set(const std::uint8_t* flags, std::size_t n) {
    std::uint8_t all = 1;
    for (std::size_t i = 0; i < n; ++i) all &= flags[i];
    return all;
  }
  static bool set_at(const std::uint8_t* flags, std::uint32_t bytes) {
    switch (bytes) {
      case 1:
        return *flags;
      case 2: {
        std::uint16_t v;
        std::memcpy(&v, flags, 2);
        return v == 0x0101;
      }
      case 4: {
        std::uint32_t v;
        std::memcpy(&v, flags, 4);
        return v == 0x01010101u;
      }
      case 8: {
        std::uint64_t v;
        std::memcpy(&v, flags, 8);
        return v == 0x0101010101010101ull;
      }
      default:
        return all_set(flags, bytes);
    }
  }

  void look(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
            std::uint32_t bytes, Access access, Space space, std::uint8_t* written,
            std::uint64_t base) {
    const bool row = a.strided && a.stride == static_cast<std::int64_t>(bytes);
    if (access != Access::store) {
      if (row && all_set(written + (a.v[0] - base), std::size_t{bytes} * kWarpSize)) return;
      if (a.strided && a.stride == 0 && set_at(written + (a.v[0] - base), bytes)) return;
      each_lane(mask, [&](int lane) {
        if (set_at(written + (a.v[lane] - base), bytes)) return;
        const Launch& launch = warp.block->launch;
        const Instr& own = warp.frame->function->code[instr.pc];
        findings_.add(
            where(own, *warp.frame->function) + (space == Space::shared ? "s" : "g"), [&] {
              std::uint64_t first = a.v[lane];
              while (written[first - base]) ++first;
              std::string what = "init: ";
              what += access == Access::load ? "read" : "atomic access";
              what += " of " + bytes_text(bytes) + " that nobody wrote, ";
              what +=
                  space == Space::shared
                      ? "at offset " + std::to_string(first) + " of " +
                            (block_ == warp.block ? "the block's shared memory,"
                                                  : "the shared memory of block " +
                                                        block_text(launch, block_->linear) + ",")
                      : global_text(launch, first) + ",";
              return describe(warp, own, lane, what);
            });
      });
    }
    if (access == Access::load) return;
    if (row)
      std::memset(written + (a.v[0] - base), 1, std::size_t{bytes} * kWarpSize);
    else
      each_lane(mask, [&](int lane) { std::memset(written + (a.v[lane] - base), 1, bytes); });
  }

  Window windows_[64];
  std::unordered_map<Block*, std::vector<std::uint8_t>> shared_;
  Block* block_ = nullptr;
  std::uint8_t* of_block_ = nullptr;
  Findings findings_;
};

}  // namespace

std::unique_ptr<Observer> make_init_check() { return std::make_unique<InitCheck>(); }

}  // namespace vgpu
