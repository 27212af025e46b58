// What wgmma and setmaxnreg do beside the arithmetic (forms_warpgroup.cpp): when operands are read and
// results written, what the four warps must have in common, how registers change hands.
#include <set>

#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

constexpr Dim3 kGroup = {128, 1, 1};
const std::string kMatrices = ".shared .align 1024 .b8 s[4096];\n";

std::string specific(std::string text) {
  const std::string target = ".target sm_90\n";
  return text.replace(text.find(target), target.size(), ".target sm_90a\n");
}

// Operands of m64n8k16 in fp16: A is 2 KiB at offset 0, B 256 bytes at 2048, all of it ones.
constexpr std::uint64_t kOfA = 8ull << 16 | 16ull << 32, kOfB = kOfA | 128;
const std::string kOnes =
    ".reg .f32 %d<8>; .reg .pred %scale;\nsetp.eq.u32 %scale, 0, 0;\n"
    "mov.u32 %r1, s; mad.lo.u32 %r2, %thread, 16, %r1; mov.u32 %r3, 0x3c003c00;\n"
    "setp.lt.u32 %p0, %thread, 128; @%p0 st.shared.v4.u32 [%r2], {%r3, %r3, %r3, %r3}; setp.lt.u32 "
    "%p1, %thread, 16;\n"
    "@%p1 st.shared.v4.u32 [%r2+2048], {%r3, %r3, %r3, %r3};\n"
    "mov.f32 %d0, 0f3f800000; mov.f32 %d1, %d0; mov.f32 %d2, %d0; mov.f32 %d3, %d0;\n"
    "mov.f32 %d4, %d0; mov.f32 %d5, %d0; mov.f32 %d6, %d0; mov.f32 %d7, %d0;\n"
    "mov.u64 %rd1, " +
    std::to_string(kOfA) + "; mov.u64 %rd2, " + std::to_string(kOfB) +
    ";\nfence.proxy.async.shared::cta; bar.sync 0; wgmma.fence.sync.aligned;\n";
const std::string kFirst =
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %rd1, %rd2, %scale, "
    "1, "
    "1, 0, 0;\n";
const std::string kSecond =
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d4, %d5, %d6, %d7}, %rd1, %rd2, %scale, "
    "1, "
    "1, 0, 0;\n";
const std::string kCommit = "wgmma.commit_group.sync.aligned;\n";
std::string wait(int groups) {
  return "wgmma.wait_group.sync.aligned " + std::to_string(groups) + ";\n";
}
// Zeros in B, by the first 16 threads of every warp.
const std::string kOverwrite =
    "mov.u32 %r4, 0; setp.lt.u32 %p2, %lane, 16; mad.lo.u32 %r5, %lane, 16, %r1;\n"
    "bar.sync 0; @%p2 st.shared.v4.u32 [%r5+2048], {%r4, %r4, %r4, %r4}; bar.sync 0;\n";
std::string store(int index, const std::string& value) {
  return "st.global.f32 [%mine+" + std::to_string(512 * index) + "], " + value + ";\n";
}

std::vector<float> values(const std::string& body, std::uint64_t seed = 0) {
  Gpu gpu({.threads = 1, .schedule_seed = seed});
  const auto out = gpu.array<float>(1024, -1.f);
  const LaunchOutcome outcome =
      gpu.launch(specific(kernel(kOnes + body, kMatrices)), {out.address(), 0}, kGroup);
  REQUIRE(outcome.fault.message == "");
  return out.values();
}
// The value of elements [128 i, 128 i + 128), which must be equal.
float value(const std::vector<float>& all, std::size_t i) {
  for (std::size_t k = 0; k < 128; ++k) CHECK(all[128 * i + k] == all[128 * i]);
  return all[128 * i];
}

// What stops a launch of 128 threads, or "".
std::string fault(const std::string& body, Dim3 block = kGroup, const std::string& directives = "",
                  bool plain_target = false) {
  Gpu gpu;
  const auto out = gpu.array<float>(4096);
  const std::string text = kernel(kOnes + body, kMatrices, directives);
  try {
    return gpu.launch(plain_target ? text : specific(text), {out.address(), 0}, block)
        .fault.message;
  } catch (const PtxError& error) {
    return error.what();
  }
}
bool says(const std::string& text, const std::string& part) {
  INFO(text);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

}  // namespace

