// Reports of a grade: for people, and the files that `--json` and `--gradescope` write.
#pragma once

#include <string>

#include "grade.h"

namespace lab::grader {

std::string text_report(const Task& task, const Grade& grade);
std::string tap_report(const Grade& grade);
std::string json_report(const Task& task, const Grade& grade);
std::string gradescope_report(const Task& task, const Grade& grade);
// What all of them say where not everything was isolated; "" where it was.
std::string isolation_note(const Grade& grade);

}  // namespace lab::grader
