// Modelled limits and reports of launches whose counters are written down by hand.
//
// Longer than 600 lines: all cases work on the same counters, and whole reports stand here as text.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "../profile/report.h"
#include "../profile/source_lines.h"

using namespace vgpu;
using Json = nlohmann::json;

namespace {

DeviceSpec known_device(const char* key) {
  auto spec = find_device(key);
  REQUIRE(spec.has_value());
  return *spec;
}

InstrReport instruction(OpClass op_class, const char* ptx, std::uint64_t issued, int line = 1) {
  InstrReport report;
  report.function = "kernel";
  report.file = "kernel.cuh";
  report.line = line;
  report.ptx = ptx;
  report.op_class = op_class;
  report.count = {issued, 32 * issued};
  return report;
}

LaunchCounters launch(std::uint32_t blocks) {
  LaunchCounters counters;
  counters.kernel = "chapter::kernel";
  counters.mangled = "_ZN7chapter6kernelEv";
  counters.grid[0] = blocks;
  counters.block[0] = 256;
  counters.registers = 32;
  return counters;
}

double us(const LaunchCounters& counters, const char* key, Pipe pipe) {
  const DeviceSpec spec = known_device(key);
  const Limits all = limits(counters, spec);
  return all.of(pipe).known() ? all.of(pipe).us : std::nan("");
}

auto about(double value) { return doctest::Approx(value).epsilon(1e-12); }

// Two loads of half precision values from K by 10 warps: the one a row of 128 bytes a lane (32
// sectors where 2 would do), the other consecutive; a store of floats to O; some arithmetic.
LaunchCounters small_launch() {
  LaunchCounters counters = launch(264);
  counters.warps = 264 * 8;
  counters.threads = 264 * 256;
  counters.static_shared = 4096;
  counters.dynamic_shared = 1024;
  counters.local_bytes = 16;

  InstrReport strided = instruction(OpClass::memory, "ld.global.nc.u16 \t%rs1, [%rd1];", 10, 7);
  strided.space = Space::global;
  strided.access = Access::load;
  strided.global = {10, 320, 320, 640, 640, 20};
  InstrReport consecutive = instruction(OpClass::memory, "ld.global.u16 \t%rs2, [%rd2];", 10, 8);
  consecutive.space = Space::global;
  consecutive.access = Access::load;
  consecutive.global = {10, 20, 10, 640, 640, 20};
  InstrReport store = instruction(OpClass::memory, "st.global.f32 \t[%rd3], %f1;", 5, 9);
  store.space = Space::global;
  store.access = Access::store;
  store.count.lanes = 5 * 16;  // half of the lanes are off: 64 bytes, 2 sectors
  store.global = {5, 10, 5, 320, 320, 10};
  InstrReport shared = instruction(OpClass::memory, "ld.shared.f32 \t%f2, [%r1];", 4, 10);
  shared.space = Space::shared;
  shared.access = Access::load;
  shared.shared = {4, 128, 4, 512};
  InstrReport spill = instruction(OpClass::memory, "st.local.f32 \t[%rd4], %f2;", 3, 11);
  spill.space = Space::local;
  spill.access = Access::store;
  spill.local = {3, 12, 3, 384, 384, 12};
  counters.instructions = {strided,
                           consecutive,
                           store,
                           shared,
                           spill,
                           instruction(OpClass::fp32, "fma.rn.f32 \t%f1, %f2, %f3, %f1;", 40, 8),
                           instruction(OpClass::integer, "add.s32 \t%r1, %r1, 1;", 100, 8)};
  AllocationReport k, o;
  k.name = "attention/K";
  k.bytes = 4096;
  k.by_access[0] = {20, 340, 330, 1280, 1280, 40};
  k.sectors_read = 100;
  o.name = "O";
  o.bytes = 2048;
  o.by_access[1] = {5, 10, 5, 320, 320, 10};
  o.sectors_written = 10;
  counters.allocations = {k, o, o};
  counters.distinct_sectors_read = 100;
  counters.distinct_sectors_written = 10;
  counters.l1_clocks_by_sm = {60, 40};
  counters.shared_clocks_by_sm = {0, 128};
  counters.issued_by_sm = {30, 42};
  counters.host_seconds = 0.25;
  counters.host_threads = 2;
  return counters;
}

std::size_t widest(const std::string& text) {
  std::size_t most = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) most = std::max(most, line.size());
  return most;
}

}  // namespace

TEST_CASE("limit of the DRAM: distinct sectors over the bandwidth") {
  LaunchCounters counters = launch(1);
  counters.distinct_sectors_read = 1'000'000;
  counters.distinct_sectors_written = 500'000;
  // 1.5 million x 32 bytes = 48 MB; 4800 GB/s = 4.8 MB/us: 10 us. T4: 320 GB/s: 150 us.
  CHECK(us(counters, "h200", Pipe::dram) == about(10));
  CHECK(us(counters, "t4", Pipe::dram) == about(150));
}

