// Traces: what is asked for, and what is written.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../profile/trace.h"
#include "../runtime/settings.h"
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;
using Json = nlohmann::json;

namespace {

std::string temporary(const std::string& name) {
  const auto directory = std::filesystem::temp_directory_path();
  return (directory / ("vgpu_" + std::to_string(getpid()) + "_" + name)).string();
}

TraceSpec spec(const std::string& text) {
  std::string error;
  const auto parsed = parse_trace(text, error);
  REQUIRE(parsed.has_value());
  CHECK(error == "");
  return *parsed;
}

struct Traced {
  Json json;  // null: nothing was written
  std::vector<std::string> notes;
  std::string missing;
};

// Traces the launch of a kernel called `k` with the body given, and 2 x 2 blocks.
Traced trace(const std::string& what, const std::string& body, Dim3 block = {32, 1, 1},
             Dim3 cluster = {1, 1, 1}) {
  Gpu gpu;
  gpu.cluster = cluster;
  const std::string file = temporary("trace.json");
  gpu.machine.tracer().set(spec(what + ":" + file));
  const auto out = gpu.array<std::uint32_t>(4096), in = gpu.array<std::uint32_t>(4096);
  gpu.machine.memory().name(out.address(), "out");
  const LaunchOutcome outcome =
      gpu.launch(kernel(body), {out.address(), in.address()}, block, {2, 2, 1});
  REQUIRE(outcome.fault.message == "");
  Traced result{nullptr, gpu.machine.tracer().take_notes(), gpu.machine.tracer().missing()};
  if (std::ifstream stream(file); stream) result.json = Json::parse(stream);
  std::filesystem::remove(file);
  return result;
}

}  // namespace

TEST_CASE("trace: what can be asked for") {
  CHECK(spec("scores:7").kernel == "scores");
  CHECK(spec("scores:7").linear);
  CHECK(spec("scores:7").block[0] == 7);
  CHECK(spec("scores:7").launch == 1);
  CHECK(spec("scores:7").file == "trace.json");
  const TraceSpec full = spec("ns::f<(int)2>:1,2,3@4:a:b 5:6.json");
  CHECK(full.kernel == "ns::f<(int)2>");
  CHECK_FALSE(full.linear);
  CHECK(full.block == std::array<std::uint64_t, 3>{1, 2, 3});
  CHECK(full.launch == 4);
  CHECK(full.file == "a:b 5:6.json");
  for (const char* wrong :
       {"", "scores", "scores:", ":3", "scores:x", "scores:1,2", "scores:1,2,3,4", "scores:1@",
        "scores:1@0", "scores:1:", "scores:-1", "scores:1 :f"}) {
    std::string error;
    CHECK_FALSE(parse_trace(wrong, error).has_value());
    CHECK(error.find("KERNEL:BLOCK") != error.npos);
  }
}

TEST_CASE("settings: VGPU_TRACE and VGPU_CACHE") {
  const auto with = [](const char* variable, const char* value) {
    return runtime::read_settings(
        [&](const char* name) { return std::string(name) == variable ? value : nullptr; });
  };
  CHECK_FALSE(with("VGPU_THREADS", "1").trace.has_value());
  CHECK(with("VGPU_TRACE", "scores:3").trace->block[0] == 3);
  const auto wrong = with("VGPU_TRACE", "scores");
  CHECK_FALSE(wrong.trace.has_value());
  CHECK(wrong.error.find("VGPU_TRACE='scores': say KERNEL:BLOCK") == 0);
  CHECK(with("VGPU_THREADS", "1").options.cache == CacheMode::off);
  CHECK(with("VGPU_CACHE", "0").options.cache == CacheMode::off);
  CHECK(with("VGPU_CACHE", "1").options.cache == CacheMode::cold);
  CHECK(with("VGPU_CACHE", "cold").options.cache == CacheMode::cold);
  CHECK(with("VGPU_CACHE", "warm").options.cache == CacheMode::warm);
  CHECK(with("VGPU_CACHE", "yes").error.find("VGPU_CACHE='yes'") == 0);
}

