// Programs run by a test: commands, and the test program itself with one of its skipped cases.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace vgpu_tests {

struct Result {
  int code = -1;     // exit status, 128 + signal when a signal ended it
  std::string text;  // stdout and stderr
};

inline Result run(const std::string& command) {
  Result result;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  char part[4096];
  std::size_t n = 0;
  while ((n = std::fread(part, 1, sizeof part, pipe)) > 0) result.text.append(part, n);
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

// This program again, with `environment` and its case "child: NAME", which is skipped otherwise.
inline Result child(const std::string& environment, const std::string& name) {
  return run("env " + environment + " /proc/" + std::to_string(getpid()) +
             "/exe --no-skip -tc='child: " + name + "'");
}

}  // namespace vgpu_tests
