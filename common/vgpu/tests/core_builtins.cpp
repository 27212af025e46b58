// Functions that device code calls and no module holds: printf, assert, malloc, free.
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

const std::string kDeclare = R"(
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
)";

std::string string_variable(const std::string& name, const std::string& text) {
  std::string bytes;
  for (char c : text) bytes += std::to_string(static_cast<unsigned char>(c)) + ", ";
  return ".global .align 1 .b8 " + name + "[" + std::to_string(text.size() + 1) + "] = {" + bytes +
         "0};\n";
}

// A call of printf by the lanes of %p1 with arguments that `pack` puts at %SP (local memory).
std::string print(const std::string& pack, const std::string& format = "format") {
  return ".local .align 8 .b8 buffer[64];\n" + pack + "\nmov.u64 %rd1, " + format +
         "; cvta.global.u64 %rd1, %rd1; mov.u64 %rd2, buffer; cvta.local.u64 %rd2, %rd2;\n" +
         "{ .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %rd1; st.param.b64 [a], "
         "%rd2; @%p1 call (r), vprintf, (f, a); @%p1 ld.param.b32 %r9, [r]; }\n@%p1 st.global.u32 "
         "[%mine], %r9;";
}

std::string printed(Gpu& gpu, const std::string& format, const std::string& pack, int lanes = 1,
                    std::int32_t used = -2, Dim3 block = {32, 1, 1}, Dim3 grid = {1, 1, 1}) {
  gpu.printed.clear();
  const auto out =
      gpu.run("setp.lt.u32 %p1, %lane, " + std::to_string(lanes) + ";\n" + print(pack),
              block.count() * grid.count(), {0}, block, grid,
              kDeclare + string_variable("format", format) + string_variable("word", "wörd"));
  if (used != -2) CHECK(static_cast<std::int32_t>(out[0]) == used);
  return gpu.printed;
}

}  // namespace

TEST_CASE("builtins: printf of every conversion") {
  Gpu gpu;
  CHECK(printed(gpu, "plain 100%%\n", "", 1, 0) == "plain 100%\n");
  CHECK(printed(gpu, "%d|%i|%5d|%-5d|%05d|%+d",
                "st.local.u32 [buffer], -7; st.local.u32 [buffer+4], 8; st.local.u32 [buffer+8], "
                "9; st.local.u32 [buffer+12], 10; st.local.u32 [buffer+16], 11; st.local.u32 "
                "[buffer+20], 12;",
                1, 6) == "-7|8|    9|10   |00011|+12");
  CHECK(printed(gpu, "%u %x %X %o %#x",
                "st.local.u32 [buffer], -1; st.local.u32 [buffer+4], 255; st.local.u32 [buffer+8], "
                "255; st.local.u32 [buffer+12], 8; st.local.u32 [buffer+16], 255;",
                1, 5) == "4294967295 ff FF 10 0xff");
  CHECK(printed(gpu, "%lld %llu %ld %lx %zu",
                "mov.b64 %rd5, -5; st.local.b64 [buffer], %rd5; st.local.b64 [buffer+8], %rd5; "
                "st.local.b64 [buffer+16], %rd5; st.local.b64 [buffer+24], %rd5; mov.b64 %rd6, 77; "
                "st.local.b64 [buffer+32], %rd6;",
                1, 5) == "-5 18446744073709551611 -5 fffffffffffffffb 77");
  // A 32-bit argument before a 64-bit one: the second starts at the next multiple of 8.
  CHECK(printed(gpu, "%d %f %c%c %s",
                "st.local.u32 [buffer], 3; mov.f64 %fd1, 2.5; st.local.f64 [buffer+8], %fd1; "
                "st.local.u32 [buffer+16], 72; st.local.u32 [buffer+20], 105; mov.u64 %rd5, word; "
                "cvta.global.u64 %rd5, %rd5; st.local.u64 [buffer+24], %rd5;",
                1, 5) == "3 2.500000 Hi wörd");
  CHECK(printed(gpu, "%e %g %.2f %10.3f %G %a",
                "mov.f64 %fd1, 0.5; st.local.f64 [buffer], %fd1; st.local.f64 [buffer+8], %fd1; "
                "st.local.f64 [buffer+16], %fd1; st.local.f64 [buffer+24], %fd1; st.local.f64 "
                "[buffer+32], %fd1; st.local.f64 [buffer+40], %fd1;",
                1, 6) == "5.000000e-01 0.5 0.50      0.500 0.5 0x1p-1");
  CHECK(printed(gpu, "%*d|%-*d|%.*f",
                "st.local.u32 [buffer], 4; st.local.u32 [buffer+4], 1; st.local.u32 [buffer+8], 3; "
                "st.local.u32 [buffer+12], 2; st.local.u32 [buffer+16], 1; mov.f64 %fd1, 2.25; "
                "st.local.f64 [buffer+24], %fd1;") == "   1|2  |2.2");
  CHECK(printed(gpu, "%p %s %10s",
                "mov.b64 %rd5, 0x1234; st.local.b64 [buffer], %rd5; mov.b64 %rd6, 0; st.local.b64 "
                "[buffer+8], %rd6; mov.u64 %rd7, word; cvta.global.u64 %rd7, %rd7; st.local.u64 "
                "[buffer+16], %rd7;",
                1, 3) == "0x1234 (null)      wörd");
  // What is no conversion stays as it is.
  CHECK(printed(gpu, "50%y %", "") == "50%y %");
  CHECK(printed(gpu, std::string(300, '%') + "%99999999999999999999999999999999999999999999999d",
                "st.local.u32 [buffer], 1;")
            .starts_with(std::string(150, '%')));
  CHECK(printed(gpu, "%400d", "st.local.u32 [buffer], 1;") == std::string(399, ' ') + "1");
}

