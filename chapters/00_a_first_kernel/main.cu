// Chapter 0: a photo becomes grey, its brightness is added up, and it is blurred; each step by a kernel
// of its own, compared with the CPU reference.
#include <cmath>

#include "../../common/lab/progress.h"
#include "../../common/lab/steps.h"
#include "../../common/lab/timing.h"
#include "1_whole_way.cuh"
#include "2_grey_columns.cuh"
#include "3_grey_rows.cuh"
#include "4_race.cuh"
#include "5_sum_threads.cuh"
#include "6_sum_blocks.cuh"
#include "7_blur.cuh"
#include "8_blur_tile.cuh"
#include "host/report.h"
#include "variants/sum_serial.cuh"

using namespace lab;

namespace {

constexpr const char* kChapter = "00_a_first_kernel";

// Each step makes one of three results: the grey photo, the sum of it, the blurred photo.
const std::vector<PhotoStep> kSteps = {
    {.name = "grey columns", .grey = first_kernel::grey_columns},
    {.name = "grey rows", .grey = first_kernel::grey_rows, .before = "grey columns"},
    {.name = "sum threads", .sum = first_kernel::sum_threads},
    {.name = "sum blocks", .sum = first_kernel::sum_blocks, .before = "sum threads"},
    {.name = "blur", .blur = first_kernel::blur},
    {.name = "blur tile", .blur = first_kernel::blur_tile, .before = "blur"},
    {.name = "sum serial", .sum = first_kernel::sum_serial, .variant = true},
    {.name = "race", .sum = first_kernel::race, .variant = true},
};

}  // namespace

int main(int argc, char** argv) {
  return guarded_main(kChapter, [&] {
    // Flags and problem: a photo or random pixels.
    PhotoOptions options = photo_options(argc, argv,
                                         "Chapter 0: the first kernels. A photo becomes grey, its "
                                         "mean brightness is found, it is\nblurred.");
    const std::vector<PhotoStep> steps = chosen_steps(options.step, kSteps);
    const bool all = options.step.empty();
    const Device device = open_device(options);
    const PhotoProblem problem = photo_problem(options, device);
    const PhotoShape& shape = problem.shape;

    // The reference on the CPU; with --predict nothing is compared.
    Report report(report_head(kChapter, options, device, problem));
    const PhotoExpected expected = options.predict ? PhotoExpected{} : expected_results(problem);

    // The arrays on the device, in as many copies as it takes to keep the timing out of the L2.
    const int copies = rotation_copies(device, photo_bytes(shape));
    std::vector<PhotoArrays> arrays = upload(problem, copies);
    if (!all && !steps[0].grey && !options.predict)  // the input, which no other step makes
      for (PhotoArrays& a : arrays) a.grey.upload(expected.grey);

    // Each step: launched and timed, then compared.
    double grey_us = std::nan("");
    for (const PhotoStep& step : steps) {
      const Progress progress(step.name);
      const auto launch = [&](int i, cudaStream_t stream) {
        PhotoArrays& a = arrays[i % copies];
        if (step.grey) step.grey(a.photo.data(), a.grey.data(), shape, stream);
        if (step.sum) step.sum(a.grey.data(), a.sum.data(), shape, stream);
        if (step.blur) step.blur(a.grey.data(), a.blurred.data(), shape, stream);
      };
      if (step.grey) arrays[0].grey.fill_nan();  // an element that is not written is wrong
      if (step.sum) arrays[0].sum.fill_nan();
      if (step.blur) arrays[0].blurred.fill_nan();
      const Timing time = time_step(device, launch, copies, options.warmup, options.iterations);
      report.add(step.name, time, step_cost(step, shape),
                 compare_result(step, arrays[0], expected, shape));
      if (step.variant) report.add_number(step.name, "variant", 1);
      if (all && !step.before.empty()) report.add_ratio(step.name, step.before);
      if (!step.grey) continue;
      grey_us = microseconds(device, time);
      // The steps behind it read grey in every copy, whichever of them were timed.
      for (int i = 1; i < copies && !options.predict; ++i) launch(i, nullptr);
    }

    // The mean, and grey once more, all the way from the host's memory and back.
    if (all && !options.predict) {
      note_mean(arrays[0].sum.download()[0], shape, report);
      std::vector<unsigned char> grey(expected.grey.size());
      const double us = call_us(
          device, [&] { first_kernel::grey_of_host(problem.photo.data(), grey.data(), shape); });
      report.require(grey == expected.grey, "the whole way gives another grey");
      note_whole_way(us, grey_us, report);
    }
    write_results(options, problem, arrays[0], report);
    return report.finish();
  });
}
