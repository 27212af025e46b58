// Narrow floating-point formats: fp16, bf16, fp8. One exact rounding from double serves them all;
// the common cases (fp16 and bf16 from and to float) have quick paths.
#pragma once
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
  static constexpr std::uint32_t nan = sign - 1;                     // 0x7fff: the GPU's NaN
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
  std::frexp(size, &exponent);                       // size in [2^(exponent-1), 2^exponent)
  exponent = std::max(exponent - 1, 1 - F::bias);    // subnormals share the smallest exponent
  const double scaled = std::ldexp(size, F::mantissa - exponent);   // exact; below 2^(mantissa+1)
  double whole = std::floor(scaled);
  const double rest = scaled - whole;
  const bool odd = std::fmod(whole, 2.0) != 0;
  if (rest != 0 && (away || (!to_zero && (rounding == Rounding::rna ? rest >= 0.5 : rest > 0.5 || (rest == 0.5 && odd)))))
    whole += 1;
  // A normal number's hidden bit adds one to the exponent field below it; so does a carry.
  const auto bits = static_cast<std::uint64_t>(whole) + (static_cast<std::uint64_t>(exponent + F::bias - 1) << F::mantissa);
  if (bits > F::largest) return sign | (to_zero ? F::largest : overflow);
  return sign | static_cast<std::uint32_t>(bits);
}

template <class F>
float widen_format(std::uint32_t bits) {
  const std::uint32_t magnitude = bits & (F::sign - 1);
  const bool negative = bits & F::sign;
  if (F::infinity ? magnitude > F::exponent_mask : magnitude == F::nan) return std::bit_cast<float>(0x7fffffffu);
  float value;
  if (F::infinity && magnitude == F::exponent_mask) value = HUGE_VALF;
  else if (magnitude < (1u << F::mantissa)) value = std::ldexp(static_cast<float>(magnitude), 1 - F::bias - F::mantissa);
  else value = std::ldexp(static_cast<float>((magnitude & ((1u << F::mantissa) - 1)) | 1u << F::mantissa),
                          static_cast<int>(magnitude >> F::mantissa) - F::bias - F::mantissa);
  return negative ? -value : value;
}

inline float canonical(float x) { return x == x ? x : std::bit_cast<float>(0x7fffffffu); }

inline float float_from_half(std::uint16_t bits) {
#if defined(__F16C__)
  return canonical(_cvtsh_ss(bits));
#else
  return widen_format<Fp16>(bits);
#endif
}
inline std::uint16_t half_from_float(float x) {
#if defined(__F16C__)
  return x == x ? static_cast<std::uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)) : std::uint16_t{0x7fff};
#else
  return static_cast<std::uint16_t>(narrow<Fp16>(x));
#endif
}
inline float float_from_bf16(std::uint16_t bits) {
  return canonical(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
}
inline std::uint16_t bf16_from_float(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  // Nearest even by adding half a unit, or just less where the kept part is even.
  return x == x ? static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16) : std::uint16_t{0x7fff};
}
inline float float_from_e4m3(std::uint8_t bits) { return widen_format<E4M3>(bits); }
inline float float_from_e5m2(std::uint8_t bits) { return widen_format<E5M2>(bits); }

// 32 lanes at once.
inline void halves_to_floats(const std::uint16_t* from, float* to) {
#if defined(__F16C__)
  for (int i = 0; i < kWarpSize; i += 8) {
    __m256 v = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    v = _mm256_blendv_ps(v, nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    _mm256_storeu_ps(to + i, v);
  }
#else
  for (int i = 0; i < kWarpSize; ++i) to[i] = float_from_half(from[i]);
#endif
}
inline void floats_to_halves(const float* from, std::uint16_t* to) {
#if defined(__F16C__)
  for (int i = 0; i < kWarpSize; i += 8) {
    const __m256 v = _mm256_loadu_ps(from + i);
    const __m128i h = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
    const __m256i unordered = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m128i mask = _mm_packs_epi32(_mm256_castsi256_si128(unordered), _mm256_extractf128_si256(unordered, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm_blendv_epi8(h, _mm_set1_epi16(0x7fff), mask));
  }
#else
  for (int i = 0; i < kWarpSize; ++i) to[i] = half_from_float(from[i]);
#endif
}

// a b + c, rounded once to a format of at most 24 bits: the sum in double is made odd where it is
// not exact, so that the second rounding cannot be led astray (Boldo and Melquiond, 2008).
inline double fma_to_odd(float a, float b, float c) {
  const double product = static_cast<double>(a) * b;   // exact
  const double sum = product + c;
  if (!std::isfinite(sum)) return sum;
  const double z = sum - product;
  const double error = (product - (sum - z)) + (c - z);
  if (error == 0) return sum;
  auto bits = std::bit_cast<std::uint64_t>(sum);
  if (bits & 1) return sum;
  // One unit toward the exact value.
  bits += (error > 0) == (sum > 0) ? 1 : -1;
  return std::bit_cast<double>(bits);
}

}  // namespace vgpu
