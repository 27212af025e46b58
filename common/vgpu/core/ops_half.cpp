// Half-precision and bf16 instructions (PTX ISA, "Half Precision Floating Point Instructions").
//
// Computed in float, 32 or 64 halves at a time. Sums and products of such numbers may be rounded to
// float first and to the format then: a float has more than twice their bits, and then some (Figueroa,
// "When is double rounding innocuous?", 1995). Fused multiply-adds go through a sum rounded to odd.
#include <cmath>
#include <limits>

#include "../ptx/forms.h"
#include "half.h"
#include "lanes.h"

namespace vgpu {
namespace {

using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;
using std::int16_t, std::int32_t;

struct F16 {
  static void widen(const uint16_t* from, float* to) { halves_to_floats(from, to); }
  static void narrow_all(const float* from, uint16_t* to) { floats_to_halves(from, to); }
  static uint16_t narrow_double(double v) { return static_cast<uint16_t>(narrow<Fp16>(v)); }
  static constexpr uint16_t exponent_mask = 0x7c00, nan = 0x7fff, one = 0x3c00;
};
struct BF16 {
  static void widen(const uint16_t* from, float* to) {
    for (int i = 0; i < kWarpSize; ++i) to[i] = float_from_bf16(from[i]);
  }
  static void narrow_all(const float* from, uint16_t* to) {
    for (int i = 0; i < kWarpSize; ++i) to[i] = bf16_from_float(from[i]);
  }
  static uint16_t narrow_double(double v) { return static_cast<uint16_t>(narrow<Bfloat16>(v)); }
  static constexpr uint16_t exponent_mask = 0x7f80, nan = 0x7fff, one = 0x3f80;
};

template <class F>
inline uint16_t flush(uint16_t v) { return (v & F::exponent_mask) ? v : v & 0x8000; }
template <class F>
inline bool is_nan(uint16_t v) { return (v & 0x7fff) > F::exponent_mask; }

struct Add { static float of(float a, float b) { return a + b; } };
struct Sub { static float of(float a, float b) { return a - b; } };
struct Mul { static float of(float a, float b) { return a * b; } };

// a b + c as a float rounded to odd: where the nearest float is not exact and its last bit is even,
// the neighbour on the side of the exact value. The format's rounding then cannot be led astray, since
// halfway between two of its numbers is even (Boldo and Melquiond, 2008).
template <class T, class Bits>
inline T sum_to_odd(T product, T c) {
  const T sum = product + c;
  const T z = sum - product;
  const T error = (product - (sum - z)) + (c - z);   // exact, or NaN where something is infinite
  const Bits bits = std::bit_cast<Bits>(sum);
  const Bits inexact = (error < 0) | (error > 0);
  const Bits away = (error < 0) == (sum < 0);
  const Bits step = inexact & ~bits & 1;
  return std::bit_cast<T>(bits + (away ? step : -step));
}
inline void fma_lanes(F16, const float* a, const float* b, const float* c, float* to) {
  // The product of two f16 has 22 bits: exact.
  for (int i = 0; i < kWarpSize; ++i) to[i] = sum_to_odd<float, uint32_t>(a[i] * b[i], c[i]);
}
inline void fma_lanes(BF16, const float* a, const float* b, const float* c, float* to) {
  // The product of two bf16 may be outside float's range, so: in double, then to an odd float.
  for (int i = 0; i < kWarpSize; ++i) {
    const double sum = sum_to_odd<double, uint64_t>(static_cast<double>(a[i]) * b[i], c[i]);
    const float nearest = static_cast<float>(sum);
    const double error = sum - nearest;
    const uint32_t bits = std::bit_cast<uint32_t>(nearest);
    const uint32_t inexact = (error < 0) | (error > 0);
    const uint32_t away = (error < 0) == (sum < 0);
    const uint32_t step = std::fabs(nearest) < HUGE_VALF ? inexact & ~bits & 1 : 0;
    to[i] = std::bit_cast<float>(bits + (away ? step : -step));
  }
}

// Results as .ftz, .sat and .relu want them: [0, 1] and NaN to +0; negative to +0.
template <class F>
inline void finish(const Instr& instr, uint16_t* d, int count) {
  if (instr.ftz)
    for (int i = 0; i < count; ++i) d[i] = flush<F>(d[i]);
  if (instr.sat)
    for (int i = 0; i < count; ++i) d[i] = is_nan<F>(d[i]) || (d[i] & 0x8000) ? uint16_t{0} : d[i] > F::one ? F::one : d[i];
  if (instr.relu)
    for (int i = 0; i < count; ++i) d[i] = (d[i] & 0x8000) && !is_nan<F>(d[i]) ? uint16_t{0} : d[i];
}

// An operand's halves as floats. kCount: 32, or 64 for x2.
template <class F, int kCount>
inline void read(Warp& warp, const Instr& instr, Slot slot, float* to) {
  using Half [[gnu::may_alias]] = uint16_t;
  const Half* from = warp.lanes<const Half>(slot);
  alignas(64) uint16_t flushed[kCount];
  if (instr.ftz) {
    for (int i = 0; i < kCount; ++i) flushed[i] = flush<F>(from[i]);
    from = flushed;
  }
  for (int i = 0; i < kCount; i += kWarpSize) F::widen(from + i, to + i);
}

template <class F, int kCount>
using Packed = Result<std::conditional_t<kCount == kWarpSize, uint16_t, uint32_t>>;

template <class F, class Op, int kCount>
void binary(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) float a[kCount], b[kCount];
  read<F, kCount>(warp, instr, instr.a, a);
  read<F, kCount>(warp, instr, instr.b, b);
  for (int i = 0; i < kCount; ++i) a[i] = Op::of(a[i], b[i]);
  Packed<F, kCount> result(warp, instr.d[0], mask);
  using Half [[gnu::may_alias]] = uint16_t;
  Half* d = reinterpret_cast<Half*>(result.lanes());
  for (int i = 0; i < kCount; i += kWarpSize) F::narrow_all(a + i, d + i);
  finish<F>(instr, d, kCount);
}

template <class F, int kCount>
void fused(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) float a[kCount], b[kCount], c[kCount];
  read<F, kCount>(warp, instr, instr.a, a);
  read<F, kCount>(warp, instr, instr.b, b);
  read<F, kCount>(warp, instr, instr.c, c);
  for (int i = 0; i < kCount; i += kWarpSize) fma_lanes(F{}, a + i, b + i, c + i, a + i);
  Packed<F, kCount> result(warp, instr.d[0], mask);
  using Half [[gnu::may_alias]] = uint16_t;
  Half* d = reinterpret_cast<Half*>(result.lanes());
  for (int i = 0; i < kCount; i += kWarpSize) F::narrow_all(a + i, d + i);
  finish<F>(instr, d, kCount);
}

