// What the comparison and selection instructions do to one lane (PTX ISA, sections of those names):
// setp, set, selp, slct, testp. See core/signature.h.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "../half.h"

namespace vgpu::op::compare {

using std::int32_t, std::uint16_t, std::uint32_t, std::uint8_t;

// Operands as they are compared: halves as float, subnormals flushed with .ftz. `value` reads one
// lane, `read` gives the values of 32, in the register or in `space`.
template <class T>
struct Plain {
  using Lane = T;
  using Value = T;
  static constexpr Value value(Lane v) { return v; }
  static const Value* read(const Lane* from, Value*) { return from; }
};
struct Flushed {
  using Lane = float;
  using Value = float;
  static constexpr Value value(Lane v) {
    return std::fabs(v) < std::numeric_limits<float>::min() ? std::copysign(0.0f, v) : v;
  }
  static const Value* read(const Lane* from, Value* space) {
    for (int i = 0; i < kWarpSize; ++i) space[i] = value(from[i]);
    return space;
  }
};
struct F16 {
  using Lane = uint16_t;
  using Value = float;
  static Value value(Lane v) { return float_from_half(v); }
  static const Value* read(const Lane* from, Value* space) {
    halves_to_floats(from, space);
    return space;
  }
};
struct F16Flushed {
  using Lane = uint16_t;
  using Value = float;
  static constexpr Lane flushed(Lane v) { return (v & 0x7c00) ? v : v & 0x8000; }
  static Value value(Lane v) { return float_from_half(flushed(v)); }
  static const Value* read(const Lane* from, Value* space) {
    alignas(64) uint16_t halves[kWarpSize];
    for (int i = 0; i < kWarpSize; ++i) halves[i] = flushed(from[i]);
    halves_to_floats(halves, space);
    return space;
  }
};
struct Bf16 {
  using Lane = uint16_t;
  using Value = float;
  static constexpr Value value(Lane v) { return float_from_bf16(v); }
  static const Value* read(const Lane* from, Value* space) {
    for (int i = 0; i < kWarpSize; ++i) space[i] = value(from[i]);
    return space;
  }
};

// For floats the ordered comparisons are false with a NaN, those that end in u are true.
template <Compare kCompare, class T>
constexpr bool holds(T a, T b) {
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

// The same from the answers to three comparisons, for one lane (bool) or as masks of 32.
template <class Bits>
constexpr Bits by_order(Compare how, Bits less, Bits equal, Bits greater) {
  const auto negated = [](Bits v) {
    if constexpr (std::is_same_v<Bits, bool>)
      return !v;
    else
      return ~v;
  };
  switch (how) {  // with a NaN none of the three holds
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
      return negated(less | greater);
    case Compare::neu:
      return negated(equal);
    case Compare::ltu:
      return negated(greater | equal);
    case Compare::leu:
      return negated(greater);
    case Compare::gtu:
      return negated(less | equal);
    case Compare::geu:
      return negated(less);
    case Compare::num:
      return less | equal | greater;
    case Compare::nan:
      return negated(less | equal | greater);
    default:
      return Bits{};
  }
}

// lo, ls, hi, hs are what lt, le, gt, ge are for types that have no sign.
constexpr Compare plain(Compare compare) {
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

// The answer and the source predicate c, for one lane (bool) or as masks of 32.
template <class Bits>
constexpr Bits combined(Bool how, Bits answer, Bits c) {
  return how == Bool::none   ? answer
         : how == Bool::and_ ? answer & c
         : how == Bool::or_  ? answer | c
                             : answer ^ c;
}

// ---- the operations -------------------------------------------------------------------------

// setp, set: whether the comparison holds; `In` reads the operands.
template <class In, Compare kCompare>
struct Setp {
  static constexpr bool lane(typename In::Lane a, typename In::Lane b) {
    return holds<kCompare>(In::value(a), In::value(b));
  }
};

// What set writes where it holds: all ones or 1.0 in the destination's type; for a pair, to each
// half.
constexpr uint32_t yes_of(Type dtype) {
  switch (dtype) {
    case Type::f16:
    case Type::f16x2:
      return 0x3c00;
    case Type::bf16:
    case Type::bf16x2:
      return 0x3f80;
    case Type::u16:
    case Type::s16:
      return 0xffff;
    case Type::f32:
      return 0x3f800000u;
    default:
      return 0xffffffffu;
  }
}

template <class T>
struct Selp {
  static constexpr T lane(T a, T b, bool c) { return c ? a : b; }
};
// slct: a where c >= 0, else b (and where c is NaN). C is what reads c.
template <class T, class C>
struct Slct {
  static constexpr T lane(T a, T b, typename C::Lane c) { return C::value(c) >= 0 ? a : b; }
};

enum Test : uint8_t { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };

// Zeros count as normal (PTX ISA, testp).
template <class T, Test kTest>
struct Testp {
  static constexpr bool lane(T a) {
    constexpr T infinity = std::numeric_limits<T>::infinity(),
                normal = std::numeric_limits<T>::min();
    const T size = std::fabs(a);
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
  }
};

}  // namespace vgpu::op::compare
