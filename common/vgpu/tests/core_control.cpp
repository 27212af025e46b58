// Control flow: lanes that part and meet, loops, tables, calls, waiting, deadlocks.
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

TEST_CASE("control: if and else, and all lanes go on together") {
  Gpu gpu;
  const auto out = gpu.run(R"(
    setp.lt.u32 %p1, %lane, 10;
    @%p1 bra THEN;
    mov.u32 %r1, 7;
    bra.uni END;
THEN: mov.u32 %r1, 5;
END: add.u32 %r2, %r1, %lane;
    st.global.u32 [%mine], %r2;)");
  CHECK_SAME(out, expected(32, [](auto i) { return i + (i < 10 ? 5 : 7); }));
  // Each side once, what follows once with all lanes.
  CHECK(issued_of(gpu.outcome, "mov.u32 %r1, 7;") == 1);
  CHECK(lanes_of(gpu.outcome, "mov.u32 %r1, 7;") == 22);
  CHECK(issued_of(gpu.outcome, "mov.u32 %r1, 5;") == 1);
  CHECK(lanes_of(gpu.outcome, "mov.u32 %r1, 5;") == 10);
  CHECK(issued_of(gpu.outcome, "add.u32 %r2") == 1);
  CHECK(lanes_of(gpu.outcome, "add.u32 %r2") == 32);
}

TEST_CASE("control: an early return inside an if does not keep the others apart") {
  Gpu gpu;
  // Lanes 0-15 enter, of which 0-3 return; all others meet again at REST.
  const auto out = gpu.run(R"(
    setp.ge.u32 %p1, %lane, 16;
    @%p1 bra REST;
    setp.lt.u32 %p2, %lane, 4;
    @%p2 bra DONE;
    mov.u32 %r1, 3;
REST: add.u32 %r2, %lane, 100;
    st.global.u32 [%mine], %r2;
DONE:)");
  CHECK_SAME(out, expected(32, [](auto i) { return i < 4 ? 0 : i + 100; }));
  CHECK(issued_of(gpu.outcome, "add.u32 %r2") == 1);
  CHECK(lanes_of(gpu.outcome, "add.u32 %r2") == 28);
}

TEST_CASE("control: lanes meet in front of a guarded exit, and go on together behind it") {
  Gpu gpu;
  CHECK_SAME(gpu.run(R"(
    setp.lt.u32 %p1, %lane, 16; setp.eq.u32 %p2, %lane, 5; mov.u32 %r1, 1;
    @%p1 bra MEET;
    add.u32 %r1, %r1, 1;
MEET: @%p2 exit;
    mul.lo.u32 %r1, %r1, 7;
    st.global.u32 [%mine], %r1;)"),
             expected(32, [](auto lane) { return lane == 5   ? 0
                                                 : lane < 16 ? 7
                                                             : 14; }));
  CHECK(counters_of(gpu.outcome, "mul.lo.u32 %r1, %r1, 7;").count.issued == 1);
}

TEST_CASE("control: an early return inside an if, with a loop at the end of the kernel") {
  Gpu gpu;
  gpu.run(R"(
    mov.u32 %r9, 0;
    setp.ge.u32 %p1, %lane, 16;
    @%p1 bra REST;
    setp.lt.u32 %p2, %lane, 4;
    @%p2 bra DONE;
REST: mov.u32 %r2, %lane;
LOOP: add.u32 %r9, %r9, 1;
    st.global.u32 [%mine], %r9;
    setp.lt.u32 %p3, %r9, 5;
    @%p3 bra LOOP;
DONE:)");
  CHECK(issued_of(gpu.outcome, "mov.u32 %r2") == 1);
  CHECK(issued_of(gpu.outcome, "add.u32 %r9") == 5);
  CHECK(lanes_of(gpu.outcome, "add.u32 %r9") == 5 * 28);
}

TEST_CASE("control: loops of different length") {
  Gpu gpu;
  // Lane l turns l + 1 times; then all meet.
  const auto out = gpu.run(R"(
    mov.u32 %r1, 0; mov.u32 %r2, 0;
LOOP: add.u32 %r2, %r2, %r1;
    add.u32 %r1, %r1, 1;
    setp.le.u32 %p1, %r1, %lane;
    @%p1 bra LOOP;
    st.global.u32 [%mine], %r2;)");
  CHECK_SAME(out, expected(32, [](auto i) { return i * (i + 1) / 2; }));
  CHECK(issued_of(gpu.outcome, "add.u32 %r2") == 32);
  CHECK(lanes_of(gpu.outcome, "add.u32 %r2") == 32 * 33 / 2);
  CHECK(issued_of(gpu.outcome, "st.global") == 1);
}

