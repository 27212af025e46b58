// The grader's program as students and autograders call it: what does not compile, does not end or
// takes too much gets zero points in clear words, and nothing else suffers from it.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>

#include "grader/together.h"
#include "support.h"
#include "testing/testing.h"

using namespace lab::grader::testing;
using lab::testing::file_content;
using lab::testing::ProgramResult;
using lab::testing::run_program;
using lab::testing::TemporaryFolder;

namespace {

// The solution with host code at the beginning of attention().
std::string with_host_code(const std::string& code) {
  return planted(planted(first_solution(), "  float* scores = nullptr;",
                         code + "\n  float* scores = nullptr;"),
                 "#include <cmath>",
                 "#include <cmath>\n#include <csignal>\n#include <cstdio>\n"
                 "#include <cstdlib>\n#include <vector>");
}

}  // namespace

TEST_CASE("grader: a file that does not compile") {
  const TemporaryFolder folder;
  const std::string broken =
      planted(first_solution(), "float output = 0.0f;", "flaot output = 0.0f;");
  folder.write("broken.cuh", broken);
  const ProgramResult result = run_program(
      "exercise1", {"--file", "broken.cuh", "--json", "a.json", "--gradescope", "results.json"},
      folder.folder());
  CHECK(result.exit_code == 1);
  CHECK(result.errors == "");
  CHECK(contains(result.output, "it does not compile"));
  CHECK(contains(result.output, "broken.cuh:" + std::to_string(line_of(broken, "flaot")) +
                                    ": error: identifier \"flaot\" is undefined\n"
                                    "    flaot output = 0.0f;\n"
                                    "    ^\n"));
  CHECK(contains(result.output, "0 of 100 points"));
  const auto json = nlohmann::json::parse(file_content(folder.path("a.json")));
  CHECK(json.at("points") == 0);
  CHECK(json.at("refused") == "build");
  const auto gradescope = nlohmann::json::parse(file_content(folder.path("results.json")));
  CHECK(gradescope.at("score") == 0);
  CHECK(contains(gradescope.at("output"), "flaot"));
}

TEST_CASE("grader: what the compiler says, in words" * doctest::test_suite("toolkit")) {
  const TemporaryFolder folder;
  // The } of scores_kernel is missing, or there twice.
  const std::string solution = first_solution();
  const auto line = [&](const std::string& part, int below = 0) {
    return "of line " + std::to_string(line_of(solution, part) + below) + " ";
  };
  const std::string end = "scores[index] = score * scale;\n}\n";
  folder.write("missing.cuh", planted(first_solution(), end, "scores[index] = score * scale;\n"));
  folder.write("more.cuh", planted(first_solution(), end, end + "}\n"));
  folder.write("inner.cuh",
               planted(first_solution(), "row_sum += weight;\n  }\n", "row_sum += weight;\n"));
  const std::string small =
      "#include <cuda_fp16.h>\n"
      "#include \"../../../common/attention/shape.h\"\n"
      "void helper(int);\n"
      "namespace exercise {\n"
      "__global__ void a_kernel(float* out) {\n"
      "  __shared__ float tile[64][256];\n"
      "  tile[threadIdx.x][0] = out[0];\n"
      "  __syncthreads();\n"
      "  out[1] = tile[threadIdx.x ^ 1][0];\n"
      "}\n"
      "inline void attention(const half*, const half*, const half*, half* O,\n"
      "                      const AttentionShape&, int keys, cudaStream_t) {\n"
      "  if (keys == 0) a_kernel<<<1, 64>>>(reinterpret_cast<float*>(O));\n"
      "}\n"
      "}\n";
  folder.write("shared.cuh", small);
  folder.write("undefined.cuh",
               planted(planted(small, "[256]", "[2]"), "if (keys == 0)", "helper(keys);  //"));
  folder.write("call.cuh", planted(first_solution(), "blocks_for(score_count), kThreads, 0, stream",
                                   "blocks_for(score_count, 0), kThreads, 0, stream"));
  const ProgramResult result = run_program("exercise1", {"--batch", "."}, folder.folder());
  CHECK(result.exit_code == 1);
  const auto message = [&](const std::string& name) -> std::string {
    const auto report = nlohmann::json::parse(file_content(folder.path(name + ".json")));
    CHECK(report.at("refused") == "build");
    return report.at("message");
  };
  const std::string missing = message("missing"), more = message("more"), inner = message("inner"),
                    shared = message("shared"), undefined = message("undefined"),
                    call = message("call");
  CAPTURE(missing);
  CHECK(missing.starts_with("it does not compile: a } is missing: the { " + line("float scale) {") +
                            "seems"));
  CHECK(contains(missing, "expected a \";\"\n"));
  CHECK_FALSE(contains(missing, "no function"));
  CAPTURE(more);
  CHECK(contains(more, "a } is too many: that " + line(end, 2) + "closes the namespace"));
  CAPTURE(inner);
  CHECK(contains(inner, "a } is missing: the { " + line("const float weight = expf", -1) +
                            "seems to have none"));
  CAPTURE(shared);
  CHECK(contains(shared,
                 "exercise::a_kernel has 65536 bytes of __shared__ memory, and a block may "
                 "have 49152"));
  CAPTURE(undefined);
  CHECK(undefined == "it cannot be linked: helper(int) is declared and used, but defined nowhere");
  CAPTURE(call);
  CHECK(contains(call, "error: too many arguments in function call\n"));
  CHECK(
      contains(call, "\n  scores_kernel<<<blocks_for(score_count, 0), kThreads, 0, stream>>>(\n"));
  for (const std::string& text : {missing, more, inner, shared, call})
    CHECK_FALSE(contains(text, "student.cu"));
}

