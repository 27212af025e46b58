// Tensor copies and the checks: they know which bytes of global and of shared memory a box takes.
#include <cstring>

#include "../core/tensor_map.h"
#include "check_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

// `out` is a tensor of 8 rows of 20 words, 128 bytes apart; boxes have 4 rows of 8 words, 128 bytes.
// %in is the map.
struct Tensors {
  explicit Tensors(MachineOptions options, bool written = true) : gpu(options) {
    out = gpu.array<std::uint32_t>(256, 0);
    if (written) gpu.machine.memory().mark_written(out.address(), 1024);
    const std::uint64_t sizes[] = {20, 8}, strides[] = {128};
    const std::uint32_t box[] = {8, 4}, steps[] = {1, 1};
    TensorMapRequest r;
    r.type = static_cast<int>(TensorType::u32);
    r.rank = 2;
    r.address = out.address();
    r.sizes = sizes, r.strides = strides, r.box = box, r.element_strides = steps;
    TensorMap map;
    REQUIRE(encode(r, map).text == "");
    in = gpu.array<std::byte>(kTensorMapBytes);
    std::memcpy(in.data(), &map, sizeof map);
    gpu.machine.memory().mark_written(in.address(), kTensorMapBytes);
  }
  Texts run(const std::string& body, Dim3 grid = {1, 1, 1}) {
    const LaunchOutcome outcome = gpu.launch(
        kernel(with_lines("mov.u32 %r1, s; mov.u32 %r9, object; mad.lo.u32 %r2, %thread, 4, %r1;\n"
                          "setp.ne.u32 %p1, %thread, 0; mov.u32 %r5, 0;\n" +
                          body),
               ".file 1 \"s.cu\"\n.shared .align 128 .b8 s[1024]; .shared .align 8 .b64 "
               "object;\n"),
        {out.address(), in.address()}, {32, 1, 1}, grid);
    REQUIRE(outcome.fault.message == "");
    return outcome.findings;
  }
  Gpu gpu;
  Array<std::uint32_t> out;
  Array<std::byte> in;
};

const std::string kInit =
    "@!%p1 mbarrier.init.shared.b64 [%r9], 1;\nfence.mbarrier_init.release.cluster;\n";

// Thread 0 asks for the box at (column, 0) and everybody waits for it and reads it.
std::string load(const std::string& column, const std::string& before_wait = "") {
  return kInit + kBarrier + "mov.u32 %r4, " + column +
         ";\n@!%p1 mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r9], 128;\n"
         "#7: @!%p1 "
         "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%in, "
         "{%r4, %r5}], [%r9];\n" +
         before_wait +
         "wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r9], 0; @!%p2 bra wait;\n"
         "#9: ld.shared.u32 %r3, [%r2];\n" +
         kBarrier;
}
// Everybody writes a word, and thread 0 stores the box at (8, row).
std::string store(const std::string& between, const std::string& row = "0",
                  const std::string& behind = "") {
  return "#4: st.shared.u32 [%r2], %thread;\n" + between + "mov.u32 %r4, 8; mov.u32 %r5, " + row +
         ";\n@%p1 bra END;\n"
         "#7: cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%in, {%r4, %r5}], [%r1];\n"
         "cp.async.bulk.commit_group;\n" +
         behind + "cp.async.bulk.wait_group 0;\nEND:\n";
}

}  // namespace

TEST_CASE("tensor checks: a correct program is silent, in the usual order and in shuffled ones") {
  for (const std::uint64_t seed : {0, 1, 2, 3})
    for (const std::string& body :
         {load("3"), load("-4"), load("17"), store(kProxyFence + kBarrier),
          load("0") + store(kProxyFence + kBarrier)}) {
      CAPTURE(seed);
      CAPTURE(body);
      Tensors t({.threads = 1,
                 .schedule_seed = seed,
                 .check_race = true,
                 .check_init = true,
                 .check_sync = true,
                 .check_proxy = true});
      CHECK(all_of(t.run(body)) == "");
    }
}

TEST_CASE("tensor checks: a box that is read before its wait is a race") {
  const Texts found = Tensors(race_only()).run(load("3", "#8: ld.shared.u32 %r6, [%r2];\n"));
  CHECK_MESSAGE(
      has(found,
          "s.cu:7: error: race: asynchronous copy of 16 bytes to shared memory at offset 128 by "
          "thread (0,0,0) and read by thread (0,0,0) at s.cu:8 before the copy was waited for"),
      all_of(found));
}

