// Floating-point arithmetic on integers: slow, exact, rounded once. What the executor's SIMD loops
// are compared with, so it shares nothing with them: a number is an integer times a power of two,
// sums are formed in an accumulator that spans the whole range of a format, and only round()
// rounds.
#pragma once
#include <array>
#include <bit>
#include <cstdint>

namespace soft {

using u64 = std::uint64_t;
using u128 = unsigned __int128;

enum class Round { nearest_even, nearest_away, to_zero, down, up };

struct Format {
  int exponent_bits, mantissa_bits;
  bool has_infinity = true;  // false: the OCP format e4m3, where only all ones is a NaN
  constexpr int bits() const { return 1 + exponent_bits + mantissa_bits; }
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr u64 sign_bit() const { return u64{1} << (exponent_bits + mantissa_bits); }
  constexpr u64 infinity() const { return ((u64{1} << exponent_bits) - 1) << mantissa_bits; }
  constexpr u64 largest() const { return has_infinity ? infinity() - 1 : sign_bit() - 2; }
  constexpr u64 smallest_normal() const { return u64{1} << mantissa_bits; }
  constexpr int lowest_exponent() const { return 1 - bias() - mantissa_bits; }  // the last bit's
};
inline constexpr Format kF16{5, 10}, kBf16{8, 7}, kTf32{8, 10}, kF32{8, 23}, kF64{11, 52};
inline constexpr Format kE4m3{4, 3, false}, kE5m2{5, 2};

// mantissa * 2^exponent, with a bit more than that when `more`.
struct Number {
  enum Kind { zero, finite, infinite, nan } kind = zero;
  bool negative = false;
  u128 mantissa = 0;
  int exponent = 0;
  bool more = false;
};

constexpr int top_bit(u128 v) {  // -1 for 0
  const auto high = static_cast<u64>(v >> 64);
  return high ? 127 - std::countl_zero(high) : 63 - std::countl_zero(static_cast<u64>(v));
}

inline Number decode(const Format& f, u64 bits) {
  Number n;
  n.negative = bits & f.sign_bit();
  const u64 size = bits & (f.sign_bit() - 1);
  if (f.has_infinity ? size > f.infinity() : size == f.sign_bit() - 1) {
    n.kind = Number::nan;
  } else if (f.has_infinity && size == f.infinity()) {
    n.kind = Number::infinite;
  } else if (size != 0) {
    n.kind = Number::finite;
    const u64 field = size >> f.mantissa_bits;
    n.mantissa = size & (f.smallest_normal() - 1);
    if (field) n.mantissa |= f.smallest_normal();
    n.exponent = f.lowest_exponent() + static_cast<int>(field ? field - 1 : 0);
  }
  return n;
}

inline bool is_nan(const Format& f, u64 bits) { return decode(f, bits).kind == Number::nan; }
inline bool is_subnormal(const Format& f, u64 bits) {
  const u64 size = bits & (f.sign_bit() - 1);
  return size != 0 && size < f.smallest_normal();
}
// What .ftz does to operands and results.
inline u64 flush(const Format& f, u64 bits) {
  return is_subnormal(f, bits) ? bits & f.sign_bit() : bits;
}

// A quiet NaN as f16, bf16, f32 and fp8 instructions give it.
inline u64 canonical_nan(const Format& f) { return f.sign_bit() - 1; }

// The size of a number as an integer, rounded; huge ones (from 2^127 on) as all ones.
inline u128 round_integer(const Number& n, Round mode) {
  if (n.kind != Number::finite) return 0;
  if (n.exponent >= 0) return n.exponent < 127 ? n.mantissa << n.exponent : ~u128{0};
  const int drop = -n.exponent;
  u128 whole = drop < 128 ? n.mantissa >> drop : 0;
  const u128 rest = drop < 128 ? n.mantissa & ((u128{1} << drop) - 1) : n.mantissa;
  const u128 half = drop <= 128 ? u128{1} << (drop - 1) : 0;  // 0: rest is less than half
  const bool inexact = rest != 0 || n.more;
  bool up = false;
  switch (mode) {
    case Round::nearest_even:
      up = half && (rest > half || (rest == half && (n.more || (whole & 1))));
      break;
    case Round::nearest_away:
      up = half && rest >= half;
      break;
    case Round::to_zero:
      break;
    case Round::down:
      up = inexact && n.negative;
      break;
    case Round::up:
      up = inexact && !n.negative;
      break;
  }
  return whole + (up ? 1 : 0);
}

// Bits of the nearest (in the sense of `mode`) number of the format. Beyond its largest: infinity,
// or the largest where the mode leads toward zero or `saturate` says so, or NaN without infinities.
inline u64 encode(const Format& f, const Number& n, Round mode = Round::nearest_even,
                  bool saturate = false) {
  const u64 sign = n.negative ? f.sign_bit() : 0;
  if (n.kind == Number::nan) return canonical_nan(f);
  const u64 beyond = saturate ? f.largest() : f.has_infinity ? f.infinity() : canonical_nan(f);
  if (n.kind == Number::infinite) return sign | beyond;
  if (n.kind == Number::zero) return sign;
  // The last bit that the result can have: of a normal number that begins where n does, or
  // subnormal.
  int last = n.exponent + top_bit(n.mantissa) - f.mantissa_bits;
  if (last < f.lowest_exponent()) last = f.lowest_exponent();
  Number scaled = n;
  scaled.exponent -= last;
  const auto whole = static_cast<u64>(round_integer(scaled, mode));
  // Exponent field and mantissa in one: the hidden bit of a normal number counts the field up by
  // one.
  const u64 size = whole + (static_cast<u64>(last - f.lowest_exponent()) << f.mantissa_bits);
  if (size <= f.largest()) return sign | size;
  const bool stays = mode == Round::to_zero || (mode == Round::down && !n.negative) ||
                     (mode == Round::up && n.negative);
  return sign | (stays ? f.largest() : beyond);
}

// A sum without rounding: a fixed-point number whose last bit is 2^-2200, two's complement.
class Accumulator {
 public:
  void add(const Number& n) {
    const int at = n.exponent + kPoint;
    std::array<u64, 3> parts{};
    const int shift = at % 64;
    const auto low = static_cast<u64>(n.mantissa), high = static_cast<u64>(n.mantissa >> 64);
    parts[0] = low << shift;
    parts[1] = (high << shift) | (shift ? low >> (64 - shift) : 0);
    parts[2] = shift ? high >> (64 - shift) : 0;
    u64 carry = 0;
    for (std::size_t i = static_cast<std::size_t>(at / 64), k = 0; i < words_.size(); ++i, ++k) {
      const u64 part = k < 3 ? parts[k] : 0;
      if (k >= 3 && !carry) break;
      const u128 sum = n.negative ? u128{words_[i]} - part - carry : u128{words_[i]} + part + carry;
      words_[i] = static_cast<u64>(sum);
      carry = static_cast<u64>(sum >> 64) & 1;
    }
  }
  // kind zero when the sum is 0.
  Number total() const {
    Number n;
    auto words = words_;
    n.negative = words.back() >> 63;
    if (n.negative) {
      u64 carry = 1;
      for (u64& w : words) {
        w = ~w + carry;
        carry = carry && w == 0;
      }
    }
    int top = static_cast<int>(words.size()) - 1;
    while (top >= 0 && words[static_cast<std::size_t>(top)] == 0) --top;
    if (top < 0) return {};
    n.kind = Number::finite;
    const auto t = static_cast<std::size_t>(top);
    n.mantissa = u128{words[t]} << 64 | (top > 0 ? words[t - 1] : 0);
    n.exponent = (top - 1) * 64 - kPoint;
    for (int i = 0; i < top - 1; ++i) n.more |= words[static_cast<std::size_t>(i)] != 0;
    return n;
  }

