#include "reference.h"

#include <algorithm>
#include <cmath>

namespace reference {
namespace {

// A pixel that a sample lies beside.
struct Corner {
  int64_t pixel;            // its number in the level
  double share;             // its share of the sample
  double along_x, along_y;  // change of that share for a pixel's move of the sample
};

// Those inside of the level, up to four; returns how many.
int corners_of(double x, double y, LevelShape level, Corner (&corners)[4]) {
  if (!std::isfinite(x) || !std::isfinite(y)) return 0;
  const double left = std::floor(x), top = std::floor(y);
  int count = 0;
  for (const double row : {top, top + 1})
    for (const double column : {left, left + 1}) {
      if (row < 0 || row >= level.height || column < 0 || column >= level.width) continue;
      const double near_x = 1 - std::abs(x - column), near_y = 1 - std::abs(y - row);
      corners[count++] = {int64_t(row) * level.width + int64_t(column), near_x * near_y,
                          column == left ? -near_y : near_y, row == top ? -near_x : near_x};
    }
  return count;
}

// What all rows of one (image, head) add.
class Plane {
 public:
  Plane(const DeformableShape& shape, int64_t image, int64_t head)
      : shape_(shape),
        first_(image * shape.pixels() * shape.heads * shape.channels + head * shape.channels),
        stride_(int64_t(shape.heads) * shape.channels),
        sizes_(shape.pixels() * shape.channels),
        samples_(shape.pixels()) {}

  void add_row(const float* value, const float* locations, const float* weights,
               const float* grad_out, int64_t row, DeformableGradients& to) {
    const float* grad = grad_out + row * shape_.channels;
    int64_t sample = row * shape_.levels * shape_.points, start = 0;
    for (int l = 0; l < shape_.levels; ++l) {
      for (int p = 0; p < shape_.points; ++p, ++sample)
        add_sample(value, locations, double(weights[sample]), grad, l, start, sample, to);
      start += int64_t(shape_.level[l].height) * shape_.level[l].width;
    }
  }
  // The largest sums of this plane.
  void close(DeformableGradients& to) const {
    to.value_size = std::max(to.value_size, *std::max_element(sizes_.begin(), sizes_.end()));
    to.most_samples =
        std::max(to.most_samples, *std::max_element(samples_.begin(), samples_.end()));
    to.locations_size = std::max(to.locations_size, locations_size_);
    to.weights_size = std::max(to.weights_size, weights_size_);
  }

 private:
  void add_sample(const float* value, const float* locations, double weight, const float* grad,
                  int l, int64_t start, int64_t sample, DeformableGradients& to) {
    const LevelShape level = shape_.level[l];
    Corner corners[4];
    const int count =
        corners_of(double(locations[2 * sample]) * level.width - 0.5,
                   double(locations[2 * sample + 1]) * level.height - 0.5, level, corners);
    double grad_x = 0, grad_y = 0, grad_weight = 0, size_of_dots = 0;
    for (int i = 0; i < count; ++i) {
      const int64_t pixel = start + corners[i].pixel, at = first_ + pixel * stride_;
      double dot = 0;
      ++samples_[pixel];
      for (int c = 0; c < shape_.channels; ++c) {
        const double product = double(grad[c]) * double(value[at + c]);
        const double term = weight * corners[i].share * double(grad[c]);
        dot += product;
        size_of_dots += std::abs(product);
        to.value[at + c] += term;
        sizes_[pixel * shape_.channels + c] += std::abs(term);
      }
      grad_weight += corners[i].share * dot;
      grad_x += corners[i].along_x * dot;
      grad_y += corners[i].along_y * dot;
    }
    to.weights[sample] = grad_weight;
    to.locations[2 * sample] = weight * level.width * grad_x;
    to.locations[2 * sample + 1] = weight * level.height * grad_y;
    weights_size_ = std::max(weights_size_, size_of_dots);
    locations_size_ = std::max(
        locations_size_, std::abs(weight) * size_of_dots * std::max(level.width, level.height));
  }

  const DeformableShape& shape_;
  int64_t first_, stride_;     // where value's pixel 0 is, and how far the next one
  std::vector<double> sizes_;  // [pixels, channels]
  std::vector<int> samples_;   // [pixels]
  double locations_size_ = 0, weights_size_ = 0;
};

}  // namespace

DeformableGradients deformable_gradients(const float* value, const float* locations,
                                         const float* weights, const float* grad_out,
                                         const DeformableShape& shape) {
  DeformableGradients result;
  result.value.assign(size_t(shape.value_elements()), 0.0);
  result.locations.assign(size_t(2 * shape.samples()), 0.0);
  result.weights.assign(size_t(shape.samples()), 0.0);
#pragma omp parallel for
  for (int64_t p = 0; p < int64_t(shape.batch) * shape.heads; ++p) {
    const int64_t image = p / shape.heads, head = p % shape.heads;
    Plane plane(shape, image, head);
    for (int64_t query = 0; query < shape.queries; ++query)
      plane.add_row(value, locations, weights, grad_out,
                    (image * shape.queries + query) * shape.heads + head, result);
#pragma omp critical
    plane.close(result);
  }
  return result;
}

}  // namespace reference
