// mbarrier objects: phases, counts, waits, and copies that report to them.
#include <algorithm>
#include <ctime>

#include "../core/queue.h"
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

const std::string kObject = ".shared .align 16 .b64 object; .shared .align 16 .b8 data[1024];\n";

// The processor's time of a launch, the least of several.
double cost_of(Gpu& gpu, const std::string& text, std::uint32_t copies) {
  const auto in = gpu.array<std::uint32_t>(4, copies);
  double least = 1e9;
  for (int round = 0; round < 5; ++round) {
    const std::clock_t start = std::clock();
    const LaunchOutcome outcome = gpu.launch(text, {in.address(), in.address()}, {256, 1, 1});
    least = std::min(least, static_cast<double>(std::clock() - start));
    REQUIRE(outcome.fault.message == "");
  }
  return least;
}

}  // namespace

TEST_CASE("mbarrier: eight times as many copies take about eight times as long to land") {
  // 256 threads each ask for %r9 copies of 16 bytes, all of which report to one object, and wait for it.
  const std::string head = R"(
mov.u32 %r1, object; mov.u32 %r2, data; ld.global.u32 %r9, [%in];
setp.eq.u32 %p1, %thread, 0; mul.lo.u32 %r3, %r9, 256;
@%p1 mbarrier.init.shared.b64 [%r1], %r3;
bar.sync 0;
mov.u32 %r4, 0;
again:
)";
  const std::string tail = R"(
add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, %r9;
@%p2 bra again;
wait:
mbarrier.try_wait.parity.shared.b64 %p3, [%r1], 0;
@!%p3 bra wait;)";
  for (const std::string copy : {"cp.async.cg.shared.global [%r2], [%in], "
                                 "16;\ncp.async.mbarrier.arrive.noinc.shared.b64 [%r1];",
                                 "mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;\n"
                                 "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
                                 "bytes [%r2], [%in], 16, [%r1];"}) {
    CAPTURE(copy);
    Gpu gpu;
    const std::string text = kernel(head + copy + tail, kObject);
    const double few = cost_of(gpu, text, 12), many = cost_of(gpu, text, 96);
    CHECK(many < 16 * few);
  }
}

TEST_CASE("queue: first in, first out, and an item moves a few times at most") {
  static int moves;
  struct Item {
    int number;
    explicit Item(int n) : number(n) {}
    Item(Item&& o) noexcept : number(o.number) { ++moves; }
    Item& operator=(Item&& o) noexcept {
      number = o.number;
      ++moves;
      return *this;
    }
  };
  constexpr int kItems = 10000;
  for (const int pending : {1, 2, 3, 100, kItems}) {
    CAPTURE(pending);
    moves = 0;
    Queue<Item> queue;
    int wrong = 0;
    for (int i = 0; i < kItems + pending; ++i) {
      if (i < kItems) queue.push(Item(i));
      if (i >= pending) wrong += queue.pop().number != i - pending;
      const int left = std::min({i + 1, pending, kItems, kItems + pending - 1 - i});
      wrong += static_cast<int>(queue.size()) != left || queue.empty() != (left == 0);
    }
    CHECK(wrong == 0);
    CHECK(moves < 6 * kItems);
  }
}

