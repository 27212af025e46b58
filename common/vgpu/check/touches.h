// Which bytes of device memory one operation touched, and with which instructions: what the check of
// streams compares between operations (streams.h).
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "../core/observer.h"

namespace vgpu {

struct Allocation;

enum class Touch : std::uint8_t { read, write, atomic };
inline constexpr std::size_t kTouches = 3;

inline constexpr std::uint64_t kTouchPageBits = 12, kTouchPageBytes = 1u << kTouchPageBits;

// One bit for each byte of a page, for each kind of touch.
struct TouchPage {
  std::array<std::array<std::uint64_t, kTouchPageBytes / 64>, kTouches> bits{};
};

// A memory instruction in an allocation: the bytes from the first to behind the last it touched.
struct TouchSite {
  const Function* function = nullptr;
  std::uint32_t pc = 0;
  Touch touch = Touch::read;
  std::uint64_t low = ~0ull, high = 0;
};

struct TouchedAllocation {
  std::shared_ptr<Allocation> allocation;
  std::vector<std::unique_ptr<TouchPage>> pages;  // null where nothing was touched
  // (a list whose entries stay where they are)
  std::map<std::pair<const Function*, std::uint64_t>, TouchSite> sites;
  void set(Touch touch, std::uint64_t offset, std::uint64_t bytes);
};

// By allocation id.
using Touches = std::map<std::uint32_t, TouchedAllocation>;

// A launch that may begin before the kernel in front of it has ended (programmatic dependent launch), and
// any other, which only `triggers`.
struct Dependence {
  bool programmatic = false;
  Touches early;  // before the griddepcontrol.wait of those who touch, or of others they have met
  bool waited = false;    // somebody has executed griddepcontrol.wait
  bool triggers = false;  // somebody has executed griddepcontrol.launch_dependents
};

// Fills `touches` during a launch, and `dependence`. Atomics, and stores that others may see at once (volatile,
// relaxed, release), count as atomic. Loads of that kind are not noted: beside an atomic they are
// no race.
std::unique_ptr<Observer> make_touch_observer(Touches& touches, Dependence& dependence);

}  // namespace vgpu
