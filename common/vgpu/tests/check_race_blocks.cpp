// Races between blocks: flags, locks, fences and their scopes, a barrier of the grid.
#include "check_race_support.h"

using namespace vgpu;
using namespace vgpu::test;

TEST_CASE("race: blocks that touch the same global memory") {
  const std::string body = "#10: st.global.u32 [%out+4], %block;\n";
  CHECK(races(body, {1, 1, 1}, {2, 1, 1}) ==
        Texts{"s.cu:10: error: race: write of 4 bytes to global memory at byte 4 of an allocation "
              "of 4096 bytes (argument 1) "
              "by thread (0,0,0) of block (0,0,0) and write by thread (0,0,0) of block (1,0,0) at "
              "the same line without a "
              "barrier of the grid or a release and an acquire between, in k"});
  check_silent("#10: st.global.u32 [%mine], %block;\n#11: ld.global.u32 %r1, [%mine];\n",
               {64, 1, 1}, {4, 1, 1});
  // Read by one, written by another.
  CHECK(races("setp.eq.u32 %p1, %block, 0;\n#10: @%p1 ld.global.u32 %r1, [%out];\n#11: @!%p1 "
              "st.global.u32 [%out], %block;\n",
              {1, 1, 1}, {2, 1, 1})
            .size() == 1);
}

TEST_CASE("race: the last block sees what the others did, when each has a fence") {
  auto body = [](const std::string& fence) {
    return R"(setp.eq.u32 %p1, %thread, 0; add.u32 %r1, %number, 1;
#10: st.global.u32 [%mine+16], %r1;
)" + fence +
           R"(
bar.sync 0;
mov.u32 %r2, %nctaid.x; sub.u32 %r2, %r2, 1;
#12: @%p1 atom.global.inc.u32 %r3, [%out], %r2;
mov.u32 %r4, s;
@%p1 st.shared.u32 [%r4], %r3;
bar.sync 0;
ld.shared.u32 %r5, [%r4];
setp.ne.u32 %p2, %r5, %r2; @%p2 bra END;
mul.wide.u32 %rd1, %thread, 4; add.u64 %rd1, %rd1, %out;
#15: ld.global.u32 %r6, [%rd1+16];
END:
)";
  };
  check_silent(body("membar.gl;"), {64, 1, 1}, {5, 1, 1});
  check_silent(body("bar.sync 0; @%p1 membar.gl;"), {64, 1, 1}, {5, 1, 1});
  CHECK(contains(races(body(""), {64, 1, 1}, {5, 1, 1}),
                 "s.cu:10: error: race: write of 4 bytes to global memory"));
  // A fence for the block is none for the grid.
  CHECK(races(body("membar.cta;"), {64, 1, 1}, {5, 1, 1}).size() == 1);
}

TEST_CASE("race: a flag handed from block to block") {
  // Each block waits for the one before, reads what it left, and passes on: decoupled look-back.
  auto body = [](const std::string& wait, const std::string& after, const std::string& before,
                 const std::string& tell) {
    return R"(mul.wide.u32 %rd1, %block, 8; add.u64 %rd1, %rd1, %out; mov.u32 %r1, 0;
setp.eq.u32 %p1, %block, 0; @%p1 bra TELL;
WAIT: )" + wait +
           R"( %r2, [%rd1-4];
setp.eq.u32 %p2, %r2, 0; @%p2 bra WAIT;
)" + after +
           R"(
