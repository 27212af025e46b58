// Accesses that leave their array and land in its neighbour.
#include "check_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

const std::string kArrays =
    ".shared .align 4 .b8 left[256];\n.shared .align 4 .b8 right[256];\n"
    ".extern .shared .align 16 .b8 dynamic[];\n"
    ".const .align 4 .b8 taps[20];\n.const .align 4 .b8 gains[20];\n";

// Findings in a block of 64 threads; %r9 is four times the thread's number.
Texts bounds(const std::string& body) {
  return Checked({.threads = 1, .check_bounds = true})
      .run(
          "mov.u32 %r8, left; mov.u32 %r8, right; shl.b32 %r9, %thread, 2; cvt.u64.u32 %rd9, "
          "%r9;\n" +
              body,
          {64, 1, 1}, {1, 1, 1}, kArrays);
}
const std::string kLast =
    "s.cu:5: error: bounds: read of 4 bytes, 0 bytes past shared array 'left' (256 bytes), where "
    "'right' lies, by thread (63,0,0) of block (0,0,0) in k";

}  // namespace

TEST_CASE("bounds: an address is followed from the variable that it was taken from") {
  CHECK(bounds("mov.u32 %r1, left; add.u32 %r1, %r1, %r9;\n#5: ld.shared.u32 %r2, [%r1+4];\n") ==
        Texts{kLast});
  CHECK(
      bounds("mov.u64 %rd1, left; add.s64 %rd1, %rd1, %rd9;\n#5: ld.shared.u32 %r2, [%rd1+4];\n") ==
      Texts{kLast});
  CHECK(bounds("mov.u32 %r1, left; mad.lo.u32 %r1, %thread, 4, %r1; add.u32 %r1, %r1, 4;\n"
               "#5: ld.shared.u32 %r2, [%r1];\n") == Texts{kLast});
  // As a generic address, and in a loop that walks along.
  CHECK(bounds("mov.u64 %rd1, left; cvta.shared.u64 %rd2, %rd1; add.s64 %rd2, %rd2, %rd9;\n"
               "#5: ld.u32 %r2, [%rd2+4];\n") == Texts{kLast});
  const std::string walk =
      "mov.u32 %r1, left; mov.u32 %r2, 0;\nL:\n#5: ld.shared.u32 %r3, [%r1];\n"
      "add.u32 %r1, %r1, 4; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, COUNT; @%p1 bra L;\n";
  const auto times = [&](const std::string& count) {
    std::string body = walk;
    return body.replace(body.find("COUNT"), 5, count);
  };
  CHECK(bounds(times("64")) == Texts{});
  CHECK(bounds(times("65")) ==
        Texts{"s.cu:5: error: bounds: read of 4 bytes, 0 bytes past shared array 'left' (256 "
              "bytes), where "
              "'right' lies, by thread (0,0,0) of block (0,0,0) in k (and 63 more)"});
  CHECK(bounds("#5: st.shared.u32 [right+-4], %thread;\n") ==
        Texts{"s.cu:5: error: bounds: write of 4 bytes, 4 bytes before shared array 'right' (256 "
              "bytes), "
              "where 'left' lies, by thread (0,0,0) of block (0,0,0) in k (and 63 more)"});
  CHECK(has(bounds("mov.u32 %r1, right;\n#5: red.shared.add.u32 [%r1+-8], 1;\n"),
            "bounds: atomic access of 4 bytes, 8 bytes before shared array 'right'"));
  CHECK(has(bounds("mov.u32 %r1, left; mov.u64 %rd1, %out;\n"
                   "#5: cp.async.ca.shared.global [%r1+256], [%rd1], 4; cp.async.wait_all;\n"),
            "bounds: write of 4 bytes, 0 bytes past shared array 'left'"));
}

TEST_CASE("bounds: the mbarrier of a copy is no place in the array that the copy fills") {
  CHECK(bounds("mov.u32 %r1, left; mov.u32 %r3, right; setp.ne.u32 %p1, %thread, 0;\n@%p1 bra E;\n"
               "mbarrier.init.shared.b64 [%r3], 1;\n"
               "mbarrier.arrive.expect_tx.shared.b64 %rd2, [%r3], 16;\n"
               "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%out], "
               "16, [%r3];\n"
               "W: mbarrier.try_wait.parity.shared.b64 %p1, [%r3], 0;\n@!%p1 bra W;\nE:\n") ==
        Texts{});
}

TEST_CASE("bounds: constants") {
  CHECK(bounds("mov.u64 %rd1, gains;\n#5: ld.const.f32 %f1, [%rd1+16]; ld.const.f32 %f1, "
               "[taps+16];\n") == Texts{});
  CHECK(has(
      bounds("mov.u64 %rd1, taps;\n#5: ld.const.f32 %f1, [%rd1+-4];\n"),
      "s.cu:5: error: bounds: read of 4 bytes, 4 bytes before const array 'taps' (20 bytes), where "
      "'gains' lies, by thread (0,0,0)"));
  CHECK(has(bounds("#5: ld.const.f32 %f1, [gains+20];\n"), "0 bytes past const array 'gains'"));
}

TEST_CASE("bounds: where it is not known which array is meant, nothing is said") {
  const std::string use = "ld.shared.u32 %r2, [%r1+4]; st.shared.u32 [%r1+4], %r2;\n";
  for (const std::string& body : Texts{
           // Either one, a mask, a swizzle, a number, an address that was loaded, dynamic memory.
           "setp.lt.u32 %p1, %thread, 32; mov.u32 %r3, left; mov.u32 %r4, right; selp.u32 %r1, "
           "%r3, "
           "%r4, %p1; and.b32 %r5, %r1, 0; add.u32 %r1, %r1, -4; setp.lt.u32 %p1, %thread, 0; "
           "@!%p1 mov.u32 %r1, 252;\n",
           "mov.u32 %r1, left; mov.u32 %r3, right; setp.lt.u32 %p1, %thread, 64; @%p1 mov.u32 %r1, "
           "%r3;\n"
           "add.u32 %r1, %r1, -12;\n",
           "mov.u32 %r1, left; add.u32 %r1, %r1, 320; and.b32 %r1, %r1, -16;\n",
           "mov.u32 %r1, left; xor.b32 %r1, %r1, 256;\n", "mov.u32 %r1, 252;\n",
           "mov.u32 %r3, left; st.shared.u32 [right], %r3; bar.sync 0; ld.shared.u32 %r1, [right]; "
           "add.u32 %r1, %r1, 252;\n",
           "mov.u32 %r3, left; mov.u32 %r4, right; sub.u32 %r3, %r4, %r3; and.b32 %r3, %r3, 255; "
           "add.u32 %r1, %r3, 252;\n"}) {
    CAPTURE(body);
    CHECK(bounds(body + use) == Texts{});
  }
}
