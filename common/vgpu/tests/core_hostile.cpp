// Kernels that mean harm: each gets an error that names what was wrong, and the host is none the worse.
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

const std::string kDeviceFunctions =
    ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n"
    ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n";

LaunchOutcome outcome_of(Gpu& gpu, const std::string& body, const std::string& before = "",
                         Dim3 block = {32, 1, 1}) {
  const auto out = gpu.array<std::uint32_t>(1024, 0), in = gpu.array<std::uint32_t>(1024, 7);
  LaunchOutcome outcome = gpu.launch(kernel(body, before), {out.address(), in.address()}, block);
  gpu.machine.memory().release(out.address());
  gpu.machine.memory().release(in.address());
  return outcome;
}
bool says(const LaunchOutcome& outcome, const std::string& part) {
  INFO(outcome.fault.message);
  return outcome.fault.message.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE(
    "hostile: registers that are too narrow for an instruction are refused, wherever they stand") {
  Gpu gpu;
  for (const char* instruction :
       {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%p1,%p2,%p3,%p4}, {%r1,%r2}, {%r3}, "
        "{%f1,%f2,%f3,%f4}",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, {%h3}, "
        "{%f1,%f2,%f3,%f4}",
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd1,%fd2}, {%f1}, {%fd3}, {%fd1,%fd2}",
        "wmma.load.c.sync.aligned.row.m16n16k16.f32 {%h1,%h2,%h3,%h4,%h5,%h6,%h7,%h8}, [%in]",
        "wmma.store.d.sync.aligned.row.m16n16k16.f32 [%in], {%h1,%h2,%h3,%h4,%h5,%h6,%h7,%h8}",
        "shfl.sync.idx.b32 %p1|%p2, %r1, 0, 31, -1", "match.all.sync.b32 %p1|%p2, %r1, -1",
        "elect.sync %h1|%p1, -1", "shfl.sync.idx.b32 %r1|%h2, %r1, 0, 31, -1",
        "red.global.add.v2.f32 [%out], {%h1, %h2}", "st.global.v2.u32 [%out], {%rd1, %tid.x}",
        "st.global.v2.f32 [%out], {%rd1, 0f3F800000}",
        "cp.async.ca.shared.global [0], [%in], 16, %h1", "call %r1, ()", "call %p1, ()"}) {
    CAPTURE(instruction);
    CHECK(outcome_of(gpu, std::string(instruction) + ";").fault.kind ==
          FaultKind::illegal_instruction);
  }
  CHECK(says(outcome_of(gpu, "T: .branchtargets L; brx.idx %h1, T; L:"),
             "the index of brx.idx needs a register of 32 bits"));
}

TEST_CASE("hostile: addresses whose step wraps around 2^64 between good ends") {
  Gpu gpu;
  // 31 steps of this are 64 bytes more, modulo 2^64: the first and the last lane are inside, no other is.
  std::uint64_t inverse = 1;
  for (int i = 0; i < 6; ++i) inverse *= 2 - 31 * inverse;
  const std::string step = "mov.u64 %rd1, " + std::to_string(inverse * 64) +
                           "; cvt.u64.u32 %rd2, %lane; mul.lo.u64 %rd1, %rd1, %rd2;\n";
  for (const char* access :
       {"ld.global.u8 %r1, [%rd3]", "st.global.u8 [%rd3], %r1", "ld.u8 %r1, [%rd3]"})
    CHECK(outcome_of(gpu, step + "add.u64 %rd3, %in, %rd1;" + access + ";").fault.kind ==
          FaultKind::illegal_address);
  for (const char* access : {"ld.shared.u8 %r1, [%rd1]", "st.shared.u8 [%rd1], %r1"})
    CHECK(
        outcome_of(gpu, ".shared .align 16 .b8 s[128]; st.shared.u32 [s], 1;" + step + access + ";")
            .fault.kind == FaultKind::illegal_address);
  CHECK(outcome_of(gpu, ".local .align 16 .b8 l[128]; st.local.u32 [l], 1;" + step +
                            "ld.local.u8 %r1, [%rd1];")
            .fault.kind == FaultKind::illegal_address);
  CHECK(outcome_of(gpu, step + "ld.const.u8 %r1, [%rd1];", ".const .align 4 .b8 c[128];\n")
            .fault.kind == FaultKind::illegal_address);
}

