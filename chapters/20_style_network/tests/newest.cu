// One case, for `make test` without ALL=1: the last planes become pixels.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "../../../common/testing/newest.h"
#include "../kernel.cuh"

namespace {

using namespace lab::testing;

TEST_CASE("chapter 20, planes to pixels: one picture") {
  const int plane_height = 8, plane_width = 12, height = 7, width = 9;
  const RandomArray<float> planes("planes", 3 * plane_height * plane_width, 1);
  auto rgb = unwritten<unsigned char>("rgb", 3 * height * width);
  style_network::to_pixels(planes, rgb.data(), plane_height, plane_width, height, width, nullptr);
  std::vector<double> expected;
  for (int row = 0; row < height; ++row)
    for (int column = 0; column < width; ++column)
      for (int c = 0; c < 3; ++c) {
        const int at = (c * plane_height + row + 1) * plane_width + column + 3;
        expected.push_back(
            std::clamp(std::tanh(double(planes.wide[at])) * 150 + 127.5, 0.0, 255.0));
      }
  lab::check(cudaDeviceSynchronize());
  const std::vector<unsigned char> got = rgb.download();
  const std::vector<float> levels(got.begin(), got.end());
  const lab::Comparison result = lab::compare(
      levels, expected, {.atol = 0.501, .rtol = 0, .relative_l2 = 1}, {height, width, 3});
  CHECK_MESSAGE(result.pass, result.describe());
}

}  // namespace
