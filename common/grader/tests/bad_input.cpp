// What people mistype, and what they hand in by mistake. A path that is wrong is bad usage (2), in
// words with the path; what a file holds is the student's affair and costs points (1). Nothing that
// lies there is lost.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "grader/files.h"
#include "support.h"
#include "testing/testing.h"

using namespace lab::grader::testing;
using lab::testing::file_content;
using lab::testing::ProgramResult;
using lab::testing::run_program;
using lab::testing::TemporaryFolder;

namespace {

namespace fs = std::filesystem;

// Small, fast, and refused: an #include that is not for an exercise.
const char* const kQuick = "#include \"solution.cuh\"\n";

struct Wrong {
  std::vector<std::string> arguments;
  std::string words;  // words that stand in the message
};

}  // namespace

TEST_CASE("bad input: paths that cannot be meant") {
  const TemporaryFolder folder;
  folder.write("a.cuh", kQuick);
  folder.write("report.json", "{\"an earlier\": \"report\"}");
  folder.write("two.cuh", kQuick);
  fs::create_directory(folder.path("folder"));
  fs::create_directory(folder.path("empty"));
  fs::create_directory(folder.path("texts"));
  folder.write("texts/notes.txt", "no submission");
  fs::create_hard_link(folder.path("report.json"), folder.path("hard.json"));
  fs::create_symlink("report.json", folder.path("soft.json"));
  fs::create_symlink("nothing.json", folder.path("to_nothing.json"));
  fs::create_symlink("a.cuh", folder.path("soft_submission.json"));
  fs::create_symlink("a.cuh", folder.path("linked.cuh"));
  fs::create_hard_link(folder.path("a.cuh"), folder.path("hard_submission.json"));
  REQUIRE(mkfifo(folder.path("pipe.cuh").c_str(), 0600) == 0);
  const std::vector<std::string> before = folder.names();

  const std::vector<Wrong> all = {
      {{"--file", "folder"}, "folder: is a folder, a file is needed"},
      {{"--file", "folder/"}, "folder/: is a folder, a file is needed"},
      {{"--file", "pipe.cuh"}, "pipe.cuh: is not a regular file"},
      {{"--file", "missing.cuh"}, "missing.cuh: No such file"},
      {{"--file", "linked.cuh"},
       "linked.cuh: is a symbolic link, to a.cuh; a submission is a file"},
      {{"--seconds", "nan"}, "--seconds: nan: must be a number of seconds from 1 to 3600"},
      {{"--seconds", "inf"}, "--seconds: inf: must be a number of seconds from 1 to 3600"},
      {{"--seconds", "0.5"}, "--seconds: 0.5: must be a number of seconds from 1 to 3600"},
      {{"--seconds", "3601"}, "--seconds: 3601: must be a number of seconds from 1 to 3600"},
      {{"--seconds", "10s"}, "--seconds: 10s: must be a number of seconds from 1 to 3600"},
      {{"--file", "a.cuh/b.cuh"}, "a.cuh/b.cuh: Not a directory"},
      {{"--file", ""}, "--file '': the value is empty"},
      {{"--batch", ""}, "--batch '': the value is empty"},
      {{"--json", "", "--file", "a.cuh"}, "--json '': the value is empty"},
      {{"--file", std::string(5000, 'a')}, "File name too long"},
      {{"--file", "a.cuh", "--json", "--tap"}, "--json --tap: that is another flag"},
      {{"--file", "a.cuh", "--tap", "points.tap"}, "--tap prints on standard output"},
      {{"--file", "a.cuh", "--file", "two.cuh"}, "--file"},
      {{"--file", "a.cuh", "--json", "x.json", "--gradescope", "x.json"},
       "--json and --gradescope name the same file x.json"},
      {{"--file", "a.cuh", "--json", "x.json", "--gradescope", "./folder/../x.json"},
       "name the same file"},
      {{"--file", "a.cuh", "--json", "report.json", "--gradescope", "hard.json"},
       "--json and --gradescope name the same file hard.json"},
      {{"--file", "a.cuh", "--json", "report.json", "--gradescope", "soft.json"},
       "name the same file"},
      {{"--file", "a.cuh", "--json", "nothing.json", "--gradescope", "to_nothing.json"},
       "name the same file"},
      {{"--file", "a.cuh", "--json", "a.cuh"},
       "--json and the submission name the same file a.cuh"},
      {{"--file", "a.cuh", "--gradescope", "soft_submission.json"},
       "and the submission name the same file a.cuh"},
      {{"--file", "a.cuh", "--json", "hard_submission.json"},
       "and the submission name the same file a.cuh"},
      {{"--file", "a.cuh", "--json", "folder"}, "--json folder: is a folder"},
      {{"--file", "a.cuh", "--json", "/proc/x.json"}, "--json /proc/x.json: cannot be written"},
      {{"--file", "a.cuh", "--json", "/dev/full"}, "--json /dev/full: is not a regular file"},
      {{"--file", "a.cuh", "--gradescope", "no/x.json"}, "--gradescope no/x.json: cannot be"},
      {{"--batch", "missing"}, "--batch missing: No such file"},
      {{"--batch", "a.cuh"}, "--batch a.cuh: is no folder; for one file: --file a.cuh"},
      {{"--batch", "empty"}, "--batch empty: there is no .cuh file in it"},
      {{"--batch", "texts"}, "there is no .cuh file in it (1 other files or folders)"},
      {{"--batch", "folder", "--json", "x.json"}, "--batch writes its own files"},
  };
  for (const Wrong& wrong : all) {
    std::string words;
    for (const std::string& argument : wrong.arguments) words += argument.substr(0, 80) + " ";
    CAPTURE(words);
    const ProgramResult result = run_program("exercise1", wrong.arguments, folder.folder());
    CAPTURE(result.errors);
    CHECK(result.exit_code == 2);
    CHECK(result.output == "");
    CHECK(contains(result.errors, wrong.words));
  }
  CHECK(folder.names() == before);
  CHECK(file_content(folder.path("a.cuh")) == kQuick);
  CHECK(file_content(folder.path("report.json")) == "{\"an earlier\": \"report\"}");
}

