// The virtual clock of timelines, by hand, and what the file says.
#include <doctest/doctest.h>

#include <limits>
#include <stdexcept>

#include "../profile/devices.h"
#include "../profile/timeline.h"
#include "timeline_support.h"

using namespace vgpu;
using namespace vgpu_tests;

namespace {

using Kind = DeviceTimeline::Kind;
using Before = DeviceTimeline::Before;

// 1 GHz, so that a clock is 1 ns; 10 GB/s each way, so that 10 KB take 1 us beside the latency.
DeviceSpec device() {
  DeviceSpec spec = *find_device("a100");
  spec.sm_count = 10;
  spec.sm_clock_mhz = 1000;
  spec.pcie_gb_s = 10;
  spec.dram_gb_s = 1000;
  return spec;
}

// A timeline whose operations are submitted by calls of 1 us, numbered from 1.
struct Clock {
  DeviceTimeline timeline{device()};
  std::uint64_t number = 0;

  std::uint64_t submit(DeviceTimeline::Lane lane, DeviceTimeline::Operation operation,
                       Before before = {}) {
    timeline.name_lane(lane, 0, "stream " + std::to_string(lane));
    operation.lane = lane;
    operation.number = ++number;
    operation.before = std::move(before);
    timeline.begin_call("call", 1);
    timeline.submit(std::move(operation));
    timeline.end_call();
    return number;
  }
  // A kernel that takes a part of the device for some time.
  std::uint64_t kernel(DeviceTimeline::Lane lane, const char* name, double us, double part = 1,
                       Before before = {}, int priority = 0) {
    DeviceTimeline::Operation operation;
    operation.kind = Kind::kernel;
    operation.name = name;
    operation.us = us;
    operation.share = static_cast<std::uint64_t>(part * DeviceTimeline::kWholeDevice);
    operation.priority = priority;
    return submit(lane, operation, std::move(before));
  }
  std::uint64_t copy(DeviceTimeline::Lane lane, const char* name, Kind kind, std::uint64_t bytes,
                     Before before = {}) {
    DeviceTimeline::Operation operation;
    timeline.make_copy(operation, kind, bytes, false);
    operation.name = name;
    return submit(lane, operation, std::move(before));
  }
  TimelineFile file() { return read_timeline(timeline.json()); }
};

}  // namespace

