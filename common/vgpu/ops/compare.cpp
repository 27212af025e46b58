// Comparison and selection (PTX ISA, sections of those names): setp, set, selp, slct, testp.
#include <cmath>
#include <limits>

#include "../core/lanes.h"
#include "forms.h"
#include "half.h"

namespace vgpu {
namespace {

using std::int16_t, std::int32_t, std::int64_t;
using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;

// Operands as they are compared: halves as float, subnormals flushed with .ftz. `read` gives the 32
// values, in the register or in `space`.
template <class T>
struct Plain {
  using Lane = T;
  using Value = T;
  static const Value* read(const Lane* from, Value*) { return from; }
};
inline float flushed(float v) {
  return std::fabs(v) < std::numeric_limits<float>::min() ? std::copysign(0.0f, v) : v;
}
struct Flushed {
  using Lane = float;
  using Value = float;
  static const Value* read(const Lane* from, Value* space) {
    for (int i = 0; i < kWarpSize; ++i) space[i] = flushed(from[i]);
    return space;
  }
};
struct F16 {
  using Lane = uint16_t;
  using Value = float;
  static const Value* read(const Lane* from, Value* space) {
    halves_to_floats(from, space);
    return space;
  }
};
struct F16Flushed {
  using Lane = uint16_t;
  using Value = float;
  static const Value* read(const Lane* from, Value* space) {
    alignas(64) uint16_t halves[kWarpSize];
    for (int i = 0; i < kWarpSize; ++i) halves[i] = (from[i] & 0x7c00) ? from[i] : from[i] & 0x8000;
    halves_to_floats(halves, space);
    return space;
  }
};
struct Bf16 {
  using Lane = uint16_t;
  using Value = float;
  static const Value* read(const Lane* from, Value* space) {
    for (int i = 0; i < kWarpSize; ++i) space[i] = float_from_bf16(from[i]);
    return space;
  }
};

// For floats the ordered comparisons are false with a NaN, those that end in u are true.
template <Compare kCompare, class T>
bool holds(T a, T b) {
  switch (kCompare) {
    case Compare::eq:
      return a == b;
    case Compare::ne:
      if constexpr (std::is_floating_point_v<T>)
        return a < b || a > b;
      else
        return a != b;
    case Compare::lt:
      return a < b;
    case Compare::le:
      return a <= b;
    case Compare::gt:
      return a > b;
    case Compare::ge:
      return a >= b;
    case Compare::equ:
      return !(a < b || a > b);
    case Compare::neu:
      return !(a == b);
    case Compare::ltu:
      return !(a >= b);
    case Compare::leu:
      return !(a > b);
    case Compare::gtu:
      return !(a <= b);
    case Compare::geu:
      return !(a < b);
    case Compare::num:
      return a == a && b == b;
    case Compare::nan:
      return !(a == a && b == b);
    default:
      return false;
  }
}

uint32_t combined(Warp& warp, const Instr& instr, uint32_t bits) {
  if (instr.combine == Bool::none) return bits;
  const uint32_t c = get_predicate(warp, instr.c, instr.c_not);
  return instr.combine == Bool::and_ ? bits & c : instr.combine == Bool::or_ ? bits | c : bits ^ c;
}

// The comparison is known when it compiles: for setp of the usual types.
template <class In, Compare kCompare>
uint32_t compare_lanes(const typename In::Lane* a, const typename In::Lane* b) {
  alignas(64) typename In::Value space[2][kWarpSize];
  const auto* x = In::read(a, space[0]);
  const auto* y = In::read(b, space[1]);
  return collect([&](int lane) { return holds<kCompare>(x[lane], y[lane]); });
}

// One function a type for all comparisons, of which there would be hundreds otherwise: for halves,
// where reading them takes longest, and for set.
template <class In>
uint32_t compare_lanes(Compare compare, const typename In::Lane* a, const typename In::Lane* b) {
  alignas(64) typename In::Value space[2][kWarpSize];
  const auto* x = In::read(a, space[0]);
  const auto* y = In::read(b, space[1]);
  const uint32_t less = collect([&](int lane) { return x[lane] < y[lane]; });
  const uint32_t equal = collect([&](int lane) { return x[lane] == y[lane]; });
  const uint32_t greater = collect([&](int lane) { return x[lane] > y[lane]; });
  switch (compare) {  // with a NaN none of the three holds
    case Compare::eq:
      return equal;
    case Compare::ne:
      return less | greater;
    case Compare::lt:
      return less;
    case Compare::le:
      return less | equal;
    case Compare::gt:
      return greater;
    case Compare::ge:
      return greater | equal;
    case Compare::equ:
      return ~(less | greater);
    case Compare::neu:
      return ~equal;
    case Compare::ltu:
      return ~(greater | equal);
    case Compare::leu:
      return ~greater;
    case Compare::gtu:
      return ~(less | equal);
    case Compare::geu:
      return ~less;
    case Compare::num:
      return less | equal | greater;
    case Compare::nan:
      return ~(less | equal | greater);
    default:
      return 0;
  }
}
template <class In>
uint32_t compare_lanes(Compare compare, Warp& warp, const Instr& instr) {
  return compare_lanes<In>(compare, warp.lanes<const typename In::Lane>(instr.a),
                           warp.lanes<const typename In::Lane>(instr.b));
}

// lo, ls, hi, hs are what lt, le, gt, ge are for types that have no sign.
Compare plain(Compare compare) {
  switch (compare) {
    case Compare::lo:
      return Compare::lt;
    case Compare::ls:
      return Compare::le;
    case Compare::hi:
      return Compare::gt;
    case Compare::hs:
      return Compare::ge;
    default:
      return compare;
  }
}

// Both before either is written: a destination may be the source predicate.
inline void write_predicates(Warp& warp, const Instr& instr, uint32_t mask, uint32_t bits) {
  const uint32_t p = combined(warp, instr, bits);
  const uint32_t q = instr.d[1].valid() ? combined(warp, instr, ~bits) : 0;
  set_predicate(warp, instr.d[0], p, mask);
  set_predicate(warp, instr.d[1], q, mask);
}
template <class In, Compare kCompare>
void setp(Warp& warp, const Instr& instr, uint32_t mask) {
  write_predicates(warp, instr, mask,
                   compare_lanes<In, kCompare>(warp.lanes<const typename In::Lane>(instr.a),
                                               warp.lanes<const typename In::Lane>(instr.b)));
}
template <class In>
void setp_halves(Warp& warp, const Instr& instr, uint32_t mask) {
  write_predicates(warp, instr, mask, compare_lanes<In>(instr.compare, warp, instr));
}

// `yes` in the lanes whose bit is set, else 0.
template <class T>
void write_choice(Warp& warp, const Instr& instr, uint32_t mask, uint32_t bits, T yes) {
  Result<T> result(warp, instr.d[0], mask);
  T* d = result.lanes();
  for (int lane = 0; lane < kWarpSize; ++lane) d[lane] = bits >> lane & 1 ? yes : T{0};
}
// set: all ones or 1.0 in the destination's type.
template <class In>
void set(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t bits = combined(warp, instr, compare_lanes<In>(plain(instr.compare), warp, instr));
  switch (instr.dtype) {
    case Type::f16:
      return write_choice<uint16_t>(warp, instr, mask, bits, 0x3c00);
    case Type::bf16:
      return write_choice<uint16_t>(warp, instr, mask, bits, 0x3f80);
    case Type::u16:
    case Type::s16:
      return write_choice<uint16_t>(warp, instr, mask, bits, 0xffff);
    case Type::f32:
      return write_choice<uint32_t>(warp, instr, mask, bits, 0x3f800000u);
    default:
      return write_choice<uint32_t>(warp, instr, mask, bits, 0xffffffffu);
  }
}

// Packed comparisons: the low half gives p, the high half q; set gives a half each.
template <class In, bool kPredicates>
void packed(Warp& warp, const Instr& instr, uint32_t mask) {
  const auto* a = warp.lanes<const uint32_t>(instr.a);
  const auto* b = warp.lanes<const uint32_t>(instr.b);
  uint32_t bits[2];
  for (int half = 0; half < 2; ++half) {
    alignas(64) uint16_t x[kWarpSize], y[kWarpSize];
    for (int lane = 0; lane < kWarpSize; ++lane) {
      x[lane] = static_cast<uint16_t>(a[lane] >> (16 * half));
      y[lane] = static_cast<uint16_t>(b[lane] >> (16 * half));
    }
    bits[half] = combined(warp, instr, compare_lanes<In>(instr.compare, x, y));
  }
  if (kPredicates) {
    set_predicate(warp, instr.d[0], bits[0], mask);
    set_predicate(warp, instr.d[1], bits[1], mask);
    return;
  }
  const uint32_t one = instr.dtype == Type::f16x2    ? 0x3c00
                       : instr.dtype == Type::bf16x2 ? 0x3f80
                                                     : 0xffff;
  Result<uint32_t> result(warp, instr.d[0], mask);
  uint32_t* d = result.lanes();
  for (int lane = 0; lane < kWarpSize; ++lane)
    d[lane] = (bits[0] >> lane & 1 ? one : 0u) | (bits[1] >> lane & 1 ? one << 16 : 0u);
}

template <class In>
Handler setp_for(Compare compare) {
#define CASE(name)    \
  case Compare::name: \
    return &setp<In, Compare::name>
  if constexpr (std::is_floating_point_v<typename In::Value>) {
    switch (compare) {
      CASE(equ);
      CASE(neu);
      CASE(ltu);
      CASE(leu);
      CASE(gtu);
      CASE(geu);
      CASE(num);
      CASE(nan);
      default:
        break;
    }
  }
  switch (compare) {
    CASE(eq);
    CASE(ne);
    CASE(lt);
    CASE(le);
    CASE(gt);
    CASE(ge);
    default:
      return nullptr;
  }
#undef CASE
}

template <bool kPredicate>
Handler bind_compare(const Instr& instr) {
  // lo, ls, hi, hs are for unsigned and bit types; equ and the like for floats.
  const bool unsigned_only = instr.compare == Compare::lo || instr.compare == Compare::ls ||
                             instr.compare == Compare::hi || instr.compare == Compare::hs;
  const bool float_only = instr.compare >= Compare::equ;
  if (unsigned_only && (is_float(instr.type) || is_signed(instr.type))) return nullptr;
  if (float_only && !is_float(instr.type)) return nullptr;
  if ((instr.combine != Bool::none) != instr.c.valid()) return nullptr;
  if (instr.compare == Compare::none) return nullptr;
  const auto with = [&]<class In>(In) -> Handler {
    if constexpr (!kPredicate)
      return &set<In>;
    else if constexpr (sizeof(typename In::Lane) < sizeof(typename In::Value))
      return &setp_halves<In>;
    else
      return setp_for<In>(plain(instr.compare));
  };
  const auto pairs = [&]<class In>(In) -> Handler { return &packed<In, kPredicate>; };
  switch (instr.type) {
    case Type::b16:
    case Type::u16:
      return with(Plain<uint16_t>{});
    case Type::b32:
    case Type::u32:
      return with(Plain<uint32_t>{});
    case Type::b64:
    case Type::u64:
      return with(Plain<uint64_t>{});
    case Type::s16:
      return with(Plain<int16_t>{});
    case Type::s32:
      return with(Plain<int32_t>{});
    case Type::s64:
      return with(Plain<int64_t>{});
    case Type::f32:
      return instr.ftz ? with(Flushed{}) : with(Plain<float>{});
    case Type::f64:
      return with(Plain<double>{});
    case Type::f16:
      return instr.ftz ? with(F16Flushed{}) : with(F16{});
    case Type::bf16:
      return with(Bf16{});
    case Type::f16x2:
      return instr.ftz ? pairs(F16Flushed{}) : pairs(F16{});
    case Type::bf16x2:
      return pairs(Bf16{});
    default:
      return nullptr;
  }
}

template <class T>
void select(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t p = get_predicate(warp, instr.c, instr.c_not);
  Result<T> result(warp, instr.d[0], mask);
  T* d = result.lanes();
  const T* a = warp.lanes<const T>(instr.a);
  const T* b = warp.lanes<const T>(instr.b);
#pragma GCC ivdep
  for (int lane = 0; lane < kWarpSize; ++lane) d[lane] = (p >> lane & 1) ? a[lane] : b[lane];
}

// slct: a where c >= 0, else b (and where c is NaN).
template <class T, bool kFloat, bool kFtz>
void select_by_sign(Warp& warp, const Instr& instr, uint32_t mask) {
  Result<T> result(warp, instr.d[0], mask);
  T* d = result.lanes();
  const T* a = warp.lanes<const T>(instr.a);
  const T* b = warp.lanes<const T>(instr.b);
  using C = std::conditional_t<kFloat, float, int32_t>;
  const C* c = warp.lanes<const C>(instr.c);
#pragma GCC ivdep
  for (int lane = 0; lane < kWarpSize; ++lane) {
    bool first;
    if constexpr (kFtz)
      first = flushed(c[lane]) >= 0;
    else
      first = c[lane] >= 0;
    d[lane] = first ? a[lane] : b[lane];
  }
}

enum Test : uint8_t { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };

// Zeros count as normal (PTX ISA, testp).
template <class T, Test kTest>
void testp(Warp& warp, const Instr& instr, uint32_t mask) {
  const T* a = warp.lanes<const T>(instr.a);
  set_predicate(warp, instr.d[0], collect([&](int lane) {
                  constexpr T infinity = std::numeric_limits<T>::infinity(),
                              normal = std::numeric_limits<T>::min();
                  const T size = std::fabs(a[lane]);
                  switch (kTest) {
                    case kFinite:
                      return size < infinity;
                    case kInfinite:
                      return size == infinity;
                    case kNumber:
                      return size <= infinity;
                    case kNotANumber:
                      return !(size <= infinity);
                    case kNormal:
                      return size == 0 || (size >= normal && size < infinity);
                    default:
                      return size > 0 && size < normal;
                  }
                }),
                mask);
}
template <class T>
Handler bind_test(int test) {
  switch (test) {
    case kFinite:
      return &testp<T, kFinite>;
    case kInfinite:
      return &testp<T, kInfinite>;
    case kNumber:
      return &testp<T, kNumber>;
    case kNotANumber:
      return &testp<T, kNotANumber>;
    case kNormal:
      return &testp<T, kNormal>;
    case kSubnormal:
      return &testp<T, kSubnormal>;
    default:
      return nullptr;
  }
}

}  // namespace

Handler bind_setp(Instr& instr, const Mods&) { return bind_compare<true>(instr); }
Handler bind_set(Instr& instr, const Mods&) { return bind_compare<false>(instr); }
Handler bind_selp(Instr& instr, const Mods&) {
  return for_bits(type_bits(instr.type),
                  [](auto zero) -> Handler { return &select<decltype(zero)>; });
}
Handler bind_slct(Instr& instr, const Mods&) {
  const bool by_float = instr.type == Type::f32;
  return for_bits(type_bits(instr.dtype), [&](auto zero) -> Handler {
    using T = decltype(zero);
    if (!by_float) return &select_by_sign<T, false, false>;
    return instr.ftz ? &select_by_sign<T, true, true> : &select_by_sign<T, true, false>;
  });
}
Handler bind_testp(Instr& instr, const Mods& mods) {
  const int test = mods.pick({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  return instr.type == Type::f32 ? bind_test<float>(test) : bind_test<double>(test);
}

}  // namespace vgpu
