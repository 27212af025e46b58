// Whether a program is older than what it is made of.
#pragma once

#include <string>

namespace lab {

// One line that says which sources have changed since the program was built and which command
// renews it, "" where none have. The build leaves a list beside each program, PROGRAM.sources.
// Where that, the sources or the place of the program are not as the build left them, as for a
// copied program, nothing is said. `more` is appended to the command: " SOLUTION=1".
std::string stale_program(const std::string& program, const std::string& more = "");

// Says so of the running program, on stderr.
void say_if_stale(const std::string& more = "");

}  // namespace lab