TEST_CASE("hostile: bulk copies whose shared addresses are those of another space") {
  Gpu gpu;
  const std::string shared =
      ".shared .align 16 .b8 s[256]; .shared .align 8 .b64 bar; st.shared.u64 [bar], 0; "
      "st.shared.u32 [s], 1; setp.ne.u32 %p1, %lane, 0; @%p1 exit;\n";
  const std::string window = "mov.u64 %rd9, " + std::to_string(kSharedWindow) +
                             "; sub.u64 %rd1, %in, %rd9; mov.u64 %rd2, s; mov.u64 %rd3, bar;\n";
  const std::string copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes ";
  CHECK(says(outcome_of(gpu, shared + window + copy + "[%rd1], [%in], 16, [%rd3];"),
             "past the block's shared memory"));
  CHECK(says(outcome_of(gpu, shared + window + copy + "[%rd2], [%in], 16, [%rd1];"),
             "past the block's shared memory"));
  CHECK(outcome_of(gpu, shared + window + copy + "[%rd2], [%in], 16, [%rd3];").fault.message == "");
  CHECK(says(outcome_of(gpu, shared + window +
                                 "cp.async.bulk.global.shared::cta.bulk_group [%in], [%rd1], 16;"),
             "past the block's shared memory"));
}

TEST_CASE("hostile: calls of kernels, of anything, and without end") {
  Gpu gpu;
  gpu.machine.instruction_limit = 1'000'000;
  const std::string other = ".entry other(.param .b64 a, .param .b64 b) { ret; }\n";
  CHECK(says(outcome_of(gpu, "{ .param .b64 a; .param .b64 b; call other, (a, b); }", other),
             "'other' is a kernel"));
  CHECK(says(outcome_of(gpu,
                        "{ .param .b64 a; .param .b64 b; mov.u64 %rd1, other; P: .callprototype _ "
                        "(.param .b64 _, .param .b64 _); call %rd1, (a, b), P; }",
                        other),
             "call of other, which is a kernel"));
  CHECK(
      says(outcome_of(gpu, "mov.u64 %rd1, 0x123456789; P: .callprototype _ (); call %rd1, (), P;"),
           "call of an address that is no function"));
  // A function that calls itself twice, 60 deep: nobody sees the end.
  const std::string tree = R"(.func twice(.param .b32 n) {
    .reg .b32 %n; .reg .pred %end; ld.param.u32 %n, [n]; setp.eq.u32 %end, %n, 0; @%end ret; sub.u32 %n, %n, 1;
    { .param .b32 a; st.param.b32 [a], %n; call twice, (a); call twice, (a); } ret; }
)";
  const LaunchOutcome outcome =
      outcome_of(gpu, "{ .param .b32 a; st.param.b32 [a], 60; call twice, (a); }", tree);
  CHECK(outcome.fault.kind == FaultKind::deadlock);
  CHECK(says(outcome, "no end after 1000000 instructions"));
  // Without end at all.
  CHECK(outcome_of(gpu, "call f, ();", ".func f() { call f, (); ret; }\n").fault.kind ==
        FaultKind::stack_overflow);
  // So many registers that the calls in flight would fill the host.
  gpu.machine.instruction_limit = 100'000'000;
  std::string wide = ".func f() { .reg .b64 %w<9000>;";
  for (int i = 0; i < 9000; ++i) wide += "mov.u64 %w" + std::to_string(i) + ", 1;\n";
  CHECK(says(outcome_of(gpu, "call f, ();", wide + "call f, (); ret; }\n"),
             "the registers of calls take more than 256 MiB"));
}

