// cvt (PTX ISA, "Data Movement and Conversion Instructions: cvt" and "cvt.pack").
//
// Registers may be wider than the types: the source's low bits count, the destination is extended
// by its type's sign. Conversions go in stages over 32 lanes: registers to int64 or double, which
// hold every source value exactly; rounding; the destination's bits; the register. Each stage is a
// plain loop that becomes SIMD. The conversions of inner loops (f16 and bf16 from and to f32, index
// arithmetic, f32 from and to 32-bit integers) have handlers of their own.
#include <array>
#include <cfenv>
#include <cmath>
#include <limits>

#include "forms.h"
#include "half.h"
#include "../core/lanes.h"

namespace vgpu {
namespace {

using std::int16_t, std::int32_t, std::int64_t, std::int8_t;
using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;

// ---- stages: registers ----------------------------------------------------------------------

inline int64_t extended(uint64_t value, int bits, bool is_signed_type) {
  const int unused = 64 - bits;
  return is_signed_type ? static_cast<int64_t>(value << unused) >> unused
                        : static_cast<int64_t>(value << unused >> unused);
}

template <class T>
inline void widen_lanes(Warp& warp, Slot slot, uint64_t* to) {
  const T* from = warp.lanes<const T>(slot);
  for (int lane = 0; lane < kWarpSize; ++lane) to[lane] = from[lane];
}
void read_raw(Warp& warp, Slot slot, int bits, uint64_t* to) {
  switch (bits) {
    case 16:
      return widen_lanes<uint16_t>(warp, slot, to);
    case 32:
      return widen_lanes<uint32_t>(warp, slot, to);
    default:
      return widen_lanes<uint64_t>(warp, slot, to);
  }
}
// Integers as int64; those of u64 as the same bits.
void read_integers(Warp& warp, const Instr& instr, int64_t* to) {
  alignas(64) uint64_t raw[kWarpSize];
  read_raw(warp, instr.a, instr.a_bits, raw);
  const int bits = type_bits(instr.type);
  const bool is_signed_type = is_signed(instr.type);
  for (int lane = 0; lane < kWarpSize; ++lane) to[lane] = extended(raw[lane], bits, is_signed_type);
}
void read_doubles(Warp& warp, const Instr& instr, double* to) {
  alignas(64) uint64_t raw[kWarpSize];
  read_raw(warp, instr.a, instr.a_bits, raw);
  switch (instr.type) {
    case Type::f16: {
      alignas(64) uint16_t half[kWarpSize];
      alignas(64) float wide[kWarpSize];
      for (int i = 0; i < kWarpSize; ++i) half[i] = static_cast<uint16_t>(raw[i]);
      halves_to_floats(half, wide);
      for (int i = 0; i < kWarpSize; ++i) to[i] = wide[i];
      break;
    }
    case Type::bf16:
      for (int i = 0; i < kWarpSize; ++i) to[i] = float_from_bf16(static_cast<uint16_t>(raw[i]));
      break;
    case Type::f32: {
      const bool ftz = instr.ftz;
      for (int i = 0; i < kWarpSize; ++i) {
        const float x = std::bit_cast<float>(static_cast<uint32_t>(raw[i]));
        to[i] =
            ftz && std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
      }
      break;
    }
    default:
      for (int i = 0; i < kWarpSize; ++i) to[i] = std::bit_cast<double>(raw[i]);
  }
}

template <class T>
inline void write_lanes(Warp& warp, const Instr& instr, uint32_t mask, const uint64_t* from) {
  Result<T> result(warp, instr.d[0], mask);
  T* d = result.lanes();
  for (int lane = 0; lane < kWarpSize; ++lane) d[lane] = static_cast<T>(from[lane]);
}
void write_raw(Warp& warp, const Instr& instr, uint32_t mask, const uint64_t* from) {
  switch (instr.d_bits) {
    case 16:
      return write_lanes<uint16_t>(warp, instr, mask, from);
    case 32:
      return write_lanes<uint32_t>(warp, instr, mask, from);
    default:
      return write_lanes<uint64_t>(warp, instr, mask, from);
  }
}
// Integers of the destination's type, extended to its register.
void write_integers(Warp& warp, const Instr& instr, uint32_t mask, uint64_t* values) {
  const int bits = type_bits(instr.dtype);
  const bool is_signed_type = is_signed(instr.dtype);
  for (int lane = 0; lane < kWarpSize; ++lane)
    values[lane] = static_cast<uint64_t>(extended(values[lane], bits, is_signed_type));
  write_raw(warp, instr, mask, values);
}

// ---- stages: rounding -----------------------------------------------------------------------

void to_integral(double* x, Rounding rounding) {
  switch (rounding) {
    case Rounding::rzi:
      for (int i = 0; i < kWarpSize; ++i) x[i] = __builtin_trunc(x[i]);
      break;
    case Rounding::rmi:
      for (int i = 0; i < kWarpSize; ++i) x[i] = __builtin_floor(x[i]);
      break;
    case Rounding::rpi:
      for (int i = 0; i < kWarpSize; ++i) x[i] = __builtin_ceil(x[i]);
      break;
    case Rounding::rni:
      for (int i = 0; i < kWarpSize; ++i) x[i] = __builtin_nearbyint(x[i]);
      break;
    default:
      break;
  }
}

// The host rounds: its mode is set for the whole loop. Values go through memory that the calls
// might change, so that no conversion leaves the two.
template <class To, class From>
[[gnu::noinline]] void convert_rounded(const From* from, To* to, Rounding rounding) {
  if (rounding == Rounding::none || rounding == Rounding::rn) {
    for (int i = 0; i < kWarpSize; ++i) to[i] = static_cast<To>(from[i]);
    return;
  }
  asm volatile("" : : "r"(from), "r"(to) : "memory");
  std::fesetround(rounding == Rounding::rz   ? FE_TOWARDZERO
                  : rounding == Rounding::rm ? FE_DOWNWARD
                                             : FE_UPWARD);
  asm volatile("" : : "r"(from), "r"(to) : "memory");
  for (int i = 0; i < kWarpSize; ++i) to[i] = static_cast<To>(from[i]);
  asm volatile("" : : "r"(from), "r"(to) : "memory");
  std::fesetround(FE_TONEAREST);
  asm volatile("" : : "r"(from), "r"(to) : "memory");
}

// Doubles, each exact or rounded to odd, as bits of the destination's format.
void to_format(const Instr& instr, const double* from, uint64_t* to) {
  alignas(64) double x[kWarpSize];
  for (int i = 0; i < kWarpSize; ++i) x[i] = from[i];
  if (instr.relu)  // a NaN stays
    for (int i = 0; i < kWarpSize; ++i) x[i] = x[i] <= 0 ? 0.0 : x[i];
  if (instr.sat)  // a NaN becomes +0
    for (int i = 0; i < kWarpSize; ++i) x[i] = x[i] > 0 ? (x[i] < 1 ? x[i] : 1.0) : 0.0;
  const bool saturate = instr.variant;
  switch (instr.dtype) {
    case Type::f16:
      for (int i = 0; i < kWarpSize; ++i) to[i] = narrow<Fp16>(x[i], instr.rounding, saturate);
      break;
    case Type::bf16:
      for (int i = 0; i < kWarpSize; ++i) to[i] = narrow<Bfloat16>(x[i], instr.rounding, saturate);
      break;
    case Type::tf32:
      for (int i = 0; i < kWarpSize; ++i)
        to[i] = x[i] == x[i] ? narrow<Tf32>(x[i], instr.rounding, saturate) << 13 : 0x7fffffffu;
      break;
    case Type::f32: {
      alignas(64) float f[kWarpSize];
      convert_rounded(x, f, instr.rounding);
      const bool ftz = instr.ftz;
      for (int i = 0; i < kWarpSize; ++i) {
        const float r = canonical(f[i]);
        to[i] = std::bit_cast<uint32_t>(
            ftz && std::fabs(r) < std::numeric_limits<float>::min() ? std::copysign(0.0f, r) : r);
      }
      break;
    }
    default:
      for (int i = 0; i < kWarpSize; ++i) to[i] = std::bit_cast<uint64_t>(x[i]);
  }
}

// ---- integers -------------------------------------------------------------------------------

void integer_to_integer(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) int64_t v[kWarpSize];
  read_integers(warp, instr, v);
  write_integers(warp, instr, mask, reinterpret_cast<uint64_t*>(v));
}
// The range of an integer type, as what clamps to it.
int64_t lowest(Type type) { return is_signed(type) ? INT64_MIN >> (64 - type_bits(type)) : 0; }
uint64_t highest(Type type) {
  const int bits = type_bits(type) - (is_signed(type) ? 1 : 0);
  return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
}

void integer_saturated(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) int64_t v[kWarpSize];
  alignas(64) uint64_t r[kWarpSize];
  read_integers(warp, instr, v);
  const int64_t low = lowest(instr.dtype);
  const uint64_t high = highest(instr.dtype);
  const bool from_signed = is_signed(instr.type);
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const auto u = static_cast<uint64_t>(v[lane]);
    const uint64_t clamped = u > high ? high : u;
    const uint64_t negative = v[lane] < low ? static_cast<uint64_t>(low) : u;
    r[lane] = from_signed && v[lane] < 0 ? negative : clamped;
  }
  write_integers(warp, instr, mask, r);
}

