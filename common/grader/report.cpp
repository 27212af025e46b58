// Points in words, as JSON, for Gradescope and as TAP.
#include "report.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "files.h"
#include "json/json.h"
#include "lab/files.h"

namespace lab::grader {
namespace {

using Json = json::Value;

std::string dumped(const Json& json) { return json.dump(2) + "\n"; }

constexpr size_t kColumns = 100;

// Columns of a UTF-8 text: all bytes but those that continue a character.
size_t width(const std::string& text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// The first `columns` columns of a text, as bytes.
size_t bytes_of_columns(const std::string& text, size_t columns) {
  size_t i = 0;
  for (size_t seen = 0; i < text.size(); ++i)
    if ((text[i] & 0xc0) != 0x80 && seen++ == columns) break;
  return i;
}

// Each line of a text behind `prefix`, broken at 100 columns, at a space where there is one.
std::string indented(const std::string& text, const std::string& prefix) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t room = kColumns - prefix.size();
    while (width(line) > room) {
      const size_t most = bytes_of_columns(line, room);
      size_t end = line.rfind(' ', most);
      const bool space = end != std::string::npos && line.find_first_not_of(' ') < end;
      if (!space) end = most;
      result += prefix + line.substr(0, end) + "\n";
      line = line.substr(end + space);
    }
    result +=
        (line.empty() ? prefix.substr(0, prefix.find_last_not_of(' ') + 1) : prefix + line) + "\n";
  }
  return result;
}

// What the student's code printed, under a heading; "" when it printed nothing.
std::string printed(const Grade& grade, const std::string& prefix) {
  if (grade.printed.text.empty()) return "";
  std::string text = "your code's output in " + grade.printed_in + ":\n";
  std::string lines = grade.printed.text;
  if (grade.printed.more > 0) lines += format("... %zu more lines\n", grade.printed.more);
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) text += "  " + line + "\n";
  return indented(text, prefix);
}

// All that is said behind the points.
std::string appendix(const Grade& grade, const std::string& prefix) {
  std::string text;
  if (!grade.warnings.empty()) text = indented("the compiler warns:\n" + grade.warnings, prefix);
  return text + printed(grade, prefix);
}

// Not a number and the infinities have no JSON: they are strings.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(format("%g", value)); }

// The second stage of a hint, where the report is to have it.
std::string cause_in(const Grade& grade, const Item& item) {
  return grade.stage < 2 || item.points == item.most ? "" : item.cause;
}

// For those who read the report: how to get what it does not tell.
std::string more_hints(const Grade& grade) {
  const bool more = std::any_of(grade.items.begin(), grade.items.end(), [](const Item& item) {
    return item.points < item.most && !item.cause.empty();
  });
  return more && grade.stage < 2
             ? "Stuck? The same command with --hint 2 says what this may come from."
             : "";
}

}  // namespace

std::string isolation_note(const Grade& grade) {
  if (grade.own_rights)
    return "The compiler ran with your rights: another user cannot reach it. Let everybody enter "
           "its "
           "folder\nand that of the course, or install bubblewrap.";
  if (grade.isolation != Isolation::none) return "";
  return "The code ran with your rights: bubblewrap is not installed, not allowed here or not "
         "asked "
         "for.\nFor code of people you do not trust: apt-get install bubblewrap, then --isolation "
         "required.";
}

