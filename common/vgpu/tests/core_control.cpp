// Control flow: lanes that part and meet, loops, tables, calls, waiting, deadlocks.
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

std::uint64_t lanes_of(const LaunchOutcome& outcome, const std::string& text) { return counters_of(outcome, text).count.lanes; }
std::uint64_t issued_of(const LaunchOutcome& outcome, const std::string& text) { return counters_of(outcome, text).count.issued; }

}  // namespace

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
             expected(32, [](auto lane) { return lane == 5 ? 0 : lane < 16 ? 7 : 14; }));
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
  CHECK(issued_of(gpu.outcome, "add.u32 %r1, %r1, 1") == 6);   // all lanes meet behind the inner loop
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
  CHECK_SAME(gpu.run("mov.u32 %r1, 1; brx.idx.uni %r1, TABLE; TABLE: .branchtargets A, B; A: st.global.u32 [%mine], 1; bra.uni END; B: call.uni f; st.global.u32 [%mine], 2; END: ret.uni;", 32, {0}, {32, 1, 1}, {1, 1, 1}, before),
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

// ---- calls --------------------------------------------------------------------------------------

TEST_CASE("control: calls, results, arguments of each size, and a struct") {
  Gpu gpu;
  const std::string functions = R"(
.visible .func (.param .b32 result) sum(.param .b8 a, .param .b16 b, .param .b64 c, .param .align 8 .b8 s[16]) {
  .reg .b32 %r<9>; .reg .b16 %h<3>; .reg .b64 %rd<3>;
  ld.param.s8 %r1, [a]; ld.param.u16 %r2, [b]; ld.param.u64 %rd1, [c]; cvt.u32.u64 %r3, %rd1;
  ld.param.u32 %r4, [s+4]; ld.param.v2.u32 {%r5, %r6}, [s+8];
  add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4; add.u32 %r1, %r1, %r5; sub.u32 %r1, %r1, %r6;
  st.param.b32 [result], %r1; ret;
}
.visible .func (.param .align 8 .b8 pair[16]) twice(.param .b64 v) {
  .reg .b64 %rd<3>; ld.param.u64 %rd1, [v]; add.u64 %rd2, %rd1, %rd1;
  st.param.b64 [pair], %rd1; st.param.b64 [pair+8], %rd2; ret;
}
)";
  const auto out = gpu.run(R"(
    { .param .b8 a; .param .b16 b; .param .b64 c; .param .align 8 .b8 s[16]; .param .b32 result;
      mov.b32 %r1, -5; st.param.b8 [a], %r1; cvt.u16.u32 %h1, %lane; st.param.b16 [b], %h1;
      mov.u64 %rd1, 1000; st.param.b64 [c], %rd1; st.param.b32 [s+4], 70; st.param.v2.b32 [s+8], {%lane, 3};
      call.uni (result), sum, (a, b, c, s);
      ld.param.b32 %r2, [result]; }
    { .param .b64 v; .param .align 8 .b8 pair[16];
      cvt.u64.u32 %rd2, %r2; st.param.b64 [v], %rd2;
      call (pair), twice, (v);
      ld.param.v2.b64 {%rd3, %rd4}, [pair]; }
    cvt.u32.u64 %r5, %rd4; st.global.u32 [%mine], %r5;)", 32, {0}, {32, 1, 1}, {1, 1, 1}, functions);
  CHECK_SAME(out, expected(32, [](auto l) { return 2 * (-5 + l + 1000 + 70 + l - 3); }));
}

