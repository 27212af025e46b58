// Chapter 14: attention as Hopper wants it, in four steps behind the last one of chapter 13.
#include "../../common/attention/program.h"
#include "../../common/lab.cuh"
#include "../../common/lab/errors.h"
#include "../../common/lab/program.h"
#include "kernels.h"
#include "parts/requirement.cuh"

namespace {

const char* const kChapter = "14_hopper";
const std::vector<lab::AttentionStep> kSteps =
    hopper::steps();  // names and functions, in kernels.cu

}  // namespace

int main(int argc, char** argv) {
  return lab::guarded_main(kChapter, [&] {
    // Flags and problem: Q, K and V of a photo, from a file or random.
    lab::AttentionOptions options = lab::attention_options(
        argc, argv, "Chapter 14: attention on tensor maps and warpgroups.", kSteps);
    const std::vector<lab::AttentionStep> steps = lab::chosen_steps(options.step, kSteps);
    if (options.all) return lab::run_all(argc, argv, options);
    lab::AttentionInput input = lab::read_input(options);
    const lab::Device device = lab::open_device(options);
    const lab::AttentionProblem problem = lab::attention_problem(options, std::move(input), device);
    const AttentionShape& shape = problem.shape;

    // These kernels are compiled for Hopper alone.
    if (const std::string missing = hopper::missing_requirement(); !missing.empty())
      throw lab::LackError("chapter 14 " + missing);

    // The reference on the CPU, and how near to it a result must be.
    const std::vector<double> expected = lab::expected_output(options, problem);
    const lab::Tolerance tolerance = lab::Tolerance::fp16_mean(lab::max_abs(problem.v));

    // Q, K, V and O on the device, in as many copies as it takes to keep the timing out of the L2.
    const int copies = lab::rotation_copies(device, lab::attention_cost(shape).bytes);
    std::vector<lab::AttentionArrays> arrays = lab::upload(problem, copies);

    // Each step: launched and timed, then compared.
    lab::Report report(lab::report_head(kChapter, options, device, problem));
    std::vector<half> output;
    for (const lab::AttentionStep& step : steps) {
      const auto launch = [&](int i, cudaStream_t stream) {
        lab::AttentionArrays& a = arrays[i % copies];
        step.attention(a.Q.data(), a.K.data(), a.V.data(), a.O.data(), shape, stream);
      };
      arrays[0].O.fill_nan();  // an element that is not written is wrong
      const lab::Timing time =
          lab::time_step(device, launch, copies, options.warmup, options.iterations);
      output = arrays[0].O.download();
      report.add(step.name, time, lab::attention_cost(shape, step.tensor_cores),
                 lab::compare_output(output, expected, tolerance, shape));
      if (step.variant) report.add_number(step.name, "variant", 1);
    }
    for (size_t i = 1; i < steps.size(); ++i) report.add_ratio(steps[i].name, steps[i - 1].name);

    // The last step's picture and output.
    lab::write_heat_map(options, problem, steps.back().attention, report);
    lab::write_output(options, shape, output);
    return report.finish();
  });
}
