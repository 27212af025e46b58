// A student's file becomes a library.
#pragma once

#include <string>
#include <vector>

#include "lab/errors.h"
#include "limits.h"
#include "task.h"

namespace lab::grader {

// No file can be compiled here.
struct NoCompiler : LackError {
  using LackError::LackError;
};

// Compiles files (each with its own name_space) into one library, whose entries are their numbers.
struct Source {
  std::string path, name_space;
};
struct Library {
  std::string path;
  std::string refused, message;       // as in Grade, when it could not be built
  std::vector<std::string> warnings;  // as in Grade, of each file, when it could
  // Files are compiled in a folder of their own; in messages they have the names they came with.
  std::string compiled_in, came_from;
  std::vector<std::string> texts = {};  // the files' content, when it could be built
  bool own_rights = false;              // as in Grade
  std::string as_handed_in(std::string text) const;
};
// Throws LackError where this machine is at fault.
Library build(const Task& task, const std::vector<Source>& sources, const std::string& folder,
              const Limits& limits);

}  // namespace lab::grader
