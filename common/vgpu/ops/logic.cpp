// Logic and shift instructions (PTX ISA, "Logic and Shift Instructions") and prmt.
#include <algorithm>

#include "forms.h"
#include "../core/lanes.h"

namespace vgpu {
namespace {

using std::int16_t, std::int32_t, std::int64_t;
using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;

// Predicates are masks, so a logic operation on them is one on 32 lanes at once.
template <class F>
Handler predicates(F) {
  return [](Warp& warp, const Instr& instr, uint32_t mask) {
    const uint32_t a = get_predicate(warp, instr.a, instr.a_not);
    const uint32_t b = get_predicate(warp, instr.b, instr.b_not);
    set_predicate(warp, instr.d[0], F{}(a, b), mask);
  };
}

template <class F>
Handler bitwise(const Instr& instr, F f) {
  if (instr.type == Type::pred) return predicates(f);
  return for_bits(type_bits(instr.type), [](auto zero) -> Handler {
    using T = decltype(zero);
    return handler2<T, T, T>([](T a, T b) { return static_cast<T>(F{}(a, b)); });
  });
}

// The truth table `kTable` has one bit for each (a, b, c); lop3's immediate, known when decoded.
// The operation is built from its eight minterms; ptxas does better, but here it is a few SIMD
// words.
void lop3(Warp& warp, const Instr& instr, uint32_t mask) {
  const auto table = static_cast<uint32_t>(instr.imm);
  uint32_t select[8];
  for (int i = 0; i < 8; ++i) select[i] = table >> i & 1 ? ~0u : 0u;
  map3<uint32_t, uint32_t, uint32_t, uint32_t>(
      warp, instr, mask, [&](uint32_t a, uint32_t b, uint32_t c) {
        // Multiplexers, c innermost: bit index of the table is a * 4 + b * 2 + c.
        const uint32_t a0b0 = (select[0] & ~c) | (select[1] & c),
                       a0b1 = (select[2] & ~c) | (select[3] & c);
        const uint32_t a1b0 = (select[4] & ~c) | (select[5] & c),
                       a1b1 = (select[6] & ~c) | (select[7] & c);
        const uint32_t a0 = (a0b0 & ~b) | (a0b1 & b), a1 = (a1b0 & ~b) | (a1b1 & b);
        return (a0 & ~a) | (a1 & a);
      });
}

// lop3.BoolOp: p = (result != 0) BoolOp q. The table is in instr.imm, q in e.
template <bool kAnd>
void lop3_predicate(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) uint32_t result[kWarpSize];
  const auto table = static_cast<uint32_t>(instr.imm);
  const uint32_t* a = warp.lanes<const uint32_t>(instr.a);
  const uint32_t* b = warp.lanes<const uint32_t>(instr.b);
  const uint32_t* c = warp.lanes<const uint32_t>(instr.c);
  for (int lane = 0; lane < kWarpSize; ++lane) {
    uint32_t r = 0;
    for (int i = 0; i < 8; ++i)
      if (table >> i & 1)
        r |= (i & 4 ? a[lane] : ~a[lane]) & (i & 2 ? b[lane] : ~b[lane]) &
             (i & 1 ? c[lane] : ~c[lane]);
    result[lane] = r;
  }
  const uint32_t q = warp.predicate(instr.e);
  const uint32_t nonzero = collect([&](int lane) { return result[lane] != 0; });
  uint32_t* d = warp.lanes<uint32_t>(instr.d[0]);
  each_lane(mask, [&](int lane) { d[lane] = result[lane]; });
  set_predicate(warp, instr.d[1], kAnd ? nonzero & q : nonzero | q, mask);
}

// Funnel shift of {b, a} (b high).
template <bool kLeft, bool kClamp>
uint32_t funnel(uint32_t a, uint32_t b, uint32_t c) {
  const uint32_t n = kClamp ? std::min(c, 32u) : c & 31;
  const uint64_t both = uint64_t{b} << 32 | a;
  return kLeft ? static_cast<uint32_t>(both << n >> 32) : static_cast<uint32_t>(both >> n);
}

uint32_t byte_of(uint64_t bytes, uint32_t selector) {
  const auto value = static_cast<uint8_t>(bytes >> (8 * (selector & 7)));
  // Bit 3: the byte's sign, eight times.
  return selector & 8 ? (value & 0x80 ? 0xffu : 0u) : value;
}
uint32_t permute(uint32_t a, uint32_t b, uint32_t selectors) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) result |= byte_of(bytes, selectors >> (4 * i) & 15) << (8 * i);
  return result;
}
// With selectors that are the same for all lanes: four shifts known before the loop.
void permute_constant(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t selectors = warp.lanes<const uint32_t>(instr.c)[0];
  uint32_t shift[4];
  for (int i = 0; i < 4; ++i) shift[i] = 8 * (selectors >> (4 * i) & 7);
  // Bytes that are eight copies of a sign: bit 7 in each.
  const uint32_t sign = selectors >> 3 & 0x1111;
  const uint32_t signs = (sign & 1) * 0x80 | (sign >> 4 & 1) * 0x8000 | (sign >> 8 & 1) * 0x800000 |
                         (sign >> 12 & 1) * 0x80000000u;
  const uint32_t whole = signs >> 7 | (signs - (signs >> 7)) | signs;
  map2<uint32_t, uint32_t, uint32_t>(warp, instr, mask, [=](uint32_t a, uint32_t b) {
    const uint64_t bytes = uint64_t{b} << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; ++i) r |= static_cast<uint32_t>(bytes >> shift[i] & 0xff) << (8 * i);
    const uint32_t top = r & signs;  // 0x80 where a copied sign is set
    return (r & ~whole) | (top - (top >> 7)) | top;
  });
}
// The named modes; n is the low two bits of c (PTX ISA, table of prmt).
enum Permute : uint8_t { kForward4, kBackward4, kReplicate8, kEdgeLeft, kEdgeRight, kReplicate16 };
template <Permute kMode>
uint32_t permute_mode(uint32_t a, uint32_t b, uint32_t c) {
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

}  // namespace

