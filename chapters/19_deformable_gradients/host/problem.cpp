// Problems of the gradients of deformable attention, and the picture of one.
#include "problem.h"

#include <algorithm>
#include <cmath>

#include "../../../common/attention/inputs.h"
#include "../../../common/lab/random.h"
#include "../../07_persistent_deformable_attention/host/reference.h"

namespace lab::deformable {

GradientProblem random_gradients(const DeformableShape& shape, Distribution distribution,
                                 uint64_t seed) {
  GradientProblem problem{random_deformable(shape, distribution, seed), {}};
  const uint64_t grad_seed = seed * 4 + 3;  // beside those of random_deformable()
  problem.grad_out.resize(size_t(shape.out_elements()));
#pragma omp parallel for
  for (int64_t i = 0; i < shape.out_elements(); ++i)
    problem.grad_out[i] = __float2half(float(normal(grad_seed, uint64_t(i))));
  return problem;
}

GradientProblem photo_gradients(const Image& photo, int size) {
  GradientProblem problem{photo_deformable(photo, size), {}};
  const DeformableProblem& p = problem.forward;
  std::vector<double> out(size_t(p.shape.out_elements()));
  reference::deformable_attention(to_float(p.value).data(), to_float(p.locations).data(),
                                  to_float(p.weights).data(), p.shape, out.data());
  const auto in_middle = [&](int at) { return at >= size / 3 && at < size - size / 3; };
  for (size_t i = 0; i < out.size(); ++i) {
    const int query = int(i / size_t(p.shape.channels));
    const bool counts = in_middle(query % size) && in_middle(query / size);
    problem.grad_out.push_back(__float2half(counts ? float(out[i]) : 0.0f));
  }
  return problem;
}

ExpectedGradients expected_gradients(const GradientProblem& problem) {
  const DeformableProblem& p = problem.forward;
  ExpectedGradients expected;
  expected.gradients = reference::deformable_gradients(
      to_float(p.value).data(), to_float(p.locations).data(), to_float(p.weights).data(),
      to_float(problem.grad_out).data(), p.shape);
  const reference::DeformableGradients& g = expected.gradients;
  // Beside the additions, a share is a difference, a product and two more.
  expected.for_value = Tolerance::fp32_sum(g.most_samples + 5, g.value_size);
  expected.for_locations = Tolerance::fp32_sum(4 * p.shape.channels + 5, g.locations_size);
  expected.for_weights = Tolerance::fp32_sum(4 * p.shape.channels + 5, g.weights_size);
  return expected;
}

double gradient_bytes(const DeformableShape& shape) {
  return 6.0 * double(shape.value_elements() + 3 * shape.samples()) +
         2.0 * double(shape.out_elements());
}

Cost gradient_cost(const DeformableShape& shape) {
  return {gradient_bytes(shape), 16.0 * double(shape.samples()) * shape.channels};
}

std::vector<GradientArrays> upload(const GradientProblem& problem, int copies) {
  const DeformableProblem& p = problem.forward;
  std::vector<GradientArrays> arrays;
  for (int i = 0; i < copies; ++i) {
    const std::string copy = i ? " (copy " + std::to_string(i + 1) + ")" : "";
    arrays.push_back({DeviceArray<half>(p.value, "value" + copy),
                      DeviceArray<half>(p.locations, "locations" + copy),
                      DeviceArray<half>(p.weights, "weights" + copy),
                      DeviceArray<half>(problem.grad_out, "grad_out" + copy),
                      DeviceArray<float>(p.value.size(), "grad_value" + copy),
                      DeviceArray<float>(p.locations.size(), "grad_locations" + copy),
                      DeviceArray<float>(p.weights.size(), "grad_weights" + copy)});
    arrays.back().clear();
  }
  return arrays;
}

const Comparison& GradientComparisons::worst() const {
  return !value.pass ? value : !locations.pass ? locations : !weights.pass ? weights : value;
}

GradientComparisons compare_gradients(const std::vector<float>& value,
                                      const std::vector<float>& locations,
                                      const std::vector<float>& weights,
                                      const ExpectedGradients& expected,
                                      const DeformableShape& shape) {
  const reference::DeformableGradients& g = expected.gradients;
  return {compare(value, g.value, expected.for_value,
                  {shape.batch, shape.pixels(), shape.heads, shape.channels}),
          compare(locations, g.locations, expected.for_locations,
                  {shape.batch, shape.queries, shape.heads, shape.levels, shape.points, 2}),
          compare(weights, g.weights, expected.for_weights,
                  {shape.batch, shape.queries, shape.heads, shape.levels, shape.points})};
}

Image draw_gradient(const Image& photo, int size, const std::vector<float>& grad_value) {
  constexpr int kLevels = 4, kChannels = 32;
  std::vector<double> heat(1 + size_t(size) * size);  // draw_heat_map() has a class token in front
  int64_t start = 0;
  for (int l = 0; l < kLevels; ++l) {
    const int side = size >> l;
    for (int y = 0; y < size; ++y)
      for (int x = 0; x < size; ++x) {
        const int64_t pixel = start + int64_t(y >> l) * side + (x >> l);
        double squares = 0;
        for (int c = 0; c < kChannels; ++c) {
          const double grad = double(grad_value[size_t(pixel * kChannels + c)]);
          squares += grad * grad;
        }
        // A pixel of level l stands for 4^l of the photo's.
        heat[1 + size_t(y) * size + x] += std::sqrt(squares) / double(1 << 2 * l);
      }
    start += int64_t(side) * side;
  }
  return draw_heat_map(photo, size, 0, heat);
}

}  // namespace lab::deformable
