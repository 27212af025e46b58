// Names of source files.
#pragma once

#include <string>

namespace vgpu {

// The path without `x/..` and `.` in it: an included file's comes with the way to it from each file
// that includes it. As it is where x is a link to somewhere else.
std::string normal_path(const std::string& path);

}  // namespace vgpu
