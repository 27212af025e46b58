// Integer arithmetic and extended-precision integer arithmetic (PTX ISA, sections of those names):
// the forms. What they do to one lane is in lane/integer.h.
#include "lane/integer.h"
#include "../core/lanes.h"
#include "forms.h"

namespace vgpu {
namespace {

using std::int16_t, std::int32_t, std::int64_t;
using std::uint16_t, std::uint32_t, std::uint64_t;
namespace integer = op::integer;

// An integer::Halves: both 16-bit halves of each lane, as 64 lanes of 16 bits.
template <class Op>
void halves(Warp& warp, const Instr& instr, uint32_t mask) {
  Result<uint32_t> result(warp, instr.d[0], mask);
  using Half [[gnu::may_alias]] = typename Op::Half;
  Half* d = reinterpret_cast<Half*>(result.lanes());
  const Half* a = warp.lanes<const Half>(instr.a);
  const Half* b = warp.lanes<const Half>(instr.b);
#pragma GCC ivdep
  for (int i = 0; i < 2 * kWarpSize; ++i) d[i] = Op::Of::lane(a[i], b[i]);
}

// The carry flag of a lane is a bit of warp.carry.
template <class Op, class T>
void with_carry(Warp& warp, const Instr& instr, uint32_t mask, const T* a, const T* b,
                uint32_t flags) {
  alignas(64) T sum[kWarpSize];
  for (int lane = 0; lane < kWarpSize; ++lane)
    sum[lane] = Op::lane(a[lane], b[lane], flags >> lane & 1);
  if (instr.carry_out) {
    const uint32_t carry =
        collect([&](int lane) { return Op::carries(a[lane], sum[lane], flags >> lane & 1); });
    warp.carry = (warp.carry & ~mask) | (carry & mask);
  }
  Result<T> result(warp, instr.d[0], mask);
  T* d = result.lanes();
  for (int lane = 0; lane < kWarpSize; ++lane) d[lane] = sum[lane];
}

// The operation for the signedness of a and b, the parts of dp4a's and dp2a's operands.
template <template <class, class> class Op>
Handler dot_product(const Instr& instr) {
  if (instr.dtype == Type::u32)
    return instr.type == Type::u32 ? &lanewise<Op<uint32_t, uint32_t>>
                                   : &lanewise<Op<uint32_t, int32_t>>;
  return instr.type == Type::u32 ? &lanewise<Op<int32_t, uint32_t>>
                                 : &lanewise<Op<int32_t, int32_t>>;
}

template <class Op, class T, bool kCarryIn>
void carried(Warp& warp, const Instr& instr, uint32_t mask) {
  with_carry<Op, T>(warp, instr, mask, warp.lanes<const T>(instr.a), warp.lanes<const T>(instr.b),
                    kCarryIn       ? warp.carry
                    : Op::kWithout ? kFullMask
                                   : 0);
}
template <template <class> class Op, bool kCarryIn>
Handler bind_carry(const Instr& instr) {
  return type_bits(instr.type) == 32 ? &carried<Op<uint32_t>, uint32_t, kCarryIn>
                                     : &carried<Op<uint64_t>, uint64_t, kCarryIn>;
}

template <class Mul, class T, bool kCarryIn>
void multiplied_with_carry(Warp& warp, const Instr& instr, uint32_t mask) {
  using U = std::make_unsigned_t<T>;
  const T* a = warp.lanes<const T>(instr.a);
  const T* b = warp.lanes<const T>(instr.b);
  U product[kWarpSize];
  for (int lane = 0; lane < kWarpSize; ++lane)
    product[lane] = static_cast<U>(Mul::lane(a[lane], b[lane]));
  with_carry<integer::AddCarry<U>, U>(warp, instr, mask, product, warp.lanes<const U>(instr.c),
                                      kCarryIn ? warp.carry : 0);
}
template <template <class> class Mul, bool kCarryIn>
Handler bind_mad_carry(const Instr& instr) {
  switch (instr.type) {
    case Type::u32:
      return &multiplied_with_carry<Mul<uint32_t>, uint32_t, kCarryIn>;
    case Type::s32:
      return &multiplied_with_carry<Mul<int32_t>, int32_t, kCarryIn>;
    case Type::u64:
      return &multiplied_with_carry<Mul<uint64_t>, uint64_t, kCarryIn>;
    case Type::s64:
      return &multiplied_with_carry<Mul<int64_t>, int64_t, kCarryIn>;
    default:
      return nullptr;
  }
}

template <template <class> class Op>
Handler bind_min_max(const Instr& instr) {
  using S16 = Op<int16_t>;
  if (instr.relu && instr.type == Type::s16x2)
    return &halves<integer::Halves<integer::Relu<S16, int16_t>, int16_t>>;
  if (instr.type == Type::s16x2) return &halves<integer::Halves<S16, int16_t>>;
  if (instr.type == Type::u16x2) return &halves<integer::Halves<Op<uint16_t>, uint16_t>>;
  if (instr.relu) return &lanewise<integer::Relu<Op<int32_t>, int32_t>>;
  return lanewise_integer<Op>(instr.type);
}

}  // namespace

Handler bind_add_integer(Instr& instr, const Mods&) {
  if (instr.type == Type::u16x2 || instr.type == Type::s16x2)
    return &halves<integer::Halves<integer::Add<uint16_t>, uint16_t>>;
  if (instr.sat) return &lanewise<integer::AddSaturated>;
  return lanewise_bits<integer::Add>(instr.type);
}
Handler bind_sub_integer(Instr& instr, const Mods&) {
  if (instr.sat) return &lanewise<integer::SubSaturated>;
  return lanewise_bits<integer::Sub>(instr.type);
}

Handler bind_mul_integer(Instr& instr, const Mods& mods) {
  if (mods.has("wide"))
    return lanewise_among<integer::MulWide, uint16_t, int16_t, uint32_t, int32_t>(instr.type);
  if (mods.has("hi")) return lanewise_integer<integer::MulHi>(instr.type);
  return lanewise_bits<integer::MulLo>(instr.type);
}
Handler bind_mad_integer(Instr& instr, const Mods& mods) {
  if (mods.has("wide"))
    return lanewise_among<integer::MadWide, uint16_t, int16_t, uint32_t, int32_t>(instr.type);
  if (instr.sat) return &lanewise<integer::MadHiSaturated>;
  if (mods.has("hi")) return lanewise_integer<integer::MadHi>(instr.type);
  return lanewise_bits<integer::MadLo>(instr.type);
}
Handler bind_mul24(Instr& instr, const Mods& mods) {
  return mods.has("hi") ? lanewise_among<integer::Mul24Hi, uint32_t, int32_t>(instr.type)
                        : lanewise_among<integer::Mul24Lo, uint32_t, int32_t>(instr.type);
}
Handler bind_mad24(Instr& instr, const Mods& mods) {
  if (instr.sat) return &lanewise<integer::Mad24HiSaturated>;
  return mods.has("hi") ? lanewise_among<integer::Mad24Hi, uint32_t, int32_t>(instr.type)
                        : lanewise_among<integer::Mad24Lo, uint32_t, int32_t>(instr.type);
}
Handler bind_sad(Instr& instr, const Mods&) { return lanewise_integer<integer::Sad>(instr.type); }

Handler bind_div_integer(Instr& instr, const Mods&) {
  return lanewise_integer<integer::Div>(instr.type);
}
Handler bind_rem(Instr& instr, const Mods&) { return lanewise_integer<integer::Rem>(instr.type); }
Handler bind_abs_integer(Instr& instr, const Mods&) {
  return lanewise_integer<integer::Abs>(instr.type);
}
Handler bind_neg_integer(Instr& instr, const Mods&) {
  return lanewise_integer<integer::Neg>(instr.type);
}
Handler bind_min_integer(Instr& instr, const Mods&) { return bind_min_max<integer::Min>(instr); }
Handler bind_max_integer(Instr& instr, const Mods&) { return bind_min_max<integer::Max>(instr); }

Handler bind_popc(Instr& instr, const Mods&) {
  return instr.type == Type::b32 ? &lanewise<integer::Popc<uint32_t>>
                                 : &lanewise<integer::Popc<uint64_t>>;
}
Handler bind_clz(Instr& instr, const Mods&) {
  return instr.type == Type::b32 ? &lanewise<integer::Clz<uint32_t>>
                                 : &lanewise<integer::Clz<uint64_t>>;
}
Handler bind_bfind(Instr& instr, const Mods& mods) {
  if (mods.has("shiftamt"))
    return lanewise_among<integer::BfindShift, uint32_t, int32_t, uint64_t, int64_t>(instr.type);
  return lanewise_among<integer::Bfind, uint32_t, int32_t, uint64_t, int64_t>(instr.type);
}
Handler bind_fns(Instr&, const Mods&) { return &lanewise<integer::Fns>; }
Handler bind_brev(Instr& instr, const Mods&) {
  return instr.type == Type::b32 ? &lanewise<integer::Brev<uint32_t>>
                                 : &lanewise<integer::Brev<uint64_t>>;
}
Handler bind_bfe(Instr& instr, const Mods&) {
  return lanewise_among<integer::Bfe, uint32_t, int32_t, uint64_t, int64_t>(instr.type);
}
Handler bind_bfi(Instr& instr, const Mods&) {
  return instr.type == Type::b32 ? &lanewise<integer::Bfi<uint32_t>>
                                 : &lanewise<integer::Bfi<uint64_t>>;
}
Handler bind_szext(Instr& instr, const Mods& mods) {
  return mods.has("clamp") ? lanewise_among<integer::SzextClamp, uint32_t, int32_t>(instr.type)
                           : lanewise_among<integer::SzextWrap, uint32_t, int32_t>(instr.type);
}
Handler bind_bmsk(Instr&, const Mods& mods) {
  return mods.has("clamp") ? &lanewise<integer::BmskClamp> : &lanewise<integer::BmskWrap>;
}

Handler bind_dp4a(Instr& instr, const Mods&) { return dot_product<integer::Dp4a>(instr); }
Handler bind_dp2a(Instr& instr, const Mods& mods) {
  return mods.has("hi") ? dot_product<integer::Dp2aHi>(instr) : dot_product<integer::Dp2aLo>(instr);
}

Handler bind_add_cc(Instr& instr, const Mods&) {
  return bind_carry<integer::AddCarry, false>(instr);
}
Handler bind_addc(Instr& instr, const Mods&) { return bind_carry<integer::AddCarry, true>(instr); }
Handler bind_sub_cc(Instr& instr, const Mods&) {
  return bind_carry<integer::SubCarry, false>(instr);
}
Handler bind_subc(Instr& instr, const Mods&) { return bind_carry<integer::SubCarry, true>(instr); }
Handler bind_mad_cc(Instr& instr, const Mods& mods) {
  return mods.has("hi") ? bind_mad_carry<integer::MulHi, false>(instr)
                        : bind_mad_carry<integer::MulLo, false>(instr);
}
Handler bind_madc(Instr& instr, const Mods& mods) {
  return mods.has("hi") ? bind_mad_carry<integer::MulHi, true>(instr)
                        : bind_mad_carry<integer::MulLo, true>(instr);
}

}  // namespace vgpu
