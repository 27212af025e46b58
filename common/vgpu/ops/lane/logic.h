// What the logic and shift instructions and prmt do to one lane (PTX ISA, "Logic and Shift
// Instructions"). See core/signature.h.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "../../ptx/program.h"

namespace vgpu::op::logic {

using std::uint32_t, std::uint64_t, std::uint8_t;

// On bits, or on predicates, which are masks of 32 lanes.
template <class T>
struct And {
  static constexpr T lane(T a, T b) { return static_cast<T>(a & b); }
};
template <class T>
struct Or {
  static constexpr T lane(T a, T b) { return static_cast<T>(a | b); }
};
template <class T>
struct Xor {
  static constexpr T lane(T a, T b) { return static_cast<T>(a ^ b); }
};
template <class T>
struct Not {
  static constexpr T lane(T a) { return static_cast<T>(~a); }
};
template <class T>
struct Cnot {
  static constexpr T lane(T a) { return static_cast<T>(a == 0); }
};

// The truth table has one bit for each (a, b, c): bit a * 4 + b * 2 + c. The result is built with
// multiplexers, c innermost; ptxas does better, but here it is a few SIMD words.
class Lop3 {
 public:
  explicit constexpr Lop3(uint32_t table) {
    for (int i = 0; i < 8; ++i) select_[i] = table >> i & 1 ? ~0u : 0u;
  }
  explicit constexpr Lop3(const Instr& instr) : Lop3(static_cast<uint32_t>(instr.imm)) {}
  constexpr uint32_t lane(uint32_t a, uint32_t b, uint32_t c) const {
    const uint32_t a0b0 = (select_[0] & ~c) | (select_[1] & c),
                   a0b1 = (select_[2] & ~c) | (select_[3] & c);
    const uint32_t a1b0 = (select_[4] & ~c) | (select_[5] & c),
                   a1b1 = (select_[6] & ~c) | (select_[7] & c);
    const uint32_t a0 = (a0b0 & ~b) | (a0b1 & b), a1 = (a1b0 & ~b) | (a1b1 & b);
    return (a0 & ~a) | (a1 & a);
  }

 private:
  uint32_t select_[8] = {};
};

// Funnel shift of {b, a} (b high).
template <bool kLeft, bool kClamp>
struct Shf {
  static constexpr uint32_t lane(uint32_t a, uint32_t b, uint32_t c) {
    const uint32_t n = kClamp ? std::min(c, 32u) : c & 31;
    const uint64_t both = uint64_t{b} << 32 | a;
    return kLeft ? static_cast<uint32_t>(both << n >> 32) : static_cast<uint32_t>(both >> n);
  }
};

// Shift amounts beyond the width are clamped to it: zeros, or the sign.
template <class T>
struct Shl {
  static constexpr T lane(T a, uint32_t b) {
    constexpr uint32_t bits = 8 * sizeof(T);
    return b >= bits ? T{0} : static_cast<T>(a << (b & (bits - 1)));
  }
};
template <class T>
struct Shr {
  static constexpr T lane(T a, uint32_t b) {
    constexpr uint32_t bits = 8 * sizeof(T);
    if constexpr (std::is_signed_v<T>)
      return static_cast<T>(a >> std::min(b, bits - 1));
    else
      return b >= bits ? T{0} : static_cast<T>(a >> (b & (bits - 1)));
  }
};

constexpr uint32_t byte_of(uint64_t bytes, uint32_t selector) {
  const auto value = static_cast<uint8_t>(bytes >> (8 * (selector & 7)));
  // Bit 3: the byte's sign, eight times.
  return selector & 8 ? (value & 0x80 ? 0xffu : 0u) : value;
}
constexpr uint32_t permute(uint32_t a, uint32_t b, uint32_t selectors) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) result |= byte_of(bytes, selectors >> (4 * i) & 15) << (8 * i);
  return result;
}
struct Prmt {
  static constexpr uint32_t lane(uint32_t a, uint32_t b, uint32_t selectors) {
    return permute(a, b, selectors);
  }
};
// With selectors that are known before: the same as Prmt, in four shifts.
class PrmtConstant {
 public:
  explicit constexpr PrmtConstant(uint32_t selectors) {
    for (int i = 0; i < 4; ++i) shift_[i] = 8 * (selectors >> (4 * i) & 7);
    // Bytes that are eight copies of a sign: bit 7 in each.
    const uint32_t sign = selectors >> 3 & 0x1111;
    signs_ = (sign & 1) * 0x80 | (sign >> 4 & 1) * 0x8000 | (sign >> 8 & 1) * 0x800000 |
             (sign >> 12 & 1) * 0x80000000u;
    whole_ = signs_ >> 7 | (signs_ - (signs_ >> 7)) | signs_;
  }
  constexpr uint32_t lane(uint32_t a, uint32_t b) const {
    const uint64_t bytes = uint64_t{b} << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; ++i) r |= static_cast<uint32_t>(bytes >> shift_[i] & 0xff) << (8 * i);
    const uint32_t top = r & signs_;  // 0x80 where a copied sign is set
    return (r & ~whole_) | (top - (top >> 7)) | top;
  }

 private:
  uint32_t shift_[4] = {}, signs_ = 0, whole_ = 0;
};
// The named modes; n is the low two bits of c (PTX ISA, table of prmt).
enum Permute : uint8_t { kForward4, kBackward4, kReplicate8, kEdgeLeft, kEdgeRight, kReplicate16 };
template <Permute kMode>
constexpr uint32_t permute_mode(uint32_t a, uint32_t b, uint32_t c) {
  const uint32_t n = c & 3;
  uint32_t selectors = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    uint32_t from = 0;
    switch (kMode) {
      case kForward4:
        from = n + i;
        break;
      case kBackward4:
        from = (n - i) & 7;
        break;
      case kReplicate8:
        from = n;
        break;
      case kEdgeLeft:
        from = std::max(i, n);
        break;
      case kEdgeRight:
        from = std::min(i, n);
        break;
      case kReplicate16:
        from = 2 * (n & 1) + (i & 1);
        break;
    }
    selectors |= from << (4 * i);
  }
  return permute(a, b, selectors);
}
template <Permute kMode>
struct PrmtMode {
  static constexpr uint32_t lane(uint32_t a, uint32_t b, uint32_t c) {
    return permute_mode<kMode>(a, b, c);
  }
};

}  // namespace vgpu::op::logic