#20: ld.global.u32 %r1, [%rd1-8];
TELL: add.u32 %r1, %r1, 1;
#22: st.global.u32 [%rd1], %r1;
)" + before +
           "\nmov.u32 %r3, 1;\n" + tell + " [%rd1+4], %r3;\n";
  };
  const Dim3 one{1, 1, 1}, grid{6, 1, 1};
  check_silent(body("ld.acquire.gpu.global.u32", "", "", "st.release.gpu.global.u32"), one, grid);
  check_silent(body("ld.relaxed.gpu.global.u32", "fence.acq_rel.gpu;", "fence.acq_rel.gpu;",
                    "st.relaxed.gpu.global.u32"),
               one, grid);
  check_silent(body("ld.volatile.global.u32", "membar.gl;", "membar.gl;", "st.volatile.global.u32"),
               one, grid);
  CHECK(races(body("ld.volatile.global.u32", "membar.gl;", "", "st.volatile.global.u32"), one,
              grid) == Texts{"s.cu:22: error: race: write of 4 bytes to global memory at byte 0 of "
                             "an allocation of 4096 bytes (argument 1) by "
                             "thread (0,0,0) of block (0,0,0) and read by thread (0,0,0) of block "
                             "(1,0,0) at s.cu:20 without a barrier of the "
                             "grid or a release and an acquire between, in k (and 4 more)"});
  CHECK(races(body("ld.volatile.global.u32", "", "membar.gl;", "st.volatile.global.u32"), one, grid)
            .size() == 1);
}

TEST_CASE("race: releases, acquires and fences of a block are none for other blocks") {
  // Block 0 leaves a word and tells, block 1 waits for it and reads.
  auto body = [](const std::string& tell, const std::string& wait) {
    return R"(mov.u32 %r3, 1; setp.eq.u32 %p1, %number, 0; setp.ne.u32 %p4, %lane, 0;
@%p4 bra END; @!%p1 bra WAIT;
#10: st.global.u32 [%out+8], %r3;
)" + tell +
           "\nbra END;\nWAIT: " + wait + R"(
setp.eq.u32 %p2, %r2, 0; @%p2 bra WAIT;
#12: ld.global.u32 %r1, [%out+8];
END:
)";
  };
  struct Case {
    const char *tell, *wait;
    bool right;  // between blocks; within a block all are
  };
  const Case cases[] = {
      {"st.release.gpu.global.u32 [%out], %r3;", "ld.acquire.gpu.global.u32 %r2, [%out];", true},
      {"st.release.cta.global.u32 [%out], %r3;", "ld.acquire.gpu.global.u32 %r2, [%out];", false},
      {"st.release.cluster.global.u32 [%out], %r3;", "ld.acquire.gpu.global.u32 %r2, [%out];",
       false},
      {"st.release.gpu.global.u32 [%out], %r3;", "ld.acquire.cta.global.u32 %r2, [%out];", false},
      {"st.release.sys.global.u32 [%out], %r3;", "ld.acquire.cluster.global.u32 %r2, [%out];",
       false},
      {"red.release.gpu.global.add.u32 [%out], 1;",
       "atom.acquire.gpu.global.add.u32 %r2, [%out], 0;", true},
      {"red.release.cta.global.add.u32 [%out], 1;",
       "atom.acquire.gpu.global.add.u32 %r2, [%out], 0;", false},
      {"atom.acq_rel.cta.global.exch.b32 %r4, [%out], 1;",
       "atom.acq_rel.gpu.global.add.u32 %r2, [%out], 0;", false},
      {"atom.acq_rel.gpu.global.exch.b32 %r4, [%out], 1;",
       "atom.acq_rel.cta.global.add.u32 %r2, [%out], 0;", false},
      {"membar.gl; st.volatile.global.u32 [%out], %r3;",
       "ld.volatile.global.u32 %r2, [%out]; membar.gl;", true},
      {"membar.cta; st.volatile.global.u32 [%out], %r3;",
       "ld.volatile.global.u32 %r2, [%out]; membar.gl;", false},
      {"membar.gl; st.volatile.global.u32 [%out], %r3;",
       "ld.volatile.global.u32 %r2, [%out]; membar.cta;", false},
      {"fence.acq_rel.cta; red.global.add.u32 [%out], 1;",
       "ld.relaxed.gpu.global.u32 %r2, [%out]; fence.acq_rel.gpu;", false},
      {"fence.acq_rel.gpu; red.relaxed.cta.global.add.u32 [%out], 1;",
       "ld.relaxed.gpu.global.u32 %r2, [%out]; fence.acq_rel.gpu;", false},
      {"fence.acq_rel.gpu; red.relaxed.gpu.global.add.u32 [%out], 1;",
       "ld.relaxed.cta.global.u32 %r2, [%out]; fence.acq_rel.gpu;", false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.tell);
    CAPTURE(c.wait);
    if (c.right)
      check_silent(body(c.tell, c.wait), {1, 1, 1}, {2, 1, 1});
    else
      CHECK(contains(races(body(c.tell, c.wait), {1, 1, 1}, {2, 1, 1}),
                     "s.cu:10: error: race: write of 4 bytes to global memory at byte 8"));
    // Two warps of one block.
    check_silent(body(c.tell, c.wait), {64, 1, 1}, {1, 1, 1});
  }
}

