// What the race check remembers of memory: who last wrote and who last read each piece.
//
// A piece is as wide as the narrowest access that its page has seen (4, 2 or 1 bytes), so that
// neighbours in an fp16 array are told apart and nothing is ever blamed for its neighbour's
// accesses. For each piece: the last write and the last two reads by different threads. What is
// forgotten (a third reader) can hide a race, never invent one.
//
// Strong accesses (atomic, volatile, relaxed) are remembered apart from plain ones, in tables that
// a page has once it has seen one: the atomic that follows a thread's plain store must not hide
// that store from the atomics of others.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <utility>

namespace vgpu {

// One access of one thread: which record (32 bits), its lane, flags and the low bits of its warp's
// number, so that most accesses by the same thread need no look at the record.
using Trace = std::uint64_t;
inline constexpr Trace kTraceLane = 31ull << 32,
                       kTraceMany = 1ull << 37,  // other lanes of the warp, too
    kTraceAtomic = 1ull << 38, kTraceRelaxed = 1ull << 39, kTraceVolatile = 1ull << 40,
                       kTracePending = 1ull << 41,  // a copy not waited for
    kTraceAside = 1ull << 42,                       // no thread itself, see race.h: Actor
    kTraceStrong = kTraceAtomic | kTraceRelaxed | kTraceVolatile;
inline constexpr int kTraceWarpShift = 43;
inline constexpr Trace kTraceWarp = ~0ull << kTraceWarpShift;
inline constexpr Trace kTraceThread =
    kTraceWarp | kTraceLane | kTraceMany | kTraceAside;  // the same and no other
inline std::uint32_t record_of(Trace t) { return static_cast<std::uint32_t>(t); }
inline int lane_of(Trace t) { return static_cast<int>(t >> 32 & 31); }

inline constexpr std::uint32_t kPageBits = 10, kPageBytes = 1u << kPageBits;

// One trace for each piece of a page, in each of the three; null where there is none.
struct Tables {
  Trace *written = nullptr, *read = nullptr, *read_before = nullptr;
  Tables from(std::uint32_t piece) const {
    return {written + piece, read + piece, read_before + piece};
  }
};

class ShadowPage {
 public:
  explicit ShadowPage(int shift) : shift_(shift), plain_(make()) {}
  int shift() const { return shift_; }  // log2 of the bytes of a piece
  Trace* written() { return plain_.get(); }
  Tables plain() { return tables(plain_); }
  bool has_strong() const { return strong_ != nullptr; }
  Tables strong() { return tables(strong_); }
  Tables make_strong() {
    if (!strong_) strong_ = make();
    return strong();
  }
  void refine(int shift) {
    if (shift >= shift_) return;
    const int was = std::exchange(shift_, shift);
    plain_ = finer(plain_, was);
    if (strong_) strong_ = finer(strong_, was);
  }

 private:
  using Traces = std::unique_ptr<Trace[]>;
  static std::size_t pieces(int shift) { return std::size_t{kPageBytes} >> shift; }
  // Tables a multiple of 4096 bytes apart would compete for the same lines of the host's cache.
  static std::size_t table(int shift) { return pieces(shift) + 8 * 5; }
  Traces make() const { return std::make_unique<Trace[]>(3 * table(shift_)); }
  Tables tables(const Traces& of) const {
    return {of.get(), of.get() + table(shift_), of.get() + 2 * table(shift_)};
  }
  Traces finer(const Traces& old, int was) const {
    Traces fresh = make();
    const std::size_t each = std::size_t{1} << (was - shift_);
    for (std::size_t t = 0; t < 3; ++t)
      for (std::size_t i = 0; i < pieces(was); ++i)
        for (std::size_t k = 0; k < each; ++k)
          fresh[t * table(shift_) + i * each + k] = old[t * table(was) + i];
    return fresh;
  }
  int shift_ = 2;
  Traces plain_, strong_;
};

// Pages by address, only where something was touched.
class Shadow {
 public:
  ShadowPage& page(std::uint64_t address, int shift) {
    const std::uint64_t number = address >> kPageBits;
    Entry& entry = cache_[number % kCached];
    if (entry.number != number || !entry.page) {
      auto& page = pages_[number];
      if (!page) page = std::make_unique<ShadowPage>(shift);
      entry = {number, page.get()};
    }
    if (shift < entry.page->shift()) entry.page->refine(shift);
    return *entry.page;
  }

 private:
  static constexpr std::size_t kCached = 1024;
  struct Entry {
    std::uint64_t number = 0;
    ShadowPage* page = nullptr;
  };
  std::unique_ptr<Entry[]> cache_{new Entry[kCached]};
  std::unordered_map<std::uint64_t, std::unique_ptr<ShadowPage>> pages_;
};

}  // namespace vgpu
