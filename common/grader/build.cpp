#include "build.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "compiler_words.h"
#include "directives.h"
#include "files.h"
#include "isolation.h"
#include "lab/errors.h"
#include "lab/files.h"
#include "lab/program.h"
#include "lab/temporary_folder.h"
#include "process.h"
#include "text.h"

namespace lab::grader {
namespace {

constexpr double kCompilerSeconds = 60;

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

}  // namespace

std::string Library::as_handed_in(std::string text) const {
  if (compiled_in.empty()) return text;
  // The virtual GPU shows paths below the folder that it runs in without that folder.
  const std::string root = std::filesystem::canonical(repository_path(".")).string() + "/";
  for (const std::string& name : {compiled_in, replace_all(compiled_in, root, "")})
    text = replace_all(std::move(text), name, came_from);
  return text;
}

namespace {

constexpr const char* kEntryHeader = "common/grader/entry.cuh";

// The course's headers that a file of this task may include, from the repository's root: the chapter's
// own shape, or attention's shape and what its launches share, as the chapters' kernels have them;
// from chapter 11 on the tile vocabulary, too.
std::vector<std::string> allowed_headers(const Task& task) {
  const std::string own = task.folder + "/shape.h";
  const int chapter = std::atoi(std::filesystem::path(task.folder).filename().c_str());
  std::vector<std::string> headers = {own};
  if (!std::filesystem::exists(repository_path(own)))
    headers = {"common/attention/shape.h", "common/attention/launch.cuh"};
  if (chapter >= 11) headers.push_back("common/tile/tile.cuh");
  return headers;
}
// The same headers, as an exercise's file includes them.
std::vector<std::string> allowed_includes(const Task& task) {
  std::vector<std::string> names;
  for (const std::string& header : allowed_headers(task))
    names.push_back(std::filesystem::path(header).lexically_relative(task.place()).string());
  return names;
}

// A folder for the compiler that holds the student's files, the headers of the task and nothing else.
struct Workshop {
  std::string root, files;  // with a / at the end
};
Workshop set_up(const Task& task, const std::vector<Source>& sources, const std::string& folder) {
  const Workshop place{folder + "/src/", folder + "/src/" + task.place() + "/"};
  std::filesystem::create_directories(place.files);
  for (const Source& source : sources)
    write_file(place.files + std::filesystem::path(source.path).filename().string(),
               read_file(source.path));
  std::vector<std::string> headers = allowed_headers(task);
  headers.push_back(kEntryHeader);
  for (const std::string& header : headers) {
    std::filesystem::create_directories(std::filesystem::path(place.root + header).parent_path());
    write_file(place.root + header, read_file(repository_path(header)));
  }
  return place;
}

// The sources under names that a compiler can include; one that has none is copied.
std::vector<Source> renamed(std::vector<Source> sources, const std::string& folder) {
  for (Source& source : sources) {
    const std::string name = std::filesystem::path(source.path).filename().string();
    const std::string other = name == "shape.h" ? "handed_in.h" : name_for_compiler(name);
    if (other == name) continue;
    std::filesystem::create_directories(folder + "/renamed");
    const std::string copy = folder + "/renamed/" + other;
    write_file(copy, read_file(source.path));
    source.path = copy;
  }
  return sources;
}

// The compiler's command, and under bubblewrap only with what it needs.
std::vector<std::string> compiler_command(const std::vector<std::string>& arguments,
                                          const std::string& folder, const std::string& root,
                                          const Limits& limits) {
  if (limits.isolation != Isolation::bubblewrap) return arguments;
  namespace fs = std::filesystem;
  Places toolkit;
  // nvcc, as it is called and as it is, with the files around it.
  std::set<std::string> places;
  for (const fs::path& nvcc : {fs::path(arguments[0]), fs::canonical(arguments[0])})
    places.insert(nvcc.parent_path().parent_path().lexically_normal().string());
  const std::string wheels = root + ".toolkit";
  if (arguments[0].starts_with(wheels)) places.insert(wheels);
  for (const std::string& place : places)
    if (!place.starts_with("/usr") && place != "/") toolkit.emplace_back(place, place);
  return wrapped(arguments, toolkit, {{folder, folder}}, folder + "/src",
                 {{"PATH", "/usr/local/bin:/usr/bin:/bin"}, {"TMPDIR", folder}, {"HOME", "/tmp"}});
}

// Compiles a unit in a folder that holds all that it includes; as another user where submissions are kept
// apart so. own_rights: whether it ran with the grader's rights in spite of that.
Ended compile(const std::string& unit, const std::string& library,
              const std::vector<std::string>& more_flags, bool machine_code,
              const std::string& folder, const Limits& limits, const Limits& compiler,
              bool& own_rights) {
  const std::string root = std::filesystem::canonical(repository_path(".")).string() + "/";
  auto settings = configuration();
  std::vector<std::string> command = {settings["nvcc"][0]};
  if (command[0][0] != '/') command[0] = root + command[0];
  const std::vector<std::string>& flags = settings["flag"];
  for (size_t i = 0; i < flags.size(); ++i) {
    std::string flag = flags[i];
    if (flag.starts_with("-I")) continue;  // the course's headers are not the student's
    if (flag == "-isystem") {
      ++i;
      continue;
    }
    if (const size_t code = flag.find(",code=["); !machine_code && code != flag.npos)
      flag = flag.substr(0, code) + ",code=" + flag.substr(5, code - 5);
    command.push_back(flag);
  }
  command.insert(command.end(), more_flags.begin(), more_flags.end());
  command.insert(command.end(),
                 {"-shared", "-Xcompiler", "-fPIC", "--cudart", "none", "-o", library, unit});
  std::optional<LentFolder> lent;
  if (limits.isolation == Isolation::other_user) lent.emplace(folder);
  if (lent && !lent->reaches(command[0])) {
    if (limits.isolation_required)
      throw LackError("the compiler " + command[0] + " or the folder " + folder +
                      " for its output cannot be reached by another user: let everybody enter "
                      "their folders, or "
                      "install bubblewrap");
    lent.reset();
    own_rights = true;
  }
  return run_limited(compiler_command(command, folder, root, limits),
                     std::filesystem::path(unit).parent_path().string(), {{"TMPDIR", folder}},
                     compiler, lent ? lent->user() : 0);
}

// Throws where a compiler that failed would fail at any file. files: the folder of those handed in.
void require_compiler(const Ended& ended, const std::string& files, const Limits& limits,
                      const Limits& compiler) {
  if (ended.signal == SIGKILL || ended.signal == SIGTERM ||
      ended.output.find("died due to signal 9") != std::string::npos)
    throw LackError("the compiler was killed from outside: has this machine too little memory?");
  const std::vector<Message> errors = compiler_messages(ended.output, "error");
  const bool header_is_missing =
      ended.output.find("cannot open source file") != std::string::npos ||
      ended.output.find("fatal error: ") != std::string::npos;
  if (!header_is_missing && std::any_of(errors.begin(), errors.end(), [&](const Message& error) {
        return error.line > 0 && error.file.starts_with(files);
      }))
    return;
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("src"));  // where bubblewrap begins
  write_file(folder.path("src/probe.cu"),
             "#include <cuda_fp16.h>\n#include <cmath>\n#include <vector>\n"
             "__global__ void probe_kernel() {}\n");
  bool own_rights = false;
  const Ended probe = compile(folder.path("src/probe.cu"), folder.path("probe.so"), {}, true,
                              folder.folder(), limits, compiler, own_rights);
  if (probe.exit_code == 0) return;
  const std::string words = probe.output.substr(0, 1000);
  throw NoCompiler("the compiler does not work on this machine, whatever the file: " +
                   configuration()["nvcc"][0] +
                   (words.empty() ? " cannot be started" : " says\n" + words));
}

}  // namespace

