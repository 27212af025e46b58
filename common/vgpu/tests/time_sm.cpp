// The SM simulator against short programs whose clocks are worked out by hand in the comments.
//
// Longer than 600 lines: the programs stand one instruction a line.
#include <doctest/doctest.h>

#include <ctime>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "../time/sm.h"

using namespace vgpu;
using namespace vgpu::time;
using Do = MemoryEvent::Mbarrier;

namespace {

// An H100 whose clocks are round, so that sums are easily seen; code is there at once.
Timing clocks() {
  DeviceSpec device;
  device.name = "test";
  device.tensor_tf32_fma_per_clock_sm = 1024;
  device.tensor_int8_fma_per_clock_sm = 4096;
  device.tensor_mma_sync_fp16_fma_per_clock_sm = 2048 / 1.5;
  device.tensor_mma_sync_fp16_fp32_sums_fma_per_clock_sm = 2048 / 1.5;
  Timing t = timing_of(device);
  REQUIRE(t.why == "");
  for (Constant* zero : {&t.block_stagger, &t.l0_miss, &t.code_latency, &t.code_line_clocks,
                         &t.constant_miss, &t.block_launch, &t.warp_launch, &t.store_latency})
    zero->value = 0;
  t.special_latency.value = 24;
  t.remote_shared_latency.value = 180;
  t.dram_written.value = 1;
  t.page_latency.value = 900;
  t.shared_latency.value = 30;
  t.l1_latency.value = 40;
  t.l2_latency.value = 260;
  t.dram_latency.value = 600;
  t.atomic_latency.value = 300;
  t.barrier_latency.value = 20;
  t.branch_latency.value = 8;
  t.mbarrier_latency.value = 25;
  t.bulk_latency.value = 500;
  t.bulk_interval.value = 4;
  t.tensor_line.value = 2;
  t.read_latency.value = 10;
  t.memory_issue.value = 2;
  t.memory_queue.value = 24;
  return t;
}

struct Bits {
  int stall = 1, write = 7, wait = 0, read = 7;
};

// A program, and what a warp of it executes: instructions by index, with their events.
struct Program {
  MachineCode code;
  std::deque<MemoryEvent> events;
  std::deque<std::vector<LinePiece>> lines;

  Program() { code.names = {""}; }
  std::uint32_t add(Kind kind, Bits bits = {}, const std::string& name = "") {
    MachineInstr instr;
    instr.kind = kind;
    instr.address = static_cast<std::uint32_t>(16 * code.code.size());
    instr.stall = static_cast<std::uint8_t>(bits.stall);
    instr.write_barrier = static_cast<std::uint8_t>(bits.write);
    instr.read_barrier = static_cast<std::uint8_t>(bits.read);
    instr.wait_mask = static_cast<std::uint8_t>(bits.wait);
    instr.name = static_cast<std::uint16_t>(code.names.size());
    code.names.push_back(name);
    code.code.push_back(instr);
    return static_cast<std::uint32_t>(code.code.size() - 1);
  }
  const MemoryEvent* shared(int wavefronts) {
    events.emplace_back().wavefronts = static_cast<std::uint16_t>(wavefronts);
    return &events.back();
  }
  // Whole lines, one after the other.
  MemoryEvent* global(std::uint64_t line, int count = 1, std::uint8_t sectors = 15) {
    auto& list = lines.emplace_back();
    for (int i = 0; i < count; ++i) list.push_back({line + static_cast<std::uint64_t>(i), sectors});
    events.emplace_back().lines = list;
    return &events.back();
  }
  const MemoryEvent* mbarrier(Do what, std::uint32_t count, std::uint32_t offset = 0) {
    MemoryEvent& event = events.emplace_back();
    event.mbarrier = what;
    event.offset = offset;
    (what == Do::wait ? event.phase : event.count) = count;
    return &event;
  }
  const MemoryEvent* copy(std::uint32_t bytes, std::uint32_t offset = 0) {
    MemoryEvent& event = events.emplace_back();
    event.mbarrier = Do::complete;
    event.offset = offset;
    event.bytes = bytes;
    return &event;
  }
};

class Listed : public WarpSteps {
 public:
  explicit Listed(const std::vector<Step>& steps) : steps_(steps) {}
  bool next(Step& step) override {
    if (at_ == steps_.size()) return false;
    step = steps_[at_++];
    return true;
  }

