// Floating-point instructions of f32 and f64 (PTX ISA, "Floating Point Instructions"): the forms.
// What they do to one lane is in lane/floating.h.
#include <cfenv>

#include "../core/lanes.h"
#include "forms.h"
#include "lane/floating.h"

namespace vgpu {
namespace {

using std::uint32_t;
namespace floating = op::floating;

// Other roundings: the host's rounding mode, set for the whole loop. The operands are read from
// memory behind an opaque call and the results are in memory before the next, so no operation
// leaves the two.
template <class Op>
[[gnu::noinline]] void directed(Warp& warp, const Instr& instr, uint32_t mask) {
  using T = typename Signature<Op>::Result;
  constexpr int kOperands = Signature<Op>::kOperands;
  alignas(64) T operands[3][kWarpSize], results[kWarpSize];
  const Slot slots[3] = {instr.a, kOperands > 1 ? instr.b : instr.a,
                         kOperands > 2 ? instr.c : instr.a};
  for (int i = 0; i < kOperands; ++i) {
    const T* from = warp.lanes<const T>(slots[i]);
    for (int lane = 0; lane < kWarpSize; ++lane)
      operands[i][lane] = instr.ftz ? floating::flush(from[lane]) : from[lane];
  }
  const T *x = operands[0], *y = operands[1], *z = operands[2];
  asm volatile("" : : "r"(operands), "r"(results) : "memory");
  std::fesetround(instr.rounding == Rounding::rz   ? FE_TOWARDZERO
                  : instr.rounding == Rounding::rm ? FE_DOWNWARD
                                                   : FE_UPWARD);
  asm volatile("" : : "r"(operands), "r"(results) : "memory");
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if constexpr (kOperands == 1)
      results[lane] = Op::lane(x[lane]);
    else if constexpr (kOperands == 2)
      results[lane] = Op::lane(x[lane], y[lane]);
    else
      results[lane] = Op::lane(x[lane], y[lane], z[lane]);
  }
  asm volatile("" : : "r"(operands), "r"(results) : "memory");
  std::fesetround(FE_TONEAREST);
  asm volatile("" : : "r"(operands), "r"(results) : "memory");
  Result<T> result(warp, instr.d[0], mask);
  T* d = result.lanes();
  for (int lane = 0; lane < kWarpSize; ++lane)
    d[lane] = floating::finished(results[lane], instr.ftz, instr.sat);
}

template <template <class> class Op>
Handler arithmetic(const Instr& instr) {
  const bool rn = instr.rounding == Rounding::none || instr.rounding == Rounding::rn;
  using F32 = Op<float>;
  using F64 = Op<double>;
  if (instr.type == Type::f64)
    return rn ? &lanewise<floating::Nearest<F64, false, false>> : &directed<F64>;
  if (instr.type != Type::f32) return nullptr;
  if (!rn) return &directed<F32>;
  if (instr.ftz)
    return instr.sat ? &lanewise<floating::Nearest<F32, true, true>>
                     : &lanewise<floating::Nearest<F32, true, false>>;
  return instr.sat ? &lanewise<floating::Nearest<F32, false, true>>
                   : &lanewise<floating::Nearest<F32, false, false>>;
}
template <template <class> class Op>
Handler arithmetic_or_pairs(const Instr& instr) {
  if (instr.type != Type::f32x2) return arithmetic<Op>(instr);
  return instr.ftz ? &lanewise<floating::Pairs<floating::Nearest<Op<float>, true, false>>>
                   : &lanewise<floating::Pairs<floating::Nearest<Op<float>, false, false>>>;
}

template <bool kMax, bool kNan, bool kFtz>
Handler bind_extreme_of(const Instr& instr, const Mods& mods) {
  using namespace floating;
  const bool three = instr.c.valid();
  if (mods.has("xorsign")) return &lanewise<Extreme<float, kMax, kNan, kFtz, kXorsign>>;
  if (mods.has("abs")) return three ? &lanewise<Extreme3<float, kMax, kNan, kFtz, kAbs>> : nullptr;
  return three ? &lanewise<Extreme3<float, kMax, kNan, kFtz, kKeep>>
               : &lanewise<Extreme<float, kMax, kNan, kFtz, kKeep>>;
}
template <bool kMax>
Handler bind_extreme(const Instr& instr, const Mods& mods) {
  if (instr.type == Type::f64)
    return &lanewise<floating::Extreme<double, kMax, false, false, floating::kKeep>>;
  if (instr.nan)
    return instr.ftz ? bind_extreme_of<kMax, true, true>(instr, mods)
                     : bind_extreme_of<kMax, true, false>(instr, mods);
  return instr.ftz ? bind_extreme_of<kMax, false, true>(instr, mods)
                   : bind_extreme_of<kMax, false, false>(instr, mods);
}

// A function with a table: looking into it costs only where one of the lanes needs it.
template <class Op>
void with_known(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t* bits = warp.lanes<const uint32_t>(instr.a);
  uint32_t found = 0;
  for (int lane = 0; lane < kWarpSize; ++lane)
    for (const floating::Known& known : Op::Usual::kKnown) found |= bits[lane] == known.argument;
  if (found)
    lanewise<Op>(warp, instr, mask);
  else
    lanewise<typename Op::Usual>(warp, instr, mask);
}

template <class Op>
Handler approximate(const Instr& instr) {
  return instr.ftz ? &lanewise<floating::InDouble<Op, true>>
                   : &lanewise<floating::InDouble<Op, false>>;
}

}  // namespace

