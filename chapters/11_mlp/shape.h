// A product of matrices with something behind it, in plain C++: what a kernel, a reference and a
// report must agree on and nothing else.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

// y = act(x wᵀ + bias) + residual, where act is GELU or nothing.
//   x [m, k], weight [n, k] (as nn.Linear stores it), bias [n], residual and y [m, n]
// GELU is the exact one: v/2 (1 + erf(v / sqrt(2))). bias and residual may be null: zeros.
struct ProductShape {
  int m = 1, n = 1, k = 1;  // rows of x and y; columns of y; columns of x: what is added up
  bool gelu = false;

  int64_t x_elements() const { return int64_t(m) * k; }
  int64_t weight_elements() const { return int64_t(n) * k; }
  int64_t y_elements() const { return int64_t(m) * n; }
  double multiply_adds() const { return double(m) * n * k; }
};

// "[m 197, n 3072, k 768, GELU]"
inline std::string describe(const ProductShape& shape) {
  return "[m " + std::to_string(shape.m) + ", n " + std::to_string(shape.n) + ", k " +
         std::to_string(shape.k) + (shape.gelu ? ", GELU]" : "]");
}

[[noreturn]] inline void refuse_shape(const ProductShape& shape, const std::string& why) {
  throw std::invalid_argument("product of shape " + describe(shape) + ": " + why);
}

// The shapes that every step takes. Throws std::invalid_argument naming the shape and the limit.
inline void require_shape(const ProductShape& shape) {
  if (shape.m < 1 || shape.n < 1 || shape.k < 1)
    refuse_shape(shape, "m, n and k must be at least 1");
  const int64_t largest = INT32_MAX;
  if (shape.x_elements() > largest || shape.weight_elements() > largest ||
      shape.y_elements() > largest)
    refuse_shape(shape, "x, weight and y must have fewer than 2^31 elements");
}

// What the steps ask that copy 16 bytes at a time: `row_elements` of k (8 in fp16, 4 in fp32) are
// 16 bytes. Throws std::invalid_argument naming what is not so.
inline void require_pieces(const ProductShape& shape, const void* x, const void* weight,
                           int row_elements) {
  if (shape.k % row_elements != 0)
    refuse_shape(shape, "k must be a multiple of " + std::to_string(row_elements) +
                            ": this step copies rows of x and weight 16 bytes at a time");
  for (const auto& [array, name] : {std::pair(x, "x"), {weight, "weight"}})
    if (reinterpret_cast<uintptr_t>(array) % 16 != 0)
      refuse_shape(shape, std::string(name) + " must start at a multiple of 16 bytes");
}

namespace mlp {
using Shape = ProductShape;
}
