#include "test_ladder.h"
#include "inputs.h"
#include "lab/device.h"
#include "lab/images.h"
#include "lab/program.h"
#include "lab/tensors.h"
#include "test_cases.h"

#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "lab/files.h"
#include "lab/table.h"
#include "reference.h"

namespace lab::testing {

using namespace std::string_literals;
namespace {

// An environment variable for the programs that are run while this lives.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { old_.empty() ? unsetenv(name_) : setenv(name_, old_.c_str(), 1); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::string old_;
};

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

}  // namespace

bool skipped(const std::string& what) {
  if (has_device()) return false;
  MESSAGE("skipped: " << what << ": there is no GPU, real or virtual");
  return true;
}

bool skipped_without_counters(const std::string& what) {
  if (vgpu::present()) return false;
  MESSAGE("skipped: " << what << ": only the virtual GPU can tell");
  return true;
}

bool skipped_on_a_gpu(const Mutant& bug) {
  if (vgpu::present() || (bug.caught_by != "check" && bug.caught_by != "error")) return false;
  return skipped_without_counters("planted bug '" + bug.name + "'");
}

// ---- Right results ------------------------------------------------------------------------------

void check_right(const AnyAttention& attention, const AttentionCase& problem) {
  const Outcome outcome = run_attention(attention, problem);
  CAPTURE(problem.name);
  CAPTURE(outcome.details);
  CHECK(outcome.caught_by == "");
}

void check_every_shape(const AnyAttention& attention) {
  if (skipped("every shape")) return;
  uint64_t seed = 1;
  for (const AttentionShape& s : attention_shapes())
    check_right(attention, random_case(s.batch, s.heads, s.tokens, s.head_dim, seed++));
}

void check_unusual_scores(const AnyAttention& attention) {
  if (skipped("unusual scores")) return;
  for (const double offset : {150.0, -150.0})
    check_right(attention, offset_case(1, 2, 33, 64, offset));
  for (const float scale : {-0.125f, 0.0f}) {
    AttentionCase problem = random_case(1, 2, 97, 64);
    problem.name += format(", scale %g", double(scale));
    AttentionProblem& p = problem.problem;
    p.shape.scale = scale;
    reference::attention(to_float(p.q).data(), to_float(p.k).data(), to_float(p.v).data(), p.shape,
                         problem.expected.data());
    check_right(attention, problem);
  }
  for (const AttentionCase& problem : stepped_cases()) check_right(attention, problem);
}

void check_rounding(const AnyAttention& attention) {
  if (skipped("rounding")) return;
  for (const int head_dim : {32, 64, 128}) check_right(attention, mean_case(2, 128, head_dim));
  check_right(attention, mean_case(3, 16, 64));
}

void check_pytorch(const AnyAttention& attention) {
  if (skipped("arrays from PyTorch")) return;
  const std::vector<AttentionCase> cases = golden_cases();
  REQUIRE(cases.size() >= 6);
  for (const AttentionCase& problem : cases) check_right(attention, problem);
}

void check_deit_tiny(const AnyAttention& attention) {
  if (skipped("a trained DeiT-Tiny")) return;
  const std::vector<AttentionCase> cases = deit_cases();
  if (cases.empty()) MESSAGE("skipped: DeiT-Tiny's q, k, v are not there (DEIT_TINY_ATTENTION)");
  for (const AttentionCase& problem : cases) check_right(attention, problem);
}

void check_same_bits(const AnyAttention& attention) {
  if (skipped("the same bits twice")) return;
  for (const int head_dim : {32, 64, 128}) {
    const AttentionCase problem = random_case(1, 3, 127, head_dim);
    const Outcome first = run_attention(attention, problem);
    const Outcome second = run_attention(attention, problem);
    REQUIRE(first.output.size() == problem.problem.q.size());
    for (const Outcome& other : {second, run_attention(in_a_graph(attention), problem)}) {
      REQUIRE(other.output.size() == problem.problem.q.size());
      CHECK(std::memcmp(first.output.data(), other.output.data(),
                        first.output.size() * sizeof(half)) == 0);
    }
  }
}

