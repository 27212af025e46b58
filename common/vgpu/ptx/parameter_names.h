// Names of a kernel's parameters, from its source: PTX only numbers them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "program.h"

namespace vgpu {

// What stands between the brackets behind the last `kernel(` that begins at or before the end of line
// `line` of `source`: the name of each parameter, "" for one without. Empty when there is no such list.
std::vector<std::string> parameter_names(std::string_view source, int line,
                                         std::string_view kernel);

// The same for an entry that is decoded, from the file that -lineinfo names. Empty without -lineinfo,
// when the file is not there or does not have as many parameters there.
std::vector<std::string> parameter_names(const Function& entry);

}  // namespace vgpu
