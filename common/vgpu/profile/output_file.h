// Files that the environment asks for: profiles and traces.
#pragma once
#include <string>

namespace vgpu {

// "" or why nothing can be written there. Leaves nothing behind.
std::string why_not_writable(const std::string& path);

// Writes a whole file; "" or why not. What is there already is replaced at once, so that a reader
// never sees half a file; a symbolic link is followed; into a device or a pipe it is written as it
// is. When it fails, nothing is left behind, also where the file would grow beyond a limit.
std::string write_output_file(const std::string& path, const std::string& content);

// Whether two paths name one file.
bool same_output_file(const std::string& one, const std::string& other);

}  // namespace vgpu
