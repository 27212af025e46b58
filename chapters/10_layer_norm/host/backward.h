// The way back on one problem: dx, then dscale and dbias by two stages and by atomics.
#pragma once

#include "report.h"

namespace lab {

// Each launch is timed and compared with `expected`, unless --predict leaves nothing to compare.
template <class T>
void run_backward(const LayerNormOptions& options, const Device& device,
                  const LayerNormKernels<T>& kernels, const LayerNormProblem& problem,
                  const LayerNormExpected& expected, std::vector<LayerNormArrays<T>>& arrays,
                  Report& report) {
  const layer_norm::Shape& shape = problem.shape;
  const int copies = int(arrays.size());
  LayerNormArrays<T>& checked = arrays[0];
  const auto cost = [&](int once) { return layer_norm_cost(shape, problem.storage, once); };
  const auto time = [&](const StepLaunch& launch) {
    return time_step(device, launch, copies, options.warmup, options.iterations);
  };

  const auto dx = [&](int i, cudaStream_t stream) {
    LayerNormArrays<T>& a = arrays[i % copies];
    kernels.backward_dx(a.dy.data(), a.x.data(), a.scale.data(), a.dx.data(), a.moments.data(),
                        shape, stream);
  };
  for (LayerNormArrays<T>& a : arrays) a.dx.fill_nan(), a.moments.fill_nan();
  const Timing dx_time = time(dx);
  report.add("dx", dx_time, cost(3),
             compare_rows(checked.dx.download(), expected.dx, expected.for_dx, shape));
  // All copies need their moments, whichever were timed.
  for (int i = 0; i < copies && !options.predict; ++i) dx(i, nullptr);

  const auto slab_sums = [&](int i, cudaStream_t stream) {
    LayerNormArrays<T>& a = arrays[i % copies];
    kernels.slab_sums(a.dy.data(), a.x.data(), a.moments.data(), a.partials.data(), shape, stream);
  };
  const auto column_sums = [&](int i, cudaStream_t stream) {
    LayerNormArrays<T>& a = arrays[i % copies];
    kernels.column_sums(a.partials.data(), a.dscale.data(), a.dbias.data(), shape, stream);
  };
  const auto atomics = [&](int i, cudaStream_t stream) {
    LayerNormArrays<T>& a = arrays[i % copies];
    kernels.atomics(a.dy.data(), a.x.data(), a.moments.data(), a.dscale.data(), a.dbias.data(),
                    shape, stream);
  };
  const auto clear = [&] {
    checked.partials.fill_nan(), checked.dscale.fill_nan(), checked.dbias.fill_nan();
  };
  const auto sums = [&] {
    std::vector<float> both = checked.dscale.download();
    const std::vector<float> bias = checked.dbias.download();
    both.insert(both.end(), bias.begin(), bias.end());
    return both;
  };
  const auto compare_sums = [&] {
    if (options.predict) return Comparison::none();
    const Comparison scale =
        compare(checked.dscale.download(), expected.dscale, expected.for_dscale, {shape.columns});
    return scale.pass ? compare(checked.dbias.download(), expected.dbias, expected.for_dbias,
                                {shape.columns})
                      : scale;
  };

  clear();
  const Timing slab_time = time(slab_sums);
  for (int i = 1; i < copies && !options.predict; ++i) slab_sums(i, nullptr);
  const Timing column_time = time(column_sums);
  const Comparison stages_right = compare_sums();
  const std::vector<float> by_stages = sums();
  report.add("slab sums", slab_time, cost(2), stages_right);
  const double partials = double(kernels.partial_count(shape));
  report.add("column sums", column_time, {4 * (partials + 2.0 * shape.columns), partials},
             stages_right);

  clear();
  const Timing atomics_time = time(atomics);
  report.add("atomics", atomics_time, cost(2), compare_sums());
  note_beside(device, "slab sums and column sums", {slab_time, column_time}, "atomics",
              atomics_time, report);
  if (options.predict) return;
  const std::vector<float> by_atomics = sums();
  atomics(0, nullptr);
  const int changed_by_atomics = count_changed(by_atomics, sums());
  clear();
  slab_sums(0, nullptr);
  column_sums(0, nullptr);
  const int changed_by_stages = count_changed(by_stages, sums());
  report.note("run again, " + std::to_string(changed_by_stages) + " of " +
              std::to_string(2 * shape.columns) +
              " sums over rows have other bits by two stages, " +
              std::to_string(changed_by_atomics) + " by atomics\n(which may come in any order)");
  report.require(changed_by_stages == 0, "two stages gave other bits the second time");
}

}  // namespace lab
