// Threads that wait for each other in loops and at barriers, work that only looks like it, deadlocks.
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

TEST_CASE("control: a spin lock among the lanes of a warp, among warps, among blocks") {
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    Gpu gpu({.threads = 2, .schedule_seed = seed});
    // Every thread adds 1 to in[1], not atomically, under the lock in[0]. Two ways to write the loop.
    const auto out = gpu.array<std::uint32_t>(192, 0);
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
      const LaunchOutcome outcome =
          gpu.launch(kernel(loop), {out.address(), in.address()}, {64, 1, 1}, {3, 1, 1});
      REQUIRE(outcome.fault.message == "");
      CHECK(in[1] == 192);
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

TEST_CASE(
    "control: a lane that waits, writes and waits again does not lose the others of its warp") {
  // Lane 0 of two warps hand on turns by two mbarriers, as the two ends of a pipeline do; the loops are
  // left by a jump forward.
  const std::string wait_and_arrive = R"(
      setp.ne.u32 %p1, %thread, 0;
      @%p1 bra READY;
      mbarrier.init.shared.b64 [bars], 1; mbarrier.init.shared.b64 [bars+8], 1;
READY: bar.sync 0;
      setp.ne.u32 %p1, %lane, 0;
      @%p1 bra REST;
      mov.u32 %r1, bars;
      shr.u32 %r2, %thread, 5;
      shl.b32 %r3, %r2, 3;
      add.u32 %r3, %r1, %r3;  // this warp waits here,
      xor.b32 %r4, %r3, 8;    // the other one there
      xor.b32 %r5, %r2, 1;    // warp 0 begins
      mov.u32 %r6, 0;
NEXT: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], %r5;
      @%p2 bra DONE;
      bra NEXT;
DONE: mbarrier.arrive.shared.b64 _, [%r4];
      xor.b32 %r5, %r5, 1;
      add.u32 %r6, %r6, 1;
      setp.lt.u32 %p3, %r6, 200;
      @%p3 bra NEXT;
REST: activemask.b32 %r7;
      st.global.u32 [%mine], %r7;)";
  for (const std::uint64_t seed : {0, 5}) {
    Gpu gpu({.threads = 1, .schedule_seed = seed});
    const auto out = gpu.array<std::uint32_t>(64, 0);
    const LaunchOutcome outcome = gpu.launch(
        kernel(wait_and_arrive, ".shared .align 8 .b64 bars[2];"), {out.address(), 0}, {64, 1, 1});
    REQUIRE(outcome.fault.message == "");
    CHECK_SAME(out.values(), expected(64, [](auto) { return 0xffffffffu; }));
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
      const LaunchOutcome outcome =
          gpu.launch(kernel(body), {out.address(), in.address()}, {64, 1, 1}, {40, 1, 1});
      REQUIRE(outcome.fault.message == "");
      for (std::uint32_t i = 0; i < 42; ++i)
        CHECK(in[i] == (backward ? (i == 0 ? 0 : 42 - i) : i == 41 ? 0 : i + 1));
      // Those who waited for lane 0 at the barrier go on with it.
      if (!seed) CHECK(issued_of(outcome, "mov.u32 %r9") == 2 * 40);
    }
}

TEST_CASE(
    "control: a waiting loop with branches, shuffles and calls in it lets the other blocks run") {
  const std::string before =
      ".func (.reg .b32 %r) look(.reg .b64 %a) { .reg .pred %p<2>; ld.acquire.gpu.global.u32 %r, "
      "[%a]; setp.eq.u32 %p1, %r, 77; @%p1 trap; ret; }\n";
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
    const LaunchOutcome outcome = gpu.launch(kernel(body, before), {out.address(), in.address()},
                                             {64, 1, 1}, {kBlocks, 1, 1});
    REQUIRE(outcome.fault.message == "");
    CHECK(in[0] == kBlocks + 1);
    std::uint64_t issued = 0;  // waiting costs little: it is recognized
    for (const std::uint64_t n : outcome.counters.issued_by_sm) issued += n;
    CHECK(issued < 2'000'000);
  }
}

