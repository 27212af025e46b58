// Races, each both ways: a planted one is found, in these words; the correct program is silent.
#include "check_race_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

// s[thread] = thread; BETWEEN; out[number] = s[other], where `other` computes %r2 from %thread.
std::string write_and_read(const std::string& between, const std::string& other) {
  return R"(mov.u32 %r1, s; shl.b32 %r3, %thread, 2; add.u32 %r4, %r1, %r3;
#10: st.shared.u32 [%r4], %thread;
)" + between +
         other + R"(
shl.b32 %r5, %r2, 2; add.u32 %r6, %r1, %r5;
#12: ld.shared.u32 %r7, [%r6];
#13: st.global.u32 [%mine], %r7;
)";
}
const std::string kNextWarp = "xor.b32 %r2, %thread, 32;\n",
                  kNextLane = "xor.b32 %r2, %thread, 1;\n", kSelf = "mov.u32 %r2, %thread;\n";

}  // namespace

TEST_CASE("race: shared memory between warps needs a barrier") {
  // Both warps run to their end one after the other: the first reads before the second writes, and
  // the second reads what the first wrote.
  CHECK(races(write_and_read("", kNextWarp)) ==
        Texts{"s.cu:12: error: race: read of 4 bytes from shared memory at offset 128 by thread "
              "(0,0,0) and write by "
              "thread (32,0,0) at s.cu:10 without a barrier between, in block (0,0,0) of k (and 31 "
              "more)",
              "s.cu:10: error: race: write of 4 bytes to shared memory at offset 0 by thread "
              "(0,0,0) and read by "
              "thread (32,0,0) at s.cu:12 without a barrier between, in block (0,0,0) of k (and 31 "
              "more)"});
  check_silent(write_and_read("bar.sync 0;\n", kNextWarp));
  check_silent(write_and_read("barrier.sync 3;\n", kNextWarp));
  check_silent(write_and_read("", kSelf));
  // A warp's own meeting is none for the other warp.
  CHECK(races(write_and_read("bar.warp.sync -1;\n", kNextWarp)).size() == 2);
}

TEST_CASE("race: lanes of a warp need __syncwarp") {
  CHECK(races(write_and_read("", kNextLane), {32, 1, 1}) ==
        Texts{"s.cu:10: error: race: write of 4 bytes to shared memory at offset 4 by thread "
              "(1,0,0) and read by "
              "thread (0,0,0) at s.cu:12 without a __syncwarp between, in block (0,0,0) of k (and "
              "31 more)"});
  check_silent(write_and_read("bar.warp.sync -1;\n", kNextLane));
  // No other operation of several lanes does it.
  for (const std::string operation :
       {"shfl.sync.idx.b32 %r9, %thread, 0, 31, -1;\n",
        "setp.lt.u32 %p1, %lane, 7; vote.sync.any.pred %p9, %p1, -1;\n",
        "match.any.sync.b32 %r9, %thread, -1;\n", "redux.sync.add.u32 %r9, %thread, -1;\n",
        "elect.sync _|%p9, -1;\n", "activemask.b32 %r9;\n"}) {
    CAPTURE(operation);
    CHECK(contains(races(write_and_read(operation, kNextLane), {32, 1, 1}),
                   operation[0] == 'a' ? "at s.cu:12 without a __syncwarp between, in block"
                                       : "at s.cu:12 without a __syncwarp between (a shuffle or "
                                         "vote is none), in block (0,0,0) of k (and 31 more)"));
    check_silent(write_and_read(operation + "bar.warp.sync -1;\n", kNextLane));
  }
  check_silent(write_and_read("bar.sync 0;\n", kNextLane));
  // Halves of a warp: 0-15 and 16-31 meet among themselves.
  const std::string halves =
      "and.b32 %r20, %lane, 16; shl.b32 %r21, 65535, %r20; bar.warp.sync %r21;\n";
  check_silent(write_and_read(halves, kNextLane));
  CHECK(races(write_and_read(halves, "xor.b32 %r2, %thread, 16;\n"), {32, 1, 1}).size() == 1);
  // What lanes 0-15 learn of each other passes on through one of them (mask 0x8001, then
  // 0xffff0001).
  const std::string chain = R"(
setp.gt.u32 %p1, %lane, 15; @!%p1 bar.warp.sync 65535;
setp.eq.u32 %p2, %lane, 0; or.pred %p3, %p1, %p2; @%p3 bar.warp.sync 0xffff0001;
@!%p1 bra END;
)";
  check_silent(write_and_read(chain, "and.b32 %r2, %thread, 15;\n") + "END:\n", {32, 1, 1});
}

