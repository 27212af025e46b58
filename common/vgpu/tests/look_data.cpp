// The data of a look inside: accesses and counters of small kernels, worked out by hand; what is left out.
#include <nlohmann/json.hpp>

#include "../look/look.h"
#include "../profile/devices.h"
#include "../profile/report.h"
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;
using Json = nlohmann::json;

namespace {

constexpr std::size_t kMuch = 50'000'000;

// Launches whose look is taken.
struct Looked : Gpu {
  look::Look look{*find_device("h200")};
  LaunchRequest request;  // the last launch's

  explicit Looked(MachineOptions options = {.threads = 1}) : Gpu(options) {
    machine.look = [this](const Launch& launch) {
      request = request_of(launch);
      return look.watch(launch);
    };
  }
  static const LaunchRequest& request_of(const Launch& launch);

  LaunchOutcome take(const std::string& text, const std::vector<Argument>& arguments,
                     Dim3 block = {32, 1, 1}, Dim3 grid = {1, 1, 1}) {
    LaunchOutcome outcome = launch(text, arguments, block, grid);
    look.add({request, outcome});
    return outcome;
  }
  Json data(std::size_t most = kMuch, const look::Ending& ending = {}) {
    const std::string text = look.data(ending, most);
    CHECK(text.size() <= most);
    return Json::parse(text);
  }
};

// Looks at a kernel called `k` with the body given; 16 KB behind %out ('out') and %in.
Json looked(const std::string& body, Dim3 block = {32, 1, 1}, Dim3 grid = {1, 1, 1},
            Dim3 cluster = {1, 1, 1}) {
  Looked gpu;
  gpu.cluster = cluster;
  const auto out = gpu.array<std::uint32_t>(4096), in = gpu.array<std::uint32_t>(4096);
  gpu.machine.memory().name(out.address(), "out");
  const LaunchOutcome outcome = gpu.take(kernel(body), {out.address(), in.address()}, block, grid);
  REQUIRE(outcome.fault.message == "");
  return gpu.data()["launches"][0];
}

// The accesses of an instruction whose text holds `part`.
std::vector<Json> accesses_of(const Json& launch, const std::string& part) {
  std::vector<Json> found;
  const Json& accesses = launch["accesses"];
  for (const Json& access : accesses["list"]) {
    const Json& instruction = accesses["instructions"][access["i"].get<std::size_t>()];
    const std::string text = launch["ptx"][instruction["p"].get<std::size_t>()]["t"];
    if (text.find(part) != text.npos) found.push_back(access);
  }
  return found;
}

const Json& line_of(const Json& launch, const std::string& part) {
  for (const Json& line : launch["ptx"])
    if (line["t"].get<std::string>().find(part) != std::string::npos) return line;
  FAIL("no line with ", part);
  return launch;
}

}  // namespace

#include "../core/block.h"
const LaunchRequest& Looked::request_of(const Launch& launch) { return launch.request; }

