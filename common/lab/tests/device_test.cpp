// The parts of the lab that talk to a device, and those that fail without one.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "lab.cuh"
#include "lab/device.h"
#include "lab/errors.h"
#include "lab/timing.h"
#include "testing/testing.h"

namespace {

bool skipped(const std::string& what) {
  if (lab::testing::has_device()) return false;
  MESSAGE("skipped: " << what << ": there is no GPU, real or virtual");
  return true;
}

}  // namespace

TEST_CASE("check: names file, line, error and meaning; what is lacking is another kind of error") {
  CHECK_NOTHROW(lab::check(cudaSuccess));
  try {
    lab::check(cudaErrorInvalidValue);
    FAIL("not thrown");
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    CAPTURE(text);
    CHECK(text.find("device_test.cpp:") != std::string::npos);
    CHECK(text.find("cudaErrorInvalidValue: ") != std::string::npos);
  }
  for (const cudaError_t error :
       {cudaErrorNoDevice, cudaErrorInsufficientDriver, cudaErrorMemoryAllocation,
        cudaErrorNoKernelImageForDevice, cudaErrorNotSupported})
    CHECK_THROWS_AS(lab::check(error), lab::LackError);
}

TEST_CASE("check: the file is named without the way to it through other folders") {
#line 7 "./chapters/03_coalescing/../../common/./lab.cuh"
  const std::source_location where = std::source_location::current();
  std::string text;
  try {
    lab::check(cudaErrorInvalidValue, where);
  } catch (const std::runtime_error& error) {
    text = error.what();
  }
  CHECK(text.find("common/lab.cuh:7: cudaErrorInvalidValue: ") == 0);
}
#line 52 "common/lab/tests/device_test.cpp"

TEST_CASE("DeviceArray: there and back, NaN, pieces, moves") {
  if (skipped("DeviceArray")) return;
  const std::vector<float> host = {1, 2, 3, 4, 5};
  lab::DeviceArray<float> array(host, "host");
  CHECK(array.size() == 5);
  CHECK(array.download() == host);
  CHECK(array.download(1, 3) == std::vector<float>{2, 3, 4});
  CHECK_THROWS_AS(array.download(3, 3), std::invalid_argument);
  CHECK_THROWS_AS(array.upload({1, 2}), std::invalid_argument);

  lab::DeviceArray<float> moved = std::move(array);
  CHECK(array.data() == nullptr);
  CHECK(moved.download() == host);
  lab::DeviceArray<float> other(1, "other");
  other = std::move(moved);
  CHECK(other.download() == host);

  other.fill_nan();
  for (const float value : other.download()) CHECK(std::isnan(value));
  lab::DeviceArray<half> halves(3, "halves");
  halves.fill_nan();
  for (const half value : halves.download()) CHECK(std::isnan(__half2float(value)));
}

TEST_CASE("require_memory: what is not there is refused with both sizes") {
  if (skipped("require_memory")) return;
  const lab::Device device = lab::open_device();
  CHECK_NOTHROW(lab::require_memory(device, 1e6, 1e6, "a little"));
  CHECK_THROWS_WITH_AS(lab::require_memory(device, 1e18, 0, "a lot"),
                       doctest::Contains("a lot needs 888 PiB on the device"), lab::LackError);
  CHECK_THROWS_WITH_AS(lab::require_memory(device, 0, 1e18, "a lot"),
                       doctest::Contains("a lot needs 888 PiB of host memory"), lab::LackError);
}