 private:
  const std::vector<Step>& steps_;
  std::size_t at_ = 0;
};

using Steps = std::vector<Step>;
// All instructions, the last `again` of them `times` times in all.
Steps straight(const Program& p) {
  Steps steps;
  for (std::uint32_t i = 0; i < p.code.code.size(); ++i) steps.push_back({i, nullptr, false});
  return steps;
}
Steps repeated(std::uint32_t instr, int times, const MemoryEvent* event = nullptr) {
  return Steps(static_cast<std::size_t>(times), {instr, event, false});
}
Steps operator+(Steps a, const Steps& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Setup {
  Timing timing = clocks();
  std::uint64_t blocks = 1;
  int resident = 1;
  std::uint64_t l1_bytes = 65536;
  double l2_miss = 0, l2_rate = 64, dram_rate = 16, l2_written = 0;
  int timeline = 0, cluster = 1;
  int times = 1;                // that a block has these warps
  std::vector<Steps> odd = {};  // warps of every other block, when they do something else
  std::function<bool(std::uint64_t line)> cold = {};
};

// warps[i]: steps of warp i of every block
SmResult run(const Program& p, const std::vector<Steps>& warps, const Setup& setup = {}) {
  SmRequest request;
  request.code = &p.code;
  request.timing = &setup.timing;
  request.blocks = setup.blocks;
  request.resident = setup.resident;
  request.l1_bytes = setup.l1_bytes;
  request.l2_miss = setup.l2_miss;
  request.l2_written = setup.l2_written;
  request.cold = setup.cold;
  request.l2_bytes_per_clock = setup.l2_rate;
  request.dram_bytes_per_clock = setup.dram_rate;
  request.timeline_blocks = setup.timeline;
  request.cluster_blocks = setup.cluster;
  request.block = [&](std::uint64_t n) {
    BlockSteps block;
    for (int i = 0; i < setup.times; ++i)
      for (const Steps& steps : n % 2 && !setup.odd.empty() ? setup.odd : warps)
        block.push_back(std::make_unique<Listed>(steps));
    return block;
  };
  SmResult result = simulate(request);
  CHECK(result.complete);
  return result;
}
SmResult same(const Program& p, const Steps& steps, int warps, const Setup& setup = {}) {
  return run(p, std::vector<Steps>(static_cast<std::size_t>(warps), steps), setup);
}
double stalled(const SmResult& r, Stall why) { return r.stalls[static_cast<std::size_t>(why)]; }

}  // namespace

TEST_CASE("sm: a chain of dependent FFMA takes its stall counts") {
  Program p;
  for (int i = 0; i < 10; ++i) p.add(Kind::fp32, {.stall = 4});
  p.add(Kind::exit);
  // FFMA at 0, 4, ... 36, EXIT at 40; it is over a clock later.
  const SmResult r = same(p, straight(p), 1);
  CHECK(r.clocks == 41);
  CHECK(r.issued == 11);
  CHECK(stalled(r, Stall::selected) == 11);
  CHECK(stalled(r, Stall::wait) == 30);
  CHECK(r.stuck == std::string());
  // A second warp on the same scheduler fits between: at 1, 5, ...
  CHECK(same(p, straight(p), 5).clocks == 42);
}

TEST_CASE("sm: independent FFMA of 1 to 16 warps are bound by issue") {
  Program p;
  const auto ffma = p.add(Kind::fp32), end = p.add(Kind::exit);
  const Steps steps = repeated(ffma, 100) + repeated(end, 1);
  // Two pipes of two clocks each take one a clock: 101 issues for each warp of a scheduler.
  CHECK(same(p, steps, 1).clocks == 101);
  CHECK(same(p, steps, 4).clocks == 101);
  CHECK(same(p, steps, 8).clocks == 202);
  const SmResult r = same(p, steps, 16);
  CHECK(r.clocks == 404);
  // Each clock three of four warps of a scheduler could issue and are not taken; fewer at the end.
  // Greedy: the second warp begins when the first has ended, at 101, the third at 202, then 303.
  CHECK(stalled(r, Stall::not_selected) == 4 * (101 + 202 + 303));
  // 64 lanes: one pipe, two clocks. The last FFMA at 198, EXIT a clock later.
  Setup slow;
  slow.timing.two_fma_pipes = false;
  slow.timing.fp32.value = 2;
  const SmResult half = same(p, steps, 1, slow);
  CHECK(half.clocks == 200);
  CHECK(stalled(half, Stall::math_pipe_throttle) == 99);
}

TEST_CASE("sm: integer multiplies share a pipe with FFMA, other integers do not") {
  Program p;
  const auto ffma = p.add(Kind::fp32), imad = p.add(Kind::imad), iadd = p.add(Kind::alu);
  Steps with_imad, with_alu;
  for (int i = 0; i < 100; ++i) {
    with_imad = with_imad + Steps{{ffma}, {ffma}, {imad}};
    with_alu = with_alu + Steps{{ffma}, {ffma}, {iadd}};
  }
  // FFMA at 0 and 1 take both pipes, IMAD must wait until 3 for the one that multiplies integers:
  // four clocks where three would do.
  CHECK(same(p, with_imad, 4).clocks == doctest::Approx(400).epsilon(0.02));
  // One of each, in turn: each has its pipe.
  Steps in_turn;
  for (int i = 0; i < 100; ++i) in_turn = in_turn + Steps{{ffma}, {imad}};
  CHECK(same(p, in_turn, 4).clocks == 200);
  CHECK(same(p, with_alu, 4).clocks == doctest::Approx(300).epsilon(0.02));
  // Only IMAD: two clocks each.
  CHECK(same(p, repeated(imad, 100), 4).clocks == 199);
  // A result of 64 bits: twice that.
  const auto wide = p.add(Kind::imad, {}, "IMAD.WIDE");
  p.code.code[wide].bytes = 8;
  CHECK(same(p, repeated(wide, 100), 4).clocks == 397);
  // 9.0's FP32 and IMAD on a device with one pipe: all three of two clocks.
  Setup one;
  one.timing.two_fma_pipes = false;
  one.timing.fp32.value = 2;
  CHECK(same(p, with_imad, 4, one).clocks == 599);
  CHECK(same(p, with_alu, 4, one).clocks == doctest::Approx(400).epsilon(0.02));
}

TEST_CASE("sm: halves share the pipe of integer multiplies where they have none of their own") {
  Program p;
  const auto hfma = p.add(Kind::fp16), imad = p.add(Kind::imad);
  Steps in_turn;
  for (int i = 0; i < 100; ++i) in_turn = in_turn + Steps{{hfma}, {imad}};
  Setup shared, own;
  shared.timing.half.value = own.timing.half.value = 2;
  shared.timing.half_on_fma = true;
  own.timing.half_on_fma = false;
  CHECK(same(p, in_turn, 4, own).clocks == 200);
  CHECK(same(p, in_turn, 4, shared).clocks == doctest::Approx(400).epsilon(0.01));
}

TEST_CASE("sm: what each pipe did, by Nsight Compute's names") {
  Program p;
  const auto ffma = p.add(Kind::fp32), imad = p.add(Kind::imad), iadd = p.add(Kind::alu),
             mufu = p.add(Kind::special), i2f = p.add(Kind::convert),
             s2r = p.add(Kind::special_register), bar = p.add(Kind::barrier),
             ldc = p.add(Kind::constant), bra = p.add(Kind::branch, {.stall = 5}),
             hmma = p.add(Kind::tensor, {}, "HMMA.16816.F32");
  const SmResult r = same(p,
                          repeated(ffma, 30) + repeated(imad, 10) + repeated(iadd, 20) +
                              Steps{{mufu}, {i2f}, {s2r}, {bar}, {ldc}, {bra}, {hmma}},
                          8);
  std::map<std::string, PipeUse> pipes;
  for (const PipeUse& pipe : r.pipes) pipes[std::string(pipe.name)] = pipe;
  REQUIRE(pipes.size() == 5);
  CHECK(pipes["fma"].issued == 8 * 40);
  CHECK(pipes["alu"].issued == 8 * 20);
  CHECK(pipes["xu"].issued == 8 * 2);
  CHECK(pipes["lsu"].issued == 8 * 2);  // S2R and BAR; LDC and branches go elsewhere
  CHECK(pipes["tensor"].issued == 8);
  // Two FMA pipes and one of the others in each of four schedulers; two clocks an instruction, 8
  // of the slow unit.
  CHECK(pipes["fma"].share == doctest::Approx(8 * 40 * 2 / (4 * 2 * r.clocks)));
  CHECK(pipes["alu"].share == doctest::Approx(8 * 20 * 2 / (4 * r.clocks)));
  CHECK(pipes["xu"].share == doctest::Approx(8 * 2 * 8 / (4 * r.clocks)));
  // A pipe that is always taken.
  const SmResult busy = same(p, repeated(ffma, 400), 8);
  REQUIRE(busy.pipes.size() == 1);
  CHECK(busy.pipes[0].share > 0.98);
}

TEST_CASE("sm: special functions take 8 clocks of their unit") {
  Program p;
  const auto mufu = p.add(Kind::special), end = p.add(Kind::exit);
  // 4 warps a scheduler, 10 each: 40 of 8 clocks, the last at 312, EXIT at 313.
  const SmResult r = same(p, repeated(mufu, 10) + repeated(end, 1), 16);
  CHECK(r.clocks == 314);
  CHECK(r.busy_by_kind[static_cast<std::size_t>(Kind::special)] == 4 * 40 * 8);
}

TEST_CASE("sm: a result is waited for by its scoreboard") {
  Program p;
  p.add(Kind::special, {.stall = 2, .write = 3});
  p.add(Kind::fp32, {.stall = 4, .wait = 1 << 3});
  // MUFU at 0, its result at 24: FFMA at 24, over at 25.
  const SmResult r = same(p, straight(p), 1);
  CHECK(r.clocks == 25);
  CHECK(stalled(r, Stall::wait) == 1);
  CHECK(stalled(r, Stall::short_scoreboard) == 22);
  // The wait is that of the FFMA.
  CHECK(r.stalls_by_instr[1][static_cast<std::size_t>(Stall::short_scoreboard)] == 22);
  // A scoreboard counts: with two writers the later one frees it. MUFU at 0 and 8, so 32.
  Program two;
  two.add(Kind::special, {.write = 3});
  two.add(Kind::special, {.write = 3});
  two.add(Kind::fp32, {.wait = 1 << 3});
  CHECK(same(two, straight(two), 1).clocks == 33);
}

TEST_CASE("sm: loads of shared memory, with and without bank conflicts") {
  Program p;
  const auto lds = p.add(Kind::shared_load, {.stall = 2, .write = 0});
  const auto use = p.add(Kind::fp32, {.stall = 4, .wait = 1});
  const auto chain = [&](int wavefronts) {
    Steps steps;
    for (int i = 0; i < 10; ++i) steps = steps + Steps{{lds, p.shared(wavefronts)}, {use}};
    return steps;
  };
  // A load and its use: 30 + 4 clocks, the last use at 9 * 34 + 30.
  CHECK(same(p, chain(1), 1).clocks == 337);
  // 32 wavefronts: the data of the last is there 31 clocks later.
  CHECK(same(p, chain(32), 1).clocks == 337 + 310);
  // 16 warps, 32 wavefronts each, 10 loads: the unit is busy all the time, but at the end, when
  // the warps that were taken last are alone with some loads.
  const SmResult r = same(p, chain(32), 16);
  CHECK(r.clocks >= 16 * 10 * 32 + 30);
  CHECK(r.clocks <= 16 * 10 * 32 * 1.1);
  CHECK(r.busy_by_kind[static_cast<std::size_t>(Kind::shared_load)] == 16 * 10 * 32);
  CHECK(stalled(r, Stall::mio_throttle) > 0);
  // The T4 moves 64 bytes a clock: two clocks a wavefront.
  Setup narrow;
  narrow.timing.wavefront_clocks.value = 2;
  const SmResult slow = same(p, chain(32), 16, narrow);
  CHECK(slow.clocks >= 16 * 10 * 64);
}

TEST_CASE("sm: atomic operations on shared memory have a latency of their own") {
  const auto clocks_of = [](Kind kind) {
    Program p;
    const auto access = p.add(kind, {.stall = 2, .write = 0});
    const auto use = p.add(Kind::fp32, {.stall = 4, .wait = 1});
    Setup setup;
    setup.timing.shared_latency.value = 30;
    setup.timing.shared_atomic_latency.value = 105;
    return run(p, {Steps{{access, p.shared(1)}, {use}}}, setup).clocks;
  };
  CHECK(clocks_of(Kind::shared_atomic) == clocks_of(Kind::shared_load) + 75);
}

TEST_CASE("sm: a barrier lets all warps go when the last has come") {
  Program p;
  const auto work = p.add(Kind::fp32, {.stall = 4}), bar = p.add(Kind::barrier),
             after = p.add(Kind::fp32);
  // Warp 0 comes at 0; warp 1 at 40 after ten FFMA. Both go on at 60.
  const SmResult r = run(p, {Steps{{bar}, {after}}, repeated(work, 10) + Steps{{bar}, {after}}});
  CHECK(r.clocks == 61);
  CHECK(stalled(r, Stall::barrier) == 59 + 19);
  CHECK(r.stalls_by_instr[bar][static_cast<std::size_t>(Stall::barrier)] == 78);
  // A warp that has ended is not waited for: it ends at 1, the other goes on at 21.
  CHECK(run(p, {Steps{{bar}, {after}}, Steps{{after}}}).clocks == 22);
  CHECK(run(p, {Steps{{bar}, {after}}, repeated(work, 10)}).clocks > 50);
  // Named barriers of 64 threads: warps 0 and 1 meet at one, 2 and 3 at another, which is late.
  MemoryEvent& one = p.events.emplace_back();
  one.barrier = 1, one.barrier_threads = 64;
  MemoryEvent& two = p.events.emplace_back();
  two.barrier = 2, two.barrier_threads = 64;
  const SmResult named =
      run(p,
          {Steps{{bar, &one}, {after}}, Steps{{bar, &one}, {after}}, Steps{{bar, &two}, {after}},
           repeated(work, 10) + Steps{{bar, &two}, {after}}},
          {.timeline = 1});
  CHECK(named.clocks == 61);
  for (const Activity& a : named.timeline)
    if (a.warp < 2) CHECK(a.end <= 21);
}

TEST_CASE("sm: who only arrives at a barrier goes on") {
  Program p;
  const auto arrive = p.add(Kind::barrier), sync = p.add(Kind::barrier),
             work = p.add(Kind::fp32, {.stall = 4});
  p.code.code[arrive].arrives_only = true;
  MemoryEvent& all = p.events.emplace_back();
  all.barrier = 3, all.barrier_threads = 64;
  // The producer arrives at 0 and works on until 40; the consumer comes at 8 and waits until 28.
  const SmResult r = run(p, {Steps{{arrive, &all}} + repeated(work, 10),
                             repeated(work, 2) + Steps{{sync, &all}, {work}}});
  CHECK(r.clocks == 38);
  CHECK(stalled(r, Stall::barrier) == 19);
}

TEST_CASE("sm: a chain of loads has the latency of where the data is") {
  Program p;
  const auto load = p.add(Kind::global_load, {.stall = 2, .write = 0, .wait = 1});
  Steps cold, warm;
  for (std::uint64_t i = 0; i < 10; ++i) cold.push_back({load, p.global(i * 100, 1, 1), false});
  for (int i = 0; i < 11; ++i) warm.push_back({load, p.global(7, 1, 1), false});
  // From the L2: the tenth issues at 9 * 260 and ends a clock later.
  CHECK(same(p, cold, 1).clocks == 9 * 260 + 1);
  // The first from the L2, nine more from the L1: the eleventh issues at 260 + 9 * 40.
  const SmResult r = same(p, warm, 1);
  CHECK(r.clocks == 260 + 9 * 40 + 1);
  CHECK(r.l1_sectors == 11);
  CHECK(r.l1_hits == 10);
  CHECK(r.l2_bytes == 32);
  // Without an L1 all come from the L2; from DRAM, 600.
  CHECK(same(p, warm, 1, {.l1_bytes = 0}).clocks == 2601);
  const SmResult dram = same(p, cold, 1, {.l2_miss = 1});
  CHECK(dram.clocks == 9 * 600 + 1);
  CHECK(dram.dram_bytes == 320);
  CHECK(stalled(dram, Stall::long_scoreboard) == 9 * 600 - 9 * 2 + 0);
}

TEST_CASE("sm: a second load of a line on its way waits for the same arrival") {
  Program p;
  const auto load = p.add(Kind::global_load, {.stall = 2, .write = 0});
  const auto use = p.add(Kind::fp32, {.wait = 1});
  // Both loads are of line 5: at 0 and 2. Its data is there at 260 (and 1.5 clocks of transfer),
  // not 40 after the second load, and the L2 is asked once.
  const SmResult r = same(p, Steps{{load, p.global(5)}, {load, p.global(5)}, {use}}, 1);
  CHECK(r.clocks == 263);
  CHECK(r.l2_bytes == 128);
  CHECK(r.l1_hits == 4);
}

TEST_CASE("sm: a stream is bound by the bandwidth, or by what is in flight") {
  Program p;
  const auto load = p.add(Kind::global_load, {.stall = 2, .write = 0, .wait = 1});
  // Each warp loads four lines and waits, 100 times; all other lines.
  const auto stream = [&](int warps, const Setup& setup) {
    std::vector<Steps> all;
    for (int w = 0; w < warps; ++w) {
      Steps steps;
      for (std::uint64_t i = 0; i < 100; ++i)
        steps.push_back({load, p.global((i * 64 + static_cast<std::uint64_t>(w)) * 4, 4), false});
      all.push_back(steps);
    }
    return run(p, all, setup);
  };
  // 64 warps: 64 * 100 * 512 bytes at 16 a clock from DRAM are 204,800 clocks, and a latency.
  const SmResult full = stream(64, {.l2_miss = 1});
  CHECK(full.clocks == doctest::Approx(204800).epsilon(0.01));
  CHECK(full.dram_bytes == 64 * 100 * 512);
  // Little's law: one warp has 512 bytes in flight over 600 clocks (and 31 of transfer), which is
  // far from 16 a clock.
  const SmResult one = stream(1, {.l2_miss = 1});
  CHECK(one.clocks == doctest::Approx(99 * 631).epsilon(0.01));
  CHECK(one.bytes_in_flight == doctest::Approx(512).epsilon(0.05));
  // From the L2, at 64 bytes a clock: a quarter of the time.
  CHECK(stream(64, {}).clocks == doctest::Approx(51200).epsilon(0.02));
  // No bound at all: latencies only.
  CHECK(stream(64, {.l2_rate = 0, .dram_rate = 0}).clocks < 40000);
  // A quarter from DRAM: both would take 51,200 clocks, but the 32 KiB in flight of 64 warps come
  // only every 600 clocks, and 8 for a warp's own transfer.
  const SmResult quarter = stream(64, {.l2_miss = 0.25});
  CHECK(quarter.clocks == doctest::Approx(60800).epsilon(0.005));
  CHECK(quarter.dram_bytes == 64 * 100 * 128);
}

TEST_CASE("sm: stores are not waited for, but take bandwidth") {
  Program p;
  const auto store = p.add(Kind::global_store, {.stall = 2});
  Steps steps;
  for (std::uint64_t i = 0; i < 400; ++i) steps.push_back({store, p.global(4 * i, 4), false});
  // 400 * 512 bytes at 64 a clock: 3,200 clocks; the end waits for the last.
  const SmResult r = same(p, steps, 1);
  CHECK(r.clocks == doctest::Approx(3200).epsilon(0.01));
  CHECK(r.l2_bytes == 400 * 512);
  // The L2's answer to the last of them.
  Setup answer;
  answer.timing.store_latency.value = 200;
  CHECK(same(p, steps, 1, answer).clocks == r.clocks + 200);
  CHECK(stalled(r, Stall::drain) + stalled(r, Stall::lg_throttle) > 1000);
}

TEST_CASE("sm: requests of many lines keep the load/store unit") {
  Program p;
  const auto load = p.add(Kind::global_load, {.stall = 2, .write = 0, .wait = 1});
  // A gather of 32 lines, a sector of each: 32 clocks of the tags, from an L1 that has them 40 + 31.
  Steps steps;
  for (int i = 0; i < 11; ++i) steps.push_back({load, p.global(0, 32, 1), false});
  const SmResult r = same(p, steps, 1);
  CHECK(r.busy_by_kind[static_cast<std::size_t>(Kind::global_load)] == 11 * 32);
  // The first load from the L2: 260 clocks, and half a clock for each of 31 more sectors.
  CHECK(r.clocks == 260 + 16 + 31 + 9 * 71 + 1);
  // 16 load/store units: two clocks for each instruction, whatever it asks for.
  Setup few;
  few.timing.request_clocks.value = 2;
  const auto free = p.add(Kind::global_load, {.stall = 2, .write = 0});
  CHECK(same(p, repeated(free, 100, p.global(0, 1, 1)), 4, few).clocks ==
        doctest::Approx(800).epsilon(0.05));
  CHECK(same(p, repeated(free, 100, p.global(0, 1, 1)), 4).clocks ==
        doctest::Approx(400).epsilon(0.07));
}

TEST_CASE("sm: tensor rates by the device's figures, whatever its name") {
  DeviceSpec spec;
  spec.name = "NVIDIA GeForce";
  // peak: by the fastest instruction; of mma.sync with sums in fp16, with sums in fp32.
  const auto at = [&](int cc, double peak, double halves, double sums, const char* instr) {
    spec.major = cc / 10, spec.minor = cc % 10;
    spec.tensor_fp16_fma_per_clock_sm = peak;
    spec.tensor_mma_sync_fp16_fma_per_clock_sm = halves;
    spec.tensor_mma_sync_fp16_fp32_sums_fma_per_clock_sm = sums;
    spec.tensor_int8_fma_per_clock_sm = 2 * peak;
    spec.tensor_tf32_fma_per_clock_sm = peak / 2;
    const Timing t = timing_of(spec);
    CHECK(t.why == "");
    return doctest::Approx(t.tensor_interval(instr));
  };
  const double two_thirds = 2048 / 1.5;
  CHECK(at(90, 2048, two_thirds, two_thirds, "HMMA.16816.F32") == 6);
  CHECK(at(90, 2048, two_thirds, two_thirds, "HMMA.1688.F32.TF32") == 6);
  CHECK(at(80, 1024, 1024, 1024, "HMMA.16816.F32.BF16") == 8);
  CHECK(at(80, 1024, 1024, 1024, "IMMA.16832.S8.S8") == 8);
  CHECK(at(75, 512, 512, 512, "HMMA.1688.F32") == 8);
  CHECK(at(86, 512, 512, 512, "HMMA.16816.F32") == 16);
  CHECK(at(86, 512, 512, 256, "HMMA.16816.F32") == 32);
  CHECK(at(89, 512, 512, 256, "HMMA.16816.F16") == 16);
  CHECK(at(120, 512, 512, 256, "HMMA.16816.F32") == 32);
  // 8 x 8 x 4 doubles on the A100's 64 a clock and SM; sparse halves, twice the product in the
  // time.
  spec.fp64_fma_per_clock_sm = 32;
  CHECK(at(80, 1024, 1024, 1024, "DMMA") == 16);
  CHECK(at(80, 1024, 1024, 1024, "HMMA.SP.16832.F32") == 8);
  // Two warps a scheduler, ten each: 20 of 6 clocks, the last at 114; then its end.
  Program p;
  const auto hmma = p.add(Kind::tensor, {}, "HMMA.16816.F32");
  CHECK(same(p, repeated(hmma, 10), 8).clocks == 115);
  // An interval with a fraction is kept on average: m8n8k16 of int8 in 1.5 clocks.
  Program q;
  const auto imma = q.add(Kind::tensor, {}, "IMMA.8816.S8.S8");
  CHECK(same(q, repeated(imma, 101), 4).clocks == 151);
}

// A product of a warpgroup, m64 n k16 in fp16 unless said otherwise.
std::uint32_t add_product(Program& p, int n, bool reads_a, bool commits,
                          Tensor::Input input = Tensor::Input::f16) {
  const auto id = p.add(Kind::tensor, {}, "HGMMA");
  const auto all = all_tensors();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Tensor& t) {
    return t.of_warpgroup() && t.n == n && t.input == input && t.sum != Tensor::Sum::f16;
  });
  REQUIRE(found != all.end());
  MachineInstr& instr = p.code.code[id];
  instr.flavour = static_cast<std::uint16_t>(found - all.begin() + 1);
  instr.reads_a = reads_a;
  instr.commits = commits;
  return id;
}

