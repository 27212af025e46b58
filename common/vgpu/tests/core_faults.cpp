// The memory check: what a kernel did wrong, in exact words; and nothing it does hurts the host.
#include <sys/mman.h>

#include <array>
#include <filesystem>
#include <random>

#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

const std::string kFile = ".file 1 \"/nowhere/lesson.cu\"\n";
// The faulty thread is number 7 of block (1,0,0), in blocks of 4 x 2: thread (3,1,0).
const std::string kBy = " by thread (3,1,0) of block (1,0,0) in k";

// Runs `body` with the second argument %in = `in`; the instruction behind `.loc 1 42` is only run by
// the thread that means mischief.
std::string message_of(Gpu& gpu, const std::string& body, std::uint64_t in, FaultKind kind,
                       const std::string& before = "") {
  const auto out = gpu.array<std::uint32_t>(16, 0);
  const std::string text = kernel(R"(
    mov.u32 %r90, %tid.y; mad.lo.u32 %r90, %r90, 4, %thread; mad.lo.u32 %r90, %block, 8, %r90;   // number in the grid
    mul.wide.u32 %mine, %r90, 4; add.u64 %mine, %mine, %out;
    setp.eq.u32 %p30, %r90, 15;
)" + body + "\nst.global.u32 [%mine], 1;",
                                  kFile + before);
  const LaunchOutcome outcome = gpu.launch(text, {out.address(), in}, {4, 2, 1}, {2, 1, 1});
  CHECK(outcome.fault.kind == kind);
  gpu.machine.memory().release(out.address());
  // The next launch is none the worse.
  CHECK_SAME(gpu.run("st.global.u32 [%mine], %lane;"), expected(32, [](auto i) { return i; }));
  const std::string place = "/nowhere/lesson.cu:42: error: ";
  if (!outcome.fault.message.starts_with(place) || !outcome.fault.message.ends_with(kBy))
    return "?" + outcome.fault.message;
  return outcome.fault.message.substr(place.size(),
                                      outcome.fault.message.size() - place.size() - kBy.size());
}
std::string on(const std::string& instruction) {
  return ".loc 1 42 7\n@%p30 " + instruction + ";\n.loc 1 50 1\n";
}

}  // namespace

TEST_CASE("faults: out of bounds, past, before and across the end of an allocation") {
  Gpu gpu;
  const auto a = gpu.array<std::uint32_t>(101, 0);  // 404 bytes
  const auto bad = FaultKind::illegal_address;
  CHECK(message_of(gpu, on("ld.global.u32 %r1, [%in+404]"), a.address(), bad) ==
        "out-of-bounds read of 4 bytes, 0 bytes past an allocation of 404 bytes (argument 2)");
  CHECK(message_of(gpu, on("ld.u8 %r1, [%in+405]"), a.address(), bad) ==
        "out-of-bounds read of 1 byte, 1 byte past an allocation of 404 bytes (argument 2)");
  CHECK(message_of(gpu, on("st.global.v4.u32 [%in+-16], {1,2,3,4}"), a.address(), bad) ==
        "out-of-bounds write of 16 bytes, 16 bytes before an allocation of 404 bytes (argument 2)");
  CHECK(
      message_of(gpu, on("st.global.b64 [%in+400], %rd1"), a.address(), bad) ==
      "out-of-bounds write of 8 bytes, across the end of an allocation of 404 bytes (argument 2)");
  CHECK(message_of(gpu, on("atom.global.add.u32 %r1, [%in+408], 1"), a.address(), bad) ==
        "out-of-bounds atomic access of 4 bytes, 4 bytes past an allocation of 404 bytes (argument "
        "2)");
  CHECK(message_of(gpu, on("red.add.u32 [%in+408], 1"), a.address(), bad) ==
        "out-of-bounds atomic access of 4 bytes, 4 bytes past an allocation of 404 bytes (argument "
        "2)");
  gpu.machine.memory().name(a.address(), "K");
  CHECK(message_of(gpu, on("ld.global.f32 %f1, [%in+416]"), a.address(), bad) ==
        "out-of-bounds read of 4 bytes, 12 bytes past allocation 'K' (404 bytes, argument 2)");
  // An argument that points into the middle.
  CHECK(message_of(gpu, on("ld.global.f32 %f1, [%in+216]"), a.address() + 200, bad) ==
        "out-of-bounds read of 4 bytes, 12 bytes past allocation 'K' (404 bytes, argument 2)");
  // No argument points to it.
  CHECK(message_of(gpu,
                   "mov.u64 %rd9, " + std::to_string(a.address()) + ";" +
                       on("ld.global.f32 %f1, [%rd9+404]"),
                   0, bad) ==
        "out-of-bounds read of 4 bytes, 0 bytes past allocation 'K' (404 bytes)");
  const auto empty = gpu.array<std::uint32_t>(0);
  CHECK(message_of(gpu, on("ld.global.u32 %r1, [%in]"), empty.address(), bad) ==
        "out-of-bounds read of 4 bytes, 0 bytes past an allocation of 0 bytes (argument 2)");
  CHECK(message_of(gpu, on("ld.global.u32 %r1, [table+16]"), 0, bad,
                   ".global .align 4 .u32 table[4];\n") ==
        "out-of-bounds read of 4 bytes, 0 bytes past allocation 'table' (16 bytes)");
}