TEST_CASE("time_stages: every stage once an iteration, in order") {
  if (skipped("time_stages")) return;
  const lab::Device device = lab::open_device();
  std::vector<int> calls;
  const std::vector<lab::Launch> stages = {[&](int i) { calls.push_back(2 * i); },
                                           [&](int i) { calls.push_back(2 * i + 1); }};
  const std::vector<lab::Timing> timings = lab::time_stages(device, stages, 2, 5);
  REQUIRE(timings.size() == 2);
  // 2 + 5 times 2 stages; a GPU is warmed up longer, and each sample of a short stage is of many calls.
  if (device.is_virtual) CHECK(calls.size() == 14);
  CHECK(calls.size() >= 14);
  for (size_t i = 0; i < calls.size(); ++i) CHECK(calls[i] % 2 == int(i % 2));
  for (const lab::Timing& timing : timings) {
    CHECK(timing.samples == 5);
    CHECK(timing.min_us <= timing.median_us);
    CHECK((timing.spread >= 0 || timing.median_us == 0));
    CHECK(timing.std_us >= 0);
    CHECK(timing.stages == (device.is_virtual ? 1 : 2));
    CHECK(timing.mean_us >= timing.min_us);
    CHECK(timing.scratch_bytes == 0);
    CHECK(timing.host_time == device.is_virtual);
  }
  CHECK(std::isnan(lab::time_stages(device, {[](int) {}}, 0, 1)[0].spread));
  CHECK(std::isnan(lab::time_stages(device, {[](int) {}}, 0, 1)[0].std_us));
  CHECK_THROWS_AS(lab::time_stages(device, {}, 0, 1), std::invalid_argument);
  CHECK_THROWS_AS(lab::time_stages(device, stages, 0, 0), std::invalid_argument);
}

TEST_CASE("time_stages: the most scratch that launches hold at a time") {
  if (skipped("time_stages")) return;
  const lab::Device device = lab::open_device();
  void* kept = nullptr;  // taken before, so no scratch of what is timed
  lab::check(cudaMallocAsync(&kept, 1 << 20, nullptr));
  const lab::Launch two_of_three = [](int) {
    void *a = nullptr, *b = nullptr, *c = nullptr;
    lab::check(cudaMallocAsync(&a, 4096, nullptr));
    lab::check(cudaMallocAsync(&b, 8192, nullptr));
    lab::check(cudaFreeAsync(a, nullptr));
    lab::check(cudaMallocAsync(&c, 1024, nullptr));
    lab::check(cudaFreeAsync(b, nullptr));
    lab::check(cudaFreeAsync(c, nullptr));
  };
  CHECK(lab::time_stages(device, {two_of_three}, 1, 2)[0].scratch_bytes == 4096 + 8192);
  CHECK(lab::time_stages(device, {[](int) {}}, 1, 2)[0].scratch_bytes == 0);
  lab::check(cudaFreeAsync(kept, nullptr));
}

TEST_CASE("statistics: median, deviation, and no spread of what takes no time") {
  const lab::Timing timing = lab::statistics({5, 1, 2, 4, 3, 6, 7, 8, 9, 10, 11}, false);
  CHECK(timing.median_us == 6);
  CHECK(timing.min_us == 1);
  CHECK(timing.mean_us == doctest::Approx(6));
  CHECK(timing.std_us == doctest::Approx(std::sqrt(11.0)));  // 110 / 10
  CHECK(timing.spread == doctest::Approx(8.0 / 6));          // from the 2nd to the 10th
  CHECK(timing.samples == 11);
  CHECK(std::isnan(timing.graph_us));
  const lab::Timing nothing = lab::statistics({0, 0, 0, 1}, false);
  CHECK(nothing.median_us == 0);
  CHECK(std::isnan(nothing.spread));
  CHECK(lab::statistics({1, 2}, true).median_us == 1.5);
}

