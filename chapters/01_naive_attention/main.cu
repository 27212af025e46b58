// Chapter 1: attention of a photo's patches by three kernels. Each is run once and compared with
// the CPU reference, then timed; the heat map is read off the kernels.
#include <algorithm>
#include <optional>

#include "../../common/attention/program.h"
#include "../../common/attention/reference.h"
#include "../../common/lab.cuh"
#include "../../common/lab/program.h"
#include "kernel.cuh"
#include "swapped_lanes.cuh"

namespace {

// The score matrix of the timed launches; attention() takes a second one for itself.
int64_t scratch_bytes(const AttentionShape& shape) { return 4 * shape.scores(); }

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

// What is right: O for all heads, scores and weights for the first (batch, head).
struct Expected {
  std::vector<double> output, scores, weights;
  lab::Tolerance of_output, of_scores, of_weights;

  explicit Expected(const lab::AttentionProblem& problem) {
    const AttentionShape& shape = problem.shape;
    const int64_t N = shape.tokens, D = shape.head_dim;
    const std::vector<float> q = lab::to_float(problem.q), k = lab::to_float(problem.k),
                             v = lab::to_float(problem.v);
    output.resize(shape.elements()), scores.resize(N * N), weights.resize(N * N);
    reference::attention(q.data(), k.data(), v.data(), shape, output.data());
    reference::attention_head(q.data(), k.data(), v.data(), N, D, shape.scale, scores.data(),
                              weights.data(), nullptr);
    const double max_score = largest(scores);
    of_scores = lab::Tolerance::fp32_sum(D, max_score);
    of_weights = lab::Tolerance::softmax(D, N, max_score);
    of_output = lab::Tolerance::fp16_mean(std::abs(*std::max_element(
        v.begin(), v.end(), [](float a, float b) { return std::abs(a) < std::abs(b); })));
  }
};

lab::ExitCode chapter(const lab::Run& run) {
  const lab::AttentionProblem& problem = run.problem;
  const lab::LadderStep& step = run.steps[0];
  const auto launch_scores =
      step.variant ? swapped_lanes::launch_scores : naive_attention::launch_scores;
  const AttentionShape& shape = problem.shape;
  const int64_t B = shape.batch, H = shape.heads, N = shape.tokens, D = shape.head_dim;

  // The arrays, in several copies: timed launches take them in turn and find none in the L2.
  const double bytes = 8.0 * shape.elements() + 4.0 * shape.scores();
  const int copies = lab::rotation_copies(run.device, bytes);
  std::vector<lab::AttentionArrays> arrays = lab::upload(problem, copies);
  std::vector<lab::DeviceArray<float>> scores;  // each [batch, heads, tokens, tokens]
  for (int i = 0; i < copies; ++i) scores.emplace_back(shape.scores(), "scores");
  scores[0].fill_nan();

  const std::vector<lab::Launch> kernels = {
      [&](int i) {
        const lab::AttentionArrays& a = arrays[i % copies];
        launch_scores(a.Q.data(), a.K.data(), scores[i % copies].data(), shape, 0);
      },
      [&](int i) { naive_attention::launch_softmax(scores[i % copies].data(), shape, 0); },
      [&](int i) {
        lab::AttentionArrays& a = arrays[i % copies];
        naive_attention::launch_values(scores[i % copies].data(), a.V.data(), a.O.data(), shape, 0);
      }};
  const lab::StepLaunch whole_step = [&](int i, cudaStream_t stream) {
    lab::AttentionArrays& a = arrays[i % copies];
    step.attention(a.Q.data(), a.K.data(), a.V.data(), a.O.data(), shape, stream);
  };

  // Right or wrong, step by step; with --predict nothing is compared.
  const lab::AttentionOptions& options = run.options;
  std::optional<Expected> expected;
  lab::Comparison scores_right = lab::Comparison::none(), softmax_right = scores_right,
                  values_right = scores_right;
  const auto output_right = [&](const std::vector<half>& output) {
    return expected ? lab::compare(output, expected->output, expected->of_output, {B, H, N, D})
                    : lab::Comparison::none();
  };
  if (!options.predict) {
    expected.emplace(problem);
    kernels[0](0);
    lab::check(cudaGetLastError());
    scores_right =
        lab::compare(scores[0].download(0, N * N), expected->scores, expected->of_scores, {N, N});
    kernels[1](0);
    lab::check(cudaGetLastError());
    softmax_right =
        lab::compare(scores[0].download(0, N * N), expected->weights, expected->of_weights, {N, N});
    kernels[2](0);
    lab::check(cudaGetLastError());
    values_right = output_right(arrays[0].O.download());
  }

  // How long: the kernels one after the other, then the step as its users call it. The output is
  // compared again afterwards.
  const std::vector<lab::Timing> timings =
      lab::time_stages(run.device, kernels, options.warmup, options.iterations);
  arrays[0].O.fill_nan();
  const lab::Timing total =
      lab::time_total(run.device, whole_step, copies, options.warmup, options.iterations, timings);
  const std::vector<half> output = arrays[0].O.download();

  // Least traffic of each kernel, and of attention itself, which needs no score matrix.
  const double io = 2.0 * shape.elements(), matrix = 4.0 * shape.scores();
  const double multiply_adds = double(shape.scores()) * D;
  lab::Report report(run.head());
  const auto own = lab::Report::Errors::kOfLaunch;
  report.add_launch("scores", timings[0], {2 * io + matrix, 2 * multiply_adds}, scores_right, own);
  report.add_launch("softmax", timings[1], {2 * matrix, 0}, softmax_right, own);
  report.add_launch("values", timings[2], {2 * io + matrix, 2 * multiply_adds}, values_right, own);
  report.add_total(step.name, total, {4 * io, 4 * multiply_adds}, output_right(output));
  if (step.variant) report.add_number(step.name, "variant", 1);
  if (expected)
    report.note("scores and softmax are compared in the first head, values and " + step.name +
                " everywhere.");
  lab::write_outputs(run, step.attention, output, report);
  return report.finish();
}

}  // namespace

int main(int argc, char** argv) {
  return lab::attention_main(
      argc, argv,
      {"01_naive_attention",
       "Chapter 1: attention in three naive kernels, one thread per result.",
       scratch_bytes,
       chapter,
       {{.name = "attention", .attention = naive_attention::attention},
        {.name = "swapped lanes", .attention = swapped_lanes::attention, .variant = true}}});
}