TEST_CASE("race: lanes that have ended have not met the others") {
  // The upper half writes and ends, the lower half meets and reads what either half wrote.
  const auto body = [](const std::string& mask, int from) {
    return R"(
shl.b32 %r1, %thread, 2; mov.u32 %r2, s; add.u32 %r1, %r1, %r2;
#5: st.shared.u32 [%r1], %thread;
setp.ge.u32 %p1, %lane, 16; @%p1 ret;
xor.b32 %r3, %lane, 1; shl.b32 %r3, %r3, 2; add.u32 %r3, %r3, %r2;
#8: bar.warp.sync )" +
           mask + ";\n#9: ld.shared.u32 %r4, [%r3+" + std::to_string(from) + "];\n";
  };
  check_silent(body("0xffff", 0), {32, 1, 1});
  const Texts found = races(body("0xffff", 64), {32, 1, 1});
  REQUIRE(found.size() == 1);
  CHECK(found[0].find("s.cu:5: error: race: write of 4 bytes to shared memory at offset 68 by "
                      "thread (17,0,0) and read by thread (0,0,0) at s.cu:9 without a __syncwarp "
                      "between") == 0);
  // Twice: what was met before they ended stays known.
  check_silent(R"(
shl.b32 %r1, %thread, 2; mov.u32 %r2, s; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %thread;
bar.warp.sync -1; setp.ge.u32 %p1, %lane, 16; @%p1 ret;
bar.warp.sync 0xffff; ld.shared.u32 %r4, [%r1+64];
)",
               {32, 1, 1});
  // Lanes that never were are not missed.
  check_silent(R"(
shl.b32 %r1, %thread, 2; mov.u32 %r2, s; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %thread;
bar.warp.sync -1; xor.b32 %r3, %thread, 1; shl.b32 %r3, %r3, 2; add.u32 %r3, %r3, %r2;
ld.shared.u32 %r4, [%r3];
)",
               {8, 1, 1});
}

TEST_CASE("race: what a lane read before a shuffle, it has") {
  // Each lane reads its neighbour's word and then writes its own. Cooperative groups do so.
  auto body = [](const std::string& between) {
    return R"(mov.u32 %r1, s; shl.b32 %r3, %thread, 2; add.u32 %r4, %r1, %r3; xor.b32 %r5, %r4, 4;
st.shared.u32 [%r4], %thread; bar.warp.sync -1;
setp.lt.u32 %p1, %lane, 16;
#10: ld.shared.u32 %r6, [%r5];
)" + between +
           "#12: st.shared.u32 [%r4], %r6;\n";
  };
  CHECK(contains(races(body(""), {32, 1, 1}), "s.cu:10: error: race: read of 4 bytes"));
  check_silent(body("shfl.sync.idx.b32 %r9, %r6, 0, 31, -1;\n"), {32, 1, 1});
  check_silent(body("@%p1 shfl.sync.idx.b32 %r9, %r6, 0, 31, 0xffff;\n"
                    "@!%p1 shfl.sync.idx.b32 %r9, %r6, 16, 31, 0xffff0000;\n"),
               {32, 1, 1});
  // Lanes 16 to 31 did not take part; nor did they when each takes part with itself.
  CHECK(contains(races(body("@%p1 shfl.sync.idx.b32 %r9, %r6, 0, 31, 0xffff;\n"), {32, 1, 1}),
                 "(and 15 more)"));
  CHECK(races(body("shl.b32 %r8, 1, %lane; vote.sync.any.pred %p9, %p1, %r8;\n"), {32, 1, 1})
            .size() == 1);
}

