// Infinities and NaNs where they are born.
#include "check_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

MachineOptions finite_only() { return {.threads = 1, .check_finite = true}; }

// Findings in a block of one warp.
Texts numbers_of(const std::string& body) { return Checked(finite_only()).run(body, {32, 1, 1}); }

const std::string kIsStored =
    ", and it is stored at s.cu:9, by thread (0,0,0) of block (0,0,0) in k: ";
const std::string kStoreNine = "\n#9: st.global.b32 [%mine], %f9;\n";
const std::string kAllLanes = " (and 31 more)";

}  // namespace

TEST_CASE("finite: what makes an infinity or NaN of numbers is named with them") {
  const auto one = [](const std::string& operation, const std::string& words) {
    const Texts got = numbers_of(
        "mov.f32 %f1, 0f7F000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, "
        "0fC0000000; mov.f32 %f4, 0fFF800000;\n#5: " +
        operation + kStoreNine);
    CHECK(got == Texts{"s.cu:5: error: finite: " + words + kAllLanes});
  };
  const std::string scale = kIsStored + "scale the operands before";
  const std::string zero = kIsStored + "test the operand for 0 before";
  const std::string infinities =
      kIsStored +
      "test for infinities before (where a mask leaves nothing of a row, "
      "its maximum is -inf)";
  one("add.f32 %f9, %f1, %f1;", "1.70141e+38 + 1.70141e+38 is inf" + scale);
  one("mul.f32 %f9, %f1, %f3;", "1.70141e+38 * -2 is -inf" + scale);
  one("fma.rn.f32 %f9, %f1, %f3, %f3;", "1.70141e+38 * -2 + -2 is -inf" + scale);
  one("sub.f32 %f9, %f4, %f4;", "-inf - -inf is nan" + infinities);
  one("mul.f32 %f9, %f4, %f2;", "-inf * 0 is nan" + infinities);
  one("div.rn.f32 %f9, %f2, %f2;", "0 / 0 is nan" + kIsStored + "test the operands before");
  one("div.rn.f32 %f9, %f3, %f2;", "-2 / 0 is -inf" + zero);
  one("rcp.approx.f32 %f9, %f2;", "1 / 0 is inf" + zero);
  one("lg2.approx.f32 %f9, %f2;", "the logarithm of 0 is -inf" + zero);
  one("sqrt.rn.f32 %f9, %f3;", "sqrt(-2) is nan" + kIsStored + "test the operands before");
  one("ex2.approx.f32 %f9, %f1;", "2 to the power of 1.70141e+38 is inf" + scale);
  one("cvt.f64.f32 %fd1, %f1; mul.f64 %fd1, %fd1, %fd1; cvt.rn.f32.f64 %f9, %fd1;",
      "2.8948e+76 as f32 is inf" + scale);
}