Handler bind_add_float(Instr& instr, const Mods&) {
  return arithmetic_or_pairs<floating::Add>(instr);
}
Handler bind_sub_float(Instr& instr, const Mods&) {
  return arithmetic_or_pairs<floating::Sub>(instr);
}
Handler bind_mul_float(Instr& instr, const Mods&) {
  return arithmetic_or_pairs<floating::Mul>(instr);
}
Handler bind_fma_float(Instr& instr, const Mods&) {
  return arithmetic_or_pairs<floating::Fma>(instr);
}

Handler bind_div_float(Instr& instr, const Mods&) {
  if (instr.approx && instr.type != Type::f64)
    return instr.ftz ? &lanewise<floating::DivApprox<true>> : &lanewise<floating::DivApprox<false>>;
  return arithmetic<floating::Div>(instr);  // .full is within 2 ulp; the right quotient is
}
Handler bind_rcp(Instr& instr, const Mods&) {
  if (instr.approx && instr.type == Type::f64)
    return &lanewise<floating::HighHalf<floating::Rcp<double>>>;
  return arithmetic<floating::Rcp>(instr);
}
Handler bind_sqrt(Instr& instr, const Mods&) { return arithmetic<floating::Sqrt>(instr); }
Handler bind_rsqrt(Instr& instr, const Mods&) {
  if (instr.type == Type::f64)
    return instr.ftz ? &lanewise<floating::HighHalf<floating::Rsqrt>> : &lanewise<floating::Rsqrt>;
  return approximate<floating::Rsqrt>(instr);
}
Handler bind_sin(Instr& instr, const Mods&) { return approximate<floating::Sin>(instr); }
Handler bind_cos(Instr& instr, const Mods&) { return approximate<floating::Cos>(instr); }
Handler bind_lg2(Instr& instr, const Mods&) {
  return instr.ftz ? &with_known<floating::Lg2<true>> : &with_known<floating::Lg2<false>>;
}
Handler bind_tanh(Instr&, const Mods&) { return &lanewise<floating::Tanh>; }
Handler bind_ex2(Instr& instr, const Mods&) {
  return instr.ftz ? &with_known<floating::Ex2<true>> : &with_known<floating::Ex2<false>>;
}

Handler bind_min_float(Instr& instr, const Mods& mods) { return bind_extreme<false>(instr, mods); }
Handler bind_max_float(Instr& instr, const Mods& mods) { return bind_extreme<true>(instr, mods); }
Handler bind_abs_float(Instr& instr, const Mods&) {
  if (instr.type == Type::f64) return &lanewise<floating::Abs<double, false>>;
  return instr.ftz ? &lanewise<floating::Abs<float, true>> : &lanewise<floating::Abs<float, false>>;
}
Handler bind_neg_float(Instr& instr, const Mods&) {
  if (instr.type == Type::f64) return &lanewise<floating::Neg<double, false>>;
  return instr.ftz ? &lanewise<floating::Neg<float, true>> : &lanewise<floating::Neg<float, false>>;
}
Handler bind_copysign(Instr& instr, const Mods&) {
  return instr.type == Type::f64 ? &lanewise<floating::Copysign<double>>
                                 : &lanewise<floating::Copysign<float>>;
}

}  // namespace vgpu