TEST_CASE("race: a counter of all blocks with fences of the block orders each block's threads") {
  // Thread 0 of each block leaves a word and counts. When all have, as thread 64 says without a
  // release, thread 32 of the same block looks at the counter, once, and reads the word.
  auto body = [](const std::string& fence, const std::string& read) {
    return R"(mul.wide.u32 %rd1, %block, 4; add.u64 %rd1, %rd1, %out; mov.u32 %r9, %nctaid.x;
setp.lt.u32 %p1, %thread, 32; setp.ge.u32 %p3, %thread, 64; setp.ne.u32 %p4, %lane, 0;
@%p4 bra END; @%p3 bra WAIT; @!%p1 bra READ;
#10: st.global.u32 [%rd1+8], %r9;
)" + fence +
           R"( red.global.add.u32 [%out], 1;
bra END;
WAIT: ld.relaxed.gpu.global.u32 %r2, [%out]; setp.ne.u32 %p2, %r2, %r9; @%p2 bra WAIT;
st.relaxed.gpu.global.u32 [%rd1+64], 1;
bra END;
READ: ld.relaxed.gpu.global.u32 %r2, [%rd1+64]; setp.eq.u32 %p2, %r2, 0; @%p2 bra READ;
ld.relaxed.gpu.global.u32 %r2, [%out]; membar.cta;
#12: ld.global.u32 %r1, [)" +
           read + "];\nEND:\n";
  };
  for (const std::string fence : {"membar.cta;", "membar.gl;"}) {
    CAPTURE(fence);
    check_silent(body(fence, "%rd1+8"), {96, 1, 1}, {4, 1, 1}, true);
    Checked c(race_only());
    c.gpu.cooperative = true;
    CHECK(contains(c.run(body(fence, "%out+12"), {96, 1, 1}, {4, 1, 1}),
                   "of block (1,0,0) and read"));
  }
}

TEST_CASE("race: a store to a flag ends what was told there before") {
  // Block 0 tells, block 1 writes over it, block 2 sees only what block 1 wrote.
  auto body = [](const std::string& over) {
    return R"(setp.eq.u32 %p1, %number, 0; setp.eq.u32 %p2, %number, 1; mov.u32 %r3, 1;
@%p1 bra TELL; @%p2 bra OVER;
LAST: ld.acquire.gpu.global.u32 %r2, [%out]; setp.ne.u32 %p3, %r2, 2; @%p3 bra LAST;
#12: ld.global.u32 %r1, [%out+8]; bra END;
TELL:
#10: st.global.u32 [%out+8], %r3; st.release.gpu.global.u32 [%out], %r3; bra END;
OVER: ld.relaxed.gpu.global.u32 %r2, [%out]; setp.ne.u32 %p3, %r2, 1; @%p3 bra OVER;
)" + over + "\nEND:\n";
  };
  check_silent(body("red.relaxed.gpu.global.add.u32 [%out], 1;"), {1, 1, 1}, {3, 1, 1});
  CHECK(contains(races(body("st.relaxed.gpu.global.u32 [%out], 2;"), {1, 1, 1}, {3, 1, 1}),
                 "s.cu:10: error: race: write of 4 bytes to global memory at byte 8"));
}

