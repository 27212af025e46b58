// Loops that wait for ever are told from those that only take long.
#include "check_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

// Without patience for anything: only a proof ends the launch before very many instructions do.
std::string message(const std::string& body, Dim3 block, Dim3 grid, MachineOptions options) {
  Gpu gpu(options);
  gpu.machine.patience = ~0ull;
  gpu.machine.instruction_limit = 1u << 23;
  const auto out = gpu.array<std::uint32_t>(1024, 0), in = gpu.array<std::uint32_t>(64, 0);
  const auto outcome = gpu.launch(kernel(".loc 1 3 0\n" + body, ".file 1 \"/nowhere/w.cu\"\n"),
                                  {out.address(), in.address()}, block, grid);
  CHECK(outcome.fault.kind == FaultKind::deadlock);
  return outcome.fault.message;
}

void check_named(const std::string& body, const std::string& words, Dim3 block = {64, 1, 1},
                 Dim3 grid = {3, 1, 1}) {
  MachineOptions checked{.threads = 1};
  checked.check_race = checked.check_init = checked.check_sync = true;
  for (const MachineOptions& options :
       {MachineOptions{.threads = 2}, MachineOptions{.threads = 1, .schedule_seed = 4},
        MachineOptions{.threads = 1, .schedule_seed = 1, .hostile = true}, checked}) {
    const std::string m = message(body, block, grid, options);
    INFO(options.schedule_seed, " ", options.check_race, body, m);
    CHECK(m.find("/nowhere/w.cu:") == 0);
    CHECK(m.find(words) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("waiting: what waits for ever is named at once") {
  check_named("W: ld.volatile.global.u32 %r1, [%in]; setp.eq.u32 %p1, %r1, 0; @%p1 bra W;",
              "deadlock: all 3 blocks that run wait in a loop for what no other thread does");
  // Turns are counted, for later: that ends nothing.
  check_named(R"(
mov.u32 %r2, 0;
W: ld.volatile.global.u32 %r1, [%in]; add.u32 %r2, %r2, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra W;
st.global.u32 [%mine], %r2;)",
              "deadlock: all 3 blocks that run wait in a loop");
  // It looks at a clock, which passes the quarter of an hour that it is watched for.
  check_named(R"(
mov.u64 %rd1, %globaltimer;
W: ld.volatile.global.u32 %r1, [%in]; setp.ne.u32 %p1, %r1, 0; @%p1 bra END;
mov.u64 %rd2, %globaltimer; sub.u64 %rd2, %rd2, %rd1; setp.lt.u64 %p2, %rd2, 0x4000000000000000;
@%p2 bra W;
END:)",
              "deadlock: all 3 blocks that run wait in a loop");
  // Longer and longer sleeps, up to a limit, by a clock.
  check_named(R"(
mov.u64 %rd1, %globaltimer;
W: atom.global.cas.b32 %r1, [%in], 1, 2; setp.eq.u32 %p1, %r1, 1; @%p1 bra END;
mov.u64 %rd2, %globaltimer; sub.u64 %rd2, %rd2, %rd1; min.u64 %rd2, %rd2, 40000;
cvt.u32.u64 %r2, %rd2; setp.lt.u32 %p2, %r2, 1000; @%p2 bra W; nanosleep.u32 %r2; bra W;
END:)",
              "deadlock: all 3 blocks that run wait in a loop");
  // The rest of the block, of a warp even, stands at a barrier, and has written before.
  check_named(R"(
.shared .align 4 .b8 s[256]; shl.b32 %r3, %thread, 2; mov.u32 %r4, s; add.u32 %r3, %r3, %r4;
st.shared.u32 [%r3], %r3; setp.lt.u32 %p3, %thread, 40; @%p3 bra B;
W: atom.global.add.u32 %r1, [%in], 0; setp.eq.u32 %p1, %r1, 0; @%p1 bra W;
B: barrier.sync 0;)",
              "40 threads of the block wait at the barrier at /nowhere/w.cu:3; waiting by thread "
              "(40,0,0)");
  // An mbarrier that expects one more than there are.
  check_named(R"(
.shared .align 8 .b64 object; setp.ne.u32 %p1, %thread, 0;
@!%p1 mbarrier.init.shared.b64 [object], 65; bar.sync 0;
mbarrier.arrive.shared.b64 %rd1, [object];
W: mbarrier.try_wait.shared.b64 %p2, [object], %rd1; @!%p2 bra W;)",
              "in a loop for what no other thread does");
  // A grid barrier by hand that counts one block too many.
  check_named(R"(
setp.ne.u32 %p1, %thread, 0; @%p1 bra END;
fence.acq_rel.gpu; atom.global.add.u32 %r1, [%in], 1;
W: nanosleep.u32 100; ld.acquire.gpu.global.u32 %r1, [%in]; setp.lt.u32 %p2, %r1, 4; @%p2 bra W;
END: bar.sync 0;)",
              "deadlock: all 3 blocks that run wait in a loop");
}

