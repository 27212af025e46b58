// The cache model against streams of accesses that are worked out by hand in the comments.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../profile/cache.h"
#include "../profile/report.h"
#include "../runtime/watched_machine.h"

using namespace vgpu;
using Index = SectoredCache::Index;

namespace {

constexpr LineBytes kAllBytes = {~0u, ~0u, ~0u, ~0u};

// Sectors that are found when whole lines are read in this order.
int hits(SectoredCache& cache, std::initializer_list<std::uint64_t> lines) {
  int found = 0;
  for (const std::uint64_t line : lines) found += std::popcount(cache.read(line, kWholeLine));
  return found;
}

// A warp that asks for 32 consecutive words from `first` on, a multiple of 128: one line.
CacheCounters words(CacheHierarchy& caches, int sm, std::uint64_t first, Access access,
                    L1Use use = L1Use::cached) {
  std::array<std::uint64_t, 32> addresses;
  for (std::size_t lane = 0; lane < 32; ++lane) addresses[lane] = first + 4 * lane;
  CacheCounters sum;
  for (const LineTraffic& line : caches.request(sm, addresses.data(), ~0u, 4, access, use))
    sum += line.counters;
  return sum;
}

// l1 sectors, hits; l2 sectors, hits; DRAM sectors read, made dirty.
std::array<std::uint64_t, 6> numbers(const CacheCounters& c) {
  return {c.l1_sectors, c.l1_hits, c.l2_sectors, c.l2_hits, c.dram_read, c.dram_written};
}
using Numbers = std::array<std::uint64_t, 6>;

// Two kernels' worth of launches on a small device: the body of k(out, in), where %rd1 is &out[i],
// %rd2 is &in[i], i the thread's number in the grid.
struct Device {
  explicit Device(DeviceSpec spec, CacheMode mode)
      : machine(std::move(spec), {.threads = 1, .cache = mode}),
        in(machine.memory().allocate(4096, MemoryKind::device)),
        out(machine.memory().allocate(4096, MemoryKind::device)) {}

  LaunchCounters run(const std::string& body, std::uint32_t blocks = 1, int resident = 1) {
    const auto module = machine.load(R"(.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p_out, .param .u64 p_in)
{
.reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<20>;
.local .align 16 .b8 stack[16];
ld.param.u64 %rd1, [p_out];
ld.param.u64 %rd2, [p_in];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %ntid.x;
mad.lo.u32 %r4, %r2, %r3, %r1;
mul.wide.u32 %rd3, %r4, 4;
add.u64 %rd1, %rd1, %rd3;
add.u64 %rd2, %rd2, %rd3;
)" + body + "\nret;\n}\n");
    LaunchRequest request;
    request.module = module.get();
    request.function = module->module->find("k");
    request.grid = {blocks, 1, 1};
    request.block = {32, 1, 1};
    std::array<std::uint64_t, 2> arguments = {out->base, in->base};
    std::array<std::byte, 16> params;
    std::memcpy(params.data(), arguments.data(), 16);
    request.params = params;
    request.resident_blocks_per_sm = resident;
    LaunchOutcome outcome = machine.launch(request);
    REQUIRE(outcome.fault.message == "");
    return outcome.counters;
  }

  WatchedMachine machine;
  std::shared_ptr<Allocation> in, out;
};

// One SM with an L1 of four lines, one in each set; an L2 of 64 KiB.
DeviceSpec small_device() {
  DeviceSpec spec;
  spec.sm_count = 1;
  spec.l1_bytes = 512;
  spec.l2_bytes = 65536;
  spec.sm_clock_mhz = 1000;
  spec.dram_gb_s = 1;
  spec.l2_gb_s = 2;
  return spec;
}

CacheCounters of_line(const LaunchCounters& counters, const std::string& ptx) {
  for (const InstrReport& i : counters.instructions)
    if (i.ptx.starts_with(ptx)) return i.cache;
  FAIL("no instruction " << ptx);
  return {};
}

}  // namespace

