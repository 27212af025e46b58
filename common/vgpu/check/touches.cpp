#include "touches.h"

#include <algorithm>

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

class TouchObserver final : public Observer {
 public:
  explicit TouchObserver(Touches& touches) : touches_(touches) {}

  void access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
              std::uint32_t bytes, Access access, Space space, const Places&) override {
    if (space != Space::global) return;
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

  static void note(Window& window, Touch touch, std::uint32_t mask, const Addresses& a,
                   std::uint32_t bytes, const Extent& extent) {
    TouchSite& site = *window.site;
    site.low = std::min(site.low, extent.low - window.low);
    site.high = std::max(site.high, extent.high + bytes - window.low);
    if (a.strided && a.stride == static_cast<std::int64_t>(bytes)) {
      window.touched->set(touch, extent.low - window.low, std::uint64_t{bytes} * kWarpSize);
    } else if (a.strided && a.stride == 0) {
      set(window, touch, extent.low - window.low, bytes);
    } else {
      each_lane(mask, [&](int lane) { set(window, touch, a.v[lane] - window.low, bytes); });
    }
  }

  Touches& touches_;
  Window windows_[192];
};

}  // namespace

std::unique_ptr<Observer> make_touch_observer(Touches& touches) {
  return std::make_unique<TouchObserver>(touches);
}

}  // namespace vgpu
