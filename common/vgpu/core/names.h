// Names of functions for people. display_name() of machine.h is for messages: of a long name (CUB's
// templates have hundreds of characters) the inner template arguments become "...", then the last
// ones, then what is left of the beginning.
#pragma once
#include <string>

namespace vgpu {

// "ns::kernel<64>" of a mangled name, all of it: without the parameter list and the return type.
std::string full_name(const std::string& mangled);

// "tile" of the mangled name of a variable, also of one inside a function or a namespace.
std::string variable_name(const std::string& mangled);

}  // namespace vgpu
