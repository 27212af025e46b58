// Sources of bulk copies, tensor maps that copies use, and arrivals at blocks that have ended: each both
// ways.
#include "check_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

// Thread 0 asks for the copy of the block's 1,024 bytes to global memory.
const std::string kAskFor =
    "setp.ne.u32 %p1, %thread, 0; mov.u32 %r1, s; mad.lo.u32 %r2, %thread, 4, %r1;\n"
    "#10: st.shared.u32 [%r2], %thread;\n" +
    kProxyFence + kBarrier + "@%p1 bra asked;\n";
const std::string kBulkStore =
                      "#12: cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1], 1024;\n",
                  kBulkReduce =
                      "#12: cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out], "
                      "[%r1], 1024;\n",
                  kCommitGroup = "cp.async.bulk.commit_group;\n", kAsked = "asked:\n";
std::string wait_read(int groups) {
  return "cp.async.bulk.wait_group.read " + std::to_string(groups) + ";\n";
}
const std::string kWriteAgain = "#20: st.shared.u32 [%r2], 7;\n";
// Waits at the end, so that nothing else is to be found.
const std::string kAtEnd = "@!%p1 cp.async.bulk.wait_group 0;\n";

Texts races_of(const std::string& body, std::uint64_t seed = 0) {
  return Checked(race_only(seed)).run(body, {256, 1, 1});
}

}  // namespace

TEST_CASE("race: the source of a bulk copy is written again before the copy has read it") {
  for (const std::string& copy : {kBulkStore, kBulkReduce})
    for (const std::uint64_t seed : {0, 1, 2}) {
      CAPTURE(copy);
      const std::string ask = kAskFor + copy + kCommitGroup;
      const Texts found = races_of(ask + kAsked + kBarrier + kWriteAgain + kAtEnd, seed);
      CHECK(found.size() == 1);
      CHECK(has(found, "s.cu:12: error: race: read of 1024 bytes from shared memory at offset "));
      CHECK(has(found, " by the bulk copy of thread (0,0,0) and write by thread ("));
      CHECK(has(found, " at s.cu:20 without a cp.async.bulk.wait_group.read"));
      // The thread that asked itself.
      CHECK(has(races_of(ask + "#14: st.shared.u32 [%r1], 7;\n" + kAsked + kAtEnd, seed),
                "by thread (0,0,0) at s.cu:14 without a cp.async.bulk.wait_group.read between"));
      // A wait without a barrier, or one that lets the group be.
      CHECK(!races_of(ask + wait_read(0) + kAsked + kWriteAgain + kAtEnd, seed).empty());
      CHECK(races_of(ask + wait_read(1) + kAsked + kBarrier + kWriteAgain + kAtEnd, seed).size() ==
            1);
      // A copy that is not in the group.
      CHECK(has(races_of(kAskFor + kCommitGroup + copy + wait_read(0) + kAsked + kBarrier +
                             kWriteAgain + kCommitGroup + kAtEnd,
                         seed),
                "by the bulk copy of thread (0,0,0)"));
    }
}

TEST_CASE("race: who has waited for a bulk copy's reading may write its source again") {
  for (const std::string& wait : {wait_read(0), std::string("cp.async.bulk.wait_group 0;\n")}) {
    check_silent(
        kAskFor + kBulkStore + kCommitGroup + wait + kAsked + kBarrier + kWriteAgain + kAtEnd,
        {256, 1, 1});
    check_silent(
        kAskFor + kBulkStore + kCommitGroup + wait + "st.shared.u32 [%r1], 7;\n" + kAsked + kAtEnd,
        {256, 1, 1});
    // Two tiles in turns: the older one is free while the younger one is read.
    check_silent(kAskFor + kBulkStore + kCommitGroup +
                     "add.u32 %r3, %r1, 1024; add.u64 %rd1, %out, 1024;\n"
                     "st.shared.v4.u32 [%r3], {1, 2, 3, 4};\n" +
                     kProxyFence +
                     "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 16;\n" +
                     kCommitGroup + wait_read(1) + kAsked + kBarrier + kWriteAgain + kAtEnd,
                 {256, 1, 1});
  }
  // To read the source meanwhile is no race.
  check_silent(kAskFor + kBulkStore + kCommitGroup + kAsked + kBarrier +
                   "ld.shared.u32 %r5, [%r2];\n" + kAtEnd,
               {256, 1, 1});
}

TEST_CASE("race: the end of a thread whose bulk copy may not have read shared memory") {
  const std::string found =
      "s.cu:12: error: race: bulk copy of 1024 bytes out of the block's shared memory, and the end "
      "of the thread that asked for it, without a cp.async.bulk.wait_group.read between: the block "
      "may end and its memory be another block's before it is read; asked for by thread (0,0,0) of "
      "block (0,0,0) in k";
  CHECK(races_of(kAskFor + kBulkStore + kCommitGroup + kAsked) == Texts{found});
  CHECK(races_of(kAskFor + kBulkStore + kAsked) == Texts{found});
  CHECK(races_of(kAskFor + kBulkReduce + kCommitGroup + wait_read(1) + kAsked) == Texts{found});
  check_silent(kAskFor + kBulkStore + kCommitGroup + wait_read(0) + kAsked, {256, 1, 1});
}

