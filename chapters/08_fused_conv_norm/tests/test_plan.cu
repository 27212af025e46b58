// Chapter 8's plan of a shape: it outlives a reset of the device, and a launch that the device
// refuses in spite of it becomes two passes.
#include <doctest/doctest.h>

#include <cstring>

#include "../../../common/lab/program.h"
#include "../../../common/testing/checks.h"
#include "../../../common/testing/preload.h"
#include "../kernels/instances.cuh"
#include "fewer_blocks.h"
#include "test_support.h"

namespace steps = fused_conv_norm;
using namespace lab::testing;

namespace {

// half_fused() on arrays in fp32, which are rounded; y is fp16.
void half_fused(const float* x, const float* weight, const float*, const float* gamma,
                const float* beta, const float*, float* y, const ConvNormShape& shape,
                cudaStream_t stream) {
  const auto rounded = [](const float* from, int64_t elements) {
    std::vector<float> values(elements);
    lab::check(cudaMemcpy(values.data(), from, elements * sizeof(float), cudaMemcpyDefault));
    return lab::DeviceArray<half>(lab::to_half(values), "rounded");
  };
  const lab::DeviceArray<half> x16 = rounded(x, shape.x_elements()),
                               weight16 = rounded(weight, shape.weight_elements());
  lab::DeviceArray<half> packed(size_t(steps::packed_elements(shape)), "packed"),
      y16(size_t(shape.y_elements()), "y16");
  steps::pack_weights(weight16.data(), packed.data(), shape, stream);
  steps::half_fused(x16.data(), packed.data(), gamma, beta, nullptr, y16.data(), shape, stream);
  const std::vector<float> values = lab::to_float(y16.download());
  lab::check(cudaMemcpy(y, values.data(), values.size() * sizeof(float), cudaMemcpyDefault));
}

}  // namespace

TEST_CASE("plan: all steps are right again after the device has been reset") {
  if (skipped("plan: reset")) return;
  // More shared memory a block than the 48 KiB that a kernel may have without asking.
  const ConvNormShape shape = lab::preset_conv_norm("small");
  CHECK(steps::known_plan_of<steps::Fp32Tiles>(shape).shared_bytes > 48 * 1024);
  const ConvNormTrial trial =
      conv_norm_trial("small", lab::rounded_to_fp16(lab::random_conv_norm(shape, 1)));
  const std::vector<std::pair<const char*, lab::ConvNormFunction>> all = {
      {"three passes", steps::three_passes},
      {"fused", steps::fused<>},
      {"fused tf32", steps::tensor_fused<steps::kTf32>},
      {"fused fp16", steps::tensor_fused<steps::kFp16>},
      {"half storage", half_fused}};
  for (const auto& [name, step] : all) {
    CAPTURE(name);
    const auto run = [&, step = step] {
      const ConvNormOutcome outcome = run_conv_norm(step, trial);
      CHECK_MESSAGE(outcome.caught_by != "error", outcome.details);
      return outcome.y;
    };
    const std::vector<float> before = run();
    lab::check(cudaDeviceReset());
    const std::vector<float> after = run();
    REQUIRE(before.size() == size_t(shape.y_elements()));
    REQUIRE(after.size() == before.size());
    CHECK(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)) == 0);
  }
}

TEST_CASE(
    "plan: a launch that is refused though it should fit becomes two passes, and that is said") {
  if (skipped_without_counters("plan: refused launches")) return;
  const TemporaryFolder folder;
  const Preloaded fewer_blocks(fused_conv_norm::kFewerBlocks);
  const std::vector<std::string> arguments = {"--preset",  "small", "--precision", "tf32,fp16",
                                              "--storage", "fp16",  "--json",      "a.json"};
  const ProgramResult result = run_program("chapter8", arguments, folder.folder());
  CAPTURE(result.output);
  CAPTURE(result.errors);
  CHECK(result.exit_code == 0);
  for (const char* step : {"fused", "fused tf32", "fused fp16", "half storage"})
    CHECK(result.output.find("\n" + std::string(step) +
                             ": two passes: the device refused one launch of ") !=
          std::string::npos);
  for (const char* part : {" blocks with ", " KiB of shared memory each",
                           " should be resident on each of 132 SMs "
                           "(cudaErrorCooperativeLaunchTooLarge)",
                           "\n  first pass ", "\n  second pass ", "fused: 2 launches"})
    CHECK(result.output.find(part) != std::string::npos);
  CHECK(result.output.find("one launch: ") == std::string::npos);
}
