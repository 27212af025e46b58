// What the integer instructions do to one lane (PTX ISA, "Integer Arithmetic Instructions" and
// "Extended-Precision Integer Arithmetic Instructions"). See core/signature.h.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace vgpu::op::integer {

using std::int16_t, std::int32_t, std::int64_t, std::int8_t;
using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;
using int128 = __int128;
using uint128 = unsigned __int128;

template <class T>
using Unsigned = std::make_unsigned_t<T>;
template <class T>
constexpr int kBits = static_cast<int>(sizeof(T) * 8);

// Twice as wide, same signedness.
template <class T>
using Wide = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, int128, uint128>>>;

// Arithmetic that wraps: in the unsigned type of at least int's width, where C++ defines it.
template <class T>
using Modular = std::conditional_t<sizeof(T) < 4, uint32_t, Unsigned<T>>;
template <class T>
constexpr T wrap_add(T a, T b) {
  return static_cast<T>(Modular<T>(a) + Modular<T>(b));
}
template <class T>
constexpr T wrap_sub(T a, T b) {
  return static_cast<T>(Modular<T>(a) - Modular<T>(b));
}
template <class T>
constexpr T mul_lo(T a, T b) {
  return static_cast<T>(Modular<T>(a) * Modular<T>(b));
}
template <class T>
constexpr T mul_hi(T a, T b) {
  return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> kBits<T>);
}

constexpr int32_t clamp_s32(int64_t value) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, std::numeric_limits<int32_t>::min(),
                                                  std::numeric_limits<int32_t>::max()));
}

// Division as the GPU's own code for it ends up: a zero divisor gives all ones as quotient and as
// remainder (the ISA leaves it unspecified), and the one overflow of signed division wraps.
// A substitute divisor keeps the host from trapping.
template <class T>
constexpr T divide(T a, T b) {
  if constexpr (std::is_signed_v<T>)
    if (b == T(-1)) return wrap_sub(T(0), a);
  return b == 0 ? static_cast<T>(~T(0)) : static_cast<T>(a / b);
}
template <class T>
constexpr T remainder(T a, T b) {
  if constexpr (std::is_signed_v<T>)
    if (b == T(-1)) return 0;
  return b == 0 ? static_cast<T>(~T(0)) : static_cast<T>(a % b);
}

// Only the low 24 bits of each factor count.
template <class T>
constexpr int64_t product24(T a, T b) {
  const auto low24 = [](T v) -> int64_t {
    if constexpr (std::is_signed_v<T>) return static_cast<int32_t>(uint32_t(v) << 8) >> 8;
    return v & 0xffffff;
  };
  return low24(a) * low24(b);
}

// Bit of the most significant non-sign bit, all ones when there is none.
template <class T>
constexpr uint32_t find_most_significant(T value, bool as_shift) {
  Unsigned<T> u = static_cast<Unsigned<T>>(value);
  if constexpr (std::is_signed_v<T>)
    if (value < 0) u = ~u;
  if (u == 0) return 0xffffffffu;
  const int zeros = std::countl_zero(u);
  return static_cast<uint32_t>(as_shift ? zeros : kBits<T> - 1 - zeros);
}

template <class T>
constexpr T reverse_bits(T v) {
  constexpr T ones = static_cast<T>(~T(0));
  v = static_cast<T>((v >> 1 & (ones / 3)) | (v & (ones / 3)) << 1);
  v = static_cast<T>((v >> 2 & (ones / 5)) | (v & (ones / 5)) << 2);
  v = static_cast<T>((v >> 4 & (ones / 17)) | (v & (ones / 17)) << 4);
  return sizeof(T) == 4 ? static_cast<T>(__builtin_bswap32(static_cast<uint32_t>(v)))
                        : static_cast<T>(__builtin_bswap64(v));
}

// A shift that gives 0 (or the sign) when the amount reaches the width, which C++ leaves open.
template <class U>
constexpr U shift_left(U v, uint32_t n) {
  return n < uint32_t(kBits<U>) ? U(v << n) : U(0);
}