TEST_CASE("control: divergent calls and returns; all lanes meet behind the call") {
  Gpu gpu;
  const std::string functions = R"(
.func (.param .b32 result) f(.param .b32 x) {
  .reg .b32 %r<9>; .reg .pred %p<5>;
  ld.param.b32 %r1, [x];
  mov.u32 %r3, 0;
LOOP: setp.gt.u32 %p1, %r3, %r1;
  @%p1 bra OUT;
  add.u32 %r3, %r3, 4;
  setp.eq.u32 %p2, %r3, 12;
  @%p2 bra HALF;
  bra LOOP;
HALF: st.param.b32 [result], 500; ret;
OUT: st.param.b32 [result], %r3; ret;
}
)";
  const auto out = gpu.run(R"(
    mov.u32 %r2, 9;
    setp.lt.u32 %p1, %lane, 20;
    { .param .b32 x; .param .b32 result; st.param.b32 [x], %lane;
      @%p1 call (result), f, (x);
      @%p1 ld.param.b32 %r2, [result]; }
    mov.u32 %r7, %r2;
    st.global.u32 [%mine], %r7;)", 32, {0}, {32, 1, 1}, {1, 1, 1}, functions);
  CHECK_SAME(out, expected(32, [](std::uint32_t l) -> std::uint32_t {
          if (l >= 20) return 9;
          for (std::uint32_t n = 0;;) {
            if (n > l) return n;
            n += 4;
            if (n == 12) return 500;
          }
        }));
  CHECK(issued_of(gpu.outcome, "mov.u32 %r7") == 1);
  CHECK(lanes_of(gpu.outcome, "mov.u32 %r7") == 32);
}

TEST_CASE("control: recursion, to a depth of its own in each lane") {
  Gpu gpu;
  const std::string functions = R"(
.func (.param .b32 result) fib(.param .b32 n) {
  .reg .b32 %r<9>; .reg .pred %p<2>;
  ld.param.b32 %r1, [n];
  setp.lt.u32 %p1, %r1, 2;
  @%p1 bra SMALL;
  { .param .b32 x; .param .b32 y; sub.u32 %r2, %r1, 1; st.param.b32 [x], %r2; call (y), fib, (x); ld.param.b32 %r3, [y]; }
  { .param .b32 x; .param .b32 y; sub.u32 %r2, %r1, 2; st.param.b32 [x], %r2; call (y), fib, (x); ld.param.b32 %r4, [y]; }
  add.u32 %r1, %r3, %r4;
SMALL: st.param.b32 [result], %r1; ret;
}
)";
  const auto out = gpu.run(R"(
    and.b32 %r1, %lane, 15;
    { .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; call (y), fib, (x); ld.param.b32 %r2, [y]; }
    st.global.u32 [%mine], %r2;)", 32, {0}, {32, 1, 1}, {1, 1, 1}, functions);
  const std::function<std::uint32_t(std::uint32_t)> fib = [&](std::uint32_t n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); };
  CHECK_SAME(out, expected(32, [&](auto l) { return fib(l & 15); }));
  CHECK(issued_of(gpu.outcome, "st.global") == 1);
}

TEST_CASE("control: indirect calls with a target of its own in each lane") {
  Gpu gpu;
  std::string functions;
  for (int i = 0; i < 3; ++i)
    functions += ".func (.param .b32 result) f" + std::to_string(i) + "(.param .b32 x) { .reg .b32 %r1; ld.param.b32 %r1, [x]; " +
                 (i == 0 ? "add.u32 %r1, %r1, 1;" : i == 1 ? "mul.lo.u32 %r1, %r1, 3;" : "not.b32 %r1, %r1;") +
                 " st.param.b32 [result], %r1; ret; }\n";
  functions += ".global .align 8 .u64 table[3] = {f0, f1, f2};\n";
  const std::string body = R"(
    rem.u32 %r1, %lane, 3;
    setp.lt.u32 %p1, %lane, 29;
    mov.u32 %r5, 4242;
    mul.wide.u32 %rd1, %r1, 8; mov.u64 %rd2, table; add.u64 %rd1, %rd1, %rd2; ld.global.u64 %rd3, [%rd1];
    { .param .b32 x; .param .b32 y; st.param.b32 [x], %lane;
      @%p1 call (y), %rd3, (x), proto;
      proto: .callprototype (.param .b32 _) _ (.param .b32 _);
      @%p1 ld.param.b32 %r5, [y]; }
    add.u32 %r6, %r5, 0;
    st.global.u32 [%mine], %r6;)";
  const auto out = gpu.run(body, 32, {0}, {32, 1, 1}, {1, 1, 1}, functions);
  CHECK_SAME(out, expected(32, [](auto l) { return l >= 29 ? 4242 : l % 3 == 0 ? l + 1 : l % 3 == 1 ? l * 3 : ~l; }));
  CHECK(issued_of(gpu.outcome, "add.u32 %r6") == 1);
  CHECK(lanes_of(gpu.outcome, "@%p1 call") == 29);   // one call a target, each lane in one
  CHECK(issued_of(gpu.outcome, "@%p1 call") == 3);
}

