// Integer arithmetic and extended-precision integer arithmetic (PTX ISA, sections of those names).
#include <algorithm>
#include <bit>
#include <limits>

#include "forms.h"
#include "../core/lanes.h"

namespace vgpu {
namespace {

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

// Both 16-bit halves of each lane. `f` works on T and its result wraps to 16 bits.
template <class T, class F>
void map_halves(Warp& warp, const Instr& instr, uint32_t mask, F f) {
  Result<uint32_t> result(warp, instr.d[0], mask);
  using Half [[gnu::may_alias]] = T;
  Half* d = reinterpret_cast<Half*>(result.lanes());
  const Half* a = warp.lanes<const Half>(instr.a);
  const Half* b = warp.lanes<const Half>(instr.b);
#pragma GCC ivdep
  for (int i = 0; i < 2 * kWarpSize; ++i) d[i] = static_cast<T>(f(a[i], b[i]));
}
template <class T, class F>
Handler halves(F) {
  return
      [](Warp& warp, const Instr& instr, uint32_t mask) { map_halves<T>(warp, instr, mask, F{}); };
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
uint32_t find_nth_set(uint32_t bits, uint32_t base, int32_t n) {
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

// `f(A{}, B{})` for the signedness of dp4a's and dp2a's operands.
template <class F>
Handler for_dot_types(Type a, Type b, F f) {
  if (a == Type::u32) return b == Type::u32 ? f(uint32_t{}, uint32_t{}) : f(uint32_t{}, int32_t{});
  return b == Type::u32 ? f(int32_t{}, uint32_t{}) : f(int32_t{}, int32_t{});
}

// The carry flag of a lane is a bit of warp.carry. a - b is a + ~b + 1, and its carry says that nothing
// was borrowed: so ptxas translates it, and so sub.cc and addc, or add.cc and subc, go together.
template <class T, bool kSubtract>
void add_with_carry(Warp& warp, const Instr& instr, uint32_t mask, const T* a, const T* b,
                    bool carry_in) {
  const uint32_t flags = carry_in ? warp.carry : kSubtract ? kFullMask : 0;
  alignas(64) T sum[kWarpSize];
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const T in = flags >> lane & 1, other = kSubtract ? static_cast<T>(~b[lane]) : b[lane];
    sum[lane] = static_cast<T>(a[lane] + other + in);
  }
  // a + b + 1 has carried when the sum is not above a, a + b when it is below.
  if (instr.carry_out) {
    const uint32_t carry = collect(
        [&](int lane) { return flags >> lane & 1 ? sum[lane] <= a[lane] : sum[lane] < a[lane]; });
    warp.carry = (warp.carry & ~mask) | (carry & mask);
  }
  Result<T> result(warp, instr.d[0], mask);
  T* d = result.lanes();
  for (int lane = 0; lane < kWarpSize; ++lane) d[lane] = sum[lane];
}
template <bool kSubtract, bool kCarryIn>
Handler bind_carry(Instr& instr) {
  return for_bits(type_bits(instr.type), [](auto zero) -> Handler {
    using T = decltype(zero);
    return [](Warp& warp, const Instr& instr, uint32_t mask) {
      add_with_carry<T, kSubtract>(warp, instr, mask, warp.lanes<const T>(instr.a),
                                   warp.lanes<const T>(instr.b), kCarryIn);
    };
  });
}

template <bool kCarryIn, bool kHigh>
Handler bind_mad_carry(Instr& instr) {
  return for_integer(instr.type, [](auto zero) -> Handler {
    using T = decltype(zero);
    return [](Warp& warp, const Instr& instr, uint32_t mask) {
      using U = Unsigned<T>;
      const T* a = warp.lanes<const T>(instr.a);
      const T* b = warp.lanes<const T>(instr.b);
      U product[kWarpSize];
      for (int lane = 0; lane < kWarpSize; ++lane)
        product[lane] = static_cast<U>(kHigh ? mul_hi(a[lane], b[lane]) : mul_lo(a[lane], b[lane]));
      add_with_carry<U, false>(warp, instr, mask, product, warp.lanes<const U>(instr.c), kCarryIn);
    };
  });
}

template <bool kMax>
Handler bind_min_max(Instr& instr) {
  if (instr.type == Type::s16x2 || instr.type == Type::u16x2) {
    if (instr.relu)
      return halves<int16_t>([](int16_t a, int16_t b) {
        return std::max<int16_t>(kMax ? std::max(a, b) : std::min(a, b), 0);
      });
    if (instr.type == Type::s16x2)
      return halves<int16_t>(
          [](int16_t a, int16_t b) { return kMax ? std::max(a, b) : std::min(a, b); });
    return halves<uint16_t>(
        [](uint16_t a, uint16_t b) { return kMax ? std::max(a, b) : std::min(a, b); });
  }
  if (instr.relu)
    return handler2<int32_t, int32_t, int32_t>(
        [](int32_t a, int32_t b) { return std::max(kMax ? std::max(a, b) : std::min(a, b), 0); });
  return for_integer(instr.type, [](auto zero) -> Handler {
    using T = decltype(zero);
    return handler2<T, T, T>([](T a, T b) { return kMax ? (a > b ? a : b) : (a < b ? a : b); });
  });
}

}  // namespace

Handler bind_add_integer(Instr& instr, const Mods&) {
  if (instr.type == Type::u16x2 || instr.type == Type::s16x2)
    return halves<uint16_t>([](uint16_t a, uint16_t b) { return a + b; });
  if (instr.sat)
    return handler2<int32_t, int32_t, int32_t>([](int32_t a, int32_t b) {
      // Overflow is when both have one sign and the sum the other: stay in 32 bits for SIMD.
      const int32_t sum = wrap_add(a, b);
      const int32_t limit = (a >> 31) ^ std::numeric_limits<int32_t>::max();
      return ((a ^ sum) & (b ^ sum)) < 0 ? limit : sum;
    });
  return for_bits(type_bits(instr.type), [](auto zero) -> Handler {
    using T = decltype(zero);
    return handler2<T, T, T>([](T a, T b) { return wrap_add(a, b); });
  });
}

Handler bind_sub_integer(Instr& instr, const Mods&) {
  if (instr.sat)
    return handler2<int32_t, int32_t, int32_t>([](int32_t a, int32_t b) {
      const int32_t difference = wrap_sub(a, b);
      const int32_t limit = (a >> 31) ^ std::numeric_limits<int32_t>::max();
      return ((a ^ b) & (a ^ difference)) < 0 ? limit : difference;
    });
  return for_bits(type_bits(instr.type), [](auto zero) -> Handler {
    using T = decltype(zero);
    return handler2<T, T, T>([](T a, T b) { return wrap_sub(a, b); });
  });
}

Handler bind_mul_integer(Instr& instr, const Mods& mods) {
  if (mods.has("wide"))
    return for_integer(instr.type, [](auto zero) -> Handler {
      using T = decltype(zero);
      if constexpr (sizeof(T) == 8)
        return nullptr;
      else
        return handler2<Wide<T>, T, T>([](T a, T b) { return Wide<T>(a) * Wide<T>(b); });
    });
  if (mods.has("hi"))
    return for_integer(instr.type, [](auto zero) -> Handler {
      using T = decltype(zero);
      return handler2<T, T, T>([](T a, T b) { return mul_hi(a, b); });
    });
  return for_bits(type_bits(instr.type), [](auto zero) -> Handler {
    using T = decltype(zero);
    return handler2<T, T, T>([](T a, T b) { return mul_lo(a, b); });
  });
}

Handler bind_mad_integer(Instr& instr, const Mods& mods) {
  if (mods.has("wide"))
    return for_integer(instr.type, [](auto zero) -> Handler {
      using T = decltype(zero);
      if constexpr (sizeof(T) == 8)
        return nullptr;
      else
        return handler3<Wide<T>, T, T, Wide<T>>(
            [](T a, T b, Wide<T> c) { return wrap_add<Wide<T>>(Wide<T>(a) * Wide<T>(b), c); });
    });
  if (instr.sat)
    return handler3<int32_t, int32_t, int32_t, int32_t>(
        [](int32_t a, int32_t b, int32_t c) { return clamp_s32(int64_t{mul_hi(a, b)} + c); });
  if (mods.has("hi"))
    return for_integer(instr.type, [](auto zero) -> Handler {
      using T = decltype(zero);
      return handler3<T, T, T, T>([](T a, T b, T c) { return wrap_add(mul_hi(a, b), c); });
    });
  return for_bits(type_bits(instr.type), [](auto zero) -> Handler {
    using T = decltype(zero);
    return handler3<T, T, T, T>([](T a, T b, T c) { return wrap_add(mul_lo(a, b), c); });
  });
}

Handler bind_mul24(Instr& instr, const Mods& mods) {
  const bool high = mods.has("hi");
  return for_integer(instr.type, [&](auto zero) -> Handler {
    using T = decltype(zero);
    if constexpr (sizeof(T) != 4)
      return nullptr;
    else if (high)
      return handler2<T, T, T>([](T a, T b) { return product24(a, b) >> 16; });
    else
      return handler2<T, T, T>([](T a, T b) { return product24(a, b); });
  });
}

Handler bind_mad24(Instr& instr, const Mods& mods) {
  if (instr.sat)
    return handler3<int32_t, int32_t, int32_t, int32_t>(
        [](int32_t a, int32_t b, int32_t c) { return clamp_s32((product24(a, b) >> 16) + c); });
  const bool high = mods.has("hi");
  return for_integer(instr.type, [&](auto zero) -> Handler {
    using T = decltype(zero);
    if constexpr (sizeof(T) != 4)
      return nullptr;
    else if (high)
      return handler3<T, T, T, T>(
          [](T a, T b, T c) { return wrap_add<T>(product24(a, b) >> 16, c); });
    else
      return handler3<T, T, T, T>([](T a, T b, T c) { return wrap_add<T>(product24(a, b), c); });
  });
}

Handler bind_sad(Instr& instr, const Mods&) {
  return for_integer(instr.type, [](auto zero) -> Handler {
    using T = decltype(zero);
    return handler3<T, T, T, T>(
        [](T a, T b, T c) { return wrap_add(c, a < b ? wrap_sub(b, a) : wrap_sub(a, b)); });
  });
}

Handler bind_div_integer(Instr& instr, const Mods&) {
  return for_integer(instr.type, [](auto zero) -> Handler {
    using T = decltype(zero);
    return handler2<T, T, T>([](T a, T b) { return divide(a, b); });
  });
}
Handler bind_rem(Instr& instr, const Mods&) {
  return for_integer(instr.type, [](auto zero) -> Handler {
    using T = decltype(zero);
    return handler2<T, T, T>([](T a, T b) { return remainder(a, b); });
  });
}

Handler bind_abs_integer(Instr& instr, const Mods&) {
  return for_integer(instr.type, [](auto zero) -> Handler {
    using T = decltype(zero);
    return handler1<T, T>([](T a) { return a < T(0) ? wrap_sub(T(0), a) : a; });
  });
}
Handler bind_neg_integer(Instr& instr, const Mods&) {
  return for_integer(instr.type, [](auto zero) -> Handler {
    using T = decltype(zero);
    return handler1<T, T>([](T a) { return wrap_sub(T(0), a); });
  });
}

Handler bind_min_integer(Instr& instr, const Mods&) { return bind_min_max<false>(instr); }
Handler bind_max_integer(Instr& instr, const Mods&) { return bind_min_max<true>(instr); }

Handler bind_popc(Instr& instr, const Mods&) {
  if (instr.type == Type::b32)
    return handler1<uint32_t, uint32_t>([](uint32_t a) { return std::popcount(a); });
  return handler1<uint32_t, uint64_t>([](uint64_t a) { return std::popcount(a); });
}
Handler bind_clz(Instr& instr, const Mods&) {
  if (instr.type == Type::b32)
    return handler1<uint32_t, uint32_t>([](uint32_t a) { return std::countl_zero(a); });
  return handler1<uint32_t, uint64_t>([](uint64_t a) { return std::countl_zero(a); });
}
Handler bind_bfind(Instr& instr, const Mods& mods) {
  const bool as_shift = mods.has("shiftamt");
  return for_integer(instr.type, [&](auto zero) -> Handler {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 2)
      return nullptr;
    else if (as_shift)
      return handler1<uint32_t, T>([](T a) { return find_most_significant(a, true); });
    else
      return handler1<uint32_t, T>([](T a) { return find_most_significant(a, false); });
  });
}
Handler bind_fns(Instr&, const Mods&) {
  return handler3<uint32_t, uint32_t, uint32_t, int32_t>(
      [](uint32_t bits, uint32_t base, int32_t n) { return find_nth_set(bits, base, n); });
}
Handler bind_brev(Instr& instr, const Mods&) {
  if (instr.type == Type::b32)
    return handler1<uint32_t, uint32_t>([](uint32_t a) { return reverse_bits(a); });
  return handler1<uint64_t, uint64_t>([](uint64_t a) { return reverse_bits(a); });
}

Handler bind_bfe(Instr& instr, const Mods&) {
  return for_integer(instr.type, [](auto zero) -> Handler {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 2)
      return nullptr;
    else
      return handler3<T, T, uint32_t, uint32_t>(
          [](T a, uint32_t pos, uint32_t len) { return extract_field(a, pos, len); });
  });
}
Handler bind_bfi(Instr& instr, const Mods&) {
  return for_bits(type_bits(instr.type), [](auto zero) -> Handler {
    using T = decltype(zero);
    return [](Warp& warp, const Instr& instr, uint32_t mask) {
      Result<T> result(warp, instr.d[0], mask);
      T* d = result.lanes();
      const T* a = warp.lanes<const T>(instr.a);
      const T* b = warp.lanes<const T>(instr.b);
      const uint32_t* pos = warp.lanes<const uint32_t>(instr.c);
      const uint32_t* len = warp.lanes<const uint32_t>(instr.e);
#pragma GCC ivdep
      for (int lane = 0; lane < kWarpSize; ++lane)
        d[lane] = insert_field<T>(a[lane], b[lane], pos[lane], len[lane]);
    };
  });
}