TEST_CASE("limit of L1 and shared memory: one pipe, the busiest SM") {
  LaunchCounters counters = launch(3);
  counters.l1_clocks_by_sm = {2000, 1980, 5};
  counters.shared_clocks_by_sm = {0, 1980, 3000};
  // Together 2000, 3960 and 3005 clocks; at 1980 clocks/us the second SM needs 2 us.
  CHECK(us(counters, "h200", Pipe::l1) == about(2));
}

TEST_CASE("limits of arithmetic pipes") {
  // One us of 132 SMs at 1980 clocks/us. fp32: 128 lanes = 4 warps a clock and SM.
  const std::uint64_t sm_clocks = 132 * 1980;
  LaunchCounters counters = launch(1000);
  const char* fma = "fma.rn.f32 %f1, %f2, %f3, %f4;";
  counters.instructions = {instruction(OpClass::fp32, fma, 4 * sm_clocks)};
  CHECK(us(counters, "h200", Pipe::fp32) == about(1));
  // 66 blocks reach 66 SMs: twice the time. 264 no more than 132.
  counters.grid[0] = 66;
  CHECK(us(counters, "h200", Pipe::fp32) == about(2));
  counters.grid[0] = 264;
  CHECK(us(counters, "h200", Pipe::fp32) == about(1));

  // Only additions and multiplications: signs vanish, comparisons run elsewhere.
  for (const char* ptx : {"neg.f32 %f1, %f2;", "abs.ftz.f32 %f1, %f2;", "min.f32 %f1, %f2, %f3;",
                          "setp.lt.f32 %p1, %f1, %f2;"})
    counters.instructions.push_back(instruction(OpClass::fp32, ptx, 1000000));
  CHECK(us(counters, "h200", Pipe::fp32) == about(1));
  counters.instructions.push_back(
      instruction(OpClass::fp32, "@!%p2 \tmul.ftz.f32 \t%f1, %f2, %f3;", 4 * sm_clocks));
  CHECK(us(counters, "h200", Pipe::fp32) == about(2));

  // fp16: 256 results a clock: 4 warps of packed pairs (64 results) or 8 of single values.
  counters.instructions = {
      instruction(OpClass::fp16, "fma.rn.f16x2 %r1, %r2, %r3, %r4;", 4 * sm_clocks),
      instruction(OpClass::fp16, "add.f16 %rs1, %rs2, %rs3;", 8 * sm_clocks)};
  CHECK(us(counters, "h200", Pipe::fp16) == about(2));
  // fp64: 64 lanes = 2 warps. Special functions: 16 lanes = half a warp.
  counters.instructions = {
      instruction(OpClass::fp64, "fma.rn.f64 %fd1, %fd2, %fd3, %fd4;", 2 * sm_clocks),
      instruction(OpClass::special, "ex2.approx.ftz.f32 %f1, %f2;", sm_clocks / 2)};
  CHECK(us(counters, "h200", Pipe::fp64) == about(1));
  CHECK(us(counters, "h200", Pipe::special) == about(1));
  // T4: 2 lanes of fp64 on each of 40 SMs at 1590 MHz.
  CHECK(us(counters, "t4", Pipe::fp64) == about(2.0 * sm_clocks * 32 / (2.0 * 40 * 1590)));
}

TEST_CASE("limit of tensor cores: types take turns") {
  LaunchCounters counters = launch(1000);
  // A clock and SM of an A100: 1024 multiply-adds of fp16, 512 of tf32, 2048 of int8.
  counters.tensor_multiply_adds_f16 = 1024ull * 108 * 1410;
  CHECK(us(counters, "a100", Pipe::tensor) == about(1));
  counters.tensor_multiply_adds_int8 = 2048ull * 108 * 1410;
  CHECK(us(counters, "a100", Pipe::tensor) == about(2));
  counters.tensor_multiply_adds_tf32 = 512ull * 108 * 1410;
  CHECK(us(counters, "a100", Pipe::tensor) == about(3));
  // Half of the integers had 4 bits, which takes half as long: a quarter of a microsecond less.
  counters.tensor_multiply_adds_int4 = counters.tensor_multiply_adds_int8 / 2;
  CHECK(us(counters, "a100", Pipe::tensor) == about(2.75));
  // A T4 has no tf32: nothing can be said.
  const Limits all = limits(counters, known_device("t4"));
  CHECK_FALSE(all.of(Pipe::tensor).known());
  CHECK(all.of(Pipe::tensor).unknown == "unknown");
}

