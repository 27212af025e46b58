#include "resample.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"

namespace vision_transformer {
namespace {

constexpr double kReach = 2;       // of the cubic kernel, in numbers of the coarser row
constexpr int kFractionBits = 22;  // of weights that meet levels
constexpr int kLeastSide = 8;      // pixels
constexpr double kMean[3] = {0.485, 0.456, 0.406}, kDeviation[3] = {0.229, 0.224, 0.225};

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

int python_round(double x) { return int(std::nearbyint(x)); }  // halves to the even number

// Weights as whole numbers of 2^-22, rounded away from zero at halves.
std::vector<int64_t> in_fractions(const Taps& taps) {
  std::vector<int64_t> whole;
  for (const double weight : taps.weights)
    whole.push_back(std::llround(weight * (int64_t(1) << kFractionBits)));
  return whole;
}

// lines x from pixels become lines x to pixels. A pixel is `step` bytes behind its neighbour, a line
// `stride` bytes behind the one before, in source and result each.
struct Layout {
  size_t step, stride;
};
void resize_lines(const unsigned char* source, Layout source_layout, int from,
                  unsigned char* result, Layout layout, int to, int lines) {
  const std::vector<Taps> taps = bicubic_taps(from, to);
  for (int i = 0; i < to; ++i) {
    const std::vector<int64_t> weights = in_fractions(taps[i]);
    for (int line = 0; line < lines; ++line)
      for (int c = 0; c < 3; ++c) {
        int64_t sum = int64_t(1) << (kFractionBits - 1);
        for (size_t j = 0; j < weights.size(); ++j)
          sum += weights[j] *
                 source[line * source_layout.stride + (taps[i].first + j) * source_layout.step + c];
        result[line * layout.stride + i * layout.step + c] =
            static_cast<unsigned char>(std::clamp<int64_t>(sum >> kFractionBits, 0, 255));
      }
  }
}

}  // namespace

std::vector<Taps> bicubic_taps(int from, int to) {
  const double scale = double(from) / to, stretch = std::max(scale, 1.0), reach = kReach * stretch;
  std::vector<Taps> taps(to);
  for (int i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale;
    const int first = std::max(0, int(centre - reach + 0.5)),
              end = std::min(from, int(centre + reach + 0.5));
    taps[i].first = first;
    double sum = 0;
    for (int j = first; j < end; ++j) {
      taps[i].weights.push_back(cubic((j - centre + 0.5) / stretch));
      sum += taps[i].weights.back();
    }
    for (double& weight : taps[i].weights) weight /= sum;
  }
  return taps;
}

std::vector<double> resample_grid(const std::vector<double>& x, int from, int to, int channels) {
  const std::vector<Taps> taps = bicubic_taps(from, to);
  const auto at = [channels](int side, int row, int column) {
    return (size_t(row) * side + column) * channels;
  };
  std::vector<double> rows(size_t(from) * to * channels), result(size_t(to) * to * channels);
  for (int row = 0; row < from; ++row)
    for (int i = 0; i < to; ++i)
      for (size_t j = 0; j < taps[i].weights.size(); ++j)
        for (int c = 0; c < channels; ++c)
          rows[at(to, row, i) + c] +=
              taps[i].weights[j] * x[at(from, row, taps[i].first + int(j)) + c];
  for (int i = 0; i < to; ++i)
    for (int column = 0; column < to; ++column)
      for (size_t j = 0; j < taps[i].weights.size(); ++j)
        for (int c = 0; c < channels; ++c)
          result[at(to, i, column) + c] +=
              taps[i].weights[j] * rows[at(to, taps[i].first + int(j), column) + c];
  return result;
}

lab::Image resize_photo(const lab::Image& photo, int width, int height) {
  const size_t row = size_t(photo.width) * 3, new_row = size_t(width) * 3;
  lab::Image wide{width, photo.height, std::vector<unsigned char>(new_row * photo.height)};
  resize_lines(photo.rgb.data(), {3, row}, photo.width, wide.rgb.data(), {3, new_row}, width,
               photo.height);
  lab::Image result{width, height, std::vector<unsigned char>(new_row * height)};
  resize_lines(wide.rgb.data(), {new_row, 3}, photo.height, result.rgb.data(), {new_row, 3}, height,
               width);
  return result;
}

lab::Image crop_for_net(const lab::Image& photo, int size) {
  const int shorter = std::min(photo.width, photo.height);
  if (shorter < kLeastSide)
    throw lab::UsageError(
        lab::format("the photo has %d x %d pixels: its shorter side must have at "
                    "least %d",
                    photo.width, photo.height, kLeastSide));
  const int64_t to = int64_t(size) * 256 / 224;
  const auto scaled = [&](int side) { return python_round(double(to) * side / shorter); };
  const int width = scaled(photo.width), height = scaled(photo.height);
  const lab::Image resized = resize_photo(photo, width, height);
  const int left = python_round((width - size) / 2.0), top = python_round((height - size) / 2.0);
  lab::Image square{size, size, {}};
  for (int row = 0; row < size; ++row) {
    const auto from = resized.rgb.begin() + (int64_t(top + row) * width + left) * 3;
    square.rgb.insert(square.rgb.end(), from, from + size * 3);
  }
  return square;
}

std::vector<float> normalized(const lab::Image& photo) {
  const size_t pixels = size_t(photo.width) * photo.height;
  std::vector<float> planes(3 * pixels);
  for (size_t i = 0; i < planes.size(); ++i) {
    const size_t c = i / pixels;
    planes[i] = float((photo.rgb[i % pixels * 3 + c] / 255.0 - kMean[c]) / kDeviation[c]);
  }
  return planes;
}

}  // namespace vision_transformer
