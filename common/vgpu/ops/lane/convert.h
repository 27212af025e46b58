// What cvt and cvt.pack do to one lane (PTX ISA, "Data Movement and Conversion Instructions: cvt"
// and "cvt.pack"). See core/signature.h.
//
// Registers may be wider than the types: the source's low bits count, the destination is extended
// by its type's sign. The conversions of inner loops are operations of their registers' types. All
// others (IntegerToInteger, FloatToFloat ...) are made from the instruction and go from the 64 bits
// of a widened source register to those of the destination, in the steps that stand before them.
#pragma once
#include <array>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>

#include "../half.h"

namespace vgpu::op::convert {

using std::int16_t, std::int32_t, std::int64_t, std::int8_t;
using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;

// ---- between registers of the types' widths -------------------------------------------------

template <class To, class From>
struct Cast {
  static constexpr To lane(From x) { return static_cast<To>(x); }
};
// From a register through an integer type to a register.
template <class T, class Out, class In>
struct Through {
  static constexpr Out lane(In v) { return static_cast<Out>(static_cast<T>(v)); }
};

// To an integer within the type: floorf and its kin.
template <Rounding kRounding>
constexpr float whole(float x) {
  return kRounding == Rounding::rzi   ? __builtin_truncf(x)
         : kRounding == Rounding::rmi ? __builtin_floorf(x)
         : kRounding == Rounding::rpi ? __builtin_ceilf(x)
                                      : __builtin_nearbyintf(x);
}
template <Rounding kRounding>
struct Integral {
  static constexpr float lane(float x) { return canonical(whole<kRounding>(x)); }
};
// f32 to s32 and u32: what does not fit is converted as 0 and replaced.
template <class Out, Rounding kRounding>
struct FloatToWord {
  static constexpr Out lane(float v) {
    constexpr Out low = std::numeric_limits<Out>::min(), high = std::numeric_limits<Out>::max();
    constexpr float beyond = std::is_signed_v<Out> ? 0x1p31f : 0x1p32f;
    constexpr float least = std::is_signed_v<Out> ? -0x1p31f : 0.0f;
    const float x = whole<kRounding>(v);
    const uint32_t fits = (x >= least) & (x < beyond) ? ~0u : 0u;
    const Out whole = static_cast<Out>(std::bit_cast<float>(std::bit_cast<uint32_t>(x) & fits));
    return x >= beyond ? high : x < least ? low : whole;
  }
};

struct HalfToFloat {
  static float lane(uint16_t x) { return float_from_half(x); }
};
struct FloatToHalf {
  static uint16_t lane(float x) { return half_from_float(x); }
};
struct Bf16ToFloat {
  static constexpr float lane(uint16_t x) { return float_from_bf16(x); }
};
struct FloatToBf16 {
  static constexpr uint16_t lane(float x) { return bf16_from_float(x); }
};
struct DoubleToFloat {
  static constexpr float lane(double x) { return canonical(static_cast<float>(x)); }
};
// Away from zero where halfway: half of the last bit is added; the bits carry into the exponent.
struct FloatToTf32 {
  static constexpr uint32_t lane(uint32_t x) {
    return (x & 0x7fffffff) > 0x7f800000u ? 0x7fffffffu : (x + 0x1000) & 0xffffe000u;
  }
};
struct Saturate {
  static constexpr float lane(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
};

// ---- two values to one register -------------------------------------------------------------

// A float as fp8, to the nearest, what is too large as the largest. A number becomes a multiple of
// the destination's last bit: of subnormal ones by adding a float whose last bit that is, of normal
// ones by adding half of it (just less where what is kept is even) to the bits.
template <class F>
constexpr uint32_t fp8_from_float(float x) {
  constexpr int drop = 23 - F::mantissa;
  constexpr uint32_t smallest_normal = static_cast<uint32_t>(128 - F::bias) << 23;
  constexpr float grid = std::bit_cast<float>(static_cast<uint32_t>(128 - F::bias + drop) << 23);
  const uint32_t bits = std::bit_cast<uint32_t>(x), size = bits & 0x7fffffff;
  const uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(size) + grid) - std::bit_cast<uint32_t>(grid);
  const uint32_t rounded = size + ((1u << (drop - 1)) - 1) + (size >> drop & 1);
  const uint32_t large = (rounded - (static_cast<uint32_t>(127 - F::bias) << 23)) >> drop;
  uint32_t r = size < smallest_normal ? small : large;
  r = r > F::largest ? F::largest : r;
  return size > 0x7f800000u ? F::nan : r | bits >> 31 << (F::exponent + F::mantissa);
}

// To the nearest; fp8 saturates.
template <class F>
struct Narrow {
  static constexpr int kBits = 8;
  static constexpr uint16_t lane(float x) { return static_cast<uint16_t>(fp8_from_float<F>(x)); }
};
template <>
struct Narrow<Fp16> : FloatToHalf {
  static constexpr int kBits = 16;
};
template <>
struct Narrow<Bfloat16> : FloatToBf16 {
  static constexpr int kBits = 16;
};

template <class T>
constexpr T relu(T x) {  // a NaN stays
  return x <= 0 ? T{0} : x;
}

// d = {a, b}: a becomes the upper part.
template <class F>
struct PackFloats {
  using Pair = std::conditional_t<Narrow<F>::kBits == 16, uint32_t, uint16_t>;
  static constexpr Pair joined(uint16_t high, uint16_t low) {
    return static_cast<Pair>(Pair{high} << Narrow<F>::kBits | low);
  }
  bool with_relu;
  explicit constexpr PackFloats(const Instr& instr) : with_relu(instr.relu) {}
  Pair lane(float a, float b) const {
    return joined(Narrow<F>::lane(with_relu ? relu(a) : a),
                  Narrow<F>::lane(with_relu ? relu(b) : b));
  }
};
// Toward zero, and with .satfinite.
template <class F>
struct PackFloatsExactly {
  bool with_relu, saturate;
  Rounding rounding;
  explicit constexpr PackFloatsExactly(const Instr& instr)
      : with_relu(instr.relu), saturate(instr.variant), rounding(instr.rounding) {}
  uint32_t one(double x) const { return narrow<F>(with_relu ? relu(x) : x, rounding, saturate); }
  uint32_t lane(float a, float b) const { return one(a) << 16 | one(b); }
};

// f16x2 to two fp8 in 16 bits, and back.
template <class F>
struct HalvesToFp8 {
  PackFloats<F> pack;
  explicit constexpr HalvesToFp8(const Instr& instr) : pack(instr) {}
  uint16_t lane(uint32_t a) const {
    return pack.lane(float_from_half(static_cast<uint16_t>(a >> 16)),
                     float_from_half(static_cast<uint16_t>(a)));
  }
};
template <class F>
struct Fp8ToHalves {
  const uint16_t* halves;  // the halves for each byte
  bool with_relu;
  explicit Fp8ToHalves(const Instr& instr) : with_relu(instr.relu) {
    static const auto table = [] {
      std::array<uint16_t, 256> values;
      for (uint32_t i = 0; i < 256; ++i) values[i] = half_from_float(widen_format<F>(i));
      return values;
    }();
    halves = table.data();
  }
  uint32_t one(uint64_t byte) const {
    const uint16_t half = halves[byte & 0xff];
    return with_relu && (half & 0x8000) ? 0 : half;  // the NaN has no sign
  }
  uint64_t lane(uint64_t pair) const { return one(pair >> 8) << 16 | one(pair); }
};

// The range of an integer type, as what clamps to it.
inline int64_t lowest(Type type) {
  return is_signed(type) ? INT64_MIN >> (64 - type_bits(type)) : 0;
}
inline uint64_t highest(Type type) {
  const int bits = type_bits(type) - (is_signed(type) ? 1 : 0);
  return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
}

// cvt.pack.sat: two integers clamped into one register.
class PackIntegers {
 public:
  explicit PackIntegers(const Instr& instr) : PackIntegers(instr.dtype) {}
  explicit PackIntegers(Type type)
      : bits_(type_bits(type)),
        low_(lowest(type)),
        high_(static_cast<int64_t>(highest(type))),
        part_((uint64_t{1} << bits_) - 1) {}
  constexpr uint32_t lane(int32_t a, int32_t b) const {
    return static_cast<uint32_t>(clamp(a) << bits_ | clamp(b));
  }
  constexpr int bits() const { return 2 * bits_; }