TEST_CASE("cache: a stream that is read once never hits, and again only what fits") {
  SectoredCache cache(4 * 128, 1, Index::linear);  // one set of four lines
  CHECK(cache.bytes() == 512);
  CHECK(hits(cache, {0, 1, 2, 3}) == 0);
  CHECK(hits(cache, {0, 1, 2, 3}) == 16);  // all four sectors of all four lines
  // The fifth line takes the place of the oldest, which is the one that comes next, and so on: a
  // cyclic stream one line longer than the cache never hits.
  CHECK(hits(cache, {4, 0, 1, 2, 3, 4, 0, 1, 2, 3}) == 0);
}

TEST_CASE("cache: the line that was used longest ago makes way") {
  SectoredCache cache(3 * 128, 1, Index::linear);
  CHECK(hits(cache, {0, 1, 2}) == 0);
  CHECK(hits(cache, {0}) == 4);  // order of use now 1, 2, 0
  CHECK(hits(cache, {3}) == 0);  // 1 goes
  CHECK(hits(cache, {0, 2}) == 8);
  CHECK(hits(cache, {1}) == 0);  // 3 goes
  CHECK(hits(cache, {2, 0}) == 8);
  CHECK(hits(cache, {3}) == 0);
  // A use that would have brought nothing in is a use: of 3, 0 and 2 the longest ago is 0.
  CHECK(cache.read(2, 0b1111, false) == 0b1111);
  CHECK(hits(cache, {4}) == 0);
  CHECK(hits(cache, {2, 3}) == 8);
}

TEST_CASE("cache: lines of one set compete, those of others do not") {
  SectoredCache linear(8 * 128, 4, Index::linear);  // four sets of two lines
  CHECK(linear.ways() == 2);
  // 0, 4 and 8 are 0 modulo 4: three lines in a set of two, in turns, while six places are empty.
  CHECK(hits(linear, {0, 4, 8, 0, 4, 8, 0, 4, 8}) == 0);
  CHECK(hits(linear, {1, 2, 3, 5, 6, 7}) == 0);
  CHECK(hits(linear, {1, 2, 3, 5, 6, 7}) == 24);
  // Folded, 4 becomes 4 ^ 1 = 5 and 8 becomes 8 ^ 2 = 10: sets 0, 1, 2.
  SectoredCache folded(8 * 128, 4, Index::folded);
  CHECK(hits(folded, {0, 4, 8}) == 0);
  CHECK(hits(folded, {0, 4, 8, 0, 4, 8}) == 24);
}

TEST_CASE("cache: a line's sectors are filled one by one") {
  SectoredCache cache(1024, 1, Index::linear);
  CHECK(cache.read(7, 0b0001) == 0);
  CHECK(cache.read(7, 0b0011) == 0b0001);  // the second sector is missing, and comes
  CHECK(cache.read(7, 0b1111) == 0b0011);
  CHECK(cache.read(7, 0b1111) == 0b1111);
  CHECK(cache.read(8, 0b0001, false) == 0);  // without allocation the line does not come
  CHECK(cache.read(8, 0b0001) == 0);
  cache.drop(7, 0b0100);
  CHECK(cache.read(7, 0b1110, false) == 0b1010);
  CHECK(cache.read(7, 0b0100) == 0);  // and the read before has not filled it
  cache.clear();
  CHECK(cache.read(7, 0b1111) == 0);
}

TEST_CASE("cache: dirty sectors are written back once each") {
  SectoredCache cache(2 * 128, 1, Index::linear);  // two lines
  // Line 0: sectors 0 and 1, then 1 again: two are dirty.
  CHECK(cache.write(0, {~0u, ~0u, 0, 0}, true).dirtied == 0b0011);
  const auto again = cache.write(0, {0, ~0u, 0, 0}, true);
  CHECK(again.dirtied == 0);
  CHECK(again.there == 0b0010);
  CHECK(cache.write(1, kAllBytes, true).dirtied == 0b1111);
  CHECK(cache.written_back() == 0);
  CHECK(hits(cache, {2}) == 0);  // line 0 makes way
  CHECK(cache.written_back() == 2);
  CHECK(hits(cache, {1}) == 16 / 4);  // written whole: there, without having been read
  CHECK(cache.clean() == 4);          // line 1
  CHECK(cache.clean() == 0);
  CHECK(hits(cache, {3, 4}) == 0);  // 2 and 1 make way, both clean
  CHECK(cache.written_back() == 2);
  // What is dropped is written back no more.
  CHECK(cache.write(3, kAllBytes, true).dirtied == 0b1111);
  cache.drop(3, 0b0111);
  CHECK(cache.clean() == 1);
}

