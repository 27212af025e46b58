// A photo in plain C++: what kernels, reference and report must agree on and nothing else.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

// A photo of height x width pixels, and three results. All but sum are bytes, contiguous.
//   photo     [3, height, width]   red, green and blue, each a plane of its own
//   grey      [height, width]      (299 red + 587 green + 114 blue) / 1000, rounded
//   sum       [1]                  of all of grey, an unsigned int
//   blurred   [height, width]      the mean of the 9 x 9 pixels of grey around, rounded; at the edges
//                                  the mean of those that there are
// All are whole numbers, and halves are rounded up: every order of additions gives the same result.
struct PhotoShape {
  static constexpr int kMaxSide = 16384;
  static constexpr int64_t kMaxPixels = 1 << 24;  // 255 times as many still fit into 32 bits
  static constexpr int kRadius = 4;               // 9 = 4 + 1 + 4
  int height = 1, width = 1;                      // pixels

  int64_t pixels() const { return int64_t(height) * width; }
};

// "[height 224, width 224]"
inline std::string describe(const PhotoShape& shape) {
  return "[height " + std::to_string(shape.height) + ", width " + std::to_string(shape.width) + "]";
}

// The shapes that every step takes.
// Throws std::invalid_argument naming the shape and the limit.
inline void require_shape(const PhotoShape& shape) {
  const auto require = [&](bool ok, const char* limit) {
    if (!ok) throw std::invalid_argument("photo of shape " + describe(shape) + ": " + limit);
  };
  require(shape.height >= 1 && shape.height <= shape.kMaxSide, "height must be 1 to 16384");
  require(shape.width >= 1 && shape.width <= shape.kMaxSide, "width must be 1 to 16384");
  require(shape.pixels() <= shape.kMaxPixels,
          "at most 16777216 pixels, since their sum must fit into 32 bits");
}