TEST_CASE("hostile: tables of labels") {
  Gpu gpu;
  gpu.machine.instruction_limit = 100'000;
  // A loop whose only way back is a table has an end too.
  CHECK(says(outcome_of(gpu, "T: .branchtargets A, B; A: add.u32 %r1, %r1, 1; brx.idx 0, T; B:"),
             "no end after 100000 instructions"));
  CHECK(says(outcome_of(gpu, "T: .branchtargets A, B; A: mov.u32 %r1, %lane; brx.idx %r1, T; B:"),
             "branch index 2 in a table of 2"));
  // Labels behind the last instruction of a function.
  CHECK_SAME(gpu.run("call f, (); st.global.u32 [%mine], 5;", 32, {0}, {32, 1, 1}, {1, 1, 1},
                     ".func f() { .reg .pred %p<2>; .reg .b32 %r<2>; mov.u32 %r1, %laneid; "
                     "setp.lt.u32 %p1, %r1, 9; @%p1 bra END; ret;\nEND: }\n"),
             std::vector<std::uint32_t>(32, 5));
  CHECK_SAME(gpu.run("call f, (); st.global.u32 [%mine], 6;", 32, {0}, {32, 1, 1}, {1, 1, 1},
                     ".func f() { .reg .b32 %r<2>; T: .branchtargets A, END; mov.u32 %r1, %laneid; "
                     "and.b32 %r1, %r1, 1; brx.idx %r1, T; A: ret;\nEND: }\n"),
             std::vector<std::uint32_t>(32, 6));
  // A jump into another function is no jump.
  CHECK(says(outcome_of(gpu, "bra INSIDE;", ".func f() { INSIDE: ret; }\n"),
             "unknown label 'INSIDE'"));
}

TEST_CASE("hostile: barriers that there are not, and for odd numbers of threads") {
  Gpu gpu;
  CHECK(says(outcome_of(gpu, "bar.sync 16;"), "barrier 16 (there are 0 to 15)"));
  CHECK(says(outcome_of(gpu, "mov.u32 %r1, -1; barrier.sync %r1;"),
             "barrier 4294967295 (there are 0 to 15)"));
  CHECK(says(outcome_of(gpu, "bar.sync 1, 33;"), "33 threads, which is no multiple of 32"));
  CHECK(says(outcome_of(gpu, "bar.arrive 1, 0;"), "0 threads, which is no multiple of 32"));
  CHECK(says(outcome_of(gpu, "bar.sync 1, 2048;"),
             "deadlock: barrier 1 was reached by 32 of 2048 threads"));
}

TEST_CASE("hostile: memory freed by the kernel under a copy in flight") {
  Gpu gpu;
  const std::string take =
      "{ .param .b64 n; .param .b64 r; st.param.b64 [n], 200000; call (r), malloc, (n); "
      "ld.param.b64 %rd2, [r]; }\n";
  const std::string give = "{ .param .b64 p; st.param.b64 [p], %rd2; call free, (p); }\n";
  // What it reads then is undefined, but it reads something.
  CHECK_SAME(gpu.run(".shared .align 16 .b8 s[16];" + take +
                         "st.u32 [%rd2], 77; cp.async.ca.shared.global [s], [%rd2], 16; "
                         "cp.async.commit_group;" +
                         give +
                         "cp.async.wait_group 0; ld.shared.u32 %r1, [s]; mov.u32 %r1, 1; "
                         "st.global.u32 [%mine], %r1;",
                     1, {0}, {1, 1, 1}, {1, 1, 1}, kDeviceFunctions),
             {1});
  CHECK(gpu.machine.memory().live().empty());
}

TEST_CASE("hostile: malloc until there is none") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(1, 0);
  const std::string loop =
      R"(AGAIN: { .param .b64 n; .param .b64 r; st.param.b64 [n], 1; call (r), malloc, (n); ld.param.b64 %rd2, [r]; }
    setp.eq.u64 %p1, %rd2, 0; @%p1 bra FULL; add.u32 %r1, %r1, 1; bra AGAIN;
FULL: st.global.u32 [%out], %r1;)";
  CHECK(gpu.launch(kernel("mov.u32 %r1, 0;" + loop, kDeviceFunctions), {out.address(), 0ull},
                   {1, 1, 1})
            .fault.message == "");
  CHECK(out[0] == (8u << 20) / 32);  // a byte takes 16, and 16 in front
  CHECK_SAME(gpu.run("st.global.u32 [%mine], %lane;"), expected(32, [](auto i) { return i; }));
}