TEST_CASE("race: what one lane has acquired, those have that it shuffles with") {
  // Lane 32 waits for the word of warp 0, a shuffle says so to its warp.
  auto body = [](const std::string& tell) {
    return R"(mov.u32 %r1, s; shl.b32 %r3, %lane, 2; add.u32 %r4, %r1, %r3;
setp.lt.u32 %p1, %thread, 32; setp.ne.u32 %p2, %lane, 0;
@%p1 bra TELL; @%p2 bra MEET;
WAIT: ld.acquire.cta.shared.u32 %r6, [s+512]; setp.eq.u32 %p3, %r6, 0; @%p3 bra WAIT;
MEET: )" + tell +
           R"(
#12: ld.shared.u32 %r7, [%r4];
bra END;
TELL:
#10: st.shared.u32 [%r4], %lane;
bar.warp.sync -1;
@!%p2 st.release.cta.shared.u32 [s+512], 1;
END:
)";
  };
  const std::string clear = "st.shared.u32 [s+512], 0; bar.sync 0;\n";
  check_silent(clear + body("shfl.sync.idx.b32 %r6, %r6, 0, 31, -1;"));
  CHECK(contains(races(clear + body("")), "s.cu:10: error: race: write of 4 bytes"));
}

TEST_CASE("race: all lanes wrote, one of them goes on") {
  const std::string body =
      "mov.u32 %r1, s; mov.u32 %r2, 7; setp.eq.u32 %p1, %lane, 31;\n#10: st.shared.u32 [%r1+8], "
      "%r2;\n";
  CHECK(races(body + "#11: @%p1 ld.shared.u32 %r3, [%r1+8];\n", {32, 1, 1}) ==
        Texts{"s.cu:10: error: race: write of 4 bytes to shared memory at offset 8 by thread "
              "(31,0,0) and others of its warp and read by thread (31,0,0) at s.cu:11 without a "
              "__syncwarp between, in block (0,0,0) of k"});
  check_silent(body + "bar.warp.sync -1;\n#11: @%p1 ld.shared.u32 %r3, [%r1+8];\n", {32, 1, 1});
}

TEST_CASE("race: neighbours narrower than a word are told apart") {
  const std::string body = R"(mov.u32 %r1, s; shl.b32 %r3, %thread, 1; add.u32 %r4, %r1, %r3;
cvt.u16.u32 %h1, %thread;
#10: st.shared.u16 [%r4], %h1;
#11: ld.shared.u16 %h2, [%r4];
add.u32 %r5, %r1, %thread;
bar.sync 0;
#12: st.shared.u8 [%r5], %h1;
#13: ld.shared.u8 %h2, [%r5];
bar.sync 0;
mad.lo.u32 %r6, %thread, 16, %r1;
#14: st.shared.v4.u32 [%r6], {%r1, %r1, %r1, %r3};
)";
  check_silent(body);
  CHECK(contains(races(body + "xor.b32 %r7, %r6, 16;\n#15: ld.shared.u8 %h3, [%r7+13];\n"),
                 "s.cu:14: error: race: write of 16 bytes to shared memory"));
}

TEST_CASE("race: read, then written by another thread") {
  // s[t] = s[t] + s[t + 1] with a barrier before and none between reading and writing.
  const std::string body = R"(mov.u32 %r1, s; mad.lo.u32 %r4, %thread, 4, %r1;
st.shared.u32 [%r4], %thread; st.shared.u32 [%r4+256], %thread;
bar.sync 0;
#10: ld.shared.u32 %r5, [%r4+4];
#11: ld.shared.u32 %r6, [%r4];
BETWEEN
add.u32 %r5, %r5, %r6;
#12: st.shared.u32 [%r4], %r5;
)";
  auto with = [&](const std::string& between) {
    return std::string(body).replace(body.find("BETWEEN"), 7, between);
  };
  // The warp that comes to the barrier last goes on first.
  const Texts found = races(with(""));
  CHECK(contains(found,
                 "s.cu:10: error: race: read of 4 bytes from shared memory at offset 132 by thread "
                 "(32,0,0) and write "
                 "by thread (33,0,0) at s.cu:12 without a __syncwarp between, in block (0,0,0) of "
                 "k (and 61 more)"));
  CHECK(contains(found,
                 "s.cu:12: error: race: write of 4 bytes to shared memory at offset 128 by thread "
                 "(32,0,0) and "
                 "read by thread (31,0,0) at s.cu:10 without a barrier between"));
  check_silent(with("bar.sync 0;"));
}

