// Chapter 1: attention of a photo's patches by three kernels. Each is run once and compared with
// the CPU reference, then timed; the heat map is read off the kernels.
#include "../../common/attention/program.h"
#include "../../common/attention/reference.h"
#include "../../common/lab.cuh"
#include "../../common/lab/program.h"
#include "kernel.cuh"
#include "variants/swapped_lanes.cuh"

namespace {

const char* const kChapter = "01_naive_attention";
const std::vector<lab::AttentionStep> kSteps = {
    {.name = "attention", .attention = naive_attention::attention},
    {.name = "swapped lanes", .attention = swapped_lanes::attention, .variant = true}};

}  // namespace

int main(int argc, char** argv) {
  return lab::guarded_main(kChapter, [&] {
    // Flags and problem: Q, K and V of a photo, from a file or random.
    lab::AttentionOptions options = lab::attention_options(
        argc, argv, "Chapter 1: attention in three naive kernels, one thread per result.", kSteps);
    const lab::AttentionStep step = lab::chosen_steps(options.step, kSteps).front();
    if (options.all) return lab::run_all(argc, argv, options);
    lab::AttentionInput input = lab::read_input(options);
    const lab::Device device = lab::open_device(options);
    const lab::AttentionProblem problem =
        lab::attention_problem(options, std::move(input), device, sizeof(float));
    const AttentionShape& shape = problem.shape;

    // The reference on the CPU, and how near to it a result must be.
    const std::vector<double> expected = lab::expected_output(options, problem);
    const lab::Tolerance tolerance = lab::Tolerance::fp16_mean(lab::max_abs(problem.v));

    // The arrays on the device, in as many copies as it takes to keep the timing out of the L2.
    const double q_bytes = 2.0 * shape.elements(), score_bytes = 4.0 * shape.scores();
    const int copies = lab::rotation_copies(device, 4 * q_bytes + score_bytes);
    std::vector<lab::AttentionArrays> arrays = lab::upload(problem, copies);
    std::vector<lab::DeviceArray<float>> scores;  // each [batch, heads, tokens, tokens]
    for (int i = 0; i < copies; ++i) scores.emplace_back(shape.scores(), "scores");

    // The three launches one by one, and the step as its users call it.
    const auto launch_scores = step.attention == swapped_lanes::attention
                                   ? swapped_lanes::launch_scores
                                   : naive_attention::launch_scores;
    const std::vector<lab::Launch> launches = {
        [&](int i) {
          const lab::AttentionArrays& a = arrays[i % copies];
          launch_scores(a.Q.data(), a.K.data(), scores[i % copies].data(), shape, 0);
        },
        [&](int i) { naive_attention::launch_softmax(scores[i % copies].data(), shape, 0); },
        [&](int i) {
          lab::AttentionArrays& a = arrays[i % copies];
          naive_attention::launch_values(scores[i % copies].data(), a.V.data(), a.O.data(), shape,
                                         0);
        }};
    const auto launch_step = [&](int i, cudaStream_t stream) {
      lab::AttentionArrays& a = arrays[i % copies];
      step.attention(a.Q.data(), a.K.data(), a.V.data(), a.O.data(), shape, stream);
    };

    // Right or wrong, launch by launch: scores and their softmax in the first head, O everywhere.
    lab::Comparison scores_right = lab::Comparison::none(), softmax_right = scores_right,
                    values_right = scores_right;
    if (!options.predict) {
      const int N = shape.tokens, D = shape.head_dim;
      std::vector<double> head_scores(size_t(N) * N), head_weights(size_t(N) * N);
      reference::attention_head(lab::to_float(problem.q).data(), lab::to_float(problem.k).data(),
                                lab::to_float(problem.v).data(), N, D, shape.scale,
                                head_scores.data(), head_weights.data(), nullptr);
      const double max_score = lab::max_abs(head_scores);

      scores[0].fill_nan();  // an element that is not written is wrong
      launches[0](0);
      lab::check(cudaGetLastError());
      scores_right = lab::compare(scores[0].download(0, head_scores.size()), head_scores,
                                  lab::Tolerance::fp32_sum(D, max_score), {N, N});
      launches[1](0);
      lab::check(cudaGetLastError());
      softmax_right = lab::compare(scores[0].download(0, head_weights.size()), head_weights,
                                   lab::Tolerance::softmax(D, N, max_score), {N, N});
      launches[2](0);
      lab::check(cudaGetLastError());
      values_right = lab::compare_output(arrays[0].O.download(), expected, tolerance, shape);
    }

    // How long: the launches one by one, then the whole step, whose output is compared once more.
    const std::vector<lab::Timing> times =
        lab::time_stages(device, launches, options.warmup, options.iterations);
    arrays[0].O.fill_nan();
    const lab::Timing time =
        lab::time_total(device, launch_step, copies, options.warmup, options.iterations, times);
    const std::vector<half> output = arrays[0].O.download();

    // Each line with its least traffic and its operations. Attention itself needs no score matrix.
    const double flops = 2.0 * shape.scores() * shape.head_dim;  // for Q Kᵀ, as for weights V
    lab::Report report(lab::report_head(kChapter, options, device, problem));
    const auto own = lab::Report::Errors::kOfLaunch;
    report.add_launch("scores", times[0], {2 * q_bytes + score_bytes, flops}, scores_right, own);
    report.add_launch("softmax", times[1], {2 * score_bytes, 0}, softmax_right, own);
    report.add_launch("values", times[2], {2 * q_bytes + score_bytes, flops}, values_right, own);
    report.add_total(step.name, time, lab::attention_cost(shape),
                     lab::compare_output(output, expected, tolerance, shape));
    if (step.variant) report.add_number(step.name, "variant", 1);
    if (!options.predict)
      report.note("scores and softmax are compared in the first head, values and " + step.name +
                  " everywhere.");

    lab::write_heat_map(options, problem, step.attention, report);
    lab::write_output(options, shape, output);
    return report.finish();
  });
}