TEST_CASE("look: lanes, offsets, sectors and wavefronts of an access") {
  // Two warps; thread t reads in[2 t], leaves it in word 4 t of shared memory, and threads 0 to 3 store to
  // out[8 t].
  const Json launch = looked(R"(.shared .align 4 .b8 tile[1024];
mul.wide.u32 %rd1, %thread, 8; add.u64 %rd1, %rd1, %in;
ld.global.u32 %r2, [%rd1];
mul.lo.u32 %r3, %thread, 16; mov.u32 %r4, tile; add.u32 %r4, %r4, %r3;
st.shared.u32 [%r4], %r2;
setp.lt.u32 %p1, %thread, 4;
mul.wide.u32 %rd2, %thread, 32; add.u64 %rd2, %rd2, %out;
@%p1 st.global.u32 [%rd2], %r2;)",
                             {64, 1, 1});
  CHECK(launch["accesses"]["block"] == 0);
  CHECK(launch["accesses"]["left_out"] == 0);
  const auto loads = accesses_of(launch, "ld.global");
  REQUIRE(loads.size() == 2);
  CHECK(loads[0]["w"] == 0);
  CHECK(loads[0]["k"] == 0);
  CHECK(loads[0]["m"] == 0xffffffffu);
  CHECK(loads[0]["a"] == "argument 2");
  CHECK(loads[0]["o"] == Json({{"first", 0}, {"step", 8}}));
  CHECK(loads[0]["s"] == 8);  // 256 bytes, of which half are asked for
  CHECK(loads[1]["w"] == 1);
  CHECK(loads[1]["o"] == Json({{"first", 256}, {"step", 8}}));
  // Every fourth word: 32 lanes in 8 banks, four wavefronts.
  const auto shared = accesses_of(launch, "st.shared");
  REQUIRE(shared.size() == 2);
  CHECK(shared[1]["o"] == Json({{"first", 512}, {"step", 16}}));
  CHECK(shared[1]["v"] == 4);
  CHECK(shared[1]["d"] == 1);
  const auto stores = accesses_of(launch, "st.global");
  REQUIRE(stores.size() == 1);
  CHECK(stores[0]["m"] == 15);
  CHECK(stores[0]["a"] == "out");
  CHECK(stores[0]["o"] == Json({{"first", 0}, {"step", 32}}));
  CHECK(stores[0]["s"] == 4);

  const Json& load = line_of(launch, "ld.global")["c"];
  CHECK(load["executed"] == 2);
  CHECK(load["threads"] == 64);
  CHECK(load["requests"] == 2);
  CHECK(load["sectors"] == 16);
  CHECK(load["ideal"] == 8);
  CHECK_FALSE(load.contains("wavefronts"));
  const Json& store = line_of(launch, "st.shared")["c"];
  CHECK(store["shared_requests"] == 2);
  CHECK(store["wavefronts"] == 8);
  CHECK(store["conflicts"] == 6);
  CHECK_FALSE(store.contains("sectors"));
  const Json& instruction = launch["accesses"]["instructions"][1];
  CHECK(instruction["space"] == "shared");
  CHECK(instruction["kind"] == "store");
  CHECK(instruction["bytes"] == 4);
  CHECK(instruction["executed"] == 2);
}

TEST_CASE("look: lanes that are not evenly spaced, and in several allocations") {
  // Lane l reads word l ^ 1; lanes below 8 of `out`, others of `in`.
  const Json launch = looked(R"(xor.b32 %r1, %thread, 1; mul.wide.u32 %rd1, %r1, 4;
setp.lt.u32 %p1, %thread, 8; selp.b64 %rd2, %out, %in, %p1; add.u64 %rd1, %rd1, %rd2;
ld.global.u32 %r2, [%rd1];
add.u64 %rd3, %in, %rd1; sub.u64 %rd3, %rd3, %rd2;
setp.ne.u32 %p2, %thread, 5;
@%p2 ld.global.u32 %r3, [%rd3];)");
  const auto both = accesses_of(launch, "ld.global.u32 %r2");
  REQUIRE(both.size() == 1);
  REQUIRE(both[0]["a"].is_array());
  CHECK(both[0]["a"][7] == "out");
  CHECK(both[0]["a"][8] == "argument 2");
  REQUIRE(both[0]["o"].is_array());
  CHECK(both[0]["o"][0] == 4);
  CHECK(both[0]["o"][1] == 0);
  CHECK(both[0]["o"][31] == 120);
  CHECK(both[0]["s"] == 4);  // bytes 0 to 31 of one, 32 to 127 of the other
  const auto guarded = accesses_of(launch, "ld.global.u32 %r3");
  REQUIRE(guarded.size() == 1);
  CHECK(guarded[0]["m"] == (0xffffffffu & ~(1u << 5)));
  CHECK(guarded[0]["o"][5].is_null());
  CHECK(guarded[0]["o"][4] == 20);
}

