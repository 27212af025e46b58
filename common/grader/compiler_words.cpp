#include "compiler_words.h"

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "lab/files.h"
#include "text.h"

namespace lab::grader {
namespace {

constexpr size_t kErrors = 6, kWarnings = 3;  // how many the student sees
constexpr size_t kMore = 4;                   // lines behind the first error that explain it
constexpr size_t kLineColumns = 92;           // columns of a source line that are shown
// Longer lines are not searched: std::regex takes stack for each byte.
constexpr size_t kLongest = 4000;

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
std::string assembler_words(const std::string& text) {
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

}  // namespace

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

std::string first_warnings(const std::string& output, const std::string& file,
                           const std::string& root) {
  std::string text;
  size_t count = 0;
  for (const Message& message : compiler_messages(output, "warning")) {
    if (message.file != file || ++count > kWarnings) continue;
    text += replace_all(message.file, root, "") + ":" + std::to_string(message.line) + ": " +
            message.text + "\n" + source_line(message, file) + "\n";
  }
  return text;
}

std::string compile_failure(const std::string& output, const std::string& unit,
                            const std::string& root, const std::string& file, const Task& task,
                            const std::string& function) {
  const std::string braces = file.empty() ? "" : brace_mistake(read_file(file));
  const std::string parameters = "static assertion failed with \"";
  std::vector<Message> shown;
  std::string wrong_parameters, call_error;
  for (Message& message : compiler_messages(output, "error")) {
    if (message.file != unit && message.line > 0) {
      shown.push_back(message);
    } else if (const size_t at = message.text.find(parameters); at != std::string::npos) {
      wrong_parameters = message.text.substr(at + parameters.size());
      wrong_parameters = wrong_parameters.substr(0, wrong_parameters.rfind('"'));
    } else if (message.line == 0 && braces.empty()) {
      message.text = assembler_words(message.text);
      shown.push_back(message);
    } else if (call_error.empty()) {
      call_error = message.text;
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
           (call_error.empty() ? output.substr(0, 2000)
                               : "the call of your function: " + call_error);
  }
  for (size_t i = 0; i < shown.size() && i < kErrors; ++i) {
    const Message& message = shown[i];
    text += i == 1 ? "\n\n" : "\n";
    if (message.line > 0)
      text += replace_all(message.file, root, "") + ":" + std::to_string(message.line) + ": ";
    text += message.text;
    if (i > 0) continue;
    for (const std::string& more : message.more) text += "\n  " + replace_all(more, root, "");
    if (const std::string line = message.line > 0 ? source_line(message, file) : ""; !line.empty())
      text += "\n" + line;
  }
  if (shown.size() > kErrors) text += format("\n(and %zu more)", shown.size() - kErrors);
  if (!wrong_parameters.empty() && !no_function && braces.empty()) text += "\n" + wrong_parameters;
  return text;
}

std::string demangled(const std::string& name) {
  int status = 0;
  char* const plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string result = status == 0 ? plain : name;
  std::free(plain);
  return result;
}

}  // namespace lab::grader
