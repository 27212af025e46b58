// Half-precision and bf16 instructions (PTX ISA, "Half Precision Floating Point Instructions").
//
// Computed in float, 32 or 64 halves at a time. Sums and products of such numbers may be rounded to
// float first and to the format then: a float has more than twice their bits, and then some
// (Figueroa, "When is double rounding innocuous?", 1995). Fused multiply-adds go through a sum
// rounded to odd.
#include <array>
#include <cmath>
#include <memory>

#include "forms.h"
#include "half.h"
#include "../core/lanes.h"

namespace vgpu {
namespace {

using std::int16_t, std::int32_t;
using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;

using Double8 = double __attribute__((vector_size(64)));
using Long8 = int64_t __attribute__((vector_size(64)));

struct F16 {
  static Float8 widen(Half8 v) { return floats_from_halves(v); }
  static Half8 narrow8(Float8 v) { return halves_from_floats(v); }
  static uint16_t narrow_double(double v) { return static_cast<uint16_t>(narrow<Fp16>(v)); }
  static float widen_one(uint16_t v) { return float_from_half(v); }
  static constexpr uint16_t exponent_mask = 0x7c00, nan = 0x7fff, one = 0x3c00;
};
struct BF16 {
  static Float8 widen(Half8 v) {
    return reinterpret_cast<Float8>(__builtin_convertvector(v, Word8) << 16);
  }
  static Half8 narrow8(Float8 v) {
    const Word8 bits = reinterpret_cast<Word8>(v);
    const Word8 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return __builtin_convertvector(v == v ? rounded : Word8{} + 0x7fff, Half8);
  }
  static uint16_t narrow_double(double v) { return static_cast<uint16_t>(narrow<Bfloat16>(v)); }
  static float widen_one(uint16_t v) { return float_from_bf16(v); }
  static constexpr uint16_t exponent_mask = 0x7f80, nan = 0x7fff, one = 0x3f80;
};

template <class F>
inline uint16_t flush(uint16_t v) {
  return (v & F::exponent_mask) ? v : v & 0x8000;
}
template <class F>
inline bool is_nan(uint16_t v) {
  return (v & 0x7fff) > F::exponent_mask;
}

struct Add {
  static Float8 of(Float8 a, Float8 b) { return a + b; }
};
struct Sub {
  static Float8 of(Float8 a, Float8 b) { return a - b; }
};
struct Mul {
  static Float8 of(Float8 a, Float8 b) { return a * b; }
};

// `nearest`, the nearest float to a value that is `error` more, rounded to odd instead: where it is
// not exact and its last bit is even, the neighbour on the side of the exact value. The format's
// rounding then cannot be led astray, since halfway between two of its numbers is even (Boldo and
// Melquiond, 2008). The error is NaN where something is infinite.
template <class V, class Bits>
inline V made_odd(V nearest, V error) {
  const Bits bits = reinterpret_cast<Bits>(nearest);
  const Bits inexact = (error < 0) | (error > 0);
  const Bits inward = (error < 0) ^ (nearest < 0);  // ones: toward zero
  const Bits step = inexact & ~bits & 1;
  return reinterpret_cast<V>(bits + ((step ^ inward) - inward));
}
template <class V, class Bits>
inline V sum_to_odd(V product, V c) {
  const V sum = product + c;
  const V z = sum - product;
  return made_odd<V, Bits>(sum, (product - (sum - z)) + (c - z));
}
#if defined(__AVX512F__)
// The same with one fused operation rounded down and one rounded up: where they differ the last bit
// of one of them is odd. An exact zero is +0, the one rounded up.
constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC,
              kUp = _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC;
inline Float8 multiply_add(F16, Float8 a, Float8 b, Float8 c) {
  const auto wide = [](Float8 v) { return _mm512_castps256_ps512(reinterpret_cast<__m256>(v)); };
  const __m512 down = _mm512_fmadd_round_ps(wide(a), wide(b), wide(c), kDown);
  const __m512 up = _mm512_fmadd_round_ps(wide(a), wide(b), wide(c), kUp);
  const __mmask16 odd = _mm512_test_epi32_mask(_mm512_castps_si512(down), _mm512_set1_epi32(1));
  return reinterpret_cast<Float8>(_mm512_castps512_ps256(_mm512_mask_mov_ps(up, odd, down)));
}
inline Float8 multiply_add(BF16, Float8 a, Float8 b, Float8 c) {
  const auto wide = [](Float8 v) { return _mm512_cvtps_pd(reinterpret_cast<__m256>(v)); };
  const __m512d down = _mm512_fmadd_round_pd(wide(a), wide(b), wide(c), kDown);
  const __m512d up = _mm512_fmadd_round_pd(wide(a), wide(b), wide(c), kUp);
  const __mmask8 odd = _mm512_test_epi64_mask(_mm512_castpd_si512(down), _mm512_set1_epi64(1));
  const __m512d sum = _mm512_mask_mov_pd(up, odd, down);
  const Word8 low = reinterpret_cast<Word8>(_mm512_cvt_roundpd_ps(sum, kDown));
  const Word8 high = reinterpret_cast<Word8>(_mm512_cvt_roundpd_ps(sum, kUp));
  return reinterpret_cast<Float8>((low & 1) != 0 ? low : high);
}
#else
// The product of two f16 has 22 bits: exact in float.
inline Float8 multiply_add(F16, Float8 a, Float8 b, Float8 c) {
  return sum_to_odd<Float8, Word8>(a * b, c);
}
// The product of two bf16 may be outside float's range: in double, then to an odd float.
inline Float8 multiply_add(BF16, Float8 a, Float8 b, Float8 c) {
  const auto wide = [](Float8 v) { return __builtin_convertvector(v, Double8); };
  const Double8 sum = sum_to_odd<Double8, Long8>(wide(a) * wide(b), wide(c));
  const Float8 nearest = __builtin_convertvector(sum, Float8);
  // What is infinite as the nearest float rounds to infinity, too.
  const Float8 error = __builtin_convertvector(sum - wide(nearest), Float8);
  const Word8 size = reinterpret_cast<Word8>(nearest) & 0x7fffffff;
  return size < 0x7f800000 ? made_odd<Float8, Word8>(nearest, error) : nearest;
}
#endif

// Results as .ftz, .sat and .relu want them: [0, 1] and NaN to +0; negative to +0.
template <class F>
inline void finish(const Instr& instr, uint16_t* d, int count) {
  if (instr.ftz)
    for (int i = 0; i < count; ++i) d[i] = flush<F>(d[i]);
  if (instr.sat)
    for (int i = 0; i < count; ++i)
      d[i] = is_nan<F>(d[i]) || (d[i] & 0x8000) ? uint16_t{0} : d[i] > F::one ? F::one : d[i];
  if (instr.relu)
    for (int i = 0; i < count; ++i) d[i] = (d[i] & 0x8000) && !is_nan<F>(d[i]) ? uint16_t{0} : d[i];
}

template <class F>
inline Half8 flush8(Half8 v) {
  return (v & F::exponent_mask) != 0 ? v : v & 0x8000;
}

template <int kCount>
using Packed = Result<std::conditional_t<kCount == kWarpSize, uint16_t, uint32_t>>;

// kCount halves: 32, or 64 for x2. `f` of Float8s.
template <class F, int kCount, bool kThree, class Function>
inline void map_halves(Warp& warp, const Instr& instr, uint32_t mask, Function f) {
  Packed<kCount> result(warp, instr.d[0], mask);
  using Half [[gnu::may_alias]] = uint16_t;
  Half* d = reinterpret_cast<Half*>(result.lanes());
  const Half* a = warp.lanes<const Half>(instr.a);
  const Half* b = warp.lanes<const Half>(instr.b);
  const Half* c = kThree ? warp.lanes<const Half>(instr.c) : a;
  const bool ftz = instr.ftz;
  const auto read = [ftz](const Half* from) {
    const Half8 v = load8(from);
    return F::widen(ftz ? flush8<F>(v) : v);
  };
  for (int i = 0; i < kCount; i += 8) {
    if constexpr (kThree)
      store8(d + i, F::narrow8(f(read(a + i), read(b + i), read(c + i))));
    else
      store8(d + i, F::narrow8(f(read(a + i), read(b + i))));
  }
  finish<F>(instr, d, kCount);
}
template <class F, class Op, int kCount>
void binary(Warp& warp, const Instr& instr, uint32_t mask) {
  map_halves<F, kCount, false>(warp, instr, mask, [](Float8 a, Float8 b) { return Op::of(a, b); });
}
template <class F, int kCount>
void fused(Warp& warp, const Instr& instr, uint32_t mask) {
  map_halves<F, kCount, true>(
      warp, instr, mask, [](Float8 a, Float8 b, Float8 c) { return multiply_add(F{}, a, b, c); });
}

// Operations on the bits of one or two operands.
template <class F, class Op, int kCount>
void on_bits(Warp& warp, const Instr& instr, uint32_t mask) {
  Packed<kCount> result(warp, instr.d[0], mask);
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

struct Neg {
  template <class F>
  static uint16_t of(uint16_t a, uint16_t) {
    return is_nan<F>(a) ? F::nan : a ^ 0x8000;
  }
};
struct Abs {
  template <class F>
  static uint16_t of(uint16_t a, uint16_t) {
    return is_nan<F>(a) ? F::nan : a & 0x7fff;
  }
};

// Functions of so few operands are looked up; the tables are made when first needed.
template <class F, double (*kFunction)(double)>
const uint16_t* table_of() {
  static const auto table = [] {
    auto values = std::make_unique<std::array<uint16_t, 65536>>();
    for (uint32_t i = 0; i < 65536; ++i)
      (*values)[i] =
          F::narrow_double(kFunction(static_cast<double>(F::widen_one(static_cast<uint16_t>(i)))));
    return values;
  }();
  return table->data();
}
double tanh_exact(double x) { return std::tanh(x); }
double exp2_exact(double x) { return std::exp2(x); }

template <class F, double (*kFunction)(double), int kCount>
void look_up(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint16_t* table = table_of<F, kFunction>();
  Packed<kCount> result(warp, instr.d[0], mask);
  using Half [[gnu::may_alias]] = uint16_t;
  Half* d = reinterpret_cast<Half*>(result.lanes());
  const Half* a = warp.lanes<const Half>(instr.a);
  const bool ftz = instr.ftz;
  for (int i = 0; i < kCount; ++i) {
    const uint16_t r = table[ftz ? flush<F>(a[i]) : a[i]];
    d[i] = ftz ? flush<F>(r) : r;
  }
}

// As integers: with the bits of negative numbers turned over, -0 is less than +0. A NaN loses
// against a number, or wins with .NaN.
template <bool kMax, bool kNan, bool kXorsign>
struct Extreme {
  template <class F>
  static uint16_t of(uint16_t a, uint16_t b) {
    const uint16_t sign = (a ^ b) & 0x8000;
    if (kXorsign) a &= 0x7fff, b &= 0x7fff;
    const auto key = [](uint16_t v) {
      return static_cast<int16_t>(v ^ ((static_cast<int16_t>(v) >> 15) & 0x7fff));
    };
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
    case Type::f16:
      return f(F16{}, One{});
    case Type::f16x2:
      return f(F16{}, Two{});
    case Type::bf16:
      return f(BF16{}, One{});
    case Type::bf16x2:
      return f(BF16{}, Two{});
    default:
      return nullptr;
  }
}
template <class Op>
Handler arithmetic(const Instr& instr) {
  return for_format(instr, [](auto format, auto count) -> Handler {
    return &binary<decltype(format), Op, count()>;
  });
}
template <class Op>
Handler bits(const Instr& instr) {
  return for_format(instr, [](auto format, auto count) -> Handler {
    return &on_bits<decltype(format), Op, count()>;
  });
}
template <double (*kFunction)(double)>
Handler function(const Instr& instr) {
  return for_format(instr, [](auto format, auto count) -> Handler {
    return &look_up<decltype(format), kFunction, count()>;
  });
}
template <bool kMax>
Handler extreme(const Instr& instr, const Mods& mods) {
  if (mods.has("xorsign"))
    return instr.nan ? bits<Extreme<kMax, true, true>>(instr)
                     : bits<Extreme<kMax, false, true>>(instr);
  return instr.nan ? bits<Extreme<kMax, true, false>>(instr)
                   : bits<Extreme<kMax, false, false>>(instr);
}

}  // namespace

Handler bind_add_half(Instr& instr, const Mods&) { return arithmetic<Add>(instr); }
Handler bind_sub_half(Instr& instr, const Mods&) { return arithmetic<Sub>(instr); }
Handler bind_mul_half(Instr& instr, const Mods&) { return arithmetic<Mul>(instr); }
Handler bind_fma_half(Instr& instr, const Mods&) {
  if (instr.sat && instr.relu) return nullptr;  // one or the other
  return for_format(
      instr, [](auto format, auto count) -> Handler { return &fused<decltype(format), count()>; });
}
Handler bind_neg_half(Instr& instr, const Mods&) { return bits<Neg>(instr); }
Handler bind_abs_half(Instr& instr, const Mods&) { return bits<Abs>(instr); }
Handler bind_tanh_half(Instr& instr, const Mods&) { return function<&tanh_exact>(instr); }
Handler bind_ex2_half(Instr& instr, const Mods&) { return function<&exp2_exact>(instr); }
Handler bind_min_half(Instr& instr, const Mods& mods) { return extreme<false>(instr, mods); }
Handler bind_max_half(Instr& instr, const Mods& mods) { return extreme<true>(instr, mods); }

}  // namespace vgpu
