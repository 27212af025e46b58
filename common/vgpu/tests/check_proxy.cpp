// Accesses by different ways to memory: the copy engine's, mbarriers', ld.global.nc.
#include "check_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

// `object` is placed at offset 0 of shared memory, `s` at 16.
const std::string kTileAndObject = ".shared .align 16 .b8 s[1024]; .shared .align 8 .b64 object;\n";

Texts find(const std::string& body, Dim3 block = {64, 1, 1}, std::uint64_t seed = 0) {
  return Checked(proxy_only(seed)).run(body, block, {1, 1, 1}, kTileAndObject);
}
// In the usual order and in shuffled ones.
void silent(const std::string& body, Dim3 block = {64, 1, 1}) {
  CAPTURE(body);
  for (std::uint64_t seed = 0; seed < 6; ++seed) CHECK(find(body, block, seed) == Texts{});
}

// Every thread writes its word of `s`; after `between` thread 0 has the engine copy them to `out`.
std::string store_tile(const std::string& between, const std::string& before_copy = "") {
  return "mov.u32 %r1, s; mad.lo.u32 %r2, %thread, 4, %r1;\nsetp.ne.u32 %p1, %thread, 0;\n"
         "#4: st.shared.u32 [%r2], %thread;\n" +
         between + "@%p1 bra END;\n" + before_copy +
         "#7: cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1], 256;\n"
         "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nEND:\n";
}
// Thread 0 initializes `object`; after `between` it asks the engine for a tile of `in` in `s`, and
// all wait for it.
std::string load_tile(const std::string& before, const std::string& between) {
  return "mov.u32 %r1, s; mov.u32 %r9, object; mad.lo.u32 %r2, %thread, 4, %r1;\n"
         "setp.ne.u32 %p1, %thread, 0;\n@%p1 bra MADE;\n#3: mbarrier.init.shared.b64 [%r9], 1;\n"
         "MADE:\n" +
         before + between +
         "@%p1 bra ASKED;\n"
         "mbarrier.arrive.expect_tx.shared.b64 %rd9, [%r9], 256;\n"
         "#7: cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%in], 256, "
         "[%r9];\nASKED:\n#9: mbarrier.try_wait.parity.shared.b64 %p2, [%r9], 0;\n@!%p2 bra "
         "ASKED;\n"
         "ld.shared.u32 %r3, [%r2]; st.global.u32 [%mine], %r3;\n";
}

}  // namespace

TEST_CASE("proxy: what threads wrote is fenced before the copy engine reads it") {
  silent(store_tile(kProxyFence + kBarrier));
  silent(store_tile("fence.proxy.async;\n" + kBarrier));
  // One thread's fence will do when it has met the others.
  silent(store_tile(kBarrier, kProxyFence));
  silent(store_tile("bar.warp.sync -1;\n", kProxyFence), {32, 1, 1});
  // A thread in between that met the writers.
  silent(store_tile(kBarrier + "setp.ne.u32 %p2, %thread, 40; @%p2 bra SKIP;\n" + kProxyFence +
                    "SKIP:\n" + kBarrier));
  const std::string text =
      "s.cu:7: error: proxy: bulk copy reads the bytes at offset 16 of the block's shared "
      "memory, "
      "which thread (0,0,0) wrote at s.cu:4, without a fence.proxy.async between, by thread "
      "(0,0,0) "
      "of block (0,0,0) in k";
  CHECK(find(store_tile(kBarrier)) == Texts{text});
  CHECK(find(store_tile("fence.acq_rel.cta;\n" + kBarrier)) == Texts{text});
  CHECK(find(store_tile("fence.proxy.async.global;\n" + kBarrier)) == Texts{text});
  CHECK(find(store_tile(""), {1, 1, 1}) == Texts{text});
  // Too early, of one's own and of others.
  CHECK(find(kProxyFence + store_tile(kBarrier)) == Texts{text});
  const Texts first = find(store_tile("@!%p1 fence.proxy.async.shared::cta;\n" + kBarrier));
  CHECK(has(first,
            "at offset 20 of the block's shared memory, which thread (1,0,0) wrote at s.cu:4"));
  // Again: the next tile needs its own.
  CHECK(find(store_tile(kProxyFence + kBarrier + "#5: st.shared.u32 [%r2], 9;\n" + kBarrier))
            .size() == 1);
}

TEST_CASE("proxy: a copy of cp.async is a write as any other") {
  const auto body = [](const std::string& fence) {
    return "mov.u32 %r1, s; mad.lo.u32 %r2, %thread, 16, %r1; cvt.u64.u32 %rd2, %thread;\n"
           "shl.b64 %rd2, %rd2, 4; add.u64 %rd2, %rd2, %in; setp.ne.u32 %p1, %thread, 0;\n"
           "cp.async.cg.shared.global [%r2], [%rd2], 16;\ncp.async.wait_all;\n" +
           fence + kBarrier +
           "@%p1 bra END;\n#7: cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1], 256;\n"
           "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nEND:\n";
  };
  silent(body(kProxyFence));
  CHECK(has(find(body("")), "s.cu:7: error: proxy: bulk copy reads the bytes at offset 16"));
}

