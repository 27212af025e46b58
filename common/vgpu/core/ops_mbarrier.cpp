// mbarrier objects in shared memory, and the asynchronous copies that report to them.
//
// An object is 64 bits: pending arrivals, expected arrivals, bytes still to come (of bulk copies) and
// the number of the phase. What an arrival returns is the object as it was; a wait compares phases.
//
// Copies land as late as the program allows here too: when somebody waits for the object that they
// report to, and finds that only they are missing.
#include "../ptx/forms.h"
#include "access.h"

namespace vgpu {
namespace {

using std::int64_t, std::uint32_t, std::uint64_t;

constexpr uint32_t kMostArrivals = (1u << 20) - 1;
constexpr int64_t kMostBytes = 1 << 21;

struct Object {
  uint32_t pending = 0, expected = 0;
  int64_t bytes = 0;                    // of copies: told by expect_tx, taken away as they land
  uint32_t phase = 0;                   // 4 bits: a wait is for this phase or the one before

  // pending:20 expected:20 bytes:20 (in units of 4, signed) phase:4
  static Object read(uint64_t word) {
    Object o;
    o.pending = static_cast<uint32_t>(word & kMostArrivals);
    o.expected = static_cast<uint32_t>(word >> 20 & kMostArrivals);
    o.bytes = static_cast<int64_t>(word << 4) >> 44 << 2;
    o.phase = static_cast<uint32_t>(word >> 60);
    return o;
  }
  uint64_t word() const {
    return uint64_t{pending} | uint64_t{expected} << 20 | (static_cast<uint64_t>(bytes >> 2) & kMostArrivals) << 40 |
           uint64_t{phase} << 60;
  }
  void complete_phase() {
    if (pending || bytes) return;
    pending = expected;
    phase = (phase + 1) & 15;
  }
};

Object object_at(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return Object::read(word);
}
void put(std::byte* at, const Object& object) {
  const uint64_t word = object.word();
  std::memcpy(at, &word, sizeof word);
}

[[noreturn]] void refuse(const Warp& warp, const Instr& instr, int lane, const std::string& what) {
  throw Fault{FaultKind::illegal_instruction, describe(warp, instr, lane, what)};
}

// Calls f(lane, place of the object) for each active lane.
template <class F>
void each_object(Warp& warp, const Instr& instr, uint32_t mask, Access access, F f) {
  Addresses a;
  compute_addresses(warp, instr, mask, a);
  Places places;
  resolve(warp, instr, mask, a, 8, access, places);
  each_lane(mask, [&](int lane) {
    std::byte* at = places.at(a, lane);
    if (at < warp.block->shared || at >= warp.block->shared + warp.block->launch.shared_bytes)
      refuse(warp, instr, lane, "mbarrier outside shared memory");
    f(lane, at);
  });
}

void init(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t* counts = warp.lanes<const uint32_t>(instr.a);
  each_object(warp, instr, mask, Access::store, [&](int lane, std::byte* at) {
    if (counts[lane] == 0 || counts[lane] > kMostArrivals)
      refuse(warp, instr, lane, "mbarrier for " + std::to_string(counts[lane]) + " arrivals (1 to 1048575)");
    Object object;
    object.pending = object.expected = counts[lane];
    put(at, object);
  });
  warp.changed = true;
}

void invalidate(Warp& warp, const Instr& instr, uint32_t mask) {
  each_object(warp, instr, mask, Access::store, [&](int, std::byte* at) { std::memset(at, 0, 8); });
  warp.changed = true;
}

void arrive_at(const Warp& warp, const Instr& instr, int lane, std::byte* at, uint32_t count) {
  Object object = object_at(at);
  if (count > object.pending)
    refuse(warp, instr, lane, "arrival " + std::to_string(count) + " at an mbarrier that waits for " +
                                  std::to_string(object.pending) + " in this phase");
  object.pending -= count;
  object.complete_phase();
  put(at, object);
}

enum Kind : std::uint8_t { kArrive, kDrop, kExpectAndArrive, kExpect, kComplete };

void arrive(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t* operand = instr.a.valid() ? warp.lanes<const uint32_t>(instr.a) : nullptr;
  each_object(warp, instr, mask, Access::atomic, [&](int lane, std::byte* at) {
    Object object = object_at(at);
    const uint64_t before = object.word();
    const uint32_t value = operand ? operand[lane] : 1;
    if (instr.variant >= kExpectAndArrive) {
      object.bytes += instr.variant == kComplete ? -int64_t{value} : int64_t{value};
      if (value % 4 || object.bytes >= kMostBytes || object.bytes < -kMostBytes)
        refuse(warp, instr, lane, "mbarrier told of " + std::to_string(value) + " bytes");
      if (instr.variant != kExpectAndArrive) object.complete_phase();
      put(at, object);
    }
    if (instr.variant == kDrop) {
      if (value > object.expected) refuse(warp, instr, lane, "more arrivals dropped than the mbarrier expects");
      object.expected -= value;
      put(at, object);
    }
    if (instr.variant <= kExpectAndArrive) arrive_at(warp, instr, lane, at, instr.variant == kExpectAndArrive ? 1 : value);
    if (instr.d[0].valid()) warp.lanes<uint64_t>(instr.d[0])[lane] = before;
  });
  warp.changed = true;
}

// ---- copies that report to an object -----------------------------------------------------------

// For those who check: what has landed is told to the object, by the thread that asked for it.
void tell(const AsyncArrival& arrival) {
  Warp& warp = *arrival.warp;
  Addresses a;
  std::fill_n(a.v, kWarpSize, static_cast<uint64_t>(arrival.object - warp.block->shared));
  Places places;
  places.bias = reinterpret_cast<std::intptr_t>(warp.block->shared);
  warp.worker->notify([&](Observer& o) {
    o.access(warp, *arrival.instr, 1u << arrival.lane, a, 8, Access::atomic, Space::shared, places);
  });
}

void land_bulk(const AsyncArrival& copy) {
  std::memcpy(copy.warp->block->shared + copy.shared_offset, copy.source, copy.bytes);
  copy.warp->worker->notify([&](Observer& o) {
    for (uint32_t k = 0; k < copy.bytes; k += 16) o.copy_land(*copy.warp, copy.lane, copy.shared_offset + k, 16);
  });
  Object object = object_at(copy.object);
  object.bytes -= copy.bytes;
  object.complete_phase();
  put(copy.object, object);
}

// What was to report to this object lands now.
void land_for(Block& block, const std::byte* at) {
  for (std::size_t i = 0; i < block.async_arrivals.size();) {
    if (block.async_arrivals[i].object != at) {
      ++i;
      continue;
    }
    AsyncArrival arrival = block.async_arrivals[i];
    block.async_arrivals.erase(block.async_arrivals.begin() + static_cast<std::ptrdiff_t>(i));
    Warp& warp = *arrival.warp;
    Frame* const running = std::exchange(warp.frame, arrival.frame.get());
    if (arrival.source) {
      land_bulk(arrival);
    } else {
      land_copies(warp, arrival.lane, arrival.up_to);
      arrive_at(warp, *arrival.instr, arrival.lane, arrival.object, 1);
    }
    tell(arrival);
    warp.frame = running;
  }
}

void wait(Warp& warp, const Instr& instr, uint32_t mask) {
  const bool parity = instr.variant != 0;
  const auto done = [&](int lane, const std::byte* at) {
    const uint32_t now = object_at(at).phase;
    if (parity) return (now & 1) != (warp.lanes<const uint32_t>(instr.a)[lane] & 1);
    return now != Object::read(warp.lanes<const uint64_t>(instr.a)[lane]).phase;
  };
  if (!warp.block->async_arrivals.empty()) {
    Addresses a;
    compute_addresses(warp, instr, mask, a);
    each_lane(mask, [&](int lane) {
      const uint64_t generic = a.v[lane] + (instr.space == Space::shared ? kSharedWindow : 0);
      const std::byte* at = lane_pointer(warp, instr, lane, generic, 8, Access::atomic);
      if (done(lane, at)) return;
      const uint64_t before = object_at(at).word();
      land_for(*warp.block, at);
      warp.changed |= object_at(at).word() != before;
    });
  }
  uint32_t over = 0;
  each_object(warp, instr, mask, Access::atomic, [&](int lane, std::byte* at) {
    over |= uint32_t{done(lane, at)} << lane;
    warp.look(reinterpret_cast<std::uintptr_t>(at), object_at(at).word());
  });
  set_predicate(warp, instr.d[0], over, mask);
}

void pending_count(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint64_t* states = warp.lanes<const uint64_t>(instr.a);
  uint32_t* d = warp.lanes<uint32_t>(instr.d[0]);
  each_lane(mask, [&](int lane) { d[lane] = Object::read(states[lane]).pending; });
}

// cp.async.mbarrier.arrive: an arrival when all copies that the thread has asked for have landed.
void arrive_after_copies(Warp& warp, const Instr& instr, uint32_t mask) {
  each_object(warp, instr, mask, Access::atomic, [&](int lane, std::byte* at) {
    if (!instr.variant) {   // one more arrival to wait for in this phase, this one
      Object object = object_at(at);
      if (object.pending == kMostArrivals) refuse(warp, instr, lane, "too many arrivals at an mbarrier");
      ++object.pending;
      put(at, object);
    }
    warp.block->async_arrivals.push_back({at, &warp, Ref<Frame>(warp.frame), &instr, lane, warp.copies_of(lane).issued, nullptr, 0, 0});
  });
  warp.changed = true;
}

// cp.async.bulk [shared], [global], bytes, [mbarrier]
void bulk_copy(Warp& warp, const Instr& instr, uint32_t mask) {
  Addresses to, from, reports;
  compute_addresses(warp, instr, mask, to);
  Instr source = instr, object = instr;
  source.address = instr.address2;
  source.address_bits = instr.address2_bits;
  source.imm = instr.imm2;
  source.space = Space::global;
  source.frame_local = false;
  compute_addresses(warp, source, mask, from);
  object.address = instr.b;
  object.address_bits = instr.b_bits;
  object.imm = instr.constant;
  compute_addresses(warp, object, mask, reports);
  const uint32_t* bytes = warp.lanes<const uint32_t>(instr.a);
  if (!warp.block->launch.async_copies.load(std::memory_order_relaxed)) warp.block->launch.async_copies = true;
  each_lane(mask, [&](int lane) {
    if (bytes[lane] % 16 || to.v[lane] % 16 || from.v[lane] % 16 || reports.v[lane] % 8)
      refuse(warp, instr, lane, "cp.async.bulk of " + std::to_string(bytes[lane]) + " bytes: size and addresses must be multiples of 16");
    if (bytes[lane] == 0) return;
    const auto inside_shared = [&](uint64_t offset, uint32_t size, Access access) {
      const uint32_t all = warp.block->launch.shared_bytes;
      if (offset >= all || size > all - offset) report_bad_access(warp, instr, lane, offset, size, access, Space::shared);
      return warp.block->shared + offset;
    };
    inside_shared(to.v[lane], bytes[lane], Access::store);
    std::byte* at = inside_shared(reports.v[lane], 8, Access::atomic);
    const std::byte* origin = lane_pointer(warp, source, lane, from.v[lane], bytes[lane], Access::load);
    // As an access, 32 pieces of 16 bytes at a time.
    for (uint32_t done = 0; done < bytes[lane]; done += 16 * kWarpSize) {
      const uint32_t pieces = std::min(bytes[lane] - done, 16u * kWarpSize) / 16;
      Addresses a;
      for (uint32_t k = 0; k < kWarpSize; ++k) a.v[k] = from.v[lane] + done + 16 * std::min(k, pieces - 1);
      a.strided = pieces == kWarpSize;
      a.stride = 16;
      Places places;
      resolve_global(warp, source, pieces == kWarpSize ? kFullMask : (1u << pieces) - 1, a, 16, Access::load, places);
    }
    const auto offset = static_cast<uint32_t>(to.v[lane]);
    warp.worker->notify([&](Observer& o) {
      for (uint32_t k = 0; k < bytes[lane]; k += 16) o.copy_issue(warp, instr, lane, offset + k, from.v[lane] + k, 16);
    });
    warp.block->async_arrivals.push_back({at, &warp, Ref<Frame>(warp.frame), &instr, lane, 0, origin, offset, bytes[lane]});
    warp.worker->async_bytes += bytes[lane];
  });
  warp.changed = true;
}

Kind kind_of(const Mods& mods) {
  if (mods.has("expect_tx")) return mods.has("arrive") ? kExpectAndArrive : kExpect;
  if (mods.has("complete_tx")) return kComplete;
  return mods.has("arrive_drop") ? kDrop : kArrive;
}

}  // namespace

Handler bind_mbarrier_init(Instr&, const Mods& mods) { return mods.has("init") ? &init : &invalidate; }
Handler bind_mbarrier_arrive(Instr& instr, const Mods& mods) {
  instr.variant = kind_of(mods);
  if (!(instr.order & kOrderRelaxed)) instr.order |= kOrderRelease;
  return &arrive;
}
Handler bind_mbarrier_wait(Instr& instr, const Mods& mods) {
  instr.variant = mods.has("parity");
  if (!(instr.order & kOrderRelaxed)) instr.order |= kOrderAcquire;
  return &wait;
}
Handler bind_mbarrier_pending(Instr&, const Mods&) { return &pending_count; }
Handler bind_cp_mbarrier(Instr& instr, const Mods& mods) {
  instr.variant = mods.has("noinc");
  instr.order |= kOrderRelease;
  return &arrive_after_copies;
}
Handler bind_cp_bulk(Instr& instr, const Mods&) {
  instr.async = true;
  instr.order |= kOrderRelease;
  return &bulk_copy;
}

}  // namespace vgpu
