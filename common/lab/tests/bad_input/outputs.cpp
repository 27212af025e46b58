// Where results go: places that cannot be written, one file for two things, disks without room.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "bad_input.h"
#include "testing/testing.h"

using namespace bad_input;
namespace fs = std::filesystem;

namespace {

// A quick problem of each program, for what is found when its results are written.
std::vector<std::string> small(int chapter) {
  if (chapter <= 6) return {"--tokens", "3", "--heads", "1", "--head-dim", "32"};
  if (chapter == 7) return {"--batch", "1", "--queries", "2", "--step", "simple"};
  return {"--height", "4", "--width", "4", "--in-channels", "1", "--out-channels", "1"};
}

std::string name_of(int chapter) { return "chapter" + std::to_string(chapter); }

struct Place {
  std::string path;
  std::vector<std::string> words;
};

// Places that are none. Root may write where permissions forbid it.
std::vector<Place> bad_places() {
  Bench& bench = Bench::get();
  bench.clear();
  bench.write("file", "old");
  bench.write("locked/file", "old");
  fs::create_directory(bench.path("folder"));
  fs::create_directory(bench.path("folder.png"));
  fs::create_symlink("nowhere/file", bench.path("into_nothing"));
  fs::create_symlink("loop_b", bench.path("loop_a"));
  fs::create_symlink("loop_a", bench.path("loop_b"));
  REQUIRE(mkfifo(bench.path("pipe").c_str(), 0600) == 0);
  std::vector<Place> places = {{"folder", {"folder"}},
                               {"folder/", {"folder"}},
                               {".", {"folder"}},
                               {"nowhere/file", {"nowhere"}},
                               {"file/below", {"file/below"}},
                               {"pipe", {"pipe", "regular file"}},
                               {"into_nothing", {"into_nothing"}},
                               {"loop_a", {"loop_a"}},
                               {"/proc/none", {"/proc/none"}},
                               {"/dev/null", {"/dev/null"}},
                               {std::string(300, 'n'), {"too long"}},
                               {std::string(5000, '/') + "n", {}},
                               {"new/", {"new/"}}};
  if (geteuid() != 0) {
    fs::permissions(bench.path("locked"), fs::perms::owner_read | fs::perms::owner_exec);
    places.push_back({"locked/new", {"locked"}});
  }
  return places;
}

}  // namespace

TEST_CASE("bad input: places that cannot be written") {
  for (int chapter = 1; chapter <= 8; ++chapter)
    for (const auto& [path, words] : bad_places())
      for (const std::string flag : {"--json", "--csv", "--output", "--look"}) {
        if (chapter > 1 && chapter < 7 && flag != "--json") continue;  // the same code
        std::vector<std::string> named = words;
        named.push_back(flag);
        expect({name_of(chapter), with(small(chapter), {flag, path})}, {2}, named);
      }
  for (const auto& [path, words] : bad_places())
    for (const std::string flag : {"--json", "--csv", "--output", "--look"}) {
      std::vector<std::string> named = words;
      named.push_back(flag);
      expect({"chapter16", {flag, path}}, {2}, named);
      if (flag == "--json" || flag == "--look") expect({"chapter18", {flag, path}}, {2}, named);
    }
  for (const int chapter : {1, 7, 8, 18})
    for (const std::string path : {"folder.png", "nowhere/x.png", "file/x.png", "x.bmp", "png",
                                   "x.png ", ".png", "folder/.jpg", "", "x.", "x.png/"})
      expect({name_of(chapter), {"--out", path}}, {2}, {"--out"});
  Bench::get().clear();
}

TEST_CASE("bad input: one file for two things") {
  Bench& bench = Bench::get();
  bench.clear();
  bench.write("old", "old");
  bench.write("photo.png", png(32, 32));
  fs::create_hard_link(bench.path("old"), bench.path("hard"));
  fs::create_hard_link(bench.path("photo.png"), bench.path("hard.png"));
  fs::create_symlink("old", bench.path("link"));
  fs::create_symlink("new", bench.path("dangling"));
  fs::create_symlink("dangling", bench.path("dangling_twice"));
  fs::create_directory(bench.path("folder"));
  for (int chapter = 1; chapter <= 8; ++chapter) {
    for (const auto& [one, other] :
         std::vector<std::pair<std::string, std::string>>{{"new", "new"},
                                                          {"new", "./new"},
                                                          {"new", "folder/../new"},
                                                          {"old", "hard"},
                                                          {"old", "link"},
                                                          {"link", "hard"},
                                                          {"new", "dangling"},
                                                          {"dangling_twice", "new"},
                                                          {"new", bench.path("new")}}) {
      expect({name_of(chapter), with(small(chapter), {"--json", one, "--csv", other})}, {2},
             {"--json and --csv name the same file"});
      expect({name_of(chapter), with(small(chapter), {"--output", other, "--json", one})}, {2},
             {"--output and --json name the same file"});
    }
    expect({name_of(chapter), {"--image", "photo.png", "--out", "hard.png"}}, {2},
           {"--out and --image name the same file"});
    expect({name_of(chapter), {"--input", "old", "--output", "hard"}}, {2},
           {"--output and --input name the same file"});
  }
  expect({"chapter16", {"--json", "old", "--output", "hard"}}, {2},
         {"--output and --json name the same file"});
  for (const std::string flag : {"--json", "--look"})
    expect({"chapter18", {"--checkpoint", "new", flag, "dangling"}}, {2},
           {"--checkpoint and " + flag + " name the same file"});
  expect({"chapter20", {"--style", "old", "--json", "hard"}}, {2}, {"name the same file"});
  bench.clear();
}

