// The process with the virtual GPU that a student's code runs on: it gives case after case to the
// process that holds the code (grader/student_process.h), and reports through files, so that what is done
// stays done when something crashes.
//
//   exerciseN --child FOLDER
//
// FOLDER/problems has the mode, the library with its entry, the isolation and the cases: whoever starts
// this process has computed them, and doing it again would take longer than many a kernel.
// FOLDER/report gets a line for each case that was begun, and one for how it went, each with the number
// of a CaseState in front; FOLDER/out.N gets its output. FOLDER/stdout.N and FOLDER/stderr.N get what the code prints; in the mode "cases"
// FOLDER/findings.N gets what the virtual GPU says.
#include "gpu_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <optional>

#include "compiler_words.h"
#include "lab/device.h"
#include "lab/errors.h"
#include "lab/files.h"
#include "lab/program.h"
#include "lab/temporary_folder.h"
#include "wire.h"

namespace lab::grader {
namespace {

// The program student_host, beside this one.
std::string host_program() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "student_host").string();
}

using wire::Reader;
using wire::Writer;

// Not `finite`: a NaN that reaches a result is a wrong result already, and in rows past the last one, whose
// results nobody stores, it is no mistake.
const char* const kChecks = "race,init,sync,proxy";

// Throws when CUDA reports an error, with what it means for the student.
void require(cudaError_t error) {
  if (error == cudaSuccess) return;
  const std::string text = std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
  throw StudentError(error == cudaErrorLaunchTimeout      ? CaseState::endless
                     : error == cudaErrorMemoryAllocation ? CaseState::too_much_memory
                                                          : CaseState::failed,
                     text);
}

void put_text(Writer& out, const std::string& text) { out.put(uint64_t{text.size()}).put(text); }
std::string text_in(Reader& in) {
  const uint64_t letters = in.get<uint64_t>();
  return std::string(in.take(letters), letters);
}

// What it takes to run a case: the dims of its output, and its arguments.
void put_problem(Writer& out, const Case& problem) {
  out.put(uint64_t{problem.dims.size()});
  for (const int64_t dim : problem.dims) out.put(dim);
  out.put(uint64_t{problem.arguments.size()});
  for (const Argument& argument : problem.arguments) {
    out.put(argument.role).put(argument.fp32);
    put_text(out, argument.name);
    out.put(uint64_t{argument.bytes.size()}).put(argument.bytes.data(), argument.bytes.size());
  }
}
Case problem_in(Reader& in) {
  Case problem;
  problem.dims.resize(in.get<uint64_t>());
  for (int64_t& dim : problem.dims) dim = in.get<int64_t>();
  problem.arguments.resize(in.get<uint64_t>());
  for (Argument& argument : problem.arguments) {
    argument.role = in.get<Argument::Role>();
    argument.fp32 = in.get<bool>();
    argument.name = text_in(in);
    const uint64_t size = in.get<uint64_t>();
    const auto* const bytes = reinterpret_cast<const std::byte*>(in.take(size));
    argument.bytes.assign(bytes, bytes + size);
  }
  return problem;
}

std::vector<std::byte> run(const StudentProgram& program, const Case& problem,
                           const std::string& prefix) {
  size_t bytes = 1;
  for (const int64_t dim : problem.dims) bytes *= size_t(dim);
  for (const Argument& argument : problem.arguments)
    if (argument.role == Argument::output) bytes *= argument.fp32 ? sizeof(float) : sizeof(half);
  DeviceArray<std::byte> output(bytes, "output");
  output.fill_nan();
  std::vector<DeviceArray<std::byte>> inputs;
  inputs.reserve(problem.arguments.size());
  std::vector<std::vector<char>> arguments;
  const auto add = [&](const void* data, size_t size) {
    const char* const first = static_cast<const char*>(data);
    arguments.emplace_back(first, first + size);
  };
  for (const Argument& argument : problem.arguments) {
    const void* address = output.data();
    if (argument.role == Argument::value) {
      add(argument.bytes.data(), argument.bytes.size());
      continue;
    }
    if (argument.role == Argument::output) {
      vgpu::name_allocation(output.data(), prefix + argument.name);
    } else {
      inputs.emplace_back(argument.bytes, prefix + argument.name);
      address = inputs.back().data();
    }
    add(&address, sizeof address);
  }
  const cudaStream_t stream = nullptr;
  add(&stream, sizeof stream);

  require(call_student(program, arguments, {reinterpret_cast<uint64_t>(output.data()), bytes}));
  require(cudaGetLastError());
  require(cudaDeviceSynchronize());

  size_t next = 0;
  for (const Argument& argument : problem.arguments)
    if (argument.role == Argument::input && inputs[next++].download() != argument.bytes)
      throw StudentError(CaseState::failed,
                         "the kernel wrote into its input '" + argument.name + "'");
  return output.download();
}

