// Chapter 16: the operations of a Convolutional vision Transformer, forward and back, compared with the CPU
// reference. The convolutional projection in two steps each way, naive and fused; with --component another one.
#include "../../common/lab/device.h"
#include "../../common/lab/progress.h"
#include "../../common/lab/steps.h"
#include "host/report.h"

using namespace lab;

constexpr const char* kChapter = "16_cvt";

int main(int argc, char** argv) {
  return guarded_main(kChapter, [&] {
    // Flags, and the problem: random arrays of an operation, as large as in a stage of CvT-13.
    CvtOptions options = cvt_options(
        argc, argv,
        "Chapter 16: the operations of a Convolutional vision Transformer, forward and back: "
        "depthwise\n"
        "convolutions with BatchNorm that make q, k and v, or another one by --component.");
    const Device device = open_device(options);
    // The projection's steps are conv_projection/1_naive.cuh to 4_fused_backward.cuh, listed in
    // kernels/conv_projection.cu; those of the other components are in operations/.
    const std::unique_ptr<Operation> operation = options.component == "projection"
                                                     ? projection_operation(options, device)
                                                     : component_operation(options, device);
    const std::vector<OperationStep> steps =
        chosen_steps(options.step, operation->steps, ", with --component " + options.component);
    const int copies = operation->copies;  // so many of all arrays that none is still in the L2
    Report report(report_head(kChapter, options, device, *operation));

    // The reference on the CPU, and the forward pass, where its gradients alone are asked for.
    if (!options.predict) {
      const Progress progress("CPU reference");
      operation->compute_reference();
    }
    if (steps.front().back) {
      for (const OperationStep& step : operation->steps)
        if (!step.back)
          for (int copy = 0; copy < copies; ++copy) step.run(copy, nullptr);
      check(cudaDeviceSynchronize());
    }

    for (const OperationStep& step : steps) {
      const Progress progress(step.name);

      // Its launches one by one, each timed.
      const std::vector<OperationLaunch> launches = step.launches();
      std::vector<StepLaunch> runs;
      for (const OperationLaunch& launch : launches) runs.push_back(launch.run);
      const std::vector<Timing> times =
          runs.empty() ? std::vector<Timing>()
                       : time_launches(device, runs, copies, options.warmup, options.iterations);

      // The step as a whole. What it leaves in arrays that nothing has touched is compared.
      if (!options.predict) operation->clear(step);
      if (launches.empty()) {
        const Timing time = time_whole(options, device, step, copies);
        report.add(step.name, time, step.cost, compare_step(options, step, report));
        continue;
      }
      if (!options.predict) step.run(0, nullptr);
      check(cudaDeviceSynchronize());
      const Comparison right = compare_step(options, step, report);
      for (size_t i = 0; i < launches.size(); ++i)
        report.add_launch(launches[i].name, times[i], launches[i].cost, right,
                          Report::Errors::kOfStep);
      const Timing total =
          time_total(device, step.run, copies, options.warmup, options.iterations, times);
      report.add_total(step.name, total, step.cost, right);
    }
    add_ratios(steps, report);
    if (!options.output.empty()) operation->write_output(options.output);
    return report.finish();
  });
}
