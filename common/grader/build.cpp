// A student's file becomes a library; what the compiler says becomes words that help.
#include <cxxabi.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

#include "files.h"
#include "lab/errors.h"
#include "lab/files.h"
#include "lab/program.h"
#include "process.h"
#include "testing/testing.h"

namespace lab::grader {
namespace {

constexpr double kCompilerSeconds = 60;
constexpr size_t kErrors = 6, kWarnings = 3;  // how many the student sees
constexpr size_t kMore = 4;                   // lines behind the first error that explain it
constexpr size_t kLineColumns = 92;           // columns of a source line that are shown
// Longer lines are not searched: std::regex takes stack for each byte.
constexpr size_t kLongest = 4000;

// ---- Braces -------------------------------------------------------------------------------------

// A file's text without comments and without what stands in quotes: spaces in their place.
std::string code_only(std::string text) {
  const auto blank = [&](size_t from, size_t to) {
    for (size_t i = from; i < std::min(to, text.size()); ++i)
      if (text[i] != '\n') text[i] = ' ';
  };
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (text.compare(i, 2, "//") == 0) {
      blank(i, end = std::min(text.find('\n', i), text.size()));
    } else if (text.compare(i, 2, "/*") == 0) {
      const size_t close = text.find("*/", i + 2);
      blank(i, end = close == text.npos ? text.size() : close + 2);
    } else if (text.compare(i, 2, "R\"") == 0) {
      const size_t open = std::min(text.find('(', i), text.size());
      const std::string last = ")" + text.substr(i + 2, open - i - 2) + "\"";
      const size_t close = text.find(last, open);
      blank(i, end = close == text.npos ? text.size() : close + last.size());
    } else if (text[i] == '"' || (text[i] == '\'' && (i == 0 || !std::isalnum(text[i - 1])))) {
      while (end < text.size() && text[end] != text[i] && text[end] != '\n')
        end += text[end] == '\\' ? 2 : 1;
      blank(i, ++end);
    }
    i = end;
  }
  return text;
}

// In words, which brace is missing or too many, as far as the indentation tells; "" when each has
// its partner.
std::string brace_mistake(const std::string& file) {
  struct Open {
    int line, indent, parentheses;
    bool name_space;
  };
  std::vector<Open> open;
  int line = 1, indent = 0, parentheses = 0;
  int missing = 0, too_many = 0;             // the first line that looks like it
  int closed = 0;                            // where a namespace ended
  bool first_of_line = true, begins = true;  // a statement
  int statement_indent = 0;
  bool name_space = false;
  const std::string text = code_only(file);
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
      indent = 0;
      first_of_line = true;
    } else if (c == ' ') {
      indent += first_of_line;
    } else if (c == '#' && first_of_line) {  // the compiler says what is wrong in such a line
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (c == '}') {
      if (open.empty() && !too_many && closed)
        return format(
            "a } is too many: that of line %d closes the namespace, and nothing is open "
            "at that of line %d",
            closed, line);
      if (open.empty())
        return format("a } is too many: that of line %d", too_many ? too_many : line);
      const Open& last = open.back();
      if (first_of_line && indent < last.indent && !missing) missing = last.line;
      if (first_of_line && indent > last.indent && !too_many) too_many = line;
      parentheses = last.parentheses;
      if (open.size() == 1 && last.name_space) closed = line;
      open.pop_back();
      begins = parentheses == 0;
      first_of_line = false;
    } else {
      if (begins && c != ';') {
        if (first_of_line && c != '{' && !open.empty() && !open.back().name_space &&
            indent <= open.back().indent && !missing)
          missing = open.back().line;
        statement_indent = indent;
        name_space = text.compare(i, 9, "namespace") == 0 || text.compare(i, 6, "extern") == 0;
        begins = false;
      }
      first_of_line = false;
      if (c == '(') ++parentheses;
      if (c == ')') --parentheses;
      if (c == '{') {
        open.push_back({line, statement_indent, parentheses, name_space});
        parentheses = 0;
        begins = true;
      }
      if (c == ';' && parentheses <= 0) begins = true;
    }
  }
  if (open.empty()) return "";
  return missing ? format("a } is missing: the { of line %d seems to have none", missing)
                 : "a } is missing";
}

// ---- Messages -----------------------------------------------------------------------------------

struct Message {
  std::string file;  // as the compiler names it; empty: none
  int line = 0;
  std::string text;
  std::vector<std::string> more;  // lines behind it
  std::string source;             // the line as the compiler sees it, and the place of its caret
  size_t caret = std::string::npos;
};

