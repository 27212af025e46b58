// What the cases of chapters' newest steps share: arrays of random numbers on host and device, and what a step
// wrote beside what is right.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lab.cuh"
#include "lab/random.h"

namespace lab::testing {

// `count` normally distributed numbers, `scale` times, rounded to T: half or float. wide: what they are exactly.
template <class T>
struct RandomArray {
  RandomArray(const std::string& name, int64_t count, uint64_t seed, double scale = 1)
      : host(values(count, seed, scale)), wide(host.begin(), host.end()), device(host, name) {}
  operator const T*() const { return device.data(); }

  std::vector<T> host;
  std::vector<float> wide;
  DeviceArray<T> device;

 private:
  static std::vector<T> values(int64_t count, uint64_t seed, double scale) {
    std::vector<T> all(count);
    for (int64_t i = 0; i < count; ++i) all[i] = T(float(scale * normal(seed, i)));
    return all;
  }
};

// An array that a step writes: NaN before.
template <class T>
DeviceArray<T> unwritten(const std::string& name, int64_t count) {
  DeviceArray<T> array(count, name);
  array.fill_nan();
  return array;
}

template <class T>
void check_written(const DeviceArray<T>& got, const std::vector<double>& expected,
                   const Tolerance& tolerance) {
  check(cudaDeviceSynchronize());
  const std::vector<T> host = got.download();
  const Comparison comparison = compare(std::span<const T>(host), std::span<const double>(expected),
                                        tolerance, {int64_t(expected.size())});
  CHECK_MESSAGE(comparison.pass, comparison.describe());
}

}  // namespace lab::testing
