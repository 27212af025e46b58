// Reads of device or shared memory that nobody wrote, and of variables that nothing was assigned to,
// where what was read matters.
//
// One byte beside each byte of memory says whether it was written: by the host's copies and fills,
// by kernels, by a module's initializers. That of device memory lives as long as its allocation
// (Memory::track_writes), that of shared memory as long as its block. Managed and pinned memory is
// the host's to write, unseen, and counts as written.
//
// What a load brings is followed through registers (undefined.h) and, when it is stored without
// being used, through memory: the flag of such bytes tells where they came from.
#include <iterator>
#include <unordered_map>

#include "../core/access.h"
#include "../ptx/unassigned.h"
#include "checks.h"
#include "undefined.h"

namespace vgpu {
namespace {

// Flags of bytes in memory, see Allocation::written. Even flags from kCopied on mark bytes that were
// copied from memory that nobody wrote. A flag above kCopied also tells which load read them: see
// finding number (flag - kCopied) / 2 - 1 in `kept_`.
constexpr std::uint8_t kNever = 0, kWritten = 1, kCopied = 2;
constexpr std::size_t kMostKept = (254 - kCopied) / 2;

class InitCheck final : public Observer {
 public:
  void launch_end(Launch&, std::vector<std::string>& findings) override {
    values_.clear();
    findings_.take(findings);
  }
  bool wants_instructions() const override { return true; }
  void instruction(Warp& warp, const Instr& instr, std::uint32_t mask, std::uint32_t on) override {
    if (instr.pc == 0) function_begins(warp, mask);
    values_.instruction(warp, instr, mask, on);
  }
  void warp_sync(Warp& warp, const Instr& instr, std::uint32_t mask, std::uint32_t) override {
    values_.warp_sync(warp, instr, mask);
  }
  void block_begin(Block& block) override {
    auto& written = shared_[&block];
    written.assign(block.launch.shared_bytes, 0);
    std::fill_n(written.rbegin(), block.launch.reserved_shared, 1);  // the system's: zeros
  }
  void block_end(Block& block) override {
    values_.forget(block);
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
    }
    if (access == Access::store && values_.stored().lanes & mask)
      return store_undefined(warp, instr, mask, a, bytes, space);
    if (space == Space::shared) {
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
        return *flags == kWritten;
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
      Ref<Origin> origin;
      each_lane(mask, [&](int lane) {
        const std::uint8_t* const flags = written + (a.v[lane] - base);
        if (set_at(flags, bytes)) return;
        if (!origin) origin = origin_of(warp, instr, bytes, space);
        std::uint32_t first = 0, undefined = 0;
        for (std::uint32_t i = bytes; i-- > 0;)
          if (flags[i] != kWritten) first = i, undefined |= 1u << i;
        origin->first[lane] = a.v[lane] + first;
        origin->whole |= std::uint32_t{std::popcount(undefined) == static_cast<int>(bytes)} << lane;
        origin->copied[lane] = flags[first];
        if (flags[first] > kCopied)
          origin->computed |= std::uint32_t{kept_[kept_number(flags[first])].computed} << lane;
        if (access == Access::load && UndefinedValues::follows(*origin->instr))
          values_.loaded(warp, *origin->instr, lane, bytes, undefined, origin);
        else
          tell(warp, *origin, lane, access);
      });
    }
    if (access == Access::load) return;
    if (row)
      std::memset(written + (a.v[0] - base), 1, std::size_t{bytes} * kWarpSize);
    else
      each_lane(mask, [&](int lane) { std::memset(written + (a.v[lane] - base), 1, bytes); });
  }

  // Registers begin undefined. Those that are assigned to before any read need no attention.
  void function_begins(Warp& warp, std::uint32_t mask) {
    const Function* const function = warp.frame->function;
    auto it = unassigned_.find(function);
    if (it == unassigned_.end())
      it = unassigned_.emplace(function, read_before_assigned(*function)).first;
    for (const Unassigned& one : it->second) {
      Ref<Origin> origin(new Origin);
      origin->instr = &function->code[one.reader];
      values_.unassigned(warp, mask, one.slot, one.bits, origin);
    }
  }