TEST_CASE("control: a call of an address that is no function is an error, and the machine lives on") {
  Gpu gpu;
  for (const char* address : {"0", "1", "0x0f0000000000", "0x0f0000000007", "0xffffffffffffffff"}) {
    const auto out = gpu.array<std::uint32_t>(32, 0);
    const LaunchOutcome bad = gpu.launch(kernel(std::string("mov.u64 %rd3, ") + address + R"(;
      { .param .b32 x; st.param.b32 [x], %lane; call %rd3, (x), proto;
      proto: .callprototype _ (.param .b32 _); })"), {out.address(), out.address()});
    CHECK(bad.fault.kind == FaultKind::illegal_instruction);
    CHECK(bad.fault.message.find("call of an address that is no function") != std::string::npos);
  }
  CHECK(gpu.run("st.global.u32 [%mine], 1;") == std::vector<std::uint32_t>(32, 1));
}

TEST_CASE("control: an address of a function whose module is gone") {
  Gpu gpu;
  const auto out = gpu.array<std::uint64_t>(32, 0);
  const std::string functions = ".func f() { ret; }\n";
  REQUIRE(gpu.launch(kernel("mov.u64 %rd1, f; st.global.u64 [%out], %rd1;", functions), {out.address(), out.address()}).fault.message == "");
  const std::uint64_t address = out[0];
  const LaunchOutcome bad = gpu.launch(kernel("mov.u64 %rd3, " + std::to_string(address) + "; call %rd3, (), proto;\nproto: .callprototype _ ();"),
                                       {out.address(), out.address()});
  CHECK(bad.fault.message.find("call of an address that is no function") != std::string::npos);
}

TEST_CASE("control: exit inside a function that was called") {
  Gpu gpu;
  const std::string functions = R"(
.func f(.param .b32 x) { .reg .b32 %r1; .reg .pred %p1; ld.param.b32 %r1, [x]; setp.lt.u32 %p1, %r1, 7; @%p1 exit; ret; }
)";
  const auto out = gpu.run(R"(
    { .param .b32 x; st.param.b32 [x], %lane; call f, (x); }
    activemask.b32 %r1;
    st.global.u32 [%mine], %r1;)", 32, {0}, {32, 1, 1}, {1, 1, 1}, functions);
  CHECK_SAME(out, expected(32, [](auto l) { return l < 7 ? 0 : 0xffffff80u; }));
}

TEST_CASE("control: recursion without an end is a stack overflow, not a crash") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(32, 0);
  // With local memory: 16 KiB run out. Without: the depth does.
  for (const char* local : {".local .align 4 .b8 buffer[400];", ""}) {
    const std::string functions = std::string(".func f() { ") + local + " call f; ret; }\n";
    const LaunchOutcome bad = gpu.launch(kernel("call f;", functions), {out.address(), out.address()});
    CHECK(bad.fault.kind == FaultKind::stack_overflow);
    CHECK(bad.fault.message.find(*local ? "stack overflow" : "calls nested deeper than") != std::string::npos);
  }
  CHECK(gpu.run("st.global.u32 [%mine], 1;") == std::vector<std::uint32_t>(32, 1));
}

