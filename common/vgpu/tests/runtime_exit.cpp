// Findings of the checks decide the exit status of a program, whatever it returns itself.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "vgpu/runtime/runtime.h"

namespace {

// Exit status and output of a process that does `work` and then ends with status 5.
template <class F>
int status_of(F&& work, std::string& output) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    close(ends[0]);
    work();
    std::printf("the end");  // stays in the buffer until the program ends
    std::exit(5);
  }
  close(ends[1]);
  char part[512];
  ssize_t n = 0;
  while ((n = read(ends[0], part, sizeof part)) > 0)
    output.append(part, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("exit: 86 after a finding, the program's own status without one") {
  using vgpu::runtime::Runtime;
  std::string output;
  CHECK(status_of([] { Runtime::get(); }, output) == 5);
  CHECK(output == "the end");
  output.clear();
  CHECK(status_of([] { Runtime::get().findings.push_back("k.cu:3: error: race"); }, output) == 86);
  CHECK(output == "the endk.cu:3: error: race\nvgpu: 1 finding\n");
  output.clear();
  const auto several = [] {
    for (const char* text : {"k.cu:9: error: race", "k.cu:3: error: init", "k.cu:9: error: race"})
      Runtime::get().findings.push_back(text);
  };
  CHECK(status_of(several, output) == 86);
  CHECK(output == "the endk.cu:9: error: race (2 times)\nk.cu:3: error: init\nvgpu: 3 findings\n");
}