  Ref<Origin> origin_of(const Warp& warp, const Instr& instr, std::uint32_t bytes, Space space) {
    Ref<Origin> origin(new Origin);
    origin->instr = &warp.frame->function->code[instr.pc];  // `instr` may be a copy
    origin->bytes = bytes;
    origin->space = space;
    if (space == Space::shared) {
      origin->own_block = block_ == warp.block;
      origin->block = block_->linear;
    }
    return origin;
  }
  static std::string key_of(const Warp& warp, const Origin& origin) {
    return where(*origin.instr, *warp.frame->function) + (!origin.bytes                   ? "v"
                                                          : origin.space == Space::shared ? "s"
                                                                                          : "g");
  }
  static std::string words(Warp& warp, const Origin& origin, int lane, Access access) {
    const Launch& launch = warp.block->launch;
    if (!origin.bytes)
      return describe(warp, *origin.instr, lane,
                      "init: read of a variable that nothing was assigned to,");
    const std::uint64_t first = origin.first[lane];
    std::string what = access == Access::load ? "init: read of " : "init: atomic access of ";
    what += bytes_text(origin.bytes);
    what += origin.copied[lane] == kNever ? " that nobody wrote, "
                                          : " copied from memory that nobody wrote, ";
    if (origin.space != Space::shared)
      what += global_text(launch, first);
    else
      what += "at offset " + std::to_string(first) + " of " +
              (origin.own_block ? "the block's shared memory"
                                : "the shared memory of block " + block_text(launch, origin.block));
    return describe(warp, *origin.instr, lane, what + ",");
  }
  // What `lane` has read there is used.
  void tell(Warp& warp, Origin& origin, int lane, Access access) {
    if (origin.told >> lane & 1) return;
    origin.told |= 1u << lane;
    if (origin.copied[lane] > kCopied) {
      const Kept& kept = kept_[kept_number(origin.copied[lane])];
      findings_.add(kept.key, [&] { return kept.words; });
      return;
    }
    findings_.add(key_of(warp, origin), [&] { return words(warp, origin, lane, access); });
  }
  static std::size_t kept_number(std::uint8_t flag) { return (flag - kCopied) / 2 - 1; }
  // The flag for bytes in shared memory that `lane` has loaded there, or computed from such ones.
  std::uint8_t keep(Warp& warp, const Origin& origin, int lane, bool computed) {
    const std::uint8_t copied = origin.copied[lane];
    if (copied != kNever && (copied == kCopied || !computed || kept_[kept_number(copied)].computed))
      return copied;
    const std::string key =
        copied == kNever ? key_of(warp, origin) : kept_[kept_number(copied)].key;
    std::size_t i = 0;
    while (i < kept_.size() && (kept_[i].key != key || kept_[i].computed != computed)) ++i;
    if (i == kMostKept) return kCopied;
    if (i == kept_.size())
      kept_.push_back({key,
                       copied == kNever ? words(warp, origin, lane, Access::load)
                                        : kept_[kept_number(copied)].words,
                       computed});
    return static_cast<std::uint8_t>(kCopied + 2 * (i + 1));
  }
  // A store of values that came from memory that nobody wrote. In shared memory they are followed
  // further. To put one into global memory is a use, unless the lane stores other bytes beside, or
  // they are 8-bit elements as they were loaded: so nvcc copies a struct with its padding. What was
  // computed from a load of nothing but such bytes is a use beside others, too. (One that has written
  // bytes as well may be a row's last vector, of which a part lies behind its end.)
  void store_undefined(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                       std::uint32_t bytes, Space space) {
    const UndefinedValues::Stored& stored = values_.stored();
    const std::uint32_t all = bytes >= 32 ? ~0u : (1u << bytes) - 1;
    each_lane(mask, [&](int lane) {
      std::uint8_t *flags = nullptr, flag = kCopied;
      std::uint32_t undefined = stored.lanes >> lane & 1 ? stored.bytes[lane] : 0;
      if (space == Space::shared) {
        flags = of_block_ + a.v[lane];
        if (undefined)
          flag = keep(warp, *stored.origin[lane], stored.from[lane], stored.computed >> lane & 1);
      } else {
        const bool computed = stored.computed >> lane & 1, wide = type_bits(instr.type) > 8;
        const bool alone = undefined == all;
        if (undefined && (alone ? computed || wide : computed && wide && whole(stored, lane))) {
          tell(warp, *stored.origin[lane], stored.from[lane], Access::load);
          undefined = 0;
        }
        const auto allocation = warp.block->launch.memory.find(a.v[lane]);
        if (!allocation || !allocation->written) return;
        flags = allocation->written.get() + (a.v[lane] - allocation->base);
        if (undefined) {
          allocation->full = false;
          for (Window& window : windows_)
            if (window.allocation == allocation) window.low = 1, window.high = 0;
        }
      }
      for (std::uint32_t i = 0; i < bytes; ++i) flags[i] = undefined >> i & 1 ? flag : kWritten;
    });
  }

  static bool whole(const UndefinedValues::Stored& stored, int lane) {
    return stored.origin[lane]->whole >> stored.from[lane] & 1;
  }

  struct Kept {
    std::string key, words;
    bool computed = false;  // from what that load brought, and no copy of it
  };
  std::unordered_map<const Function*, std::vector<Unassigned>> unassigned_;
  std::vector<Kept> kept_;  // findings of loads whose values lie in shared memory
  UndefinedValues values_{
      [this](Warp& warp, Origin& origin, int lane) { tell(warp, origin, lane, Access::load); }};
  Window windows_[64];
  std::unordered_map<Block*, std::vector<std::uint8_t>> shared_;
  Block* block_ = nullptr;
  std::uint8_t* of_block_ = nullptr;
  Findings findings_;
};

}  // namespace

std::unique_ptr<Observer> make_init_check() { return std::make_unique<InitCheck>(); }

}  // namespace vgpu
