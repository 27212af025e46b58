// Barriers and masks without the threads they are for.
#include "check_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {
const std::string kWhere =
    "CUDA allows __syncthreads() only where its condition is the same for all threads of the "
    "block; "
    "warps with different roles meet at a cuda::barrier, or at bar.sync with a number and a count";
Texts syncs(const std::string& body, Dim3 block = {64, 1, 1}) {
  return Checked(sync_only()).run(body, block);
}
}  // namespace

TEST_CASE("sync: a barrier is for all threads of the block") {
  check_silent("#5: bar.sync 0;\n#6: barrier.sync 1;\n", {96, 1, 1});
  check_silent("#5: bar.sync 0;\n", {40, 1, 1});
  CHECK(syncs("setp.lt.u32 %p1, %thread, 32; @%p1 ret;\n#5: bar.sync 0;\n") ==
        Texts{"s.cu:5: error: sync: barrier 0 reached by 32 of 64 threads of the block, the others "
              "have ended, in block (0,0,0) of k"});
}

TEST_CASE("sync: a warp comes to a barrier as a whole") {
  const std::string body =
      "setp.lt.u32 %p1, %lane, 8; @%p1 bra A;\n#5: bar.sync 0;\nbra END;\nA:\n#7: bar.sync "
      "0;\nEND:\n";
  CHECK(syncs(body, {32, 1, 1}) ==
        Texts{"s.cu:5: error: sync: barrier 0 reached by 24 of the 32 threads of the warp, which "
              "all must come together, by thread "
              "(8,0,0) of block (0,0,0) in k",
              "s.cu:7: error: sync: barrier 0 reached by 8 of the 32 threads of the warp, which "
              "all must come together, by thread "
              "(0,0,0) of block (0,0,0) in k",
              "s.cu:7: error: sync: barrier 0 reached here by some threads of the block and at "
              "s.cu:5 by others (" +
                  kWhere + "), by thread (0,0,0) of block (0,0,0) in k"});
  // The form without .aligned is for lanes on their own, and may stand in several places when
  // counted.
  CHECK(syncs("setp.lt.u32 %p1, %lane, 8; @%p1 bra A;\nbarrier.sync 0, 32;\nbra "
              "END;\nA:\nbarrier.sync 0, 32;\nEND:\n",
              {32, 1, 1}) == Texts{});
}

TEST_CASE("sync: warps at different barriers, or with different counts") {
  auto body = [](const std::string& first, const std::string& second) {
    return "setp.lt.u32 %p1, %thread, 32; @%p1 bra A;\n#5: " + first +
           "\nbra END;\nA:\n#7: " + second + "\nEND:\n";
  };
  CHECK(syncs(body("bar.sync 0;", "bar.sync 0;")) ==
        Texts{"s.cu:5: error: sync: barrier 0 reached here by some threads of the block and at "
              "s.cu:7 by others (" +
              kWhere + "), by thread (32,0,0) of block (0,0,0) in k"});
  // Two barriers of one line, as a macro or an if and its else have them.
  const Texts line = syncs(
      "setp.lt.u32 %p1, %thread, 32; @%p1 bra A;\n#5: bar.sync 0;\nbra "
      "END;\nA:\n#5: bar.sync 0;\nEND:\n");
  REQUIRE(line.size() == 1);
  CHECK(line[0].find("s.cu:5: error: sync: barrier 0 reached here by some threads of the block and "
                     "at another barrier of the same line (PTX lines ") == 0);
  CHECK(line[0].find(") by others (" + kWhere + "), by thread (32,0,0) of block (0,0,0) in k") !=
        std::string::npos);
  check_silent(body("bar.sync 1, 64;", "bar.sync 1, 64;"));
  check_silent(body("bar.arrive 1, 64;", "bar.sync 1, 64;"));
  CHECK(syncs(body("bar.sync 1, 64;", "bar.arrive 1, 96;"), {64, 1, 1}) ==
        Texts{"s.cu:5: error: sync: barrier 1 for 64 threads where others wait at s.cu:7 for 96 "
              "threads, by thread (32,0,0) of block "
              "(0,0,0) in k"});
}