TEST_CASE("sm: products of a warpgroup take the peak rate, or what shared memory gives") {
  using In = Tensor::Input;
  const struct {
    int n;
    bool reads_a;
    In input;
    double clocks;
  } rows[] = {
      {256, true, In::f16, 128},                            // 64 x 256 x 16 products, 2048 a clock
      {256, false, In::f16, 128}, {64, true, In::f16, 32},  // 4 KiB at 128 bytes a clock: also 32
      {32, true, In::f16, 24},    {32, false, In::f16, 16},   {8, true, In::f16, 18},
      {256, true, In::bf16, 128}, {256, true, In::tf32, 128}, {256, true, In::fp8, 128},
      {256, true, In::s8, 128},   {256, true, In::b1, 128}};
  const Timing t = clocks();
  for (const auto& row : rows) {
    CAPTURE(row.n);
    CAPTURE(static_cast<int>(row.input));
    Program p;
    const auto product = add_product(p, row.n, row.reads_a, false, row.input);
    // Ten of each of four warps, one a scheduler: the last issues when nine are done.
    CHECK(same(p, repeated(product, 11), 4).clocks == doctest::Approx(10 * row.clocks + 1));
    // Those of a second warpgroup take their turns.
    CHECK(same(p, repeated(product, 5), 8).clocks == doctest::Approx(9 * row.clocks + 1));
  }
  CHECK(t.tensor_interval("HMMA.16816.F32") == doctest::Approx(6));
}