TEST_CASE("trace: lanes, offsets, sectors and banks of one block") {
  // Two warps. Each thread t of block b reads in[64 b + t], leaves it in word 2 t of shared memory,
  // and threads 0 to 3 store to out[8 t].
  const auto t = trace("k:1,1,0", R"(.shared .align 4 .b8 tile[512];
mov.u32 %r1, %ctaid.y; mad.lo.u32 %r1, %r1, 2, %block; shl.b32 %r1, %r1, 6;
add.u32 %r1, %r1, %thread; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %rd1, %in;
ld.global.u32 %r2, [%rd1];
mul.lo.u32 %r3, %thread, 8; mov.u32 %r4, tile; add.u32 %r4, %r4, %r3;
st.shared.u32 [%r4], %r2;
setp.lt.u32 %p1, %thread, 4;
mul.wide.u32 %rd2, %thread, 32; add.u64 %rd2, %rd2, %out;
@%p1 st.global.u32 [%rd2], %r2;)",
                       {64, 1, 1});
  REQUIRE(t.json.is_object());
  CHECK(t.json["version"] == 1);
  CHECK(t.json["kernel"] == "k");
  CHECK(t.json["grid"] == Json({2, 2, 1}));
  CHECK(t.json["traced_block"] == Json({1, 1, 0}));
  CHECK(t.json["traced_block_linear"] == 3);
  CHECK(t.json["accesses_executed"] == 5);  // two warps twice, one of them once more
  CHECK(t.json["note"] == "");
  REQUIRE(t.json["accesses"].size() == 5);
  REQUIRE(t.json["instructions"].size() == 3);
  const Json& load = t.json["instructions"][0];
  CHECK(load["ptx"] == "ld.global.u32 %r2, [%rd1];");
  CHECK(load["executed"] == 2);
  CHECK(load["first"]["warp"] == 0);
  // Block 3, warp 0: from byte 3 x 64 x 4 = 768 on, 128 bytes: sectors 24 to 27 of the allocation.
  CHECK(load["first"]["allocation"] == "argument 2");
  CHECK(load["first"]["offsets"][0] == 768);
  CHECK(load["first"]["offsets"][31] == 768 + 124);
  CHECK(load["first"]["sectors"] == Json({24, 25, 26, 27}));
  CHECK(load["first"]["mask"] == 0xffffffffu);
  // Every other word: 32 lanes in 16 banks, two wavefronts.
  const Json& shared = t.json["instructions"][1]["first"];
  CHECK(shared["space"] == "shared");
  CHECK(shared["access"] == "store");
  CHECK(shared["offsets"][17] == 136);
  CHECK(shared["banks"][17] == 2);  // 136 / 4 = 34
  CHECK(shared["wavefronts"] == 2);
  CHECK(shared["ideal_wavefronts"] == 1);
  const Json& store = t.json["instructions"][2]["first"];
  CHECK(store["mask"] == 15);
  CHECK(store["allocation"] == "out");
  CHECK(store["offsets"][3] == 96);
  CHECK(store["offsets"][4].is_null());
  CHECK(store["sector_count"] == 4);
  REQUIRE(t.notes.size() == 1);
  CHECK(t.notes[0].find("5 accesses of block 3 of k in ") != std::string::npos);
  CHECK(t.missing == "");
}

TEST_CASE("trace: lanes in several allocations") {
  const auto t = trace("k:0", R"(setp.lt.u32 %p1, %thread, 8;
selp.b64 %rd1, %out, %in, %p1; add.u64 %rd1, %rd1, 64;
ld.global.u32 %r2, [%rd1];)");
  REQUIRE(t.json.is_object());
  const Json& first = t.json["instructions"][0]["first"];
  CHECK(first["allocation"][7] == "out");
  CHECK(first["allocation"][8] == "argument 2");
  CHECK(first["offsets"][8] == 64);
  REQUIRE(first["sectors"].size() == 2);
  CHECK(first["sectors"][0] == Json::array({"out", 2}));
  CHECK(first["sectors"][1] == Json::array({"argument 2", 2}));
}

TEST_CASE("trace: asynchronous copies say where they go") {
  const auto t = trace("k:0", R"(.shared .align 16 .b8 tile[512];
mul.wide.u32 %rd1, %thread, 8; add.u64 %rd1, %rd1, %in;
mul.lo.u32 %r1, %thread, 8; mov.u32 %r2, tile; add.u32 %r2, %r2, %r1;
cp.async.ca.shared.global [%r2], [%rd1], 8;
cp.async.wait_all;)");
  REQUIRE(t.json.is_object());
  REQUIRE(t.json["accesses"].size() == 1);
  const Json& copy = t.json["accesses"][0];
  CHECK(copy["space"] == "global");
  CHECK(copy["sector_count"] == 8);
  CHECK(copy["to_shared"][5] == 40);
  CHECK(copy["banks"][17] == 2);  // 136 / 4 = 34
}