void check_refusals(const AnyAttention& attention, bool aligned) {
  const auto message = [&](const AttentionShape& shape, size_t address = 0) -> std::string {
    try {
      attention(reinterpret_cast<const half*>(address), nullptr, nullptr, nullptr, shape, nullptr);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message({1, 1, 16, 48}) ==
        "attention of shape [batch 1, heads 1, tokens 16, head_dim 48]: head_dim must be 32, 64 or "
        "128");
  CHECK(message({1, 0, 16, 64}).find("must be at least 1") != std::string::npos);
  CHECK(message({-1, 1, 16, 64}).find("batch -1") != std::string::npos);
  CHECK(message({1, 1, 0, 64}).find("tokens 0") != std::string::npos);
  // 2^32 (batch, head) pairs, each at least one block.
  CHECK(
      message({1 << 16, 1 << 16, 1, 64}) ==
      "attention of shape [batch 65536, heads 65536, tokens 1, head_dim 64]: 4294967296 blocks, a "
      "grid has at most 2147483647");
  if (aligned) CHECK(message({1, 1, 16, 64}, 8).find("multiple of 16 bytes") != std::string::npos);
}

// ---- Planted bugs, checks, machine code ---------------------------------------------------------

// Runs the cases of a doctest program that match `filter` and returns what they printed; they must
// all pass. Findings of the virtual GPU's checks are allowed where `findings` says so.
std::string check_passes(const std::string& test_program, const std::string& filter,
                         bool findings) {
  const TemporaryFolder folder;
  const ProgramResult result =
      run_program(test_program, {"--no-colors=true", "-tc=" + filter}, folder.folder());
  CAPTURE(result.output);
  CAPTURE(result.errors);
  CHECK((result.exit_code == 0 || (findings && result.exit_code == kFindings)));
  CHECK(result.output.find("Status: SUCCESS!") != std::string::npos);
  CHECK(result.output.find("test cases: 0 ") == std::string::npos);
  return result.output;
}

std::string own_name() { return std::filesystem::read_symlink("/proc/self/exe").filename(); }

constexpr const char* kChecksAreOn = "LAB_TESTING_CHECKS_ARE_ON";

bool rerun_with_checks(const std::string& cases) {
  if (skipped(cases)) return true;
  if (!vgpu::present() || std::getenv(kChecksAreOn)) return false;
  const Environment checks("VGPU_CHECK", "all"), on(kChecksAreOn, "1");
  check_passes(own_name(), cases, true);
  return true;
}

void check_each_bug(const std::vector<Mutant>& bugs, size_t trials,
                    const std::function<Verdict(size_t number, size_t trial)>& run,
                    const std::function<void()>& after_error) {
  for (size_t number = 0; number <= bugs.size(); ++number) {
    const std::string name = number ? bugs[number - 1].name : "none";
    const std::string expected = number ? bugs[number - 1].caught_by : "";
    if (number && skipped_on_a_gpu(bugs[number - 1])) continue;
    CAPTURE(name);
    std::string caught_by, details;
    for (size_t trial = 0; trial < trials && caught_by.empty(); ++trial) {
      const int findings = vgpu::findings();
      const Verdict verdict = run(number, trial);
      caught_by = verdict.caught_by;
      details = verdict.details;
      // What a missing barrier does to the result is a matter of luck.
      if (vgpu::findings() > findings && (caught_by.empty() || expected == "check"))
        caught_by = "check";
      if (verdict.caught_by == "error" && after_error) after_error();
    }
    CAPTURE(details);
    CHECK(caught_by == expected);
  }
}

void check_planted_bugs(const std::string& file, const std::string& name_space,
                        const std::vector<Mutant>& mutants, const MutantAttention& attention,
                        const std::string& instances) {
  if (rerun_with_checks("planted bugs*")) return;
  // With one head_dim, so that a template is compiled once a bug.
  const std::vector<AttentionCase> cases = {random_case(1, 1, 1, 64),
                                            random_case(1, 2, 33, 64),
                                            random_case(1, 1, 97, 64),
                                            offset_case(1, 1, 17, 64, 150),
                                            stepped_case(1, 1, 129, 64, {0, -100, 100}),
                                            mean_case(1, 16, 64)};
  const Mutants loaded(file, name_space, mutants, instances,
                       instances.empty() ? Mutants::kWholeFile : Mutants::kKernelsOnly);
  check_each_bug(mutants, cases.size(), [&](size_t number, size_t trial) {
    return named(cases[trial].name, run_attention(attention(loaded, number), cases[trial]));
  });
}

void check_without_findings(const AnyAttention& attention) {
  if (rerun_with_checks("checked*")) return;
  const int findings = vgpu::findings();
  check_right(attention, random_case(1, 2, 83, 32));
  check_right(attention, stepped_case(1, 1, 129, 64, {0, 100, -100}));
  check_right(attention, random_case(1, 1, 65, 128));
  CHECK(vgpu::findings() == findings);
}

void check_all_checks(const std::string& program,
                      const std::vector<std::vector<std::string>>& runs) {
  if (skipped("all checks") || skipped_without_counters("all checks")) return;
  const TemporaryFolder folder;
  const Environment checks("VGPU_CHECK", "all");
  for (const std::string schedule :
       {"", "random:1", "random:2", "random:3", "random:4", "random:5"})
    for (const std::vector<std::string>& arguments : runs) {
      const Environment order("VGPU_SCHEDULE", schedule);
      if (schedule.empty()) unsetenv("VGPU_SCHEDULE");
      const ProgramResult result = run_program(program, arguments, folder.folder());
      CAPTURE(schedule);
      CAPTURE(arguments.back());
      CAPTURE(result.errors);
      CHECK(result.exit_code == 0);
      CHECK(result.errors == "");
    }
}

void check_program_on_t4(const std::string& program, const std::string& filter) {
  if (skipped("on a T4") || skipped_without_counters("on a T4")) return;
  const Environment device("VGPU_DEVICE", "t4");
  check_passes(program, filter, false);
}
void check_on_t4(const std::string& filter) { check_program_on_t4(own_name(), filter); }
void check_twin_on_t4(const std::string& filter) {
  check_program_on_t4(own_name() + "_t4", filter);
}

void check_machine_code(const std::string& file, const std::string& more, size_t kernels,
                        int threads) {
  const TemporaryFolder folder;
  const std::string path = repository_path(file);
  folder.write("kernels.cu",
               "#include \"" + std::filesystem::absolute(path).string() + "\"\n" + more);
  std::string command = "'" + environment("NVCC", "nvcc") +
                        "' -std=c++20 -O3 -fatbin --threads 2 " + "-Xptxas -v -o '" +
                        folder.path("fatbin") + "' '" + folder.path("kernels.cu") + "'";
  // Of one generation the PTX is the same to the byte, and is compiled once: registers and spills come
  // of the last step, from PTX to machine code. (`make compile-all` begins anew for each.)
  command +=
      " -gencode arch=compute_75,code=sm_75 -gencode arch=compute_80,code='[sm_80,sm_86,sm_89]'"
      " -gencode arch=compute_90,code=sm_90 -gencode arch=compute_100,code='[sm_100,sm_120]'";
  constexpr size_t kArchitectures = 7;
  // It is the same because no code asks for less than a generation; 7.5 is compiled by itself.
  static const std::regex asked("__CUDA_ARCH__\\s*[<>=!]+\\s*(\\d+)");
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(path).parent_path())) {
    if (entry.path().extension() != ".cuh") continue;
    const std::string source = file_content(entry.path().string());
    CAPTURE(entry.path().string());
    for (std::sregex_iterator at(source.begin(), source.end(), asked), end; at != end; ++at)
      CHECK(std::set<std::string>{"750", "800", "900", "1000"}.contains((*at)[1].str()));
  }
  command =
      "cd '" + repository_path(".") + "' && " + command + " >'" + folder.path("log") + "' 2>&1";
  const int status = std::system(command.c_str());
  const std::string log = file_content(folder.path("log"));
  CAPTURE(log);
  REQUIRE(status == 0);

  // ptxas info    : Compiling entry function '_ZN...' for 'sm_75'
  // ptxas info    : Function properties for _ZN...
  //     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
  // ptxas info    : Used 100 registers, used 1 barriers, 368 bytes cmem[0]
  const std::regex entry(
      "Compiling entry function '(\\w+)' for '(sm_\\d+)'\\s+ptxas info\\s*: Function properties "
      "for "
      "\\w+\\s+(\\d+) bytes stack frame, (\\d+) bytes spill stores, (\\d+) bytes spill loads\\s+"
      "ptxas info\\s*: Used (\\d+) registers");
  size_t found = 0;
  for (std::sregex_iterator at(log.begin(), log.end(), entry), end; at != end; ++at, ++found) {
    const std::string kernel = (*at)[1].str() + " for " + (*at)[2].str();
    CAPTURE(kernel);
    CHECK((*at)[3] == "0");  // bytes of stack: arrays that are no registers
    CHECK((*at)[4] == "0");  // bytes of spills
    CHECK((*at)[5] == "0");
    CHECK(std::stoi((*at)[6]) * threads <= 65536);  // else the launch is refused
  }
  CHECK(found == kernels * kArchitectures);
}

