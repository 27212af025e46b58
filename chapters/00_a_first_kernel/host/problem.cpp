// Photos and random pixels, what the steps must compute of them, and the picture.
#include "problem.h"

#include <algorithm>

#include "../../../common/lab/files.h"
#include "../../../common/lab/random.h"
#include "reference.h"

namespace lab {

PhotoProblem photo_problem(const Image& photo, int size) {
  PhotoProblem problem;
  problem.shape = {size, size};
  require_shape(problem.shape);
  const Image resized = square(photo, size);
  problem.photo.resize(resized.rgb.size());
  const size_t pixels = size_t(problem.shape.pixels());
  for (size_t i = 0; i < pixels; ++i)
    for (size_t c = 0; c < 3; ++c) problem.photo[c * pixels + i] = resized.rgb[3 * i + c];
  problem.source = format("a photo of %d x %d pixels", size, size);
  return problem;
}

PhotoProblem random_photo(const PhotoShape& shape, uint64_t seed) {
  require_shape(shape);
  PhotoProblem problem;
  problem.shape = shape;
  problem.photo.resize(size_t(3 * shape.pixels()));
#pragma omp parallel for
  for (int y = 0; y < shape.height; ++y)
    for (int x = 0; x < shape.width; ++x) {
      const uint64_t at = uint64_t(y) * shape.width + x, patch = (uint64_t(y / 7) << 32) + x / 5;
      // A patch has a colour of its own, so that rows, columns and edges differ.
      const uint64_t own = random_bits(seed, at), mean = random_bits(seed + 1, patch);
      for (int c = 0; c < 3; ++c)
        problem.photo[c * shape.pixels() + at] =
            static_cast<unsigned char>((mean >> (16 * c)) % 192 + (own >> (16 * c)) % 64);
    }
  problem.source = format("random, seed %llu", static_cast<unsigned long long>(seed));
  return problem;
}

PhotoExpected expected_results(const PhotoProblem& problem) {
  PhotoExpected expected;
  expected.grey.resize(size_t(problem.shape.pixels()));
  expected.blurred.resize(expected.grey.size());
  reference::grey(problem.photo.data(), problem.shape, expected.grey.data());
  expected.sum = double(reference::sum(expected.grey.data(), problem.shape));
  reference::blur(expected.grey.data(), problem.shape, expected.blurred.data());
  return expected;
}

Comparison compare_bytes(const std::vector<unsigned char>& got,
                         const std::vector<unsigned char>& expected, const PhotoShape& shape) {
  return compare(std::vector<float>(got.begin(), got.end()),
                 std::vector<float>(expected.begin(), expected.end()), {},
                 {shape.height, shape.width});
}

Comparison compare_sum(unsigned got, double expected) {
  return compare(std::vector<double>{double(got)}, std::vector<double>{expected}, {}, {1});
}

Image draw_steps(const PhotoProblem& problem, const std::vector<unsigned char>& grey,
                 const std::vector<unsigned char>& blurred) {
  constexpr int kGap = 4;  // white pixels between two
  const int height = problem.shape.height, width = problem.shape.width;
  Image picture{3 * width + 2 * kGap, height, {}};
  picture.rgb.assign(size_t(3) * picture.width * height, 255);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      const size_t at = size_t(y) * width + x;
      unsigned char* const to = &picture.rgb[3 * (size_t(y) * picture.width + x)];
      for (int c = 0; c < 3; ++c) to[c] = problem.photo[c * problem.shape.pixels() + at];
      std::fill_n(to + 3 * (width + kGap), 3, grey[at]);
      std::fill_n(to + 6 * (width + kGap), 3, blurred[at]);
    }
  return picture;
}

// ---- On the device ------------------------------------------------------------------------------

double photo_bytes(const PhotoShape& shape) { return double(shape.pixels()) * (3 + 1 + 1); }

std::vector<PhotoArrays> upload(const PhotoProblem& problem, int copies) {
  std::vector<PhotoArrays> arrays;
  const size_t pixels = size_t(problem.shape.pixels());
  for (int i = 0; i < copies; ++i) {
    const std::string copy = i ? " (copy " + std::to_string(i + 1) + ")" : "";
    arrays.push_back({DeviceArray<unsigned char>(problem.photo, "photo" + copy),
                      DeviceArray<unsigned char>(pixels, "grey" + copy),
                      DeviceArray<unsigned char>(pixels, "blurred" + copy),
                      DeviceArray<unsigned>(1, "sum" + copy)});
  }
  return arrays;
}

Comparison compare_result(const PhotoStep& step, const PhotoArrays& arrays,
                          const PhotoExpected& expected, const PhotoShape& shape) {
  if (expected.grey.empty()) return Comparison::none();
  if (step.grey) return compare_bytes(arrays.grey.download(), expected.grey, shape);
  if (step.sum) return compare_sum(arrays.sum.download()[0], expected.sum);
  return compare_bytes(arrays.blurred.download(), expected.blurred, shape);
}

Cost step_cost(const PhotoStep& step, const PhotoShape& shape) {
  const double pixels = double(shape.pixels());
  if (step.grey) return {pixels * (3 + 1), 0};
  if (step.sum) return {pixels + sizeof(unsigned), 0};
  return {pixels * 2, 0};
}

}  // namespace lab
