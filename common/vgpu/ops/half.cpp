// Half-precision and bf16 instructions (PTX ISA, "Half Precision Floating Point Instructions"): the
// forms. What they do to one lane is in lane/half.h; here it is done to 32 or, for x2, 64 halves.
#include "half.h"
#include "../core/lanes.h"
#include "forms.h"
#include "lane/half.h"

namespace vgpu {
namespace {

using std::uint16_t, std::uint32_t;
namespace half = op::half;

// The registers as kCount halves.
using Half [[gnu::may_alias]] = uint16_t;
template <int kCount>
using Packed = Result<std::conditional_t<kCount == kWarpSize, uint16_t, uint32_t>>;

// Eight at a time.
template <class F, class Op, int kCount>
void eights(Warp& warp, const Instr& instr, uint32_t mask) {
  constexpr bool kThree = Signature<Op>::kOperands == 3;
  const Op op(instr);
  Packed<kCount> result(warp, instr.d[0], mask);
  Half* d = reinterpret_cast<Half*>(result.lanes());
  const Half* a = warp.lanes<const Half>(instr.a);
  const Half* b = warp.lanes<const Half>(instr.b);
  const Half* c = kThree ? warp.lanes<const Half>(instr.c) : a;
  for (int i = 0; i < kCount; i += 8) {
    if constexpr (kThree)
      store8(d + i, op.eight(load8(a + i), load8(b + i), load8(c + i)));
    else
      store8(d + i, op.eight(load8(a + i), load8(b + i)));
  }
  half::finish<F>(instr, d, kCount);
}
// One at a time.
template <class Op, int kCount>
void ones(Warp& warp, const Instr& instr, uint32_t mask) {
  const Op op(instr);
  Packed<kCount> result(warp, instr.d[0], mask);
  Half* d = reinterpret_cast<Half*>(result.lanes());
  const Half* a = warp.lanes<const Half>(instr.a);
  if constexpr (Signature<Op>::kOperands == 1) {
#pragma GCC ivdep
    for (int i = 0; i < kCount; ++i) d[i] = op.lane(a[i]);
  } else {
    const Half* b = warp.lanes<const Half>(instr.b);
#pragma GCC ivdep
    for (int i = 0; i < kCount; ++i) d[i] = op.lane(a[i], b[i]);
  }
}

// In a table: nothing for SIMD.
template <class Op, int kCount>
void looked_up(Warp& warp, const Instr& instr, uint32_t mask) {
  const Op op(instr);
  Packed<kCount> result(warp, instr.d[0], mask);
  Half* d = reinterpret_cast<Half*>(result.lanes());
  const Half* a = warp.lanes<const Half>(instr.a);
  for (int i = 0; i < kCount; ++i) d[i] = op.lane(a[i]);
}

// f(format, std::integral_constant<int, halves in a register of 32 lanes>)
template <class F>
Handler for_format(const Instr& instr, F f) {
  using One = std::integral_constant<int, kWarpSize>;
  using Two = std::integral_constant<int, 2 * kWarpSize>;
  switch (instr.type) {
    case Type::f16:
      return f(half::F16{}, One{});
    case Type::f16x2:
      return f(half::F16{}, Two{});
    case Type::bf16:
      return f(half::BF16{}, One{});
    case Type::bf16x2:
      return f(half::BF16{}, Two{});
    default:
      return nullptr;
  }
}
template <class Op>
Handler arithmetic(const Instr& instr) {
  return for_format(instr, []<class F>(F, auto count) -> Handler {
    return &eights<F, half::Arithmetic<F, Op>, count()>;
  });
}
template <class Op>
Handler bits(const Instr& instr) {
  return for_format(
      instr, []<class F>(F, auto count) -> Handler { return &ones<half::OnBits<F, Op>, count()>; });
}
template <class Op>
Handler bits2(const Instr& instr) {
  return for_format(instr, []<class F>(F, auto count) -> Handler {
    return &ones<half::OnBits2<F, Op>, count()>;
  });
}
template <double (*kFunction)(double)>
Handler function(const Instr& instr) {
  return for_format(instr, []<class F>(F, auto count) -> Handler {
    return &looked_up<half::LookUp<F, kFunction>, count()>;
  });
}
template <bool kMax>
Handler extreme(const Instr& instr, const Mods& mods) {
  if (mods.has("xorsign"))
    return instr.nan ? bits2<half::Extreme<kMax, true, true>>(instr)
                     : bits2<half::Extreme<kMax, false, true>>(instr);
  return instr.nan ? bits2<half::Extreme<kMax, true, false>>(instr)
                   : bits2<half::Extreme<kMax, false, false>>(instr);
}

}  // namespace

Handler bind_add_half(Instr& instr, const Mods&) { return arithmetic<half::Add>(instr); }
Handler bind_sub_half(Instr& instr, const Mods&) { return arithmetic<half::Sub>(instr); }
Handler bind_mul_half(Instr& instr, const Mods&) { return arithmetic<half::Mul>(instr); }
Handler bind_fma_half(Instr& instr, const Mods&) {
  if (instr.sat && instr.relu) return nullptr;  // one or the other
  return for_format(
      instr, []<class F>(F, auto count) -> Handler { return &eights<F, half::Fused<F>, count()>; });
}
Handler bind_neg_half(Instr& instr, const Mods&) { return bits<half::Neg>(instr); }
Handler bind_abs_half(Instr& instr, const Mods&) { return bits<half::Abs>(instr); }
Handler bind_tanh_half(Instr& instr, const Mods&) { return function<&half::tanh_exact>(instr); }
Handler bind_ex2_half(Instr& instr, const Mods&) { return function<&half::exp2_exact>(instr); }
Handler bind_min_half(Instr& instr, const Mods& mods) { return extreme<false>(instr, mods); }
Handler bind_max_half(Instr& instr, const Mods& mods) { return extreme<true>(instr, mods); }

}  // namespace vgpu
