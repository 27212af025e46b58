#include "reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace reference {
namespace {

// Adds weight * (the level's value at pixel x, y) to output. image: the level of this (image,
// head), pixels `stride` floats apart.
void add_sample(const float* image, int64_t stride, LevelShape level, int channels, double x,
                double y, double weight, double* output) {
  if (!std::isfinite(x) || !std::isfinite(y)) return;
  const double left = std::floor(x), top = std::floor(y);
  for (const double row : {top, top + 1})
    for (const double column : {left, left + 1}) {
      if (row < 0 || row >= level.height || column < 0 || column >= level.width) continue;
      const double share = weight * (1 - std::abs(y - row)) * (1 - std::abs(x - column));
      const float* pixel = image + (int64_t(row) * level.width + int64_t(column)) * stride;
      for (int c = 0; c < channels; ++c) output[c] += share * double(pixel[c]);
    }
}

}  // namespace

void deformable_attention_rows(const float* value, const float* locations, const float* weights,
                               const DeformableShape& shape, int64_t first_row, int64_t count,
                               double* out) {
  const int64_t stride = int64_t(shape.heads) * shape.channels;
  const int samples = shape.levels * shape.points;
#pragma omp parallel for
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = first_row + i;  // (image, query, head)
    const int64_t image = row / (int64_t(shape.queries) * shape.heads), head = row % shape.heads;
    const float* level_value = value + image * shape.pixels() * stride + head * shape.channels;
    double* output = out + i * shape.channels;
    std::fill(output, output + shape.channels, 0.0);
    int64_t sample = row * samples;
    for (int l = 0; l < shape.levels; ++l) {
      const LevelShape level = shape.level[l];
      for (int p = 0; p < shape.points; ++p, ++sample) {
        const double x = double(locations[2 * sample]) * level.width - 0.5;
        const double y = double(locations[2 * sample + 1]) * level.height - 0.5;
        add_sample(level_value, stride, level, shape.channels, x, y, double(weights[sample]),
                   output);
      }
      level_value += int64_t(level.height) * level.width * stride;
    }
  }
}

void deformable_attention(const float* value, const float* locations, const float* weights,
                          const DeformableShape& shape, double* out) {
  deformable_attention_rows(value, locations, weights, shape, 0, shape.rows(), out);
}

void deformable_weight_gradient(const float* value, const float* locations, const float* grad_out,
                                const DeformableShape& shape, double* grad_weights) {
  const int64_t stride = int64_t(shape.heads) * shape.channels;
  const int samples = shape.levels * shape.points;
#pragma omp parallel for
  for (int64_t row = 0; row < shape.rows(); ++row) {
    const int64_t image = row / (int64_t(shape.queries) * shape.heads), head = row % shape.heads;
    const float* level_value = value + image * shape.pixels() * stride + head * shape.channels;
    std::vector<double> taken(shape.channels);
    int64_t sample = row * samples;
    for (int l = 0; l < shape.levels; ++l) {
      const LevelShape level = shape.level[l];
      for (int p = 0; p < shape.points; ++p, ++sample) {
        const double x = double(locations[2 * sample]) * level.width - 0.5;
        const double y = double(locations[2 * sample + 1]) * level.height - 0.5;
        std::fill(taken.begin(), taken.end(), 0.0);
        add_sample(level_value, stride, level, shape.channels, x, y, 1.0, taken.data());
        grad_weights[sample] = 0;
        for (int c = 0; c < shape.channels; ++c)
          grad_weights[sample] += double(grad_out[row * shape.channels + c]) * taken[c];
      }
      level_value += int64_t(level.height) * level.width * stride;
    }
  }
}

}  // namespace reference