TEST_CASE("cache: a sector that is written in part is not there until the rest has come") {
  SectoredCache cache(1024, 1, Index::linear);
  cache.write(5, {0x0000ffff, ~0u, 0, 0}, true);  // half of sector 0, all of sector 1
  CHECK(cache.write(5, {0x0000ffff, 0, 0, 0}, true).there == 0);
  CHECK(cache.read(5, 0b0011, false) == 0b0010);
  cache.write(5, {0xffff0000, 0, 0, 0}, true);
  CHECK(cache.read(5, 0b0011) == 0b0011);
  CHECK(cache.clean() == 2);
}

TEST_CASE("caches: two SMs have an L1 each and share the L2") {
  CacheHierarchy caches(2, 4096, 65536);
  CHECK(numbers(words(caches, 0, 0, Access::load)) == Numbers{4, 0, 4, 0, 4, 0});  // from DRAM
  CHECK(numbers(words(caches, 1, 0, Access::load)) == Numbers{4, 0, 4, 4, 0, 0});  // from the L2
  CHECK(numbers(words(caches, 0, 0, Access::load)) == Numbers{4, 4, 0, 0, 0, 0});  // from the L1
  caches.invalidate_l1(0);
  CHECK(numbers(words(caches, 0, 0, Access::load)) == Numbers{4, 0, 4, 4, 0, 0});
  CHECK(numbers(words(caches, 1, 0, Access::load)) == Numbers{4, 4, 0, 0, 0, 0});
  caches.flush();
  CHECK(caches.dram_written() == 0);
}

TEST_CASE("caches: stores go through the L1, stay there, and wait in the L2") {
  CacheHierarchy caches(2, 4096, 65536);
  // Nothing is read for a store: a hit in the L2, and four sectors that DRAM will get.
  CHECK(numbers(words(caches, 0, 256, Access::store)) == Numbers{4, 0, 4, 4, 0, 4});
  CHECK(numbers(words(caches, 0, 256, Access::load)) == Numbers{4, 4, 0, 0, 0, 0});
  CHECK(numbers(words(caches, 0, 256, Access::store)) == Numbers{4, 4, 4, 4, 0, 0});
  CHECK(numbers(words(caches, 1, 256, Access::load)) == Numbers{4, 0, 4, 4, 0, 0});
  CHECK(caches.dram_written() == 0);
  caches.flush();
  CHECK(caches.dram_written() == 4);
}

TEST_CASE("caches: atomics work in the L2, on what is there") {
  CacheHierarchy caches(1, 4096, 65536);
  CHECK(numbers(words(caches, 0, 0, Access::load)) == Numbers{4, 0, 4, 0, 4, 0});
  CHECK(numbers(words(caches, 0, 0, Access::atomic)) == Numbers{4, 0, 4, 4, 0, 4});
  CHECK(numbers(words(caches, 0, 0, Access::load)) == Numbers{4, 0, 4, 4, 0, 0});  // L1 dropped it
  CHECK(numbers(words(caches, 0, 128, Access::atomic)) == Numbers{4, 0, 4, 0, 4, 4});
}

