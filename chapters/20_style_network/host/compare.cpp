#include "compare.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "../../../common/lab/files.h"
#include "../../08_fused_conv_norm/host/problem.h"

namespace lab {
namespace {

constexpr double kReferenceFlops = 2e9;  // a layer with more is compared in some of its channels

// y [out_channels, out_height, out_width] of one layer; `residual` may be empty.
Comparison compare_layer(const StyleLayer& layer, const ConvNormShape& shape,
                         const std::vector<float>& x, const std::vector<float>& residual,
                         const std::vector<float>& y) {
  const int every = std::max(1, int(std::ceil(flops_of(shape) / kReferenceFlops)));
  ConvNormProblem part;
  part.shape = shape;
  part.shape.out_channels = (shape.out_channels + every - 1) / every;
  part.x = x;
  std::vector<float> got;
  const int64_t filter = int64_t(layer.weight.size()) / layer.out_channels, plane = shape.plane();
  for (int c = 0; c < shape.out_channels; c += every) {
    const auto append = [c](std::vector<float>& to, const std::vector<float>& from, int64_t count) {
      to.insert(to.end(), from.begin() + c * count, from.begin() + (c + 1) * count);
    };
    append(part.weight, layer.weight, filter);
    append(part.gamma, layer.gamma, 1);
    append(part.beta, layer.beta, 1);
    append(got, y, plane);
    if (!residual.empty()) append(part.residual, residual, plane);
  }
  const ConvNormExpected expected = expected_conv_norm(part);
  part.source = "--style: layer " + layer.name;
  require_fp32_range(part, expected);
  return compare(got, expected.y, expected.tolerance,
                 {part.shape.out_channels, shape.out_height(), shape.out_width()});
}

}  // namespace

void require_planes(const std::vector<float>& planes, const Image& photo) {
  const size_t plane = photo.rgb.size() / 3;
  for (size_t i = 0; i < planes.size(); ++i) {
    const double level = photo.rgb[i % plane * 3 + i / plane];
    if (std::abs(planes[i] - level / 255) > 1e-6)
      throw std::runtime_error(
          format("to_planes: element %zu is %g, level %g was meant", i, double(planes[i]), level));
  }
}

std::vector<Comparison> compare_stage(const std::vector<StyleLayer>& network,
                                      const StyleStage& stage, const std::vector<float>& x,
                                      const std::vector<float>& between,
                                      const std::vector<float>& y) {
  if (!stage.residual) return {compare_layer(network[stage.first], stage.shape, x, {}, y)};
  ConvNormShape last = stage.shape;
  last.relu = false;
  return {compare_layer(network[stage.first], stage.shape, x, {}, between),
          compare_layer(network[stage.last()], last, between, x, y)};
}

Comparison compare_pixels(const std::vector<float>& planes, const ConvNormShape& shape,
                          const Image& picture) {
  const int height = shape.out_height(), width = shape.out_width();
  std::vector<double> expected, got(picture.rgb.begin(), picture.rgb.end());
  for (int row = height - picture.height; row < height; ++row)
    for (int column = width - picture.width; column < width; ++column)
      for (int c = 0; c < 3; ++c) {
        const double x = planes[(int64_t(c) * height + row) * width + column];
        expected.push_back(std::clamp(std::tanh(x) * 150 + 127.5, 0.0, 255.0));
      }
  return compare(got, expected, {.atol = 0.501, .rtol = 0, .relative_l2 = 1},
                 {picture.height, picture.width, 3});
}

}  // namespace lab