TEST_CASE("hostile: printf with wrong formats") {
  Gpu gpu;
  auto printed = [&](const std::string& format) {
    std::string bytes;
    for (const char c : format) bytes += std::to_string(static_cast<unsigned char>(c)) + ",";
    gpu.printed.clear();
    const LaunchOutcome outcome =
        outcome_of(gpu,
                   ".local .align 8 .b8 a[64]; st.local.u64 [a], -5; st.local.u64 [a+8], "
                   "0x7fffffff; st.local.u64 [a+16], 0; setp.ne.u32 %p1, %lane, 0; @%p1 exit;"
                   "mov.u64 %rd1, format; cvta.global.u64 %rd1, %rd1; mov.u64 %rd2, a; "
                   "cvta.local.u64 %rd2, %rd2;"
                   "{ .param .b64 f; .param .b64 v; .param .b32 r; st.param.b64 [f], %rd1; "
                   "st.param.b64 [v], %rd2; call (r), vprintf, (f, v); }",
                   kDeviceFunctions + ".global .b8 format[] = {" + bytes + "0};\n");
    return outcome.fault.message.empty() ? gpu.printed : "fault: " + outcome.fault.message;
  };
  CHECK(printed("%") == "%");
  CHECK(printed("100%") == "100%");
  CHECK(printed("%5") == "%5");
  CHECK(printed("%n%d") == "%n-5");
  CHECK(printed("%lld %q") == "-5 %q");
  CHECK(printed("%99999999999d").size() == 4096);
  CHECK(printed("%.99999999999d").size() <= 4098);
  CHECK(printed("%*d").size() <= 4096);
  CHECK(printed("%d%*d").size() <= 4100);
  CHECK(printed("%lld%*s").size() <= 4100);
  CHECK(printed("%700d").size() == 700);
}

TEST_CASE("hostile: offsets and numbers at the ends of their range") {
  Gpu gpu;
  CHECK(outcome_of(gpu, "ld.global.u32 %r1, [%in+9223372036854775807+9223372036854775807];")
            .fault.kind != FaultKind::none);
  CHECK(outcome_of(gpu, ".shared .align 16 .b8 s[64]; ld.u8 %r1, [s+9223372036854775807];")
            .fault.kind == FaultKind::illegal_address);
  CHECK(outcome_of(gpu, "ld.global.u32 %r1, [t+-9223372036854775808];", ".global .u32 t[4];\n")
            .fault.kind == FaultKind::illegal_address);
  CHECK(outcome_of(gpu, "mov.u64 %rd1, c+9223372036854775807; ld.const.u8 %r1, [%rd1];",
                   ".const .u32 c[4];\n")
            .fault.kind == FaultKind::illegal_address);
  CHECK(outcome_of(gpu, ".local .b8 l[8]; st.local.u8 [l+9223372036854775807], 1;").fault.kind ==
        FaultKind::illegal_address);
}

TEST_CASE("hostile: more registers than a host has memory for") {
  Gpu gpu;
  std::string body = ".reg .b64 %w<140000>;";
  const auto w = [](int i) { return "%w" + std::to_string(i); };
  for (int i = 0; i < 140000; i += 4)  // what no instruction names takes no place
    body += "mad.lo.u64 " + w(i) + ", " + w(i + 1) + ", " + w(i + 2) + ", " + w(i + 3) + ";\n";
  const LaunchOutcome outcome = outcome_of(gpu, body, "", {1024, 1, 1});
  CHECK(outcome.fault.kind == FaultKind::out_of_memory);
  CHECK(says(outcome, "MiB of PTX registers a block; the most is 1024"));
  CHECK(outcome_of(gpu, body).fault.message == "");
}

TEST_CASE("hostile: a shuffled grid too large for a list of its blocks") {
  Gpu gpu({.threads = 1, .schedule_seed = 9});
  const auto out = gpu.array<std::uint32_t>(1, 0);
  // Each block once: 300000 blocks, every 100th counts itself.
  const LaunchOutcome outcome = gpu.launch(kernel("rem.u32 %r1, %block, 100; setp.eq.u32 %p1, %r1, "
                                                  "0; @%p1 red.global.add.u32 [%out], %block;"),
                                           {out.address(), 0ull}, {1, 1, 1}, {300000, 1, 1});
  CHECK(outcome.fault.message == "");
  std::uint32_t want = 0;
  for (std::uint32_t b = 0; b < 300000; b += 100) want += b;
  CHECK(out[0] == want);
}
