// Chapter 10: LayerNorm in six steps beside a copy of the same bytes, and its gradients, compared with
// the CPU reference.
#include "../../common/lab/progress.h"
#include "../../common/lab/steps.h"
#include "host/backward.h"
#include "kernels.h"

using namespace lab;

namespace {

constexpr const char* kChapter = "10_layer_norm";

// All arrays are of type T, half or float.
template <class T>
ExitCode run(LayerNormOptions& options) {
  const LayerNormKernels<T> kernels = layer_norm::kernels<T>();
  std::vector<LayerNormStep<T>> steps = kernels.steps;
  if (options.naive) steps.push_back(kernels.naive_variance);
  steps = chosen_steps(options.step, steps);

  // The problem, the reference on the CPU, and the arrays in copies that do not stay in the L2.
  const Device device = open_device(options);
  const LayerNormProblem problem = layer_norm_problem(options, device);
  const layer_norm::Shape& shape = problem.shape;
  Report report(report_head(kChapter, options, device, problem));
  LayerNormExpected expected;  // nothing with --predict, which compares nothing
  if (!options.predict) {
    const Progress progress("CPU reference");
    expected = expected_layer_norm(problem);
    require_storage_range(problem, expected);
  }
  const int copies = rotation_copies(device, 2.0 * double(shape.elements()) * sizeof(T));
  auto arrays = upload<T>(problem, copies, kernels.partial_count(shape));
  LayerNormArrays<T>& checked = arrays[0];
  const auto time = [&](const StepLaunch& launch) {
    return time_step(device, launch, copies, options.warmup, options.iterations);
  };
  const auto cost = [&](int once) { return layer_norm_cost(shape, problem.storage, once); };

  // A copy of the same bytes: what all steps are held against.
  checked.y.fill_nan();  // an element that is not written is wrong
  const Timing copy_time = time([&](int i, cudaStream_t stream) {
    kernels.copy(arrays[i % copies].x.data(), arrays[i % copies].y.data(), shape, stream);
  });
  report.add("copy", copy_time, {cost(2).bytes, 0},
             options.predict ? Comparison::none()
                             : compare_rows(checked.y.download(), problem.x, {}, shape));

  // Each step: launched and timed, then compared.
  std::vector<T> y;
  Timing norm_time;
  for (const LayerNormStep<T>& step : steps) {
    const Progress progress(step.name);
    checked.y.fill_nan();
    const Timing step_time = time([&](int i, cudaStream_t stream) {
      LayerNormArrays<T>& a = arrays[i % copies];
      step.function(a.x.data(), a.scale.data(), a.bias.data(), a.y.data(), shape, stream);
    });
    const std::vector<T> step_y = checked.y.download();
    report.add(step.name, step_time, cost(2),
               compare_rows(step_y, expected.y, expected.for_y, shape));
    if (step.name != kernels.naive_variance.name) y = step_y, norm_time = step_time;
  }
  for (size_t i = 1; i < steps.size(); ++i) report.add_ratio(steps[i].name, steps[i - 1].name);
  const bool last = steps.back().name == kernels.steps.back().name;
  report.add_ratio(last ? steps.back().name : steps.front().name, "copy");
  if (shape.columns % (16 / int(sizeof(T))) != 0)
    report.note(std::to_string(shape.columns) +
                " columns are not whole pieces of 16 bytes: "
                "vector, rows and residual do as warp does");

  // x + residual by a kernel of its own, and fused with the norm; then the gradients.
  if (options.step.empty()) {
    const auto compare_sum = [&] {
      return compare_rows(checked.sum.download(), expected.sum, expected.for_sum, shape);
    };
    checked.sum.fill_nan();
    const Timing add_time = time([&](int i, cudaStream_t stream) {
      LayerNormArrays<T>& a = arrays[i % copies];
      kernels.add(a.x.data(), a.residual.data(), a.sum.data(), shape, stream);
    });
    report.add("add", add_time, cost(3), compare_sum());
    if (kernels.residual_fits(shape)) {
      checked.sum.fill_nan();
      checked.y.fill_nan();
      const Timing fused_time = time([&](int i, cudaStream_t stream) {
        LayerNormArrays<T>& a = arrays[i % copies];
        kernels.residual(a.x.data(), a.residual.data(), a.scale.data(), a.bias.data(), a.sum.data(),
                         a.y.data(), shape, stream);
      });
      Comparison right = compare_sum();
      if (right.pass)
        right = compare_rows(checked.y.download(), expected.y_of_sum, expected.for_y_of_sum, shape);
      report.add("fused residual", fused_time, cost(4), right);
      note_beside(device, "add, then rows", {add_time, norm_time}, "fused residual", fused_time,
                  report);
    } else {
      report.note(
          "fused residual: none; rows this long, or not of whole pieces of 16 bytes, are "
          "not kept in registers");
    }
    run_backward(options, device, kernels, problem, expected, arrays, report);
  }
  write_results(options, problem, std::vector<float>(y.begin(), y.end()), report);
  return report.finish();
}

}  // namespace

int main(int argc, char** argv) {
  return guarded_main(kChapter, [&] {
    LayerNormOptions options =
        layer_norm_options(argc, argv,
                           "Chapter 10: LayerNorm, from a block for each row to what a copy "
                           "takes; the residual\nbefore it, and its gradients.");
    return options.storage == Storage::kFp16 ? run<half>(options) : run<float>(options);
  });
}