TEST_CASE("wgmma: results are there behind the wait for their group, not before") {
  auto got = values(kFirst + kCommit + kSecond + kCommit + store(0, "%d0") + wait(1) +
                    store(1, "%d0") + store(2, "%d4") + wait(0) + store(3, "%d4"));
  CHECK(value(got, 0) == 1);   // what was there
  CHECK(value(got, 1) == 17);  // 16 products more
  CHECK(value(got, 2) == 1);   // the second group may still be under way
  CHECK(value(got, 3) == 17);
  // Without a commit nobody waits for it.
  got = values(kFirst + wait(0) + store(0, "%d0") + kCommit + wait(0) + store(1, "%d0"));
  CHECK(value(got, 0) == 1);
  CHECK(value(got, 1) == 17);
  // Products of one accumulator are added in their order; a product with scale-d false begins anew.
  got = values(kFirst + kFirst + kCommit + wait(0) + store(0, "%d3") +
               "setp.ne.u32 %scale, 0, 0; wgmma.fence.sync.aligned;\n" + kFirst + kCommit +
               wait(0) + store(1, "%d3"));
  CHECK(value(got, 0) == 33);
  CHECK(value(got, 1) == 16);
}

TEST_CASE("wgmma: operands are read as late as the wait allows, or in shuffled schedules early") {
  const std::string body = kFirst + kCommit + kOverwrite + wait(0) + store(0, "%d0");
  CHECK(value(values(body), 0) == 1);
  std::set<float> seen;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const auto got = values(body, seed);
    CHECK(got == values(body, seed));
    seen.insert(got.begin(), got.begin() + 128);
  }
  CHECK(seen == std::set<float>{1, 17});
  // A right program gives the same whatever the schedule.
  for (std::uint64_t seed = 0; seed <= 12; ++seed)
    CHECK(value(values(kFirst + kFirst + kCommit + kSecond + kCommit + wait(1) + store(1, "%d0") +
                           wait(0) + kOverwrite + store(0, "%d4"),
                       seed),
                0) == 17);
}

TEST_CASE("wgmma: one warp's wait says that all four have read the operands") {
  // Warp 0 tells warp 4 when it has waited; warp 4 overwrites B and lets warp 3 go on.
  const std::string body =
      "setp.ge.u32 %p3, %thread, 128; @%p3 bra overwrite;\n" + kFirst + kCommit + wait(0) +
      "setp.ge.u32 %p4, %thread, 32; @%p4 bra behind; bar.arrive 1, 64;\n"
      "behind: setp.lt.u32 %p4, %thread, 96; @%p4 bra out; bar.sync 2, 64; bra out;\n"
      "overwrite: setp.ge.u32 %p4, %thread, 160; @%p4 bra end; bar.sync 1, 64; mov.u32 %r4, 0; "
      "mad.lo.u32 %r5, %lane, 8, %r1;\n"
      "st.shared.v2.u32 [%r5+2048], {%r4, %r4}; bar.arrive 2, 64; bra end;\n"
      "out:\n" +
      store(0, "%d0") + "end:\n";
  for (const std::uint64_t seed : {0, 1, 2, 3, 4}) {
    Gpu gpu({.threads = 1, .schedule_seed = seed, .check_race = true, .check_sync = true});
    const auto out = gpu.array<float>(1024, -1.f);
    const LaunchOutcome outcome =
        gpu.launch(specific(kernel(kOnes + body, kMatrices)), {out.address(), 0}, {256, 1, 1});
    REQUIRE(outcome.fault.message == "");
    CHECK(outcome.findings.size() == 0);
    CHECK(value(out.values(), 0) == 17);
  }
  // Warp 0 cannot wait for a product that the others ask for only when it has.
  says(fault("setp.lt.u32 %p3, %thread, 32; @!%p3 bar.sync 1, 128;\n" + kFirst + kCommit + wait(0) +
             "@%p3 bar.sync 1, 128;\n"),
       "deadlock: a product of a warpgroup is complete when all 4 warps have asked for it, and not "
       "all of them come to do so");
}