TEST_CASE("limit of tensor cores: mma.sync on Hopper does two thirds of what wgmma does") {
  // 2048 a clock and SM are wgmma's. An HMMA of 16 x 8 x 16 = 2048 every 6 clocks on each of four
  // schedulers makes 1365.3: for 2048 a clock of work it takes 1.5 times as long.
  const std::uint64_t sm_clocks = 132 * 1980;
  LaunchCounters counters = launch(1000);
  counters.tensor_multiply_adds_f16 = 2048 * sm_clocks;
  auto roughly = [](double value) { return doctest::Approx(value).epsilon(1e-4); };
  CHECK(us(counters, "h200", Pipe::tensor) == roughly(1.5));
  CHECK(us(counters, "h100", Pipe::tensor) == roughly(1.5));
  // Sums in fp16 are no quicker there. tf32 and int8 lack a third of their 1024 and 4096 as well.
  counters.tensor_multiply_adds_f16_sums = 2048 * sm_clocks;
  CHECK(us(counters, "h200", Pipe::tensor) == roughly(1.5));
  counters.tensor_multiply_adds_tf32 = 1024 * sm_clocks;
  counters.tensor_multiply_adds_int8 = 4096 * sm_clocks;
  CHECK(us(counters, "h200", Pipe::tensor) == roughly(4.5));
}

TEST_CASE("limit of tensor cores: wgmma reaches the peak, beside what mma.sync multiplies") {
  const std::uint64_t sm_clocks = 132 * 1980;
  const auto roughly = [](double value) { return doctest::Approx(value).epsilon(1e-4); };
  const struct {
    WarpgroupType type;
    std::uint64_t rate, LaunchCounters::*total;
    bool f8, f16_sums;
  } rows[] = {
      {WarpgroupType::f16, 2048, &LaunchCounters::tensor_multiply_adds_f16, false, false},
      {WarpgroupType::f16_sums, 2048, &LaunchCounters::tensor_multiply_adds_f16, false, true},
      {WarpgroupType::f8, 4096, &LaunchCounters::tensor_multiply_adds_f16, true, false},
      {WarpgroupType::f8_sums_f16, 4096, &LaunchCounters::tensor_multiply_adds_f16, true, true},
      {WarpgroupType::tf32, 1024, &LaunchCounters::tensor_multiply_adds_tf32, false, false},
      {WarpgroupType::int8, 4096, &LaunchCounters::tensor_multiply_adds_int8, false, false}};
  for (const auto& row : rows) {
    CAPTURE(static_cast<int>(row.type));
    LaunchCounters counters = launch(1000);
    const std::uint64_t work = row.rate * sm_clocks;
    counters.*row.total = work;
    counters.tensor_multiply_adds_warpgroup[static_cast<std::size_t>(row.type)] = work;
    if (row.f8) counters.tensor_multiply_adds_f8 = work;
    if (row.f16_sums) counters.tensor_multiply_adds_f16_sums = work;
    CHECK(us(counters, "h200", Pipe::tensor) == roughly(1));
    // And 2048 a clock by mma.sync, with sums in fp32.
    counters.tensor_multiply_adds_f16 += 2048 * sm_clocks;
    CHECK(us(counters, "h100", Pipe::tensor) == roughly(2.5));
  }
}

TEST_CASE("limit of tensor cores: GeForce cards do half as many multiply-adds with sums in fp32") {
  const struct {
    const char* key;
    std::uint64_t sms, mhz;
    double with_f32_sums;
  } rows[] = {{"rtx3090", 82, 1695, 2},  {"rtx4090", 128, 2520, 2}, {"rtx4070tis", 66, 2610, 2},
              {"rtx5090", 170, 2407, 2}, {"a6000", 84, 1800, 1},    {"t4", 40, 1590, 1}};
  for (const auto& row : rows) {
    CAPTURE(row.key);
    LaunchCounters counters = launch(1000);
    // All of these have 512 a clock and SM with sums in fp16, so this is 1 us of them.
    counters.tensor_multiply_adds_f16 = 512 * row.sms * row.mhz;
    CHECK(us(counters, row.key, Pipe::tensor) == about(row.with_f32_sums));
    counters.tensor_multiply_adds_f16_sums = counters.tensor_multiply_adds_f16;
    CHECK(us(counters, row.key, Pipe::tensor) == about(1));
    counters.tensor_multiply_adds_f16_sums /= 2;  // half of the work each
    CHECK(us(counters, row.key, Pipe::tensor) == about((1 + row.with_f32_sums) / 2));
  }
}

