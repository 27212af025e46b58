// Chapter 9: the patches of a photo become the tokens of a Vision Transformer, in six steps on one
// problem, compared with the CPU reference.
#include "../../common/lab/progress.h"
#include "../../common/lab/steps.h"
#include "../../common/lab/timing.h"
#include "host/report.h"
#include "ladder.cuh"

using namespace patch_embedding;

constexpr const char* kChapter = "09_patch_embedding";

int main(int argc, char** argv) {
  return lab::guarded_main(kChapter, [&] {
    // Flags and problem: a photo's patches under random filters, in host memory.
    PatchOptions options = patch_options(argc, argv,
                                         "Chapter 9: the patches of a photo become tokens, from a "
                                         "launch for every 16 pixels\nto one for all of them.");
    const std::vector<Step> steps = lab::chosen_steps(options.step, steps_of(options.streams));
    const lab::Image photo = lab::load_image(options.image);
    const lab::Device device = lab::open_device(options);
    const Problem problem = photo_problem(options, photo, device);
    const Shape& shape = problem.shape;
    const double all_outputs = double(whole(shape).outputs());

    HostArrays arrays(problem, options.part());
    lab::Report report(report_head(kChapter, options, device, problem));
    std::vector<AllTokens> all_tokens;
    for (const Step& step : steps) {
      // From host memory to host memory, the step's device memory taken before: timed, then compared.
      const auto time = [&](const Part& part) {
        const lab::Progress progress(step.name);
        const std::function<void()> program = step.prepare(arrays, shape, part);
        return lab::time_program(device, program, options.warmup, options.iterations);
      };
      const Part part = step.whole ? whole(shape) : options.part();
      arrays.tokens.fill_nan();  // an element that is not written is wrong
      const lab::Timing timing = time(part);
      report.add(step.name, timing, tokens_cost(shape, part),
                 options.predict ? lab::Comparison::none() : compare_tokens(arrays, problem, part));

      // A step that ran on a part: the time of all, in a straight line from that part and half of it.
      double us = lab::microseconds(device, timing);
      if (!step.whole) {
        const Part less{part.images, part.patches / 2, part.channels};
        const double less_us = less.patches == 0 ? 0 : lab::microseconds(device, time(less));
        const double us_an_output = (us - less_us) / double(part.outputs() - less.outputs());
        us += us_an_output * (all_outputs - double(part.outputs()));
      }
      all_tokens.push_back({step.name, step.traffic(shape, whole(shape)), us});
      add_all_tokens(all_tokens.back(), double(part.outputs()) / all_outputs, report);
    }
    note_all_tokens(all_tokens, options, shape, device.is_virtual, report);
    if (steps.back().whole) write_results(options, problem, arrays, report);
    return report.finish();
  });
}
