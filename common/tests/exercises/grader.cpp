// The grader's program as students and autograders call it: what does not compile, does not end or
// takes too much gets zero points in clear words, and nothing else suffers from it.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "grader_testing.h"
#include "lab_testing.h"

using namespace lab::grader::testing;
using lab::testing::file_content;
using lab::testing::ProgramResult;
using lab::testing::run_program;
using lab::testing::TemporaryFolder;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string solution() { return source("chapters/01_naive_attention/solution.cuh"); }

// The solution with host code at the beginning of attention().
std::string with_host_code(const std::string& code) {
  return planted(
      planted(solution(), "  float* scores = nullptr;", code + "\n  float* scores = nullptr;"),
      "#include <cmath>",
      "#include <cmath>\n#include <csignal>\n#include <cstdio>\n"
      "#include <cstdlib>\n#include <vector>");
}

}  // namespace

TEST_CASE("grader: a file that does not compile") {
  const TemporaryFolder folder;
  folder.write("broken.cuh", planted(solution(), "float output = 0.0f;", "flaot output = 0.0f;"));
  const ProgramResult result = run_program(
      "exercise1", {"--file", "broken.cuh", "--json", "a.json", "--gradescope", "results.json"},
      folder.folder());
  CHECK(result.exit_code == 1);
  CHECK(result.errors == "");
  CHECK(has(result.output, "it does not compile"));
  CHECK(has(result.output, "identifier \"flaot\" is undefined"));
  CHECK(has(result.output, "0 of 100 points"));
  const auto json = nlohmann::json::parse(file_content(folder.path("a.json")));
  CHECK(json.at("points") == 0);
  CHECK(json.at("refused") == "build");
  const auto gradescope = nlohmann::json::parse(file_content(folder.path("results.json")));
  CHECK(gradescope.at("score") == 0);
  CHECK(has(gradescope.at("output"), "flaot"));
}

TEST_CASE("grader: all points, in every form") {
  const TemporaryFolder folder;
  const ProgramResult result =
      run_program("exercise1-solution",
                  {"--tap", "--json", "a.json", "--gradescope", "results.json"}, folder.folder());
  CAPTURE(result.output);
  CHECK(result.exit_code == 0);
  CHECK(has(result.output, "TAP version 13\n1..8\nok 1 - right results (30 of 30 points)\n"));
  CHECK_FALSE(has(result.output, "not ok"));
  const auto json = nlohmann::json::parse(file_content(folder.path("a.json")));
  CHECK(json.at("version") == 1);
  CHECK(json.at("exercise") == "01_naive_attention");
  CHECK(json.at("file") == "chapters/01_naive_attention/solution.cuh");
  CHECK(json.at("points") == 100);
  CHECK(json.at("refused").is_null());
  CHECK(json.at("first_failure").is_null());
  const auto gradescope = nlohmann::json::parse(file_content(folder.path("results.json")));
  CHECK(gradescope.at("score") == 100);
  CHECK(gradescope.at("tests").size() == json.at("items").size());
  CHECK(gradescope.at("tests")[0].at("max_score") == 30);
}

TEST_CASE("grader: code without an end, without measure, or that crashes") {
  const std::vector<std::string> reports = check_points(
      "exercise1", "exercise.cuh",
      {{"a kernel without an end",
        planted(solution(), "float output = 0.0f;",
                "float output = 0.0f;\n  for (volatile int i = 0;; i = i + 1) {}"),
        {}},
       {"too much device memory",
        with_host_code("void* much; if (cudaMalloc(&much, 1ull << 40) == cudaSuccess) "
                       "{ cudaMemset(much, 1, 1ull << 40); }"),
        {}},
       {"too much host memory",
        with_host_code("static std::vector<char> much; much.reserve(size_t(1) << 34);"),
        {}},
       {"a crash", with_host_code("std::abort();"), {0, 0, 0, 0, 0, 0, 0, 0}},
       {"an end in the middle", with_host_code("std::exit(0);"), {0, 0, 0, 0, 0, 0, 0, 0}},
       {"words without end",
        with_host_code(
            "for (int i = 0; i < (1 << 24); ++i) std::puts(\"all is well, all points\");"),
        {0, 0, 0, 0, 0, 0, 0, 0}},
       {"as it should be", solution(), {30, 20, 15, 10, 10, 5, 5, 5}}});
  const auto json = [&](size_t i) { return nlohmann::json::parse(reports[i]); };
  CHECK(json(0).at("refused") == "instructions");
  CHECK(has(json(0).at("message"), "does not end"));
  CHECK(json(1).at("refused") == "memory");
  CHECK(json(2).at("refused") == "memory");
  CHECK(has(json(2).at("message"), "more memory was asked for"));
  CHECK(has(json(3).at("first_failure").at("details"), "crashed (Aborted)"));
  CHECK(json(3).at("items")[0].at("hint") == "");  // none about values that are not there
  CHECK(has(json(4).at("first_failure").at("details"), "ended by itself, with exit status 0"));
  CHECK(has(json(5).at("first_failure").at("details"), "crashed (File size limit exceeded)"));
}

