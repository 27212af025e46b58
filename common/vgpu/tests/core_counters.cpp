// Counters, each worked out by hand from Nsight Compute's definitions (sectors of 32 bytes, lines of
// 128, 32 banks of 4 bytes).
#include <map>

#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

struct Shape {
  std::uint64_t requests, sectors, lines, asked, distinct, ideal;
  bool operator==(const Shape&) const = default;
};
Shape global(const GlobalCounters& c) {
  return {c.requests, c.sectors, c.lines, c.bytes_asked, c.bytes_distinct, c.ideal_sectors};
}

// Counters of one instruction; %rd9 is in + lane * stride + offset.
InstrReport global_of(const std::string& instruction, int stride, int offset,
                      const std::string& guard = "", Dim3 block = {32, 1, 1}) {
  Gpu gpu;
  const auto in = gpu.array<std::uint8_t>(16384, 0);
  std::string text =
      kernel("mul.lo.u32 %r9, %lane, " + std::to_string(stride) +
             "; cvt.u64.u32 %rd9, %r9; add.u64 %rd9, %rd9, %in; add.u64 %rd9, %rd9, " +
             std::to_string(offset) + ";\n" + (guard.empty() ? "" : "setp" + guard + ";\n@%p1 ") +
             instruction + ";\n");
  if (instruction.find(".v4.u64") != instruction.npos)
    text.replace(text.find("sm_90"), 5, "sm_100");  // 256 bits
  const LaunchOutcome outcome = gpu.launch(text, {in.address(), in.address()}, block);
  REQUIRE(outcome.fault.message == "");
  return counters_of(outcome, instruction);
}
SharedCounters shared_of(const std::string& instruction, int stride, int offset,
                         const std::string& guard = "") {
  Gpu gpu;
  const auto in = gpu.array<std::uint8_t>(64, 0);
  const LaunchOutcome outcome = gpu.launch(
      kernel(".shared .align 16 .b8 s[16384]; mul.lo.u32 %r9, %lane, " + std::to_string(stride) +
             "; mov.u32 %r8, s; add.u32 %r9, %r9, %r8; add.u32 %r9, %r9, " +
             std::to_string(offset) + ";\n" + (guard.empty() ? "" : "setp" + guard + ";\n@%p1 ") +
             instruction + ";\n"),
      {in.address(), in.address()});
  REQUIRE(outcome.fault.message == "");
  return counters_of(outcome, instruction).shared;
}
bool same(const SharedCounters& c, std::uint64_t requests, std::uint64_t wavefronts,
          std::uint64_t ideal, std::uint64_t asked) {
  INFO(c.requests << " " << c.wavefronts << " " << c.ideal << " " << c.bytes_asked);
  CHECK(c.requests == requests);
  CHECK(c.wavefronts == wavefronts);
  CHECK(c.ideal == ideal);
  CHECK(c.bytes_asked == asked);
  return true;
}

}  // namespace