TEST_CASE("sm: the warps of a warpgroup wait for each other, and multiply at once") {
  Program p;
  const auto product = add_product(p, 64, true, true), arrive = p.add(Kind::warpgroup),
             wait = p.add(Kind::warpgroup), alu = p.add(Kind::alu);
  p.code.code[arrive].arrives_only = true;
  const Steps group = {{arrive}, {product}, {wait}};
  const double latency = clocks().tensor_latency.value;
  CHECK(same(p, group, 4).clocks == doctest::Approx(1 + 32 + latency + 1));
  // One of them is 200 clocks late, at the meeting or at the product.
  for (const bool meets : {true, false}) {
    const Steps late = meets ? repeated(alu, 100) + group
                             : Steps{{arrive}} + repeated(alu, 100) + Steps{{product}, {wait}};
    const SmResult r = run(p, {group, group, late, group});
    CHECK(r.clocks == doctest::Approx(199 + 32 + latency + 2).epsilon(0.02));
    CHECK(stalled(r, meets ? Stall::barrier : Stall::math_pipe_throttle) > 3 * 190);
  }
}

TEST_CASE("sm: operands of products and copies share the port of shared memory") {
  Program p;
  const auto product = add_product(p, 64, true, false), expect = p.add(Kind::mbarrier),
             copy = p.add(Kind::bulk_copy, {}, "UBLKCP");
  // Products of 32 clocks, each of which reads 4 KiB, and copies of 4 KiB, which take 32 more.
  const auto clocks_with = [&](int copies) {
    Steps first = Steps{{expect, p.mbarrier(Do::init, 1)}};
    first = first + repeated(copy, copies, p.copy(4096)) + repeated(product, 100);
    const Steps other = Steps{{expect}} + repeated(product, 100);
    return run(p, {first, other, other, other}).clocks;
  };
  const double alone = clocks_with(0);
  CHECK(alone == doctest::Approx(99 * 32).epsilon(0.02));
  CHECK(clocks_with(8) - alone == doctest::Approx(8 * 32).epsilon(0.1));  // (More wait for the L2.)
}