// The compiler's errors or warnings, each once.
std::vector<Message> compiler_messages(const std::string& output, const std::string& kind) {
  const std::regex located(R"(^(.+?)[(:](\d{1,9})\)?:(?:\d+:)? ((?:catastrophic |fatal )?)" + kind +
                           ".*)$");
  static const std::regex bare(R"(^(?:At end of source: |ptxas )?((?:error|fatal).*)$)");
  std::vector<Message> messages;
  std::set<std::string> seen;
  std::istringstream stream(output);
  std::string line;
  while (std::getline(stream, line)) {
    line.resize(std::min(line.size(), kLongest));
    std::smatch match;
    Message message;
    if (std::regex_match(line, match, located))
      message = {match[1], std::stoi(match[2]), match[3], {}, "", line.npos};
    else if (kind == "error" && std::regex_match(line, match, bare))
      message.text = match[1];
    else
      continue;
    // Up to an empty line: what else there is to say, the source's line, and a caret below it.
    std::vector<std::string> below;
    while (std::getline(stream, line) && !line.empty() && line.find("note") == line.npos) {
      const size_t caret = line.find_first_not_of(' ');
      if (caret != line.npos && line[caret] == '^' && !below.empty()) {
        message.source = below.back();
        message.caret = caret;
        below.pop_back();
        break;
      }
      below.push_back(line);
    }
    for (size_t i = 0; i < below.size() && message.caret != line.npos && i < kMore; ++i)
      message.more.push_back(
          below[i].substr(std::min(below[i].find_first_not_of(' '), below[i].size())));
    if (seen.insert(message.file + std::to_string(message.line) + message.text).second)
      messages.push_back(message);
  }
  return messages;
}

// The line as it stands in the file and a caret below it. The compiler shows it with its macros
// replaced: columns are counted from the end, or the word is looked for; no caret where neither
// fits. "" where the message is not of `file`: a student's code decides which files it names.
std::string source_line(const Message& message, const std::string& file) {
  if (message.file != file) return "";
  std::ifstream stream(message.file);
  std::string line;
  for (int i = 0; i < message.line; ++i)
    if (!std::getline(stream, line)) return "";
  size_t caret = line.npos;
  if (message.caret < message.source.size()) {
    const std::string rest = message.source.substr(message.caret);
    const auto in_word = [](char c) { return std::isalnum(c) || c == '_'; };
    const std::string word =
        rest.substr(0, size_t(std::find_if_not(rest.begin(), rest.end(), in_word) - rest.begin()));
    if (line.ends_with(rest))
      caret = line.size() - rest.size();
    else if (word.size() > 1 && line.find(word) == line.rfind(word))
      caret = line.find(word);
  } else if (message.caret != line.npos && !message.source.empty()) {
    caret = line.size();  // behind the line's end
  }
  size_t from = std::min(line.find_first_not_of(' '), line.size());
  if (caret != line.npos && caret > from + kLineColumns - 20) from = caret - (kLineColumns - 20);
  std::string text = "  " + line.substr(from, kLineColumns);
  if (caret != line.npos && caret >= from) text += "\n  " + std::string(caret - from, ' ') + "^";
  return text;
}

// "uses too much shared data (0x1c000 bytes, 0xc000 max)" and mangled names, in words.
std::string of_assembler(const std::string& text) {
  std::smatch match;
  static const std::regex name(R"('(_Z\w+)')");
  std::string kernel = "a kernel";
  if (std::regex_search(text, match, name)) kernel = demangled(match[1]);
  kernel = kernel.substr(0, kernel.find('('));
  static const std::regex shared(
      R"(uses too much shared data \(0x([0-9a-f]+) bytes, 0x([0-9a-f]+) max\))");
  if (std::regex_search(text, match, shared))
    return format(
        "%s has %d bytes of __shared__ memory, and a block may have %d: make tiles "
        "smaller",
        kernel.c_str(), std::stoi(match[1], nullptr, 16), std::stoi(match[2], nullptr, 16));
  return text;
}

std::string without(std::string text, const std::string& what) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos;) text.erase(at, what.size());
  return text;
}

