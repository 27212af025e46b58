// What the instructions of f16 and bf16 do to one lane (PTX ISA, "Half Precision Floating Point
// Instructions"). See core/signature.h.
//
// Arithmetic is computed in float, eight halves at a time (`eight`; `lane` is one of the eight),
// since no compiler makes vectors of the conversions by itself. Sums and products of such numbers
// may be rounded to float first and to the format then: a float has more than twice their bits, and
// then some (Figueroa, "When is double rounding innocuous?", 1995). Fused multiply-adds go through
// a sum rounded to odd.
#pragma once
#include <array>
#include <cmath>
#include <memory>

#include "../half.h"

namespace vgpu::op::half {

using std::int16_t, std::int32_t, std::int64_t;
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
constexpr uint16_t flush(uint16_t v) {
  return (v & F::exponent_mask) ? v : v & 0x8000;
}
template <class F>
constexpr bool is_nan(uint16_t v) {
  return (v & 0x7fff) > F::exponent_mask;
}

// On floats, eight of them.
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
  // (_mm512_cvtps_pd brings GCC 12's warning of __Y, which its own header leaves undefined.)
  const auto wide = [](Float8 v) {
    return reinterpret_cast<__m512d>(__builtin_convertvector(v, Double8));
  };
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

// ---- the operations, made from the instruction -----------------------------------------------

inline Half8 eight_of(uint16_t v) { return Half8{} + v; }

// add, sub, mul of the format F; `eight` leaves .ftz of the result, .sat and .relu to finish().
template <class F, class Op>
struct Arithmetic {
  const Instr& instr;
  const bool ftz;
  explicit Arithmetic(const Instr& of) : instr(of), ftz(of.ftz) {}
  Float8 read(Half8 v) const { return F::widen(ftz ? flush8<F>(v) : v); }
  Half8 eight(Half8 a, Half8 b) const { return F::narrow8(Op::of(read(a), read(b))); }
  uint16_t lane(uint16_t a, uint16_t b) const {
    uint16_t d = eight(eight_of(a), eight_of(b))[0];
    finish<F>(instr, &d, 1);
    return d;
  }
};
template <class F>
struct Fused {
  const Instr& instr;
  const bool ftz;
  explicit Fused(const Instr& of) : instr(of), ftz(of.ftz) {}
  Float8 read(Half8 v) const { return F::widen(ftz ? flush8<F>(v) : v); }
  Half8 eight(Half8 a, Half8 b, Half8 c) const {
    return F::narrow8(multiply_add(F{}, read(a), read(b), read(c)));
  }
  uint16_t lane(uint16_t a, uint16_t b, uint16_t c) const {
    uint16_t d = eight(eight_of(a), eight_of(b), eight_of(c))[0];
    finish<F>(instr, &d, 1);
    return d;
  }
};

struct Neg {
  template <class F>
  static constexpr uint16_t of(uint16_t a) {
    return is_nan<F>(a) ? F::nan : a ^ 0x8000;
  }
};
struct Abs {
  template <class F>
  static constexpr uint16_t of(uint16_t a) {
    return is_nan<F>(a) ? F::nan : a & 0x7fff;
  }
};

// As integers: with the bits of negative numbers turned over, -0 is less than +0. A NaN loses
// against a number, or wins with .NaN.
template <bool kMax, bool kNan, bool kXorsign>
struct Extreme {
  template <class F>
  static constexpr uint16_t of(uint16_t a, uint16_t b) {
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

// Those on the bits, with .ftz.
template <class F, class Op>
struct OnBits {
  bool ftz;
  explicit constexpr OnBits(const Instr& instr) : ftz(instr.ftz) {}
  constexpr uint16_t read(uint16_t v) const { return ftz ? flush<F>(v) : v; }
  constexpr uint16_t lane(uint16_t a) const { return read(Op::template of<F>(read(a))); }
};
template <class F, class Op>
struct OnBits2 : OnBits<F, Op> {
  using OnBits<F, Op>::OnBits, OnBits<F, Op>::read;
  constexpr uint16_t lane(uint16_t a, uint16_t b) const {
    return read(Op::template of<F>(read(a), read(b)));
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
inline double tanh_exact(double x) { return std::tanh(x); }
inline double exp2_exact(double x) { return std::exp2(x); }

template <class F, double (*kFunction)(double)>
struct LookUp {
  const uint16_t* table = table_of<F, kFunction>();
  bool ftz;
  explicit LookUp(const Instr& instr) : ftz(instr.ftz) {}
  uint16_t lane(uint16_t a) const {
    const uint16_t r = table[ftz ? flush<F>(a) : a];
    return ftz ? flush<F>(r) : r;
  }
};

// f16x2, bf16x2: an operation on the two halves of a word.
template <class Op>
struct Both {
  Op op;
  explicit Both(const Instr& instr) : op(instr) {}
  template <class... Words>
  uint32_t lane(Words... words) const {
    return uint32_t{op.lane(static_cast<uint16_t>(words >> 16)...)} << 16 |
           op.lane(static_cast<uint16_t>(words)...);
  }
};

}  // namespace vgpu::op::half