// An instruction remembers the allocation that it hit last; each access is held against its ends.
TEST_CASE("faults: one instruction, first inside an allocation, then across its end or before it") {
  Gpu gpu;
  const auto a = gpu.array<std::uint32_t>(10, 0);  // 40 bytes
  const auto bad = FaultKind::illegal_address;
  const auto walk = [](const char* from, const char* step, const char* access) {
    return "add.s64 %rd1, %in, " + std::string(from) + "; mov.u32 %r8, 0;\nNEXT:\n" + on(access) +
           "add.s64 %rd1, %rd1, " + step +
           "; add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, 4; @%p1 bra NEXT;\n";
  };
  CHECK(message_of(gpu, walk("0", "16", "ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd1]"), a.address(),
                   bad) ==
        "out-of-bounds read of 16 bytes, across the end of an allocation of 40 bytes (argument 2)");
  CHECK(message_of(gpu, walk("16", "8", "st.global.v4.u16 [%rd1], {%h1,%h1,%h1,%h1}"), a.address(),
                   bad) ==
        "out-of-bounds write of 8 bytes, 0 bytes past an allocation of 40 bytes (argument 2)");
  CHECK(message_of(gpu, walk("0", "-8", "ld.global.u64 %rd2, [%rd1]"), a.address(), bad) ==
        "out-of-bounds read of 8 bytes, 8 bytes before an allocation of 40 bytes (argument 2)");
  // All lanes: a row of 128 bytes, and then one whose last lane crosses the end.
  const auto b = gpu.array<std::uint8_t>(254, 0);
  const auto out = gpu.array<std::uint32_t>(32, 0);
  const LaunchOutcome outcome =
      gpu.launch(kernel("mul.wide.u32 %rd1, %lane, 4; add.u64 %rd1, %rd1, %in; mov.u32 %r8, "
                        "0;\nNEXT:\nld.global.u32 %r1, [%rd1];\nadd.s64 %rd1, "
                        "%rd1, 128; add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, 2; @%p1 bra NEXT;"),
                 {out.address(), b.address()});
  CHECK(outcome.fault.kind == bad);
  CHECK(outcome.fault.message.find("out-of-bounds read of 4 bytes, across the end of an allocation "
                                   "of 254 bytes (argument 2) by thread "
                                   "(31,0,0)") != std::string::npos);
}

