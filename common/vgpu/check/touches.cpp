#include "touches.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "../core/access.h"

namespace vgpu {

void TouchedAllocation::set(Touch touch, std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t end = offset + bytes;
  while (offset < end) {
    auto& page = pages[offset >> kTouchPageBits];
    if (!page) page = std::make_unique<TouchPage>();
    auto& bits = page->bits[static_cast<std::size_t>(touch)];
    const std::uint64_t stop = std::min(end, (offset | (kTouchPageBytes - 1)) + 1);
    while (offset < stop) {
      const std::uint64_t at = offset % kTouchPageBytes, shift = at % 64;
      const std::uint64_t n = std::min(64 - shift, stop - offset);
      bits[at / 64] |= (n == 64 ? ~0ull : (1ull << n) - 1) << shift;
      offset += n;
    }
  }
}

namespace {

class Notes {
 public:
  explicit Notes(Touches& touches) : touches_(touches) {}
  void finish() {
    for (Row& row : rows_) flush(row);
  }

  void access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
              std::uint32_t bytes, Access access) {
    const bool strong =
        instr.order & (kOrderRelaxed | kOrderAcquire | kOrderRelease | kOrderVolatile);
    if (strong && access == Access::load) return;
    const Touch touch = strong || access == Access::atomic ? Touch::atomic
                        : access == Access::load           ? Touch::read
                                                           : Touch::write;
    const Extent extent = extent_of(a, bytes);
    Window& window = windows_[(instr.memory_site * kTouches + static_cast<std::size_t>(touch)) %
                              std::size(windows_)];
    const Function* function = warp.frame->function;
    std::uint32_t todo = mask;
    while (todo) {  // allocation by allocation, nearly always one
      const std::uint64_t first = a.v[std::countr_zero(todo)];
      if (window.function != function || window.pc != instr.pc || first < window.low ||
          first >= window.high) {
        const auto allocation = warp.block->launch.memory.find(first);
        if (!allocation) return;
        TouchedAllocation& touched = touches_[allocation->id];
        if (!touched.allocation) {
          touched.allocation = allocation;
          touched.pages.resize((allocation->size >> kTouchPageBits) + 1);
        }
        const std::uint64_t key =
            std::uint64_t{instr.pc} * kTouches + static_cast<std::uint64_t>(touch);
        TouchSite& site = touched.sites[{function, key}];
        site.function = function;
        site.pc = instr.pc;
        site.touch = touch;
        window = {function, instr.pc, allocation->base, allocation->base + allocation->size,
                  &touched, &site};
      }
      if (extent.low >= window.low && extent.high + bytes <= window.high) {
        note(window, touch, todo, a, bytes, extent);
        return;
      }
      std::uint32_t here = 0;
      each_lane(todo, [&](int lane) {
        if (a.v[lane] < window.low || a.v[lane] + bytes > window.high) return;
        here |= 1u << lane;
        set(window, touch, a.v[lane] - window.low, bytes);
        window.site->low = std::min(window.site->low, a.v[lane] - window.low);
        window.site->high = std::max(window.site->high, a.v[lane] - window.low + bytes);
      });
      if (!here) return;
      todo &= ~here;
    }
  }

  // Notes loads from the constant bank.
  void constants(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                 std::uint32_t bytes) {
    if (a.strided && a.stride == 0) mask &= ~mask + 1;  // all lanes read the same
    const Launch& launch = warp.block->launch;
    const Function* const function = warp.frame->function;
    each_lane(mask, [&](int lane) {
      const std::byte* const at = launch.constants + a.v[lane];
      if (!constant_ || at < constant_->host || at >= constant_->host + constant_->size) {
        const auto& variables = launch.request.module->variables;
        const auto found =
            std::find_if(variables.begin(), variables.end(), [&](const auto& variable) {
              return at >= variable->host && at < variable->host + variable->size;
            });
        if (found == variables.end()) return;
        constant_ = *found;
      }
      TouchedAllocation& touched = touches_[constant_->id];
      if (!touched.allocation) {
        touched.allocation = constant_;
        touched.pages.resize((constant_->size >> kTouchPageBits) + 1);
      }
      const auto offset = static_cast<std::uint64_t>(at - constant_->host);
      const std::uint64_t read = std::min<std::uint64_t>(bytes, constant_->size - offset);
      touched.set(Touch::read, offset, read);
      TouchSite& site = touched.sites[{function, std::uint64_t{instr.pc} * kTouches}];
      site.function = function;
      site.pc = instr.pc;
      site.low = std::min(site.low, offset);
      site.high = std::max(site.high, offset + read);
    });
  }

 private:
  struct Window {
    const Function* function = nullptr;
    std::uint32_t pc = 0;
    std::uint64_t low = 1, high = 0;
    TouchedAllocation* touched = nullptr;
    TouchSite* site = nullptr;
  };

  // One lane's bytes: aligned, so that they are in one word.
  static void set(Window& window, Touch touch, std::uint64_t offset, std::uint32_t bytes) {
    if (bytes > 32) return window.touched->set(touch, offset, bytes);
    auto& page = window.touched->pages[offset >> kTouchPageBits];
    if (!page) page = std::make_unique<TouchPage>();
    const std::uint64_t at = offset % kTouchPageBytes;
    page->bits[static_cast<std::size_t>(touch)][at / 64] |= ((1ull << bytes) - 1) << at % 64;
  }