void check_load_groups(const std::string& file, size_t kernels,
                       const std::function<std::vector<int>(const std::vector<int>&)>& groups) {
  const TemporaryFolder folder;
  const std::string path = std::filesystem::absolute(repository_path(file)).string();
  folder.write("kernels.cu", "#include \"" + path + "\"\n");
  const std::string command =
      "cd '" + repository_path(".") + "' && '" + environment("NVCC", "nvcc") +
      "' -std=c++20 -O3 -arch=compute_90 -ptx -o '" + folder.path("ptx") + "' '" +
      folder.path("kernels.cu") + "' >'" + folder.path("log") + "' 2>&1";
  if (std::system(command.c_str()) != 0) FAIL(file_content(folder.path("log")));

  const auto text = [](const std::vector<int>& numbers) {
    std::string all;
    for (const int number : numbers) all += std::to_string(number) + " ";
    return all;
  };
  std::string name;
  std::vector<int> found;
  bool in_group = false;
  size_t number = 0;
  const auto end_of_kernel = [&] {
    if (name.empty()) return;
    CAPTURE(name);
    std::vector<int> arguments;  // of ...ILi64ELi32ELi8EE...
    static const std::regex number_of("Li(\\d+)E");
    for (std::sregex_iterator at(name.begin(), name.end(), number_of), end; at != end; ++at)
      arguments.push_back(std::stoi((*at)[1]));
    CHECK(text(found) == text(groups(arguments)));
    ++number;
  };
  std::istringstream lines(file_content(folder.path("ptx")));
  for (std::string line; std::getline(lines, line);) {
    if (const size_t at = line.find(".entry "); at != std::string::npos) {
      end_of_kernel();
      name = line.substr(at + 7);
      found.clear();
      in_group = false;
    } else if (line.find("ld.global") != std::string::npos) {
      if (!in_group) found.push_back(0);
      in_group = true;
      ++found.back();
    } else if (line.find("st.shared") != std::string::npos) {
      in_group = false;
    }
  }
  end_of_kernel();
  CHECK(number == kernels);
}

