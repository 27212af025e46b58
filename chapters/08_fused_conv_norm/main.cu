// Chapter 8: convolution + instance norm + ReLU on one problem, from three passes over memory to one,
// compared with the CPU reference; then instance norm alone.
#include "host/launches.cuh"
#include "host/report.h"
#include "kernels/instances.cuh"  // steps 1 to 4

using namespace lab;
using namespace fused_conv_norm;

namespace {

constexpr const char* kChapter = "08_fused_conv_norm";
const std::vector<ConvNormStep> kSteps = {
    {"three passes", three_passes, three_passes_launches},
    {"fused", fused<Fp32Tiles>, fused_launches<Fp32Tiles>, describe_plan<Fp32Tiles>},
    {"fused tf32", tensor_fused<kTf32>, fused_launches<TensorTiles<kTf32>>,
     describe_plan<TensorTiles<kTf32>>, "tf32", lacking<kTf32>},
    {"fused fp16", tensor_fused<kFp16>, fused_launches<TensorTiles<kFp16>>,
     describe_plan<TensorTiles<kFp16>>, "fp16", lacking<kFp16>},
    {"half storage", HalfConvNorm{packed_elements, pack_weights, half_fused}, half_launches,
     describe_plan<HalfTiles>, "fp16", lacking<kFp16>},
    {.name = "two passes",
     .function = two_passes<Fp32Tiles>,
     .launches = two_passes_launches,
     .variant = true}};
const std::vector<NormStep> kNorms = {{"naive norm", naive_norm},
                                      {"warp norm", warp_reduced_norm},
                                      {"vector norm", vectorized_norm},
                                      {"one-read norm", one_read_norm}};

}  // namespace

int main(int argc, char** argv) {
  return guarded_main(kChapter, [&] {
    // Flags, and the problem: a file's tensors, a photo under its filters or random numbers.
    ConvNormOptions options = conv_norm_options(
        argc, argv,
        "Chapter 8: convolution, instance norm and ReLU, from three passes over memory to one;\n"
        "with --precision, on tensor cores; with --storage, on arrays in fp16. (A network of such\n"
        "layers, which repaints a photo, is chapter 20.)");
    const std::vector<ConvNormStep> chosen = chosen_steps(options, kSteps);
    ConvNormProblem problem = conv_norm_input(options);
    const ConvNormShape shape = problem.shape;
    const Device device = open_device(options);
    require_runnable(options, chosen);
    const HalfConvNorm half_step = chosen.back().in_fp16();  // no functions unless --storage fp16
    const int copies = copies_in_memory(device, shape, half_step);
    problem = conv_norm_problem(options, std::move(problem));

    // The reference on the CPU, then the arrays on the device, in copies that do not stay in the L2.
    Report report(report_head(kChapter, options, device, problem));
    const ConvNormExpected expected = expected_output(options, problem);
    std::vector<ConvNormArrays> arrays = upload(problem, copies, half_step);
    ConvNormArrays& checked = arrays[0];

    std::vector<float> y;
    for (const ConvNormStep& step : chosen) {
      // Weights in fp16 are packed beforehand, once for a network.
      if (step.half_storage())
        for (ConvNormArrays& a : arrays) a.pack(step.in_fp16(), shape);

      // The step as a whole: launched and timed, then compared. (--predict adds up its launches.)
      const auto run = [&](int i, cudaStream_t stream) {
        step.run(arrays[i % copies], shape, stream);
      };
      step.fill_result_with_nan(checked);  // an element that is not written is wrong
      Timing whole = step.launches(shape).empty()
                         ? time_step(device, run, copies, options.warmup, options.iterations)
                         : time_total(device, run, copies, options.warmup, options.iterations, {});
      y = step.result(checked);
      const Comparison right = compare_output(step, y, expected, shape);

      // Its launches, each timed alone; none where it is one launch, which the device may have refused.
      std::vector<Launch> launches;
      const auto named = step.launches(shape);
      for (const ConvNormStep::NamedLaunch& launch : named)
        launches.push_back([&](int i) { launch.second(arrays[i % copies]); });
      const Cost cost =
          conv_norm_cost(shape, checked.has_residual, step.precision, step.half_storage() ? 2 : 4);
      std::vector<Timing> times = {whole};
      if (launches.empty()) {
        report.add(step.name, whole, cost, right);
      } else {
        step.fill_result_with_nan(checked);
        times = time_stages(device, launches, options.warmup, options.iterations);
        const Comparison all = compare_output(step, step.result(checked), expected, shape);
        for (size_t i = 0; i < times.size(); ++i)
          report.add_launch(named[i].first, times[i], {}, all, Report::Errors::kOfStep);
        if (options.predict)
          whole = time_total(device, run, copies, options.warmup, options.iterations, times);
        report.add_total(step.name, whole, cost, right);
      }
      if (step.variant) report.add_number(step.name, "variant", 1);
      note_step(options, device, step, shape, times, report);
      if (step.half_storage()) note_packing(options, device, step, shape, arrays, right, report);
    }
    for (size_t i = 1; i < chosen.size(); ++i) report.add_ratio(chosen[i].name, chosen[i - 1].name);

    // Instance norm alone, on what the convolution makes.
    if (options.step.empty()) {
      const NormShape norm = norm_shape(shape);
      const std::vector<double> normalized = expected_norm(problem, expected);
      for (ConvNormArrays& a : arrays) upload_convolution(expected, a);
      for (const NormStep& step : kNorms) {
        checked.y.fill_nan();
        const auto run = [&](int i, cudaStream_t stream) {
          ConvNormArrays& a = arrays[i % copies];
          step.function(a.conv.data(), a.gamma.data(), a.beta.data(), a.y.data(), norm, stream);
        };
        const Timing time = time_step(device, run, copies, options.warmup, options.iterations);
        report.add(step.name, time, norm_cost(shape),
                   compare_norm(checked.y.download(), normalized, expected.tolerance, norm));
      }
      for (size_t i = 1; i < kNorms.size(); ++i)
        report.add_ratio(kNorms[i].name, kNorms[i - 1].name);
    }
    write_results(options, problem, chosen.back().name, y, report);
    return report.finish();
  });
}
