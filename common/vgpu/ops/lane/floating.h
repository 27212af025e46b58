// What the floating-point instructions of f32 and f64 do to one lane (PTX ISA, "Floating Point
// Instructions"). See core/signature.h.
//
// Results that are not a number are 0x7fffffff in f32, as on the GPU. The .approx instructions give
// the same bits on every host and stay within the ISA's error bounds: most are computed in double
// and rounded once; ex2, which softmaxes live on, is a polynomial (error below 1.3 ulp).
#pragma once
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "../half.h"

namespace vgpu::op::floating {

using std::int32_t, std::uint32_t, std::uint64_t, std::uint8_t;

template <class T>
constexpr T flush(T x) {
  // Subnormals to zero, the sign stays.
  return std::fabs(x) < std::numeric_limits<T>::min() ? std::copysign(T{0}, x) : x;
}
template <class T>
constexpr T clean(T x) {
  if constexpr (sizeof(T) == 4)
    return canonical(x);
  else
    return x;
}
template <class T>
constexpr T saturate(T x) {  // [0, 1], NaN to +0
  return x > T{0} ? (x < T{1} ? x : T{1}) : T{0};
}

// ---- arithmetic -----------------------------------------------------------------------------
// The bare operations, in the host's rounding mode; `Nearest` makes instructions of them.

template <class T>
struct Add {
  static constexpr T lane(T a, T b) { return a + b; }
};
template <class T>
struct Sub {
  static constexpr T lane(T a, T b) { return a - b; }
};
template <class T>
struct Mul {
  static constexpr T lane(T a, T b) { return a * b; }
};
template <class T>
struct Div {
  static constexpr T lane(T a, T b) { return a / b; }
};
template <class T>
struct Rcp {
  static constexpr T lane(T a) { return T{1} / a; }
};
template <class T>
struct Sqrt {
  static T lane(T a) { return std::sqrt(a); }
};
template <class T>
struct Fma {
  static constexpr T lane(T a, T b, T c) {
    if constexpr (sizeof(T) == 4) return __builtin_fmaf(a, b, c);
    return __builtin_fma(a, b, c);
  }
};

// What becomes of a result: .ftz, then .sat, or a NaN made the GPU's.
template <class T>
constexpr T finished(T r, bool ftz, bool sat) {
  if (ftz) r = flush(r);
  return sat ? saturate(r) : clean(r);
}

// Op with .ftz and .sat, rounded to nearest even.
template <class Op, bool kFtz, bool kSat, class Function = decltype(&Op::lane)>
struct Nearest;
template <class Op, bool kFtz, bool kSat, class T, class... Operands>
struct Nearest<Op, kFtz, kSat, T (*)(Operands...)> {
  static constexpr T lane(Operands... operands) {
    if constexpr (kFtz)
      return finished(Op::lane(flush(operands)...), true, kSat);
    else
      return finished(Op::lane(operands...), false, kSat);
  }
};

// f32x2: two floats in 64 bits.
struct Pair {
  float v[2];
};
template <class Op, class Function = decltype(&Op::lane)>
struct Pairs;
template <class Op, class... Operands>
struct Pairs<Op, float (*)(Operands...)> {
  template <class>
  using Both = Pair;
  static constexpr Pair lane(Both<Operands>... operands) {
    return {{Op::lane(operands.v[0]...), Op::lane(operands.v[1]...)}};
  }
};

template <class T, bool kFtz>
struct Abs {
  static constexpr T lane(T x) { return std::fabs(kFtz ? flush(x) : x); }
};
template <class T, bool kFtz>
struct Neg {
  static constexpr T lane(T x) { return -(kFtz ? flush(x) : x); }
};
// The sign of a on the size of b.
template <class T>
struct Copysign {
  static constexpr T lane(T a, T b) { return std::copysign(b, a); }
};

// ---- min, max -------------------------------------------------------------------------------

enum Signs : uint8_t { kKeep, kAbs, kXorsign };

// Compared as integers, so that the loop needs no branch: with the bits of negative numbers turned
// over, the order of floats is that of integers, and -0 is less than +0. A NaN operand loses,
// except with .NaN, where it wins.
template <class Bits, bool kMax, bool kNan>
constexpr Bits extreme(Bits a, Bits b) {
  using Signed = std::make_signed_t<Bits>;
  constexpr bool single = sizeof(Bits) == 4;
  constexpr Bits size = static_cast<Bits>(~Bits{0}) >> 1;
  constexpr Bits infinity = single ? Bits{0x7f800000u} : static_cast<Bits>(0x7ff0000000000000ull);
  constexpr Bits nan = single ? Bits{0x7fffffffu} : static_cast<Bits>(0x7ff8000000000000ull);
  const auto key = [](Bits v) {
    return static_cast<Signed>(
        v ^ (static_cast<Bits>(static_cast<Signed>(v) >> (8 * sizeof(Bits) - 1)) & size));
  };
  const bool nan_a = (a & size) > infinity, nan_b = (b & size) > infinity;
  Bits r = (key(a) < key(b)) != kMax ? a : b;
  if (kNan) return (nan_a | nan_b) ? nan : r;
  r = nan_b ? a : r;
  r = nan_a ? b : r;
  return (nan_a & nan_b) ? nan : r;
}

template <class T, bool kMax, bool kNan, bool kFtz, Signs kSigns>
struct Extreme {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  static constexpr Bits kSign = Bits{1} << (8 * sizeof(T) - 1);
  static constexpr Bits read(Bits v) {
    if (kFtz) v = (v & 0x7f800000u) ? v : v & kSign;
    return kSigns == kKeep ? v : v & ~kSign;
  }
  static constexpr Bits lane(Bits a, Bits b) {
    const Bits r = extreme<Bits, kMax, kNan>(read(a), read(b));
    if (kSigns == kXorsign) return r > 0x7f800000u ? r : r | ((a ^ b) & kSign);
    return r;
  }
};
// The extreme of three numbers: min.f32 d, a, b, c.
template <class T, bool kMax, bool kNan, bool kFtz, Signs kSigns>
struct Extreme3 {
  using Two = Extreme<T, kMax, kNan, kFtz, kSigns>;
  using Bits = typename Two::Bits;
  static constexpr Bits lane(Bits a, Bits b, Bits c) {
    return extreme<Bits, kMax, kNan>(Two::lane(a, b), Two::read(c));
  }
};

// ---- approximations -------------------------------------------------------------------------

// 2^x. x = n + f with |f| <= 1/2; 2^f by its Taylor polynomial of degree 7 (remainder below 2^-27);
// 2^n in two factors, so that subnormal results come out rounded once more and no worse.
inline float exp2_poly(float x) {
  const float limited = x > 200.0f ? 200.0f : x < -200.0f ? -200.0f : x;
  // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
  const float shifted = limited + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float f = limited - n;
  float p = 1.5252733804059840e-5f;
  p = __builtin_fmaf(p, f, 1.5403530393381609e-4f);
  p = __builtin_fmaf(p, f, 1.3333558146428443e-3f);
  p = __builtin_fmaf(p, f, 9.6181291076284772e-3f);
  p = __builtin_fmaf(p, f, 5.5504108664821580e-2f);
  p = __builtin_fmaf(p, f, 2.4022650695910071e-1f);
  p = __builtin_fmaf(p, f, 6.9314718055994531e-1f);
  p = __builtin_fmaf(p, f, 1.0f);
  const int32_t whole = static_cast<int32_t>(n);
  const int32_t half = whole >> 1;
  const float low = std::bit_cast<float>((half + 127) << 23);
  const float high = std::bit_cast<float>((whole - half + 127) << 23);
  const float r = p * low * high;
  return x == x ? r : std::bit_cast<float>(0x7fffffffu);
}

// Results at single arguments. Near the middle between two halves, cuda_fp16.hpp mends what the
// GPU's ex2 and lg2 give there, and what ours gave fell on the other side of the middle. These are
// the nearest that lie on the GPU's side, within the ISA's error bounds.
struct Known {
  uint32_t argument, result;
};
inline constexpr Known kPowers[] = {
    {0xc0717899, 0x3d95d000}, {0xc088f743, 0x3d52d000},  // hexp
    {0xb9b8c000, 0x3f7feffe}, {0xbbf30000, 0x3f7eaffe},  // hexp2
    {0xbdeae000, 0x3f6c6ffe},                            //
    {0x3f8158fb, 0x4000f000}, {0xbbc49dda, 0x3f7ef000},  // hexp10
    {0xbc10b624, 0x3f7e6fff}, {0xbd993953, 0x3f731000},
};
inline constexpr Known kLogarithms[] = {
    {0x3ac1a000, 0xc1167230}, {0x3b26a000, 0xc109e9a1}, {0x3baf0000, 0xc0f18fad},  // hlog
    {0x3f7fc000, 0xbab8c151}, {0x3f816000, 0x3c7c8fd3}, {0x440a2000, 0x4111c1dd},  //
    {0x40448000, 0x3fcf2741},                                                      // hlog10
};

// A function with a table of single results: `usual` everywhere else.
template <class Function>
struct WithKnown {
  using Usual = Function;
  static float lane(float x) {
    for (const Known& known : Function::kKnown)
      if (std::bit_cast<uint32_t>(x) == known.argument) return std::bit_cast<float>(known.result);
    return Function::lane(x);
  }
};

// The power of a subnormal is 1 whether it is flushed or not, and no result is negative.
template <bool kFtz>
struct UsualEx2 {
  static constexpr auto& kKnown = kPowers;
  static float lane(float x) {
    const float r = exp2_poly(x);
    return kFtz && r < 0x1p-126f ? 0.0f : r;
  }
};
template <bool kFtz>
using Ex2 = WithKnown<UsualEx2<kFtz>>;

// log2(x). x = 2^n m with m between sqrt(1/2) and sqrt(2); log2(m) = 2 / ln 2 artanh(s) with
// s = (m - 1) / (m + 1), |s| < 0.1716: five terms (remainder below 2^-30).
template <bool kFtz>
struct UsualLg2 {
  static constexpr auto& kKnown = kLogarithms;
  static float lane(float x) {
    const bool subnormal = std::fabs(x) < 0x1p-126f;
    const float scaled = subnormal ? x * 0x1p24f : x;
    const uint32_t bits =
        std::bit_cast<uint32_t>(scaled);  // unsigned: negative numbers wrap around
    const int32_t n = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
    const float m = std::bit_cast<float>(bits - (static_cast<uint32_t>(n) << 23));
    const float s = (m - 1.0f) / (m + 1.0f), square = s * s;
    float p = 0.3205988979753252f;  // 2 / (9 ln 2)
    p = __builtin_fmaf(p, square, 0.4121985831111324f);
    p = __builtin_fmaf(p, square, 0.5770780163555854f);
    p = __builtin_fmaf(p, square, 0.9617966939259757f);
    p = __builtin_fmaf(p, square, 2.8853900817779268f);
    float r = __builtin_fmaf(p, s, static_cast<float>(subnormal ? n - 24 : n));
    // Infinity and NaN; negative numbers; zeros.
    r = x < HUGE_VALF ? r : x;
    r = x < 0.0f ? NAN : r;
    r = (kFtz ? std::fabs(x) < 0x1p-126f : x == 0.0f) ? -HUGE_VALF : r;
    return canonical(r);
  }
};
template <bool kFtz>
using Lg2 = WithKnown<UsualLg2<kFtz>>;

// 1 - 2 / (1 + e^2x) for all but small x, where that cancels: x - x^3/3 (error below 2^-20).
struct Tanh {
  static float lane(float x) {
    const float size = std::fabs(x);
    const float large = 1.0f - 2.0f / (1.0f + exp2_poly(size * 2.8853900817779268f));
    const float small = __builtin_fmaf(size * size * size, -0.3333333333f, size);
    return canonical(std::copysign(size < 0.03f ? small : large, x));
  }
};

// Functions of doubles, for the two below.
struct Sin {
  static double lane(double x) { return std::sin(x); }
};
struct Cos {
  static double lane(double x) { return std::cos(x); }
};
struct Rsqrt {
  static double lane(double x) { return 1.0 / std::sqrt(x); }
};

// Op in double, rounded once; .ftz flushes before and after.
template <class Op, bool kFtz>
struct InDouble {
  static float lane(float x) {
    const float in = kFtz ? flush(x) : x;
    const float r = canonical(static_cast<float>(Op::lane(static_cast<double>(in))));
    return kFtz ? flush(r) : r;
  }
};

// The f64 approximations look at the high 32 bits of the operand and give a result whose low 32
// bits are zero.
template <class Op>
struct HighHalf {
  static double high(double v) {
    return std::bit_cast<double>(std::bit_cast<uint64_t>(v) & 0xffffffff00000000ull);
  }
  static double lane(double x) {
    const double r = high(Op::lane(flush(high(x))));
    return r == r ? flush(r) : std::bit_cast<double>(uint64_t{0x7fffffff00000000ull});
  }
};

// a / b but for the range that the ISA gives up: 2^126 < |b| < 2^128 gives a zero, or NaN for
// infinite a.
template <bool kFtz>
struct DivApprox {
  static constexpr float divide(float a, float b) {
    const float size = std::fabs(b);
    const bool given_up = size > 0x1p126f && size < HUGE_VALF;
    return given_up ? a * std::copysign(0.0f, b) : a / b;
  }
  static constexpr float lane(float a, float b) {
    return kFtz ? canonical(flush(divide(flush(a), flush(b)))) : canonical(divide(a, b));
  }
};

}  // namespace vgpu::op::floating
