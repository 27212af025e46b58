// Narrow floating-point formats: fp16, bf16, fp8. One exact rounding from double serves them all;
// the common cases (fp16 and bf16 from and to float) have quick paths.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "../ptx/program.h"

namespace vgpu {

// Layout of a format: 1 sign bit, kExponent and kMantissa bits. fp8 e4m3 has no infinity, and its
// NaN is all ones (OCP 8-bit floating point); the others follow IEEE 754.
template <int kExponent, int kMantissa, bool kInfinity = true>
struct Format {
  static constexpr int exponent = kExponent, mantissa = kMantissa;
  static constexpr bool infinity = kInfinity;
  static constexpr int bias = (1 << (kExponent - 1)) - 1;
  static constexpr std::uint32_t sign = 1u << (kExponent + kMantissa);
  static constexpr std::uint32_t nan = sign - 1;  // 0x7fff: the GPU's NaN
  static constexpr std::uint32_t exponent_mask = ((1u << kExponent) - 1) << kMantissa;
  static constexpr std::uint32_t largest = kInfinity ? exponent_mask - 1 : nan - 1;
};
using Fp16 = Format<5, 10>;
using Bfloat16 = Format<8, 7>;
using E4M3 = Format<4, 3, false>;
using E5M2 = Format<5, 2>;
using Tf32 = Format<8, 10>;

// `x` rounded once to the format. Values beyond the largest become infinity, the largest (with
// `saturate`, and where the rounding goes toward zero) or NaN (a format without infinity).
template <class F>
std::uint32_t narrow(double x, Rounding rounding = Rounding::rn, bool saturate = false) {
  if (x != x) return F::nan;
  const std::uint32_t sign = std::signbit(x) ? F::sign : 0;
  const double size = std::fabs(x);
  const bool away = (rounding == Rounding::rp && !sign) || (rounding == Rounding::rm && sign);
  const bool to_zero = rounding == Rounding::rz || (rounding == Rounding::rp && sign) ||
                       (rounding == Rounding::rm && !sign);
  const std::uint32_t overflow = saturate ? F::largest : F::infinity ? F::exponent_mask : F::nan;
  if (std::isinf(size)) return sign | overflow;
  if (size == 0) return sign;
  int exponent;
  std::frexp(size, &exponent);                     // size in [2^(exponent-1), 2^exponent)
  exponent = std::max(exponent - 1, 1 - F::bias);  // subnormals share the smallest exponent
  const double scaled = std::ldexp(size, F::mantissa - exponent);  // exact; below 2^(mantissa+1)
  double whole = std::floor(scaled);
  const double rest = scaled - whole;
  const bool odd = std::fmod(whole, 2.0) != 0;
  const bool nearer = rounding == Rounding::rna ? rest >= 0.5 : rest > 0.5 || (rest == 0.5 && odd);
  if (rest != 0 && (away || (!to_zero && nearer))) whole += 1;
  // A normal number's hidden bit adds one to the exponent field below it; so does a carry.
  const auto bits = static_cast<std::uint64_t>(whole) +
                    (static_cast<std::uint64_t>(exponent + F::bias - 1) << F::mantissa);
  if (bits > F::largest) return sign | (to_zero ? F::largest : overflow);
  return sign | static_cast<std::uint32_t>(bits);
}

template <class F>
float widen_format(std::uint32_t bits) {
  const std::uint32_t magnitude = bits & (F::sign - 1);
  const bool negative = bits & F::sign;
  if (F::infinity ? magnitude > F::exponent_mask : magnitude == F::nan)
    return std::bit_cast<float>(0x7fffffffu);
  const std::uint32_t fraction = magnitude & ((1u << F::mantissa) - 1);
  const int field = static_cast<int>(magnitude >> F::mantissa);
  constexpr int last = 1 - F::bias - F::mantissa;  // exponent of the last bit of subnormals
  float value;
  if (F::infinity && magnitude == F::exponent_mask)
    value = HUGE_VALF;
  else if (field == 0)
    value = std::ldexp(static_cast<float>(fraction), last);
  else
    value = std::ldexp(static_cast<float>(fraction | 1u << F::mantissa), field - 1 + last);
  return negative ? -value : value;
}

constexpr float canonical(float x) { return x == x ? x : std::bit_cast<float>(0x7fffffffu); }

inline float float_from_half(std::uint16_t bits) {
#if defined(__F16C__)
  return canonical(_cvtsh_ss(bits));
#else
  return widen_format<Fp16>(bits);
#endif
}
inline std::uint16_t half_from_float(float x) {
#if defined(__F16C__)
  if (x != x) return 0x7fff;
  return static_cast<std::uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
#else
  return static_cast<std::uint16_t>(narrow<Fp16>(x));
#endif
}
constexpr float float_from_bf16(std::uint16_t bits) {
  return canonical(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
}
constexpr std::uint16_t bf16_from_float(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  // Nearest even by adding half a unit, or just less where the kept part is even.
  const auto rounded = static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  return x == x ? rounded : std::uint16_t{0x7fff};
}
inline float float_from_e4m3(std::uint8_t bits) { return widen_format<E4M3>(bits); }
inline float float_from_e5m2(std::uint8_t bits) { return widen_format<E5M2>(bits); }

// Eight at once. GCC's vectors: SSE, AVX or whatever the host has. Nobody outside calls functions
// of them, so how they are passed does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"
using Float8 = float __attribute__((vector_size(32)));
using Word8 = std::int32_t __attribute__((vector_size(32)));
using Half8 = std::uint16_t __attribute__((vector_size(16)));

inline Half8 load8(const std::uint16_t* from) {
  Half8 v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
inline void store8(std::uint16_t* to, Half8 v) { std::memcpy(to, &v, sizeof v); }

inline Float8 floats_from_halves(Half8 v) {  // a NaN stays some NaN
#if defined(__F16C__)
  return reinterpret_cast<Float8>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(v)));
#else
  Float8 r;
  for (int i = 0; i < 8; ++i) r[i] = float_from_half(v[i]);
  return r;
#endif
}
inline Half8 halves_from_floats(Float8 v) {
#if defined(__F16C__)
  const __m128i h = _mm256_cvtps_ph(reinterpret_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT);
  const Half8 unordered = reinterpret_cast<Half8>(__builtin_convertvector(v != v, Half8));
  return unordered ? Half8{} + 0x7fff : reinterpret_cast<Half8>(h);
#else
  Half8 r;
  for (int i = 0; i < 8; ++i) r[i] = half_from_float(v[i]);
  return r;
#endif
}

// 32 lanes at once.
inline void halves_to_floats(const std::uint16_t* from, float* to) {
  for (int i = 0; i < kWarpSize; i += 8) {
    const Float8 v = floats_from_halves(load8(from + i));
    const Float8 r = v == v ? v : reinterpret_cast<Float8>(Word8{} + 0x7fffffff);
    std::memcpy(to + i, &r, sizeof r);
  }
}
inline void floats_to_halves(const float* from, std::uint16_t* to) {
  for (int i = 0; i < kWarpSize; i += 8) {
    Float8 v;
    std::memcpy(&v, from + i, sizeof v);
    store8(to + i, halves_from_floats(v));
  }
}

}  // namespace vgpu
