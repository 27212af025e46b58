// ./run --all: one table of all chapters' own lines, each beside what its chapter compares it with.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "lab/device.h"
#include "lab/table.h"
#include "testing/testing.h"

using lab::testing::ProgramResult;

TEST_CASE("--all: a line for each chapter's own steps, with the ratio that the chapter has") {
  if (!lab::testing::has_device()) {
    MESSAGE("skipped: --all: there is no GPU, real or virtual");
    return;
  }
  const lab::testing::TemporaryFolder folder;
  const std::vector<std::string> problem = {"--tokens", "65", "--heads", "2", "--json", "a.json"};
  const auto json_of = [&](const std::string& program, bool all, std::string& printed) {
    std::vector<std::string> arguments = problem;
    if (all) arguments.push_back("--all");
    const ProgramResult result = lab::testing::run_program(program, arguments, folder.folder());
    CAPTURE(result.output);
    CAPTURE(result.errors);
    REQUIRE(result.exit_code == 0);
    CHECK(result.errors == "");
    printed = result.output;
    return nlohmann::json::parse(lab::testing::file_content(folder.path("a.json")));
  };
  std::string printed, of_chapter;
  const auto all = json_of("chapter1", true, printed), six = json_of("chapter6", false, of_chapter);
  CAPTURE(printed);

  std::vector<std::string> names;
  for (const auto& step : all.at("steps")) names.push_back(step.at("name"));
  CHECK(names == std::vector<std::string>{"attention", "tiling", "coalesced loads", "4 rows a warp",
                                          "wmma", "4 warps", "8 warps", "coalesced K"});
  CHECK_FALSE(all.at("steps")[0].contains("ratio"));
  if (lab::vgpu::present())
    CHECK(all.at("steps")[7].at("ratio").at("ratio") == six.at("ratios")[0].at("ratio"));
  CHECK(all.at("steps")[7].at("ratio").at("before") == "multi-warp");  // not the line above

  std::istringstream text(printed);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    CHECK(line.size() <= 100);
    if (line.find("PASS") != std::string::npos) lines.push_back(line);
  }
  REQUIRE(lines.size() == names.size());
  const char* const time = lab::vgpu::present() ? "predicted_us" : "median_us";
  const double first = all.at("steps")[0].at(time);
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& step = all.at("steps")[i];
    CAPTURE(lines[i]);
    CHECK(lines[i].find(step.at("chapter").get<std::string>() + " ") == 0);
    const std::string us = lab::human_time(step.at(time));
    size_t at = lines[i].find(" " + names[i] + " ");
    REQUIRE(at != std::string::npos);
    at = lines[i].find(" " + us, at);
    REQUIRE(at != std::string::npos);
    if (i == 0) {
      CHECK(lines[i].find("x ") == std::string::npos);
      continue;
    }
    at = lines[i].find(" " + lab::times(step.at("ratio").at("ratio")) + " ", at);
    REQUIRE(at != std::string::npos);
    CHECK(lines[i].find(" " + lab::times(first / step.at(time).get<double>()) + " ", at) !=
          std::string::npos);
  }
}
