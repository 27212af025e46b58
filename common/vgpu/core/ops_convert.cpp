// cvt (PTX ISA, "Data Movement and Conversion Instructions: cvt").
//
// Registers may be wider than the types: the source's low bits count, the destination is extended
// by its type's sign. Everything that is not on a hot path goes through int64 or double, which hold
// every source value exactly.
#include <cfenv>
#include <cmath>
#include <limits>

#include "../ptx/forms.h"
#include "half.h"
#include "lanes.h"

namespace vgpu {
namespace {

using std::int16_t, std::int32_t, std::int64_t, std::int8_t;
using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;

// ---- integers -------------------------------------------------------------------------------

inline int64_t extended(uint64_t value, int bits, bool is_signed_type) {
  const int unused = 64 - bits;
  return is_signed_type ? static_cast<int64_t>(value << unused) >> unused
                        : static_cast<int64_t>(value << unused >> unused);
}

template <class In, class Out>
void integer_to_integer(Warp& warp, const Instr& instr, uint32_t mask) {
  const int from = type_bits(instr.type), to = type_bits(instr.dtype);
  const bool from_signed = is_signed(instr.type), to_signed = is_signed(instr.dtype);
  map1<Out, In>(warp, instr, mask, [=](In value) {
    return static_cast<Out>(extended(static_cast<uint64_t>(extended(value, from, from_signed)), to, to_signed));
  });
}
// The two that index arithmetic is made of.
template <class In, class Out>
void plain_integer(Warp& warp, const Instr& instr, uint32_t mask) {
  map1<Out, In>(warp, instr, mask, [](In value) { return static_cast<Out>(value); });
}

// The range of an integer type, as what clamps to it.
int64_t lowest(Type type) { return is_signed(type) ? -(int64_t{1} << (type_bits(type) - 1)) : 0; }
uint64_t highest(Type type) {
  const int bits = type_bits(type) - (is_signed(type) ? 1 : 0);
  return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
}

uint64_t read_lane(Warp& warp, Slot slot, int bits, int lane) {
  switch (bits) {
    case 16: return warp.lanes<const uint16_t>(slot)[lane];
    case 32: return warp.lanes<const uint32_t>(slot)[lane];
    default: return warp.lanes<const uint64_t>(slot)[lane];
  }
}
void write_lane(Warp& warp, Slot slot, int bits, int lane, uint64_t value) {
  switch (bits) {
    case 16: warp.lanes<uint16_t>(slot)[lane] = static_cast<uint16_t>(value); break;
    case 32: warp.lanes<uint32_t>(slot)[lane] = static_cast<uint32_t>(value); break;
    default: warp.lanes<uint64_t>(slot)[lane] = value;
  }
}
// Extends an integer result to the destination register.
void write_integer(Warp& warp, const Instr& instr, int lane, uint64_t value) {
  write_lane(warp, instr.d[0], instr.d_bits, lane,
             static_cast<uint64_t>(extended(value, type_bits(instr.dtype), is_signed(instr.dtype))));
}

void integer_saturated(Warp& warp, const Instr& instr, uint32_t mask) {
  const int64_t low = lowest(instr.dtype);
  const uint64_t high = highest(instr.dtype);
  each_lane(mask, [&](int lane) {
    const uint64_t raw = read_lane(warp, instr.a, instr.a_bits, lane);
    const int64_t value = extended(raw, type_bits(instr.type), is_signed(instr.type));
    const bool negative = is_signed(instr.type) && value < 0;
    uint64_t result = static_cast<uint64_t>(value);
    if (negative) result = value < low ? static_cast<uint64_t>(low) : result;
    else if (static_cast<uint64_t>(value) > high) result = high;
    write_integer(warp, instr, lane, result);
  });
}

// ---- floating point -------------------------------------------------------------------------

double read_float(Warp& warp, const Instr& instr, int lane) {
  const uint64_t raw = read_lane(warp, instr.a, instr.a_bits, lane);
  switch (instr.type) {
    case Type::f16: return float_from_half(static_cast<uint16_t>(raw));
    case Type::bf16: return float_from_bf16(static_cast<uint16_t>(raw));
    case Type::f32: {
      const float x = std::bit_cast<float>(static_cast<uint32_t>(raw));
      return instr.ftz && std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
    }
    default: return std::bit_cast<double>(raw);
  }
}

double to_integral(double x, Rounding rounding) {
  switch (rounding) {
    case Rounding::rzi: return std::trunc(x);
    case Rounding::rmi: return std::floor(x);
    case Rounding::rpi: return std::ceil(x);
    case Rounding::rni: return std::nearbyint(x);
    default: return x;
  }
}

int host_rounding(Rounding rounding) {
  switch (rounding) {
    case Rounding::rz: return FE_TOWARDZERO;
    case Rounding::rm: return FE_DOWNWARD;
    case Rounding::rp: return FE_UPWARD;
    default: return FE_TONEAREST;
  }
}
template <class To, class From>
[[gnu::noinline]] To rounded(From value, Rounding rounding) {
  volatile From in = value;
  std::fesetround(host_rounding(rounding));
  volatile To out = static_cast<To>(in);
  std::fesetround(FE_TONEAREST);
  return out;
}

// A value that is exact in double, as the destination's bits.
uint64_t float_bits(const Instr& instr, double x) {
  if (instr.relu) x = x > 0 || x != x ? x : 0.0;
  if (instr.sat) x = x > 0 ? (x < 1 ? x : 1.0) : 0.0;
  switch (instr.dtype) {
    case Type::f16: return narrow<Fp16>(x, instr.rounding, instr.variant);
    case Type::bf16: return narrow<Bfloat16>(x, instr.rounding, instr.variant);
    case Type::f32: {
      float f = canonical(rounded<float>(x, instr.rounding));
      if (instr.ftz && std::fabs(f) < std::numeric_limits<float>::min()) f = std::copysign(0.0f, f);
      return std::bit_cast<uint32_t>(f);
    }
    case Type::tf32: return x == x ? narrow<Tf32>(x, instr.rounding, instr.variant) << 13 : 0x7fffffffu;
    default: return std::bit_cast<uint64_t>(x);
  }
}

void float_to_float(Warp& warp, const Instr& instr, uint32_t mask) {
  each_lane(mask, [&](int lane) {
    const double x = to_integral(read_float(warp, instr, lane), instr.rounding);
    write_lane(warp, instr.d[0], instr.d_bits, lane, float_bits(instr, x));
  });
}

void float_to_integer(Warp& warp, const Instr& instr, uint32_t mask) {
  const int bits = type_bits(instr.dtype);
  const double low = static_cast<double>(lowest(instr.dtype));
  const double beyond = std::ldexp(1.0, is_signed(instr.dtype) ? bits - 1 : bits);   // highest + 1
  // What a NaN becomes depends on the types (PTX ISA, cvt).
  const uint64_t not_a_number = instr.type == Type::f64 || bits == 64 ? uint64_t{1} << (bits - 1) : 0;
  each_lane(mask, [&](int lane) {
    const double x = to_integral(read_float(warp, instr, lane), instr.rounding);
    uint64_t result;
    if (x != x) result = not_a_number;
    else if (x <= low) result = static_cast<uint64_t>(lowest(instr.dtype));
    else if (x >= beyond) result = highest(instr.dtype);
    else result = x < 0 ? static_cast<uint64_t>(static_cast<int64_t>(x)) : static_cast<uint64_t>(x);
    write_integer(warp, instr, lane, result);
  });
}

void integer_to_float(Warp& warp, const Instr& instr, uint32_t mask) {
  each_lane(mask, [&](int lane) {
    const uint64_t raw = read_lane(warp, instr.a, instr.a_bits, lane);
    const int64_t value = extended(raw, type_bits(instr.type), is_signed(instr.type));
    const bool wide_unsigned = instr.type == Type::u64;
    uint64_t bits;
    if (instr.dtype == Type::f64) {
      double x = wide_unsigned ? rounded<double>(raw, instr.rounding) : rounded<double>(value, instr.rounding);
      if (instr.sat) x = x > 0 ? (x < 1 ? x : 1.0) : 0.0;
      bits = std::bit_cast<uint64_t>(x);
    } else if (instr.dtype == Type::f32) {
      float x = wide_unsigned ? rounded<float>(raw, instr.rounding) : rounded<float>(value, instr.rounding);
      if (instr.sat) x = x > 0 ? (x < 1 ? x : 1.0f) : 0.0f;
      bits = std::bit_cast<uint32_t>(x);
    } else {
      // Odd rounding to double first, so that the second rounding is right for 64-bit integers too.
      const double toward_zero = wide_unsigned ? rounded<double>(raw, Rounding::rz) : rounded<double>(value, Rounding::rz);
      auto odd = std::bit_cast<uint64_t>(toward_zero);
      const bool exact = wide_unsigned ? static_cast<uint64_t>(toward_zero) == raw : static_cast<int64_t>(toward_zero) == value;
      if (!exact) odd |= 1;
      bits = float_bits(instr, std::bit_cast<double>(odd));
    }
    write_lane(warp, instr.d[0], instr.d_bits, lane, bits);
  });
}

// ---- hot paths ------------------------------------------------------------------------------

void half_to_float(Warp& warp, const Instr& instr, uint32_t mask) {
  Result<float> result(warp, instr.d[0], mask);
  halves_to_floats(warp.lanes<const uint16_t>(instr.a), result.lanes());
}
void float_to_half(Warp& warp, const Instr& instr, uint32_t mask) {
  Result<uint16_t> result(warp, instr.d[0], mask);
  floats_to_halves(warp.lanes<const float>(instr.a), result.lanes());
}
void saturate_float(Warp& warp, const Instr& instr, uint32_t mask) {
  map1<float, float>(warp, instr, mask, [](float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; });
}

// ---- two values to one register -------------------------------------------------------------

// d = {a, b}: a becomes the high part.
template <class F, int kBits>
void pack_floats(Warp& warp, const Instr& instr, uint32_t mask) {
  const float* a = warp.lanes<const float>(instr.a);
  const float* b = warp.lanes<const float>(instr.b);
  auto one = [&](double x) -> uint32_t {
    if (instr.relu) x = x > 0 || x != x ? x : 0.0;
    return narrow<F>(x, instr.rounding, instr.variant);
  };
  each_lane(mask, [&](int lane) {
    write_lane(warp, instr.d[0], instr.d_bits, lane, one(a[lane]) << kBits | one(b[lane]));
  });
}
void pack_halves_fast(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) uint16_t high[kWarpSize], low[kWarpSize];
  floats_to_halves(warp.lanes<const float>(instr.a), high);
  floats_to_halves(warp.lanes<const float>(instr.b), low);
  Result<uint32_t> result(warp, instr.d[0], mask);
  uint32_t* d = result.lanes();
  for (int lane = 0; lane < kWarpSize; ++lane) d[lane] = static_cast<uint32_t>(high[lane]) << 16 | low[lane];
}
// f16x2 <-> two fp8 in 16 bits.
template <class F>
void halves_to_fp8(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t* a = warp.lanes<const uint32_t>(instr.a);
  auto one = [&](uint32_t half) -> uint32_t {
    double x = float_from_half(static_cast<uint16_t>(half));
    if (instr.relu) x = x > 0 || x != x ? x : 0.0;
    return narrow<F>(x, Rounding::rn, true);
  };
  each_lane(mask, [&](int lane) {
    write_lane(warp, instr.d[0], instr.d_bits, lane, one(a[lane] >> 16) << 8 | one(a[lane] & 0xffff));
  });
}
template <class F>
void fp8_to_halves(Warp& warp, const Instr& instr, uint32_t mask) {
  each_lane(mask, [&](int lane) {
    const auto pair = static_cast<uint32_t>(read_lane(warp, instr.a, instr.a_bits, lane));
    auto one = [&](uint32_t bits) -> uint32_t {
      const float x = widen_format<F>(bits & 0xff);
      return half_from_float(instr.relu && !(x > 0) && x == x ? 0.0f : x);
    };
    write_lane(warp, instr.d[0], instr.d_bits, lane, one(pair >> 8) << 16 | one(pair));
  });
}

// cvt.pack.sat: two integers clamped into one register, above what c holds.
void pack_integers(Warp& warp, const Instr& instr, uint32_t mask) {
  const int32_t* a = warp.lanes<const int32_t>(instr.a);
  const int32_t* b = warp.lanes<const int32_t>(instr.b);
  const uint32_t* c = instr.c.valid() ? warp.lanes<const uint32_t>(instr.c) : nullptr;
  const int bits = type_bits(instr.dtype);
  const auto part = (uint64_t{1} << bits) - 1;
  const int64_t low = lowest(instr.dtype), high = static_cast<int64_t>(highest(instr.dtype));
  uint32_t* d = warp.lanes<uint32_t>(instr.d[0]);
  each_lane(mask, [&](int lane) {
    const auto clamp = [&](int64_t v) { return static_cast<uint64_t>(v < low ? low : v > high ? high : v) & part; };
    const uint64_t above = c ? c[lane] : 0;
    d[lane] = static_cast<uint32_t>(above << (2 * bits) | clamp(a[lane]) << bits | clamp(b[lane]));
  });
}

template <class In>
Handler integers_from(int d_bits) {
  switch (d_bits) {
    case 16: return &integer_to_integer<In, uint16_t>;
    case 32: return &integer_to_integer<In, uint32_t>;
    case 64: return &integer_to_integer<In, uint64_t>;
    default: return nullptr;
  }
}

}  // namespace

