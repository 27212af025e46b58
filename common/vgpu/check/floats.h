// Floating-point numbers as the checks see them in registers and in memory: which are infinite or NaN.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../ptx/types.h"

namespace vgpu::floats {

// The type of one number of a register of this type, and how many there are; none: no floating point, or
// fp8, which saturates.
inline Type element(Type type) {
  switch (type) {
    case Type::f16:
    case Type::f16x2:
      return Type::f16;
    case Type::bf16:
    case Type::bf16x2:
      return Type::bf16;
    case Type::f32:
    case Type::f32x2:
    case Type::tf32:
      return Type::f32;
    case Type::f64:
      return Type::f64;
    default:
      return Type::none;
  }
}
inline int elements(Type type) {
  return type == Type::f16x2 || type == Type::bf16x2 || type == Type::f32x2 ? 2 : 1;
}

template <class Word>
inline Word word_at(const std::byte* p) {
  Word word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// All bits of the exponent are set.
template <class Word>
inline bool all_set(Word word, Word exponent) {
  return (word & exponent) == exponent;
}

// Whether the number of this type (f16, bf16, f32 or f64) that stands there is infinite or NaN.
inline bool not_finite_at(const std::byte* p, Type element) {
  switch (element) {
    case Type::f16:
      return all_set<std::uint16_t>(word_at<std::uint16_t>(p), 0x7c00);
    case Type::bf16:
      return all_set<std::uint16_t>(word_at<std::uint16_t>(p), 0x7f80);
    case Type::f32:
      return all_set<std::uint32_t>(word_at<std::uint32_t>(p), 0x7f800000);
    default:
      return all_set<std::uint64_t>(word_at<std::uint64_t>(p), 0x7ff0000000000000);
  }
}
inline std::uint32_t element_bytes(Type element) {
  return static_cast<std::uint32_t>(type_bits(element)) / 8;
}

// Whether one of the numbers that fill these bytes may be infinite or NaN. Of fp8 a few more count: e4m3 and
// e5m2 are not told apart.
inline bool any_not_finite(const std::byte* p, std::uint32_t bytes, Type type) {
  if (type == Type::e4m3 || type == Type::e5m2) {
    for (std::uint32_t i = 0; i < bytes; ++i)
      if ((std::to_integer<unsigned>(p[i]) & 0x7c) == 0x7c) return true;
    return false;
  }
  const Type each = element(type);
  if (each == Type::none) return false;
  bool any = false;
  for (std::uint32_t i = 0; i < bytes; i += element_bytes(each)) any |= not_finite_at(p + i, each);
  return any;
}

template <class Word>
inline std::uint32_t lanes_not_finite(const std::byte* lanes, Word low, Word high) {
  Word words[kWarpSize], any = 0;
  std::memcpy(words, lanes, sizeof words);
  for (const Word word : words)
    any |= static_cast<Word>(all_set(word, low)) | static_cast<Word>(all_set(word, high));
  if (!any) return 0;  // found out quickly, many lanes at a time
  std::uint32_t mask = 0;
  for (int lane = 0; lane < kWarpSize; ++lane)
    mask |= std::uint32_t{all_set(words[lane], low) || all_set(words[lane], high)} << lane;
  return mask;
}
// The lanes of a register of this type that hold such a number.
inline std::uint32_t lanes_not_finite(const std::byte* lanes, Type type) {
  switch (type) {
    case Type::f16:
      return lanes_not_finite<std::uint16_t>(lanes, 0x7c00, 0x7c00);
    case Type::bf16:
      return lanes_not_finite<std::uint16_t>(lanes, 0x7f80, 0x7f80);
    case Type::f16x2:
      return lanes_not_finite<std::uint32_t>(lanes, 0x7c00, 0x7c000000);
    case Type::bf16x2:
      return lanes_not_finite<std::uint32_t>(lanes, 0x7f80, 0x7f800000);
    case Type::f32x2:
      return lanes_not_finite<std::uint64_t>(lanes, 0x7f800000, 0x7f80000000000000);
    case Type::f64:
      return lanes_not_finite<std::uint64_t>(lanes, 0x7ff0000000000000, 0x7ff0000000000000);
    default:
      return lanes_not_finite<std::uint32_t>(lanes, 0x7f800000, 0x7f800000);
  }
}

// The number itself: number `index` of one lane of a register of this type.
inline double value(const std::byte* lanes, Type type, int lane, int index) {
  const Type each = element(type);
  const std::byte* const p =
      lanes + static_cast<std::size_t>(lane * elements(type) + index) * element_bytes(each);
  if (each == Type::f64) return word_at<double>(p);
  if (each == Type::f32) return word_at<float>(p);
  const std::uint16_t bits = word_at<std::uint16_t>(p);
  if (each == Type::bf16) {
    const std::uint32_t wide = std::uint32_t{bits} << 16;
    return word_at<float>(reinterpret_cast<const std::byte*>(&wide));
  }
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double size = exponent == 31  ? (mantissa ? NAN : INFINITY)
                      : exponent == 0 ? std::ldexp(mantissa, -24)
                                      : std::ldexp(mantissa + 1024, exponent - 25);
  return bits >> 15 ? -size : size;
}

}  // namespace vgpu::floats
