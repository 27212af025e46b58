// Findings about wgmma: registers of products under way, missing fences, operands in shared memory.
#include "check_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

constexpr Dim3 kGroup = {128, 1, 1};
const std::string kOfA = std::to_string(8ull << 16 | 16ull << 32),
                  kOfB = std::to_string(8ull << 16 | 16ull << 32 | 128);
const std::string kWgmmaFence = "#20: wgmma.fence.sync.aligned;\n";
const std::string kCommit = "wgmma.commit_group.sync.aligned;\n";
std::string wait(int groups) {
  return "wgmma.wait_group.sync.aligned " + std::to_string(groups) + ";\n";
}
// Ones in A (2 KiB at offset 0) and B (256 bytes at 2048).
std::string fill(const std::string& after) {
  return ".reg .f32 %d<8>; .reg .b32 %a<4>; .reg .pred %scale;\nsetp.eq.u32 %scale, 0, 0;\n"
         "mov.u32 %r1, s; mad.lo.u32 %r2, %thread, 16, %r1; mov.u32 %r3, 0x3c003c00;\n"
         "setp.lt.u32 %p1, %thread, 16; mov.u64 %rd1, " +
         kOfA + "; mov.u64 %rd2, " + kOfB +
         ";\nmov.f32 %d0, 0f00000000; mov.f32 %d1, %d0; mov.f32 %d2, %d0; mov.f32 %d3, %d0;\n"
         "mov.f32 %d4, %d0; mov.f32 %d5, %d0; mov.f32 %d6, %d0; mov.f32 %d7, %d0;\n"
         "mov.u32 %a0, %r3; mov.u32 %a1, %r3; mov.u32 %a2, %r3; mov.u32 %a3, %r3;\n"
         "#4: st.shared.v4.u32 [%r2], {%r3, %r3, %r3, %r3};\n"
         "#5: @%p1 st.shared.v4.u32 [%r2+2048], {%r3, %r3, %r3, %r3};\n" +
         after;
}
const std::string kFill = fill("fence.proxy.async.shared::cta; bar.sync 0;\n");
std::string product(int line, const std::string& a = "%rd1") {
  return "#" + std::to_string(line) +
         ": wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, " + a +
         ", %rd2, %scale, 1, 1, " + (a == "%rd1" ? "0, 0;\n" : "0;\n");
}
const std::string kFromRegisters = "{%a0, %a1, %a2, %a3}";
const std::string kStore = "#30: st.global.f32 [%mine], %d0;\n";

