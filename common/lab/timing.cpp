// Timing: events on a GPU, wall time on the virtual one, CUDA graphs.
#include "timing.h"
#include "device.h"
#include "errors.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "files.h"
#include "json/json.h"

namespace lab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWarmUpMs = 200;
constexpr double kSampleUs = 200;  // long beside an event
constexpr double kGraphUs = 300;   // of calls in one graph: long beside its launch
constexpr double kLongUs = 5000;   // of a call, beside which the host's part is nothing

struct Event {
  cudaEvent_t event = nullptr;
  Event() { check(cudaEventCreate(&event)); }
  Event(Event&& other) noexcept : event(std::exchange(other.event, nullptr)) {}
  ~Event() {
    if (event) cudaEventDestroy(event);
  }
  double us_since(const Event& earlier) const {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, earlier.event, event));
    return 1e3 * ms;
  }
};

// The most that launches take from the default memory pool while this lives, beyond what was taken;
// NaN on a GPU without pools.
class ScratchWatch {
 public:
  ScratchWatch() {
    if (cudaDeviceGetDefaultMemPool(&pool_, 0) != cudaSuccess) {
      cudaGetLastError();
      pool_ = nullptr;
      return;
    }
    before_ = attribute(cudaMemPoolAttrUsedMemCurrent);
    uint64_t reset = 0;  // to what is in use now
    check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrUsedMemHigh, &reset));
  }
  double bytes() {
    return pool_ ? double(attribute(cudaMemPoolAttrUsedMemHigh) - before_) : std::nan("");
  }

 private:
  uint64_t attribute(cudaMemPoolAttr which) {
    uint64_t value = 0;
    check(cudaMemPoolGetAttribute(pool_, which, &value));
    return value;
  }
  cudaMemPool_t pool_ = nullptr;
  uint64_t before_ = 0;
};

std::vector<Timing> time_on_host(const std::vector<Launch>& stages, int warmup, int iterations,
                                 bool predicted) {
  std::vector<std::vector<double>> samples(stages.size());
  std::vector<std::string> counters(stages.size()), profiles(stages.size());
  for (int i = -warmup; i < iterations; ++i) {
    const vgpu::Predicting predicting(predicted && i + 1 == iterations,  // one of those alike
                                      vgpu::Launched::in_graph);
    for (size_t s = 0; s < stages.size(); ++s) {
      const auto start = Clock::now();
      stages[s](i + warmup);
      check(cudaGetLastError());
      check(cudaDeviceSynchronize());
      const std::chrono::duration<double, std::micro> took = Clock::now() - start;
      if (i >= 0) samples[s].push_back(took.count());
      if (i + 1 < iterations) continue;
      counters[s] = vgpu::launch_json();
      profiles[s] = vgpu::launch_report();
    }
  }
  std::vector<Timing> timings;
  for (size_t s = 0; s < stages.size(); ++s) {
    timings.push_back(statistics(samples[s], true));
    timings[s].counters = counters[s];
    timings[s].profile = profiles[s];
  }
  return timings;
}

// By events in the stream that the stages launch into.
std::vector<Timing> time_by_events(const std::vector<Launch>& stages, cudaStream_t stream,
                                   int warmup, int iterations) {
  const auto finish = [] {
    check(cudaGetLastError());
    check(cudaDeviceSynchronize());
  };
  const auto round = [&](int i) {
    for (const Launch& stage : stages) stage(i);
  };
  int iteration = warm_up(round, finish, warmup, kWarmUpMs);

  // A short stage is launched several times between two events.
  int launches = 1;
  if (stages.size() == 1) {
    Event start, stop;
    check(cudaEventRecord(start.event, stream));
    for (int i = 0; i < 3; ++i) stages[0](iteration++);
    check(cudaEventRecord(stop.event, stream));
    finish();
    const double one_us = std::max(0.1, stop.us_since(start) / 3);
    launches = int(std::clamp(std::ceil(kSampleUs / one_us), 1.0, 1000.0));
  }

  std::vector<Event> events(1 + stages.size() * size_t(iterations));
  size_t next = 0;
  check(cudaEventRecord(events[next++].event, stream));
  for (int i = 0; i < iterations; ++i) {
    for (const Launch& stage : stages) {
      for (int j = 0; j < launches; ++j) stage(iteration + j);
      check(cudaEventRecord(events[next++].event, stream));
    }
    iteration += launches;
  }
  finish();

  std::vector<Timing> timings;
  for (size_t s = 0; s < stages.size(); ++s) {
    std::vector<double> samples;
    for (size_t e = s; e + 1 < events.size(); e += stages.size())
      samples.push_back(events[e + 1].us_since(events[e]) / launches);
    timings.push_back(statistics(samples, false));
    timings.back().stages = int(stages.size());
  }
  return timings;
}

