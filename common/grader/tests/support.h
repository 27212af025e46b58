// What the tests of the exercises share: wrong solutions made from the right one, and their points.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "testing/text.h"

namespace lab::grader::testing {

using lab::testing::contains;

// A file that a student might hand in, and the points of its items in the order of the report
// (right results, no finding, then the aims); empty: it is refused.
struct Submission {
  std::string name, text;
  std::vector<int> points;
  std::string hint = "";  // what one of the hints must say
};

// --seconds of gradings in which nothing is about time: what takes 0.3 s of a processor took 17 s
// where 14 processes wanted two of them.
inline const std::string kPatient = "300";

// A file of the repository.
std::string source(const std::string& path);
inline std::string first_solution() {
  return source("chapters/01_naive_attention/exercise/solution.cuh");
}
// A chapter's kernel as a student copies it into an exercise, which lies one folder deeper. What it includes of a
// folder parts/ is copied, too.
std::string copied_kernel(const std::string& path);
// text with every `find` replaced. Throws std::runtime_error when there is none: a planted mistake
// that no longer applies.
std::string planted(std::string text, const std::string& find, const std::string& replace);
// The line, from 1 on, in which `part` first stands. Throws std::runtime_error when it does not.
int line_of(const std::string& text, const std::string& part);

// The ways to isolate a student's code that work here, as --isolation names them.
std::vector<std::string> isolations();

// Grades all submissions to a task (a file such as exercise.cuh) in one run of program, and checks
// the points of each with doctest. more: further flags. Returns their reports, JSON.
std::vector<std::string> check_points(const std::string& program, const std::string& task,
                                      const std::vector<Submission>& submissions,
                                      const std::vector<std::string>& more = {});

// The points of all submissions, each with its name: for such as may get any number up to a bound.
std::vector<std::pair<std::string, int>> graded_points(const std::string& program,
                                                       const std::string& task,
                                                       const std::vector<Submission>& submissions);

}  // namespace lab::grader::testing