// Operations on the bits of one or two operands.
template <class F, class Op, int kCount>
void on_bits(Warp& warp, const Instr& instr, uint32_t mask) {
  Packed<F, kCount> result(warp, instr.d[0], mask);
  using Half [[gnu::may_alias]] = uint16_t;
  Half* d = reinterpret_cast<Half*>(result.lanes());
  const Half* a = warp.lanes<const Half>(instr.a);
  const Half* b = instr.b.valid() ? warp.lanes<const Half>(instr.b) : a;
  const bool ftz = instr.ftz;
#pragma GCC ivdep
  for (int i = 0; i < kCount; ++i) {
    const uint16_t x = ftz ? flush<F>(a[i]) : a[i], y = ftz ? flush<F>(b[i]) : b[i];
    const uint16_t r = Op::template of<F>(x, y);
    d[i] = ftz ? flush<F>(r) : r;
  }
}

struct Neg { template <class F> static uint16_t of(uint16_t a, uint16_t) { return is_nan<F>(a) ? F::nan : a ^ 0x8000; } };
struct Abs { template <class F> static uint16_t of(uint16_t a, uint16_t) { return is_nan<F>(a) ? F::nan : a & 0x7fff; } };
struct Tanh {
  template <class F>
  static uint16_t of(uint16_t a, uint16_t) { return F::narrow_double(std::tanh(static_cast<double>(widen_one<F>(a)))); }
  template <class F>
  static float widen_one(uint16_t v) {
    if constexpr (std::is_same_v<F, F16>) return float_from_half(v);
    else return float_from_bf16(v);
  }
};
struct Ex2 {
  template <class F>
  static uint16_t of(uint16_t a, uint16_t) { return F::narrow_double(std::exp2(static_cast<double>(Tanh::widen_one<F>(a)))); }
};