TEST_CASE("control: local variables of frames do not overlap") {
  Gpu gpu;
  const std::string functions = R"(
.func (.param .b32 result) f(.param .b32 n) {
  .local .align 4 .b32 mine[3]; .reg .b32 %r<9>; .reg .pred %p1; .reg .b64 %rd<4>;
  ld.param.b32 %r1, [n];
  st.local.u32 [mine+8], %r1;
  setp.eq.u32 %p1, %r1, 0;
  mov.u32 %r3, 0;
  @%p1 bra END;
  { .param .b32 x; .param .b32 y; sub.u32 %r2, %r1, 1; st.param.b32 [x], %r2; call (y), f, (x); ld.param.b32 %r3, [y]; }
END: mov.u64 %rd1, mine; cvta.local.u64 %rd2, %rd1; ld.u32 %r4, [%rd2+8];   // generic
  add.u32 %r3, %r3, %r4;
  st.param.b32 [result], %r3; ret;
}
)";
  const auto out = gpu.run(R"(
    .local .align 8 .b32 own[2];
    st.local.u32 [own], %lane; st.local.u32 [own+4], 77;
    { .param .b32 x; .param .b32 y; st.param.b32 [x], %lane; call (y), f, (x); ld.param.b32 %r2, [y]; }
    ld.local.u32 %r3, [own]; ld.local.u32 %r4, [own+4];
    add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4;
    st.global.u32 [%mine], %r2;)", 32, {0}, {32, 1, 1}, {1, 1, 1}, functions);
  CHECK_SAME(out, expected(32, [](auto l) { return l * (l + 1) / 2 + l + 77; }));
}

// ---- waiting for each other ---------------------------------------------------------------------

TEST_CASE("control: a spin lock among the lanes of a warp, among warps, among blocks") {
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    Gpu gpu({.threads = 2, .schedule_seed = seed});
    // Every thread adds 1 to in[1], not atomically, under the lock in[0]. Two ways to write the loop.
    const auto out = gpu.array<std::uint32_t>(512, 0);
    for (const char* loop : {R"(
TRY:  atom.global.cas.b32 %r1, [%in], 0, 1;
      setp.ne.u32 %p1, %r1, 0;
      @%p1 bra TRY;
      ld.volatile.global.u32 %r2, [%in+4]; add.u32 %r2, %r2, 1; st.volatile.global.u32 [%in+4], %r2;
      atom.global.exch.b32 %r3, [%in], 0;)",
                             R"(
      mov.u32 %r4, 0;
TRY:  atom.global.exch.b32 %r1, [%in], 1;
      setp.ne.u32 %p1, %r1, 0;
      @%p1 bra AGAIN;
      ld.volatile.global.u32 %r2, [%in+4]; add.u32 %r2, %r2, 1; st.volatile.global.u32 [%in+4], %r2;
      membar.gl; st.volatile.global.u32 [%in], 0;
      mov.u32 %r4, 1;
AGAIN: setp.eq.u32 %p2, %r4, 0;
      @%p2 bra TRY;)"}) {
      const auto in = gpu.array<std::uint32_t>(2, 0);
      const LaunchOutcome outcome = gpu.launch(kernel(loop), {out.address(), in.address()}, {64, 1, 1}, {8, 1, 1});
      REQUIRE(outcome.fault.message == "");
      CHECK(in[1] == 512);
      CHECK(in[0] == 0);
    }
  }
}

TEST_CASE("control: a lane waits for what another lane of its warp does after the meeting point") {
  for (const std::uint64_t seed : {0, 5}) {
    Gpu gpu({.threads = 1, .schedule_seed = seed});
    const auto out = gpu.run(R"(
      setp.ne.u32 %p1, %lane, 3;
      @%p1 bra REST;
SPIN: ld.volatile.global.u32 %r1, [%in];
      setp.eq.u32 %p2, %r1, 0;
      @%p2 bra SPIN;
REST: setp.eq.u32 %p3, %lane, 9;
      @%p3 st.volatile.global.u32 [%in], 77;
      add.u32 %r2, %lane, 1;
      st.global.u32 [%mine], %r2;)");
    CHECK_SAME(out, expected(32, [](auto l) { return l + 1; }));
  }
}