TEST_CASE("counters: sectors of global accesses, by width, stride, start and mask") {
  // Unit stride: 32 lanes x width / 32 bytes.
  CHECK(global(global_of("ld.global.u8 %r1, [%rd9]", 1, 0).global) == Shape{1, 1, 1, 32, 32, 1});
  CHECK(global(global_of("ld.global.u16 %r1, [%rd9]", 2, 0).global) == Shape{1, 2, 1, 64, 64, 2});
  CHECK(global(global_of("ld.global.f32 %f1, [%rd9]", 4, 0).global) == Shape{1, 4, 1, 128, 128, 4});
  CHECK(global(global_of("ld.global.u64 %rd1, [%rd9]", 8, 0).global) ==
        Shape{1, 8, 2, 256, 256, 8});
  CHECK(global(global_of("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd9]", 16, 0).global) ==
        Shape{1, 16, 4, 512, 512, 16});
  CHECK(global(global_of("ld.global.v4.u64 {%rd1, %rd2, %rd3, %rd4}, [%rd9]", 32, 0).global) ==
        Shape{1, 32, 8, 1024, 1024, 32});
  CHECK(global(global_of("st.global.b32 [%rd9], %r1", 4, 0).global) == Shape{1, 4, 1, 128, 128, 4});
  CHECK(global(global_of("st.b32 [%rd9], %r1", 4, 0).global) == Shape{1, 4, 1, 128, 128, 4});
  // Every second word: 8 sectors, half of each unused. Columns of a matrix: a sector and a line each.
  CHECK(global(global_of("ld.global.u32 %r1, [%rd9]", 8, 0).global) == Shape{1, 8, 2, 128, 128, 4});
  CHECK(global(global_of("ld.global.u32 %r1, [%rd9]", 128, 0).global) ==
        Shape{1, 32, 32, 128, 128, 4});
  CHECK(global(global_of("ld.global.u32 %r1, [%rd9]", 32, 0).global) ==
        Shape{1, 32, 8, 128, 128, 4});
  // One word beside the start of a line: the fifth sector lies in the second line.
  CHECK(global(global_of("ld.global.u32 %r1, [%rd9]", 4, 4).global) == Shape{1, 5, 2, 128, 128, 4});
  // All lanes read one word.
  CHECK(global(global_of("ld.global.u32 %r1, [%rd9]", 0, 64).global) == Shape{1, 1, 1, 128, 4, 1});
  // 8 lanes; one lane; lanes 0 and 31; none.
  CHECK(global(global_of("ld.global.u32 %r1, [%rd9]", 4, 0, ".lt.u32 %p1, %lane, 8").global) ==
        Shape{1, 1, 1, 32, 32, 1});
  CHECK(global(global_of("ld.global.u32 %r1, [%rd9]", 4, 0, ".eq.u32 %p1, %lane, 19").global) ==
        Shape{1, 1, 1, 4, 4, 1});
  const InstrReport none = global_of("ld.global.u32 %r1, [%rd9]", 4, 0, ".gt.u32 %p1, %lane, 40");
  CHECK(global(none.global) == Shape{0, 0, 0, 0, 0, 0});
  CHECK(none.count.issued == 1);
  CHECK(none.count.lanes == 0);
  // 20 threads: 80 bytes, 3 sectors.
  CHECK(global(global_of("ld.global.u32 %r1, [%rd9]", 4, 0, "", {20, 1, 1}).global) ==
        Shape{1, 3, 1, 80, 80, 3});
  // Atomics on one word, and side by side.
  CHECK(global(global_of("atom.global.add.u32 %r1, [%rd9], 1", 0, 0).global) ==
        Shape{1, 1, 1, 128, 4, 1});
  CHECK(global(global_of("red.global.add.f32 [%rd9], 1.0", 4, 0).global) ==
        Shape{1, 4, 1, 128, 128, 4});
}

TEST_CASE("counters: wavefronts of shared memory") {
  same(shared_of("ld.shared.u32 %r1, [%r9]", 4, 0), 1, 1, 1, 128);     // each lane its bank
  same(shared_of("ld.shared.u32 %r1, [%r9]", 0, 8), 1, 1, 1, 128);     // broadcast
  same(shared_of("ld.shared.u32 %r1, [%r9]", 8, 0), 1, 2, 1, 128);     // two words a bank
  same(shared_of("ld.shared.u32 %r1, [%r9]", 128, 0), 1, 32, 1, 128);  // a column in a 32-wide tile
  same(shared_of("ld.shared.u32 %r1, [%r9]", 132, 0), 1, 1, 1, 128);   // in a 33-wide tile
  same(shared_of("st.shared.u8 [%r9], %r1", 1, 0), 1, 1, 1, 32);       // four lanes a word
  same(shared_of("ld.shared.u64 %rd1, [%r9]", 8, 0), 1, 2, 2, 256);    // two half-warps
  same(shared_of("ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r9]", 16, 0), 1, 4, 4, 512);
  same(shared_of("ld.shared.u64 %rd1, [%r9]", 256, 0), 1, 32, 2, 256);
  same(shared_of("ld.shared.u32 %r1, [%r9]", 128, 0, ".lt.u32 %p1, %lane, 5"), 1, 5, 1, 20);
  same(shared_of("atom.shared.add.u32 %r1, [%r9], 1", 4, 0), 1, 1, 1, 128);
  same(shared_of("ld.shared.u32 %r1, [%r9]", 4, 0, ".gt.u32 %p1, %lane, 40"), 0, 0, 0, 0);
}

