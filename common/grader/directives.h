// What an exercise may say to the preprocessor.
#pragma once

#include <string>
#include <vector>

namespace lab::grader {

// What is wrong with a file's directives, "" where nothing is: an exercise includes CUDA's and the
// standard library's headers in < >, and its task's own; it neither renames its lines nor hides warnings.
std::string directive_mistake(const std::string& text, const std::vector<std::string>& own_headers);

}  // namespace lab::grader
