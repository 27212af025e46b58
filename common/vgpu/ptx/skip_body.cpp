// Where the body of a kernel ends that is read at its first use. A file of its own, compiled with the
// core's optimization: it looks at each character of the PTX that a process loads.
#include <algorithm>
#include <cstring>

#include "parser.h"

namespace vgpu {

bool Parser::skip_body(Later& later) {
  const auto is_directive = [&](std::size_t at, std::string_view word) {
    const std::size_t end = at + word.size();
    return text_.compare(at, word.size(), word) == 0 &&
           (end == text_.size() || !in_name(text_[end]));
  };
  later = {pos_, line_, 0, 0};
  std::size_t locations = 0;
  std::uint32_t line = line_;
  int depth = 1;
  for (std::size_t p = pos_; p < text_.size(); ++p) {
    const char c = text_[p];
    if (c == '\n') {
      ++line;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}') {
      if (--depth > 0) continue;
      pos_ = p + 1;
      line_ = line;
      later.first_location = module_.locations.size();
      later.end_of_locations = later.first_location + locations;
      module_.locations.resize(later.end_of_locations);
      return true;
    } else if (c == '.' && std::strchr("lgcf", text_[p + 1]) && !in_name(text_[p - 1])) {
      if (is_directive(p, ".loc"))
        ++locations;
      else if (is_directive(p, ".global") || is_directive(p, ".const") || is_directive(p, ".file"))
        return false;
    } else if (c == '"') {
      while (++p < text_.size() && text_[p] != '"')
        if (text_[p] == '\\') ++p;
    } else if (c == '/' && p + 1 < text_.size() && text_[p + 1] == '*') {
      return false;
    } else if (c == '/' && p + 1 < text_.size() && text_[p + 1] == '/') {
      p = std::min(text_.find('\n', p), text_.size()) - 1;
    }
  }
  return false;
}

}  // namespace vgpu