 private:
  constexpr uint64_t clamp(int64_t v) const {
    return static_cast<uint64_t>(v < low_ ? low_ : v > high_ ? high_ : v) & part_;
  }
  int bits_;
  int64_t low_, high_;
  uint64_t part_;
};
// Above them what c holds.
class PackIntegersBelow {
 public:
  explicit PackIntegersBelow(const Instr& instr) : pack_(instr) {}
  explicit PackIntegersBelow(Type type) : pack_(type) {}
  constexpr uint32_t lane(int32_t a, int32_t b, uint32_t c) const {
    return static_cast<uint32_t>(uint64_t{c} << pack_.bits()) | pack_.lane(a, b);
  }

 private:
  PackIntegers pack_;
};

// ---- any other conversion: its steps --------------------------------------------------------

constexpr int64_t extended(uint64_t value, int bits, bool is_signed_type) {
  const int unused = 64 - bits;
  return is_signed_type ? static_cast<int64_t>(value << unused) >> unused
                        : static_cast<int64_t>(value << unused >> unused);
}

constexpr float flushed_if(bool ftz, float x) {
  return ftz && std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

// A source of that floating-point type as a double, exactly.
template <Type kFrom>
double double_of(uint64_t raw, bool ftz) {
  if constexpr (kFrom == Type::f16) return float_from_half(static_cast<uint16_t>(raw));
  if constexpr (kFrom == Type::bf16) return float_from_bf16(static_cast<uint16_t>(raw));
  if constexpr (kFrom == Type::f32)
    return flushed_if(ftz, std::bit_cast<float>(static_cast<uint32_t>(raw)));
  return std::bit_cast<double>(raw);
}
inline double double_of(const Instr& instr, uint64_t raw) {
  switch (instr.type) {
    case Type::f16:
      return double_of<Type::f16>(raw, instr.ftz);
    case Type::bf16:
      return double_of<Type::bf16>(raw, instr.ftz);
    case Type::f32:
      return double_of<Type::f32>(raw, instr.ftz);
    default:
      return double_of<Type::f64>(raw, instr.ftz);
  }
}

inline double integral(double x, Rounding rounding) {
  switch (rounding) {
    case Rounding::rzi:
      return __builtin_trunc(x);
    case Rounding::rmi:
      return __builtin_floor(x);
    case Rounding::rpi:
      return __builtin_ceil(x);
    case Rounding::rni:
      return __builtin_nearbyint(x);
    default:
      return x;
  }
}

// The host rounds: its mode is set for the whole loop. Values go through memory that the calls
// might change, so that no conversion leaves the two.
template <class To, class From>
[[gnu::noinline]] void convert_rounded(const From* from, To* to, int count, Rounding rounding) {
  if (rounding == Rounding::none || rounding == Rounding::rn) {
    for (int i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
    return;
  }
  asm volatile("" : : "r"(from), "r"(to) : "memory");
  std::fesetround(rounding == Rounding::rz   ? FE_TOWARDZERO
                  : rounding == Rounding::rm ? FE_DOWNWARD
                                             : FE_UPWARD);
  asm volatile("" : : "r"(from), "r"(to) : "memory");
  for (int i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
  asm volatile("" : : "r"(from), "r"(to) : "memory");
  std::fesetround(FE_TONEAREST);
  asm volatile("" : : "r"(from), "r"(to) : "memory");
}

template <class To, class From>
To converted_rounded(From from, Rounding rounding) {
  To to;
  convert_rounded(&from, &to, 1, rounding);
  return to;
}

// .relu and .sat of a double. A NaN stays with .relu and becomes +0 with .sat.
constexpr double saturated(double x) { return x > 0 ? (x < 1 ? x : 1.0) : 0.0; }

// A double, exact or rounded to odd, as bits of the destination's format; f32 comes as a float that
// is rounded already.
template <Type kTo>
uint64_t bits_of(double x, Rounding rounding, bool saturate) {
  if constexpr (kTo == Type::f16) return narrow<Fp16>(x, rounding, saturate);
  if constexpr (kTo == Type::bf16) return narrow<Bfloat16>(x, rounding, saturate);
  if constexpr (kTo == Type::tf32)
    return x == x ? narrow<Tf32>(x, rounding, saturate) << 13 : 0x7fffffffu;
  return std::bit_cast<uint64_t>(x);
}
inline uint64_t bits_of_float(float x, bool ftz) {
  return std::bit_cast<uint32_t>(flushed_if(ftz, canonical(x)));
}
inline uint64_t in_format(const Instr& instr, double x) {
  if (instr.relu) x = relu(x);
  if (instr.sat) x = saturated(x);
  const bool saturate = instr.variant;
  switch (instr.dtype) {
    case Type::f16:
      return bits_of<Type::f16>(x, instr.rounding, saturate);
    case Type::bf16:
      return bits_of<Type::bf16>(x, instr.rounding, saturate);
    case Type::tf32:
      return bits_of<Type::tf32>(x, instr.rounding, saturate);
    case Type::f32:
      return bits_of_float(converted_rounded<float>(x, instr.rounding), instr.ftz);
    default:
      return bits_of<Type::f64>(x, instr.rounding, saturate);
  }
}

// A whole number as an integer of a type: what does not fit as the nearest that does.
class DoubleToInteger {
 public:
  explicit DoubleToInteger(const Instr& instr)
      : below_(static_cast<uint64_t>(lowest(instr.dtype))),
        above_(highest(instr.dtype)),
        low_(static_cast<double>(lowest(instr.dtype))) {
    const int bits = type_bits(instr.dtype);
    beyond_ = std::ldexp(1.0, is_signed(instr.dtype) ? bits - 1 : bits);  // highest + 1
    // What a NaN becomes depends on the types.
    not_a_number_ = instr.type == Type::f64 || bits == 64 ? uint64_t{1} << (bits - 1) : 0;
  }
  // Numbers that do not fit are converted as 0 and replaced; those from 2^63 on are unsigned.
  uint64_t lane(double x) const {
    constexpr double kHalf = 0x1p63;
    const double in = x > low_ && x < beyond_ ? x : 0.0;
    const bool large = in >= kHalf;
    const auto whole = static_cast<uint64_t>(static_cast<int64_t>(large ? in - kHalf : in));
    uint64_t v = whole + (large ? uint64_t{1} << 63 : 0);
    v = x <= low_ ? below_ : v;
    v = x >= beyond_ ? above_ : v;
    return x == x ? v : not_a_number_;
  }

 private:
  uint64_t below_, above_, not_a_number_;
  double low_, beyond_;
};

// An integer's double `x`, rounded toward zero, made odd where it is not exact: so the second
// rounding is right for 64-bit integers too.
template <class Integer>
double odd_unless_exact(double x, Integer of) {
  const bool exact = static_cast<Integer>(x) == of;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(x) | (exact ? 0 : 1));
}

// ---- any other conversion: the operations ---------------------------------------------------
// Integers are int64, those of u64 as the same bits.

// The source register's low bits as the source's type has them.
class ReadInteger {
 public:
  explicit ReadInteger(const Instr& instr)
      : bits_(type_bits(instr.type)), signed_(is_signed(instr.type)) {}
  constexpr int64_t lane(uint64_t raw) const { return extended(raw, bits_, signed_); }

 private:
  int bits_;
  bool signed_;
};
// The destination's, extended to its register.
class WriteInteger {
 public:
  explicit WriteInteger(const Instr& instr)
      : bits_(type_bits(instr.dtype)), signed_(is_signed(instr.dtype)) {}
  constexpr uint64_t lane(uint64_t value) const {
    return static_cast<uint64_t>(extended(value, bits_, signed_));
  }

 private:
  int bits_;
  bool signed_;
};

class IntegerToInteger {
 public:
  explicit IntegerToInteger(const Instr& instr) : read_(instr), write_(instr) {}
  constexpr uint64_t lane(uint64_t raw) const {
    return write_.lane(static_cast<uint64_t>(read_.lane(raw)));
  }

 private:
  ReadInteger read_;
  WriteInteger write_;
};
// .sat: to the range of the destination's type.
class ClampInteger {
 public:
  explicit ClampInteger(const Instr& instr)
      : low_(lowest(instr.dtype)),
        high_(highest(instr.dtype)),
        from_signed_(is_signed(instr.type)) {}
  constexpr uint64_t lane(int64_t v) const {
    const auto u = static_cast<uint64_t>(v);
    const uint64_t clamped = u > high_ ? high_ : u;
    const uint64_t negative = v < low_ ? static_cast<uint64_t>(low_) : u;
    return from_signed_ && v < 0 ? negative : clamped;
  }

 private:
  int64_t low_;
  uint64_t high_;
  bool from_signed_;
};
class IntegerSaturated {
 public:
  explicit IntegerSaturated(const Instr& instr) : read_(instr), clamp_(instr), write_(instr) {}
  constexpr uint64_t lane(uint64_t raw) const { return write_.lane(clamp_.lane(read_.lane(raw))); }

 private:
  ReadInteger read_;
  ClampInteger clamp_;
  WriteInteger write_;
};

struct FloatToFloat {
  const Instr& instr;
  explicit FloatToFloat(const Instr& of) : instr(of) {}
  uint64_t lane(uint64_t raw) const {
    return in_format(instr, integral(double_of(instr, raw), instr.rounding));
  }
};
struct FloatToInteger {
  const Instr& instr;
  explicit FloatToInteger(const Instr& of) : instr(of) {}
  uint64_t lane(uint64_t raw) const {
    const double x = integral(double_of(instr, raw), instr.rounding);
    return WriteInteger(instr).lane(DoubleToInteger(instr).lane(x));
  }
};
struct IntegerToFloat {
  const Instr& instr;
  explicit IntegerToFloat(const Instr& of) : instr(of) {}
  uint64_t lane(uint64_t raw) const {
    const int64_t v = ReadInteger(instr).lane(raw);
    return in_format(instr,
                     instr.type == Type::u64 ? exactly(static_cast<uint64_t>(v)) : exactly(v));
  }

 private:
  // Rounded once, to the type itself, so that what follows is exact; or to odd.
  template <class Integer>
  double exactly(Integer v) const {
    if (instr.dtype == Type::f64) return converted_rounded<double>(v, instr.rounding);
    if (instr.dtype == Type::f32) return converted_rounded<float>(v, instr.rounding);
    return odd_unless_exact(converted_rounded<double>(v, Rounding::rz), v);
  }
};

}  // namespace vgpu::op::convert
