// The environment: of chapter 7, of the virtual GPU and its launcher, of make's scripts.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "bad_input.h"
#include "lab.cuh"
#include "lab/device.h"
#include "lab/program.h"
#include "testing/testing.h"

using namespace bad_input;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> kSmall = {"--tokens", "3", "--heads", "1", "--head-dim", "32"};

bool no_virtual_gpu() { return !lab::vgpu::present() || !is_built("vgpu"); }

}  // namespace

TEST_CASE("bad input: chapter 7's environment") {
  for (const std::string name : {"BATCH_SIZE", "NUM_QUERY", "CHANNELS", "NUM_ITERATIONS"})
    for (const std::string text :
         {"0", "-1", "abc", "1e3", " 5", "5 ", "0x10", "1.5", "99999999999", "\xff", "3;4"})
      expect({"chapter7", {}, {name + "=" + text}}, {2}, {name, "'" + text + "'"});
}

TEST_CASE("bad input: the virtual GPU's environment, and the flags of its launcher") {
  if (no_virtual_gpu()) return;
  Bench& bench = Bench::get();
  bench.clear();
  fs::create_directory(bench.path("folder"));
  struct Setting {
    std::string variable, flag;
    std::vector<std::string> values;
  };
  const std::vector<Setting> settings = {
      {"VGPU_DEVICE", "--device", {"h300", "h2000", "0", "t4 ", "../t4", "\xff"}},
      {"VGPU_THREADS",
       "--threads",
       {"0", "-1", "abc", "1e3", "1025", "1.5", " 2", "99999999999999"}},
      {"VGPU_INSTRUCTIONS", "", {"0", "-1", "abc", "1e3", "99999999999999999999"}},
      {"VGPU_SCHEDULE",
       "--schedule",
       {"random", "random:", "random:0", "random:-1", "hostile:x", "seed:1", "random:1 ",
        "hostile:99999999999999999999"}},
      {"VGPU_CHECK", "--check", {"everything", "race,", "race;init", "RACE", ",", "race,,init"}},
      {"VGPU_CACHE", "--cache", {"2", "yes", "hot", "-1"}},
      {"VGPU_TRACE",
       "--trace",
       {"scores", ":0", "scores:", "scores:x", "scores:-1", "scores:0@0", "scores:0,0",
        "scores:0:", "scores:0@x"}},
      {"VGPU_TIMELINE", "--timeline", {"folder", "nowhere/t.json", "folder/"}},
      {"VGPU_LOOK", "--look", {"folder", "nowhere/t.html", "folder/"}},
      {"VGPU_PROFILE",
       "--profile",
       {"json", "json:", "yes", "TEXT", "csv:x", "json:folder", "json:nowhere/x", "json:folder/"}}};
  for (const auto& [variable, flag, values] : settings)
    for (const std::string& value : values) {
      const std::vector<std::string> words = {"vgpu: " + variable + "='" + value + "'"};
      expect({"chapter1", kSmall, {variable + "=" + value}}, {3}, words);
      if (flag.empty()) continue;
      // The launcher starts what it finds in PATH.
      std::vector<std::string> arguments = {flag + "=" + value, "chapter1"};
      arguments.insert(arguments.end(), kSmall.begin(), kSmall.end());
      const std::string path = "PATH=" + fs::read_symlink("/proc/self/exe").parent_path().string();
      expect({"vgpu", arguments, {path}}, {3}, words);
    }
  for (const std::string file : {"folder", "nowhere/t.json", "folder/"})
    expect({"chapter1", kSmall, {"VGPU_TRACE=scores:0:" + file}}, {3}, {"VGPU_TRACE", file});
  expect({"chapter1", kSmall, {"VGPU_TRACE=scores:99999:t.json"}}, {3}, {"is outside the grid"});
  expect({"chapter1", kSmall, {"VGPU_TRACE=nobody:0:t.json"}}, {3}, {"no kernel with 'nobody'"});
  expect({"chapter1", kSmall, {"VGPU_TRACE=scores:0:same", "VGPU_PROFILE=json:./same"}}, {3},
         {"VGPU_PROFILE and VGPU_TRACE name the same file"});
  expect({"chapter1", kSmall, {"VGPU_TIMELINE=same", "VGPU_PROFILE=json:./same"}}, {3},
         {"VGPU_PROFILE and VGPU_TIMELINE name the same file"});
  for (const char* name : {"VGPU_CHEKC=all", "VGPU_SCHEDUL=random:1", "VGPU_=1", "VGPU_trace=x"})
    expect({"chapter1", kSmall, {name}}, {0}, {std::string(name).substr(0, 5)});  // said, no error
  bench.clear();
}