TEST_CASE("faults: misaligned, use after free, null, host pointer, no allocation") {
  Gpu gpu;
  const auto a = gpu.array<std::uint32_t>(101, 0);
  char address[32];
  auto hex = [&](std::uint64_t v) {
    std::snprintf(address, sizeof address, "0x%llx", static_cast<unsigned long long>(v));
    return std::string(address);
  };
  CHECK(message_of(gpu, on("ld.global.v2.f32 {%f1, %f2}, [%in+4]"), a.address(),
                   FaultKind::misaligned) == "misaligned read of 8 bytes at global address " +
                                                 hex(a.address() + 4) +
                                                 ", which is no multiple of 8");
  CHECK(message_of(gpu, on("st.u16 [%in+3], %h1"), a.address(), FaultKind::misaligned) ==
        "misaligned write of 2 bytes at global address " + hex(a.address() + 3) +
            ", which is no multiple of 2");
  CHECK(message_of(gpu, ".shared .align 16 .b8 s[64];" + on("atom.shared.add.u32 %r1, [s+6], 1"), 0,
                   FaultKind::misaligned) ==
        "misaligned atomic access of 4 bytes at shared address 0x6, which is no multiple of 4");
  CHECK(message_of(gpu, ".local .align 16 .b8 l[64];" + on("ld.local.u32 %r1, [l+2]"), 0,
                   FaultKind::misaligned) ==
        "misaligned read of 4 bytes at local address 0x2, which is no multiple of 4");
  CHECK(message_of(gpu, on("ld.global.u32 %r1, [%in]"), 0, FaultKind::illegal_address) ==
        "null pointer: read of 4 bytes at address 0");
  CHECK(message_of(gpu, on("st.global.u32 [%in+400], 1"), 0, FaultKind::illegal_address) ==
        "null pointer: write of 4 bytes at address 0x190");
  alignas(8) static int host = 5;
  CHECK(message_of(gpu, on("ld.global.u32 %r1, [%in]"), reinterpret_cast<std::uint64_t>(&host),
                   FaultKind::illegal_address) ==
        "host pointer: read of 4 bytes at " + hex(reinterpret_cast<std::uint64_t>(&host)) +
            ", which is ordinary host memory (cudaMalloc or cudaMallocManaged it, or copy it)");
  CHECK(message_of(gpu, on("ld.global.u32 %r1, [%in]"), 0xfedcba9876543210,
                   FaultKind::illegal_address) ==
        "out-of-bounds read of 4 bytes at 0xfedcba9876543210, in no allocation");
  const std::uint64_t gone = a.address();
  gpu.machine.memory().release(gone);
  CHECK(message_of(gpu, on("ld.global.u32 %r1, [%in+8]"), gone, FaultKind::illegal_address) ==
        "use after free: read of 4 bytes, 8 bytes into freed allocation of 404 bytes (argument 2)");
  const auto b = gpu.array<std::uint32_t>(10, 0);
  gpu.machine.memory().name(b.address(), "scores");
  gpu.machine.memory().release(b.address());
  CHECK(message_of(gpu, on("st.global.u32 [%in], 1"), b.address(), FaultKind::illegal_address) ==
        "use after free: write of 4 bytes, 0 bytes into freed allocation 'scores' (40 bytes, "
        "argument 2)");
}

TEST_CASE("faults: other state spaces") {
  Gpu gpu;
  const auto bad = FaultKind::illegal_address, wrong = FaultKind::address_space;
  const std::string s = ".shared .align 16 .b8 s[64];\n";
  CHECK(message_of(gpu, s + on("ld.shared.u32 %r1, [s+64]"), 0, bad) ==
        "out-of-bounds read of 4 bytes at offset 64, 0 bytes past the block's shared memory (64 "
        "bytes)");
  CHECK(message_of(gpu, s + "mov.u32 %r5, 0xfffffff0;" + on("st.shared.v2.u32 [%r5], {1, 2}"), 0,
                   bad) ==
        "out-of-bounds write of 8 bytes at offset 4294967280, 4294967216 bytes past the block's "
        "shared memory (64 bytes)");
  CHECK(message_of(gpu, ".shared .align 4 .b8 s[60];" + on("ld.shared.u64 %rd1, [s+56]"), 0, bad) ==
        "out-of-bounds read of 8 bytes at offset 56, across the end of the block's shared memory "
        "(60 bytes)");
  CHECK(message_of(
            gpu, s + "mov.u64 %rd9, s; cvta.shared.u64 %rd9, %rd9;" + on("ld.u32 %r1, [%rd9+100]"),
            0, bad) ==
        "out-of-bounds read of 4 bytes at offset 100, 36 bytes past the block's shared memory (64 "
        "bytes)");
  CHECK(message_of(
            gpu, ".local .align 16 .b8 l[64]; st.local.u32 [l], 1;" + on("st.local.u32 [l+64], 1"),
            0, bad) ==
        "out-of-bounds write of 4 bytes at offset 64, 0 bytes past the thread's local memory (64 "
        "bytes)");
  CHECK(message_of(gpu, on("ld.const.u32 %r1, [c+8]"), 0, bad, ".const .align 4 .u32 c[2];\n") ==
        "out-of-bounds read of 4 bytes at offset 8, 0 bytes past the module's constant memory (8 "
        "bytes)");
  CHECK(
      message_of(gpu, on("ld.param.u32 %r1, [p_in+8]"), 0, bad) ==
      "out-of-bounds read of 4 bytes at offset 16, 0 bytes past the kernel's arguments (16 bytes)");
  CHECK(message_of(gpu, "mov.u64 %rd9, c; cvta.const.u64 %rd9, %rd9;" + on("st.u32 [%rd9], 1"), 0,
                   wrong,
                   ".const .align 4 .u32 c[2];\n") == "write of 4 bytes to read-only const memory");
  CHECK(message_of(gpu,
                   "mov.b64 %rd9, p_in; cvta.param.u64 %rd9, %rd9;" + on("red.add.u32 [%rd9], 1"),
                   0, wrong) == "atomic access of 4 bytes to read-only param memory");
  CHECK(message_of(
            gpu,
            s + "mov.u64 %rd9, s; cvta.shared.u64 %rd9, %rd9;" + on("ld.global.u32 %r1, [%rd9]"), 0,
            wrong) == "read of 4 bytes of .shared memory by an instruction for global memory");
  CHECK(message_of(gpu,
                   ".local .align 4 .b8 l[4]; mov.u64 %rd9, l; cvta.local.u64 %rd9, %rd9;" +
                       on("st.global.u32 [%rd9], 1"),
                   0, wrong) ==
        "write of 4 bytes of .local memory by an instruction for global memory");
  // The parameters of a call.
  CHECK(message_of(gpu, "{ .param .b32 x;" + on("st.param.b32 [x+16], 1") + "}", 0, bad) ==
        "out-of-bounds write of 4 bytes at offset 16, 0 bytes past the parameters of a call (16 "
        "bytes)");
  CHECK(message_of(gpu, on("trap"), 0, FaultKind::trap) == "trap instruction executed");
}

