// Problems of convolution + instance norm: random ones, and a photo under a bank of filters.
#include "problem.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/images.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "../../../common/lab/files.h"
#include "../../../common/lab/random.h"
#include "reference.h"

namespace lab {

ConvNormProblem random_conv_norm(const ConvNormShape& shape, uint64_t seed, bool with_residual) {
  ConvNormProblem p;
  p.shape = shape;
  p.source = format("random, seed %llu", static_cast<unsigned long long>(seed));
  uint64_t stream = seed * 6;
  p.x = normals(shape.x_elements(), ++stream);
  p.weight = normals(shape.weight_elements(), ++stream,
                     1 / std::sqrt(double(shape.in_channels) * shape.kernel * shape.kernel));
  p.bias = normals(shape.out_channels, ++stream);
  p.gamma = normals(shape.out_channels, ++stream, 0.25, 1);
  p.beta = normals(shape.out_channels, ++stream, 0.5);
  if (with_residual) p.residual = normals(shape.y_elements(), ++stream);
  return p;
}

ConvNormShape preset_conv_norm(const std::string& name) {
  const auto shape = [](int channels, int size, int kernel) {
    ConvNormShape s;
    s.in_channels = s.out_channels = channels;
    s.height = s.width = size;
    s.kernel = kernel;
    return same_padded(s);
  };
  if (name == "small") return shape(64, 64, 3);
  if (name == "deep") return shape(128, 128, 3);
  if (name == "wide") return shape(64, 256, 3);
  if (name == "point") return shape(256, 64, 1);
  throw UsageError("--preset '" + name + "': must be small, deep, wide or point");
}

// ---- The photo ----------------------------------------------------------------------------------

namespace {

constexpr int kDirections = 16, kTaps = 9;

// Filter 0 to 15: edges (a Gaussian's first derivative), in directions all around, since ReLU keeps
// one side; 16 to 31: lines (the second one). Mean zero, absolute values add up to 1.
std::array<double, kTaps * kTaps> photo_filter(int number) {
  const bool line = number >= kDirections;
  const double angle = (line ? 1 : 2) * std::numbers::pi * (number % kDirections) / kDirections;
  std::array<double, kTaps * kTaps> filter{};
  double mean = 0, size = 0;
  for (int i = 0; i < kTaps * kTaps; ++i) {
    const double x = i % kTaps - kTaps / 2, y = i / kTaps - kTaps / 2;
    const double across = x * std::cos(angle) + y * std::sin(angle);
    const double along = y * std::cos(angle) - x * std::sin(angle);
    const double bell = std::exp(-across * across / 3 - along * along / 8);
    filter[i] = bell * (line ? 1 - across * across / 1.5 : across);
    mean += filter[i] / (kTaps * kTaps);
  }
  for (double& v : filter) size += std::abs(v -= mean);
  for (double& v : filter) v /= size;
  return filter;
}

}  // namespace

ConvNormProblem photo_conv_norm(const Image& photo, int size) {
  if (size < kTaps) throw UsageError(format("size %d: must be at least %d pixels", size, kTaps));
  ConvNormProblem p;
  p.photo = square(photo, size);
  ConvNormShape& shape = p.shape;
  shape.in_channels = 3;
  shape.out_channels = 2 * kDirections;
  shape.height = shape.width = size;
  shape.kernel = kTaps;
  shape.padding = Padding::kReflect;
  shape = same_padded(shape);

  const int pixels = size * size;
  p.x.resize(3 * pixels);
  for (int i = 0; i < pixels; ++i)
    for (int c = 0; c < 3; ++c) p.x[c * pixels + i] = float(p.photo.rgb[3 * i + c]) / 255;
  require_not_flat(p.photo);
  const double brightness[] = {0.299, 0.587, 0.114};
  for (int filter = 0; filter < shape.out_channels; ++filter) {
    const auto taps = photo_filter(filter);
    for (const double share : brightness)
      for (const double tap : taps) p.weight.push_back(float(share * tap));
  }
  p.gamma.assign(shape.out_channels, 1);
  p.beta.assign(shape.out_channels, 0);
  return p;
}

Image draw_responses(const Image& photo, const ConvNormShape& shape, const std::vector<float>& y) {
  const int size = photo.width, half = size / 2, gap = 4, zoom = std::max(1, 448 / size);
  if (photo.height != size || shape.out_height() != size || shape.out_width() != size ||
      shape.out_channels < kDirections || int64_t(y.size()) != shape.y_elements())
    throw std::invalid_argument("draw_responses: photo and y do not fit");
  // Four by two panels of half the photo's side, 2 x 2 pixels each point of them.
  const int side = half * zoom, height = 2 * side + gap;
  Image picture{size * zoom + 4 * (side + gap), height, {}};
  picture.rgb.assign(size_t(picture.width) * picture.height * 3, 255);
  const auto pixel = [&](int row, int column) {
    return &picture.rgb[(size_t(row) * picture.width + column) * 3];
  };
  for (int row = 0; row < height; ++row)
    for (int column = 0; column < size * zoom; ++column)
      std::copy_n(&photo.rgb[(size_t(std::min(row / zoom, size - 1)) * size + column / zoom) * 3],
                  3, pixel(row, column));
  for (int panel = 0; panel < 8; ++panel) {
    const float* plane = &y[size_t(panel) * kDirections / 8 * size * size];
    const int top = panel / 4 * (side + gap), left = size * zoom + gap + panel % 4 * (side + gap);
    for (int row = 0; row < side; ++row)
      for (int column = 0; column < side; ++column) {
        const float* at = plane + size_t(row / zoom) * 2 * size + column / zoom * 2;
        const float mean = (at[0] + at[1] + at[size] + at[size + 1]) / 4;
        // Three deviations are white.
        const double bright = std::sqrt(std::clamp(double(mean) / 3, 0.0, 1.0));
        std::fill_n(pixel(top + row, left + column), 3, static_cast<unsigned char>(255 * bright));
      }
  }
  return picture;
}

// ---- What is expected ---------------------------------------------------------------------------

Tolerance conv_norm_tolerance(const ConvNormProblem& problem, const std::vector<double>& conv) {
  const ConvNormShape& shape = problem.shape;
  const int64_t plane = shape.plane(), pixels = int64_t(shape.height) * shape.width;
  const int taps = shape.kernel * shape.kernel, length = shape.in_channels * taps;
  const auto mean_square = [](const float* values, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += double(values[i]) * double(values[i]);
    return sum / double(count);
  };
  std::vector<double> x_square(size_t(shape.batch) * shape.in_channels);
  for (size_t c = 0; c < x_square.size(); ++c)
    x_square[c] = mean_square(&problem.x[c * pixels], pixels);
  double worst = 0, errors = 0, values = 0;  // the sums: squares over all planes
#pragma omp parallel for reduction(max : worst) reduction(+ : errors, values)
  for (int64_t p = 0; p < shape.planes(); ++p) {
    double mean = 0, variance = 0, products = 0;
    for (int64_t i = 0; i < plane; ++i) mean += conv[p * plane + i] / double(plane);
    for (int64_t i = 0; i < plane; ++i)
      variance += (conv[p * plane + i] - mean) * (conv[p * plane + i] - mean) / double(plane);
    const int64_t image = p / shape.out_channels, filter = p % shape.out_channels;
    for (int c = 0; c < shape.in_channels; ++c)
      products += x_square[image * shape.in_channels + c] * taps *
                  mean_square(&problem.weight[filter * length + int64_t(c) * taps], taps);
    const double with_eps = variance + double(shape.eps);
    // Below 2^-126 fp32 has steps of 2^-149, whatever the value.
    const double error = std::max(1e-6 * std::abs(mean), 0x1p-24 * std::sqrt(length * products)) +
                         0x1p-149 * (length + std::sqrt(with_eps));
    worst = std::max(worst, error / std::sqrt(with_eps));
    errors += error * error / with_eps;
    values += variance / with_eps;
  }
  double gamma = 0;
  for (const float g : problem.gamma) gamma = std::max(gamma, std::abs(double(g)));
  const double share = std::max(1e-5, worst);
  return {.atol = 16 * share * gamma,
          .rtol = share,
          .relative_l2 = values > 0 ? std::max(share, std::sqrt(errors / values)) : share};
}

Tolerance rounded_products_tolerance(const ConvNormProblem& problem,
                                     const ConvNormExpected& expected) {
  const ConvNormShape& shape = problem.shape;
  const int64_t plane = shape.plane();
  // In proportion to the largest, so that no square overflows.
  const auto squares = [](std::vector<float> values) {
    float largest = 0;
    for (const float v : values) largest = std::max(largest, std::abs(v));
    for (float& v : values) v = largest > 0 ? v / largest * (v / largest) : 0;
    return std::pair(std::move(values), double(largest));
  };
  const auto [x, x_size] = squares(problem.x);
  const auto [weight, weight_size] = squares(problem.weight);
  std::vector<double> products(expected.conv.size());
  reference::convolution(x.data(), weight.data(), nullptr, shape, products.data());
  double worst = 0, errors = 0, values = 0;  // the sums: squares over all planes
#pragma omp parallel for reduction(max : worst) reduction(+ : errors, values)
  for (int64_t p = 0; p < shape.planes(); ++p) {
    double mean = 0, variance = 0, sum = 0;
    for (int64_t i = 0; i < plane; ++i) mean += expected.conv[p * plane + i] / double(plane);
    for (int64_t i = 0; i < plane; ++i) {
      const double distance = expected.conv[p * plane + i] - mean;
      variance += distance * distance / double(plane);
      sum += products[p * plane + i] / double(plane);
    }
    const double with_eps = variance + double(shape.eps);
    const double size = std::sqrt(sum) * x_size * weight_size / std::sqrt(with_eps);
    worst = std::max(worst, size);
    errors += size * size;
    values += variance / with_eps;
  }
  const double rounding = std::numbers::sqrt2 * 0x1p-11, each = rounding * worst;
  Tolerance tolerance = expected.tolerance;
  const double gamma = tolerance.atol / tolerance.rtol;  // 16 times the largest
  // (Planes of which eps is the larger part are small, and so are their errors.)
  tolerance.relative_l2 +=
      values > 0 ? std::max(each, rounding * std::sqrt(errors / values)) : each;
  tolerance.rtol += each;
  tolerance.atol = gamma * tolerance.rtol;
  return tolerance;
}

Cost conv_norm_cost(const ConvNormShape& shape, bool with_residual, const std::string& precision,
                    int element_bytes) {
  const int64_t elements =
      shape.x_elements() + shape.weight_elements() + (with_residual ? 2 : 1) * shape.y_elements();
  return {
      .bytes = double(element_bytes) * double(elements),
      .flops = 2.0 * double(shape.y_elements()) * shape.in_channels * shape.kernel * shape.kernel,
      .tensor_cores = precision != "fp32",
      .tensor_rate = precision == "tf32" ? 0.5 : 1};
}

ConvNormProblem rounded_to_fp16(ConvNormProblem problem) {
  for (const auto& [name, values] :
       {std::pair("x", &problem.x), {"weight", &problem.weight}, {"residual", &problem.residual}})
    for (size_t i = 0; i < values->size(); ++i) {
      float& value = (*values)[i];
      if (!(std::abs(value) <= 65504))
        throw UsageError(format("--storage fp16: element %zu of %s is %g, fp16 ends at 65504", i,
                                name, double(value)));
      value = __half2float(__float2half_rn(value));
    }
  return problem;
}

Tolerance fp16_storage_tolerance(const Tolerance& of_fp32) {
  return {.atol = of_fp32.atol + 0x1p-25,
          .rtol = of_fp32.rtol + 0x1p-11,
          .relative_l2 = of_fp32.relative_l2 + 0x1p-11};
}

ConvNormExpected expected_conv_norm(const ConvNormProblem& problem) {
  const ConvNormShape& shape = problem.shape;
  const auto or_null = [](const std::vector<float>& v) { return v.empty() ? nullptr : v.data(); };
  ConvNormExpected expected;
  expected.conv.resize(shape.y_elements());
  reference::convolution(problem.x.data(), problem.weight.data(), or_null(problem.bias), shape,
                         expected.conv.data());
  expected.y.resize(expected.conv.size());
  reference::instance_norm(expected.conv.data(), problem.gamma.data(), problem.beta.data(),
                           shape.batch, shape.out_channels, shape.plane(), double(shape.eps),
                           expected.y.data());
  for (size_t i = 0; i < expected.y.size(); ++i) {
    double& y = expected.y[i];
    if (!problem.residual.empty()) y += double(problem.residual[i]);
    if (shape.relu && y < 0) y = 0;
  }
  expected.tolerance = conv_norm_tolerance(problem, expected.conv);
  return expected;
}

void require_fp32_range(const ConvNormProblem& problem, const ConvNormExpected& expected) {
  const ConvNormShape& shape = problem.shape;
  const double largest = std::numeric_limits<float>::max();
  const auto sizes = [](const std::vector<float>& values) {
    std::vector<float> sizes(values.size());
    std::transform(values.begin(), values.end(), sizes.begin(),
                   [](float v) { return std::abs(v); });
    return sizes;
  };
  const auto most = [](const std::vector<float>& sizes) {
    return sizes.empty() ? 0.0 : double(*std::max_element(sizes.begin(), sizes.end()));
  };
  // All products of a sum with the same sign: no part of it, in whatever order, is larger.
  const std::vector<float> x = sizes(problem.x), weight = sizes(problem.weight),
                           bias = sizes(problem.bias);
  const double taps = double(shape.in_channels) * shape.kernel * shape.kernel;
  if (taps * most(x) * most(weight) + most(bias) > largest) {
    std::vector<double> sums(expected.conv.size());
    reference::convolution(x.data(), weight.data(), bias.empty() ? nullptr : bias.data(), shape,
                           sums.data());
    const double sum = *std::max_element(sums.begin(), sums.end());
    if (sum > largest)
      throw UsageError(
          format("%s: overflows fp32: products of the convolution add up to %g, fp32 "
                 "ends at %.3g: smaller x or weight",
                 problem.source.c_str(), sum, largest));
  }
  const int64_t plane = shape.plane();
  for (int64_t p = 0; p < shape.planes(); ++p) {
    const double* conv = &expected.conv[p * plane];
    const int channel = int(p % shape.out_channels);
    double mean = 0, farthest = 0, variance = 0;
    for (int64_t i = 0; i < plane; ++i) mean += conv[i] / double(plane);
    for (int64_t i = 0; i < plane; ++i) {
      const double distance = std::abs(conv[i] - mean);
      farthest = std::max(farthest, distance);
      variance += distance * distance / double(plane);
    }
    const double factor =
        std::abs(double(problem.gamma[channel])) / std::sqrt(variance + double(shape.eps));
    for (const auto& [value, what] : {std::pair(farthest, "a value's distance from the mean is"),
                                      {factor, "gamma over the standard deviation is"}})
      if (value > largest)
        throw UsageError(format("%s: overflows fp32: in channel %d %s %g, fp32 ends at %.3g",
                                problem.source.c_str(), channel, what, value, largest));
  }
  for (const double y : expected.y)
    if (std::abs(y) > largest)
      throw UsageError(
          format("%s: overflows fp32: y reaches %g, fp32 ends at %.3g: smaller gamma, "
                 "beta or residual",
                 problem.source.c_str(), y, largest));
}

// ---- On the device ------------------------------------------------------------------------------

void ConvNormArrays::run(ConvNormFunction step, const ConvNormShape& shape, cudaStream_t stream) {
  step(x.data(), weight.data(), has_bias ? bias.data() : nullptr, gamma.data(), beta.data(),
       has_residual ? residual.data() : nullptr, y.data(), shape, stream);
}

void ConvNormArrays::run(const HalfConvNorm& step, const ConvNormShape& shape,
                         cudaStream_t stream) {
  HalfArrays& a = in_fp16.value();
  step.run(a.x.data(), a.packed.data(), gamma.data(), beta.data(),
           has_residual ? a.residual.data() : nullptr, a.y.data(), shape, stream);
}

void ConvNormArrays::pack(const HalfConvNorm& step, const ConvNormShape& shape) {
  HalfArrays& a = in_fp16.value();
  step.pack(a.weight.data(), a.packed.data(), shape, nullptr);
}

std::vector<half> to_half(const std::vector<float>& values) {
  std::vector<half> result;
  for (const float value : values) result.push_back(__float2half_rn(value));
  return result;
}

std::vector<ConvNormArrays> upload(const ConvNormProblem& problem, int copies,
                                   const HalfConvNorm& half_step) {
  const std::vector<float> none(1);
  const auto there = [&](const std::vector<float>& v) -> const std::vector<float>& {
    return v.empty() ? none : v;
  };
  std::vector<ConvNormArrays> arrays;
  for (int i = 0; i < copies; ++i) {
    const std::string copy = i ? " (copy " + std::to_string(i + 1) + ")" : "";
    const size_t count = size_t(problem.shape.y_elements());
    arrays.push_back({DeviceArray<float>(problem.x, "x" + copy),
                      DeviceArray<float>(problem.weight, "weight" + copy),
                      DeviceArray<float>(there(problem.bias), "bias" + copy),
                      DeviceArray<float>(problem.gamma, "gamma" + copy),
                      DeviceArray<float>(problem.beta, "beta" + copy),
                      DeviceArray<float>(there(problem.residual), "residual" + copy),
                      DeviceArray<float>(count, "conv" + copy),
                      DeviceArray<float>(count, "y" + copy), !problem.bias.empty(),
                      !problem.residual.empty()});
    arrays.back().conv.fill_nan();
    arrays.back().y.fill_nan();
    if (!half_step.run) continue;
    arrays.back().in_fp16.emplace(HalfArrays{
        DeviceArray<half>(to_half(problem.x), "x16" + copy),
        DeviceArray<half>(to_half(problem.weight), "weight16" + copy),
        DeviceArray<half>(size_t(half_step.packed_elements(problem.shape)), "packed" + copy),
        DeviceArray<half>(to_half(there(problem.residual)), "residual16" + copy),
        DeviceArray<half>(count, "y16" + copy)});
    arrays.back().in_fp16->y.fill_nan();
  }
  return arrays;
}

// ---- Steps --------------------------------------------------------------------------------------

void ConvNormStep::run(ConvNormArrays& arrays, const ConvNormShape& shape,
                       cudaStream_t stream) const {
  std::visit([&](const auto& run) { arrays.run(run, shape, stream); }, function);
}

void ConvNormStep::fill_result_with_nan(ConvNormArrays& arrays) const {
  half_storage() ? arrays.in_fp16->y.fill_nan() : arrays.y.fill_nan();
}

std::vector<float> ConvNormStep::result(const ConvNormArrays& arrays) const {
  return half_storage() ? to_float(arrays.in_fp16->y.download()) : arrays.y.download();
}

Comparison compare_output(const ConvNormStep& step, const std::vector<float>& y,
                          const ConvNormExpected& expected, const ConvNormShape& shape) {
  if (expected.y.empty()) return Comparison::none();
  return compare(y, expected.y,
                 step.half_storage()        ? fp16_storage_tolerance(expected.tolerance)
                 : step.precision == "fp32" ? expected.tolerance
                                            : expected.rounded_products,
                 {shape.batch, shape.out_channels, shape.out_height(), shape.out_width()});
}

void upload_convolution(const ConvNormExpected& expected, ConvNormArrays& arrays) {
  if (!expected.conv.empty())
    arrays.conv.upload(std::vector<float>(expected.conv.begin(), expected.conv.end()));
}

std::vector<double> expected_norm(const ConvNormProblem& problem,
                                  const ConvNormExpected& expected) {
  const ConvNormShape& shape = problem.shape;
  std::vector<double> values;  // as instance norm reads them
  for (const double v : expected.conv) values.push_back(double(float(v)));
  if (!values.empty())
    reference::instance_norm(values.data(), problem.gamma.data(), problem.beta.data(), shape.batch,
                             shape.out_channels, shape.plane(), double(shape.eps), values.data());
  return values;
}

Comparison compare_norm(const std::vector<float>& y, const std::vector<double>& normalized,
                        const Tolerance& tolerance, const NormShape& shape) {
  if (normalized.empty()) return Comparison::none();
  return compare(y, normalized, tolerance, {shape.batch, shape.channels, shape.plane});
}

Cost norm_cost(const ConvNormShape& shape) {
  return {8.0 * double(shape.y_elements()), 8.0 * double(shape.y_elements())};
}

}  // namespace lab