TEST_CASE("builtins: printf in the order of lanes, warps and blocks, whatever the host threads") {
  Gpu gpu({.threads = 2});
  std::string want;
  for (int block = 0; block < 5; ++block)
    for (int thread = 0; thread < 64; ++thread)
      if (thread % 32 < 3) want += std::to_string(block) + "." + std::to_string(thread) + "\n";
  for (int round = 0; round < 5; ++round)
    CHECK(printed(gpu, "%d.%d\n",
                  "st.local.u32 [buffer], %block; st.local.u32 [buffer+4], %thread;", 3, 2,
                  {64, 1, 1}, {5, 1, 1}) == want);
}

TEST_CASE("builtins: printf without a format, with a wild one, or with a wild string") {
  Gpu gpu;
  const std::string before = kDeclare + string_variable("format", "%s");
  auto message = [&](const std::string& body) {
    const auto out = gpu.array<std::uint32_t>(32, 0);
    return gpu
        .launch(kernel("setp.eq.u32 %p1, %lane, 0;" + body, before), {out.address(), out.address()})
        .fault.message;
  };
  CHECK_SAME(
      gpu.run("setp.lt.u32 %p1, %lane, 4; mov.u64 %rd1, 0; { .param .b64 f; .param .b64 a; .param "
              ".b32 r; st.param.b64 [f], %rd1; st.param.b64 [a], %rd1; @%p1 call (r), vprintf, (f, "
              "a); @%p1 ld.param.b32 %r9, [r]; } st.global.u32 [%mine], %r9;",
              4, {0}, {4, 1, 1}, {1, 1, 1}, before),
      std::vector<std::uint32_t>(4, 0xffffffff));
  CHECK(message("mov.u64 %rd1, 0x666; { .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 "
                "[f], %rd1; st.param.b64 [a], %rd1; @%p1 call (r), vprintf, (f, a); }")
            .find("null pointer: read of 1 byte at address 0x666") != std::string::npos);
  CHECK(message(print("mov.b64 %rd5, 0xfffffffffffffff0; st.local.b64 [buffer], %rd5;"))
            .find("out-of-bounds read of 1 byte at 0xfffffffffffffff0") != std::string::npos);
  // A string without an end.
  CHECK(
      message(
          print(
              "mov.u64 %rd5, %in; st.local.b64 [buffer], %rd5; st.global.u32 [%mine], 0x41414141;"))
          .find("out-of-bounds read of 1 byte, 0 bytes past an allocation of 128 bytes") !=
      std::string::npos);
}