TEST_CASE("grader: one file of a folder that does not compile, one that never comes back") {
  const TemporaryFolder folder;
  folder.write("ann.cuh", "no C++");
  folder.write("bob.cuh", solution());
  folder.write("cy.cuh", with_host_code("for (volatile int i = 0;; i = i + 1) {}"));
  folder.write("notes.txt", "no submission");
  const ProgramResult result =
      run_program("exercise1", {"--batch", ".", "--seconds", "10"}, folder.folder());
  CHECK(result.exit_code == 1);
  CHECK(result.output == "  0  ann.cuh  (build)\n100  bob.cuh\n  0  cy.cuh  (time)\n");
  const auto report = nlohmann::json::parse(file_content(folder.path("cy.json")));
  CHECK(has(report.at("message"), "stopped after 10 s"));
  CHECK(folder.names() == std::vector<std::string>{"ann.cuh", "ann.json", "bob.cuh", "bob.json",
                                                   "cy.cuh", "cy.json", "notes.txt"});
}

TEST_CASE("grader: other parameters are a build error in words") {
  const TemporaryFolder folder;
  folder.write(
      "other.cuh",
      "#include <cuda_fp16.h>\nnamespace exercise {\ninline void attention(const half*) {}\n}\n");
  const ProgramResult result = run_program("exercise1", {"--file", "other.cuh"}, folder.folder());
  CHECK(result.exit_code == 1);
  CHECK(has(result.output, "(the grader's call)"));
  CHECK(has(result.output, "must stay as they were: const half*, const half*"));
}

TEST_CASE("grader: an empty file, and one without the function") {
  const TemporaryFolder folder;
  folder.write("empty.cuh", "");
  folder.write("other.cuh", "namespace exercise { inline void attend() {} }");
  folder.write("none.cuh", "// nothing\n");
  const ProgramResult empty = run_program(
      "exercise1", {"--file", "empty.cuh", "--json", "a.json", "--gradescope", "results.json"},
      folder.folder());
  CAPTURE(empty.errors);
  CHECK(empty.exit_code == 1);
  CHECK(has(empty.output, "the file is empty"));
  CHECK(has(empty.output, "0 of 100 points"));
  CHECK(nlohmann::json::parse(file_content(folder.path("a.json"))).at("refused") == "build");
  CHECK(nlohmann::json::parse(file_content(folder.path("results.json"))).at("score") == 0);
  for (const char* file : {"other.cuh", "none.cuh"}) {
    const ProgramResult result = run_program("exercise1", {"--file", file}, folder.folder());
    CAPTURE(result.output);
    CHECK(result.exit_code == 1);
    CHECK(has(result.output, "there is no function exercise::attention in this file"));
  }
  const ProgramResult batch =
      run_program("exercise1", {"--batch", ".", "--together"}, folder.folder());
  CHECK(batch.output ==
        "  0  empty.cuh  (build)\n  0  none.cuh  (build)\n  0  other.cuh  (build)\n");
}

TEST_CASE("grader: the starter, as it is handed out") {
  const ProgramResult result = run_program("exercise1", {}, ".");
  CAPTURE(result.output);
  CHECK(result.exit_code == 1);
  CHECK(has(result.output, "hint: are all holes filled? No result is right before that"));
  CHECK(has(result.output, "63 not finite"));  // it writes one element of 64
  CHECK(has(result.output, "not finite: never written, or NaN"));
  CHECK_FALSE(has(result.output, "error nan"));
}

TEST_CASE("grader: flags that are not right") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& named) {
    const ProgramResult result = run_program("exercise1", arguments, folder.folder());
    CAPTURE(result.errors);
    CHECK(result.exit_code == 2);
    CHECK(result.output == "");
    CHECK(has(result.errors, named));
  };
  refused({"--file", "missing.cuh"}, "missing.cuh: No such file");
  refused({"--file", "x.cuh", "--solution"}, "--file and --solution");
  refused({"--batch", "missing"}, "missing");
  refused({"--batch", "."}, "there is no .cuh file");
  refused({"--solution", "--json", "missing/a.json"}, "missing/a.json");
  refused({"--seconds", "0"}, "--seconds");
  refused({"--points", "100"}, "--points");
  refused({"--tokens", "197", "--profile"}, "for the chapter's program: make chapter1");
  refused({"--task", "bug.cuh"}, "this chapter has one task");
  CHECK(folder.names().empty());
}
