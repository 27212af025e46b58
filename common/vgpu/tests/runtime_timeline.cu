// Timelines of programs (VGPU_TIMELINE, vgpuTimeline): what the file shows of streams, events, copies
// and graphs, that it is the same whatever runs it, and what happens when it cannot be written. Each
// case runs this program again, with one of its "child:" cases.
#include <doctest/doctest.h>

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "child_process.h"
#include "timeline_support.h"
#include "vgpu/vgpu.h"

namespace {

using namespace vgpu_tests;

constexpr int kCount = 1 << 18, kBytes = kCount * 4, kBlock = 256, kGrid = kCount / kBlock;

__global__ void whole(float* x, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];
  for (int r = 0; r < rounds; ++r) v = v * 1.5f + 1.f;
  x[i] = v;
}
__global__ void part(float* x, int rounds) {
  float v = x[threadIdx.x];
  for (int r = 0; r < rounds; ++r) v = v * 1.5f + 1.f;
  x[threadIdx.x] = v;
}
__global__ void first_node(float* x) { x[threadIdx.x] = 1; }
__global__ void left_node(float* x) { x[threadIdx.x] += 1; }
__global__ void right_node(float* x) { x[threadIdx.x] *= 2; }
__global__ void last_node(const float* a, float* b) { b[threadIdx.x] += a[threadIdx.x]; }
__global__ void out_of_bounds(float* x) { x[1 << 28] = 1; }

#define CHECK_OK(call) CHECK((call) == cudaSuccess)

float* device() {
  float* p = nullptr;
  CHECK_OK(cudaMalloc(&p, kBytes));
  return p;
}
float* pinned() {
  float* p = nullptr;
  CHECK_OK(cudaMallocHost(&p, kBytes));
  std::fill(p, p + kCount, 1.f);
  return p;
}
cudaStream_t stream(unsigned flags = cudaStreamNonBlocking, int priority = 0) {
  cudaStream_t s = nullptr;
  CHECK_OK(cudaStreamCreateWithPriority(&s, flags, priority));
  return s;
}
cudaEvent_t event() {
  cudaEvent_t e = nullptr;
  CHECK_OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  return e;
}
void order(cudaStream_t first, cudaStream_t then) {
  const cudaEvent_t e = event();
  CHECK_OK(cudaEventRecord(e, first));
  CHECK_OK(cudaStreamWaitEvent(then, e));
}

std::string file_name(const std::string& name) {
  const auto folder = std::filesystem::temp_directory_path();
  return (folder / ("vgpu_timeline_" + std::to_string(getpid()) + "_" + name)).string();
}
std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The file of a child, as text.
std::string text_of(const std::string& child_name, const std::string& environment = "",
                    int code = 0) {
  const std::string path = file_name("of.json");
  const Result result = child("VGPU_TIMELINE=" + path + " " + environment, child_name);
  CHECK_MESSAGE(result.code == code, result.text);
  const std::string text = contents(path);
  std::filesystem::remove(path);
  return text;
}
TimelineFile timeline_of(const std::string& child_name) {
  return read_timeline(text_of(child_name));
}

}  // namespace

TEST_CASE("child: streams" * doctest::skip()) {
  const cudaStream_t a = stream(), b = stream(), up = stream(), down = stream();
  float *x = device(), *y = device(), *z = device(), *h = pinned(), *g = pinned();
  CHECK_OK(cudaMemcpyAsync(x, h, kBytes, cudaMemcpyHostToDevice, a));
  whole<<<kGrid, kBlock, 0, a>>>(x, 2000);
  order(a, b);
  part<<<1, kBlock, 0, b>>>(x, 1);  // waits for `whole`
  CHECK_OK(cudaMemcpyAsync(y, h, kBytes, cudaMemcpyHostToDevice, up));
  CHECK_OK(cudaMemcpyAsync(g, z, kBytes, cudaMemcpyDeviceToHost, down));
  CHECK_OK(cudaStreamSynchronize(b));
  CHECK_OK(cudaDeviceSynchronize());
}

