// atom and red: one lane after the other, each a real atomic operation of the host, since blocks
// may run on several host threads.
#include "forms.h"
#include "../core/access.h"
#include "../core/bulk.h"
#include "half.h"

namespace vgpu {
namespace {

using std::int32_t, std::int64_t, std::uint16_t, std::uint32_t, std::uint64_t;

enum Operation : std::uint8_t {
  kAdd,
  kMin,
  kMax,
  kInc,
  kDec,
  kAnd,
  kOr,
  kXor,
  kExchange,
  kCompare
};

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

// U: unsigned type as wide as the operand, T: the type it is treated as.
template <class U, class T, Operation kOp>
U apply(U old_bits, U b_bits, U c_bits) {
  const T old = std::bit_cast<T>(old_bits), b = std::bit_cast<T>(b_bits);
  (void)old, (void)b, (void)c_bits;
  if constexpr (kOp == kAdd) {
    if constexpr (std::is_floating_point_v<T>)
      return std::bit_cast<U>(old + b);
    else
      return static_cast<U>(old_bits + b_bits);
  } else if constexpr (kOp == kMin)
    return std::bit_cast<U>(b < old ? b : old);
  else if constexpr (kOp == kMax)
    return std::bit_cast<U>(b > old ? b : old);
  else if constexpr (kOp == kInc)
    return old_bits >= b_bits ? U{0} : static_cast<U>(old_bits + 1);
  else if constexpr (kOp == kDec)
    return old_bits == 0 || old_bits > b_bits ? b_bits : static_cast<U>(old_bits - 1);
  else if constexpr (kOp == kAnd)
    return old_bits & b_bits;
  else if constexpr (kOp == kOr)
    return old_bits | b_bits;
  else if constexpr (kOp == kXor)
    return old_bits ^ b_bits;
  else if constexpr (kOp == kExchange)
    return b_bits;
  else
    return old_bits == b_bits ? c_bits : old_bits;
}

struct Half {  // f16 addition: exact in float, rounded once
  static float value(uint16_t x) { return float_from_half(x); }
  static uint16_t add(uint16_t x, uint16_t y) {
    return half_from_float(float_from_half(x) + float_from_half(y));
  }
};
struct BFloat {
  static float value(uint16_t x) { return float_from_bf16(x); }
  static uint16_t add(uint16_t x, uint16_t y) {
    return bf16_from_float(float_from_bf16(x) + float_from_bf16(y));
  }
};

template <class U, class F>
void atomic(Warp& warp, const Instr& instr, uint32_t mask, F f) {
  Addresses a;
  compute_addresses(warp, instr, mask, a);
  Places places;
  resolve(warp, instr, mask, a, sizeof(U), Access::atomic, places);
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

// ISA manual, atom: atom.add.f32 flushes subnormal numbers in global memory and keeps them in shared.
uint32_t add_f32(uint32_t x, uint32_t y, bool flush) {
  auto flushed = [flush](uint32_t v) { return flush && !(v & 0x7f800000u) ? v & 0x80000000u : v; };
  const float sum = std::bit_cast<float>(flushed(x)) + std::bit_cast<float>(flushed(y));
  return sum != sum ? 0x7fffffffu : flushed(std::bit_cast<uint32_t>(sum));
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
        warp, places.at(a, lane), [&](uint32_t was) { return add_f32(was, operand, flush); });
    if (d) d[lane] = old;
  });
}

template <class U, class T, Operation kOp>
void run(Warp& warp, const Instr& instr, uint32_t mask) {
  atomic<U>(warp, instr, mask, &apply<U, T, kOp>);
}
template <class F>
void run_half(Warp& warp, const Instr& instr, uint32_t mask) {
  atomic<uint16_t>(warp, instr, mask,
                   [](uint16_t x, uint16_t y, uint16_t) { return F::add(x, y); });
}
template <class F>
void run_half2(Warp& warp, const Instr& instr, uint32_t mask) {
  atomic<uint32_t>(warp, instr, mask, [](uint32_t x, uint32_t y, uint32_t) {
    const uint32_t low = F::add(static_cast<uint16_t>(x), static_cast<uint16_t>(y));
    const uint32_t high = F::add(static_cast<uint16_t>(x >> 16), static_cast<uint16_t>(y >> 16));
    return high << 16 | low;
  });
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
                        [&](uint32_t was) { return add_f32(was, operand, true); });
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
  reduce_each<U>(to, from, bytes, [](U old, U b) { return apply<U, T, kOp>(old, b, b); });
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
// As min.f16 and max.f16: a number rather than a NaN, -0 below +0.
template <class F, bool kLargest>
uint16_t extreme(uint16_t x, uint16_t y) {
  const float a = F::value(x), b = F::value(y);
  if (a != a && b != b) return 0x7fff;
  if (a != a || b != b) return a != a ? y : x;
  if (a == b) return kLargest ? x & y : x | y;
  return (a < b) == kLargest ? y : x;
}
template <class F>
BulkReduction half_reduction_of(int operation) {
  switch (operation) {
    case kAdd:
      return [](std::byte* to, const std::byte* from, uint32_t bytes) {
        reduce_each<uint16_t>(to, from, bytes, &F::add);
      };
    case kMin:
      return [](std::byte* to, const std::byte* from, uint32_t bytes) {
        reduce_each<uint16_t>(to, from, bytes, &extreme<F, false>);
      };
    case kMax:
      return [](std::byte* to, const std::byte* from, uint32_t bytes) {
        reduce_each<uint16_t>(to, from, bytes, &extreme<F, true>);
      };
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
      return [](std::byte* to, const std::byte* from, uint32_t bytes) {
        reduce_each<uint32_t>(to, from, bytes,
                              [](uint32_t old, uint32_t b) { return add_f32(old, b, true); });
      };
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
      return operation == kAdd ? &run_half<Half> : nullptr;
    case Type::bf16:
      return operation == kAdd ? &run_half<BFloat> : nullptr;
    case Type::f16x2:
      return operation == kAdd ? &run_half2<Half> : nullptr;
    case Type::bf16x2:
      return operation == kAdd ? &run_half2<BFloat> : nullptr;
    default:
      return nullptr;
  }
}
Handler bind_red_vector(Instr& instr, const Mods&) {
  return instr.list_count == instr.elements && instr.a_bits == 32 ? &red_vector_f32 : nullptr;
}

}  // namespace vgpu
