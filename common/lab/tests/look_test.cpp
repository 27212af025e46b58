// ./run --look: the page of a chapter's program, whose data agree with themselves and with the report.
#include <doctest/doctest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "lab/device.h"
#include "testing/testing.h"

using Json = nlohmann::json;
using lab::testing::ProgramResult;

namespace {

Json data_in(const std::string& page) {
  const std::string begin = "id=\"look-data\">";
  const size_t at = page.find(begin);
  REQUIRE(at != page.npos);
  return Json::parse(page.substr(at + begin.size(), page.find("</script", at) - at - begin.size()));
}

double sum_of(const Json& lines, const char* name) {
  double sum = 0;
  for (const Json& line : lines)
    if (line.contains("c")) sum += line["c"].value(name, 0.0);
  return sum;
}

double total(const Json& report, const char* space, const char* what) {
  double sum = 0;
  for (const char* access : {"load", "store", "atomic"})
    sum += report.at(space).at(access).at(what).get<double>();
  return sum;
}

}  // namespace

TEST_CASE(
    "--look: counters of PTX lines add up to each launch's, clocks are the same by both listings" *
    doctest::test_suite("programs")) {
  if (!lab::vgpu::present()) {
    MESSAGE("skipped: --look: there is no virtual GPU");
    return;
  }
  for (const char* chapter : {"chapter3", "chapter6", "chapter14"}) {
    CAPTURE(chapter);
    const lab::testing::TemporaryFolder folder;
    const ProgramResult result = lab::testing::run_program(
        chapter, {"--tokens", "65", "--heads", "2", "--look", "look.html", "--json", "r.json"},
        folder.folder());
    CAPTURE(result.errors);
    REQUIRE(result.exit_code == 0);
    const std::string page = lab::testing::file_content(folder.path("look.html"));
    CHECK(page.size() <= 5'000'000);
    const Json data = data_in(page);
    CHECK(data["program"] == chapter);
    CHECK(data["arguments"][1] == "65");
    REQUIRE(data["launches"].size() >= 2);
    for (const Json& launch : data["launches"]) {
      const std::string kernel = launch["kernel"];
      CAPTURE(kernel);
      const Json &report = launch["report"], &ptx = launch["ptx"];
      CHECK(sum_of(ptx, "executed") == report["warp_instructions"].get<double>());
      CHECK(sum_of(ptx, "threads") == report["thread_instructions"].get<double>());
      CHECK(sum_of(ptx, "requests") == total(report, "global", "requests"));
      CHECK(sum_of(ptx, "sectors") == total(report, "global", "sectors"));
      CHECK(sum_of(ptx, "shared_requests") == total(report, "shared", "requests"));
      CHECK(sum_of(ptx, "wavefronts") == total(report, "shared", "wavefronts"));
      CHECK(sum_of(ptx, "conflicts") == total(report, "shared", "conflicts"));
      CHECK(sum_of(ptx, "bulk_bytes") == total(report, "copy_engine", "bytes"));
      CHECK(launch["accesses"]["list"].size() > 0);
      CHECK(launch["accesses"]["list"].size() <= 3000);
      if (!launch["sass"].is_array()) continue;
      const double clocks = sum_of(launch["sass"], "time");
      CHECK(clocks > 0);
      CHECK(sum_of(ptx, "time") <= clocks * 1.01);  // some code belongs to no PTX line
      CHECK(sum_of(ptx, "time") > clocks * 0.9);
      for (const Json& line : launch["sass"]) CHECK(line["p"].get<int>() < int(ptx.size()));
    }
    // The chapter's own files stand there, line by line.
    bool chapters_own = false;
    for (const Json& source : data["sources"]) {
      const std::string path = source["path"];
      if (path.find("chapters/") != path.npos && source["lines"].is_array())
        chapters_own |= source["lines"].size() > 20;
    }
    CHECK(chapters_own);
  }
}

TEST_CASE("--look: passing for a GPU the program refuses it" * doctest::test_suite("programs")) {
  if (!lab::vgpu::present()) return;
  const lab::testing::TemporaryFolder folder;
  setenv("LAB_HIDE_VGPU", "1", 1);
  const ProgramResult result =
      lab::testing::run_program("chapter6", {"--look", "look.html"}, folder.folder());
  unsetenv("LAB_HIDE_VGPU");
  CHECK(result.exit_code == 3);
  CHECK(result.errors.find("--look needs the virtual GPU") != std::string::npos);
  CHECK(folder.names().empty());
}
