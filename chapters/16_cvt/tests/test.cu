// Tests of the chapter's program. Those of the formulas are in test_golden.cpp and test_formulas.cpp.
#include <doctest/doctest.h>

#include "../../../common/testing/checks.h"

using namespace lab::testing;

TEST_CASE("machine code: no spills") { check_machine_code("chapters/16_cvt"); }

TEST_CASE("program: each operation's steps are right, alone and one after the other") {
  if (!has_device()) return;
  TemporaryFolder folder;
  const auto run = [&](const std::vector<std::string>& arguments) {
    const ProgramResult result = run_program("chapter16", arguments, folder.folder());
    CAPTURE(result.errors);
    CHECK(result.exit_code == 0);
    return result.output;
  };
  const std::vector<std::pair<std::string, std::vector<std::string>>> steps = {
      {"projection", {"naive", "fused", "naive, back", "fused, back"}},
      {"linear", {"tiled", "tiled, back"}},
      {"layer_norm", {"rows", "rows, back"}},
      {"attention", {"fused", "fused, back"}},
      {"embedding", {"patches", "implicit", "patches, back", "implicit, back"}}};
  for (const auto& [component, names] : steps) {
    CAPTURE(component);
    const std::string all = run({"--component", component, "--batch", "1"});
    for (const std::string& name : names) CHECK(all.find("\n" + name + " ") != std::string::npos);
    // Gradients alone need what the forward pass leaves.
    const std::string alone =
        run({"--component", component, "--batch", "1", "--step", names.back()});
    CHECK(alone.find("\n" + names.back() + " ") != std::string::npos);
    CHECK(alone.find("\n" + names.front() + " ") == std::string::npos);
  }
}

TEST_CASE("program: bad usage ends with 2 and says what is right") {
  TemporaryFolder folder;
  const std::vector<std::pair<std::vector<std::string>, std::string>> bad = {
      {{"--component", "nothing"},
       "--component 'nothing': must be projection, linear, layer_norm, attention or embedding"},
      {{"--step", "tiled"}, "--step 'tiled': must be naive, fused, naive, back or fused, back"},
      {{"--component", "linear", "--step", "fused"},
       "must be tiled or tiled, back, with --component linear"},
      {{"--component", "linear", "--dtype", "fp32"},
       "--dtype goes only with --component projection"},
      {{"--component", "attention", "--output", "a"},
       "--output goes only with --component projection"},
      {{"--dtype", "bf16"}, "--dtype 'bf16': must be fp16 or fp32"},
      {{"--preset", "large"}, "--preset 'large': must be small"},
      {{"--batch", "1", "--height", "2", "--width", "2"}, "at least 2 positions"}};
  for (const auto& [arguments, part] : bad) {
    const ProgramResult result = run_program("chapter16", arguments, folder.folder());
    CAPTURE(result.errors);
    CHECK(result.exit_code == 2);
    CHECK(result.errors.find(part) != std::string::npos);
  }
}