// Gives what the default pool has kept back to the device: a graph has a pool of its own.
void empty_pool() {
  cudaMemPool_t pool = nullptr;
  if (cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess) cudaMemPoolTrimTo(pool, 0);
  cudaGetLastError();
}

// How many calls a graph holds, so that it runs for about kGraphUs: a multiple of `copies`, so that each
// copy of the arrays is used equally often. `call_us`: what one call takes, in microseconds.
int calls_of_graph(double call_us, int copies) {
  return copies * int(std::ceil(kGraphUs / std::max(1.0, call_us) / copies));
}

}  // namespace

int warm_up(const std::function<void(int)>& round, const std::function<void()>& finish, int rounds,
            double ms) {
  int done = 0;
  while (done < rounds) round(done++);
  finish();
  if (rounds == 0) return 0;
  // The first ones also load code and grow memory pools: they do not count.
  const auto start = Clock::now();
  for (int batch = 1;; batch *= 2) {
    for (int i = 0; i < batch; ++i) round(done++);
    finish();
    const std::chrono::duration<double, std::milli> took = Clock::now() - start;
    if (took.count() >= ms) return done;
    if (took.count() > ms / 2) batch = (batch + 1) / 2;  // the next ones are as long, not twice
  }
}

Timing statistics(std::vector<double> samples_us, bool host_time) {
  std::sort(samples_us.begin(), samples_us.end());
  const size_t n = samples_us.size();
  const auto at = [&](double share) {
    return samples_us[size_t(std::lround(share * double(n - 1)))];
  };
  Timing timing;
  timing.samples = int(n);
  timing.host_time = host_time;
  timing.min_us = samples_us.front();
  timing.median_us = n % 2 ? samples_us[n / 2] : (samples_us[n / 2 - 1] + samples_us[n / 2]) / 2;
  for (const double us : samples_us) timing.mean_us += us / double(n);
  double squares = 0;
  for (const double us : samples_us) squares += (us - timing.mean_us) * (us - timing.mean_us);
  timing.std_us = n < 2 ? std::nan("") : std::sqrt(squares / double(n - 1));
  const bool known = n >= 3 && timing.median_us > 0;  // a stage that launches nothing takes no time
  timing.spread = known ? (at(0.9) - at(0.1)) / timing.median_us : std::nan("");
  return timing;
}

double microseconds(const Device& device, const Timing& timing) {
  if (!device.is_virtual) return timing.median_us;
  const json::Value counters = json::parse_or_null(timing.counters);
  const json::Value* const us = counters.find_path("/predicted/us");
  return us && us->is_number() ? us->get<double>() : std::nan("");
}

StepGraph::StepGraph(const StepLaunch& step, int calls) {
  check(cudaStreamCreate(&stream_));  // one that the legacy stream cannot slip past unseen
  check(cudaDeviceSynchronize());
  cudaGraph_t graph = nullptr;
  try {
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; ++i) step(i, stream_);
    check(cudaStreamEndCapture(stream_, &graph));
    size_t nodes = 0;
    check(cudaGraphGetNodes(graph, nullptr, &nodes));
    if (nodes == 0) throw std::runtime_error("it launches nothing into the stream it is given");
    check(cudaGraphInstantiate(&graph_, graph, 0));
  } catch (const std::exception& error) {
    refusal_ = error.what();
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream_, &status) != cudaSuccess ||
        status != cudaStreamCaptureStatusNone)
      cudaStreamEndCapture(stream_, &graph);
    cudaGetLastError();
  }
  if (graph) cudaGraphDestroy(graph);
}

StepGraph::~StepGraph() {
  if (graph_) cudaGraphExecDestroy(graph_);
  cudaStreamDestroy(stream_);
  cudaDeviceGraphMemTrim(0);
  cudaGetLastError();
}

void StepGraph::replay() {
  if (!graph_) throw std::runtime_error("no CUDA graph: " + refusal_);
  check(cudaGraphLaunch(graph_, stream_));
}

