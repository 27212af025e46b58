// The flags of an exercise's program, and whole folders of submissions.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "build.h"
#include "files.h"
#include "gpu_process.h"
#include "grade.h"
#include "grader.h"
#include "isolation.h"
#include "lab/errors.h"
#include "lab/files.h"
#include "lab/flags.h"
#include "lab/program.h"
#include "lab/sources.h"
#include "lab/temporary_folder.h"
#include "report.h"
#include "text.h"
#include "together.h"

namespace lab::grader {
namespace {

struct Flags {
  std::string task, file, json, gradescope, batch, isolation = "auto";
  bool solution = false, tap = false, together = false;
  double seconds = 30;
  int hint = 1;
};

Flags parse(int argc, char** argv, const std::vector<Task>& tasks) {
  Flags flags;
  CLI::App app(tasks[0].title + ": points for " + tasks[0].place() + "/" + tasks[0].file +
               ", always on the virtual GPU.");
  app.get_formatter()->column_width(30);
  app.footer(
      "What the code prints, in kernels (printf) and on the host, stands behind the points: the\n"
      "first 20 lines of the first problem that is wrong.\n"
      "SOLUTION=1 in the environment means --solution. Exit codes: 0 all points, 1 fewer, 2 bad\n"
      "usage, 3 this machine lacks what is needed. The form of the files: chapters/README.md.");
  std::vector<std::string> names;
  for (const Task& task : tasks) names.push_back(task.file);
  if (tasks.size() > 1)
    app.add_option("--task", flags.task, "which file of the chapter (" + names[0] + ")")
        ->check(CLI::IsMember(names));
  app.add_option("--file", flags.file, "a submission that lies elsewhere")->type_name("FILE");
  app.add_flag("--solution", flags.solution, "grade the chapter's own solution");
  app.add_option("--json", flags.json, "points as JSON")->type_name("FILE");
  app.add_option("--gradescope", flags.gradescope, "points as Gradescope's results.json")
      ->type_name("FILE");
  app.add_flag("--tap", flags.tap, "print the points in the Test Anything Protocol");
  app.add_option("--batch", flags.batch, "grade all *.cuh of a folder, write a .json beside each")
      ->type_name("FOLDER");
  app.add_flag("--together", flags.together,
               "with --batch: compile all in one go, where no file is out to harm another");
  app.add_option("--hint", flags.hint,
                 "1: what is seen (the default); 2: also what it may come from")
      ->type_name("STAGE")
      ->check(CLI::IsMember({1, 2}));
  app.add_option("--seconds", flags.seconds, "after which a process is stopped (30)")
      ->type_name("S")
      ->check([](const std::string& text) -> std::string {
        char* end = nullptr;
        const double seconds = std::strtod(text.c_str(), &end);
        return *end == '\0' && seconds >= 1 && seconds <= 3600  // and no NaN
                   ? ""
                   : text + ": must be a number of seconds from 1 to 3600";
      });
  app.add_option("--isolation", flags.isolation,
                 "of the code: auto, the best there is; required: having none is an error; or one "
                 "of bubblewrap, user, none")
      ->check(CLI::IsMember({"auto", "required", "bubblewrap", "user", "none"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    std::exit(kCorrect);
  } catch (const CLI::ParseError& error) {
    std::string message = error.what();
    if (message.find("not expected") != std::string::npos) {
      std::string unknown;  // in their order; the library's own message has them in reverse
      for (const std::string& word : app.remaining())
        unknown += (unknown.empty() ? "" : " ") + word;
      message = unknown + ": there is no such flag (--help lists the flags)";
      if (flags.tap)
        throw UsageError(message + "\n--tap prints on standard output: ./run --tap > FILE");
      // "chapters/01_naive_attention" is chapter 1's.
      const std::string number =
          std::to_string(std::stoi(tasks[0].folder.substr(std::string("chapters/").size(), 2)));
      message += message.find("--task") != std::string::npos
                     ? "\nthis ./run grades exercise " + number +
                           ": this chapter has one task. For another chapter's: make exerciseN"
                     : "\nthis ./run grades exercise " + number +
                           "; for the chapter's program: make chapter" + number;
    }
    throw UsageError(message);
  }
  for (const CLI::Option* option : app.get_options())
    if (option->count() > 0 && option->get_items_expected_max() > 0) {
      const std::string value = option->as<std::string>(), flag = option->get_name();
      if (value.empty()) throw UsageError(flag + " '': the value is empty");
      if (value.starts_with("--"))
        throw UsageError(flag + " " + value + ": that is another flag, and " + flag +
                         " needs a value; of a file with such a name say ./" + value);
    }
  const char* variable = std::getenv("SOLUTION");
  if (variable && std::string(variable) == "1") flags.solution = true;
  if (flags.solution && !flags.file.empty())
    throw UsageError("--file and --solution: say one of them");
  if (!flags.batch.empty() && (!flags.file.empty() || flags.solution || flags.tap ||
                               !flags.json.empty() || !flags.gradescope.empty()))
    throw UsageError(
        "--batch writes its own files: say no --file, --solution, --json, ... with it");
  return flags;
}

Isolation isolation_for(const std::string& wanted) {
  if (wanted == "none") return Isolation::none;
  if (wanted == "user" && geteuid() == 0) return Isolation::other_user;
  const Isolation best = best_isolation();
  if (wanted == "user" || (wanted == "bubblewrap" && best != Isolation::bubblewrap))
    throw LackError("--isolation " + wanted +
                    (wanted == "user" ? ": only root can run code as another user"
                                      : ": /usr/bin/bwrap does not run here"));
  if (wanted == "required" && best == Isolation::none)
    throw LackError(
        "--isolation required: neither does bubblewrap run here (apt-get install bubblewrap; user "
        "namespaces must be allowed), nor is this root, who could take another user's rights");
  return best;
}

const Task& chosen(const std::vector<Task>& tasks, const std::string& name) {
  for (const Task& task : tasks)
    if (task.file == name) return task;
  return tasks[0];
}

Grade refused(const Library& library) {
  Grade grade;
  grade.refused = library.refused;
  grade.message = library.message;
  return grade;
}

int grade_one(const Task& task, const Flags& flags, const Limits& limits) {
  std::string file = flags.file;
  if (file.empty()) {
    if (flags.solution && task.solution.empty())
      throw UsageError(task.file + " has no solution to grade: finding it is the exercise");
    file = repository_path(task.place() + "/" + (flags.solution ? task.solution : task.file));
  }
  require_submission(file);
  require_distinct(
      {{"--json", flags.json}, {"--gradescope", flags.gradescope}, {"the submission", file}});
  for (const auto& [flag, path] :
       {std::pair{"--json", flags.json}, std::pair{"--gradescope", flags.gradescope}})
    if (!path.empty()) require_writable(flag, path);

  const TemporaryFolder folder;
  const Library library = build(task, {{file, task.name_space}}, folder.folder(), limits);
  Grade result = library.refused.empty()
                     ? grade(task, task.cases(), task.measured(), library, 0, limits)
                     : refused(library);
  if (library.refused.empty()) result.warnings = library.warnings[0];
  result.isolation = limits.isolation;
  result.own_rights = library.own_rights;
  result.stage = flags.hint;
  result.file = flags.file.empty() ? task.place() + file.substr(file.rfind('/')) : file;
  // The files first: whoever reads the points there gets them even where nobody reads the words.
  if (!flags.json.empty()) write_file(flags.json, json_report(task, result));
  if (!flags.gradescope.empty()) write_file(flags.gradescope, gradescope_report(task, result));
  print(flags.tap ? tap_report(result) : text_report(task, result));
  return result.points() == 100 ? kCorrect : kWrong;
}

// The submissions of a folder, by name; also what turns out to be no file when it is graded.
std::vector<std::filesystem::path> submissions_in(const std::string& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  size_t others = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".cuh")
      files.push_back(entry.path());
    else
      ++others;
  if (error == std::errc::not_a_directory)
    throw UsageError("--batch " + folder + ": is no folder; for one file: --file " + folder);
  if (error) throw UsageError("--batch " + folder + ": " + error.message());
  if (files.empty())
    throw UsageError("--batch " + folder + ": there is no .cuh file in it" +
                     (others ? format(" (%zu other files or folders)", others) : ""));
  std::sort(files.begin(), files.end());
  require_writable("--batch " + folder, (std::filesystem::path(folder) / "report.json").string());
  return files;
}

// Which files are the same to the byte, in words; "" where each is different. Somebody handed in
// twice, or two people one file: that is for whoever grades to find out.
std::string same_texts(const std::vector<std::filesystem::path>& files) {
  std::map<std::string, std::vector<std::string>> by_text;
  for (const std::filesystem::path& file : files)
    if (no_source(file.string()).empty())
      by_text[read_file(file.string())].push_back(one_line_name(file.filename().string()));
  std::vector<std::string> lines;
  for (const auto& [text, names] : by_text)
    if (names.size() > 1) {
      lines.push_back("the same text: " + names[0]);
      for (size_t i = 1; i < names.size(); ++i) lines.back() += ", " + names[i];
    }
  std::sort(lines.begin(), lines.end());
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

// The library that a submission is in together with others, and its place there.
struct Shared {
  std::shared_ptr<const Library> library;  // null: it is compiled alone
  int entry = 0;
};

// In a library each file gets a namespace of its own. In `folder`, which must outlive the libraries.
std::vector<Shared> compiled_together(const Task& task,
                                      const std::vector<std::filesystem::path>& files,
                                      const TemporaryFolder& folder, const Limits& limits) {
  // At most one library for each core. CUDA's headers take as long as eight files: fewer are not
  // worth a library.
  constexpr size_t kFilesOfLibrary = 8;
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  // Another user, as whom the compiler may run, has folders of its own in there.
  std::filesystem::permissions(folder.folder(), std::filesystem::perms(0711));
  const size_t libraries = std::max<size_t>(1, files.size() / kFilesOfLibrary);
  std::vector<Shared> shared(files.size());
  std::atomic<int> number = 0;
  try_groups(files.size(), std::min(cores, libraries), [&](const Group& group) {
    const std::string place = folder.path(std::to_string(number++));
    std::filesystem::create_directory(place);
    std::vector<Source> sources;
    for (const size_t i : group) {
      const std::string space = task.name_space + "_" + std::to_string(i);
      // An empty file goes into the library too, where build() refuses it. One that is no source
      // does the same.
      std::string text = no_source(files[i].string()).empty() ? read_file(files[i].string()) : "";
      text = replace_all(std::move(text), "namespace " + task.name_space, "namespace " + space);
      sources.push_back({place + "/" + files[i].filename().string(), space});
      write_file(sources.back().path, text);
    }
    const auto library = std::make_shared<const Library>(build(task, sources, place, limits));
    if (!library->refused.empty()) return false;
    for (size_t i = 0; i < group.size(); ++i) shared[group[i]] = {library, int(i)};
    return true;
  });
  return shared;
}

int grade_folder(const Task& task, const Flags& flags, const Limits& limits) {
  const std::vector<std::filesystem::path> files = submissions_in(flags.batch);
  const TemporaryFolder folder;
  const std::vector<Shared> shared = flags.together ? compiled_together(task, files, folder, limits)
                                                    : std::vector<Shared>(files.size());
  const std::vector<Case> cases = task.cases();
  const Case measured = task.measured();
  std::vector<Grade> grades(files.size());
  const auto grade_file = [&](size_t i) {
    require_submission(files[i].string());
    const TemporaryFolder own;
    const auto [together, entry] = shared[i];
    const Library library =
        together ? *together
                 : build(task, {{files[i].string(), task.name_space}}, own.folder(), limits);
    grades[i] = library.refused.empty() ? grade(task, cases, measured, library, entry, limits)
                                        : refused(library);
    if (library.refused.empty()) grades[i].warnings = library.warnings[entry];
    grades[i].own_rights = library.own_rights;
  };
  // The points in the order of the files, each as soon as those before it are there.
  std::mutex mutex;
  std::vector<bool> done(files.size());
  size_t told = 0;
  bool lacking = false;  // a report could not be written, or a file not be graded
  bool silent = false;   // standard output cannot be written
  in_parallel(files.size(), [&](size_t i) {
    bool machine_lacks = false;
    try {
      grade_file(i);
    } catch (const NoCompiler&) {  // nor can the others be graded
      throw;
    } catch (const std::exception& error) {  // whatever one file does, the others are graded
      grades[i] = {};
      grades[i].refused = "grader";
      grades[i].message = error.what();
      machine_lacks = dynamic_cast<const LackError*>(&error) != nullptr;
    }
    grades[i].file = files[i].string();
    grades[i].isolation = limits.isolation;
    grades[i].stage = flags.hint;
    const std::string json = std::filesystem::path(files[i]).replace_extension(".json").string();
    std::string unwritten;
    try {
      require_own_report(json);
      write_file(json, json_report(task, grades[i]));
    } catch (const std::exception& error) {
      unwritten = error.what();
    }
    const std::lock_guard lock(mutex);
    lacking = lacking || machine_lacks;
    if (!unwritten.empty()) {
      std::fprintf(stderr, "%s\n", unwritten.c_str());
      lacking = true;
    }
    done[i] = true;
    for (; told < files.size() && done[told]; ++told) {
      const std::string& why = grades[told].refused;
      const std::string line = format("%3d  ", grades[told].points()) +
                               one_line_name(files[told].filename().string()) +
                               (why.empty() ? "" : "  (" + why + ")") + "\n";
      // The reports are what counts: where nobody can read the lines all files are graded, too.
      silent = silent || std::fwrite(line.data(), 1, line.size(), stdout) != line.size() ||
               std::fflush(stdout) != 0;
    }
  });
  const bool full = std::all_of(grades.begin(), grades.end(),
                                [](const Grade& grade) { return grade.points() == 100; });
  if (silent) throw LackError("standard output cannot be written; the reports are complete");
  print(same_texts(files));
  if (const std::string note = isolation_note(grades[0]); !note.empty()) print("\n" + note + "\n");
  return lacking ? kLacking : full ? kCorrect : kWrong;
}

}  // namespace

int grader_main(int argc, char** argv, const std::vector<Task>& tasks) {
  try {
    if (argc > 1 && std::string(argv[1]) == "--child") return child_main(argc, argv);
    const Flags flags = parse(argc, argv, tasks);
    say_if_stale(flags.solution ? " SOLUTION=1" : "");
    const Task& task = chosen(tasks, flags.task);
    Limits limits;
    limits.seconds = flags.seconds;
    limits.file_bytes = 8 << 20;
    limits.isolation = isolation_for(flags.isolation);
    limits.isolation_required = flags.isolation != "auto";
    return flags.batch.empty() ? grade_one(task, flags, limits) : grade_folder(task, flags, limits);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kBadUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kLacking;
  }
}

}  // namespace lab::grader