TEST_CASE("control: blocks hand a value on, in either order") {
  for (const bool backward : {false, true})
    for (const std::uint64_t seed : {0, 7}) {
      Gpu gpu({.threads = 2, .schedule_seed = seed});
      // Block b waits for in[b] (flag) of its neighbour, as decoupled look-back does; 40 blocks.
      const auto in = gpu.array<std::uint32_t>(42, 0);
      const auto out = gpu.array<std::uint32_t>(64, 0);
      in[backward ? 41 : 0] = 1;
      const std::string wait = backward ? "add.u32 %r1, %block, 2;" : "mov.u32 %r1, %block;";
      const std::string body = R"(
        setp.ne.u32 %p1, %thread, 0;
        @%p1 bra JOIN;
        )" + wait + R"(
        mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %rd1, %in;
WAIT:   ld.acquire.gpu.global.u32 %r2, [%rd1];
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra WAIT;
        add.u32 %r3, %block, 1; mul.wide.u32 %rd2, %r3, 4; add.u64 %rd2, %rd2, %in;
        add.u32 %r2, %r2, 1;
        st.release.gpu.global.u32 [%rd2], %r2;
JOIN:   bar.sync 0;
        mov.u32 %r9, 1;)";
      const LaunchOutcome outcome = gpu.launch(kernel(body), {out.address(), in.address()}, {64, 1, 1}, {40, 1, 1});
      REQUIRE(outcome.fault.message == "");
      for (std::uint32_t i = 0; i < 42; ++i) CHECK(in[i] == (backward ? (i == 0 ? 0 : 42 - i) : i == 41 ? 0 : i + 1));
      // Those who waited for lane 0 at the barrier go on with it.
      if (!seed) CHECK(issued_of(outcome, "mov.u32 %r9") == 2 * 40);
    }
}

TEST_CASE("control: parameters and arguments in registers") {
  Gpu gpu;
  const std::string before = R"(
.func (.reg .u64 %wide, .reg .b16 %low) mix(.reg .u32 %a, .reg .f32 %f, .param .b64 p, .reg .b16 %h) {
  .reg .pred %p<2>; .reg .u64 %rd<3>; .reg .u32 %r<3>;
  ld.param.u64 %rd1, [p];
  cvt.u64.u32 %wide, %a;
  cvt.rzi.u32.f32 %r1, %f;
  cvt.u64.u32 %rd2, %r1;
  add.u64 %wide, %wide, %rd1;
  mov.b16 %low, %h;
  setp.lt.u32 %p1, %a, 3;
  @%p1 ret;
  add.u64 %wide, %wide, %rd2;
}
.func (.reg .u32 %sum) count(.reg .u32 %n) {   // it calls itself
  .reg.pred %p<2>; .reg.u32 %r<3>;
  mov.u32 %sum, 0;
  setp.eq.u32 %p1, %n, 0;
  @%p1 bra OUT;
  sub.u32 %r1, %n, 1;
  call (%r2), count, (%r1);
  add.u32 %sum, %n, %r2;
OUT: ret;
}
)";
  const auto out = gpu.run<std::uint64_t>(R"(
    .param .b64 q;
    mov.u64 %rd1, 1000; st.param.b64 [q], %rd1;
    mov.b16 %h1, 9;
    call (%rd2, %h2), mix, (%lane, 0f42280000, q, %h1);
    setp.gt.u32 %p1, %lane, 29;
    @%p1 call.uni (%rd2, %h2), mix, (7, 0f42280000, q, 5);
    cvt.u64.u16 %rd3, %h2;
    call (%r5), count, (%lane);
    cvt.u64.u32 %rd5, %r5;
    mad.lo.u64 %rd3, %rd5, 100, %rd3;
    mad.lo.u64 %rd2, %rd3, 10000, %rd2;
    mul.wide.u32 %rd4, %lane, 8; add.u64 %rd4, %rd4, %out;
    st.global.u64 [%rd4], %rd2;)", 32, {0}, {32, 1, 1}, {1, 1, 1}, before);
  CHECK_SAME(out, expected<std::uint64_t>(32, [](std::uint64_t l) {
    const std::uint64_t a = l > 29 ? 7 : l, h = l > 29 ? 5 : 9;
    return (l * (l + 1) / 2 * 100 + h) * 10000 + 1000 + a + (a < 3 ? 0 : 42);
  }));
}

