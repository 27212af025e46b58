// The checks in clusters, each both ways: a planted bug is found, the correct program is silent.
#include "check_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

const std::string kBefore = ".shared .align 16 .b8 s[1024]; .shared .align 16 .b64 object;\n";
const std::string kSync = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n";
// %r90: the rank, %r92 and %r93: s and object of the other block, %r2: the thread's word in s, %r4:
// the same in the other block.
const std::string kPeer = R"(
mov.u32 %r90, %cluster_ctarank; xor.b32 %r91, %r90, 1;
mapa.shared::cluster.u32 %r92, s, %r91; mapa.shared::cluster.u32 %r93, object, %r91;
mov.u32 %r2, s; shl.b32 %r3, %thread, 2; add.u32 %r2, %r2, %r3; add.u32 %r4, %r92, %r3;
)";

Texts find(MachineOptions options, const std::string& body, Dim3 block = {32, 1, 1},
           Dim3 grid = {2, 1, 1}) {
  Checked c(options);
  c.gpu.cluster = {2, 1, 1};
  return c.run(kPeer + body, block, grid, kBefore);
}
Texts cluster_races(const std::string& body) { return find(race_only(), body); }

// "" when one of the findings has the part, else all of them.
std::string lacks(const Texts& findings, const std::string& part) {
  std::string all = "not found: " + part;
  for (const std::string& f : findings) {
    if (f.find(part) != f.npos) return "";
    all += "\n  " + f;
  }
  return all;
}

// Silent in the usual order and in shuffled ones, with all checks.
void silent_in_cluster(const std::string& body, Dim3 block = {32, 1, 1}, Dim3 grid = {2, 1, 1}) {
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    CAPTURE(body);
    CAPTURE(seed);
    CHECK(find({.threads = 1,
                .schedule_seed = seed,
                .check_race = true,
                .check_init = true,
                .check_sync = true,
                .check_proxy = true},
               body, block, grid) == Texts{});
  }
}

// Every thread writes its own word, and reads that of the other block after `between`.
std::string exchange(const std::string& between, const std::string& end = kSync) {
  return "#10: st.shared.u32 [%r2], %thread;\n" + between +
         "#12: ld.shared::cluster.u32 %r5, [%r4];\n" + end + "st.global.u32 [%mine], %r5;\n";
}

}  // namespace

TEST_CASE("race: blocks of a cluster on one byte need the cluster's barrier") {
  const Texts found = cluster_races(exchange(""));
  CHECK(found.size() == 2);
  CHECK(
      lacks(found,
            "s.cu:10: error: race: write of 4 bytes to shared memory at offset 16 of block (0,0,0) "
            "by thread (0,0,0) of block (0,0,0) and read by thread (0,0,0) of block (1,0,0) at "
            "s.cu:12 without a barrier of the cluster or a release and an acquire between, in k "
            "(and 31 more)") == "");
  CHECK(
      lacks(
          found,
          "s.cu:12: error: race: read of 4 bytes from shared memory at offset 16 of block (1,0,0) "
          "by thread (0,0,0) of block (0,0,0) and write by thread (0,0,0) of block (1,0,0) at "
          "s.cu:10 without a barrier of the cluster or a release and an acquire between, in k "
          "(and 31 more)") == "");
  silent_in_cluster(exchange(kSync));
  silent_in_cluster(exchange(kSync), {96, 1, 1}, {8, 1, 1});
  silent_in_cluster(
      exchange("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"));
  silent_in_cluster(
      exchange("fence.acq_rel.cluster;\nbarrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;\n"));
  // A block's barrier, and an arrival that says nothing, do not reach the other block.
  CHECK(cluster_races(exchange("bar.sync 0;\n")).size() == 2);
  CHECK(
      cluster_races(exchange("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;\n")).size() >=
      1);
  // What is done between arriving and waiting is after what others did before, not before it.
  CHECK(cluster_races(
            "barrier.cluster.arrive;\n#10: st.shared.u32 [%r2], %thread;\nbarrier.cluster.wait;\n"
            "#12: ld.shared::cluster.u32 %r5, [%r4];\n" +
            kSync)
            .size() >= 1);
  // Two blocks on a third one's memory: both write rank 0's.
  CHECK(
      lacks(cluster_races("mapa.shared::cluster.u32 %r6, s, 0;\n#11: st.shared::cluster.u32 [%r6], "
                          "%number;\n" +
                          kSync),
            "s.cu:11: error: race: write of 4 bytes to shared memory at offset 16 of block (0,0,0) "
            "by thread (31,0,0)") == "");
  silent_in_cluster("mapa.shared::cluster.u32 %r6, s, 0; st.shared.u32 [s], 0;\n" + kSync +
                    "red.shared::cluster.add.u32 [%r6], 1;\n" + kSync);
  // Generic addresses are the same memory.
  CHECK(cluster_races("mapa.u64 %rd1, s, %r91; st.u32 [%rd1], 1; ld.shared.u32 %r5, [s];\n" + kSync)
            .size() >= 1);
}

