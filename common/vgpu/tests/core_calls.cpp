// Calls of functions: arguments, results, recursion, targets that differ from lane to lane.
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

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
    cvt.u32.u64 %r5, %rd4; st.global.u32 [%mine], %r5;)",
                           32, {0}, {32, 1, 1}, {1, 1, 1}, functions);
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
    st.global.u32 [%mine], %r7;)",
                           32, {0}, {32, 1, 1}, {1, 1, 1}, functions);
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
    st.global.u32 [%mine], %r2;)",
                           32, {0}, {32, 1, 1}, {1, 1, 1}, functions);
  const std::function<std::uint32_t(std::uint32_t)> fib = [&](std::uint32_t n) {
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
  };
  CHECK_SAME(out, expected(32, [&](auto l) { return fib(l & 15); }));
  CHECK(issued_of(gpu.outcome, "st.global") == 1);
}

TEST_CASE("control: indirect calls with a target of its own in each lane") {
  Gpu gpu;
  std::string functions;
  for (int i = 0; i < 3; ++i)
    functions += ".func (.param .b32 result) f" + std::to_string(i) +
                 "(.param .b32 x) { .reg .b32 %r1; ld.param.b32 %r1, [x]; " +
                 (i == 0   ? "add.u32 %r1, %r1, 1;"
                  : i == 1 ? "mul.lo.u32 %r1, %r1, 3;"
                           : "not.b32 %r1, %r1;") +
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
  CHECK_SAME(out, expected(32, [](auto l) {
               return l >= 29 ? 4242 : l % 3 == 0 ? l + 1 : l % 3 == 1 ? l * 3 : ~l;
             }));
  CHECK(issued_of(gpu.outcome, "add.u32 %r6") == 1);
  CHECK(lanes_of(gpu.outcome, "@%p1 call") == 29);  // one call a target, each lane in one
  CHECK(issued_of(gpu.outcome, "@%p1 call") == 3);
}

TEST_CASE(
    "control: a call of an address that is no function is an error, and the machine lives on") {
  Gpu gpu;
  for (const char* address : {"0", "1", "0x0f0000000000", "0x0f0000000007", "0xffffffffffffffff"}) {
    const auto out = gpu.array<std::uint32_t>(32, 0);
    const LaunchOutcome bad = gpu.launch(kernel(std::string("mov.u64 %rd3, ") + address + R"(;
      { .param .b32 x; st.param.b32 [x], %lane; call %rd3, (x), proto;
      proto: .callprototype _ (.param .b32 _); })"),
                                         {out.address(), out.address()});
    CHECK(bad.fault.kind == FaultKind::illegal_instruction);
    CHECK(bad.fault.message.find("call of an address that is no function") != std::string::npos);
  }
  CHECK(gpu.run("st.global.u32 [%mine], 1;") == std::vector<std::uint32_t>(32, 1));
}

TEST_CASE("control: an address of a function whose module is gone") {
  Gpu gpu;
  const auto out = gpu.array<std::uint64_t>(32, 0);
  const std::string functions = ".func f() { ret; }\n";
  REQUIRE(gpu.launch(kernel("mov.u64 %rd1, f; st.global.u64 [%out], %rd1;", functions),
                     {out.address(), out.address()})
              .fault.message == "");
  const std::uint64_t address = out[0];
  const LaunchOutcome bad =
      gpu.launch(kernel("mov.u64 %rd3, " + std::to_string(address) +
                        "; call %rd3, (), proto;\nproto: .callprototype _ ();"),
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
    st.global.u32 [%mine], %r1;)",
                           32, {0}, {32, 1, 1}, {1, 1, 1}, functions);
  CHECK_SAME(out, expected(32, [](auto l) { return l < 7 ? 0 : 0xffffff80u; }));
}

TEST_CASE("control: recursion without an end is a stack overflow, not a crash") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(32, 0);
  // With local memory: 1 KiB runs out. Without: the depth does.
  for (const char* local : {".local .align 4 .b8 buffer[400];", ""}) {
    const std::string functions = std::string(".func f() { ") + local + " call f; ret; }\n";
    const LaunchOutcome bad =
        gpu.launch(kernel("call f;", functions), {out.address(), out.address()});
    CHECK(bad.fault.kind == FaultKind::stack_overflow);
    CHECK(bad.fault.message.find(*local ? "stack overflow" : "calls nested deeper than") !=
          std::string::npos);
  }
  CHECK(gpu.run("st.global.u32 [%mine], 1;") == std::vector<std::uint32_t>(32, 1));
}