TEST_CASE("sm: the first access to a page waits for its address") {
  Program p;
  const auto load = p.add(Kind::global_load, {.write = 0}), use = p.add(Kind::fp32, {.wait = 1});
  const Steps steps = {{load, p.global(1)}, {use}, {load, p.global(2)}, {use}};
  Setup setup;
  const double known = same(p, steps, 1, setup).clocks;
  setup.cold = [](std::uint64_t) { return true; };
  CHECK(same(p, steps, 1, setup).clocks == known + 900);
  setup.cold = [](std::uint64_t line) { return line > 1; };  // in the same page
  CHECK(same(p, steps, 1, setup).clocks == known);
}

TEST_CASE("sm: a warp waits for groups of products, and does other things meanwhile") {
  Program p;
  const auto product = add_product(p, 256, true, true), alu = p.add(Kind::alu),
             wait_one = p.add(Kind::warpgroup), wait_all = p.add(Kind::warpgroup),
             arrive = p.add(Kind::warpgroup);
  p.code.code[wait_one].pending = 1;
  p.code.code[arrive].arrives_only = true;
  const double latency = clocks().tensor_latency.value;
  const auto clocks_of = [&](const Steps& steps) { return same(p, steps, 4).clocks; };
  CHECK(clocks_of(Steps{{product}, {wait_all}, {alu}}) == doctest::Approx(128 + latency + 2));
  // 40 ALU instructions take 80 clocks: they are done long before the product.
  CHECK(clocks_of(Steps{{arrive}, {product}} + repeated(alu, 40) + Steps{{wait_all}, {alu}}) ==
        doctest::Approx(1 + 128 + latency + 2));
  // With one group left the first product is waited for, with none the second.
  CHECK(clocks_of(Steps{{product}, {product}, {wait_one}, {alu}}) ==
        doctest::Approx(128 + latency + 2));
  CHECK(clocks_of(Steps{{product}, {product}, {wait_one}, {wait_all}, {alu}}) ==
        doctest::Approx(2 * 128 + latency + 2));
  const SmResult r = same(p, Steps{{product}, {wait_all}}, 4);
  CHECK(stalled(r, Stall::math_pipe_throttle) > 4 * 128);
}

TEST_CASE("sm: groups of asynchronous copies") {
  Program p;
  const auto copy = p.add(Kind::async_copy, {.stall = 2}),
             commit = p.add(Kind::async_commit, {.stall = 2}),
             one_left = p.add(Kind::async_wait, {.stall = 2}),
             none_left = p.add(Kind::async_wait, {.stall = 2});
  p.code.code[one_left].pending = 1;
  const auto lines = [&](std::uint64_t line) {
    MemoryEvent* event = p.global(line, 1, 1);
    event->wavefronts = 0;
    return event;
  };
  // Copies at 0 and 4, each a group of its own, there at 260 and 264.
  const Steps first = {{copy, lines(0)}, {commit}, {copy, lines(10)}, {commit}};
  CHECK(same(p, first + Steps{{one_left}}, 1).clocks == 261);
  const SmResult r = same(p, first + Steps{{none_left}}, 1);
  CHECK(r.clocks == 265);
  CHECK(stalled(r, Stall::long_scoreboard) == 264 - 8);
  // After the first group has been waited for, one group is left: nothing more to wait for.
  CHECK(same(p, first + Steps{{one_left}, {one_left}}, 1).clocks == 263);
}

// What a warp executes around a bulk copy: makes an mbarrier, announces the bytes, copies, waits, uses them.
struct CopyInstructions {
  std::uint32_t init, expect, copy, wait, use;
};
static CopyInstructions copy_instructions(Program& p) {
  return {p.add(Kind::mbarrier, {.stall = 2}), p.add(Kind::mbarrier, {.stall = 2}),
          p.add(Kind::bulk_copy, {.stall = 2}), p.add(Kind::mbarrier, {.stall = 2, .write = 0}),
          p.add(Kind::fp32, {.stall = 4, .wait = 1})};
}

TEST_CASE("sm: a ring of buffers between a producer of bulk copies and a consumer") {
  Program p;
  const auto [init, expect, copy, wait, use] = copy_instructions(p);
  const auto arrive = p.add(Kind::mbarrier, {.stall = 2}), bar = p.add(Kind::barrier, {.stall = 2});
  constexpr std::uint32_t kFull = 0, kEmpty = 8;
  const auto ring = [&](std::uint32_t rounds) {
    Steps producer = {
        {init, p.mbarrier(Do::init, 1, kFull)}, {init, p.mbarrier(Do::init, 1, kEmpty)}, {bar}};
    Steps consumer = {{bar}};
    for (std::uint32_t i = 1; i <= rounds; ++i) {
      if (i > 1) producer = producer + Steps{{wait, p.mbarrier(Do::wait, i - 1, kEmpty)}, {use}};
      producer = producer + Steps{{expect, p.mbarrier(Do::arrive_expect, 6400, kFull)},
                                  {copy, p.copy(6400, kFull)}};
      consumer = consumer + Steps{{wait, p.mbarrier(Do::wait, i, kFull)},
                                  {use},
                                  {arrive, p.mbarrier(Do::arrive, 1, kEmpty)}};
    }
    return run(p, {producer, consumer});
  };
  // A round: the copy's 500 clocks and 99.5 of transfer, 25 until the consumer sees it, use and
  // arrive 4 later, 25 until the producer sees that, use, expect and copy 6 later.
  const SmResult r10 = ring(10), r20 = ring(20);
  CHECK(r10.stuck == std::string());
  CHECK((r20.clocks - r10.clocks) / 10 == doctest::Approx(600 + 25 + 4 + 25 + 6).epsilon(0.005));
  CHECK(r20.l2_bytes == 20 * 6400);
  CHECK(stalled(r20, Stall::long_scoreboard) > 20 * 600);
}