TEST_CASE("race: lanes that write different values to one place; the same value is no race") {
  CHECK(
      races("mov.u32 %r1, s;\n#10: st.shared.u32 [%r1+8], %thread;\n", {32, 1, 1}) ==
      Texts{
          "s.cu:10: error: race: write of 4 bytes to shared memory at offset 8 by thread (0,0,0) "
          "and write by thread "
          "(1,0,0) at the same line in the same instruction, in block (0,0,0) of k (and 30 more)"});
  check_silent("mov.u32 %r1, s; mov.u32 %r2, 7;\n#10: st.shared.u32 [%r1+8], %r2;\n", {128, 1, 1});
  check_silent("#10: mov.u32 %r2, 7; st.global.u32 [%out+8], %r2;\n", {64, 1, 1}, {4, 1, 1});
}

TEST_CASE("race: atomics among themselves are none, beside plain accesses they are") {
  const std::string add =
      "mov.u32 %r1, s; setp.eq.u32 %p1, %thread, 0; mov.u32 %r9, 0;\n@%p1 st.shared.u32 [%r1], "
      "%r9;\nbar.sync 0;\n"
      "#10: atom.shared.add.u32 %r2, [%r1], 1;\n";
  check_silent(add, {96, 1, 1});
  check_silent(add + "bar.sync 0;\n#12: ld.shared.u32 %r3, [%r1];\n", {96, 1, 1});
  CHECK(contains(races(add + "#12: ld.shared.u32 %r3, [%r1];\n"),
                 "s.cu:10: error: race: atomic access of 4 bytes to shared memory at offset 0 by "
                 "thread (63,0,0) and others of "
                 "its warp and read by thread (32,0,0) at s.cu:12"));
  check_silent("#10: red.global.add.u32 [%out], 1;\n", {64, 1, 1}, {8, 1, 1});
}

TEST_CASE("race: a thread's own atomic does not hide its plain store") {
  auto body = [](const std::string& between, const std::string& update) {
    return "mov.u32 %r1, s; setp.eq.u32 %p1, %thread, 0; mov.u32 %r9, 0;\n#10: @%p1 st.shared.u32 "
           "[%r1], %r9;\n" +
           between + "#12: " + update + "\n";
  };
  const std::string add = "atom.shared.add.u32 %r2, [%r1], 1;";
  const std::string rule =
      "; a plain write beside atomic or volatile accesses is a data race: put a barrier between, "
      "or "
      "write with volatile, cuda::atomic_ref or atomicExch";
  CHECK(races(body("", add)) ==
        Texts{"s.cu:10: error: race: write of 4 bytes to shared memory at offset 0 by thread "
              "(0,0,0) and atomic access by thread (32,0,0) at s.cu:12 without a barrier between, "
              "in block (0,0,0) of k" +
              rule + " (and 62 more)"});
  // The lanes of its warp are told, the other warp is not; nor by a fence.
  for (const std::string between : {"bar.warp.sync -1;\n", "bar.warp.sync -1; membar.cta;\n"})
    CHECK(
        races(body(between, add)) ==
        Texts{"s.cu:10: error: race: write of 4 bytes to shared memory at offset 0 by thread "
              "(0,0,0) and atomic access by thread (32,0,0) at s.cu:12 without a barrier between, "
              "in block (0,0,0) of k" +
              rule + " (and 31 more)"});
  check_silent(body("bar.sync 0;\n", add));
  // Narrow and scattered: bins that thread 0 clears, each updated by its own thread.
  CHECK(races("mov.u32 %r1, s; setp.eq.u32 %p1, %thread, 0; mad.lo.u32 %r2, %thread, 4, %r1;\n"
              "#10: @%p1 st.shared.u32 [%r1+132], 0;\n#12: atom.shared.add.u32 %r3, [%r2], 1;\n")
            .size() == 1);
  // A volatile store after the plain one, and a volatile load.
  const std::string look =
      "@%p1 st.volatile.shared.u32 [%r1], %r9; ld.volatile.shared.u32 %r2, [%r1];";
  CHECK(contains(races(body("", look)),
                 "s.cu:10: error: race: write of 4 bytes to shared memory at offset 0 by thread "
                 "(0,0,0) and read by thread (32,0,0) at s.cu:12 without a barrier between"));
  check_silent(body("bar.sync 0;\n", look));
  // Blocks, in global memory.
  const std::string blocks =
      "setp.eq.u32 %p1, %number, 0;\n#10: @%p1 st.global.u32 [%out], %number;\n#12: "
      "red.global.add.u32 [%out], 1;\n";
  CHECK(contains(races(blocks, {1, 1, 1}, {3, 1, 1}), "s.cu:10: error: race: write of 4 bytes"));
}

