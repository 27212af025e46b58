// Chapter 8's stages: where their rows belong without a division, and where operands are rounded.
#include <doctest/doctest.h>

#include "../../../common/testing/checks.h"
#include "../host/problem.h"
#include "../parts/convolve.cuh"
#include "../parts/tensor_tile.cuh"

namespace steps = fused_conv_norm;
using namespace lab::testing;

TEST_CASE("stages: rows of a stage find their channel without a division") {
  // The most rows: 32 channels of 1 x 1 filters; the highest: 9 taps under 8 rows with stride 2.
  for (int stage_rows = 1; stage_rows <= 23; ++stage_rows)
    for (int row = 0; row < 32 * stage_rows; ++row)
      REQUIRE(steps::channel_of_row(row, steps::share_of_row(stage_rows)) == row / stage_rows);
  for (const int kernel : {1, 3, 4, 5, 9})
    for (const int stride : {1, 2}) {
      ConvNormShape shape = lab::preset_conv_norm("small");
      shape.kernel = kernel, shape.stride = stride;
      const steps::Fp32Plan problem =
          steps::Tile<steps::kLarge>::plan(same_padded(shape), nullptr, nullptr, {227 * 1024, 132});
      CHECK(problem.stage_rows <= 23);
      CHECK(problem.stage_channels <= 32);
      CHECK(problem.row_share == steps::share_of_row(problem.stage_rows));
    }
}

TEST_CASE("stages: an operand in tf32 is rounded to nearest, once for each read" *
          doctest::test_suite("toolkit")) {
  if (skipped("stages: rounding")) return;
  int major = 0;
  lab::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  if (major < 8) return;
  const Mutants none("chapters/08_fused_conv_norm/3_tensor.cuh", "fused_conv_norm", {},
                     "const auto instance = &fused_kernel<kTf32Small, 1>;", Mutants::kWholeFile,
                     Mutants::kAsShipped);
  const auto count = [&](const std::string& text) {
    int times = 0;
    for (size_t at = 0; (at = none.ptx().find(text, at)) != std::string::npos; ++at) ++times;
    return times;
  };
  // A turn of the loop over steps has a warp's 32 channels x 32 pixels: 2 x 4 products with 4 and 2
  // registers of operands, 2 x 4 + 4 x 2 of them in all, which several products share.
  CHECK(count("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32") == 8);
  CHECK(count("cvt.rna.tf32.f32") == 16);
  // What a stage holds: 32 rows of 76 weights, 8 channels of 10 rows of 20 pixels.
  const steps::TensorPlan problem = steps::Tile<steps::kTf32Small>::plan(
      lab::preset_conv_norm("small"), nullptr, nullptr, {227 * 1024, 132});
  CHECK(problem.stage_floats == 32 * 76 + 8 * 10 * 20);
  CHECK(problem.tiles * (64 / problem.stage_channels) * problem.stage_floats / 32 == 129024);
}