TEST_CASE("limit of tensor cores: fp8 on GeForce is as quick as fp16 with sums in fp16") {
  // An RTX 4090 has 330 TFLOP/s of fp8 with sums in fp32, which is 512 a clock and SM.
  const std::uint64_t us_of_all = 512ull * 128 * 2520;
  LaunchCounters counters = launch(1000);
  counters.tensor_multiply_adds_f16 = counters.tensor_multiply_adds_f8 = us_of_all;
  CHECK(us(counters, "rtx4090", Pipe::tensor) == about(1));
  counters.tensor_multiply_adds_f16 += us_of_all;  // as much of fp16, half as quick
  CHECK(us(counters, "rtx4090", Pipe::tensor) == about(3));
  CHECK(std::isnan(us(counters, "a100", Pipe::tensor)));  // it has no fp8
  const Json json = Json::parse(report_json(counters, known_device("rtx4090")));
  CHECK(json["tensor_macs"] == 2 * us_of_all);
  CHECK(json["tensor_macs_by_type"]["f16"] == us_of_all);
  CHECK(json["tensor_macs_by_type"]["f8"] == us_of_all);
}

TEST_CASE("limit of distributed shared memory: each byte of a request once, over the best rate") {
  LaunchCounters counters = launch(264);
  counters.cluster[0] = 2;
  InstrReport load = instruction(OpClass::memory, "ld.shared::cluster.v4.u32 {..}, [%r1];", 9);
  load.space = Space::shared;
  // 163 bytes in 10 clocks of each of 132 SMs: 19800 clocks are 10 us.
  load.remote = {1000, 5000000, 163 * 132 * 1980};
  InstrReport copy = instruction(OpClass::memory, "cp.async.bulk.shared::cluster [%r1];", 1);
  copy.space = Space::shared;
  copy.access = Access::store;
  copy.remote = {1, 1 << 30, 0};  // bulk copies have no part in it
  counters.instructions = {load, copy};
  CHECK(us(counters, "h200", Pipe::distributed) == about(10));
  CHECK(limits(counters, known_device("h200")).largest->pipe == Pipe::distributed);
  CHECK(cost_on(Pipe::distributed, load, known_device("h200")) == 163.0 * 132 * 1980);
  // 66 blocks reach 66 SMs.
  counters.grid[0] = 66;
  CHECK(us(counters, "h200", Pipe::distributed) == about(20));
  // An RTX 5090's rate is unknown; without such accesses none is needed.
  CHECK(limits(counters, known_device("rtx5090")).of(Pipe::distributed).unknown == "unknown");
  counters.instructions = {};
  CHECK(us(counters, "rtx5090", Pipe::distributed) == 0);
}

TEST_CASE("limit of issue: machine instructions, where they are known") {
  LaunchCounters counters = launch(2);
  InstrReport fma = instruction(OpClass::fp32, "fma.rn.f32 %f1, %f2, %f3, %f4;", 4 * 1980, 7);
  InstrReport move = instruction(OpClass::move, "mov.u32 %r1, %r2;", 4 * 1980, 8);
  counters.instructions = {fma, move};
  // In PTX only the fma counts: 4 * 1980 on two SMs of 4 schedulers, half a microsecond.
  CHECK(us(counters, "h200", Pipe::issue) == about(0.5));
  CHECK(issue_counts(counters) == "PTX instructions that cannot be folded");
  CHECK(Json::parse(report_json(counters, known_device("h200")))["machine_instructions"] ==
        "unknown");
  // The machine executes 5 times as many, three quarters of the PTX on the first SM:
  // 5 * 4 * 1980 * 3/4 / (4 * 1980) = 3.75 us.
  counters.machine_instructions = 5 * 4 * 1980;
  counters.issued_by_sm = {300, 100};
  CHECK(us(counters, "h200", Pipe::issue) == about(3.75));
  const Json json = Json::parse(report_json(counters, known_device("h200")));
  CHECK(json["issue_counts"] == "machine instructions");
  CHECK(json["machine_instructions"] == 5 * 4 * 1980);
  CHECK(json["lines"][0]["line"] == 7);  // by PTX, as long as no line's are known
  CHECK(json["lines"][0]["limit_share"] == 1.0);
  const std::string text = report_text(counters, known_device("h200"));
  CHECK(text.find("issue counts machine instructions\n") != text.npos);
  // By PTX instruction: the move became 4 of 5.
  counters.instructions[0].machine_instructions = 4 * 1980;
  counters.instructions[1].machine_instructions = 4 * 4 * 1980;
  const Json by_line = Json::parse(report_json(counters, known_device("h200")));
  CHECK(by_line["lines"][0]["line"] == 8);
  CHECK(by_line["lines"][0]["limit_share"] == 0.8);
  CHECK(report_text(counters, known_device("h200")).find("31,680 machine instr.") != text.npos);
}