TEST_CASE("tensor checks: a tensor that is written before the wait for a box of it is a race") {
  // The box of column 3 begins in the middle of a row; row 1 of the tensor is 128 bytes on.
  const auto found = [](const std::string& before, const std::string& behind, int byte) {
    return Tensors(race_only())
        .run("mov.u64 %rd8, %out;\n" +
             load("3", before.empty() ? "" : before + std::to_string(byte) + "], 5;\n") +
             (behind.empty() ? "" : behind + std::to_string(byte) + "], 5;\n"));
  };
  const std::string write = "#8: @!%p1 st.global.u32 [%rd8 + ";
  for (const int byte : {12, 128 + 40}) {
    const Texts early = found(write, "", byte);
    CHECK_MESSAGE(has(early,
                      " by the bulk copy of thread (0,0,0) and write by thread (0,0,0) at "
                      "s.cu:8 without a wait at the mbarrier of the copy between"),
                  all_of(early));
    CHECK(all_of(found("", write, byte)) == "");
  }
  for (const int byte : {8, 44, 128 + 44})
    CHECK(all_of(found(write, "", byte)) == "");  // beside it
}

TEST_CASE("tensor checks: boxes of two blocks that share rows of the tensor race, others do not") {
  const std::string mine = "mul.lo.u32 %r6, %block, 4;\n";
  CHECK(all_of(Tensors(race_only()).run(mine + store(kProxyFence + kBarrier, "%r6"), {2, 1, 1})) ==
        "");
  const Texts found =
      Tensors(race_only())
          .run("mul.lo.u32 %r6, %block, 3;\n" + store(kProxyFence + kBarrier, "%r6"), {2, 1, 1});
  CHECK_MESSAGE(has(found, "s.cu:7: error: race"), all_of(found));
}

TEST_CASE("tensor checks: only words inside the tensor are read, and those must be written") {
  CHECK(all_of(Tensors(init_only()).run(load("16"))) == "");
  CHECK(has(Tensors(init_only(), false).run(load("16")), "s.cu:7: error: init"));
  // All of the box is outside: nothing is read.
  CHECK(all_of(Tensors(init_only(), false).run(load("20"))) == "");
  CHECK(all_of(Tensors(init_only(), false).run(load("-8"))) == "");
  // Words 16 to 19 of rows 0 to 3 were never written, the rest was.
  Tensors some(init_only(), false);
  for (int row = 0; row < 8; ++row)
    some.gpu.machine.memory().mark_written(some.out.address() + 128u * row, 64);
  CHECK(all_of(some.run(load("8"))) == "");
  CHECK(has(some.run(load("9")), "s.cu:7: error: init: read of"));
  // What a load brings, zeros outside included, counts as written; what a store brings, too.
  CHECK(all_of(some.run(load("-4"))) == "");
  Tensors stored(init_only(), false);
  CHECK(all_of(stored.run(store(kProxyFence + kBarrier))) == "");
  CHECK(all_of(stored.run(load("8"))) == "");
  CHECK(has(stored.run(load("7")), "error: init"));
}

TEST_CASE("tensor checks: what threads wrote is fenced before the engine reads or overwrites it") {
  CHECK(all_of(Tensors(proxy_only()).run(store(kProxyFence + kBarrier))) == "");
  const Texts found = Tensors(proxy_only()).run(store(kBarrier));
  CHECK_MESSAGE(has(found,
                    "s.cu:7: error: proxy: bulk copy reads the bytes at offset 128 of the block's "
                    "shared memory, which thread (0,0,0) wrote at s.cu:4, without a "
                    "fence.proxy.async between"),
                all_of(found));
  // A fence for tensor maps is none for their data.
  CHECK(has(
      Tensors(proxy_only()).run(store("fence.proxy.tensormap::generic.release.gpu;\n" + kBarrier)),
      "without a fence.proxy.async between"));
  CHECK(has(Tensors(proxy_only()).run("#4: st.shared.u32 [%r2], %thread;\n" + load("0")),
            "bulk copy overwrites the bytes at offset 128"));
  CHECK(all_of(Tensors(proxy_only())
                   .run("#4: st.shared.u32 [%r2], %thread;\n" + kProxyFence + load("0"))) == "");
}

namespace {

// Thread 0 changes the map in global memory; the copy is asked for by the first thread of warp `by`.
std::string changes_map(const std::string& behind, const std::string& before, int by = 0) {
  return "@!%p1 mbarrier.init.shared.b64 [%r9], 1; fence.mbarrier_init.release.cluster;\n"
         "setp.ne.u32 %p3, %thread, " +
         std::to_string(32 * by) +
         ";\n@%p1 bra changed;\n"
         "#3: tensormap.replace.tile.rank.global.b1024.b32 [%in], 1;\n" +
         behind + "changed: bar.sync 0;\n" + before +
         "@!%p3 mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r9], 128; mov.u32 %r4, 0;\n"
         "#7: @!%p3 "
         "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%in, "
         "{%r4, %r5}], [%r9];\n"
         "wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r9], 0; @!%p2 bra wait;\n";
}
const std::string kMapRelease = "fence.proxy.tensormap::generic.release.gpu;\n",
                  kMapAcquire = "fence.proxy.tensormap::generic.acquire.gpu [%in], 128;\n";

Texts run_with_map(const std::string& body) {
  Tensors t(proxy_only());
  std::string text = kernel(
      with_lines("mov.u32 %r1, s; mov.u32 %r9, object; setp.ne.u32 %p1, %thread, 0;\n" + body),
      ".file 1 \"s.cu\"\n.shared .align 128 .b8 s[1024]; .shared .align 8 .b64 object;\n");
  text.replace(text.find("sm_90\n"), 6, "sm_90a\n");
  const LaunchOutcome outcome = t.gpu.launch(text, {t.out.address(), t.in.address()}, {64, 1, 1});
  REQUIRE(outcome.fault.message == "");
  return outcome.findings;
}

}  // namespace