TEST_CASE("proxy: what threads wrote is fenced before the copy engine writes over it") {
  const std::string fill = "#5: st.shared.u32 [%r2], 0;\n";
  silent(load_tile("", kBarrier));
  silent(load_tile(fill, kProxyFence + kBarrier));
  CHECK(
      has(find(load_tile(fill, kBarrier)),
          "s.cu:7: error: proxy: bulk copy overwrites the bytes at offset 16 of the block's shared "
          "memory, which thread (0,0,0) wrote at s.cu:5, without a fence.proxy.async between"));
  // To have read it is no write; what the engine wrote needs no fence of the threads.
  silent(load_tile("ld.shared.u32 %r5, [%r2];\n", kBarrier));
  silent(load_tile("", kBarrier) + kBarrier +
         "@%p1 bra END;\n"
         "cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1], 256;\n"
         "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nEND:\n");
}

TEST_CASE("proxy: an mbarrier is used by those who have met the one that initialized it") {
  silent(load_tile("", kBarrier));
  silent(load_tile("", "fence.mbarrier_init.release.cluster;\n" + kBarrier));
  const Texts found = find(load_tile("", ""));
  CHECK(found ==
        Texts{"s.cu:9: error: proxy: use of the mbarrier at offset 0 of the block's shared memory, "
              "which thread (0,0,0) initialized at s.cu:3, without a barrier between, by thread "
              "(32,0,0) of block (0,0,0) in k (and 31 more)"});
  // A barrier of the warp is not one between warps, and one before is none.
  CHECK(find(load_tile("", "bar.warp.sync -1;\n")).size() == 1);
  CHECK(find(kBarrier + load_tile("", "")).size() == 1);
  // One warp needs nothing.
  silent(load_tile("", ""), {32, 1, 1});
}

TEST_CASE("proxy: between blocks of a cluster the initialization is released, and they meet") {
  // Thread 0 of each block initializes its object; then each arrives at the other's.
  const auto body = [](const std::string& between) {
    return "mov.u32 %r9, object; mov.u32 %r90, %cluster_ctarank; xor.b32 %r91, %r90, 1;\n"
           "mapa.shared::cluster.u32 %r93, object, %r91; setp.ne.u32 %p1, %thread, 0;\n"
           "@%p1 bra MADE;\n#3: mbarrier.init.shared.b64 [%r9], 1;\nMADE:\n" +
           between +
           "@%p1 bra WAIT;\n#6: mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r93];\n"
           "WAIT:\nmbarrier.try_wait.parity.acquire.cluster.shared.b64 %p2, [%r9], 0;\n"
           "@!%p2 bra WAIT;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\n";
  };
  const auto in_cluster = [&](const std::string& between, std::uint64_t seed = 0) {
    Checked c(proxy_only(seed));
    c.gpu.cluster = {2, 1, 1};
    return c.run(body(between), {64, 1, 1}, {2, 1, 1}, kTileAndObject);
  };
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    CHECK(in_cluster("barrier.cluster.arrive;\nbarrier.cluster.wait;\n", seed) == Texts{});
    CHECK(in_cluster("fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive.relaxed;\n"
                     "barrier.cluster.wait;\n",
                     seed) == Texts{});
  }
  const Texts found = in_cluster("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;\n");
  CAPTURE(found);
  CHECK(
      has(found,
          "s.cu:6: error: proxy: use of the mbarrier at offset 0 of the shared memory of block "
          "(0,0,0), which thread (0,0,0) of block (0,0,0) initialized at s.cu:3, without a "
          "fence.mbarrier_init behind that, by thread (0,0,0) of block (1,0,0) in k (and 1 more)"));
}

TEST_CASE("proxy: ld.global.nc is for memory that the launch does not write") {
  const auto body = [](const std::string& store, const std::string& load) {
    return "add.u64 %rd1, %mine, 256;\n#4: " + store + "\nbar.sync 0;\n#6: " + load + "\n";
  };
  silent(body("st.global.u32 [%mine], 1;", "ld.global.nc.u32 %r1, [%rd1];"));
  silent(body("st.global.u32 [%mine], 1;", "ld.global.u32 %r1, [%mine];"));
  silent(body("ld.global.nc.u32 %r1, [%mine];", "st.global.u32 [%mine], 1;"));
  // Neighbours in one word.
  silent(
      "mul.wide.u32 %rd1, %thread, 4; add.u64 %rd1, %rd1, %out; st.global.u8 [%rd1+1], 1;\n"
      "ld.global.nc.u8 %r1, [%rd1+2];\n");
  CHECK(
      find(body("st.global.u32 [%mine], 1;", "ld.global.nc.u32 %r1, [%mine];"), {32, 1, 1}) ==
      Texts{
          "s.cu:6: error: proxy: ld.global.nc (or __ldg) of 4 bytes at byte 0 of an allocation of "
          "4096 bytes (argument 1), which this launch wrote at s.cu:4: it is for memory that stays "
          "as it is, by thread (0,0,0) of block (0,0,0) in k (and 31 more)"});
  CHECK(find(body("red.global.add.u32 [%out+12], 1;",
                  "ld.global.nc.v4.u32 {%r1,%r2,%r3,%r4}, [%out];"))
            .size() == 1);
  // By the copy engine.
  CHECK(find("cp.async.bulk.global.shared::cta.bulk_group [%out], [s], 16;\n"
             "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n#6: ld.global.nc.u32 %r1, "
             "[%out+12];\n",
             {1, 1, 1})
            .size() == 1);
  // What an earlier launch wrote is as good as anything.
  Checked c(proxy_only());
  CHECK(c.run("st.global.u32 [%mine], 1;") == Texts{});
  CHECK(c.gpu.launch(kernel("ld.global.nc.u32 %r1, [%mine];"), {c.out.address(), c.out.address()})
            .findings == Texts{});
}