TEST_CASE("bad input: a full disk, or no standard output at all") {
  const std::vector<std::string> outputs = {"/dev/full", "closed"};
  for (const std::string& output : outputs) {
    const std::vector<std::string> words = {"standard output cannot be written"};
    for (int chapter = 1; chapter <= 8; ++chapter)
      expect({name_of(chapter), {"--help"}, {}, output}, {3}, words);
    expect({"chapter20", {"--style", "x", "--help"}, {}, output}, {3}, words);
    expect({"chapter1", {"--all", "--help"}, {}, output}, {3}, words);
    if (is_built("vgpu")) expect({"vgpu", {"--help"}, {}, output}, {3}, words);
    if (!lab::testing::has_device()) continue;
    for (int chapter = 1; chapter <= 8; ++chapter) {
      expect({name_of(chapter), small(chapter), {}, output}, {3}, words);
      expect({name_of(chapter), with(small(chapter), {"--json", "j"}), {}, output}, {3}, words,
             {"j"});
    }
    expect({"chapter2", with(small(1), {"--all"}), {}, output}, {3}, words);
    // What is wrong besides is said as ever.
    expect({"chapter1", {"--tokens", "0"}, {}, output}, {2}, {"--tokens '0'"});
  }
}

TEST_CASE("bad input: files that may not grow") {
  if (!lab::testing::has_device()) return;
  Bench& bench = Bench::get();
  bench.clear();
  bench.write("old.json", "old");
  // Of one chapter each kind of file with each size, of the others with each size in turn.
  constexpr std::uint64_t kSizes[] = {0, 1, 100};
  for (int chapter = 1; chapter <= 8; ++chapter)
    for (int i = 0; i < 3; ++i) {
      if (chapter > 1 && i != chapter % 3) continue;
      for (const std::string file : {"new.json", "old.json"})
        expect(
            {name_of(chapter), with(small(chapter), {"--json", file}), {}, "/dev/null", kSizes[i]},
            {3}, {file + ": cannot be written: File too large"});
      expect({name_of(chapter),
              with(small(chapter), {"--output", "o"}),
              {},
              "/dev/null",
              kSizes[(i + 1) % 3]},
             {3}, {"o: cannot be written: File too large"});
    }
  for (const std::uint64_t bytes : kSizes)
    expect({"chapter1", {"--size", "32", "--out", "map.png"}, {}, "/dev/null", bytes}, {3},
           {"map.png: cannot be written: File too large"});
  bench.clear();
}

TEST_CASE("good input: no thread but the first one") {
  if (!lab::testing::has_device()) return;
  Bench& bench = Bench::get();
  bench.clear();
  Command command{"chapter1", small(1)};
  command.no_threads = true;
  const Outcome outcome = bench.run(command);
  if (outcome.code == 126) {
    MESSAGE("skipped: no thread but the first one: other users may not read this folder");
    return;
  }
  CHECK_MESSAGE(outcome.code == 0, outcome.errors);
}

TEST_CASE(
    "good output: through links, also to files that are not there yet; old files are replaced") {
  if (!lab::testing::has_device()) return;
  Bench& bench = Bench::get();
  bench.clear();
  fs::create_directory(bench.path("folder"));
  fs::create_symlink("folder/new", bench.path("dangling"));
  fs::create_symlink("dangling", bench.path("twice"));
  for (const std::string name : {"dangling", "twice"}) {
    expect({"chapter1", with(small(1), {"--json", name})}, {0}, {}, {"folder/new"});
    CHECK(fs::is_symlink(bench.path(name)));
  }
  bench.clear();
}
