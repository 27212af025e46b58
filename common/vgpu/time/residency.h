// What the launches so far have left of their arrays in the L2.
#pragma once
#include <cstdint>
#include <vector>

namespace vgpu::time {

// What a launch touches of one allocation, in bytes, each byte once.
struct Touched {
  std::uint64_t address = 0, size = 0;  // the allocation's
  double read = 0, written = 0;
  double bytes() const { return read > written ? read : written; }
};

// Arrays in the order of their last use. An array is there as long as what was touched since, and itself,
// fit in the L2: the least recently used goes first.
class Residency {
 public:
  // Of what a launch reads, the bytes that are there.
  double there(const Touched& array, double l2_bytes) const;
  // A launch is over.
  void touch(const std::vector<Touched>& arrays);
  void clear() { arrays_.clear(); }

 private:
  std::vector<Touched> arrays_;  // the last one used last
};

}  // namespace vgpu::time
