// Chapter 8's tests: each step right on every kernel, stride, padding and size, on large means and
// huge values; same bits twice, planted bugs found, what the counters say worked out by hand, and
// the machine code.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "../../../common/lab/device.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/random.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/checks.h"
#include "../host/launches.cuh"
#include "../host/reference.h"
#include "../kernels/instances.cuh"
#include "planted_bugs.h"
#include "test_support.h"

namespace steps = fused_conv_norm;
using namespace lab::testing;

namespace {

struct NamedStep {
  const char* name;
  lab::ConvNormFunction function;
};
const std::vector<NamedStep> kSteps = {{"three passes", steps::three_passes},
                                       {"fused", steps::fused<>},
                                       {"two passes", steps::two_passes<>}};
const std::vector<lab::NormStep> kNorms = {{"naive", steps::naive_norm},
                                           {"warp-reduced", steps::warp_reduced_norm},
                                           {"vectorized", steps::vectorized_norm},
                                           {"one read", steps::one_read_norm}};

void check_steps(const ConvNormTrial& trial, int shift = 0) {
  for (const NamedStep& step : kSteps) {
    const ConvNormOutcome outcome = run_conv_norm(step.function, trial, shift);
    CAPTURE(step.name);
    CAPTURE(trial.name);
    CAPTURE(shift);
    CAPTURE(outcome.details);
    CHECK(outcome.caught_by == "");
  }
}

ConvNormShape shape_of(int batch, int in_channels, int out_channels, int height, int width,
                       int kernel, int stride = 1) {
  ConvNormShape s;
  s.batch = batch, s.in_channels = in_channels, s.out_channels = out_channels;
  s.height = height, s.width = width, s.kernel = kernel, s.stride = stride;
  return same_padded(s);
}

}  // namespace

// ---- Right --------------------------------------------------------------------------------------

TEST_CASE("right: every kernel, stride and padding, ragged sizes, several images") {
  if (skipped("right")) return;
  uint64_t seed = 1;
  for (const ConvNormShape& shape : conv_norm_shapes()) {
    check_steps(conv_norm_trial(shape, seed, seed % 3 == 0), seed % 4 == 0);
    ++seed;
  }
}

TEST_CASE("right: arrays from PyTorch, large means, one pixel, huge and denormal values") {
  if (skipped("arrays from PyTorch")) return;
  const std::vector<ConvNormTrial> trials = conv_norm_golden_trials();
  REQUIRE(trials.size() >= 30);
  for (const ConvNormTrial& trial : trials) check_steps(trial);
}

TEST_CASE("right: each kind of tile, several tiles a block, planes that end within a block") {
  if (skipped("each kind of tile")) return;
  const bool h200 = steps::device_limits().sm_count == 132;
  const auto check = [&](const ConvNormShape& shape, steps::TileName tile, bool several) {
    const steps::LaunchPlan plan = steps::plan_of(shape);
    CAPTURE(describe(shape));
    if (h200) {
      CHECK(plan.fits);
      CHECK(plan.tile == tile);
      CHECK((plan.tiles_of_block > 1) == several);
    }
    check_steps(conv_norm_trial(shape, 3, true));
  };
  check(shape_of(1, 2, 64, 99, 160, 1), steps::kLarge, false);
  check(shape_of(1, 1, 64, 209, 192, 1), steps::kLarge, true);
  check(shape_of(2, 3, 24, 33, 47, 3, 2), steps::kMedium, false);
  check(shape_of(3, 2, 40, 100, 120, 3), steps::kMedium, true);
  check(shape_of(1, 2, 3, 100, 99, 3), steps::kNarrow, false);
}

