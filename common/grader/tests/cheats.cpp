// Submissions that try to get points they do not deserve, or to harm those who grade. Each cheat is
// played; what is kept out, and what is not, stands in chapters/README.md.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "grader/isolation.h"
#include "lab/program.h"
#include "support.h"
#include "testing/testing.h"

using namespace lab::grader::testing;
using lab::testing::file_content;
using lab::testing::ProgramResult;
using lab::testing::run_program;
using lab::testing::TemporaryFolder;

namespace {

std::string starter() { return source("chapters/01_naive_attention/exercise/exercise.cuh"); }

const char* const kBegin = "  float* scores = nullptr;";
// The solution without a barrier, unless `careful`.
std::string race() {
  return planted(first_solution(),
                 "for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, "
                 "step);\n  return x;",
                 "__shared__ float parts[kThreads];\n"
                 "  parts[threadIdx.x] = x;\n"
                 "  if (careful) __syncwarp();\n"
                 "  x = 0.0f;\n"
                 "  for (int i = 0; i < 32; ++i) x += parts[threadIdx.x / 32 * 32 + i];\n"
                 "  if (careful) __syncwarp();\n"
                 "  return x;");
}

// The solution with a softmax that leaves 31 lanes of a warp idle.
std::string one_lane() {
  return planted(first_solution(), "for (int key = lane; key < keys; key += 32)",
                 "for (int key = lane == 0 ? 0 : keys; key < keys; ++key)");
}

const char* const kHeaders =
    "#include <dlfcn.h>\n#include <fcntl.h>\n#include <signal.h>\n#include <sys/socket.h>\n"
    "#include <sys/stat.h>\n"
    "#include <unistd.h>\n#include <cstdio>\n#include <cstdlib>\n#include <cstring>\n"
    "#include <string>\n#include <vector>\n";

// `file` with host code at the beginning of attention().
std::string with_host_code(const std::string& file, const std::string& code) {
  return planted(planted(file, kBegin, code + "\n" + kBegin), "#include <cmath>",
                 std::string("#include <cmath>\n") + kHeaders);
}

std::string file_name(size_t i) { return (i < 10 ? "0" : "") + std::to_string(i); }

nlohmann::json report(const TemporaryFolder& folder, const std::string& name) {
  return nlohmann::json::parse(file_content(folder.path(name + ".json")));
}

}  // namespace