TEST_CASE("counters: local memory is interleaved: equal offsets lie side by side") {
  Gpu gpu;
  const auto in = gpu.array<std::uint8_t>(64, 0);
  const LaunchOutcome outcome = gpu.launch(kernel(R"(
    .local .align 16 .b8 l[64];
    st.local.u32 [l], 1;
    st.local.v2.u32 [l+8], {1, 2};
    mov.u64 %rd1, l; cvta.local.u64 %rd1, %rd1;
    ld.u32 %r5, [%rd1];
    mul.wide.u32 %rd2, %lane, 0; add.u64 %rd3, %rd2, l;
    and.b32 %r6, %lane, 7; mul.wide.u32 %rd4, %r6, 4; mov.u64 %rd5, l; add.u64 %rd4, %rd4, %rd5;
    ld.local.u32 %r7, [%rd4];)"),
                                           {in.address(), in.address()});
  REQUIRE(outcome.fault.message == "");
  CHECK(global(counters_of(outcome, "st.local.u32 [l], 1").local) == Shape{1, 4, 1, 128, 128, 4});
  CHECK(global(counters_of(outcome, "st.local.v2.u32").local) == Shape{1, 8, 2, 256, 256, 8});
  CHECK(global(counters_of(outcome, "ld.u32 %r5").local) == Shape{1, 4, 1, 128, 128, 4});
  // Eight different words, four lanes each: in every one of 8 rows of 128 bytes, lanes l, l+8, l+16 and
  // l+24 lie 32 bytes apart: 4 sectors.
  CHECK(global(counters_of(outcome, "ld.local.u32 %r7").local) == Shape{1, 32, 8, 128, 128, 4});
  CHECK(counters_of(outcome, "ld.u32 %r5").space == Space::local);
}

TEST_CASE("counters: an asynchronous copy loads global and stores shared memory") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(64, 0), in = gpu.array<std::uint32_t>(256, 0);
  gpu.machine.memory().name(in.address(), "source");
  const LaunchOutcome outcome = gpu.launch(kernel(R"(
    .shared .align 16 .b8 tile[512];
    mul.wide.u32 %rd1, %lane, 16; add.u64 %rd1, %rd1, %in;
    mul.lo.u32 %r1, %lane, 16; mov.u32 %r2, tile; add.u32 %r2, %r2, %r1;
    cp.async.cg.shared.global [%r2], [%rd1], 16;
    cp.async.wait_all;)"),
                                           {out.address(), in.address()});
  REQUIRE(outcome.fault.message == "");
  REQUIRE(outcome.counters.allocations.size() == 1);
  const AllocationReport& source = outcome.counters.allocations[0];
  CHECK(source.name == "source");
  // 32 lanes of 16 bytes: 16 sectors in 4 lines; nothing is stored to global memory.
  CHECK(global(source.by_access[0]) == Shape{1, 16, 4, 512, 512, 16});
  CHECK(source.by_access[1].requests == 0);
  const InstrReport& copy = counters_of(outcome, "cp.async.cg");
  CHECK(copy.global_access() == Access::load);
  CHECK(copy.access == Access::store);
  CHECK(copy.shared.requests == 1);
}

TEST_CASE("counters: by allocation, with names; distinct sectors of the launch") {
  Gpu gpu;
  const auto a = gpu.array<std::uint32_t>(1000, 0), b = gpu.array<std::uint32_t>(1000, 0),
             c = gpu.array<std::uint32_t>(1000, 0);
  gpu.machine.memory().name(b.address(), "weights");
  // Even lanes read `in` (b), odd ones c, by one instruction; all write out (a). 3 blocks of 2 warps.
  const LaunchOutcome outcome =
      gpu.launch(kernel(R"(
    mov.u64 %rd1, )" + std::to_string(c.address()) +
                        R"(; and.b32 %r1, %lane, 1; setp.eq.u32 %p1, %r1, 0; @%p1 mov.u64 %rd1, %in;
    mul.wide.u32 %rd2, %number, 4; add.u64 %rd1, %rd1, %rd2;
    ld.global.u32 %r2, [%rd1];
    st.global.u32 [%mine], %r2;
    red.global.add.u32 [%out+2000], 1;)"),
                 {a.address(), b.address()}, {64, 1, 1}, {3, 1, 1});
  REQUIRE(outcome.fault.message == "");
  std::map<std::string, AllocationReport> by_name;
  for (const AllocationReport& r : outcome.counters.allocations) by_name[r.name] = r;
  REQUIRE(by_name.size() == 3);
  const AllocationReport out = by_name["argument 1"], weights = by_name["weights"],
                         other = by_name["allocation 3"];
  CHECK(out.bytes == 4000);
  // 6 warps: each of b and c is asked for 16 of 32 lanes, in 4 sectors; the request counts once.
  CHECK(weights.by_access[0].requests + other.by_access[0].requests == 6);
  CHECK(weights.by_access[0].sectors == 24);
  CHECK(other.by_access[0].sectors == 24);
  CHECK(weights.by_access[0].bytes_asked == 6 * 64);
  CHECK(other.by_access[0].bytes_asked == 6 * 64);
  CHECK(weights.sectors_read == 24);  // 768 bytes
  CHECK(weights.sectors_written == 0);
  CHECK(global(out.by_access[1]) == Shape{6, 24, 6, 768, 768, 24});
  CHECK(global(out.by_access[2]) == Shape{6, 6, 6, 768, 24, 6});
  CHECK(out.sectors_written == 25);  // 24, and the atomic's
  CHECK(out.sectors_read == 1);
  CHECK(outcome.counters.distinct_sectors_read == 24 + 24 + 1);
  CHECK(outcome.counters.distinct_sectors_written == 25);
  CHECK(counters_of(outcome, "ld.global.u32 %r2").global.requests == 6);
  CHECK(counters_of(outcome, "ld.global.u32 %r2").global.sectors == 48);
  CHECK(counters_of(outcome, "red.global").access == Access::atomic);
}

