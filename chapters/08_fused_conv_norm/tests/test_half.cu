// Tests of chapter 8's step on arrays in fp16: right on every kernel, stride and padding, packed
// weights, counters, planted bugs, checks, machine code, program.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <regex>

#include "../../../common/lab/device.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/checks.h"
#include "../kernels/instances.cuh"
#include "planted_bugs.h"
#include "test_support.h"

namespace steps = fused_conv_norm;
using namespace lab::testing;

namespace {

using HalfRun = std::function<void(const half* x, const half* packed, const float* gamma,
                                   const float* beta, const half* residual, half* y,
                                   const ConvNormShape& shape, cudaStream_t stream)>;
using Pack = std::function<void(const half* weight, half* packed, const ConvNormShape& shape)>;

void pack_weights(const half* weight, half* packed, const ConvNormShape& shape) {
  steps::pack_weights(weight, packed, shape, nullptr);
}

// The numbers of an array of the device as fp16, `shift` elements behind a multiple of 16 bytes.
// One that is not there stays null.
class Halves {
 public:
  Halves(const float* from, int64_t count, int shift, const char* name)
      : there_(from), shift_(shift), array_(size_t(count + shift), name) {
    std::vector<float> values(size_t(count + shift), 0.0f);
    if (from)
      lab::check(cudaMemcpy(values.data() + shift, from, size_t(count) * 4, cudaMemcpyDefault));
    array_.upload(values_ = lab::to_half(values));
  }
  const half* data() const { return there_ ? array_.data() + shift_ : nullptr; }
  bool untouched() const {
    return std::memcmp(array_.download().data(), values_.data(), values_.size() * 2) == 0;
  }

 private:
  bool there_;
  int shift_;
  lab::DeviceArray<half> array_;
  std::vector<half> values_;
};

// The step on fp16 arrays as one that takes fp32 ones. Throws where it writes beyond y or into what
// it reads.
AnyConvNorm on_halves(const HalfRun& run, int shift = 0, const Pack& pack = pack_weights) {
  return
      [=](const float* x, const float* weight, const float*, const float* gamma, const float* beta,
          const float* residual, float* y, const ConvNormShape& shape, cudaStream_t stream) {
        const size_t count = size_t(shape.y_elements());
        const Halves x16(x, shape.x_elements(), shift, "x16"),
            weight16(weight, shape.weight_elements(), shift, "weight16"),
            residual16(residual, shape.y_elements(), shift, "residual16");
        GuardedOutput<half> y16(count, "y16", shift);
        lab::DeviceArray<half> packed(size_t(steps::packed_elements(shape)), "packed");
        pack(weight16.data(), packed.data(), shape);
        run(x16.data(), packed.data(), gamma, beta, residual16.data(), y16.data(), shape, stream);
        lab::check(cudaDeviceSynchronize());
        std::vector<half> values;
        if (!y16.download(values) || !x16.untouched() || !weight16.untouched() ||
            !residual16.untouched())
          throw std::runtime_error("memory outside the output was written");
        lab::check(cudaMemcpy(y, lab::to_float(values).data(), count * 4, cudaMemcpyDefault));
      };
}

// The problem with its arrays in fp16, and how near y must be to the reference of those.
ConvNormTrial stored(const std::string& name, lab::ConvNormProblem problem) {
  ConvNormTrial trial = conv_norm_trial(name, lab::rounded_to_fp16(std::move(problem)));
  trial.expected.tolerance = lab::fp16_storage_tolerance(trial.expected.tolerance);
  return trial;
}
ConvNormTrial stored(const ConvNormShape& shape, uint64_t seed, bool with_residual = false) {
  return stored(describe(shape) + (with_residual ? ", residual" : ""),
                lab::random_conv_norm(shape, seed, with_residual));
}

void check_right(const HalfRun& run, const ConvNormTrial& trial, int shift = 0) {
  const ConvNormOutcome outcome = run_conv_norm(on_halves(run, shift), trial);
  CAPTURE(trial.name);
  CAPTURE(shift);
  CAPTURE(outcome.details);
  CHECK(outcome.caught_by == "");
}

ConvNormShape shape_of(int batch, int in_channels, int out_channels, int height, int width,
                       int kernel, int stride = 1, Padding padding = Padding::kZero) {
  ConvNormShape s;
  s.batch = batch, s.in_channels = in_channels, s.out_channels = out_channels;
  s.height = height, s.width = width, s.kernel = kernel, s.stride = stride, s.padding = padding;
  return same_padded(s);
}
ConvNormShape upsampled(int in_channels, int out_channels, int height, int width, int kernel) {
  ConvNormShape s = shape_of(1, in_channels, out_channels, height, width, kernel);
  s.upsample = 2;
  s.pad_top = s.pad_bottom = kernel - 1, s.pad_left = kernel / 2, s.pad_right = kernel - 1;
  return s;
}

// Planes whose mean is a thousand times their deviation.
ConvNormTrial large_means() {
  lab::ConvNormProblem problem =
      lab::random_conv_norm(shape_of(1, 4, 3, 20, 24, 3, 1, Padding::kReflect), 5);
  for (float& x : problem.x) x = 64 + x / 4;
  for (float& w : problem.weight) w = std::abs(w) + 0.25f;
  return stored("large means", problem);
}

}  // namespace

