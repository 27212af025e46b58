#include "reference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "../../../common/lab/random.h"

namespace training {
namespace {

constexpr int kBatch = 20;
constexpr double kRate = 0.002, kMomentum = 0.9;

// values[class] of one image, in several partial sums that the compiler can keep in one register.
void compute_values(const float* weights, const float* image, int pixels, int classes,
                    double* values) {
  for (int c = 0; c < classes; ++c) {
    const float* row = weights + int64_t(c) * (pixels + 1);
    float sums[16] = {};
    int i = 0;
    for (; i + 16 <= pixels; i += 16)
      for (int j = 0; j < 16; ++j) sums[j] += row[i + j] * image[i + j];
    double sum = row[pixels];
    for (; i < pixels; ++i) sum += double(row[i]) * image[i];
    for (const float one : sums) sum += one;
    values[c] = sum;
  }
}

}  // namespace

std::vector<float> train_linear(const std::vector<float>& images, const std::vector<int>& labels,
                                int classes, int passes, double decay) {
  const int count = int(labels.size()), pixels = int(images.size() / labels.size());
  const size_t size = size_t(classes) * size_t(pixels + 1);
  std::vector<float> weights(size), gradient(size), speed(size);
  std::vector<double> values(classes);
  const int64_t steps = (int64_t(count) + kBatch - 1) / kBatch * passes;
  for (int64_t step = 0; step < steps; ++step) {
    std::fill(gradient.begin(), gradient.end(), 0.0f);
    for (int b = 0; b < kBatch; ++b) {
      const int64_t number =
          int64_t(lab::random_bits(1, uint64_t(step) * kBatch + uint64_t(b)) % uint64_t(count));
      const float* image = images.data() + number * pixels;
      compute_values(weights.data(), image, pixels, classes, values.data());
      const double most = *std::max_element(values.begin(), values.end());
      double sum = 0;
      for (double& value : values) sum += value = std::exp(value - most);
      for (int c = 0; c < classes; ++c) {
        const float error = float((values[c] / sum - (c == labels[number] ? 1 : 0)) / kBatch);
        float* row = gradient.data() + int64_t(c) * (pixels + 1);
        for (int i = 0; i < pixels; ++i) row[i] += error * image[i];
        row[pixels] += error;
      }
    }
    const float rate =
        float(kRate * 0.5 * (1 + std::cos(std::numbers::pi * double(step) / double(steps))));
    for (int c = 0; c < classes; ++c)
      for (int i = 0; i <= pixels; ++i) {
        const size_t at = size_t(c) * size_t(pixels + 1) + size_t(i);
        const float slope = gradient[at] + (i < pixels ? float(decay) * weights[at] : 0.0f);
        speed[at] = float(kMomentum) * speed[at] + slope;
        weights[at] -= rate * speed[at];
      }
  }
  return weights;
}

std::vector<int> linear_answers(const std::vector<float>& weights, const std::vector<float>& images,
                                int count, int classes) {
  const int pixels = int(int64_t(images.size()) / count);
  std::vector<double> values(classes);
  std::vector<int> result;
  for (int i = 0; i < count; ++i) {
    compute_values(weights.data(), images.data() + int64_t(i) * pixels, pixels, classes,
                   values.data());
    result.push_back(int(std::max_element(values.begin(), values.end()) - values.begin()));
  }
  return result;
}

}  // namespace training