TEST_CASE("tensor checks: a map is changed only when no copy that uses it is under way") {
  const std::string one = "mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r9], 128;\n";
  const std::string ask =
      "@%p1 bra end;\nmbarrier.init.shared.b64 [%r9], 1; mov.u32 %r4, 0; mov.u32 %r5, 0;\n" + one +
      "#7: cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], "
      "[%in, {%r4, %r5}], [%r9];\n";
  const std::string change = "#9: tensormap.replace.tile.rank.global.b1024.b32 [%in], 1;\n";
  const std::string wait =
      "wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r9], 0; @!%p2 bra wait;\n";
  const std::string end = "end:\n";
  CHECK(has(run_with_map(ask + change + wait + end),
            "s.cu:9: error: proxy: write to the tensor map at byte 0 of "));
  CHECK(
      has(run_with_map(ask + change + wait + end),
          "which the copy that thread (0,0,0) asked for at s.cu:7 may still read: wait for the "
          "copy (at its mbarrier, or by cp.async.bulk.wait_group.read) before; by thread (0,0,0)"));
  CHECK(all_of(run_with_map(ask + wait + change + end)) == "");
  // To wait for all groups of bulk copies is enough for the map, whatever the copy reports to.
  const std::string groups = "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\n";
  CHECK(all_of(run_with_map(ask + groups + change + wait + end)) == "");
  // A copy out of shared memory.
  const std::string out =
      "@%p1 bra end;\nmov.u32 %r4, 0; mov.u32 %r5, 0;\n#7: cp.async.bulk.tensor.2d.global"
      ".shared::cta.bulk_group [%in, {%r4, %r5}], [%r1];\n";
  CHECK(has(run_with_map(out + "cp.async.bulk.commit_group;\n" + change + end),
            "s.cu:9: error: proxy: write to the tensor map"));
  CHECK(all_of(run_with_map(out + groups + change + end)) == "");
}

TEST_CASE("tensor checks: a map that the kernel changes is released and acquired before a copy") {
  const std::string both = changes_map(kMapRelease, kMapAcquire);
  CHECK(all_of(run_with_map(both)) == "");
  CHECK(all_of(run_with_map(changes_map(kMapRelease, kMapAcquire, 1))) == "");
  // One thread may release what another wrote, and acquire for another, once it has met it.
  CHECK(all_of(run_with_map(changes_map("", kMapRelease + kMapAcquire, 1))) == "");
  CHECK(all_of(run_with_map(
            changes_map(kMapRelease, "@!%p1 " + kMapAcquire + "bar.sync 0;\n", 1))) == "");
  // Nor need anybody acquire a map that the launch leaves as it is.
  CHECK(all_of(run_with_map(kMapRelease + load("0"))) == "");

  const std::string use = "s.cu:7: error: proxy: tensor copy uses the map at byte 0 of ",
                    written =
                        "which thread (0,0,0) wrote at s.cu:3, without a "
                        "fence.proxy.tensormap::generic.";
  for (
      const auto& [body, missing] :
      {std::pair{changes_map("", kMapAcquire), "release (or tensormap.cp_fenceproxy) behind that"},
       std::pair{changes_map(kMapRelease, ""), "acquire of it between"},
       std::pair{changes_map("fence.acq_rel.gpu;\n", "fence.acq_rel.gpu;\n"), "release"},
       // Acquired before it is written, as another map, or by a thread that the copy's has not met.
       std::pair{kMapAcquire + changes_map(kMapRelease, ""), "acquire of it between"},
       std::pair{changes_map(kMapRelease,
                             "fence.proxy.tensormap::generic.acquire.gpu [%out], "
                             "128;\n"),
                 "acquire of it between"},
       std::pair{changes_map(kMapRelease, "@!%p1 " + kMapAcquire, 1), "acquire of it between"}}) {
    const Texts found = run_with_map(body);
    CAPTURE(body);
    CHECK_MESSAGE(has(found, use), all_of(found));
    CHECK_MESSAGE(has(found, written + missing), all_of(found));
  }
}