 private:
  static constexpr int kPoint = 2200;
  std::array<u64, 72> words_{};
};

inline Number product(const Number& a, const Number& b) {
  Number p;
  p.negative = a.negative != b.negative;
  if (a.kind == Number::nan || b.kind == Number::nan)
    p.kind = Number::nan;
  else if (a.kind == Number::infinite || b.kind == Number::infinite)
    p.kind = a.kind == Number::zero || b.kind == Number::zero ? Number::nan : Number::infinite;
  else if (a.kind == Number::finite && b.kind == Number::finite) {
    p.kind = Number::finite;
    p.mantissa = a.mantissa * b.mantissa;  // at most 53 + 53 bits
    p.exponent = a.exponent + b.exponent;
  }
  return p;
}
inline Number sum(const Number& a, const Number& b, Round mode) {
  if (a.kind == Number::nan || b.kind == Number::nan) return {.kind = Number::nan};
  if (a.kind == Number::infinite || b.kind == Number::infinite) {
    if (a.kind == b.kind && a.negative != b.negative) return {.kind = Number::nan};
    return a.kind == Number::infinite ? a : b;
  }
  Accumulator accumulator;
  if (a.kind == Number::finite) accumulator.add(a);
  if (b.kind == Number::finite) accumulator.add(b);
  Number total = accumulator.total();
  // An exact zero is +0, -0 when rounding down; two zeros of one sign keep it.
  if (total.kind == Number::zero)
    total.negative = a.kind == Number::zero && b.kind == Number::zero && a.negative == b.negative
                         ? a.negative
                         : mode == Round::down;
  return total;
}
inline Number quotient(const Number& a, const Number& b) {
  Number q;
  q.negative = a.negative != b.negative;
  if (a.kind == Number::nan || b.kind == Number::nan)
    q.kind = Number::nan;
  else if (a.kind == Number::infinite)
    q.kind = b.kind == Number::infinite ? Number::nan : Number::infinite;
  else if (b.kind == Number::zero)
    q.kind = a.kind == Number::zero ? Number::nan : Number::infinite;
  else if (a.kind == Number::finite && b.kind == Number::finite) {
    q.kind = Number::finite;
    const int shift = 126 - top_bit(a.mantissa);
    const u128 dividend = a.mantissa << shift;  // 127 bits over at most 53: 74 bits of quotient
    q.mantissa = dividend / b.mantissa;
    q.more = dividend % b.mantissa != 0;
    q.exponent = a.exponent - shift - b.exponent;
  }
  return q;
}
inline Number root(const Number& a) {
  if (a.kind == Number::zero) return a;
  if (a.kind == Number::nan || a.negative) return {.kind = Number::nan};
  if (a.kind == Number::infinite) return a;
  int shift = 125 - top_bit(a.mantissa);
  if ((a.exponent - shift) & 1) ++shift;  // the root's exponent is half
  const u128 square = a.mantissa << shift;
  u128 r = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const u128 next = r | u128{1} << bit;
    if (next * next <= square) r = next;
  }
  Number n;
  n.kind = Number::finite;
  n.mantissa = r;
  n.more = r * r != square;
  n.exponent = (a.exponent - shift) / 2;
  return n;
}
inline Number negated(Number n) {
  n.negative = !n.negative;
  return n;
}
inline Number from_integer(u64 magnitude, bool negative) {
  Number n;
  n.negative = negative;
  n.mantissa = magnitude;
  n.kind = magnitude ? Number::finite : Number::zero;
  return n;
}

// -1, 0, 1; 2 when one is a NaN. -0 equals +0.
inline int compare(const Number& a, const Number& b) {
  if (a.kind == Number::nan || b.kind == Number::nan) return 2;
  const auto rank = [](const Number& n) {  // infinities beyond all finite numbers
    return n.kind == Number::zero ? 0
                                  : (n.kind == Number::infinite ? 2 : 1) * (n.negative ? -1 : 1);
  };
  if (rank(a) != rank(b)) return rank(a) < rank(b) ? -1 : 1;
  if (a.kind != Number::finite) return 0;
  Number difference = sum(a, negated(b), Round::nearest_even);
  return difference.kind == Number::zero ? 0 : difference.negative ? -1 : 1;
}

}  // namespace soft