template <class T>
constexpr T extract_field(T a, uint32_t start, uint32_t length) {
  constexpr uint32_t width = kBits<T>;
  const uint32_t pos = start & 0xff, len = length & 0xff;
  if (len == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    // Move the field to the top, then back down with its sign; what lies beyond the top is sign.
    if (pos >= width) return static_cast<T>(a >> (width - 1));
    const uint32_t end = std::min(pos + len, width);
    return static_cast<T>(static_cast<T>(Unsigned<T>(a) << (width - end)) >> (width - end + pos));
  } else {
    if (pos >= width) return 0;
    return static_cast<T>((a >> pos) & ~shift_left<T>(~T(0), len));
  }
}

template <class T>
constexpr T insert_field(T a, T b, uint32_t start, uint32_t length) {
  const uint32_t pos = start & 0xff, len = length & 0xff;
  const T field = shift_left<T>(static_cast<T>(~shift_left<T>(~T(0), len)), pos);
  return static_cast<T>((shift_left<T>(a, pos) & field) | (b & ~field));
}

// N-th set bit of `bits` counted from `base` upwards (or downwards when n is negative).
constexpr uint32_t find_nth_set(uint32_t bits, uint32_t base, int32_t n) {
  if (base > 31) return 0xffffffffu;  // undefined by the ISA
  if (n == 0) return bits >> base & 1 ? base : 0xffffffffu;
  if (n > 0) {
    uint32_t rest = bits & (0xffffffffu << base);
    for (int64_t skip = int64_t{n} - 1; skip > 0 && rest; --skip) rest &= rest - 1;
    return rest ? static_cast<uint32_t>(std::countr_zero(rest)) : 0xffffffffu;
  }
  uint32_t rest = bits & (0xffffffffu >> (31 - base));
  for (int64_t skip = -int64_t{n} - 1; skip > 0 && rest; --skip)
    rest &= ~(0x80000000u >> std::countl_zero(rest));
  return rest ? static_cast<uint32_t>(31 - std::countl_zero(rest)) : 0xffffffffu;
}

constexpr uint32_t bit_mask(uint32_t a, uint32_t b, bool clamp) {
  const uint32_t from = a & 31, count = b & 31, end = from + count;
  if (clamp && a >= 32) return 0;
  const bool to_the_top = end >= 32 || (clamp && b >= 32);
  const uint32_t above = to_the_top ? 0 : 0xffffffffu << end;
  return (0xffffffffu << from) & ~above;
}

template <class T>
constexpr T extend(T a, uint32_t n, bool clamp) {
  if (clamp && n >= 32) return a;
  const uint32_t bits = n & 31;
  if (bits == 0) return 0;
  return static_cast<T>(static_cast<T>(uint32_t(a) << (32 - bits)) >> (32 - bits));
}

// Dot products of the bytes (or halves with bytes) of a word.
template <class T>
constexpr int32_t byte_of(uint32_t word, int i) {
  return std::is_signed_v<T> ? int32_t{static_cast<int8_t>(word >> (8 * i))}
                             : int32_t{static_cast<uint8_t>(word >> (8 * i))};
}
template <class T>
constexpr int32_t half_of(uint32_t word, int i) {
  return std::is_signed_v<T> ? int32_t{static_cast<int16_t>(word >> (16 * i))}
                             : int32_t{static_cast<uint16_t>(word >> (16 * i))};
}

template <class A, class B>
constexpr uint32_t dot2(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(half_of<A>(a, 0) * byte_of<B>(b, 0)) +
         static_cast<uint32_t>(half_of<A>(a, 1) * byte_of<B>(b, 1));
}

// ---- the operations -------------------------------------------------------------------------