std::string text_report(const Task& task, const Grade& grade) {
  std::string text = task.title + ": " + one_line_name(grade.file) + "\n\n";
  if (!grade.refused.empty()) {
    text += indented(grade.message, "  ");
  } else {
    const Item* before = nullptr;  // what several parts have in common is said once
    std::set<std::string> said;
    size_t longest = 0;
    for (const Item& item : grade.items) longest = std::max(longest, width(item.name));
    for (const Item& item : grade.items) {
      std::string title = item.name + std::string(longest - width(item.name), ' ');
      title += format(" %3d of %3d points", item.points, item.most);
      text += indented(title, "  ");
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
      if (const std::string cause = cause_in(grade, item);
          !cause.empty() && (!before || cause != cause_in(grade, *before)))
        text += indented("hint 2: " + cause, "      ");
      before = &item;
    }
    if (const std::string more = more_hints(grade); !more.empty())
      text += "\n" + indented(more, "  ");
  }
  if (const std::string more = appendix(grade, "  "); !more.empty()) text += "\n" + more;
  text += format("\n%d of 100 points\n", grade.points());
  if (const std::string note = isolation_note(grade); !note.empty()) text += "\n" + note + "\n";
  return text;
}

std::string tap_report(const Grade& grade) {
  const std::string isolation = format("# isolation: %s\n", isolation_name(grade.isolation)) +
                                indented(isolation_note(grade), "# ");
  if (!grade.refused.empty())
    return "TAP version 13\n1..1\nnot ok 1 - " + grade.refused + "\n" +
           indented(grade.message, "# ") + appendix(grade, "# ") + isolation;
  std::string text = "TAP version 13\n" + format("1..%zu\n", grade.items.size());
  for (size_t i = 0; i < grade.items.size(); ++i) {
    const Item& item = grade.items[i];
    text += format("%s %zu - %s (%d of %d points)\n", item.points == item.most ? "ok" : "not ok",
                   i + 1, item.name.c_str(), item.points, item.most);
    if (item.points == item.most) continue;
    text += indented(item.details, "# ");
    if (!item.hint.empty()) text += indented("hint: " + item.hint, "# ");
    if (const std::string cause = cause_in(grade, item); !cause.empty())
      text += indented("hint 2: " + cause, "# ");
  }
  return text + appendix(grade, "# ") + isolation;
}

std::string json_report(const Task& task, const Grade& grade) {
  Json json = {{"version", 1},
               {"exercise", task.folder.substr(task.folder.rfind('/') + 1)},
               {"task", task.file},
               {"file", grade.file},
               {"points", grade.points()},
               {"most", 100},
               {"isolation", isolation_name(grade.isolation)},
               {"note", isolation_note(grade)},
               {"refused", grade.refused.empty() ? Json(nullptr) : Json(grade.refused)},
               {"message", grade.message},
               {"items", Json::array()},
               {"first_failure", nullptr},
               {"warnings", grade.warnings},
               {"printed", nullptr}};
  if (!grade.printed.text.empty())
    json["printed"] = {{"case", grade.printed_in},
                       {"text", grade.printed.text},
                       {"more_lines", grade.printed.more}};
  if (grade.refused.empty())
    for (const Item& item : grade.items)
      json["items"].push_back({{"name", item.name},
                               {"points", item.points},
                               {"most", item.most},
                               {"details", item.details},
                               {"hint", item.hint},
                               {"cause", cause_in(grade, item)}});
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
  std::string output = task.title;
  if (!grade.refused.empty()) output += "\n" + grade.message;
  if (const std::string text = appendix(grade, ""); !text.empty()) output += "\n\n" + text;
  if (const std::string note = isolation_note(grade); !note.empty()) output += "\n\n" + note;
  Json json = {{"score", grade.points()},
               {"output", output},
               {"stdout_visibility", "hidden"},
               {"extra_data", {{"isolation", isolation_name(grade.isolation)}}},
               {"tests", Json::array()}};
  if (grade.refused.empty())
    for (const Item& item : grade.items) {
      const std::string cause = cause_in(grade, item);
      json["tests"].push_back(
          {{"name", item.name},
           {"score", item.points},
           {"max_score", item.most},
           {"status", item.points == item.most ? "passed" : "failed"},
           {"output", item.details + (item.hint.empty() ? "" : "\nhint: " + item.hint) +
                          (cause.empty() ? "" : "\nhint 2: " + cause)}});
    }
  return dumped(json);
}

}  // namespace lab::grader