TEST_CASE("caches: loads that bypass the L1, and those that leave nothing in it") {
  CacheHierarchy caches(1, 4096, 65536);
  CHECK(numbers(words(caches, 0, 0, Access::load, L1Use::bypass)) == Numbers{4, 0, 4, 0, 4, 0});
  CHECK(numbers(words(caches, 0, 0, Access::load, L1Use::bypass)) == Numbers{4, 0, 4, 4, 0, 0});
  CHECK(numbers(words(caches, 0, 0, Access::load, L1Use::no_allocate)) ==
        Numbers{4, 0, 4, 4, 0, 0});
  CHECK(numbers(words(caches, 0, 0, Access::load)) == Numbers{4, 0, 4, 4, 0, 0});
  CHECK(numbers(words(caches, 0, 0, Access::load, L1Use::no_allocate)) ==
        Numbers{4, 4, 0, 0, 0, 0});
  // What bypasses it does not look into it either.
  CHECK(numbers(words(caches, 0, 0, Access::load, L1Use::bypass)) == Numbers{4, 0, 4, 4, 0, 0});
  CHECK(numbers(words(caches, 0, 0, Access::store, L1Use::bypass)) == Numbers{4, 0, 4, 4, 0, 4});
  CHECK(numbers(words(caches, 0, 0, Access::load)) == Numbers{4, 0, 4, 4, 0, 0});
}

TEST_CASE("caches: a request's lanes in any order, some off, several to a line") {
  CacheHierarchy caches(1, 4096, 65536);
  // Lanes 0 to 3 on: bytes 512 and 520 (line 4, sector 0), 36 (line 0, sector 1), 544 (line 4,
  // sector 1); the others would be elsewhere. Two lines, three sectors.
  std::array<std::uint64_t, 32> addresses{};
  addresses.fill(1 << 20);
  addresses[0] = 512, addresses[1] = 36, addresses[2] = 520, addresses[3] = 544;
  const auto lines = caches.request(0, addresses.data(), 0b1111, 4, Access::load, L1Use::cached);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].address == 512);
  CHECK(lines[0].counters.l1_sectors == 2);
  CHECK(lines[1].address == 36);
  CHECK(lines[1].counters.dram_read == 1);
}

TEST_CASE("caches: what shared memory leaves of the L1") {
  const auto left = [](const char* key, std::uint64_t shared, int blocks) {
    return l1_beside_shared(*find_device(key), shared, blocks) / 1024;
  };
  // H200, 256 KiB: no shared memory: 1 KiB a block for the system, 8 blocks: 8 KiB.
  CHECK(left("h200", 0, 8) == 248);
  // 2 x (48 + 1) = 98 KiB fit in 100; 3 x 49 = 147 in 164; 227 + 1 = 228 is all there is.
  CHECK(left("h200", 48 * 1024, 2) == 156);
  CHECK(left("h200", 48 * 1024, 3) == 92);
  CHECK(left("h200", 227 * 1024, 1) == 28);
  // T4, 96 KiB: 32 or 64, nothing for the system. RTX 3090, 128 KiB: 2 x 34 KiB fit in 100.
  CHECK(left("t4", 0, 16) == 64);
  CHECK(left("t4", 20 * 1024, 2) == 32);
  CHECK(left("rtx3090", 33 * 1024, 2) == 28);
  CHECK(left("a100", 33 * 1024, 2) == 92);  // 192 KiB - 100
  // RTX 5090, 128 KiB: 100 at most for shared memory, as before Hopper, also when more is asked for.
  CHECK(left("rtx5090", 33 * 1024, 2) == 28);
  CHECK(left("rtx5090", 50 * 1024, 3) == 28);
}

