// mbarrier objects across the blocks of a cluster: arrivals, copies that report to them, st.async.
#include "core_cluster_support.h"

using namespace vgpu;
using namespace vgpu::test;

TEST_CASE("cluster: arrivals at another block's mbarrier, in every spelling") {
  for (const std::string order : {"", ".release.cluster", ".relaxed.cluster", ".release.cta"}) {
    CAPTURE(order);
    Clusters gpu({2, 1, 1}, {.threads = 1, .schedule_seed = order.size()});
    // The peer's threads arrive at this block's object, which expects 32 of them, 16 bytes, and 3
    // more.
    const auto got = gpu.run(
        kPeer + R"(
mov.u32 %r1, object; setp.eq.u32 %p1, %lane, 0; mov.u32 %r9, 0;
@%p1 mbarrier.init.shared::cta.b64 [%r1], 35; fence.mbarrier_init.release.cluster;
)" + kSync +
            "shl.b32 %r3, %lane, 2; add.u32 %r92, %r92, %r3; st.shared::cluster.u32 [%r92], "
            "%lane;\n" +
            "mbarrier.arrive" + order + ".shared::cluster.b64 _, [%r93];\n@%p1 mbarrier.arrive" +
            order + ".shared::cluster.b64 _, [%r93], 1;\n" + "@%p1 mbarrier.arrive.expect_tx" +
            order +
            ".shared::cluster.b64 _, [%r93], 8;\n@%p1 "
            "mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r93], 8;\n" +
            "@%p1 mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r93], 16;\n@%p1 "
            "mbarrier.arrive_drop" +
            order + ".shared::cluster.b64 _, [%r93];\n" + R"(
wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra wait;
mov.u32 %r2, data; add.u32 %r2, %r2, %r3; ld.shared.u32 %r4, [%r2];
)" + kSync + R"(   // nobody is a phase ahead of who waits; the next one expects one arrival fewer
mbarrier.arrive.shared::cluster.b64 _, [%r93], 1;
@%p1 mbarrier.arrive_drop.expect_tx)" +
            order +
            R"(.shared::cluster.b64 _, [%r93], 4; @%p1 mbarrier.arrive.shared::cluster.b64 _, [%r93];
@%p1 mbarrier.complete_tx.relaxed.cta.shared::cluster.b64 [%r93], 4;
wait2: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 1; @!%p2 bra wait2;
st.global.u32 [%mine], %r4;
)" + kSync,
        64, {0}, {32, 1, 1}, {2, 1, 1}, kShared);
    CHECK_SAME(got, expected(64, [](auto i) { return i % 32; }));
  }
  // Generic addresses reach it, too; waiting does not.
  const Dim3 one{1, 1, 1}, two{2, 1, 1};
  const auto message = [&](const std::string& body) {
    return Clusters(two).message(kPeer + body, one, two);
  };
  const std::string start =
      "mbarrier.init.shared.b64 [object], 1;\n" + kSync + "mapa.u64 %rd1, object, %r91;\n";
  CHECK(message(start +
                "mbarrier.arrive.b64 _, [%rd1];\nwait: mbarrier.try_wait.parity.shared.b64 %p1, "
                "[object], 0; @!%p1 bra wait;\n" +
                kSync) == "");
  CHECK(lacks(message(start + "mbarrier.test_wait.parity.b64 %p1, [%rd1], 0;"),
              "this operation on an mbarrier of another block (only arrive, expect_tx and "
              "complete_tx reach it)") == "");
  CHECK(lacks(message(start + "mbarrier.arrive.shared::cluster.b64 %rd2, [%r93];"),
              "the virtual GPU does not support") == "");
  CHECK(lacks(message(start + "mbarrier.init.shared::cluster.b64 [%r93], 1;"),
              "does not know '.shared::cluster'") == "");
  CHECK(message("mbarrier.init.shared.b64 [object], 2; "
                "mbarrier.arrive_drop.expect_tx.release.cta.shared::cta.b64 %rd1, [object], 16; "
                "mbarrier.complete_tx.shared.b64 [object], 16; mbarrier.arrive.shared.b64 %rd1, "
                "[object];\nwait: mbarrier.try_wait.parity.shared.b64 %p1, [object], 0; @!%p1 bra "
                "wait;\nmbarrier.arrive.shared.b64 %rd1, [object];\nwait2: "
                "mbarrier.try_wait.parity.shared.b64 %p1, [object], 1; @!%p1 bra wait2;") == "");
}

