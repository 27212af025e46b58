// Problems of deformable attention: random ones, and a photo's pyramid of oriented filters.
#include "problem.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/images.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "../../../common/lab/files.h"
#include "../../../common/lab/random.h"

namespace lab {

const char* distribution_name(Distribution distribution) {
  return distribution == Distribution::kLocal ? "local" : "uniform";
}

std::vector<std::pair<std::string, int64_t>> problem_sizes(const DeformableShape& shape) {
  return {{"batch", shape.batch},       {"queries", shape.queries}, {"heads", shape.heads},
          {"channels", shape.channels}, {"levels", shape.levels},   {"points", shape.points},
          {"pixels", shape.pixels()}};
}

DeformableShape course_deformable_shape(int batch, int queries) {
  return {batch, queries, 1, 32, 4, 8, {{92, 160}, {46, 80}, {23, 40}, {12, 20}}};
}

Cost deformable_cost(const DeformableShape& shape) {
  return {2.0 * double(shape.value_elements() + 3 * shape.samples() + shape.out_elements()),
          8.0 * double(shape.samples()) * shape.channels};
}

namespace {

constexpr double kLocalPixels = 2;  // standard deviation of a local sample's offset

// Weights of one row, [samples]: a softmax, so that they add up to 1.
void fill_weights(uint64_t seed, int64_t first_sample, int samples, half* weights) {
  std::vector<double> row(samples);
  double sum = 0;
  for (int i = 0; i < samples; ++i)
    sum += row[i] = std::exp(normal(seed, uint64_t(first_sample + i)));
  for (int i = 0; i < samples; ++i) weights[i] = __float2half(float(row[i] / sum));
}

}  // namespace

DeformableProblem random_deformable(const DeformableShape& shape, Distribution distribution,
                                    uint64_t seed) {
  DeformableProblem problem;
  problem.shape = shape;
  problem.source = format("random, seed %llu, locations %s", static_cast<unsigned long long>(seed),
                          distribution_name(distribution));
  const uint64_t value_seed = seed * 4, weight_seed = value_seed + 1,
                 location_seed = value_seed + 2;
  problem.value.resize(shape.value_elements());
#pragma omp parallel for
  for (int64_t i = 0; i < shape.value_elements(); ++i)
    problem.value[i] = __float2half(float(normal(value_seed, uint64_t(i))));

  // A raster of the picture's proportions with at least as many places as there are queries.
  const double aspect = double(shape.level[0].width) / shape.level[0].height;
  const int columns = std::max(1, int(std::ceil(std::sqrt(shape.queries * aspect))));
  const int lines = (shape.queries + columns - 1) / columns;
  const int samples = shape.levels * shape.points;
  problem.locations.resize(2 * shape.samples());
  problem.weights.resize(shape.samples());
#pragma omp parallel for
  for (int64_t row = 0; row < shape.rows(); ++row) {
    const int64_t query = row / shape.heads % shape.queries;
    const double place[2] = {(double(query % columns) + 0.5) / columns,
                             (double(query / columns) + 0.5) / lines};
    for (int i = 0; i < samples; ++i)
      for (int axis = 0; axis < 2; ++axis) {
        const LevelShape level = shape.level[i / shape.points];
        const uint64_t at = uint64_t(2 * (row * samples + i) + axis);
        const double location = distribution == Distribution::kUniform
                                    ? uniform(location_seed, at)
                                    : place[axis] + kLocalPixels * normal(location_seed, at) /
                                                        (axis ? level.height : level.width);
        problem.locations[at] = __float2half(float(location));
      }
    fill_weights(weight_seed, row * samples, samples, &problem.weights[row * samples]);
  }
  return problem;
}

// ---- The photo ----------------------------------------------------------------------------------

namespace {

constexpr int kDirections = 16, kReach = 3;  // filters of 7 x 7 pixels

// Level by level, each half as large: the mean of 2 x 2 pixels. [height * width] each, 0 to 1.
std::vector<std::vector<float>> grey_pyramid(const Image& photo, int levels) {
  std::vector<std::vector<float>> pyramid(levels);
  int size = photo.width;
  pyramid[0].resize(size_t(size) * size);
  for (size_t i = 0; i < pyramid[0].size(); ++i)
    pyramid[0][i] = (0.299f * photo.rgb[3 * i] + 0.587f * photo.rgb[3 * i + 1] +
                     0.114f * photo.rgb[3 * i + 2]) /
                    255;
  for (int l = 1; l < levels; ++l) {
    const std::vector<float>& fine = pyramid[l - 1];
    const int wide = size;
    size /= 2;
    for (int y = 0; y < size; ++y)
      for (int x = 0; x < size; ++x) {
        const float* at = &fine[size_t(2 * y) * wide + 2 * x];
        pyramid[l].push_back((at[0] + at[1] + at[wide] + at[wide + 1]) / 4);
      }
  }
  return pyramid;
}

// Filter 0 to 15: edges (a Gaussian's first derivative) across each direction; 16 to 31: lines (the
// second one). Mean zero, absolute values add up to 1.
std::array<float, 49> oriented_filter(int number) {
  const double angle = std::numbers::pi * (number % kDirections) / kDirections;
  std::array<double, 49> raw{};
  double mean = 0, size = 0;
  for (int i = 0; i < 49; ++i) {
    const double x = i % 7 - kReach, y = i / 7 - kReach;
    const double across = x * std::cos(angle) + y * std::sin(angle);
    const double along = y * std::cos(angle) - x * std::sin(angle);
    const double bell = std::exp(-across * across / 2 - along * along / 6);
    raw[i] = bell * (number < kDirections ? across : across * across - 1);
    mean += raw[i] / 49;
  }
  for (double& v : raw) size += std::abs(v -= mean);
  std::array<float, 49> filter;
  for (int i = 0; i < 49; ++i) filter[i] = float(raw[i] / size);
  return filter;
}

}  // namespace

DeformableProblem photo_deformable(const Image& photo, int size) {
  if (size < 16 || size % 8 != 0)
    throw UsageError(format("size %d: must be a multiple of 8 pixels, at least 16", size));
  DeformableProblem problem;
  problem.photo = square(photo, size);
  require_not_flat(problem.photo);
  DeformableShape& shape = problem.shape;
  shape = {1, size * size, 1, 2 * kDirections, 4, 8, {}};
  for (int l = 0; l < 4; ++l) shape.level[l] = {size >> l, size >> l};

  const std::vector<std::vector<float>> pyramid = grey_pyramid(problem.photo, 4);
  problem.value.resize(shape.value_elements());
  int64_t start = 0;
  for (int l = 0; l < 4; ++l) {
    const int side = size >> l;
#pragma omp parallel for
    for (int channel = 0; channel < shape.channels; ++channel) {
      const std::array<float, 49> filter = oriented_filter(channel);
      for (int i = 0; i < side * side; ++i) {
        float sum = 0;
        for (int f = 0; f < 49; ++f) {  // the picture's border goes on outside
          const int y = std::clamp(i / side + f / 7 - kReach, 0, side - 1);
          const int x = std::clamp(i % side + f % 7 - kReach, 0, side - 1);
          sum += filter[f] * pyramid[l][size_t(y) * side + x];
        }
        problem.value[(start + i) * shape.channels + channel] = __float2half(std::abs(sum));
      }
    }
    start += int64_t(side) * side;
  }

  constexpr double kRing = 1.5;  // pixels of each level
  problem.weights.assign(shape.samples(), __float2half(1.0f / 32));
  for (int query = 0; query < shape.queries; ++query)
    for (int l = 0; l < 4; ++l)
      for (int p = 0; p < 8; ++p) {
        const double angle = 2 * std::numbers::pi * p / 8, pixel = 1.0 / (size >> l);
        problem.locations.push_back(
            __float2half(float((query % size + 0.5) / size + kRing * pixel * std::cos(angle))));
        problem.locations.push_back(
            __float2half(float((query / size + 0.5) / size + kRing * pixel * std::sin(angle))));
      }
  return problem;
}

Image draw_directions(const Image& photo, int size, const std::vector<half>& out) {
  const int channels = 2 * kDirections, gap = 8, zoom = std::max(1, 448 / size);
  if (photo.width != size || photo.height != size || out.size() != size_t(size) * size * channels)
    throw std::invalid_argument("draw_directions: photo and output do not fit");
  // Directions are added as arrows at twice their angle: opposite ones are the same.
  struct Arrow {
    double x, y, total;
  };
  std::vector<Arrow> arrows;
  std::vector<double> totals;
  for (int i = 0; i < size * size; ++i) {
    Arrow arrow{};
    for (int c = 0; c < channels; ++c) {
      const double response = double(out[size_t(i) * channels + c]);
      const double angle = 2 * std::numbers::pi * (c % kDirections) / kDirections;
      arrow.x += response * std::cos(angle);
      arrow.y += response * std::sin(angle);
      arrow.total += response;
    }
    arrows.push_back(arrow);
    totals.push_back(arrow.total);
  }
  std::sort(totals.begin(), totals.end());
  const double bright = std::max(1e-9, totals[totals.size() * 99 / 100]);

  Image picture{2 * size * zoom + gap, size * zoom, {}};
  picture.rgb.assign(size_t(picture.width) * picture.height * 3, 255);
  for (int y = 0; y < size * zoom; ++y)
    for (int x = 0; x < size * zoom; ++x) {
      const int i = y / zoom * size + x / zoom;
      const Arrow& arrow = arrows[i];
      const double hue = std::atan2(arrow.y, arrow.x);
      const double saturation =
          std::min(1.0, 3 * std::hypot(arrow.x, arrow.y) / std::max(1e-9, arrow.total));
      const double value = std::sqrt(std::min(1.0, arrow.total / bright));
      unsigned char* left = &picture.rgb[(size_t(y) * picture.width + x) * 3];
      unsigned char* right = left + 3 * (size * zoom + gap);
      for (int c = 0; c < 3; ++c) {
        left[c] = photo.rgb[size_t(i) * 3 + c];
        const double share = 0.5 + 0.5 * std::cos(hue - c * 2 * std::numbers::pi / 3);
        right[c] = static_cast<unsigned char>(255 * value * (1 - saturation + saturation * share));
      }
    }
  return picture;
}

std::vector<DeformableArrays> upload(const DeformableProblem& problem, int copies, bool watched) {
  std::vector<DeformableArrays> arrays;
  const auto out_memory = watched ? MemoryKind::kManaged : MemoryKind::kDevice;
  for (int i = 0; i < copies; ++i) {
    const std::string copy = i ? " (copy " + std::to_string(i + 1) + ")" : "";
    arrays.push_back(
        {DeviceArray<half>(problem.value, "value" + copy),
         DeviceArray<half>(problem.locations, "locations" + copy),
         DeviceArray<half>(problem.weights, "weights" + copy),
         DeviceArray<half>(size_t(problem.shape.out_elements()), "out" + copy, out_memory)});
    arrays.back().out.fill_nan();
  }
  return arrays;
}

}  // namespace lab