TEST_CASE("cache model: a launch, by access, instruction and allocation") {
  Device device(small_device(), CacheMode::cold);
  // One warp reads in[0..31] twice and writes out[0..31]: one line each.
  const LaunchCounters c = device.run(R"(
ld.global.u32 %r5, [%rd2];
ld.global.nc.u32 %r6, [%rd2];
add.u32 %r5, %r5, %r6;
st.global.u32 [%rd1], %r5;)");
  REQUIRE(c.cache.modelled);
  CHECK(numbers(c.cache.by_access[0]) == Numbers{8, 4, 4, 0, 4, 0});
  CHECK(numbers(c.cache.by_access[1]) == Numbers{4, 0, 4, 4, 0, 4});
  CHECK(numbers(of_line(c, "ld.global.u32")) == Numbers{4, 0, 4, 0, 4, 0});
  CHECK(numbers(of_line(c, "ld.global.nc")) == Numbers{4, 4, 0, 0, 0, 0});
  CHECK(c.cache.dram_read == 4);
  CHECK(c.cache.dram_written == 4);
  REQUIRE(c.allocations.size() == 2);
  CHECK(c.allocations[0].name == "argument 2");
  CHECK(numbers(c.allocations[0].cache) == Numbers{8, 4, 4, 0, 4, 0});
  CHECK(numbers(c.allocations[1].cache) == Numbers{4, 0, 4, 4, 0, 4});

  // DRAM: 8 sectors x 32 bytes over 1 GB/s = 1000 bytes/us; L2: 4 + 4 sectors over 2000 bytes/us.
  const auto json = nlohmann::json::parse(report_json(c, device.machine.spec()));
  CHECK(json["limits"]["DRAM"].get<double>() == doctest::Approx(0.256));
  CHECK(json["limits"]["L2"].get<double>() == doctest::Approx(0.128));
  CHECK(json["l2"] == "modelled");
  CHECK(json["cache"]["l1"]["sectors"] == 12);
  CHECK(json["cache"]["l1"]["hits"] == 4);
  CHECK(json["cache"]["l1"]["hit_rate"].get<double>() == doctest::Approx(1.0 / 3));
  CHECK(json["cache"]["load"]["l1"]["hit_rate"] == 0.5);
  CHECK(json["cache"]["l2"]["hit_rate"] == 0.5);
  CHECK(json["cache"]["atomic"]["l2"]["hit_rate"].is_null());
  CHECK(json["cache"]["dram_read_bytes"] == 128);
  CHECK(json["cache"]["dram_write_bytes"] == 128);
  CHECK(json["dram_bytes"] == 256);
  CHECK(json["allocations"]["argument 2"]["cache"]["l1"]["hits"] == 4);
  CHECK(json["lines"][0]["cache"]["l1"]["sectors"].is_number());
  const std::string text = report_text(c, device.machine.spec());
  CHECK(text.find("Cache model") != text.npos);
  CHECK(text.find("DRAM: 128 B read, 128 B written") != text.npos);
  CHECK(text.find("not modelled") == text.npos);
}

TEST_CASE("cache model: off, nothing of it is seen") {
  Device device(small_device(), CacheMode::off);
  const LaunchCounters c = device.run("ld.global.u32 %r5, [%rd2];\nst.global.u32 [%rd1], %r5;");
  CHECK_FALSE(c.cache.modelled);
  CHECK(of_line(c, "ld.global").l1_sectors == 0);
  const auto json = nlohmann::json::parse(report_json(c, device.machine.spec()));
  CHECK(json["limits"]["L2"] == "not modelled");
  CHECK_FALSE(json.contains("cache"));
  CHECK(json["dram_bytes"] == 256);  // distinct sectors
  CHECK(report_text(c, device.machine.spec()).find("Cache model") == std::string::npos);
}