TEST_CASE("half: right on every kernel, stride and padding, ragged sizes, several images") {
  if (skipped("half: right")) return;
  uint64_t seed = 1;
  for (const ConvNormShape& shape : conv_norm_shapes()) {
    const ConvNormTrial trial = stored(shape, seed, seed % 3 == 0);
    // Off a multiple of 8 bytes pixels come one by one.
    check_right(seed % 2 ? steps::half_fused : steps::half_two_passes, trial, seed % 4 == 0);
    ++seed;
  }
  check_right(steps::half_two_passes, stored(shape_of(2, 3, 4, 12, 16, 3), 1, true));
}

TEST_CASE("half: arrays from PyTorch, rounded to fp16") {
  if (skipped("half: arrays from PyTorch")) return;
  int done = 0;
  for (ConvNormTrial trial : conv_norm_golden_trials()) {
    lab::ConvNormProblem& problem = trial.problem;
    const auto in_range = [](const std::vector<float>& values) {
      float largest = 0;
      for (const float v : values) largest = std::max(largest, std::abs(v));
      return values.empty() || (largest >= 0x1p-14f && largest <= 65504);
    };
    double largest_y = 0, largest_residual = 0;
    for (const double y : trial.expected.y) largest_y = std::max(largest_y, std::abs(y));
    for (const float r : problem.residual)
      largest_residual = std::max(largest_residual, std::abs(double(r)));
    if (!in_range(problem.x) || !in_range(problem.weight) || largest_y > 65504) continue;
    // PyTorch's inputs were not rounded: to that of y come the roundings of x, weight and residual.
    trial.expected.tolerance =
        lab::fp16_storage_tolerance(lab::rounded_products_tolerance(problem, trial.expected));
    trial.expected.tolerance.atol += 0x1p-11 * largest_residual;
    problem = lab::rounded_to_fp16(problem);
    check_right(steps::half_fused, trial);
    ++done;
  }
  CHECK(done >= 20);
}

TEST_CASE("half: each kind of tile, several tiles a block, odd channels beyond a stage") {
  if (skipped("half: each kind of tile")) return;
  const bool h200 = steps::device_limits().sm_count == 132;
  const auto check = [&](const ConvNormShape& shape, steps::TileName tile, bool several) {
    const steps::LaunchPlan plan = steps::plan_of<steps::HalfTiles>(shape);
    CAPTURE(describe(shape));
    if (h200) {
      CHECK(plan.fits);
      CHECK(plan.tile == tile);
      CHECK((plan.tiles_of_block > 1) == several);
    }
    check_right(steps::half_fused, stored(shape, 3, true));
  };
  check(shape_of(1, 2, 64, 99, 160, 1), steps::kHalfLarge, false);
  check(shape_of(1, 1, 64, 209, 192, 1), steps::kHalfLarge, true);
  check(shape_of(1, 5, 33, 129, 172, 3, 1, Padding::kReflect), steps::kHalfHuge, false);
  check(shape_of(1, 1, 64, 192, 320, 1), steps::kHalfHuge, true);
  check(shape_of(1, 13, 70, 59, 75, 3, 2), steps::kHalfSmall, false);
  check(shape_of(1, 35, 40, 12, 20, 3), steps::kHalfSmall, false);
  check(shape_of(1, 67, 17, 9, 12, 1), steps::kHalfSmall, false);
  check(shape_of(1, 5, 33, 16, 28, 9, 1, Padding::kReflect), steps::kHalfSmall, false);
  check_right(steps::half_fused, stored(upsampled(19, 20, 9, 12, 4), 4));
  check_right(steps::half_fused, large_means());
  check_right(steps::half_two_passes, large_means());
}