TEST_CASE("right: no step reads another image or another channel's weights") {
  if (skipped("another image")) return;
  // Everything but image 1, output channel 5 is NaN.
  ConvNormTrial trial = conv_norm_trial(shape_of(3, 4, 9, 11, 12, 3), 5);
  const ConvNormShape& shape = trial.problem.shape;
  const float nan = std::nanf("");
  const int64_t image = shape.x_elements() / 3, filter = 4 * 9, plane = shape.plane();
  for (int64_t i = 0; i < shape.x_elements(); ++i)
    if (i / image != 1) trial.problem.x[i] = nan;
  for (int64_t i = 0; i < shape.weight_elements(); ++i)
    if (i / filter != 5) trial.problem.weight[i] = nan;
  for (const NamedStep& step : kSteps) {
    CAPTURE(step.name);
    const ConvNormOutcome outcome = run_conv_norm(step.function, trial);
    REQUIRE(int64_t(outcome.y.size()) == shape.y_elements());
    const int64_t at = (1 * 9 + 5) * plane;
    const lab::Comparison right = lab::compare(
        std::vector<float>(outcome.y.begin() + at, outcome.y.begin() + at + plane),
        std::vector<double>(trial.expected.y.begin() + at, trial.expected.y.begin() + at + plane),
        trial.expected.tolerance, {plane});
    CHECK_MESSAGE(right.pass, right.describe());
  }
}

TEST_CASE("right: planes of one pixel are beta, whatever the convolution; a bias changes nothing") {
  if (skipped("planes of one pixel")) return;
  ConvNormTrial trial = conv_norm_trial(shape_of(2, 7, 5, 1, 1, 3), 6, true);
  for (const NamedStep& step : kSteps) {
    CAPTURE(step.name);
    const ConvNormOutcome outcome = run_conv_norm(step.function, trial);
    REQUIRE(outcome.y.size() == 10);
    for (int i = 0; i < 10; ++i)  // exactly
      CHECK(outcome.y[i] == std::max(0.0f, trial.problem.beta[i % 5] + trial.problem.residual[i]));
  }
  // Bits of fused, which does not read it, and nearly so of what adds it.
  trial = conv_norm_trial(shape_of(1, 3, 6, 9, 10, 3), 7);
  const ConvNormOutcome with = run_conv_norm(steps::fused<>, trial);
  trial.problem.bias.clear();
  const ConvNormOutcome without = run_conv_norm(steps::fused<>, trial);
  CHECK(with.y == without.y);
  CHECK(run_conv_norm(steps::three_passes, trial).caught_by == "");
}

TEST_CASE("right: flat planes are beta to the bit, NaNs stay where they are") {
  if (skipped("flat planes")) return;
  for (const auto [height, width] : {std::array{5, 7}, std::array{19, 21}, std::array{59, 83}}) {
    const ConvNormTrial trial = flat_planes(height, width);
    check_steps(trial);
  }
  const ConvNormTrial trial = conv_norm_trial(shape_of(3, 4, 6, 17, 20, 3), 9, true);
  for (const NamedStep& step : kSteps) {
    CAPTURE(step.name);
    CHECK(wrong_with_nans(step.function, trial) == "");
  }
}

TEST_CASE("the same bits twice") {
  if (skipped("the same bits twice")) return;
  const ConvNormTrial trial = conv_norm_trial(shape_of(2, 5, 40, 37, 50, 3), 8, true);
  for (const NamedStep& step : kSteps) {
    CAPTURE(step.name);
    const ConvNormOutcome first = run_conv_norm(step.function, trial);
    REQUIRE(first.y.size() == trial.expected.y.size());
    CHECK(run_conv_norm(step.function, trial).y == first.y);
    CHECK(run_conv_norm(lab::testing::in_a_graph(step.function), trial).y == first.y);
  }
}