TEST_CASE("race: a plain read beside atomics, and how to write it") {
  // The first guess of a loop with atomicCAS.
  auto body = [](const std::string& read) {
    return "mov.u32 %r1, s; setp.eq.u32 %p1, %thread, 0; @%p1 st.shared.u32 [%r1], 0; bar.sync 0;\n"
           "#10: " +
           read +
           "\nAGAIN: mov.u32 %r3, %r2; add.u32 %r4, %r3, 1;\n"
           "#12: atom.shared.cas.b32 %r2, [%r1], %r3, %r4;\n"
           "setp.ne.u32 %p2, %r2, %r3; @%p2 bra AGAIN;\n";
  };
  const Texts found = races(body("ld.shared.u32 %r2, [%r1];"));
  CHECK(contains(
      found,
      "; a plain read beside atomic or volatile accesses is a data race: put a barrier "
      "between (a fence waits for nobody), or where any of the values will do, as in front "
      "of a loop of atomicCAS, read with volatile or cuda::atomic_ref"));
  // Between blocks neither a fence nor volatile makes a sum complete.
  CHECK(
      contains(races("#10: red.global.add.u32 [%out], 1;\nmembar.gl;\n#12: ld.global.u32 %r2, "
                     "[%out];\n",
                     {1, 1, 1}, {3, 1, 1}),
               "; to read what all blocks have added, let them meet before: this_grid().sync() of "
               "cooperative groups, or a second launch (a fence waits for nobody)"));
  for (const std::string& text : found) CHECK(text.find("a plain write") == text.npos);
  check_silent(body("ld.volatile.shared.u32 %r2, [%r1];"));
  check_silent(body("ld.relaxed.cta.shared.u32 %r2, [%r1];"));
  check_silent(body("atom.shared.add.u32 %r2, [%r1], 0;"));
  // A volatile read by the same thread does not hide its plain one.
  CHECK(
      contains(races("setp.lt.u32 %p1, %thread, 32; mov.u32 %r1, s;\n#10: @%p1 ld.shared.u32 %r2, "
                     "[%r1];\n@%p1 ld.volatile.shared.u32 %r3, [%r1];\n#12: @!%p1 "
                     "atom.shared.add.u32 %r2, [%r1], 1;\n"),
               "s.cu:10: error: race: read of 4 bytes from shared memory at offset 0 by thread "
               "(0,0,0) and others of its warp and atomic access by thread (32,0,0)"));
}

TEST_CASE("race: named barriers order those that take part") {
  // Warp 0 produces and arrives, warp 1 consumes, warp 2 has nothing to do with it.
  auto body = [](const std::string& arrive, const std::string& sync) {
    return R"(mov.u32 %r1, s; shr.u32 %r2, %thread, 5; mad.lo.u32 %r4, %lane, 4, %r1;
setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r2, 1; setp.eq.u32 %p3, %r2, 2;
@%p2 bra CONSUME; @%p3 bra END;
#10: st.shared.u32 [%r4], %thread;
)" + arrive +
           R"(
bra END;
CONSUME:
)" + sync + R"(
#20: ld.shared.u32 %r5, [%r1+40];
END:
)";
  };
  check_silent(body("bar.arrive 1, 64;", "bar.sync 1, 64;"), {96, 1, 1});
  check_silent(body("bar.sync 1, 64;", "bar.sync 1, 64;"), {96, 1, 1});
  CHECK(contains(races(body("", ""), {96, 1, 1}), "without a barrier between"));
  // What a producer does after it arrived is not ordered.
  const std::string late = "bar.arrive 1, 64;\n#11: st.shared.u32 [%r4], %lane;";
  CHECK(contains(races(body(late, "bar.sync 1, 64;"), {96, 1, 1}), "s.cu:11"));
}

