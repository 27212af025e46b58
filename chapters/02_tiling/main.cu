// Chapter 2: attention of a photo's patches by one kernel, beside the three of chapter 1.
#include "../../common/attention/program.h"
#include "../../common/lab.cuh"
#include "../../common/lab/program.h"
#include "../01_naive_attention/kernel.cuh"
#include "kernel.cuh"
#include "variants/two_passes.cuh"

namespace {

const char* const kChapter = "02_tiling";
const std::vector<lab::AttentionStep> kSteps = {
    {.name = "naive", .attention = naive_attention::attention},
    {.name = "tiling", .attention = tiling::attention},
    {.name = "two passes", .attention = two_passes::attention, .variant = true}};
const char* const kNaiveLaunches[] = {"scores", "softmax", "values"};

}  // namespace

int main(int argc, char** argv) {
  return lab::guarded_main(kChapter, [&] {
    // Flags and problem: Q, K and V of a photo, from a file or random.
    lab::AttentionOptions options = lab::attention_options(
        argc, argv, "Chapter 2: attention in one kernel, tile by tile in shared memory.", kSteps);
    const std::vector<lab::AttentionStep> steps = lab::chosen_steps(options.step, kSteps);
    if (options.all) return lab::run_all(argc, argv, options);
    lab::AttentionInput input = lab::read_input(options);
    const lab::Device device = lab::open_device(options);
    const lab::AttentionProblem problem =
        lab::attention_problem(options, std::move(input), device, sizeof(float));
    const AttentionShape& shape = problem.shape;

    // The reference on the CPU, and how near to it a result must be.
    const std::vector<double> expected = lab::expected_output(options, problem);
    const lab::Tolerance tolerance = lab::Tolerance::fp16_mean(lab::max_abs(problem.v));

    // Q, K, V and O on the device, in as many copies as it takes to keep the timing out of the L2.
    const int copies = lab::rotation_copies(device, lab::attention_cost(shape).bytes);
    lab::DeviceArray<float> scores(shape.scores(), "scores");  // [batch, heads, tokens, tokens]
    std::vector<lab::AttentionArrays> arrays = lab::upload(problem, copies);

    // The three launches of chapter 1.
    const std::vector<lab::Launch> naive_launches = {
        [&](int i) {
          const lab::AttentionArrays& a = arrays[i % copies];
          naive_attention::launch_scores(a.Q.data(), a.K.data(), scores.data(), shape, 0);
        },
        [&](int) { naive_attention::launch_softmax(scores.data(), shape, 0); },
        [&](int i) {
          lab::AttentionArrays& a = arrays[i % copies];
          naive_attention::launch_values(scores.data(), a.V.data(), a.O.data(), shape, 0);
        }};

    // Each step: launched and timed, then compared.
    lab::Report report(lab::report_head(kChapter, options, device, problem));
    std::vector<half> output;
    for (const lab::AttentionStep& step : steps) {
      const auto launch = [&](int i, cudaStream_t stream) {
        lab::AttentionArrays& a = arrays[i % copies];
        step.attention(a.Q.data(), a.K.data(), a.V.data(), a.O.data(), shape, stream);
      };
      // The naive launches have a line each, with the errors of what all three leave in O.
      std::vector<lab::Timing> times;
      if (step.attention == naive_attention::attention) {
        arrays[0].O.fill_nan();  // an element that is not written is wrong
        times = lab::time_stages(device, naive_launches, options.warmup, options.iterations);
        const lab::Comparison right =
            lab::compare_output(arrays[0].O.download(), expected, tolerance, shape);
        for (size_t i = 0; i < times.size(); ++i)
          report.add_launch(kNaiveLaunches[i], times[i], {}, right, lab::Report::Errors::kOfStep);
      }

      arrays[0].O.fill_nan();
      const lab::Timing time =
          times.empty()
              ? lab::time_step(device, launch, copies, options.warmup, options.iterations)
              : lab::time_total(device, launch, copies, options.warmup, options.iterations, times);
      output = arrays[0].O.download();
      const lab::Comparison right = lab::compare_output(output, expected, tolerance, shape);
      if (times.empty())
        report.add(step.name, time, lab::attention_cost(shape), right);
      else
        report.add_total(step.name, time, lab::attention_cost(shape), right);
      if (step.variant) report.add_number(step.name, "variant", 1);
    }
    for (size_t i = 1; i < steps.size(); ++i) report.add_ratio(steps[i].name, steps[i - 1].name);

    // The last step's picture and output.
    lab::write_heat_map(options, problem, steps.back().attention, report);
    lab::write_output(options, shape, output);
    return report.finish();
  });
}
