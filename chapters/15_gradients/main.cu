// Chapter 15: the gradients of attention, in four steps, compared with the CPU reference.
#include "../../common/lab/progress.h"
#include "../../common/lab/steps.h"
#include "host/report.h"
#include "kernels.h"

using namespace lab;

namespace {

constexpr const char* kChapter = "15_gradients";

}  // namespace

int main(int argc, char** argv) {
  return guarded_main(kChapter, [&] {
    // Flags and problem: Q, K and V of a photo or random, and the gradient dO that arrives at O.
    GradientOptions options =
        gradient_options(argc, argv,
                         "Chapter 15: the gradients of attention, from P and dS in memory to "
                         "tensor cores and\nthe same bits twice.");
    const std::vector<gradients::Step> steps = chosen_steps(options.step, gradients::steps());
    const Device device = open_device(options);
    GradientProblem problem = gradient_problem(options, device, steps);
    const AttentionShape shape = problem.attention.shape;
    const int copies = rotation_copies(device, gradient_bytes(shape));
    std::vector<GradientArrays> arrays = upload(problem, copies);
    Report report(report_head(kChapter, options, device, problem));

    // The forward pass. With --predict any O and dO will do: they do not change how long a step takes.
    std::vector<half> O = problem.attention.v, d_o = O;
    std::vector<float> log_sum_exp(size_t(shape.rows()), 8.0f);
    GradientExpected expected;  // by the reference on the CPU; nothing with --predict
    if (!options.predict) {
      const Progress progress("forward pass");
      GradientArrays& a = arrays[0];
      a.O.fill_nan();  // an element that is not written is wrong
      a.log_sum_exp.fill_nan();
      const Launch forward = [&](int) {
        gradients::forward_pass(a.Q.data(), a.K.data(), a.V.data(), a.O.data(),
                                a.log_sum_exp.data(), shape, nullptr);
      };
      const Timing time = time_stages(device, {forward}, 0, 1)[0];
      O = a.O.download();
      log_sum_exp = a.log_sum_exp.download();
      if (!options.random) problem.d_o = distance_gradient(problem.attention, O);
      d_o = problem.d_o;
      expected = expected_gradients(problem);
      report.add_beside("forward", time, compare_forward(O, log_sum_exp, expected, shape));
    }
    for (GradientArrays& a : arrays)
      a.O.upload(O), a.dO.upload(d_o), a.log_sum_exp.upload(log_sum_exp);

    for (const gradients::Step& step : steps) {
      const Progress progress(step.name);
      DeviceArray<float> workspace(size_t(step.workspace_of(shape)), "workspace");
      const auto pointers = [&](int i) { return arrays[i % copies].pointers(workspace); };
      const auto clear = [&] {
        arrays[0].clear();
        if (!options.predict) workspace.fill_nan();
      };

      // Its launches one by one, each timed; what all of them left in dQ, dK and dV is compared.
      clear();
      std::vector<Launch> launches;
      for (const gradients::Launch& launch : step.launches)
        launches.push_back([&](int i) { launch.function(pointers(i), shape, nullptr); });
      const std::vector<Timing> times =
          time_stages(device, launches, options.warmup, options.iterations);
      const Comparison right = compare_gradients(step, arrays[0], expected, shape, report);
      for (size_t i = 0; i < launches.size(); ++i)
        report.add_launch(step.launches[i].name, times[i], {}, right, Report::Errors::kOfStep);

      // The step as a whole, a second time: with the same bits?
      const std::vector<half> dQ = arrays[0].dQ.download();
      clear();
      const auto run = [&](int i, cudaStream_t stream) {
        gradients::run(step, pointers(i), shape, stream);
      };
      const Timing total =
          time_total(device, run, copies, options.warmup, options.iterations, times);
      report.add_total(step.name, total, gradient_cost(shape, step.tensor_cores),
                       compare_gradients(step, arrays[0], expected, shape, report));
      if (!options.predict) note_changed(step, dQ, arrays[0].dQ.download(), device, report);
    }
    for (size_t i = 1; i < steps.size(); ++i) report.add_ratio(steps[i].name, steps[i - 1].name);
    write_output(options, shape, arrays[0]);
    draw_keys(options, problem, steps.back(), arrays[0], report);
    return report.finish();
  });
}
