// Planted bugs in the convolutional projection: each is caught, and by what.
#include <doctest/doctest.h>

#include "../../../common/lab/device.h"
#include "../../../common/testing/checks.h"
#include "../conv_projection/4_fused_backward.cuh"
#include "../host/projection_arrays.h"

using namespace lab::testing;
using namespace lab;
using conv_projection::Shape;
using conv_projection::Three;
using cvt::ProjectionShape;

namespace {

// Two bands and two strips, each of two sizes; and a channel's mean that is a
// thousand deviations.
struct Case {
  std::string name;
  ProjectionProblem problem;
  ExpectedProjection expected;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> cases;
    const auto add = [&](const char* name, const ProjectionShape& shape, double mean) {
      const ProjectionProblem problem = random_projection(shape, Storage::kFp32, 21, mean);
      cases.push_back({name, problem, expected_projection(problem)});
    };
    add("ragged", {2, 30, 29, 8, 1}, 0);
    add("large mean", {2, 9, 17, 8, 1}, 1000);
    return cases;
  }();
  return all;
}
constexpr size_t kShared = 64 * 1024;  // holds the rings of these instances

// Calls launch(name) for each launch of a step; where that returns false, the step's own runs.
template <class Step, class Arguments>
void run_with(const Step& step, const Arguments& arguments, const ProjectionShape& shape,
              lab::DeviceArray<char>& scratch,
              const std::function<bool(const std::string& name)>& replaced) {
  for (const auto& launch : step.launches(arguments, scratch.data(), shape))
    if (!replaced(launch.name)) launch.run(nullptr);
}

Verdict judged(const NamedComparison& compared, Verdict verdict, const std::string& name) {
  verdict.comparison = compared.second;
  verdict.judge(true);
  verdict.details = name + ": " + compared.first + ": " + verdict.details;
  return verdict;
}

}  // namespace

TEST_CASE("planted bugs in the projection: each is caught, and by what" *
          doctest::test_suite("toolkit")) {
  if (rerun_with_checks("planted bugs in the projection*")) return;
  const Mutants mutants(
      "chapters/16_cvt/conv_projection/2_fused.cuh", "conv_projection",
      planted_bugs("16_cvt", "projection"),
      "template __global__ void fused_kernel<float, 4, true>(const float*, const __grid_constant__ "
      "Three<const float*>, const __grid_constant__ Three<float*>, float2*, const "
      "__grid_constant__ "
      "Shape, const __grid_constant__ Tiling);\nconst auto finish = &finish_moments_kernel;",
      Mutants::kKernelsOnly);
  check_each_bug(
      planted_bugs("16_cvt", "projection"), cases().size(), [&](size_t number, size_t trial) {
        const Case& c = cases()[trial];
        const ProjectionShape& shape = c.problem.shape;
        ProjectionArrays<float> arrays(c.problem);
        const auto& step = conv_projection::forward_steps<float>().back();
        lab::DeviceArray<char> scratch(step.scratch_bytes(shape), "scratch");
        Verdict verdict;
        const auto a = arrays.forward();
        auto* const partials = reinterpret_cast<float2*>(scratch.data());
        const conv_projection::Tiling tiling = conv_projection::forward_tiling(shape);
        if (!ran(
                [&] {
                  run_with(step, a, shape, scratch, [&](const std::string& name) {
                    if (name == "convolutions") {
                      const unsigned blocks =
                          unsigned(shape.batch) * tiling.of_sample() * tiling.groups;
                      const unsigned threads =
                          unsigned(tiling.columns / 4 * tiling.lanes + 31) / 32 * 32;
                      launch(mutants.kernel(number, "fused_kernel", {}, "fLi4ELb1E"), blocks,
                             threads, kShared, nullptr, a.x,
                             Three<const float*>{a.weights.w[0], a.weights.w[1], a.weights.w[2]},
                             Three<float*>{a.maps[0], a.maps[1], a.maps[2]}, partials, Shape(shape),
                             tiling);
                    } else {
                      launch(mutants.kernel(number, "finish_moments_kernel"),
                             dim3((shape.channels + 31) / 32, 3),
                             32 * conv_projection::kFinishWarps, 0, nullptr,
                             static_cast<const float2*>(partials),
                             conv_projection::statistics_of(a.weights, a.saved, a.running_mean,
                                                            a.running_variance),
                             Shape(shape), tiling);
                    }
                    return true;
                  });
                },
                verdict))
          return named(c.name, verdict);
        return judged(compare_forward(arrays.download(), c.expected, shape), verdict, c.name);
      });
}

