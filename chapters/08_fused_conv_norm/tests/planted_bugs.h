// Planted bugs of the fused kernel, whichever its tiles: run, and held against what should catch them.
#pragma once

#include "../../../common/testing/checks.h"
#include "../2_fused.cuh"
#include "test_support.h"

namespace fused_conv_norm {

// fused() with tiles of that kind, `tiles` a block, by the kernel of that mutant.
template <int kName>
void run_mutant(const lab::testing::Mutants& mutants, size_t number, int tiles,
                const ConvNormShape& shape, const Element<kName>* x, const Element<kName>* weight,
                const float* gamma, const float* beta, const Element<kName>* residual,
                Element<kName>* y) {
  using T = Tile<kName>;
  typename T::Plan problem = T::plan(shape, x, weight, device_limits());
  int working_floats = T::bytes(problem) / 4;
  const int blocks = (problem.tiles + tiles - 1) / tiles;
  const int bytes = 4 * (working_floats + kMomentFloats<T> + tiles * T::kTileFloats);
  lab::DeviceArray<float4> runs(size_t(runs_of(blocks, problem)) * T::kTileChannels, "runs");
  float4* moments = runs.data();
  const void* kernel = mutants.kernel(number, "fused_kernel", {kName, 1});
  lab::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  void* arguments[] = {&x, &weight,  &gamma,          &beta,   &residual,
                       &y, &moments, &working_floats, &problem};
  lab::check(
      cudaLaunchCooperativeKernel(kernel, blocks, T::kThreads, arguments, size_t(bytes), nullptr));
  lab::check(cudaDeviceSynchronize());
}

// Each of `bugs` is caught by what it says, in the first of `trials` that shows anything; the
// kernel as it is by nothing. step_of(number): the step with the bug of that number, from 1 on; 0
// is none.
inline void check_planted_bugs(
    const std::vector<lab::testing::Mutant>& bugs,
    const std::vector<lab::testing::ConvNormTrial>& trials,
    const std::function<lab::testing::AnyConvNorm(size_t number)>& step_of) {
  lab::testing::check_each_bug(bugs, trials.size(), [&](size_t number, size_t trial) {
    return lab::testing::named(trials[trial].name,
                               lab::testing::run_conv_norm(step_of(number), trials[trial]));
  });
}

// The same for the kernel on tiles of that kind, `tiles` a block, with arrays in fp32.
template <int kName>
void check_planted_bugs(const lab::testing::Mutants& mutants,
                        const std::vector<lab::testing::Mutant>& bugs,
                        const std::vector<lab::testing::ConvNormTrial>& trials, int tiles) {
  check_planted_bugs(bugs, trials, [&](size_t number) -> lab::testing::AnyConvNorm {
    return [&mutants, number, tiles](const float* x, const float* weight, const float*,
                                     const float* gamma, const float* beta, const float* residual,
                                     float* y, const ConvNormShape& shape, cudaStream_t) {
      run_mutant<kName>(mutants, number, tiles, shape, x, weight, gamma, beta, residual, y);
    };
  });
}

}  // namespace fused_conv_norm
