#include "directives.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <regex>

namespace lab::grader {

std::string directive_mistake(const std::string& text,
                              const std::vector<std::string>& own_headers) {
  // Lines that end in a backslash go on, also where spaces follow it.
  std::string joined;
  for (size_t i = 0; i < text.size(); ++i) {
    size_t end = i + 1;
    while (text[i] == '\\' && end < text.size() && std::strchr(" \t\v\f\r", text[end])) ++end;
    if (text[i] == '\\' && end < text.size() && text[end] == '\n')
      i = end;
    else
      joined += text[i];
  }
  // Behind spaces and comments.
  const auto behind_gap = [&](size_t i) {
    for (;;) {
      while (i < joined.size() && std::strchr(" \t\v\f\r", joined[i])) ++i;
      if (joined.compare(i, 2, "/*") != 0) return i;
      i = std::min(joined.find("*/", i + 2), joined.size() - 2) + 2;
    }
  };
  const auto word_at = [&](size_t i) {
    size_t end = i;
    while (end < joined.size() &&
           (std::isalnum(static_cast<unsigned char>(joined[end])) || joined[end] == '_'))
      ++end;
    return joined.substr(i, end - i);
  };
  // What looks like a directive counts wherever it stands, in a comment and in quotes too: telling
  // these apart as the compiler does takes a compiler.
  static const std::regex angled(R"(^<([A-Za-z0-9_+\-/.]+)>.*$)");
  for (size_t i = 0; i < joined.size(); ++i) {
    size_t at = i;
    if (joined[i] == '#')
      at = behind_gap(i + 1);
    else if (joined.compare(i, 2, "%:") == 0 || joined.compare(i, 3, "?\?=") == 0)
      at = behind_gap(i + (joined[i] == '%' ? 2 : 3));
    else
      continue;
    const std::string word = word_at(at);
    const size_t begin = behind_gap(at + word.size());
    std::string rest =
        joined.substr(begin, std::min(joined.find('\n', begin), begin + 200) - begin);
    rest = rest.substr(0, rest.find_last_not_of(" \t\r") + 1);
    if (word == "line" || (!word.empty() && std::isdigit(static_cast<unsigned char>(word[0]))))
      return "#" + word + " " + rest +
             " is not for an exercise: lines have the numbers that they have";
    if (word == "pragma" &&
        (rest.find("diag") != rest.npos || rest.find("system_header") != rest.npos))
      return "#pragma " + rest + " is not for an exercise: warnings are there to be read";
    if (word != "include" && word != "include_next" && word != "import" && word != "embed")
      continue;
    std::smatch name;
    const bool system = std::regex_match(rest, name, angled) && name[1].str()[0] != '/' &&
                        name[1].str().find("..") == std::string::npos;
    const bool own = std::any_of(own_headers.begin(), own_headers.end(), [&](const auto& header) {
      return rest.starts_with("\"" + header + "\"");
    });
    if (word == "include" && (system || own)) continue;
    std::string allowed;
    for (const std::string& header : own_headers)
      allowed += (allowed.empty()                  ? ""
                  : &header == &own_headers.back() ? " or "
                                                   : ", ") +
                 ("\"" + header + "\"");
    return "#" + word + " " + rest +
           " is not for an exercise: it may include headers of CUDA and of the standard library in "
           "< >, and " +
           allowed;
  }
  if (joined.find("_Pragma") != joined.npos)
    return "_Pragma is not for an exercise: #pragma does the same";
  return "";
}

}  // namespace lab::grader
