// The parts of the lab that talk to a device, and those that fail without one.
#include <doctest/doctest.h>

#include <cmath>

#include "lab.cuh"
#include "lab_testing.h"

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
  CHECK(calls.size() == 14);  // 2 + 5 times 2 stages
  for (size_t i = 0; i < calls.size(); ++i) CHECK(calls[i] % 2 == int(i % 2));
  for (const lab::Timing& timing : timings) {
    CHECK(timing.samples == 5);
    CHECK(timing.min_us <= timing.median_us);
    CHECK(timing.spread >= 0);
    CHECK(timing.std_us >= 0);
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
