// Chapter 2: attention of a photo's patches by one kernel, beside the three of chapter 1.
#include "../../common/attention/program.h"
#include "../../common/lab.cuh"
#include "../01_naive_attention/kernel.cuh"
#include "kernel.cuh"
#include "two_passes.cuh"

namespace {

// The score matrix of chapter 1.
int64_t scratch_bytes(const AttentionShape& shape) { return 4 * shape.scores(); }

lab::ExitCode chapter(const lab::Run& run) {
  const AttentionShape& shape = run.problem.shape;
  lab::DeviceArray<float> scores(shape.scores(), "scores");  // [batch, heads, tokens, tokens]
  const auto launch_scores = [&](lab::AttentionArrays& a) {
    naive_attention::launch_scores(a.Q.data(), a.K.data(), scores.data(), shape, 0);
  };
  const auto launch_softmax = [&](lab::AttentionArrays&) {
    naive_attention::launch_softmax(scores.data(), shape, 0);
  };
  const auto launch_values = [&](lab::AttentionArrays& a) {
    naive_attention::launch_values(scores.data(), a.V.data(), a.O.data(), shape, 0);
  };
  std::vector<lab::LadderStep> steps = run.steps;
  if (steps[0].name == "naive")
    steps[0].stages = {
        {"scores", launch_scores}, {"softmax", launch_softmax}, {"values", launch_values}};
  return lab::run_ladder(run, steps);
}

}  // namespace

int main(int argc, char** argv) {
  return lab::attention_main(
      argc, argv,
      {"02_tiling",
       "Chapter 2: attention in one kernel, tile by tile in shared memory.",
       scratch_bytes,
       chapter,
       {{.name = "naive", .attention = naive_attention::attention},
        {.name = "tiling", .attention = tiling::attention},
        {.name = "two passes", .attention = two_passes::attention, .variant = true}}});
}