TEST_CASE("cache model: what an instruction says about the L1") {
  Device device(small_device(), CacheMode::cold);
  const LaunchCounters c = device.run(R"(
ld.global.cg.u32 %r5, [%rd2];
ld.volatile.global.u32 %r6, [%rd2];
ld.global.ca.u32 %r7, [%rd2];
ld.global.L1::no_allocate.u32 %r8, [%rd2];
ld.relaxed.gpu.global.u32 %r9, [%rd2];
ld.global.cs.u32 %r10, [%rd2];
atom.global.add.u32 %r11, [%rd2], 1;
ld.global.lu.u32 %r12, [%rd2];
membar.gl;
ld.u32 %r13, [%rd2];
membar.cta;
@!%p1 ld.relaxed.cta.u32 %r14, [%rd2];)");
  const auto miss = Numbers{4, 0, 4, 4, 0, 0}, hit = Numbers{4, 4, 0, 0, 0, 0};
  CHECK(numbers(of_line(c, "ld.global.cg")) == Numbers{4, 0, 4, 0, 4, 0});
  CHECK(numbers(of_line(c, "ld.volatile")) == miss);
  CHECK(numbers(of_line(c, "ld.global.ca")) == miss);  // the two before have left nothing
  CHECK(numbers(of_line(c, "ld.global.L1::no")) == hit);
  CHECK(numbers(of_line(c, "ld.relaxed.gpu")) == miss);
  CHECK(numbers(of_line(c, "ld.global.cs")) == hit);
  CHECK(numbers(of_line(c, "atom")) == Numbers{4, 0, 4, 4, 0, 4});
  CHECK(numbers(of_line(c, "ld.global.lu")) == miss);  // after the atomic
  CHECK(numbers(of_line(c, "ld.u32")) == miss);        // after the fence
  CHECK(numbers(of_line(c, "@!%p1 ld.relaxed.cta")) == hit);
}

TEST_CASE("cache model: an acquire beyond the block empties the L1, one for the block does not") {
  const auto after = [](const std::string& acquire) {
    Device device(small_device(), CacheMode::cold);
    return numbers(of_line(
        device.run("ld.global.ca.u32 %r5, [%rd2];\n" + acquire + "ld.global.cs.u32 %r7, [%rd2];"),
        "ld.global.cs"));
  };
  CHECK(after("") == Numbers{4, 4, 0, 0, 0, 0});
  CHECK(after("ld.acquire.cta.global.u32 %r6, [%rd2];\n") == Numbers{4, 4, 0, 0, 0, 0});
  CHECK(after("ld.acquire.gpu.global.u32 %r6, [%rd2];\n") == Numbers{4, 0, 4, 4, 0, 0});
  CHECK(after("ld.acquire.sys.global.u32 %r6, [%rd2];\n") == Numbers{4, 0, 4, 4, 0, 0});
}

TEST_CASE("cache model: the L1 is what the shared memory of the blocks that fit leaves of it") {
  DeviceSpec spec = *find_device("h200");
  spec.sm_count = 1;
  const auto left = [&](std::uint32_t blocks, int resident) {
    Device device(spec, CacheMode::cold);
    return device.run(".shared .align 4 .b8 s[49152]; mov.u32 %r5, s;", blocks, resident)
               .cache.l1_bytes /
           1024;
  };
  CHECK(left(1, 4) == 192);  // a block of 49 KiB: 64 of 256
  CHECK(left(8, 2) == 156);  // 98 KiB: 100; the other six come later
  CHECK(left(8, 3) == 92);   // 147 KiB: 164
}

TEST_CASE("cache model: blocks that are on an SM together compete for its L1") {
  // Each block reads its own line twice; in[128 i] for block i, all in one set of one line. Blocks
  // that take turns throw each other's line out; one after the other, the second read hits.
  const std::string body = R"(
mul.wide.u32 %rd4, %r2, 384;
add.u64 %rd2, %rd2, %rd4;
ld.global.u32 %r5, [%rd2];
ld.global.u32 %r6, [%rd2];)";
  Device device(small_device(), CacheMode::cold);
  // Lines 512 bytes apart: 128 for the thread's number in the grid and 384 more.
  CHECK(numbers(device.run(body, 2, 2).cache.by_access[0]) == Numbers{16, 0, 16, 8, 8, 0});
  CHECK(device.run(body, 2, 2).cache.resident_blocks == 2);
  CHECK(numbers(device.run(body, 2, 1).cache.by_access[0]) == Numbers{16, 8, 8, 0, 8, 0});
}

