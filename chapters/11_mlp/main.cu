// Chapter 11: the MLP of a Vision Transformer, from WMMA to one launch a product, compared with the CPU
// reference.
#include "host/report.h"
#include "kernels.h"

using namespace lab;

constexpr const char* kChapter = "11_mlp";

int main(int argc, char** argv) {
  return guarded_main(kChapter, [&] {
    // Flags, and the problem: a file's tensors, a photo's patches or random numbers.
    MlpOptions options = mlp_options(
        argc, argv,
        "Chapter 11: the MLP of a Vision Transformer, y = x + W2 gelu(W1 x + b1) + b2, from\n"
        "WMMA with everything else in launches of its own to one launch a product.");
    const std::vector<MlpStep> steps = chosen_steps(options, mlp::steps());
    const Storage storage = options.storage();
    MlpProblem problem = mlp_input(options);
    const MlpSizes sizes = problem.sizes;
    const Device device = open_device(options);
    require_runnable(options, steps);
    const int copies = copies_in_memory(device, sizes, storage);
    problem = mlp_problem(options, std::move(problem));

    // The reference on the CPU, then the arrays on the device, in copies that do not stay in the L2.
    Report report(report_head(kChapter, options, device, problem));
    MlpExpected expected;  // nothing with --predict, which compares nothing
    if (!options.predict) expected = expected_mlp(problem, storage);
    if (!options.predict && int(expected.rows.size()) < sizes.rows())
      report.note("compared: " + std::to_string(expected.rows.size()) + " of " +
                  std::to_string(sizes.rows()) + " rows, spread over all of them");
    std::vector<MlpOnDevice> arrays = upload(problem, storage, copies);

    for (const MlpStep& step : steps) {
      // Its launches one by one, each timed; what all of them left in y is compared.
      const std::vector<MlpStep::Stage> stages = step.stages(sizes);
      std::vector<Launch> launches;
      for (const MlpStep::Stage& stage : stages)
        launches.push_back([&](int i) { stage.second(arrays[i % copies]); });
      arrays[0].fill_results_with_nan();  // an element that is not written is wrong
      const std::vector<Timing> times =
          time_stages(device, launches, options.warmup, options.iterations);
      const Comparison right = compare_output(arrays[0].y(), expected, sizes.width);
      for (size_t i = 0; i < stages.size(); ++i)
        report.add_launch(stages[i].first, times[i], {}, right, Report::Errors::kOfStep);

      // The step as a whole.
      const auto launch = [&](int i, cudaStream_t stream) {
        step.run(arrays[i % copies], sizes, stream);
      };
      arrays[0].fill_results_with_nan();
      const Timing whole =
          time_total(device, launch, copies, options.warmup, options.iterations, times);
      report.add_total(step.name, whole, mlp_cost(sizes, storage),
                       compare_output(arrays[0].y(), expected, sizes.width));
      if (step.variant) report.add_number(step.name, "variant", 1);
      note_rate(device, step, sizes, times, whole, report);
    }
    for (size_t i = 1; i < steps.size(); ++i) report.add_ratio(steps[i].name, steps[i - 1].name);
    write_results(options, problem, arrays[0], steps.back().name, report);
    return report.finish();
  });
}