TEST_CASE("limit of issue: what ptxas cannot fold away, on the busiest SM") {
  LaunchCounters counters = launch(2);
  const std::uint64_t us_of_one_sm = 4 * 1980;  // four schedulers
  counters.instructions = {
      instruction(OpClass::fp32, "fma.rn.f32 %f1, %f2, %f3, %f4;", us_of_one_sm),
      instruction(OpClass::shuffle, "shfl.sync.bfly.b32 %r1, %r2;", us_of_one_sm),
      instruction(OpClass::integer, "add.s32 %r1, %r2, %r3;", 12345),
      instruction(OpClass::move, "mov.u32 %r1, %r2;", 12345),
      instruction(OpClass::control, "bra $L1;", 12345),
      instruction(OpClass::conversion, "cvt.f32.f16 %f1, %rs1;", 12345),
      instruction(OpClass::fp32, "neg.f32 %f1, %f2;", 12345)};
  for (const Space space : {Space::param, Space::constant}) {
    counters.instructions.push_back(instruction(OpClass::memory, "ld.param.u64 %rd1, [p];", 12345));
    counters.instructions.back().space = space;
  }
  // 2 us of one SM, spread over the two that two blocks reach: 1 us.
  CHECK(us(counters, "h200", Pipe::issue) == about(1));
  // Counted by SM, three quarters of all ran on the first: 1.5 us.
  counters.issued_by_sm = {300, 100, 0, 0};
  CHECK(us(counters, "h200", Pipe::issue) == about(1.5));
}

TEST_CASE("limits that are not known, and the largest of those that are") {
  LaunchCounters counters = launch(1);
  DeviceSpec spec = known_device("h200");
  {
    const Limits all = limits(counters, spec);
    CHECK(all.largest == nullptr);
    CHECK(all.of(Pipe::l2).unknown == "not modelled");
    for (const Limit& limit : all.all)
      if (limit.pipe != Pipe::l2) CHECK(limit.us == 0);
  }
  counters.distinct_sectors_read = 150'000;  // 1 us
  counters.l1_clocks_by_sm = {990};          // 0.5 us
  CHECK(limits(counters, spec).largest->pipe == Pipe::dram);
  spec.dram_gb_s = std::numeric_limits<double>::quiet_NaN();
  const Limits all = limits(counters, spec);
  CHECK(all.of(Pipe::dram).unknown == "unknown");
  CHECK(std::isnan(all.of(Pipe::dram).us));
  CHECK(all.largest->pipe == Pipe::l1);
}

TEST_CASE("JSON report of a small launch, worked out by hand") {
  const Json json = Json::parse(report_json(small_launch(), known_device("h200")));
  auto number = [&](const char* pointer) {
    return json.at(Json::json_pointer(pointer)).get<double>();
  };
  CHECK(json["kernel"] == "chapter::kernel");
  CHECK(json["device"] == "NVIDIA H200");
  CHECK(json["device_key"] == "h200");
  CHECK(json["grid"] == Json({264, 1, 1}));
  CHECK(json["block"] == Json({256, 1, 1}));
  // 10 + 10 + 5 + 4 + 3 + 40 + 100; all lanes but for the store's 16 of 32.
  CHECK(number("/warp_instructions") == 172);
  CHECK(number("/thread_instructions") == 167 * 32 + 5 * 16);
  CHECK(number("/active_lanes_per_instruction") == about((167.0 * 32 + 80) / 172));
  CHECK(number("/classes/memory/warp") == 32);
  CHECK(number("/classes/memory/thread") == 27 * 32 + 80);
  CHECK(number("/classes/fp32/warp") == 40);
  CHECK(number("/classes/tensor/warp") == 0);
  // 320 + 20 sectors in 20 requests; 1280 bytes in 340 sectors of 32.
  CHECK(number("/global/load/requests") == 20);
  CHECK(number("/global/load/sectors") == 340);
  CHECK(number("/global/load/sectors_per_request") == 17);
  CHECK(number("/global/load/ideal_sectors_per_request") == 2);
  CHECK(number("/global/load/bytes_asked") == 1280);
  CHECK(number("/global/load/efficiency") == about(1280.0 / (32 * 340)));
  CHECK(number("/global/store/sectors") == 10);
  CHECK(number("/global/store/efficiency") == 1);
  CHECK(number("/global/atomic/requests") == 0);
  CHECK(json["global"]["atomic"]["sectors_per_request"].is_null());
  CHECK(number("/local/store/sectors") == 12);
  CHECK(number("/shared/load/wavefronts") == 128);
  CHECK(number("/shared/load/conflicts") == 124);
  // "/" in a name is "~1" in a pointer; the second O has its own name.
  CHECK(number("/allocations/attention~1K/load/sectors_per_request") == 17);
  CHECK(number("/allocations/attention~1K/sectors_read") == 100);
  CHECK(number("/allocations/O/store/bytes_asked") == 320);
  CHECK(json["allocations"].contains("O (2)"));
  CHECK(number("/dram_bytes") == 110 * 32);
  CHECK(number("/dram_read_bytes") == 3200);
  CHECK(number("/dram_write_bytes") == 320);
  CHECK(json["l2"] == "not modelled");
  CHECK(json["limits"]["L2"] == "not modelled");
  // Second SM: 40 + 128 clocks at 1980 MHz.
  CHECK(number("/limits/L1~1shared") == about(168.0 / 1980));
  CHECK(json["limit"]["name"] == "L1/shared");
  CHECK(number("/limit/us") == about(168.0 / 1980));
  // 32 registers, 5120 + 1024 = 6144 bytes: 38 blocks by shared memory, 8 by warps and registers;
  // 264 blocks on 132 SMs x 8 = 1056 places.
  CHECK(number("/occupancy/blocks_per_sm") == 8);
  CHECK(number("/occupancy/fraction") == 1);
  CHECK(json["occupancy"]["limiter"] == "warps and registers");
  CHECK(number("/occupancy/waves") == 0.25);
  CHECK(number("/registers") == 32);
  CHECK(number("/local_bytes_per_thread") == 16);
  CHECK(number("/host_threads") == 2);
}