TEST_CASE("look: asynchronous copies say where they go, bulk copies what they move") {
  const Json launch = looked(R"(.shared .align 16 .b8 tile[512];
mul.wide.u32 %rd1, %thread, 8; add.u64 %rd1, %rd1, %in;
mul.lo.u32 %r1, %thread, 8; mov.u32 %r2, tile; add.u32 %r2, %r2, %r1;
cp.async.ca.shared.global [%r2], [%rd1], 8;
cp.async.wait_all;
setp.eq.u32 %p1, %thread, 3; add.u64 %rd2, %out, 64;
fence.proxy.async; bar.sync 0;
mov.u32 %r5, tile;
@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r5], 96;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;)");
  const auto copies = accesses_of(launch, "cp.async.ca");
  REQUIRE(copies.size() == 1);
  CHECK(copies[0]["o"] == Json({{"first", 0}, {"step", 8}}));
  CHECK(copies[0]["to"] == Json({{"first", 0}, {"step", 8}}));
  CHECK(copies[0]["s"] == 8);
  CHECK(copies[0]["v"] == 2);
  const auto bulk = accesses_of(launch, "cp.async.bulk.global");
  REQUIRE(bulk.size() == 1);
  CHECK(bulk[0]["m"] == 8);
  CHECK(bulk[0]["a"] == "out");
  CHECK(bulk[0]["rows"] == Json::array({Json::array({64, 96})}));
  CHECK(bulk[0]["bytes"] == 96);
  CHECK(bulk[0]["s"] == 3);
}

TEST_CASE("look: of each instruction the first executions of the first warps, in fair shares") {
  // Ten warps load 20 times.
  const Json launch = looked(R"(mov.u32 %r1, 0;
again:
ld.global.u32 %r2, [%in];
add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 20;
@%p1 bra again;
st.global.u32 [%mine], %r2;)",
                             {320, 1, 1});
  const auto loads = accesses_of(launch, "ld.global");
  CHECK(loads.size() == look::kKeptWarps * look::kKeptExecutions);
  std::uint64_t most_warp = 0, most = 0;
  for (const Json& load : loads) {
    most_warp = std::max(most_warp, load["w"].get<std::uint64_t>());
    most = std::max(most, load["k"].get<std::uint64_t>());
  }
  CHECK(most_warp == look::kKeptWarps - 1);
  CHECK(most == look::kKeptExecutions - 1);
  CHECK(loads[0]["k"] == 0);
  CHECK(loads[1]["w"] == 1);  // the first execution of each warp, then the second
  CHECK(launch["accesses"]["instructions"][0]["executed"] == 200);
  CHECK(accesses_of(launch, "st.global").size() == look::kKeptWarps);
  CHECK(launch["accesses"]["left_out"] == 200 - 96 + 10 - 8);

  std::vector<look::AccessInstruction> some(3);
  some[0].rows.resize(50);
  some[1].rows.resize(2);
  some[2].rows.resize(5);
  using Shares = std::vector<std::size_t>;
  CHECK(look::fair_shares(some, 100) == Shares{50, 2, 5});
  CHECK(look::fair_shares(some, 20) == Shares{13, 2, 5});
  CHECK(look::fair_shares(some, 6) == Shares{2, 2, 2});
  CHECK(look::fair_shares(some, 0) == Shares{0, 0, 0});
}

TEST_CASE("look: counters of PTX lines add up to the report's") {
  const Json launch = looked(R"(.shared .align 4 .b8 tile[4096];
mul.lo.u32 %r3, %thread, 132; and.b32 %r3, %r3, 4092; mov.u32 %r4, tile; add.u32 %r4, %r4, %r3;
ld.global.u32 %r2, [%mine]; st.shared.u32 [%r4], %r2; ld.shared.u32 %r5, [%r4];
mul.wide.u32 %rd1, %number, 8; add.u64 %rd1, %rd1, %in; st.global.u32 [%rd1], %r5;
setp.lt.u32 %p1, %lane, 7; @%p1 atom.global.add.u32 %r6, [%in], 1;)",
                             {96, 1, 1}, {5, 2, 1});
  std::map<std::string, std::uint64_t> sums;
  for (const Json& line : launch["ptx"]) {
    if (!line.contains("c")) continue;
    for (const auto& [name, value] : line["c"].items())
      if (value.is_number()) sums[name] += value.get<std::uint64_t>();
  }
  const Json& report = launch["report"];
  CHECK(sums["executed"] == report["warp_instructions"]);
  CHECK(sums["threads"] == report["thread_instructions"]);
  const auto total = [&](const char* space, const char* what) {
    std::uint64_t sum = 0;
    for (const char* access : {"load", "store", "atomic"})
      sum += report[space][access][what].get<std::uint64_t>();
    return sum;
  };
  CHECK(sums["requests"] == total("global", "requests"));
  CHECK(sums["sectors"] == total("global", "sectors"));
  CHECK(sums["sectors"] > sums["ideal"]);
  CHECK(sums["shared_requests"] == total("shared", "requests"));
  CHECK(sums["wavefronts"] == total("shared", "wavefronts"));
  CHECK(sums["conflicts"] == total("shared", "conflicts"));
  CHECK(sums["shared_requests"] > 0);
  CHECK(launch["sass"].is_null());
  CHECK(launch["sass_why"].get<std::string>().find("VGPU_TIME=0") != std::string::npos);
}