TEST_CASE("cache model: the L2 of the launch before") {
  const std::string body = "ld.global.u32 %r5, [%rd2];\nst.global.u32 [%rd1], %r5;";
  Device cold(small_device(), CacheMode::cold), warm(small_device(), CacheMode::warm);
  for (int i = 0; i < 2; ++i) {
    const CacheReport c = cold.run(body).cache;
    CHECK(c.dram_read == 4);
    CHECK(c.dram_written == 4);
  }
  CHECK(warm.run(body).cache.dram_read == 4);
  const CacheReport second = warm.run(body).cache;
  CHECK(second.dram_read == 0);  // the L1 is empty again, the L2 is not
  CHECK(second.by_access[0].l1_hits == 0);
  CHECK(second.by_access[0].l2_hits == 4);
  CHECK(second.dram_written == 0);  // dirty lines wait until they must make way
}

TEST_CASE("cache model: local memory goes through the caches") {
  // 32 threads' words lie side by side: a line. Stored, read back from the L1; DRAM gets it when
  // the launch ends and all is written back.
  Device device(small_device(), CacheMode::cold);
  const LaunchCounters c = device.run(R"(
st.local.u32 [stack], %r1;
ld.local.u32 %r5, [stack];)");
  CHECK(numbers(of_line(c, "st.local")) == Numbers{4, 0, 4, 4, 0, 4});
  CHECK(numbers(of_line(c, "ld.local")) == Numbers{4, 4, 0, 0, 0, 0});
  CHECK(c.cache.dram_written == 4);
  CHECK(c.allocations.empty());
}

TEST_CASE("cache model: bulk copies go past the L1") {
  // 96 bytes from byte 16 of a line on: 4 sectors, loaded by the copy engine twice (the second time
  // from the L2), then by the first lane, in whose L1 they are not. And 32 bytes are stored.
  Device device(small_device(), CacheMode::cold);
  const LaunchCounters c = device.run(R"(
.shared .align 16 .b8 tile[96]; .shared .align 8 .b64 object;
setp.ne.u32 %p1, %r1, 0;
@%p1 exit;
mbarrier.init.shared.b64 [object], 1;
mbarrier.arrive.expect_tx.shared.b64 %rd9, [object], 192;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [tile], [%rd2+16], 96, [object];
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint [tile], [%rd2+16], 96, [object], %rd1;
wait: mbarrier.try_wait.shared.b64 %p2, [object], %rd9;
@!%p2 bra wait;
ld.global.u32 %r5, [%rd2+16];
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [tile], 32;)");
  const std::string load = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes";
  CHECK(numbers(of_line(c, load + " [")) == Numbers{0, 0, 4, 0, 4, 0});
  CHECK(numbers(of_line(c, load + ".L2::cache_hint [")) == Numbers{0, 0, 4, 4, 0, 0});
  CHECK(numbers(of_line(c, "ld.global")) == Numbers{1, 0, 1, 1, 0, 0});
  CHECK(numbers(of_line(c, "cp.async.bulk.global")) == Numbers{0, 0, 1, 1, 0, 1});
  CHECK(numbers(c.cache.by_access[0]) == Numbers{1, 0, 9, 5, 4, 0});
  // Over 2000 bytes/us: 9 sectors loaded and 1 stored.
  const auto json = nlohmann::json::parse(report_json(c, device.machine.spec()));
  CHECK(json["limits"]["L2"].get<double>() == doctest::Approx(0.16));
  CHECK(json["copy_engine"]["load"]["l2_sectors"] == 8);

  // 256 bytes from byte 16 on touch 9 sectors, each once, in three lines.
  Device lines(small_device(), CacheMode::cold);
  const LaunchCounters across = lines.run(R"(
.shared .align 16 .b8 tile[256]; .shared .align 8 .b64 object;
setp.ne.u32 %p1, %r1, 0;
@%p1 exit;
mbarrier.init.shared.b64 [object], 1;
mbarrier.arrive.expect_tx.shared.b64 %rd9, [object], 256;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [tile], [%rd2+16], 256, [object];
wait: mbarrier.try_wait.shared.b64 %p2, [object], %rd9;
@!%p2 bra wait;)");
  CHECK(numbers(of_line(across, load + " [")) == Numbers{0, 0, 9, 0, 9, 0});
}