std::vector<Timing> time_stages(const Device& device, const std::vector<Launch>& stages, int warmup,
                                int iterations, bool predicted) {
  if (stages.empty() || warmup < 0 || iterations < 1)
    throw std::invalid_argument("time_stages needs a stage, warmup >= 0 and iterations >= 1");
  ScratchWatch scratch;
  std::vector<Timing> timings = device.is_virtual
                                    ? time_on_host(stages, warmup, iterations, predicted)
                                    : time_by_events(stages, nullptr, warmup, iterations);
  for (Timing& timing : timings) timing.scratch_bytes = scratch.bytes();
  return timings;
}

namespace {

Timing timed_step(const Device& device, const StepLaunch& step, int copies, int warmup,
                  int iterations, bool predicted) {
  Timing timing =
      time_stages(device, {[&](int i) { step(i, nullptr); }}, warmup, iterations, predicted)[0];
  if (device.is_virtual || warmup == 0) return timing;
  if (timing.median_us > kLongUs) {
    timing.no_graph = "a call takes so long that the host's part is nothing";
    return timing;
  }
  empty_pool();
  const int calls = calls_of_graph(timing.median_us, copies);
  StepGraph graph(step, calls);
  timing.no_graph = graph.refusal();
  if (!timing.no_graph.empty()) return timing;
  try {
    const Timing replayed =
        time_by_events({[&](int) { graph.replay(); }}, graph.stream(), warmup, iterations)[0];
    timing.graph_us = replayed.median_us / calls;
  } catch (const LackError& error) {  // memory of its own, for one
    timing.no_graph = error.what();
    cudaGetLastError();
  }
  return timing;
}

}  // namespace

Timing time_step(const Device& device, const StepLaunch& step, int copies, int warmup,
                 int iterations) {
  return timed_step(device, step, copies, warmup, iterations, true);
}

std::vector<Timing> time_launches(const Device& device, const std::vector<StepLaunch>& launches,
                                  int copies, int warmup, int iterations) {
  std::vector<Timing> timings;
  if (!device.is_virtual) {
    for (const StepLaunch& launch : launches)
      timings.push_back(time_step(device, launch, copies, warmup, iterations));
    return timings;
  }
  std::vector<Launch> stages;
  for (const StepLaunch& launch : launches) stages.push_back([&](int i) { launch(i, nullptr); });
  return time_stages(device, stages, warmup, iterations);
}

Timing time_total(const Device& device, const StepLaunch& step, int copies, int warmup,
                  int iterations, const std::vector<Timing>& launches) {
  if (!vgpu::predicts_by_samples())
    return timed_step(device, step, copies, warmup, iterations, false);
  double sum_us = 0, scratch_bytes = 0;
  for (const Timing& launch : launches) {
    sum_us += launch.median_us;
    scratch_bytes = std::max(scratch_bytes, launch.scratch_bytes);
  }
  Timing timing = statistics({sum_us}, true);
  timing.scratch_bytes = scratch_bytes;
  return timing;
}

Timing time_program(const Device& device, const std::function<void()>& program, int warmup,
                    int iterations) {
  if (warmup < 0 || iterations < 1)
    throw std::invalid_argument("time_program needs warmup >= 0 and iterations >= 1");
  std::vector<double> samples;
  double predicted_us = std::nan("");
  ScratchWatch scratch;
  for (int i = -warmup; i < iterations; ++i) {
    const bool last = i + 1 == iterations && device.is_virtual;
    const vgpu::Predicting predicting(last);
    const double clock_us = last ? vgpu::clock_us() : 0;
    const auto start = Clock::now();
    program();
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    check(cudaGetLastError());
    if (i >= 0) samples.push_back(took.count());
    if (last) predicted_us = vgpu::clock_us() - clock_us;
  }
  Timing timing = statistics(samples, true);
  timing.scratch_bytes = scratch.bytes();
  timing.profile = vgpu::launch_report();  // of its last launch
  // The report reads predictions where launches have them.
  if (std::isfinite(predicted_us) && vgpu::counter("/predicted/us") > 0)
    timing.counters = json::Value({{"predicted",
                                    {{"us", predicted_us},
                                     {"error", vgpu::counter("/predicted/error")},
                                     {"stalls", json::Value::object()}}}})
                          .dump();
  return timing;
}

int rotation_copies(const Device& device, double bytes) {
  if (device.is_virtual || bytes <= 0) return 1;
  return int(std::clamp(std::ceil(2 * device.l2_bytes / bytes), 1.0, 64.0));
}

}  // namespace lab