TEST_CASE("timeline: calls follow each other, and a call that waits lasts until the work is over") {
  Clock clock;
  clock.timeline.begin_call("outer", 10);
  clock.timeline.begin_call("inner", 5);  // a part of the outer one
  clock.timeline.end_call();
  clock.timeline.end_call();
  const auto k = clock.kernel(1, "k", 7);  // submitted from 10 to 11 us: runs from 11 to 18
  clock.timeline.begin_call("wait", 1);
  clock.timeline.wait_for({{1, k}});
  clock.timeline.end_call();
  clock.timeline.begin_call("wait again", 1);  // nothing to wait for
  clock.timeline.wait_for({{1, k}});
  clock.timeline.wait_for_all();
  clock.timeline.end_call();
  const auto file = clock.file();
  CHECK(file.slice("outer").begin == 0);
  CHECK(file.slice("outer").end == 10'000);
  CHECK(file.slices("inner").empty());
  CHECK(file.slice("k").begin == 11'000);
  CHECK(file.slice("k").end == 18'000);
  CHECK(file.slice("wait").begin == 11'000);
  CHECK(file.slice("wait").end == 18'000);
  CHECK(file.slice("wait again").end == 19'000);
  CHECK(file.track(file.slice("k")).find("streams/stream 1") != std::string::npos);
  // An arrow from the call that launched it.
  const auto arrows = file.arrows("launch");
  REQUIRE(arrows.size() == 1);
  CHECK(file.around(arrows[0].first)->name == "call");
  CHECK(file.around(arrows[0].second)->name == "k");
}

TEST_CASE("timeline: kernels run side by side while their shares of the device fit") {
  Clock clock;
  clock.kernel(1, "a", 100, 0.5);   // from 1 us on
  clock.kernel(2, "b", 50, 0.25);   // beside it, from 2
  clock.kernel(3, "c", 30, 0.5);    // does not fit beside both: when b ends, at 52
  clock.kernel(4, "d", 10, 0.125);  // would fit, and does not pass c: at 82, when c ends
  clock.kernel(5, "e", 5);          // alone: when a ends, at 101
  const auto file = clock.file();
  const auto begins = [&](const char* name) { return file.slice(name).begin; };
  CHECK(begins("a") == 1000);
  CHECK(begins("b") == 2000);
  CHECK(begins("c") == 52'000);
  CHECK(begins("d") == 82'000);
  CHECK(begins("e") == 101'000);
}

TEST_CASE("timeline: priority first, then who was ready first") {
  Clock clock;
  clock.kernel(1, "first", 100);
  clock.kernel(2, "second", 10);
  clock.kernel(3, "urgent", 10, 1, {}, -5);
  const auto file = clock.file();
  CHECK(file.slice("first").begin == 1000);
  CHECK(file.slice("urgent").begin == 101'000);
  CHECK(file.slice("second").begin == 111'000);
}

TEST_CASE("timeline: what is ready first runs first, whoever was submitted first") {
  // Stream 2 waits for a long copy; stream 3, submitted later, need not wait for it.
  Clock clock;
  const auto copy = clock.copy(1, "copy", Kind::to_device, 985'000);  // 1.5 + 98.5 = 100 us, from 1
  const auto late = clock.kernel(2, "late", 10, 1, {{1, copy}});
  clock.kernel(3, "early", 20);
  clock.kernel(2, "later", 10, 1, {{1, copy}, {2, late}});
  const auto file = clock.file();
  CHECK(file.slice("copy", "copy").end == 101'000);
  CHECK(file.slice("early").begin == 3000);
  CHECK(file.slice("late").begin == 101'000);
  CHECK(file.slice("later").begin == 111'000);
  // One arrow for the wait: `later` comes after the copy through `late`.
  const auto arrows = file.arrows("dependence");
  REQUIRE(arrows.size() == 1);
  CHECK(file.around(arrows[0].first)->name == "copy");
  CHECK(file.around(arrows[0].second)->name == "late");
}

TEST_CASE("timeline: one copy engine for each direction, beside kernels") {
  Clock clock;
  clock.kernel(1, "k", 1000);
  clock.copy(2, "up 1", Kind::to_device, 85'000);   // 1.5 + 8.5 = 10 us, from 2 us on
  clock.copy(3, "up 2", Kind::to_device, 85'000);   // the engine is busy: from 12
  clock.copy(4, "down", Kind::to_host, 185'000);    // 1.5 + 18.5 = 20 us, from 4
  clock.copy(5, "on", Kind::on_device, 5'000'000);  // 5 MB read and written at 1000 GB/s: 10 us
  DeviceTimeline::Operation fill;
  clock.timeline.make_fill(fill, 5'000'000);  // written: 5 us
  fill.name = "fill";
  clock.submit(6, fill);
  const auto file = clock.file();
  const auto is = [&](const char* name, const char* category, std::int64_t begin,
                      std::int64_t end) {
    CAPTURE(name);
    CHECK(file.slice(name, category).begin == begin);
    CHECK(file.slice(name, category).end == end);
  };
  for (const char* category : {"copy", "engine"}) {
    is("up 1", category, 2000, 12'000);
    is("up 2", category, 12'000, 22'000);
    is("down", category, 4000, 24'000);
  }
  is("on", "copy", 5000, 15'000);
  is("fill", "fill", 6000, 11'000);
  CHECK(file.slices("on", "engine").empty());
  CHECK(file.track(file.slice("up 1", "engine")) == "PCIe copy engines/host to device");
  CHECK(file.track(file.slice("down", "engine")) == "PCIe copy engines/device to host");
  CHECK(file.slice("down", "copy").args["bytes"].get<int>() == 185'000);
  // A device whose link is unknown: said, and only the latency counts.
  DeviceSpec unknown = device();
  unknown.pcie_gb_s = std::numeric_limits<double>::quiet_NaN();
  DeviceTimeline::Operation copy;
  DeviceTimeline(unknown).make_copy(copy, Kind::to_host, 1000, true);
  CHECK(copy.args["duration"].get<std::string>() == "unknown");
  CHECK(copy.args["host_memory"].get<std::string>() == "pageable");
  CHECK(copy.us == timeline_us::kCopyLatency);
  CHECK(overlap(file.slice("up 2", "copy"), file.slice("k")));
  CHECK(overlap(file.slice("down", "copy"), file.slice("k")));
}

TEST_CASE("timeline: what failed orders others, and is not shown") {
  Clock clock;
  const auto a = clock.kernel(1, "a", 50);
  DeviceTimeline::Operation failed;
  failed.name = "failed";
  const auto b = clock.submit(1, failed, {{1, a}});
  clock.kernel(2, "c", 5, 0.01, {{1, b}});
  clock.kernel(3, "d", 5, 0.01, {{7, 99}});  // after something of which nothing is known
  const auto file = clock.file();
  CHECK(file.slices("failed").empty());
  CHECK(file.slice("c").begin == 51'000);
  CHECK(file.slice("d").begin == 51'000);  // a fills the device
}

TEST_CASE("timeline: a kernel's share and time come from its counters") {
  // A100: 2048 threads an SM are 8 blocks of 256; 10 SMs hold 80.
  LaunchCounters counters;
  counters.kernel = "k";
  counters.grid[0] = 20;
  counters.block[0] = 256;
  counters.registers = 32;
  counters.distinct_sectors_read = 312'500;  // 10 MB at 1000 GB/s: 10 us
  const DeviceTimeline timeline(device());
  DeviceTimeline::Operation operation;
  timeline.make_kernel(operation, counters, timeline_us::kLaunch);
  CHECK(operation.kind == Kind::kernel);
  CHECK(operation.us == doctest::Approx(12.5));
  CHECK(operation.share == DeviceTimeline::kWholeDevice / 4);
  CHECK(operation.args["duration"].get<std::string>() == "limit");
  CHECK(operation.args["limit_us"].get<double>() == doctest::Approx(10));
  CHECK(operation.args["launch_us"].get<double>() == 2.5);
  CHECK(operation.args["percent_of_device"].get<double>() == 25);
  counters.grid[0] = 81;
  timeline.make_kernel(operation, counters, timeline_us::kGraphNode);
  CHECK(operation.share == DeviceTimeline::kWholeDevice);
  CHECK(operation.us == doctest::Approx(11.3));
  // Another model of kernel times takes the place of the limits.
  DeviceTimeline predicted(device());
  predicted.model = {[](const LaunchCounters&, const DeviceSpec&) { return 40.0; }, "predicted"};
  DeviceTimeline::Operation other;
  predicted.make_kernel(other, counters, timeline_us::kLaunch);
  CHECK(other.us == 42.5);
  CHECK(other.args["duration"].get<std::string>() == "predicted");
  CHECK(other.args["predicted_us"].get<double>() == 40);
  const auto about = read_timeline(predicted.json()).about;
  CHECK(about["kernels"].get<std::string>().find("predicted") == 0);
  CHECK(read_timeline(DeviceTimeline(device()).json())
            .about["kernels"]
            .get<std::string>()
            .find("limit") == 0);
}

TEST_CASE("timeline: the file says of how many kernels the time is predicted") {
  Clock clock;
  const auto add = [&](bool predicted) {
    LaunchCounters counters;
    counters.grid[0] = 20;
    counters.block[0] = 256;
    counters.distinct_sectors_read = 312'500;
    counters.predicted.asked = true;
    if (predicted)
      counters.predicted.us = 20;
    else
      counters.predicted.why = "no ptxas";
    DeviceTimeline::Operation operation;
    operation.name = predicted ? "a" : "b";
    clock.timeline.make_kernel(operation, counters, timeline_us::kLaunch);
    clock.submit(static_cast<DeviceTimeline::Lane>(clock.number + 1), operation);
  };
  const auto kernels = [&] { return clock.file().about["kernels"].get<std::string>(); };
  add(true);
  CHECK(kernels().find("predicted: ") == 0);
  CHECK(kernels().find("limit") == std::string::npos);
  add(true);
  add(false);
  CHECK(kernels().find("2 of 3 predicted: ") == 0);
  CHECK(kernels().find("; 1 of 3 limit: ") != std::string::npos);
  const auto about = clock.file().about;
  CHECK(about["kernels_by_duration"]["predicted"].get<int>() == 2);
  CHECK(about["kernels_by_duration"]["limit"].get<int>() == 1);
}

TEST_CASE("timeline: times that are no whole microseconds are nanosecond for nanosecond") {
  // 4.35 us are 4349.999... ns to who multiplies by 1000 in binary.
  Clock clock;
  for (int i = 0; i < 2000; ++i)
    clock.kernel(1, ("k" + std::to_string(i)).c_str(), 0.001 * (7 * i % 997) + 0.29);
  const auto kernels = clock.file().slices("", "kernel");
  REQUIRE(kernels.size() == 2000);
  for (int i = 0; i < 2000; ++i) CHECK(kernels[i].end - kernels[i].begin == 7 * i % 997 + 290);
}

TEST_CASE("timeline: a launch of a graph is one slice of its stream, its nodes lie on branches") {
  Clock clock;
  DeviceTimeline& timeline = clock.timeline;
  const auto graph = timeline.new_graph();
  for (const DeviceTimeline::Lane lane : {2, 3})
    timeline.name_lane(lane, graph, "branch " + std::to_string(lane - 1));
  timeline.name_lane(1, 0, "stream 1");
  timeline.begin_call("cudaGraphLaunch", 2);
  const auto group = timeline.begin_group(1, "graph 1");
  const auto node = [&](DeviceTimeline::Lane lane, const char* name, double us, Before before) {
    DeviceTimeline::Operation operation;
    operation.kind = Kind::kernel;
    operation.name = name;
    operation.us = us;
    operation.share = 1;
    operation.group = group;
    operation.lane = lane;
    operation.number = ++clock.number;
    operation.before = std::move(before);
    timeline.submit(operation);
    return operation.number;
  };
  const auto root = node(2, "root", 10, {});
  const auto left = node(2, "left", 20, {{2, root}});
  const auto right = node(3, "right", 30, {{2, root}});
  const auto join = node(2, "join", 5, {{2, left}, {3, right}});
  timeline.end_call();
  clock.kernel(1, "after", 1, 1, {{2, join}, {3, right}});
  const auto file = clock.file();
  CHECK(file.slice("root").begin == 2000);
  CHECK(file.slice("left").begin == 12'000);
  CHECK(file.slice("right").begin == 12'000);
  CHECK(file.slice("join").begin == 42'000);
  CHECK(file.slice("graph 1").begin == 2000);
  CHECK(file.slice("graph 1").end == 47'000);
  CHECK(file.slice("after").begin == 47'000);
  CHECK(file.track(file.slice("right")) == "graph 1/branch 2");
  CHECK(file.track(file.slice("graph 1")) == file.track(file.slice("after")));
  // root to right, right to join, join to what comes after the graph.
  CHECK(file.arrows("dependence").size() == 3);
  const auto launches = file.arrows("launch");
  REQUIRE(launches.size() == 2);
  CHECK(file.around(launches[1].first)->name == "cudaGraphLaunch");
  CHECK(file.around(launches[1].second)->name == "graph 1");
}

TEST_CASE("timeline: what warps do inside an SM, from the kernel's first instruction on") {
  Clock clock;
  DeviceTimeline::Operation operation;
  operation.kind = Kind::kernel;
  operation.name = "k";
  operation.us = 100;
  operation.launch_us = 2.5;
  operation.share = 1;
  const auto first = clock.submit(1, operation);  // from 1 us on; its first clock is at 3.5 us
  const auto second = clock.submit(1, operation, {{1, first}});
  const auto third = clock.submit(1, operation, {{1, second}});
  DeviceTimeline& timeline = clock.timeline;
  timeline.add_warp_activity(first, 0, 0, 0, 0, 10, "issue");
  timeline.add_warp_activity(first, 0, 0, 0, 10, 12, "issue");    // goes on
  timeline.add_warp_activity(first, 0, 0, 0, 12, 12, "barrier");  // takes no time
  timeline.add_warp_activity(first, 0, 0, 0, 12, 500, "long scoreboard");
  timeline.add_warp_activity(first, 0, 0, 0, 600, 700, "barrier");
  timeline.add_warp_activity(first, 0, 0, 1, 5, 9, "issue");
  timeline.add_warp_activity(first, 0, 132, 0, 0, 3, "issue");
  timeline.add_warp_activity(first, 7, 7, 0, 0, 3, "issue");
  timeline.add_warp_activity(third, 0, 0, 0, 0, 3, "issue");
  timeline.add_warp_activity(99, 0, 0, 0, 0, 3, "issue");  // no such kernel: not shown
  CHECK_THROWS_AS(timeline.add_warp_activity(first, 0, 0, 0, 699, 800, "issue"),
                  std::invalid_argument);
  CHECK_THROWS_WITH(timeline.add_warp_activity(first, 0, 0, 0, 900, 800, "issue"),
                    doctest::Contains("must not end before it begins"));
  const auto file = clock.file();
  const auto warps = file.slices("", "warp");
  REQUIRE(warps.size() == 7);
  CHECK(file.track(warps[0]) == "SM 0 of k/block 0, warp 0");
  CHECK(warps[0].name == "issue");
  CHECK(warps[0].begin == 3500);
  CHECK(warps[0].end == 3512);
  const Event load = file.slice("long scoreboard"), barrier = file.slice("barrier");
  CHECK(load.begin == 3512);
  CHECK(load.end == 4000);
  CHECK(load.args["end_clock"].get<int>() == 500);
  CHECK(barrier.begin == 4100);
  std::set<std::string> tracks;
  for (const Event& e : warps) tracks.insert(file.track(e));
  CHECK(tracks == std::set<std::string>{"SM 0 of k/block 0, warp 0", "SM 0 of k/block 0, warp 1",
                                        "SM 0 of k/block 132, warp 0", "SM 7 of k/block 7, warp 0",
                                        "SM 0 of k (launch 3 of it)/block 0, warp 0"});
}

TEST_CASE("timeline: a file that would be too long says what it left out") {
  Clock clock;
  DeviceTimeline::Operation operation;
  operation.kind = Kind::kernel;
  operation.name = "k";
  operation.us = 0.5;
  operation.share = 1;
  for (int i = 0; i < 100'100; ++i) clock.submit(1, operation);
  const std::string text = clock.timeline.json();
  const json::Value json = json::parse(text);
  // 100,100 calls and as many kernels, of which 200,000 stand there.
  CHECK(json["otherData"]["left_out"].get<std::string>().find("200 calls and operations") == 0);
  std::size_t slices = 0;
  std::map<std::int64_t, int> arrows;
  for (const json::Value& e : json["traceEvents"]) {
    slices += e["ph"].get<std::string>() == "X";
    if (const json::Value* id = e.find("id")) ++arrows[id->get<std::int64_t>()];
  }
  CHECK(slices == 200'000);
  for (const auto& [id, ends] : arrows) REQUIRE(ends == 2);
}
