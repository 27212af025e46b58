// What the model of times (common/vgpu/time) says of a GPU: the constants that the benchmarks
// measure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace calibrate {

struct Constant {
  double value = 0;
  std::string source;
};

class Model {
 public:
  // The figures of the device file with that name; where there is none those of one with the same
  // compute capability, and note() says so. Throws lab::LackError where the model knows no such
  // architecture.
  Model(const std::string& device_name, int major, int minor);

  // By its name in timing.h. Beside these: "tensor_interval" (clocks between the products of one
  // scheduler, of halves with sums in fp32) and "dram_gb_s" (what a stream gets).
  Constant at(std::string_view name) const;
  // Compares with another value from now on: "l2_latency=270". Throws lab::UsageError for what is
  // no such thing.
  void replace(const std::string& text);
  // Names of the constants whose source begins so ("recalled", "guessed").
  std::vector<std::string> from(std::string_view source) const;
  const std::string& note() const { return note_; }
  double clock_mhz() const { return clock_mhz_; }

 private:
  struct Entry {
    std::string name;
    Constant constant;
  };
  std::vector<Entry> entries_;
  std::string note_;
  double clock_mhz_ = 0;
};

}  // namespace calibrate