TEST_CASE("source lines are sorted by their share of the largest limit") {
  const Json json = Json::parse(report_json(small_launch(), known_device("h200")));
  const Json& lines = json["lines"];
  REQUIRE(lines.size() == 5);
  // Clocks of the pipe: line 10: 128 wavefronts; line 7: 320 / 4 = 80; line 8: 10 requests (5 by
  // sectors); line 9: 5 requests (2.5); line 11: 3 requests. In all 226.
  const int order[] = {10, 7, 8, 9, 11};
  const double clocks[] = {128, 80, 10, 5, 3};
  for (int i = 0; i < 5; ++i) {
    CHECK(lines[i]["line"] == order[i]);
    CHECK(lines[i]["file"] == "kernel.cuh");
    CHECK(lines[i]["limit_share"].get<double>() == about(clocks[i] / 226));
  }
  CHECK(lines[1]["sectors_per_request"] == 32);
  CHECK(lines[2]["warp_instructions"] == 150);  // the load, the fma and the addition
  CHECK(lines[0]["conflicts"] == 124);
  CHECK(lines[4]["local_sectors"] == 12);
}

TEST_CASE("accesses that ptxas has joined lower the limit of the load/store unit") {
  LaunchCounters counters = small_launch();
  const auto limit = [&] { return us(counters, "h200", Pipe::l1); };
  counters.predicted.joined_accesses = 0.5;
  CHECK(limit() == about(168.0 / 1980));  // nobody asked for a prediction: it says nothing
  counters.predicted.asked = true;
  counters.predicted.why = "no ptxas";
  CHECK(limit() == about(168.0 / 1980));
  counters.predicted.why.clear();
  CHECK(limit() == about(84.0 / 1980));
  const Json json = Json::parse(report_json(counters, known_device("h200")));
  CHECK(json["limits"]["L1/shared"].get<double>() == about(84.0 / 1980));
  CHECK(json["limits_by_ptx"]["L1/shared"].get<double>() == about(168.0 / 1980));
  const std::string text = report_text(counters, known_device("h200"));
  CHECK(text.find("those of PTX") != std::string::npos);
  for (const double not_joined : {0.96, 1.0, 1.7}) {
    counters.predicted.joined_accesses = not_joined;
    CHECK(limit() == about(168.0 / 1980));
    CHECK_FALSE(Json::parse(report_json(counters, known_device("h200"))).contains("limits_by_ptx"));
  }
}

TEST_CASE("the report of a prediction has the pipes by Nsight Compute's names") {
  LaunchCounters counters = small_launch();
  counters.predicted.asked = true;
  counters.predicted.us = 10;
  counters.predicted.machine_instructions = 1000;
  counters.predicted.pipes = {{"fma", 600, 0.3}, {"lsu", 100, 0.125}};
  const Json pipes = Json::parse(report_json(counters, known_device("h200")))["predicted"]["pipes"];
  CHECK(pipes.size() == 2);
  CHECK(pipes["fma"]["instructions"] == 600);
  CHECK(pipes["lsu"]["share"] == 0.125);
}

TEST_CASE("an empty launch is reported without a division by zero") {
  const LaunchCounters nothing = launch(1);
  const Json json = Json::parse(report_json(nothing, known_device("t4")));
  CHECK(json["limit"]["name"] == "none");
  CHECK(json["limit"]["us"] == 0);
  CHECK(json["active_lanes_per_instruction"].is_null());
  CHECK(json["lines"].empty());
  CHECK(report_text(nothing, known_device("t4")).find("nan") == std::string::npos);
}