// ---- floating point -------------------------------------------------------------------------

void float_to_float(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) double x[kWarpSize];
  alignas(64) uint64_t r[kWarpSize];
  read_doubles(warp, instr, x);
  to_integral(x, instr.rounding);
  to_format(instr, x, r);
  write_raw(warp, instr, mask, r);
}

void float_to_integer(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) double x[kWarpSize];
  alignas(64) uint64_t r[kWarpSize];
  read_doubles(warp, instr, x);
  to_integral(x, instr.rounding);
  const int bits = type_bits(instr.dtype);
  const bool to_signed = is_signed(instr.dtype);
  const double low = static_cast<double>(lowest(instr.dtype));
  const double beyond = std::ldexp(1.0, to_signed ? bits - 1 : bits);  // highest + 1
  const auto below = static_cast<uint64_t>(lowest(instr.dtype)), above = highest(instr.dtype);
  // What a NaN becomes depends on the types.
  const uint64_t not_a_number =
      instr.type == Type::f64 || bits == 64 ? uint64_t{1} << (bits - 1) : 0;
  // Numbers that do not fit are converted as 0 and replaced; those from 2^63 on are unsigned.
  constexpr double kHalf = 0x1p63;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const double in = x[lane] > low && x[lane] < beyond ? x[lane] : 0.0;
    const bool large = in >= kHalf;
    const auto whole = static_cast<uint64_t>(static_cast<int64_t>(large ? in - kHalf : in));
    uint64_t v = whole + (large ? uint64_t{1} << 63 : 0);
    v = x[lane] <= low ? below : v;
    v = x[lane] >= beyond ? above : v;
    r[lane] = x[lane] == x[lane] ? v : not_a_number;
  }
  write_integers(warp, instr, mask, r);
}
// The same for f32 to s32 and u32, in float: what does not fit is converted as 0 and replaced.
template <class Out, Rounding kRounding>
void float_to_word(Warp& warp, const Instr& instr, uint32_t mask) {
  constexpr Out low = std::numeric_limits<Out>::min(), high = std::numeric_limits<Out>::max();
  constexpr float beyond = std::is_signed_v<Out> ? 0x1p31f : 0x1p32f;
  constexpr float least = std::is_signed_v<Out> ? -0x1p31f : 0.0f;
  map1<Out, float>(warp, instr, mask, [](float v) {
    const float x = kRounding == Rounding::rzi   ? __builtin_truncf(v)
                    : kRounding == Rounding::rmi ? __builtin_floorf(v)
                    : kRounding == Rounding::rpi ? __builtin_ceilf(v)
                                                 : __builtin_nearbyintf(v);
    const uint32_t fits = (x >= least) & (x < beyond) ? ~0u : 0u;
    const Out whole = static_cast<Out>(std::bit_cast<float>(std::bit_cast<uint32_t>(x) & fits));
    return x >= beyond ? high : x < least ? low : whole;
  });
}

