// What a person may have mistyped or handed in by mistake: paths of submissions and of reports.
#pragma once

#include <string>

namespace lab::grader {

// Larger than any exercise by far: the compiler takes seconds for each MiB.
inline constexpr double kSubmissionBytes = 1 << 20;

// Throws UsageError unless path is a readable regular file and no symbolic link. An empty one
// passes: that is a submission, if a poor one.
void require_submission(const std::string& path);

// Why the content of a submission cannot be a source file, with what was found; "" where it can.
std::string no_source(const std::string& path);

// Throws UsageError where a report would replace a file that is none, or go where a link leads.
void require_own_report(const std::string& path);

// A file's name as one line of a report can show it.
std::string one_line_name(std::string name);

// A name that any compiler takes in an #include: quotes, backslashes and control characters replaced.
std::string name_for_compiler(std::string name);

// Writes to standard output; throws LackError where not all of it arrives.
void print(const std::string& text);

}  // namespace lab::grader
