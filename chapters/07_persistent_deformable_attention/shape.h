// Deformable attention in plain C++: what a kernel, a reference and a report must agree on and nothing
// else.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

struct LevelShape {
  int height = 1, width = 1;  // pixels
};
constexpr int kMaxLevels = 5;

// Multi-scale deformable attention: each (image, query, head) takes `points` samples from each level
// and adds them up, weighted.
//   value      [batch, pixels, heads, channels]                    the levels one after the other
//   locations  [batch, queries, heads, levels, points, (x, y)]     0 to 1 is the level's extent
//   weights    [batch, queries, heads, levels, points]             of a query, they add up to 1
//   out        [batch, queries, heads, channels]
// A sample lies at pixel location * size - 0.5 and is interpolated between the four pixels around
// it; what is outside counts as 0.
struct DeformableShape {
  int batch = 1, queries = 1, heads = 1;
  int channels = 32;  // channels per head
  int levels = 1;
  int points = 4;  // samples of a query in each level
  LevelShape level[kMaxLevels];

  int64_t pixels() const {  // pixels of an image, all levels together
    int64_t sum = 0;
    for (int l = 0; l < levels && l < kMaxLevels; ++l)
      sum += int64_t(level[l].height) * level[l].width;
    return sum;
  }
  int64_t rows() const { return int64_t(batch) * queries * heads; }  // rows of `out`
  int64_t samples() const { return rows() * levels * points; }
  int64_t value_elements() const { return batch * pixels() * heads * channels; }
  int64_t out_elements() const { return rows() * channels; }
};

// "[batch 2, queries 100, heads 1, channels 32, levels 92x160 46x80, points 8]"
inline std::string describe(const DeformableShape& shape) {
  std::string text = "[batch " + std::to_string(shape.batch) + ", queries " +
                     std::to_string(shape.queries) + ", heads " + std::to_string(shape.heads) +
                     ", channels " + std::to_string(shape.channels) + ", levels";
  for (int l = 0; l < shape.levels && l < kMaxLevels; ++l)
    text +=
        " " + std::to_string(shape.level[l].height) + "x" + std::to_string(shape.level[l].width);
  return text + ", points " + std::to_string(shape.points) + "]";
}

// The shapes that every deformable attention kernel takes.
// Throws std::invalid_argument naming the shape and the limit.
inline void require_deformable_shape(const DeformableShape& shape) {
  const auto require = [&](bool ok, const char* limit) {
    if (!ok)
      throw std::invalid_argument("deformable attention of shape " + describe(shape) + ": " +
                                  limit);
  };
  require(shape.levels >= 1 && shape.levels <= kMaxLevels, "levels must be 1 to 5 in number");
  require(shape.batch >= 1 && shape.queries >= 1 && shape.heads >= 1,
          "batch, queries and heads must be at least 1");
  require(shape.channels == 16 || shape.channels == 32 || shape.channels == 64,
          "channels must be 16, 32 or 64");
  require(shape.points == 4 || shape.points == 8, "points must be 4 or 8");
  for (int l = 0; l < shape.levels; ++l)
    require(shape.level[l].height >= 1 && shape.level[l].width >= 1,
            "a level has at least 1 x 1 pixels");
  require(shape.rows() <= INT32_MAX, "batch x queries x heads must be fewer than 2^31");
  // Places in an image are 32-bit numbers in the kernels, and each half of such a product is exact.
  require(shape.pixels() <= INT32_MAX / (int64_t(shape.heads) * shape.channels),
          "the values of one image must be fewer than 2^31");
}
