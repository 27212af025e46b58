// What the programs of chapters 2 to 6 share: some steps of the ladder on one problem.
#include <algorithm>
#include <cmath>

#include "inputs.h"
#include "lab.cuh"
#include "lab/errors.h"
#include "lab/files.h"
#include "lab/report.h"
#include "program.h"
#include "reference.h"

namespace lab {

ReportHead Run::head() const {
  const AttentionShape& shape = problem.shape;
  const float scale = shape.scale;
  return {chapter,
          options,
          device,
          problem.source,
          describe(shape) + format(", scale %g", double(scale)),
          {{"batch", shape.batch},
           {"heads", shape.heads},
           {"tokens", shape.tokens},
           {"head_dim", shape.head_dim}},
          {{"scale", format("%.17e", double(scale))}}};
}

std::vector<LadderStep> chosen_steps(const std::string& name,
                                     const std::vector<LadderStep>& steps) {
  std::vector<LadderStep> chosen;
  std::string names;
  for (const LadderStep& step : steps) {
    names += (names.empty() ? "" : &step == &steps.back() ? " or " : ", ") + step.name;
    if (name.empty() ? !step.variant : name == step.name) chosen.push_back(step);
  }
  if (chosen.empty()) throw UsageError("--step '" + name + "': must be " + names);
  return chosen;
}

ExitCode run_ladder(const Run& run) { return run_ladder(run, run.steps); }

ExitCode run_ladder(const Run& run, const std::vector<LadderStep>& all_steps) {
  const std::vector<LadderStep> steps = chosen_steps(run.options.step, all_steps);
  const AttentionProblem& problem = run.problem;
  const AttentionShape& shape = problem.shape;
  const AttentionOptions& options = run.options;

  // What the kernels work on, in as many copies as it takes to keep the timing out of the L2.
  const int copies = rotation_copies(run.device, 8.0 * shape.elements());
  std::vector<AttentionArrays> arrays = upload(problem, copies);

  std::vector<double> expected;
  float max_value = 0;
  if (!options.predict) {
    const std::vector<float> q = to_float(problem.q), k = to_float(problem.k),
                             v = to_float(problem.v);
    expected.resize(shape.elements());
    reference::attention(q.data(), k.data(), v.data(), shape, expected.data());
    for (const float value : v) max_value = std::max(max_value, std::abs(value));
  }
  const auto compared = [&](const std::vector<half>& output) {
    return options.predict ? Comparison::none()
                           : compare(output, expected, Tolerance::fp16_mean(max_value),
                                     {shape.batch, shape.heads, shape.tokens, shape.head_dim});
  };

  // Least traffic and arithmetic of attention, whatever a step makes of it.
  const double bytes = 8.0 * shape.elements(), flops = 4.0 * shape.scores() * shape.head_dim;
  Report report(run.head());
  std::vector<half> output;
  for (const LadderStep& step : steps) {
    // Where attention is several launches, each has a line, and attention() is their total. What
    // all of them left in O is compared.
    std::vector<Launch> stages;
    std::vector<Timing> timings;
    for (const auto& stage : step.stages)
      stages.push_back([&](int i) { stage.second(arrays[i % copies]); });
    if (!stages.empty()) {
      arrays[0].O.fill_nan();
      timings = time_stages(run.device, stages, options.warmup, options.iterations);
      const Comparison right = compared(arrays[0].O.download());
      for (size_t i = 0; i < stages.size(); ++i)
        report.add_launch(step.stages[i].first, timings[i], {}, right, Report::Errors::kOfStep);
    }

    arrays[0].O.fill_nan();
    const StepLaunch whole = [&](int i, cudaStream_t stream) {
      AttentionArrays& a = arrays[i % copies];
      step.attention(a.Q.data(), a.K.data(), a.V.data(), a.O.data(), shape, stream);
    };
    const Timing timing =
        stages.empty()
            ? time_step(run.device, whole, copies, options.warmup, options.iterations)
            : time_total(run.device, whole, copies, options.warmup, options.iterations, timings);
    output = arrays[0].O.download();
    const Cost cost{bytes, flops, step.tensor_cores};
    if (stages.empty())
      report.add(step.name, timing, cost, compared(output));
    else
      report.add_total(step.name, timing, cost, compared(output));
    if (step.variant) report.add_number(step.name, "variant", 1);
  }
  for (size_t i = 1; i < steps.size(); ++i) report.add_ratio(steps[i].name, steps[i - 1].name);
  write_outputs(run, steps.back().attention, output, report);
  return report.finish();
}

std::string describe_occupancy(const std::string& name, const void* kernel, int threads,
                               int shared_bytes) {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, kernel));
  if (shared_bytes > 48 * 1024)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  int blocks = 0, most_threads = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes));
  check(cudaDeviceGetAttribute(&most_threads, cudaDevAttrMaxThreadsPerMultiProcessor, 0));
  return format("%s: %d registers, %s shared: an SM holds %d block%s, %d of %d warps", name.c_str(),
                attributes.numRegs,
                human_bytes(double(attributes.sharedSizeBytes) + shared_bytes).c_str(), blocks,
                blocks == 1 ? "" : "s", blocks * threads / 32, most_threads / 32);
}

}  // namespace lab
