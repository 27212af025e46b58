// atom and red: one lane after the other, each a real atomic operation of the host, since blocks
// may run on several host threads.
#include "lane/atomic.h"
#include "../core/access.h"
#include "../core/bulk.h"
#include "forms.h"
#include "half.h"

namespace vgpu {
namespace {

using std::int32_t, std::int64_t, std::uint16_t, std::uint32_t, std::uint64_t;
using namespace op::atomic;  // the names of the operations: kAdd, kMin ...

// Replaces *p by f(*p) atomically; returns what was there. Tells the warp what was seen and done:
// a loop that only looks may be waiting for others.
template <class T, class F>
T replace(Warp& warp, std::byte* at, F f) {
  auto* p = reinterpret_cast<T*>(at);
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  T fresh = f(old);
  while (!__atomic_compare_exchange_n(p, &old, fresh, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    fresh = f(old);
  if (fresh == old)
    warp.look(reinterpret_cast<std::uintptr_t>(at), old);
  else
    warp.changed = true;
  return old;
}

template <class U, class F>
void atomic(Warp& warp, const Instr& instr, uint32_t mask, F f) {
  Addresses a;
  compute_addresses(warp, instr, mask, a);
  Places places;
  resolve(warp, instr, mask, a, sizeof(U), Access::atomic, places);
  if (warp.block->launch.in_workspace(a.v[std::countr_zero(mask)])) warp.block->arrived_at_grid();
  const U* b = warp.lanes<const U>(instr.b);
  const U* c = instr.c.valid() ? warp.lanes<const U>(instr.c) : b;
  U* d = instr.d[0].valid() ? warp.lanes<U>(instr.d[0]) : nullptr;
  each_lane(mask, [&](int lane) {
    const U operand = b[lane], third = c[lane];
    const U old =
        replace<U>(warp, places.at(a, lane), [&](U was) { return f(was, operand, third); });
    if (d) d[lane] = old;
  });
}

void run_add_f32(Warp& warp, const Instr& instr, uint32_t mask) {
  Addresses a;
  compute_addresses(warp, instr, mask, a);
  Places places;
  resolve(warp, instr, mask, a, 4, Access::atomic, places);
  const uint32_t* b = warp.lanes<const uint32_t>(instr.b);
  uint32_t* d = instr.d[0].valid() ? warp.lanes<uint32_t>(instr.d[0]) : nullptr;
  each_lane(mask, [&](int lane) {
    const uint32_t operand = b[lane];
    const bool flush =
        instr.space == Space::global ||
        (instr.space == Space::generic && a.v[lane] - kSharedWindow >= kSharedWindowSize);
    const uint32_t old = replace<uint32_t>(
        warp, places.at(a, lane), [&](uint32_t was) { return AddF32::lane(was, operand, flush); });
    if (d) d[lane] = old;
  });
}

template <class U, class T, Operation kOp>
void run(Warp& warp, const Instr& instr, uint32_t mask) {
  atomic<U>(warp, instr, mask, &Replace<U, T, kOp>::lane);
}
// Op of two values.
template <class Op>
void run_two(Warp& warp, const Instr& instr, uint32_t mask) {
  using U = typename Signature<Op>::Result;
  atomic<U>(warp, instr, mask, [](U was, U operand, U) { return Op::lane(was, operand); });
}

// Vector forms (.v2.f32 ...) are one access and one atomic operation for each element.
void red_vector_f32(Warp& warp, const Instr& instr, uint32_t mask) {
  Addresses a;
  compute_addresses(warp, instr, mask, a);
  Places places;
  resolve(warp, instr, mask, a, 4u * instr.elements, Access::atomic, places);
  each_lane(mask, [&](int lane) {
    for (int k = 0; k < instr.elements; ++k) {
      const uint32_t operand = warp.lanes<const uint32_t>(Slot{instr.list[k]})[lane];
      replace<uint32_t>(warp, places.at(a, lane) + k * 4,
                        [&](uint32_t was) { return AddF32::lane(was, operand, true); });
    }
  });
}

// 16-byte compare-and-swap and exchange: rare, so under one lock.
std::mutex wide_mutex;
template <bool kExchangeOnly>
void run_wide(Warp& warp, const Instr& instr, uint32_t mask) {
  struct Wide {
    uint64_t low, high;
    bool operator==(const Wide&) const = default;
  };
  Addresses a;
  compute_addresses(warp, instr, mask, a);
  Places places;
  resolve(warp, instr, mask, a, 16, Access::atomic, places);
  const Wide* b = warp.lanes<const Wide>(instr.b);
  const Wide* c = kExchangeOnly ? b : warp.lanes<const Wide>(instr.c);
  Wide* d = instr.d[0].valid() ? warp.lanes<Wide>(instr.d[0]) : nullptr;
  const std::lock_guard lock(wide_mutex);
  each_lane(mask, [&](int lane) {
    Wide old;
    std::memcpy(&old, places.at(a, lane), 16);
    const Wide fresh = kExchangeOnly ? b[lane] : old == b[lane] ? c[lane] : old;
    std::memcpy(places.at(a, lane), &fresh, 16);
    if (fresh == old)
      warp.look(a.v[lane], old.low ^ old.high);
    else
      warp.changed = true;
    if (d) d[lane] = old;
  });
}

template <class U, class T>
Handler by_operation(int operation) {
  switch (operation) {
    case kAdd:
      return &run<U, T, kAdd>;
    case kMin:
      return &run<U, T, kMin>;
    case kMax:
      return &run<U, T, kMax>;
    case kInc:
      return &run<U, T, kInc>;
    case kDec:
      return &run<U, T, kDec>;
    case kAnd:
      return &run<U, T, kAnd>;
    case kOr:
      return &run<U, T, kOr>;
    case kXor:
      return &run<U, T, kXor>;
    case kExchange:
      return &run<U, T, kExchange>;
    case kCompare:
      return &run<U, T, kCompare>;
    default:
      return nullptr;
  }
}

// ---- reductions of whole arrays (cp.reduce.async.bulk) ----------------------------------------

template <class U, class F>
void reduce_each(std::byte* to, const std::byte* from, uint32_t bytes, F f) {
  for (uint32_t k = 0; k < bytes; k += sizeof(U)) {
    U operand;
    std::memcpy(&operand, from + k, sizeof operand);
    auto* p = reinterpret_cast<U*>(to + k);
    U old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &old, static_cast<U>(f(old, operand)), true,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
  }
}
template <class U, class T, Operation kOp>
void reduce_array(std::byte* to, const std::byte* from, uint32_t bytes) {
  reduce_each<U>(to, from, bytes, [](U old, U b) { return Replace<U, T, kOp>::lane(old, b, b); });
}
template <class U, class T>
BulkReduction reduction_of(int operation) {
  switch (operation) {
    case kAdd:
      return &reduce_array<U, T, kAdd>;
    case kMin:
      return &reduce_array<U, T, kMin>;
    case kMax:
      return &reduce_array<U, T, kMax>;
    case kInc:
      return &reduce_array<U, T, kInc>;
    case kDec:
      return &reduce_array<U, T, kDec>;
    case kAnd:
      return &reduce_array<U, T, kAnd>;
    case kOr:
      return &reduce_array<U, T, kOr>;
    case kXor:
      return &reduce_array<U, T, kXor>;
    default:
      return nullptr;
  }
}
template <class Op>
void reduce_halves(std::byte* to, const std::byte* from, uint32_t bytes) {
  reduce_each<uint16_t>(to, from, bytes, &Op::lane);
}
void reduce_floats(std::byte* to, const std::byte* from, uint32_t bytes) {
  reduce_each<uint32_t>(to, from, bytes,
                        [](uint32_t old, uint32_t b) { return AddF32::lane(old, b, true); });
}
template <class F>
BulkReduction half_reduction_of(int operation) {
  switch (operation) {
    case kAdd:
      return &reduce_halves<AddHalf<F>>;
    case kMin:
      return &reduce_halves<ExtremeHalf<F, false>>;
    case kMax:
      return &reduce_halves<ExtremeHalf<F, true>>;
    default:
      return nullptr;
  }
}

}  // namespace

BulkReduction bulk_reduction(Type type, const Mods& mods) {
  const int operation = mods.pick({"add", "min", "max", "inc", "dec", "and", "or", "xor"});
  switch (type) {
    case Type::b32:
    case Type::u32:
      return reduction_of<uint32_t, uint32_t>(operation);
    case Type::s32:
      return reduction_of<uint32_t, int32_t>(operation);
    case Type::b64:
    case Type::u64:
      return reduction_of<uint64_t, uint64_t>(operation);
    case Type::s64:
      return reduction_of<uint64_t, int64_t>(operation);
    case Type::f32:
      return &reduce_floats;
    case Type::f64:
      return &reduce_array<uint64_t, double, kAdd>;
    case Type::f16:
      return half_reduction_of<Half>(operation);
    case Type::bf16:
      return half_reduction_of<BFloat>(operation);
    default:
      return nullptr;
  }
}

Handler bind_atom(Instr& instr, const Mods& mods) {
  const int operation =
      mods.pick({"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"});
  if (operation == kCompare) {
    if (!instr.c.valid() || (instr.e.valid() && !mods.has("L2::cache_hint"))) return nullptr;
  } else if (instr.c.valid()) {  // the cache policy
    if (!mods.has("L2::cache_hint")) return nullptr;
    instr.c = Slot{};
  }
  instr.e = Slot{};
  instr.variant = operation >= kExchange;  // what is left in memory depends on the order
  switch (instr.type) {
    case Type::b16:
      return operation == kCompare ? &run<uint16_t, uint16_t, kCompare> : nullptr;
    case Type::b32:
    case Type::u32:
      return by_operation<uint32_t, uint32_t>(operation);
    case Type::s32:
      return by_operation<uint32_t, int32_t>(operation);
    case Type::b64:
    case Type::u64:
      return by_operation<uint64_t, uint64_t>(operation);
    case Type::s64:
      return by_operation<uint64_t, int64_t>(operation);
    case Type::b128:
      return operation == kCompare    ? &run_wide<false>
             : operation == kExchange ? &run_wide<true>
                                      : nullptr;
    case Type::f32:
      return operation == kAdd ? &run_add_f32 : nullptr;
    case Type::f64:
      return operation == kAdd ? &run<uint64_t, double, kAdd> : nullptr;
    case Type::f16:
      return operation == kAdd ? &run_two<AddHalf<Half>> : nullptr;
    case Type::bf16:
      return operation == kAdd ? &run_two<AddHalf<BFloat>> : nullptr;
    case Type::f16x2:
      return operation == kAdd ? &run_two<AddHalves<Half>> : nullptr;
    case Type::bf16x2:
      return operation == kAdd ? &run_two<AddHalves<BFloat>> : nullptr;
    default:
      return nullptr;
  }
}
Handler bind_red_vector(Instr& instr, const Mods&) {
  return instr.list_count == instr.elements && instr.a_bits == 32 ? &red_vector_f32 : nullptr;
}

}  // namespace vgpu