TEST_CASE("faults: a path below the working directory is shown relative to it") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(1, 0);
  const std::string file = (std::filesystem::current_path() / "chapters" / "k.cu").string();
  const LaunchOutcome outcome =
      gpu.launch(kernel(".loc 1 3 1\nld.global.u32 %r1, [%in];", ".file 1 \"" + file + "\"\n"),
                 {out.address(), 0ull}, {1, 1, 1});
  CHECK(outcome.fault.message ==
        "chapters/k.cu:3: error: null pointer: read of 4 bytes at address 0 by thread (0,0,0) of "
        "block (0,0,0) in k");
}

TEST_CASE("faults: without line numbers the PTX line is named; with inlining the user's own line") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(1, 0);
  const LaunchOutcome plain = gpu.launch(
      kHead + ".entry k() {\n.reg .b32 %r<2>;\nld.global.u32 %r1, [0];\nret; }", {}, {1, 1, 1});
  CHECK(plain.fault.message ==
        "PTX line 6: error: null pointer: read of 4 bytes at address 0 by thread (0,0,0) of block "
        "(0,0,0) in k");
  // cuda_fp16.hpp, inlined into the user's helper at lesson.cu:30, called from lesson.cu:40.
  const LaunchOutcome inlined = gpu.launch(
      kernel(R"(
    .loc 2 900 3, function_name $L__info_string0, inlined_at 1 30 5
    ld.global.u32 %r1, [%in];)",
             ".file 1 \"/nowhere/lesson.cu\"\n.file 2 \"/usr/local/cuda/include/cuda_fp16.hpp\"\n"),
      {out.address(), 0ull}, {1, 1, 1});
  CHECK(inlined.fault.message.starts_with("/nowhere/lesson.cu:30: error: null pointer"));
}

TEST_CASE("faults: of several, the first block's is reported, whatever the number of threads") {
  for (int round = 0; round < 10; ++round) {
    Gpu gpu({.threads = 1 + round % 4});
    const auto out = gpu.array<std::uint32_t>(100, 0);
    // Block b faults when b >= 37; the earlier the block, the later.
    const LaunchOutcome outcome = gpu.launch(kernel(R"(
      setp.lt.u32 %p1, %block, 37; @%p1 exit;
      sub.u32 %r1, 200, %block; mul.lo.u32 %r1, %r1, 2000;
LOOP: sub.u32 %r1, %r1, 1; setp.ne.u32 %p2, %r1, 0; @%p2 bra LOOP;
      ld.global.u32 %r2, [%out+400];)"),
                                             {out.address(), 0ull}, {32, 1, 1}, {200, 1, 1});
    CHECK(outcome.fault.message ==
          "PTX line 17: error: out-of-bounds read of 4 bytes, 0 bytes past an allocation of 400 "
          "bytes (argument 1) by thread (0,0,0) of block (37,0,0) in k");
  }
}

