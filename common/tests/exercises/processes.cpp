// Programs that the grader starts.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "grader/process.h"
#include "testing/testing.h"

TEST_CASE("processes: a program that is still open for writing is waited for") {
  const lab::testing::TemporaryFolder folder;
  const std::string program = folder.path("program");
  std::filesystem::copy_file("/bin/sh", program);
  const int open_for_writing = open(program.c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(open_for_writing >= 0);
  std::thread closes_it([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    close(open_for_writing);
  });
  const auto ended =
      lab::grader::run_limited({program, "-c", "echo it ran"}, folder.folder(), {}, {});
  closes_it.join();
  CHECK(ended.exit_code == 0);
  CHECK(ended.output == "it ran\n");
}
