#include "checks.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>

#include "json/json.h"
#include "lab/device.h"
#include "lab/files.h"
#include "lab/images.h"
#include "lab/program.h"
#include "lab/tensors.h"
#include "text.h"

namespace lab::testing {

using namespace std::string_literals;
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

// ---- Planted bugs, checks, machine code ---------------------------------------------------------

namespace {

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

}  // namespace

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

void check_stays_in_its_stream(const std::function<void(cudaStream_t stream)>& launch) {
  const int findings = vgpu::findings();
  cudaStream_t streams[2] = {};
  for (cudaStream_t& stream : streams) {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    launch(stream);
    check(cudaStreamSynchronize(stream));
  }
  for (const cudaStream_t stream : streams) check(cudaStreamDestroy(stream));
  CHECK(vgpu::findings() == findings);
}

void check_in_other_orders(const std::string& filter) {
  if (skipped("other orders") || skipped_without_counters("other orders")) return;
  const Environment checks("VGPU_CHECK", "all"), on(kChecksAreOn, "1");
  for (const std::string schedule : {"random:1", "random:2", "random:3", "random:4", "random:5"}) {
    CAPTURE(schedule);
    const Environment order("VGPU_SCHEDULE", schedule);
    check_passes(own_name(), filter, true);
  }
}

namespace {

void check_program_on_t4(const std::string& program, const std::string& filter) {
  if (skipped("on a T4") || skipped_without_counters("on a T4")) return;
  const Environment device("VGPU_DEVICE", "t4");
  check_passes(program, filter, false);
}

}  // namespace

void check_on_t4(const std::string& filter) { check_program_on_t4(own_name(), filter); }
void check_twin_on_t4(const std::string& filter) {
  check_program_on_t4(own_name() + "_t4", filter);
}

void check_machine_code(const std::string& folder) {
  const auto objects = std::filesystem::read_symlink("/proc/self/exe").parent_path() / folder;
  CAPTURE(objects.string());
  const TemporaryFolder output;
  bool kernels = false;  // without any there is nothing to check
  for (const auto& entry : std::filesystem::recursive_directory_iterator(objects)) {
    const std::string said = entry.path().string();
    if (!said.ends_with(".ptxas")) continue;
    const std::filesystem::path source =
        folder / std::filesystem::relative(entry.path(), objects).replace_extension(".cu");
    if (!std::filesystem::exists(repository_path(source.string())))
      continue;  // built before it went
    kernels |= file_content(said).find("Compiling entry function") != std::string::npos;
    const std::string command = "cd '" + repository_path(".") +
                                "' && awk -v known=common/make/spills.txt -v file='" +
                                source.string() + "' -f common/make/spills.awk '" + said + "' >'" +
                                output.path("found") + "' 2>&1";
    const int status = std::system(command.c_str());
    CHECK_MESSAGE(status == 0, file_content(output.path("found")));
  }
  CHECK(kernels);
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
    std::vector<int> arguments;  // 64, 32, 8 in ...ILi64ELi32ELi8EE...
    static const std::regex integer_argument("Li(\\d+)E");
    for (std::sregex_iterator at(name.begin(), name.end(), integer_argument), end; at != end; ++at)
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

std::vector<std::string> on_a_gpu(const std::vector<std::string>& flags) {
  return lab::vgpu::present() ? std::vector<std::string>{} : flags;
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

std::vector<std::pair<std::string, double>> modelled_limits(
    const std::string& program, const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  std::vector<std::string> all = arguments;
  all.insert(all.end(), {"--json", "a.json"});
  const ProgramResult result = run_program(program, all, folder.folder());
  CAPTURE(result.errors);
  REQUIRE(result.exit_code == 0);
  std::vector<std::pair<std::string, double>> limits;
  const json::Value written = json::parse(file_content(folder.path("a.json")));
  for (const json::Value& kernel : written["kernels"])
    limits.emplace_back(kernel.at("name").get<std::string>(),
                        kernel.at("modelled_limit_us").get<double>());
  return limits;
}

// ---- Counters -----------------------------------------------------------------------------------

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