TEST_CASE("control: long loops of atomics or volatile loads are work, not a deadlock") {
  Gpu gpu;
  // One lane of 32 does 400,000 turns; the others wait at the meeting point and are not let go.
  for (const char* work : {"atom.global.add.u32 %r5, [%in], 1;",
                           "ld.volatile.global.u32 %r5, [%in]; add.u32 %r5, %r5, 1; "
                           "st.volatile.global.u32 [%in], %r5;"}) {
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
  const std::string turn =
      "st.volatile.global.u32 [%in], %r1; call f; bar.warp.sync 0xffffffff; ld.volatile.global.u32 "
      "%r5, [%in+4]; call f; add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 20000;";
  CHECK_SAME(gpu.run("mov.u32 %r1, 0; setp.lt.u32 %p1, %lane, 16; @%p1 bra B;\nA: " + turn +
                         " @%p2 bra A; bra END;\nB: " + turn +
                         " @%p2 bra B;\nEND: st.global.u32 [%mine], %r1;",
                     32, {0, 5}, {32, 1, 1}, {1, 1, 1}, before),
             std::vector<std::uint32_t>(32, 20000));
}

TEST_CASE("control: a limit on instructions ends what has no end") {
  Gpu gpu;
  gpu.machine.instruction_limit = 50000;
  const auto out = gpu.array<std::uint32_t>(64, 0);
  const LaunchOutcome outcome =
      gpu.launch(kernel(".loc 1 9 1\nLOOP: bra LOOP;", ".file 1 \"/nowhere/lesson.cu\"\n"),
                 {out.address(), 0ull}, {64, 1, 1});
  CHECK(outcome.fault.message ==
        "/nowhere/lesson.cu:9: error: no end after 50000 instructions; running by thread (0,0,0) "
        "of block (0,0,0) in k");
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
      st.global.u64 [%out], %rd3;)",
                                          1);
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
    const LaunchOutcome outcome =
        gpu.launch(kernel(body, loc), {out.address(), out.address()}, block, grid);
    CHECK(outcome.fault.kind == FaultKind::deadlock);
    // The machine lives on.
    CHECK(gpu.run("st.global.u32 [%mine], 1;") == std::vector<std::uint32_t>(32, 1));
    return outcome.fault.message;
  };
  for (const std::uint64_t seed : {0, 4}) {
    {  // a barrier for more threads than there are
      const std::string m = message(".loc 1 12 3\nbar.sync 1, 96;", {64, 1, 1}, {2, 1, 1}, seed);
      CHECK(m.find("/nowhere/lesson.cu:12: error: deadlock: barrier 1 was reached by 64 of 96 "
                   "threads") == 0);
      CHECK(m.find("in k") != std::string::npos);
    }
    {  // a mask with lanes that wait elsewhere
      const std::string m = message(R"(
        setp.lt.u32 %p1, %lane, 16;
        @%p1 bra A;
        .loc 1 20 1
        shfl.sync.idx.b32 %r1, %r1, 0, 31, 0xffffffff;
        bra END;
A:      .loc 1 22 1
        vote.sync.any.pred %p2, %p1, 0xffffffff;
END:)",
                                    {32, 1, 1}, {1, 1, 1}, seed);
      CHECK((m.find("/nowhere/lesson.cu:20: error: deadlock: ") == 0 ||
             m.find("/nowhere/lesson.cu:22: error: deadlock: ") == 0));
    }
    {  // a loop that waits for nobody
      const std::string m = message(R"(
WAIT:   .loc 1 30 1
        ld.volatile.global.u32 %r2, [%in];
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra WAIT;)",
                                    {32, 1, 1}, {3, 1, 1}, seed);
      CHECK(
          m.find("/nowhere/lesson.cu:30: error: deadlock: all 3 blocks that run wait in a loop") ==
          0);
    }
    {  // two warps that wait for each other's flag, with sleep
      const std::string m = message(R"(
WAIT:   .loc 1 40 1
        nanosleep.u32 100;
        atom.global.cas.b32 %r2, [%in], 1, 2;
        setp.ne.u32 %p2, %r2, 1;
        @%p2 bra WAIT;
        st.volatile.global.u32 [%in], 1;)",
                                    {64, 1, 1}, {1, 1, 1}, seed);
      CHECK(
          m.find(
              "/nowhere/lesson.cu:40: error: deadlock: the only block that runs waits in a loop") ==
          0);
    }
    {  // blocks that wait for one that finds no room
      // 132 SMs, one block each: block 0 waits for block 200.
      const std::string m = message(R"(
        setp.eq.u32 %p1, %block, 200;
        @%p1 st.volatile.global.u32 [%in], 1;
        .loc 1 50 1
WAIT:   ld.volatile.global.u32 %r2, [%in];
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra WAIT;)",
                                    {32, 1, 1}, {201, 1, 1});
      CHECK(m.find("/nowhere/lesson.cu:50: error: deadlock: all 132 blocks that run wait (of 201) "
                   "in a loop") == 0);
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
    st.global.u32 [%mine], %r5;)",
                           64, {0}, {64, 1, 1});
  CHECK_SAME(out, expected(64, [](auto i) { return i ^ 63; }));
}

TEST_CASE("control: a loop that waits for the host says so") {
  for (const MemoryKind kind : {MemoryKind::device, MemoryKind::managed, MemoryKind::pinned}) {
    Gpu gpu;
    gpu.machine.patience = 1 << 20;
    const auto flag = gpu.machine.memory().allocate(4, kind);
    flag->name = "flag";
    for (const std::string look :
         {"ld.volatile.global.u32 %r1, [%in];", "atom.global.add.u32 %r1, [%in], 0;"}) {
      const LaunchOutcome outcome =
          gpu.launch(kernel("AGAIN: " + look + " setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN;"),
                     {flag->base, flag->base});
      CHECK(outcome.fault.kind == FaultKind::deadlock);
      INFO(outcome.fault.message);
      CHECK((outcome.fault.message.find("(it looks at host-visible memory, 'flag' (4 bytes") !=
             std::string::npos) == (kind != MemoryKind::device));
    }
  }
}