TEST_CASE("bad input: profiles and traces on a full disk") {
  if (no_virtual_gpu()) return;
  Bench& bench = Bench::get();
  bench.clear();
  // Through links of ours: what took the place of the target would take only theirs.
  fs::create_symlink("/dev/full", bench.path("full"));
  fs::create_symlink("/dev/null", bench.path("nothing"));
  for (int chapter = 1; chapter <= 6; ++chapter) {
    const std::string program = "chapter" + std::to_string(chapter);
    expect({program, kSmall, {"VGPU_PROFILE=json:full"}}, {3},
           {"cannot write full: No space left on device"});
    expect({program, kSmall, {"VGPU_TRACE=kernel:0:full"}}, {3},
           {"cannot write full: No space left on device"});
    expect({program, kSmall, {"VGPU_TIMELINE=full"}}, {3},
           {"cannot write full: No space left on device"});
    expect({program, kSmall, {"VGPU_PROFILE=json:new"}, "/dev/null", 300}, {3},
           {"cannot write new: File too large"});
    expect({program, kSmall, {"VGPU_TRACE=kernel:0:new"}, "/dev/null", 300}, {3},
           {"cannot write new: File too large"});
    expect({program, kSmall, {"VGPU_PROFILE=json:nothing"}}, {0}, {});
  }
  // A program that fails keeps its own status.
  expect({"chapter1", {"--tokens", "3", "--json", "folder/x"}, {"VGPU_PROFILE=json:full"}}, {2},
         {"--json folder/x"});
  CHECK(fs::is_symlink(bench.path("full")));
  CHECK(fs::is_character_file(bench.path("full")));
  bench.clear();
}

TEST_CASE("bad input: programs for the launcher that are none") {
  if (no_virtual_gpu()) return;
  Bench& bench = Bench::get();
  bench.clear();
  fs::create_directory(bench.path("folder"));
  bench.write("empty", "");
  bench.write("text", "just text\n");
  bench.write("script", "#!/bin/sh\nexit 0\n");
  const std::string elf = lab::testing::file_content(
      (fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "vgpu" / "vgpu").string());
  for (const std::size_t size : {1, 4, 5, 16, 63, 64, 100, 1000, 4096})
    bench.write("cut" + std::to_string(size), elf.substr(0, size));
  Random random(2);
  for (int i = 0; i < 20; ++i) {  // headers with numbers of chance: section tables anywhere
    std::string damaged = elf.substr(0, 20000);
    for (std::size_t at = 40; at < 64; ++at) damaged[at] = char(random.below(256));
    bench.write("damaged" + std::to_string(i), damaged);
  }
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(bench.folder()))
    files.push_back("./" + entry.path().filename().string());
  for (const std::string& file : files) expect({"vgpu", {file}}, {2}, {"vgpu: ", file});
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"--"},
                                             {"--profil"},
                                             {"-x"},
                                             {"--device"},
                                             {"--trace"},
                                             {"--timeline"},
                                             {"--threads"},
                                             {"--schedule"},
                                             {"nowhere"},
                                             {"./nowhere"},
                                             {"text"},
                                             {""},
                                             {"--device", "t4"},
                                             {"/bin/sh", "-c", "exit 0"},
                                             {"--help=x"}})
    expect({"vgpu", arguments}, {2}, {"vgpu: "});
  bench.clear();
}