TEST_CASE("control: a waiting loop with branches, shuffles and calls in it lets the other blocks run") {
  const std::string before = ".func (.reg .b32 %r) look(.reg .b64 %a) { .reg .pred %p<2>; ld.acquire.gpu.global.u32 %r, [%a]; setp.eq.u32 %p1, %r, 77; @%p1 trap; ret; }\n";
  // Block b waits for the block after it; only the last goes at once. In the loop: lanes part, meet,
  // call, and hand on what they saw; the lanes of the first warp look, the others wait at a barrier.
  const std::string body = R"(
      setp.ge.u32 %p1, %thread, 32;
      @%p1 bra JOIN;
      add.u32 %r1, %block, 1;
      mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %rd1, %in;
WAIT: setp.lt.u32 %p2, %lane, 7;
      mov.u32 %r2, 0;
      @%p2 bra FEW;
      call (%r3), look, (%rd1);
      add.u32 %r2, %r3, 0;
      bra MEET;
FEW:  setp.eq.u32 %p3, %lane, 3;
      @%p3 bra ONE;
      mov.u32 %r2, 1;
      bra MEET;
ONE:  ld.volatile.global.u32 %r2, [%rd1];
MEET: shfl.sync.idx.b32 %r4, %r2, 3, 31, 0xffffffff;
      vote.sync.any.pred %p4, %p3, 0xffffffff;
      setp.eq.u32 %p5, %r4, 0;
      @%p5 bra WAIT;
      setp.ne.u32 %p6, %lane, 0;
      @%p6 bra JOIN;
      mul.wide.u32 %rd2, %block, 4; add.u64 %rd2, %rd2, %in;
      add.u32 %r4, %r4, 1;
      st.release.gpu.global.u32 [%rd2], %r4;
JOIN: bar.sync 0;
      st.global.u32 [%mine], 1;)";
  for (const std::uint64_t seed : {0, 3, 9}) {
    Gpu gpu({.threads = 2, .schedule_seed = seed});
    constexpr std::uint32_t kBlocks = 60;
    const auto in = gpu.array<std::uint32_t>(kBlocks + 1, 0);
    const auto out = gpu.array<std::uint32_t>(kBlocks * 64, 0);
    in[kBlocks] = 1;
    const LaunchOutcome outcome = gpu.launch(kernel(body, before), {out.address(), in.address()}, {64, 1, 1}, {kBlocks, 1, 1});
    REQUIRE(outcome.fault.message == "");
    CHECK(in[0] == kBlocks + 1);
    std::uint64_t issued = 0;   // waiting costs little: it is recognized
    for (const std::uint64_t n : outcome.counters.issued_by_sm) issued += n;
    CHECK(issued < 2'000'000);
  }
}

