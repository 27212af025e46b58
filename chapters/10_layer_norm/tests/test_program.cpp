// Chapter 10's program as its users run it: a photo, random rows, their own tensors, flags.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "../../../common/lab/device.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/checks.h"
#include "test_support.h"

using namespace lab::testing;
using lab::Storage;

TEST_CASE("program: the whole way, with a photo") {
  const auto run = check_photo_run("chapter10", 64, on_a_gpu({"--batch", "1"}), {17, 768},
                                   {"copy", "base", "cub", "warp", "vector", "rows", "add",
                                    "fused residual", "dx", "slab sums", "column sums", "atomics"});
  if (!run) return;
  CHECK(json_at(run->json, "/problem/rows") == "17");
  CHECK(json_at(run->json, "/problem/storage") == "\"fp16\"");
}

TEST_CASE(
    "program: the naive variance fails where the mean is large, and says so with exit code 1") {
  if (skipped("program: naive")) return;
  const TemporaryFolder folder;
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--rows", "20", "--variance", "naive"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program("chapter10", arguments, folder.folder());
  };
  const ProgramResult near = run({});
  CHECK(near.exit_code == 0);
  const ProgramResult far = run({"--mean", "1000"});
  CHECK(far.exit_code == 1);
  CHECK(far.output.find("E[x^2] - E[x]^2") != std::string::npos);
  CHECK(far.output.find("FAIL") != std::string::npos);
  // Nobody else fails there.
  CHECK(run_program("chapter10", {"--rows", "20", "--mean", "1000"}, folder.folder()).exit_code ==
        0);
}

TEST_CASE("program: predicted times alone, also of a last slab that is shorter than the others") {
  if (skipped("program: predict") || skipped_without_counters("program: predict")) return;
  const TemporaryFolder folder;
  // Of 129 rows the last slab has one, of 197 five, of 640 as many as the others.
  for (const char* rows : {"129", "197", "640"}) {
    const ProgramResult result =
        run_program("chapter10", {"--rows", rows, "--predict"}, folder.folder());
    CAPTURE(result.errors);
    CHECK(result.exit_code == 0);
    CHECK(result.output.find("add, then rows: ") != std::string::npos);
    CHECK(result.output.find("slab sums and column sums: ") != std::string::npos);
    CHECK(result.output.find("No predicted time of slab sums") == std::string::npos);
  }
}

TEST_CASE("program: what falls back is said") {
  if (skipped("program: falls back")) return;
  const TemporaryFolder folder;
  const ProgramResult result =
      run_program("chapter10", {"--rows", "9", "--columns", "100"}, folder.folder());
  CHECK(result.exit_code == 0);
  CHECK(
      result.output.find("100 columns are not whole pieces of 16 bytes: vector, rows and residual "
                         "do as warp does") != std::string::npos);
}

TEST_CASE("program: a user's tensors in, the right output out") {
  if (skipped("program: tensors")) return;
  const TemporaryFolder folder;
  const LayerNormCase problem = layer_norm_case({7, 96, 1e-6f}, Storage::kFp32, 5);
  const auto floats = [](const std::vector<double>& values) {
    return std::vector<float>(values.begin(), values.end());
  };
  const auto run = [&](const std::vector<int64_t>& x_shape, const std::vector<float>& scale) {
    lab::write_safetensors(folder.path("in"),
                           {{"x", {x_shape, floats(problem.problem.x), "F32"}},
                            {"scale", {{int64_t(scale.size())}, scale, "F32"}},
                            {"bias", {{96}, floats(problem.problem.bias), "F32"}}});
    return run_program("chapter10", {"--input", "in", "--output", "out", "--storage", "fp32"},
                       folder.folder());
  };
  const std::vector<float> scale = floats(problem.problem.scale);
  const ProgramResult result = run({7, 96}, scale);
  CAPTURE(result.errors);
  REQUIRE(result.exit_code == 0);
  const std::vector<lab::Tensor> output = lab::read_safetensors(folder.path("out"), {"out"});
  REQUIRE(output[0].shape == std::vector<int64_t>{7, 96});
  const lab::Comparison right =
      lab::compare(output[0].values, problem.expected.y, problem.expected.for_y, {7, 96});
  CHECK_MESSAGE(right.pass, right.describe());

  const auto refused = [&](const ProgramResult& refusal, const char* named) {
    CAPTURE(refusal.errors);
    CHECK(refusal.exit_code == 2);
    CHECK(refusal.errors.find(named) != std::string::npos);
  };
  refused(run({672}, scale), "tensor 'x' has shape [672], [rows, columns] is needed");
  refused(run({21, 32}, scale), "tensor 'x' has 32 columns, 64 to 4096 are needed");
  refused(run({7, 96}, {1, 2, 3}), "tensor 'scale' has shape [3], [96] is needed");
  std::vector<float> infinite = scale;
  infinite[5] = INFINITY;
  refused(run({7, 96}, infinite), "tensor 'scale': element 5 is inf; finite values are needed");
}

TEST_CASE("program: flags that are not right") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& named) {
    const ProgramResult result = run_program("chapter10", arguments, folder.folder());
    CAPTURE(named);
    CAPTURE(result.errors);
    CHECK(result.exit_code == 2);
    CHECK(result.errors.find(named) != std::string::npos);
  };
  refused({"--columns", "63"}, "--columns '63': must be a whole number from 64 to 4096");
  refused({"--columns", "4097", "--rows", "5"}, "must be a whole number from 64 to 4096");
  refused({"--columns", "768"}, "--columns needs --rows");
  refused({"--rows", "5", "--size", "32"}, "--size does not go with --rows");
  refused({"--storage", "bf16"}, "--storage 'bf16': must be fp16 or fp32");
  refused({"--variance", "fast"}, "--variance 'fast': must be distances or naive");
  refused({"--mean", "large"}, "--mean 'large': must be a number from -1000000 to 1000000");
  refused({"--rows", "5", "--mean", "70000"}, "fp16 ends at 65504; --storage fp32 has the range");
  refused({"--step", "residual"}, "--step 'residual': must be base, cub, warp, vector or rows");
  refused({"--size", "40"}, "--size '40': must be a multiple of 16 pixels");
}

TEST_CASE(
    "program: a device that it was not compiled for is named, with what to do and exit code 3") {
  if (skipped("program") || skipped_without_counters("program")) return;
  if (lab::open_device().major < 8) return;  // compiled for a T4
  const TemporaryFolder folder;
  setenv("VGPU_DEVICE", "t4", 1);
  const ProgramResult result = run_program("chapter10", {"--rows", "5"}, folder.folder());
  unsetenv("VGPU_DEVICE");
  CAPTURE(result.errors);
  CHECK(result.exit_code == 3);
  CHECK(result.errors.find("layer norm of shape [rows 5") != std::string::npos);
  CHECK(result.errors.find("build for this device with ARCH=sm_XX") != std::string::npos);
}
