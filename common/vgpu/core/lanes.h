// How handlers reach the 32 lanes of a register, and the loops over them.
#pragma once
#include <bit>
#include <cstring>
#include <type_traits>

#include "signature.h"
#include "warp.h"

namespace vgpu {

// Keeps the inactive lanes of `d` and takes the active ones from `fresh`. Registers are looked at
// as plain words here, whatever their type: hence may_alias.
template <int kBytes>
[[gnu::noinline]] inline void store_active(void* d, const void* fresh, std::uint32_t mask) {
  using Word = std::conditional_t<kBytes == 2, std::uint16_t,
                                  std::conditional_t<kBytes == 4, std::uint32_t, std::uint64_t>>;
  using Lane [[gnu::may_alias]] = Word;
  Lane* to = static_cast<Lane*>(d);
  const Lane* from = static_cast<const Lane*>(fresh);
#pragma GCC ivdep
  for (int lane = 0; lane < kWarpSize; ++lane)
    to[lane] = (mask >> lane & 1) ? from[lane] : to[lane];
}

// Where a handler writes its 32 results: straight into the register when all lanes are active,
// else into a buffer whose active lanes are copied when the handler is done. So each operation is
// one plain loop over all lanes, which the compiler turns into a few SIMD instructions; inactive
// lanes compute something harmless. The operation must not trap on garbage input.
template <class D>
class Result {
 public:
  Result(Warp& warp, Slot slot, std::uint32_t mask)
      : register_(warp.lanes<D>(slot)),
        mask_(mask),
        lanes_(mask == kFullMask ? register_ : fresh_) {}
  ~Result() {
    if (mask_ != kFullMask) store_active<sizeof(D)>(register_, fresh_, mask_);
  }
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
  D* lanes() { return lanes_; }

 private:
  D* register_;
  std::uint32_t mask_;
  D* lanes_;
  alignas(64) D fresh_[kWarpSize];
};

// The loop around a lane operation (signature.h).
template <class Op>
[[gnu::always_inline]] inline void for_lanes(const Op& op, Warp& warp, const Instr& instr,
                                             std::uint32_t mask) {
  using Of = Signature<Op>;
  using D = typename Of::Result;
  using A = typename Of::template Operand<0>;
  Result<D> result(warp, instr.d[0], mask);
  D* d = result.lanes();
  const A* a = warp.lanes<const A>(instr.a);
  if constexpr (Of::kOperands == 1) {
#pragma GCC ivdep
    for (int lane = 0; lane < kWarpSize; ++lane) d[lane] = op.lane(a[lane]);
  } else {
    using B = typename Of::template Operand<1>;
    const B* b = warp.lanes<const B>(instr.b);
    if constexpr (Of::kOperands == 2) {
#pragma GCC ivdep
      for (int lane = 0; lane < kWarpSize; ++lane) d[lane] = op.lane(a[lane], b[lane]);
    } else {
      using C = typename Of::template Operand<2>;
      const C* c = warp.lanes<const C>(instr.c);
      if constexpr (Of::kOperands == 3) {
#pragma GCC ivdep
        for (int lane = 0; lane < kWarpSize; ++lane) d[lane] = op.lane(a[lane], b[lane], c[lane]);
      } else {
        using E = typename Of::template Operand<3>;
        const E* e = warp.lanes<const E>(instr.e);
#pragma GCC ivdep
        for (int lane = 0; lane < kWarpSize; ++lane)
          d[lane] = op.lane(a[lane], b[lane], c[lane], e[lane]);
      }
    }
  }
}

// Its handler: `return &lanewise<op::integer::Add<uint32_t>>;`
template <class Op>
void lanewise(Warp& warp, const Instr& instr, std::uint32_t mask) {
  for_lanes(operation_of<Op>(instr), warp, instr, mask);
}

template <class T>
constexpr Type kIntegerType = Type::none;
template <>
inline constexpr Type kIntegerType<std::uint16_t> = Type::u16;
template <>
inline constexpr Type kIntegerType<std::uint32_t> = Type::u32;
template <>
inline constexpr Type kIntegerType<std::uint64_t> = Type::u64;
template <>
inline constexpr Type kIntegerType<std::int16_t> = Type::s16;
template <>
inline constexpr Type kIntegerType<std::int32_t> = Type::s32;
template <>
inline constexpr Type kIntegerType<std::int64_t> = Type::s64;

// The operation for the one of the types T that the instruction has; null if it has none of them.
template <template <class> class Op, class... T>
Handler lanewise_among(Type type) {
  Handler found = nullptr;
  ((found = type == kIntegerType<T> ? &lanewise<Op<T>> : found), ...);
  return found;
}
// For any integer type.
template <template <class> class Op>
Handler lanewise_integer(Type type) {
  return lanewise_among<Op, std::uint16_t, std::uint32_t, std::uint64_t, std::int16_t, std::int32_t,
                        std::int64_t>(type);
}
// Where signs do not matter, or the type has none: .b32 is .u32, and .s32 too.
template <template <class> class Op>
Handler lanewise_bits(Type type) {
  switch (type_bits(type)) {
    case 16:
      return &lanewise<Op<std::uint16_t>>;
    case 32:
      return &lanewise<Op<std::uint32_t>>;
    case 64:
      return &lanewise<Op<std::uint64_t>>;
    default:
      return nullptr;
  }
}

// Only the active lanes, one after the other: for work that may trap or is not worth SIMD.
template <class F>
inline void each_lane(std::uint32_t mask, F f) {
  for (; mask; mask &= mask - 1) f(std::countr_zero(mask));
}

// Predicates are one bit a lane. `f(lane)` gives the bit. The sum of distinct powers of two is what
// the compiler knows how to do as a compare to a mask and a reduction.
template <class F>
inline std::uint32_t collect(F f) {
  std::uint32_t bits = 0;
  for (int lane = 0; lane < kWarpSize; ++lane) bits |= std::uint32_t{f(lane) ? 1u : 0u} << lane;
  return bits;
}
inline void set_predicate(Warp& warp, Slot slot, std::uint32_t bits, std::uint32_t mask) {
  if (!slot.valid()) return;
  std::uint32_t& p = warp.predicate(slot);
  p = (p & ~mask) | (bits & mask);
}
inline std::uint32_t get_predicate(Warp& warp, Slot slot, bool negated) {
  const std::uint32_t bits = warp.predicate(slot);
  return negated ? ~bits : bits;
}

}  // namespace vgpu