void integer_to_float(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) int64_t v[kWarpSize];
  alignas(64) double x[kWarpSize];
  alignas(64) uint64_t r[kWarpSize];
  read_integers(warp, instr, v);
  const auto* u = reinterpret_cast<const uint64_t*>(v);
  const bool wide_unsigned = instr.type == Type::u64;
  if (instr.dtype == Type::f64 || instr.dtype == Type::f32) {
    // Rounded once, to the type itself; what follows is exact.
    if (instr.dtype == Type::f64) {
      if (wide_unsigned)
        convert_rounded(u, x, instr.rounding);
      else
        convert_rounded(v, x, instr.rounding);
    } else {
      alignas(64) float f[kWarpSize];
      if (wide_unsigned)
        convert_rounded(u, f, instr.rounding);
      else
        convert_rounded(v, f, instr.rounding);
      for (int i = 0; i < kWarpSize; ++i) x[i] = f[i];
    }
  } else {
    // Rounded to odd, so that the second rounding is right for 64-bit integers too.
    if (wide_unsigned)
      convert_rounded(u, x, Rounding::rz);
    else
      convert_rounded(v, x, Rounding::rz);
    for (int i = 0; i < kWarpSize; ++i) {
      const bool exact =
          wide_unsigned ? static_cast<uint64_t>(x[i]) == u[i] : static_cast<int64_t>(x[i]) == v[i];
      x[i] = std::bit_cast<double>(std::bit_cast<uint64_t>(x[i]) | (exact ? 0 : 1));
    }
  }
  to_format(instr, x, r);
  write_raw(warp, instr, mask, r);
}

