// Operations of several lanes (shfl, vote, match, redux, elect), barriers, fences, sleeping.
#include <bit>

#include "../core/block.h"
#include "../core/lanes.h"
#include "../core/shuffle.h"
#include "forms.h"
#include "lane/integer.h"
#include "lane/logic.h"

namespace vgpu {
namespace {

using std::int32_t, std::uint32_t, std::uint64_t;

// Members of each lane's operation: the mask operand, without those that have exited. A lane that
// its own mask leaves out (undefined in the ISA) takes part all the same.
uint32_t members_of(Warp& warp, const Instr& instr, int lane, uint32_t mask) {
  if (!instr.e.valid()) return mask;
  return (warp.lanes<const uint32_t>(instr.e)[lane] | 1u << lane) & mask;
}

void shuffle(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t* a = warp.lanes<const uint32_t>(instr.a);
  const uint32_t* b = warp.lanes<const uint32_t>(instr.b);
  const uint32_t* c = warp.lanes<const uint32_t>(instr.c);
  uint32_t* d = warp.lanes<uint32_t>(instr.d[0]);
  uint32_t result[kWarpSize], inside = 0;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const auto [from, in] = shuffle_source(instr.variant, lane, b[lane], c[lane]);
    // A lane that does not take part has no value to give: its own is the defined choice here.
    result[lane] = (mask >> from & 1) ? a[from] : a[lane];
    inside |= uint32_t{in} << lane;
  }
  each_lane(mask, [&](int lane) { d[lane] = result[lane]; });
  set_predicate(warp, instr.d[1], inside, mask);
}

enum Vote : std::uint8_t { kAll, kAny, kUniform, kBallot };

// A lane's answer, of whose members those in `yes` say yes.
bool answer(std::uint8_t vote, uint32_t members, uint32_t yes) {
  switch (vote) {
    case kAll:
      return yes == members;
    case kAny:
      return yes != 0;
    default:
      return yes == members || yes == 0;
  }
}
void vote(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t source = get_predicate(warp, instr.a, instr.a_not) & mask;
  uint32_t bits = 0;
  each_lane(mask, [&](int lane) {
    const uint32_t members = members_of(warp, instr, lane, mask);
    bits |= uint32_t{answer(instr.variant, members, source & members)} << lane;
  });
  set_predicate(warp, instr.d[0], bits, mask);
}
void ballot(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t source = get_predicate(warp, instr.a, instr.a_not) & mask;
  uint32_t* d = warp.lanes<uint32_t>(instr.d[0]);
  each_lane(mask, [&](int lane) { d[lane] = source & members_of(warp, instr, lane, mask); });
}

template <class T, bool kMatchAll>
void match(Warp& warp, const Instr& instr, uint32_t mask) {
  const T* a = warp.lanes<const T>(instr.a);
  uint32_t* d = warp.lanes<uint32_t>(instr.d[0]);
  uint32_t result[kWarpSize], all = 0;
  each_lane(mask, [&](int lane) {
    const uint32_t members = members_of(warp, instr, lane, mask);
    uint32_t equal = 0;
    each_lane(members, [&](int other) { equal |= uint32_t{a[other] == a[lane]} << other; });
    const bool everyone = equal == members;
    result[lane] = kMatchAll ? (everyone ? members : 0) : equal;
    all |= uint32_t{everyone} << lane;
  });
  each_lane(mask, [&](int lane) { d[lane] = result[lane]; });
  if (kMatchAll) set_predicate(warp, instr.d[1], all, mask);
}

template <class T>
using Combine = T (*)(T, T);
// redux: the members' values, one after the other.
template <class T, Combine<T> kCombine>
void reduce(Warp& warp, const Instr& instr, uint32_t mask) {
  const T* a = warp.lanes<const T>(instr.a);
  T* d = warp.lanes<T>(instr.d[0]);
  T result[kWarpSize];
  each_lane(mask, [&](int lane) {
    const uint32_t members = members_of(warp, instr, lane, mask);
    T value = a[std::countr_zero(members)];
    each_lane(members & (members - 1), [&](int other) { value = kCombine(value, a[other]); });
    result[lane] = value;
  });
  each_lane(mask, [&](int lane) { d[lane] = result[lane]; });
}
template <class T>
Handler reduction(int operation) {
  switch (operation) {
    case 0:
      return &reduce<T, &op::integer::Add<T>::lane>;
    case 1:
      return &reduce<T, &op::integer::Min<T>::lane>;
    case 2:
      return &reduce<T, &op::integer::Max<T>::lane>;
    case 3:
      return &reduce<T, &op::logic::And<T>::lane>;
    case 4:
      return &reduce<T, &op::logic::Or<T>::lane>;
    default:
      return &reduce<T, &op::logic::Xor<T>::lane>;
  }
}

void elect(Warp& warp, const Instr& instr, uint32_t mask) {
  uint32_t* d = warp.lanes<uint32_t>(instr.d[0]);
  uint32_t leader_bits = 0;
  each_lane(mask, [&](int lane) {
    const int leader = std::countr_zero(members_of(warp, instr, lane, mask));
    d[lane] = static_cast<uint32_t>(leader);
    leader_bits |= uint32_t{leader == lane} << lane;
  });
  set_predicate(warp, instr.d[1], leader_bits, mask);
}

void nothing(Warp&, const Instr&, uint32_t) {}
// Memory is consistent here at all times; a fence only tells those who check the program.
void fence(Warp& warp, const Instr& instr, uint32_t mask) {
  warp.worker->notify([&](Observer& o) { o.fence(warp, instr, mask); });
}

// Launches run one after the other, so there is nothing to wait for.
void grid_dependency(Warp& warp, const Instr& instr, uint32_t mask) {
  warp.worker->notify([&](Observer& o) { o.grid_dependency(warp, mask, instr.variant); });
}

void proxy_fence(Warp& warp, const Instr& instr, uint32_t mask) {
  warp.worker->notify([&](Observer& o) { o.proxy_fence(warp, instr, mask); });
}

// ---- barriers of the block ------------------------------------------------------------------

void barrier(Warp& warp, const Instr& instr, uint32_t mask) {
  const int lane = std::countr_zero(mask);
  const uint32_t* ids = warp.lanes<const uint32_t>(instr.a);
  const uint32_t id = ids[lane];
  if (!instr.a.constant())
    each_lane(mask, [&](int other) {
      if (ids[other] != id)
        throw Fault{FaultKind::illegal_instruction,
                    describe(warp, instr, other,
                             "barrier " + std::to_string(ids[other]) +
                                 " where another thread of the warp has barrier " +
                                 std::to_string(id) + ", which the virtual GPU does not support")};
    });
  if (id > 15)
    throw Fault{
        FaultKind::illegal_instruction,
        describe(warp, instr, lane, "barrier " + std::to_string(id) + " (there are 0 to 15)")};
  uint32_t expected = 0;
  if (instr.b.valid()) {
    expected = warp.lanes<const uint32_t>(instr.b)[lane];
    if (expected == 0 || expected % kWarpSize)
      throw Fault{FaultKind::illegal_instruction,
                  describe(warp, instr, lane,
                           "barrier for " + std::to_string(expected) +
                               " threads, which is no multiple of 32")};
  }
  Block& block = *warp.block;
  if (instr.c.valid()) {
    const uint32_t yes = get_predicate(warp, instr.c, instr.c_not) & mask;
    block.reduce(static_cast<int>(id), yes != 0, yes == mask,
                 static_cast<uint32_t>(std::popcount(yes)));
  }
  block.arrive(warp, warp.fragments[warp.arriving_], instr, mask, static_cast<int>(id), expected,
               instr.imm == 0);
}

void arrive_in_cluster(Warp& warp, const Instr& instr, uint32_t mask) {
  warp.block->cluster.arrive(warp, instr, mask);
  ++warp.fragments[warp.arriving_].pc;
}
void wait_for_cluster(Warp& warp, const Instr& instr, uint32_t mask) {
  warp.block->cluster.wait(warp, warp.fragments[warp.arriving_], instr, mask);
}

void sleep(Warp& warp, const Instr& instr, uint32_t mask) {
  // Nobody sleeps: the virtual clock moves on by what was asked.
  warp.slept += warp.lanes<const uint32_t>(instr.a)[std::countr_zero(mask)];
}

}  // namespace