TEST_CASE(
    "cluster: bulk copies between blocks and to several at once land with the wait and not "
    "before") {
  for (const std::uint64_t seed : {0, 5}) {
    Clusters gpu({4, 1, 1}, {.threads = 1, .schedule_seed = seed});
    // Each block sends 64 bytes of its own to the next one; then rank 0 sends 128 bytes of global
    // memory to ranks 0, 1 and 3, and rank 2 copies 32 bytes to rank 1.
    const auto got =
        gpu.run(R"(
mov.u32 %r90, %cluster_ctarank; add.u32 %r91, %r90, 1; and.b32 %r91, %r91, 3;
mapa.shared::cluster.u32 %r92, data, %r91; mapa.shared::cluster.u32 %r93, object, %r91;
mov.u32 %r1, object; mov.u32 %r2, data; setp.eq.u32 %p1, %lane, 0; shl.b32 %r3, %lane, 2;
add.u32 %r4, %r2, %r3;
@%p1 mbarrier.init.shared::cta.b64 [%r1], 1;
mad.lo.u32 %r5, %r90, 100, %lane; st.shared.u32 [%r4], %r5; st.shared.u32 [%r4+128], 1;
st.shared.u32 [%r4+256], 2; st.shared.u32 [%r4+384], 2;
)" + kSync + R"(
@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r1], 64;
add.u32 %r6, %r92, 128;
@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r6], [%r2], 64,
[%r93];
ld.shared.u32 %r10, [%r4+128];
wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra wait;
ld.shared.u32 %r11, [%r4+128]; mad.lo.u32 %r11, %r11, 2, %r10;
)" + kSync + R"(
mov.u32 %r12, 128; setp.eq.u32 %p3, %r90, 1; @%p3 mov.u32 %r12, 160; setp.ne.u32 %p4, %r90, 2;
and.pred %p4, %p4, %p1;
@%p4 mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r1], %r12; and.pred %p5, %p1, %p4;
setp.eq.and.u32 %p5, %r90, 0, %p5;
)" + kSync + R"(
mov.u16 %h1, 11; add.u32 %r13, %r2, 256;
@%p5 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r13],
[%in], 64, [%r1], %h1;
mov.u64 %rd5, 0; add.u32 %r14, %r2, 320; add.u64 %rd6, %in, 64;
@%p5 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint
[%r14], [%rd6], 64, [%r1], %h1, %rd5;
setp.eq.and.u32 %p6, %r90, 2, %p1; mapa.shared::cluster.u32 %r15, %r13, 1;
mapa.shared::cluster.u32 %r16, %r1, 1;
@%p6 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r15+128], [%in], 32,
[%r16];
@%p6 mbarrier.arrive.shared.b64 _, [%r1];
wait2: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 1; @!%p2 bra wait2;
ld.shared.u32 %r17, [%r4+256]; ld.shared.u32 %r18, [%r4+384];
mad.lo.u32 %r17, %r17, 100, %r18; mad.lo.u32 %r11, %r11, 100000, %r17;
st.global.u32 [%mine], %r11;
)" + kSync,
                128, expected(32, [](auto i) { return 10 + i; }), {32, 1, 1}, {4, 1, 1}, kShared);
    CHECK_SAME(got, expected(128, [](std::uint32_t i) {
                 const std::uint32_t rank = i / 32, lane = i % 32, before = (rank + 3) % 4;
                 const std::uint32_t first = lane < 16 ? 2 * (before * 100 + lane) + 1 : 3;
                 return first * 100000 + (rank == 2 ? 2 : 10 + lane) * 100 +
                        (rank == 1 && lane < 8 ? 10 + lane : 2);
               }));
    CHECK(counters_of(gpu.outcome, "cp.async.bulk.shared::cluster.shared::cta").remote.bytes ==
          4 * 64);
    CHECK(counters_of(gpu.outcome, "cp.async.bulk.shared::cluster.shared::cta").remote.requests ==
          4);
    CHECK(counters_of(gpu.outcome, "multicast::cluster [%r13]").remote.bytes == 2 * 64);
    CHECK(counters_of(gpu.outcome, "multicast::cluster [%r13]").bulk.bytes == 64);
    CHECK(counters_of(gpu.outcome, "multicast::cluster [%r13]").bulk.l2_sectors == 2);
    CHECK(counters_of(gpu.outcome, "[%r15+128]").remote.bytes == 32);
    CHECK(counters_of(gpu.outcome, "[%r15+128]").remote.bytes_distinct == 0);
  }
  const Dim3 one{1, 1, 1}, two{2, 1, 1};
  const auto message = [&](const std::string& body) {
    return Clusters(two).message(kPeer + "mbarrier.init.shared.b64 [object], 1;\n" + kSync + body,
                                 one, two);
  };
  CHECK(lacks(message("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                      "[%r92], [data], 32, [object];\n" +
                      kSync),
              "copy to the shared memory of rank 0 that reports to an mbarrier of rank 1: both "
              "must be of one block") == "");
  CHECK(lacks(message("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                      "[%r92], [data+8], 32, [%r93];"),
              "must be multiples of 16") == "");
  CHECK(lacks(message("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                      "[%r92], [data], 2048, [%r93];"),
              "out-of-bounds read of 2048 bytes") == "");
  CHECK(lacks(message("mov.u16 %h1, 4; "
                      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast:"
                      ":cluster [data], [%in], 32, [object], %h1;"),
              "of rank 2 of the cluster") == "");
  CHECK(
      lacks(message(
                "setp.eq.u32 %p1, %r90, 1; @%p1 bra wait; "
                "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r92], "
                "[data], 32, [%r93]; ret;\nwait: mbarrier.arrive.expect_tx.shared.b64 _, [object], "
                "32;\nloop: mbarrier.try_wait.parity.shared.b64 %p2, [object], 0; @!%p2 bra loop;"),
            "the source of an asynchronous copy is shared memory of a block that has ended") == "");
}

TEST_CASE("cluster: st.async and red.async send values and report to the other block's mbarrier") {
  struct Row {
    std::string type, reg;
    std::uint32_t bytes, elements;
  };
  std::vector<Row> rows;
  for (const std::string type : {"b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"})
    for (const std::uint32_t n : {1u, 2u, 4u}) {
      const std::uint32_t bytes = type.substr(1) == "64" ? 8 : 4;
      if (bytes * n > 16) continue;
      rows.push_back({type,
                      type == "f32"   ? "%f"
                      : type == "f64" ? "%fd"
                      : bytes == 8    ? "%rd"
                                      : "%r",
                      bytes, n});
    }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const Row& row = rows[r];
    CAPTURE(row.type);
    CAPTURE(row.elements);
    const bool generic = r % 3 == 2;
    const std::string size = std::to_string(row.bytes * row.elements),
                      total = std::to_string(32 * row.bytes * row.elements);
    std::string list;
    for (std::uint32_t k = 0; k < row.elements; ++k)
      list += (k ? ", " : "") + row.reg + std::to_string(40 + k).substr(1) + "";
    if (row.elements > 1) list = "{" + list + "}";
    std::string fill;  // element k of lane: the bits (k + 1) * 1000 + number
    for (std::uint32_t k = 0; k < row.elements; ++k) {
      fill += "add.u32 %r80, %number, " + std::to_string((k + 1) * 1000) + ";\n";
      fill += row.bytes == 8 ? "mov.b64 %rd59, {%r80, %r80}; mov.b64 " + row.reg +
                                   std::to_string(k) + ", %rd59;\n"
                             : "mov.b32 " + row.reg + std::to_string(k) + ", %r80;\n";
    }
    Clusters gpu({2, 1, 1});
    const auto got = gpu.run(
        kPeer +
            "setp.eq.u32 %p1, %lane, 0;\n@%p1 mbarrier.init.shared.b64 [object], 1; @%p1 "
            "mbarrier.arrive.expect_tx.shared.b64 _, [object], " +
            total + ";\n" + fill + "mov.u32 %r81, data; mad.lo.u32 %r81, %lane, " + size +
            ", %r81; mad.lo.u32 %r82, %lane, " + size + ", %r92;\nst.shared.u32 [%r81], 7;\n" +
            kSync +
            (generic ? "cvt.u64.u32 %rd50, %r82; cvta.shared::cluster.u64 %rd50, %rd50; "
                       "cvt.u64.u32 %rd51, %r93; cvta.shared::cluster.u64 %rd51, "
                       "%rd51;\nst.async.weak.mbarrier::complete_tx::bytes"
                     : std::string(r % 2 ? "st.async.weak" : "st.async") +
                           ".shared::cluster.mbarrier::complete_tx::bytes") +
            (row.elements > 1 ? ".v" + std::to_string(row.elements) : "") + "." + row.type +
            (generic ? " [%rd50], " + list + ", [%rd51];\n" : " [%r82], " + list + ", [%r93];\n") +
            "ld.shared.u32 %r83, [%r81];\nwait: mbarrier.try_wait.parity.shared.b64 %p2, [object], "
            "0; @!%p2 bra wait;\n" +
            "ld.shared.u32 %r84, [%r81+" + std::to_string(row.bytes * row.elements - 4) +
            "]; mad.lo.u32 %r84, %r83, 100000, %r84; st.global.u32 [%mine], %r84;\n" + kSync,
        64, {0}, {32, 1, 1}, {2, 1, 1}, kShared);
    CHECK_SAME(got, expected(64, [&](std::uint32_t i) {
                 return 700000 + row.elements * 1000 + (i ^ 32);
               }));
    CHECK(counters_of(gpu.outcome, "st.async").remote.requests == 2);
    CHECK(counters_of(gpu.outcome, "st.async").remote.bytes == 64 * row.bytes * row.elements);
    CHECK(counters_of(gpu.outcome, "st.async").remote.bytes_distinct ==
          64 * row.bytes * row.elements);
  }
  // Each of the 32 lanes of both blocks combines its value with the peer's word.
  struct Reduction {
    std::string op, reg;
    std::uint64_t before, after;
  };
  const Reduction reductions[] = {
      {"inc.u32", "%r1", 3, 35},     {"dec.u32", "%r1", 40, 8},
      {"min.u32", "%r1", 50, 1},     {"max.u32", "%r1", 5, 32},
      {"min.s32", "%r1", 0, 0},      {"max.s32", "%r1", 0xffffffff, 32},
      {"add.u32", "%r1", 1, 529},    {"add.s32", "%r1", 0xffffffff, 527},
      {"add.u64", "%rd1", 1, 529},   {"add.s64", "%rd1", 2, 530},
      {"and.b32", "%r1", 0xffff, 0}, {"or.b32", "%r1", 0x100, 0x13f},
      {"xor.b32", "%r1", 0, 32}};
  for (const Reduction& row : reductions) {
    CAPTURE(row.op);
    const bool wide = row.op.ends_with("64"), generic = row.op == "xor.b32";
    const bool counts = row.op == "inc.u32" || row.op == "dec.u32";  // up to 1000, not to the value
    Clusters gpu({2, 1, 1});
    const auto got = gpu.run<std::uint64_t>(
        kPeer + "setp.eq.u32 %p1, %lane, 0; mov.u64 %rd9, " + std::to_string(row.before) +
            "; st.shared.u64 [data], %rd9;\n" +
            "@%p1 mbarrier.init.shared.b64 [object], 1; @%p1 mbarrier.arrive.expect_tx.shared.b64 "
            "_, [object], " +
            (wide ? "256" : "128") + ";\nadd.u32 %r1, %lane, 1; cvt.u64.u32 %rd1, %r1;\n" +
            (counts ? "mov.u32 %r1, 1000;\n" : "") + kSync +
            (generic ? "mapa.u64 %rd50, data, %r91; mapa.u64 %rd51, object, "
                       "%r91;\nred.async.relaxed.cluster.mbarrier::complete_tx::bytes." +
                           row.op + " [%rd50], %r1, [%rd51];\n"
                     : "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes." +
                           row.op + " [%r92], " + row.reg + ", [%r93];\n") +
            "wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [object], 0; "
            "@!%p2 bra wait;\nld.shared.u64 %rd9, [data]; mul.wide.u32 %rd8, %block, 8; add.u64 "
            "%rd8, %rd8, %out; st.global.u64 [%rd8], %rd9;\n" +
            kSync,
        2, {0}, {32, 1, 1}, {2, 1, 1}, kShared);
    CHECK_SAME(got, std::vector<std::uint64_t>{row.after, row.after});
    CHECK(counters_of(gpu.outcome, "red.async").remote.requests == 2);
  }
  CHECK(lacks(Clusters({2, 1, 1}).message(
                  kPeer + "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b64 [%r92], "
                          "{%rd1, %rd1, %rd1, %rd1}, [%r93];",
                  {1, 1, 1}, {2, 1, 1}),
              "does not support") == "");
}
