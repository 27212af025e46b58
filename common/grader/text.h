// What several of the grader's files do with texts.
#pragma once

#include <string>

namespace lab::grader {

// `text` with every `part` replaced by `with`.
inline std::string replace_all(std::string text, const std::string& part, const std::string& with) {
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += with.size())
    text.replace(at, part.size(), with);
  return text;
}

}  // namespace lab::grader
