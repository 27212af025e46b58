// What the tests of deformable attention share: cases with their expected output, and a step run
// under suspicion. Plain declarations around problem.h; no test framework.
#pragma once

#include "../../../common/attention/test_cases.h"
#include "../../../common/testing/testing.h"
#include "../host/problem.h"

namespace lab::testing {

struct DeformableCase {
  std::string name;
  DeformableProblem problem;
  std::vector<double> expected;  // [batch, queries, heads, channels]
  // How near: without a value, as near as a weighted mean of values in fp16 can be.
  std::optional<Tolerance> tolerance = {};
};

// A random problem with the reference's output. With `edges` some locations are moved onto borders,
// half a pixel beside them and far outside, and some are NaN or infinite.
DeformableCase deformable_case(const DeformableShape& shape, Distribution distribution,
                               uint64_t seed, bool edges = false);
// Samples in the middle of pixels, values of 10 bits, weights that are all the same power of two:
// sums of two samples are exact in fp16, all others in fp32. The output is rounded once, and must
// be exactly that. Sizes of levels are powers of two.
DeformableCase exact_deformable_case(const DeformableShape& shape);
// Each row's first sample has the weight 1, all others one that vanishes beside it in fp16, so that
// only a sum in fp32 counts them.
DeformableCase long_sum_case(const DeformableShape& shape);
// data/golden: the outputs that PyTorch computed in double precision.
std::vector<DeformableCase> deformable_golden_cases();

using AnyDeformable =
    std::function<void(const half* value, const half* locations, const half* weights, half* out,
                       const DeformableShape& shape, cudaStream_t stream)>;
// Runs a step with out filled with NaN between two guard areas and compares.
Outcome run_deformable(const AnyDeformable& step, const DeformableCase& problem);

}  // namespace lab::testing
