// Half-precision and bf16 instructions (PTX ISA, "Half Precision Floating Point Instructions").
// Computed in float, where sums and products of such numbers round so finely that rounding them
// again gives the right result (24 >= 2 * 11 + 2 bits); fused multiply-adds go through an odd sum.
#include <cmath>
#include <limits>

#include "../ptx/forms.h"
#include "half.h"
#include "lanes.h"

namespace vgpu {
namespace {

using std::uint16_t, std::uint32_t, std::uint8_t;

struct F16 {
  static float widen(uint16_t v) { return float_from_half(v); }
  static uint16_t narrow_float(float v) { return half_from_float(v); }
  static uint16_t narrow_double(double v) { return static_cast<uint16_t>(narrow<Fp16>(v)); }
  static constexpr uint16_t exponent_mask = 0x7c00, nan = 0x7fff, one = 0x3c00;
};
struct BF16 {
  static float widen(uint16_t v) { return float_from_bf16(v); }
  static uint16_t narrow_float(float v) { return bf16_from_float(v); }
  static uint16_t narrow_double(double v) { return static_cast<uint16_t>(narrow<Bfloat16>(v)); }
  static constexpr uint16_t exponent_mask = 0x7f80, nan = 0x7fff, one = 0x3f80;
};

template <class F>
inline uint16_t flush(uint16_t v) { return (v & F::exponent_mask) ? v : v & 0x8000; }
template <class F>
inline bool is_nan(uint16_t v) { return (v & 0x7fff) > F::exponent_mask; }

struct Add { template <class F> static uint16_t of(uint16_t a, uint16_t b, uint16_t) { return F::narrow_float(F::widen(a) + F::widen(b)); } };
struct Sub { template <class F> static uint16_t of(uint16_t a, uint16_t b, uint16_t) { return F::narrow_float(F::widen(a) - F::widen(b)); } };
struct Mul { template <class F> static uint16_t of(uint16_t a, uint16_t b, uint16_t) { return F::narrow_float(F::widen(a) * F::widen(b)); } };
struct Fma { template <class F> static uint16_t of(uint16_t a, uint16_t b, uint16_t c) { return F::narrow_double(fma_to_odd(F::widen(a), F::widen(b), F::widen(c))); } };
struct Neg { template <class F> static uint16_t of(uint16_t a, uint16_t, uint16_t) { return is_nan<F>(a) ? F::nan : a ^ 0x8000; } };
struct Abs { template <class F> static uint16_t of(uint16_t a, uint16_t, uint16_t) { return is_nan<F>(a) ? F::nan : a & 0x7fff; } };
struct Tanh { template <class F> static uint16_t of(uint16_t a, uint16_t, uint16_t) { return F::narrow_double(std::tanh(static_cast<double>(F::widen(a)))); } };
struct Ex2 { template <class F> static uint16_t of(uint16_t a, uint16_t, uint16_t) { return F::narrow_double(std::exp2(static_cast<double>(F::widen(a)))); } };

template <bool kMax, bool kNan, bool kXorsign>
struct Extreme {
  template <class F>
  static uint16_t of(uint16_t a, uint16_t b, uint16_t) {
    const uint16_t sign = (a ^ b) & 0x8000;
    if (kXorsign) a &= 0x7fff, b &= 0x7fff;
    uint16_t r;
    if (is_nan<F>(a) || is_nan<F>(b)) {
      r = kNan || (is_nan<F>(a) && is_nan<F>(b)) ? F::nan : is_nan<F>(a) ? b : a;
    } else {
      // As integers, sign and magnitude: -0 is less than +0.
      const auto key = [](uint16_t v) { return v & 0x8000 ? -1 - (v & 0x7fff) : v & 0x7fff; };
      r = (key(a) < key(b)) != kMax ? a : b;
      if (key(a) == key(b)) r = a;
    }
    return kXorsign && r != F::nan ? static_cast<uint16_t>(r | sign) : r;
  }
};

template <class F, class Op>
inline uint16_t apply(const Instr& instr, uint16_t a, uint16_t b, uint16_t c) {
  if (instr.ftz) a = flush<F>(a), b = flush<F>(b), c = flush<F>(c);
  uint16_t r = Op::template of<F>(a, b, c);
  if (instr.ftz) r = flush<F>(r);
  if (instr.sat) r = is_nan<F>(r) || (r & 0x8000) ? uint16_t{0} : r > F::one ? F::one : r;
  if (instr.relu && (r & 0x8000) && !is_nan<F>(r)) r = 0;
  return r;
}

// kHalves: 1 for f16, 2 for f16x2. One loop over 32 or 64 halves.
template <class F, class Op, int kHalves>
void run(Warp& warp, const Instr& instr, uint32_t mask) {
  using Lane = std::conditional_t<kHalves == 1, uint16_t, uint32_t>;
  Result<Lane> result(warp, instr.d[0], mask);
  using Half [[gnu::may_alias]] = uint16_t;
  Half* d = reinterpret_cast<Half*>(result.lanes());
  const Half* a = warp.lanes<const Half>(instr.a);
  const Half* b = instr.b.valid() ? warp.lanes<const Half>(instr.b) : a;
  const Half* c = instr.c.valid() ? warp.lanes<const Half>(instr.c) : a;
  for (int i = 0; i < kHalves * kWarpSize; ++i) d[i] = apply<F, Op>(instr, a[i], b[i], c[i]);
}

template <class Op>
Handler choose(const Instr& instr) {
  switch (instr.type) {
    case Type::f16: return &run<F16, Op, 1>;
    case Type::f16x2: return &run<F16, Op, 2>;
    case Type::bf16: return &run<BF16, Op, 1>;
    case Type::bf16x2: return &run<BF16, Op, 2>;
    default: return nullptr;
  }
}

template <bool kMax>
Handler extreme(const Instr& instr, const Mods& mods) {
  if (mods.has("xorsign")) return instr.nan ? choose<Extreme<kMax, true, true>>(instr) : choose<Extreme<kMax, false, true>>(instr);
  return instr.nan ? choose<Extreme<kMax, true, false>>(instr) : choose<Extreme<kMax, false, false>>(instr);
}

}  // namespace

Handler bind_add_half(Instr& instr, const Mods&) { return choose<Add>(instr); }
Handler bind_sub_half(Instr& instr, const Mods&) { return choose<Sub>(instr); }
Handler bind_mul_half(Instr& instr, const Mods&) { return choose<Mul>(instr); }
Handler bind_fma_half(Instr& instr, const Mods&) { return choose<Fma>(instr); }
Handler bind_neg_half(Instr& instr, const Mods&) { return choose<Neg>(instr); }
Handler bind_abs_half(Instr& instr, const Mods&) { return choose<Abs>(instr); }
Handler bind_tanh_half(Instr& instr, const Mods&) { return choose<Tanh>(instr); }
Handler bind_ex2_half(Instr& instr, const Mods&) { return choose<Ex2>(instr); }
Handler bind_min_half(Instr& instr, const Mods& mods) { return extreme<false>(instr, mods); }
Handler bind_max_half(Instr& instr, const Mods& mods) { return extreme<true>(instr, mods); }

}  // namespace vgpu
