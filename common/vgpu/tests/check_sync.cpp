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
      "and.b32 %r20, %lane, 16; shl.b32 %r21, 65535, %r20;\n#5: vote.sync.ballot.b32 %r2, %p1, "
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