TEST_CASE("wgmma: what the four warps of a warpgroup must have in common") {
  CHECK(fault(kFirst + kCommit + wait(0)) == "");
  CHECK(fault(kFirst + kCommit + wait(0), {256, 1, 1}) == "");
  says(fault(kFirst, {96, 1, 1}), "a block of 96 threads has none");
  says(fault("setp.ge.u32 %p3, %thread, 32;\n@%p3 " + kFirst), "without this instruction");
  says(fault("setp.lt.u32 %p3, %thread, 32;\n@%p3 " + kFirst), "without this instruction");
  says(fault("setp.ne.u32 %p3, %lane, 3;\n@%p3 " + kFirst),
       "needs all 32 lanes of the warp together; here 31 execute it");
  says(fault("setp.ne.u32 %scale, %lane, 3;\n" + kFirst), "scale-d is true in some lanes");
  says(fault("setp.gt.u32 %scale, %thread, 31;\n" + kFirst), "scale-d differs between warps");
  says(fault("cvt.u64.u32 %rd5, %thread; add.u64 %rd2, %rd2, %rd5;\n" + kFirst),
       "e1 in lane 1, where all lanes of a warpgroup must have the same");
  says(
      fault("shr.u32 %r9, %thread, 5; cvt.u64.u32 %rd5, %r9; add.u64 %rd1, %rd1, %rd5;\n" + kFirst),
      "0x0000001000080003 in warp 3, where all warps of a warpgroup must have the same");
  says(fault("setp.ge.u32 %p3, %thread, 64;\n@%p3 bra OTHER;\n" + kFirst + "bra END;\nOTHER:\n" +
             kSecond + "END:\n"),
       "must execute the same instructions of a warpgroup in the same order: number 1 of warp 3 is "
       "the one at PTX line");
  says(
      fault("add.u64 %rd2, %rd2, 128;\n" + kFirst),
      "operand B (descriptor 0x0000001000080100) reaches 16 bytes at offset 4336 of shared memory, "
      "of which the block has 4096 bytes: out-of-bounds read");
}

TEST_CASE("wgmma: what is no instruction is refused with its name") {
  says(fault(kFirst, kGroup, "", true), "needs .target sm_90a, and this module is for sm_90");
  const auto other = [&](const std::string& from, const std::string& to) {
    std::string text = kFirst;
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return fault(text.replace(at, from.size(), to));
  };
  says(other("m64n8k16", "m64n12k16"), "does not know '.m64n12k16'");
  says(other("f32.f16.f16", "f32.f16.bf16"), "does not know '.bf16'");
  says(other("mma_async", "mma_async.sp"), "does not know '.sp' in 'wgmma.mma_async.sp");
  says(other("mma_async.sync.aligned.m64n8k16", "mma_async.sp.sync.aligned.m64n8k32"),
       "the metadata of a sparse product need a register of 32 bits");
  says(other("{%d0, %d1, %d2, %d3}", "{%d0, %d1, %d2}"), "does not support");
  says(other("%rd1, %rd2", "{%d0, %d1}, %rd2"),
       "this form of wgmma.mma_async has 7 operands, not 8");
  says(other("%rd1, %rd2", "%r1, %rd2"), "the descriptor of A needs a register of 64 bits");
  says(other("1, 1, 0, 0", "2, 1, 0, 0"), "imm-scale is 2 and must be -1 or 1");
  says(other("1, 1, 0, 0", "1, 1, 0, 3"), "imm-trans is 3 and must be 0 or 1");
  says(other("1, 1, 0, 0", "1, 1, 0"), "has 8 operands, not 7");
  says(other("%scale", "%r1"), "scale-d must be a predicate");
  says(fault("wgmma.wait_group.sync.aligned 8;\n"), "does not support");
}