  void note(Window& window, Touch touch, std::uint32_t mask, const Addresses& a,
            std::uint32_t bytes, const Extent& extent) {
    TouchSite& site = *window.site;
    site.low = std::min(site.low, extent.low - window.low);
    site.high = std::max(site.high, extent.high + bytes - window.low);
    if (a.strided && a.stride == static_cast<std::int64_t>(bytes)) {
      window.touched->set(touch, extent.low - window.low, std::uint64_t{bytes} * kWarpSize);
    } else if (a.strided && a.stride % 64 == 0 && bytes <= 32) {
      // Lanes that walk along rows stay in their words of 64 bits for a while.
      const std::uint64_t word = (a.v[0] - window.low) / 64;
      Row& row = rows_[(word * 3 + static_cast<std::uint64_t>(a.stride / 64) +
                        static_cast<std::uint64_t>(touch)) %
                       std::size(rows_)];
      if (row.touched != window.touched || row.word != word || row.stride != a.stride ||
          row.touch != touch) {
        flush(row);
        row = {window.touched, word, a.stride, touch, 0};
      }
      row.bits |= ((1ull << bytes) - 1) << (a.v[0] - window.low) % 64;
    } else {
      std::uint64_t number = ~0ull;
      std::uint64_t* bits = nullptr;
      each_lane(mask, [&](int lane) {
        const std::uint64_t offset = a.v[lane] - window.low;
        if (offset >> kTouchPageBits != number) {
          number = offset >> kTouchPageBits;
          auto& page = window.touched->pages[number];
          if (!page) page = std::make_unique<TouchPage>();
          bits = page->bits[static_cast<std::size_t>(touch)].data();
        }
        const std::uint64_t at = offset % kTouchPageBytes;
        bits[at / 64] |= ((1ull << bytes) - 1) << at % 64;
      });
    }
  }

  // 32 words of 64 bits, `stride` bytes apart from the one with number `word` on.
  struct Row {
    TouchedAllocation* touched = nullptr;
    std::uint64_t word = 0;
    std::int64_t stride = 0;
    Touch touch = Touch::read;
    std::uint64_t bits = 0;
  };
  static void flush(Row& row) {
    if (!row.touched) return;
    for (int lane = 0; lane < (row.stride ? kWarpSize : 1); ++lane) {
      const std::uint64_t offset =
          row.word * 64 + static_cast<std::uint64_t>(row.stride) * static_cast<std::uint64_t>(lane);
      auto& page = row.touched->pages[offset >> kTouchPageBits];
      if (!page) page = std::make_unique<TouchPage>();
      page->bits[static_cast<std::size_t>(row.touch)][offset % kTouchPageBytes / 64] |= row.bits;
    }
    row.touched = nullptr;
  }

  Row rows_[64];
  std::shared_ptr<Allocation> constant_;  // the one that was read last
  Touches& touches_;
  Window windows_[192];
};

// Whether a warp has waited for the kernel in front: itself, or any thread of the cluster before the warp
// came out of a barrier, a wait at an mbarrier, an atomic or an ordered or volatile load. That can hide a
// finding and cannot invent one.
class TouchObserver final : public Observer {
 public:
  TouchObserver(Touches& touches, Dependence& dependence)
      : dependence_(dependence), notes_(touches), early_(dependence.early) {}
  void launch_end(Launch&, std::vector<std::string>&) override {
    notes_.finish();
    early_.finish();
  }
  void block_end(Block& block) override {
    for (const Warp& warp : block.warps) waited_.erase(&warp);
    clusters_.erase(&block.cluster);
  }

  void access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
              std::uint32_t bytes, Access access, Space space, const Places&) override {
    if (dependence_.programmatic && (access == Access::atomic || instr.volatile_)) met(warp);
    if (space != Space::global) return;
    Notes& notes = dependence_.programmatic && !waited_.contains(&warp) ? early_ : notes_;
    notes.access(warp, instr, mask, a, bytes, access);
  }
  void constant_access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                       std::uint32_t bytes) override {
    // (No launch writes there, so a dependent one may read it as early as it likes.)
    notes_.constants(warp, instr, mask, a, bytes);
  }
  void barrier_complete(Block& block, int) override {
    if (clusters_.contains(&block.cluster))
      for (const Warp& warp : block.warps) waited_.insert(&warp);
  }
  void cluster_complete(Cluster& cluster) override {
    for (const auto& block : cluster.blocks) barrier_complete(*block, 0);
  }
  void grid_dependency(Warp& warp, std::uint32_t, bool waits) override {
    dependence_.triggers |= !waits;
    dependence_.waited |= waits;
    if (!waits || !dependence_.programmatic) return;
    waited_.insert(&warp);
    clusters_.insert(&warp.block->cluster);
  }

 private:
  void met(const Warp& warp) {
    if (clusters_.contains(&warp.block->cluster)) waited_.insert(&warp);
  }

  Dependence& dependence_;
  Notes notes_, early_;
  std::unordered_set<const Warp*> waited_;
  std::unordered_set<const Cluster*> clusters_;  // in which somebody has waited
};

}  // namespace

std::unique_ptr<Observer> make_touch_observer(Touches& touches, Dependence& dependence) {
  return std::make_unique<TouchObserver>(touches, dependence);
}

}  // namespace vgpu