template <class T>
struct Add {
  static constexpr T lane(T a, T b) { return wrap_add(a, b); }
};
template <class T>
struct Sub {
  static constexpr T lane(T a, T b) { return wrap_sub(a, b); }
};
// .sat. Overflow is when both have one sign and the sum the other: 32 bits do, which is quicker.
struct AddSaturated {
  static constexpr int32_t lane(int32_t a, int32_t b) {
    const int32_t sum = wrap_add(a, b);
    const int32_t limit = (a >> 31) ^ std::numeric_limits<int32_t>::max();
    return ((a ^ sum) & (b ^ sum)) < 0 ? limit : sum;
  }
};
struct SubSaturated {
  static constexpr int32_t lane(int32_t a, int32_t b) {
    const int32_t difference = wrap_sub(a, b);
    const int32_t limit = (a >> 31) ^ std::numeric_limits<int32_t>::max();
    return ((a ^ b) & (a ^ difference)) < 0 ? limit : difference;
  }
};

template <class T>
struct MulLo {
  static constexpr T lane(T a, T b) { return mul_lo(a, b); }
};
template <class T>
struct MulHi {
  static constexpr T lane(T a, T b) { return mul_hi(a, b); }
};
template <class T>
struct MulWide {
  static constexpr Wide<T> lane(T a, T b) { return Wide<T>(a) * Wide<T>(b); }
};
template <class T>
struct MadLo {
  static constexpr T lane(T a, T b, T c) { return wrap_add(mul_lo(a, b), c); }
};
template <class T>
struct MadHi {
  static constexpr T lane(T a, T b, T c) { return wrap_add(mul_hi(a, b), c); }
};
template <class T>
struct MadWide {
  static constexpr Wide<T> lane(T a, T b, Wide<T> c) {
    return wrap_add<Wide<T>>(Wide<T>(a) * Wide<T>(b), c);
  }
};
struct MadHiSaturated {
  static constexpr int32_t lane(int32_t a, int32_t b, int32_t c) {
    return clamp_s32(int64_t{mul_hi(a, b)} + c);
  }
};

template <class T>
struct Mul24Lo {
  static constexpr T lane(T a, T b) { return static_cast<T>(product24(a, b)); }
};
template <class T>
struct Mul24Hi {
  static constexpr T lane(T a, T b) { return static_cast<T>(product24(a, b) >> 16); }
};
template <class T>
struct Mad24Lo {
  static constexpr T lane(T a, T b, T c) { return wrap_add(Mul24Lo<T>::lane(a, b), c); }
};
template <class T>
struct Mad24Hi {
  static constexpr T lane(T a, T b, T c) { return wrap_add(Mul24Hi<T>::lane(a, b), c); }
};
struct Mad24HiSaturated {
  static constexpr int32_t lane(int32_t a, int32_t b, int32_t c) {
    return clamp_s32((product24(a, b) >> 16) + c);
  }
};

template <class T>
struct Sad {
  static constexpr T lane(T a, T b, T c) {
    return wrap_add(c, a < b ? wrap_sub(b, a) : wrap_sub(a, b));
  }
};
template <class T>
struct Div {
  static constexpr T lane(T a, T b) { return divide(a, b); }
};
template <class T>
struct Rem {
  static constexpr T lane(T a, T b) { return remainder(a, b); }
};
template <class T>
struct Abs {
  static constexpr T lane(T a) { return a < T(0) ? wrap_sub(T(0), a) : a; }
};
template <class T>
struct Neg {
  static constexpr T lane(T a) { return wrap_sub(T(0), a); }
};
template <class T>
struct Min {
  static constexpr T lane(T a, T b) { return a < b ? a : b; }
};
template <class T>
struct Max {
  static constexpr T lane(T a, T b) { return a > b ? a : b; }
};
// .relu: Min's or Max's result, 0 where that is negative.
template <class Op, class T>
struct Relu {
  static constexpr T lane(T a, T b) { return std::max<T>(Op::lane(a, b), 0); }
};

