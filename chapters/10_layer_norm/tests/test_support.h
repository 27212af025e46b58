// What the tests of LayerNorm share: problems with their expected arrays, and steps run under
// suspicion. Plain declarations around problem.h; no test framework.
#pragma once

#include "../../../common/testing/testing.h"
#include "../host/problem.h"

namespace lab::testing {

struct LayerNormCase {
  std::string name;
  LayerNormProblem problem;
  LayerNormExpected expected;
};

// A random problem with the reference's arrays.
LayerNormCase layer_norm_case(const LayerNormShape& shape, Storage storage, uint64_t seed = 1,
                              double mean = 0);
// data/golden: the arrays that PyTorch computed in double precision; tolerances are derived as for
// any problem.
std::vector<LayerNormCase> layer_norm_golden_cases();

// Shapes that fill whole pieces and warps, and others that do neither; each number of pieces that a
// kernel is compiled for.
std::vector<LayerNormShape> layer_norm_shapes();

template <class T>
constexpr Storage kStorage = sizeof(T) == 2 ? Storage::kFp16 : Storage::kFp32;

template <class T>
using ForwardStep = std::function<void(const T* x, const T* scale, const T* bias, T* y,
                                       const LayerNormShape& shape, cudaStream_t stream)>;
template <class T>
using ResidualStep =
    std::function<void(const T* x, const T* r, const T* scale, const T* bias, T* sum, T* y,
                       const LayerNormShape& shape, cudaStream_t stream)>;
template <class T>
using DxStep =
    std::function<void(const T* dy, const T* x, const T* scale, T* dx, LayerNormMoments* moments,
                       const LayerNormShape& shape, cudaStream_t stream)>;
// dscale and dbias, from the moments.
template <class T>
using ColumnStep =
    std::function<void(const T* dy, const T* x, const LayerNormMoments* moments, float* dscale,
                       float* dbias, const LayerNormShape& shape, cudaStream_t stream)>;

template <class T>
struct LayerNormOutcome : Verdict {
  std::vector<T> output;       // y, dx
  std::vector<float> columns;  // dscale, then dbias
};

// Runs a step with its outputs filled with NaN between guard areas and compares. `shift`: how many
// elements arrays start beyond a multiple of 256 bytes, in the order in which they are made below.
template <class T>
LayerNormOutcome<T> run_forward(const ForwardStep<T>& step, const LayerNormCase& problem,
                                const Shift& shift = {}) {
  const LayerNormProblem& p = problem.problem;
  const std::vector<T> x_host = stored_as<T>(p.x), scale_host = stored_as<T>(p.scale),
                       bias_host = stored_as<T>(p.bias);
  const GuardedInput<T> x(x_host, "x", shift.of(0)), scale(scale_host, "scale", shift.of(1)),
      bias(bias_host, "bias", shift.of(2));
  GuardedOutput<T> y(size_t(p.shape.elements()), "y", shift.of(3));
  LayerNormOutcome<T> outcome;
  const auto launch = [&] {
    step(x.data(), scale.data(), bias.data(), y.data(), p.shape, nullptr);
  };
  if (!ran(launch, outcome)) return outcome;
  const bool guards = y.download(outcome.output);
  outcome.comparison = compare(outcome.output, problem.expected.y, problem.expected.for_y,
                               {p.shape.rows, p.shape.columns});
  outcome.judge(guards && x.untouched() && scale.untouched() && bias.untouched());
  return outcome;
}

template <class T>
LayerNormOutcome<T> run_residual(const ResidualStep<T>& step, const LayerNormCase& problem,
                                 const Shift& shift = {}) {
  const LayerNormProblem& p = problem.problem;
  const std::vector<T> x_host = stored_as<T>(p.x), r_host = stored_as<T>(p.residual),
                       scale_host = stored_as<T>(p.scale), bias_host = stored_as<T>(p.bias);
  const GuardedInput<T> x(x_host, "x", shift.of(0)), r(r_host, "residual", shift.of(1)),
      scale(scale_host, "scale", shift.of(2)), bias(bias_host, "bias", shift.of(3));
  GuardedOutput<T> sum(size_t(p.shape.elements()), "sum", shift.of(4)),
      y(size_t(p.shape.elements()), "y", shift.of(5));
  LayerNormOutcome<T> outcome;
  const auto launch = [&] {
    step(x.data(), r.data(), scale.data(), bias.data(), sum.data(), y.data(), p.shape, nullptr);
  };
  if (!ran(launch, outcome)) return outcome;
  std::vector<T> sums;
  const bool guards = sum.download(sums) && y.download(outcome.output);
  const std::vector<int64_t> dims = {p.shape.rows, p.shape.columns};
  outcome.comparison = compare(sums, problem.expected.sum, problem.expected.for_sum, dims);
  if (outcome.comparison.pass)
    outcome.comparison =
        compare(outcome.output, problem.expected.y_of_sum, problem.expected.for_y_of_sum, dims);
  outcome.judge(guards && x.untouched() && r.untouched() && scale.untouched() && bias.untouched());
  return outcome;
}

// dx, then dscale and dbias from what the first left as moments.
template <class T>
LayerNormOutcome<T> run_backward(const DxStep<T>& dx_step, const ColumnStep<T>& column_step,
                                 const LayerNormCase& problem, const Shift& shift = {}) {
  const LayerNormProblem& p = problem.problem;
  const std::vector<T> x_host = stored_as<T>(p.x), dy_host = stored_as<T>(p.dy),
                       scale_host = stored_as<T>(p.scale);
  const GuardedInput<T> x(x_host, "x", shift.of(0)), dy(dy_host, "dy", shift.of(1)),
      scale(scale_host, "scale", shift.of(2));
  GuardedOutput<T> dx(size_t(p.shape.elements()), "dx", shift.of(3));
  GuardedOutput<LayerNormMoments> moments(size_t(p.shape.rows), "moments");
  GuardedOutput<float> dscale(size_t(p.shape.columns), "dscale"),
      dbias(size_t(p.shape.columns), "dbias");
  LayerNormOutcome<T> outcome;
  const auto launch = [&] {
    dx_step(dy.data(), x.data(), scale.data(), dx.data(), moments.data(), p.shape, nullptr);
    column_step(dy.data(), x.data(), moments.data(), dscale.data(), dbias.data(), p.shape, nullptr);
  };
  if (!ran(launch, outcome)) return outcome;
  std::vector<LayerNormMoments> all_moments;
  std::vector<float> of_bias;
  bool guards = dx.download(outcome.output);
  guards = moments.download(all_moments) && guards;
  guards = dscale.download(outcome.columns) && guards;
  guards = dbias.download(of_bias) && guards;
  outcome.comparison = compare(outcome.output, problem.expected.dx, problem.expected.for_dx,
                               {p.shape.rows, p.shape.columns});
  if (outcome.comparison.pass)
    outcome.comparison = compare(outcome.columns, problem.expected.dscale,
                                 problem.expected.for_dscale, {p.shape.columns});
  if (outcome.comparison.pass)
    outcome.comparison =
        compare(of_bias, problem.expected.dbias, problem.expected.for_dbias, {p.shape.columns});
  outcome.columns.insert(outcome.columns.end(), of_bias.begin(), of_bias.end());
  outcome.judge(guards && x.untouched() && dy.untouched() && scale.untouched());
  return outcome;
}

}  // namespace lab::testing
