// The parameters of a CvT in one array: names, shapes, places, first values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shape.h"

namespace training {

struct Parameter {
  std::string name;  // "stages.0.blocks.0.query.conv.weight"
  std::vector<int64_t> shape;
  int64_t first = 0;  // element of the flat array, a multiple of 4
  enum Start { kUniform, kZeros, kOnes, kClassToken } start = kZeros;

  int64_t count() const {
    int64_t product = 1;
    for (const int64_t size : shape) product *= size;
    return product;
  }
};

// Weights that AdamW lets decay stand in front: those of convolutions and linear layers. Biases,
// the norms' parameters and the class token do not decay. Between two parameters there may be up to
// three elements of no use, which stay 0.
struct Layout {
  std::vector<Parameter> parameters;
  int64_t decayed = 0;  // elements in front that decay
  int64_t size = 0;     // elements of the flat array
  int64_t numbers = 0;  // the net's parameters, without the gaps between them
  // BatchNorm's running mean and variance: a flat array of their own.
  std::vector<Parameter> running;
  int64_t running_size = 0;

  // First element; throws std::logic_error for a name that there is not.
  int64_t of(const std::string& name) const;
  int64_t running_of(const std::string& name) const;
};

Layout layout_of(const NetShape& shape);

// Weights uniform in ±1 / sqrt(inputs of an output), the class token in ±0.03, norms 1 and 0,
// biases 0. The same bits for the same seed on every machine: data/golden/make_cvt.py draws them,
// too.
std::vector<float> first_values(const Layout& layout, uint64_t seed);
// Mean 0, variance 1.
std::vector<float> first_running(const Layout& layout);

}  // namespace training
