// Chapter 5: attention with 4 and with 8 warps a block that share the tiles of K and V, beside the
// kernel of chapter 4; and how many such blocks an SM has room for.
#include <cstdio>

#include "../../common/attention/program.h"
#include "../../common/lab.cuh"
#include "../../common/lab/program.h"
#include "../04_wmma/kernel.cuh"
#include "05_multi_warp/more_resident.cuh"  // variants/more_resident.diff
#include "kernel.cuh"
#include "variants/sixteen_warps.cuh"

namespace {

const char* const kChapter = "05_multi_warp";
const std::vector<lab::AttentionStep> kSteps = {
    {.name = "wmma", .attention = wmma_attention::attention, .tensor_cores = true},
    {.name = "4 warps", .attention = multi_warp::attention_with<4>, .tensor_cores = true},
    {.name = "8 warps", .attention = multi_warp::attention_with<8>, .tensor_cores = true},
    {.name = "16 warps",
     .attention = multi_warp::attention_with_16_warps,
     .tensor_cores = true,
     .variant = true},
    {.name = "24 resident",
     .attention = more_resident::attention,
     .tensor_cores = true,
     .variant = true}};

// Prints what limits the number of blocks on an SM.
template <int kWarps>
void print_occupancy(const AttentionShape& shape) {
  const multi_warp::Step step = multi_warp::step_for<kWarps>(shape.head_dim, shared_limit());
  const std::string name =
      std::to_string(kWarps) + " warps, " + std::to_string(step.key_tile) + " keys a tile";
  std::puts(lab::describe_occupancy(name, reinterpret_cast<const void*>(step.kernel), 32 * kWarps,
                                    step.shared_bytes)
                .c_str());
}

}  // namespace

int main(int argc, char** argv) {
  return lab::guarded_main(kChapter, [&] {
    // Flags and problem: Q, K and V of a photo, from a file or random.
    lab::AttentionOptions options = lab::attention_options(
        argc, argv, "Chapter 5: attention on the tensor cores, 4 and 8 warps a block.", kSteps);
    const std::vector<lab::AttentionStep> steps = lab::chosen_steps(options.step, kSteps);
    if (options.all) return lab::run_all(argc, argv, options);
    lab::AttentionInput input = lab::read_input(options);
    const lab::Device device = lab::open_device(options);
    const lab::AttentionProblem problem = lab::attention_problem(options, std::move(input), device);
    const AttentionShape& shape = problem.shape;

    // The reference on the CPU, and how near to it a result must be.
    const std::vector<double> expected = lab::expected_output(options, problem);
    const lab::Tolerance tolerance = lab::Tolerance::fp16_mean(lab::max_abs(problem.v));

    // Q, K, V and O on the device, in as many copies as it takes to keep the timing out of the L2.
    const int copies = lab::rotation_copies(device, lab::attention_cost(shape).bytes);
    std::vector<lab::AttentionArrays> arrays = lab::upload(problem, copies);

    // Each step: launched and timed, then compared.
    lab::Report report(lab::report_head(kChapter, options, device, problem));
    std::vector<half> output;
    for (const lab::AttentionStep& step : steps) {
      const auto launch = [&](int i, cudaStream_t stream) {
        lab::AttentionArrays& a = arrays[i % copies];
        step.attention(a.Q.data(), a.K.data(), a.V.data(), a.O.data(), shape, stream);
      };
      arrays[0].O.fill_nan();  // an element that is not written is wrong
      const lab::Timing time =
          lab::time_step(device, launch, copies, options.warmup, options.iterations);
      output = arrays[0].O.download();
      report.add(step.name, time, lab::attention_cost(shape, step.tensor_cores),
                 lab::compare_output(output, expected, tolerance, shape));
      if (step.variant) report.add_number(step.name, "variant", 1);
    }
    for (size_t i = 1; i < steps.size(); ++i) report.add_ratio(steps[i].name, steps[i - 1].name);

    // The last step's picture and output.
    lab::write_heat_map(options, problem, steps.back().attention, report);
    lab::write_output(options, shape, output);
    const lab::ExitCode code = report.finish();

    // How many blocks of 4 and of 8 warps an SM has room for, and why.
    std::puts("");
    print_occupancy<4>(shape);
    print_occupancy<8>(shape);
    return code;
  });
}