TEST_CASE("text report: the winner, its lines, the occupancy") {
  const std::string text = report_text(small_launch(), known_device("h200"));
  CHECK(widest(text) <= 100);
  CHECK(text.find("lower bounds") != std::string::npos);
  CHECK(text.find("Source lines that cost most on L1/shared") != std::string::npos);
  CHECK(text.find("kernel.cuh:7 ") != std::string::npos);
  CHECK(text.find("32.00 sectors/request") != std::string::npos);
  CHECK(text.find("not modelled") != std::string::npos);
  CHECK(text.find("limited by warps and registers") != std::string::npos);
  CHECK(text.find(" \n") == std::string::npos);
}

TEST_CASE("text report: the text of a source line is shown where the file is there") {
  const auto file = std::filesystem::temp_directory_path() / "vgpu_profile_report_test.cuh";
  std::ofstream(file) << "one\n  sum += K[row * 64];  // two\n";
  LaunchCounters counters = small_launch();
  counters.instructions[0].file = file.string();
  counters.instructions[0].line = 2;
  CHECK(report_text(counters, known_device("h200"))
            .find("           sum += K[row * 64];  // two\n") != std::string::npos);
  counters.instructions[0].line = 3;  // past the end: nothing
  CHECK(report_text(counters, known_device("h200")).find("sum") == std::string::npos);
  std::filesystem::remove(file);
}

TEST_CASE("text report: 100 columns hold the largest numbers and the longest names") {
  LaunchCounters counters = small_launch();
  const std::string longest(300, 'x');
  counters.kernel = longest;
  for (std::uint32_t& d : counters.grid) d = 2147483647u;
  for (std::uint32_t& d : counters.block) d = 1024;
  counters.warps = counters.threads = ~0ull;
  for (InstrReport& i : counters.instructions) {
    i.file = "/very/" + longest + "/long.cuh";
    i.function = longest;
    i.line = 2147483647;
    i.count = {~0ull >> 8, ~0ull >> 4};
    for (GlobalCounters* g : {&i.global, &i.local})
      if (g->requests)
        *g = {1ull << 50, 1ull << 55, 1ull << 55, 1ull << 58, 1ull << 58, 1ull << 53};
    if (i.shared.requests) i.shared = {1ull << 50, 1ull << 55, 1ull << 50, 1ull << 57};
  }
  counters.instructions[1].file = "";
  for (AllocationReport& a : counters.allocations) {
    a.name = longest;
    a.bytes = a.sectors_read = a.sectors_written = 1ull << 57;
    a.by_access.fill({1ull << 50, 1ull << 55, 1ull << 55, 1ull << 60, 1ull << 60, 1ull << 53});
  }
  while (counters.allocations.size() < 40) counters.allocations.push_back(counters.allocations[0]);
  counters.distinct_sectors_read = counters.distinct_sectors_written = 1ull << 58;
  counters.l1_clocks_by_sm = {1e30};
  counters.registers = 255;
  counters.local_bytes = 2147483647;
  counters.tensor_multiply_adds_f16 = 1ull << 60;
  counters.async_copied_bytes = 1ull << 62;
  for (const char* key : {"h200", "t4"}) {
    const std::string text = report_text(counters, known_device(key));
    CHECK(widest(text) <= 100);
    counters.block[1] = counters.block[2] = 1;  // and once more with a block that fits
  }
  counters.distinct_sectors_read = 0;
  CHECK(widest(report_text(counters, known_device("a100"))) <= 100);
}

TEST_CASE("reports: distributed shared memory, apart from shared") {
  LaunchCounters counters = launch(16);
  counters.cluster[0] = 4;
  InstrReport load = instruction(OpClass::memory, "ld.shared::cluster.u32 \t%r1, [%r2];", 9, 200);
  load.space = Space::shared;
  load.remote = {7, 700, 640};
  InstrReport copy = instruction(OpClass::memory, "st.async.u32 \t[%r1], %r2, [%r3];", 2, 64);
  copy.space = Space::shared;
  copy.access = Access::store;
  copy.remote = {2, 256, 256};
  counters.instructions = {load, copy};
  const Json json = Json::parse(report_json(counters, known_device("h200")));
  CHECK(json["cluster"] == Json({4, 1, 1}));
  CHECK(json["distributed_shared"]["load"] == Json({{"requests", 7}, {"bytes", 700}}));
  CHECK(json["distributed_shared"]["store"] == Json({{"requests", 2}, {"bytes", 256}}));
  CHECK(json["distributed_shared"]["atomic"]["requests"] == 0);
  // 640 + 256 bytes over 16.3 a clock of 16 SMs.
  CHECK(json["limits"]["distributed shared memory"].get<double>() ==
        about(896 / (16.3 * 16 * 1980)));
  CHECK(Json::parse(report_json(counters,
                                known_device("rtx5090")))["limits"]["distributed shared memory"] ==
        "unknown");
  CHECK(json["shared"]["load"]["requests"] == 0);
  const std::string text = report_text(counters, known_device("h200"));
  CHECK(text.find("cluster (4)") != text.npos);
  CHECK(text.find("loads                             7                700") != text.npos);
  CHECK(text.find("at the best rate that") != text.npos);
  CHECK(text.find("  distributed shared memory >= ") != text.npos);
  const std::string other = report_text(counters, known_device("rtx5090"));
  CHECK(other.find("its bandwidth is unknown") != text.npos);
  CHECK(other.find("  distributed shared memory    unknown: ") != text.npos);
  CHECK(widest(other) <= 100);
  CHECK(widest(text) <= 100);
  // Without clusters there is no such table.
  counters.cluster[0] = 1;
  counters.instructions = {};
  const std::string none = report_text(counters, known_device("h200"));
  CHECK(none.find("cluster") == none.npos);
  CHECK(none.find("Distributed") == none.npos);
}

