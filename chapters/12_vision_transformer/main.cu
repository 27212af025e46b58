// Chapter 12, the Vision Transformer: the whole net on a photo, one component after the other, each by a
// step of your choice and compared with the CPU reference.
#include "../../common/lab.cuh"
#include "host/projection.h"
#include "host/report.h"

using namespace lab;
using namespace vision_transformer;

namespace {

constexpr const char* kChapter = "12_vision_transformer";

}  // namespace

int main(int argc, char** argv) {
  return guarded_main(kChapter, [&] {
    // Flags. The step `inside` can also be compared alone, with what it takes the place of.
    NetOptions options = net_options(argc, argv, "Chapter 12: a Vision Transformer on a photo.");
    if (options.projection) return compare_projection(kChapter, options);

    // The net, trained or random, and the photo. What memory it takes is known before any is taken.
    NetProblem problem = net_problem(options);
    const Device device = open_device(options);
    require_net_memory(options, problem, device);
    fill(problem, options);

    // The reference of the whole net on the CPU.
    ExpectedLogits expected;  // nothing with --predict
    if (!options.predict) expected = expected_logits(problem);

    // On the device: the weights, and in one planned allocation all arrays between two launches.
    NetRun run(problem.shape, problem.weights.parameters, options.components);
    run.set_image(problem.image);
    DeviceArray<float> scores(run.stored_scores(), "scores");
    Report report(report_head(kChapter, options, device, problem, run));

    // Each stage in its order: launched, timed, compared with the reference of what it read. On the
    // virtual GPU the first stage of a component is predicted and the others are like it; a GPU is timed
    // when all are right.
    std::vector<Line> lines = lines_of(run);
    Launches all;
    DrawnBlock drawn{options.block < 0 ? problem.shape.blocks - 1 : options.block, {}, {}};
    {
      StageProgress progress(run);
      for (const Stage& stage : run.stages()) {
        const Launches own = launches_of(run, stage, scores.data(), lines);
        if (options.predict && !own.first) continue;
        all.add(own);
        if (device.is_virtual)
          own.add_timings(
              time_stages(device, own.launches, options.warmup, options.iterations, own.first));
        else
          own.run();
        if (!options.predict) {
          const Comparison right = compare_stage(run, problem.weights.parameters, stage);
          for (Line* line : own.lines) keep_worst(line->comparison, right);
          see_block(run, stage, drawn);
        }
        progress.done(stage);
      }
    }
    if (!device.is_virtual)
      all.add_timings(time_stages(device, all.launches, options.warmup, options.iterations));
    const std::vector<half> logits = run.logits();

    // One line a component, then the net as a whole.
    for (const Line& line : lines)
      report.add_launch(line.component, line.timing, line.cost, line.comparison,
                        line.of_several ? Report::Errors::kOfStep : Report::Errors::kOfLaunch,
                        int(line.stages.size()));
    Timing total = sum_of_timings(lines);
    if (!device.is_virtual)
      total = time_step(
          device, [&](int, cudaStream_t stream) { run.forward(stream); }, 1, options.warmup,
          options.iterations);
    report.add_total("net", total, cost_of_net(run),
                     compare_logits(logits, expected, problem.shape));
    note_rate(lines, options.batch, device, total, report);
    note_memory(run, options, report);

    // The CUDA graph, the picture, the classes.
    if (!options.predict) {
      if (options.graph) check_graph(run, logits, report);
      draw_attention(options, problem, drawn, run, report);
      note_classes(options, problem, logits, report);
      write_output(options, problem.shape, logits);
    }
    return report.finish();
  });
}
