// What compare() of lab.cuh is made of, and a norm for tolerances.
#pragma once

#include "lab.cuh"

namespace lab {

// Gathers a comparison piece by piece, in double. A NaN or infinity on the got side is bad,
// whatever the tolerance; an empty comparison does not pass.
class Comparer {
 public:
  Comparer(const Tolerance& tolerance, std::vector<int64_t> dims);
  void add(const double* got, const double* expected, size_t count);
  Comparison result() const;  // throws std::invalid_argument unless all of dims was added

 private:
  Tolerance tolerance_;
  std::vector<int64_t> dims_;
  Comparison so_far_;
  int64_t first_bad_ = -1;
  double error_squared_ = 0, expected_squared_ = 0;
};

// The root of the sum of squares. (The largest absolute value is lab.cuh's max_abs().)
double l2_norm(const Values& values);

}  // namespace lab
