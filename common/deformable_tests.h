// What the tests of deformable attention share: cases with their expected output, and a step run
// under suspicion. Plain declarations around lab_deformable.h; no test framework.
#pragma once

#include "lab_deformable.h"
#include "lab_testing.h"

namespace lab::testing {

struct DeformableCase {
  std::string name;
  DeformableProblem problem;
  std::vector<double> expected;  // [batch, queries, heads, channels]
};

// A random problem with the reference's output. With `edges` some locations are moved onto borders,
// half a pixel beside them and far outside, and some are NaN or infinite.
DeformableCase deformable_case(const DeformableShape& shape, Distribution distribution,
                               uint64_t seed, bool edges = false);
// data/golden: the outputs that PyTorch computed in double precision.
std::vector<DeformableCase> deformable_golden_cases();

using AnyDeformable =
    std::function<void(const half* value, const half* locations, const half* weights, half* out,
                       const DeformableShape& shape, cudaStream_t stream)>;
// Runs a step with out filled with NaN between two guard areas and compares.
Outcome run_deformable(const AnyDeformable& step, const DeformableCase& problem);

}  // namespace lab::testing