TEST_CASE(
    "sm: a tensor copy takes the engine for each line, the L2 for each sector, and tells all of "
    "its bytes") {
  Program p;
  const auto [init, expect, copy, wait, use] = copy_instructions(p);
  const auto clocks = [&](std::uint32_t rows, std::uint32_t sectors_of_row, std::uint32_t bytes) {
    auto box = *p.copy(bytes, 0);
    box.tensor = true;
    box.sectors = rows * sectors_of_row;
    box.requests = rows;
    const SmResult r = same(p,
                            {{init, p.mbarrier(Do::init, 1, 0)},
                             {expect, p.mbarrier(Do::arrive_expect, bytes, 0)},
                             {copy, &box},
                             {wait, p.mbarrier(Do::wait, 1, 0)},
                             {use}},
                            1);
    CHECK(r.stuck == std::string());
    CHECK(r.l2_bytes == 32 * rows * sectors_of_row);
    return r.clocks;
  };
  // 64 bytes a clock from the L2. Rows of a line take it 2 clocks, as long as the engine; rows of a
  // sector half a clock, so that the engine is what takes 2.
  const double none = clocks(0, 0, 4096);  // all of the box is outside
  CHECK(clocks(100, 4, 12800) - none == doctest::Approx(200).epsilon(0.02));
  CHECK(clocks(100, 1, 3200) - none == doctest::Approx(200).epsilon(0.02));
  CHECK(clocks(50, 1, 1600) - none == doctest::Approx(100).epsilon(0.02));
}

TEST_CASE("sm: bulk copies share L2 and DRAM as loads and stores do") {
  Program p;
  const auto [init, expect, copy, wait, use] = copy_instructions(p);
  MemoryEvent box = *p.copy(4096);
  box.tensor = true;
  box.sectors = 128, box.requests = 32;
  MemoryEvent sent = *p.copy(4096);
  sent.sent = true;
  // All at once, one barrier for all.
  const auto stream = [&](const MemoryEvent* event, const Setup& setup) {
    return run(p,
               {Steps{{init, p.mbarrier(Do::init, 1)},
                      {expect, p.mbarrier(Do::arrive_expect, 4096 * 100)}} +
                repeated(copy, 100, event) + Steps{{wait, p.mbarrier(Do::wait, 1)}, {use}}},
               setup);
  };
  for (const MemoryEvent* event : {p.copy(4096), static_cast<const MemoryEvent*>(&box)}) {
    CAPTURE(event->tensor);
    // 100 * 4096 bytes at 64 a clock from the L2, and 500 clocks for the last; at 16 from DRAM, which
    // answers 340 clocks later. The engine takes 4 clocks for a box, and 2 for each of its 32 lines.
    const double l2 = event->tensor ? 6800 : 6400;
    CHECK(stream(event, {}).clocks == doctest::Approx(l2 + 500).epsilon(0.01));
    const SmResult dram = stream(event, {.l2_miss = 1});
    CHECK(dram.clocks == doctest::Approx(25600 + 840).epsilon(0.005));
    CHECK(dram.dram_bytes == 100 * 4096);
    CHECK(dram.l2_bytes == 100 * 4096);
    // Half of the lines: DRAM is still what takes long.
    const SmResult half = stream(event, {.l2_miss = 0.5});
    CHECK(half.clocks == doctest::Approx(12800 + 840).epsilon(0.01));
    CHECK(half.dram_bytes == 50 * 4096);
    // What stores write to DRAM is nothing to copies that bring data.
    CHECK(stream(event, {.l2_written = 1}).dram_bytes == 0);
  }
  // From another block's shared memory nothing comes through the L2.
  CHECK(stream(&sent, {.l2_miss = 1}).l2_bytes == 0);

  // The other way nobody waits for DRAM, but 32 KiB at most wait before it. The warp's end waits for the
  // L2's answer.
  MemoryEvent out = box, plain;
  out.mbarrier = Do::none;
  plain.bytes = 4096;
  for (const MemoryEvent* event : {&plain, &out}) {
    CAPTURE(event->tensor);
    const auto stores = [&](const Setup& setup) {
      return same(p, repeated(copy, 100, event), 1, setup);
    };
    CHECK(stores({}).clocks == doctest::Approx(event->tensor ? 6800 : 6400).epsilon(0.01));
    CHECK(stores({.l2_miss = 1}).dram_bytes == 0);
    const SmResult dram = stores({.l2_written = 1});
    CHECK(dram.dram_bytes == 100 * 4096);
    CHECK(dram.clocks == doctest::Approx(25600 - 32768 / 16).epsilon(0.02));
    Setup answer;
    answer.timing.store_latency.value = 200;
    CHECK(stores(answer).clocks == stores({}).clocks + 200);
  }
}

TEST_CASE("sm: bulk copies between the blocks of a cluster") {
  Program p;
  const auto [init, expect, copy, wait, use] = copy_instructions(p);
  Setup setup;
  setup.timing.remote_shared_latency.value = 180;
  setup.timing.remote_bytes_per_clock.value = 16;
  const auto clocks = [&](const MemoryEvent* announced, const MemoryEvent* copied) {
    Steps steps = {{init, p.mbarrier(Do::init, 1)}, {expect, announced}};
    if (copied) steps.push_back({copy, copied});
    const SmResult r = same(p, steps + Steps{{wait, p.mbarrier(Do::wait, 1)}, {use}}, 1, setup);
    CHECK(r.stuck == std::string());
    CHECK(r.assumed == 0);
    return std::pair{r.clocks, r.l2_bytes};
  };
  const MemoryEvent* const all = p.mbarrier(Do::arrive_expect, 12800);
  // 12800 bytes from the L2, 64 a clock: 200 clocks.
  const auto alone = clocks(all, p.copy(12800));
  CHECK(alone.second == 12800);
  // In a multicast by halves each block asks for one, and the L2 gives it once. Both come together.
  MemoryEvent half = *p.copy(6400);
  half.blocks = 3, half.from_others = 6400;
  const auto halves = clocks(all, &half);
  CHECK(halves.second == 6400);
  CHECK(alone.first - halves.first == doctest::Approx(100).epsilon(0.02));
  // The engine takes two clocks for each line that comes, whoever has asked for it: 50 lines of its own
  // box and 50 of others, 200 clocks before the latency, as long as a box of 100 lines.
  MemoryEvent box = half, whole = *p.copy(12800);
  box.tensor = whole.tensor = true;
  box.requests = 50, box.sectors = 200, whole.requests = 100, whole.sectors = 400;
  CHECK(clocks(all, &box).first == doctest::Approx(clocks(all, &whole).first).epsilon(0.01));
  // A block that only gets what another one copies waits as long as if it had asked itself, when it
  // announced the bytes: 2 clocks earlier than the copy could issue.
  MemoryEvent announced = *all;
  announced.from_others = 12800;
  const auto given = clocks(&announced, nullptr);
  CHECK(given.second == 0);
  CHECK(given.first == doctest::Approx(alone.first).epsilon(0.01));
  // From shared memory to the other block's, and as much from there: 12800 bytes, 16 a clock, 180 clocks
  // away, and what the engine takes longer than a load.
  MemoryEvent sent = *p.copy(12800);
  sent.blocks = 2, sent.sent = true, sent.from_others = 12800;
  const auto exchanged = clocks(all, &sent);
  CHECK(exchanged.second == 0);
  CHECK(exchanged.first - alone.first ==
        doctest::Approx((800 + 180 + 500 - 260) - (500 + 200)).epsilon(0.01));
  // An arrival at another block's mbarrier stands for one from there, which comes by the network.
  const auto arrival = [&](std::uint8_t home) {
    MemoryEvent here = *p.mbarrier(Do::arrive, 1);
    here.home = home;
    return same(p,
                {{init, p.mbarrier(Do::init, 1)},
                 {expect, &here},
                 {wait, p.mbarrier(Do::wait, 1)},
                 {use}},
                1, setup)
        .clocks;
  };
  CHECK(arrival(1) - arrival(0) == doctest::Approx(180).epsilon(0.15));
}

