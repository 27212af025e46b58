// CPU oracles of a product with something behind it, and of the MLP of two: double precision,
// straight from the formulas. Tested against arrays that PyTorch computed (data/golden).
#pragma once

#include <cstdint>
#include <vector>

#include "../shape.h"

namespace reference {

// Arrays of a product as mlp::Shape has them; bias and residual may be null: zeros.
struct Product {
  const float *x, *weight, *bias = nullptr, *residual = nullptr;
};
// Rows `rows` of y, one after the other: [rows.size(), n].
std::vector<double> product(const Product& arrays, const ::mlp::Shape& shape,
                            const std::vector<int>& rows);
// For each of them and each column the sum of |x| |weight|: what errors of sums are in proportion
// to. Returns the largest.
double largest_sum_of_sizes(const Product& arrays, const ::mlp::Shape& shape,
                            const std::vector<int>& rows);

double gelu(double v);

// An MLP: y = x + w2 gelu(w1 x + b1) + b2.
//   x [tokens, width], w1 [hidden, width], b1 [hidden], w2 [width, hidden], b2 [width]
struct Mlp {
  const float *x, *w1, *b1, *w2, *b2;
  int tokens, width, hidden;
};
struct MlpRows {
  std::vector<double> sums, hidden, y;  // w1 x + b1, its GELU [rows, hidden]; [rows, width]
};
MlpRows mlp(const Mlp& arrays, const std::vector<int>& rows);

}  // namespace reference
