// What the tests of products share: cases with their expected output, and a step run under
// suspicion. Plain declarations around problem.h; no test framework.
#pragma once

#include "../../../common/testing/testing.h"
#include "../host/problem.h"

namespace lab::testing {

struct ProductTrial {
  std::string name;
  mlp::Shape shape;
  std::vector<float> x, weight, bias, residual;  // bias and residual may be empty: none
  Storage storage = Storage::kFp16;
  std::vector<double> y;  // [m, n]
  Tolerance tolerance;
};
enum class Behind { kNothing, kBias, kResidual, kBoth };
// A random product with the reference's output; numbers as arrays of that storage hold them.
ProductTrial product_trial(const mlp::Shape& shape, uint64_t seed, Behind behind = Behind::kBoth,
                           Storage storage = Storage::kFp16);
// The same with these arrays.
ProductTrial product_trial(ProductTrial of_arrays);
// Ragged ones: every remainder that a tile, a warp, a fragment or a slice can leave; k is a
// multiple of 8.
std::vector<mlp::Shape> product_shapes();
// data/golden: what PyTorch computed in double precision.
std::vector<ProductTrial> product_golden_trials();
struct MlpGolden {
  MlpProblem problem;
  std::vector<double> hidden, y;
};
MlpGolden mlp_golden();

template <class Element>
using AnyProduct = std::function<void(const Element* x, const Element* weight, const Element* bias,
                                      const Element* residual, Element* y, const mlp::Shape& shape,
                                      cudaStream_t stream)>;
struct ProductOutcome : Verdict {
  std::vector<float> y;
};
// Runs a step with y filled with NaN between two guard areas and compares. `shift`
// elements beyond a multiple of 16 bytes bias, residual and y begin; x and weight only where they are
// named, as numbers 3 and 4.
template <class Element>
ProductOutcome run_product(const AnyProduct<Element>& step, const ProductTrial& trial,
                           const Shift& shift = {});

}  // namespace lab::testing
