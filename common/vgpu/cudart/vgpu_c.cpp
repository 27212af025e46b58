// The optional C functions of vgpu.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "../profile/output_file.h"
#include "../profile/report.h"
#include "face.h"

#define VGPU_C extern "C" __attribute__((visibility("default")))

extern "C" {
#pragma GCC visibility push(default)
#include "../vgpu.h"
#pragma GCC visibility pop
}

using namespace vgpu::cudart;

namespace {

// The report of the last launch, made when somebody asks; `make(counters, spec)` does it.
template <class F>
std::string last_report(const char* none, F&& make) {
  std::string text = none;
  guarded([&] {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    if (runtime.last_launch) text = make(*runtime.last_launch, runtime.spec());
    return cudaSuccess;
  });
  return text;
}

// Sets an option of the launches to come; nothing while the device is off.
template <class F>
void set_option(F&& set) {
  guarded([&] {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    runtime.configure();
    if (runtime.off == Status::success) set(runtime.machine().options());
    return cudaSuccess;
  });
}

}  // namespace

VGPU_C int vgpuPresent(void) { return 1; }

VGPU_C int vgpuNameAllocation(const void* pointer, const char* name) {
  bool done = false;
  guarded([&] {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    runtime.configure();
    if (name && runtime.off == Status::success)
      done = runtime.memory().name(reinterpret_cast<std::uint64_t>(pointer), name);
    return cudaSuccess;
  });
  return done ? 0 : 1;
}

VGPU_C void vgpuSetCounters(int on) {
  Runtime& runtime = Runtime::get();
  std::lock_guard lock(runtime.mutex);
  runtime.count = on != 0;
}

VGPU_C void vgpuSetThreads(int threads) {
  set_option([&](vgpu::MachineOptions& options) { options.threads = std::max(0, threads); });
}

VGPU_C void vgpuSetCacheModel(int on) {
  using vgpu::CacheMode;
  set_option([&](vgpu::MachineOptions& options) {
    options.cache = on == 0 ? CacheMode::off : on == 2 ? CacheMode::warm : CacheMode::cold;
  });
}

VGPU_C void vgpuSetTime(int mode) {
  using vgpu::TimeMode;
  set_option([&](vgpu::MachineOptions& options) {
    const int how = mode & 3;
    options.time = how == 0 ? TimeMode::off : how == 2 ? TimeMode::sample : TimeMode::on;
  });
  Runtime& runtime = Runtime::get();
  std::lock_guard lock(runtime.mutex);
  runtime.as_in_graph = mode & 4;
  runtime.left_in_l2.clear();
  runtime.predicted = {};
}

VGPU_C double vgpuPredictedTime(int* launches) {
  Runtime& runtime = Runtime::get();
  std::lock_guard lock(runtime.mutex);
  if (launches) *launches = runtime.predicted.launches;
  return runtime.predicted.us;
}

VGPU_C int vgpuTrace(const char* spec) {
  bool done = false;
  guarded([&] {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    runtime.configure();
    if (runtime.off != Status::success) return cudaSuccess;
    std::string error;
    std::optional<vgpu::TraceSpec> trace;
    if (spec) trace = vgpu::parse_trace(spec, error);
    done = !spec || trace;
    if (done)
      runtime.machine().tracer().set(std::move(trace));
    else
      say("vgpuTrace(\"" + std::string(spec) + "\"): " + error);
    return cudaSuccess;
  });
  return done ? 0 : 1;
}

namespace {

// Ends what the file before gets, and begins the next one unless `file` is null. 0: done, 1: said on stderr.
int next_file(const char* function, const char* file, bool (Runtime::*end)(),
              void (Runtime::*begin)(const std::string&)) {
  bool done = false;
  guarded([&] {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    runtime.configure();
    if (runtime.off != Status::success) return cudaSuccess;
    done = (runtime.*end)();
    if (!file) return cudaSuccess;
    const std::string why = *file ? vgpu::why_not_writable(file) : "the name is empty";
    if (why.empty()) {
      (runtime.*begin)(file);
    } else {
      done = false;
      say(std::string(function) + "(\"" + file + "\"): cannot be written: " + why);
    }
    return cudaSuccess;
  });
  return done ? 0 : 1;
}

}  // namespace

VGPU_C int vgpuTimeline(const char* file) {
  return next_file("vgpuTimeline", file, &Runtime::end_timeline, &Runtime::begin_timeline);
}

VGPU_C int vgpuLook(const char* file) {
  return next_file("vgpuLook", file, &Runtime::end_look, &Runtime::begin_look);
}

VGPU_C double vgpuClock(void) {
  double us = std::numeric_limits<double>::quiet_NaN();
  guarded([&] {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    runtime.configure();
    if (runtime.off != Status::success) return cudaSuccess;
    if (!runtime.timeline()) runtime.begin_timeline("");
    us = runtime.timeline()->host_us();
    return cudaSuccess;
  });
  return us;
}

VGPU_C const char* vgpuLastLaunchJson(void) {
  thread_local std::string text;
  text = last_report("{}", vgpu::report_json);
  return text.c_str();
}

VGPU_C double vgpuLastLaunchCounter(const char* json_pointer) {
  double value = std::numeric_limits<double>::quiet_NaN();
  if (!json_pointer) return value;
  guarded([&] {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    if (!runtime.last_launch) return cudaSuccess;
    std::unique_ptr<vgpu::ReportNumbers>& numbers = runtime.last_numbers;
    if (!numbers)
      numbers = std::make_unique<vgpu::ReportNumbers>(*runtime.last_launch, runtime.spec());
    value = numbers->at(json_pointer);
    return cudaSuccess;
  });
  return value;
}

VGPU_C const char* vgpuLastLaunchReport(void) {
  thread_local std::string text;
  text = last_report("", vgpu::report_text);
  return text.c_str();
}

VGPU_C int vgpuFindings(void) {
  Runtime& runtime = Runtime::get();
  std::lock_guard lock(runtime.mutex);
  return static_cast<int>(runtime.findings.size());
}