TEST_CASE("half: flat planes are beta to the bit, NaNs stay where they are") {
  if (skipped("half: flat planes")) return;
  const ConvNormTrial trial = stored(shape_of(3, 4, 6, 17, 20, 3), 9, true);
  for (const HalfRun run : {steps::half_fused, steps::half_two_passes}) {
    for (const auto [height, width] : {std::array{5, 7}, std::array{19, 21}, std::array{59, 84}})
      check_right(run, flat_planes(height, width));
    CHECK(wrong_with_nans(on_halves(run), trial) == "");
  }
}

TEST_CASE("half: the same bits twice") {
  if (skipped("half: the same bits twice")) return;
  const ConvNormTrial trial = stored(shape_of(2, 5, 40, 37, 50, 3), 8, true);
  for (const HalfRun run : {steps::half_fused, steps::half_two_passes}) {
    const ConvNormOutcome first = run_conv_norm(on_halves(run), trial),
                          second = run_conv_norm(on_halves(run, 1), trial);
    REQUIRE(first.y.size() == trial.expected.y.size());
    CHECK(std::memcmp(first.y.data(), second.y.data(), first.y.size() * 4) == 0);
  }
}

TEST_CASE("half: the tolerance is a rounding of y, and rejects one tap of 144 too few") {
  const ConvNormTrial trial = stored(shape_of(1, 16, 8, 12, 12, 3), 9);
  CHECK(trial.expected.tolerance.relative_l2 == doctest::Approx(0x1p-11 + 1e-5));
  CHECK(trial.expected.tolerance.rtol == doctest::Approx(0x1p-11 + 1e-5));
  std::vector<float> y(trial.expected.y.begin(), trial.expected.y.end());
  const auto passes = [&] {
    return lab::compare(lab::to_half(y), trial.expected.y, trial.expected.tolerance, {1, 8, 12, 12})
        .pass;
  };
  CHECK(passes());
  ConvNormTrial fewer = trial;
  for (int m = 0; m < 8; ++m) fewer.problem.weight[m * 16 * 9 + 5] = 0;
  const ConvNormTrial wrong = conv_norm_trial("a tap less", fewer.problem);
  y.assign(wrong.expected.y.begin(), wrong.expected.y.end());
  CHECK(!passes());
}

TEST_CASE("half: weights packed once serve pictures of any size") {
  if (skipped("half: weights packed once")) return;
  const ConvNormShape shape = shape_of(1, 19, 20, 33, 41, 3);
  // 10 pairs of channels x 9 taps: stages of 8 and 2 pairs, 9 and 3 steps, for 2 x 16 channels.
  CHECK(steps::packed_elements(shape) == (9 + 3) * 2 * 32 * 8);
  // Parts of 2 x 2, 2 x 1, 1 x 2 and 1 x 1 taps, 5 channels: 3 pairs, so 2, 1, 1 and 1 steps.
  CHECK(steps::packed_elements(upsampled(5, 9, 7, 6, 3)) == (2 + 1 + 1 + 1) * 32 * 8);
  const Pack for_another = [](const half* weight, half* packed, const ConvNormShape& shape) {
    ConvNormShape other = shape;
    other.height = 9, other.width = 8, other.batch = 3;
    steps::pack_weights(weight, packed, other, nullptr);
  };
  const ConvNormOutcome outcome =
      run_conv_norm(on_halves(steps::half_fused, 0, for_another), stored(shape, 2));
  CHECK(outcome.caught_by == "");
}

