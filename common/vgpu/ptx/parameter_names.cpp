#include "parameter_names.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>

namespace vgpu {
namespace {

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The source with comments and the contents of strings blanked, up to the end of a line and, for a list
// that goes on behind it, the rest.
std::string without_comments(std::string_view source) {
  std::string text(source);
  const auto blank = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < std::min(to, text.size()); ++i)
      if (text[i] != '\n') text[i] = ' ';
  };
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    std::size_t end = i;
    if (text[i] == '/' && text[i + 1] == '/') {
      end = text.find('\n', i);
    } else if (text[i] == '/' && text[i + 1] == '*') {
      end = text.find("*/", i + 2);
      if (end != text.npos) end += 2;
    } else if (text[i] == '"') {
      for (end = i + 1; end < text.size() && text[end] != '"' && text[end] != '\n'; ++end)
        if (text[end] == '\\') ++end;
      ++end;
    } else {
      continue;
    }
    end = std::min(end, text.size());
    blank(i, end);
    i = end > i ? end - 1 : i;
  }
  return text;
}

// "int n = 3" has n, "float x[4]" x, "float (*f)(float)" f, "const half*" none.
std::string name_in(std::string_view parameter) {
  parameter = parameter.substr(0, parameter.find('='));
  if (const std::size_t at = parameter.find("(*"); at != parameter.npos) {
    parameter.remove_prefix(at + 2);
    return std::string(parameter.substr(0, parameter.find(')')));
  }
  parameter = parameter.substr(0, parameter.find('['));
  while (!parameter.empty() && !in_word(parameter.back())) {
    if (!std::isspace(static_cast<unsigned char>(parameter.back()))) return "";
    parameter.remove_suffix(1);
  }
  std::size_t begin = parameter.size();
  while (begin > 0 && in_word(parameter[begin - 1])) --begin;
  // A lone word is a type.
  const std::string_view before = parameter.substr(0, begin), name = parameter.substr(begin);
  if (before.find_first_not_of(" \t\r\n") == before.npos) return "";
  for (const char* type : {"int", "unsigned", "long", "short", "char", "float", "double", "bool"})
    if (name == type) return "";
  return std::string(name);
}

}  // namespace

std::vector<std::string> parameter_names(std::string_view source, int line,
                                         std::string_view kernel) {
  const std::string text = without_comments(source);
  std::size_t end = text.npos;  // where the line ends
  for (int i = 0; i < line; ++i)
    if ((end = text.find('\n', end + 1)) == text.npos) break;
  std::size_t open = text.npos;
  for (std::size_t at = text.rfind(kernel, end); at != text.npos;
       at = at ? text.rfind(kernel, at - 1) : text.npos) {
    std::size_t after = at + kernel.size();
    if ((at > 0 && in_word(text[at - 1])) || (after < text.size() && in_word(text[after])))
      continue;
    while (after < text.size() && std::isspace(static_cast<unsigned char>(text[after]))) ++after;
    if (after == text.size() || text[after] != '(') continue;
    open = after + 1;
    break;
  }
  if (open == text.npos) return {};
  std::vector<std::string> names;
  int depth = 0;
  std::size_t begin = open;
  for (std::size_t i = open; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(' || c == '[' || c == '{' || c == '<') ++depth;
    const bool closes = c == ')' && depth == 0;
    if (closes || (c == ',' && depth == 0)) {
      names.push_back(name_in(std::string_view(text).substr(begin, i - begin)));
      begin = i + 1;
    }
    if (closes) return names;
    if (c == ')' || c == ']' || c == '}' || c == '>') --depth;
  }
  return {};
}

std::vector<std::string> parameter_names(const Function& entry) {
  std::string_view name = entry.display;
  int depth = 0;
  // The word in front of the template's arguments: "scale" in "ns::scale<3, ns::T>".
  for (std::size_t i = name.size(); i-- > 0;) {
    if (name[i] == '>') ++depth;
    if (name[i] == '<' && --depth == 0) {
      name = name.substr(0, i);
      break;
    }
    if (depth == 0 && name[i] != '>') break;
  }
  if (const std::size_t colon = name.rfind(':'); colon != name.npos) name.remove_prefix(colon + 1);
  if (name.empty()) return {};
  for (const Instr& instr : entry.code) {
    const Location& location = entry.module->locations[instr.location];
    if (location.line == 0) continue;
    std::ifstream file(location.file, std::ios::binary);
    const std::string source(std::istreambuf_iterator<char>(file), {});
    auto names = parameter_names(source, location.line, name);
    if (names.size() != entry.params.size()) names.clear();
    return names;
  }
  return {};
}

}  // namespace vgpu