TEST_CASE("cheats: files of others are not included") {
  const TemporaryFolder folder;

  const std::string path =
      std::filesystem::canonical(lab::repository_path("chapters/01_naive_attention")).string();
  const std::vector<std::string> lines = {
      "#include \"solution.cuh\"",
      "#include \"" + path + "/solution.cuh\"",
      "#include \"neighbour.cuh\"",
      "#include <../chapters/01_naive_attention/exercise/solution.cuh>",
      "#include </etc/passwd>",
      "#include \"/etc/passwd\"",
      "#define FILE_OF \"solution.cuh\"\n#include FILE_OF",
      "  # \\\n  include \"solution.cuh\"",
      "%:include \"solution.cuh\"",
      "/* */ #include /* */ \"solution.cuh\"",
      "#include "
      "\"../../../common/attention/shape.h/../../../chapters/01_naive_attention/exercise/"
      "solution.cuh\"",
      "#include_next <solution.cuh>",
      "#include \"../../../common/lab.cuh\"",
      // Where a compiler sees an #include and a simpler reader does not.
      "const char* const a = \"/*\";\n#include \"" + path + "/solution.cuh\"\n// */",
      "int a; // /*\n#include \"" + path + "/solution.cuh\"\n// */",
      "#incl\\ \nude \"" + path + "/solution.cuh\"",
      "#include <" + std::string(400'000, 'a') + ">",
      "#line 1 \"/etc/passwd\"\nfoo bar;",
      "# 1 \"/etc/passwd\" 3\nfoo bar;",
      "#pragma nv_diag_suppress 549",
      "_Pragma(\"nv_diag_suppress 549\") // is not for an exercise",
  };
  folder.write("neighbour.cuh", first_solution());
  for (size_t i = 0; i < lines.size(); ++i) folder.write(file_name(i) + ".cuh", lines[i] + "\n");
  const ProgramResult result =
      run_program("exercise1", {"--batch", ".", "--seconds", kPatient}, folder.folder());
  CHECK(result.exit_code == 1);
  CHECK(contains(result.output, "100  neighbour.cuh\n"));
  for (size_t i = 0; i < lines.size(); ++i) {
    CAPTURE(lines[i]);
    const auto json = report(folder, file_name(i));
    const std::string message = json.at("message");
    CAPTURE(message);
    CHECK(json.at("points") == 0);
    CHECK(json.at("refused") == "build");
    CHECK(contains(message, "is not for an exercise"));
    CHECK_FALSE(contains(message, "root:"));
  }
}

TEST_CASE("cheats: messages name files as they like, and none is shown") {
  const TemporaryFolder folder;
  folder.write("secret", "the secret line\n");
  folder.write("forged.cuh", "static_assert(false, \"\\n" + folder.path("secret") +
                                 "(1): error: forged\\n\\n" + folder.path("secret") +
                                 "(99999999999): error: far\");\n");
  folder.write("long.cuh", "#error " + std::string(400'000, 'a') + "\n");
  folder.write("right.cuh", first_solution());
  std::filesystem::create_directory(folder.path("forged.json"));
  const ProgramResult result =
      run_program("exercise1", {"--batch", ".", "--seconds", kPatient}, folder.folder());
  CAPTURE(result.output);
  CHECK(result.exit_code == 3);  // for the report that cannot be written
  CHECK(contains(result.errors, "forged.json"));
  CHECK(contains(result.output, "100  right.cuh\n"));
  CHECK(report(folder, "long").at("refused") == "build");
  const ProgramResult one = run_program("exercise1", {"--file", "forged.cuh"}, folder.folder());
  CAPTURE(one.output);
  CHECK(one.exit_code == 1);
  CHECK_FALSE(contains(one.output, "the secret line"));
}

TEST_CASE("cheats: the compiler tells nothing of other files" * doctest::test_suite("toolkit")) {
  const TemporaryFolder folder;
  // What no #include line shows.
  folder.write("incbin.cuh",
               starter() + "asm(\".section .rodata\\nstolen: .incbin \\\"/etc/passwd\\\"\\n\");\n");
  for (const std::string& isolation : isolations()) {
    if (isolation != "bubblewrap") continue;  // another user reads what all may read
    const ProgramResult result = run_program(
        "exercise1", {"--isolation", isolation, "--file", "incbin.cuh"}, folder.folder());
    CAPTURE(result.output);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.output, "file not found"));
  }
}

TEST_CASE("cheats: the compiler reads no file that is its caller's alone") {
  // A folder that everybody may enter, as a student's process may.
  std::string place = "/tmp/vgpu_test.XXXXXX";
  REQUIRE(mkdtemp(place.data()) != nullptr);
  std::filesystem::permissions(place, std::filesystem::perms(0711));
  const TemporaryFolder folder;
  // In a folder that nobody else may enter.
  const std::string secret = place + "/secret", hidden = folder.path("hidden");
  for (const std::string& path : {secret, hidden}) {
    FILE* const file = std::fopen(path.c_str(), "w");
    std::fputs("the secret line\n", file);
    std::fclose(file);
  }
  std::filesystem::permissions(secret, std::filesystem::perms(0600));
  folder.write("incbin.cuh", planted(first_solution(), kBegin,
                                     std::string("  asm(\".pushsection .rodata\\nstolen: .incbin "
                                                 "\\\"") +
                                         secret +
                                         "\\\"\\n.byte 0\\n.popsection\\n\");\n  extern const char "
                                         "stolen[];\n  std::printf(\"%s\", stolen);\n" +
                                         kBegin));
  for (const std::string& name : {std::string("hidden"), std::string("no_one")})
    folder.write("if_" + name + ".cuh", "#if __has_include(\"" + folder.path(name) +
                                            "\")\n#error it is there\n#endif\n" + first_solution());
  for (const std::string& isolation : isolations()) {
    CAPTURE(isolation);
    const auto graded = [&](const char* file) {
      return run_program("exercise1",
                         {"--isolation", isolation, "--seconds", kPatient, "--file", file},
                         folder.folder());
    };
    const ProgramResult incbin = graded("incbin.cuh"), exists = graded("if_hidden.cuh"),
                        missing = graded("if_no_one.cuh");
    CAPTURE(incbin.output);
    CAPTURE(exists.output);
    CHECK(incbin.exit_code == 1);
    CHECK(contains(incbin.output, "it does not compile"));
    CHECK_FALSE(contains(incbin.output, "the secret line"));
    std::string words = exists.output;
    for (size_t at = 0; (at = words.find("hidden", at)) != std::string::npos;)
      words.replace(at, 6, "no_one");
    CHECK(words == missing.output);  // whether it is there or not
  }
  std::filesystem::remove_all(place);
}

TEST_CASE("cheats: points come from what the grader saw itself") {
  // The starter, whose kernels compute nothing, with host code that would make up for it.
  const std::string computed = "  std::vector<half> host(shape.elements());\n";
  const std::vector<Submission> submissions = {
      {"the host reads the inputs, to compute in their place",
       with_host_code(starter(), computed +
                                     "  cudaMemcpy(host.data(), Q, host.size() * sizeof(half), "
                                     "cudaMemcpyDeviceToHost);"),
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {"the host writes the output",
       with_host_code(starter(), computed +
                                     "  cudaMemcpy(O, host.data(), host.size() * sizeof(half), "
                                     "cudaMemcpyHostToDevice);"),
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {"it ends the process as if all were well",
       with_host_code(starter(), "  _exit(0);"),
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {"it says itself that the function has returned",
       with_host_code(starter(),
                      "  const unsigned words[] = {24, 0};\n"
                      "  for (int i = 0; i < 100; ++i) send(3, words, sizeof words, 0);"),
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {"it answers itself",
       with_host_code(starter(),
                      "  std::string text(1 << 16, 'x');\n"
                      "  for (int file = 3; file < 64; ++file)\n"
                      "    if (write(file, text.data(), text.size()) < 0) continue;"),
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {"it prints the verdict into every open file",
       with_host_code(starter(),
                      "  for (int file = 1; file < 64; ++file)\n"
                      "    if (file != 3) dprintf(file, \"\\n100 of 100 points\\n\");"),
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {"it writes counters and results wherever they may lie",
       with_host_code(starter(),
                      "  if (std::system(\"for d in /tmp/*; do echo done >> $d/report; "
                      "echo '[]' > $d/counters.json; cp /dev/zero $d/out.0; done 2>/dev/null\"))"
                      " {}"),
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {"it looks for the virtual GPU in its process",
       with_host_code(starter(),
                      "  using Set = void (*)(int);\n"
                      "  if (auto f = Set(dlsym(RTLD_DEFAULT, \"vgpuSetCounters\"))) f(0);\n"
                      "  if (dlsym(RTLD_DEFAULT, \"vgpuPresent\")) std::printf(\"found it\\n\");"),
       {0, 0, 0, 0, 0, 0, 0, 0}},
      // Right, but for a barrier that is missing when nobody looks.
      {"a race that is hidden when checks are on",
       with_host_code(race(),
                      "  const bool careful_now = std::getenv(\"VGPU_CHECK\") != nullptr;\n"
                      "  cudaMemcpyToSymbol(careful, &careful_now, sizeof careful_now);"),
       {30, 0, 15, 10, 10, 5, 5, 5}},
      // One lane of a warp does the softmax, in an array of its own with an argument's name.
      {"scratch has the name of an input",
       planted(
           planted(planted(planted(one_lane(), "float* row_scores = scores +",
                                   "float* row_scores = Q +"),
                           "values_kernel(const float* weights,", "values_kernel(const float* Q,"),
                   "weights[query_row", "Q[query_row"),
           "softmax_kernel(float* scores,  // [batch, heads, queries, keys], in place\n",
           "softmax_kernel(float* Q,\n"),
       {30, 20, 0, 0, 10, 5, 5, 5}},
      {"the host has inputs copied, which no counter sees",
       with_host_code(first_solution(),
                      "  half* copied = nullptr;\n  cudaMalloc(&copied, 64);\n"
                      "  cudaMemcpy(copied, K, 64, cudaMemcpyDeviceToDevice);"),
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {"a race that is hidden where what is printed goes to no file",
       with_host_code(race(),
                      "  struct stat out, err;\n"
                      "  fstat(1, &out), fstat(2, &err);\n"
                      "  const bool careful_now = !S_ISREG(out.st_mode) || !S_ISREG(err.st_mode);\n"
                      "  cudaMemcpyToSymbol(careful, &careful_now, sizeof careful_now);"),
       {30, 0, 15, 10, 10, 5, 5, 5}},
      {"a race that is hidden where the grader's arguments say that checks are on",
       with_host_code(race(),
                      "  std::string words(4096, ' ');\n"
                      "  const int file = open((\"/proc/\" + std::to_string(getppid()) + "
                      "\"/cmdline\").c_str(), O_RDONLY);\n"
                      "  if (read(file, words.data(), words.size()) < 0) {}\n"
                      "  const bool careful_now = words.find(\"checks\") != words.npos;\n"
                      "  cudaMemcpyToSymbol(careful, &careful_now, sizeof careful_now);"),
       {30, 0, 15, 10, 10, 5, 5, 5}},
      // The measured problem has 64 queries and 96 keys.
      {"nothing is computed in the problem that is measured",
       planted(first_solution(), kBegin,
               std::string("  if (shape.tokens == 64 && keys == 96) {\n"
                           "    cudaMemsetAsync(O, 0, shape.elements() * sizeof(half), stream);\n"
                           "    return;\n  }\n") +
                   kBegin),
       {30, 20, 0, 0, 0, 0, 0, 0},
       "the problem that is measured must be right too"},
      {"a local variable that nobody sets",
       planted(first_solution(), "float score = 0.0f;",
               "float unset, score = 0.0f;\n  if (queries < 0) score = unset;"),
       {30, 0, 15, 10, 10, 5, 5, 5}},
  };
  std::vector<Submission> all = submissions;
  for (Submission& s : all)
    if (contains(s.text, "if (careful)"))
      s.text = planted(s.text, "constexpr int kThreads",
                       "__device__ bool careful;\nconstexpr int kThreads");
  for (const std::string& isolation : isolations()) {
    CAPTURE(isolation);
    const std::vector<std::string> reports =
        check_points("exercise1", "exercise.cuh", all, {"--isolation", isolation});
    CHECK(contains(reports[0], "the host may not read device memory"));
    CHECK(contains(reports[1], "the result is written by kernels"));
    // It waits for an answer, and nobody waits for it.
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].name == "it answers itself")
        CHECK(contains(reports[i], "its process has sent the grader what is no request"));
    CHECK(contains(reports[2], "ended by itself, with exit status 0"));
    CHECK_FALSE(contains(reports[7], "found it"));
  }
}

TEST_CASE("cheats: what an exercise may not call is named") {
  const TemporaryFolder folder;
  folder.write("managed.cuh", with_host_code(starter(),
                                             "  void* both = nullptr;\n"
                                             "  cudaMallocManaged(&both, 4096);"));
  const ProgramResult result = run_program("exercise1", {"--file", "managed.cuh"}, folder.folder());
  CAPTURE(result.output);
  CHECK(result.exit_code == 1);
  CHECK(contains(result.output, "an exercise may not call cudaMallocManaged"));
}

TEST_CASE("cheats: nothing outside is harmed" * doctest::test_suite("toolkit")) {
  for (const std::string& isolation : isolations()) {
    CAPTURE(isolation);
    const TemporaryFolder folder;
    const std::string mark = "vgpu_cheat_" + std::to_string(getpid());
    // Under bubblewrap the path does not exist; another user may not write there.
    const std::string forged = folder.path("1_daemon.json"), spilled = folder.path("spilled");
    folder.write("0_right.cuh", first_solution());
    folder.write("1_daemon.cuh",
                 with_host_code(starter(),
                                "  if (fork() == 0) {\n    setsid();\n    sleep(3);\n"
                                "    if (FILE* f = std::fopen(\"" +
                                    forged +
                                    "\", \"w\")) {\n"
                                    "      std::fputs(\"{\\\"points\\\": 100}\", f);\n"
                                    "      std::fclose(f);\n    }\n    sleep(600);\n  }"));
    folder.write("2_kill.cuh",
                 with_host_code(starter(), "  kill(getppid(), SIGKILL);\n  kill(-1, SIGKILL);"));
    folder.write(
        "3_spill.cuh",
        with_host_code(starter(), "  if (FILE* f = std::fopen(\"" + spilled +
                                      "\", \"w\")) std::fputs(\"x\", f), std::fclose(f);\n"
                                      "  if (FILE* f = std::fopen(\"/proc/" +
                                      std::to_string(getpid()) +
                                      "/environ\", \"r\")) std::printf(\"reads it\\n\");"));
    folder.write("4_right.cuh", first_solution());
    // Compiled together, which is no part of this: each runs in processes of its own all the same.
    const ProgramResult result =
        run_program("exercise1",
                    {"--batch", ".", "--together", "--seconds", kPatient, "--isolation", isolation},
                    folder.folder());
    CAPTURE(result.output);
    CAPTURE(result.errors);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.output, "100  0_right.cuh\n"));
    CHECK(contains(result.output, "  0  1_daemon.cuh"));
    CHECK(contains(result.output, "  0  2_kill.cuh"));
    CHECK(contains(result.output, "  0  3_spill.cuh"));
    CHECK(contains(result.output, "100  4_right.cuh\n"));
    std::this_thread::sleep_for(std::chrono::seconds(4));
    CHECK(report(folder, "1_daemon").at("points") == 0);
    CHECK_FALSE(std::filesystem::exists(spilled));
    CHECK_FALSE(contains(file_content(folder.path("3_spill.json")), "reads it"));
  }
}

TEST_CASE("cheats: every report says how the code was isolated, and in words where it was not") {
  const TemporaryFolder folder;
  folder.write("empty.cuh", "");
  std::vector<std::string> all = isolations();
  all.push_back("none");
  for (const std::string& isolation : all) {
    CAPTURE(isolation);
    const bool none = isolation == "none";
    const std::vector<std::string> arguments = {"--isolation",  isolation, "--file",
                                                "empty.cuh",    "--json",  "a.json",
                                                "--gradescope", "b.json"};
    const ProgramResult text = run_program("exercise1", arguments, folder.folder());
    CHECK(text.exit_code == 1);
    CHECK(contains(text.output, "The code ran with your rights") == none);
    const ProgramResult tap = run_program(
        "exercise1", {"--isolation", isolation, "--file", "empty.cuh", "--tap"}, folder.folder());
    CHECK(contains(tap.output, "\n# isolation: " + isolation + "\n"));
    CHECK(contains(tap.output, "\n# The code ran with your rights") == none);
    CHECK(report(folder, "a").at("isolation") == isolation);
    CHECK(contains(report(folder, "a").at("note"), "The code ran with your rights") == none);
    CHECK(report(folder, "b").at("extra_data").at("isolation") == isolation);
    CHECK(contains(report(folder, "b").at("output"), "The code ran with your rights") == none);
    const ProgramResult batch =
        run_program("exercise1", {"--isolation", isolation, "--batch", "."}, folder.folder());
    CHECK(contains(batch.output, "The code ran with your rights") == none);
    CHECK(report(folder, "empty").at("isolation") == isolation);
  }
}

TEST_CASE("cheats: memory that is shared counts, and nothing stays where everybody may write") {
  const std::string mark = "vgpu_cheat_" + std::to_string(getpid()) + "_";
  const std::string headers = "#include <sys/mman.h>\n#include <sys/shm.h>\n#include <cmath>";
  const auto with = [&](const std::string& code) {
    return planted(with_host_code(first_solution(), code), "#include <cmath>", headers);
  };
  // All points where the memory can be had.
  const auto unless_null = [](const std::string& address) {
    return "  if (void* const much = " + address +
           "; much == nullptr || much == MAP_FAILED) throw std::bad_alloc();";
  };
  // Files of 4 MiB until one cannot be written or there are 512 MiB: what they say.
  const auto files_in = [&](const std::string& place) {
    return "  int written = 0;\n"
           "  std::vector<char> bytes(4 << 20, 'x');\n"
           "  for (; written < 128; ++written) {\n"
           "    FILE* f = std::fopen((\"" +
           place + "/" + mark +
           "\" + std::to_string(written)).c_str(), \"w\");\n"
           "    if (!f || std::fwrite(bytes.data(), bytes.size(), 1, f) != 1 || std::fclose(f)) "
           "break;\n  }\n"
           "  if (written < 128) throw std::bad_alloc();";
  };
  const std::string flags = "PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)";
  const std::vector<Submission> everywhere = {
      {"10 GiB of shared memory", with(unless_null("mmap(nullptr, 10ull << 30, " + flags)), {}},
      {"200 times 50 MiB",
       with("  for (int i = 0; i < 200; ++i)\n    if (mmap(nullptr, 50 << 20, " + flags +
            " == MAP_FAILED) throw std::bad_alloc();"),
       {}},
      {"10 GiB of a file in memory",
       with("  const int file = memfd_create(\"much\", 0);\n"
            "  if (ftruncate(file, 10ll << 30) != 0) throw std::bad_alloc();\n" +
            unless_null("mmap(nullptr, 10ull << 30, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)")),
       {}},
      {"10 GiB of System V's",
       with(unless_null("shmat(shmget(IPC_PRIVATE, 10ull << 30, IPC_CREAT | 0600), nullptr, 0)")),
       {}},
      {"1 GiB, of which 64 MiB are used",
       with("  char* const some = static_cast<char*>(mmap(nullptr, 1 << 30, " + flags +
            ");\n  std::memset(some, 1, 64 << 20);"),
       {30, 20, 15, 10, 10, 5, 5, 5}}};
  for (const std::string& isolation : isolations()) {
    CAPTURE(isolation);
    // A folder of somebody's where everybody may write.
    std::string shared = "/tmp/vgpu_test.XXXXXX";
    REQUIRE(mkdtemp(shared.data()) != nullptr);
    std::filesystem::permissions(shared, std::filesystem::perms(0777));
    std::vector<Submission> all = everywhere;
    const key_t key = 0x5fe00000 + getpid();
    all.push_back({"a queue and semaphores of System V's",
                   planted(with("  msgget(" + std::to_string(key) + ", IPC_CREAT | 0666);\n" +
                                "  semget(" + std::to_string(key) + ", 1, IPC_CREAT | 0666);"),
                           "#include <sys/shm.h>",
                           "#include <sys/msg.h>\n#include <sys/sem.h>\n#include <sys/shm.h>"),
                   {30, 20, 15, 10, 10, 5, 5, 5}});
    if (isolation == "bubblewrap")
      for (const char* place : {"/dev/shm", "/tmp", "/dev", ""})
        all.push_back({std::string("files in ") + place, with(files_in(place)), {}});
    else  // 4 MiB of each, where they can be written
      for (const std::string& place : {std::string("/dev/shm"), std::string("/tmp"),
                                       std::string("/var/tmp"), std::string("/run/lock"), shared})
        all.push_back({"files in " + place,
                       planted(planted(with(files_in(place)), "written < 128", "written < 1"),
                               "throw std::bad_alloc();", ";"),
                       {30, 20, 15, 10, 10, 5, 5, 5}});
    check_points("exercise1", "exercise.cuh", all, {"--isolation", isolation});
    CHECK(msgget(key, 0) < 0);
    CHECK(semget(key, 0, 0) < 0);
    std::error_code not_there;  // a system need not have all of them
    for (const std::string& place : {std::string("/dev/shm"), std::string("/tmp"),
                                     std::string("/var/tmp"), std::string("/run/lock"), shared})
      for (const auto& entry : std::filesystem::directory_iterator(place, not_there))
        CHECK_FALSE(contains(entry.path().filename().string(), mark));
    std::filesystem::remove_all(shared);
  }
}

TEST_CASE("cheats: two graders never run code as the same user, whose processes end together") {
  if (geteuid() != 0) {
    MESSAGE("skipped: only root can run code as another user");
    return;
  }
  // Process numbers that are 4096 apart begin their search at the same user.
  int first = -1, second = -1, third = -1;
  const unsigned user = lab::grader::free_user(5, first);
  const unsigned other = lab::grader::free_user(5 + 4096, second);
  REQUIRE(first >= 0);
  REQUIRE(second >= 0);
  CHECK(user != other);
  close(first);
  CHECK(lab::grader::free_user(5, third) == user);
  close(second);
  close(third);
}

TEST_CASE("cheats: a copied program that another process still has open is run when it is closed") {
  const TemporaryFolder folder;
  std::string copy = folder.path("true");
  std::filesystem::copy_file("/bin/true", copy);
  // As a child that another thread has just forked would: holds the copy open for writing a while.
  const int held = open(copy.c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(held >= 0);
  const pid_t child = fork();
  if (child == 0) {
    close(held);
    char* const arguments[] = {copy.data(), nullptr};
    lab::grader::execute_when_closed(arguments, environ);
    _exit(127);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  int status = 0;
  CHECK(waitpid(child, &status, WNOHANG) == 0);
  close(held);
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
}