TEST_CASE("timeline: order, events and copies of streams") {
  const TimelineFile file = timeline_of("streams");
  const Event whole = file.slice("whole"), part = file.slice("part");
  const auto up = file.slices("copy to device", "copy"), down = file.slices("copy to host", "copy");
  REQUIRE(up.size() == 2);
  REQUIRE(down.size() == 1);
  CHECK(whole.begin == up[0].end);
  CHECK(part.begin == whole.end);
  CHECK(file.track(whole) == file.track(up[0]));
  CHECK(file.track(whole) != file.track(part));
  CHECK(file.track(whole).find("stream 3 (non-blocking)") != std::string::npos);
  // Both directions beside the kernel: 1 MiB over 63.02 GB/s and 1.5 us of latency take 18.139 us; the
  // second copy up begins when the first is done.
  CHECK(up[0].end - up[0].begin == 18'139);
  CHECK(up[1].begin == up[0].end);
  CHECK(overlap(up[1], whole));
  CHECK(overlap(down[0], up[0]));
  CHECK(whole.args["duration"].get<std::string>() == "limit");
  // As the profiler says it, and the launch.
  const double us = static_cast<double>(whole.end - whole.begin) / 1e3;
  CHECK(us == doctest::Approx(whole.args["limit_us"].get<double>() + 2.5).epsilon(1e-4));
  CHECK(us > 15);
  // The host: a launch returns, a synchronization waits for what it names.
  CHECK(file.slices("cudaLaunchKernel")[0].end < whole.begin);
  CHECK(file.slice("cudaStreamSynchronize").end == part.end);
  const auto arrows = file.arrows("dependence");
  REQUIRE(arrows.size() == 1);
  CHECK(file.around(arrows[0].first)->name == "whole");
  CHECK(file.around(arrows[0].second)->name == "part");
  for (const auto& [from, to] : file.arrows("launch")) {
    const Event &call = *file.around(from), &work = *file.around(to);
    CHECK(file.track(call) == "host (modelled)/CUDA calls");
    CHECK((call.name == "cudaLaunchKernel") == (work.category == "kernel"));
    CHECK((call.name == "cudaMemcpyAsync") == (work.category == "copy"));
    CHECK(call.end <= work.begin);
  }
  CHECK(file.arrows("launch").size() == 5);
  CHECK(file.about["device"].get<std::string>() == "h200");
}

TEST_CASE("child: side by side" * doctest::skip()) {
  const cudaStream_t a = stream(), b = stream(), c = stream();
  const cudaStream_t urgent = stream(cudaStreamNonBlocking, -5);
  float *x = device(), *y = device(), *z = device(), *w = device();
  part<<<1, kBlock, 0, a>>>(x, 20000);
  part<<<1, kBlock, 0, b>>>(y, 20000);
  whole<<<8 * kGrid, kBlock / 8, 0, c>>>(z, 1000);  // does not fit beside them
  part<<<1, kBlock, 0, urgent>>>(w, 1);
}

TEST_CASE("timeline: kernels of several streams share the device as far as there is room") {
  const TimelineFile file = timeline_of("side by side");
  const auto part = file.slices("part");
  REQUIRE(part.size() == 3);
  CHECK(overlap(part[0], part[1]));
  CHECK(overlap(part[0], part[2]));  // before `whole`, by its priority and since it fits
  const Event whole = file.slice("whole");
  CHECK(whole.args["percent_of_device"].get<double>() == 100);
  CHECK(part[0].args["percent_of_device"].get<double>() == doctest::Approx(0.095).epsilon(0.01));
  for (const Event& e : part) CHECK_FALSE(overlap(whole, e));
}

TEST_CASE("child: default stream" * doctest::skip()) {
  const cudaStream_t a = stream(cudaStreamDefault), b = stream(cudaStreamDefault), n = stream();
  float *x = device(), *y = device(), *z = device(), *w = device();
  part<<<1, kBlock, 0, a>>>(x, 5000);
  part<<<1, kBlock>>>(y, 100);        // after a
  part<<<1, kBlock, 0, b>>>(z, 100);  // after the default stream
  part<<<1, kBlock, 0, n>>>(w, 100);  // beside all
}

TEST_CASE("timeline: the legacy default stream waits for blocking streams, and they for it") {
  const TimelineFile file = timeline_of("default stream");
  const auto part = file.slices("part");
  REQUIRE(part.size() == 4);
  std::map<std::string, Event> by_track;
  for (const Event& e : part) by_track[file.threads.at({e.process, e.thread})] = e;
  const Event &first = by_track.at("stream 3"), &legacy = by_track.at("the default stream");
  CHECK(legacy.begin == first.end);
  CHECK(by_track.at("stream 4").begin == legacy.end);
  CHECK(overlap(by_track.at("stream 5 (non-blocking)"), first));
}

TEST_CASE("child: memory" * doctest::skip()) {
  float *x = device(), *y = device(), *h = pinned();
  static float pageable[kCount];
  const cudaStream_t s = stream();
  whole<<<kGrid, kBlock, 0, s>>>(x, 6000);
  CHECK_OK(cudaMemcpy(y, h, kBytes, cudaMemcpyHostToDevice));                 // the call waits
  CHECK_OK(cudaMemcpyAsync(y, pageable, kBytes, cudaMemcpyHostToDevice, s));  // staged: it waits
  CHECK_OK(cudaMemcpyAsync(y, pageable, 4096, cudaMemcpyHostToDevice, s));    // in one piece
  CHECK_OK(cudaMemcpyAsync(y, x, kBytes, cudaMemcpyDeviceToDevice, s));
  CHECK_OK(cudaMemsetAsync(y, 0, kBytes, s));
  CHECK_OK(cudaMemcpyAsync(pageable, y, kBytes, cudaMemcpyDeviceToHost, s));  // it waits
  CHECK_OK(cudaFree(x));
}

TEST_CASE("timeline: which copies the host waits for") {
  const TimelineFile file = timeline_of("memory");
  const auto up = file.slices("copy to device", "copy");
  REQUIRE(up.size() == 3);
  CHECK(file.slice("cudaMemcpy").end == up[0].end);
  const Event whole = file.slice("whole");
  CHECK(overlap(up[0], whole));  // a non-blocking stream does not wait for the default one
  CHECK(up[1].begin == whole.end);
  const auto calls = file.slices("cudaMemcpyAsync");
  REQUIRE(calls.size() == 4);
  CHECK(calls[0].end == up[1].end);
  CHECK(calls[1].end - calls[1].begin == 2500);
  CHECK(calls[2].end - calls[2].begin == 2500);
  CHECK(calls[3].end == file.slice("copy to host", "copy").end);
  CHECK(up[0].args["host_memory"].get<std::string>() == "pinned");
  CHECK(up[1].args["host_memory"].get<std::string>() == "pageable");
  // 1 MiB at 4800 GB/s: written 0.218 us, read and written 0.437.
  const Event on = file.slice("copy on device"), fill = file.slice("fill");
  CHECK(on.end - on.begin == 437);
  CHECK(fill.end - fill.begin == 218);
  CHECK(fill.begin >= on.end);
  CHECK(file.slices("cudaMalloc").size() == 2);
  CHECK(file.slice("cudaFree").begin >= file.slice("copy to host", "copy").end);
}

TEST_CASE("child: graph" * doctest::skip()) {
  const cudaStream_t s = stream(), t = stream();
  float *x = device(), *y = device(), *h = pinned();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK_OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  first_node<<<1, kBlock, 0, s>>>(x);
  order(s, t);
  left_node<<<1, kBlock, 0, s>>>(x);
  right_node<<<1, kBlock, 0, t>>>(y);
  order(t, s);
  last_node<<<1, kBlock, 0, s>>>(x, y);
  CHECK_OK(cudaMemcpyAsync(h, y, kBytes, cudaMemcpyDeviceToHost, s));
  CHECK_OK(cudaStreamEndCapture(s, &graph));
  CHECK_OK(cudaGraphInstantiate(&exec, graph, 0));
  whole<<<kGrid, kBlock, 0, s>>>(x, 1000);
  CHECK_OK(cudaGraphLaunch(exec, s));
  CHECK_OK(cudaGraphLaunch(exec, t));  // launches of one graph follow each other
  part<<<1, kBlock, 0, t>>>(x, 1);
}

TEST_CASE("timeline: the nodes of a graph heed its edges, and what is around it") {
  const TimelineFile file = timeline_of("graph");
  const auto of = [&](const char* name) {
    const auto found = file.slices(name);
    REQUIRE(found.size() == 2);
    return found;
  };
  const auto graphs = of("graph 1"), first = of("first_node"), left = of("left_node"),
             right = of("right_node"), last = of("last_node");
  const auto copies = file.slices("copy to host", "copy");
  REQUIRE(copies.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CAPTURE(i);
    CHECK(left[i].begin == first[i].end);
    CHECK(right[i].begin == first[i].end);
    CHECK(overlap(left[i], right[i]));
    CHECK(file.track(left[i]) != file.track(right[i]));
    CHECK(last[i].begin == std::max(left[i].end, right[i].end));
    CHECK(copies[i].begin == last[i].end);
    CHECK(graphs[i].begin == first[i].begin);
    CHECK(graphs[i].end == copies[i].end);
    CHECK(first[i].args["launch_us"].get<double>() == 1.3);
    CHECK(file.processes.at(first[i].process) == "graph 1");
  }
  CHECK(first[0].begin == file.slice("whole").end);
  CHECK(file.track(graphs[0]) == file.track(file.slice("whole")));
  CHECK(first[1].begin == copies[0].end);
  CHECK(file.slice("part").begin == graphs[1].end);
  CHECK(file.track(file.slice("part")) == file.track(graphs[1]));
  CHECK(file.slices("cudaGraphLaunch").size() == 2);
  CHECK(file.slice("cudaGraphInstantiate").end < file.slices("cudaGraphLaunch")[0].end);
}

TEST_CASE("timeline: the same whatever executes the program") {
  for (const char* program : {"streams", "graph"}) {
    const std::string text = text_of(program);
    CHECK(text == text_of(program));
    CHECK(text == text_of(program, "VGPU_THREADS=1"));
    CHECK(text == text_of(program, "VGPU_THREADS=3"));
    CHECK(text == text_of(program, "VGPU_CHECK=race"));
    CHECK(text != text_of(program, "VGPU_DEVICE=t4"));
  }
}

TEST_CASE("child: fault" * doctest::skip()) {
  CHECK(cudaMemsetAsync(reinterpret_cast<void*>(16), 0, 4, nullptr) != cudaSuccess);
  part<<<1, kBlock>>>(device(), 1);
  out_of_bounds<<<1, 1>>>(device());
  CHECK(cudaDeviceSynchronize() != cudaSuccess);
  std::exit(7);
}

TEST_CASE("timeline: programs that fail have one, too") {
  const TimelineFile file = read_timeline(text_of("fault", "", 7));
  CHECK(file.slices("cudaMemsetAsync").size() == 1);  // the call, and nothing on the device
  CHECK(file.slice("part").args["duration"].get<std::string>() == "limit");
  const Event failed = file.slice("out_of_bounds");
  CHECK(failed.args["duration"].get<std::string>() == "none");
  CHECK(failed.args["error"].get<std::string>().find("out_of_bounds") != std::string::npos);
}

TEST_CASE("child: nothing launched" * doctest::skip()) { CHECK_OK(cudaFree(device())); }

TEST_CASE("timeline: a program without kernels, a file that cannot be written") {
  const TimelineFile file = timeline_of("nothing launched");
  CHECK(file.slice("cudaMalloc").begin == 0);
  CHECK(file.slice("cudaFree").end == 20'000);
  Result result = child("VGPU_TIMELINE=/no/such/place/t.json", "nothing launched");
  CHECK(result.code == 1);  // every call fails
  CHECK(
      result.text.find("VGPU_TIMELINE='/no/such/place/t.json': cannot be written: No such file") !=
      std::string::npos);
  result = child("VGPU_TIMELINE=/tmp", "nothing launched");
  CHECK(result.text.find("VGPU_TIMELINE='/tmp': cannot be written: it is a folder") !=
        std::string::npos);
  for (const std::string other : {"VGPU_PROFILE=json:", "VGPU_TRACE=part:0:"}) {
    const std::string path = file_name("same.json");
    result = child("VGPU_TIMELINE=" + path + " " + other + path, "nothing launched");
    CHECK(result.text.find("VGPU_TIMELINE name the same file '" + path + "': say two") !=
          std::string::npos);
  }
  // The disk is full when the program ends: said, and the status of a program that is well becomes 3.
  result = child("VGPU_TIMELINE=/dev/full", "nothing launched");
  CHECK(result.code == 3);
  CHECK(result.text.find("VGPU_TIMELINE: cannot write /dev/full: No space left") !=
        std::string::npos);
}

TEST_CASE("child: two timelines" * doctest::skip()) {
  const auto timeline =
      reinterpret_cast<decltype(&vgpuTimeline)>(dlsym(RTLD_DEFAULT, "vgpuTimeline"));
  REQUIRE(bool(timeline));
  const std::string folder = std::getenv("FOLDER");
  float* x = device();
  const cudaStream_t s = stream();
  whole<<<kGrid, kBlock, 0, s>>>(x, 100);  // before the first one
  CHECK(timeline((folder + "/first.json").c_str()) == 0);
  part<<<1, kBlock, 0, s>>>(x, 100);
  CHECK(timeline((folder + "/second.json").c_str()) == 0);
  CHECK(std::filesystem::exists(folder + "/first.json"));
  CHECK(timeline("/no/such/place/t.json") == 1);
  part<<<2, kBlock, 0, s>>>(x, 100);  // in none
  CHECK(timeline((folder + "/third.json").c_str()) == 0);
  part<<<3, kBlock, 0, s>>>(x, 100);
  CHECK(timeline(nullptr) == 0);
  CHECK(timeline(nullptr) == 0);
  CHECK(std::filesystem::exists(folder + "/third.json"));
  CHECK(timeline((folder + "/fourth.json").c_str()) == 0);
  order(s, stream());
  whole<<<kGrid, kBlock, 0, s>>>(x, 100);
}

TEST_CASE("child: clock" * doctest::skip()) {
  const auto clock = reinterpret_cast<decltype(&vgpuClock)>(dlsym(RTLD_DEFAULT, "vgpuClock"));
  REQUIRE(bool(clock));
  float *x = device(), *h = pinned();
  const double begin = clock();
  CHECK(clock() == begin);  // to ask takes no time
  part<<<1, kBlock>>>(x, 100);
  const double launched = clock();
  CHECK(launched == begin + 2.5);  // the call alone: nobody has waited
  CHECK_OK(cudaDeviceSynchronize());
  const double over = clock();
  CHECK(over > launched + 2.5);  // the launch on the device, and the kernel
  CHECK_OK(cudaMemcpy(x, h, kBytes, cudaMemcpyHostToDevice));
  const double copied = clock();
  const double link_us = kBytes / 64e3;  // not faster than PCIe 5 x16
  CHECK(copied > over + 2.5 + link_us);
  CHECK(copied < over + 30 + 10 * link_us);
}

TEST_CASE("timeline: a program may ask for the clock, with a file or without") {
  const std::string path = file_name("clock.json");
  for (const std::string& environment : {std::string(), "VGPU_TIMELINE=" + path}) {
    const Result result = child(environment, "clock");
    CHECK_MESSAGE(result.code == 0, result.text);
  }
  CHECK(read_timeline(contents(path)).slices("part").size() == 1);
  std::filesystem::remove(path);
}

TEST_CASE("timeline: programs begin and end them") {
  const std::string folder = file_name("folder");
  std::filesystem::create_directory(folder);
  const Result result = child("FOLDER=" + folder, "two timelines");
  CHECK_MESSAGE(result.code == 0, result.text);
  CHECK(result.text.find("vgpuTimeline(\"/no/such/place/t.json\"): cannot be written") !=
        std::string::npos);
  const auto file = [&](const char* name) { return read_timeline(contents(folder + "/" + name)); };
  CHECK(file("first.json").slices("whole").empty());
  CHECK(file("first.json").slice("part").args["grid"].get<std::string>() == "(1, 1, 1)");
  CHECK(file("second.json").slices("part").empty());
  CHECK(file("third.json").slice("part").args["grid"].get<std::string>() == "(3, 1, 1)");
  CHECK(file("fourth.json").slice("whole").begin > 0);  // written when the program ends
  std::filesystem::remove_all(folder);
}