TEST_CASE("control: break and continue in nested loops") {
  Gpu gpu;
  const auto out = gpu.run(R"(
    mov.u32 %r1, 0; mov.u32 %r9, 0;
OUTER: mov.u32 %r2, 0;
INNER: xor.b32 %r3, %r1, %r2;
    xor.b32 %r3, %r3, %lane;
    and.b32 %r4, %r3, 3;
    setp.eq.u32 %p1, %r4, 1;
    @%p1 bra NEXT;             // continue
    and.b32 %r4, %r3, 7;
    setp.eq.u32 %p2, %r4, 6;
    @%p2 bra LEAVE;            // break
    add.u32 %r9, %r9, %r3;
NEXT: add.u32 %r2, %r2, 1;
    setp.lt.u32 %p3, %r2, 9;
    @%p3 bra INNER;
LEAVE: add.u32 %r1, %r1, 1;
    setp.lt.u32 %p4, %r1, 6;
    @%p4 bra OUTER;
    st.global.u32 [%mine], %r9;)");
  CHECK_SAME(out, expected(32, [](std::uint32_t lane) {
               std::uint32_t sum = 0;
               for (std::uint32_t i = 0; i < 6; ++i)
                 for (std::uint32_t j = 0; j < 9; ++j) {
                   const std::uint32_t v = i ^ j ^ lane;
                   if ((v & 3) == 1) continue;
                   if ((v & 7) == 6) break;
                   sum += v;
                 }
               return sum;
             }));
  CHECK(issued_of(gpu.outcome, "add.u32 %r1, %r1, 1") ==
        6);  // all lanes meet behind the inner loop
  CHECK(issued_of(gpu.outcome, "st.global") == 1);
}

TEST_CASE("control: a loop with two entries") {
  Gpu gpu;
  const auto out = gpu.run(R"(
    mov.u32 %r1, 0; mov.u32 %r2, 0;
    and.b32 %r3, %lane, 1;
    setp.eq.u32 %p1, %r3, 1;
    @%p1 bra B;
A:  add.u32 %r2, %r2, 1;
B:  mul.lo.u32 %r2, %r2, 3;
    add.u32 %r2, %r2, %lane;
    add.u32 %r1, %r1, 1;
    and.b32 %r4, %lane, 7;
    setp.ge.u32 %p2, %r1, %r4;
    @%p2 bra OUT;
    and.b32 %r5, %r1, 1;
    setp.eq.u32 %p3, %r5, 0;
    @%p3 bra A;
    bra B;
OUT: st.global.u32 [%mine], %r2;)");
  CHECK_SAME(out, expected(32, [](std::uint32_t lane) {
               std::uint32_t n = 0, v = 0;
               bool a = !(lane & 1);
               for (;;) {
                 if (a) v += 1;
                 v = v * 3 + lane;
                 if (++n >= (lane & 7)) return v;
                 a = (n & 1) == 0;
               }
             }));
  CHECK(issued_of(gpu.outcome, "st.global") == 1);
}

TEST_CASE("control: brx.idx, per lane, guarded, and with an index outside the table") {
  Gpu gpu;
  const std::string body = R"(
    ld.global.u32 %r7, [%in];
    rem.u32 %r1, %lane, %r7;
    mov.u32 %r2, 1000;
    setp.lt.u32 %p1, %lane, 30;
    @%p1 brx.idx %r1, TABLE;
    add.u32 %r2, %r2, 5;
    bra END;
TABLE: .branchtargets C0, C1, C2, END;
C0: add.u32 %r2, %r2, 10; bra END;
C1: add.u32 %r2, %r2, 20;          // falls through
C2: add.u32 %r2, %r2, 40;
END: st.global.u32 [%mine], %r2;)";
  const auto out = gpu.run(body, 32, {4});
  CHECK_SAME(out, expected(32, [](auto l) {
               if (l >= 30) return 1005u;
               constexpr std::uint32_t add[] = {10, 60, 40, 0};
               return 1000 + add[l % 4];
             }));
  CHECK(issued_of(gpu.outcome, "st.global") == 1);
  CHECK(issued_of(gpu.outcome, "add.u32 %r2, %r2, 40") <= 2);
  const auto array = gpu.array<std::uint32_t>(32, 0);
  const auto in = gpu.array<std::uint32_t>(1, 6);
  const LaunchOutcome bad = gpu.launch(kernel(body), {array.address(), in.address()});
  CHECK(bad.fault.kind == FaultKind::illegal_instruction);
  CHECK(bad.fault.message.find("branch index 4 in a table of 4") != std::string::npos);
}

TEST_CASE("control: .uni on what all lanes do") {
  Gpu gpu;
  const std::string before = ".func f() { ret.uni; }\n";
  CHECK_SAME(
      gpu.run(
          "mov.u32 %r1, 1; brx.idx.uni %r1, TABLE; TABLE: .branchtargets A, B; A: st.global.u32 "
          "[%mine], 1; bra.uni END; B: call.uni f; st.global.u32 [%mine], 2; END: ret.uni;",
          32, {0}, {32, 1, 1}, {1, 1, 1}, before),
      std::vector<std::uint32_t>(32, 2));
}

TEST_CASE("control: guarded exit, and warps of which only some lanes are left") {
  Gpu gpu;
  const auto out = gpu.run(R"(
    and.b32 %r1, %lane, 3;
    setp.eq.u32 %p1, %r1, 2;
    @%p1 exit;
    vote.sync.ballot.b32 %r2, 1, 0xffffffff;
    activemask.b32 %r3;
    setp.eq.u32 %p2, %r2, %r3;
    selp.u32 %r4, %r2, 0, %p2;
    st.global.u32 [%mine], %r4;)");
  CHECK_SAME(out, expected(32, [](auto l) { return l % 4 == 2 ? 0 : 0xbbbbbbbbu; }));
}