TEST_CASE("wgmma: multiply-adds and what is read of shared memory are counted") {
  Gpu gpu;
  const auto out = gpu.array<float>(1024);
  const LaunchOutcome outcome =
      gpu.launch(specific(kernel(kOnes + kFirst + kSecond + kCommit + wait(0), kMatrices)),
                 {out.address(), 0}, {256, 1, 1}, {3, 1, 1});
  REQUIRE(outcome.fault.message == "");
  const LaunchCounters& c = outcome.counters;
  const std::uint64_t products = 2 * 2 * 3;  // per warpgroup
  CHECK(c.tensor_multiply_adds_f16 == products * 64 * 8 * 16);
  CHECK(c.tensor_multiply_adds_warpgroup[static_cast<std::size_t>(WarpgroupType::f16)] ==
        c.tensor_multiply_adds_f16);
  std::uint64_t bytes = 0, wavefronts = 0, issued = 0;
  for (const InstrReport& i : c.instructions)
    if (i.op_class == OpClass::tensor)
      bytes += i.shared.bytes_asked, wavefronts += i.shared.wavefronts, issued += i.count.issued;
  CHECK(issued == products * 4);
  CHECK(bytes == products * (64 + 8) * 16 * 2);
  CHECK(wavefronts == bytes / 128);
}

TEST_CASE("setmaxnreg: registers go to the block's pool, and an inc waits until there are enough") {
  const std::string more = "setmaxnreg.inc.sync.aligned.u32 232;\n",
                    less = "setmaxnreg.dec.sync.aligned.u32 40;\n";
  const std::string directives = ".maxntid 384\n.minnctapersm 1\n";  // 168 registers
  // Warpgroup 0 gives back what the other two take; they come first.
  const auto roles = [&](const std::string& first, const std::string& others) {
    return "setp.ge.u32 %p3, %thread, 128;\n@%p3 bra MORE;\nnanosleep.u32 100;\n" + first +
           "bra END;\nMORE:\n" + others + "END:\nmov.f32 %f1, 0f40000000;\n" + store(0, "%f1");
  };
  CHECK(fault(roles(less, more), {384, 1, 1}, directives) == "");
  CHECK(fault(roles(less + "setmaxnreg.inc.sync.aligned.u32 56;\n",
                    "setmaxnreg.inc.sync.aligned.u32 224;\n"),
              {384, 1, 1}, directives) == "");
  says(fault(roles("", more), {384, 1, 1}, directives),
       "deadlock: setmaxnreg.inc waits for 2048 registers for the warp, of which 0 are free in the "
       "block, and no other warp gives any back; 224 threads of other warps of the block wait for "
       "the same; waiting by");
  says(fault(roles(less, "setmaxnreg.inc.sync.aligned.u32 240;\n"), {384, 1, 1}, directives),
       "deadlock: setmaxnreg.inc waits for 2304 registers");
  says(fault("setmaxnreg.inc.sync.aligned.u32 256;\n", kGroup, ".maxnreg 128\n"),
       "setmaxnreg.inc to 256 registers of a thread takes 32768 for a warpgroup, and the whole "
       "block "
       "has 16384 (128 a thread at its start): can never be met");
  says(fault("setmaxnreg.dec.sync.aligned.u32 136;\n", kGroup, ".maxnreg 128\n"),
       "setmaxnreg.dec to 136 registers of a thread, which has 128");
  says(fault(less + "setmaxnreg.inc.sync.aligned.u32 32;\n", kGroup, ".maxnreg 128\n"),
       "setmaxnreg.inc to 32 registers of a thread, which has 40");
  // ptxas ignores it where it does not know how many registers a thread has.
  CHECK(fault("setmaxnreg.inc.sync.aligned.u32 256;\n") == "");
  says(fault("setmaxnreg.inc.sync.aligned.u32 100;\n"), "does not support 'setmaxnreg");
  says(fault("setmaxnreg.dec.sync.aligned.u32 16;\n"), "does not support 'setmaxnreg");
  says(fault(less, {96, 1, 1}, ".maxnreg 128\n"), "a block of 96 threads has none");
  says(fault("setp.lt.u32 %p3, %thread, 32;\n@%p3 " + less, kGroup, ".maxnreg 128\n"),
       "without this instruction");
  says(fault(less, kGroup, "", true), "needs .target sm_90a");
}