TEST_CASE("counters: one generic instruction that reaches global and shared memory") {
  Gpu gpu;
  const auto a = gpu.array<std::uint32_t>(64, 0);
  const LaunchOutcome outcome = gpu.launch(kernel(R"(
    .shared .align 16 .b8 s[128];
    mov.u64 %rd1, s; cvta.shared.u64 %rd1, %rd1; setp.lt.u32 %p1, %lane, 8; @%p1 mov.u64 %rd1, %out;
    mul.wide.u32 %rd2, %lane, 4; add.u64 %rd1, %rd1, %rd2;
    st.u32 [%rd1], 3;)"),
                                           {a.address(), 0ull});
  const InstrReport r = counters_of(outcome, "st.u32");
  CHECK(global(r.global) == Shape{1, 1, 1, 32, 32, 1});
  same(r.shared, 1, 1, 1, 96);
  CHECK(r.count.issued == 1);
  CHECK(r.count.lanes == 32);
}

TEST_CASE("counters: issued and lanes of a whole kernel; clocks of the pipes by SM") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(4096, 0);
  // 133 blocks on 132 SMs: block 132 shares SM 0. Each warp: 10 instructions before the body (kernel()),
  // 3 here, ret. A column access takes 32 / 4 = 8 clocks of the L1 pipe.
  const LaunchOutcome outcome = gpu.launch(kernel(R"(.shared .align 4 .b8 s[4096];
    mul.wide.u32 %rd1, %lane, 128; add.u64 %rd1, %rd1, %out;
    ld.global.u32 %r1, [%rd1];
    st.shared.u32 [s], %r1;)"),
                                           {out.address(), 0ull}, {64, 1, 1}, {133, 1, 1});
  REQUIRE(outcome.fault.message == "");
  const LaunchCounters& c = outcome.counters;
  CHECK(c.warps == 266);
  CHECK(c.threads == 133 * 64);
  CHECK(c.grid[0] == 133);
  CHECK(c.block[0] == 64);
  CHECK(c.static_shared == 4096);
  std::uint64_t issued = 0, lanes = 0;
  for (const InstrReport& r : c.instructions) issued += r.count.issued, lanes += r.count.lanes;
  // ld.param 2, cvta 2, mov 4, mad, mul, add; mul, add, ld, st; ret
  CHECK(issued == 266 * (2 + 2 + 4 + 3 + 4 + 1));
  CHECK(lanes == issued * 32);
  CHECK(c.l1_clocks_by_sm[0] == 4 * 8);
  CHECK(c.l1_clocks_by_sm[1] == 2 * 8);
  CHECK(c.shared_clocks_by_sm[0] == 4);
  CHECK(c.shared_clocks_by_sm[131] == 2);
  CHECK(c.issued_by_sm[0] == 4 * 16);
  CHECK(c.issued_by_sm[131] == 2 * 16);
  CHECK(c.instructions.back().op_class == OpClass::control);
}

