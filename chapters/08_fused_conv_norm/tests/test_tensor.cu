// Tests of chapter 8's step on tensor cores: right in tf32 and fp16 on every kernel, stride and
// padding, exact counts of tensor multiply-adds, planted bugs, checks, machine code.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <regex>

#include "../../../common/lab/device.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/checks.h"
#include "../kernels/instances.cuh"
#include "planted_bugs.h"
#include "test_support.h"

namespace steps = fused_conv_norm;
using namespace lab::testing;

namespace {

struct TensorStep {
  const char* name;
  lab::ConvNormFunction function;
  steps::Precision precision;
};
const std::vector<TensorStep> kSteps = {
    {"fused, tf32", steps::tensor_fused<steps::kTf32>, steps::kTf32},
    {"fused, fp16", steps::tensor_fused<steps::kFp16>, steps::kFp16},
    {"two passes, tf32", steps::two_passes<steps::TensorTiles<steps::kTf32>>, steps::kTf32},
    {"two passes, fp16", steps::two_passes<steps::TensorTiles<steps::kFp16>>, steps::kFp16}};

// Steps that this device has.
bool there(const TensorStep& step) {
  return (step.precision == steps::kTf32 ? steps::lacking<steps::kTf32>()
                                         : steps::lacking<steps::kFp16>()) == "";
}

ConvNormTrial rounded(ConvNormTrial trial) {
  trial.expected.tolerance = lab::rounded_products_tolerance(trial.problem, trial.expected);
  return trial;
}

// A problem with what its operands, rounded to nearest, give: as near as fp32 is.
ConvNormTrial rounded_operands(const ConvNormShape& shape, steps::Precision precision) {
  const auto nearest = [precision](float x) {
    if (precision == steps::kFp16) return __half2float(__float2half_rn(x));
    // tf32, ties away from zero
    return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x1000) & ~0x1fffu);
  };
  const lab::ConvNormProblem problem = lab::random_conv_norm(shape, 10);
  lab::ConvNormProblem of_rounded = problem;
  for (std::vector<float>* values : {&of_rounded.x, &of_rounded.weight})
    for (float& value : *values) value = nearest(value);
  ConvNormTrial trial = conv_norm_trial(describe(shape) + ", rounded", of_rounded);
  trial.problem = problem;
  return trial;
}

// Operands whose largest has 11 bits in that precision: neither beyond its range nor denormal.
bool in_range(steps::Precision precision, const lab::ConvNormProblem& problem) {
  const bool fp16 = precision == steps::kFp16;
  for (const std::vector<float>* values : {&problem.x, &problem.weight}) {
    float largest = 0;
    for (const float v : *values) largest = std::max(largest, std::abs(v));
    if (largest < (fp16 ? 0x1p-14f : 0x1p-126f) || (fp16 && largest > 65504)) return false;
  }
  return true;
}