TEST_CASE("grader: all points, in every form" * doctest::test_suite("toolkit")) {
  const TemporaryFolder folder;
  const ProgramResult result = run_program(
      "exercise1-solution",
      {"--tap", "--seconds", kPatient, "--json", "a.json", "--gradescope", "results.json"},
      folder.folder());
  CAPTURE(result.output);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.output, "TAP version 13\n1..8\nok 1 - right results (30 of 30 points)\n"));
  CHECK_FALSE(contains(result.output, "not ok"));
  const auto json = nlohmann::json::parse(file_content(folder.path("a.json")));
  CHECK(json.at("version") == 1);
  CHECK(json.at("exercise") == "01_naive_attention");
  CHECK(json.at("file") == "chapters/01_naive_attention/exercise/solution.cuh");
  CHECK(json.at("points") == 100);
  CHECK(json.at("refused").is_null());
  CHECK(json.at("first_failure").is_null());
  const auto gradescope = nlohmann::json::parse(file_content(folder.path("results.json")));
  CHECK(gradescope.at("score") == 100);
  CHECK(gradescope.at("tests").size() == json.at("items").size());
  CHECK(gradescope.at("tests")[0].at("max_score") == 30);
}

TEST_CASE("grader: code without an end, without measure, or that crashes") {
  const std::vector<std::string> reports = check_points(
      "exercise1", "exercise.cuh",
      {{"a kernel without an end",
        planted(first_solution(), "float output = 0.0f;",
                "float output = 0.0f;\n  for (volatile int i = 0;; i = i + 1) {}"),
        {}},
       {"too much device memory",
        with_host_code("void* much; if (cudaMalloc(&much, 1ull << 40) == cudaSuccess) "
                       "{ cudaMemset(much, 1, 1ull << 40); }"),
        {}},
       {"too much host memory",
        with_host_code("static std::vector<char> much; much.reserve(size_t(1) << 34);"),
        {}},
       {"a crash", with_host_code("std::abort();"), {0, 0, 0, 0, 0, 0, 0, 0}},
       {"an end in the middle", with_host_code("std::exit(0);"), {0, 0, 0, 0, 0, 0, 0, 0}},
       {"words without end",
        with_host_code(
            "for (int i = 0; i < (1 << 24); ++i) std::puts(\"all is well, all points\");"),
        {}},
       {"as it should be", first_solution(), {30, 20, 15, 10, 10, 5, 5, 5}},
       {"a few words in the first problems, and many in the one that is measured",
        planted(with_host_code("if (keys != 96) std::fprintf(stderr, \"%d\\x1b keys\", keys);"),
                "float output = 0.0f;",
                "float output = 0.0f;\n"
                "  if (blockIdx.x == 0 || keys == 96) printf(\"thread %d\\n\", threadIdx.x);"),
        {30, 20, 15, 10, 10, 5, 5, 5}},
       // 197 queries and 50 keys: run without checks, since it is slow with them.
       {"misaligned, in a problem that is not run with all checks",
        planted(first_solution(), "float output = 0.0f;",
                "float output = 0.0f;\n"
                "  if (keys == 50 && query_row == 0) printf(\"about to load\\n\");\n"
                "  int unset;\n"
                "  if (keys == 51) output = float(unset);\n"
                "  if (keys == 50) output = *reinterpret_cast<const float*>(V + 1) * 0.0f;"),
        {27, 0, 0, 0, 0, 0, 0, 0}}});
  const auto json = [&](size_t i) { return nlohmann::json::parse(reports[i]); };
  CHECK(json(0).at("refused") == "instructions");
  CHECK(contains(json(0).at("message"), "does not end"));
  CHECK(json(1).at("refused") == "memory");
  CHECK(json(2).at("refused") == "memory");
  CHECK(contains(json(2).at("message"), "more memory was asked for"));
  CHECK(contains(json(3).at("first_failure").at("details"), "crashed (Aborted)"));
  CHECK(json(3).at("items")[0].at("hint") == "");  // none about values that are not there
  CHECK(contains(json(4).at("first_failure").at("details"), "ended by itself, with exit status 0"));
  CHECK(json(5).at("refused") == "printed");
  CHECK(contains(json(5).at("message"), "prints more than 8.0 MiB. Let one thread print"));
  CHECK(contains(json(5).at("printed").at("text"), "all is well, all points\n"));
  CHECK(json(5).at("printed").at("more_lines") > 100000);
  CHECK(json(6).at("printed").is_null());
  // 64 threads of the first problem's only block have a row: 20 lines, 44 more and the host's.
  const auto few = json(7).at("printed");
  CHECK(few.at("case") == "[batch 1, heads 1, 1 queries, 1 keys, head_dim 64]");
  CHECK(contains(few.at("text"), "thread 0\nthread 1\n"));
  CHECK(contains(few.at("text"), "thread 19\n"));
  CHECK_FALSE(contains(few.at("text"), "thread 20\n"));
  CHECK(few.at("more_lines") == 45);
  // Findings where checks are not run count too; and the wrong problem's output is shown.
  const std::string finding = json(8).at("items")[1].at("details");
  CAPTURE(finding);
  CHECK(contains(finding, "error: misaligned read of 4 bytes"));
  CHECK(contains(json(8).at("items")[0].at("cause"),
                 "the address is no multiple of the access's size"));
  const std::string warned = json(8).at("warnings");
  CAPTURE(warned);
  CHECK(contains(warned,
                 "\"unset\" is used before its value is set\n"
                 "  if (keys == 51) output = float(unset);\n"
                 "                                 ^\n"));
  CHECK(json(6).at("warnings") == "");
  CHECK(contains(json(8).at("printed").at("case"), "197 queries, 50 keys"));
  CHECK(contains(json(8).at("printed").at("text"), "about to load\n"));
  CHECK_FALSE(contains(json(8).at("printed").at("text"), "error"));
}

