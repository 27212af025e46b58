// What the tests of the chapter share: problems with their expected arrays, and steps run under
// suspicion. Plain declarations around problem.h; no test framework.
#pragma once

#include "../../../common/testing/testing.h"
#include "../host/problem.h"

namespace lab::testing {

struct GradientCase {
  std::string name;
  GradientProblem problem;
  GradientExpected expected;
};

// A problem with the reference's arrays.
GradientCase gradient_case(const GradientProblem& problem, const std::string& name);
// A random one, of scale 1 / sqrt(head_dim).
GradientCase random_gradient_case(int batch, int heads, int tokens, int head_dim,
                                  uint64_t seed = 1);
// Scores that break what is not careful: one that dominates its row, all equal, all far below or above
// 0 (exp of them is 0 or infinite in fp32), large values, a negative scale and none.
std::vector<GradientCase> extreme_gradient_cases(int tokens, int head_dim);
// data/golden: the arrays that PyTorch computed in double precision.
std::vector<GradientCase> gradient_golden_cases();

struct GradientOutcome : Verdict {
  std::vector<half> dQ, dK, dV;
  std::vector<float> workspace;
  std::string array;  // that the verdict is about
};

using AnyGradients = std::function<void(const gradients::Pointers& pointers,
                                        const AttentionShape& shape, cudaStream_t stream)>;
// With outputs and a workspace of that many numbers filled with NaN, between guard areas.
GradientOutcome run_gradients(const AnyGradients& step, int64_t workspace,
                              const GradientCase& problem);
GradientOutcome run_gradients(const gradients::Step& step, const GradientCase& problem);

}  // namespace lab::testing
