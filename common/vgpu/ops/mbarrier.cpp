// mbarrier objects in shared memory, and the asynchronous copies that report to them.
//
// An object is 64 bits: pending arrivals, expected arrivals, bytes still to come (of bulk copies) and
// the number of the phase. What an arrival returns is the object as it was; a wait compares phases.
//
// Threads of other blocks of the cluster may arrive at an object, and copies from there report to it;
// only threads of its own block wait. Copies land as late as the program allows here too: when
// somebody waits for the object that they report to, and finds that only they are missing.
#include "../core/access.h"
#include "../core/bulk.h"
#include "../core/names.h"
#include "forms.h"

namespace vgpu {
namespace {

using std::int64_t, std::uint32_t, std::uint64_t;

constexpr uint32_t kMostArrivals = (1u << 20) - 1;
constexpr int64_t kMostBytes = (1 << 20) - 1;  // told and not landed, or the other way round

struct Object {
  uint32_t pending = 0, expected = 0;
  int64_t bytes = 0;   // bytes of copies: added by expect_tx, taken away as they land
  uint32_t phase = 0;  // 4 bits: a wait is for this phase or the one before

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
    return uint64_t{pending} | uint64_t{expected} << 20 |
           (static_cast<uint64_t>(bytes >> 2) & kMostArrivals) << 40 | uint64_t{phase} << 60;
  }
  bool complete_phase() {
    if (pending || bytes) return false;
    pending = expected;
    phase = (phase + 1) & 15;
    return true;
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

// For those who check: the phase of the object at `at`, of a block of the warp's cluster, is
// complete.
void tell_phase(const Warp& warp, const std::byte* at) {
  auto& announced = warp.block->cluster.announced_bytes;
  if (!announced.empty()) announced.erase(at);
  warp.worker->notify([&](Observer& o) {
    for (const auto& block : warp.block->cluster.blocks) {
      const auto offset =
          reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(block->shared);
      if (offset < block->launch.shared_bytes)
        o.mbarrier_phase(*block, static_cast<uint32_t>(offset));
    }
  });
}

[[noreturn]] void refuse(const Warp& warp, const Instr& instr, int lane, const std::string& what) {
  throw Fault{FaultKind::illegal_instruction, describe(warp, instr, lane, what)};
}

// Calls f(lane, place of the object) for each active lane. `remote`: it may be another block's.
template <class F>
void each_object(Warp& warp, const Instr& instr, uint32_t mask, Access access, bool remote, F f) {
  Addresses a;
  compute_addresses(warp, instr, mask, a);
  each_lane(mask, [&](int lane) {
    const uint64_t address = in_shared_window(instr, a.v[lane]);
    if (address >= kSharedWindowSize) refuse(warp, instr, lane, "mbarrier outside shared memory");
    const int rank = rank_in(address);
    if (!remote && (instr.cluster || instr.space != Space::shared) && rank >= 0 &&
        rank != static_cast<int>(warp.block->rank))
      refuse(warp, instr, lane,
             "this operation on an mbarrier of another block (only arrive, expect_tx and "
             "complete_tx reach it)");
  });
  Places places;
  resolve(warp, instr, mask, a, 8, access, places);
  each_lane(mask, [&](int lane) { f(lane, places.at(a, lane)); });
}

void init(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t* counts = warp.lanes<const uint32_t>(instr.a);
  each_object(warp, instr, mask, Access::store, false, [&](int lane, std::byte* at) {
    if (counts[lane] == 0 || counts[lane] > kMostArrivals)
      refuse(warp, instr, lane,
             "mbarrier for " + std::to_string(counts[lane]) + " arrivals (1 to 1048575)");
    warp.block->cluster.announced_bytes.erase(at);
    Object object;
    object.pending = object.expected = counts[lane];
    put(at, object);
  });
  warp.changed = true;
}

void invalidate(Warp& warp, const Instr& instr, uint32_t mask) {
  each_object(warp, instr, mask, Access::store, false,
              [&](int, std::byte* at) { std::memset(at, 0, 8); });
  warp.changed = true;
}

// Is the object in the shared memory of a block of the cluster whose threads have all ended?
bool of_ended_block(const Warp& warp, const std::byte* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  for (const auto& block : warp.block->cluster.blocks)
    if (address - reinterpret_cast<std::uintptr_t>(block->shared) < block->launch.shared_bytes)
      return block->live_threads == 0;
  return false;
}

void arrive_at(const Warp& warp, const Instr& instr, int lane, std::byte* at, uint32_t count) {
  Object object = object_at(at);
  if (count > object.pending)
    refuse(warp, instr, lane,
           "arrival " + std::to_string(count) + " at an mbarrier that waits for " +
               std::to_string(object.pending) + " in this phase");
  object.pending -= count;
  if (object.complete_phase()) tell_phase(warp, at);
  put(at, object);
}

enum Kind : std::uint8_t { kArrive, kDrop, kExpectAndArrive, kExpectAndDrop, kExpect, kComplete };

void arrive(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t* operand = instr.a.valid() ? warp.lanes<const uint32_t>(instr.a) : nullptr;
  each_object(warp, instr, mask, Access::atomic, true, [&](int lane, std::byte* at) {
    if (instr.cluster && of_ended_block(warp, at)) return;  // lost; the race check reports it
    Object object = object_at(at);
    const uint64_t before = object.word();
    const uint32_t value = operand ? operand[lane] : 1;
    if (instr.variant >= kExpectAndArrive) {
      object.bytes += instr.variant == kComplete ? -int64_t{value} : int64_t{value};
      if (instr.variant != kComplete) warp.block->cluster.announced_bytes[at] += value;
      if (value % 4)
        refuse(warp, instr, lane,
               "mbarrier told of " + std::to_string(value) +
                   " bytes, which must be a multiple of 4 on the virtual GPU,");
      if (object.bytes > kMostBytes || object.bytes < -kMostBytes)
        refuse(warp, instr, lane,
               "mbarrier told of " + std::to_string(value) + " bytes, so that " +
                   std::to_string(object.bytes) + " are outstanding (-1048575 to 1048575),");
      if (instr.variant >= kExpect && object.complete_phase()) tell_phase(warp, at);
      put(at, object);
    }
    const uint32_t arrivals = instr.variant >= kExpectAndArrive ? 1 : value;
    if (instr.variant == kDrop || instr.variant == kExpectAndDrop) {
      if (arrivals > object.expected)
        refuse(warp, instr, lane, "more arrivals dropped than the mbarrier expects");
      object.expected -= arrivals;
      put(at, object);
    }
    if (instr.variant < kExpect) arrive_at(warp, instr, lane, at, arrivals);
    if (instr.d[0].valid()) warp.lanes<uint64_t>(instr.d[0])[lane] = before;
  });
  warp.changed = true;
}

// ---- copies that report to an object -----------------------------------------------------------

// For those who check: what has landed is told to the object, by the thread that asked for it.
void tell(const AsyncArrival& arrival, Block& home) {
  Warp& warp = *arrival.warp;
  warp.worker->notify([&](Observer& o) {
    Addresses a;
    std::fill_n(a.v, kWarpSize, static_cast<uint64_t>(arrival.object - home.shared));
    Places places;
    places.owner = &home == warp.block ? nullptr : &home;
    places.bias = reinterpret_cast<std::intptr_t>(home.shared);
    o.access(warp, *arrival.instr, 1u << arrival.lane, a, 8, Access::atomic, Space::shared, places);
  });
}

void land_bytes(const AsyncArrival& copy, Block& home) {
  Warp& warp = *copy.warp;
  std::byte* const to = home.shared + copy.shared_offset;
  const std::vector<std::byte> image =
      copy.box ? copy.box->image(copy.shared_offset) : std::vector<std::byte>();
  const std::byte* from = copy.box ? image.data() : copy.source ? copy.source : copy.value.data();
  if (copy.instr->from_shared) {
    if (warp.block->live_threads == 0)
      refuse(warp, *copy.instr, copy.lane,
             "the source of an asynchronous copy is shared memory of a block that has ended; asked "
             "for");
    warp.worker->notify([&](Observer& o) {  // it is read now
      const auto offset = static_cast<uint64_t>(from - warp.block->shared);
      for (uint32_t k = 0; k < copy.bytes; k += 16) {
        Addresses a;
        std::fill_n(a.v, kWarpSize, offset + k);
        Places places;
        places.bias = reinterpret_cast<std::intptr_t>(warp.block->shared);
        o.access(warp, *copy.instr, 1u << copy.lane, a, 16, Access::load, Space::shared, places);
      }
      o.source_landed(warp, copy.lane, static_cast<uint32_t>(offset), copy.bytes, copy.up_to);
    });
  }
  if (const auto reduce = reinterpret_cast<BulkReduction>(const_cast<void*>(copy.instr->data))) {
    Addresses a;
    std::fill_n(a.v, kWarpSize, uint64_t{copy.shared_offset});
    Places places;
    places.owner = &home == warp.block ? nullptr : &home;
    places.bias = reinterpret_cast<std::intptr_t>(home.shared);
    warp.worker->notify([&](Observer& o) {
      o.access(warp, *copy.instr, 1u << copy.lane, a, copy.bytes, Access::atomic, Space::shared,
               places);
    });
    reduce(to, from, copy.bytes);
  } else {
    std::memcpy(to, from, copy.bytes);
    warp.worker->notify([&](Observer& o) {
      for (uint32_t k = 0; k < copy.bytes; k += 16)
        o.copy_land(warp, copy.lane, home, copy.shared_offset + k, std::min(16u, copy.bytes - k));
    });
  }
  Object object = object_at(copy.object);
  tell(copy, home);
  if (copy.source || copy.box)
    warp.worker->notify([&](Observer& o) {
      o.bulk_land(warp, *copy.instr, copy.lane, home,
                  static_cast<uint32_t>(copy.object - home.shared), copy.bytes, copy.up_to);
    });
  object.bytes -= copy.bytes;
  if (object.complete_phase()) tell_phase(warp, copy.object);
  put(copy.object, object);
}

// What was to report to this object of the block lands now.
void land_for(Block& block, const std::byte* at) {
  block.async_arrivals.take(at, [&](const AsyncArrival& arrival) {
    Warp& warp = *arrival.warp;
    Frame* const running = std::exchange(warp.frame, arrival.frame.get());
    if (arrival.bytes) {
      land_bytes(arrival, block);
    } else {
      land_copies(warp, arrival.lane, arrival.up_to);
      tell(arrival, block);
      arrive_at(warp, *arrival.instr, arrival.lane, arrival.object, 1);
    }
    warp.frame = running;
  });
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
    uint64_t landed = ~uint64_t{0};  // at this address, all that was to come
    each_lane(mask, [&](int lane) {
      if (a.v[lane] == landed) return;
      const SharedPlace place =
          shared_place(warp, instr, lane, in_shared_window(instr, a.v[lane]), 8, Access::atomic);
      const std::byte* at = place.bytes();
      if (place.block != warp.block || done(lane, at)) return;
      const uint64_t before = object_at(at).word();
      land_for(*warp.block, at);
      landed = a.v[lane];
      warp.changed |= object_at(at).word() != before;
    });
  }
  uint32_t over = 0;
  each_object(warp, instr, mask, Access::atomic, false, [&](int lane, std::byte* at) {
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
  each_object(warp, instr, mask, Access::atomic, false, [&](int lane, std::byte* at) {
    if (!instr.variant) {  // one more arrival to wait for in this phase, this one
      Object object = object_at(at);
      if (object.pending == kMostArrivals)
        refuse(warp, instr, lane, "too many arrivals at an mbarrier");
      ++object.pending;
      put(at, object);
    }
    AsyncArrival arrival{at, &warp, Ref<Frame>(warp.frame), &instr, lane};
    arrival.up_to = warp.copies_of(lane).issued;
    warp.block->async_arrivals.push(std::move(arrival));
  });
  warp.changed = true;
}

// Where an asynchronous operation writes and what it reports to: in the same block's shared memory.
struct Target {
  SharedPlace data, object;
};
Target target_of(Warp& warp, const Instr& instr, int lane, uint64_t to, uint64_t reports,
                 uint32_t bytes) {
  const Target t{shared_place(warp, instr, lane, to, bytes, Access::store),
                 shared_place(warp, instr, lane, reports, 8, Access::atomic)};
  if (t.data.block != t.object.block)
    refuse(warp, instr, lane,
           "copy to the shared memory of rank " + std::to_string(t.data.block->rank) +
               " that reports to an mbarrier of rank " + std::to_string(t.object.block->rank) +
               ": both must be of one block; asked for");
  if (t.object.offset % 8)
    report_misaligned(warp, instr, lane, reports, 8, Access::atomic, Space::shared);
  return t;
}
void count_remote(Warp& warp, const Instr& instr, uint32_t requests, uint64_t bytes,
                  uint64_t distinct = 0) {
  if (!requests || !warp.worker->counting) return;
  RemoteCounters& c = warp.frame->sites[instr.memory_site].remote;
  c.requests += requests;
  c.bytes += bytes;
  c.bytes_distinct += distinct;
}

// What a tensor copy into shared memory brings, at which address the lane says it shall go.
std::shared_ptr<const TensorBox> wanted_box(Warp& warp, const Instr& instr, int lane, uint64_t to,
                                            uint64_t reports, uint64_t map) {
  if (to % 128) report_misaligned(warp, instr, lane, to, 128, Access::store, Space::shared);
  if (reports % 8) report_misaligned(warp, instr, lane, reports, 8, Access::atomic, Space::shared);
  auto box = std::make_shared<const TensorBox>(warp, instr, lane, map, Access::load, true);
  warp.worker->notify([&](Observer& o) {
    o.tensor_copy(warp, instr, lane, 0, box->bytes(), box->pieces(kSectorBytes), box->pieces(128));
  });
  return box;
}

// cp.async.bulk [shared], [global or shared], bytes, [mbarrier]{, blocks of the cluster}, and
// cp.async.bulk.tensor [shared], [map, {coordinates}], [mbarrier]{, offsets}{, blocks of the cluster}
void bulk_copy(Warp& warp, const Instr& instr, uint32_t mask) {
  Addresses to, from, reports;
  compute_addresses(warp, instr, mask, to);
  Instr source = instr, object = instr;
  source.address = instr.address2;
  source.address_bits = instr.address2_bits;
  source.imm = instr.imm2;
  source.space = instr.from_shared ? Space::shared : Space::global;  // (of a map: any)
  source.cluster = false;
  source.frame_local = false;
  compute_addresses(warp, source, mask, from);
  object.address = instr.b;
  object.address_bits = instr.b_bits;
  object.imm = instr.constant;
  compute_addresses(warp, object, mask, reports);
  const uint32_t* sizes = instr.rank ? nullptr : warp.lanes<const uint32_t>(instr.a);
  const std::uint16_t* ranks = instr.e.valid() ? warp.lanes<const std::uint16_t>(instr.e) : nullptr;
  if (!warp.block->launch.async_copies.load(std::memory_order_relaxed))
    warp.block->launch.async_copies = true;
  uint32_t remote = 0;
  uint64_t remote_bytes = 0;
  each_lane(mask, [&](int lane) {
    const uint64_t number = ++warp.copies_of(lane).bulk_issued;
    std::shared_ptr<const TensorBox> box;
    if (instr.rank) box = wanted_box(warp, instr, lane, to.v[lane], reports.v[lane], from.v[lane]);
    const uint32_t bytes = box ? box->bytes() : sizes[lane];
    if (!box && (bytes % 16 || to.v[lane] % 16 || from.v[lane] % 16 || reports.v[lane] % 8))
      refuse(warp, instr, lane,
             "cp.async.bulk of " + std::to_string(bytes) +
                 " bytes: size and addresses must be multiples of 16");
    if (bytes == 0) return;
    const std::byte* origin =
        box ? nullptr
        : instr.from_shared
            ? shared_place(warp, source, lane, from.v[lane], bytes, Access::load).bytes()
            : lane_pointer(warp, source, lane, from.v[lane], bytes, Access::load);
    if (origin && !instr.from_shared)
      resolve_bulk(warp, source, lane, from.v[lane], bytes, Access::load);
    // A multicast goes to the same place in each block whose bit is set, and reports there.
    for (uint32_t r = 0; r < (ranks ? 16u : 1u); ++r) {
      if (ranks && !(ranks[lane] >> r & 1)) continue;
      const Target t = ranks ? target_of(warp, instr, lane, with_rank(to.v[lane], r),
                                         with_rank(reports.v[lane], r), bytes)
                             : target_of(warp, instr, lane, to.v[lane], reports.v[lane], bytes);
      warp.worker->notify([&](Observer& o) {
        for (uint32_t k = 0; k < bytes; k += 16)
          o.copy_issue(warp, instr, lane, *t.data.block, t.data.offset + k, 16);
        o.bulk_issue(warp, instr, *t.data.block, bytes);
      });
      AsyncArrival arrival{t.object.bytes(), &warp, Ref<Frame>(warp.frame), &instr, lane};
      arrival.bytes = bytes;
      arrival.shared_offset = t.data.offset;
      arrival.source = origin;
      arrival.box = box;
      arrival.up_to = number;
      if (instr.from_shared)
        warp.worker->notify([&](Observer& o) {
          const auto offset = static_cast<uint32_t>(origin - warp.block->shared);
          o.source_read(warp, instr, lane, offset, bytes, number);
        });
      AsyncArrivals& under_way = t.object.block->async_arrivals;
      under_way.push(std::move(arrival));
      warp.worker->async_bytes += bytes;
      warp.worker->most_bulk_under_way =
          std::max(warp.worker->most_bulk_under_way, under_way.bytes());
      if (t.data.block == warp.block) continue;
      remote = 1;
      remote_bytes += bytes;
    }
  });
  count_remote(warp, instr, remote, remote_bytes);
  warp.changed = true;
}

// st.async and red.async [shared], values, [mbarrier]
void store_async(Warp& warp, const Instr& instr, uint32_t mask) {
  Addresses to, reports;
  compute_addresses(warp, instr, mask, to);
  Instr object = instr;
  object.address = instr.b;
  object.address_bits = instr.b_bits;
  object.imm = instr.constant;
  compute_addresses(warp, object, mask, reports);
  for (int lane = 0; lane < kWarpSize; ++lane) {
    to.v[lane] = in_shared_window(instr, to.v[lane]);
    reports.v[lane] = in_shared_window(instr, reports.v[lane]);
  }
  const uint32_t each = static_cast<uint32_t>(type_bits(instr.type)) / 8,
                 bytes = each * instr.elements;
  uint32_t remote = 0;
  each_lane(mask, [&](int lane) {
    if (to.v[lane] % bytes)
      report_misaligned(warp, instr, lane, to.v[lane], bytes, Access::store, Space::shared);
    const Target t = target_of(warp, instr, lane, to.v[lane], reports.v[lane], bytes);
    AsyncArrival arrival{t.object.bytes(), &warp, Ref<Frame>(warp.frame), &instr, lane};
    arrival.bytes = bytes;
    arrival.shared_offset = t.data.offset;
    for (uint32_t k = 0; k < instr.elements; ++k) {
      const Slot slot = instr.elements == 1 ? instr.a : Slot{instr.list[k]};
      std::memcpy(arrival.value.data() + k * each,
                  warp.lanes<const std::byte>(slot) + static_cast<uint32_t>(lane) * each, each);
    }
    if (!instr.data)
      warp.worker->notify([&](Observer& o) {
        o.copy_issue(warp, instr, lane, *t.data.block, t.data.offset, bytes);
      });
    t.object.block->async_arrivals.push(std::move(arrival));
    remote += t.data.block != warp.block;
  });
  count_remote(warp, instr, remote != 0, uint64_t{remote} * bytes, uint64_t{remote} * bytes);
  warp.changed = true;
}

Kind kind_of(const Mods& mods) {
  if (mods.has("expect_tx"))
    return mods.has("arrive")        ? kExpectAndArrive
           : mods.has("arrive_drop") ? kExpectAndDrop
                                     : kExpect;
  if (mods.has("complete_tx")) return kComplete;
  return mods.has("arrive_drop") ? kDrop : kArrive;
}

}  // namespace

std::string mbarrier_wait_words(Warp& warp, const Instr& instr, int lane) {
  if (instr.run != &wait) return "";
  Addresses a;
  compute_addresses(warp, instr, 1u << lane, a);
  const uint64_t offset = in_shared_window(instr, a.v[lane]) % kRankedBytes;
  if (offset + 8 > warp.block->launch.shared_bytes) return "";
  const std::byte* at = warp.block->shared + offset;
  const Object object = object_at(at);
  std::string name;
  for (const SharedVariable& v : warp.block->launch.request.function->shared_variables)
    if (offset >= v.offset && offset - v.offset < v.size) {
      name = " '" + variable_name(v.name) + "'";
      if (offset > v.offset) name += " + " + std::to_string(offset - v.offset) + " bytes";
    }
  const uint32_t parity = instr.variant
                              ? warp.lanes<const uint32_t>(instr.a)[lane] & 1
                              : Object::read(warp.lanes<const uint64_t>(instr.a)[lane]).phase & 1;
  std::string text = "for parity " + std::to_string(parity) + " of the mbarrier" + name +
                     " at offset " + std::to_string(offset) + " of shared memory: ";
  if (object.pending == 0) {
    text += "all arrivals have come";
  } else {
    text += std::to_string(object.pending) + " of " + std::to_string(object.expected) +
            (object.expected == 1 ? " arrival" : " arrivals") + " missing";
    if (object.pending == object.expected && !object.bytes && !object.phase)
      text += ", nobody has arrived yet (a wait for parity 1 would pass)";
  }
  if (object.bytes) {
    const auto& all = warp.block->cluster.announced_bytes;
    const auto announced = all.find(at);
    const int64_t expected = announced == all.end() ? 0 : announced->second;
    text += ", expect_tx has announced " + std::to_string(expected) + " bytes and " +
            std::to_string(expected - object.bytes) + " have come";
  }
  return text;
}

Handler bind_mbarrier_init(Instr&, const Mods& mods) {
  return mods.has("init") ? &init : &invalidate;
}
Handler bind_mbarrier_arrive(Instr& instr, const Mods& mods) {
  // What an arrival at another block's object returns means nothing there: `_`, the first register.
  if (instr.cluster && instr.d[0].valid() && instr.d[0].bits != 0) return nullptr;
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
// What lands is told to the object as a release.
Handler bind_cp_bulk(Instr& instr, const Mods&) {
  instr.async = true;
  instr.order = kOrderRelease;
  return &bulk_copy;
}
Handler bind_st_async(Instr& instr, const Mods&) {
  instr.async = true;
  instr.order = kOrderRelease;
  if (type_bits(instr.type) * instr.elements > 128) return nullptr;
  if (instr.elements > 1 ? instr.list_count != instr.elements : instr.list != nullptr)
    return nullptr;
  return instr.a_bits == type_bits(instr.type) ? &store_async : nullptr;
}
Handler bind_red_async(Instr& instr, const Mods& mods) {
  instr.async = true;
  instr.order = kOrderRelease;
  const BulkReduction reduction = bulk_reduction(instr.type, mods);
  instr.data = reinterpret_cast<const void*>(reduction);
  return reduction && instr.a_bits == type_bits(instr.type) ? &store_async : nullptr;
}

}  // namespace vgpu