Handler bind_and(Instr& instr, const Mods&) {
  return bitwise(instr, [](auto a, auto b) { return a & b; });
}
Handler bind_or(Instr& instr, const Mods&) {
  return bitwise(instr, [](auto a, auto b) { return a | b; });
}
Handler bind_xor(Instr& instr, const Mods&) {
  return bitwise(instr, [](auto a, auto b) { return a ^ b; });
}
Handler bind_not(Instr& instr, const Mods&) {
  if (instr.type == Type::pred)
    return [](Warp& warp, const Instr& i, uint32_t mask) {
      set_predicate(warp, i.d[0], ~get_predicate(warp, i.a, i.a_not), mask);
    };
  return for_bits(type_bits(instr.type), [](auto zero) -> Handler {
    using T = decltype(zero);
    return handler1<T, T>([](T a) { return static_cast<T>(~a); });
  });
}
Handler bind_cnot(Instr& instr, const Mods&) {
  return for_bits(type_bits(instr.type), [](auto zero) -> Handler {
    using T = decltype(zero);
    return handler1<T, T>([](T a) { return static_cast<T>(a == 0); });
  });
}

Handler bind_lop3(Instr& instr, const Mods& mods) {
  if (instr.imm < 0 || instr.imm > 255) return nullptr;
  if (!instr.e.valid()) return &lop3;
  return mods.has("and") ? &lop3_predicate<true> : &lop3_predicate<false>;
}

Handler bind_shf(Instr&, const Mods& mods) {
  const bool clamp = mods.has("clamp");
  if (mods.has("l"))
    return clamp
               ? handler3<uint32_t, uint32_t, uint32_t, uint32_t>(
                     [](uint32_t a, uint32_t b, uint32_t c) { return funnel<true, true>(a, b, c); })
               : handler3<uint32_t, uint32_t, uint32_t, uint32_t>(
                     [](uint32_t a, uint32_t b, uint32_t c) {
                       return funnel<true, false>(a, b, c);
                     });
  return clamp
             ? handler3<uint32_t, uint32_t, uint32_t, uint32_t>(
                   [](uint32_t a, uint32_t b, uint32_t c) { return funnel<false, true>(a, b, c); })
             : handler3<uint32_t, uint32_t, uint32_t, uint32_t>(
                   [](uint32_t a, uint32_t b, uint32_t c) {
                     return funnel<false, false>(a, b, c);
                   });
}

// Shift amounts beyond the width are clamped to it: zeros, or the sign.
Handler bind_shl(Instr& instr, const Mods&) {
  return for_bits(type_bits(instr.type), [](auto zero) -> Handler {
    using T = decltype(zero);
    constexpr uint32_t bits = 8 * sizeof(T);
    return handler2<T, T, uint32_t>([](T a, uint32_t b) {
      return static_cast<T>(b >= bits ? T{0} : static_cast<T>(a << (b & (bits - 1))));
    });
  });
}
Handler bind_shr(Instr& instr, const Mods&) {
  const auto right = [](auto zero) -> Handler {
    using T = decltype(zero);
    constexpr uint32_t bits = 8 * sizeof(T);
    return handler2<T, T, uint32_t>([](T a, uint32_t b) {
      if constexpr (std::is_signed_v<T>)
        return static_cast<T>(a >> std::min(b, bits - 1));
      else
        return static_cast<T>(b >= bits ? T{0} : static_cast<T>(a >> (b & (bits - 1))));
    });
  };
  return is_signed(instr.type) ? for_integer(instr.type, right)
                               : for_bits(type_bits(instr.type), right);
}

Handler bind_prmt(Instr& instr, const Mods& mods) {
  using U = uint32_t;
  switch (mods.pick({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"})) {
    case kForward4:
      return handler3<U, U, U, U>([](U a, U b, U c) { return permute_mode<kForward4>(a, b, c); });
    case kBackward4:
      return handler3<U, U, U, U>([](U a, U b, U c) { return permute_mode<kBackward4>(a, b, c); });
    case kReplicate8:
      return handler3<U, U, U, U>([](U a, U b, U c) { return permute_mode<kReplicate8>(a, b, c); });
    case kEdgeLeft:
      return handler3<U, U, U, U>([](U a, U b, U c) { return permute_mode<kEdgeLeft>(a, b, c); });
    case kEdgeRight:
      return handler3<U, U, U, U>([](U a, U b, U c) { return permute_mode<kEdgeRight>(a, b, c); });
    case kReplicate16:
      return handler3<U, U, U, U>(
          [](U a, U b, U c) { return permute_mode<kReplicate16>(a, b, c); });
    default:
      if (instr.c.constant()) return &permute_constant;
      return handler3<U, U, U, U>([](U a, U b, U c) { return permute(a, b, c); });
  }
}

}  // namespace vgpu
