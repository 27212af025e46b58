// Points in words, as JSON, for Gradescope and as TAP.
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "grader.h"
#include "lab_files.h"

namespace lab::grader {
namespace {

using Json = nlohmann::ordered_json;

std::string dumped(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Each line of a text behind `prefix`, broken at 100 columns where there is a space.
std::string indented(const std::string& text, const std::string& prefix) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t room = 100 - prefix.size();
    while (line.size() > room) {
      size_t end = line.rfind(' ', room);
      if (end == std::string::npos || end == 0) end = line.find(' ', room);
      if (end == std::string::npos) break;
      result += prefix + line.substr(0, end) + "\n";
      line = line.substr(end + 1);
    }
    result += prefix + line + "\n";
  }
  return result;
}

// Not a number and the infinities have no JSON: they are strings.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(format("%g", value)); }

}  // namespace

std::string text_report(const Task& task, const Grade& grade) {
  std::string text = task.title + ": " + grade.file + "\n\n";
  if (!grade.refused.empty()) {
    text += indented(grade.message, "  ");
  } else {
    const Item* before = nullptr;  // what several parts have in common is said once
    std::set<std::string> said;
    for (const Item& item : grade.items) {
      text += format("  %-64s %3d of %3d points\n", item.name.c_str(), item.points, item.most);
      if (!before || item.details != before->details) {
        std::istringstream lines(item.details);
        for (std::string line; std::getline(lines, line);) {
          const bool again = line.size() > 40 && !said.insert(line).second;
          text += indented(again ? "(see above)" : line, "      ");
        }
      } else if (item.points == item.most) {
        text += indented(item.details, "      ");
      }
      if (!item.hint.empty() && (!before || item.hint != before->hint))
        text += indented("hint: " + item.hint, "      ");
      before = &item;
    }
  }
  return text + format("\n%d of 100 points\n", grade.points());
}

std::string tap_report(const Grade& grade) {
  if (!grade.refused.empty())
    return "TAP version 13\n1..1\nnot ok 1 - " + grade.refused + "\n" +
           indented(grade.message, "# ");
  std::string text = "TAP version 13\n" + format("1..%zu\n", grade.items.size());
  for (size_t i = 0; i < grade.items.size(); ++i) {
    const Item& item = grade.items[i];
    text += format("%s %zu - %s (%d of %d points)\n", item.points == item.most ? "ok" : "not ok",
                   i + 1, item.name.c_str(), item.points, item.most);
    if (item.points == item.most) continue;
    text += indented(item.details, "# ");
    if (!item.hint.empty()) text += indented("hint: " + item.hint, "# ");
  }
  return text;
}

std::string json_report(const Task& task, const Grade& grade) {
  Json json = {{"version", 1},
               {"exercise", task.folder.substr(task.folder.rfind('/') + 1)},
               {"task", task.file},
               {"file", grade.file},
               {"points", grade.points()},
               {"most", 100},
               {"refused", grade.refused.empty() ? Json(nullptr) : Json(grade.refused)},
               {"message", grade.message},
               {"items", Json::array()},
               {"first_failure", nullptr}};
  if (grade.refused.empty())
    for (const Item& item : grade.items)
      json["items"].push_back({{"name", item.name},
                               {"points", item.points},
                               {"most", item.most},
                               {"details", item.details},
                               {"hint", item.hint}});
  for (const Grade::Failure& failure : grade.failures) {
    json["first_failure"] = {{"case", failure.name}, {"details", failure.details}};
    if (failure.index.empty()) continue;
    json["first_failure"]["index"] = failure.index;
    json["first_failure"]["expected"] = number(failure.expected);
    json["first_failure"]["got"] = number(failure.got);
  }
  return dumped(json);
}

// https://gradescope-autograders.readthedocs.io/en/latest/specs/, "Output Format".
std::string gradescope_report(const Task& task, const Grade& grade) {
  Json json = {{"score", grade.points()},
               {"output", task.title + (grade.refused.empty() ? "" : "\n" + grade.message)},
               {"stdout_visibility", "hidden"},
               {"tests", Json::array()}};
  if (grade.refused.empty())
    for (const Item& item : grade.items)
      json["tests"].push_back(
          {{"name", item.name},
           {"score", item.points},
           {"max_score", item.most},
           {"status", item.points == item.most ? "passed" : "failed"},
           {"output", item.details + (item.hint.empty() ? "" : "\nhint: " + item.hint)}});
  return dumped(json);
}

}  // namespace lab::grader
