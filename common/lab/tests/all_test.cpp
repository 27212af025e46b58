// ./run --all: one table of all chapters' own lines, each beside what its chapter compares it with.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <tuple>

#include "lab/device.h"
#include "lab/files.h"
#include "lab/table.h"
#include "testing/testing.h"

using lab::testing::ProgramResult;

TEST_CASE("--all: a line for each chapter's own steps, with the ratio that the chapter has" *
          doctest::test_suite("programs")) {
  if (!lab::testing::has_device()) {
    MESSAGE("skipped: --all: there is no GPU, real or virtual");
    return;
  }
  const lab::testing::TemporaryFolder folder;
  const std::vector<std::string> problem = {"--tokens", "65", "--heads", "2", "--json", "a.json"};
  const auto json_of = [&](const std::string& program, bool all, std::string& printed) {
    std::vector<std::string> arguments = problem;
    if (all) arguments.push_back("--all");
    const ProgramResult result = lab::testing::run_program(program, arguments, folder.folder());
    CAPTURE(result.output);
    CAPTURE(result.errors);
    REQUIRE(result.exit_code == 0);
    CHECK(result.errors == "");
    printed = result.output;
    return nlohmann::json::parse(lab::testing::file_content(folder.path("a.json")));
  };
  std::string printed, of_chapter;
  const auto all = json_of("chapter1", true, printed), six = json_of("chapter6", false, of_chapter);
  CAPTURE(printed);

  std::vector<std::string> names;
  for (const auto& step : all.at("steps")) names.push_back(step.at("name"));
  CHECK(names == std::vector<std::string>{"attention", "tiling", "coalesced loads", "4 rows a warp",
                                          "wmma", "4 warps", "8 warps", "coalesced K",
                                          "loads in flight", "registers", "pipeline", "ragged",
                                          "tensor maps", "wgmma", "specialized", "persistent"});
  CHECK_FALSE(all.at("steps")[0].contains("ratio"));
  if (lab::vgpu::present())
    CHECK(all.at("steps")[7].at("ratio").at("ratio") == six.at("ratios")[0].at("ratio"));
  CHECK(all.at("steps")[7].at("ratio").at("before") == "multi-warp");  // not the line above
  if (lab::vgpu::present()) {
    CHECK(all.at("steps")[7].at("ratio").at("of") == "predicted times");
    for (const auto& step : all.at("steps")) {
      CHECK(step.at("predicted_us").get<double>() >= step.at("modelled_limit_us").get<double>());
      CHECK(step.at("predicted_error").get<double>() > 0);
    }
    CHECK(printed.find("predicted      how long") != std::string::npos);
  }

  std::istringstream text(printed);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    CHECK(line.size() <= 100);
    if (line.find("PASS") != std::string::npos) lines.push_back(line);
  }
  REQUIRE(lines.size() == names.size());
  const char* const time = lab::vgpu::present() ? "predicted_us" : "median_us";
  const double first = all.at("steps")[0].at(time);
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& step = all.at("steps")[i];
    CAPTURE(lines[i]);
    CHECK(lines[i].find(step.at("chapter").get<std::string>() + " ") == 0);
    const std::string us = lab::human_time(step.at(time));
    size_t at = lines[i].find(" " + names[i] + " ");
    REQUIRE(at != std::string::npos);
    at = lines[i].find(" " + us, at);
    REQUIRE(at != std::string::npos);
    if (i == 0) {
      CHECK(lines[i].find("x ") == std::string::npos);
      continue;
    }
    at = lines[i].find(" " + lab::times(step.at("ratio").at("ratio")) + " ", at);
    REQUIRE(at != std::string::npos);
    CHECK(lines[i].find(" " + lab::times(first / step.at(time).get<double>()) + " ", at) !=
          std::string::npos);
  }
}

namespace {

// A variable of the environment, for a while.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    const char* const before = std::getenv(name);
    was_there_ = before;
    if (before) before_ = before;
    setenv(name, value, 1);
  }
  ~Variable() { was_there_ ? setenv(name_, before_.c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::string before_;
  bool was_there_ = false;
};

bool skipped_on_a_real_gpu(const char* what) {
  if (lab::testing::has_device() && lab::vgpu::present()) return false;
  MESSAGE("skipped: " << what << ": there is no virtual GPU");
  return true;
}

}  // namespace

TEST_CASE("--predict: times near those of a whole run, the same each time, and no results" *
          doctest::test_suite("programs")) {
  if (skipped_on_a_real_gpu("--predict")) return;
  const lab::testing::TemporaryFolder folder;
  // 264 blocks of a tile kernel on 132 SMs, so that most are left out.
  const std::vector<std::string> problem = {"--tokens", "64", "--heads", "264", "--json", "a.json"};
  const auto run = [&](const std::string& program, bool predict) {
    std::vector<std::string> arguments = problem;
    if (predict) arguments.push_back("--predict");
    const ProgramResult result = lab::testing::run_program(program, arguments, folder.folder());
    CAPTURE(result.errors);
    REQUIRE(result.exit_code == 0);
    CHECK((result.output.find("not compared") != std::string::npos) == predict);
    CHECK((result.output.find("PASS") == std::string::npos) == predict);
    return nlohmann::json::parse(lab::testing::file_content(folder.path("a.json")));
  };
  for (const std::string program : {"chapter1", "chapter6"}) {
    CAPTURE(program);
    const auto whole = run(program, false), sampled = run(program, true),
               again = run(program, true);
    REQUIRE(whole.at("kernels").size() == sampled.at("kernels").size());
    for (size_t i = 0; i < whole.at("kernels").size(); ++i) {
      const auto &full = whole.at("kernels")[i], &part = sampled.at("kernels")[i];
      CAPTURE(part.at("name"));
      const double us = full.at("predicted_us"), sampled_us = part.at("predicted_us");
      CHECK(sampled_us == doctest::Approx(us).epsilon(full.at("predicted_error").get<double>()));
      CHECK(again.at("kernels")[i].at("predicted_us") == part.at("predicted_us"));
      CHECK(part.at("pass").is_null());
      CHECK(part.at("max_abs_error").is_null());
      CHECK(part.at("modelled_limit_us").is_null());
      CHECK(full.at("pass") == true);
      if (part.contains("counters")) CHECK(part.at("counters").at("sampled") == true);
    }
  }
}