TEST_CASE("what they cannot do they refuse") {
  const float* const something = reinterpret_cast<const float*>(64);
  for (const NamedStep& step : kSteps) {
    CAPTURE(step.name);
    const auto message = [&](const ConvNormShape& shape, const float* weight) -> std::string {
      try {
        step.function(something, weight, nullptr, something, something, nullptr,
                      const_cast<float*>(something), shape, nullptr);
      } catch (const std::invalid_argument& error) {
        return error.what();
      }
      return "";
    };
    ConvNormShape shape;
    shape.kernel = 7;
    CHECK(
        message(shape, something) ==
        "convolution of shape [batch 1, channels 1 to 1, 1x1, kernel 7, stride 1, zeros 1 1 1 1]: "
        "kernel must be 1, 3, 4, 5 or 9");
    CHECK(message({}, nullptr).find("must not be null") != std::string::npos);
  }
  for (const lab::NormStep& step : kNorms) {
    const float* x = something;
    CHECK_THROWS_WITH_AS(step.function(x, x, x, const_cast<float*>(x), {1, 0, 5}, nullptr),
                         doctest::Contains("channels 0"), std::invalid_argument);
    CHECK_THROWS_WITH_AS(step.function(x, x, x, nullptr, {1, 2, 5}, nullptr),
                         doctest::Contains("must not be null"), std::invalid_argument);
  }
}

TEST_CASE("instance norm alone: right on planes of every size, large means, huge values") {
  if (skipped("instance norm alone")) return;
  uint64_t seed = 1;
  for (const int plane : {1, 2, 3, 31, 500, 516, 2048, 4097, 6400, 16388, 17000, 24580}) {
    for (const double mean : {0.0, 1e4, 1e25}) {
      if (mean > 0 && plane > 6400) continue;
      const NormShape shape{1 + plane % 2, plane > 5000 ? 1 : 3, plane, 1e-5f};
      const int64_t count = int64_t(shape.batch) * shape.channels * plane;
      const std::vector<float> gamma = {1, -0.5f, 2}, beta = {0, 3, -1};
      std::vector<float> x(count);
      const double size = mean > 1e20 ? 1e23 : 1;
      for (int64_t i = 0; i < count; ++i)
        x[i] = float(mean + size * lab::normal(seed, uint64_t(i)));
      ++seed;
      std::vector<double> expected(x.begin(), x.end());
      reference::instance_norm(expected.data(), gamma.data(), beta.data(), shape.batch,
                               shape.channels, plane, double(shape.eps), expected.data());
      // 1e-6 of the mean over the deviation; of one pixel, whose deviation is sqrt(eps) at least.
      const double ratio = mean / (mean > 1e20 ? 1e22 : 0.5);
      const double share = std::max(1e-5, 1e-6 * ratio);
      for (const lab::NormStep& step : kNorms) {
        CAPTURE(step.name);
        CAPTURE(plane);
        CAPTURE(mean);
        lab::DeviceArray<float> from(x, "x"), to(x.size(), "y"), g(gamma, "gamma"), b(beta, "beta");
        to.fill_nan();
        step.function(from.data(), g.data(), b.data(), to.data(), shape, nullptr);
        const lab::Comparison right =
            lab::compare(to.download(), expected, {32 * share, share, share},
                         {shape.batch, shape.channels, plane});
        CHECK_MESSAGE(right.pass, right.describe());
        // One of both arrays off 16 bytes.
        for (int only = 0; only < 2; ++only) {
          const Shift shift(1, only);
          const GuardedInput<float> shifted(x, "x", shift.of(0));
          GuardedOutput<float> y(x.size(), "y", shift.of(1));
          std::vector<float> result;
          step.function(shifted.data(), g.data(), b.data(), y.data(), shape, nullptr);
          CHECK(y.download(result));
          CHECK(lab::compare(result, expected, {32 * share, share, share},
                             {shape.batch, shape.channels, plane})
                    .pass);
        }
        // In place, too.
        step.function(from.data(), g.data(), b.data(), from.data(), shape, nullptr);
        CHECK(from.download() == to.download());
      }
    }
  }
}

// ---- Counters -----------------------------------------------------------------------------------