int opened(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) _exit(kLacking);
  return file;
}

// What is printed from now on goes to that file.
void redirect(FILE* stream, const std::string& path) {
  std::fflush(stream);
  const int file = opened(path);
  if (dup2(file, fileno(stream)) < 0) _exit(kLacking);
  close(file);
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

constexpr size_t kShownLines = 20, kShownBytes = 4096, kFindingBytes = 1 << 16;

// Control characters have no business in a report.
std::string fit_to_be_shown(std::string line) {
  for (char& c : line)
    if ((static_cast<unsigned char>(c) < 32 && c != '\t') || c == 127) c = '?';
  return line;
}

void read_printed(const std::string& folder, size_t number, Outcome& outcome) {
  std::ifstream words(folder + "/findings." + std::to_string(number));
  for (std::string line; std::getline(words, line) && outcome.findings.size() < kFindingBytes;)
    outcome.findings += line + "\n";
  size_t lines = 0;
  std::string& text = outcome.printed.text;
  for (const char* name : {"/stdout.", "/stderr."}) {
    std::ifstream file(folder + name + std::to_string(number));
    for (std::string line; std::getline(file, line);) {
      if (lines < kShownLines && text.size() < kShownBytes) {
        ++lines;
        const size_t room = kShownBytes - text.size();
        text += fit_to_be_shown(line.substr(0, room)) + (line.size() > room ? "...\n" : "\n");
      } else {
        ++outcome.printed.more;
      }
    }
  }
}

// dlerror() of a name without a definition, in words.
std::string linker_words(const std::string& text) {
  const std::string undefined = "undefined symbol: ";
  const size_t at = text.find(undefined);
  if (at == std::string::npos) return "the compiled file cannot be loaded: " + text;
  std::string name = text.substr(at + undefined.size());
  name = demangled(name.substr(0, name.find_first_of(" ,")));
  if (name.starts_with("cuda") || name.starts_with("__cuda") || name.starts_with("vgpu"))
    return "an exercise may not call " + name +
           ": it launches kernels and allocates memory for them; chapters/README.md has the list";
  return "it cannot be linked: " + name + " is declared and used, but defined nowhere";
}

bool printed_too_much(const std::string& folder, size_t number, const Limits& limits) {
  for (const char* name : {"/stdout.", "/stderr."}) {
    std::error_code error;
    const auto size = std::filesystem::file_size(folder + name + std::to_string(number), error);
    if (!error && double(size) >= limits.file_bytes) return true;
  }
  return false;
}

}  // namespace

// The student's process sees the same in all modes, as far as it can look: no argument of this one says
// which it is, and it has files of the same kind open.
int child_main(int argc, char** argv) {
  if (argc != 3) return kBadUsage;
  const std::string folder = argv[2];
  std::memset(argv[2], 0, folder.size());
  const std::string problems = read_file(folder + "/problems");
  Reader reader({problems.begin(), problems.end()});
  const Mode mode = reader.get<Mode>();
  const std::string entry = "grader_entry_" + std::to_string(reader.get<int>());
  const auto isolation = reader.get<Isolation>();
  const std::string library = text_in(reader);
  const int report = opened(folder + "/report");
  const auto say = [report](CaseState state, const std::string& words = "") {
    const std::string text = std::to_string(int(state)) + " " + one_line(words) + "\n";
    if (write(report, text.data(), text.size()) != ssize_t(text.size())) _exit(kLacking);
  };
  // A crash must not take away what was printed before it.
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);
  StudentProgram program{host_program(), library, entry, isolation, -1, read_file(library)};
  if (program.isolation == Isolation::other_user)
    program.host = std::filesystem::path(program.library).parent_path().string() + "/student_host";
  while (reader.left() > 0) {
    const std::string number = std::to_string(reader.get<uint64_t>());
    if (program.errors >= 0) close(program.errors);
    program.errors = opened(folder + "/stderr." + number);
    redirect(stdout, folder + "/stdout." + number);
    if (mode == Mode::cases) redirect(stderr, folder + "/findings." + number);
    say(CaseState::begun);
    try {
      const std::vector<std::byte> output =
          run(program, problem_in(reader), mode == Mode::measured ? kArgument : "");
      std::ofstream file(folder + "/out." + number, std::ios::binary);
      file.write(reinterpret_cast<const char*>(output.data()), std::streamsize(output.size()));
      file.close();
      if (file)
        say(CaseState::done);
      else
        say(CaseState::failed, "no room for the output");
    } catch (const StudentError& error) {
      say(error.state, error.what());
      return kWrong;
    } catch (const std::bad_alloc&) {
      say(CaseState::too_much_memory, "std::bad_alloc");
      return kWrong;
    } catch (const LackError& error) {
      say(CaseState::too_much_memory, error.what());
      return kWrong;
    } catch (const std::exception& error) {
      say(CaseState::failed, std::string("it threw: ") + error.what());
      return kWrong;
    }
  }
  return kCorrect;
}