TEST_CASE(
    "faults: wild addresses next to good ones, in every space and width, never hurt the host") {
  Gpu gpu;
  const auto a = gpu.array<std::uint8_t>(1024, 1);
  std::vector<std::uint64_t> edges = {0,
                                      1ull << 31,
                                      1ull << 32,
                                      1ull << 47,
                                      1ull << 48,
                                      1ull << 63,
                                      ~0ull - 31,
                                      a.address(),
                                      a.address() + 1024,
                                      kDeviceRange,
                                      kDeviceRange + kDeviceRangeSize,
                                      kFunctionRange,
                                      0x4141414141414140};
  for (const std::uint64_t window : {kSharedWindow, kLocalWindow, kConstantWindow, kParamWindow})
    for (const std::uint64_t offset :
         {std::uint64_t{0}, std::uint64_t{64}, std::uint64_t{1} << 31, kSharedWindowSize})
      edges.push_back(window + offset);
  const std::string declare =
      ".shared .align 16 .b8 s[64]; .local .align 16 .b8 l[64]; st.local.u32 [l], 1; st.shared.u32 "
      "[s], 1;\n";
  const std::string before = ".const .align 16 .b8 c[64];\n";
  int faults = 0, runs = 0;
  std::mt19937_64 random(11);
  for (const char* instruction : {"ld.global.u8 %r1, [%rd9]",
                                  "ld.u32 %r1, [%rd9]",
                                  "ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd9]",
                                  "ld.b128 %q1, [%rd9]",
                                  "st.global.u64 [%rd9], %rd1",
                                  "st.v4.u64 [%rd9], {%rd1,%rd1,%rd1,%rd1}",
                                  "ld.shared.u32 %r1, [%rd9]",
                                  "st.shared.v2.u64 [%rd9], {%rd1,%rd1}",
                                  "ld.local.u32 %r1, [%rd9]",
                                  "st.local.u8 [%rd9], %r1",
                                  "ld.const.u32 %r1, [%rd9]",
                                  "ld.param.u64 %rd1, [%rd9]",
                                  "atom.global.add.u32 %r1, [%rd9], 0",
                                  "atom.add.u64 %rd1, [%rd9], %rd9",
                                  "atom.shared.cas.b32 %r1, [%rd9], 0, 0",
                                  "atom.cas.b128 %q1, [%rd9], %q2, %q2",
                                  "red.global.add.f32 [%rd9], 0f00000000",
                                  "ld.shared.u32 %r1, [%r9]",
                                  "st.shared.u32 [%r9+64], %r1",
                                  "ld.global.u32 %r1, [%rd9+9223372036854775807]"})
    for (const std::uint64_t edge : edges)
      for (const int wild_lane : {0, 17, 32}) {  // 32: all
        const std::uint64_t address = edge + (random() % 3 - 1) * 16;
        const std::string good =
            std::string(instruction).find(".shared") != std::string::npos ||
                    std::string(instruction).find(".local") != std::string::npos ||
                    std::string(instruction).find(".const") != std::string::npos ||
                    std::string(instruction).find(".param") != std::string::npos
                ? "mov.u64 %rd9, 0;"
                : "mov.u64 %rd9, %in;";
        const std::string body =
            declare + good + "setp.eq.u32 %p1, %lane, " + std::to_string(wild_lane) + ";" +
            (wild_lane == 32 ? "mov.pred %p1, 1;" : "") + "@%p1 mov.u64 %rd9, " +
            std::to_string(address) +
            "; cvt.u32.u64 %r9, %rd9; mov.u64 %rd1, 1; mov.b128 %q2, {%rd1, %rd1};\n" +
            instruction + ";";
        const LaunchOutcome outcome = gpu.launch(kernel(body, before), {a.address(), a.address()});
        faults += outcome.fault.kind != FaultKind::none;
        ++runs;
      }
  CHECK(faults > runs * 8 / 10);
  CHECK(faults < runs);
}

