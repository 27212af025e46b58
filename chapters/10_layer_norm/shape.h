// LayerNorm in plain C++: what a kernel, a reference and a report must agree on and nothing else.
#pragma once

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

// y = scale · (x - mean) / sqrt(variance + epsilon) + bias, with mean and variance (of the
// population) of each row.
//   x, y          [rows, columns]   fp16 or fp32, contiguous
//   scale, bias   [columns]         of the same type
// Sums are in fp32, whatever the type.
struct LayerNormShape {
  static constexpr int kMinColumns = 64, kMaxColumns = 4096;
  int rows = 1, columns = 768;
  float epsilon = 1e-6f;

  int64_t elements() const { return int64_t(rows) * columns; }
};

// A row's moments, which the backward pass needs for its sums over rows.
struct LayerNormMoments {
  float mean, factor;  // factor = 1 / sqrt(variance + epsilon)
};

// "[rows 197, columns 768, epsilon 1e-06]"
inline std::string describe(const LayerNormShape& shape) {
  char epsilon[32];
  std::snprintf(epsilon, sizeof epsilon, "%g", double(shape.epsilon));
  return "[rows " + std::to_string(shape.rows) + ", columns " + std::to_string(shape.columns) +
         ", epsilon " + epsilon + "]";
}

// The shapes that every step takes.
// Throws std::invalid_argument naming the shape and the limit.
inline void require_shape(const LayerNormShape& shape) {
  const auto require = [&](bool ok, const char* limit) {
    if (!ok) throw std::invalid_argument("layer norm of shape " + describe(shape) + ": " + limit);
  };
  require(shape.rows >= 1, "rows must be at least 1");
  require(shape.columns >= shape.kMinColumns && shape.columns <= shape.kMaxColumns,
          "columns must be 64 to 4096");
  require(shape.epsilon > 0 && shape.epsilon < 1, "epsilon must lie between 0 and 1");
}

namespace layer_norm {
using Shape = LayerNormShape;
using Moments = LayerNormMoments;
}  // namespace layer_norm