Library build(const Task& task, const std::vector<Source>& handed_in, const std::string& folder,
              const Limits& limits) {
  for (const Source& source : handed_in) {
    if (const std::string why = no_source(source.path); !why.empty())
      return {"", "build", why, {}, "", ""};
    if (const std::string mistake =
            directive_mistake(read_file(source.path), allowed_includes(task));
        !mistake.empty())
      return {"", "build", mistake, {}, "", ""};
  }
  const std::string root = std::filesystem::canonical(repository_path(".")).string() + "/";
  const std::vector<Source> sources = renamed(handed_in, folder);
  const Workshop place = set_up(task, sources, folder);
  std::string unit = "#include <cuda_fp16.h>\n#include \"" + allowed_headers(task)[0] +
                     "\"\n#include \"" + kEntryHeader + "\"\n";
  for (const Source& source : sources)
    unit += "#include \"" + task.place() + "/" +
            std::filesystem::path(source.path).filename().string() + "\"\n";
  const auto qualified_name = [&](const Source& source) {
    return source.name_space + "::" + task.function;
  };
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::string function = qualified_name(sources[i]);
    unit += "static_assert(std::is_same_v<decltype(&" + function + "), void (*)(" +
            task.parameters + ")>,\n    \"the parameters of " + function +
            " must stay as they were: " + task.parameters + "\");\n";
    unit += "extern \"C\" void grader_entry_" + std::to_string(i) +
            "(void** arguments) {\n  lab::grader::call(" + function + ", arguments);\n}\n";
  }
  const std::string unit_path = place.root + "student.cu";
  write_file(unit_path, unit);

  const std::string from = std::filesystem::canonical(sources[0].path).parent_path().string() + "/";
  Library library{folder + "/student.so", "", "", {}, place.files, from};
  Limits compiler;
  compiler.seconds = std::max(limits.seconds, kCompilerSeconds);
  // Many files are compiled to PTX alone, which is what runs; machine code would only be checked.
  Ended ended = compile(unit_path, library.path, {"-I" + place.root}, sources.size() == 1, folder,
                        limits, compiler, library.own_rights);
  if (!ended.timed_out && ended.exit_code != 0)
    require_compiler(ended, place.files, limits, compiler);
  ended.output = library.as_handed_in(ended.output);
  library.came_from = replace_all(from, root, "");  // as the virtual GPU shows it
  // A renamed copy lies in a folder that is nobody's concern.
  const std::string copies = std::filesystem::weakly_canonical(folder + "/renamed").string() + "/";
  if (from == copies) library.came_from.clear();
  const auto as_named = [&](const std::string& text) {
    return replace_all(replace_all(text, copies, ""), replace_all(copies, root, ""), "");
  };
  if (ended.timed_out) {
    library.refused = "time";
    library.message = format("the compiler was stopped after %g s", compiler.seconds);
  } else if (ended.exit_code != 0) {
    library.refused = "build";
    library.message = as_named(compile_failure(
        ended.output, unit_path, root,
        sources.size() == 1 ? std::filesystem::canonical(sources[0].path).string() : "", task,
        qualified_name(sources[0])));
  } else {
    for (const Source& source : sources) {
      library.warnings.push_back(as_named(
          first_warnings(ended.output, std::filesystem::canonical(source.path).string(), root)));
      library.texts.push_back(read_file(source.path));
    }
  }
  return library;
}

}  // namespace lab::grader