TEST_CASE("race: barriers count threads that have ended as come") {
  check_silent("setp.gt.u32 %p1, %lane, 40; @%p1 ret;\n" +
               write_and_read("bar.sync 0;\n", kNextWarp));
  const std::string body =
      "mov.u32 %r1, s; mad.lo.u32 %r4, %thread, 4, %r1;\n#10: st.shared.u32 [%r4], %thread;\n"
      "setp.gt.u32 %p1, %thread, 31; @%p1 ret; bar.sync 0;\n#12: ld.shared.u32 %r5, [%r4+128];\n";
  CHECK(races(body) == Texts{});
}

TEST_CASE("race: asynchronous copies are waited for, by the thread and then by the others") {
  auto body = [](const std::string& wait, const std::string& other) {
    return R"(mov.u32 %r1, s; mad.lo.u32 %r4, %thread, 16, %r1; 
mul.wide.u32 %rd1, %thread, 16; add.u64 %rd1, %rd1, %in;
#10: cp.async.cg.shared.global [%r4], [%rd1], 16;
cp.async.commit_group;
)" + wait + other +
           R"(
mad.lo.u32 %r5, %r2, 16, %r1;
#14: ld.shared.u32 %r7, [%r5];
)";
  };
  const std::string wait = "cp.async.wait_group 0;\n", barrier = "bar.sync 0;\n";
  check_silent(body(wait, kSelf));
  check_silent(body(wait + barrier, kNextWarp));
  CHECK(races(body("", kSelf), {32, 1, 1}) ==
        Texts{"s.cu:10: error: race: asynchronous copy of 16 bytes to shared memory at offset 0 by "
              "thread (0,0,0) and read by "
              "thread (0,0,0) at s.cu:14 before the copy was waited for, in block (0,0,0) of k "
              "(and 31 more)"});
  CHECK(races(body(barrier, kNextWarp)).size() > 0);
  CHECK(races(body(wait, kNextWarp)).size() > 0);
  CHECK(races(body("cp.async.wait_group 1;\n", kSelf)).size() == 1);
}

TEST_CASE("race: volatile does not replace __syncwarp, and does between warps") {
  const std::string idiom = R"(mov.u32 %r1, s; mad.lo.u32 %r4, %thread, 4, %r1;
st.volatile.shared.u32 [%r4], %thread; bar.warp.sync -1;
#11: ld.volatile.shared.u32 %r5, [%r4+64]; add.u32 %r5, %r5, 1;
@%p1 bra END;
#12: st.volatile.shared.u32 [%r4], %r5;
END:
)";
  const std::string low = "setp.gt.u32 %p1, %lane, 15;\n";
  check_silent(low + idiom.substr(0, idiom.find("#11")) + "bar.sync 0;\n", {32, 1, 1});
  CHECK(contains(races("setp.gt.u32 %p1, %lane, 40;\n" + idiom, {32, 1, 1}),
                 "without a __syncwarp between"));
}

TEST_CASE("race: an mbarrier orders those that arrive before those that wait") {
  auto body = [](const std::string& wait) {
    return R"(mov.u32 %r1, s; setp.eq.u32 %p1, %thread, 0; mad.lo.u32 %r4, %thread, 4, %r1;
@%p1 mbarrier.init.shared.b64 [%r1+512], 64;
bar.sync 0;
#10: st.shared.u32 [%r4], %thread;
mbarrier.arrive.shared.b64 %rd9, [%r1+512];
)" + wait + R"(
xor.b32 %r2, %thread, 32; mad.lo.u32 %r5, %r2, 4, %r1;
#14: ld.shared.u32 %r7, [%r5];
)";
  };
  check_silent(body("WAIT: mbarrier.test_wait.shared.b64 %p2, [%r1+512], %rd9; @!%p2 bra WAIT;"));
  CHECK(contains(races(body("")), "without a barrier between"));
}