TEST_CASE("finite: halves, pairs of them, and conversions to them") {
  const std::string half = "mov.b32 %r1, 60000; cvt.rn.f16.u32 %h1, %r1; mov.b16 %h2, 0x3c00;\n";
  const auto one = [&](const std::string& operation, const std::string& words) {
    CHECK(numbers_of(half + "#5: " + operation) ==
          Texts{"s.cu:5: error: finite: " + words + kAllLanes});
  };
  const std::string compute =
      kIsStored + "the largest half is 65504: compute in float, or scale before";
  one("add.f16 %h3, %h1, %h1;\n#9: st.global.b16 [%mine], %h3;\n",
      "60000 + 60000 is inf" + compute);
  one("mov.b32 %r2, {%h2, %h1}; mul.f16x2 %r3, %r2, %r2;\n#9: st.global.b32 [%mine], %r3;\n",
      "60000 * 60000 is inf" + compute);
  one("mov.b32 %f1, 0f47C35000; cvt.rn.f16.f32 %h3, %f1;\n#9: st.global.b16 [%mine], %h3;\n",
      "100000 as f16 is inf" + kIsStored +
          "the largest half is 65504: scale the value, or clamp it");
  one("mov.b32 %f1, 0f47C35000; mov.b32 %f2, 0f3F800000; cvt.rn.f16x2.f32 %r3, %f1, %f2;\n"
      "#9: st.global.b32 [%mine], %r3;\n",
      "100000 as f16 is inf" + kIsStored +
          "the largest half is 65504: scale the value, or clamp it");
  one("mov.u32 %r2, 100000; cvt.rn.f16.u32 %h3, %r2;\n#9: st.global.b16 [%mine], %h3;\n",
      "an integer as f16 is inf" + kIsStored +
          "the largest half is 65504: scale the value, or clamp it");
  // A sum that overflowed, and what is computed from it in float is a number again.
  const Texts sum = numbers_of(half +
                               "#5: fma.rn.f16 %h3, %h1, %h2, %h1;\n#6: cvt.f32.f16 %f1, %h3;\n"
                               "rcp.approx.f32 %f9, %f1;" +
                               kStoreNine);
  CHECK(has(sum,
            "s.cu:5: error: finite: 60000 * 1 + 60000 is inf, and it goes on as a float at "
            "s.cu:6, by thread (0,0,0)"));
  CHECK(sum.size() == 1);
}

TEST_CASE("finite: it is told where it was born, through moves, shuffles and other registers") {
  const std::string born = "mov.f32 %f1, 0fFF800000;\n#5: sub.f32 %f2, %f1, %f1;\n";
  for (const std::string way :
       {"mov.b32 %r1, %f2; mov.b64 %rd1, {%r1, %r1}; mov.b64 {%r2, %r3}, %rd1; mov.b32 %f9, %r3;",
        "add.f32 %f3, %f2, 0f3F800000; setp.eq.u32 %p1, %lane, %lane; selp.f32 %f9, %f3, %f1, %p1;",
        "cvt.rn.f16.f32 %h1, %f2; cvt.f32.f16 %f9, %h1;",
        "abs.f32 %f3, %f2; max.NaN.f32 %f9, %f3, %f3;"}) {
    CAPTURE(way);
    CHECK(has(numbers_of(born + way + kStoreNine),
              "s.cu:5: error: finite: -inf - -inf is nan, and it is stored"));
  }
  CHECK(has(numbers_of(born + "\n#7: shfl.sync.bfly.b32 %r2, %f2, 1, 31, -1;\n"),
            "s.cu:5: error: finite: -inf - -inf is nan, and other lanes get it at s.cu:7"));
  CHECK(has(numbers_of(born + "\n#7: red.global.add.f32 [%out], %f2;\n"),
            "s.cu:5: error: finite: -inf - -inf is nan, and it is stored at s.cu:7"));
  // Through shared memory, where it is none of anybody's business yet.
  const std::string shared =
      born + "#7: st.shared.b32 [s], %f2; bar.sync 0; ld.shared.v2.b32 {%f9, %f8}, [s];\n";
  CHECK(numbers_of(shared) == Texts{});
  CHECK(has(numbers_of(shared + kStoreNine),
            "s.cu:5: error: finite: -inf - -inf is nan, and it is stored at s.cu:9"));
  CHECK(numbers_of(shared + "\n#9: st.global.b32 [%mine], %f8;\n") == Texts{});
  CHECK(numbers_of(shared + "st.shared.u32 [s], 0; ld.shared.f32 %f9, [s];" + kStoreNine) ==
        Texts{});
  CHECK(
      has(numbers_of("mov.u32 %r9, s; mad.lo.u32 %r9, %lane, 16, %r9; mov.b32 %r1, 0x7c007c00; "
                     "\n#5: sub.f16x2 %r2, %r1, %r1; st.shared.v4.b32 [%r9], {%r2, %r2, %r2, %r2}; "
                     "bar.warp.sync -1; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r9];\n"
                     "#9: st.global.b32 [%mine], %r3;\n"),
          "s.cu:5: error: finite: inf - inf is nan, and it is stored at s.cu:9"));
}