TEST_CASE("builtins: a failed assertion names its own file and line, the thread and the block") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(32, 0);
  const std::string before = kDeclare + string_variable("text", "i < n") +
                             string_variable("file", "/nowhere/lesson.cu") +
                             string_variable("function", "k");
  const LaunchOutcome outcome = gpu.launch(kernel(R"(
    setp.eq.u32 %p1, %number, 70;
    mov.u64 %rd1, text; cvta.global.u64 %rd1, %rd1; mov.u64 %rd2, file; cvta.global.u64 %rd2, %rd2; mov.u64 %rd3, function; cvta.global.u64 %rd3, %rd3; mov.u64 %rd4, 1;
    { .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s; st.param.b64 [m], %rd1; st.param.b64 [f], %rd2; st.param.b32 [l], 33; st.param.b64 [n], %rd3; st.param.b64 [s], %rd4;
      @%p1 call __assertfail, (m, f, l, n, s); })",
                                                  before),
                                           {out.address(), out.address()}, {64, 1, 1}, {2, 1, 1});
  CHECK(outcome.fault.kind == FaultKind::assertion);
  CHECK(outcome.fault.message ==
        "/nowhere/lesson.cu:33: error: assertion 'i < n' failed by thread (6,0,0) of block (1,0,0) "
        "in k");
}

// As nvcc compiles a switch whose default is an assertion: the call stands behind the kernel's return.
TEST_CASE("builtins: lanes whose ways differ meet again although an assertion lies on one") {
  const std::string ways = R"(
    setp.eq.u32 %p1, %lane, 40;
    mov.u32 %r1, 5;
    setp.lt.u32 %p2, %lane, 8;
    @%p2 bra FIRST;
    setp.lt.u32 %p3, %lane, 24;
    @%p3 bra SECOND;
    @%p1 bra FAIL;
    mov.u32 %r1, 9;
    bra.uni MEET;
FIRST: mov.u32 %r1, 6;
    bra.uni MEET;
SECOND: @%p1 bra FAIL;
    mov.u32 %r1, 7;
MEET: bar.sync 0;
    mul.lo.u32 %r2, %r1, 3;
    st.global.u32 [%mine], %r2;
    ret;
)";
  const std::string assertion = R"(
FAIL: mov.u64 %rd1, text; cvta.global.u64 %rd1, %rd1;
    { .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s; st.param.b64 [m], %rd1; st.param.b64 [f], %rd1; st.param.b32 [l], 33; st.param.b64 [n], %rd1; st.param.b64 [s], 1;
      call.uni __assertfail, (m, f, l, n, s); })";
  const std::string before = kDeclare + string_variable("text", "never");
  for (const std::string& end : {assertion, std::string("FAIL: add.u32 %r1, %r1, 1; trap;")}) {
    Gpu gpu;
    const auto out = gpu.run(ways + end, 32, {0}, {32, 1, 1}, {1, 1, 1}, before);
    CHECK_SAME(out, expected(32, [](auto i) { return 3 * (i < 8 ? 6 : i < 24 ? 7 : 9); }));
    CHECK(issued_of(gpu.outcome, "bar.sync 0;") == 1);
    CHECK(lanes_of(gpu.outcome, "bar.sync 0;") == 32);
    CHECK(issued_of(gpu.outcome, "mul.lo.u32 %r2") == 1);
    CHECK(lanes_of(gpu.outcome, "mul.lo.u32 %r2") == 32);
  }
}

