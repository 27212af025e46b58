// Chapter 0's reference and problems; no device needed.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/program.h"
#include "../host/reference.h"
#include "test_support.h"

using namespace lab::testing;

TEST_CASE("reference: grey of known colours, halves rounded up") {
  // Red, green, blue, white; 299 · 10 + 114 · 20 = 5270; 299 · 5 + 587 · 15 + 114 · 5 = 10870;
  // 299 · 100 + 587 · 100 + 114 · 150 = 105700; 299 · 250 + 587 · 0 + 114 · 125 = 89000;
  // 587 · 100 + 114 · 200 = 81500, a half.
  const std::vector<unsigned char> photo = {255, 0,   0,   255, 10, 5,  100, 250, 0,    // red
                                            0,   255, 0,   255, 0,  15, 100, 0,   100,  // green
                                            0,   0,   255, 255, 20, 5,  150, 125, 200};
  std::vector<unsigned char> grey(9);
  reference::grey(photo.data(), {3, 3}, grey.data());
  CHECK(grey == std::vector<unsigned char>{76, 150, 29, 255, 5, 11, 106, 89, 82});
}

TEST_CASE("reference: grey and blur are the formulas in double precision, rounded") {
  const PhotoCase problem = photo_case({23, 37}, 3);
  const int height = 23, width = 37;
  const auto& [shape, photo, source] = problem.problem;
  for (int i = 0; i < height * width; ++i) {
    const double exact = 0.299 * photo[i] + 0.587 * photo[height * width + i] +
                         0.114 * photo[2 * height * width + i];
    CHECK(problem.expected.grey[i] == std::floor(exact + 0.5 + 1e-9));
  }
  double sum = 0;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      double window = 0, count = 0;
      for (int i = 0; i < height * width; ++i)
        if (std::abs(i / width - y) <= 4 && std::abs(i % width - x) <= 4)
          window += problem.expected.grey[i], ++count;
      CHECK(problem.expected.blurred[y * width + x] == std::floor(window / count + 0.5 + 1e-9));
      sum += problem.expected.grey[y * width + x];
    }
  CHECK(problem.expected.sum == sum);
}

TEST_CASE("comparison: one pixel that is off by one, and a sum that is, are outside") {
  const PhotoCase problem = photo_case({9, 11});
  std::vector<unsigned char> got = problem.expected.grey;
  CHECK(lab::compare_bytes(got, problem.expected.grey, {9, 11}).pass);
  got[57] += 1;
  const lab::Comparison wrong = lab::compare_bytes(got, problem.expected.grey, {9, 11});
  CHECK(!wrong.pass);
  CHECK(wrong.first_bad == std::vector<int64_t>{5, 2});
  CHECK(lab::compare_sum(4278190080u, 4278190080.0).pass);
  CHECK(!lab::compare_sum(4278190079u, 4278190080.0).pass);
}

TEST_CASE("problems: photos in planes, seeds, and the picture") {
  const lab::Image photo = lab::load_image(lab::repository_path("data/images/chelsea.png"));
  const lab::PhotoProblem problem = lab::photo_problem(photo, 40);
  const lab::Image resized = lab::square(photo, 40);
  CHECK(problem.photo.size() == 3 * 40 * 40);
  for (int c = 0; c < 3; ++c) CHECK(problem.photo[c * 1600 + 41] == resized.rgb[3 * 41 + c]);
  CHECK(lab::random_photo({5, 6}, 1).photo == lab::random_photo({5, 6}, 1).photo);
  CHECK(lab::random_photo({5, 6}, 1).photo != lab::random_photo({5, 6}, 2).photo);
  // What nobody writes is 255 in a test.
  const std::vector<unsigned char> bytes = lab::random_photo({300, 300}, 1).photo;
  CHECK(*std::max_element(bytes.begin(), bytes.end()) < 255);
  CHECK_THROWS_AS(lab::photo_problem(photo, 0), std::invalid_argument);

  const lab::PhotoExpected expected = lab::expected_results(problem);
  const lab::Image picture = lab::draw_steps(problem, expected.grey, expected.blurred);
  CHECK(picture.width == 3 * 40 + 8);
  CHECK(picture.height == 40);
  const auto pixel = [&](int y, int x, int c) {
    return picture.rgb[size_t(3) * (y * picture.width + x) + c];
  };
  for (int c = 0; c < 3; ++c) {
    CHECK(pixel(3, 5, c) == resized.rgb[3 * (3 * 40 + 5) + c]);
    CHECK(pixel(3, 42, c) == 255);  // the gap
    CHECK(pixel(3, 44 + 5, c) == expected.grey[3 * 40 + 5]);
    CHECK(pixel(39, 88 + 39, c) == expected.blurred[1599]);
  }
}
