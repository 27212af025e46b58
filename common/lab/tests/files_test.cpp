// Files are on the disk before their new name is: calls of the system are watched in their order.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include "lab/errors.h"
#include "lab/files.h"
#include "testing/testing.h"

namespace {

struct Watched {
  bool on = false;
  int fails_with = 0;  // errno of each fsync, 0: none
  std::vector<std::string> calls;
} watched;

}  // namespace

// In place of the C library's, for this whole program.
extern "C" int fsync(int file) {
  if (watched.on) {
    struct stat info {};
    fstat(file, &info);
    watched.calls.push_back(S_ISDIR(info.st_mode) ? "fsync folder"
                                                  : "fsync " + std::to_string(info.st_size));
    if (watched.fails_with != 0) {
      errno = watched.fails_with;
      return -1;
    }
  }
  return int(syscall(SYS_fsync, file));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  if (watched.on) watched.calls.push_back("rename");
  return int(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0u));
}

TEST_CASE("write_file: all bytes are on the disk before the new name, then the folder is") {
  const lab::testing::TemporaryFolder folder;
  const std::string path = folder.path("a.txt");
  const auto write = [&](const std::string& content, int fails_with) {
    watched = {true, fails_with, {}};
    std::string message;
    try {
      lab::write_file(path, content);
    } catch (const std::exception& error) {
      message = error.what();
    }
    watched.on = false;
    return message;
  };
  CHECK(write("seven b", 0) == "");
  CHECK(watched.calls == std::vector<std::string>{"fsync 7", "rename", "fsync folder"});
  // A file system that cannot tell is none that failed.
  CHECK(write("five.", EINVAL) == "");
  CHECK(lab::testing::file_content(path) == "five.");
  // A disk that failed: the old file stays, and nothing beside it.
  CHECK(write("other", EIO).find("a.txt: cannot be written: ") != std::string::npos);
  CHECK(watched.calls == std::vector<std::string>{"fsync 5"});
  CHECK(lab::testing::file_content(path) == "five.");
  CHECK(folder.names() == std::vector<std::string>{"a.txt"});
}

TEST_CASE(
    "write_file: whoever is killed while it writes leaves the old file, and nothing beside it") {
  const lab::testing::TemporaryFolder folder;
  const std::string path = folder.path("a.txt");
  lab::write_file(path, "the old one");
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // The kernel ends it in the middle of the file.
    const rlimit most{1 << 16, 1 << 16};
    setrlimit(RLIMIT_FSIZE, &most);
    std::signal(SIGXFSZ, SIG_DFL);
    lab::write_file(path, std::string(1 << 20, 'x'));
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(lab::testing::file_content(path) == "the old one");
  CHECK(folder.names() == std::vector<std::string>{"a.txt"});
}
