// Mistakes that give right results here all the same: a warp's lanes run side by side, and what
// nobody set happens to suit. They lose points.
#include <doctest/doctest.h>

#include "support.h"

using namespace lab::grader::testing;

namespace {

// The text without the n-th `__syncwarp();`; "" where there are not so many.
std::string without_syncwarp(const std::string& text, int n) {
  const std::string barrier = "__syncwarp();";
  size_t at = text.find(barrier);
  for (; n > 0 && at != std::string::npos; --n) at = text.find(barrier, at + 1);
  return at == std::string::npos ? "" : text.substr(0, at) + text.substr(at + barrier.size());
}

// Exercise 1's solution with another beginning of the sum over the keys.
std::string with_sum(const std::string& lines) {
  return planted(source("chapters/01_naive_attention/exercise/solution.cuh"),
                 "float output = 0.0f;", lines);
}

}  // namespace

TEST_CASE("careless: exercise 4 without one of its barriers of a warp") {
  const std::string solution = source("chapters/04_wmma/exercise/solution.cuh");
  // The first of the kernel itself, behind the loads of Q, is one of these that count.
  CHECK(contains(solution, "tiles.q);\n  __syncwarp();\n"));
  std::vector<Submission> submissions = {{"all of them", solution, {}}};
  for (int n = 0; !without_syncwarp(solution, n).empty(); ++n)
    submissions.push_back(
        {"without number " + std::to_string(n), without_syncwarp(solution, n), {}});
  REQUIRE(submissions.size() == 10);
  const auto points = graded_points("exercise4", "exercise.cuh", submissions);
  for (size_t i = 0; i < points.size(); ++i) {
    CAPTURE(points[i].first);
    // Numbers 0 and 7 stand where lanes overwrite what others have read before a vote or before they
    // load a fragment together: nobody can overtake there (common/vgpu/README.md, "order no memory").
    CHECK(points[i].second == (i == 0 || i == 1 || i == 8 ? 100 : 80));
  }
}

TEST_CASE("careless: a local variable that is read before it is set") {
  const std::vector<std::string> sums = {
      // The compiler sees these two.
      "float unset;\n  float output = unset;",
      "float unset, output = 0.0f;\n  if (keys < 0) output = unset;",
      // The check reports nothing here.
      "float output;\n  float& sum = output;\n  sum += 0.0f;",
      "float output;\n  float* const sum = &output;\n  *sum = *sum + 0.0f;",
      "float output;\n  [](float& x) { x += 0.0f; }(output);",
      "float parts[2];\n  for (int i = 0; i < 1; ++i) parts[i] = 0.0f;\n"
      "  float output = parts[keys > 3];",
  };
  std::vector<Submission> submissions;
  for (const std::string& lines : sums) submissions.push_back({lines, with_sum(lines), {}});
  for (const auto& [text, points] : graded_points("exercise1", "exercise.cuh", submissions)) {
    CAPTURE(text);
    CHECK(points <= 80);
  }
}

TEST_CASE("careless: a local variable whose first reading is in a loop") {
  const std::string solution = source("chapters/01_naive_attention/exercise/solution.cuh");
  const std::vector<Submission> submissions = {
      {"the sum over the keys", with_sum("float output;"), {}},
      {"a score", planted(solution, "float score = 0.0f;", "float score;"), {}},
      {"the sum of the weights", planted(solution, "float row_sum = 0.0f;", "float row_sum;"), {}}};
  for (const auto& [name, points] : graded_points("exercise1", "exercise.cuh", submissions)) {
    CAPTURE(name);
    CHECK(points <= 80);
  }
}