// ---- the usual ones -------------------------------------------------------------------------

void half_to_float(Warp& warp, const Instr& instr, uint32_t mask) {
  Result<float> result(warp, instr.d[0], mask);
  halves_to_floats(warp.lanes<const uint16_t>(instr.a), result.lanes());
}
void float_to_half(Warp& warp, const Instr& instr, uint32_t mask) {
  Result<uint16_t> result(warp, instr.d[0], mask);
  floats_to_halves(warp.lanes<const float>(instr.a), result.lanes());
}
void saturate_float(Warp& warp, const Instr& instr, uint32_t mask) {
  map1<float, float>(warp, instr, mask,
                     [](float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; });
}

// ---- two values to one register -------------------------------------------------------------

// A float as fp8, to the nearest, what is too large as the largest. A number becomes a multiple of
// the destination's last bit: of subnormal ones by adding a float whose last bit that is, of normal
// ones by adding half of it (just less where what is kept is even) to the bits.
template <class F>
inline uint32_t fp8_from_float(float x) {
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

template <class F>
struct Narrow;
template <>
struct Narrow<Fp16> {
  static constexpr int bits = 16;
  static void all(const float* from, uint16_t* to) { floats_to_halves(from, to); }
};
template <>
struct Narrow<Bfloat16> {
  static constexpr int bits = 16;
  static void all(const float* from, uint16_t* to) {
    for (int i = 0; i < kWarpSize; ++i) to[i] = bf16_from_float(from[i]);
  }
};
template <class F>
struct Narrow {
  static constexpr int bits = 8;
  static void all(const float* from, uint16_t* to) {
    for (int i = 0; i < kWarpSize; ++i) to[i] = static_cast<uint16_t>(fp8_from_float<F>(from[i]));
  }
};

// Two arrays of floats to one register, the first above the second; to the nearest. fp8 saturates.
template <class F>
void pack_lanes(Warp& warp, const Instr& instr, uint32_t mask, float* high, float* low) {
  if (instr.relu)
    for (float* x : {high, low})
      for (int i = 0; i < kWarpSize; ++i) x[i] = x[i] <= 0 ? 0.0f : x[i];
  alignas(64) uint16_t parts[2][kWarpSize];
  Narrow<F>::all(high, parts[0]);
  Narrow<F>::all(low, parts[1]);
  using Lane = std::conditional_t<Narrow<F>::bits == 16, uint32_t, uint16_t>;
  Result<Lane> result(warp, instr.d[0], mask);
  Lane* d = result.lanes();
  for (int i = 0; i < kWarpSize; ++i)
    d[i] = static_cast<Lane>(Lane{parts[0][i]} << Narrow<F>::bits | parts[1][i]);
}
// d = {a, b}: a becomes the upper part.
template <class F>
void pack_floats(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) float high[kWarpSize], low[kWarpSize];
  std::memcpy(high, warp.lanes<const float>(instr.a), sizeof high);
  std::memcpy(low, warp.lanes<const float>(instr.b), sizeof low);
  pack_lanes<F>(warp, instr, mask, high, low);
}
// The one that matters: two f32 to f16x2.
void pack_halves(Warp& warp, const Instr& instr, uint32_t mask) {
  Result<uint32_t> result(warp, instr.d[0], mask);
  uint32_t* d = result.lanes();
  const float* a = warp.lanes<const float>(instr.a);
  const float* b = warp.lanes<const float>(instr.b);
  for (int i = 0; i < kWarpSize; i += 8) {
    Float8 high, low;
    std::memcpy(&high, a + i, sizeof high);
    std::memcpy(&low, b + i, sizeof low);
    const Word8 pair = __builtin_convertvector(halves_from_floats(high), Word8) << 16 |
                       __builtin_convertvector(halves_from_floats(low), Word8);
    std::memcpy(d + i, &pair, sizeof pair);
  }
}
// Toward zero, and with .satfinite.
template <class F>
void pack_floats_exactly(Warp& warp, const Instr& instr, uint32_t mask) {
  const float* a = warp.lanes<const float>(instr.a);
  const float* b = warp.lanes<const float>(instr.b);
  uint32_t* d = warp.lanes<uint32_t>(instr.d[0]);
  const auto one = [&](double x) {
    return narrow<F>(instr.relu && x <= 0 ? 0.0 : x, instr.rounding, instr.variant);
  };
  each_lane(mask, [&](int lane) { d[lane] = one(a[lane]) << 16 | one(b[lane]); });
}