TEST_CASE("control: long loops of atomics or volatile loads are work, not a deadlock") {
  Gpu gpu;
  // One lane of 32 does 400,000 turns; the others wait at the meeting point and are not let go.
  for (const char* work : {"atom.global.add.u32 %r5, [%in], 1;", "ld.volatile.global.u32 %r5, [%in]; add.u32 %r5, %r5, 1; st.volatile.global.u32 [%in], %r5;"}) {
    const auto out = gpu.run(std::string(R"(
      mov.u32 %r1, 0;
      setp.ne.u32 %p1, %lane, 0;
      @%p1 bra END;
LOOP: )") + work + R"(
      add.u32 %r1, %r1, 1;
      setp.lt.u32 %p2, %r1, 400000;
      @%p2 bra LOOP;
END:  add.u32 %r2, %r1, %lane;
      st.global.u32 [%mine], %r2;)");
    CHECK_SAME(out, expected(32, [](auto l) { return l ? l : 400000; }));
    CHECK(issued_of(gpu.outcome, "add.u32 %r2") == 1);
  }
}

TEST_CASE("control: a loop that writes, with calls and lanes apart, is work") {
  Gpu gpu;
  gpu.machine.patience = 100000;
  const std::string before = ".func f() { ret; }\n";
  // Two halves of the warp go round in loops of their own; each turn writes before it meets the other.
  const std::string turn = "st.volatile.global.u32 [%in], %r1; call f; bar.warp.sync 0xffffffff; ld.volatile.global.u32 %r5, [%in+4]; call f; add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 20000;";
  CHECK_SAME(gpu.run("mov.u32 %r1, 0; setp.lt.u32 %p1, %lane, 16; @%p1 bra B;\nA: " + turn + " @%p2 bra A; bra END;\nB: " + turn + " @%p2 bra B;\nEND: st.global.u32 [%mine], %r1;",
                     32, {0, 5}, {32, 1, 1}, {1, 1, 1}, before), std::vector<std::uint32_t>(32, 20000));
}

TEST_CASE("control: a limit on instructions ends what has no end") {
  Gpu gpu;
  gpu.machine.instruction_limit = 50000;
  const auto out = gpu.array<std::uint32_t>(64, 0);
  const LaunchOutcome outcome = gpu.launch(kernel(".loc 1 9 1\nLOOP: bra LOOP;", ".file 1 \"/nowhere/lesson.cu\"\n"), {out.address(), 0ull}, {64, 1, 1});
  CHECK(outcome.fault.message == "/nowhere/lesson.cu:9: error: no end after 50000 instructions; running by thread (0,0,0) of block (0,0,0) in k");
  CHECK_SAME(gpu.run("st.global.u32 [%mine], 1;"), std::vector<std::uint32_t>(32, 1));
}

TEST_CASE("control: a loop that polls a limited number of times ends") {
  Gpu gpu;
  const auto out = gpu.run(R"(
      mov.u32 %r1, 0;
LOOP: ld.volatile.global.u32 %r5, [%in];
      nanosleep.u32 1000;
      add.u32 %r1, %r1, 1;
      setp.lt.u32 %p2, %r1, 100000;
      @%p2 bra LOOP;
      st.global.u32 [%mine], %r1;)");
  CHECK_SAME(out, std::vector<std::uint32_t>(32, 100000));
}

TEST_CASE("control: nanosleep moves the clock, not the count of instructions") {
  Gpu gpu;
  const auto out = gpu.run<std::uint64_t>(R"(
      mov.u64 %rd1, %globaltimer;
      nanosleep.u32 50000;
      mov.u64 %rd2, %globaltimer;
      sub.u64 %rd3, %rd2, %rd1;
      st.global.u64 [%out], %rd3;)", 1);
  CHECK(out[0] >= 50000);
  CHECK(out[0] < 60000);
  CHECK(gpu.outcome.counters.issued_by_sm[0] < 100);
}

TEST_CASE("control: deadlocks are errors with a place") {
  const std::string loc = ".file 1 \"/nowhere/lesson.cu\"\n";
  auto message = [&](const std::string& body, Dim3 block, Dim3 grid, std::uint64_t seed = 0) {
    Gpu gpu({.threads = 2, .schedule_seed = seed});
    gpu.machine.patience = 1u << 20;
    const auto out = gpu.array<std::uint32_t>(4096, 0);
    const LaunchOutcome outcome = gpu.launch(kernel(body, loc), {out.address(), out.address()}, block, grid);
    CHECK(outcome.fault.kind == FaultKind::deadlock);
    // The machine lives on.
    CHECK(gpu.run("st.global.u32 [%mine], 1;") == std::vector<std::uint32_t>(32, 1));
    return outcome.fault.message;
  };
  for (const std::uint64_t seed : {0, 4}) {
    {   // a barrier for more threads than there are
      const std::string m = message(".loc 1 12 3\nbar.sync 1, 96;", {64, 1, 1}, {2, 1, 1}, seed);
      CHECK(m.find("/nowhere/lesson.cu:12: error: deadlock: barrier 1 was reached by 64 of 96 threads") == 0);
      CHECK(m.find("in k") != std::string::npos);
    }
    {   // a mask with lanes that wait elsewhere
      const std::string m = message(R"(
        setp.lt.u32 %p1, %lane, 16;
        @%p1 bra A;
        .loc 1 20 1
        shfl.sync.idx.b32 %r1, %r1, 0, 31, 0xffffffff;
        bra END;
A:      .loc 1 22 1
        vote.sync.any.pred %p2, %p1, 0xffffffff;
END:)", {32, 1, 1}, {1, 1, 1}, seed);
      CHECK((m.find("/nowhere/lesson.cu:20: error: deadlock: ") == 0 || m.find("/nowhere/lesson.cu:22: error: deadlock: ") == 0));
    }
    {   // a loop that waits for nobody
      const std::string m = message(R"(
WAIT:   .loc 1 30 1
        ld.volatile.global.u32 %r2, [%in];
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra WAIT;)", {32, 1, 1}, {3, 1, 1}, seed);
      CHECK(m.find("/nowhere/lesson.cu:30: error: deadlock: all 3 blocks that run wait in a loop") == 0);
    }
    {   // two warps that wait for each other's flag, with sleep
      const std::string m = message(R"(
WAIT:   .loc 1 40 1
        nanosleep.u32 100;
        atom.global.cas.b32 %r2, [%in], 1, 2;
        setp.ne.u32 %p2, %r2, 1;
        @%p2 bra WAIT;
        st.volatile.global.u32 [%in], 1;)", {64, 1, 1}, {1, 1, 1}, seed);
      CHECK(m.find("/nowhere/lesson.cu:40: error: deadlock: the only block that runs waits in a loop") == 0);
    }
    {   // blocks that wait for one that finds no room
      // 132 SMs, one block each: block 0 waits for block 200.
      const std::string m = message(R"(
        setp.eq.u32 %p1, %block, 200;
        @%p1 st.volatile.global.u32 [%in], 1;
        .loc 1 50 1
WAIT:   ld.volatile.global.u32 %r2, [%in];
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra WAIT;)", {32, 1, 1}, {201, 1, 1});
      CHECK(m.find("/nowhere/lesson.cu:50: error: deadlock: all 132 blocks that run wait (of 201) in a loop") == 0);
    }
  }
}

TEST_CASE("control: barriers in divergent code: __syncthreads counts threads") {
  Gpu gpu;
  // Each half of the warp comes to a barrier of its own; the block has 2 warps.
  const auto out = gpu.run(R"(
    .shared .align 4 .b32 s[64];
    mul.lo.u32 %r1, %thread, 4; mov.u32 %r2, s; add.u32 %r1, %r1, %r2;
    st.shared.u32 [%r1], %thread;
    and.b32 %r3, %thread, 1;
    setp.eq.u32 %p1, %r3, 0;
    @%p1 bra A;
    bar.sync 0;
    bra END;
A:  barrier.sync 0;
END: xor.b32 %r4, %thread, 63;
    mul.lo.u32 %r1, %r4, 4; add.u32 %r1, %r1, %r2;
    ld.shared.u32 %r5, [%r1];
    st.global.u32 [%mine], %r5;)", 64, {0}, {64, 1, 1});
  CHECK_SAME(out, expected(64, [](auto i) { return i ^ 63; }));
}

TEST_CASE("control: a loop that waits for the host says so") {
  for (const MemoryKind kind : {MemoryKind::device, MemoryKind::managed, MemoryKind::pinned}) {
    Gpu gpu;
    gpu.machine.patience = 1 << 20;
    const auto flag = gpu.machine.memory().allocate(4, kind);
    flag->name = "flag";
    for (const std::string look : {"ld.volatile.global.u32 %r1, [%in];", "atom.global.add.u32 %r1, [%in], 0;"}) {
      const LaunchOutcome outcome = gpu.launch(kernel("AGAIN: " + look + " setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN;"), {flag->base, flag->base});
      CHECK(outcome.fault.kind == FaultKind::deadlock);
      INFO(outcome.fault.message);
      CHECK((outcome.fault.message.find("(it looks at host-visible memory, 'flag' (4 bytes") != std::string::npos) == (kind != MemoryKind::device));
    }
  }
}