TEST_CASE("look: operations by hand, of multiply-adds two") {
  // 64 threads: a multiply-add, an addition, a multiplication, a packed multiply-add, a maximum.
  const Json launch = looked(R"(mov.f32 %f1, 0f3F800000; mov.b32 %r1, 0;
fma.rn.f32 %f2, %f1, %f1, %f1; add.f32 %f3, %f2, %f1; mul.f32 %f4, %f3, %f3;
fma.rn.f16x2 %r2, %r1, %r1, %r1; max.f32 %f5, %f4, %f3;
st.global.f32 [%mine], %f5; st.global.u32 [%mine], %r2;)",
                             {64, 1, 1});
  CHECK(launch["flops_by"]["fp32"] == 64 * 4);
  CHECK(launch["flops_by"]["fp16"] == 64 * 4);
  CHECK(launch["flops_by"]["tensor"] == 0);
  CHECK(launch["flops"] == 64 * 8);
}

TEST_CASE("look: another block's shared memory is said whose it is") {
  const Json launch = looked(R"(.shared .align 4 .b8 tile[128];
mov.u32 %r1, tile; shl.b32 %r2, %lane, 2; add.u32 %r1, %r1, %r2;
st.shared.u32 [%r1], %lane;
barrier.cluster.arrive; barrier.cluster.wait;
mapa.shared::cluster.u32 %r3, %r1, 1;
ld.shared::cluster.u32 %r4, [%r3];
barrier.cluster.arrive; barrier.cluster.wait;
st.global.u32 [%mine], %r4;)",
                             {32, 1, 1}, {4, 1, 1}, {2, 1, 1});
  const auto remote = accesses_of(launch, "ld.shared::cluster");
  REQUIRE(remote.size() == 1);
  CHECK(remote[0]["of"] == 1);
  CHECK_FALSE(accesses_of(launch, "st.shared.u32").at(0).contains("of"));
}

TEST_CASE("look: launches alike stand there once, with their number; too many are counted") {
  Looked gpu;
  const auto out = gpu.array<std::uint32_t>(4096), in = gpu.array<std::uint32_t>(4096);
  const std::string text = kernel("st.global.u32 [%mine], 1;");
  for (int n = 0; n < 3; ++n)
    for (unsigned grid = 1; grid <= look::kLaunches + 2; ++grid)
      gpu.take(text, {out.address(), in.address()}, {32, 1, 1}, {grid, 1, 1});
  const Json data = gpu.data();
  REQUIRE(data["launches"].size() == look::kLaunches);
  CHECK(data["launches_left_out"] == 6);
  CHECK(data["launches"][4]["count"] == 3);
  CHECK(data["launches"][4]["index"] == 4);
  CHECK(data["launches"][4]["report"]["grid"][0] == 5);
  CHECK(data["detail"] == 1.0);
}

TEST_CASE("look: a launch that fails is there with what was found") {
  Looked gpu;
  const auto out = gpu.array<std::uint32_t>(16), in = gpu.array<std::uint32_t>(16);
  const LaunchOutcome outcome =
      gpu.take(kernel("st.global.u32 [%mine], 1; ld.global.u32 %r1, [%in+4096];"),
               {out.address(), in.address()}, {16, 1, 1});
  REQUIRE(outcome.fault.kind != FaultKind::none);
  const Json launch = gpu.data()["launches"][0];
  REQUIRE(launch["findings"].size() == 1);
  CHECK(launch["findings"][0] == outcome.fault.message);
  CHECK(launch["report"]["failed"] == true);
  CHECK(launch["report"]["block"][0] == 16);
  CHECK(launch["kernel"] == "k");
  CHECK(launch["accesses"]["list"].size() == 1);  // what was before it
  CHECK(launch["sass_why"] == "the launch failed");
}

