// How a file becomes points: compile, run three times, compare.
#include "grader.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "grader_process.h"
#include "lab_files.h"
#include "lab_testing.h"

namespace lab::grader {
namespace {

using Json = nlohmann::json;

constexpr int kShapePoints = 30, kCheckPoints = 20;
constexpr double kCompilerSeconds = 60;
constexpr size_t kLines = 6;  // of a compiler's or checker's message that are shown

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
}

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

// How the compiler is called: grader.conf beside the program, written by the Makefile.
std::map<std::string, std::vector<std::string>> configuration() {
  const std::string path =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().string() + "/grader.conf";
  std::map<std::string, std::vector<std::string>> result;
  std::istringstream stream(read_file(path));
  for (std::string line; std::getline(stream, line);) {
    const size_t space = line.find(' ');
    if (space != std::string::npos) result[line.substr(0, space)].push_back(line.substr(space + 1));
  }
  if (result["nvcc"].size() != 1) throw LackError(path + " names no compiler: make it again");
  return result;
}

// What the virtual GPU said last, which explains an error better than its code does.
std::string explained(const std::string& message, const std::string& output) {
  const std::vector<std::string> lines = lines_with(output, {"error: ", "vgpu: cannot"});
  return lines.empty() ? message : message + "\n" + lines.back();
}

// What to think about after a message of the compiler's kind; empty for other messages.
std::string hint_for_findings(const std::string& findings) {
  const auto has = [&](const char* word) { return findings.find(word) != std::string::npos; };
  const std::string init =
      "memory is read that nobody wrote: is every element of the tile filled, past the last token "
      "too? And does the element that is read exist, for every lane?";
  if (!has(": error: ")) return "";
  if (has("error: init") && has("error: race")) return init + " The race may come from the same.";
  if (has("error: race"))
    return "between a write and another thread's access there must be a barrier: __syncthreads() "
           "in a block, __syncwarp() in a warp, for asynchronous copies their wait and then one";
  if (has("error: sync"))
    return "every thread of the block (or of the mask) must reach a barrier: none inside an if";
  if (has("error: init")) return init;
  return "an index is outside of its array: which thread, which element? Guard the last tile";
}

// "12,288 bytes", "3.5 %", "1.25".
std::string shown(double value, Aim::Unit unit) {
  if (unit == Aim::share) return format("%.3g %%", 100 * value);
  std::string text = format("%.10g", value);
  const size_t end = std::min(text.find('.'), text.size());
  if (text.find_first_not_of("0123456789.") == std::string::npos)
    for (size_t at = end; at > 3; at -= 3) text.insert(at - 3, ",");
  return text + (unit == Aim::bytes ? " bytes" : "");
}

// Zero points, with the reason; empty when the outcome is no reason.
bool refuse(Grade& grade, const Outcome& outcome, const std::string& where, const Ended& ended,
            const Limits& limits) {
  if (outcome.how == Outcome::endless) {
    grade.refused = "instructions";
    grade.message = explained(
        where +
            ": the kernel does not end. Its threads wait for each other, or a loop has no end "
            "(more than " +
            std::to_string(limits.instructions) + " warp instructions).",
        ended.output);
  } else if (outcome.how == Outcome::too_much_memory) {
    grade.refused = "memory";
    grade.message = where + ": more memory was asked for than there is for an exercise, " +
                    human_bytes(limits.memory_bytes) + " (" + outcome.message + ")";
  } else if (outcome.how == Outcome::timed_out) {
    grade.refused = "time";
    grade.message = where + format(
                                ": stopped after %g s. Is there a loop without an end in the "
                                "host code?",
                                limits.seconds);
  }
  return !grade.refused.empty();
}

Item grade_shapes(const Task& task, const std::vector<Case>& cases, const std::string& library,
                  int entry, const Limits& limits, Grade& grade) {
  Item item{"right results", 0, kShapePoints, "", ""};
  size_t right = 0;
  for (size_t first = 0; first < cases.size();) {
    const testing::TemporaryFolder folder;
    std::vector<size_t> numbers;
    for (size_t i = first; i < cases.size(); ++i) numbers.push_back(i);
    Ended ended;
    const std::vector<Outcome> outcomes =
        run_cases(task, library, entry, Mode::cases, numbers, folder.folder(), limits, ended);
    for (const Outcome& outcome : outcomes) {
      const Case& problem = cases[first++];
      if (refuse(grade, outcome, problem.name, ended, limits)) return item;
      Grade::Failure failure{problem.name, "", {}, 0, 0};
      std::string hint = problem.hint;
      if (outcome.how == Outcome::failed) {
        failure.details = explained(outcome.message, ended.output);
        hint = hint_for_findings(failure.details);
      } else {
        Comparer comparer(problem.tolerance, problem.dims);
        std::vector<double> got(outcome.output.size());
        for (size_t i = 0; i < got.size(); ++i) got[i] = to_double(outcome.output[i]);
        comparer.add(got.data(), problem.expected.data(),
                     std::min(got.size(), problem.expected.size()));
        const Comparison comparison = comparer.result();
        if (comparison.pass) {
          ++right;
          continue;
        }
        failure.index = comparison.first_bad;
        failure.expected = comparison.expected;
        failure.got = comparison.got;
        failure.details = comparison.describe();
        if (comparison.not_finite > 0) failure.details += "\nnot finite: never written, or NaN";
      }
      if (!grade.failures.empty()) continue;
      grade.failures.push_back(failure);
      item.hint = hint;
    }
  }
  if (right == 0 && !grade.failures.empty() && !grade.failures[0].index.empty())
    item.hint = "are all holes filled? No result is right before that. If they are: " + item.hint;
  item.points = int(kShapePoints * right / cases.size());
  item.details = format("%zu of %zu problems", right, cases.size());
  if (!grade.failures.empty())
    item.details += "\nfirst wrong: " + grade.failures[0].name + "\n" + grade.failures[0].details;
  return item;
}

// Findings are shown in any case. But no findings only count where something is right: an empty
// kernel has none.
Item grade_checks(const Task& task, const std::vector<Case>& cases, bool some_right,
                  const std::string& library, int entry, const Limits& limits, Grade& grade) {
  Item item{"no finding of any check", 0, kCheckPoints, "", ""};
  std::vector<size_t> numbers;
  for (size_t i = 0; i < cases.size(); ++i)
    if (cases[i].checked) numbers.push_back(i);
  const testing::TemporaryFolder folder;
  Ended ended;
  const std::vector<Outcome> outcomes =
      run_cases(task, library, entry, Mode::checks, numbers, folder.folder(), limits, ended);
  for (size_t i = 0; i < outcomes.size(); ++i)
    if (refuse(grade, outcomes[i], cases[numbers[i]].name, ended, limits)) return item;
  std::vector<std::string> findings = lines_with(ended.output, {": error: "});
  // What nobody wrote is often what races too, and says more.
  std::stable_partition(findings.begin(), findings.end(), [](const std::string& line) {
    return line.find("error: init") != std::string::npos;
  });
  if (findings.empty() && ended.exit_code == 0) {
    item.points = some_right ? kCheckPoints : 0;
    item.details = some_right ? "memory, race, init, sync" : "none, but no problem is right either";
    item.hint = some_right ? "" : "get the first problem right";
    return item;
  }
  item.details = findings.empty() ? outcomes.back().message : joined(findings);
  item.hint = hint_for_findings(item.details);
  return item;
}

std::vector<Item> grade_aims(const Task& task, const Case& measured, bool all_right,
                             const std::string& library, int entry, const Limits& limits,
                             Grade& grade) {
  std::vector<Item> items;
  for (const Aim& aim : task.aims)
    items.push_back({aim.name, 0, aim.points, "not looked at while results are wrong",
                     "get all problems right first"});
  if (!all_right) return items;
  const testing::TemporaryFolder folder;
  Ended ended;
  const std::vector<Outcome> outcomes =
      run_cases(task, library, entry, Mode::counters, {0}, folder.folder(), limits, ended);
  const std::string where = "measured: " + measured.name;
  if (refuse(grade, outcomes[0], where, ended, limits)) return items;
  if (outcomes[0].how == Outcome::failed) {
    for (Item& item : items) item.details = explained(outcomes[0].message, ended.output);
    return items;
  }
  std::vector<std::string> arrays;
  for (const Argument& argument : measured.arguments)
    if (argument.role != Argument::value) arrays.push_back(argument.name);
  const Counters counters(read_file(folder.path("counters.json")), arrays);
  for (size_t i = 0; i < items.size(); ++i) {
    const Aim& aim = task.aims[i];
    const double got = aim.value(counters);
    const bool reached = aim.relation == Aim::at_most    ? got <= aim.limit
                         : aim.relation == Aim::at_least ? got >= aim.limit
                                                         : got == aim.limit;
    const char* relation = aim.relation == Aim::at_most    ? "at most"
                           : aim.relation == Aim::at_least ? "at least"
                                                           : "exactly";
    items[i].points = reached ? aim.points : 0;
    items[i].details = shown(got, aim.unit) + ", asked for: " + relation + " " +
                       shown(aim.limit, aim.unit);
    items[i].hint = reached ? "" : aim.hint;
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

int Grade::most() const {
  int sum = 0;
  for (const Item& item : items) sum += item.most;
  return sum;
}

Library build(const Task& task, const std::vector<Source>& sources, const std::string& folder,
              const Limits& limits) {
  for (const Source& source : sources)
    if (std::filesystem::file_size(source.path) == 0)
      return {"", "build", "the file is empty: " + source.path};
  const std::string root = std::filesystem::canonical(repository_path(".")).string() + "/";
  std::string unit = "#include <cuda_fp16.h>\n#include \"shapes.h\"\n";
  for (const Source& source : sources)
    unit += "#include \"" + std::filesystem::canonical(source.path).string() + "\"\n";
  unit += "#include \"grader_entry.cuh\"\n";
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::string function = sources[i].name_space + "::" + task.function;
    unit += "static_assert(std::is_same_v<decltype(&" + function + "), void (*)(" +
            task.parameters + ")>,\n    \"the parameters of " + function +
            " must stay as they were: " + task.parameters + "\");\n";
    unit += "extern \"C\" void grader_entry_" + std::to_string(i) +
            "(void** arguments) {\n  lab::grader::call(" + function + ", arguments);\n}\n";
  }
  write_file(folder + "/student.cu", unit);

  auto settings = configuration();
  Library library{folder + "/student.so", "", ""};
  std::vector<std::string> command = {settings["nvcc"][0]};
  if (command[0][0] != '/') command[0] = root + command[0];
  for (std::string flag : settings["flag"]) {
    // Of many files only what is executed, the PTX: machine code would only be compiled to be checked.
    if (const size_t code = flag.find(",code=["); sources.size() > 1 && code != flag.npos)
      flag = flag.substr(0, code) + ",code=" + flag.substr(5, code - 5);
    command.push_back(flag);
  }
  command.insert(command.end(), {"-I" + root + task.folder, "-shared", "-Xcompiler", "-fPIC",
                                 "--cudart", "none", "-o", library.path, folder + "/student.cu"});
  Limits compiler;
  compiler.seconds = std::max(limits.seconds, kCompilerSeconds);
  const Ended ended = run_limited(command, root, {{"TMPDIR", folder}}, compiler);
  if (ended.timed_out) {
    library.refused = "time";
    library.message = format("the compiler was stopped after %g s", compiler.seconds);
  } else if (ended.exit_code != 0) {
    library.refused = "build";
    std::string output = ended.output;
    replace_all(output, folder + "/student.cu", "(the grader's call)");  // it may lie below root
    replace_all(output, root, "");
    const std::vector<std::string> errors = lines_with(output, {"error:", "error :", "fatal"});
    // What nvcc says of the grader's call when it finds no such name.
    const std::string function = sources[0].name_space + "::" + task.function;
    const bool missing =
        output.find("name followed by \"::\" must be") != std::string::npos ||
        output.find("\"" + sources[0].name_space + "\" has no member \"" + task.function +
                    "\"") != std::string::npos;
    if (missing)
      library.message = "there is no function " + function +
                        " in this file: did you delete the namespace, or save an empty file?\n";
    library.message +=
        "it does not compile:\n" + (errors.empty() ? output.substr(0, 2000) : joined(errors));
  }
  return library;
}

Grade grade(const Task& task, const std::vector<Case>& cases, const Case& measured,
            const std::string& library, int entry, const Limits& limits) {
  Grade grade;
  try {
    grade.items.push_back(grade_shapes(task, cases, library, entry, limits, grade));
    if (!grade.refused.empty()) return grade;
    const bool all = grade.items[0].points == kShapePoints, some = grade.items[0].points > 0;
    grade.items.push_back(grade_checks(task, cases, some, library, entry, limits, grade));
    if (!grade.refused.empty()) return grade;
    for (Item& item : grade_aims(task, measured, all, library, entry, limits, grade))
      grade.items.push_back(std::move(item));
  } catch (const UsageError& error) {  // a file that the student's process should have written
    grade.refused = "output";
    grade.message = error.what();
  }
  return grade;
}

// ---- Counters -----------------------------------------------------------------------------------

struct Counters::Data {
  Json launches;
  std::set<std::string> arrays;

  // Calls f(global counters of an allocation) with its launch's number.
  template <class F>
  void each(const std::string& array, const std::string& access, F&& f) const {
    for (size_t i = 0; i < launches.size(); ++i)
      for (const auto& [name, counters] : launches[i].at("allocations").items())
        if (array == kScratch ? !arrays.contains(name) : name == array) f(i, counters.at(access));
  }
};

Counters::Counters(const std::string& launches, const std::vector<std::string>& arrays) {
  const Json json = Json::parse(launches, nullptr, false);
  if (!json.is_array()) throw std::runtime_error("the counters are no JSON list");
  data_ = std::make_shared<Data>(Data{json, {arrays.begin(), arrays.end()}});
}

double Counters::sum(const std::string& pointer) const {
  double sum = 0;
  for (const Json& launch : data_->launches)
    if (const Json::json_pointer at(pointer); launch.contains(at) && launch.at(at).is_number())
      sum += launch.at(at).get<double>();
  return sum;
}

double Counters::bytes(const std::string& array, const std::string& access) const {
  double sum = 0;
  data_->each(array, access,
              [&](size_t, const Json& c) { sum += c.at("bytes_asked").get<double>(); });
  return sum;
}

double Counters::requests(const std::string& array, const std::string& access) const {
  double sum = 0;
  data_->each(array, access, [&](size_t, const Json& c) { sum += c.at("requests").get<double>(); });
  return sum;
}

double Counters::sectors(const std::string& array, const std::string& access) const {
  double sum = 0;
  data_->each(array, access, [&](size_t, const Json& c) { sum += c.at("sectors").get<double>(); });
  return sum;
}

Counters Counters::chosen(const std::string& array, bool both) const {
  std::vector<bool> loads(data_->launches.size()), stores(loads.size());
  data_->each(array, "load", [&](size_t i, const Json& c) {
    if (c.at("requests") != 0) loads[i] = true;
  });
  data_->each(array, "store", [&](size_t i, const Json& c) {
    if (c.at("requests") != 0) stores[i] = true;
  });
  Counters result = *this;
  Json launches = Json::array();
  for (size_t i = 0; i < loads.size(); ++i)
    if ((loads[i] && stores[i]) == both) launches.push_back(data_->launches[i]);
  result.data_ = std::make_shared<Data>(Data{launches, data_->arrays});
  return result;
}
Counters Counters::load_and_store(const std::string& array) const { return chosen(array, true); }
Counters Counters::load_or_store(const std::string& array) const { return chosen(array, false); }

double Counters::moved_over_needed(const std::string& array, const std::string& access) const {
  std::map<size_t, std::pair<double, double>> by_launch;
  data_->each(array, access, [&](size_t launch, const Json& c) {
    if (c.at("requests") == 0) return;
    by_launch[launch].first += c.at("sectors").get<double>();
    by_launch[launch].second +=
        c.at("ideal_sectors_per_request").get<double>() * c.at("requests").get<double>();
  });
  double worst = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [launch, sectors] : by_launch)
    worst = std::fmax(worst, sectors.first / sectors.second);
  return std::round(worst * 1000) / 1000;
}

double Counters::bank_conflict_share() const {
  const double conflicts = sum("/shared/load/conflicts") + sum("/shared/store/conflicts");
  const double ideal = sum("/shared/load/ideal") + sum("/shared/store/ideal");
  return ideal > 0 ? conflicts / ideal : 0;
}

}  // namespace lab::grader
