// Stale programs: what is newer than a program, and which command renews it.
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "lab/files.h"
#include "lab/sources.h"
#include "testing/testing.h"

namespace {

namespace fs = std::filesystem;
using lab::testing::TemporaryFolder;

// A repository with a program that was built at minute 0, before it its sources.
class Built {
 public:
  Built() {
    write("build/x/program", "", 0);
    write("build/x/program.sources",
          "renew: chapter3 ARCH=sm_86\nbuilt: build/x/program\nuses: build/y/library\n"
          "chapters/a.cuh\ncommon/b.h\ncommon/gone.h\n",
          0);
    write("build/y/library", "", -5);
    write("build/y/library.sources", "renew: \nbuilt: build/y/library\ncommon/b.h\nlibrary/c.cpp\n",
          -5);
    write("chapters/a.cuh", "", -10);
    write("common/b.h", "", -10);
    write("library/c.cpp", "", -10);
  }
  void write(const std::string& name, const std::string& content, int minute) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    folder_.write(name, content);
    fs::last_write_time(path(name), start_ + std::chrono::minutes(minute));
  }
  std::string path(const std::string& name) const { return folder_.path(name); }
  std::string root() const { return fs::canonical(folder_.folder()); }
  std::string words(const std::string& more = "") const {
    return lab::stale_program(path("build/x/program"), more);
  }

 private:
  TemporaryFolder folder_;
  fs::file_time_type start_ = fs::file_time_type::clock::now() - std::chrono::hours(1);
};

// The current folder for as long as this lives.
class Inside {
 public:
  explicit Inside(const std::string& folder) { fs::current_path(folder); }
  ~Inside() { fs::current_path(before_); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  fs::path before_ = fs::current_path();
};

}  // namespace

TEST_CASE("a word of a shell's command comes back as it was, whatever is in it") {
  CHECK(lab::shell_word("data/photo-1.png") == "data/photo-1.png");
  for (const std::string text : {"", "two words", "it's", "$HOME", "a;b", "*", "\\"})
    CHECK(lab::command_output("printf '%s[%s]%s' - " + lab::shell_word(text) + " -") ==
          "-[" + text + "]-");
}

TEST_CASE("stale program: nothing to say where nothing is newer") {
  const Built built;
  CHECK(built.words() == "");
  built.write("chapters/a.cuh", "", 0);  // the very time: make builds nothing either
  CHECK(built.words() == "");
  built.write("common/other.h", "", 5);  // no source of it
  CHECK(built.words() == "");
  built.write("library/c.cpp", "", -5);
  CHECK(built.words() == "");
}

TEST_CASE("stale program: the newest source is named, with the command that builds the same") {
  const Built built;
  const std::string make = "make -C " + lab::shell_word(built.root()) + " chapter3 ARCH=sm_86";
  built.write("chapters/a.cuh", "", 1);
  CHECK(built.words() == "chapters/a.cuh has changed since this program was built: " + make);
  CHECK(built.words(" SOLUTION=1") ==
        "chapters/a.cuh has changed since this program was built: " + make + " SOLUTION=1");
  built.write("common/b.h", "", 2);  // a source of both counts once
  CHECK(built.words() ==
        "common/b.h and another file have changed since this program was built: " + make);
  built.write("library/c.cpp", "", -4);  // newer than the library, older than the program
  CHECK(built.words() ==
        "common/b.h and 2 other files have changed since this program was built: " + make);
  const Inside root(built.root());
  CHECK(built.words() ==
        "common/b.h and 2 other files have changed since this program was built: make chapter3 "
        "ARCH=sm_86");
}

TEST_CASE("stale program: a source from the future is no change that make could take in") {
  const Built built;
  built.write("chapters/a.cuh", "", 24 * 60);
  CHECK(built.words() ==
        "chapters/a.cuh is dated in the future, so whether it has changed since this program was "
        "built is unknown: touch " +
            lab::shell_word(built.root() + "/chapters/a.cuh"));
  const Inside inside(built.root());
  CHECK(built.words().ends_with("unknown: touch chapters/a.cuh"));
  // What did change comes first.
  built.write("common/b.h", "", 1);
  CHECK(built.words() ==
        "common/b.h has changed since this program was built: make chapter3 ARCH=sm_86");
}

TEST_CASE("stale program: the library that it loads is a part of it") {
  const Built built;
  built.write("library/c.cpp", "", -4);
  const Inside root(built.root());
  CHECK(built.words() ==
        "library/c.cpp has changed since this program was built: make chapter3 ARCH=sm_86");
  fs::remove(built.path("build/y/library"));
  CHECK(built.words() == "");
}

TEST_CASE("stale program: a copy of it, and one without a list, say nothing") {
  const Built built;
  built.write("chapters/a.cuh", "", 1);
  built.write("copy", "", 0);
  CHECK(lab::stale_program(built.path("copy")) == "");
  fs::copy(built.path("build/x/program.sources"), built.path("copy.sources"));
  CHECK(lab::stale_program(built.path("copy")) == "");
  fs::create_directory(built.path("moved"));
  fs::copy(built.path("build/x"), built.path("moved/x"), fs::copy_options::recursive);
  CHECK(lab::stale_program(built.path("moved/x/program")) == "");
  fs::create_symlink(built.path("build/x/program"), built.path("run"));
  CHECK(lab::stale_program(built.path("run")) != "");
  fs::remove(built.path("build/x/program.sources"));
  CHECK(built.words() == "");
  CHECK(lab::stale_program(built.path("missing")) == "");
  fs::remove_all(built.path("chapters"));
  CHECK(built.words() == "");
}

// The program that make built, as it stands in a repository whose lab.cuh is newer.
TEST_CASE("stale program: chapter 1's program says so at its start") {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path(),
                 build = here.parent_path();
  const TemporaryFolder folder;
  const std::string sources = lab::testing::file_content((here / "chapter1.sources").string());
  for (const char* file :
       {"renew: chapter1", "built: ", "chapters/01_naive_attention/kernel.cuh\n",
        "chapters/01_naive_attention/main.cu\n", "common/lab.cuh\n", "common/lab/report.cpp\n"})
    CHECK(sources.find(file) != std::string::npos);
  CHECK(sources.find("..") == std::string::npos);
  CHECK(sources.find("\n/") == std::string::npos);

  const size_t at = sources.find("built: ") + 7;
  const fs::path program = folder.path(sources.substr(at, sources.find('\n', at) - at));
  fs::create_directories(program.parent_path());
  fs::copy_file(here / "chapter1", program);
  fs::copy_file(here / "chapter1.sources", program.string() + ".sources");
  if (fs::exists(build / "vgpu"))
    fs::create_directory_symlink(build / "vgpu", program.parent_path().parent_path() / "vgpu");
  fs::create_directory(folder.path("common"));
  const auto errors = [&] {
    const std::string command = "cd '" + folder.folder() + "' && '" + program.string() +
                                "' --help >'" + folder.path("out") + "' 2>'" + folder.path("err") +
                                "'";
    CHECK(std::system(command.c_str()) == 0);
    return fs::file_size(folder.path("err")) ? lab::testing::file_content(folder.path("err")) : "";
  };
  folder.write("common/lab.cuh", "");
  fs::last_write_time(folder.path("common/lab.cuh"),
                      fs::last_write_time(program) - std::chrono::seconds(1));
  CHECK(errors() == "");
  fs::last_write_time(folder.path("common/lab.cuh"),
                      fs::last_write_time(program) + std::chrono::nanoseconds(1'000'000));
  CHECK(errors().find("common/lab.cuh has changed since this program was built: make chapter1") ==
        0);
}