// The first warnings of a file that was compiled, with their lines.
std::string first_warnings(const std::string& output, const std::string& file,
                           const std::string& root) {
  std::string text;
  size_t count = 0;
  for (const Message& message : compiler_messages(output, "warning")) {
    if (message.file != file || ++count > kWarnings) continue;
    text += without(message.file, root) + ":" + std::to_string(message.line) + ": " + message.text +
            "\n" + source_line(message, file) + "\n";
  }
  return text;
}

// What the compiler's output means. `unit`: the file around the student's, whose lines are nobody's
// concern; `file`: the student's when there is one alone, or empty.
std::string explained(const std::string& output, const std::string& unit, const std::string& root,
                      const std::string& file, const Task& task, const std::string& function) {
  const std::string braces = file.empty() ? "" : brace_mistake(read_file(file));
  const std::string parameters = "static assertion failed with \"";
  std::vector<Message> shown;
  std::string wrong_parameters, of_call;
  for (Message& message : compiler_messages(output, "error")) {
    if (message.file != unit && message.line > 0) {
      shown.push_back(message);
    } else if (const size_t at = message.text.find(parameters); at != std::string::npos) {
      wrong_parameters = message.text.substr(at + parameters.size());
      wrong_parameters = wrong_parameters.substr(0, wrong_parameters.rfind('"'));
    } else if (message.line == 0 && braces.empty()) {
      message.text = of_assembler(message.text);
      shown.push_back(message);
    } else if (of_call.empty()) {
      of_call = message.text;
    }
  }
  const bool no_function = output.find("name followed by \"::\" must be") != std::string::npos ||
                           output.find("\"" + task.name_space + "\" has no member \"" +
                                       task.function + "\"") != std::string::npos;
  std::string text = "it does not compile";
  if (!braces.empty()) {
    text += ": " + braces;
    shown.resize(std::min<size_t>(shown.size(), 1));  // the others come from that
  } else if (shown.empty()) {
    if (no_function)
      return text + ": there is no function " + function +
             " in this file: did you delete the namespace, or save an empty file?";
    if (!wrong_parameters.empty()) return text + ": " + wrong_parameters;
    return text + ": " +
           (of_call.empty() ? output.substr(0, 2000) : "the call of your function: " + of_call);
  }
  for (size_t i = 0; i < shown.size() && i < kErrors; ++i) {
    const Message& message = shown[i];
    text += i == 1 ? "\n\n" : "\n";
    if (message.line > 0)
      text += without(message.file, root) + ":" + std::to_string(message.line) + ": ";
    text += message.text;
    if (i > 0) continue;
    for (const std::string& more : message.more) text += "\n  " + without(more, root);
    if (const std::string line = message.line > 0 ? source_line(message, file) : ""; !line.empty())
      text += "\n" + line;
  }
  if (shown.size() > kErrors) text += format("\n(and %zu more)", shown.size() - kErrors);
  if (!wrong_parameters.empty() && !no_function && braces.empty()) text += "\n" + wrong_parameters;
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

}  // namespace

std::string demangled(const std::string& name) {
  int status = 0;
  char* const plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string result = status == 0 ? plain : name;
  std::free(plain);
  return result;
}

std::string Library::as_handed_in(std::string text) const {
  if (compiled_in.empty()) return text;
  // The virtual GPU shows paths below the folder that it runs in without that folder.
  const std::string root = std::filesystem::canonical(repository_path(".")).string() + "/";
  for (const std::string& name : {compiled_in, without(compiled_in, root)})
    for (size_t at = 0; (at = text.find(name, at)) != text.npos; at += came_from.size())
      text.replace(at, name.size(), came_from);
  return text;
}

std::string host_program() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "student_host").string();
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

}  // namespace

namespace {

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
  const testing::TemporaryFolder folder;
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
    if (const std::string mistake = include_mistake(read_file(source.path), allowed_includes(task));
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
  library.came_from = without(from, root);  // as the virtual GPU shows it
  // A renamed copy lies in a folder that is nobody's concern.
  const std::string copies = std::filesystem::weakly_canonical(folder + "/renamed").string() + "/";
  if (from == copies) library.came_from.clear();
  const auto as_named = [&](const std::string& text) {
    return without(without(text, copies), without(copies, root));
  };
  if (ended.timed_out) {
    library.refused = "time";
    library.message = format("the compiler was stopped after %g s", compiler.seconds);
  } else if (ended.exit_code != 0) {
    library.refused = "build";
    library.message = as_named(
        explained(ended.output, unit_path, root,
                  sources.size() == 1 ? std::filesystem::canonical(sources[0].path).string() : "",
                  task, qualified_name(sources[0])));
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
