// What atom, red and the reductions of whole arrays make of two values: the one that was there and
// the operand. See core/signature.h.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "../half.h"

namespace vgpu::op::atomic {

using std::uint16_t, std::uint32_t;

enum Operation : std::uint8_t {
  kAdd,
  kMin,
  kMax,
  kInc,
  kDec,
  kAnd,
  kOr,
  kXor,
  kExchange,
  kCompare
};

// U: unsigned type as wide as the operand, T: the type it is treated as. c counts for cas alone.
template <class U, class T, Operation kOperation>
struct Replace {
  static constexpr U lane(U old_bits, U b_bits, [[maybe_unused]] U c_bits) {
    [[maybe_unused]] const T old = std::bit_cast<T>(old_bits), b = std::bit_cast<T>(b_bits);
    if constexpr (kOperation == kAdd) {
      if constexpr (std::is_floating_point_v<T>)
        return std::bit_cast<U>(old + b);
      else
        return static_cast<U>(old_bits + b_bits);
    } else if constexpr (kOperation == kMin)
      return std::bit_cast<U>(b < old ? b : old);
    else if constexpr (kOperation == kMax)
      return std::bit_cast<U>(b > old ? b : old);
    else if constexpr (kOperation == kInc)
      return old_bits >= b_bits ? U{0} : static_cast<U>(old_bits + 1);
    else if constexpr (kOperation == kDec)
      return old_bits == 0 || old_bits > b_bits ? b_bits : static_cast<U>(old_bits - 1);
    else if constexpr (kOperation == kAnd)
      return old_bits & b_bits;
    else if constexpr (kOperation == kOr)
      return old_bits | b_bits;
    else if constexpr (kOperation == kXor)
      return old_bits ^ b_bits;
    else if constexpr (kOperation == kExchange)
      return b_bits;
    else
      return old_bits == b_bits ? c_bits : old_bits;
  }
};

// atom.add.f32 flushes subnormal numbers in global memory and keeps them in shared (PTX ISA, atom).
struct AddF32 {
  static constexpr uint32_t flushed(uint32_t v) { return v & 0x7f800000u ? v : v & 0x80000000u; }
  static constexpr uint32_t lane(uint32_t x, uint32_t y, bool flush) {
    if (flush) x = flushed(x), y = flushed(y);
    const float sum = std::bit_cast<float>(x) + std::bit_cast<float>(y);
    if (sum != sum) return 0x7fffffffu;
    return flush ? flushed(std::bit_cast<uint32_t>(sum)) : std::bit_cast<uint32_t>(sum);
  }
};

// The formats of halves.
struct Half {  // f16 addition: exact in float, rounded once
  static float value(uint16_t x) { return float_from_half(x); }
  static uint16_t sum(uint16_t x, uint16_t y) {
    return half_from_float(float_from_half(x) + float_from_half(y));
  }
};
struct BFloat {
  static float value(uint16_t x) { return float_from_bf16(x); }
  static uint16_t sum(uint16_t x, uint16_t y) {
    return bf16_from_float(float_from_bf16(x) + float_from_bf16(y));
  }
};

template <class F>
struct AddHalf {
  static uint16_t lane(uint16_t x, uint16_t y) { return F::sum(x, y); }
};
// f16x2, bf16x2
template <class F>
struct AddHalves {
  static uint32_t lane(uint32_t x, uint32_t y) {
    const uint32_t low = F::sum(static_cast<uint16_t>(x), static_cast<uint16_t>(y));
    const uint32_t high = F::sum(static_cast<uint16_t>(x >> 16), static_cast<uint16_t>(y >> 16));
    return high << 16 | low;
  }
};
// As min.f16 and max.f16: a number rather than a NaN, -0 below +0.
template <class F, bool kLargest>
struct ExtremeHalf {
  static uint16_t lane(uint16_t x, uint16_t y) {
    const float a = F::value(x), b = F::value(y);
    if (a != a && b != b) return 0x7fff;
    if (a != a || b != b) return a != a ? y : x;
    if (a == b) return kLargest ? x & y : x | y;
    return (a < b) == kLargest ? y : x;
  }
};

}  // namespace vgpu::op::atomic
