// CPU oracle of the convolutional projection with BatchNorm: double precision, straight from the
// formula. Tested against arrays that PyTorch computed (data/golden) and against central
// differences.
#pragma once

#include <array>
#include <vector>

namespace reference {

// As cvt::ProjectionShape.
struct ProjectionSizes {
  int batch, height, width, channels, class_tokens;
  // Rows and columns of a map, and a sample's tokens; which: 0 for q, 1 for k, 2 for v.
  int stride(int which) const { return which == 0 ? 1 : 2; }
  int rows(int which) const { return (height - 1) / stride(which) + 1; }
  int columns(int which) const { return (width - 1) / stride(which) + 1; }
  int tokens(int which) const { return class_tokens + rows(which) * columns(which); }
  int positions(int which) const { return batch * rows(which) * columns(which); }
};

using Doubles = std::vector<double>;
struct ProjectionInputs {
  Doubles x;                            // [batch, tokens of q, channels]
  std::array<Doubles, 3> w;             // [channels, 3, 3]
  std::array<Doubles, 3> scale, shift;  // [channels]
};
struct ProjectionOutputs {
  std::array<Doubles, 3> maps;            // [batch, tokens, channels], before BatchNorm
  std::array<Doubles, 3> mean, variance;  // [channels], of the population
  std::array<Doubles, 3> factor, offset;  // [channels]: BatchNorm's output is map * factor + offset
};
constexpr double kBatchNormEpsilon = 1e-5;
ProjectionOutputs project(const ProjectionInputs& in, const ProjectionSizes& sizes);

struct ProjectionDerivatives {
  Doubles dx;
  std::array<Doubles, 3> dw, dscale, dshift;
  std::array<Doubles, 3> dmaps;  // gradients of the raw maps; class tokens' as they came
};
// dy: [batch, tokens, channels], gradients of map * factor + offset, class tokens' of what was
// copied.
ProjectionDerivatives project_back(const ProjectionInputs& in, const ProjectionOutputs& out,
                                   const std::array<Doubles, 3>& dy, const ProjectionSizes& sizes);

}  // namespace reference
