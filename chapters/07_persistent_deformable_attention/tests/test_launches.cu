// Chapter 7's launches seen from the host: the counter of fetched chunks, which no call allocates
// or clears, what is asked of the device once, and how many copies the copy engine is asked for.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <set>
#include <thread>

#include "../../../common/testing/checks.h"
#include "../../../common/testing/preload.h"
#include "internals.h"
#include "test_support.h"

namespace steps = persistent_deformable_attention;
using namespace lab::testing;
using lab::Distribution;

namespace {

lab::DeformableStep step(const std::string& name) {
  for (const lab::DeformableStep& one : steps::steps())
    if (one.name == name) return one;
  throw std::invalid_argument("there is no step " + name);
}

// Those with a counter that the device can run.
std::vector<lab::DeformableStep> counting_steps() {
  std::vector<lab::DeformableStep> result;
  for (const char* name : {"persistent", "cluster", "bulk"})
    if (const lab::DeformableStep one = step(name); !one.lacks || one.lacks().empty())
      result.push_back(one);
  return result;
}

struct Stream {
  cudaStream_t stream = nullptr;
  Stream() { lab::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

// Queries that are no multiple of what is fetched, in several planes.
const DeformableShape kShape{2, 333, 1, 32, 2, 4, {{12, 20}, {6, 10}}};

// A problem on the device, and what vectorized, which has no counter, makes of it.
struct Running {
  DeformableShape shape;
  lab::DeformableArrays arrays;
  std::vector<half> right;

  Running(const DeformableShape& of, uint64_t seed)
      : shape(of),
        arrays(
            std::move(lab::upload(lab::random_deformable(of, Distribution::kLocal, seed), 1)[0])) {
    start(step("vectorized").function, nullptr);
    lab::check(cudaDeviceSynchronize());
    right = arrays.out.download();
  }
  void start(lab::DeformableFunction step, cudaStream_t stream) {
    step(arrays.value.data(), arrays.locations.data(), arrays.weights.data(), arrays.out.data(),
         shape, stream);
  }
  bool is_right() const {
    const std::vector<half> got = arrays.out.download();
    return std::memcmp(got.data(), right.data(), right.size() * sizeof(half)) == 0;
  }
};

bool all_are_zero() {
  const std::vector<unsigned> counters = steps::fetch_counters();
  return counters == std::vector<unsigned>(counters.size());
}

cudaGraphExec_t recorded(lab::DeformableFunction step, Running& problem, cudaStream_t stream,
                         int calls) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  lab::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < calls; ++i) problem.start(step, stream);
  lab::check(cudaStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  lab::check(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK(nodes == size_t(calls));  // kernels alone: nothing is allocated, cleared or freed
  lab::check(cudaGraphInstantiate(&exec, graph, 0));
  lab::check(cudaGraphDestroy(graph));
  return exec;
}

}  // namespace

TEST_CASE("work counter: one for each stream, 0 again after each launch") {
  if (skipped("work counter")) return;
  Stream a, b;
  unsigned* const of_a = steps::fetch_counter(a.stream, kShape);
  CHECK(of_a == steps::fetch_counter(a.stream, kShape));
  CHECK(std::set<unsigned*>{of_a, steps::fetch_counter(b.stream, kShape),
                            steps::fetch_counter(nullptr, kShape), nullptr}
            .size() == 4);
  unsigned* of_thread = nullptr;
  std::thread([&] { of_thread = steps::fetch_counter(cudaStreamPerThread, kShape); }).join();
  CHECK(of_thread != steps::fetch_counter(cudaStreamPerThread, kShape));
  // A stream that comes after another has gone gets a counter of its own, even with its handle.
  unsigned *earlier = nullptr, *later = nullptr;
  {
    const Stream gone;
    earlier = steps::fetch_counter(gone.stream, kShape);
  }
  {
    const Stream next;
    later = steps::fetch_counter(next.stream, kShape);
  }
  CHECK(earlier != later);

  Running problem(kShape, 1);
  for (const lab::DeformableStep& step : counting_steps())
    for (int round = 0; round < 3; ++round) {
      CAPTURE(step.name);
      problem.arrays.out.fill_nan();
      lab::check(cudaDeviceSynchronize());  // the stream does not wait for the default one
      problem.start(step.function, a.stream);
      lab::check(cudaStreamSynchronize(a.stream));
      CHECK(problem.is_right());
      CHECK(all_are_zero());
    }
}

TEST_CASE("work counter: streams, host threads and graphs at the same time, same bits") {
  if (skipped("work counter: streams")) return;
  DeformableShape other = kShape;
  other.queries = 517;
  for (const lab::DeformableStep& step : counting_steps()) {
    CAPTURE(step.name);
    // Two streams in turns; a graph of two calls, instantiated twice, beside a direct call.
    Running first(kShape, 1), second(other, 2), third(other, 3);
    Stream a, b, c;
    const cudaGraphExec_t graph = recorded(step.function, third, a.stream, 2);
    const cudaGraphExec_t again = recorded(step.function, third, c.stream, 1);
    for (Running* problem : {&first, &second, &third}) problem->arrays.out.fill_nan();
    lab::check(cudaDeviceSynchronize());
    for (int round = 0; round < 4; ++round) {
      first.start(step.function, a.stream);
      second.start(step.function, b.stream);
      lab::check(cudaGraphLaunch(round % 2 ? graph : again, c.stream));
    }
    lab::check(cudaDeviceSynchronize());
    for (const Running* problem : {&first, &second, &third}) CHECK(problem->is_right());
    CHECK(all_are_zero());
    lab::check(cudaGraphExecDestroy(graph));
    lab::check(cudaGraphExecDestroy(again));

    // From four threads of the host, which also ask for plans at the same time.
    std::vector<std::unique_ptr<Running>> problems;
    for (uint64_t seed = 1; seed <= 4; ++seed)
      problems.push_back(std::make_unique<Running>(seed % 2 ? kShape : other, seed));
    for (auto& problem : problems) problem->arrays.out.fill_nan();
    lab::check(cudaDeviceSynchronize());
    std::vector<std::thread> threads;
    for (auto& problem : problems)
      threads.emplace_back([&step, p = problem.get()] {
        for (int round = 0; round < 3; ++round) p->start(step.function, cudaStreamPerThread);
        cudaStreamSynchronize(cudaStreamPerThread);
      });
    for (std::thread& thread : threads) thread.join();
    for (const auto& problem : problems) CHECK(problem->is_right());
    CHECK(all_are_zero());
  }
}

TEST_CASE("work counter: more streams than counters deal all out in advance") {
  if (skipped("work counter: more streams")) return;
  Running problem(kShape, 1);
  while (true) {
    Stream one_more;
    if (!steps::fetch_counter(one_more.stream, kShape)) break;
  }
  Stream late;
  CHECK(steps::fetch_counter(late.stream, kShape) == nullptr);
  for (const lab::DeformableStep& step : counting_steps()) {
    CAPTURE(step.name);
    problem.arrays.out.fill_nan();
    lab::check(cudaDeviceSynchronize());
    problem.start(step.function, late.stream);
    lab::check(cudaStreamSynchronize(late.stream));
    CHECK(problem.is_right());
  }
}

TEST_CASE("work counter: right after a launch that broke off, once the device has been reset") {
  if (skipped_without_counters("work counter: broken off")) return;
  for (const lab::DeformableStep& step : counting_steps()) {
    CAPTURE(step.name);
    {
      Running problem(kShape, 1);
      // The rows that are fetched lie behind the end of out: some warps have fetched, none writes.
      lab::DeviceArray<half> out(size_t(steps::dealt_in_advance(kShape)) * kShape.channels, "out");
      step.function(problem.arrays.value.data(), problem.arrays.locations.data(),
                    problem.arrays.weights.data(), out.data(), kShape, nullptr);
      CHECK(cudaDeviceSynchronize() != cudaSuccess);
    }
    lab::check(cudaDeviceReset());
    Running problem(kShape, 1);
    CHECK(all_are_zero());
    problem.arrays.out.fill_nan();
    problem.start(step.function, nullptr);
    lab::check(cudaDeviceSynchronize());
    CHECK(problem.is_right());
    CHECK(all_are_zero());
  }
}

TEST_CASE(
    "launches: a call is a launch, allocates and clears nothing, and asks for clusters once") {
  if (skipped_without_counters("launches: calls")) return;
  for (const lab::DeformableStep& step : counting_steps()) {
    CAPTURE(step.name);
    const auto calls = [&](const char* iterations) {
      const CountedRun run =
          run_counting_calls("chapter7", {"--batch", "1", "--queries", "70", "--channels", "16",
                                          "--step", step.name, "--iterations", iterations});
      CAPTURE(run.result.errors);
      REQUIRE(run.result.exit_code == 0);
      return run.calls;
    };
    std::map<std::string, int> one = calls("1"), five = calls("5");
    for (const char* name : {"cudaMallocAsync", "cudaFreeAsync"}) {
      CAPTURE(name);
      CHECK(one[name] == 0);
      CHECK(five[name] == 0);
    }
    for (const char* name : {"cudaMalloc", "cudaMemset", "cudaMemsetAsync"}) {
      CAPTURE(name);
      CHECK(five[name] == one[name]);  // the program's arrays
    }
    if (step.name != "cluster") continue;
    CHECK(one["cudaOccupancyMaxActiveClusters"] == 3);  // for 2, 4 and 8 blocks
    CHECK(five["cudaOccupancyMaxActiveClusters"] == 3);
    CHECK(five["cudaLaunchKernelExC"] == 5);
  }
}

TEST_CASE("clusters: each device, channels and levels have a plan of their own") {
  if (skipped("clusters: plans") || !step("cluster").lacks().empty()) return;
  const DeformableShape course = lab::course_deformable_shape(1, 9);
  DeformableShape small = course, fewer = course;
  small.level[0] = {9, 9};
  fewer.levels = 2;
  for (const DeformableShape& shape : {course, small, fewer, course})
    CHECK((steps::known_clusters(shape) == steps::planned_clusters(shape)));
  DeformableShape wide = course;
  wide.channels = 64;
  CHECK((steps::known_clusters(wide) == steps::planned_clusters(wide)));
  CHECK((steps::known_clusters(course) != steps::known_clusters(small)));
}
