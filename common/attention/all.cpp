// ./run --all: the whole ladder on one problem. Each chapter's own program runs, as it stands beside
// this one, and what they report is put side by side.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>

#include "json/json.h"
#include "lab/errors.h"
#include "lab/files.h"
#include "lab/program.h"
#include "lab/sources.h"
#include "lab/table.h"
#include "lab/temporary_folder.h"
#include "program.h"

namespace lab {
namespace {

namespace fs = std::filesystem;
using Json = json::Value;

constexpr int kChapters[] = {1, 2, 3, 4, 5, 6, 13, 14};

// The arguments of this run, without the ones that differ from chapter to chapter.
std::string arguments_for_all(int argc, char** argv) {
  std::string text;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::string flag = argument.substr(0, argument.find('='));
    const bool drop = flag == "--all" || flag == "--json" || flag == "--out" || flag == "--output";
    if (!drop) text += " " + shell_word(argument);
    if (drop && flag != "--all" && argument == flag) ++i;  // its value
  }
  return text;
}

std::string text(const Json& object, const char* name) {
  return object.at(name).get<std::string>();
}

// The lines of a chapter that are its own: chapter 1's total, else what it compares with a step
// before.
std::vector<Json> own_lines(const Json& result) {
  std::vector<Json> lines;
  const Json& kernels = result.at("kernels");
  if (!result.contains("ratios")) return {kernels.back()};
  for (const Json& ratio : result["ratios"])
    for (const Json& kernel : kernels)
      if (text(kernel, "name") == text(ratio, "after")) lines.push_back(kernel);
  return lines;
}

// The same with the names in order, as ladders are written.
Json sorted(const Json& json) {
  if (json.is_array()) {
    Json list = Json::array();
    for (const Json& item : json) list.push_back(sorted(item));
    return list;
  }
  if (!json.is_object()) return json;
  std::map<std::string, Json> by_name;
  for (size_t i = 0; i < json.size(); ++i) by_name[json.names()[i]] = sorted(json.item(i));
  Json object = Json::object();
  for (auto& [name, value] : by_name) object[name] = std::move(value);
  return object;
}

double number(const Json& line, const char* name) {
  const Json* const found = line.find(name);
  return found && found->is_number() ? found->get<double>() : std::nan("");
}

bool is_wrong(const Json& step) {
  const Json& pass = step.at("pass");
  return !pass.is_null() && !pass.get<bool>();
}

// "25", the largest error of the steps' predicted times in percent; "" without any.
std::string stated_error(const Json& steps) {
  double most = -1;
  for (const Json& step : steps)
    if (const double error = number(step, "predicted_error"); error > most) most = error;
  return most < 0 ? "" : format("%.0f", 100 * most);
}

// Which steps have no predicted time, and why.
std::string prediction_notes(const Json& steps) {
  std::string notes;
  for (const Json& step : steps)
    if (const Json* const why = step.find("predicted_why"); why && !why->is_null())
      notes += "No predicted time of " + text(step, "name") + ": " + why->get<std::string>() + "\n";
  return notes;
}

// One line a step. "before/this" is what the chapter's own program says: its step before, on this
// problem, which need not be the line above. Times of the virtual GPU are predicted; a ratio of
// bounds is no speed-up.
std::string table_of(const Json& steps, bool is_virtual) {
  const std::string error = stated_error(steps);
  TextTable table({"<chapter", "<step", is_virtual ? "predicted\n+-" + error + "%" : "median",
                   "lower\nbound", "before/\nthis", "first/\nthis",
                   is_virtual ? "<set by" : "TFLOP/s", "max\nerror", "rel.\nerror", "<result"});
  const char* const time = is_virtual ? "predicted_us" : "median_us";
  const bool right = std::none_of(steps.begin(), steps.end(), is_wrong);
  const double first = number(steps.front(), time);
  for (const Json& step : steps) {
    const double us = number(step, time);
    const Json* const limit = step.find_path("/counters/limit/name");
    const double bound = is_virtual ? number(step, "modelled_limit_us") : std::nan("");
    const std::string why = !is_virtual         ? format("%.1f", number(step, "tflop_per_s"))
                            : std::isnan(bound) ? "-"
                            : limit             ? limit->get<std::string>()
                                                : "the sum";
    const bool compared = !step.at("pass").is_null();
    const auto error_of = [&](const char* name) {
      return compared ? format("%.1e", number(step, name)) : "-";
    };
    const bool has_ratio =
        step.contains("ratio") && text(step["ratio"], "of") != std::string("modelled limits");
    const bool compares = right && &step != &steps.front();  // what is wrong has no speed
    table.add({text(step, "chapter"), text(step, "name"), human_time(us), human_time(bound),
               compares && has_ratio ? times(number(step["ratio"], "ratio")) : "",
               compares ? times(first / us) : "", why, error_of("max_abs_error"),
               error_of("relative_l2"),
               !compared        ? "not compared"
               : is_wrong(step) ? "FAIL"
                                : "PASS"});
  }
  std::string text = table.text() + "\n";
  if (!error.empty())
    text +=
        "predicted      how long this GPU takes: the kernel's machine code on one SM, simulated, "
        "with cold\n               caches; such predictions are off by some " +
        error + "%\n";
  if (table.used(3))
    text +=
        "lower bound    the modelled limit: the time that the busiest part of the GPU needs at its "
        "peak,\n               with cold caches. It is computed from counters and leaves out "
        "latency:\n               it is not a running time.\n";
  if (table.used(4))
    text += format(
        "before/this    the %s of the step that the chapter compares with (not "
        "always a line\n               here), divided by this one's\n",
        is_virtual ? "predicted time" : "median");
  if (table.used(5)) text += "first/this     chapter 1's, divided by this one's\n";
  if (std::any_of(steps.begin(), steps.end(),
                  [](const Json& step) { return step.at("pass").is_null(); }))
    text +=
        "not compared   only the blocks that a predicted time needs were executed: results are "
        "incomplete\n";
  return text + prediction_notes(steps);
}

}  // namespace

