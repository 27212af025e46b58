// Whose value a lane gets in shfl.sync, for who executes it and for who checks it.
#pragma once
#include <cstdint>

namespace vgpu {

enum Shuffle : std::uint8_t { kUp, kDown, kButterfly, kIndex };

struct ShuffleSource {
  int lane = 0;
  bool inside = false;  // within the lane's segment; else the lane keeps its own value
};

// `b`: how far, or which lane. `c`: clamp value in bits 0-4, segment mask in bits 8-12.
inline ShuffleSource shuffle_source(std::uint8_t variant, int lane, std::uint32_t b,
                                    std::uint32_t c) {
  const int clamp = static_cast<int>(c & 31), segment = static_cast<int>(c >> 8 & 31);
  const int amount = static_cast<int>(b & 31);
  const int highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment;
  int from = lane;
  bool inside = false;
  switch (variant) {
    case kUp:
      from = lane - amount;
      inside = from >= highest;
      break;
    case kDown:
      from = lane + amount;
      inside = from <= highest;
      break;
    case kButterfly:
      from = lane ^ amount;
      inside = from <= highest;
      break;
    case kIndex:
      from = lowest | (amount & ~segment);
      inside = from <= highest;
      break;
  }
  return {inside ? from : lane, inside};
}

}  // namespace vgpu