TEST_CASE(
    "race: the source of a bulk copy from global memory is written before the copy has landed") {
  // Thread 0 asks for 1,024 bytes of `out`.
  const std::string ask =
      "setp.ne.u32 %p1, %thread, 0; mov.u32 %r1, s; mad.lo.u32 %r2, %thread, 4, %r1;\n"
      "mad.wide.u32 %rd1, %thread, 4, %out;\n"
      "@!%p1 mbarrier.init.shared.b64 [object], 1;\n"
      "@!%p1 mbarrier.arrive.expect_tx.shared.b64 _, [object], 1024;\n" +
      kProxyFence + kBarrier +
      "#12: @!%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%out], "
      "1024, [object];\n";
  const std::string wait =
      "wait: mbarrier.try_wait.parity.shared.b64 %p2, [object], 0;\n@!%p2 bra wait;\n";
  const std::string write = "#20: st.global.u32 [%rd1], 7;\n";
  const auto found = [&](const std::string& body, std::uint64_t seed) {
    return Checked(race_only(seed))
        .run(ask + body, {256, 1, 1}, {1, 1, 1},
             ".shared .align 128 .b8 s[1024]; .shared .align 8 .b64 object;\n");
  };
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    CAPTURE(seed);
    // A barrier behind the request is no wait for the copy.
    const Texts others = found(kBarrier + write + wait, seed);
    CHECK(others.size() == 1);
    CHECK(has(others, "s.cu:12: error: race: read of 1024 bytes from global memory at byte "));
    CHECK(has(others, " by the bulk copy of thread (0,0,0) and write by thread ("));
    CHECK(has(others, " at s.cu:20 without a wait at the mbarrier of the copy"));
    CHECK(has(found("@!%p1 st.global.u32 [%rd1], 7;\n" + wait, seed),
              "and write by thread (0,0,0) at the same line without a wait at the mbarrier of the "
              "copy between"));
    CHECK(found(wait + write, seed) == Texts{});
    // One thread's wait, and a barrier.
    CHECK(found("@%p1 bra over;\n" + wait + "over:\n" + kBarrier + write, seed) == Texts{});
    CHECK(found("ld.global.u32 %r5, [%rd1];\n" + wait, seed) == Texts{});
  }
}

TEST_CASE("race: the source of a copy to another block of the cluster") {
  const auto found = [](const std::string& before, const std::string& between, std::uint64_t seed) {
    Checked c(race_only(seed));
    c.gpu.cluster = {2, 1, 1};
    return c.run(
        "mov.u32 %r90, %cluster_ctarank; xor.b32 %r91, %r90, 1; setp.ne.u32 %p1, %thread, 0;\n"
        "mapa.shared::cluster.u32 %r92, s, %r91; mapa.shared::cluster.u32 %r93, object, %r91;\n"
        "mov.u32 %r1, s; mad.lo.u32 %r2, %thread, 4, %r1; add.u32 %r6, %r92, 512;\n"
        "st.shared.u32 [%r2], %thread;\n@!%p1 mbarrier.init.shared.b64 [object], 1;\n"
        "@!%p1 mbarrier.arrive.expect_tx.shared.b64 _, [object], 256;\n" +
            kProxyFence +
            "barrier.cluster.arrive; barrier.cluster.wait;\n#12: @!%p1 cp.async.bulk"
            ".shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r6], [%r1], 256, "
            "[%r93];\n" +
            before +
            "wait: mbarrier.try_wait.parity.shared.b64 %p2, [object], 0;\n@!%p2 bra wait;\n" +
            between,
        {64, 1, 1}, {2, 1, 1}, ".shared .align 16 .b8 s[1024]; .shared .align 8 .b64 object;\n");
  };
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    const std::string sync = "barrier.cluster.arrive; barrier.cluster.wait;\n",
                      write = "#20: st.shared.u32 [%r2], 7;\n";
    CHECK(has(found(kBarrier + write, sync, seed),
              "s.cu:12: error: race: read of 256 bytes from shared memory at offset"));
    CHECK(found("", sync + write, seed) == Texts{});
  }
}

TEST_CASE("race: an arrival at an mbarrier of a block that has ended") {
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    const auto run = [&](MachineOptions options, const std::string& end) {
      options.schedule_seed = seed;
      Checked c(options);
      c.gpu.cluster = {2, 1, 1};
      const Texts found = c.run(
          "mov.u32 %r90, %cluster_ctarank; xor.b32 %r91, %r90, 1; setp.ne.u32 %p1, %thread, 0;\n"
          "mapa.shared::cluster.u32 %r93, object, %r91;\n"
          "@!%p1 mbarrier.init.shared.b64 [object], 9;\nbarrier.cluster.arrive; "
          "barrier.cluster.wait;\n#12: @!%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 "
          "_, [%r93];\nst.global.u32 [%mine], 3;\n" +
              end,
          {32, 1, 1}, {2, 1, 1}, ".shared .align 8 .b64 object;\n");
      CHECK(c.out[0] == 3);  // the launch goes on, with the check and without
      CHECK(c.out[32] == 3);
      return found;
    };
    CHECK(run({.threads = 1}, "") == Texts{});
    const Texts found = run(race_only(), "");
    CHECK_MESSAGE(found.size() == 1, found);
    CHECK(has(found, "s.cu:12: error: race: atomic access of 8 bytes at offset "));
    CHECK(has(found, "and the end of that block, without a barrier of the cluster"));
    CHECK(run(race_only(), "barrier.cluster.arrive; barrier.cluster.wait;\n") == Texts{});
  }
}
