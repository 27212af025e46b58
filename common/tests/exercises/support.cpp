#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "grader_testing.h"
#include "lab_testing.h"

namespace lab::grader::testing {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string source(const std::string& path) {
  return lab::testing::file_content(repository_path(path));
}

std::string planted(std::string text, const std::string& find, const std::string& replace) {
  size_t at = text.find(find);
  if (at == std::string::npos)
    throw std::runtime_error("planted mistake no longer applies: there is no '" + find + "'");
  for (; at != std::string::npos; at = text.find(find, at + replace.size()))
    text.replace(at, find.size(), replace);
  return text;
}

std::vector<std::string> check_points(const std::string& program, const std::string& task,
                                      const std::vector<Submission>& submissions,
                                      const std::vector<std::string>& more) {
  const lab::testing::TemporaryFolder folder;
  const auto name = [](size_t i) { return (i < 10 ? "0" : "") + std::to_string(i); };
  for (size_t i = 0; i < submissions.size(); ++i)
    folder.write(name(i) + ".cuh", submissions[i].text);
  std::vector<std::string> arguments = {"--batch", folder.folder(), "--together", "--seconds",
                                        "60",      "--hint",        "2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  if (task != "exercise.cuh") arguments.insert(arguments.end(), {"--task", task});
  const lab::testing::ProgramResult result =
      lab::testing::run_program(program, arguments, folder.folder());
  CAPTURE(result.output);
  CHECK_MESSAGE(result.errors == "", result.errors);
  std::vector<std::string> reports;
  for (size_t i = 0; i < submissions.size(); ++i) {
    const std::string report = lab::testing::file_content(folder.path(name(i) + ".json"));
    const auto json = nlohmann::json::parse(report);
    std::string points, deserved, hints;  // as text, which doctest can show
    for (const auto& item : json.at("items")) {
      points += std::to_string(item.at("points").get<int>()) + " ";
      hints +=
          item.at("hint").get<std::string>() + "\n" + item.at("cause").get<std::string>() + "\n";
    }
    for (const int p : submissions[i].points) deserved += std::to_string(p) + " ";
    CAPTURE(submissions[i].name);
    CAPTURE(report);
    CHECK(points == deserved);
    CHECK(hints.find(submissions[i].hint) != std::string::npos);
    int sum = 0;
    for (const int p : submissions[i].points) sum += p;
    CHECK(json.at("points") == sum);
    reports.push_back(report);
  }
  return reports;
}

}  // namespace lab::grader::testing