TEST_CASE("half: what it cannot take") {
  if (skipped("half: what it cannot take")) return;
  const ConvNormShape shape = shape_of(1, 3, 4, 8, 8, 3);
  lab::DeviceArray<half> a(8192, "a");
  lab::DeviceArray<float> f(64, "f");
  const auto message = [&](const half* x, const half* packed, half* y) -> std::string {
    try {
      steps::half_fused(x, packed, f.data(), f.data(), nullptr, y, shape, nullptr);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message(nullptr, a.data(), a.data()).find("must not be null") != std::string::npos);
  CHECK(message(a.data(), a.data() + 1, a.data()).find("multiple of 16 bytes") !=
        std::string::npos);
  CHECK_THROWS_AS(steps::pack_weights(a.data(), a.data() + 4, shape, nullptr),
                  std::invalid_argument);
}

// ---- Counters -----------------------------------------------------------------------------------

namespace {

// Bank conflicts of the last launch in the lines of one file. At least one is there.
double conflicts_in(const std::string& file) {
  const std::string json = lab::vgpu::launch_json();
  double conflicts = 0;
  bool found = false;
  for (int i = 0;; ++i) {
    const std::string line = "/lines/" + std::to_string(i);
    try {
      if (json_at(json, line + "/file").find(file) == std::string::npos) continue;
    } catch (const std::exception&) {
      CHECK(found);
      return conflicts;  // no more lines
    }
    found = true;
    conflicts += std::stod(json_at(json, line + "/conflicts"));
  }
}

}  // namespace

TEST_CASE(
    "half counters: products of padded tiles, 2 bytes a number, no conflicts, a lower limit") {
  if (skipped_without_counters("half counters")) return;
  const auto run = [&](const ConvNormShape& shape) {
    const ConvNormTrial trial = stored(shape, 1);
    const lab::HalfConvNorm step{steps::packed_elements, steps::pack_weights, steps::half_fused};
    std::vector<lab::ConvNormArrays> arrays = lab::upload(trial.problem, 1, step);
    arrays[0].pack(step, shape);
    arrays[0].run(step, shape);
    lab::check(cudaDeviceSynchronize());
    return lab::vgpu::counter("/classes/fp32/thread");
  };
  // Small tiles, 32 channels x 8 x 8 pixels: 2 groups of channels, 3 x 3 of pixels. 10 pairs of
  // channels: stages with 72 and 18 pairs of products, in steps of 8.
  const ConvNormShape ragged = shape_of(1, 19, 37, 19, 21, 3);
  run(ragged);
  CHECK(lab::vgpu::counter("/tensor_macs") == 2 * 9 * 32 * 64 * (9 + 3) * 16);
  CHECK(counted("y16", "store/bytes_asked") == 2.0 * double(ragged.y_elements()));
  CHECK(counted("y16", "load/bytes_asked") == 0);
  CHECK(lab::vgpu::counter("/local/store/requests") == 0);
  // Each tile reads the packed weights of its channels once: 2 or 1 x 16, 12 steps.
  CHECK(counted("packed", "load/bytes_asked") == 9 * (2 + 1) * 12 * 512);
  // Twice the products, and not one instruction of the fp32 units more.
  const double once = run(shape_of(1, 16, 32, 16, 16, 3));
  CHECK(lab::vgpu::counter("/tensor_macs") == 4 * 32 * 64 * 9 * 16);
  // What brings pixels to a stage and reads them has no conflicts: where four lanes have a row of a
  // small tile, pairs of channels are permuted for it.
  CHECK(conflicts_in("half_tile.cuh") == 0);
  CHECK(run(shape_of(1, 32, 32, 16, 16, 3)) == once);

  // A quarter of "deep": 128 channels, 64 x 64 pixels.
  const ConvNormShape shape = shape_of(1, 32, 128, 64, 64, 3);
  run(shape);
  const double limit = lab::vgpu::counter("/limit/us");
  CHECK(shared_conflicts() / shared_wavefronts() <= 0.02);
  std::vector<lab::ConvNormArrays> arrays = lab::upload(lab::random_conv_norm(shape, 1), 1);
  arrays[0].run(steps::tensor_fused<steps::kFp16>, shape);
  lab::check(cudaDeviceSynchronize());
  CHECK(limit < 0.7 * lab::vgpu::counter("/limit/us"));
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {}  // namespace

TEST_CASE("planted bugs in half tiles: each is caught, and by what" *
          doctest::test_suite("toolkit")) {
  if (rerun_with_checks("planted bugs in half*")) return;
  const std::vector<ConvNormTrial> trials = {
      stored(shape_of(1, 19, 40, 13, 20, 3), 2, true),
      stored(shape_of(1, 2, 5, 9, 16, 3, 1, Padding::kReflect), 3),
      stored(upsampled(3, 5, 6, 5, 3), 4), large_means()};
  const Mutants mutants("chapters/08_fused_conv_norm/tests/fused_half.cuh", "fused_conv_norm",
                        planted_bugs("08_fused_conv_norm", "half"),
                        "const auto instance = &fused_kernel<kHalfSmall, 1>;");
  // Small tiles, two a block.
  steps::check_planted_bugs(planted_bugs("08_fused_conv_norm", "half"), trials, [&](size_t number) {
    const HalfRun run = [&mutants, number](const half* x, const half* packed, const float* gamma,
                                           const float* beta, const half* residual, half* y,
                                           const ConvNormShape& shape, cudaStream_t) {
      steps::run_mutant<steps::kHalfSmall>(mutants, number, 2, shape, x, packed, gamma, beta,
                                           residual, y);
    };
    const Pack pack = [&mutants, number](const half* weight, half* packed,
                                         const ConvNormShape& shape) {
      const int64_t fragments = steps::packed_elements(shape) / 8;
      launch(mutants.kernel(number, "pack_kernel"), dim3(unsigned(fragments / 256 + 1)), dim3(256),
             0, nullptr, weight, reinterpret_cast<uint4*>(packed), fragments,
             steps::Tile<steps::kHalfSmall>::plan(shape, nullptr, nullptr, {}));
    };
    return on_halves(run, 0, pack);
  });
}

// ---- Checks, other devices, machine code, program -----------------------------------------------

TEST_CASE("half: checked without a finding") {
  if (rerun_with_checks("half: checked*")) return;
  const int findings = lab::vgpu::findings();
  check_right(steps::half_fused, stored(shape_of(2, 5, 9, 17, 19, 3), 1, true));
  check_right(steps::half_two_passes, stored(shape_of(1, 35, 40, 9, 12, 3), 2, true), 1);
  check_right(steps::half_fused, stored(upsampled(3, 5, 6, 5, 3), 3));
  CHECK(lab::vgpu::findings() == findings);
}

TEST_CASE("half: all checks, six schedules") {
  check_all_checks("chapter8", {{"--in-channels", "19", "--out-channels", "33", "--height", "9",
                                 "--width", "12", "--residual", "--storage", "fp16"}});
}

TEST_CASE("half: no spills, no stack, as many registers as 256 threads may have") {
  if (skipped_without_counters("half: no spills")) return;
  const auto check = [](const void* kernel, int threads) {
    cudaFuncAttributes attributes;
    lab::check(cudaFuncGetAttributes(&attributes, kernel));
    CHECK(attributes.localSizeBytes == 0);
    CHECK(attributes.numRegs * threads <= 65536);
  };
  for (const steps::TileName name : {steps::kHalfHuge, steps::kHalfLarge, steps::kHalfSmall})
    for (const int stride : {1, 2}) {
      CAPTURE(name);
      CAPTURE(stride);
      const steps::Kernels kernels = steps::kernels_of<steps::HalfTiles>(name, stride);
      check(kernels.fused, 256);
      check(kernels.first_pass, 256);
      check(kernels.second_pass_by_1, 1024);
      check(kernels.second_pass_by_4, 1024);
    }
}

TEST_CASE("half: on a T4") {
  const int sm_count = steps::device_limits().sm_count;
  if (sm_count != 40) return check_twin_on_t4("half: on a T4*,half: arrays*");
  const ConvNormShape large = shape_of(1, 2, 64, 320, 320, 1);
  CHECK(!steps::plan_of<steps::HalfTiles>(large).fits);
  check_right(steps::half_fused, stored(large, 1));
  check_right(steps::half_fused, stored(shape_of(1, 5, 33, 16, 28, 9, 1, Padding::kReflect), 2));
}

TEST_CASE("half: program") {
  if (skipped("half: program")) return;
  const TemporaryFolder folder;
  const auto run = [&](const std::vector<std::string>& arguments) {
    return run_program("chapter8", arguments, folder.folder());
  };
  const ProgramResult right = run({"--height", "16", "--width", "16", "--storage", "fp16",
                                   "--residual", "--json", "result.json"});
  CAPTURE(right.output);
  CHECK(right.exit_code == 0);
  for (const char* line :
       {"\nfused ", "\nfused fp16 ", "\nhalf storage ", "\npack weights ", "fp16 storage"})
    CHECK(right.output.find(line) != std::string::npos);
  const std::regex ratio("\nhalf storage +([0-9.]+ [num]?s +){1,2}[0-9.]+x ");
  CHECK(std::regex_search(right.output, ratio));
  const std::string json = lab::read_file(folder.path("result.json"));
  CHECK(json.find("\"storage\": \"fp16\"") != std::string::npos);

  const auto refused = [&](const std::vector<std::string>& arguments, const char* words) {
    const ProgramResult result = run(arguments);
    CAPTURE(result.errors);
    CHECK(result.exit_code == 2);
    CHECK(result.errors.find(words) != std::string::npos);
  };
  refused({"--storage", "bf16"}, "'bf16': must be fp32 or fp16");
  refused({"--storage", "fp16", "--precision", "tf32"}, "does not go with --precision tf32");
  const auto write = [&](float x, float gamma) {
    lab::write_safetensors(folder.path("in"), {{"x", {{1, 1, 1, 2}, {1, x}, "F32"}},
                                               {"weight", {{1, 1, 1, 1}, {1}, "F32"}},
                                               {"gamma", {{1}, {gamma}, "F32"}},
                                               {"beta", {{1}, {0}, "F32"}}});
  };
  write(65505, 1);
  refused({"--input", "in", "--storage", "fp16"}, "element 1 of x is 65505, fp16 ends at 65504");
  write(3, 70000);
  refused({"--input", "in", "--storage", "fp16"}, "y reaches");
}
