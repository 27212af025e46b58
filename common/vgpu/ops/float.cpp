// Floating-point instructions of f32 and f64 (PTX ISA, "Floating Point Instructions").
//
// Results that are not a number are 0x7fffffff in f32, as on the GPU. The .approx instructions give
// the same bits on every host and stay within the ISA's error bounds: most are computed in double
// and rounded once; ex2, which softmaxes live on, is a polynomial (error below 1.3 ulp).
#include <cfenv>
#include <cmath>
#include <limits>

#include "forms.h"
#include "half.h"
#include "../core/lanes.h"

namespace vgpu {
namespace {

using std::int32_t, std::int64_t, std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;

template <class T>
inline T flush(T x) {
  // Subnormals to zero, the sign stays.
  return std::fabs(x) < std::numeric_limits<T>::min() ? std::copysign(T{0}, x) : x;
}
template <class T>
inline T clean(T x) {
  if constexpr (sizeof(T) == 4)
    return canonical(x);
  else
    return x;
}
template <class T>
inline T saturate(T x) {  // [0, 1], NaN to +0
  return x > T{0} ? (x < T{1} ? x : T{1}) : T{0};
}

struct Add {
  template <class T>
  static T of(T a, T b, T) {
    return a + b;
  }
};
struct Sub {
  template <class T>
  static T of(T a, T b, T) {
    return a - b;
  }
};
struct Mul {
  template <class T>
  static T of(T a, T b, T) {
    return a * b;
  }
};
struct Div {
  template <class T>
  static T of(T a, T b, T) {
    return a / b;
  }
};
struct Rcp {
  template <class T>
  static T of(T a, T, T) {
    return T{1} / a;
  }
};
struct Sqrt {
  template <class T>
  static T of(T a, T, T) {
    return std::sqrt(a);
  }
};
struct Fma {
  static float of(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static double of(double a, double b, double c) { return __builtin_fma(a, b, c); }
};

// Nearest even: a plain SIMD loop.
template <class T, class Op, int kOperands, bool kFtz, bool kSat>
void nearest(Warp& warp, const Instr& instr, uint32_t mask) {
  Result<T> result(warp, instr.d[0], mask);
  T* d = result.lanes();
  const T* a = warp.lanes<const T>(instr.a);
  const T* b = kOperands > 1 ? warp.lanes<const T>(instr.b) : a;
  const T* c = kOperands > 2 ? warp.lanes<const T>(instr.c) : a;
#pragma GCC ivdep
  for (int lane = 0; lane < kWarpSize; ++lane) {
    T x = a[lane], y = b[lane], z = c[lane];
    if (kFtz) x = flush(x), y = flush(y), z = flush(z);
    T r = Op::of(x, y, z);
    if (kFtz) r = flush(r);
    if (kSat)
      r = saturate(r);
    else
      r = clean(r);
    d[lane] = r;
  }
}

// Other roundings: the host's rounding mode, set for the whole loop. The operands are read from
// memory behind an opaque call and the results are in memory before the next, so no operation
// leaves the two.
template <class T, class Op, int kOperands>
[[gnu::noinline]] void directed(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) T operands[3][kWarpSize], results[kWarpSize];
  const Slot slots[3] = {instr.a, kOperands > 1 ? instr.b : instr.a,
                         kOperands > 2 ? instr.c : instr.a};
  for (int i = 0; i < kOperands; ++i) {
    const T* from = warp.lanes<const T>(slots[i]);
    for (int lane = 0; lane < kWarpSize; ++lane)
      operands[i][lane] = instr.ftz ? flush(from[lane]) : from[lane];
  }
  const T* x = operands[0];
  const T* y = operands[kOperands > 1 ? 1 : 0];
  const T* z = operands[kOperands > 2 ? 2 : 0];
  asm volatile("" : : "r"(operands), "r"(results) : "memory");
  std::fesetround(instr.rounding == Rounding::rz   ? FE_TOWARDZERO
                  : instr.rounding == Rounding::rm ? FE_DOWNWARD
                                                   : FE_UPWARD);
  asm volatile("" : : "r"(operands), "r"(results) : "memory");
  for (int lane = 0; lane < kWarpSize; ++lane) results[lane] = Op::of(x[lane], y[lane], z[lane]);
  asm volatile("" : : "r"(operands), "r"(results) : "memory");
  std::fesetround(FE_TONEAREST);
  asm volatile("" : : "r"(operands), "r"(results) : "memory");
  Result<T> result(warp, instr.d[0], mask);
  T* d = result.lanes();
  for (int lane = 0; lane < kWarpSize; ++lane) {
    T value = instr.ftz ? flush(results[lane]) : results[lane];
    d[lane] = instr.sat ? saturate(value) : clean(value);
  }
}

template <class Op, int kOperands>
Handler arithmetic(const Instr& instr) {
  const bool rn = instr.rounding == Rounding::none || instr.rounding == Rounding::rn;
  if (instr.type == Type::f64)
    return rn ? &nearest<double, Op, kOperands, false, false> : &directed<double, Op, kOperands>;
  if (instr.type != Type::f32) return nullptr;
  if (!rn) return &directed<float, Op, kOperands>;
  if (instr.ftz)
    return instr.sat ? &nearest<float, Op, kOperands, true, true>
                     : &nearest<float, Op, kOperands, true, false>;
  return instr.sat ? &nearest<float, Op, kOperands, false, true>
                   : &nearest<float, Op, kOperands, false, false>;
}

// f32x2: two floats in 64 bits.
template <class Op, int kOperands>
void pairs(Warp& warp, const Instr& instr, uint32_t mask) {
  struct Pair {
    float v[2];
  };
  Result<Pair> result(warp, instr.d[0], mask);
  Pair* d = result.lanes();
  const Pair* a = warp.lanes<const Pair>(instr.a);
  const Pair* b = warp.lanes<const Pair>(instr.b);
  const Pair* c = kOperands > 2 ? warp.lanes<const Pair>(instr.c) : a;
  for (int lane = 0; lane < kWarpSize; ++lane)
    for (int i = 0; i < 2; ++i) {
      float x = a[lane].v[i], y = b[lane].v[i], z = c[lane].v[i];
      if (instr.ftz) x = flush(x), y = flush(y), z = flush(z);
      const float r = Op::of(x, y, z);
      d[lane].v[i] = canonical(instr.ftz ? flush(r) : r);
    }
}

// ---- min, max -------------------------------------------------------------------------------

enum Signs : uint8_t { kKeep, kAbs, kXorsign };

// Compared as integers, so that the loop needs no branch: with the bits of negative numbers turned
// over, the order of floats is that of integers, and -0 is less than +0. A NaN operand loses,
// except with .NaN, where it wins.
template <class Bits, bool kMax, bool kNan>
inline Bits extreme(Bits a, Bits b) {
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

template <class T, bool kMax, bool kNan, bool kFtz, Signs kSigns, bool kThree>
void min_max(Warp& warp, const Instr& instr, uint32_t mask) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  using Lane [[gnu::may_alias]] = Bits;
  constexpr Bits sign = Bits{1} << (8 * sizeof(T) - 1);
  Result<Bits> result(warp, instr.d[0], mask);
  Bits* d = result.lanes();
  const Lane* a = warp.lanes<const Lane>(instr.a);
  const Lane* b = warp.lanes<const Lane>(instr.b);
  const Lane* c = kThree ? warp.lanes<const Lane>(instr.c) : a;
  const auto read = [](Bits v) {
    if (kFtz) v = (v & 0x7f800000u) ? v : v & sign;
    return kSigns == kKeep ? v : v & ~sign;
  };
#pragma GCC ivdep
  for (int lane = 0; lane < kWarpSize; ++lane) {
    Bits r = extreme<Bits, kMax, kNan>(read(a[lane]), read(b[lane]));
    if (kThree) r = extreme<Bits, kMax, kNan>(r, read(c[lane]));
    if (kSigns == kXorsign) r = r > 0x7f800000u ? r : r | ((a[lane] ^ b[lane]) & sign);
    d[lane] = r;
  }
}

template <bool kMax, bool kNan, bool kFtz>
Handler bind_extreme_of(const Instr& instr, const Mods& mods) {
  const bool three = instr.c.valid();
  if (mods.has("xorsign")) return &min_max<float, kMax, kNan, kFtz, kXorsign, false>;
  if (mods.has("abs")) return three ? &min_max<float, kMax, kNan, kFtz, kAbs, true> : nullptr;
  return three ? &min_max<float, kMax, kNan, kFtz, kKeep, true>
               : &min_max<float, kMax, kNan, kFtz, kKeep, false>;
}
template <bool kMax>
Handler bind_extreme(const Instr& instr, const Mods& mods) {
  if (instr.type == Type::f64) return &min_max<double, kMax, false, false, kKeep, false>;
  if (instr.nan)
    return instr.ftz ? bind_extreme_of<kMax, true, true>(instr, mods)
                     : bind_extreme_of<kMax, true, false>(instr, mods);
  return instr.ftz ? bind_extreme_of<kMax, false, true>(instr, mods)
                   : bind_extreme_of<kMax, false, false>(instr, mods);
}

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
// GPU's ex2 and lg2 give there, and what ours gave fell on the other side of the middle. These are the
// nearest that lie on the GPU's side, within the ISA's error bounds.
struct Known {
  uint32_t argument, result;
};
constexpr Known kPowers[] = {
    {0xc0717899, 0x3d95d000}, {0xc088f743, 0x3d52d000},  // hexp
    {0xb9b8c000, 0x3f7feffe}, {0xbbf30000, 0x3f7eaffe},  // hexp2
    {0xbdeae000, 0x3f6c6ffe},                            //
    {0x3f8158fb, 0x4000f000}, {0xbbc49dda, 0x3f7ef000},  // hexp10
    {0xbc10b624, 0x3f7e6fff}, {0xbd993953, 0x3f731000},
};
constexpr Known kLogarithms[] = {
    {0x3ac1a000, 0xc1167230}, {0x3b26a000, 0xc109e9a1}, {0x3baf0000, 0xc0f18fad},  // hlog
    {0x3f7fc000, 0xbab8c151}, {0x3f816000, 0x3c7c8fd3}, {0x440a2000, 0x4111c1dd},  //
    {0x40448000, 0x3fcf2741},                                                      // hlog10
};
// The function f for all lanes; the look into the table costs only where one of them needs it.
template <std::size_t kCount, class F>
void map_known(Warp& warp, const Instr& instr, uint32_t mask, const Known (&table)[kCount], F f) {
  const uint32_t* bits = warp.lanes<const uint32_t>(instr.a);
  uint32_t found = 0;
  for (int lane = 0; lane < kWarpSize; ++lane)
    for (std::size_t i = 0; i < kCount; ++i) found |= bits[lane] == table[i].argument;
  if (!found) return map1<float, float>(warp, instr, mask, f);
  map1<float, float>(warp, instr, mask, [&](float x) {
    for (const Known& known : table)
      if (std::bit_cast<uint32_t>(x) == known.argument) return std::bit_cast<float>(known.result);
    return f(x);
  });
}

// The power of a subnormal is 1 whether it is flushed or not, and no result is negative.
template <bool kFtz>
void ex2(Warp& warp, const Instr& instr, uint32_t mask) {
  map_known(warp, instr, mask, kPowers, [](float x) {
    const float r = exp2_poly(x);
    return kFtz && r < 0x1p-126f ? 0.0f : r;
  });
}

// log2(x). x = 2^n m with m between sqrt(1/2) and sqrt(2); log2(m) = 2 / ln 2 artanh(s) with
// s = (m - 1) / (m + 1), |s| < 0.1716: five terms (remainder below 2^-30).
template <bool kFtz>
void lg2(Warp& warp, const Instr& instr, uint32_t mask) {
  map_known(warp, instr, mask, kLogarithms, [](float x) {
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
  });
}

// 1 - 2 / (1 + e^2x) for all but small x, where that cancels: x - x^3/3 (error below 2^-20).
void hyperbolic_tangent(Warp& warp, const Instr& instr, uint32_t mask) {
  map1<float, float>(warp, instr, mask, [](float x) {
    const float size = std::fabs(x);
    const float large = 1.0f - 2.0f / (1.0f + exp2_poly(size * 2.8853900817779268f));
    const float small = __builtin_fmaf(size * size * size, -0.3333333333f, size);
    return canonical(std::copysign(size < 0.03f ? small : large, x));
  });
}

// f in double, rounded once; .ftz flushes before and after.
template <class F>
Handler approximate(const Instr& instr, F) {
  if (instr.ftz)
    return handler1<float, float>([](float x) {
      return flush(canonical(static_cast<float>(F{}(static_cast<double>(flush(x))))));
    });
  return handler1<float, float>(
      [](float x) { return canonical(static_cast<float>(F{}(static_cast<double>(x)))); });
}

// The f64 approximations look at the high 32 bits of the operand and give a result whose low 32
// bits are zero.
template <class F>
Handler approximate_high(F) {
  return handler1<double, double>([](double x) {
    const auto high = [](double v) {
      return std::bit_cast<double>(std::bit_cast<uint64_t>(v) & 0xffffffff00000000ull);
    };
    const double in = flush(high(x));
    const double r = high(F{}(in));
    return r == r ? flush(r) : std::bit_cast<double>(uint64_t{0x7fffffff00000000ull});
  });
}

// a / b but for the range that the ISA gives up: 2^126 < |b| < 2^128 gives a zero, or NaN for
// infinite a.
inline float divide_approx(float a, float b) {
  const float size = std::fabs(b);
  const bool given_up = size > 0x1p126f && size < HUGE_VALF;
  return given_up ? a * std::copysign(0.0f, b) : a / b;
}

template <class T>
void absolute(Warp& warp, const Instr& instr, uint32_t mask) {
  const bool ftz = instr.ftz;
  map1<T, T>(warp, instr, mask, [ftz](T x) { return std::fabs(ftz ? flush(x) : x); });
}
template <class T>
void negate(Warp& warp, const Instr& instr, uint32_t mask) {
  const bool ftz = instr.ftz;
  map1<T, T>(warp, instr, mask, [ftz](T x) { return -(ftz ? flush(x) : x); });
}

}  // namespace

Handler bind_add_float(Instr& instr, const Mods&) {
  return instr.type == Type::f32x2 ? &pairs<Add, 2> : arithmetic<Add, 2>(instr);
}
Handler bind_sub_float(Instr& instr, const Mods&) {
  return instr.type == Type::f32x2 ? &pairs<Sub, 2> : arithmetic<Sub, 2>(instr);
}
Handler bind_mul_float(Instr& instr, const Mods&) {
  return instr.type == Type::f32x2 ? &pairs<Mul, 2> : arithmetic<Mul, 2>(instr);
}
Handler bind_fma_float(Instr& instr, const Mods&) {
  return instr.type == Type::f32x2 ? &pairs<Fma, 3> : arithmetic<Fma, 3>(instr);
}

Handler bind_div_float(Instr& instr, const Mods&) {
  if (instr.type == Type::f64) return arithmetic<Div, 2>(instr);
  if (instr.approx) {
    if (instr.ftz)
      return handler2<float, float, float>(
          [](float a, float b) { return canonical(flush(divide_approx(flush(a), flush(b)))); });
    return handler2<float, float, float>(
        [](float a, float b) { return canonical(divide_approx(a, b)); });
  }
  return arithmetic<Div, 2>(instr);  // .full is within 2 ulp; the right quotient is
}
Handler bind_rcp(Instr& instr, const Mods&) {
  if (instr.approx && instr.type == Type::f64)
    return approximate_high([](double x) { return 1.0 / x; });
  return arithmetic<Rcp, 1>(instr);
}
Handler bind_sqrt(Instr& instr, const Mods&) { return arithmetic<Sqrt, 1>(instr); }
Handler bind_rsqrt(Instr& instr, const Mods&) {
  if (instr.type == Type::f64 && instr.ftz)
    return approximate_high([](double x) { return 1.0 / std::sqrt(x); });
  if (instr.type == Type::f64)
    return handler1<double, double>([](double x) { return 1.0 / std::sqrt(x); });
  return approximate(instr, [](double x) { return 1.0 / std::sqrt(x); });
}
Handler bind_sin(Instr& instr, const Mods&) {
  return approximate(instr, [](double x) { return std::sin(x); });
}
Handler bind_cos(Instr& instr, const Mods&) {
  return approximate(instr, [](double x) { return std::cos(x); });
}
Handler bind_lg2(Instr& instr, const Mods&) { return instr.ftz ? &lg2<true> : &lg2<false>; }
Handler bind_tanh(Instr&, const Mods&) { return &hyperbolic_tangent; }
Handler bind_ex2(Instr& instr, const Mods&) { return instr.ftz ? &ex2<true> : &ex2<false>; }

Handler bind_min_float(Instr& instr, const Mods& mods) { return bind_extreme<false>(instr, mods); }
Handler bind_max_float(Instr& instr, const Mods& mods) { return bind_extreme<true>(instr, mods); }
Handler bind_abs_float(Instr& instr, const Mods&) {
  return instr.type == Type::f64 ? &absolute<double> : &absolute<float>;
}
Handler bind_neg_float(Instr& instr, const Mods&) {
  return instr.type == Type::f64 ? &negate<double> : &negate<float>;
}
Handler bind_copysign(Instr& instr, const Mods&) {
  // The sign of a on the size of b.
  if (instr.type == Type::f64)
    return handler2<double, double, double>([](double a, double b) { return std::copysign(b, a); });
  return handler2<float, float, float>([](float a, float b) { return std::copysign(b, a); });
}

}  // namespace vgpu
