// What the tests of patch embedding share: cases with their expected tokens, and a step run under
// suspicion. No test framework.
#pragma once

#include "../../../common/testing/testing.h"
#include "../host/problem.h"

namespace patch_embedding {

struct Case {
  std::string name;
  Problem problem;
  Part part;
  std::vector<double> expected;  // of the part
};

Case random_case(const Shape& shape, const Part& part, uint64_t seed);
// Whole numbers so small that every sum is exact in fp32, and its rounding to fp16 is the only one.
Case exact_case(const Shape& shape);
// data/golden: tokens that PyTorch computed in double precision.
std::vector<Case> golden_cases();

// Runs a step on the case's part, tokens filled with NaN before. What it writes beyond its part is a
// "guard"; the rest as lab::testing::Verdict has it. exact: no difference at all.
lab::testing::Verdict run_step(const Step& step, const Case& problem, bool exact = false,
                               std::vector<half>* tokens = nullptr);
// Compares tokens (all of Shape) with the case's.
lab::testing::Verdict judge(const half* tokens, const Case& problem, bool exact);

}  // namespace patch_embedding
