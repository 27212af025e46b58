// The variants that failed: each runs when it is asked for, is right, and has the flaw that the lesson says.
#include <doctest/doctest.h>

#include <string>

#include "../../../common/testing/checks.h"

using namespace lab::testing;

TEST_CASE(
    "variants: right, and without padding each matrix that ldmatrix reads meets one group of "
    "banks") {
  if (skipped("variants") || skipped_without_counters("variants")) return;
  const TemporaryFolder folder;
  // Accesses of the first product to shared memory: (wavefronts, as few as there can be).
  const auto loads_of = [&](const std::string& step) -> std::pair<double, double> {
    const ProgramResult result = run_program(
        "chapter11",
        {"--step", step, "--tokens", "40", "--width", "64", "--hidden", "64", "--json", "a.json"},
        folder.folder());
    CAPTURE(step);
    CAPTURE(result.output);
    CAPTURE(result.errors);
    REQUIRE(result.exit_code == 0);
    const std::string json = file_content(folder.path("a.json"));
    CHECK(json_at(json, "/kernels/0/name") == '"' + step + " fc1\"");
    const std::string load = "/kernels/0/counters/shared/load/";
    return {std::stod(json_at(json, load + "wavefronts")),
            std::stod(json_at(json, load + "ideal"))};
  };
  const auto [plain, plain_ideal] = loads_of("no padding");
  CHECK(plain == 8 * plain_ideal);
  for (const char* step : {"pipeline", "copies first", "swizzle"}) {
    const auto [wavefronts, ideal] = loads_of(step);
    CHECK(wavefronts == ideal);
    CHECK(ideal == plain_ideal);
  }
}