TEST_CASE("trace: accesses to another block's shared memory say whose it is") {
  // Block 3 is at (1,1); its cluster has blocks 2 and 3 of the row.
  const Traced t = trace("k:3", R"(
.shared .align 16 .b8 s[256];
mov.u32 %r2, s; shl.b32 %r1, %lane, 2; add.u32 %r2, %r2, %r1; st.shared.u32 [%r2], %lane;
mapa.shared::cluster.u32 %r3, %r2, 0; mapa.shared::cluster.u32 %r4, %r2, 1;
barrier.cluster.arrive; barrier.cluster.wait;
ld.shared::cluster.u32 %r5, [%r3+128]; ld.shared::cluster.u32 %r6, [%r4];
barrier.cluster.arrive; barrier.cluster.wait;)",
                         {32, 1, 1}, {2, 1, 1});
  const Json& a = t.json["accesses"];
  REQUIRE(a.size() == 3);
  CHECK_FALSE(a[0].contains("of_block"));
  CHECK(a[1]["of_block"] == 2);
  CHECK(a[1]["access"] == "load");
  CHECK(a[1]["offsets"][1] == 132);
  CHECK_FALSE(a[2].contains("of_block"));
  CHECK(a[2]["offsets"][1] == 4);
}

TEST_CASE("trace: long loops are cut, and the rest is counted") {
  const auto t = trace("k:0", R"(mov.u32 %r1, 0;
LOOP: ld.global.u32 %r2, [%in];
add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 10003;
@%p1 bra LOOP;
st.global.u32 [%mine], %r2;)");
  REQUIRE(t.json.is_object());
  CHECK(t.json["accesses_executed"] == 10004);
  CHECK(t.json["accesses_written"] == kTracedAccesses);
  CHECK(t.json["accesses"].size() == kTracedAccesses);
  CHECK(t.json["instructions"][0]["executed"] == 10003);
  CHECK(t.json["instructions"][1]["first"]["n"] == 10003);  // summarized all the same
  CHECK(t.json["note"].get<std::string>().find("only the first 10000") == 0);
  CHECK(t.notes[0].find("10000 of 10004 accesses") != std::string::npos);
}

TEST_CASE("trace: says why nothing was written") {
  const std::string body = "st.global.u32 [%mine], %thread;";
  for (const char* what : {"k:4", "k:0,2,0", "k:18446744073709551615"}) {
    const auto t = trace(what, body);
    CHECK(t.json.is_null());
    REQUIRE(t.notes.size() == 1);
    CHECK(t.notes[0].find("outside the grid (2, 2, 1) of k") != std::string::npos);
  }
  const auto other = trace("softmax:0", body);
  CHECK(other.json.is_null());
  CHECK(other.missing.find("no kernel with 'softmax' in its name") != std::string::npos);
  CHECK(other.missing.find("there were k") != std::string::npos);
  const auto later = trace("k:0@2", body);
  CHECK(later.json.is_null());
  CHECK(later.missing.find("'k' was launched 1 times, not 2") != std::string::npos);

  Gpu gpu;
  gpu.machine.tracer().set(spec("k:4"));
  gpu.run("st.global.u32 [%mine], %thread;");
  CHECK(gpu.machine.tracer().failed());
  CHECK(gpu.machine.tracer().take_notes().size() == 1);
  gpu.machine.tracer().set(spec("k:0:/no/such/place/trace.json"));
  gpu.run("st.global.u32 [%mine], %thread;");
  const auto notes = gpu.machine.tracer().take_notes();
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find("cannot write /no/such/place/trace.json") != std::string::npos);
}

TEST_CASE("trace: one launch, that which was asked for") {
  Gpu gpu;
  const std::string file = temporary("second.json");
  gpu.machine.tracer().set(spec("k:0@2:" + file));
  for (int i = 0; i < 3; ++i) {
    gpu.run("st.global.u32 [%mine+" + std::to_string(4 * i) + "], %thread;", 64);
    CHECK(std::filesystem::exists(file) == (i == 1));
    if (i != 1) continue;
    std::ifstream stream(file);
    const Json json = Json::parse(stream);
    CHECK(json["launch"] == 2);
    CHECK(json["accesses"][0]["offsets"][0] == 4);
    stream.close();
    std::filesystem::remove(file);
  }
}