std::optional<PhotoRun> check_photo_run(const std::string& program, int size,
                                        std::vector<std::string> arguments,
                                        const std::vector<int64_t>& out,
                                        const std::vector<std::string>& lines) {
  if (skipped("the program on a photo")) return std::nullopt;
  const TemporaryFolder folder;
  for (const std::string& argument :
       {"--size"s, std::to_string(size), "--json"s, "a.json"s, "--csv"s, "a.csv"s, "--out"s,
        "map.png"s, "--output"s, "out.safetensors"s})
    arguments.push_back(argument);
  const ProgramResult result = run_program(program, arguments, folder.folder());
  CAPTURE(result.output);
  CAPTURE(result.errors);
  CHECK(result.exit_code == 0);
  CHECK(result.output.find("FAIL") == std::string::npos);
  CHECK(folder.names() ==
        std::vector<std::string>{"a.csv", "a.json", "map.png", "out.safetensors"});
  CHECK(load_image(folder.path("map.png")).width > 2 * size);
  CHECK(read_safetensors(folder.path("out.safetensors"), {"out"})[0].shape == out);
  for (size_t at = 0, next; (next = result.output.find('\n', at)) != std::string::npos;
       at = next + 1) {
    const std::string line = result.output.substr(at, next - at);
    CAPTURE(line);
    CHECK(line.size() <= 100);
  }
  for (const std::string& line : lines) {
    CAPTURE(line);
    CHECK(result.output.find("\n" + line + " ") != std::string::npos);
  }
  return PhotoRun{result.output, file_content(folder.path("a.json"))};
}