ExitCode run_all(int argc, char** argv, const AttentionOptions& options) {
  if (!options.csv.empty() || options.profile || !options.look.empty())
    throw UsageError(std::string(options.profile         ? "--profile"
                                 : !options.look.empty() ? "--look"
                                                         : "--csv") +
                     " does not go with --all: run one chapter, or take --json");
  const fs::path programs = fs::canonical("/proc/self/exe").parent_path();
  std::vector<int> chapters;
  std::string missing;
  for (const int n : kChapters) {
    if (fs::exists(programs / format("chapter%d", n)))
      chapters.push_back(n);
    else
      missing += format(" chapter%d", n);
  }
  if (!missing.empty())
    std::fprintf(stderr, "--all: not built yet, left out:%s (make%s builds them)\n",
                 missing.c_str(), missing.c_str());

  const TemporaryFolder scratch;
  const std::string arguments = arguments_for_all(argc, argv);
  Json merged;
  ExitCode worst = kCorrect;
  // Those of the last chapter that this device can run are kept.
  const fs::path picture = scratch.path("map" + fs::path(options.out).extension().string()),
                 output = scratch.path("o.safetensors");
  for (const int n : chapters) {
    const fs::path file = scratch.path(format("%d.json", n)), log = scratch.path("log");
    std::string command = shell_word((programs / format("chapter%d", n)).string()) + arguments +
                          " --json " + shell_word(file.string());
    if (!options.out.empty()) command += " --out " + shell_word(picture.string());
    if (!options.output.empty()) command += " --output " + shell_word(output.string());
    const bool watched = isatty(STDERR_FILENO);
    const fs::path program = programs / format("chapter%d", n);
    if (const std::string words = stale_program(program.string());
        !words.empty() && !fs::equivalent(program, "/proc/self/exe"))
      std::fprintf(stderr, "%s\n", words.c_str());
    if (watched) std::fprintf(stderr, "chapter %d of %d ...", n, *std::rbegin(kChapters));
    const int status = std::system((command + " >" + shell_word(log.string()) + " 2>&1").c_str());
    if (watched) std::fputs("\r                    \r", stderr);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : int(kWrong);
    if (code != kCorrect) {
      std::error_code no_log;
      if (fs::file_size(log, no_log) > 0 && !no_log)
        std::fputs(read_file(log.string()).c_str(), stderr);
      if (!fs::exists(file)) {  // it did not come to its measurements
        if (code == kLacking && !merged.is_null()) {
          std::fprintf(stderr, "--all: chapter%d is left out\n", n);
          continue;
        }
        std::fprintf(stderr, "--all: chapter%d ended with exit status %d\n", n, code);
        return ExitCode(code);
      }
      worst = ExitCode(code);
    }
    const Json result = json::parse(read_file(file.string()));
    if (merged.is_null()) {
      for (const char* same : {"time", "commit", "changed_files", "device", "driver", "runtime",
                               "nvcc", "clocks", "problem", "warmup", "iterations"})
        merged[same] = result.at(same);
      merged["chapter"] = "ladder";
    }
    for (Json line : own_lines(result)) {
      line["chapter"] = result.at("chapter");
      if (result.contains("ratios"))
        for (const Json& ratio : result["ratios"])
          if (text(ratio, "after") == text(line, "name")) line["ratio"] = ratio;
      merged["steps"].push_back(std::move(line));
    }
  }

  if (!options.out.empty()) write_file(options.out, read_file(picture.string()));
  if (!options.output.empty()) write_file(options.output, read_file(output.string()));
  const bool is_virtual = merged.at("device").at("virtual").get<bool>();
  const Json& problem = merged.at("problem");
  std::printf(
      "device   %s%s\nproblem  %s\n         [batch %d, heads %d, tokens %d, head_dim %d]\n\n%s",
      merged["device"]["name"].get<std::string>().c_str(), is_virtual ? " (virtual GPU)" : "",
      problem.at("source").get<std::string>().c_str(), problem.at("batch").get<int>(),
      problem.at("heads").get<int>(), problem.at("tokens").get<int>(),
      problem.at("head_dim").get<int>(), table_of(merged["steps"], is_virtual).c_str());
  for (const Json& step : merged["steps"])
    if (is_wrong(step) && worst == kCorrect) worst = kWrong;
  if (!options.json.empty()) write_file(options.json, sorted(merged).dump(2) + "\n");
  return worst;
}

}  // namespace lab