TEST_CASE("mbarrier: all threads' writes are seen behind the wait, phase after phase") {
  Gpu gpu;
  // 64 threads; in each of three phases every thread writes its word and reads its neighbour's.
  const auto got = gpu.run(R"(
mov.u32 %r1, object; mov.u32 %r2, data;
setp.ne.u32 %p1, %thread, 0;
@!%p1 mbarrier.init.shared::cta.b64 [%r1], 64;
bar.sync 0;
mov.u32 %r3, 0; mov.u32 %r4, %thread;
shl.b32 %r5, %thread, 2; add.u32 %r5, %r5, %r2;
xor.b32 %r6, %thread, 33; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r2;
phase:
st.shared.u32 [%r5], %r4;
mbarrier.arrive.shared::cta.b64 %rd1, [%r1];
wait1:
mbarrier.try_wait.shared.b64 %p2, [%r1], %rd1, 100;
@!%p2 bra wait1;
ld.shared.u32 %r4, [%r6];
add.u32 %r4, %r4, 1;
mbarrier.arrive.release.cta.shared.b64 %rd2, [%r1], 1;
wait2:
mbarrier.test_wait.acquire.cta.shared::cta.b64 %p2, [%r1], %rd2;
@!%p2 bra wait2;
add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 3;
@%p3 bra phase;
st.global.u32 [%mine], %r4;
bar.sync 0;
@!%p1 mbarrier.inval.shared.b64 [%r1];)",
                           64, {0}, {64, 1, 1}, {1, 1, 1}, kObject);
  CHECK_SAME(got, expected(64, [](std::uint32_t t) { return (t ^ 33) + 3; }));
}

TEST_CASE("mbarrier: a state says which phase it is of, also where their numbers begin again") {
  Gpu gpu;
  // 40 phases of one arrival: each is over when it is asked for, and the next is not.
  const auto got = gpu.run(R"(
mov.u32 %r1, object; mbarrier.init.shared.b64 [%r1], 2; mov.u32 %r2, 0; mov.u32 %r3, 0;
next:
mbarrier.arrive.shared.b64 %rd1, [%r1]; mbarrier.test_wait.shared.b64 %p1, [%r1], %rd1;
@%p1 add.u32 %r3, %r3, 1000;
mbarrier.arrive.shared.b64 %rd2, [%r1]; mbarrier.test_wait.shared.b64 %p1, [%r1], %rd1;
@%p1 add.u32 %r3, %r3, 1;
add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 40; @%p2 bra next;
st.global.u32 [%mine], %r3;)",
                           1, {0}, {1, 1, 1}, {1, 1, 1}, kObject);
  CHECK(got[0] == 40);
}

TEST_CASE("mbarrier: counts, parity, drops and pending arrivals of one thread") {
  Gpu gpu;
  const auto got = gpu.run(R"(
mov.u32 %r1, object;
mbarrier.init.shared.b64 [%r1], 3;
mbarrier.arrive.noComplete.relaxed.cta.shared.b64 %rd1, [%r1], 2;
mbarrier.pending_count.b64 %r2, %rd1;            // before: 3
st.global.u32 [%out], %r2;
mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0;
selp.u32 %r2, 1, 0, %p1; st.global.u32 [%out+4], %r2;   // phase 0 is not over
mbarrier.arrive_drop.release.cta.shared::cta.b64 %rd2, [%r1];
mbarrier.pending_count.b64 %r2, %rd2;            // 1 was left
st.global.u32 [%out+8], %r2;
mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p1, [%r1], 0;
selp.u32 %r2, 1, 0, %p1; st.global.u32 [%out+12], %r2;  // now it is
mbarrier.try_wait.parity.relaxed.cta.shared.b64 %p1, [%r1], 1, 5;
selp.u32 %r2, 1, 0, %p1; st.global.u32 [%out+16], %r2;  // the next is not
cvt.u64.u32 %rd9, %r1; cvta.shared.u64 %rd10, %rd9;
mbarrier.arrive.b64 %rd3, [%rd10];
mbarrier.pending_count.b64 %r2, %rd3;            // one arrival fewer from this phase on
st.global.u32 [%out+20], %r2;
mbarrier.arrive.shared.b64 _, [%r1], 1;
mbarrier.test_wait.shared.b64 %p1, [%r1], %rd3;
selp.u32 %r2, 1, 0, %p1; st.global.u32 [%out+24], %r2;)",
                           7, {0}, {1, 1, 1}, {1, 1, 1}, kObject);
  CHECK_SAME(got, std::vector<std::uint32_t>{3, 0, 1, 1, 0, 2, 1});
}