Handler bind_shfl(Instr& instr, const Mods& mods) {
  instr.variant = static_cast<std::uint8_t>(mods.pick({"up", "down", "bfly", "idx"}));
  return &shuffle;
}
Handler bind_vote(Instr& instr, const Mods& mods) {
  instr.variant = static_cast<std::uint8_t>(mods.pick({"all", "any", "uni", "ballot"}));
  return instr.variant == kBallot ? &ballot : &vote;
}
Handler bind_match(Instr& instr, const Mods& mods) {
  const bool all = mods.has("all");
  if (!all && instr.d[1].valid()) return nullptr;
  if (instr.type == Type::b32) return all ? &match<uint32_t, true> : &match<uint32_t, false>;
  return all ? &match<uint64_t, true> : &match<uint64_t, false>;
}
Handler bind_redux(Instr& instr, const Mods& mods) {
  const int operation = mods.pick({"add", "min", "max", "and", "or", "xor"});
  return instr.type == Type::s32 ? reduction<int32_t>(operation) : reduction<uint32_t>(operation);
}
Handler bind_elect(Instr&, const Mods&) { return &elect; }
Handler bind_warp_barrier(Instr&, const Mods&) { return &nothing; }
Handler bind_fence(Instr&, const Mods&) { return &fence; }
Handler bind_griddepcontrol(Instr& instr, const Mods& mods) {
  instr.variant = mods.has("wait");
  return &grid_dependency;
}
// A copy reads its map when it is asked for: to this fence the map is nothing but an address.
Handler bind_fence_map(Instr& instr, const Mods&) {
  return instr.constant == 128 ? &fence : nullptr;
}
Handler bind_proxy_fence(Instr&, const Mods&) { return &proxy_fence; }
Handler bind_nothing(Instr&, const Mods&) { return &nothing; }
Handler bind_barrier(Instr& instr, const Mods& mods) {
  instr.imm = mods.has("arrive");
  if (mods.has("red")) instr.variant = static_cast<std::uint8_t>(mods.pick({"popc", "and", "or"}));
  return &barrier;
}
// Unless it says .relaxed, an arrival releases; a wait acquires.
Handler bind_cluster_barrier(Instr& instr, const Mods& mods) {
  const bool arrives = mods.has("arrive");
  instr.order |= !arrives ? kOrderAcquire : mods.has("relaxed") ? kOrderRelaxed : kOrderRelease;
  return arrives ? &arrive_in_cluster : &wait_for_cluster;
}
Handler bind_nanosleep(Instr&, const Mods&) { return &sleep; }
Handler bind_trap(Instr&, const Mods&) { return &nothing; }
Handler bind_control(Instr&, const Mods&) { return &nothing; }

}  // namespace vgpu