TEST_CASE("finite: products of tensor cores") {
  // bf16: 0x4000 is 2, 0x7f00 is 1.7e38, 0x7f80 infinity.
  const auto product = [](const std::string& a, const std::string& c) {
    return numbers_of("mov.b32 %r1, " + a + "; mov.b32 %r2, 0x40004000; mov.f32 %f1, " + c +
                      "; mov.f32 %f2, %f1;\n#5: mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
                      "{%f5, %f6, %f7, %f9}, {%r1, %r1}, {%r2}, {%f1, %f2, %f1, %f2};" +
                      kStoreNine);
  };
  CHECK(product("0x40004000", "0f00000000") == Texts{});
  CHECK(has(
      product("0x7f007f00", "0f00000000"),
      "s.cu:5: error: finite: a sum of products goes beyond 3.4e38, the largest float, and it is "
      "stored at s.cu:9"));
  CHECK(product("0x7f804000", "0f00000000") == Texts{});  // an infinity that came as an operand
  CHECK(product("0x40004000", "0f7F800000") == Texts{});
  const Texts halves = numbers_of(
      "mov.b32 %r1, 0x78007800; mov.b32 %r2, 0;\n#5: "
      "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 "
      "{%r5, %r6}, {%r1, %r1}, {%r1}, {%r2, %r2};\n#9: st.global.b32 [%mine], %r6;\n");
  CHECK(
      has(halves, "s.cu:5: error: finite: a sum of products goes beyond 65504, the largest half"));
}

TEST_CASE("finite: what correct programs do is silent") {
  // x / (1 + exp(-x)), and a selection's other side.
  CHECK(
      numbers_of("mov.f32 %f1, 0f43800000; ex2.approx.f32 %f2, %f1; add.f32 %f2, %f2, 0f3F800000; "
                 "div.rn.f32 %f9, %f1, %f2;" +
                 kStoreNine) == Texts{});
  CHECK(numbers_of(
            "mov.f32 %f1, 0f00000000; lg2.approx.f32 %f2, %f1; setp.eq.f32 %p1, %f1, 0f00000000; "
            "selp.f32 %f9, %f1, %f2, %p1;" +
            kStoreNine) == Texts{});
  // Masks: an infinity that is a constant, or loaded, and what comes of it.
  CHECK(
      numbers_of("mov.f32 %f1, 0fFF800000; st.global.f32 [%mine], %f1; ld.global.f32 %f2, [%mine]; "
                 "add.f32 %f3, %f2, 0f3F800000; max.f32 %f4, %f3, %f1; ex2.approx.f32 %f5, %f4; "
                 "st.global.f32 "
                 "[%mine], %f4; add.f32 %f9, %f5, %f5;" +
                 kStoreNine) == Texts{});
  // As nvcc writes logf: the instruction names the infinity.
  CHECK(numbers_of("mov.f32 %f1, 0f00000000; fma.rn.f32 %f9, %f1, 0f7F800000, 0f7F800000;" +
                   kStoreNine) == Texts{});
  // A NaN that was loaded; one that becomes a number of its own; one in a lane that stores nothing.
  CHECK(numbers_of("mov.b32 %r1, 0x7fffffff; st.global.b32 [%mine], %r1; ld.global.f32 %f1, "
                   "[%mine]; add.f32 %f9, "
                   "%f1, %f1;" +
                   kStoreNine) == Texts{});
  CHECK(numbers_of("mov.f32 %f1, 0fFF800000; sub.f32 %f2, %f1, %f1; max.f32 %f9, %f2, 0f00000000;" +
                   kStoreNine) == Texts{});
  CHECK(numbers_of(".local .f32 place; mov.f32 %f1, 0fFF800000; sub.f32 %f9, %f1, %f1; setp.ne.u32 "
                   "%p1, %lane, %lane; @%p1 "
                   "st.global.f32 [%mine], %f9; st.local.f32 [place], %f9;") == Texts{});
}