TEST_CASE("faults: dividing by zero, and the smallest number by -1") {
  Gpu gpu;
  const std::string body = R"(
    ld.global.u32 %r1, [%in]; ld.global.u32 %r2, [%in+4]; mov.b64 %rd1, {0, %r1}; cvt.s64.s32 %rd2, %r2; cvt.u16.u32 %h1, %r1; cvt.u16.u32 %h2, %r2;
    div.u32 %r3, %r1, %r2; rem.u32 %r4, %r1, %r2; div.s32 %r5, %r1, %r2; rem.s32 %r6, %r1, %r2; div.s64 %rd3, %rd1, %rd2; rem.s64 %rd3, %rd1, %rd2;
    div.u64 %rd3, %rd1, %rd2; rem.u64 %rd3, %rd1, %rd2; div.s16 %h3, %h1, %h2; rem.u16 %h3, %h1, %h2; st.global.u32 [%mine], 1;)";
  CHECK_SAME(gpu.run(body, 32, {0x80000000, 0}), std::vector<std::uint32_t>(32, 1));
  CHECK_SAME(gpu.run(body, 32, {0x80000000, 0xffffffff}), std::vector<std::uint32_t>(32, 1));
  // What the GPU's own code gives: all ones, as quotient and as remainder.
  CHECK_SAME(gpu.run("ld.global.u32 %r1, [%in]; ld.global.u32 %r2, [%in+4]; div.u32 %r3, %r1, %r2; "
                     "rem.u32 %r4, %r1, %r2;\n"
                     "div.s32 %r5, %r1, %r2; rem.s32 %r6, %r1, %r2; st.global.v4.u32 [%out], {%r3, "
                     "%r4, %r5, %r6};",
                     4, {7, 0}, {1, 1, 1}),
             std::vector<std::uint32_t>(4, 0xffffffff));
}

TEST_CASE("faults: memory that host and device share") {
  Gpu gpu;
  // A page of the program's own, made visible at its own address.
  auto* page = static_cast<std::uint32_t*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(page != MAP_FAILED);
  const auto adopted = gpu.machine.memory().adopt(page + 3, 4 * 20, MemoryKind::pinned);
  REQUIRE(adopted != nullptr);
  CHECK(adopted->base == reinterpret_cast<std::uint64_t>(page + 3));
  CHECK(gpu.machine.memory().adopt(page + 10, 400, MemoryKind::pinned) == nullptr);  // overlaps
  LaunchOutcome outcome =
      gpu.launch(kernel("setp.ge.u32 %p1, %lane, 20; @%p1 exit; st.global.u32 [%mine], %lane;"),
                 {adopted->base, 0ull});
  CHECK(outcome.fault.message == "");
  CHECK(page[3 + 19] == 19);
  CHECK(counters_of(outcome, "st.global").global.sectors == 3);  // bytes 12 .. 91 of the page
  outcome = gpu.launch(kernel("st.global.u32 [%out+80], 1;"), {adopted->base, 0ull});
  CHECK(outcome.fault.kind == FaultKind::illegal_address);
  CHECK(gpu.machine.memory().release(adopted->base));
  page[3] = 7;  // still the program's
  munmap(page, 4096);
}

TEST_CASE("faults: no memory for a launch is an error of the launch") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(32, 0);
  const LaunchOutcome outcome =
      gpu.launch(kernel(".local .align 4 .b8 l[943718400]; st.local.u32 [l], 1;"),
                 {out.address(), 0ull}, {1024, 1, 1});
  CHECK(outcome.fault.kind == FaultKind::out_of_memory);
  CHECK(outcome.fault.message ==
        "k needs 943718400 bytes of local memory a thread; the most is 524288");
  CHECK_SAME(gpu.run("st.global.u32 [%mine], %lane;"), expected(32, [](auto i) { return i; }));
}

TEST_CASE("faults: an index that has wrapped at 32 bits is told with where it was meant to go") {
  Gpu gpu;
  const auto table = gpu.machine.memory().allocate(3ull << 30, MemoryKind::device);
  REQUIRE(table != nullptr);
  table->name = "table";
  const auto out = gpu.array<std::uint32_t>(32, 0);
  const auto at = [&](const std::string& index) {
    return gpu
        .launch(kernel(index + "add.u64 %rd1, %in, %rd1; ld.global.u8 %r2, [%rd1];"),
                {out.address(), table->base}, {1, 1, 1})
        .fault.message;
  };
  CHECK(at("mov.u64 %rd1, 2147483648;") == "");
  // 0x80000064 as a signed number; a product beyond 2^32.
  CHECK(at("mov.u32 %r1, 0x80000064; cvt.s64.s32 %rd1, %r1;")
            .find("4 GiB before byte 2147483748 of allocation 'table' (3221225472 bytes, argument "
                  "2): an "
                  "index or a product of 32 bits has wrapped (compute it in 64 bits, as size_t)") !=
        std::string::npos);
  CHECK(at("mov.u64 %rd1, -5;").find("wrapped") == std::string::npos);
  CHECK(at("mov.u64 %rd1, -2147483700;").find("wrapped") == std::string::npos);
}
