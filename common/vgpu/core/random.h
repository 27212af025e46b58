// The numbers of shuffled and hostile schedules: those of std::mt19937_64, the same for a seed on every
// machine. Its state is 2.5 KB, which blocks of the usual schedule do without, and <random> is one of the
// longest headers, which those who include this one do without.
#pragma once
#include <cstdint>
#include <memory>

namespace vgpu {

// Can be given to std::shuffle. Without a seed it gives no numbers.
class Random {
 public:
  using result_type = std::uint64_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type{0}; }

  Random();
  explicit Random(std::uint64_t seed);
  Random(Random&&) noexcept;
  Random& operator=(Random&&) noexcept;
  ~Random();
  result_type operator()();

 private:
  struct Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace vgpu
