// Chapter 9's program as its users run it, the reference, and what a timeline says of the steps.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "../../../common/attention/test_ladder.h"
#include "../../../common/json/json.h"
#include "../host/reference.h"
#include "test_support.h"

using namespace lab::testing;
namespace steps = patch_embedding;

TEST_CASE("patch embedding reference: PyTorch's arrays to 12 digits") {
  for (const steps::Case& problem : steps::golden_cases()) {
    const std::vector<double> got = expected_tokens(problem.problem, problem.part);
    CAPTURE(problem.name);
    const lab::Comparison right =
        lab::compare(got, problem.expected, {1e-12, 1e-12, 1e-12}, steps::part_dims(problem.part));
    CHECK_MESSAGE(right.pass, right.describe());
  }
}

TEST_CASE("patch embedding reference: a part is a part of the whole") {
  const steps::Shape shape{2, 32, 48, 3};
  const steps::Case all = steps::random_case(shape, whole(shape), 4),
                    part = steps::random_case(shape, {2, 4, 2}, 4);
  size_t at = 0;
  for (int image = 0; image < 2; ++image)
    for (int row = 0; row < 5; ++row)
      for (int c = 0; c < 2; ++c)
        CHECK(part.expected.at(at++) == all.expected.at((image * 7 + row) * 3 + c));
}

TEST_CASE("program: the whole way, with a photo") {
  if (skipped("program")) return;
  const TemporaryFolder folder;
  const ProgramResult result = run_program(
      "chapter9", {"--size", "64", "--json", "a.json", "--csv", "a.csv"}, folder.folder());
  CAPTURE(result.output);
  CAPTURE(result.errors);
  REQUIRE(result.exit_code == 0);
  const std::string json = file_content(folder.path("a.json"));
  CHECK(json_at(json, "/kernels/0/name") == "\"channel launches\"");
  CHECK(json_at(json, "/pass") == "true");
  CHECK(json_at(json, "/kernels/0/all_tokens_launches") == std::to_string(16 * 192 * 48) + ".0");
  // Which times are of all outputs, and which of a part, extended.
  CHECK(std::stod(json_at(json, "/kernels/0/all_tokens_share_run")) ==
        doctest::Approx(4.0 / 16 * 16 / 192));
  CHECK(json_at(json, "/kernels/7/all_tokens_share_run") == "1.0");
  CHECK(!file_content(folder.path("tokens.png")).empty());
  for (size_t begin = 0, end; begin < result.output.size(); begin = end + 1) {
    end = result.output.find('\n', begin);
    CHECK(end - begin <= 100);
  }
}

TEST_CASE("program: a timeline holds the launches and copies that the formulas say") {
  if (skipped("program") || skipped_without_counters("program")) return;
  const TemporaryFolder folder;
  const steps::Part part{1, 2, 3}, half{1, 1, 3};
  // Each step runs on the part and on half of it.
  const std::map<std::string, int> rows = {
      {"channel launches", 48}, {"unified", 1}, {"4 streams", 1}, {"resident", 1}};
  for (const auto& [step, of_output] : rows) {
    setenv("VGPU_TIMELINE", folder.path("t.json").c_str(), 1);
    const ProgramResult result = run_program(
        "chapter9", {"--size", "32", "--channels", "4", "--part", "2x3", "--step", step},
        folder.folder());
    unsetenv("VGPU_TIMELINE");
    CAPTURE(step);
    CAPTURE(result.errors);
    REQUIRE(result.exit_code == 0);
    const json::Value timeline = json::parse(file_content(folder.path("t.json")));
    std::map<std::string, int> count;
    const json::Value& events = timeline["traceEvents"];
    for (size_t i = 0; i < events.size(); ++i) {
      const json::Value* const category = events.item(i).find_path("/cat");
      const json::Value* const phase = events.item(i).find_path("/ph");
      if (category && phase && phase->get<std::string>() == "X")
        ++count[category->get<std::string>()];
    }
    const int outputs = int(part.outputs() + half.outputs());
    CHECK(count["kernel"] == outputs * of_output);
    const int copies = step == "channel launches" ? outputs * (2 * 48 + 2)
                       : step == "resident"       ? 2 * 3
                                                  : outputs * 3;
    CHECK(count["copy"] == copies);
  }
}

TEST_CASE("program: each step is predicted to be faster for all tokens than the first two") {
  if (skipped("program") || skipped_without_counters("program")) return;
  const TemporaryFolder folder;
  const ProgramResult result = run_program(
      "chapter9", {"--size", "64", "--part", "4x4", "--json", "a.json"}, folder.folder());
  REQUIRE(result.exit_code == 0);
  const std::string json = file_content(folder.path("a.json"));
  std::vector<double> us;
  for (int i = 0; i < 8; ++i) {
    const std::string text = json_at(json, "/kernels/" + std::to_string(i) + "/all_tokens_us");
    if (text == "null") return;  // no ptxas here
    us.push_back(std::stod(text));
  }
  CHECK(us[0] > 20 * us[1]);  // channel launches, unified
  CHECK(us[1] > us[2]);       // 1 stream: nothing waits
  CHECK(us[2] > us[5]);       // resident: no copies in between
  CHECK(us[5] > us[6]);       // graph
  CHECK(us[6] > 5 * us[7]);   // one product
}

TEST_CASE("program: flags that are not right") {
  const TemporaryFolder folder;
  const auto refused = [&](std::vector<std::string> arguments, const char* named) {
    const ProgramResult result = run_program("chapter9", arguments, folder.folder());
    CAPTURE(named);
    CAPTURE(result.errors);
    CHECK(result.exit_code == 2);
    CHECK(result.errors.find(named) != std::string::npos);
    CHECK(folder.names().empty());
  };
  refused({"--size", "100"}, "--size '100': must be a multiple of 16 pixels");
  refused({"--part", "4"}, "--part '4': must be two numbers with 'x' between them");
  refused({"--part", "4xa"}, "--part 'a': must be a whole number from 1");
  refused({"--part", "500x4"}, "--part '500x4': there are 196 patches and 192 channels");
  refused({"--patch", "14,0"}, "--patch '14,0': rows and columns go from 0 to 13");
  refused({"--step", "fast"}, "must be channel launches, unified, 1 stream, 4 streams");
  refused({"--streams", "129"}, "--streams '129': must be a whole number from 1 to 128");
  refused({"--image", "none.png"}, "none.png");
  refused({"--predict", "--out", "a.png"}, "--out does not go with --predict");
}
