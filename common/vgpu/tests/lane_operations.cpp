// Lane operations are called by name, while nothing is known of warps: what executes an instruction
// in another way than the interpreter needs no more than these headers. Most of it is checked when
// this compiles.
#include <doctest/doctest.h>

#include <bit>
#include <limits>

#include "../core/signature.h"
#include "../ops/lane/atomic.h"
#include "../ops/lane/compare.h"
#include "../ops/lane/convert.h"
#include "../ops/lane/floating.h"
#include "../ops/lane/half.h"
#include "../ops/lane/integer.h"
#include "../ops/lane/logic.h"
#include "../ops/lane/move.h"
#include "../ops/lane/video.h"

using namespace vgpu;

namespace {

template <class T>
concept IsKnown = requires {
  sizeof(T);
};
static_assert(!IsKnown<Warp>);

using std::int32_t, std::int64_t, std::uint16_t, std::uint32_t, std::uint64_t;

namespace integer = op::integer;
static_assert(integer::Add<uint32_t>::lane(0xffffffff, 2) == 1);
static_assert(integer::AddSaturated::lane(0x7fffffff, 1) == 0x7fffffff);
static_assert(integer::SubSaturated::lane(-0x7fffffff, 2) == -0x7fffffff - 1);
static_assert(integer::MulHi<int64_t>::lane(-1, 5) == -1);
static_assert(integer::MadWide<uint32_t>::lane(0xffffffff, 2, 3) == 0x200000001);
static_assert(integer::Mul24Hi<uint32_t>::lane(0xff800000, 0x10000) == 0x800000);
static_assert(integer::Div<int32_t>::lane(-7, 0) == -1 && integer::Rem<int32_t>::lane(-7, 4) == -3);
static_assert(integer::BfindShift<uint32_t>::lane(0x10000) == 15);
static_assert(integer::Fns::lane(0b1010'0110, 1, 2) == 2);
static_assert(integer::Bfe<int32_t>::lane(0x00000f80, 7, 5) == -1);
static_assert(integer::Bfi<uint64_t>::lane(0xff, 0, 8, 4) == 0xf00);
static_assert(integer::Dp4a<uint32_t, int32_t>::lane(0x01020304, 0xff010101, 10) == 10 + 9 - 1);
// The halves of a word do not touch each other.
using Halves = integer::Halves<integer::Add<uint16_t>, uint16_t>;
static_assert(Halves::lane(0x0001ffff, 0x00010001) == 0x00020000);
// A chain of two words: what the first carries, the second adds.
static_assert(integer::AddCarry<uint32_t>::carries(0xffffffff, 0, false));
static_assert(integer::AddCarry<uint32_t>::lane(1, 1, true) == 3);
static_assert(integer::SubCarry<uint32_t>::lane(5, 3, true) == 2);
static_assert(!integer::SubCarry<uint32_t>::carries(3, 0xfffffffe, true));

namespace logic = op::logic;
static_assert(logic::Not<uint16_t>::lane(0xff00) == 0xff && logic::Cnot<uint32_t>::lane(0) == 1);
// A table is that of the operation on these three.
static_assert(logic::Lop3((0xf0 & 0xcc) | 0xaa).lane(0x0f, 0x3c, 0x81) == ((0x0f & 0x3c) | 0x81));
static_assert(logic::Shf<true, false>::lane(0x80000000, 1, 33) == 3);
static_assert(logic::Shl<uint32_t>::lane(1, 32) == 0 && logic::Shr<int32_t>::lane(-8, 40) == -1);
static_assert(logic::Prmt::lane(0x33221180, 0x77665544, 0x8147) == 0xff114477);
static_assert(logic::PrmtConstant(0x8147).lane(0x33221180, 0x77665544) == 0xff114477);
static_assert(logic::PrmtMode<logic::kBackward4>::lane(0x33221100, 0x77665544, 1) == 0x66770011);

namespace floating = op::floating;
constexpr float kSubnormal = 0x1p-130f;
template <bool kFtz, bool kSat>
using Sum = floating::Nearest<floating::Add<float>, kFtz, kSat>;
static_assert(Sum<false, false>::lane(kSubnormal, kSubnormal) == 0x1p-129f);
static_assert(Sum<true, false>::lane(kSubnormal, 1) == 1 && Sum<false, true>::lane(1, 2) == 1);
static_assert(floating::Nearest<floating::Fma<double>, false, false>::lane(2, 3, 4) == 10);
static_assert(floating::Pairs<Sum<false, false>>::lane({{1, 2}}, {{3, 4}}).v[1] == 6);
using Largest = floating::Extreme<float, true, true, false, floating::kKeep>;
static_assert(Largest::lane(0x7fc00000, 0) == 0x7fffffff);  // .NaN: it wins
static_assert(Largest::lane(0x80000000, 0) == 0);           // -0 is less than +0
static_assert(floating::Neg<float, true>::lane(-kSubnormal) == 0);
static_assert(floating::DivApprox<false>::lane(1, 0x1p127f) == 0);

namespace compare = op::compare;
using Less = compare::Setp<compare::Plain<int32_t>, Compare::lt>;
static_assert(Less::lane(-1, 0) &&
              !compare::Setp<compare::Plain<uint32_t>, Compare::lt>::lane(-1, 0));
static_assert(compare::Setp<compare::Flushed, Compare::eq>::lane(kSubnormal, 0));
// A comparison and its answer from less, equal, greater are the same, with and without a NaN.
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
template <Compare... kHow>
constexpr bool agree(float a, float b) {
  return ((compare::Setp<compare::Plain<float>, kHow>::lane(a, b) ==
           compare::by_order<bool>(kHow, a<b, a == b, a> b)) &&
          ...);
}
constexpr bool agree_all(float a, float b) {
  using enum Compare;
  return agree<eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, Compare::nan>(a, b);
}
static_assert(agree_all(1, 2) && agree_all(2, 2) && agree_all(2, 1));
static_assert(agree_all(kNan, 1) && agree_all(1, kNan) && agree_all(kNan, kNan));
static_assert(compare::combined(Bool::xor_, true, true) == false);
static_assert(compare::yes_of(Type::f16x2) == 0x3c00);
static_assert(compare::Selp<uint16_t>::lane(1, 2, false) == 2);
static_assert(compare::Slct<uint32_t, compare::Plain<float>>::lane(1, 2, kNan) == 2);
static_assert(compare::Testp<float, compare::kSubnormal>::lane(kSubnormal));

namespace convert = op::convert;
static_assert(convert::Through<std::int8_t, uint32_t, uint16_t>::lane(0x80) == 0xffffff80);
static_assert(convert::FloatToWord<uint32_t, Rounding::rmi>::lane(2.5f) == 2);
static_assert(convert::FloatToWord<int32_t, Rounding::rzi>::lane(-3e9f) == -0x7fffffff - 1);
static_assert(convert::Integral<Rounding::rpi>::lane(-0.5f) == 0);
static_assert(convert::FloatToBf16::lane(1) == 0x3f80 && convert::Bf16ToFloat::lane(0x4000) == 2);
static_assert(convert::FloatToTf32::lane(0x3f801000) == 0x3f802000);
static_assert(convert::Narrow<E4M3>::lane(1000) == 0x7e);  // the largest, 448

namespace move = op::move;
static_assert(move::Pack<std::uint8_t, uint16_t, uint32_t>::lane(0xff7f, 2) == 0x7f0000);
static_assert(move::Unpack<uint16_t, uint16_t, uint64_t>::lane(0x1234'5678'9abc'def0, 3) == 0x1234);
static_assert(move::AddWindow<uint64_t>(0x1000).lane(5) == 0x1005);

namespace video = op::video;
static_assert(video::simple<video::Op::avrg>(3, 4, Compare::none) == 4);
static_assert(video::full<video::Op::mad>(-3, 5, 1, video::kPlusOne, Compare::none) == -13);

namespace atomic = op::atomic;
static_assert(atomic::Replace<uint32_t, uint32_t, atomic::kInc>::lane(7, 7, 0) == 0);
static_assert(atomic::Replace<uint32_t, int32_t, atomic::kMin>::lane(1, 0xffffffff, 0) ==
              0xffffffff);
static_assert(atomic::Replace<uint64_t, uint64_t, atomic::kCompare>::lane(3, 3, 9) == 9);
static_assert(atomic::AddF32::lane(1, 0, true) == 0 && atomic::AddF32::lane(1, 0, false) == 1);

// The signature tells what the warp loop must know.
using Bfi = Signature<integer::Bfi<uint64_t>>;
static_assert(Bfi::kOperands == 4);
static_assert(std::is_same_v<Bfi::Result, uint64_t> && std::is_same_v<Bfi::Operand<2>, uint32_t>);

}  // namespace

TEST_CASE("lane operations: those that call the host's functions") {
  CHECK(op::floating::Nearest<op::floating::Sqrt<float>, false, false>::lane(2) == 1.41421356f);
  CHECK(op::floating::InDouble<op::floating::Cos, false>::lane(0) == 1);
  CHECK(op::floating::Lg2<false>::lane(8) == 3);
  Instr halves;
  halves.imm = op::video::kSignedA | op::video::kSignedB | op::video::kSignedD | op::video::kSat;
  CHECK(op::video::Parallel<op::video::Op::add, 2>(halves).lane(0x7fff0001, 0x0001ffff, 0) ==
        0x7fff0000);
  CHECK(op::video::Scalar<op::video::Op::shl>(halves).lane(0x40000000, 1, 0) == 0x7fffffff);
  const Instr plain;
  Instr relu, flushed;
  relu.relu = flushed.ftz = true;
  using Sum = op::half::Arithmetic<op::half::F16, op::half::Add>;
  CHECK(Sum(plain).lane(0x3c00, 0x0001) == 0x3c00);
  CHECK(Sum(flushed).lane(0x0001, 0x0001) == 0);
  CHECK(op::half::Both<Sum>(plain).lane(0x3c00'0001u, 0x4000'0001u) == 0x4200'0002);
  CHECK(op::half::Fused<op::half::BF16>(relu).lane(0x3f80, 0xc000, 0x3f80) == 0);
  CHECK(op::half::OnBits<op::half::F16, op::half::Neg>(plain).lane(0xfe00) == 0x7fff);
  using Least = op::half::Extreme<false, false, false>;
  CHECK(op::half::OnBits2<op::half::F16, Least>(plain).lane(0x7e00, 0x8000) == 0x8000);
  CHECK(op::half::LookUp<op::half::F16, &op::half::exp2_exact>(plain).lane(0x4000) == 0x4400);
  CHECK(op::atomic::AddHalves<op::atomic::Half>::lane(0x3c00'8000u, 0x3c00'0000u) == 0x4000'0000);
  CHECK(op::atomic::ExtremeHalf<op::atomic::BFloat, true>::lane(0x7fc0, 0x3f80) == 0x3f80);
  CHECK(op::convert::PackIntegersBelow(Type::s8).lane(300, -300, 0x12345678) == 0x56787f80);
  CHECK(op::compare::Setp<op::compare::F16, Compare::ltu>::lane(0x7e00, 0x3c00));
  CHECK_FALSE(op::compare::Setp<op::compare::F16Flushed, Compare::lt>::lane(0, 1));
  CHECK(op::floating::UsualEx2<false>::lane(3) == 8);
  // One of the results at single arguments.
  CHECK(op::floating::Ex2<false>::lane(std::bit_cast<float>(0xc0717899)) ==
        std::bit_cast<float>(0x3d95d000));
}