// As integers: with the bits of negative numbers turned over, -0 is less than +0. A NaN loses against
// a number, or wins with .NaN.
template <bool kMax, bool kNan, bool kXorsign>
struct Extreme {
  template <class F>
  static uint16_t of(uint16_t a, uint16_t b) {
    const uint16_t sign = (a ^ b) & 0x8000;
    if (kXorsign) a &= 0x7fff, b &= 0x7fff;
    const auto key = [](uint16_t v) { return static_cast<int16_t>(v ^ ((static_cast<int16_t>(v) >> 15) & 0x7fff)); };
    const bool nan_a = is_nan<F>(a), nan_b = is_nan<F>(b);
    uint16_t r = (key(a) < key(b)) != kMax ? a : b;
    if (kNan) {
      r = (nan_a | nan_b) ? F::nan : r;
    } else {
      r = nan_b ? a : r;
      r = nan_a ? b : r;
      r = (nan_a & nan_b) ? F::nan : r;
    }
    return kXorsign && r != F::nan ? static_cast<uint16_t>(r | sign) : r;
  }
};

// f(format, std::integral_constant<int, halves in a register of 32 lanes>)
template <class F>
Handler for_format(const Instr& instr, F f) {
  using One = std::integral_constant<int, kWarpSize>;
  using Two = std::integral_constant<int, 2 * kWarpSize>;
  switch (instr.type) {
    case Type::f16: return f(F16{}, One{});
    case Type::f16x2: return f(F16{}, Two{});
    case Type::bf16: return f(BF16{}, One{});
    case Type::bf16x2: return f(BF16{}, Two{});
    default: return nullptr;
  }
}
template <class Op>
Handler arithmetic(const Instr& instr) {
  return for_format(instr, [](auto format, auto count) -> Handler { return &binary<decltype(format), Op, count()>; });
}
template <class Op>
Handler bits(const Instr& instr) {
  return for_format(instr, [](auto format, auto count) -> Handler { return &on_bits<decltype(format), Op, count()>; });
}
template <bool kMax>
Handler extreme(const Instr& instr, const Mods& mods) {
  if (mods.has("xorsign")) return instr.nan ? bits<Extreme<kMax, true, true>>(instr) : bits<Extreme<kMax, false, true>>(instr);
  return instr.nan ? bits<Extreme<kMax, true, false>>(instr) : bits<Extreme<kMax, false, false>>(instr);
}

}  // namespace

Handler bind_add_half(Instr& instr, const Mods&) { return arithmetic<Add>(instr); }
Handler bind_sub_half(Instr& instr, const Mods&) { return arithmetic<Sub>(instr); }
Handler bind_mul_half(Instr& instr, const Mods&) { return arithmetic<Mul>(instr); }
Handler bind_fma_half(Instr& instr, const Mods&) {
  if (instr.sat && instr.relu) return nullptr;   // one or the other
  return for_format(instr, [](auto format, auto count) -> Handler { return &fused<decltype(format), count()>; });
}
Handler bind_neg_half(Instr& instr, const Mods&) { return bits<Neg>(instr); }
Handler bind_abs_half(Instr& instr, const Mods&) { return bits<Abs>(instr); }
Handler bind_tanh_half(Instr& instr, const Mods&) { return bits<Tanh>(instr); }
Handler bind_ex2_half(Instr& instr, const Mods&) { return bits<Ex2>(instr); }
Handler bind_min_half(Instr& instr, const Mods& mods) { return extreme<false>(instr, mods); }
Handler bind_max_half(Instr& instr, const Mods& mods) { return extreme<true>(instr, mods); }

}  // namespace vgpu
