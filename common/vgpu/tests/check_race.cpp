// Races, each both ways: a planted one is found, in these words; the correct program is silent.
#include "check_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

// s[thread] = thread; BETWEEN; out[number] = s[other], where `other` computes %r2 from %thread.
std::string exchange(const std::string& between, const std::string& other) {
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

Texts races(const std::string& body, Dim3 block = {64, 1, 1}, Dim3 grid = {1, 1, 1}) {
  return Checked(race_only()).run(body, block, grid);
}
bool contains(const Texts& findings, const std::string& part) {
  for (const std::string& f : findings)
    if (f.find(part) != std::string::npos) return true;
  INFO(doctest::StringMaker<Texts>::convert(findings));
  CHECK(part == "not found");
  return false;
}

}  // namespace

TEST_CASE("race: shared memory between warps needs a barrier") {
  // Both warps run to their end one after the other: the first reads before the second writes, and
  // the second reads what the first wrote.
  CHECK(races(exchange("", kNextWarp)) ==
        Texts{"s.cu:12: error: race: read of 4 bytes from shared memory at offset 128 by thread "
              "(0,0,0) and write by "
              "thread (32,0,0) at s.cu:10 without a barrier between, in block (0,0,0) of k (and 31 "
              "more)",
              "s.cu:10: error: race: write of 4 bytes to shared memory at offset 0 by thread "
              "(0,0,0) and read by "
              "thread (32,0,0) at s.cu:12 without a barrier between, in block (0,0,0) of k (and 31 "
              "more)"});
  check_silent(exchange("bar.sync 0;\n", kNextWarp));
  check_silent(exchange("barrier.sync 3;\n", kNextWarp));
  check_silent(exchange("", kSelf));
  // A warp's own meeting is none for the other warp.
  CHECK(races(exchange("bar.warp.sync -1;\n", kNextWarp)).size() == 2);
}

TEST_CASE("race: lanes of a warp need __syncwarp") {
  CHECK(races(exchange("", kNextLane), {32, 1, 1}) ==
        Texts{"s.cu:10: error: race: write of 4 bytes to shared memory at offset 4 by thread "
              "(1,0,0) and read by "
              "thread (0,0,0) at s.cu:12 without a __syncwarp between, in block (0,0,0) of k (and "
              "31 more)"});
  check_silent(exchange("bar.warp.sync -1;\n", kNextLane));
  check_silent(exchange("shfl.sync.idx.b32 %r9, %thread, 0, 31, -1;\n", kNextLane));
  check_silent(exchange("bar.sync 0;\n", kNextLane));
  // Halves of a warp: 0-15 and 16-31 meet among themselves.
  const std::string halves =
      "and.b32 %r20, %lane, 16; shl.b32 %r21, 65535, %r20; bar.warp.sync %r21;\n";
  check_silent(exchange(halves, kNextLane));
  CHECK(races(exchange(halves, "xor.b32 %r2, %thread, 16;\n"), {32, 1, 1}).size() == 1);
  // What lanes 0-15 learn of each other passes on through one of them (mask 0x8001, then
  // 0xffff0001).
  const std::string chain = R"(
setp.gt.u32 %p1, %lane, 15; @!%p1 bar.warp.sync 65535;
setp.eq.u32 %p2, %lane, 0; or.pred %p3, %p1, %p2; @%p3 bar.warp.sync 0xffff0001;
@!%p1 bra END;
)";
  check_silent(exchange(chain, "and.b32 %r2, %thread, 15;\n") + "END:\n", {32, 1, 1});
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
  check_silent("setp.gt.u32 %p1, %lane, 40; @%p1 ret;\n" + exchange("bar.sync 0;\n", kNextWarp));
  const std::string body =
      "mov.u32 %r1, s; mad.lo.u32 %r4, %thread, 4, %r1;\n#10: st.shared.u32 [%r4], %thread;\n"
      "setp.gt.u32 %p1, %thread, 31; @%p1 ret; bar.sync 0;\n#12: ld.shared.u32 %r5, [%r4+128];\n";
  CHECK(races(body) == Texts{});
}

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