// f16x2 to two fp8 in 16 bits, and back.
template <class F>
void halves_to_fp8(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t* a = warp.lanes<const uint32_t>(instr.a);
  alignas(64) uint16_t half[2][kWarpSize];
  alignas(64) float wide[2][kWarpSize];
  for (int i = 0; i < kWarpSize; ++i) {
    half[0][i] = static_cast<uint16_t>(a[i] >> 16);
    half[1][i] = static_cast<uint16_t>(a[i]);
  }
  for (int part = 0; part < 2; ++part) halves_to_floats(half[part], wide[part]);
  pack_lanes<F>(warp, instr, mask, wide[0], wide[1]);
}
template <class F>
void fp8_to_halves(Warp& warp, const Instr& instr, uint32_t mask) {
  static const auto table = [] {
    std::array<uint16_t, 256> halves;
    for (uint32_t i = 0; i < 256; ++i) halves[i] = half_from_float(widen_format<F>(i));
    return halves;
  }();
  alignas(64) uint64_t pair[kWarpSize];
  read_raw(warp, instr.a, instr.a_bits, pair);
  const auto one = [&](uint64_t byte) -> uint32_t {
    const uint16_t half = table[byte & 0xff];
    return instr.relu && (half & 0x8000) ? 0 : half;  // the NaN has no sign
  };
  for (int i = 0; i < kWarpSize; ++i) pair[i] = one(pair[i] >> 8) << 16 | one(pair[i]);
  write_raw(warp, instr, mask, pair);
}

// cvt.pack.sat: two integers clamped into one register, above them what c holds.
void pack_integers(Warp& warp, const Instr& instr, uint32_t mask) {
  const int bits = type_bits(instr.dtype);
  const auto part = (uint64_t{1} << bits) - 1;
  const int64_t low = lowest(instr.dtype), high = static_cast<int64_t>(highest(instr.dtype));
  Result<uint32_t> result(warp, instr.d[0], mask);
  const int32_t* a = warp.lanes<const int32_t>(instr.a);
  const int32_t* b = warp.lanes<const int32_t>(instr.b);
  const uint32_t* c = instr.c.valid() ? warp.lanes<const uint32_t>(instr.c) : nullptr;
  uint32_t* d = result.lanes();
  const auto clamp = [&](int64_t v) {
    return static_cast<uint64_t>(v < low ? low : v > high ? high : v) & part;
  };
  for (int i = 0; i < kWarpSize; ++i) {
    const uint64_t above = c ? c[i] : 0;
    d[i] = static_cast<uint32_t>(above << (2 * bits) | clamp(a[i]) << bits | clamp(b[i]));
  }
}

// ---- which roundings a conversion needs -----------------------------------------------------