TEST_CASE("race: a wait at an mbarrier is for its phase") {
  // Warp 1 fills a buffer, warp 0 reads it and arrives for the next phase, which warp 1 must wait
  // for before it fills the buffer again.
  auto body = [](const std::string& second) {
    return R"(mov.u32 %r1, s; setp.eq.u32 %p1, %thread, 0; setp.ge.u32 %p4, %thread, 32;
mad.lo.u32 %r4, %lane, 4, %r1;
@%p1 mbarrier.init.shared.b64 [%r1+512], 64;
bar.sync 0;
#10: @%p4 st.shared.u32 [%r4], %thread;
mbarrier.arrive.shared.b64 %rd9, [%r1+512];
WAIT: mbarrier.test_wait.shared.b64 %p2, [%r1+512], %rd9; @!%p2 bra WAIT;
#12: @!%p4 ld.shared.u32 %r7, [%r4];
mbarrier.arrive.shared.b64 %rd9, [%r1+512];
)" + second +
           "\n#14: @%p4 st.shared.u32 [%r4], %lane;\n";
  };
  check_silent(body("NEXT: mbarrier.test_wait.shared.b64 %p3, [%r1+512], %rd9; @!%p3 bra NEXT;"));
  check_silent(
      body("NEXT: mbarrier.test_wait.parity.acquire.cta.shared.b64 %p3, [%r1+512], 1; "
           "@!%p3 bra NEXT;"));
  CHECK(races(body("")) ==
        Texts{"s.cu:12: error: race: read of 4 bytes from shared memory at offset 0 by thread "
              "(0,0,0) and write by thread (32,0,0) at s.cu:14 without a barrier between, in block "
              "(0,0,0) of k (and 31 more)"});
}

TEST_CASE("race: an mbarrier counts copies as arrivals of their phase") {
  // Each thread's copy arrives when it has landed; whoever waits sees all of them.
  const std::string body = R"(mov.u32 %r1, s; setp.eq.u32 %p1, %thread, 0;
mad.lo.u32 %r4, %thread, 4, %r1; mul.wide.u32 %rd1, %thread, 4; add.u64 %rd1, %rd1, %in;
@%p1 mbarrier.init.shared.b64 [%r1+512], 64;
bar.sync 0;
#9: st.shared.u32 [%r4+1024], %thread;
#10: cp.async.ca.shared.global [%r4], [%rd1], 4;
cp.async.mbarrier.arrive.noinc.shared.b64 [%r1+512];
WAIT: mbarrier.test_wait.parity.shared.b64 %p2, [%r1+512], 0; @!%p2 bra WAIT;
xor.b32 %r2, %r4, 128;
#12: ld.shared.u32 %r7, [%r2]; ld.shared.u32 %r8, [%r2+1024];
)";
  check_silent(body);
}

TEST_CASE("race: a block must not end while a bulk copy into its shared memory is under way") {
  // The next block on the SM would find bytes in its shared memory that nobody there asked for.
  const std::string ask = R"(mov.u32 %r1, s; setp.eq.u32 %p1, %thread, 0;
@%p1 mbarrier.init.shared.b64 [%r1+1024], 1;
bar.sync 0;
@!%p1 bra ASKED;
mbarrier.arrive.expect_tx.shared.b64 %rd9, [%r1+1024], 256;
#9: cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%in], 256, [%r1+1024];
ASKED:
)";
  const std::string wait =
      "WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r1+1024], 0; @!%p2 bra WAIT;\n";
  CHECK(races(ask) ==
        Texts{"s.cu:9: error: race: asynchronous copy of 256 bytes to the shared memory of block "
              "(0,0,0), and the end of that block before it waited for the copy, in k"});
  check_silent(ask + wait);
  check_silent(ask + "@!%p1 bra END;\n" + wait + "END:\n");  // one thread's wait is enough
  // Two copies on one barrier, and a ring with one tile too many on its way.
  const std::string more =
      "@!%p1 bra LAST;\nmbarrier.arrive.expect_tx.shared.b64 %rd9, [%r1+1024], 512;\n"
      "#20: cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+256], [%in], "
      "512, [%r1+1024];\nLAST:\n";
  CHECK(races(ask + wait + "bar.sync 0;\n" + more) ==
        Texts{"s.cu:20: error: race: asynchronous copy of 512 bytes to the shared memory of block "
              "(0,0,0), and the end of that block before it waited for the copy, in k"});
  check_silent(ask + wait + "bar.sync 0;\n" + more +
               "NEXT: mbarrier.try_wait.parity.shared.b64 %p2, [%r1+1024], 1; @!%p2 bra NEXT;\n");
  // Each block's own; told once.
  CHECK(Checked(race_only()).run(ask, {64, 1, 1}, {2, 1, 1}).size() == 1);
}