TEST_CASE("grader: one file of a folder that does not compile, one that never comes back") {
  const TemporaryFolder folder;
  folder.write("ann.cuh", "no C++");
  folder.write("bob.cuh", first_solution());
  folder.write("cy.cuh", planted(with_host_code("for (;;) pause();"), "#include <cstdio>",
                                 "#include <cstdio>\n#include <unistd.h>"));
  folder.write("notes.txt", "no submission");
  // How long this machine takes at the moment for a file that is right.
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(run_program("exercise1", {"--file", "bob.cuh", "--seconds", kPatient}, folder.folder())
              .exit_code == 0);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  int limit = std::max(10, int(3 * took.count()));
  ProgramResult result;
  do {  // (Others may start to work on it meanwhile.)
    result = run_program("exercise1", {"--batch", ".", "--seconds", std::to_string(limit)},
                         folder.folder());
    limit *= 3;
  } while (contains(result.output, "bob.cuh  (time)") && limit < 600);
  const std::string seconds = std::to_string(limit / 3);
  CHECK(result.exit_code == 1);
  CHECK(result.output == "  0  ann.cuh  (build)\n100  bob.cuh\n  0  cy.cuh  (time)\n");
  const auto report = nlohmann::json::parse(file_content(folder.path("cy.json")));
  CHECK(contains(report.at("message"), "stopped after " + seconds + " s"));
  CHECK(folder.names() == std::vector<std::string>{"ann.cuh", "ann.json", "bob.cuh", "bob.json",
                                                   "cy.cuh", "cy.json", "notes.txt"});
}

