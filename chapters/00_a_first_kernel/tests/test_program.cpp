// Chapter 0's program as its users run it: a photo, random pixels, one step, flags.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "../../../common/lab/device.h"
#include "../../../common/lab/images.h"
#include "../../../common/testing/checks.h"
#include "test_support.h"

using namespace lab::testing;

TEST_CASE("program: the whole way, with a photo") {
  const auto run = check_photo_run(
      "chapter0", 64, {}, {64, 64},
      {"grey columns", "grey rows", "sum threads", "sum blocks", "blur", "blur tile"});
  if (!run) return;
  CHECK(json_at(run->json, "/problem/height") == "64");
  CHECK(json_at(run->json, "/chapter") == "\"00_a_first_kernel\"");
  CHECK(run->output.find("Mean brightness: ") != std::string::npos);
  CHECK(run->output.find("The whole way, photo in and grey out: ") != std::string::npos);
}

TEST_CASE("program: the picture is what the kernels made of the photo") {
  if (skipped("program: picture")) return;
  const TemporaryFolder folder;
  const ProgramResult result = run_program(
      "chapter0", {"--height", "30", "--width", "50", "--out", "a.png"}, folder.folder());
  CAPTURE(result.errors);
  REQUIRE(result.exit_code == 0);
  const PhotoCase problem = photo_case({30, 50});
  CHECK(lab::load_image(folder.path("a.png")).rgb ==
        lab::draw_steps(problem.problem, problem.expected.grey, problem.expected.blurred).rgb);
}

TEST_CASE("program: random pixels write no picture that nobody asked for") {
  if (skipped("program: random")) return;
  const TemporaryFolder folder;
  for (const char* side : {"1", "33"}) {
    const ProgramResult result =
        run_program("chapter0", {"--height", "1", "--width", side}, folder.folder());
    CAPTURE(result.errors);
    CHECK(result.exit_code == 0);
  }
  CHECK(folder.names().empty());
}

TEST_CASE("program: the race ends with 1, under checks with 86 and the line that has it") {
  if (skipped("program: race") || skipped_without_counters("program: race")) return;
  const TemporaryFolder folder;
  const auto run = [&](const char* checks) {
    const Environment environment("VGPU_CHECK", checks);
    return run_program("chapter0", {"--step", "race", "--size", "64"}, folder.folder());
  };
  const ProgramResult unchecked = run("");
  CHECK(unchecked.exit_code == 1);
  CHECK(unchecked.output.find("race: 1 of 1 wrong") != std::string::npos);
  const ProgramResult checked = run("all");
  CAPTURE(checked.errors);
  CHECK(checked.exit_code == 86);
  const std::string source = file_content("chapters/00_a_first_kernel/4_race.cuh");
  const size_t line =
      1 + std::count(source.begin(), source.begin() + ptrdiff_t(source.find("*sum += ")), '\n');
  CHECK(checked.errors.find("chapters/00_a_first_kernel/4_race.cuh:" + std::to_string(line) +
                            ": error: race: ") != std::string::npos);
}

TEST_CASE("program: one step alone, and predicted times") {
  if (skipped("program: step")) return;
  const TemporaryFolder folder;
  for (const char* step : {"grey columns", "sum serial", "blur tile"}) {
    CAPTURE(step);
    const ProgramResult result =
        run_program("chapter0", {"--step", step, "--size", "50"}, folder.folder());
    CHECK(result.exit_code == 0);
    CHECK(result.output.find(std::string("\n") + step + " ") != std::string::npos);
  }
  CHECK(folder.names().empty());
  if (skipped_without_counters("program: predict")) return;
  const ProgramResult result =
      run_program("chapter0", {"--predict", "--size", "512"}, folder.folder());
  CAPTURE(result.errors);
  CHECK(result.exit_code == 0);
  CHECK(result.output.find("No predicted time") == std::string::npos);
}

TEST_CASE("program: flags and input that are not right") {
  const TemporaryFolder folder;
  folder.write("text.png", "no photo");
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& named) {
    const ProgramResult result = run_program("chapter0", arguments, folder.folder());
    CAPTURE(named);
    CAPTURE(result.errors);
    CHECK(result.exit_code == 2);
    CHECK(result.errors.find(named) != std::string::npos);
  };
  refused({"--size", "0"}, "--size '0': must be a whole number from 1 to 4096");
  refused({"--size", "4097"}, "must be a whole number from 1 to 4096");
  refused({"--height", "5"}, "--height and --width go together");
  refused({"--width", "16385", "--height", "1"}, "must be a whole number from 1 to 16384");
  refused({"--width", "16384", "--height", "1025"}, "at most 16777216 pixels");
  refused({"--height", "5", "--width", "5", "--size", "32"}, "--size does not go with --height");
  refused({"--step", "sepia"},
          "--step 'sepia': must be grey columns, grey rows, sum threads, sum blocks, blur, blur "
          "tile, sum serial or race");
  refused({"--step", "blur", "--out", "a.png"}, "--out does not go with --step");
  refused({"--image", "text.png"}, "text.png: is no PNG or JPEG image");
  refused({"--image", "nowhere.png"}, "nowhere.png");
  refused({"--out", "a.gif"}, "must end in .png, .jpg or .jpeg");
  refused({"--tokens", "5"}, "there is no such flag");
}