bool integral(Rounding r) {
  return r == Rounding::rni || r == Rounding::rzi || r == Rounding::rmi || r == Rounding::rpi;
}
// PTX ISA, cvt: a floating-point rounding where precision may be lost and nowhere else, rounding to
// an integer only within a type; .ftz only with .f32; .sat not for .bf16.
bool legal(const Instr& instr) {
  if (instr.ftz && instr.type != Type::f32 && instr.dtype != Type::f32) return false;
  if (instr.sat && instr.dtype == Type::bf16) return false;
  if (instr.type == instr.dtype)
    return instr.rounding == Rounding::none || integral(instr.rounding);
  if (integral(instr.rounding)) return false;
  const auto size = [](Type t) { return type_bits(t) + (t == Type::bf16 ? 1 : 0); };
  // f16 has the longer mantissa, bf16 the larger range: each loses something of the other.
  const bool halves = type_bits(instr.type) == 16 && type_bits(instr.dtype) == 16;
  const bool loses = halves || size(instr.dtype) < size(instr.type) || instr.dtype == Type::tf32;
  return loses == (instr.rounding != Rounding::none);
}

template <class Out>
Handler words_from_floats(Rounding rounding) {
  switch (rounding) {
    case Rounding::rzi:
      return &float_to_word<Out, Rounding::rzi>;
    case Rounding::rmi:
      return &float_to_word<Out, Rounding::rmi>;
    case Rounding::rpi:
      return &float_to_word<Out, Rounding::rpi>;
    default:
      return &float_to_word<Out, Rounding::rni>;
  }
}

// floorf and its kin.
Handler integral_floats(Rounding rounding) {
  switch (rounding) {
    case Rounding::rzi:
      return handler1<float, float>([](float x) { return canonical(__builtin_truncf(x)); });
    case Rounding::rmi:
      return handler1<float, float>([](float x) { return canonical(__builtin_floorf(x)); });
    case Rounding::rpi:
      return handler1<float, float>([](float x) { return canonical(__builtin_ceilf(x)); });
    default:
      return handler1<float, float>([](float x) { return canonical(__builtin_nearbyintf(x)); });
  }
}

// From a register through a type to a register.
template <class In, class Out>
Handler through(Type type) {
  switch (type) {
    case Type::u8:
      return handler1<Out, In>([](In v) { return static_cast<uint8_t>(v); });
    case Type::s8:
      return handler1<Out, In>([](In v) { return static_cast<int8_t>(v); });
    case Type::u16:
      return handler1<Out, In>([](In v) { return static_cast<uint16_t>(v); });
    case Type::s16:
      return handler1<Out, In>([](In v) { return static_cast<int16_t>(v); });
    case Type::u32:
      return handler1<Out, In>([](In v) { return static_cast<uint32_t>(v); });
    case Type::s32:
      return handler1<Out, In>([](In v) { return static_cast<int32_t>(v); });
    default:
      return handler1<Out, In>([](In v) { return v; });
  }
}
template <class In>
Handler through(Type type, int d_bits) {
  switch (d_bits) {
    case 16:
      return through<In, uint16_t>(type);
    case 32:
      return through<In, uint32_t>(type);
    default:
      return through<In, uint64_t>(type);
  }
}

}  // namespace