TEST_CASE("counters: the same with one host thread, several, and any schedule") {
  const std::string body = R"(
    .shared .align 4 .b8 s[1024]; mov.u32 %r1, 0;
LOOP: xor.b32 %r2, %number, %r1; and.b32 %r3, %r2, 1023; mul.wide.u32 %rd1, %r3, 4; add.u64 %rd1, %rd1, %in;
    ld.global.u32 %r4, [%rd1]; and.b32 %r4, %r4, 255; shl.b32 %r6, %r4, 2; st.shared.u32 [%r6], %r1;
    setp.lt.u32 %p2, %r4, 100; @%p2 bra SKIP;
    red.global.add.u32 [%out+40000], 1;
SKIP: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 20; @%p1 bra LOOP;
    st.global.u32 [%mine], %r4;)";
  auto all = [&](MachineOptions options) {
    Gpu gpu(options);
    const auto out = gpu.array<std::uint32_t>(12000, 0);
    const auto in = gpu.array(expected(1024, [](auto i) { return i * 2654435761u >> 7; }));
    const LaunchOutcome outcome =
        gpu.launch(kernel(body), {out.address(), in.address()}, {96, 1, 1}, {100, 1, 1});
    REQUIRE(outcome.fault.message == "");
    std::string text;
    for (const InstrReport& r : outcome.counters.instructions) {
      text += r.ptx + " " + std::to_string(r.count.issued) + " " + std::to_string(r.count.lanes) +
              " " + std::to_string(r.shared.wavefronts) + "\n";
      const Shape g = global(r.global);
      for (auto v : {g.requests, g.sectors, g.lines, g.asked, g.distinct, g.ideal})
        text += std::to_string(v) + " ";
    }
    for (const AllocationReport& r : outcome.counters.allocations)
      text += r.name + " " + std::to_string(r.sectors_read) + " " +
              std::to_string(r.sectors_written) + "\n";
    for (double v : outcome.counters.l1_clocks_by_sm) text += std::to_string(v) + " ";
    for (auto v : outcome.counters.issued_by_sm) text += std::to_string(v) + " ";
    for (auto v : out.values()) text += std::to_string(v) + " ";
    return text;
  };
  const std::string one = all({.threads = 1});
  CHECK(one.size() > 1000);
  CHECK(one == all({.threads = 2}));
  CHECK(one == all({.threads = 5}));
  CHECK(one == all({.threads = 1, .schedule_seed = 1}));
  CHECK(one == all({.threads = 2, .schedule_seed = 99}));
}

TEST_CASE("counters: tensor multiply-adds by type of the factors, and of fp16's sums") {
  const std::string zeros = "mov.u32 %r1, 0; mov.u32 %r2, 0; mov.f32 %f1, 0f00000000;\n";
  const auto of = [&](const std::string& mma) {
    Gpu gpu;
    const auto out = gpu.array<std::uint32_t>(32);
    const LaunchOutcome outcome = gpu.launch(kernel(zeros + "mma.sync.aligned." + mma + ";\n"),
                                             {out.address(), out.address()});
    REQUIRE(outcome.fault.message == "");
    const LaunchCounters& c = outcome.counters;
    return std::vector<std::uint64_t>{c.tensor_multiply_adds_f16,  c.tensor_multiply_adds_f16_sums,
                                      c.tensor_multiply_adds_f8,   c.tensor_multiply_adds_tf32,
                                      c.tensor_multiply_adds_int8, c.tensor_multiply_adds_int4};
  };
  const std::string f = "{%f1, %f1, %f1, %f1}", two = "{%r1, %r1}", four = "{%r1, %r1, %r1, %r1}",
                    to = "{%f2, %f3, %f4, %f5}";
  using Counts = std::vector<std::uint64_t>;
  // 16 x 8 sums of 16 products are 2048, of 8 products 1024, of 32 products 4096.
  CHECK(of("m16n8k16.row.col.f32.f16.f16.f32 " + to + ", " + four + ", " + two + ", " + f) ==
        Counts{2048, 0, 0, 0, 0, 0});
  CHECK(of("m16n8k16.row.col.f16.f16.f16.f16 {%r3, %r4}, " + four + ", " + two + ", " + two) ==
        Counts{2048, 2048, 0, 0, 0, 0});
  CHECK(of("m16n8k32.row.col.f32.e4m3.e5m2.f32 " + to + ", " + four + ", " + two + ", " + f) ==
        Counts{4096, 0, 4096, 0, 0, 0});
  CHECK(of("m16n8k16.row.col.f32.bf16.bf16.f32 " + to + ", " + four + ", " + two + ", " + f) ==
        Counts{2048, 0, 0, 0, 0, 0});
  CHECK(of("m16n8k8.row.col.f32.tf32.tf32.f32 " + to + ", " + four + ", " + two + ", " + f) ==
        Counts{0, 0, 0, 1024, 0, 0});
  CHECK(of("m16n8k32.row.col.s32.s8.s8.s32 {%r3, %r4, %r5, %r6}, " + four + ", " + two + ", " +
           four) == Counts{0, 0, 0, 0, 4096, 0});
  CHECK(of("m16n8k64.row.col.s32.s4.u4.s32 {%r3, %r4, %r5, %r6}, " + four + ", " + two + ", " +
           four) == Counts{0, 0, 0, 0, 8192, 8192});
}
