// Chapter 8: convolution + instance norm + ReLU on one problem, from three passes over memory to one,
// compared with the CPU reference; then instance norm alone.
#include "host/report.h"
#include "kernels/steps.cuh"

using namespace lab;

constexpr const char* kChapter = "08_fused_conv_norm";

int main(int argc, char** argv) {
  return guarded_main(kChapter, [&] {
    // Flags, and the problem: a file's tensors, a photo under its filters or random numbers.
    ConvNormOptions options = conv_norm_options(
        argc, argv,
        "Chapter 8: convolution, instance norm and ReLU, from three passes over memory to one;\n"
        "with --precision, on tensor cores; with --storage, on arrays in fp16. (A network of such\n"
        "layers, which repaints a photo, is chapter 20.)");
    const std::vector<ConvNormStep> steps = chosen_steps(options, fused_conv_norm::steps());
    ConvNormProblem problem = conv_norm_input(options);
    const ConvNormShape shape = problem.shape;
    const Device device = open_device(options);
    require_runnable(options, steps);
    const HalfConvNorm half_step =
        options.half_storage() ? fused_conv_norm::half_step().in_fp16 : HalfConvNorm{};
    const int copies = copies_in_memory(device, shape, half_step);
    problem = conv_norm_problem(options, std::move(problem));

    // The reference on the CPU, then the arrays on the device, in copies that do not stay in the L2.
    Report report(report_head(kChapter, options, device, problem));
    const ConvNormExpected expected = expected_output(options, problem);
    std::vector<ConvNormArrays> arrays = upload(problem, copies, half_step);
    ConvNormArrays& checked = arrays[0];

    std::vector<float> y;
    for (const ConvNormStep& step : steps) {
      // Weights in fp16 are packed beforehand, once for a network: a line of its own.
      std::vector<Timing> packing;
      if (step.half_storage()) {
        const auto pack = [&](int i) { arrays[i % copies].pack(step.in_fp16, shape); };
        packing = time_stages(device, {pack}, options.warmup, options.iterations);
        for (ConvNormArrays& a : arrays) a.pack(step.in_fp16, shape);
      }

      // The launches that the step consists of, each timed alone; none where it is one launch. What all
      // of them left in y is compared.
      const auto time_launches = [&]() -> std::vector<Timing> {
        const std::vector<ConvNormStep::Stage> stages = step.stages(shape);
        if (stages.size() <= 1) return {};
        std::vector<Launch> launches;
        for (const ConvNormStep::Stage& stage : stages)
          launches.push_back([&](int i) { stage.second(arrays[i % copies]); });
        step.fill_result_with_nan(checked);  // an element that is not written is wrong
        const std::vector<Timing> times =
            time_stages(device, launches, options.warmup, options.iterations);
        const Comparison right = compare_output(step, step.result(checked), expected, shape);
        for (size_t i = 0; i < stages.size(); ++i)
          report.add_launch(stages[i].first, times[i], {}, right, Report::Errors::kOfStep);
        return times;
      };

      // The step as a whole. It runs before its launches do: only then is it known whether the device
      // takes its one launch. (--predict runs the launches alone, and adds up their times.)
      step.fill_result_with_nan(checked);
      std::vector<Timing> times;
      if (options.predict) times = time_launches();
      const auto launch = [&](int i, cudaStream_t stream) {
        step.run(arrays[i % copies], shape, stream);
      };
      const bool several = step.stages(shape).size() > 1;
      const Timing whole =
          several ? time_total(device, launch, copies, options.warmup, options.iterations, times)
                  : time_step(device, launch, copies, options.warmup, options.iterations);
      y = step.result(checked);
      if (times.empty()) times = time_launches();

      const Cost cost =
          conv_norm_cost(shape, checked.has_residual, step.precision, step.half_storage() ? 2 : 4);
      const Comparison right = compare_output(step, y, expected, shape);
      if (times.empty())
        report.add(step.name, whole, cost, right), times = {whole};
      else
        report.add_total(step.name, whole, cost, right);
      if (step.variant) report.add_number(step.name, "variant", 1);
      note_step(options, device, step, shape, times, report);
      for (const Timing& time : packing) {
        report.add_beside("pack weights", time, right);
        report.note("pack weights: once for a network, not at each call of " + step.name);
      }
    }
    for (size_t i = 1; i < steps.size(); ++i) report.add_ratio(steps[i].name, steps[i - 1].name);

    // Instance norm alone, on what the convolution makes.
    if (options.step.empty()) {
      const NormShape norm{shape.batch, shape.out_channels, int(shape.plane()), shape.eps};
      const std::vector<double> normalized = expected_norm(problem, expected);
      for (ConvNormArrays& a : arrays) upload_convolution(expected, a);
      const std::vector<NormStep> norms = fused_conv_norm::norms();
      for (const NormStep& step : norms) {
        checked.y.fill_nan();
        const auto launch = [&](int i, cudaStream_t stream) {
          ConvNormArrays& a = arrays[i % copies];
          step.function(a.conv.data(), a.gamma.data(), a.beta.data(), a.y.data(), norm, stream);
        };
        const Timing time = time_step(device, launch, copies, options.warmup, options.iterations);
        report.add(step.name, time, norm_cost(shape),
                   compare_norm(checked.y.download(), normalized, expected.tolerance, norm));
      }
      for (size_t i = 1; i < norms.size(); ++i) report.add_ratio(norms[i].name, norms[i - 1].name);
    }
    write_results(options, problem, steps.back().name, y, report);
    return report.finish();
  });
}