TEST_CASE("control: recursion has the stack of the limit, other calls have what they need") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(32, 0);
  const auto fault = [&](const std::string& functions, const std::string& call) {
    return gpu.launch(kernel(call, functions), {out.address(), out.address()}).fault.message;
  };
  const auto recursive = [](int depth) {  // 64 bytes a call
    return "mov.u32 %r1, " + std::to_string(depth) + "; call f, (%r1);";
  };
  const std::string f =
      ".func f(.reg .u32 n) { .local .align 4 .b8 mine[64]; .reg .pred p; setp.eq.u32 p, n, 0;\n"
      "@p ret; sub.u32 n, n, 1; call f, (n); ret; }\n";
  CHECK(fault(f, recursive(14)) == "");
  CHECK(fault(f, recursive(20))
            .find("stack overflow: 1088 bytes of local memory, and a thread has 1024 "
                  "(recursion and calls through pointers get what "
                  "cudaLimitStackSize says") != std::string::npos);
  gpu.machine.stack_limit = 4096;
  CHECK(fault(f, recursive(20)) == "");
  gpu.machine.stack_limit = 1024;
  const std::string chain =
      ".func a() { .local .align 4 .b8 mine[3000]; ret; }\n"
      ".func b() { .local .align 4 .b8 mine[3000]; call a; ret; }\n";
  CHECK(fault(chain, "call b; call a;") == "");
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
    st.global.u32 [%mine], %r2;)",
                           32, {0}, {32, 1, 1}, {1, 1, 1}, functions);
  CHECK_SAME(out, expected(32, [](auto l) { return l * (l + 1) / 2 + l + 77; }));
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
    st.global.u64 [%rd4], %rd2;)",
                                          32, {0}, {32, 1, 1}, {1, 1, 1}, before);
  CHECK_SAME(out, expected<std::uint64_t>(32, [](std::uint64_t l) {
               const std::uint64_t a = l > 29 ? 7 : l, h = l > 29 ? 5 : 9;
               return (l * (l + 1) / 2 * 100 + h) * 10000 + 1000 + a + (a < 3 ? 0 : 42);
             }));
}

TEST_CASE("control: vector registers as parameters, results that nobody wants, predicates") {
  Gpu gpu;
  const std::string before = R"(
.func (.reg .v2 .u64 %both, .reg .u8 %byte) add(.reg .v4 .u32 %a, .reg .v2 .f32 %b, .reg .b128 %c) {
  .reg .u32 %r<3>; .reg .u64 %rd<3>;
  add.u32 %r1, %a.x, %a.w;
  cvt.rzi.u32.f32 %r2, %b.y;
  add.u32 %r1, %r1, %r2;
  cvt.u64.u32 %both.x, %r1;
  mov.b128 {%rd1, %rd2}, %c;
  add.u64 %both.y, %rd1, %rd2;
  cvt.u8.u32 %byte, %a.y;
}
.func (.reg .pred %is) zero(.reg .u32 %x) { setp.eq.u32 %is, %x, 0; ret; }
.func never(.reg .pred %is) { ret; }
)";
  const auto out = gpu.run<std::uint64_t>(R"(
    .reg .v4 .b32 a; .reg .v2 .f32 b; .reg .v2 .u64 w; .reg .u8 c;
    mov.v4.u32 a, {%lane, 7, 8, 100}; mov.v2.f32 b, {1.0, 3.0};
    mov.u64 %rd1, 40; mov.u64 %rd2, 2; mov.b128 %q1, {%rd1, %rd2};
    call (w, c), add, (a, b, %q1);
    call (_, _), add, (a, b, %q1);
    cvt.u64.u8 %rd3, c;
    mad.lo.u64 %rd3, w.y, 1000, %rd3;
    mad.lo.u64 %rd3, w.x, 1000000, %rd3;
    mul.wide.u32 %rd4, %lane, 8; add.u64 %rd4, %rd4, %out;
    st.global.u64 [%rd4], %rd3;)",
                                          32, {0}, {32, 1, 1}, {1, 1, 1}, before);
  CHECK_SAME(out, expected<std::uint64_t>(
                      32, [](std::uint64_t l) { return (l + 103) * 1000000 + 42007; }));
  // As in ptxas such a function is no mistake, but a call of it is.
  const auto refused = [&](const std::string& call) {
    try {
      gpu.machine.load(kernel(call, before));
    } catch (const PtxError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused("call (%p1), zero, (%r1);").find("a call with predicate '%p1'") !=
        std::string::npos);
  CHECK(refused("call never, (%p1);").find("a call with predicate '%p1'") != std::string::npos);
  CHECK(refused("call (%rd1), add, ({%r1, %r2});").find("vector in braces") != std::string::npos);
}