TEST_CASE("grader: one file that does not compile leaves the others together") {
  using lab::grader::Group;
  // The groups that compile when `bad` never do and no group may have both of `apart`; and the calls.
  const auto compiled_groups = [](size_t files, size_t groups, const Group& bad,
                                  const Group& apart) {
    std::mutex mutex;
    std::vector<Group> good;
    size_t calls = 0;
    lab::grader::try_groups(files, groups, [&](const Group& group) {
      const std::lock_guard lock(mutex);
      ++calls;
      const auto count = [&](const Group& of) {
        return std::count_if(of.begin(), of.end(), [&](size_t file) {
          return std::find(group.begin(), group.end(), file) != group.end();
        });
      };
      if (count(bad) > 0 || count(apart) > 1) return false;
      good.push_back(group);
      return true;
    });
    std::sort(good.begin(), good.end());
    return std::pair{good, calls};
  };
  using Groups = std::vector<Group>;
  CHECK(compiled_groups(5, 2, {}, {}) == std::pair{Groups{{0, 2, 4}, {1, 3}}, size_t(2)});
  CHECK(compiled_groups(5, 0, {}, {}) == std::pair{Groups{}, size_t(0)});
  // Two files define the same function.
  CHECK(compiled_groups(6, 1, {}, {2, 3}) == std::pair{Groups{{0, 2, 4}, {1, 3, 5}}, size_t(3)});
  // File 5 of 12 is alone in the end: 12, its half of 6, its 3, its 2.
  CHECK(compiled_groups(12, 1, {5}, {}) ==
        std::pair{Groups{{0, 2, 4, 6, 8, 10}, {1, 9}, {3, 7, 11}}, size_t(6)});
  CHECK(compiled_groups(4, 1, {0, 1, 2, 3}, {}) == std::pair{Groups{}, size_t(3)});
}

TEST_CASE("grader: other parameters are a build error in words") {
  const TemporaryFolder folder;
  folder.write(
      "other.cuh",
      "#include <cuda_fp16.h>\nnamespace exercise {\ninline void attention(const half*) {}\n}\n");
  const ProgramResult result = run_program("exercise1", {"--file", "other.cuh"}, folder.folder());
  CHECK(result.exit_code == 1);
  CHECK(contains(
      result.output,
      "it does not compile: the parameters of exercise::attention must stay as they were: "));
  CHECK_FALSE(contains(result.output, "static assertion"));
}

TEST_CASE("grader: an empty file, and one without the function") {
  const TemporaryFolder folder;
  folder.write("empty.cuh", "");
  folder.write("other.cuh", "namespace exercise { inline void attend() {} }");
  folder.write("none.cuh", "// nothing\n");
  const ProgramResult empty = run_program(
      "exercise1", {"--file", "empty.cuh", "--json", "a.json", "--gradescope", "results.json"},
      folder.folder());
  CAPTURE(empty.errors);
  CHECK(empty.exit_code == 1);
  CHECK(contains(empty.output, "the file is empty"));
  CHECK(contains(empty.output, "0 of 100 points"));
  CHECK(nlohmann::json::parse(file_content(folder.path("a.json"))).at("refused") == "build");
  CHECK(nlohmann::json::parse(file_content(folder.path("results.json"))).at("score") == 0);
  for (const char* file : {"other.cuh", "none.cuh"}) {
    const ProgramResult result = run_program("exercise1", {"--file", file}, folder.folder());
    CAPTURE(result.output);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.output, "there is no function exercise::attention in this file"));
  }
  const ProgramResult batch =
      run_program("exercise1", {"--batch", ".", "--together"}, folder.folder());
  CHECK(batch.output ==
        "  0  empty.cuh  (build)\n  0  none.cuh  (build)\n  0  other.cuh  (build)\n");
}

TEST_CASE("grader: the starter, as it is handed out") {
  const ProgramResult result = run_program("exercise1", {"--seconds", kPatient}, ".");
  CAPTURE(result.output);
  CHECK(result.exit_code == 1);
  CHECK(contains(result.output, "hint: are all holes filled? No result is right before that"));
  CHECK(contains(result.output, "63 not finite"));  // it writes one element of 64
  CHECK(contains(result.output, "63 of 64 elements are never written"));
  CHECK_FALSE(contains(result.output, "error nan"));
}

TEST_CASE("grader: flags that are not right") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& named) {
    const ProgramResult result = run_program("exercise1", arguments, folder.folder());
    CAPTURE(result.errors);
    CHECK(result.exit_code == 2);
    CHECK(result.output == "");
    CHECK(contains(result.errors, named));
  };
  refused({"--file", "missing.cuh"}, "missing.cuh: No such file");
  refused({"--file", "x.cuh", "--solution"}, "--file and --solution");
  refused({"--batch", "missing"}, "missing");
  refused({"--batch", "."}, "there is no .cuh file");
  refused({"--solution", "--json", "missing/a.json"}, "missing/a.json");
  refused({"--seconds", "0"}, "--seconds");
  refused({"--points", "100"}, "--points");
  refused({"--tokens", "197", "--profile"}, "for the chapter's program: make chapter1");
  refused({"--task", "bug.cuh"}, "this chapter has one task");
  CHECK(folder.names().empty());
}
