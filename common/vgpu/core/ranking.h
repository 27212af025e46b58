// Who goes next in a hostile schedule (VGPU_SCHEDULE=hostile:SEED): of warps, of the blocks of a
// cluster, of the clusters in flight.
//
// The first in the ranking that can go on does, alone, until it waits for others; as soon as it can
// go on again it does. Now and then one falls to the end, in the middle of what it does, and comes
// no further before all others wait or have ended. So some run as far ahead of others as the program
// lets them. Where the ranking begins is the seed's: seeds 1, 4, 7 ... the last first, 2, 5, 8 ...
// the first first, 3, 6, 9 ... any.
#pragma once
#include <cstdint>

#include "random.h"

namespace vgpu {

class Ranking {
 public:
  Ranking() = default;
  // `salt`: tells the rankings of a launch apart.
  Ranking(std::uint64_t seed, std::uint64_t salt)
      : random_(seed * 0x9E3779B97F4A7C15ull + salt * 0xD1B54A32D192ED03ull), begins_(seed % 3) {
    mean_steps_ = std::uint64_t{16} << random_() % 6;
  }
  // The place of who comes as the `number`th; a lower one goes first.
  std::uint64_t place_of(std::uint64_t number) {
    switch (begins_) {
      case 1:
        return kFirstFallen - 1 - number;
      case 2:
        return number;
      default:
        return random_() % kFirstFallen;
    }
  }
  // After a step of one: does it fall to the end?
  bool falls() { return random_() % mean_steps_ == 0; }
  std::uint64_t end() { return ++end_; }
  std::uint64_t random(std::uint64_t below) { return random_() % below; }

 private:
  static constexpr std::uint64_t kFirstFallen = std::uint64_t{1} << 62;
  Random random_;
  std::uint64_t begins_ = 0, mean_steps_ = 16, end_ = kFirstFallen;
};

}  // namespace vgpu