Texts find(const std::string& body, MachineOptions options, Dim3 block = kGroup) {
  Checked c(options);
  const auto in = c.gpu.array<std::uint32_t>(1024, 0);
  c.out = c.gpu.array<std::uint32_t>(4096, 0);
  for (const auto& array : {in, c.out})
    c.gpu.machine.memory().mark_written(array.address(), array.count * 4);
  std::string text =
      kernel(with_lines(body), ".file 1 \"s.cu\"\n.shared .align 1024 .b8 s[4096];\n");
  const std::string target = ".target sm_90\n";
  text.replace(text.find(target), target.size(), ".target sm_90a\n");
  const LaunchOutcome outcome = c.gpu.launch(text, {c.out.address(), in.address()}, block);
  REQUIRE(outcome.fault.message == "");
  return outcome.findings;
}
void silent_in_groups(const std::string& body) {
  CAPTURE(body);
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (const Dim3 block : {kGroup, Dim3{256, 1, 1}})
      CHECK(find(body,
                 {.threads = 1,
                  .schedule_seed = seed,
                  .check_race = block.x == 128,
                  .check_init = true,
                  .check_sync = true,
                  .check_proxy = true},
                 block) == Texts{});
}
void finds(const std::string& body, const std::string& part,
           const MachineOptions& options = sync_only()) {
  const Texts found = find(body, options);
  CAPTURE(body);
  std::string all;
  for (const std::string& text : found) all += text + "\n";
  INFO(all);
  CHECK(all.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("warpgroups: right programs have no findings") {
  silent_in_groups(kFill + kWgmmaFence + product(7) + product(8) + kCommit + wait(0) + kStore);
  silent_in_groups(kFill + kWgmmaFence + product(7, kFromRegisters) + kCommit +
                   product(8, kFromRegisters) + kCommit + wait(1) + wait(0) + kStore +
                   "add.f32 %d0, %d0, %d0;\n" + kWgmmaFence + product(9) + kCommit + wait(0) +
                   kStore);
  // Accumulators that nobody has assigned to, and a first product that does not read them.
  silent_in_groups(
      ".reg .f32 %e<4>;\n" + kFill + kWgmmaFence +
      "setp.ne.u32 %p5, 0, 0;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%e0, %e1, %e2, "
      "%e3}, %rd1, %rd2, %p5, 1, 1, 0, 0;\n" +
      kCommit + wait(0) + "st.global.f32 [%mine], %e1;\n");
}

TEST_CASE("warpgroups: accumulators and A are left alone until the wait") {
  finds(kFill + kWgmmaFence + product(7) + kCommit + kStore + wait(0),
        "s.cu:30: error: sync: read of a register that is part of the accumulator of the "
        "wgmma.mma_async at s.cu:7, before a wgmma.wait_group for it, by thread (96,0,0)");
  finds(kFill + kWgmmaFence + product(7) + wait(0) + kStore + kCommit + wait(0),
        "s.cu:30: error: sync");
  finds(kFill + kWgmmaFence + product(7) + kCommit + wait(1) + kStore + wait(0),
        "s.cu:30: error: sync");
  finds(kFill + kWgmmaFence + product(7) + kCommit + "#9: add.f32 %d2, %f1, %f1;\n" + wait(0),
        "s.cu:9: error: sync: write of a register that is part of the accumulator");
  finds(kFill + kWgmmaFence + product(7, kFromRegisters) + kCommit + "#9: add.u32 %a2, %r1, 1;\n" +
            wait(0),
        "s.cu:9: error: sync: write of a register that is part of A of the wgmma.mma_async at "
        "s.cu:7");
  finds(kFill + kWgmmaFence + product(7, kFromRegisters) + kCommit +
            "#9: wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%d0, %d1}, %rd1, %rd2, %scale, "
            "1, "
            "1, 0, 0;\n" +
            kCommit + wait(0),
        "s.cu:9: error: sync: wgmma.mma_async uses a register as part of its accumulator that the "
        "wgmma.mma_async at s.cu:7, of another shape, has as accumulator");
  // A is read only: that is allowed.
  CHECK(find(kFill + kWgmmaFence + product(7, kFromRegisters) + kCommit + "add.u32 %r9, %a2, 1;\n" +
                 wait(0),
             sync_only()) == Texts{});
}

TEST_CASE("warpgroups: wgmma.fence comes before the first product and behind other accesses") {
  finds(kFill + product(7) + kCommit + wait(0),
        "s.cu:7: error: sync: wgmma.mma_async before the warp's first wgmma.fence");
  finds(kFill + kWgmmaFence + "#21: add.f32 %d3, %d3, %d3;\n" + product(7) + kCommit + wait(0),
        "s.cu:7: error: sync: wgmma.mma_async uses a register as part of its accumulator that was "
        "accessed at s.cu:21, without a wgmma.fence between");
  finds(kFill + kWgmmaFence + "#21: ld.shared.u32 %a3, [%r2];\n" + product(7, kFromRegisters) +
            kCommit + wait(0),
        "s.cu:7: error: sync: wgmma.mma_async uses a register as part of A that was accessed at "
        "s.cu:21");
}

TEST_CASE(
    "warpgroups: what threads wrote is fenced before wgmma reads it, and stays until the wait") {
  const std::string rest = kWgmmaFence + product(7) + kCommit + wait(0) + kStore;
  finds(fill("bar.sync 0;\n") + rest,
        "s.cu:7: error: proxy: wgmma reads the bytes at offset 1536 of the block's shared memory, "
        "which "
        "thread (96,0,0) wrote at s.cu:4, without a fence.proxy.async between",
        proxy_only());
  finds(fill("bar.sync 0;\n") + rest, "at offset 2048 of the block's shared memory", proxy_only());
  CHECK(find(fill("bar.sync 0; fence.proxy.async;\n") + rest, proxy_only()) == Texts{});
  // Without a barrier the other warps' writes are not there.
  finds(fill("fence.proxy.async.shared::cta;\n") + rest, "s.cu:7", race_only());
  // Overwritten between the product and its wait: by other warps that have met this one since it asked.
  const std::string overwrite =
      "bar.sync 0;\n#11: @%p1 st.shared.v4.u32 [%r2+2048], {%r1, %r1, %r1, %r1};\n";
  finds(kFill + kWgmmaFence + product(7) + kCommit + overwrite + wait(0), "s.cu:11", race_only());
  CHECK(find(kFill + kWgmmaFence + product(7) + kCommit + wait(0) + overwrite, race_only()) ==
        Texts{});
  // An operand of which a part was never written.
  finds(kFill + "add.u64 %rd2, %rd2, 8;\n" + rest, "s.cu:7: error: init", init_only());
}

// What `before` does comes before a product that does not touch it, and `after` behind the wait for it.
static std::string around(const std::string& before, const std::string& between,
                          const std::string& after) {
  return kFill + "shr.u32 %r10, %thread, 5; setp.eq.u32 %p3, %r10, 0; setp.eq.u32 %p4, %r10, 1;\n" +
         before + kWgmmaFence + product(7) + kCommit + wait(0) + between + after + kStore;
}

TEST_CASE("warpgroups: a wait is none for what the other warps did beside the product (race)") {
  const std::string write = "#12: @%p3 st.shared.u32 [%r1+3072], %r3;\n",
                    read = "#13: @%p4 ld.shared.u32 %r7, [%r1+3072];\n";
  finds(around(write, "", read),
        "s.cu:12: error: race: write of 4 bytes to shared memory at offset 3072 by thread",
        race_only());
  finds(around(write, "", read), "at s.cu:13 without a barrier between", race_only());
  finds(around(read, "", write),
        "s.cu:13: error: race: read of 4 bytes from shared memory at offset 3072 by thread",
        race_only());
  CHECK(find(around(write, "bar.sync 0;\n", read), race_only()) == Texts{});
  CHECK(find(around(read, "bar.sync 0;\n", write), race_only()) == Texts{});
  // What it is for: any warp overwrites operands that all four have read.
  const std::string overwrite = "#11: @%p4 st.shared.u32 [%r1+64], %r3;\n";
  CHECK(find(around("", "", overwrite), race_only()) == Texts{});
  finds(around("", "", "") + kWgmmaFence + product(8) + kCommit + overwrite + wait(0),
        "s.cu:8: error: race: read of 16 bytes from shared memory at offset", race_only());
}

TEST_CASE("warpgroups: one thread that has waited tells a producer that operands are free (race)") {
  // Warps 0 to 3 multiply twice. Thread 0 arrives behind a wait that leaves `stay` products under way, and
  // then thread 128 overwrites B.
  const auto program = [](int stay, const std::string& overwrite) {
    return kFill +
           "setp.eq.u32 %p3, %thread, 0; setp.lt.u32 %p4, %thread, 128; setp.eq.u32 %p6, %thread, "
           "128;\n@%p3 mbarrier.init.shared.b64 [%r1+3584], 1;\n"
           "@%p3 mbarrier.init.shared.b64 [%r1+3592], 1;\nfence.proxy.async.shared::cta; bar.sync "
           "0;\n@!%p4 bra PRODUCER;\n" +
           kWgmmaFence + product(7) + kCommit + product(8) + kCommit + wait(stay) +
           "@%p3 mbarrier.arrive.shared.b64 %rd9, [%r1+3584];\n" + wait(0) + kStore +
           "bra END;\nPRODUCER: @!%p6 bra END;\n"
           "FREE: mbarrier.try_wait.parity.shared.b64 %p7, [%r1+3584], 0; @!%p7 bra FREE;\n" +
           overwrite + "END:\n";
  };
  const std::string copy =
      "mbarrier.arrive.expect_tx.shared.b64 %rd9, [%r1+3592], 256;\nadd.u32 %r11, %r1, 2048;\n"
      "#11: cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%in], 256, "
      "[%r1+3592];\n"
      "FULL: mbarrier.try_wait.parity.shared.b64 %p8, [%r1+3592], 0; @!%p8 bra FULL;\n";
  const std::string store = "#11: st.shared.u32 [%r1+2048], %r3;\n";
  constexpr Dim3 block = {160, 1, 1};
  for (const std::string& overwrite : {copy, store})
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      CAPTURE(overwrite);
      CAPTURE(seed);
      const MachineOptions options = {.threads = 1, .schedule_seed = seed, .check_race = true};
      CHECK(find(program(0, overwrite), options, block) == Texts{});
      // The second product is still under way, whenever the bytes are in fact overwritten.
      const Texts found = find(program(1, overwrite), options, block);
      REQUIRE(found.size() == 1);
      CHECK(found[0].find("s.cu:8: error: race: read of 16 bytes from shared memory at offset") ==
            0);
      CHECK(found[0].find("at s.cu:11 without a wgmma.wait_group for the product and a barrier "
                          "between, in block (0,0,0) of k") != std::string::npos);
    }
}

TEST_CASE("warpgroups: sums beyond the largest half, and an infinity among the operands") {
  const auto with = [](const std::string& halves) {
    std::string body = kFill;
    const std::string ones = "0x3c003c00";
    body.replace(body.find(ones), ones.size(), halves);
    return find(".reg .b32 %b<2>; mov.b32 %b0, 0; mov.b32 %b1, 0;\n" + body + kWgmmaFence +
                    "#7: wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%b0, %b1}, %rd1, %rd2, "
                    "%scale, 1, 1, 0, 0;\n" +
                    kCommit + wait(0) + "#30: st.global.b32 [%mine], %b0;\n",
                {.threads = 1, .check_finite = true});
  };
  CHECK(with("0x3c003c00") == Texts{});
  CHECK(with("0x3c007c00") == Texts{});
  CHECK(
      with("0x78007800") ==
      Texts{
          "s.cu:7: error: finite: a sum of products goes beyond 65504, the largest half, and it is "
          "stored at s.cu:30, by thread (64,0,0) of block (0,0,0) in k: accumulate in float (and "
          "127 more)"});
}
