// Hostile schedules: right programs give right results, those that are right by luck often do not,
// and each seed gives the same each time.
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

MachineOptions hostile(std::uint64_t seed) {
  return {.threads = 1, .schedule_seed = seed, .hostile = true};
}

// Warp 1 hands 4 values to warp 0 through a ring of two slots. The slot is given back behind the
// read, or (the mistake) in front of it.
std::string ring(bool early) {
  const std::string give_back = "bar.warp.sync -1; @%p1 st.volatile.shared.u32 [released], %r2;\n";
  return R"(
.shared .align 4 .u32 produced; .shared .align 4 .u32 released; .shared .align 4 .b8 slots[256];
setp.eq.u32 %p1, %lane, 0; mov.u32 %r1, 0; mov.u32 %r9, 0;
setp.eq.u32 %p2, %thread, 0; @%p2 st.shared.u32 [produced], 0; @%p2 st.shared.u32 [released], 0;
bar.sync 0;
setp.lt.u32 %p2, %thread, 32; @%p2 bra TAKE;
GIVE: sub.s32 %r3, %r1, 1;
FULL: ld.volatile.shared.u32 %r4, [released]; setp.lt.s32 %p3, %r4, %r3; @%p3 bra FULL;
and.b32 %r5, %r1, 1; shl.b32 %r5, %r5, 5; add.u32 %r5, %r5, %lane; shl.b32 %r5, %r5, 2;
mov.u32 %r6, slots; add.u32 %r5, %r5, %r6; add.u32 %r2, %r1, 1; bar.warp.sync -1;
st.volatile.shared.u32 [%r5], %r2; bar.warp.sync -1;
@%p1 st.volatile.shared.u32 [produced], %r2;
mov.u32 %r1, %r2; setp.lt.u32 %p3, %r1, 4; @%p3 bra GIVE; bra END;
TAKE: and.b32 %r5, %r1, 1; shl.b32 %r5, %r5, 5; add.u32 %r5, %r5, %lane; shl.b32 %r5, %r5, 2;
mov.u32 %r6, slots; add.u32 %r5, %r5, %r6; add.u32 %r2, %r1, 1;
THERE: ld.volatile.shared.u32 %r4, [produced]; setp.le.u32 %p3, %r4, %r1; @%p3 bra THERE;
)" + (early ? give_back : "") +
         R"(
ld.volatile.shared.u32 %r7, [%r5]; mad.lo.u32 %r9, %r9, 10, %r7;
)" + (early ? "" : give_back) +
         R"(
mov.u32 %r1, %r2; setp.lt.u32 %p3, %r1, 4; @%p3 bra TAKE;
st.global.u32 [%mine], %r9;
END:)";
}

bool right(const std::string& body, const MachineOptions& options) {
  Gpu gpu(options);
  return gpu.run(body, 32, {0}, {64, 1, 1}) == std::vector<std::uint32_t>(32, 1234);
}

// Each block publishes its number + 1 (flag 1), adds up what those before it published, from the
// nearest on until one has published all (flag 2), and publishes all. `partial`: what it does with
// what is not all.
std::vector<std::uint32_t> look_back(const std::string& partial, const MachineOptions& options) {
  Gpu gpu(options);
  gpu.resident = 1;
  return gpu.run(R"(
setp.ne.u32 %p1, %lane, 0; @%p1 bra END;
mul.wide.u32 %rd1, %block, 4; add.u64 %rd1, %rd1, %in; add.u32 %r1, %block, 1; mov.u32 %r2, %r1;
setp.eq.u32 %p2, %block, 0; @%p2 bra ALL;
shl.b32 %r3, %r1, 2; or.b32 %r3, %r3, 1; st.release.gpu.global.u32 [%rd1], %r3;
mov.u64 %rd2, %rd1;
BEFORE: sub.u64 %rd2, %rd2, 4;
LOOK: ld.acquire.gpu.global.u32 %r4, [%rd2]; setp.eq.u32 %p3, %r4, 0; @%p3 bra LOOK;
and.b32 %r5, %r4, 3; shr.u32 %r4, %r4, 2; setp.eq.u32 %p4, %r5, 1; @!%p4 bra LAST;
)" + partial + R"( bra BEFORE;
LAST: add.u32 %r2, %r2, %r4;
ALL: shl.b32 %r3, %r2, 2; or.b32 %r3, %r3, 2; st.release.gpu.global.u32 [%rd1], %r3;
mul.wide.u32 %rd3, %block, 4; add.u64 %rd3, %rd3, %out; st.global.u32 [%rd3], %r2;
END:)",
                 48, std::vector<std::uint32_t>(48, 0), {32, 1, 1}, {48, 1, 1});
}

}  // namespace