Handler bind_cvt_integer(Instr& instr, const Mods&) {
  if (instr.sat) return &integer_saturated;
  const bool exact = instr.a_bits == type_bits(instr.type) && instr.d_bits == type_bits(instr.dtype);
  if (exact && instr.a_bits == 32 && instr.d_bits == 64)
    return is_signed(instr.type) ? &plain_integer<int32_t, int64_t> : &plain_integer<uint32_t, uint64_t>;
  if (exact && instr.a_bits == 64 && instr.d_bits == 32) return &plain_integer<uint64_t, uint32_t>;
  switch (instr.a_bits) {
    case 16: return integers_from<uint16_t>(instr.d_bits);
    case 32: return integers_from<uint32_t>(instr.d_bits);
    case 64: return integers_from<uint64_t>(instr.d_bits);
    default: return nullptr;
  }
}
Handler bind_cvt_float_to_integer(Instr&, const Mods&) { return &float_to_integer; }
Handler bind_cvt_integer_to_float(Instr& instr, const Mods&) {
  const bool plain = instr.rounding == Rounding::rn && !instr.sat && instr.dtype == Type::f32 && instr.a_bits == 32 && instr.d_bits == 32;
  if (plain && instr.type == Type::s32) return handler1<float, int32_t>([](int32_t x) { return static_cast<float>(x); });
  if (plain && instr.type == Type::u32) return handler1<float, uint32_t>([](uint32_t x) { return static_cast<float>(x); });
  return &integer_to_float;
}
Handler bind_cvt_float(Instr& instr, const Mods& mods) {
  instr.variant = mods.has("satfinite");
  const bool plain = !instr.sat && !instr.relu && !instr.ftz && !instr.variant;
  const bool narrow_in = instr.a_bits == type_bits(instr.type), narrow_out = instr.d_bits == type_bits(instr.dtype);
  if (!narrow_in || !narrow_out) return &float_to_float;
  if (plain && instr.dtype == Type::f32 && instr.type == Type::f16 && instr.rounding == Rounding::none) return &half_to_float;
  if (plain && instr.dtype == Type::f16 && instr.type == Type::f32 && instr.rounding == Rounding::rn) return &float_to_half;
  if (instr.dtype == Type::f32 && instr.type == Type::f32 && instr.sat && !instr.ftz && instr.rounding == Rounding::none)
    return &saturate_float;
  if (plain && instr.dtype == Type::f32 && instr.type == Type::bf16 && instr.rounding == Rounding::none)
    return handler1<float, uint16_t>([](uint16_t x) { return float_from_bf16(x); });
  if (plain && instr.dtype == Type::f64 && instr.type == Type::f32 && instr.rounding == Rounding::none)
    return handler1<double, float>([](float x) { return static_cast<double>(x); });
  if (plain && instr.dtype == Type::f32 && instr.type == Type::f64 && instr.rounding == Rounding::rn)
    return handler1<float, double>([](double x) { return canonical(static_cast<float>(x)); });
  return &float_to_float;
}
Handler bind_cvt_pair(Instr& instr, const Mods& mods) {
  instr.variant = mods.has("satfinite");
  switch (instr.dtype) {
    case Type::f16x2:
      return instr.rounding == Rounding::rn && !instr.relu && !instr.variant ? &pack_halves_fast : &pack_floats<Fp16, 16>;
    case Type::bf16x2: return &pack_floats<Bfloat16, 16>;
    case Type::e4m3x2: return &pack_floats<E4M3, 8>;
    case Type::e5m2x2: return &pack_floats<E5M2, 8>;
    default: return nullptr;
  }
}
Handler bind_cvt_fp8(Instr& instr, const Mods&) {
  if (instr.dtype == Type::f16x2) return instr.type == Type::e4m3x2 ? &fp8_to_halves<E4M3> : &fp8_to_halves<E5M2>;
  return instr.dtype == Type::e4m3x2 ? &halves_to_fp8<E4M3> : &halves_to_fp8<E5M2>;
}
Handler bind_cvt_pack(Instr&, const Mods&) { return &pack_integers; }

}  // namespace vgpu