TEST_CASE("race: a release and an acquire across the cluster, a flag in the other block's memory") {
  // Rank 0 writes a word of rank 1, then its flag; rank 1 waits for the flag.
  const auto body = [](const std::string& tell, const std::string& see) {
    return "st.shared.u32 [s+512], 0; st.shared.u32 [s], 0;\n" + kSync +
           "setp.eq.u32 %p1, %r90, 0; setp.ne.u32 %p2, %lane, 0; @%p2 bra end;\n@!%p1 bra wait;\n"
           "#20: st.shared::cluster.u32 [%r92], 5;\n" +
           tell + "bra end;\nwait:\n" + see +
           "setp.eq.u32 %p3, %r7, 0; @%p3 bra wait;\n#30: ld.shared.u32 %r8, [s];\nend:\n" + kSync;
  };
  silent_in_cluster(body("st.release.cluster.shared::cluster.u32 [%r92+512], 1;\n",
                         "ld.acquire.cluster.shared.u32 %r7, [s+512];\n"));
  silent_in_cluster(
      body("fence.acq_rel.cluster;\nst.relaxed.cluster.shared::cluster.u32 [%r92+512], 1;\n",
           "ld.relaxed.cluster.shared.u32 %r7, [s+512];\nfence.acq_rel.cluster;\n"));
  CHECK(
      lacks(cluster_races(body("st.relaxed.cluster.shared::cluster.u32 [%r92+512], 1;\n",
                               "ld.acquire.cluster.shared.u32 %r7, [s+512];\n")),
            "s.cu:20: error: race: write of 4 bytes to shared memory at offset 16 of block (1,0,0) "
            "by thread (0,0,0) of block (0,0,0) and read") == "");
}

TEST_CASE("race: an mbarrier of the other block orders, unless the arrival is relaxed") {
  const auto body = [](const std::string& order) {
    return "setp.eq.u32 %p1, %lane, 0;\n@%p1 mbarrier.init.shared.b64 [object], 32;\n"
           "fence.mbarrier_init.release.cluster;\n" +
           kSync + "#20: st.shared::cluster.u32 [%r4], %lane;\nmbarrier.arrive" + order +
           ".shared::cluster.b64 _, [%r93];\n"
           "wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [object], 0;\n"
           "@!%p2 bra wait;\n#30: ld.shared.u32 %r5, [%r2]; st.global.u32 [%mine], %r5;\n" +
           kSync;
  };
  silent_in_cluster(body(".release.cluster"));
  silent_in_cluster(body(""));
  CHECK(lacks(cluster_races(body(".relaxed.cluster")),
              "s.cu:20: error: race: write of 4 bytes to shared memory at offset 16 of block") ==
        "");
}

TEST_CASE("race: a block must not end while others use its shared memory") {
  // Rank 1 comes out of the barrier first and reads in time; nothing says that it does.
  const auto body = [](const std::string& operation, const std::string& end) {
    return "setp.eq.u32 %p1, %r90, 1; st.shared.u32 [%r2], 1;\n" + kSync +
           "@!%p1 bra end;\n#15: " + operation + "\nend:\n" + end;
  };
  CHECK(
      cluster_races(body("ld.shared::cluster.u32 %r5, [%r4];", "")) ==
      Texts{
          "s.cu:15: error: race: read of 4 bytes at offset 16 of the shared memory of block "
          "(0,0,0) "
          "by thread (0,0,0) of block (1,0,0), and the end of that block, without a barrier of the "
          "cluster or a release and an acquire between, in k"});
  CHECK(cluster_races(body("red.shared::cluster.add.u32 [%r4], 1;", "bar.sync 0;")).size() == 1);
  CHECK(cluster_races(body("mapa.u64 %rd1, s, %r91; st.u32 [%rd1], 1;", "barrier.cluster.arrive;"))
            .size() == 1);
  silent_in_cluster(body("ld.shared::cluster.u32 %r5, [%r4];", kSync));
  silent_in_cluster(body("red.shared::cluster.add.u32 [%r4], 1;", kSync));
  // A release that the block acquires before its end does it, too.
  const std::string init =
      "setp.eq.u32 %p1, %r90, 1; setp.eq.u32 %p2, %lane, 0; st.shared.u32 [%r2], 1;\n"
      "@%p2 mbarrier.init.shared.b64 [object], 32;\n" +
      kSync;
  silent_in_cluster(
      init +
      "@!%p1 bra wait;\nld.shared::cluster.u32 %r5, [%r4];\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r93];\nret;\n"
      "wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [object], 0;\n"
      "@!%p3 bra wait;\n");
}