TEST_CASE("bad input: folders for temporary files") {
  Bench& bench = Bench::get();
  bench.clear();
  bench.write("file", "no folder");
  for (const std::string& folder :
       {std::string("/nonexistent"), bench.path("file"), bench.path("none")})
    expect({"chapter1", {"--all", "--tokens", "3", "--heads", "1"}, {"TMPDIR=" + folder}}, {2},
           {"TMPDIR", folder});

  // Nothing may be installed if the script does not stop: stubs of what would do it.
  fs::create_directory(bench.path("bin"));
  for (const std::string tool : {"apt-get", "sudo", "python3"}) {
    bench.write("bin/" + tool, "#!/bin/sh\necho \"$0 was called\" >&2\nexit 9\n");
    fs::permissions(bench.path("bin/" + tool), fs::perms::owner_all);
  }
  const char* old = std::getenv("PATH");
  const std::string path = "PATH=" + bench.path("bin") + ":" + (old ? old : "/usr/bin:/bin");
  const std::string configure = lab::repository_path("common/make/configure.sh");
  for (const std::string& folder :
       {std::string("/nonexistent"), bench.path("file"), bench.path("none")})
    expect({configure, {"config.mk"}, {"TMPDIR=" + folder, path}}, {2},
           {"TMPDIR=" + folder + " is not a folder"});
  for (const std::string word : {"old", "cuda", "AUTO", "/usr/local/cuda"})
    expect({configure, {"config.mk"}, {"TOOLKIT=" + word, path}}, {2}, {"TOOLKIT=" + word});
  for (const std::string& folder : {std::string("/nonexistent"), bench.path("file")})
    expect({configure, {"config.mk"}, {"THIRD_PARTY=" + folder, path}}, {2},
           {"THIRD_PARTY=" + folder});
  bench.clear();
}

TEST_CASE("bad input: how tests are to be run") {
  Bench& bench = Bench::get();
  bench.clear();
  bench.write("passes.sh", "#!/bin/sh\nexit 0\n");
  fs::permissions(bench.path("passes.sh"), fs::perms::owner_all);
  const std::string script = lab::repository_path("common/make/run_tests.sh");
  for (const std::string name : {"TEST_JOBS", "TEST_TIMEOUT"})
    for (const std::string text : {"abc", "0", "-1", "1e9", "1.5", "5m", " 2", "2 ", "08",
                                   "99999999999999999999", "1000000000", "$(echo 1)", "a[0]"})
      expect({script, {"passes.sh"}, {name + "=" + text}}, {2}, {name + "='" + text + "'"});
  for (const std::string& folder : {std::string("/nonexistent"), bench.path("passes.sh")})
    expect({script, {"passes.sh"}, {"TMPDIR=" + folder}}, {2}, {"TMPDIR", folder});
  expect({script, {"passes.sh"}, {"TEST_JOBS=3", "TEST_TIMEOUT=5"}}, {0}, {});

  // A suite: what is built is asked for it, and fails where it has no case of it; scripts run whole.
  bench.write("build/program",
              "#!/bin/sh\n"
              "[ \"$1\" = --test-suite=toolkit ] && cases=1 || cases=0\n"
              "echo \"[doctest] test cases: $cases | $cases passed | 0 failed | 2 skipped\"\n");
  fs::permissions(bench.path("build/program"), fs::perms::owner_all);
  for (const bool there : {true, false}) {
    const Outcome outcome =
        bench.run({script,
                   {"build/program", "passes.sh"},
                   {std::string("TEST_SUITE=") + (there ? "toolkit" : "other")}});
    CAPTURE(outcome.output);
    CHECK(outcome.code == (there ? 0 : 1));
    CHECK((outcome.output.find("build/program: it ran no test case") == std::string::npos) ==
          there);
    CHECK(outcome.output.ends_with(there ? "2 passed, 0 failed\n" : "1 passed, 1 failed\n"));
  }
  bench.clear();
}

