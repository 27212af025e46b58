// Chapter 7: multi-scale deformable attention in six steps on one problem, compared with the CPU
// reference; the last one also finds the directions in a photo.
#include "../../common/lab/progress.h"
#include "host/report.h"
#include "kernels.h"

using namespace lab;

constexpr const char* kChapter = "07_persistent_deformable_attention";

int main(int argc, char** argv) {
  return guarded_main(kChapter, [&] {
    // Flags, and the problem: a file's tensors or random ones. The photo is for the last step.
    DeformableOptions options =
        deformable_options(argc, argv,
                           "Chapter 7: multi-scale deformable attention, from a thread for each "
                           "output to persistent blocks.");
    const bool random = options.input.empty();
    DeformableProblem problem;
    if (!random) problem = input_deformable(options.input);
    const Image photo = options.draws ? load_image(options.image) : Image{};

    const Device device = open_device(options);
    std::vector<std::string> left_out;  // steps that need what the device has not
    const std::vector<DeformableStep> steps =
        runnable_steps(options.step, persistent_deformable_attention::steps(), left_out);

    if (random) problem.shape = options.random_shape();
    const DeformableShape shape = problem.shape;
    require_deformable_shape(shape);
    const int copies = copies_in_memory(device, shape);
    if (random) {
      const Progress progress("making the problem");
      problem = random_deformable(shape, options.distribution, options.seed);
    }

    // The reference on the CPU, then the arrays on the device, in copies that do not stay in the L2.
    Report report(report_head(kChapter, options, device, problem));
    const std::vector<double> expected = expected_output(options, problem);
    const Tolerance tolerance = Tolerance::fp16_mean(max_abs(problem.value));  // a weighted mean
    std::vector<DeformableArrays> arrays = upload(problem, copies, device.is_virtual);

    // Each step: launched and timed, then compared.
    StepCounters counters;
    std::vector<half> out;
    for (const DeformableStep& step : steps) {
      arrays[0].out.fill_nan();  // an element that is not written is wrong
      const bool once = device.is_virtual && options.warmup + options.iterations == 1;
      const Progress progress(step.name, share_written(arrays[0], once));
      const auto launch = [&](int i, cudaStream_t stream) {
        DeformableArrays& a = arrays[i % copies];
        step.function(a.value.data(), a.locations.data(), a.weights.data(), a.out.data(), shape,
                      stream);
      };
      const Timing time = time_step(device, launch, copies, options.warmup, options.iterations);
      counters.read(step.name);
      out = arrays[0].out.download();
      report.add(step.name, time, deformable_cost(shape),
                 compare_output(out, expected, tolerance, shape));
      if (step.variant) report.add_number(step.name, "variant", 1);
    }

    // What the table does not say, and the last step's output and picture.
    add_ratios(steps, counters, report);
    for (const std::string& why : left_out) report.note(why);
    if (!options.predict) note_intensity(device, shape, counters, report);
    if (options.profile && !options.predict) add_hit_rates(steps, shape, options.seed, report);
    write_output(options.output, shape, out);
    if (options.draws) draw_photo(steps.back(), photo, options, report);
    return report.finish();
  });
}