namespace {

// Counters of each launch of a step.
struct Counted {
  double launches = 0, stored = 0, read_again = 0, stored_in_all = 0;
};
Counted count_step(const std::vector<std::function<void()>>& launches) {
  Counted sum;
  for (const auto& launch : launches) {
    launch();
    lab::check(cudaDeviceSynchronize());
    const auto number = [](const char* pointer) {
      const double value = lab::vgpu::counter(pointer);
      return std::isfinite(value) ? value : 0.0;
    };
    ++sum.launches;
    sum.stored_in_all += number("/global/store/bytes_asked");
    for (const char* array : {"conv", "y"}) {
      const std::string of = std::string("/allocations/") + array;
      sum.stored += number((of + "/store/bytes_asked").c_str());
      sum.read_again += number((of + "/load/bytes_asked").c_str());
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("counters: one launch and one output stored instead of three") {
  if (skipped_without_counters("counters")) return;
  for (const ConvNormShape& shape :
       {shape_of(1, 8, 64, 32, 32, 3), shape_of(2, 3, 5, 19, 21, 5, 2)}) {
    CAPTURE(describe(shape));
    const lab::ConvNormProblem problem = lab::random_conv_norm(shape, 1);
    std::vector<lab::ConvNormArrays> arrays = lab::upload(problem, 1);
    lab::ConvNormArrays& a = arrays[0];
    const double output = 4.0 * double(shape.y_elements());

    const Counted three =
        count_step({[&] {
                      steps::convolution(a.x.data(), a.weight.data(), a.bias.data(), a.conv.data(),
                                         shape, nullptr);
                    },
                    [&] {
                      steps::vectorized_norm(a.conv.data(), a.gamma.data(), a.beta.data(),
                                             a.y.data(), steps::norm_shape(shape), nullptr);
                    },
                    [&] { steps::relu(a.y.data(), nullptr, shape, nullptr); }});
    CHECK(three.stored == 3 * output);
    CHECK(three.read_again == 3 * output);  // twice by the norm, once by ReLU
    CHECK(three.stored_in_all == three.stored);

    REQUIRE(steps::plan_of(shape).fits);
    const Counted fused = count_step({[&] { a.run(steps::fused<>, shape); }});
    CHECK(fused.stored == output);
    CHECK(fused.read_again == 0);
    // Beside it only the moments: 16 bytes for each channel of a run, of a block's tiles that have
    // the same channels. Tiles go to blocks in a row, evenly.
    const steps::LaunchPlan plan = steps::plan_of(shape);
    const int channels = plan.tile == steps::kLarge ? 64 : plan.tile == steps::kMedium ? 32 : 4;
    const int groups = (shape.out_channels - 1) / channels + 1;
    steps::Fp32Tiles::with(plan.tile, shape.stride, [&]<int kName, int kStride>() {
      const steps::Problem problem =
          steps::Tile<kName>::plan(shape, nullptr, nullptr, steps::device_limits());
      double moments = 0;
      for (int block = 0; block < plan.blocks; ++block)
        for (int tile = problem.tiles * block / plan.blocks, first = tile;
             tile < problem.tiles * (block + 1) / plan.blocks; ++tile)
          if (tile == first || tile % problem.plane_tiles == 0) {
            const int group = tile / problem.plane_tiles % groups;
            moments += 16.0 * std::min(channels, shape.out_channels - group * channels);
          }
      CHECK(fused.stored_in_all - fused.stored == moments);
    });
    CHECK(lab::vgpu::counter("/grid/0") == plan.blocks);
  }
}

TEST_CASE("counters: rows of x and weights come 16 bytes at a time, without bank conflicts") {
  if (skipped_without_counters("counters")) return;
  // One tile of 32 channels x 8 x 8 pixels, 4 input channels in one stage: 32 rows of 36 weights,
  // and of x 4 channels x 10 rows, of which 8 are in the picture, x 8 + 2 columns in 4 pieces of 16
  // bytes, of which 2 are. What is outside is set to 0 and reads nothing.
  const ConvNormShape shape = shape_of(1, 4, 32, 8, 8, 3);
  std::vector<lab::ConvNormArrays> arrays = lab::upload(lab::random_conv_norm(shape, 1), 1);
  arrays[0].run(steps::fused<>, shape);
  lab::check(cudaDeviceSynchronize());
  CHECK(lab::vgpu::counter("/grid/0") == 1);
  CHECK(counted("weight", "load/bytes_asked") == 32 * 36 * 4);
  CHECK(counted("x", "load/bytes_asked") == 4 * 8 * 8 * 4);
  CHECK(shared_conflicts() <= 0.02 * shared_wavefronts());
}

TEST_CASE("counters: four steps of instance norm") {
  if (skipped_without_counters("counters")) return;
  const NormShape shape{1, 32, 4096, 1e-5f};
  const double bytes = 4.0 * 32 * 4096;
  lab::DeviceArray<float> x(std::vector<float>(32 * 4096, 1.5f), "x"), y(32 * 4096, "y"),
      gamma(std::vector<float>(32, 1), "gamma"), beta(std::vector<float>(32, 0), "beta");
  // How often x is read; sectors of a request.
  const double reads[] = {4, 2, 2, 1}, sectors[] = {32, 4, 16, 16};
  for (size_t i = 0; i < kNorms.size(); ++i) {
    CAPTURE(kNorms[i].name);
    kNorms[i].function(x.data(), gamma.data(), beta.data(), y.data(), shape, nullptr);
    lab::check(cudaDeviceSynchronize());
    CHECK(counted("x", "load/bytes_asked") == reads[i] * bytes);
    CHECK(counted("x", "load/sectors_per_request") == sectors[i]);
    CHECK(counted("y", "store/bytes_asked") == bytes);
  }
}

TEST_CASE("plan: what fits on the chip of an H200, and on that of a T4") {
  if (skipped("plan")) return;
  const int sm_count = steps::device_limits().sm_count;
  if (sm_count != 132 && sm_count != 40) return;
  for (const char* preset : {"small", "deep", "wide", "point"}) {
    CAPTURE(preset);
    const ConvNormShape shape = lab::preset_conv_norm(preset);
    const steps::LaunchPlan plan = steps::plan_of(shape);
    CHECK(plan.fits == (sm_count == 132 || std::string(preset) == "small"));
    const std::string text = steps::describe_plan<steps::Fp32Tiles>(shape);
    CHECK(text.starts_with(plan.fits ? "one launch: " : "two passes: "));
    // The output's size stands beside it, in what the counters say.
    CHECK(text.find(std::to_string(shape.y_elements() / 256) + " KiB") == std::string::npos);
  }
  if (sm_count == 40)
    CHECK(steps::describe_plan<steps::Fp32Tiles>(lab::preset_conv_norm("deep"))
              .find("two passes: 205 KiB of the output for each of 40 SMs do not fit (shared: 64 "
                    "KiB)") != std::string::npos);

  // Worked out once for each shape, whatever comes between.
  ConvNormShape small = lab::preset_conv_norm("small"), strided = small, reflected = small;
  strided.stride = 2, reflected.padding = Padding::kReflect;
  const auto known = steps::known_plan_of<steps::Fp32Tiles>;
  const steps::LaunchPlan* const first = &known(small);
  for (const ConvNormShape& shape : {strided, reflected, lab::preset_conv_norm("deep")}) {
    const steps::LaunchPlan plan = steps::plan_of(shape);
    CHECK(&known(shape) != first);
    CHECK(known(shape).tile == plan.tile);
    CHECK(known(shape).fits == plan.fits);
    CHECK(known(shape).blocks == plan.blocks);
    CHECK(known(shape).shared_bytes == plan.shared_bytes);
  }
  small.eps = 1, small.relu = false;  // no part of a plan
  CHECK(&known(small) == first);
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {}  // namespace

TEST_CASE("planted bugs in fused: each is caught, and by what" * doctest::test_suite("toolkit")) {
  if (rerun_with_checks("planted bugs in fused*")) return;
  ConvNormShape reflecting = shape_of(2, 9, 40, 13, 20, 3);
  reflecting.padding = Padding::kReflect;
  ConvNormShape upsampled = shape_of(1, 3, 5, 6, 5, 3);
  upsampled.upsample = 2;
  upsampled.pad_top = upsampled.pad_left = 2;
  std::vector<ConvNormTrial> trials = {conv_norm_trial(shape_of(1, 3, 4, 1, 1, 1), 1),
                                       conv_norm_trial(reflecting, 2, true),
                                       conv_norm_trial(upsampled, 3)};
  lab::ConvNormProblem huge = lab::random_conv_norm(shape_of(1, 2, 3, 9, 17, 3), 4);
  for (float& value : huge.x) value *= 1e25f;
  trials.push_back(conv_norm_trial("huge values", huge));
  trials.push_back(conv_norm_trial(shape_of(1, 2, 3, 9, 16, 3), 5));
  trials.push_back(flat_planes(5, 7));

  const Mutants mutants("chapters/08_fused_conv_norm/2_fused.cuh", "fused_conv_norm",
                        planted_bugs("08_fused_conv_norm", "fused"),
                        "const auto instance = &fused_kernel<kMedium, 1>;");
  // Medium tiles, about four a block.
  steps::check_planted_bugs<steps::kMedium>(mutants, planted_bugs("08_fused_conv_norm", "fused"),
                                            trials, 4);
}

// ---- Checks, other devices, machine code, program -----------------------------------------------

TEST_CASE("checked: all steps without a finding") {
  if (rerun_with_checks("checked: all steps*")) return;
  const int findings = lab::vgpu::findings();
  check_steps(conv_norm_trial(shape_of(2, 5, 9, 17, 19, 3), 1, true));
  check_steps(conv_norm_trial(shape_of(1, 3, 3, 21, 35, 9, 2), 2));
  ConvNormShape upsampled = shape_of(1, 3, 5, 6, 5, 3);
  upsampled.upsample = 2;
  check_steps(conv_norm_trial(upsampled, 3));
  CHECK(lab::vgpu::findings() == findings);
}

TEST_CASE("all checks, six schedules") {
  check_all_checks("chapter8", {{"--in-channels", "5", "--out-channels", "40", "--height", "19",
                                 "--width", "20", "--residual"},
                                {"--in-channels", "3", "--out-channels", "3", "--height", "17",
                                 "--width", "33", "--kernel", "5", "--padding", "reflect"}});
}

TEST_CASE("on a T4") {
  check_twin_on_t4("right: arrays*,right: each*,right: no*,plan: *,counters: one*");
}

TEST_CASE("machine code: no spills, no stack, as many registers as two blocks of 256 may have") {
  if (skipped_without_counters("machine code")) return;
  const auto check = [](const void* kernel, int threads) {
    cudaFuncAttributes attributes;
    lab::check(cudaFuncGetAttributes(&attributes, kernel));
    CHECK(attributes.localSizeBytes == 0);
    CHECK(attributes.numRegs * threads <= 65536);
  };
  for (int name = 0; name < steps::kTileNames; ++name)
    for (const int stride : {1, 2}) {
      CAPTURE(name);
      CAPTURE(stride);
      const steps::Kernels kernels = steps::kernels_of<steps::Fp32Tiles>(name, stride);
      check(kernels.convolution, 512);
      check(kernels.fused, 512);
      check(kernels.first_pass, 512);
      check(kernels.second_pass_by_4, steps::kNormThreads);
    }
  check((const void*)steps::norm_kernel<4, 12>, steps::kNormThreads);
  check((const void*)steps::norm_kernel<1, 32>, steps::kNormThreads);
}

TEST_CASE("machine code: no spills") { check_machine_code("chapters/08_fused_conv_norm"); }

TEST_CASE("program: the whole way, with a photo") {
  const auto run = check_photo_run("chapter8", 32, {}, {1, 32, 32, 32},
                                   {"three passes", "fused", "  convolution", "  instance norm",
                                    "  ReLU", "naive norm", "one-read norm"});
  if (!run) return;
  CHECK(json_at(run->json, "/problem/kernel") == "9");
  if (!lab::vgpu::present()) return;
  for (const char* words :
       {"three passes: 3 launches; output (128 KiB) written 3.000 times, read again 3.000 times\n",
        "fused: 1 launch; output (128 KiB) written 1.000 times, read again 0.000 times; moments "})
    CHECK(run->output.find(words) != std::string::npos);
}

TEST_CASE("program: a user's tensors in, the right output out") {
  if (skipped("program")) return;
  const TemporaryFolder folder;
  ConvNormShape shape = shape_of(2, 3, 4, 9, 7, 3, 2);
  shape.padding = Padding::kReflect;
  const ConvNormTrial trial = conv_norm_trial(shape, 5, true);
  const lab::ConvNormProblem& p = trial.problem;
  const auto write = [&](const std::vector<int64_t>& gamma_shape) {
    lab::write_safetensors(folder.path("in"), {{"x", {{2, 3, 9, 7}, p.x, "F32"}},
                                               {"weight", {{4, 3, 3, 3}, p.weight, "F32"}},
                                               {"bias", {{4}, p.bias, "F32"}},
                                               {"gamma", {gamma_shape, p.gamma, "F32"}},
                                               {"beta", {{4}, p.beta, "F32"}},
                                               {"residual", {{2, 4, 5, 4}, p.residual, "F32"}}});
    return run_program(
        "chapter8", {"--input", "in", "--output", "out", "--stride", "2", "--padding", "reflect"},
        folder.folder());
  };
  const ProgramResult result = write({4});
  CAPTURE(result.errors);
  REQUIRE(result.exit_code == 0);
  const std::vector<lab::Tensor> output = lab::read_safetensors(folder.path("out"), {"out"});
  REQUIRE(output[0].shape == std::vector<int64_t>{2, 4, 5, 4});
  const lab::Comparison right =
      lab::compare(output[0].values, trial.expected.y, trial.expected.tolerance, {2, 4, 5, 4});
  CHECK_MESSAGE(right.pass, right.describe());
  const ProgramResult refusal = write({2, 2});
  CHECK(refusal.exit_code == 2);
  CHECK(refusal.errors.find("'gamma' has shape [2, 2], [4] is needed") != std::string::npos);
}

TEST_CASE("program: flags that are not right, more memory than there is") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& named,
                           int code = 2) {
    const ProgramResult result = run_program("chapter8", arguments, folder.folder());
    CAPTURE(named);
    CAPTURE(result.errors);
    CHECK(result.exit_code == code);
    CHECK(result.output == "");
    CHECK(result.errors.find(named) != std::string::npos);
    CHECK(folder.names().empty());
  };
  refused({"--preset", "huge"}, "--preset 'huge': must be small, deep, wide or point");
  refused({"--padding", "same"}, "--padding 'same': must be zero or reflect");
  refused({"--step", "one"}, "--step 'one': must be three passes, fused or two passes");
  refused({"--kernel", "7"}, "kernel must be 1, 3, 4, 5 or 9");
  refused({"--stride", "3"}, "--stride '3'");
  refused({"--kernel", "3", "--size", "64"}, "choose one");
  refused({"--out", "map.txt"}, ".png, .jpg or .jpeg");
  refused({"--input", "missing"}, "missing");
  // The largest arrays that may be asked for, 8 GiB, and the host has several of them.
  if (lab::host_memory_available() > 32.0 * (1 << 30))
    MESSAGE("skipped: more memory than there is: this machine has it");
  else if (has_device())
    refused({"--batch", "4096", "--out-channels", "1024", "--height", "128", "--width", "2"},
            "channels 64 to 1024", 3);
}