TEST_CASE("bad input: files that are no source") {
  const TemporaryFolder folder;
  std::string bytes = "#include <cmath>\n";
  for (int i = 0; i < 1000; ++i) bytes += char(i * 37 % 256);
  folder.write("binary.cuh", bytes);
  folder.write("elf.cuh", std::string("\x7f") + "ELF");
  folder.write("nul.cuh", std::string("int a;\0int b;", 13));
  folder.write("utf16.cuh", std::string("i\0n\0t\0 \0a\0;\0", 12));
  folder.write("large.cuh", "x");
  fs::resize_file(folder.path("large.cuh"), 100 << 20);
  folder.write("empty.cuh", "");
  const auto graded = [&](const std::string& name, const std::string& words) {
    CAPTURE(name);
    const ProgramResult result =
        run_program("exercise1", {"--file", name, "--json", "a.json"}, folder.folder());
    CAPTURE(result.output);
    CHECK(result.exit_code == 1);
    CHECK(result.errors == "");
    CHECK(contains(result.output, "0 of 100 points"));
    const auto json = nlohmann::json::parse(file_content(folder.path("a.json")));
    const std::string message = json.at("message");
    CAPTURE(message);
    CHECK(json.at("refused") == "build");
    CHECK(contains(message, words));
    CHECK(contains(message, name));
  };
  graded("binary.cuh", "the file is no text: byte 17 is 0x00");
  graded("elf.cuh", "the file is no text: byte 0 is 0x7f");
  graded("nul.cuh", "the file is no text: byte 6 is 0x00");
  graded("utf16.cuh", "the file is no text: byte 1 is 0x00");
  graded("large.cuh", "the file has 100 MiB, a submission at most 1.0 MiB");
  graded("empty.cuh", "the file is empty");
}

TEST_CASE("bad input: names of files") {
  const TemporaryFolder folder;
  const std::string broken = planted(source("chapters/01_naive_attention/exercise/solution.cuh"),
                                     "float output = 0.0f;", "flaot x;");
  const std::vector<std::string> names = {"with space.cuh",   "two\nlines.cuh",  "\"quoted\".cuh",
                                          "it's.cuh",         "back\\slash.cuh", "-dash.cuh",
                                          "$(echo home).cuh", "täst.cuh",        "a;b&c|d.cuh"};
  for (const std::string& name : names) folder.write(name, broken);
  for (const std::string& name : names) {
    CAPTURE(name);
    const ProgramResult result =
        run_program("exercise1", {"--file", name, "--json", "a.json"}, folder.folder());
    CAPTURE(result.output);
    CAPTURE(result.errors);
    CHECK(result.exit_code == 1);
    // The compiler came to the mistake, and the report names file and line.
    CHECK(contains(result.output, "cuh:" + std::to_string(line_of(broken, "flaot")) +
                                      ": error: identifier \"flaot\" is undefined"));
    CHECK(contains(result.output, "flaot x;\n"));
    CHECK_FALSE(contains(result.output, "/renamed/"));
    CHECK(nlohmann::json::parse(file_content(folder.path("a.json"))).at("file") == name);
  }
}

