// How a library built from a file (build.cpp) becomes points: run three times, compare.
#include "grade.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include "build.h"
#include "gpu_process.h"
#include "hints.h"
#include "json/json.h"
#include "lab.cuh"
#include "lab/compare.h"
#include "lab/errors.h"
#include "lab/files.h"
#include "lab/temporary_folder.h"
#include "symptoms.h"

namespace lab::grader {
namespace {

using Json = json::Value;

constexpr int kShapePoints = 30, kCheckPoints = 20;
const char* const kHoles = "are all holes filled?";
constexpr size_t kLines = 6;  // lines of a checker's message that are shown

// "kernel.cuh:42: error: race: write": what findings of several launches have in common.
std::string place_and_kind(const std::string& line) {
  const size_t error = line.find("error: ");
  return error == std::string::npos ? line : line.substr(0, line.find(" of ", error));
}

// The lines that contain one of `words`, of those with the same place_and_kind() the first.
std::vector<std::string> lines_with(const std::string& text, const std::set<std::string>& words) {
  std::vector<std::string> lines;
  std::set<std::string> seen;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    for (const std::string& word : words)
      if (line.find(word) != std::string::npos && seen.insert(place_and_kind(line)).second)
        lines.push_back(line);
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (size_t i = 0; i < lines.size() && i < kLines; ++i) text += (i ? "\n" : "") + lines[i];
  if (lines.size() > kLines) text += format("\n(and %zu more)", lines.size() - kLines);
  return text;
}

// What the virtual GPU said last, which explains an error better than its code does.
std::string explained(const std::string& message, const std::string& output) {
  const std::vector<std::string> lines = lines_with(output, {"error: ", "vgpu: cannot"});
  return lines.empty() ? message : message + "\n" + lines.back();
}

// "12,288 bytes", "3.5 %", "1.25".
std::string shown(double value, Aim::Unit unit) {
  if (!std::isfinite(value)) return "nothing to count";
  if (unit == Aim::share) return format("%.3g %%", 100 * value);
  std::string text = format("%.10g", value);
  const size_t end = std::min(text.find('.'), text.size());
  if (text.find_first_not_of("0123456789.") == std::string::npos)
    for (size_t at = end; at > 3; at -= 3) text.insert(at - 3, ",");
  return text + (unit == Aim::bytes ? " bytes" : "");
}

// The report shows what the first wrong case printed, or else what is printed first.
void keep_printed(Grade& grade, const Outcome& outcome, const std::string& where,
                  bool first_wrong) {
  if (outcome.printed.text.empty() || (!first_wrong && !grade.printed.text.empty())) return;
  grade.printed = outcome.printed;
  grade.printed_in = where;
}

// Zero points, with the reason; empty when the outcome is no reason.
bool refuse(Grade& grade, const Outcome& outcome, const std::string& where, const Limits& limits) {
  if (outcome.state == CaseState::endless) {
    grade.refused = "instructions";
    grade.message = explained(
        where +
            ": the kernel does not end. Its threads wait for each other, or a loop has no end "
            "(more than " +
            std::to_string(limits.instructions) + " warp instructions).",
        outcome.findings);
  } else if (outcome.state == CaseState::too_much_memory) {
    grade.refused = "memory";
    grade.message = where + ": more memory was asked for than there is for an exercise, " +
                    human_bytes(limits.memory_bytes) + " (" + outcome.message + ")";
  } else if (outcome.state == CaseState::timed_out) {
    grade.refused = "time";
    grade.message = where + format(
                                ": stopped after %g s. Is there a loop without an end in the "
                                "host code?",
                                limits.seconds);
  } else if (outcome.state == CaseState::printed_too_much) {
    grade.refused = "printed";
    grade.message = where + ": the code prints more than " + human_bytes(limits.file_bytes) +
                    ". Let one thread print, as in\nif (blockIdx.x == 0 && threadIdx.x == 0) "
                    "printf(...)";
  }
  return !grade.refused.empty();
}

// The elements of an output, half or float, and which of them nobody wrote: those have all bits set,
// which no arithmetic gives.
template <class Element>
std::vector<double> read_elements(const std::string& output, std::vector<bool>& never) {
  std::vector<double> values;
  for (size_t at = 0; at + sizeof(Element) <= output.size(); at += sizeof(Element)) {
    Element element;
    std::memcpy(&element, &output[at], sizeof element);
    const double value = double(element);
    values.push_back(std::isnan(value) ? NAN : value);  // a NaN loses its sign
    never.push_back(output.compare(at, sizeof element, std::string(sizeof element, '\xff')) == 0);
  }
  return values;
}

// How a case went whose output lies there: what is wrong with it, nothing when it is right, and
// what to think about.
std::optional<Grade::Failure> wrong(const Task& task, const Case& problem,
                                    const std::string& output, Hint& hint) {
  const bool fp32 = std::any_of(
      problem.arguments.begin(), problem.arguments.end(),
      [](const Argument& argument) { return argument.role == Argument::output && argument.fp32; });
  std::vector<bool> never;
  const std::vector<double> got =
      fp32 ? read_elements<float>(output, never) : read_elements<half>(output, never);
  const int64_t unwritten = std::count(never.begin(), never.end(), true);
  Comparer comparer(problem.tolerance, problem.dims);
  comparer.add(got.data(), problem.expected.data(), std::min(got.size(), problem.expected.size()));
  const Comparison comparison = comparer.result();
  if (comparison.pass) return {};
  Grade::Failure failure{problem.name, comparison.describe(), comparison.first_bad,
                         comparison.expected, comparison.got};
  const auto count = [](int64_t n) { return std::to_string(n); };
  if (unwritten > 0)
    failure.details +=
        "\n" + count(unwritten) + " of " + count(comparison.count) + " elements are never written";
  if (comparison.not_finite > unwritten)
    failure.details +=
        "\n" + count(comparison.not_finite - unwritten) + " are computed as NaN or infinite";
  if (got.size() != problem.expected.size()) return failure;
  const Symptom symptom = find_symptom(problem, got, never);
  hint = {symptom.words, symptom.kind == Symptom::unwritten ? task.unwritten_hint : symptom.cause};
  return failure;
}

// findings: the virtual GPU's of cases that failed.
Item grade_shapes(const Task& task, const std::vector<Case>& cases, const Library& library,
                  int entry, const Limits& limits, Grade& grade, std::string& findings,
                  std::set<size_t>& right_ones) {
  Item item{"right results", 0, kShapePoints, "", ""};
  size_t right = 0;
  for (size_t first = 0; first < cases.size();) {
    const TemporaryFolder folder;
    std::vector<size_t> numbers;
    for (size_t i = first; i < cases.size(); ++i) numbers.push_back(i);
    Ended ended;
    const std::vector<Outcome> outcomes = run_cases(task, cases, library, entry, Mode::cases,
                                                    numbers, folder.folder(), limits, ended);
    for (const Outcome& outcome : outcomes) {
      const Case& problem = cases[first++];
      if (refuse(grade, outcome, problem.name, limits)) {
        keep_printed(grade, outcome, problem.name, true);
        return item;
      }
      Hint hint;
      std::optional<Grade::Failure> failure;
      if (outcome.state == CaseState::failed) {
        failure = {problem.name, explained(outcome.message, outcome.findings), {}, 0, 0};
        hint = hint_for(failure->details);
        findings += outcome.findings;
      } else {
        failure = wrong(task, problem, outcome.output, hint);
      }
      const bool is_first = failure && grade.failures.empty();
      keep_printed(grade, outcome, problem.name, is_first);
      right += !failure;
      if (!failure) right_ones.insert(first - 1);
      if (!is_first) continue;
      grade.failures.push_back(*failure);
      item.hint = hint.seen;
      item.cause = hint.cause;
    }
  }
  if (const std::string pattern = find_pattern(cases, right_ones); !pattern.empty())
    item.hint += (item.hint.empty() ? "" : "; ") + pattern;
  if (right == 0 && task.holes && !grade.failures[0].index.empty())
    item.hint = kHoles + (" No result is right before that. If they are: " + item.hint);
  item.points = int(kShapePoints * right / cases.size());
  if (!task.holes && right < cases.size()) item.points = 0;
  item.details = format("%zu of %zu problems", right, cases.size());
  if (!grade.failures.empty())
    item.details += "\nfirst wrong: " + grade.failures[0].name + "\n" + grade.failures[0].details;
  return item;
}

// How the measured problem went, with all checks and counters in one run: who behaves while checks are
// on is counted as it behaves then.
struct Measurement {
  std::vector<Outcome> outcomes;
  Ended ended;
  std::string counters;  // JSON
};

Measurement measure(const Task& task, const Case& measured, const Library& library, int entry,
                    const Limits& limits) {
  const TemporaryFolder folder;
  Measurement result;
  result.outcomes = run_cases(task, {measured}, library, entry, Mode::measured, {0},
                              folder.folder(), limits, result.ended);
  if (result.outcomes[0].state == CaseState::done)
    result.counters = read_file(folder.path("counters.json"));
  return result;
}

std::string measured_name(const Case& measured) { return "measured: " + measured.name; }

// Findings are shown in any case. But no findings only count where something is right: an empty
// kernel has none.
// found: findings in cases that failed, some of which are run here again.
// right: the problems whose results were right without the checks.
// measurement: of the measured problem, null where it was not run.
Item grade_checks(const Task& task, const std::vector<Case>& cases, const std::set<size_t>& right,
                  const std::string& found, const Measurement* measurement, const Library& library,
                  int entry, const Limits& limits, Grade& grade) {
  Item item{"no finding of any check", 0, kCheckPoints, "", ""};
  const bool some_right = task.holes ? !right.empty() : right.size() == cases.size();
  std::vector<size_t> numbers;
  for (size_t i = 0; i < cases.size(); ++i) numbers.push_back(i);
  const TemporaryFolder folder;
  Ended ended;
  const std::vector<Outcome> outcomes =
      run_cases(task, cases, library, entry, Mode::checks, numbers, folder.folder(), limits, ended);
  for (size_t i = 0; i < outcomes.size(); ++i)
    if (refuse(grade, outcomes[i], cases[numbers[i]].name, limits)) return item;
  std::vector<std::string> findings = lines_with(ended.output + found, {": error: "});
  const bool small_ones_clean = findings.empty();
  bool clean = ended.exit_code == 0;
  if (measurement) {
    clean = clean && measurement->ended.exit_code == 0;
    findings = lines_with(ended.output + found + measurement->ended.output, {": error: "});
  }
  // A local variable that nobody set may be anything on a GPU, and is zero where it suits here.
  for (const std::string& line : lines_with(library.warnings[size_t(entry)], {"#549-D"}))
    findings.push_back(line);
  Hint hint;
  for (size_t i = 0; some_right && findings.empty() && i < outcomes.size(); ++i) {
    const Case& problem = cases[numbers[i]];
    if (outcomes[i].state != CaseState::done || !right.contains(numbers[i])) continue;
    const auto failure = wrong(task, problem, outcomes[i].output, hint);
    if (!failure) continue;
    item.details = problem.name + ": right before, but not with the checks on\n" + failure->details;
    item.hint = "the same problem must have the same result, whoever looks";
    return item;
  }
  // What races is often what nobody wrote yet, and says more.
  std::stable_partition(findings.begin(), findings.end(), [](const std::string& line) {
    return line.find("error: race") != std::string::npos;
  });
  if (findings.empty() && clean) {
    item.points = some_right ? kCheckPoints : 0;
    item.details = some_right   ? "memory, race, init, sync, proxy"
                   : task.holes ? "none, but no problem is right either"
                                : "none, but not all problems are right";
    item.hint = some_right   ? ""
                : task.holes ? "get the first problem right"
                             : "get all problems right";
    return item;
  }
  item.details = !findings.empty()      ? joined(findings)
                 : ended.exit_code != 0 ? outcomes.back().message
                                        : measurement->outcomes[0].message;
  if (small_ones_clean && measurement && !measurement->ended.output.empty())
    item.details += "\nin the problem that is measured";
  hint = hint_for(item.details, library.texts.at(size_t(entry)));
  item.hint = hint.seen;
  item.cause = hint.cause;
  return item;
}

// Counters in which arguments have their names, and what the student allocates has none of these.
std::string with_names_of_arguments(const std::string& counters) {
  const Json launches = json::parse_or_null(counters);
  if (!launches.is_array()) return counters;
  Json result = Json::array();
  for (const Json& launch : launches) {
    const Json& found = launch.at("allocations");
    Json allocations = Json::object();
    for (size_t i = 0; i < found.size(); ++i) {
      const std::string& name = found.names()[i];
      const bool argument = name.starts_with(kArgument);
      allocations[argument ? name.substr(std::strlen(kArgument)) : kScratch + name] = found.item(i);
    }
    Json named = launch;
    named["allocations"] = std::move(allocations);
    result.push_back(std::move(named));
  }
  return result.dump();
}

// How far from an aim a counter is, and in which direction.
std::string missed_by(const Aim& aim, double got) {
  const double limit = aim.relation == Aim::at_most && got < aim.floor ? aim.floor : aim.limit;
  if (!std::isfinite(got)) return "what this is counted of does not occur in your kernels";
  if (got == 0) return "there is none, where some is needed";
  if (limit == 0) return "there is some, where none is asked for";
  const double ratio = got / limit;
  return ratio >= 1000
             ? "this is " + shown(std::round(ratio), Aim::number) + " times what is asked for"
         : ratio > 1 ? format("this is %.3g times what is asked for", ratio)
                     : format("this is %.3g of what is needed", ratio);
}

// measurement: null while results are wrong.
std::vector<Item> grade_aims(const Task& task, const Case& measured,
                             const Measurement* measurement) {
  std::vector<Item> items;
  for (const Aim& aim : task.aims)
    items.push_back({aim.name, 0, aim.points, "not looked at while results are wrong",
                     "get all problems right first"});
  if (!measurement) return items;
  const Outcome& outcome = measurement->outcomes[0];
  if (outcome.state == CaseState::failed) {
    for (Item& item : items) item.details = explained(outcome.message, measurement->ended.output);
    return items;
  }
  Hint hint;
  if (const auto failure = wrong(task, measured, outcome.output, hint)) {
    for (Item& item : items) {
      item.details = measured_name(measured) + "\nits result is wrong: " + failure->details;
      item.hint = "the problem that is measured must be right too: " + hint.seen;
      item.cause = hint.cause;
    }
    return items;
  }
  std::vector<std::string> arrays;
  for (const Argument& argument : measured.arguments)
    if (argument.role != Argument::value) arrays.push_back(argument.name);
  const Counters counters(with_names_of_arguments(measurement->counters), arrays);
  for (size_t i = 0; i < items.size(); ++i) {
    const Aim& aim = task.aims[i];
    const double got = aim.value(counters);
    const bool too_little = aim.relation == Aim::at_most && got < aim.floor;
    const bool reached = aim.relation == Aim::at_most    ? got <= aim.limit && !too_little
                         : aim.relation == Aim::at_least ? got >= aim.limit
                                                         : got == aim.limit;
    const char* relation = aim.relation == Aim::at_most    ? "at most"
                           : aim.relation == Aim::at_least ? "at least"
                                                           : "exactly";
    items[i].points = reached ? aim.points : 0;
    items[i].details =
        shown(got, aim.unit) + ", asked for: " + relation + " " + shown(aim.limit, aim.unit);
    if (too_little)
      items[i].details += ", and no less than the work needs, " + shown(aim.floor, aim.unit);
    items[i].hint = reached ? "" : missed_by(aim, got);
    items[i].cause = reached      ? ""
                     : too_little ? "the kernels must do the work themselves"
                                  : aim.hint;
  }
  return items;
}

}  // namespace

int Grade::points() const {
  int sum = 0;
  if (refused.empty())
    for (const Item& item : items) sum += item.points;
  return sum;
}

Grade grade(const Task& task, const std::vector<Case>& cases, const Case& measured,
            const Library& library, int entry, const Limits& limits) {
  Grade grade;
  try {
    std::string findings;
    std::set<size_t> right;
    grade.items.push_back(
        grade_shapes(task, cases, library, entry, limits, grade, findings, right));
    if (!grade.refused.empty()) return grade;
    const bool all = grade.items[0].points == kShapePoints;
    if (grade.items[0].points == 0) right.clear();
    std::optional<Measurement> measurement;
    if (all) measurement = measure(task, measured, library, entry, limits);
    if (all && refuse(grade, measurement->outcomes[0], measured_name(measured), limits))
      return grade;
    const Measurement* const run = all ? &*measurement : nullptr;
    grade.items.push_back(
        grade_checks(task, cases, right, findings, run, library, entry, limits, grade));
    if (!grade.refused.empty()) return grade;
    // Wrong values may come from what the checks find.
    if (Item& results = grade.items[0];
        grade.items[1].details.find(": error: ") != std::string::npos && !all &&
        !grade.failures[0].index.empty() && !results.hint.starts_with(kHoles))
      results.hint = "first mend what the checks find, see below. Here: " + results.hint;
    for (Item& item : grade_aims(task, measured, run)) grade.items.push_back(std::move(item));
  } catch (const BuildError& error) {
    grade.refused = "build";
    grade.message = error.what();
  } catch (const UsageError& error) {  // a file that the student's process should have written
    grade.refused = "output";
    grade.message = error.what();
  }
  return grade;
}

}  // namespace lab::grader