TEST_CASE("waiting: a loop with several jumps back is one loop, one in another may wait, too") {
  const std::string begin = R"(
.shared .align 8 .b64 object; setp.ne.u32 %p1, %thread, 0;
@!%p1 mbarrier.init.shared.b64 [object], 65; bar.sync 0;
mbarrier.arrive.shared.b64 %rd1, [object]; mov.u64 %rd2, %globaltimer; mov.u32 %r1, 0;)";
  // A wait of cuda::barrier as nvcc has it: turns, then time, then sleep, four jumps to two labels.
  check_named(begin + R"(
bra.uni W;
AGAIN: add.s32 %r1, %r1, 1;
W: mbarrier.try_wait.shared.b64 %p2, [object], %rd1; @!%p2 bra MORE; bra.uni END;
MORE: setp.lt.s32 %p3, %r1, 16; @%p3 bra AGAIN;
mov.u64 %rd3, %globaltimer; sub.s64 %rd3, %rd3, %rd2; setp.lt.s64 %p4, %rd3, 4000000; @%p4 bra NAP;
bra.uni LONG;
NAP: setp.lt.s64 %p4, %rd3, 40000; @%p4 bra W;
shr.u64 %rd3, %rd3, 2; cvt.u32.u64 %r2, %rd3; nanosleep.u32 %r2; bra.uni W;
LONG: nanosleep.u32 1000000; bra.uni W;
END:)",
              "in a loop for what no other thread does");
  // The turns in a loop of their own, the sleep in one around it.
  check_named(begin + R"(
W: mov.u32 %r1, 0;
TURN: mbarrier.try_wait.shared.b64 %p2, [object], %rd1; @%p2 bra END;
add.s32 %r1, %r1, 1; setp.lt.s32 %p3, %r1, 20; @%p3 bra TURN;
nanosleep.u32 100; bra.uni W;
END:)",
              "in a loop for what no other thread does");
  // Half of the lanes leave the inner loop before the others.
  check_named(begin + R"(
W: and.b32 %r1, %lane, 1;
TURN: ld.volatile.global.u32 %r2, [%in]; add.s32 %r1, %r1, 1; setp.lt.s32 %p3, %r1, 40; @%p3 bra TURN;
nanosleep.u32 100; setp.eq.u32 %p2, %r2, 0; @%p2 bra W;)",
              "in a loop for what no other thread does");
}

TEST_CASE("waiting: rounds of a ring, each with a wait that takes long, are no deadlock") {
  // Warp 0 works for long, then all meet at the mbarrier, in a loop with two jumps back, eight times.
  const std::string body = R"(
.shared .align 8 .b64 object; setp.ne.u32 %p1, %thread, 0;
@!%p1 mbarrier.init.shared.b64 [object], 64; bar.sync 0;
mov.u32 %r1, 0; mov.u32 %r9, 0;
ROUND: setp.ge.u32 %p2, %thread, 32; @%p2 bra MEET;
mov.u32 %r2, 0;
WORK: add.u32 %r2, %r2, 1; setp.lt.u32 %p3, %r2, 50000; @%p3 bra WORK;
MEET: mbarrier.arrive.shared.b64 %rd1, [object]; mov.u32 %r4, 0;
W: mbarrier.try_wait.shared.b64 %p4, [object], %rd1; @%p4 bra GOT;
add.u32 %r4, %r4, 1; setp.lt.u32 %p5, %r4, 16; @%p5 bra W;
nanosleep.u32 100; bra W;
GOT: add.u32 %r9, %r9, 1; add.u32 %r1, %r1, 1; setp.lt.u32 %p3, %r1, 8; @%p3 bra ROUND;
st.global.u32 [%mine], %r9;)";
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    Gpu gpu({.threads = 1, .schedule_seed = seed, .hostile = seed > 1});
    const auto out = gpu.run(body, 64, {0}, {64, 1, 1});
    CHECK_SAME(out, std::vector<std::uint32_t>(64, 8));
  }
}

