// What a compiler says of a student's file, in words that help.
#pragma once

#include <string>
#include <vector>

#include "task.h"

namespace lab::grader {

struct Message {
  std::string file;  // as the compiler names it; empty: none
  int line = 0;
  std::string text;
  std::vector<std::string> more;  // lines after it
  std::string source;             // the line as the compiler sees it, and the place of its caret
  size_t caret = std::string::npos;
};

// The compiler's errors or warnings, each once. kind: "error" or "warning".
std::vector<Message> compiler_messages(const std::string& output, const std::string& kind);

// The first warnings of a file that was compiled, with their lines. root: a path that is left out.
std::string first_warnings(const std::string& output, const std::string& file,
                           const std::string& root);

// Why a file does not compile, by the compiler's output. `unit`: the file around the student's, whose lines
// the student has not written; `file`: the student's when there is one alone, or empty; function: as a caller
// writes it.
std::string compile_failure(const std::string& output, const std::string& unit,
                            const std::string& root, const std::string& file, const Task& task,
                            const std::string& function);

// A name as it stands in the source: "helper(int)" of "_Z6helperi".
std::string demangled(const std::string& name);

}  // namespace lab::grader