TEST_CASE("sync: masks name live lanes, the own one among them, and agree") {
  check_silent("#5: shfl.sync.bfly.b32 %r1, %thread, 1, 31, -1;\n");
  check_silent("#5: bar.warp.sync -1;\n", {40, 1, 1});  // lanes that never were
  check_silent(
      "setp.lt.u32 %p1, %lane, 7; and.b32 %r20, %lane, 16; shl.b32 %r21, 65535, %r20;\n#5: "
      "vote.sync.ballot.b32 %r2, %p1, "
      "%r21;\n");
  CHECK(syncs("setp.eq.u32 %p1, %lane, 3; @%p1 ret;\n#5: bar.warp.sync -1;\n", {32, 1, 1}) ==
        Texts{"s.cu:5: error: sync: mask 0xffffffff names lane 0x00000008 of the warp, which ended "
              "before, by thread (0,0,0) of block "
              "(0,0,0) in k"});
  CHECK(syncs("#5: shfl.sync.idx.b32 %r1, %thread, 0, 31, 0xfffffffe;\n", {32, 1, 1}) ==
        Texts{"s.cu:5: error: sync: mask 0xfffffffe does not name lane 0 itself, executed by "
              "thread (0,0,0) of block (0,0,0) in k"});
  CHECK(
      syncs("setp.lt.u32 %p1, %lane, 16; selp.b32 %r1, 0xffff, -1, %p1;\n#5: bar.warp.sync %r1;\n",
            {32, 1, 1}) == Texts{"s.cu:5: error: sync: mask 0xffffffff where lane 15, which it "
                                 "names, has 0x0000ffff, by thread (16,0,0) of block "
                                 "(0,0,0) in k (and 15 more)"});
  CHECK(
      syncs("setp.lt.u32 %p1, %lane, 16; selp.b32 %r1, 0x1ffff, -1, %p1;\n#5: bar.warp.sync %r1;\n",
            {32, 1, 1}) == Texts{"s.cu:5: error: sync: mask 0x0001ffff where lane 16, which it "
                                 "names, has 0xffffffff, by thread (0,0,0) of block "
                                 "(0,0,0) in k (and 31 more)"});
}

TEST_CASE("sync: a shuffle's value from a lane that gives none, when it is used") {
  // v += shfl.down(v, d) for d from `first` down to 1, then lane 0 stores.
  const auto sum = [](int first, const std::string& before = "", const std::string& mask = "-1") {
    std::string text = before + "add.u32 %r1, %thread, 1;\n";
    for (int d = first; d; d /= 2)
      text += "#" + std::to_string(d) + ": shfl.sync.down.b32 %r2, %r1, " + std::to_string(d) +
              ", 31, " + mask + "; add.u32 %r1, %r1, %r2;\n";
    return text + "setp.eq.u32 %p1, %thread, 0; @%p1 st.global.u32 [%out], %r1;\n";
  };
  CHECK(syncs(sum(16), {16, 1, 1}) ==
        Texts{"s.cu:16: error: sync: shuffle takes the value of lane 16, which the warp does not "
              "have (the block has 16 threads): it is undefined, and used, by thread (0,0,0) of "
              "block (0,0,0) in k"});
  check_silent(sum(8), {16, 1, 1});  // lanes 8 to 15 take from others, and nobody asks them
  check_silent(sum(16), {32, 1, 1});
  check_silent(sum(16), {33, 1, 1});
  // Ended, not named.
  const Texts ended =
      syncs(sum(16, "setp.ge.u32 %p2, %lane, 16; @%p2 ret;\n", "0xffff"), {32, 1, 1});
  CHECK(ended ==
        Texts{"s.cu:16: error: sync: shuffle takes the value of lane 16, which has ended: it is "
              "undefined, and used, by thread (0,0,0) of block (0,0,0) in k"});
  const Texts absent = syncs("setp.ge.u32 %p2, %lane, 16; @%p2 bra END;\n" + sum(16, "", "0xffff") +
                                 "END: add.u32 %r5, %r5, 1;\n",
                             {32, 1, 1});
  REQUIRE(absent.size() == 1);
  CHECK(absent[0].find("lane 16, which does not take part in it") != std::string::npos);
  // Not chosen, not added, in shared memory, as an address.
  const std::string guard = "setp.lt.u32 %p1, %lane, 8; mov.u32 %r3, 5;\n";
  check_silent("#3: shfl.sync.down.b32 %r1, %thread, 8, 31, -1;\n" + guard +
                   "selp.b32 %r3, %r1, %r3, %p1; st.global.u32 [%mine], %r3;\n",
               {16, 1, 1});
  check_silent("#3: shfl.sync.down.b32 %r1, %thread, 8, 31, -1;\n" + guard +
                   "@%p1 add.u32 %r3, %r3, %r1; st.global.u32 [%mine], %r3;\n",
               {16, 1, 1});
  const std::string bad = "#3: shfl.sync.down.b32 %r1, %thread, 9, 31, -1;\n";
  for (const std::string use :
       {"selp.b32 %r3, %r1, %r3, %p1; st.global.u32 [%mine], %r3;", "st.shared.u32 [s], %r1;",
        "setp.eq.u32 %p2, %r1, 3; @%p2 bra END; END:",
        "and.b32 %r1, %r1, 0; add.u32 %r4, %r4, 1; shl.b32 %r5, %r1, 2; cvt.rn.f32.u32 %f1, %r1;"})
    CHECK_MESSAGE(
        syncs(bad + guard + use + "\n", {16, 1, 1}).size() == (use.starts_with("and") ? 0u : 1u),
        use);
  // A segment's end: the own value, as it should be.
  check_silent(
      "#3: shfl.sync.down.b32 %r1, %thread, 8, 4111, -1; st.global.u32 [%mine], "
      "%r1;\n",
      {16, 1, 1});
}