TEST_CASE("waiting: clusters, one block of which polls and never comes to the barrier") {
  Gpu gpu;
  gpu.cluster = {2, 1, 1};
  gpu.machine.patience = ~0ull;
  gpu.machine.instruction_limit = 1u << 23;
  const auto out = gpu.array<std::uint32_t>(64, 0);
  const std::string m = gpu.launch(kernel(R"(
mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r1, 0; @%p1 bra B;
W: ld.volatile.global.u32 %r1, [%in]; setp.eq.u32 %p1, %r1, 0; @%p1 bra W;
B: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;)"),
                                   {out.address(), out.address()}, {32, 1, 1}, {4, 1, 1})
                            .fault.message;
  CHECK(m.find("deadlock: all 4 blocks that run wait in a loop") != std::string::npos);
  CHECK(m.find("of block (1,0,0)") != std::string::npos);
}

TEST_CASE("waiting: loops that give up after some turns or some time do") {
  Gpu gpu;
  gpu.machine.patience = ~0ull;
  // Turns are counted in a register, in one that another is made from, in local memory, in a function.
  const std::string look =
      "ld.volatile.global.u32 %r5, [%in]; setp.ne.u32 %p1, %r5, 0; @%p1 bra END;";
  const auto turns = expected(96, [](auto) { return 30000; });
  for (const std::string count :
       {"add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 30000;",
        "add.u32 %r1, %r1, 1; mul.lo.u32 %r2, %r1, 3; mov.u32 %r3, %r2; shr.u32 %r3, %r3, 1; "
        "setp.lt.u32 %p2, %r3, 45000;",
        "ld.local.u32 %r1, [stack]; add.u32 %r1, %r1, 1; st.local.u32 [stack], %r1; "
        "setp.lt.u32 %p2, %r1, 30000;",
        "{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r1; call (r), next, (a); "
        "ld.param.b32 %r1, [r]; } setp.lt.u32 %p2, %r1, 30000;"}) {
    INFO(count);
    const std::string next =
        ".func (.param .b32 r) next(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a]; "
        "add.u32 %x, %x, 1; st.param.b32 [r], %x; ret; }\n";
    CHECK_SAME(
        gpu.run(".local .align 4 .b8 stack[4]; mov.u32 %r1, 0; st.local.u32 [stack], 0;\nW: " +
                    look + count + " @%p2 bra W;\nEND: st.global.u32 [%mine], %r1;",
                96, {0}, {32, 1, 1}, {3, 1, 1}, next),
        turns);
  }
  // Ten seconds, ten minutes: the clock runs ahead while everybody waits.
  for (const std::uint64_t limit : {10ull, 600ull}) {
    const std::string text = std::to_string(limit * 1'000'000'000);
    const auto waited = gpu.run<std::uint64_t>(
        "mov.u64 %rd1, %globaltimer;\nW: " + look +
            " mov.u64 %rd2, %globaltimer; sub.u64 %rd2, %rd2, %rd1; setp.lt.u64 %p2, %rd2, " +
            text + "; @%p2 bra W;\nEND: st.global.u64 [%out], %rd2;",
        1, {0}, {64, 1, 1});
    CHECK(waited[0] >= limit * 1'000'000'000);
    CHECK(waited[0] < 3 * limit * 1'000'000'000);
  }
}

TEST_CASE("waiting: who comes late is waited for") {
  // Block 0 works for long and writes then; the others look, count, and see it.
  for (const std::uint64_t seed : {0, 3}) {
    Gpu gpu({.threads = 1, .schedule_seed = seed});
    gpu.machine.patience = ~0ull;
    const auto out = gpu.run(R"(
mov.u32 %r2, 0; setp.ne.u32 %p1, %block, 0; @%p1 bra W;
L: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 300000; @%p2 bra L;
st.volatile.global.u32 [%in], 7; bra END;
W: ld.volatile.global.u32 %r1, [%in]; setp.eq.u32 %p3, %r1, 0; @%p3 bra W;
END: st.global.u32 [%mine], %r1;)",
                             96, {0}, {32, 1, 1}, {3, 1, 1});
    CHECK(out[32] == 7);
    CHECK(out[95] == 7);
  }
}
