// What the tests of convolution + instance norm share: cases with their expected output, and a step
// run under suspicion. Plain declarations around problem.h; no test framework.
#pragma once

#include "../../../common/testing/testing.h"
#include "../host/problem.h"

namespace lab::testing {

struct ConvNormTrial {
  std::string name;
  ConvNormProblem problem;
  ConvNormExpected expected;
};
// A random problem with the reference's output.
ConvNormTrial conv_norm_trial(const ConvNormShape& shape, uint64_t seed,
                              bool with_residual = false);
// The problem as it is, with the reference's output.
ConvNormTrial conv_norm_trial(const std::string& name, const ConvNormProblem& problem);
// data/golden: what PyTorch computed in double precision.
std::vector<ConvNormTrial> conv_norm_golden_trials();

// Every kernel, stride and padding on small ragged sizes, more than one image, channels that are no
// multiple of anything, transposed convolutions too: enough to find every loop's last round.
std::vector<ConvNormShape> conv_norm_shapes();

using AnyConvNorm = std::function<void(const float* x, const float* weight, const float* bias,
                                       const float* gamma, const float* beta, const float* residual,
                                       float* y, const ConvNormShape& shape, cudaStream_t stream)>;
struct ConvNormOutcome : Verdict {
  std::vector<float> y;
};
// What is wrong with the step where there are NaNs, empty where nothing is: with ReLU, too, y is NaN
// where the residual is, all of an image's y where its x has one, and right everywhere else. shape
// has more than one image.
std::string wrong_with_nans(const AnyConvNorm& step, ConvNormTrial trial);
// A problem whose convolution is the same number in all pixels of a plane, exactly, in all
// precisions: y is relu(beta + residual) to the bit where means are right to the bit. In a plane of
// 5 x 7 pixels they are only with their correction.
ConvNormTrial flat_planes(int height, int width);
// Runs a step with y filled with NaN between two guard areas and compares. `shift` elements off a
// multiple of 16 bytes all arrays begin.
ConvNormOutcome run_conv_norm(const AnyConvNorm& step, const ConvNormTrial& trial, int shift = 0);

}  // namespace lab::testing