TEST_CASE("sm: blocks take the places of those that have ended") {
  Program p;
  const auto work = p.add(Kind::fp32, {.stall = 4});
  const Steps steps = repeated(work, 100);
  // One block: the last FFMA at 396, over at 397. Seven on two places, each with its own scheduler
  // to itself: four rounds, the last with one block.
  Setup setup{.blocks = 7, .resident = 2};
  const SmResult r = same(p, steps, 1, setup);
  CHECK(r.clocks == 4 * 397);
  CHECK(r.block_begin == std::vector<double>{0, 0, 397, 397, 794, 794, 1191});
  CHECK(r.block_end == std::vector<double>{397, 397, 794, 794, 1191, 1191, 1588});
  // Warps begin one after the other: of two, the second 30 clocks late.
  setup.timing.warp_launch.value = 30;
  CHECK(same(p, steps, 2, setup).clocks == 4 * 427);
  setup.timing.warp_launch.value = 0;
  // A launch of 100 clocks before each but the first.
  setup.timing.block_launch.value = 100;
  CHECK(same(p, steps, 1, setup).clocks == 4 * 397 + 300);
  // The second place's first block begins 50 clocks later, and keeps that distance.
  setup.timing.block_stagger.value = 50;
  CHECK(same(p, steps, 1, setup).block_begin[3] == 547);
  CHECK(same(p, steps, 1, {.blocks = 0}).clocks == 0);
}

TEST_CASE("sm: what never comes is said") {
  Program p;
  const auto bar = p.add(Kind::barrier), wait = p.add(Kind::mbarrier, {.write = 0}),
             use = p.add(Kind::fp32, {.wait = 1});
  MemoryEvent& more = p.events.emplace_back();
  more.barrier_threads = 96;
  CHECK(same(p, Steps{{bar, &more}, {use}}, 2).stuck ==
        std::string("a barrier that not enough warps reach"));
  const Steps never = {{wait, p.mbarrier(Do::wait, 1)}, {use}};
  CHECK(same(p, never, 1).stuck == std::string("the phase of an mbarrier that is never complete"));
  // In a cluster whose other block is not on this SM the phase is taken to come.
  const SmResult r = same(p, never, 1, {.cluster = 2});
  CHECK(r.stuck == std::string());
  CHECK(r.assumed == 1);
  CHECK(r.clocks > 180);
  CHECK(r.clocks < 300);
}

TEST_CASE("sm: mbarriers of the other block of a cluster") {
  Program p;
  const auto arrive = p.add(Kind::mbarrier), wait = p.add(Kind::mbarrier, {.write = 0}),
             use = p.add(Kind::fp32, {.wait = 1});
  // Both blocks arrive at the mbarrier of the block of rank 1: that one's own arrival at 1, the
  // other's, sent at 0, 180 clocks later. The wait sees it after 25, its use issues at 205.
  MemoryEvent init = *p.mbarrier(Do::init, 2), here = *p.mbarrier(Do::arrive, 1),
              there = *p.mbarrier(Do::wait, 1);
  for (MemoryEvent* event : {&init, &here, &there}) event->home = 1;
  const Steps of_0 = {{arrive, &here}},
              of_1 = {{arrive, &init}, {arrive, &here}, {wait, &there}, {use}};
  const SmResult r = run(p, {of_0, Steps{{use}}},
                         {.blocks = 2, .resident = 2, .cluster = 2, .odd = {of_1, Steps{{use}}}});
  CHECK(r.assumed == 0);
  CHECK(r.stuck == std::string());
  CHECK(r.clocks == 206);
}

TEST_CASE("sm: a cluster's barrier, arrival and wait apart") {
  Program p;
  const auto arrive = p.add(Kind::cluster_barrier, {}, "UCGABAR_ARV"),
             wait = p.add(Kind::cluster_barrier, {}, "UCGABAR_WAIT"),
             work = p.add(Kind::fp32, {.stall = 4});
  Setup setup;
  setup.timing.cluster_barrier_latency.value = 190;
  // Warp 1 arrives at 40, so both go on at 230, and again: at 230 both arrive, until 420 (the wait
  // issues at 231 and changes nothing).
  const Steps twice = {{arrive}, {wait}, {arrive}, {wait}, {work}};
  const SmResult r = run(p, {twice, repeated(work, 10) + twice}, setup);
  CHECK(r.clocks == 421);
  // Who comes to the wait long after the others arrived does not wait at all.
  const SmResult late = run(p,
                            {Steps{{arrive}} + repeated(work, 100) + Steps{{wait}, {work}},
                             Steps{{arrive}, {wait}, {work}}},
                            setup);
  CHECK(late.clocks == 403);
  CHECK(late.stalls_by_instr[wait][static_cast<std::size_t>(Stall::barrier)] == 188);
}

TEST_CASE("sm: stores that count at an mbarrier once they are there") {
  Program p;
  const auto init = p.add(Kind::mbarrier, {.stall = 2}), store = p.add(Kind::shared_store),
             wait = p.add(Kind::mbarrier, {.write = 0}), use = p.add(Kind::fp32, {.wait = 1});
  MemoryEvent& far = p.events.emplace_back();
  far.remote_lanes = 1;
  far.mbarrier = Do::complete;
  far.offset = 0;
  far.bytes = 128;
  // expect at 2, the store at 4: there at 184 (180 of the network), seen at 209.
  const SmResult r = same(p,
                          Steps{{init, p.mbarrier(Do::init, 1)},
                                {init, p.mbarrier(Do::arrive_expect, 128)},
                                {store, &far},
                                {wait, p.mbarrier(Do::wait, 1)},
                                {use}},
                          1);
  CHECK(r.clocks == 210);
}

TEST_CASE("sm: a jump waits for its branch, and for code that is not there") {
  Program p;
  std::uint32_t work = 0;
  for (int i = 0; i < 15; ++i) work = p.add(Kind::fp32);
  const auto branch = p.add(Kind::branch, {.stall = 5});
  Steps loop;
  for (int n = 0; n < 10; ++n)
    for (std::uint32_t i = 0; i <= branch; ++i) loop.push_back({i});
  // 15 FFMA, then BRA: 15 + 8 clocks a round, and a clock after the last BRA.
  CHECK(same(p, loop, 1).clocks == 9 * 23 + 16);
  // A branch that falls through costs its stall count.
  CHECK(same(p, Steps{{work}, {branch}} + Steps{{branch + 1 - 16}}, 1).clocks == 10);
  // Two lines of code: the first from the L2 in 260 clocks, the second 16 clocks after it; both are
  // in the L0 from then on.
  Setup cold;
  cold.timing.code_latency.value = 260;
  cold.timing.code_line_clocks.value = 16;
  cold.timing.l0_miss.value = 20;
  const SmResult r = same(p, loop, 1, cold);
  CHECK(r.clocks == 260 + 8 + 9 * 23 + 16);
  CHECK(stalled(r, Stall::no_instructions) == 260 + 8);
}

TEST_CASE("sm: a false guard takes an issue slot, but no memory") {
  Program p;
  const auto load = p.add(Kind::global_load, {.stall = 1, .write = 0});
  const auto use = p.add(Kind::fp32, {.wait = 1});
  const SmResult r = same(p, Steps{{load, nullptr, true}, {use}}, 1);
  CHECK(r.clocks == 3);
  CHECK(r.issued == 2);
  CHECK(r.l2_bytes == 0);
}