Handler bind_szext(Instr& instr, const Mods& mods) {
  const bool clamp = mods.has("clamp");
  return for_integer(instr.type, [&](auto zero) -> Handler {
    using T = decltype(zero);
    if constexpr (sizeof(T) != 4)
      return nullptr;
    else if (clamp)
      return handler2<T, T, uint32_t>([](T a, uint32_t n) { return extend(a, n, true); });
    else
      return handler2<T, T, uint32_t>([](T a, uint32_t n) { return extend(a, n, false); });
  });
}
Handler bind_bmsk(Instr&, const Mods& mods) {
  if (mods.has("clamp"))
    return handler2<uint32_t, uint32_t, uint32_t>(
        [](uint32_t a, uint32_t b) { return bit_mask(a, b, true); });
  return handler2<uint32_t, uint32_t, uint32_t>(
      [](uint32_t a, uint32_t b) { return bit_mask(a, b, false); });
}

Handler bind_dp4a(Instr& instr, const Mods&) {
  return for_dot_types(instr.dtype, instr.type, [](auto a_type, auto b_type) {
    using A = decltype(a_type);
    using B = decltype(b_type);
    return handler3<uint32_t, uint32_t, uint32_t, uint32_t>([](uint32_t a, uint32_t b, uint32_t c) {
      for (int i = 0; i < 4; ++i) c += static_cast<uint32_t>(byte_of<A>(a, i) * byte_of<B>(b, i));
      return c;
    });
  });
}
Handler bind_dp2a(Instr& instr, const Mods& mods) {
  const bool high = mods.has("hi");
  return for_dot_types(instr.dtype, instr.type, [&](auto a_type, auto b_type) {
    using A = decltype(a_type);
    using B = decltype(b_type);
    if (high)
      return handler3<uint32_t, uint32_t, uint32_t, uint32_t>(
          [](uint32_t a, uint32_t b, uint32_t c) { return c + dot2<A, B>(a, b >> 16); });
    return handler3<uint32_t, uint32_t, uint32_t, uint32_t>(
        [](uint32_t a, uint32_t b, uint32_t c) { return c + dot2<A, B>(a, b); });
  });
}

Handler bind_add_cc(Instr& instr, const Mods&) { return bind_carry<false, false>(instr); }
Handler bind_addc(Instr& instr, const Mods&) { return bind_carry<false, true>(instr); }
Handler bind_sub_cc(Instr& instr, const Mods&) { return bind_carry<true, false>(instr); }
Handler bind_subc(Instr& instr, const Mods&) { return bind_carry<true, true>(instr); }
Handler bind_mad_cc(Instr& instr, const Mods& mods) {
  return mods.has("hi") ? bind_mad_carry<false, true>(instr) : bind_mad_carry<false, false>(instr);
}
Handler bind_madc(Instr& instr, const Mods& mods) {
  return mods.has("hi") ? bind_mad_carry<true, true>(instr) : bind_mad_carry<true, false>(instr);
}

}  // namespace vgpu