TEST_CASE("race: a lock protects when it is released behind a fence") {
  auto body = [](const std::string& fence) {
    return R"(setp.ne.u32 %p1, %thread, 0; @%p1 bra END;
LOCK: atom.global.cas.b32 %r1, [%out], 0, 1; setp.ne.u32 %p2, %r1, 0; @%p2 bra LOCK;
#11: ld.global.u32 %r2, [%out+4];
add.u32 %r2, %r2, 1;
#12: st.global.u32 [%out+4], %r2;
)" + fence +
           R"(
atom.global.exch.b32 %r3, [%out], 0;
END:
)";
  };
  check_silent(body("membar.gl;"), {32, 1, 1}, {6, 1, 1});
  CHECK(contains(races(body(""), {32, 1, 1}, {6, 1, 1}), "s.cu:12: error: race: write of 4 bytes"));
}

TEST_CASE(
    "race: a volatile or relaxed load and a barrier of the block are no acquire without a fence") {
  // The first thread of block 1 waits for a flag of block 0, and all of its threads read what that published.
  const auto body = [](const std::string& load, const std::string& behind,
                       const std::string& barrier) {
    return R"(setp.eq.u32 %p1, %thread, 0; setp.eq.u32 %p3, %block, 0; @!%p3 bra TAKE;
#10: @%p1 st.global.u32 [%out], %number;
@%p1 st.release.gpu.global.u32 [%out+4], 1;
bra END;
TAKE: @!%p1 bra MEET;
WAIT: )" + load +
           R"(.global.u32 %r2, [%out+4]; setp.eq.u32 %p2, %r2, 0; @%p2 bra WAIT;
)" + behind +
           "\nMEET: " + barrier + "\n#20: ld.global.u32 %r5, [%out];\nEND:\n";
  };
  const Dim3 warp{32, 1, 1}, warps{64, 1, 1}, two{2, 1, 1};
  for (const std::string load : {"ld.volatile", "ld.relaxed.gpu"}) {
    CAPTURE(load);
    check_silent(body(load, "membar.gl;", "bar.sync 0;"), warps, two);
    check_silent(body(load, "membar.gl;", "bar.warp.sync -1;"), warp, two);
    check_silent(body(load, "", "bar.sync 0; membar.gl;"), warps, two);
    check_silent(body(load, "", "bar.warp.sync -1; membar.gl;"), warp, two);
    CHECK(contains(races(body(load, "", "bar.sync 0;"), warps, two),
                   "s.cu:10: error: race: write of 4 bytes to global memory"));
    CHECK(races(body(load, "", "bar.warp.sync -1;"), warp, two).size() == 1);
    CHECK(races(body(load, "membar.cta;", "bar.sync 0;"), warps, two).size() == 1);
  }
  check_silent(body("ld.acquire.gpu", "", "bar.sync 0;"), warps, two);
}

TEST_CASE("race: a barrier of the grid") {
  auto body = [](const std::string& arrive) {
    return R"(setp.eq.u32 %p1, %thread, 0; mov.u32 %r9, %nctaid.x;
#10: st.global.u32 [%mine+16], %number;
bar.sync 0;
@!%p1 bra MEET;
)" + arrive +
           R"(
WAIT: ld.volatile.global.u32 %r2, [%out]; setp.ne.u32 %p2, %r2, %r9; @%p2 bra WAIT;
membar.gl;
MEET: bar.sync 0;
mov.u32 %r3, %ntid.x; mul.lo.u32 %r4, %r3, %r9; sub.u32 %r4, %r4, %number; sub.u32 %r4, %r4, 1;
mul.wide.u32 %rd1, %r4, 4; add.u64 %rd1, %rd1, %out;
#20: ld.global.u32 %r5, [%rd1+16];
)";
  };
  check_silent(body("membar.gl; red.global.add.u32 [%out], 1;"), {64, 1, 1}, {4, 1, 1}, true);
  check_silent(body("red.release.gpu.global.add.u32 [%out], 1;"), {64, 1, 1}, {4, 1, 1}, true);
  Checked c(race_only());
  c.gpu.cooperative = true;
  CHECK(c.run(body("red.global.add.u32 [%out], 1;"), {64, 1, 1}, {4, 1, 1}).size() == 1);
}
