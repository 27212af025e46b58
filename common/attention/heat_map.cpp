// The picture of a query's attention over a photo.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "inputs.h"
#include "lab/images.h"

namespace lab {
namespace {

// "dark blue: none" to "yellow: most"; five colours, read between linearly.
void heat_colour(double heat, double rgb[3]) {
  static constexpr double kColours[5][3] = {
      {13, 8, 90}, {106, 0, 168}, {203, 70, 121}, {248, 149, 64}, {240, 249, 33}};
  const double position = std::clamp(heat, 0.0, 1.0) * 4;
  const int below = std::min(3, int(position));
  const double share = position - below;
  for (int c = 0; c < 3; ++c)
    rgb[c] = kColours[below][c] * (1 - share) + kColours[below + 1][c] * share;
}

}  // namespace

Image draw_heat_map(const Image& photo, int grid, int chosen_token,
                    const std::vector<double>& heat) {
  if (grid < 1 || photo.width < grid || photo.height != photo.width ||
      heat.size() != size_t(grid) * grid + 1)
    throw std::invalid_argument("draw_heat_map: photo, grid and heat do not fit");
  double most = 0;
  for (int token = 1; token < int(heat.size()); ++token)
    if (token != chosen_token) most = std::max(most, heat[token]);
  if (most <= 0) most = 1;

  const int zoom = std::max(1, (448 + photo.width - 1) / photo.width), gap = 8;
  const int side = photo.width * zoom;
  Image picture{2 * side + gap, side, {}};
  picture.rgb.assign(size_t(picture.width) * picture.height * 3, 255);
  const auto pixel = [&](int panel, int y, int x) {
    return &picture.rgb[(size_t(y) * picture.width + panel * (side + gap) + x) * 3];
  };
  for (int y = 0; y < side; ++y)
    for (int x = 0; x < side; ++x) {
      const unsigned char* source = &photo.rgb[(size_t(y / zoom) * photo.width + x / zoom) * 3];
      const int row = y * grid / side, column = x * grid / side;
      double colour[3];
      heat_colour(std::sqrt(heat[1 + row * grid + column] / most), colour);
      const double grey = 0.299 * source[0] + 0.587 * source[1] + 0.114 * source[2];
      for (int c = 0; c < 3; ++c) {
        pixel(0, y, x)[c] = source[c];
        pixel(1, y, x)[c] = static_cast<unsigned char>(0.35 * grey + 0.65 * colour[c]);
      }
    }

  if (chosen_token < 1) return picture;  // the class token has no place in the photo
  // A white frame with a black one around it stands out of any photo.
  const int row = (chosen_token - 1) / grid, column = (chosen_token - 1) % grid;
  const int top = row * side / grid, bottom = (row + 1) * side / grid - 1;
  const int left = column * side / grid, right = (column + 1) * side / grid - 1;
  for (int panel = 0; panel < 2; ++panel)
    for (int y = std::max(0, top - 4); y <= std::min(side - 1, bottom + 4); ++y)
      for (int x = std::max(0, left - 4); x <= std::min(side - 1, right + 4); ++x) {
        const int outside = std::max({top - y, y - bottom, left - x, x - right});
        if (outside < 1) continue;
        std::fill_n(pixel(panel, y, x), 3, static_cast<unsigned char>(outside <= 2 ? 255 : 0));
      }
  return picture;
}

}  // namespace lab