namespace {

// Copies of a library and of the program that loads it, where any user can read them: a checkout and
// the folders of tests may be below some that only their owner enters.
class ReadableCopies {
 public:
  explicit ReadableCopies(const std::string& library) {
    namespace fs = std::filesystem;
    for (const auto& [from, to] :
         {std::pair{library, this->library()}, {host_program(), folder_.path("student_host")}}) {
      fs::copy_file(from, to);
      fs::permissions(to, fs::perms(0755));
    }
    fs::permissions(folder_.folder(), fs::perms(0711));
  }
  std::string library() const { return folder_.path("student.so"); }

 private:
  const TemporaryFolder folder_;
};

}  // namespace

std::vector<Outcome> run_cases(const Task& task, const std::vector<Case>& cases,
                               const Library& library, int entry, Mode mode,
                               const std::vector<size_t>& numbers, const std::string& folder,
                               const Limits& limits, Ended& ended) {
  std::optional<ReadableCopies> copies;
  if (limits.isolation == Isolation::other_user) copies.emplace(library.path);
  const std::vector<std::string> command = {
      std::filesystem::read_symlink("/proc/self/exe").string(), "--child", folder};
  Writer problems;
  problems.put(mode).put(entry).put(limits.isolation);
  put_text(problems, copies ? copies->library() : library.path);
  for (const size_t number : numbers) {
    problems.put(uint64_t{number});
    put_problem(problems, cases.at(number));
  }
  std::ofstream file(folder + "/problems", std::ios::binary);
  file.write(problems.bytes().data(), std::streamsize(problems.bytes().size()));
  file.close();
  if (!file) throw LackError(folder + "/problems: cannot be written");
  std::filesystem::remove(folder + "/report");
  // The problems are small, and stacks of threads count as memory.
  Environment environment = {{"VGPU_THREADS", "1"},
                             {"OMP_NUM_THREADS", "1"},
                             {"VGPU_INSTRUCTIONS", std::to_string(limits.instructions)},
                             {"VGPU_DEVICE", "h200"},
                             {"VGPU_CHECK", mode == Mode::cases ? "" : kChecks},
                             {"VGPU_SCHEDULE", mode == Mode::cases ? task.schedule : ""},
                             {"VGPU_CACHE", ""},
                             {"VGPU_TRACE", ""},
                             {"VGPU_TIMELINE", ""},
                             {"VGPU_PROFILE", ""}};
  if (mode == Mode::measured) environment.back().second = "json:" + folder + "/counters.json";
  ended = run_limited(command, repository_path("."), environment, limits);

  ended.output = library.as_handed_in(ended.output);

  std::vector<Outcome> outcomes;
  std::ifstream report(folder + "/report");
  for (std::string line; std::getline(report, line);) {
    int number = int(CaseState::failed), words = 0;
    std::sscanf(line.c_str(), "%d %n", &number, &words);
    const CaseState state = CaseState(number);
    if (state == CaseState::unloadable) throw BuildError(linker_words(line.substr(size_t(words))));
    if (state == CaseState::begun) {
      outcomes.emplace_back();
      if (mode == Mode::cases) {
        read_printed(folder, numbers.at(outcomes.size() - 1), outcomes.back());
        outcomes.back().findings = library.as_handed_in(outcomes.back().findings);
      }
    } else if (!outcomes.empty()) {
      Outcome& outcome = outcomes.back();
      outcome.state = state;
      outcome.message = line.substr(size_t(words));
      if (state == CaseState::done)
        outcome.output =
            read_file(folder + "/out." + std::to_string(numbers.at(outcomes.size() - 1)));
    }
  }
  if (outcomes.empty()) outcomes.emplace_back();  // it ended before the first case
  if (Outcome& last = outcomes.back(); last.state == CaseState::begun) {
    const bool too_much = ended.signal == SIGXFSZ &&
                          printed_too_much(folder, numbers.at(outcomes.size() - 1), limits);
    last.state = ended.timed_out ? CaseState::timed_out
                 : too_much      ? CaseState::printed_too_much
                                 : CaseState::failed;
    last.message = describe_end(ended.signal, ended.exit_code);
  }
  if (mode != Mode::cases) outcomes.back().findings = ended.output;
  // Threads that wait for each other are found out at once, and are a mistake like any other.
  for (Outcome& outcome : outcomes)
    if (outcome.state == CaseState::endless &&
        outcome.findings.find(": error: deadlock: ") != std::string::npos)
      outcome.state = CaseState::failed;
  return outcomes;
}

}  // namespace lab::grader