TEST_CASE("mbarrier: cp.async lands with the wait for the object it reports to, and not before") {
  for (const bool noinc : {false, true}) {
    Gpu gpu;
    const auto got = gpu.run(
        R"(
mov.u32 %r1, object; mov.u32 %r2, data; shl.b32 %r3, %lane, 2; add.u32 %r2, %r2, %r3;
mul.wide.u32 %rd1, %lane, 4; add.u64 %rd1, %rd1, %in;
st.shared.u32 [%r2], 7;
setp.eq.u32 %p1, %lane, 0;
@%p1 mbarrier.init.shared.b64 [%r1], 32;
bar.sync 0;
cp.async.ca.shared.global [%r2], [%rd1], 4;
cp.async.mbarrier.arrive)" +
            std::string(noinc ? ".noinc.shared::cta" : ".shared") + R"(.b64 [%r1];
ld.shared.u32 %r4, [%r2];
)" +
            (noinc ? "mbarrier.test_wait.parity.shared.b64 %p2, [%r1], 0;\n"
                   : "mbarrier.arrive.shared.b64 %rd2, [%r1];\nmbarrier.test_wait.shared.b64 %p2, "
                     "[%r1], %rd2;\n") +
            R"(
ld.shared.u32 %r5, [%r2];
selp.u32 %r6, 1000, 0, %p2;
add.u32 %r5, %r5, %r6; mad.lo.u32 %r5, %r4, 10000, %r5;
st.global.u32 [%mine], %r5;
cp.async.wait_all;)",
        32, expected(32, [](std::uint32_t i) { return i + 100; }), {32, 1, 1}, {1, 1, 1}, kObject);
    CHECK_SAME(got, expected(32, [](std::uint32_t i) { return 70000 + 1000 + i + 100; }));
  }
}

TEST_CASE("mbarrier: bulk copies are over when their bytes have come and all have arrived") {
  Gpu gpu;
  const auto got = gpu.run(R"(
mov.u32 %r1, object; mov.u32 %r2, data; shl.b32 %r3, %lane, 2; add.u32 %r3, %r3, %r2;
setp.eq.u32 %p1, %lane, 0;
@%p1 mbarrier.init.shared.b64 [%r1], 2;
st.shared.u32 [%r3], 5; st.shared.u32 [%r3+512], 6;
bar.sync 0;
@!%p1 bra wait;
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 640;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%in], 640, [%r1];
mbarrier.arrive.shared.b64 _, [%r1];
mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd1, [%r1], 64;
ld.shared.u32 %r5, [%r2]; st.global.u32 [%out+256], %r5;     // not yet
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [data+640], [%in], 64, [object];
wait:
mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
@!%p2 bra wait;
ld.shared.u32 %r4, [%r3]; st.global.u32 [%mine], %r4;
ld.shared.u32 %r4, [%r3+512]; st.global.u32 [%mine+128], %r4;)",
                           65, expected(160, [](std::uint32_t i) { return i + 1; }), {32, 1, 1},
                           {1, 1, 1}, kObject);
  CHECK_SAME(got, expected(65, [](std::uint32_t i) {
               return i < 32 ? i + 1 : i < 64 ? i + 97 : 5;
             }));
}

