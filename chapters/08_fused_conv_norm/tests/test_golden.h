// Convolution + instance norm as PyTorch computed it (data/golden/conv_norm.json), for the tests of
// the reference and of the kernels.
#pragma once

#include <string>
#include <vector>

#include "../../../common/lab/errors.h"
#include "../shape.h"

namespace lab::testing {

struct ConvNormCase {
  std::string name;    // "k3_s2_reflect"
  std::string values;  // "normal", or what is special: "bias 1e4", "x 1e4", "huge", "beyond",
                       // "denormal"
  ConvNormShape shape;
  std::vector<float> x, weight, bias, gamma, beta, residual;  // bias, residual: empty is none
  std::vector<double> conv, y;                                // with the bias; the result
};

// A vector that may be none, as the functions take it.
inline const float* or_null(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
}

// Throws UsageError when file and manifest do not fit.
std::vector<ConvNormCase> conv_norm_golden_cases();

}  // namespace lab::testing
