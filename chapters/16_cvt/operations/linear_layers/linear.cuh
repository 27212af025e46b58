// Linear layers: y = x wᵀ, dx = dy w and dw = dyᵀ x with what stands behind them. operations.h says
// shapes and errors.
#pragma once

#include <cmath>

#include "weights.cuh"

namespace linear_layers {

// GELU's derivative, Phi(v) + v phi(v) of the normal distribution.
__device__ inline float gelu_derivative(float v) {
  constexpr float kRootHalf = 0.70710678f, kDensity = 0.39894228f;  // 1 / sqrt(2), 1 / sqrt(2 pi)
  return 0.5f * erfcf(-v * kRootHalf) + v * kDensity * expf(-0.5f * v * v);
}

// What stands behind y = x wᵀ or dx = dy w. All arrays [.., columns] but bias.
struct LinearFinish {
  static constexpr bool kSumsLeft = false;
  float* y;
  const float* bias;             // [columns] or null
  float* before_gelu;            // or null: what is before GELU, which then follows
  const float* gelu_derivative;  // or null: sums are multiplied by GELU's derivative there
  const float* added;            // or null
  Rows rows;
  int columns;
  bool whole;  // all arrays in pieces of 16 bytes

  __device__ float4 load(const float* from, int column) const {
    if (whole) return *reinterpret_cast<const float4*>(from);
    float4 four{};
    for (int i = 0; i < 4; ++i)
      if (column + i < columns) (&four.x)[i] = from[i];
    return four;
  }
  __device__ void store(float* to, int column, const float4& four) const {
    if (whole)
      *reinterpret_cast<float4*>(to) = four;
    else
      for (int i = 0; i < 4; ++i)
        if (column + i < columns) to[i] = (&four.x)[i];
  }

  __device__ float4 prepare(int column) const {
    return bias ? load(bias + column, column) : float4{};
  }
  __device__ void store(const float4& biases, int, int row, int column, float4 four) const {
    const int64_t at = row_in_memory(rows, row) * columns + column;
    four = {four.x + biases.x, four.y + biases.y, four.z + biases.z, four.w + biases.w};
    if (before_gelu) {
      store(before_gelu + at, column, four);
      four = {mlp::gelu(four.x), mlp::gelu(four.y), mlp::gelu(four.z), mlp::gelu(four.w)};
    }
    if (gelu_derivative) {
      const float4 v = load(gelu_derivative + at, column);
      four = {four.x * linear_layers::gelu_derivative(v.x),
              four.y * linear_layers::gelu_derivative(v.y),
              four.z * linear_layers::gelu_derivative(v.z),
              four.w * linear_layers::gelu_derivative(v.w)};
    }
    if (added) {
      const float4 v = load(added + at, column);
      four = {four.x + v.x, four.y + v.y, four.z + v.z, four.w + v.w};
    }
    store(y + at, column, four);
  }
};

inline bool all_whole(int columns, std::initializer_list<const float*> arrays) {
  return std::all_of(arrays.begin(), arrays.end(),
                     [&](const float* array) { return whole_pieces(columns, array); });
}

// "linear layer of 33 rows, in 48, out 10"; throws std::invalid_argument for a shape that is none.
inline std::string require_linear(const Rows& rows, int in, int out,
                                  std::initializer_list<const float*> arrays) {
  const std::string what = "linear layer of " + std::to_string(rows.count) + " rows, in " +
                           std::to_string(in) + ", out " + std::to_string(out);
  require_that(rows.count >= 1 && in >= 1 && out >= 1, what, "all three must be at least 1");
  require_that(rows.of_group >= 1 && rows.of_group <= rows.count && rows.first >= 0, what,
               "groups of " + std::to_string(rows.of_group) + " rows from row " +
                   std::to_string(rows.first) + ": must be 1 to all rows, from 0 on");
  require_that(rows.of_group == rows.count || rows.pitch >= rows.of_group, what,
               "groups lie " + std::to_string(rows.pitch) + " rows apart and have " +
                   std::to_string(rows.of_group) + ": must not overlap");
  for (const float* array : arrays) require_that(array != nullptr, what, "an array is null");
  return what;
}

}  // namespace linear_layers