TEST_CASE("mbarrier: every order, scope and spelling of the space means the same here") {
  for (const std::string scope : {".cta", ".cluster"})
    for (const std::string space : {".shared", ".shared::cta"})
      for (const bool relaxed : {false, true}) {
        CAPTURE(scope + space);
        const std::string at = space + ".b64 ", told = ".relaxed" + scope + at;
        const std::string arrived = (relaxed ? ".relaxed" : ".release") + scope + at;
        const std::string waited = (relaxed ? ".relaxed" : ".acquire") + scope + at;
        Gpu gpu;
        const auto got = gpu.run(
            "mov.u32 %r1, object; mov.u32 %r3, 0;\nmbarrier.init" + at + "[%r1], 2;\n" +
                "mbarrier.expect_tx" + told + "[%r1], 16;\n" + "mbarrier.arrive" + arrived +
                "%rd1, [%r1];\n" + "mbarrier.arrive.expect_tx" + arrived + "%rd2, [%r1], 8;\n" +
                "mbarrier.test_wait" + waited + "%p1, [%r1], %rd1;\n@%p1 add.u32 %r3, %r3, 1;\n" +
                "mbarrier.complete_tx" + told + "[%r1], 20;\n" + "mbarrier.try_wait" + waited +
                "%p1, [%r1], %rd2;\n@%p1 add.u32 %r3, %r3, 10;\n" + "mbarrier.complete_tx" + told +
                "[%r1], 4;\n" + "mbarrier.test_wait.parity" + waited +
                "%p1, [%r1], 0;\n@%p1 add.u32 %r3, %r3, 100;\n" + "mbarrier.try_wait" + waited +
                "%p1, [%r1], %rd2;\n@%p1 add.u32 %r3, %r3, 1000;\n" +
                "mbarrier.arrive_drop.noComplete" + arrived + "%rd3, [%r1], 1;\n" +
                "mbarrier.arrive" + arrived + "%rd3, [%r1];\n" + "mbarrier.try_wait.parity" +
                waited + "%p1, [%r1], 1;\n@%p1 add.u32 %r3, %r3, 10000;\n" + "mbarrier.inval" + at +
                "[%r1];\nst.global.u32 [%out], %r3;",
            1, {0}, {1, 1, 1}, {1, 1, 1}, kObject);
        CHECK_SAME(got, std::vector<std::uint32_t>{11100});
      }
}

TEST_CASE("mbarrier: too many arrivals, no object, a bulk copy out of bounds") {
  Gpu gpu;
  const auto message = [&](const std::string& body) {
    const auto out = gpu.array<std::uint32_t>(32);
    return gpu
        .launch(kernel("mov.u32 %r1, object; mov.u32 %r2, data;\n" + body, kObject),
                {out.address(), out.address()}, {1, 1, 1})
        .fault.message;
  };
  CHECK(message("mbarrier.init.shared.b64 [%r1], 1; mbarrier.arrive.shared.b64 %rd1, [%r1], 2;")
            .find("arrival 2 at an mbarrier that waits for 1") != std::string::npos);
  CHECK(message("mbarrier.init.shared.b64 [%r1], 0;").find("mbarrier for 0 arrivals") !=
        std::string::npos);
  CHECK(message("mbarrier.init.b64 [%out], 1;").find("mbarrier outside shared memory") !=
        std::string::npos);
  CHECK(message("mbarrier.init.shared.b64 [%r1], "
                "1;\ncp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], "
                "[%in], 144, [%r1];")
            .find("out-of-bounds read of 144 bytes") != std::string::npos);
  // What is told and has not landed has 20 bits and a sign.
  const std::string told =
      "mbarrier.init.shared.b64 [%r1], 1;\n"
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], ";
  CHECK(message(told + "1048572;") == "");
  CHECK(
      message(told + "1048572;\nmbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 4;")
          .find("mbarrier told of 4 bytes, so that 1048576 are outstanding (-1048575 to 1048575), "
                "by thread") != std::string::npos);
  CHECK(message("mbarrier.init.shared.b64 [%r1], 1;\n"
                "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 1048576;")
            .find("so that -1048576 are outstanding") != std::string::npos);
  CHECK(message(told + "6;").find("6 bytes, which must be a multiple of 4") != std::string::npos);
  // Nobody else will come.
  CHECK(message("mbarrier.init.shared.b64 [%r1], 2; mbarrier.arrive.shared.b64 %rd1, [%r1];\n"
                "again: mbarrier.test_wait.shared.b64 %p1, [%r1], %rd1;\n@!%p1 bra again;") != "");
}
