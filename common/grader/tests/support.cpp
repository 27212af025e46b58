#include "support.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "grader/text.h"
#include "json/json.h"
#include "lab/program.h"
#include "testing/testing.h"

namespace lab::grader::testing {

std::string source(const std::string& path) {
  return lab::testing::file_content(repository_path(path));
}

int line_of(const std::string& text, const std::string& part) {
  const size_t at = text.find(part);
  if (at == std::string::npos) throw std::runtime_error("no '" + part + "' in the text");
  return 1 + int(std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n'));
}

std::string planted(std::string text, const std::string& find, const std::string& replace) {
  if (!contains(text, find))
    throw std::runtime_error("planted mistake no longer applies: there is no '" + find + "'");
  return replace_all(std::move(text), find, replace);
}

std::string copied_kernel(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::string copy;
  std::istringstream lines(source(path));
  static const std::regex include("#include \"(.*)\"");
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (line == "#pragma once") continue;
    if (!std::regex_match(line, match, include)) {
      copy += line + "\n";
      continue;
    }
    const std::string file = (folder / match[1].str()).lexically_normal().string();
    copy += file.find("/parts/") != std::string::npos ? copied_kernel(file)
                                                      : "#include \"../../../" + file + "\"\n";
  }
  return copy;
}

std::vector<std::string> isolations() {
  static const std::vector<std::string> all = [] {  // each is tried once
    std::vector<std::string> found;
    const lab::testing::TemporaryFolder folder;
    folder.write("wrong.cuh",
                 "#error this is compiled\n");  // where another user reaches compiler and folder
    for (const char* name : {"bubblewrap", "user"})
      if (lab::testing::run_program("exercise1", {"--isolation", name, "--file", "wrong.cuh"},
                                    folder.folder())
              .exit_code == 1)
        found.push_back(name);
    return found;
  }();
  if (all.empty())
    MESSAGE("skipped: no bubblewrap here, and no root whose folders other users may enter");
  return all;
}

namespace {

std::string number(size_t i) { return (i < 10 ? "0" : "") + std::to_string(i); }

// Grades all submissions in `folder`, which then has their reports.
lab::testing::ProgramResult grade_all(const lab::testing::TemporaryFolder& folder,
                                      const std::string& program, const std::string& task,
                                      const std::vector<Submission>& submissions,
                                      const std::vector<std::string>& more) {
  for (size_t i = 0; i < submissions.size(); ++i)
    folder.write(number(i) + ".cuh", submissions[i].text);
  std::vector<std::string> arguments = {"--batch", folder.folder(), "--together", "--seconds",
                                        kPatient,  "--hint",        "2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  if (task != "exercise.cuh") arguments.insert(arguments.end(), {"--task", task});
  return lab::testing::run_program(program, arguments, folder.folder());
}

}  // namespace

std::vector<std::pair<std::string, int>> graded_points(const std::string& program,
                                                       const std::string& task,
                                                       const std::vector<Submission>& submissions) {
  const lab::testing::TemporaryFolder folder;
  grade_all(folder, program, task, submissions, {});
  std::vector<std::pair<std::string, int>> points;
  for (size_t i = 0; i < submissions.size(); ++i) {
    const json::Value report =
        json::parse(lab::testing::file_content(folder.path(number(i) + ".json")));
    points.emplace_back(submissions[i].name, report["points"].get<int>());
  }
  return points;
}

std::vector<std::string> check_points(const std::string& program, const std::string& task,
                                      const std::vector<Submission>& submissions,
                                      const std::vector<std::string>& more) {
  const lab::testing::TemporaryFolder folder;
  const lab::testing::ProgramResult result = grade_all(folder, program, task, submissions, more);
  CAPTURE(result.output);
  CHECK_MESSAGE(result.errors == "", result.errors);
  std::vector<std::string> reports;
  for (size_t i = 0; i < submissions.size(); ++i) {
    const std::string report = lab::testing::file_content(folder.path(number(i) + ".json"));
    const json::Value graded = json::parse(report);
    std::string points, deserved, hints;  // as text, which doctest can show
    for (const json::Value& item : graded["items"]) {
      points += std::to_string(item.at("points").get<int>()) + " ";
      hints +=
          item.at("hint").get<std::string>() + "\n" + item.at("cause").get<std::string>() + "\n";
    }
    for (const int p : submissions[i].points) deserved += std::to_string(p) + " ";
    CAPTURE(submissions[i].name);
    CAPTURE(report);
    CHECK(points == deserved);
    CHECK(contains(hints, submissions[i].hint));
    int sum = 0;
    for (const int p : submissions[i].points) sum += p;
    CHECK(graded["points"].get<int>() == sum);
    reports.push_back(report);
  }
  return reports;
}

}  // namespace lab::grader::testing
