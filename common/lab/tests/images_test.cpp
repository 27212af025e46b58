// Pictures: there and back, what is no picture is refused, and what the heat map shows.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "attention/inputs.h"
#include "lab.cuh"
#include "lab/errors.h"
#include "lab/images.h"
#include "testing/testing.h"
#include "testing/text.h"

using lab::Image;
using lab::testing::contains;
using lab::testing::TemporaryFolder;

namespace {

Image gradient(int width, int height) {
  Image image{width, height, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (const int value : {x * 255 / width, y * 255 / height, 128})
        image.rgb.push_back(static_cast<unsigned char>(value));
  return image;
}

int pixel(const Image& image, int y, int x, int channel) {
  return image.rgb[(size_t(y) * image.width + x) * 3 + channel];
}

std::string image_refusal(const std::string& path) {
  try {
    lab::load_image(path);
  } catch (const lab::UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("images: PNG there and back exactly, JPEG nearly") {
  const TemporaryFolder folder;
  const Image image = gradient(37, 21);
  for (const std::string name : {"a.png", "a.PNG", "a.jpg", "a.jpeg"}) {
    CAPTURE(name);
    lab::save_image(folder.path(name), image);
    const Image read = lab::load_image(folder.path(name));
    REQUIRE(read.width == 37);
    REQUIRE(read.height == 21);
    int most = 0;
    for (size_t i = 0; i < image.rgb.size(); ++i)
      most = std::max(most, std::abs(int(image.rgb[i]) - int(read.rgb[i])));
    CHECK(most <= (name.find('j') == std::string::npos ? 0 : 24));
  }
  CHECK(folder.names().size() == 4);  // and no temporary file
  CHECK_THROWS_WITH_AS(lab::save_image(folder.path("a.bmp"), image),
                       doctest::Contains("must end in .png, .jpg or .jpeg"), lab::UsageError);
  CHECK_THROWS_AS(lab::save_image(folder.path("none/a.png"), image), lab::UsageError);
}

TEST_CASE("images: what is none is refused by its name and the reason") {
  const TemporaryFolder folder;
  folder.write("text.png", "just text\n");
  folder.write("empty.png", "");
  CHECK(contains(image_refusal(folder.path("missing.png")), "missing.png: No such file"));
  CHECK(contains(image_refusal(folder.folder()), "is a folder"));
  CHECK(contains(image_refusal(folder.path("empty.png")), "is empty"));
  CHECK(contains(image_refusal(folder.path("text.png")), "is no PNG or JPEG image"));
  CHECK(contains(image_refusal("/dev/zero"), "is not a regular file"));

  lab::save_image(folder.path("a.png"), gradient(64, 64));
  lab::save_image(folder.path("a.jpg"), gradient(64, 64));
  for (const std::string name : {"a.png", "a.jpg"}) {
    const std::string whole = lab::testing::file_content(folder.path(name));
    for (const double share : {0.1, 0.5, 0.9, 0.99}) {
      folder.write("cut", whole.substr(0, size_t(share * double(whole.size()))));
      CAPTURE(name);
      CAPTURE(share);
      CHECK(contains(image_refusal(folder.path("cut")), "is truncated"));
    }
  }
  // A header that promises 50000 x 50000 pixels: refused before any of it is allocated.
  std::string huge = lab::testing::file_content(folder.path("a.png"));
  for (const size_t at : {size_t(16), size_t(20)})
    huge.replace(at, 4, std::string("\0\0\xc3\x50", 4));
  folder.write("huge.png", huge);
  CHECK(image_refusal(folder.path("huge.png")) != "");
}

TEST_CASE("images: the square is the middle of the photo") {
  // 96 x 32: the middle 32 columns, x = 32 to 63; red rises along x from a third to two thirds.
  const Image image = gradient(96, 32);
  const Image same_size = lab::square(image, 32);
  REQUIRE(same_size.width == 32);
  REQUIRE(same_size.height == 32);
  for (int y : {0, 13, 31})
    for (int x : {0, 17, 31})
      for (int c : {0, 1, 2}) CHECK(pixel(same_size, y, x, c) == pixel(image, y, x + 32, c));
  const Image larger = lab::square(image, 224);
  CHECK(larger.rgb.size() == 224 * 224 * 3);
  CHECK(std::abs(pixel(larger, 112, 112, 0) - 127) <= 3);
  CHECK(std::abs(pixel(larger, 112, 223, 0) - 168) <= 4);
}

TEST_CASE("images: the heat map is hot where the heat is, and frames the chosen patch") {
  const Image photo{64, 64, std::vector<unsigned char>(64 * 64 * 3, 128)};  // grey, 4 x 4 patches
  std::vector<double> heat(17, 0.0);
  heat[1 + 0 * 4 + 3] = 0.2;  // patch 0,3
  heat[1 + 2 * 4 + 1] = 0.8;  // patch 2,1: the chosen one, beyond the scale
  const Image map = lab::draw_heat_map(photo, 4, 1 + 2 * 4 + 1, heat);
  // 64 pixels are drawn 7 times as large, 448, with 8 between the panels.
  REQUIRE(map.width == 2 * 448 + 8);
  REQUIRE(map.height == 448);
  const auto middle = [&](int panel, int row, int column, int channel) {
    return pixel(map, row * 112 + 56, panel * 456 + column * 112 + 56, channel);
  };
  CHECK(middle(0, 0, 0, 0) == 128);  // the photo as it is
  CHECK(middle(1, 0, 3, 0) > 180);   // yellow: much red and green, little blue
  CHECK(middle(1, 0, 3, 1) > 180);
  CHECK(middle(1, 0, 3, 2) < 80);
  CHECK(middle(1, 3, 0, 0) < 80);  // dark blue
  CHECK(middle(1, 3, 0, 1) < 80);
  for (const int panel : {0, 1}) {  // the frame: white just outside of patch 2,1, then black
    const int left = panel * 456 + 112, y = 2 * 112 + 56;
    for (int c = 0; c < 3; ++c) CHECK(pixel(map, y, left - 1, c) == 255);
    for (int c = 0; c < 3; ++c) CHECK(pixel(map, y, left - 4, c) == 0);
  }
  CHECK_THROWS_AS(lab::draw_heat_map(photo, 5, 1, heat), std::invalid_argument);
  lab::draw_heat_map(photo, 4, 0, std::vector<double>(17, 0.0));  // the class token, no heat
}