TEST_CASE(
    "race: asynchronous operations across the cluster land with the wait of who they are for") {
  const std::string start =
      "setp.eq.u32 %p1, %lane, 0; st.shared.u32 [%r2], %lane;\n@%p1 mbarrier.init.shared.b64 "
      "[object], 1; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [object], 128;\n" +
      kSync;
  const std::string wait =
      "wait: mbarrier.try_wait.parity.shared.b64 %p2, [object], 0;\n@!%p2 bra wait;\n";
  const std::string read = "#40: ld.shared.u32 %r5, [%r2+512]; st.global.u32 [%mine], %r5;\n";
  const std::string copies[] = {
      "add.u32 %r6, %r92, 512;\n#20: @%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::"
      "complete_tx::bytes [%r6], [s], 128, [%r93];\n",
      "#20: st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r4+512], %lane, [%r93];\n",
      "add.u32 %r6, %r92, 512; mov.u32 %r7, s; add.u32 %r7, %r7, 512; mov.u16 %h1, 3;"
      " setp.eq.and.u32 %p3, %r90, 0, %p1;\n#20: @%p3 "
      "cp.async.bulk.shared::cluster.global.mbarrier::"
      "complete_tx::bytes.multicast::cluster [%r7], [%in], 128, [object], %h1;\n"};
  for (const std::string& copy : copies) {
    CAPTURE(copy);
    silent_in_cluster(start + copy + wait + read + kSync);
    const Texts found = cluster_races(start + copy + read + wait + kSync);
    REQUIRE(!found.empty());
    CHECK(lacks(found, "s.cu:20: error: race: asynchronous copy of ") == "");
    CHECK(lacks(found, "at s.cu:40 before the copy was waited for") == "");
    // Nobody waits, and the block ends.
    const Texts flight = cluster_races(start + copy + kSync);
    REQUIRE(!flight.empty());
    CHECK(lacks(flight, "s.cu:20: error: race: asynchronous copy of ") == "");
    CHECK(lacks(flight, "and the end of that block before it waited for the copy, in k") == "");
  }
  silent_in_cluster(
      start + "st.shared.u32 [%r2+512], 1;\n" + kSync +
      "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r4+512], "
      "%lane, [%r93];\n" +
      wait + read + kSync);
}

TEST_CASE("init: another block's shared memory that nobody wrote") {
  const std::string kUse = "st.global.u32 [%mine], %r5;\n";
  CHECK(lacks(find(init_only(), "#12: ld.shared::cluster.u32 %r5, [%r4];\n" + kUse + kSync),
              "s.cu:12: error: init: read of 4 bytes that nobody wrote, at offset 16 of the shared "
              "memory of block (1,0,0), by thread (0,0,0) of block (0,0,0) in k") == "");
  // What the other block has written counts, whoever reads it.
  CHECK(find(init_only(), "st.shared::cluster.u32 [%r4], 1;\n" + kSync +
                              "ld.shared.u32 %r5, [%r2]; ld.shared::cluster.u32 %r6, [%r4];\n" +
                              kSync) == Texts{});
  // One word further it is nobody's.
  CHECK(lacks(find(init_only(), "st.shared::cluster.u32 [%r4], 1;\n" + kSync +
                                    "#12: ld.shared.u32 %r5, [%r2+4];\n" + kUse + kSync),
              "s.cu:12: error: init:") == "");
}

TEST_CASE("sync: an aligned barrier of the cluster is for whole warps") {
  const std::string part = "setp.lt.u32 %p1, %lane, 8; @%p1 bra few;\n";
  CHECK(
      find(sync_only(), part + "#5: barrier.cluster.arrive.aligned;\nbra meet;\nfew:\n#7: "
                               "barrier.cluster.arrive;\nmeet:\nbarrier.cluster.wait.aligned;\n") ==
      Texts{"s.cu:5: error: sync: the cluster's barrier (.aligned) reached by 24 of the 32 threads "
            "of the warp, which all must come together, by thread (8,0,0) of block (0,0,0) in k "
            "(and 1 more)"});
  CHECK(find(sync_only(), part +
                              "barrier.cluster.arrive;\nbra meet;\nfew: barrier.cluster.arrive;\n"
                              "meet:\nbarrier.cluster.wait.aligned;\n") == Texts{});
  // Threads that have ended are not waited for, and that is as it should be.
  CHECK(find(sync_only(), "setp.ge.u32 %p1, %thread, 32; @%p1 ret;\n" + kSync, {64, 1, 1}) ==
        Texts{});
}