TEST_CASE("sm: all warp clocks are accounted for, and runs are the same") {
  Program p;
  const auto load = p.add(Kind::global_load, {.stall = 2, .write = 0}),
             lds = p.add(Kind::shared_load, {.stall = 2, .write = 1}),
             mufu = p.add(Kind::special, {.stall = 1, .write = 2}),
             ffma = p.add(Kind::fp32, {.stall = 4, .wait = 7}), bar = p.add(Kind::barrier),
             store = p.add(Kind::global_store, {.stall = 1, .wait = 7, .read = 3}),
             branch = p.add(Kind::branch, {.stall = 5, .wait = 8});
  std::vector<Steps> warps;
  for (std::uint64_t w = 0; w < 12; ++w) {
    Steps steps;
    for (std::uint64_t i = 0; i < 50; ++i)
      steps = steps + Steps{{load, p.global(i * 12 + w, 2)},
                            {lds, p.shared(1 + static_cast<int>(w % 3))},
                            {mufu},
                            {mufu},
                            {ffma},
                            {bar},
                            {store, p.global(9000 + i * 12 + w)},
                            {branch}};
    warps.push_back(steps);
  }
  Setup setup{.blocks = 5, .resident = 2, .l2_miss = 0.5, .timeline = 5};
  setup.timing.code_latency.value = 260;
  const SmResult a = run(p, warps, setup), b = run(p, warps, setup);
  CHECK(a.clocks == b.clocks);
  CHECK(a.stalls == b.stalls);
  CHECK(a.block_end == b.block_end);
  // What the reasons say sums up to what the timeline says: no clock of a warp is lost or double.
  double reasons = 0, timeline = 0;
  for (const double clocks_of_reason : a.stalls) reasons += clocks_of_reason;
  const Activity* before = nullptr;
  for (const Activity& now : a.timeline) {
    timeline += static_cast<double>(now.end - now.begin);
    if (before && before->block == now.block && before->warp == now.warp)
      CHECK(before->end == now.begin);
    before = &now;
  }
  CHECK(reasons == doctest::Approx(timeline));
  CHECK(stalled(a, Stall::selected) == static_cast<double>(a.issued));
  // Warps live from their block's begin to their own end.
  double most = 0;
  for (std::size_t i = 0; i < 5; ++i) most += 12 * (a.block_end[i] - a.block_begin[i]);
  CHECK(reasons <= most);
  CHECK(reasons > 0.9 * most);
}

TEST_CASE("sm: programs of anything end, the same each time, or say what they wait for") {
  std::uint32_t seed = 1;
  const auto any = [&](std::uint32_t below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
  };
  int ended = 0;
  for (int turn = 0; turn < 200; ++turn) {
    Program p;
    const std::uint32_t length = 5 + any(60);
    for (std::uint32_t i = 0; i < length; ++i) {
      const auto kind = static_cast<Kind>(any(static_cast<std::uint32_t>(Kind::unknown) + 1));
      const auto id = p.add(kind,
                            {.stall = static_cast<int>(any(16)),
                             .write = static_cast<int>(any(8)),
                             .wait = static_cast<int>(any(64)),
                             .read = static_cast<int>(any(8))},
                            kind == Kind::tensor ? "HMMA.16816.F32" : "");
      p.code.code[id].arrives_only = any(3) == 0;
      p.code.code[id].pending = static_cast<std::uint8_t>(any(3));
    }
    std::vector<Steps> warps(1 + any(9));
    for (Steps& steps : warps)
      for (std::uint32_t i = any(length); i < length; i += 1 + any(3)) {
        const MemoryEvent* event = nullptr;
        switch (any(6)) {
          case 0:
            event = p.shared(static_cast<int>(any(33)));
            break;
          case 1:
            event = p.global(any(1000), 1 + static_cast<int>(any(32)), 5);
            break;
          case 2:
            event = p.mbarrier(static_cast<Do>(any(7)), any(3), 8 * any(2));
            break;
          case 3:
            event = p.copy(any(4096));
            break;
          default:
            break;
        }
        steps.push_back({i, event, any(8) == 0});
      }
    Setup setup{.blocks = 1 + any(6), .resident = 1 + static_cast<int>(any(4)), .timeline = 2};
    setup.l2_miss = any(5) / 4.0;
    setup.cluster = 1 + static_cast<int>(any(2));
    setup.timing = timing_of(DeviceSpec{});
    const SmResult a = run(p, warps, setup), b = run(p, warps, setup);
    CHECK(a.clocks == b.clocks);
    CHECK(a.stalls == b.stalls);
    CHECK(a.clocks < 1e7);
    std::uint64_t all = 0;
    for (const Steps& steps : warps) all += setup.blocks * steps.size();
    if (*a.stuck == 0) {
      ++ended;
      CHECK(a.issued == all);
      for (const double end : a.block_end) CHECK(end <= a.clocks);
    }
    for (const double clocks_of_reason : a.stalls) CHECK(clocks_of_reason >= 0);
  }
  CHECK(ended > 50);
}

TEST_CASE("sm: stops after so many instructions") {
  Program p;
  const auto work = p.add(Kind::fp32);
  SmRequest request;
  const Timing timing = clocks();
  request.code = &p.code;
  request.timing = &timing;
  request.blocks = 1;
  request.l2_bytes_per_clock = request.dram_bytes_per_clock = 16;
  request.most_instructions = 50;
  const Steps steps = repeated(work, 100);
  request.block = [&](std::uint64_t) {
    BlockSteps block;
    block.push_back(std::make_unique<Listed>(steps));
    return block;
  };
  const SmResult r = simulate(request);
  CHECK_FALSE(r.complete);
  CHECK(r.issued == 50);
  CHECK(r.clocks == 50);
  CHECK(r.stuck == std::string());
}

TEST_CASE("sm: every constant has a value and a source, on every architecture") {
  for (const int cc : {75, 80, 86, 89, 90, 120}) {
    DeviceSpec device;
    device.major = cc / 10, device.minor = cc % 10;
    const Timing t = timing_of(device);
    CHECK(t.why == "");
    CHECK(t.all().size() > 50);
    for (const auto& [name, constant] : t.all()) {
      INFO(cc, " ", std::string(name));
      CHECK(constant->source.size() > 5);
      if (name != "tensor_tf32" && name != "tensor_int8") CHECK(constant->value > 0);
    }
    CHECK(t.l1_latency.value < t.l2_latency.value);
    CHECK(t.l2_latency.value < t.dram_latency.value);
  }
  DeviceSpec old;
  old.major = 6, old.minor = 1;
  CHECK(timing_of(old).why.find("6.1") != std::string::npos);
}

// Run it with -ns: processor time, which other work on the machine changes.
TEST_CASE("sm: what a simulated instruction costs" * doctest::skip()) {
  Program p;
  const auto ffma = p.add(Kind::fp32, {.stall = 4}),
             lds = p.add(Kind::shared_load, {.stall = 2, .write = 1}),
             use = p.add(Kind::fp32, {.stall = 4, .wait = 2}), alu = p.add(Kind::alu, {.stall = 2}),
             hmma = p.add(Kind::tensor, {.stall = 4}, "HMMA.16816.F32"),
             load = p.add(Kind::global_load, {.stall = 2, .write = 2}),
             last = p.add(Kind::alu, {.wait = 4});
  const MemoryEvent* shared = p.shared(1);
  Steps steps;
  for (std::uint64_t i = 0; i < 500; ++i) {
    steps = steps + Steps{{load, p.global(i * 4, 1)}};
    for (int k = 0; k < 8; ++k)
      steps = steps + Steps{{lds, shared}, {ffma}, {alu}, {hmma}, {use}, {alu}, {ffma}};
    steps = steps + Steps{{last}};
  }
  for (const int warps : {4, 16, 32, 64}) {
    const std::clock_t begin = std::clock();
    const SmResult r = run(p, {steps}, {.l2_miss = 0.5, .times = warps});
    const double ns = 1e9 / CLOCKS_PER_SEC * static_cast<double>(std::clock() - begin);
    MESSAGE(warps, " warps: ", ns / static_cast<double>(r.issued), " ns an instruction, ", r.clocks,
            " clocks");
  }
}