TEST_CASE("reports: the copy engine, apart from requests") {
  LaunchCounters counters = launch(2);
  InstrReport copy =
      instruction(OpClass::memory, "cp.async.bulk.shared::cluster.global [%r1];", 3, 4);
  copy.space = Space::shared;
  copy.access = Access::store;  // in shared memory; it loads global memory
  copy.copies_to_shared = true;
  copy.bulk = {3, 3072, 99};
  InstrReport add = instruction(OpClass::atomic, "cp.reduce.async.bulk.global [%rd1];", 1, 5);
  add.space = Space::global;
  add.access = Access::atomic;
  add.bulk = {1, 48, 2};
  counters.instructions = {copy, add};
  counters.distinct_sectors_read = 100000;
  AllocationReport k;
  k.name = "K";
  k.bulk[0] = {3, 3072, 99};
  counters.allocations = {k};
  counters.most_bulk_under_way = 2048;
  const Json json = Json::parse(report_json(counters, known_device("h200")));
  CHECK(json["copy_engine"]["load"] == Json({{"copies", 3}, {"bytes", 3072}, {"l2_sectors", 99}}));
  CHECK(json["copy_engine"]["store"]["copies"] == 0);
  CHECK(json["copy_engine"]["atomic"]["l2_sectors"] == 2);
  CHECK(json["allocations"]["K"]["copy_engine"]["load"]["bytes"] == 3072);
  CHECK(json["allocations"]["K"]["load"]["requests"] == 0);
  CHECK(json["global"]["load"]["requests"] == 0);
  CHECK(json["limits"]["L1/shared"] == 0);
  CHECK(json["most_bulk_under_way"] == 2048);
  CHECK(json["lines"][0]["copy_engine"]["l2_sectors"] == 99);  // 99 of 101 of the DRAM's limit
  CHECK(json["lines"][0]["limit_share"].get<double>() == doctest::Approx(99 / 101.0));
  const std::string text = report_text(counters, known_device("h200"));
  CHECK(text.find("Copy engine                    copies              bytes         L2 sectors") !=
        text.npos);
  CHECK(text.find("bulk loads                        3              3,072                 99") !=
        text.npos);
  CHECK(text.find("bulk copies under way: at most 2048 B a block") != text.npos);
  CHECK(text.find("bulk stores") == text.npos);
  CHECK(text.find("bulk reductions") != text.npos);
  CHECK(text.find("99 sectors in bulk") != text.npos);
  CHECK(text.find("Global memory") == text.npos);
  CHECK(widest(text) <= 100);
  counters.instructions = {};
  CHECK(report_text(counters, known_device("h200")).find("Copy engine") == std::string::npos);
}

TEST_CASE("reports: one number of them, as the text has it") {
  LaunchCounters counters = small_launch();
  counters.host_seconds = std::numeric_limits<double>::infinity();
  const Json json = Json::parse(report_json(counters, known_device("h200")));
  const ReportNumbers numbers(counters, known_device("h200"));
  for (const char* path : {"/grid/0", "/warp_instructions", "/global/load/sectors", "/limit/us",
                           "/limits/issue", "/lines/0/limit_share", "/allocations/K/bytes"}) {
    CAPTURE(path);
    const auto at = Json::json_pointer(path);
    if (json.contains(at) && json.at(at).is_number())
      CHECK(numbers.at(path) == json.at(at).get<double>());
    else
      CHECK(std::isnan(numbers.at(path)));
  }
  CHECK(numbers.at("/grid/0") == counters.grid[0]);
  CHECK(json["host_seconds"].is_null());  // infinite
  CHECK(std::isnan(numbers.at("/host_seconds")));
  CHECK(std::isnan(numbers.at("/kernel")));
  CHECK(std::isnan(numbers.at("/no/such/number")));
  CHECK_THROWS_AS(numbers.at("grid"), std::invalid_argument);
}
