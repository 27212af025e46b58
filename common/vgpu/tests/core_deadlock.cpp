// What is said of launches that never end: for what they wait, who called that, and where others stand.
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

std::string deadlock_of(const std::string& body, Dim3 block, const std::string& before = "") {
  Gpu gpu({.threads = 1});
  gpu.machine.patience = 1u << 20;
  const auto out = gpu.array<std::uint32_t>(1024, 0);
  const LaunchOutcome outcome =
      gpu.launch(kernel(body, ".file 1 \"/nowhere/lesson.cu\"\n" + before),
                 {out.address(), out.address()}, block);
  CHECK(outcome.fault.kind == FaultKind::deadlock);
  return outcome.fault.message;
}

const std::string kOneLoop =
    "/nowhere/lesson.cu:10: error: deadlock: the only block that runs waits in a loop "
    "for what no other thread does";
// Thread 0 initializes the mbarriers, waits at the second one in a function that line 30 calls, and after it
// has waited arrives at a barrier.
std::string waiter(int arrivals, const std::string& before_wait, int parity = 0) {
  return "setp.ne.u32 %p1, %thread, 0;\n@!%p1 mbarrier.init.shared.b64 [bars+8], " +
         std::to_string(arrivals) + ";\nbar.sync 0;\n@%p1 bra REST;\n" + before_wait +
         ".loc 1 30 3\nmov.u32 %r5, 1;\n"
         ".loc 1 10 3, function_name $L__info_string0, inlined_at 1 30 3\n"
         "WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [bars+8], " +
         std::to_string(parity) + ";\n@!%p2 bra WAIT;\n.loc 1 40 1\nREST: bar.sync 1, 64;\n";
}
const std::string kBars = ".shared .align 8 .b64 _ZZ4passPiiE4bars[4];\n",
                  kName = " of the mbarrier 'bars' + 8 bytes at offset 8 of shared memory: ";
std::string named(std::string body) {
  for (std::size_t at; (at = body.find("[bars")) != body.npos;)
    body.replace(at, 5, "[_ZZ4passPiiE4bars");
  return body;
}

}  // namespace

TEST_CASE("deadlock: a wait at an mbarrier says which one, what is missing, and who called it") {
  CHECK(deadlock_of(named(waiter(2, "")), {64, 1, 1}, kBars) ==
        kOneLoop + ", for parity 0" + kName +
            "2 of 2 arrivals missing, nobody has arrived yet (a wait for parity 1 would pass); "
            "called at "
            "/nowhere/lesson.cu:30; 63 threads of the block wait at the barrier at "
            "/nowhere/lesson.cu:40; waiting by thread (0,0,0) of block (0,0,0) in k");
  // Half of those who are due have come.
  CHECK(deadlock_of(named(waiter(2, "mbarrier.arrive.shared.b64 %rd1, [bars+8];\n")), {64, 1, 1},
                    kBars)
            .find(kOneLoop + ", for parity 0" + kName + "1 of 2 arrivals missing; called at") == 0);
  // One phase on.
  CHECK(deadlock_of(named(waiter(1, "mbarrier.arrive.shared.b64 %rd1, [bars+8];\n", 1)), {64, 1, 1},
                    kBars)
            .find(kOneLoop + ", for parity 1" + kName + "1 of 1 arrival missing; called at") == 0);
}

TEST_CASE("deadlock: bytes that an mbarrier waits for, announced and come") {
  const auto copies = [](int announced, int bytes) {
    return "mbarrier.arrive.expect_tx.shared.b64 %rd1, [bars+8], " + std::to_string(announced) +
           ";\ncp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%in], " +
           std::to_string(bytes) + ", [bars+8];\n";
  };
  const std::string before = kBars + ".shared .align 128 .b8 tile[1024];\n";
  CHECK(deadlock_of(named(waiter(1, copies(128, 512))), {64, 1, 1}, before)
            .find(kOneLoop + ", for parity 0" + kName +
                  "all arrivals have come, expect_tx has announced 128 bytes and 512 have come; "
                  "called") == 0);
  CHECK(deadlock_of(named(waiter(1, copies(512, 128))), {64, 1, 1}, before)
            .find("all arrivals have come, expect_tx has announced 512 bytes and 128 have come") !=
        std::string::npos);
  // What was announced in an earlier phase does not count.
  const std::string phases =
      copies(64, 64) +
      "FIRST: mbarrier.try_wait.parity.shared.b64 %p2, [bars+8], 0; @!%p2 bra FIRST;\n" +
      copies(32, 16);
  CHECK(deadlock_of(named(waiter(1, phases, 1)), {64, 1, 1}, before)
            .find("expect_tx has announced 32 bytes and 16 have come") != std::string::npos);
}

TEST_CASE("deadlock: a lane that holds a lock waits at __syncwarp for the lanes that want it") {
  const std::string message = deadlock_of(R"(
        .loc 1 10 1
TAKE:   atom.global.cas.b32 %r2, [%in], 0, 1;
        setp.ne.u32 %p2, %r2, 0;
        @%p2 bra TAKE;
        .loc 1 20 1
        bar.warp.sync 0xffffffff;
        atom.global.exch.b32 %r2, [%in], 0;)",
                                          {64, 1, 1});
  CHECK(message.find(kOneLoop) == 0);
  CHECK(message.find(
            "; 1 thread of the block waits at the __syncwarp at /nowhere/lesson.cu:20, for other "
            "lanes of the warp") != std::string::npos);
  CHECK(message.find("; 32 threads of other warps of the block wait for the same; ") !=
        std::string::npos);
}

TEST_CASE("deadlock: at a barrier that not all threads reach, where the others stand") {
  CHECK(deadlock_of(R"(
        setp.lt.u32 %p1, %thread, 32;
        @%p1 bra FIRST;
        .loc 1 10 1
        bar.sync 2, 64;
        bra END;
FIRST:  .loc 1 20 1
        bar.sync 1, 64;
END:)",
                    {64, 1, 1})
            .find("/nowhere/lesson.cu:20: error: deadlock: barrier 1 was reached by 32 of 64 "
                  "threads, and "
                  "no other thread can go on; 32 threads of the block wait at the barrier at "
                  "/nowhere/lesson.cu:10; waiting by thread (0,0,0)") == 0);
}