Handler bind_cvt_integer(Instr& instr, const Mods&) {
  if (instr.sat) return &integer_saturated;
  const int from = type_bits(instr.type), to = type_bits(instr.dtype);
  // One of the two types decides alone: the source's where the destination fills its register, the
  // destination's where it is no wider than the source's.
  if (to == instr.d_bits || to <= from) {
    const Type decides = to <= from ? instr.dtype : instr.type;
    switch (instr.a_bits) {
      case 16:
        return through<uint16_t>(decides, instr.d_bits);
      case 32:
        return through<uint32_t>(decides, instr.d_bits);
      default:
        return through<uint64_t>(decides, instr.d_bits);
    }
  }
  return &integer_to_integer;
}
Handler bind_cvt_float_to_integer(Instr& instr, const Mods&) {
  if (instr.ftz && instr.type != Type::f32) return nullptr;
  const bool plain = instr.type == Type::f32 && instr.a_bits == 32 && instr.d_bits == 32;
  // .ftz changes nothing where small numbers become zero anyway.
  const bool same =
      !instr.ftz || instr.rounding == Rounding::rzi || instr.rounding == Rounding::rni;
  if (plain && same && instr.dtype == Type::s32) return words_from_floats<int32_t>(instr.rounding);
  if (plain && same && instr.dtype == Type::u32) return words_from_floats<uint32_t>(instr.rounding);
  return &float_to_integer;
}
Handler bind_cvt_integer_to_float(Instr& instr, const Mods&) {
  if (instr.sat && instr.dtype == Type::bf16) return nullptr;
  const bool plain = instr.rounding == Rounding::rn && !instr.sat && instr.dtype == Type::f32 &&
                     instr.a_bits == 32 && instr.d_bits == 32;
  if (plain && instr.type == Type::s32)
    return handler1<float, int32_t>([](int32_t x) { return static_cast<float>(x); });
  if (plain && instr.type == Type::u32)
    return handler1<float, uint32_t>([](uint32_t x) { return static_cast<float>(x); });
  if (!instr.sat && instr.dtype == Type::f64 && instr.a_bits == 32) {  // exact
    if (instr.type == Type::s32)
      return handler1<double, int32_t>([](int32_t x) { return static_cast<double>(x); });
    if (instr.type == Type::u32)
      return handler1<double, uint32_t>([](uint32_t x) { return static_cast<double>(x); });
  }
  return &integer_to_float;
}
Handler bind_cvt_float(Instr& instr, const Mods& mods) {
  if (!legal(instr)) return nullptr;
  instr.variant = mods.has("satfinite");
  const Type to = instr.dtype, from = instr.type;
  const bool nearest = instr.rounding == Rounding::none || instr.rounding == Rounding::rn;
  const bool plain = nearest && !instr.sat && !instr.relu && !instr.ftz && !instr.variant &&
                     instr.a_bits == type_bits(from) && instr.d_bits == type_bits(to);
  if (plain && to == Type::f32 && from == Type::f16) return &half_to_float;
  if (plain && to == Type::f16 && from == Type::f32) return &float_to_half;
  if (plain && to == Type::f32 && from == Type::bf16)
    return handler1<float, uint16_t>([](uint16_t x) { return float_from_bf16(x); });
  if (plain && to == Type::bf16 && from == Type::f32)
    return handler1<uint16_t, float>([](float x) { return bf16_from_float(x); });
  if (plain && to == Type::f64 && from == Type::f32)
    return handler1<double, float>([](float x) { return static_cast<double>(x); });
  if (plain && to == Type::f32 && from == Type::f64)
    return handler1<float, double>([](double x) { return canonical(static_cast<float>(x)); });
  if (to == Type::f32 && from == Type::f32 && integral(instr.rounding) && !instr.sat && !instr.ftz)
    return integral_floats(instr.rounding);
  // Away from zero where halfway: half of the last bit is added; the bits carry into the exponent.
  if (to == Type::tf32 && instr.rounding == Rounding::rna && !instr.variant && !instr.relu)
    return handler1<uint32_t, uint32_t>([](uint32_t x) {
      return (x & 0x7fffffff) > 0x7f800000u ? 0x7fffffffu : (x + 0x1000) & 0xffffe000u;
    });
  if (to == Type::f32 && from == Type::f32 && instr.sat && !instr.ftz && nearest)
    return &saturate_float;
  return &float_to_float;
}
Handler bind_cvt_pair(Instr& instr, const Mods& mods) {
  instr.variant = mods.has("satfinite");
  const bool plain = instr.rounding == Rounding::rn && !instr.variant;
  switch (instr.dtype) {
    case Type::f16x2:
      if (plain && !instr.relu) return &pack_halves;
      return plain ? &pack_floats<Fp16> : &pack_floats_exactly<Fp16>;
    case Type::bf16x2:
      return plain ? &pack_floats<Bfloat16> : &pack_floats_exactly<Bfloat16>;
    case Type::e4m3x2:
      return &pack_floats<E4M3>;
    case Type::e5m2x2:
      return &pack_floats<E5M2>;
    default:
      return nullptr;
  }
}
Handler bind_cvt_fp8(Instr& instr, const Mods&) {
  if (instr.dtype == Type::f16x2)
    return instr.type == Type::e4m3x2 ? &fp8_to_halves<E4M3> : &fp8_to_halves<E5M2>;
  return instr.dtype == Type::e4m3x2 ? &halves_to_fp8<E4M3> : &halves_to_fp8<E5M2>;
}
Handler bind_cvt_pack(Instr&, const Mods&) { return &pack_integers; }

}  // namespace vgpu