TEST_CASE("planted bugs in the projection's gradients: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in the projection's gradients*")) return;
  const Mutants mutants(
      "chapters/16_cvt/conv_projection/4_fused_backward.cuh", "conv_projection",
      planted_bugs("16_cvt", "projection, back"),
      "template __global__ void sums_kernel<float, 4>(const __grid_constant__ Three<const float*>, "
      "const __grid_constant__ Three<const float*>, const __grid_constant__ Three<const float*>, "
      "float2*, const __grid_constant__ Shape, const __grid_constant__ Slabs);\n"
      "template __global__ void gather_dx_kernel<float, true>(const float*, const "
      "__grid_constant__ "
      "Three<const float*>, const __grid_constant__ Three<const float*>, const __grid_constant__ "
      "Three<const float*>, const Slope*, float*, float*, const __grid_constant__ Shape, const "
      "__grid_constant__ Tiling);\n"
      "const auto finish = &finish_sums_kernel; const auto gather = &sum_dw_kernel;",
      Mutants::kKernelsOnly);
  check_each_bug(
      planted_bugs("16_cvt", "projection, back"), cases().size(), [&](size_t number, size_t trial) {
        const Case& c = cases()[trial];
        const ProjectionShape& cvt_shape = c.problem.shape;
        const Shape shape = cvt_shape;
        ProjectionArrays<float> arrays(c.problem);
        conv_projection::forward_steps<float>().back().run(arrays.forward(), cvt_shape, nullptr);
        const auto b = arrays.backward();
        const Three<const float*> maps{b.maps[0], b.maps[1], b.maps[2]},
            dmaps{b.dmaps[0], b.dmaps[1], b.dmaps[2]},
            means{b.saved.mean[0], b.saved.mean[1], b.saved.mean[2]},
            weights{b.weights.w[0], b.weights.w[1], b.weights.w[2]};
        const conv_projection::Slabs slabs = conv_projection::slabs_of(shape, 4);
        const conv_projection::Tiling tiling = conv_projection::backward_tiling(shape);
        const unsigned tiles = unsigned(shape.batch) * tiling.of_sample(),
                       channels = shape.channels;
        lab::DeviceArray<float2> sums(size_t(shape.batch) * slabs.of_sample() * channels, "sums");
        lab::DeviceArray<conv_projection::Slope> slopes(3 * channels, "slopes");
        lab::DeviceArray<float> taps(size_t(tiles) * 27 * channels, "taps");
        const auto pointers = [](float* const(&p)[3]) { return Three<float*>{p[0], p[1], p[2]}; };
        Verdict verdict;
        const auto launches = [&] {
          launch(mutants.kernel(number, "sums_kernel", {}, "fLi4E"),
                 dim3(unsigned(shape.batch) * slabs.of_sample(), slabs.tiles),
                 conv_projection::kSumThreads, 0, nullptr, maps, dmaps, means, sums.data(), shape,
                 slabs);
          launch(mutants.kernel(number, "finish_sums_kernel"), dim3((channels + 31) / 32, 3),
                 32 * conv_projection::kSumWarps, 0, nullptr,
                 static_cast<const float2*>(sums.data()), b.saved, pointers(b.gradients.scale),
                 pointers(b.gradients.shift), slopes.data(), false, shape, slabs);
          launch(mutants.kernel(number, "gather_dx_kernel", {}, "fLb1E"), tiles * tiling.groups,
                 unsigned(tiling.columns / 4 * tiling.lanes + 31) / 32 * 32, kShared, nullptr, b.x,
                 maps, dmaps, weights, static_cast<const conv_projection::Slope*>(slopes.data()),
                 b.dx, taps.data(), shape, tiling);
          launch(mutants.kernel(number, "sum_dw_kernel"), dim3((channels + 31) / 32, 27),
                 32 * conv_projection::kFinishWarps, 0, nullptr,
                 static_cast<const float*>(taps.data()), pointers(b.gradients.w), int(tiles),
                 int(channels));
        };
        if (!ran(launches, verdict)) return named(c.name, verdict);
        return judged(compare_backward(arrays.download(), c.expected, cvt_shape), verdict, c.name);
      });
}
