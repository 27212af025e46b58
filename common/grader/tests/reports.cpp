// Reports of points that are given here, and hints for findings: nothing is compiled or run.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "grader/hints.h"
#include "grader/report.h"
#include "support.h"

using namespace lab::grader;
using lab::testing::contains;

namespace {

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Task task() {
  Task task;
  task.title = "Exercise 0: nothing";
  task.folder = "chapters/00_nothing";
  task.file = "exercise.cuh";
  return task;
}

Grade wordy() {
  Grade grade;
  grade.file = "exercise.cuh";
  // 62 columns, 64 bytes; 74 columns.
  grade.items = {
      {"right results", 30, 30, "12 of 12 problems", ""},
      {"products Q Kᵀ, which are as many as there are pairs of the two", 5, 10, "5", "more"},
      {"bytes of values: the small level is staged once for each block and image", 0, 10,
       "exercise.cuh:1: error: " + std::string(150, 'x') + " and " + std::string(80, 'y'), "less"}};
  grade.printed = {"sum 1.5\nok 1 - not a test\n" + std::string(250, 'z') + "\n", 7};
  grade.printed_in = "[batch 1]";
  return grade;
}

}  // namespace

TEST_CASE("reports: points in one column, at most 100 columns") {
  const std::string text = text_report(task(), wordy());
  CAPTURE(text);
  int with_points = 0;
  for (const std::string& line : split_lines(text)) {
    CAPTURE(line);
    const bool symbol = contains(line, "ᵀ");  // three bytes, one column
    CHECK(line.size() <= 100 + (symbol ? 2 : 0));
    if (const size_t at = line.find(" of  ");
        at != std::string::npos && contains(line, " points")) {
      ++with_points;
      CHECK(at - (symbol ? 2 : 0) == 2 + 72 + 4);
    }
  }
  CHECK(with_points == 3);
}

TEST_CASE("reports: what the student's code prints is text, never structure") {
  const Grade grade = wordy();
  const std::string text = text_report(task(), grade);
  CHECK(
      contains(text, "\n  your code's output in [batch 1]:\n    sum 1.5\n    ok 1 - not a test\n"));
  CHECK(contains(text, "\n    ... 7 more lines\n"));
  const std::string tap = tap_report(grade);
  CHECK(contains(tap, "\n#   ok 1 - not a test\n"));
  int tests = 0;
  for (const std::string& line : split_lines(tap))
    tests += line.starts_with("ok ") || line.starts_with("not ok ");
  CHECK(tests == 3);
  const auto json = nlohmann::json::parse(json_report(task(), grade));
  CHECK(json.at("printed").at("text") == grade.printed.text);
  CHECK(json.at("printed").at("more_lines") == 7);
  const auto gradescope = nlohmann::json::parse(gradescope_report(task(), grade));
  CHECK(gradescope.at("tests").size() == 3);
  CHECK(contains(gradescope.at("output"), "ok 1 - not a test\n"));
  Grade silent = grade;
  silent.printed = {};
  CHECK_FALSE(contains(text_report(task(), silent), "output"));
  CHECK(nlohmann::json::parse(json_report(task(), silent)).at("printed").is_null());
}

TEST_CASE("reports: what the compiler warns of" * doctest::test_suite("toolkit")) {
  Grade grade = wordy();
  grade.warnings =
      "exercise.cuh:7: warning #549-D: variable \"x\" is used before its value is set\n";
  CHECK_FALSE(contains(text_report(task(), wordy()), "warn"));
  CHECK(contains(text_report(task(), grade), "\n  the compiler warns:\n  exercise.cuh:7: warning"));
  CHECK(contains(tap_report(grade), "\n# the compiler warns:\n# exercise.cuh:7: warning"));
  CHECK(nlohmann::json::parse(json_report(task(), grade)).at("warnings") == grade.warnings);
  CHECK(contains(nlohmann::json::parse(gradescope_report(task(), grade)).at("output"), "#549-D"));
}

TEST_CASE("reports: hints fit what was found") {
  const std::string race =
      "a.cuh:1: error: race: write of 4 bytes to shared memory at offset 0 by thread (0,0,0) and "
      "read by thread (32,0,0) at a.cuh:2 without a barrier between, in block (0,0,0) of k";
  const std::string init = "a.cuh:2: error: init: read of 4 bytes that nobody wrote, at offset 4";
  CHECK(contains(hint_for(init).cause, "is every element of the tile filled"));
  CHECK(hint_for(race).cause.starts_with("is a barrier missing?"));
  CHECK(hint_for(init + "\n" + race).cause.starts_with("is a barrier missing?"));
  CHECK(contains(hint_for(init + "\n" + race).cause,
                 "If that is right: memory is read that nobody wrote"));
  const auto check = [](const std::string& message, const std::string& part) {
    CAPTURE(message);
    CHECK(contains(hint_for(message).cause, part));
    CHECK_FALSE(contains(hint_for(message).cause, "token"));  // not a word of all chapters
  };
  check("a.cuh:1: error: misaligned read of 16 bytes at global address 0x2", "no multiple of");
  check("a.cuh:1: error: out-of-bounds read of 2 bytes, 0 bytes past allocation 'K'",
        "a guard is missing");
  check("a.cuh:1: error: init: read of a variable that nothing was assigned to, by thread (0,0,0)",
        "where it is declared");
  check(
      "a.cuh:1: error: out-of-bounds read of 2 bytes at offset 9, 1 byte past the block's shared "
      "memory (8 bytes)",
      "outside of shared memory");
  check("a.cuh:1: error: sync: barrier 0 reached by 3 of the 32 threads of the warp", "barrier");
  check(
      "a.cuh:1: error: race: asynchronous copy of 16 bytes to shared memory at offset 0 by thread "
      "(0,0,0) and read by thread (1,0,0) at a.cuh:2 before the copy was waited for, in k",
      "behind the barrier after which nobody reads");
  check("a.cuh:1: error: trap instruction executed by thread (0,0,0)", "4, 8 or 16 bytes");
  check(
      "cudaErrorInvalidConfiguration: invalid configuration\nvgpu: cannot launch k: grid (0, 1, 1)",
      "how many blocks");
  check(
      "cudaErrorInvalidValue: x\nvgpu: cannot launch k: 99999 bytes of dynamic shared memory, "
      "49152",
      "cudaFuncSetAttribute");
  CHECK(hint_for("the program ended by itself, with exit status 3").cause == "");
}

TEST_CASE("counters: whatever way data takes to memory, it counts") {
  const Counters counters(
      R"([{"global": {"store": {"bytes_asked": 10}, "atomic": {"bytes_asked": 200}},
           "copy_engine": {"store": {"bytes": 3000}, "atomic": {"bytes": 40000}},
           "allocations": {
             "K": {"load": {"bytes_asked": 1}},
             "V": {"load": {"bytes_asked": 20}},
             "Q": {"load": {"bytes_asked": 5}},
             "*K": {"load": {"bytes_asked": 300},
                    "copy_engine": {"load": {"bytes": 4000}, "store": {"bytes": 50000}}}}}])",
      {"Q", "K", "V", "O"});
  CHECK(counters.stored() == 43210);
  CHECK(counters.loaded_tiles() == 54321);
}