void check_steps(const ConvNormTrial& trial, size_t first = 0, size_t end = 4, int shift = 0) {
  const ConvNormTrial tolerant = rounded(trial);
  for (size_t i = first; i < end; ++i) {
    const TensorStep& step = kSteps[i];
    if (!there(step) || !in_range(step.precision, trial.problem)) continue;
    const ConvNormOutcome outcome = run_conv_norm(step.function, tolerant, shift);
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

TEST_CASE("tensor: right on every kernel, stride and padding, ragged sizes, several images") {
  if (skipped("tensor: right")) return;
  uint64_t seed = 1;
  for (const ConvNormShape& shape : conv_norm_shapes()) {
    // Two of the four steps each, in turns.
    check_steps(conv_norm_trial(shape, seed, seed % 3 == 0), seed % 2 * 2, seed % 2 * 2 + 2,
                seed % 4 == 0);
    ++seed;
  }
}

TEST_CASE("tensor: arrays from PyTorch, large means, one pixel") {
  if (skipped("tensor: arrays from PyTorch")) return;
  for (const ConvNormTrial& trial : conv_norm_golden_trials()) check_steps(trial, 0, 2);
}

TEST_CASE("tensor: each kind of tile, several tiles a block, channels beyond a stage") {
  if (skipped("tensor: each kind of tile")) return;
  const bool h200 = steps::device_limits().sm_count == 132;
  const auto check = [&](const ConvNormShape& shape, bool large, bool several) {
    const steps::LaunchPlan plan = steps::plan_of<steps::TensorTiles<steps::kFp16>>(shape);
    CAPTURE(describe(shape));
    if (h200) {
      CHECK(plan.fits);
      CHECK(plan.tile == (large ? steps::kFp16Large : steps::kFp16Small));
      CHECK((plan.tiles_of_block > 1) == several);
    }
    check_steps(conv_norm_trial(shape, 3, true));
  };
  check(shape_of(1, 2, 64, 99, 160, 1), true, false);
  check(shape_of(1, 1, 64, 209, 192, 1), true, true);
  check(shape_of(1, 13, 70, 59, 75, 3, 2), false, false);
  check(shape_of(2, 19, 40, 12, 17, 5), false, false);
}

TEST_CASE("tensor: operands are rounded to nearest, sums are in fp32") {
  if (skipped("tensor: operands")) return;
  // 72 and 1152 products an output.
  for (const int in_channels : {8, 128}) {
    for (const TensorStep& step : kSteps) {
      if (!there(step)) continue;
      const ConvNormTrial trial =
          rounded_operands(shape_of(1, in_channels, 9, 12, 20, 3), step.precision);
      const ConvNormOutcome outcome = run_conv_norm(step.function, trial);
      CAPTURE(step.name);
      CAPTURE(in_channels);
      CAPTURE(outcome.details);
      CHECK(outcome.caught_by == "");
    }
  }
}

TEST_CASE("tensor: flat planes are beta to the bit, NaNs stay where they are") {
  if (skipped("tensor: flat planes")) return;
  const ConvNormTrial trial = rounded(conv_norm_trial(shape_of(3, 4, 6, 17, 20, 3), 9, true));
  for (const TensorStep& step : kSteps) {
    if (!there(step)) continue;
    CAPTURE(step.name);
    for (const auto [height, width] : {std::array{5, 7}, std::array{19, 21}, std::array{59, 83}}) {
      const ConvNormOutcome outcome = run_conv_norm(step.function, flat_planes(height, width));
      CAPTURE(outcome.details);
      CHECK(outcome.caught_by == "");
    }
    CHECK(wrong_with_nans(step.function, trial) == "");
  }
}

TEST_CASE("tensor: the same bits twice, and a bias changes none") {
  if (skipped("tensor: the same bits twice")) return;
  ConvNormTrial trial = conv_norm_trial(shape_of(2, 5, 40, 37, 50, 3), 8, true);
  for (const TensorStep& step : kSteps) {
    if (!there(step)) continue;
    CAPTURE(step.name);
    const ConvNormOutcome first = run_conv_norm(step.function, trial);
    ConvNormTrial without = trial;
    without.problem.bias.clear();
    const ConvNormOutcome second = run_conv_norm(step.function, without);
    REQUIRE(first.y.size() == trial.expected.y.size());
    CHECK(std::memcmp(first.y.data(), second.y.data(), first.y.size() * 4) == 0);
  }
}

TEST_CASE("tensor: the tolerance rejects one tap of 144 too few") {
  // The ratio of products to deviation is near 1 for random tensors.
  const ConvNormTrial trial = rounded(conv_norm_trial(shape_of(1, 16, 8, 12, 12, 3), 9));
  const double share = std::sqrt(2.0) * 0x1p-11;
  CHECK(trial.expected.tolerance.relative_l2 > share);
  CHECK(trial.expected.tolerance.relative_l2 < 2 * share);
  ConvNormTrial fewer = trial;
  for (int m = 0; m < 8; ++m) fewer.problem.weight[m * 16 * 9 + 5] = 0;
  const ConvNormTrial wrong = conv_norm_trial("a tap less", fewer.problem);
  const std::vector<float> y(wrong.expected.y.begin(), wrong.expected.y.end());
  CHECK(!lab::compare(y, trial.expected.y, trial.expected.tolerance, {1, 8, 12, 12}).pass);
}

// ---- Counters -----------------------------------------------------------------------------------

TEST_CASE("tensor counters: products of padded tiles, no fp32 ones, one output stored") {
  if (skipped_without_counters("tensor counters")) return;
  for (const TensorStep& step : kSteps) {
    if (!there(step) || std::string(step.name).starts_with("two")) continue;
    CAPTURE(step.name);
    const auto run = [&](const ConvNormShape& shape) {
      std::vector<lab::ConvNormArrays> arrays = lab::upload(lab::random_conv_norm(shape, 1), 1);
      arrays[0].run(step.function, shape);
      lab::check(cudaDeviceSynchronize());
      return lab::vgpu::counter("/classes/fp32/thread");
    };
    // Small tiles, 32 channels x 8 x 8 pixels: 2 groups of channels, 3 x 3 of pixels. Stages of 8, 8
    // and 3 channels with 72, 72 and 27 products, in steps of 8 or 16.
    const ConvNormShape ragged = shape_of(1, 19, 37, 19, 21, 3);
    run(ragged);
    const double products = step.precision == steps::kTf32 ? 72 + 72 + 32 : 80 + 80 + 32;
    CHECK(lab::vgpu::counter("/tensor_macs") == 2 * 9 * 32 * 64 * products);
    CHECK(counted("y", "store/bytes_asked") == 4.0 * double(ragged.y_elements()));
    CHECK(counted("y", "load/bytes_asked") == 0);
    CHECK(lab::vgpu::counter("/local/store/requests") == 0);
    // Twice the products, and not one instruction of the fp32 units more.
    const double once = run(shape_of(1, 16, 32, 16, 16, 3));
    CHECK(lab::vgpu::counter("/tensor_macs") ==
          4 * 32 * 64 * 2 * (step.precision == steps::kTf32 ? 72 : 80));
    const double conflicts = shared_conflicts() / shared_wavefronts();
    CHECK(conflicts <= 0.02);
    CHECK(run(shape_of(1, 32, 32, 16, 16, 3)) == once);
  }
}

TEST_CASE("tensor counters: limits of the large shapes, beside the fused step's") {
  if (skipped_without_counters("tensor counters")) return;
  // A quarter of "deep": 128 channels, 64 x 64 pixels.
  const ConvNormShape shape = shape_of(1, 32, 128, 64, 64, 3);
  std::vector<lab::ConvNormArrays> arrays = lab::upload(lab::random_conv_norm(shape, 1), 1);
  arrays[0].run(steps::fused, shape);
  lab::check(cudaDeviceSynchronize());
  const double before = lab::vgpu::counter("/limit/us");
  for (const TensorStep& step : kSteps) {
    if (!there(step) || std::string(step.name).starts_with("two")) continue;
    arrays[0].run(step.function, shape);
    lab::check(cudaDeviceSynchronize());
    CAPTURE(step.name);
    CHECK(lab::vgpu::counter("/limit/us") < before);
  }
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {}  // namespace

TEST_CASE("planted bugs in tensor tiles: each is caught, and by what" *
          doctest::test_suite("toolkit")) {
  if (rerun_with_checks("planted bugs in tensor*")) return;
  const std::vector<ConvNormTrial> trials = {
      rounded(conv_norm_trial(shape_of(1, 21, 9, 3, 5, 1), 1)),
      rounded(conv_norm_trial(shape_of(1, 19, 40, 13, 20, 3), 2, true)),
      rounded_operands(shape_of(1, 8, 9, 12, 20, 3), steps::kFp16)};
  const Mutants mutants("chapters/08_fused_conv_norm/3_tensor.cuh", "fused_conv_norm",
                        planted_bugs("08_fused_conv_norm", "tensor"),
                        "const auto instance = &fused_kernel<kFp16Small, 1>;", Mutants::kWholeFile,
                        Mutants::kAsShipped);
  // Small tiles, two a block.
  steps::check_planted_bugs<steps::kFp16Small>(
      mutants, planted_bugs("08_fused_conv_norm", "tensor"), trials, 2);
}

// ---- Checks, other devices, machine code, program -----------------------------------------------

TEST_CASE("tensor: checked without a finding") {
  if (rerun_with_checks("tensor: checked*")) return;
  const int findings = lab::vgpu::findings();
  check_steps(conv_norm_trial(shape_of(2, 5, 9, 17, 19, 3), 1, true));
  ConvNormShape upsampled = shape_of(1, 3, 5, 6, 5, 3);
  upsampled.upsample = 2;
  check_steps(conv_norm_trial(upsampled, 3));
  CHECK(lab::vgpu::findings() == findings);
}

TEST_CASE("tensor: all checks, six schedules") {
  check_all_checks("chapter8", {{"--in-channels", "10", "--out-channels", "33", "--height", "9",
                                 "--width", "10", "--residual", "--precision", "tf32"},
                                {"--in-channels", "3", "--out-channels", "3", "--height", "9",
                                 "--width", "17", "--stride", "2", "--precision", "fp16"}});
}

TEST_CASE("tensor: no spills, no stack, as many registers as two blocks of 128 may have") {
  if (skipped_without_counters("tensor: no spills")) return;
  const auto check = [](const void* kernel) {
    cudaFuncAttributes attributes;
    lab::check(cudaFuncGetAttributes(&attributes, kernel));
    CHECK(attributes.localSizeBytes == 0);
    CHECK(attributes.numRegs * 256 <= 65536);
  };
  const auto check_tiles = [&]<class Tiles>(Tiles, const std::vector<steps::TileName>& names) {
    for (const steps::TileName name : names)
      for (const int stride : {1, 2}) {
        CAPTURE(name);
        CAPTURE(stride);
        const steps::Kernels kernels = steps::kernels_of<Tiles>(name, stride);
        check(kernels.fused);
        check(kernels.first_pass);
      }
  };
  check_tiles(steps::TensorTiles<steps::kTf32>(), {steps::kTf32Large, steps::kTf32Small});
  check_tiles(steps::TensorTiles<steps::kFp16>(), {steps::kFp16Large, steps::kFp16Small});
}

TEST_CASE("tensor: on a T4, fp16 and no tf32") {
  const int sm_count = steps::device_limits().sm_count;
  if (sm_count != 40) return check_twin_on_t4("tensor: on a T4*,tensor: arrays*");
  CHECK(steps::lacking<steps::kFp16>() == "");
  CHECK(steps::lacking<steps::kTf32>() ==
        "tf32 on tensor cores needs sm_80 or newer, this GPU is sm_75: fp16 is there");
  const ConvNormTrial trial = conv_norm_trial(shape_of(1, 3, 5, 9, 8, 3), 1);
  CHECK(run_conv_norm(kSteps[0].function, trial).details.ends_with("fp16 is there"));
  check_steps(trial);
}

TEST_CASE("tensor: program") {
  if (skipped("tensor: program")) return;
  const TemporaryFolder folder;
  const auto run = [&](const std::vector<std::string>& arguments) {
    return run_program("chapter8", arguments, folder.folder());
  };
  const ProgramResult right = run({"--height", "16", "--width", "16", "--precision", "fp16"});
  CAPTURE(right.output);
  CHECK(right.exit_code == 0);
  for (const char* line : {"\nfused ", "\nfused fp16 ", "16x16"})
    CHECK(right.output.find(line) != std::string::npos);
  // Predicted time and bound, and the ratio to the step before.
  const std::regex ratio("\nfused fp16 +([0-9.]+ [num]?s +){1,2}[0-9.]+x ");
  CHECK(std::regex_search(right.output, ratio));
  CHECK(right.output.find("fused tf32") == std::string::npos);
  const ProgramResult wrong = run({"--precision", "bf16"});
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.errors.find("'bf16': must be fp32, tf32, fp16 or tf32,fp16") != std::string::npos);
  lab::write_safetensors(folder.path("in"), {{"x", {{1, 1, 1, 2}, {1, 65505}, "F32"}},
                                             {"weight", {{1, 1, 1, 1}, {1}, "F32"}},
                                             {"gamma", {{1}, {1}, "F32"}},
                                             {"beta", {{1}, {0}, "F32"}}});
  const ProgramResult range = run({"--input", "in", "--precision", "fp16"});
  CHECK(range.exit_code == 2);
  CHECK(range.errors.find("element 1 of x is 65505, fp16 ends at 65504") != std::string::npos);
  // Numbers below a format's normal ones have fewer bits than are compared. fp32's own are compared by its step.
  for (const auto& [value, precision, words] :
       {std::tuple(9e-8f, "fp16",
                   "the largest element of x is 9e-08, and below 6.10352e-05 fp16 has fewer than"),
        {9e-42f, "tf32",
         "the largest element of x is 9.00054e-42, and below 1.17549e-38 tf32 has fewer than"},
        {9e-42f, "fp32", ""},
        {9e-8f, "tf32", ""}}) {
    CAPTURE(precision);
    CAPTURE(value);
    lab::write_safetensors(folder.path("in"), {{"x", {{1, 1, 1, 2}, {value, 0}, "F32"}},
                                               {"weight", {{1, 1, 1, 1}, {0.7f}, "F32"}},
                                               {"gamma", {{1}, {1}, "F32"}},
                                               {"beta", {{1}, {0}, "F32"}}});
    const ProgramResult tiny = run({"--input", "in", "--precision", precision});
    CHECK_MESSAGE(tiny.exit_code == (*words ? 2 : 0), tiny.output);
    CHECK(tiny.errors.find(words) != std::string::npos);
  }
}
