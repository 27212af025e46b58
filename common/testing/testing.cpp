#include "testing.h"
#include "lab/program.h"

#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "json/json.h"
#include "lab/files.h"
#include "lab/timing.h"
#include "text.h"

namespace lab::testing {

std::string environment(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

bool has_device() {
  int count = 0;
  const bool found = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  cudaGetLastError();
  return found;
}

// ---- Running a kernel under suspicion -----------------------------------------------------------

void Verdict::judge(bool untouched) {
  details = (untouched ? "" : "memory outside the output was written; ") + comparison.describe();
  caught_by = !untouched                  ? "guard"
              : comparison.not_finite > 0 ? "not finite"
              : comparison.bad > 0        ? "element"
              : !comparison.pass          ? "norm"
                                          : "";
}

bool ran(const std::function<void()>& launch, Verdict& verdict) {
  try {
    launch();
    check(cudaGetLastError());
    check(cudaDeviceSynchronize());
    return true;
  } catch (const std::exception& error) {
    verdict.caught_by = "error";
    verdict.details = error.what();
    return false;
  }
}

void replay_once(const std::function<void(cudaStream_t stream)>& launch) {
  StepGraph graph([&](int, cudaStream_t stream) { launch(stream); }, 1);
  graph.replay();
  check(cudaStreamSynchronize(graph.stream()));
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {

size_t occurrences(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
}

// The text up to the end of its last kernel, and of the namespace around it.
std::string up_to_last_kernel(const std::string& text, const std::string& path) {
  const std::string end = "\n}\n";
  const size_t kernel = text.rfind("__global__");
  const size_t at = kernel == std::string::npos ? kernel : text.find(end, kernel);
  if (at == std::string::npos) throw std::runtime_error("no kernel ends in " + path);
  return text.substr(0, at + end.size()) + "}\n";
}

// A kernel file with those files of its chapter in the place of their includes that are in the same
// namespace, each once, so that bugs can be planted in those too. Other includes are found from
// `here` on, the folder of the kernel: a shape.h has its names outside of the namespace, and may stand
// in the text only once.
// kKernelsOnly: of each file that has kernels what stands behind the last one is left out.
std::string with_neighbours(const std::string& path, const std::string& here,
                            const std::string& name_space, std::vector<std::string>& seen,
                            Mutants::Part part) {
  namespace fs = std::filesystem;
  std::string text = read_file(path), result;
  if (part == Mutants::kKernelsOnly && text.find("__global__") != std::string::npos)
    text = up_to_last_kernel(text, path);
  replace_all(text, "#pragma once", "");
  for (size_t at = 0, next; at < text.size(); at = next) {
    next = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string line = text.substr(at, next - at);
    const size_t quote = line.find('"');
    const std::string included =
        line.starts_with("#include \"")
            ? (fs::path(path).parent_path() / line.substr(quote + 1, line.rfind('"') - quote - 1))
                  .lexically_normal()
                  .string()
            : "";
    if (included.empty() || !fs::exists(included)) {
      result += line;
    } else if (!included.ends_with(".cuh") ||
               read_file(included).find("namespace " + name_space + " {") == std::string::npos) {
      result += "#include \"" + fs::path(included).lexically_relative(here).string() + "\"\n";
    } else if (std::find(seen.begin(), seen.end(), included) == seen.end()) {
      seen.push_back(included);
      result += with_neighbours(included, here, name_space, seen, part);
    }
  }
  return result;
}

std::string mutant_namespace(size_t number) { return "mutant_" + std::to_string(number); }

}  // namespace

std::vector<Mutant> planted_bugs(const std::string& chapter, const std::string& group) {
  const std::string path = repository_path("chapters/" + chapter + "/tests/planted.json");
  const json::Value list = json::parse(file_content(path));
  std::vector<Mutant> found;
  for (const json::Value& entry : list["mutants"])
    if (const json::Value* of = entry.find("group"); of && of->get<std::string>() == group)
      found.push_back({entry["name"].get<std::string>(), entry["find"].get<std::string>(),
                       entry["replace"].get<std::string>(), entry["caught_by"].get<std::string>()});
  if (found.empty()) throw std::runtime_error(path + " has no mistakes of group '" + group + "'");
  return found;
}

std::string step_file(const std::string& chapter, const std::string& step) {
  for (const char* folder : {"", "/variants"})
    for (const auto& entry :
         std::filesystem::directory_iterator(repository_path(chapter + folder))) {
      const std::string name = entry.path().filename().string();
      if (name.substr(name.find_first_not_of("0123456789_")) == step + ".cuh")
        return chapter + folder + "/" + name;
    }
  throw std::runtime_error(chapter + " has no file of a step '" + step + "'");
}

Mutants::Mutants(const std::string& file, const std::string& name_space,
                 const std::vector<Mutant>& mutants, const std::string& instances, Part part,
                 Code code) {
  const std::string path = repository_path(file);
  const std::string here = std::filesystem::path(path).parent_path().string();
  std::vector<std::string> seen;
  std::string original = with_neighbours(path, here, name_space, seen, part);
  original += "\nnamespace " + name_space + " {\n" + instances + "\n}\n";
  std::string source = original;
  replace_all(source, name_space, mutant_namespace(0));
  for (size_t i = 0; i < mutants.size(); ++i) {
    const Mutant& mutant = mutants[i];
    if (occurrences(original, mutant.find) != 1)
      throw std::runtime_error(format("planted bug '%s' no longer applies: '%s' is %zu times in %s",
                                      mutant.name.c_str(), mutant.find.c_str(),
                                      occurrences(original, mutant.find), path.c_str()));
    std::string changed = original;
    changed.replace(changed.find(mutant.find), mutant.find.size(), mutant.replace);
    replace_all(changed, name_space, mutant_namespace(i + 1));
    source += changed;
  }

  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  // What one architecture alone has must be asked for.
  const bool asks = original.find("__CUDA_ARCH_FEAT_SM90_ALL") != std::string::npos;
  const char* const own = asks && major == 9 && minor == 0 ? "a" : "";
  const TemporaryFolder folder;
  folder.write("mutants.cu", source);
  const std::string nvcc = shell_word(environment("NVCC", "nvcc"));
  // The option is of CUDA 12.9; an older compiler takes its time.
  const std::string quickly =
      code == kQuickly ? " $(" + nvcc + " --help | grep -o -m 1 -e --Ofast-compile | sed s/$/=mid/)"
                       : "";
  const std::string command =
      nvcc + " " + environment("NVCC_FLAGS", "-std=c++20 -O3") + quickly + " -I" +
      shell_word(here) + " -ptx" + format(" -arch=compute_%d%d%s", major, minor, own) + " -o " +
      shell_word(folder.path("mutants.ptx")) + " " + shell_word(folder.path("mutants.cu")) + " >" +
      shell_word(folder.path("log")) + " 2>&1";
  if (std::system(("cd " + shell_word(repository_path(".")) + " && " + command).c_str()) != 0)
    throw std::runtime_error("planted bugs do not compile: " + command + "\n" +
                             read_file(folder.path("log")));
  ptx_ = read_file(folder.path("mutants.ptx"));
  check(cudaLibraryLoadData(&library_, ptx_.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
}

void Mutants::reset() {
  check(cudaDeviceReset());
  library_ = nullptr;
  check(cudaLibraryLoadData(&library_, ptx_.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
}

Mutants::~Mutants() {
  if (library_) cudaLibraryUnload(library_);
}

const void* Mutants::kernel(size_t number, const std::string& name,
                            const std::vector<int>& arguments, const std::string& type) const {
  // ".visible .entry _ZN8mutant_113scores_kernelEPK...(": lengths and names, as C++ mangles them; a
  // template is "...16attention_kernelILi64ELi4EEEvPK...", a static kernel "..._1L11pack_kernelE".
  std::string integers = type;
  for (const int argument : arguments) integers += format("Li%dE", argument);
  if (!integers.empty()) integers = "I" + integers + "E";
  const std::string space = mutant_namespace(number);
  const std::string prefix = format(".entry _ZN%zu%s", space.size(), space.c_str());
  const std::string rest = format("%zu%s%sE", name.size(), name.c_str(), integers.c_str());
  const size_t begin = std::min(ptx_.find(prefix + rest), ptx_.find(prefix + "L" + rest));
  if (begin == std::string::npos)
    throw std::runtime_error("no kernel " + space + "::" + name + " in the PTX");
  const size_t first = begin + std::strlen(".entry ");
  const std::string symbol = ptx_.substr(first, ptx_.find('(', first) - first);
  cudaKernel_t kernel = nullptr;
  check(cudaLibraryGetKernel(&kernel, library_, symbol.c_str()));
  return reinterpret_cast<const void*>(kernel);
}

// ---- Programs -----------------------------------------------------------------------------------

std::string test_place() {
  const std::string place = environment("TEST_TMP", "/tmp");
  std::filesystem::create_directories(place);
  return place;
}

TemporaryFolder::TemporaryFolder() : lab::TemporaryFolder(test_place()) {}

void TemporaryFolder::write(const std::string& name, const std::string& content) const {
  write_file(path(name), content);
}

std::vector<std::string> TemporaryFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder()))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string file_content(const std::string& path) { return read_file(path); }

ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const std::string& folder) {
  const std::string path =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path() / program).string();
  if (access(path.c_str(), X_OK) != 0) throw std::runtime_error(path + " has not been built");
  const TemporaryFolder logs;
  // TEST_TMP may be relative to here, and the program must not make its folders in `folder`.
  const std::string temporary = std::filesystem::path(logs.folder()).parent_path().string();
  std::string command = "export TEST_TMP=" + shell_word(temporary) + " && cd ";
  command += shell_word(folder) + " && " + shell_word(path);
  for (const std::string& argument : arguments) (command += ' ') += shell_word(argument);
  command += " </dev/null >" + shell_word(logs.path("out")) + " 2>" + shell_word(logs.path("err"));
  const int status = std::system(command.c_str());

  const auto content = [&](const char* name) {
    return std::filesystem::file_size(logs.path(name)) ? read_file(logs.path(name)) : "";
  };
  ProgramResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.output = content("out");
  result.errors = content("err");
  return result;
}

std::string json_at(const std::string& text, const std::string& pointer) {
  const json::Value all = json::parse(text);
  const json::Value* const found = all.find_path(pointer);
  if (!found) throw std::out_of_range("nothing at " + pointer + " in the JSON " + text);
  return found->dump();
}

}  // namespace lab::testing