TEST_CASE(
    "predicted times: a step's are its launches' sum, at least the bound, the same each run") {
  if (skipped_on_a_real_gpu("predicted times")) return;
  const lab::testing::TemporaryFolder folder;
  const auto run = [&](const char* variable, const char* value) {
    std::optional<Variable> with;
    if (variable) with.emplace(variable, value);
    const ProgramResult result = lab::testing::run_program(
        "chapter1", {"--tokens", "65", "--heads", "2", "--json", "a.json", "--iterations", "2"},
        folder.folder());
    CAPTURE(result.errors);
    REQUIRE(result.exit_code == 0);
    auto json = nlohmann::json::parse(lab::testing::file_content(folder.path("a.json")));
    json["printed"] = result.output;
    return json.at("kernels").size() == 4 ? json : nlohmann::json();
  };
  const auto first = run(nullptr, ""), again = run(nullptr, "");
  double sum = 0, shares = 0;
  for (int i = 0; i < 4; ++i) {
    const auto& line = first.at("kernels")[i];
    CHECK(line.at("predicted_us") == again.at("kernels")[i].at("predicted_us"));
    CHECK(line.at("predicted_us").get<double>() >= line.at("modelled_limit_us").get<double>());
    CHECK(line.at("predicted_why").is_null());
    if (i < 3) sum += line.at("predicted_us").get<double>();
  }
  CHECK(first.at("kernels")[3].at("predicted_us").get<double>() == doctest::Approx(sum));
  for (const auto& share : first.at("kernels")[3].at("stalls")) shares += share.get<double>();
  CHECK(shares == doctest::Approx(1));

  for (const auto& [variable, value, words] :
       {std::tuple("VGPU_TIME", "0", "switched off (VGPU_TIME=0)"),
        std::tuple("VGPU_PTXAS", "/nowhere/ptxas", "/nowhere/ptxas")}) {
    CAPTURE(variable);
    const auto without = run(variable, value);
    const std::string text = without.at("printed");
    CAPTURE(text);
    CHECK(text.find(std::string("No predicted times: ")) != std::string::npos);
    CHECK(text.find(words) != std::string::npos);
    CHECK(text.find("+-") == std::string::npos);
    CHECK(without.at("kernels")[0].at("predicted_us").is_null());
    CHECK(without.at("kernels")[0].at("modelled_limit_us") ==
          first.at("kernels")[0].at("modelled_limit_us"));
  }
}

TEST_CASE("predicted times: a library from before there were any gives limits, and says so" *
          doctest::test_suite("programs")) {
  if (skipped_on_a_real_gpu("predicted times")) return;
  const lab::testing::TemporaryFolder folder;
  Dl_info library;
  void* const symbol = dlsym(RTLD_DEFAULT, "vgpuSetTime");
  REQUIRE(symbol);
  REQUIRE(dladdr(symbol, &library));
  std::string bytes = lab::read_file(library.dli_fname);
  const std::string name = "vgpuSetTime";
  for (size_t at = 0; (at = bytes.find(name, at)) != std::string::npos;) bytes[at] = 'V';
  folder.write("libvgpu.so", bytes);
  const Variable with("LD_LIBRARY_PATH", folder.folder().c_str());
  std::vector<std::string> arguments = {"--tokens", "65", "--heads", "2"};
  const ProgramResult limits = lab::testing::run_program("chapter6", arguments, folder.folder());
  CAPTURE(limits.output);
  CAPTURE(limits.errors);
  CHECK(limits.exit_code == 0);
  CHECK(limits.output.find("No predicted times: this virtual GPU does not predict times\n") !=
        std::string::npos);
  CHECK(limits.output.find("lower bound") != std::string::npos);
  CHECK(limits.output.find("+-") == std::string::npos);
  arguments.push_back("--predict");
  const ProgramResult none = lab::testing::run_program("chapter6", arguments, folder.folder());
  CHECK(none.exit_code == lab::kLacking);
  CHECK(none.errors.find("this virtual GPU does not predict times") != std::string::npos);
}

TEST_CASE("--predict: no prediction at all is a lack, and on a GPU it is refused" *
          doctest::test_suite("programs")) {
  if (skipped_on_a_real_gpu("--predict")) return;
  const lab::testing::TemporaryFolder folder;
  const std::vector<std::string> arguments = {"--predict", "--tokens", "65", "--heads", "2"};
  const auto run = [&](const char* variable, const char* value) {
    const Variable with(variable, value);
    return lab::testing::run_program("chapter6", arguments, folder.folder());
  };
  const ProgramResult none = run("VGPU_PTXAS", "/nowhere/ptxas");
  CAPTURE(none.output);
  CHECK(none.exit_code == lab::kLacking);
  CHECK(none.output.find("/nowhere/ptxas") != std::string::npos);
  const ProgramResult gpu = run("LAB_HIDE_VGPU", "1");  // it passes for a GPU
  CHECK(gpu.exit_code == lab::kLacking);
  CHECK(gpu.errors.find("--predict needs the virtual GPU") != std::string::npos);
}