TEST_CASE("look: what does not fit is thinned out, the same each time") {
  Looked gpu;
  const auto out = gpu.array<std::uint32_t>(4096), in = gpu.array<std::uint32_t>(4096);
  std::string body;
  for (int i = 0; i < 60; ++i)
    body += "xor.b32 %r1, %thread, " + std::to_string(i % 32) +
            "; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %rd1, %in; ld.global.u32 %r2, [%rd1+" +
            std::to_string(128 * i) + "];\n";
  for (unsigned grid = 1; grid <= 3; ++grid)
    gpu.take(kernel(body), {out.address(), in.address()}, {256, 1, 1}, {grid, 1, 1});
  const std::string whole = gpu.look.data({}, kMuch);
  const Json all = Json::parse(whole);
  REQUIRE(all["launches"].size() == 3);
  REQUIRE(all["detail"] == 1.0);
  const std::size_t listed = all["launches"][0]["accesses"]["list"].size();
  CHECK(listed == 480);

  const Json less = gpu.data(whole.size() * 4 / 5);
  REQUIRE(less["launches"].size() == 3);
  CHECK(less["detail"] < 1.0);
  const Json& accesses = less["launches"][2]["accesses"];
  CHECK(accesses["list"].size() < listed);
  CHECK(accesses["list"].size() + accesses["left_out"].get<std::size_t>() == 480);
  CHECK(gpu.look.data({}, whole.size() * 4 / 5) == gpu.look.data({}, whole.size() * 4 / 5));

  const Json few = gpu.data(whole.size() / 8);
  CHECK(few["launches"].size() < 3);
  CHECK(few["launches"].size() + few["launches_left_out"].get<std::size_t>() == 3);
}

TEST_CASE("look: nothing in the data ends the element that they stand in") {
  Looked gpu;
  const auto out = gpu.array<std::uint32_t>(64), in = gpu.array<std::uint32_t>(64);
  gpu.machine.memory().name(out.address(), "</script><!--<ScRiPt> \x01\xff\"\\\n\xe2\x82\xac");
  gpu.take(kernel("st.global.u32 [%mine], 1;"), {out.address(), in.address()});
  const std::string page = gpu.look.page({"", {"finding </script> \xfe"}});
  CHECK(page.size() <= look::kPageBytes);
  const std::string begin = "id=\"look-data\">";
  const std::size_t at = page.find(begin);
  REQUIRE(at != page.npos);
  const std::size_t end = page.find("</script", at);
  REQUIRE(end != page.npos);
  const std::string text = page.substr(at + begin.size(), end - at - begin.size());
  CHECK(text.find("<!") == text.npos);
  CHECK(text.find("<s") == text.npos);
  CHECK(text.find("<S") == text.npos);
  const Json data = Json::parse(text);  // throws where the element ends too early
  const std::string name = "</script><!--<ScRiPt> \x01\xef\xbf\xbd\"\\\n\xe2\x82\xac";
  CHECK(data["launches"][0]["accesses"]["list"][0]["a"] == name);
  CHECK(data["findings"][0] == "finding </script> \xef\xbf\xbd");
  CHECK(page.find("<!-- look:") == page.npos);
}

TEST_CASE("look: without a launch there is an object all the same") {
  Looked gpu;
  const Json data = gpu.data();
  CHECK(data["version"] == 1);
  CHECK(data["launches"].empty());
  CHECK(data["launches_left_out"] == 0);
  CHECK(data["timeline"].is_null());
  CHECK(data["toolkit"].is_null());
  CHECK(data["sources"].empty());
  CHECK(data["device"]["sms"] == 132);
  CHECK(data["device"]["peaks"]["fp32"].get<double>() == doctest::Approx(2.0 * 128 * 132 * 1980e6));
}
