// Chapter 19: the gradients of deformable attention, by atomic additions or sorted, in four steps,
// compared with the CPU reference.
#include "../../common/lab/images.h"
#include "../../common/lab/progress.h"
#include "../../common/lab/steps.h"
#include "host/report.h"
#include "kernels.h"

using namespace lab;
using namespace lab::deformable;

namespace {

constexpr const char* kChapter = "19_deformable_gradients";

}  // namespace

int main(int argc, char** argv) {
  return guarded_main(kChapter, [&] {
    // Flags and problem: chapter 7's value, locations and weights, and the gradient of its output.
    GradientOptions options = gradient_options(
        argc, argv,
        "Chapter 19: the gradients of multi-scale deformable attention (chapter 7): of value, of\n"
        "locations and of weights, compared with the CPU reference.");
    const std::vector<GradientStep> steps = chosen_steps(options.step, gradient_steps());
    const Image photo = options.draws ? load_image(options.image) : Image{};
    const Device device = open_device(options);
    const GradientProblem problem = gradient_problem(options, device);
    const DeformableShape& shape = problem.shape();

    // The reference on the CPU, and the arrays in copies that do not stay in the L2.
    ExpectedGradients expected;  // nothing with --predict
    if (!options.predict) {
      const Progress progress("CPU reference");
      expected = expected_gradients(problem);
    }
    const int copies = rotation_copies(device, gradient_bytes(shape));
    std::vector<GradientArrays> arrays = upload(problem, copies);
    Report report(report_head(kChapter, options, device, problem));

    for (const GradientStep& step : steps) {
      const Progress progress(step.name);
      const StepLaunch launch = [&](int i, cudaStream_t stream) {
        run(step, arrays[i % copies], shape, stream);
      };
      arrays[0].clear();
      if (step.stages.empty()) {
        const Timing time = time_step(device, launch, copies, options.warmup, options.iterations);
        report.add(step.name, time, gradient_cost(shape),
                   compare_gradients(step.name, arrays[0], expected, shape, report));
        continue;
      }

      // Its stages one by one, each timed; what all of them left in the gradients is compared.
      DeviceArray<char> scratch(step.scratch_bytes(shape), "scratch");
      std::vector<Timing> times;
      for (const GradientStage& stage : step.stages) {
        if (options.predict) step.fill_scratch(problem, scratch.data());
        const StepLaunch stage_launch = [&](int i, cudaStream_t stream) {
          stage.launch(arrays[i % copies], shape, scratch.data(), stream);
        };
        times.push_back(
            time_step(device, stage_launch, copies, options.warmup, options.iterations));
        if (!stage.one_kernel && device.is_virtual)
          predict_kernels(stage.name, stage_launch, times.back(), report);
      }
      const Comparison right =
          compare_gradients(step.name + " in stages", arrays[0], expected, shape, report);
      for (size_t i = 0; i < times.size(); ++i)
        report.add_launch(step.stages[i].name, times[i], step.stages[i].cost(shape), right,
                          Report::Errors::kOfStep);

      // The step as a whole.
      arrays[0].clear();
      const Timing total =
          time_total(device, launch, copies, options.warmup, options.iterations, times);
      report.add_total(step.name, total, gradient_cost(shape),
                       compare_gradients(step.name, arrays[0], expected, shape, report));
    }
    for (size_t i = 1; i < steps.size(); ++i) report.add_ratio(steps[i].name, steps[i - 1].name);

    // The last step's gradients and picture.
    write_output(options, shape, arrays[0]);
    draw_photo(options, photo, steps.back(), report);
    return report.finish();
  });
}
