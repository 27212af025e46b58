// Logic and shift instructions (PTX ISA, "Logic and Shift Instructions") and prmt: the forms. What
// they do to one lane is in lane/logic.h.
#include "lane/logic.h"
#include "../core/lanes.h"
#include "forms.h"

namespace vgpu {
namespace {

using std::int16_t, std::int32_t, std::int64_t, std::uint32_t;
namespace logic = op::logic;

// Predicates are masks, so a logic operation on them is one on 32 lanes at once.
template <class Op>
void predicates(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t a = get_predicate(warp, instr.a, instr.a_not);
  if constexpr (Signature<Op>::kOperands == 1) {
    set_predicate(warp, instr.d[0], Op::lane(a), mask);
  } else {
    const uint32_t b = get_predicate(warp, instr.b, instr.b_not);
    set_predicate(warp, instr.d[0], Op::lane(a, b), mask);
  }
}
template <template <class> class Op>
Handler bitwise(const Instr& instr) {
  if (instr.type == Type::pred) return &predicates<Op<uint32_t>>;
  return lanewise_bits<Op>(instr.type);
}

// lop3.BoolOp: p = (result != 0) BoolOp q, q in e.
template <bool kAnd>
void lop3_predicate(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) uint32_t result[kWarpSize];
  const logic::Lop3 lop3(instr);
  const uint32_t* a = warp.lanes<const uint32_t>(instr.a);
  const uint32_t* b = warp.lanes<const uint32_t>(instr.b);
  const uint32_t* c = warp.lanes<const uint32_t>(instr.c);
  for (int lane = 0; lane < kWarpSize; ++lane) result[lane] = lop3.lane(a[lane], b[lane], c[lane]);
  const uint32_t q = warp.predicate(instr.e);
  const uint32_t nonzero = collect([&](int lane) { return result[lane] != 0; });
  uint32_t* d = warp.lanes<uint32_t>(instr.d[0]);
  each_lane(mask, [&](int lane) { d[lane] = result[lane]; });
  set_predicate(warp, instr.d[1], kAnd ? nonzero & q : nonzero | q, mask);
}

// prmt whose selectors are a constant: those of lane 0.
void permute_constant(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t selectors = warp.lanes<const uint32_t>(instr.c)[0];
  for_lanes(logic::PrmtConstant(selectors), warp, instr, mask);
}

}  // namespace

Handler bind_and(Instr& instr, const Mods&) { return bitwise<logic::And>(instr); }
Handler bind_or(Instr& instr, const Mods&) { return bitwise<logic::Or>(instr); }
Handler bind_xor(Instr& instr, const Mods&) { return bitwise<logic::Xor>(instr); }
Handler bind_not(Instr& instr, const Mods&) { return bitwise<logic::Not>(instr); }
Handler bind_cnot(Instr& instr, const Mods&) { return lanewise_bits<logic::Cnot>(instr.type); }

Handler bind_lop3(Instr& instr, const Mods& mods) {
  if (instr.imm < 0 || instr.imm > 255) return nullptr;
  if (!instr.e.valid()) return &lanewise<logic::Lop3>;
  return mods.has("and") ? &lop3_predicate<true> : &lop3_predicate<false>;
}

Handler bind_shf(Instr&, const Mods& mods) {
  const bool clamp = mods.has("clamp");
  if (mods.has("l"))
    return clamp ? &lanewise<logic::Shf<true, true>> : &lanewise<logic::Shf<true, false>>;
  return clamp ? &lanewise<logic::Shf<false, true>> : &lanewise<logic::Shf<false, false>>;
}
Handler bind_shl(Instr& instr, const Mods&) { return lanewise_bits<logic::Shl>(instr.type); }
Handler bind_shr(Instr& instr, const Mods&) {
  return is_signed(instr.type) ? lanewise_among<logic::Shr, int16_t, int32_t, int64_t>(instr.type)
                               : lanewise_bits<logic::Shr>(instr.type);
}

Handler bind_prmt(Instr& instr, const Mods& mods) {
  switch (mods.pick({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"})) {
    case logic::kForward4:
      return &lanewise<logic::PrmtMode<logic::kForward4>>;
    case logic::kBackward4:
      return &lanewise<logic::PrmtMode<logic::kBackward4>>;
    case logic::kReplicate8:
      return &lanewise<logic::PrmtMode<logic::kReplicate8>>;
    case logic::kEdgeLeft:
      return &lanewise<logic::PrmtMode<logic::kEdgeLeft>>;
    case logic::kEdgeRight:
      return &lanewise<logic::PrmtMode<logic::kEdgeRight>>;
    case logic::kReplicate16:
      return &lanewise<logic::PrmtMode<logic::kReplicate16>>;
    default:
      return instr.c.constant() ? &permute_constant : &lanewise<logic::Prmt>;
  }
}

}  // namespace vgpu