TEST_CASE("schedule: a ring's slot given back too early is overrun more often") {
  constexpr std::uint64_t kSeeds = 60;
  int by_hostile = 0, by_random = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    CAPTURE(seed);
    CHECK(right(ring(false), hostile(seed)));
    const bool fine = right(ring(true), hostile(seed));
    CHECK(right(ring(true), hostile(seed)) == fine);
    by_hostile += !fine;
    by_random += !right(ring(true), {.threads = 1, .schedule_seed = seed});
  }
  CHECK(right(ring(true), {.threads = 1}));
  MESSAGE("found with ", by_hostile, " hostile seeds of ", kSeeds, ", with ", by_random,
          " random ones");
  CHECK(by_hostile > 2 * by_random);
}

TEST_CASE("schedule: a look-back sees what is not all yet") {
  const auto want = expected(48, [](std::uint32_t b) { return (b + 1) * (b + 2) / 2; });
  const std::string add = "add.u32 %r2, %r2, %r4;";
  CHECK_SAME(look_back(add, {.threads = 1}), want);
  CHECK_SAME(look_back("", {.threads = 1}), want);  // nobody comes there
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    CHECK_SAME(look_back(add, hostile(seed)), want);
    if (seed % 3 != 2) CHECK(look_back("", hostile(seed)) != want);  // else they begin in order
  }
}

// A grid that fills a device waits for all of its blocks at a barrier of its own.
TEST_CASE(
    "schedule: a hostile one comes through a barrier of many blocks in little more than its work") {
  constexpr std::uint32_t kBlocks = 1056, kThreads = 256;
  const auto issued = [&](const MachineOptions& options) {
    Gpu gpu(options);
    gpu.cooperative = true;
    const auto out = gpu.array<std::uint32_t>(kBlocks * kThreads, 0);
    const auto in = gpu.array<std::uint32_t>(kBlocks * kThreads + 1, 0);
    const LaunchOutcome outcome =
        gpu.launch(kernel(R"(
mul.wide.u32 %rd1, %number, 4; add.u64 %rd2, %rd1, %in; st.global.u32 [%rd2+4], %number;
bar.sync 0; setp.ne.u32 %p1, %thread, 0; @%p1 bra MET;
fence.acq_rel.gpu; atom.global.add.u32 %r1, [%in], 1;
WAIT: ld.acquire.gpu.global.u32 %r1, [%in]; setp.lt.u32 %p2, %r1, )" +
                          std::to_string(kBlocks) + R"(; @%p2 bra WAIT;
MET: bar.sync 0;
mov.u32 %r2, )" + std::to_string(kBlocks * kThreads - 2) +
                          R"(; sub.u32 %r2, %r2, %number; max.s32 %r2, %r2, 0;
mul.wide.u32 %rd3, %r2, 4; add.u64 %rd3, %rd3, %in; ld.global.u32 %r3, [%rd3+4]; st.global.u32 [%mine], %r3;)"),
                   {out.address(), in.address()}, {kThreads, 1, 1}, {kBlocks, 1, 1});
    REQUIRE(outcome.fault.message == "");
    CHECK(out[0] == kBlocks * kThreads - 2);
    return issued_of(outcome, "");
  };
  const std::uint64_t usual = issued({.threads = 1});
  for (const std::uint64_t seed : {1, 2, 3}) {
    CAPTURE(seed);
    CHECK(issued(hostile(seed)) < 100 * usual);
  }
}