TEST_CASE("bad input: a folder with more than submissions") {
  const TemporaryFolder folder;
  folder.write("ann.cuh", kQuick);
  folder.write("ann again.cuh", kQuick);
  folder.write("bob.cuh", std::string(kQuick) + "// mine\n");
  fs::create_directory(folder.path("folder.cuh"));
  fs::create_symlink("nobody.cuh", folder.path("link.cuh"));
  // Somebody else's work, and a report that would go elsewhere.
  const TemporaryFolder elsewhere;
  elsewhere.write("solution.cuh", kQuick);
  fs::create_symlink(elsewhere.path("solution.cuh"), folder.path("linked.cuh"));
  folder.write("zoe.cuh", std::string(kQuick) + "// hers\n");
  fs::create_symlink(elsewhere.path("report"), folder.path("zoe.json"));
  folder.write("two\nlines.cuh", std::string(kQuick) + "// another\n");
  REQUIRE(mkfifo(folder.path("pipe.cuh").c_str(), 0600) == 0);
  // Not ours: what somebody knows of bob.
  folder.write("bob.json", "{\"name\": \"Bob\"}");
  for (const bool together : {false, true}) {
    CAPTURE(together);
    std::vector<std::string> arguments = {"--batch", "."};
    if (together) arguments.push_back("--together");
    const ProgramResult result = run_program("exercise1", arguments, folder.folder());
    CAPTURE(result.errors);
    CHECK(result.exit_code == 3);  // for the report that is not written
    CHECK(result.output ==
          "  0  ann again.cuh  (build)\n  0  ann.cuh  (build)\n  0  bob.cuh  (build)\n"
          "  0  folder.cuh  (grader)\n  0  link.cuh  (grader)\n  0  linked.cuh  (grader)\n"
          "  0  pipe.cuh  (grader)\n  0  two?lines.cuh  (build)\n  0  zoe.cuh  (build)\nthe same "
          "text: ann again.cuh, ann.cuh\n");
    CHECK(contains(result.errors, "bob.json: is there already and no report of this program"));
    CHECK(file_content(folder.path("bob.json")) == "{\"name\": \"Bob\"}");
    const auto json = nlohmann::json::parse(file_content(folder.path("folder.json")));
    CHECK(contains(json.at("message"), "is a folder, a file is needed"));
    const auto linked = nlohmann::json::parse(file_content(folder.path("linked.json")));
    CHECK(contains(linked.at("message"), "is a symbolic link"));
    CHECK(contains(result.errors, "zoe.json: is a symbolic link: the report is not written"));
    CHECK_FALSE(fs::exists(elsewhere.path("report")));
  }
}

TEST_CASE("bad input: standard output on a full disk") {
  const TemporaryFolder folder;
  folder.write("a.cuh", kQuick);
  const std::string program =
      (fs::read_symlink("/proc/self/exe").parent_path() / "exercise1").string();
  for (const char* what : {"--file a.cuh --json a.json", "--batch .", "--file a.cuh --tap"}) {
    CAPTURE(what);
    const std::string command =
        "cd '" + folder.folder() + "' && '" + program + "' " + what + " >/dev/full 2>errors";
    const int status = std::system(command.c_str());
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 3);
    CHECK(contains(file_content(folder.path("errors")), "standard output cannot be written"));
    fs::remove(folder.path("errors"));
  }
  CHECK(nlohmann::json::parse(file_content(folder.path("a.json"))).at("points") == 0);
}

TEST_CASE("bad input: a machine without a compiler is nobody's mistake" *
          doctest::test_suite("toolkit")) {
  const TemporaryFolder folder;
  folder.write("right.cuh", first_solution());
  folder.write("wrong.cuh", "#error this is the student's\n");
  const std::string program =
      (fs::read_symlink("/proc/self/exe").parent_path() / "exercise1").string();
  const auto run = [&](const std::string& before, const std::string& flags) {
    const std::string command = "cd '" + folder.folder() + "' && " + before + " '" + program +
                                "' " + flags + " >output 2>errors";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  // (bubblewrap sets PATH itself.)
  std::vector<std::string> tried = isolations();
  std::erase(tried, "bubblewrap");
  tried.push_back("none");
  for (const std::string& isolation : tried)
    for (const char* flags :
         {"--file right.cuh --json a.json", "--batch .", "--batch . --together"}) {
      CAPTURE(isolation);
      CAPTURE(flags);
      // nvcc finds no g++ there.
      CHECK(run("PATH=/nowhere", flags + (" --isolation " + isolation)) == 3);
      CHECK(fs::file_size(folder.path("output")) == 0);
      CHECK(contains(file_content(folder.path("errors")),
                     "the compiler does not work on this machine"));
      for (const char* report : {"a.json", "right.json", "wrong.json"})
        CHECK_FALSE(fs::exists(folder.path(report)));
    }
  // Too few open files for the linker, or enough: how many it needs differs between systems.
  for (const char* files : {"7", "10", "13", "16"}) {
    CAPTURE(files);
    const int status =
        run("sh -c 'ulimit -n " + std::string(files) + "; exec \"$@\"' sh", "--file right.cuh");
    CHECK((status == 3 || (status == 0 && std::stoi(files) > 7)));
  }
  // What the file is to blame for stays so.
  CHECK(run("", "--file wrong.cuh") == 1);
  CHECK(contains(file_content(folder.path("output")), "this is the student's"));
}