// u16x2, s16x2: an operation on the two halves of a word.
template <class Op, class T>
struct Halves {
  using Half = T;
  using Of = Op;
  static constexpr uint32_t lane(uint32_t a, uint32_t b) {
    const auto of = [](uint32_t x, uint32_t y) {
      return static_cast<uint16_t>(Op::lane(static_cast<T>(x), static_cast<T>(y)));
    };
    return uint32_t{of(a >> 16, b >> 16)} << 16 | of(a, b);
  }
};

template <class T>
struct Popc {
  static constexpr uint32_t lane(T a) { return static_cast<uint32_t>(std::popcount(a)); }
};
template <class T>
struct Clz {
  static constexpr uint32_t lane(T a) { return static_cast<uint32_t>(std::countl_zero(a)); }
};
template <class T>
struct Bfind {
  static constexpr uint32_t lane(T a) { return find_most_significant(a, false); }
};
template <class T>
struct BfindShift {
  static constexpr uint32_t lane(T a) { return find_most_significant(a, true); }
};
struct Fns {
  static constexpr uint32_t lane(uint32_t bits, uint32_t base, int32_t n) {
    return find_nth_set(bits, base, n);
  }
};
template <class T>
struct Brev {
  static constexpr T lane(T a) { return reverse_bits(a); }
};
template <class T>
struct Bfe {
  static constexpr T lane(T a, uint32_t start, uint32_t length) {
    return extract_field(a, start, length);
  }
};
template <class T>
struct Bfi {
  static constexpr T lane(T a, T b, uint32_t start, uint32_t length) {
    return insert_field(a, b, start, length);
  }
};
template <class T>
struct SzextClamp {
  static constexpr T lane(T a, uint32_t n) { return extend(a, n, true); }
};
template <class T>
struct SzextWrap {
  static constexpr T lane(T a, uint32_t n) { return extend(a, n, false); }
};
struct BmskClamp {
  static constexpr uint32_t lane(uint32_t a, uint32_t b) { return bit_mask(a, b, true); }
};
struct BmskWrap {
  static constexpr uint32_t lane(uint32_t a, uint32_t b) { return bit_mask(a, b, false); }
};

// A and B say the signedness of the parts.
template <class A, class B>
struct Dp4a {
  static constexpr uint32_t lane(uint32_t a, uint32_t b, uint32_t c) {
    for (int i = 0; i < 4; ++i) c += static_cast<uint32_t>(byte_of<A>(a, i) * byte_of<B>(b, i));
    return c;
  }
};
template <class A, class B>
struct Dp2aLo {
  static constexpr uint32_t lane(uint32_t a, uint32_t b, uint32_t c) {
    return c + dot2<A, B>(a, b);
  }
};
template <class A, class B>
struct Dp2aHi {
  static constexpr uint32_t lane(uint32_t a, uint32_t b, uint32_t c) {
    return c + dot2<A, B>(a, b >> 16);
  }
};

// add.cc and its kin. a - b is a + ~b + 1, and its carry says that nothing was borrowed: so ptxas
// translates it, and so sub.cc and addc, or add.cc and subc, go together.
template <class T>
struct AddCarry {
  static constexpr bool kWithout = false;  // the carry of an instruction that takes none: add.cc
  static constexpr T lane(T a, T b, bool carry) {
    return static_cast<T>(a + b + static_cast<T>(carry));
  }
  // a + b + 1 has carried when the sum is not above a, a + b when it is below.
  static constexpr bool carries(T a, T sum, bool carry) { return carry ? sum <= a : sum < a; }
};
template <class T>
struct SubCarry {
  static constexpr bool kWithout = true;
  static constexpr T lane(T a, T b, bool carry) {
    return AddCarry<T>::lane(a, static_cast<T>(~b), carry);
  }
  static constexpr bool carries(T a, T difference, bool carry) {
    return AddCarry<T>::carries(a, difference, carry);
  }
};

}  // namespace vgpu::op::integer