TEST_CASE("tests: skipped cases are named and not counted as passed") {
  Bench& bench = Bench::get();
  const auto told = [&](const std::string& output) {
    bench.clear();
    bench.write("program", "#!/bin/sh\ncat <<'END'\n" + output + "END\n");
    fs::permissions(bench.path("program"), fs::perms::owner_all);
    return bench.run({lab::repository_path("common/make/run_tests.sh"), {"program"}, {}});
  };
  const std::string ran = "Ran 12 tests in 0.5s\n\n";
  Outcome outcome = told(ran + "OK (skipped=3)\nnote: no NumPy: skipped are A.b\n");
  CHECK(outcome.output.find("note: no NumPy: skipped are A.b\n") != std::string::npos);
  CHECK(outcome.output.find(", 3 skipped\n") != std::string::npos);
  CHECK(outcome.output.ends_with("9 passed, 0 failed\n"));
  outcome = told(ran + "FAILED (failures=1, errors=2, skipped=4, expected failures=1)\n");
  CHECK(outcome.output.ends_with("5 passed, 3 failed\n"));
  outcome = told(ran + "OK (skipped=12)\n");
  CHECK(outcome.code == 1);
  CHECK(outcome.output.ends_with("0 passed, 1 failed\n"));
  outcome = told(
      "a.cu:7: MESSAGE: skipped: bits: there is no GPU\n"
      "[doctest] test cases: 2 | 2 passed | 0 failed | 0 skipped\n");
  CHECK(outcome.output.find("note: skipped: bits: there is no GPU\n") != std::string::npos);
  CHECK(outcome.output.ends_with("2 passed, 0 failed\n"));
  bench.clear();
}

TEST_CASE("bad input: runs for the ladder's picture") {
  const auto ladder = [](const std::vector<std::string>& arguments) {
    Command command{"/usr/bin/env",
                    {"python3", lab::repository_path("common/workshop/figures/ladder.py")}};
    command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
    command.environment = {"PYTHONDONTWRITEBYTECODE=1"};
    return command;
  };
  Bench& bench = Bench::get();
  bench.clear();
  if (bench.run(ladder({})).code != 2) {
    MESSAGE("skipped: there is no python3");
    return;
  }
  const std::vector<std::string> draws = {"ladder.json", "stem", "run.json"},
                                 checks = {"--check", "ladder.json", "run.json"};
  const std::string head = R"({"problem": {"tokens": 3}, "device": {"name": "x", "virtual": true})";
  bench.write("ladder.json", "{}");
  for (const std::string text :
       {"{}", R"({"problem": {"tokens": 1}})", R"({"problem": 7, "device": {}, "steps": []})",
        R"({"problem": {"tokens": "a"}, "device": {"name": "x", "virtual": true}, "steps": []})"}) {
    bench.write("run.json", text);
    for (const std::vector<std::string>& arguments : {draws, checks})
      expect(ladder(arguments), {2}, {"ladder: run.json: is no result of ./run --all --json"});
  }
  for (const std::string text : {"[]", "7", "null", "\"text\"", "[{}]"}) {
    bench.write("run.json", text);
    for (const std::vector<std::string>& arguments : {draws, checks})
      expect(ladder(arguments), {2}, {"ladder: run.json: holds no JSON object"});
  }
  for (const std::string steps : {"7", "[7]", "[{}]", "{}", R"([{"chapter": 1, "name": "x"}])"}) {
    bench.write("run.json", head + ", \"steps\": " + steps + "}");
    expect(ladder(draws), {2}, {"ladder: run.json"});
  }
  for (const std::string text : {"", "{", "text", "\xff", "{\"a\": 1,}"}) {
    bench.write("run.json", text);
    expect(ladder(draws), {2}, {"ladder: run.json: not JSON"});
  }
  expect(ladder({"ladder.json", "stem", "none.json"}), {2}, {"none.json"});
  bench.write("run.json", head + ", \"nvcc\": \"13.0\", \"steps\": []}");
  Command limited = ladder(draws);
  limited.largest_file = 10;
  expect(limited, {3}, {"ladder.json: cannot be written: File too large"});
  bench.clear();
}