TEST_CASE("builtins: malloc and free on the device") {
  Gpu gpu;
  const std::string take =
      "{ .param .b64 n; .param .b64 r; st.param.b64 [n], %rd1; call (r), malloc, (n); ld.param.b64 "
      "%rd2, [r]; }\n";
  const std::string give = "{ .param .b64 p; st.param.b64 [p], %rd2; call free, (p); }\n";
  // Each lane's memory is its own, holds what is written, and survives the kernel.
  const auto kept = gpu.array<std::uint64_t>(32, 0);
  LaunchOutcome outcome =
      gpu.launch(kernel("mov.u64 %rd1, 40;" + take +
                            "add.u32 %r1, %lane, 900; st.u32 [%rd2+36], %r1; mul.wide.u32 %rd3, "
                            "%lane, 8; add.u64 %rd3, %rd3, %out; st.global.u64 [%rd3], %rd2;",
                        kDeclare),
                 {kept.address(), 0ull});
  REQUIRE(outcome.fault.message == "");
  outcome = gpu.launch(kernel("mul.wide.u32 %rd3, %lane, 8; add.u64 %rd3, %rd3, %in; ld.global.u64 "
                              "%rd2, [%rd3]; ld.u32 %r1, [%rd2+36]; st.global.u32 [%rd3], %r1;" +
                                  give,
                              kDeclare),
                       {0ull, kept.address()});
  REQUIRE(outcome.fault.message == "");
  for (int i = 0; i < 32; ++i) CHECK(static_cast<std::uint32_t>(kept[i]) == 900u + i);
  auto message = [&](const std::string& body) {
    return gpu.launch(kernel(body, kDeclare), {kept.address(), kept.address()}, {1, 1, 1})
        .fault.message;
  };
  // Past the end, after free, freed twice, freed though cudaMalloc gave it; free(null) is nothing.
  CHECK(message("mov.u64 %rd1, 40;" + take + "ld.u32 %r1, [%rd2+40];")
            .find("out-of-bounds read of 4 bytes, 0 bytes past an allocation of 40 bytes") !=
        std::string::npos);
  CHECK(message("mov.u64 %rd1, 40;" + take + "ld.u32 %r1, [%rd2];" + give + "ld.u32 %r1, [%rd2];")
            .find("use after free: read of 4 bytes") != std::string::npos);
  // The same instruction before and after the free.
  CHECK(message(
            "mov.u64 %rd1, 40; mov.u32 %r5, 0;" + take +
            "AGAIN: st.u32 [%rd2], 1; setp.eq.u32 %p1, %r5, 1; @%p1 bra END; add.u32 %r5, %r5, 1;" +
            give + "bra AGAIN; END:")
            .find("use after free: write of 4 bytes") != std::string::npos);
  CHECK(message("mov.u64 %rd1, 40;" + take + give + give).find("free() of an address") !=
        std::string::npos);
  CHECK(message("mov.u64 %rd2, %out;" + give).find("free() of an address") != std::string::npos);
  CHECK(message("mov.u64 %rd2, 0;" + give) == "");
  // More than the heap holds: null.
  gpu.machine.heap_limit = 1000;
  CHECK_SAME(gpu.run("mov.u64 %rd1, 2000;" + take +
                         "setp.eq.u64 %p1, %rd2, 0; selp.u32 %r1, 1, 2, %p1; st.global.u32 "
                         "[%mine], %r1; mov.u64 %rd1, -1;" +
                         take + "setp.ne.u64 %p1, %rd2, 0; @%p1 st.global.u32 [%mine], 3;",
                     1, {0}, {1, 1, 1}, {1, 1, 1}, kDeclare),
             {1});
}

TEST_CASE("builtins: a function that nobody provides is refused by name") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(32, 0);
  const LaunchOutcome outcome =
      gpu.launch(kernel("call nobodys_function, ();", ".extern .func nobodys_function();\n"),
                 {out.address(), out.address()});
  CHECK(outcome.fault.kind == FaultKind::illegal_instruction);
  CHECK(outcome.fault.message.find("function 'nobodys_function' has no code in this module") !=
        std::string::npos);
}
