// What the tests of the C functions share: arrays on the device by the library's own functions, and
// plain loops in double as what is expected. Nothing here knows CUDA.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "../operators.h"

namespace operators_tests {

#if defined(__aarch64__)
using half = __fp16;  // GCC 12 has no _Float16 in C++ there
#else
using half = _Float16;
#endif

// An array on the device, and the tensor that describes it.
template <class T>
class Array {
 public:
  // Normal numbers, `scale` times, or what values has.
  Array(std::vector<int64_t> shape, unsigned seed, double scale = 1) : host(count(shape)) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (T& value : host) value = T(scale * normal(random));
    allocate(shape);
  }
  // To be written: NaN before.
  explicit Array(std::vector<int64_t> shape) : host(count(shape), T(NAN)) { allocate(shape); }
  ~Array() { vision_free(memory_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  operator const vision_tensor*() const { return &tensor; }
  void upload() { REQUIRE(vision_copy(memory_, host.data(), bytes(), nullptr) == VISION_OK); }
  // What is on the device now.
  const std::vector<T>& download() {
    REQUIRE_MESSAGE(vision_synchronize(nullptr) == VISION_OK, vision_last_message());
    REQUIRE(vision_copy(host.data(), memory_, bytes(), nullptr) == VISION_OK);
    return host;
  }
  std::vector<double> wide() const { return {host.begin(), host.end()}; }

  std::vector<T> host;
  vision_tensor tensor{};

 private:
  static int64_t count(const std::vector<int64_t>& shape) {
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    return elements;
  }
  int64_t bytes() const { return int64_t(host.size() * sizeof(T)); }
  void allocate(const std::vector<int64_t>& shape) {
    REQUIRE_MESSAGE(vision_allocate(bytes(), &memory_) == VISION_OK, vision_last_message());
    tensor.data = memory_;
    tensor.type = std::is_same_v<T, half> ? VISION_FLOAT16 : VISION_FLOAT32;
    tensor.dimensions = int(shape.size());
    int64_t stride = 1;
    for (int i = int(shape.size()) - 1; i >= 0; --i) {
      tensor.shape[i] = shape[i];
      tensor.strides[i] = stride;
      stride *= shape[i];
    }
    upload();
  }
  void* memory_ = nullptr;
};

// |got - expected| <= bound · (rms of expected) everywhere; NaN fails.
template <class T>
void check_near(const std::vector<T>& got, const std::vector<double>& expected, double bound) {
  REQUIRE(got.size() == expected.size());
  double squares = 0;
  for (const double value : expected) squares += value * value;
  const double rms = std::sqrt(squares / double(expected.size()));
  REQUIRE(rms > 0);
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(double(got[i]) - expected[i]) <= bound * rms) && wrong++ == 0) first = i;
  CHECK_MESSAGE(wrong == 0, wrong << " of " << got.size() << " elements are wrong, the first is "
                                  << first << ": " << double(got[first]) << " instead of "
                                  << expected[first] << ", rms " << rms);
}

// The call is refused with that status and exactly these words.
inline void check_refused(int status, const std::string& words,
                          int expected = VISION_BAD_ARGUMENT) {
  CHECK(status == expected);
  CHECK(std::string(vision_last_message()) == words);
}
#define RUN(call) REQUIRE_MESSAGE((call) == VISION_OK, vision_last_message())

}  // namespace operators_tests