void check_program(const std::string& program, const std::vector<std::string>& steps) {
  const auto run =
      check_photo_run(program, 64, {"--batch", "2", "--patch", "1,2"}, {2, 12, 17, 64}, steps);
  if (!run) return;
  // A ratio is that of two lines.
  const auto json = nlohmann::json::parse(run->json);
  const auto us = [&](const std::string& name) {
    for (const auto& kernel : json.at("kernels"))
      if (kernel.at("name") == name)
        return kernel.at(vgpu::present() ? "predicted_us" : "median_us").get<double>();
    return std::nan("");
  };
  for (const std::string& step : steps) CHECK(us(step) > 0);
  if (vgpu::present())
    for (const auto& kernel : json.at("kernels"))
      CHECK(kernel.at("predicted_us").get<double>() >=
            kernel.at("modelled_limit_us").get<double>());
  REQUIRE(json.at("ratios").size() == steps.size() - 1);
  for (size_t i = 1; i < steps.size(); ++i) {
    const auto& ratio = json.at("ratios")[i - 1];
    CHECK(ratio.at("after") == steps[i]);
    CHECK(ratio.at("before") == steps[i - 1]);
    CHECK(ratio.at("ratio").get<double>() == doctest::Approx(us(steps[i - 1]) / us(steps[i])));
    // The line of the step has it.
    const size_t at = run->output.find("\n" + steps[i] + " ") + 1;
    const std::string line = run->output.substr(at, run->output.find('\n', at) - at);
    CAPTURE(line);
    CHECK(line.find(" " + times(ratio.at("ratio").get<double>()) + " ") != std::string::npos);
  }
}

std::vector<std::pair<std::string, double>> modelled_limits(
    const std::string& program, const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  std::vector<std::string> all = arguments;
  all.insert(all.end(), {"--json", "a.json"});
  const ProgramResult result = run_program(program, all, folder.folder());
  CAPTURE(result.errors);
  REQUIRE(result.exit_code == 0);
  std::vector<std::pair<std::string, double>> limits;
  const auto json = nlohmann::json::parse(file_content(folder.path("a.json")));
  for (const auto& kernel : json.at("kernels"))
    limits.emplace_back(kernel.at("name").get<std::string>(),
                        kernel.at("modelled_limit_us").get<double>());
  return limits;
}

// ---- Counters -----------------------------------------------------------------------------------

void run_for_counters(const AnyAttention& attention, int batch, int heads, int tokens,
                      int head_dim) {
  run_for_counters(
      attention, random_attention(
                     {batch, heads, tokens, head_dim, float(1 / std::sqrt(double(head_dim)))}, 1));
}

void run_for_counters(const AnyAttention& attention, const AttentionProblem& problem) {
  std::vector<AttentionArrays> arrays = upload(problem, 1);
  AttentionArrays& a = arrays[0];
  attention(a.Q.data(), a.K.data(), a.V.data(), a.O.data(), problem.shape, nullptr);
  check(cudaDeviceSynchronize());
}

AttentionProblem equal_scores(int heads, int tokens, int head_dim) {
  AttentionProblem problem = random_attention({1, heads, tokens, head_dim, 1}, 1);
  std::fill(problem.q.begin(), problem.q.end(), __float2half(0.0f));
  return problem;
}

double row_requests(int rows, int row_bytes, int lane_bytes) {
  return std::ceil(double(rows) * row_bytes / (32 * lane_bytes));
}

double counted(const std::string& array, const std::string& what) {
  return vgpu::counter("/allocations/" + array + "/" + what);
}

double shared_conflicts() {
  return vgpu::counter("/shared/load/conflicts") + vgpu::counter("/shared/store/conflicts");
}

double shared_wavefronts() {
  return vgpu::counter("/shared/load/wavefronts") + vgpu::counter("/shared/store/wavefronts");
}

}  // namespace lab::testing
