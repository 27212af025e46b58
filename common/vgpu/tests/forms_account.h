// Which points of the table of forms (ops/forms.h) the tests of this program have run.
#pragma once
#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "../ops/forms.h"

namespace vgpu::test {

inline std::set<std::string>& touched_points() {
  static std::set<std::string> points;
  return points;
}
// Counts the instruction `dotted` ("add.sat.s32") as tested.
inline void touch(std::string_view dotted) {
  for (std::string& point : points_of(dotted)) touched_points().insert(std::move(point));
}
// The same for every statement of a PTX text.
inline void touch_all(std::string_view text) {
  bool fresh = true;  // at the start of a statement
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (text.substr(i, 2) == "//") {
      i = std::min(text.find('\n', i), text.size());
    } else if (c == ';' || c == '{' || c == '}' || c == ':' || c == '\n') {
      fresh = true;
      ++i;
    } else if (c == ' ' || c == '\t') {
      ++i;
    } else if (c == '@') {
      i = std::min(text.find(' ', i), text.size());
    } else {
      const std::size_t end =
          std::min(text.find_first_of(" ;:\n", text.find("::", i) == i ? i + 2 : i), text.size());
      std::size_t stop = end;  // "L2::128B" holds colons
      while (stop < text.size() && text.substr(stop, 2) == "::")
        stop = std::min(text.find_first_of(" ;:\n", stop + 2), text.size());
      if (fresh) touch(text.substr(i, stop - i));
      fresh = false;
      i = stop;
    }
  }
}

}  // namespace vgpu::test