TEST_CASE("warm_up: by number and by time, the numbers in order") {
  std::vector<int> calls;
  int waits = 0;
  const auto slow = [&](int i) {
    calls.push_back(i);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  const auto wait = [&] { ++waits; };
  CHECK(lab::warm_up(slow, wait, 0, 20) == 0);  // none asked for: none
  CHECK(calls.empty());
  const auto start = std::chrono::steady_clock::now();
  const int done = lab::warm_up(slow, wait, 3, 20);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  CHECK(took.count() >= 3 + 20);
  CHECK(done > 3);        // (how many depends on what else the machine does)
  CHECK(done <= 3 + 63);  // at most 20 of them, and then as many again
  CHECK(int(calls.size()) == done);
  for (int i = 0; i < done; ++i) CHECK(calls[i] == i);
  CHECK(waits >= 3);
  CHECK(waits <= done);
  CHECK(lab::warm_up(slow, wait, 2, 0) == 3);
}

TEST_CASE("StepGraph: calls become one graph, whose replays do what they did") {
  if (skipped("StepGraph")) return;
  constexpr size_t kBytes = 1024;
  lab::DeviceArray<unsigned char> from(kBytes, "from"), first(kBytes, "first"),
      second(kBytes, "second");
  const auto filled_with = [&](const lab::DeviceArray<unsigned char>& array, int value) {
    const std::vector<unsigned char> host = array.download();
    return std::count(host.begin(), host.end(), value) == std::ptrdiff_t(kBytes);
  };
  std::vector<int> calls;
  // Through scratch of its own, into its copy.
  lab::StepGraph graph(
      [&](int i, cudaStream_t stream) {
        calls.push_back(i);
        void* scratch = nullptr;
        lab::check(cudaMallocAsync(&scratch, kBytes, stream));
        lab::check(cudaMemcpyAsync(scratch, from.data(), kBytes, cudaMemcpyDeviceToDevice, stream));
        lab::check(cudaMemcpyAsync((i % 2 ? second : first).data(), scratch, kBytes,
                                   cudaMemcpyDeviceToDevice, stream));
        lab::check(cudaFreeAsync(scratch, stream));
      },
      4);
  CHECK(graph.refusal() == "");
  CHECK(calls == std::vector<int>{0, 1, 2, 3});
  for (const int value : {1, 2}) {
    for (auto* array : {&first, &second}) lab::check(cudaMemset(array->data(), 0, kBytes));
    lab::check(cudaMemset(from.data(), value, kBytes));
    lab::check(cudaDeviceSynchronize());
    CHECK(filled_with(first, 0));  // captured, not done
    graph.replay();
    lab::check(cudaStreamSynchronize(graph.stream()));
    CHECK(filled_with(first, value));
    CHECK(filled_with(second, value));
  }
  CHECK(calls.size() == 4);
}

TEST_CASE("StepGraph: what cannot be captured says why, and nothing else breaks") {
  if (skipped("StepGraph")) return;
  lab::DeviceArray<unsigned char> array(64, "array");
  const auto refusal = [&](const lab::StepLaunch& step) {
    lab::StepGraph graph(step, 2);
    CHECK_THROWS_AS(graph.replay(), std::runtime_error);
    lab::check(cudaMemset(array.data(), 1, 64));
    lab::check(cudaDeviceSynchronize());
    return graph.refusal();
  };
  CHECK(refusal([](int, cudaStream_t) {}) == "it launches nothing into the stream it is given");
  CHECK(refusal([&](int, cudaStream_t stream) {
          lab::check(cudaMemsetAsync(array.data(), 2, 64, stream));
          lab::check(cudaStreamSynchronize(stream));
        }).find("cudaErrorStreamCapture") != std::string::npos);
  // A stray call in the legacy stream would be left out of the replays.
  CHECK(refusal([&](int, cudaStream_t stream) {
          lab::check(cudaMemsetAsync(array.data(), 2, 64, stream));
          cudaMemsetAsync(array.data(), 3, 64, nullptr);
        }).find("cudaErrorStreamCapture") != std::string::npos);
  CHECK(refusal([](int, cudaStream_t) { throw std::invalid_argument("odd shape"); }) ==
        "odd shape");
}

TEST_CASE("time_step: as time_stages, and no graph's time where there is no GPU's time") {
  if (skipped("time_step")) return;
  const lab::Device device = lab::open_device();
  lab::DeviceArray<unsigned char> array(64, "array");
  std::vector<int> calls;
  const lab::StepLaunch step = [&](int i, cudaStream_t stream) {
    calls.push_back(i);
    lab::check(cudaMemsetAsync(array.data(), i, 64, stream));
  };
  const lab::Timing timing = lab::time_step(device, step, 1, 2, 3);
  CHECK(timing.samples == 3);
  CHECK(timing.no_graph == "");
  CHECK(std::isfinite(timing.graph_us) == !device.is_virtual);
  if (device.is_virtual) CHECK(calls == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(std::isnan(lab::time_step(device, step, 1, 0, 3).graph_us));  // bare, for a profiler
}

TEST_CASE("rotation_copies: together twice the L2, one where that is enough") {
  lab::Device device;
  device.l2_bytes = 50e6;
  CHECK(lab::rotation_copies(device, 10e6) == 10);
  CHECK(lab::rotation_copies(device, 60e6) == 2);
  CHECK(lab::rotation_copies(device, 100e6) == 1);
  CHECK(lab::rotation_copies(device, 1) == 64);
  device.is_virtual = true;
  CHECK(lab::rotation_copies(device, 10e6) == 1);
}
