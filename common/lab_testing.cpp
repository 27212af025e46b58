#include "lab_testing.h"

#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lab_files.h"
#include "lab_random.h"
#include "lab_timing.h"
#include "reference/attention.h"

namespace lab::testing {
namespace {

std::vector<half> to_half(const std::vector<double>& values) {
  std::vector<half> halves(values.size());
  for (size_t i = 0; i < values.size(); ++i) halves[i] = __float2half(float(values[i]));
  return halves;
}

std::vector<half> to_half(const std::vector<float>& values) {
  std::vector<half> halves(values.size());
  for (size_t i = 0; i < values.size(); ++i) halves[i] = __float2half(values[i]);
  return halves;
}

void expect_reference(AttentionCase& result) {
  const AttentionProblem& problem = result.problem;
  result.expected.resize(problem.shape.elements());
  reference::attention(to_float(problem.q).data(), to_float(problem.k).data(),
                       to_float(problem.v).data(), problem.shape, result.expected.data());
}

bool same_bits(const std::vector<half>& a, const std::vector<half>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(half)) == 0;
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

std::string environment(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

}  // namespace

bool has_device() {
  int count = 0;
  const bool found = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  cudaGetLastError();
  return found;
}

// ---- Attention cases ----------------------------------------------------------------------------

AttentionCase random_case(int batch, int heads, int tokens, int head_dim, uint64_t seed) {
  AttentionCase result;
  const AttentionShape shape{batch, heads, tokens, head_dim,
                             float(1 / std::sqrt(double(head_dim)))};
  result.name = describe(shape);
  result.problem = random_attention(shape, seed);
  expect_reference(result);
  return result;
}

AttentionCase offset_case(int batch, int heads, int tokens, int head_dim, double offset) {
  AttentionCase result = random_case(batch, heads, tokens, head_dim);
  AttentionProblem& problem = result.problem;
  result.name += format(", scores moved by %g", offset);
  // The first element of every query and key gives all their scores the same summand.
  const double product = offset / double(problem.shape.scale);
  for (int64_t row = 0; row < problem.shape.rows(); ++row) {
    problem.q[row * head_dim] = __float2half(32.0f);
    problem.k[row * head_dim] = __float2half(float(product / 32));
  }
  expect_reference(result);
  return result;
}

AttentionCase stepped_case(int batch, int heads, int tokens, int head_dim,
                           const std::vector<double>& moves) {
  constexpr int kStep = 64;  // keys
  AttentionCase result = random_case(batch, heads, tokens, head_dim);
  AttentionProblem& problem = result.problem;
  result.name += ", scores in steps";
  // The first elements of a query and a key give their score a summand, with the query's sign.
  for (int64_t row = 0; row < problem.shape.rows(); ++row) {
    const int64_t token = row % tokens;
    const double move = moves[size_t(token / kStep) % moves.size()];
    problem.q[row * head_dim] = __float2half(token % 2 ? -32.0f : 32.0f);
    problem.k[row * head_dim] = __float2half(float(move / double(problem.shape.scale) / 32));
  }
  expect_reference(result);
  return result;
}

std::vector<AttentionCase> stepped_cases() {
  return {stepped_case(1, 2, 197, 64, {0, -100, 100}), stepped_case(1, 1, 129, 32, {0, 100, -100}),
          stepped_case(2, 1, 65, 128, {0, 100}), stepped_case(1, 1, 257, 64, {100, 0, -100})};
}

AttentionCase mean_case(int heads, int tokens, int head_dim) {
  AttentionCase result = random_case(1, heads, tokens, head_dim);
  AttentionProblem& problem = result.problem;
  result.name += ", means";
  std::fill(problem.q.begin(), problem.q.end(), __float2half(0.0f));
  // 10 bits from 1 to 3, negative in odd columns. A sum of 128 has 17 bits.
  for (size_t i = 0; i < problem.v.size(); ++i) {
    const float size = 1 + float(random_bits(7, i) % 512) / 256;
    problem.v[i] = __float2half(i % 2 ? -size : size);
  }
  expect_reference(result);
  for (double& mean : result.expected) mean = to_double(__float2half_rn(float(mean)));
  result.tolerance = Tolerance{};
  return result;
}

std::vector<AttentionCase> golden_cases() {
  const std::string folder = repository_path("data/golden/");
  const auto manifest = nlohmann::json::parse(read_file(folder + "manifest.json"));
  std::vector<AttentionCase> cases;
  for (const auto& entry : manifest.at("cases")) {
    AttentionCase result;
    result.name = entry.at("name").get<std::string>() + " (PyTorch)";
    AttentionShape& shape = result.problem.shape;
    shape = {entry.at("batch"), entry.at("heads"), entry.at("tokens"), entry.at("head_dim"),
             entry.at("scale")};
    const auto read = [&](const char* array) {
      const Array values =
          read_npy(folder + entry.at("arrays").at(array).at("file").get<std::string>());
      if (values.shape !=
          std::vector<int64_t>{shape.batch, shape.heads, shape.tokens, shape.head_dim})
        throw UsageError(folder + ": " + result.name + ": shape and manifest differ");
      return values.values;
    };
    result.problem.q = to_half(read("q"));
    result.problem.k = to_half(read("k"));
    result.problem.v = to_half(read("v"));
    result.problem.source = result.name;
    result.expected = read("out");
    cases.push_back(std::move(result));
  }
  return cases;
}

std::vector<AttentionCase> deit_cases() {
  const std::string path = environment(
      "DEIT_TINY_ATTENTION",
      repository_path("../shared/data/deit_tiny/attention_chelsea_blocks_0_6.safetensors"));
  if (access(path.c_str(), R_OK) != 0) return {};
  std::vector<AttentionCase> cases;
  for (const std::string block : {"block0", "block6"}) {
    const std::vector<Tensor> tensors =
        read_safetensors(path, {block + ".q", block + ".k", block + ".v", block + ".out"});
    const std::vector<int64_t>& shape = tensors[0].shape;
    AttentionCase result;
    result.name = "DeiT-Tiny " + block;
    result.problem.shape = {int(shape.at(0)), int(shape.at(1)), int(shape.at(2)), int(shape.at(3)),
                            float(1 / std::sqrt(double(shape.at(3))))};
    result.problem.q = to_half(tensors[0].values);
    result.problem.k = to_half(tensors[1].values);
    result.problem.v = to_half(tensors[2].values);
    result.problem.source = result.name;
    result.expected.assign(tensors[3].values.begin(), tensors[3].values.end());
    cases.push_back(std::move(result));
  }
  return cases;
}

std::vector<AttentionShape> attention_shapes() {
  std::vector<AttentionShape> shapes;
  const auto add = [&](int batch, int heads, int tokens, int head_dim) {
    shapes.push_back({batch, heads, tokens, head_dim, float(1 / std::sqrt(double(head_dim)))});
  };
  for (const int tokens : {1, 2, 15, 16, 17, 31, 33, 63, 65, 127})
    for (const int batch : {1, 3})
      for (const int heads : {1, 3, 12})
        for (const int head_dim : {32, 64, 128}) add(batch, heads, tokens, head_dim);
  add(1, 12, 197, 64);
  add(3, 1, 197, 32);
  add(1, 3, 197, 128);
  add(1, 1, 577, 32);
  add(1, 3, 577, 64);
  add(1, 1, 577, 128);
  return shapes;
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

Outcome run_attention(const AnyAttention& attention, const AttentionCase& problem) {
  const AttentionProblem& inputs = problem.problem;
  const AttentionShape& shape = inputs.shape;
  DeviceArray<half> Q(inputs.q, "Q"), K(inputs.k, "K"), V(inputs.v, "V");
  GuardedOutput<half> O(size_t(shape.elements()), "O");

  Outcome outcome;
  try {
    attention(Q.data(), K.data(), V.data(), O.data(), shape, nullptr);
    check(cudaGetLastError());
    check(cudaDeviceSynchronize());
  } catch (const std::exception& error) {
    outcome.caught_by = "error";
    outcome.details = error.what();
    return outcome;
  }

  const bool guards = O.download(outcome.output);
  double max_value = 0;
  for (const half value : inputs.v) max_value = std::max(max_value, std::abs(to_double(value)));
  outcome.comparison = compare(outcome.output, problem.expected,
                               problem.tolerance.value_or(Tolerance::attention(max_value)),
                               {shape.batch, shape.heads, shape.tokens, shape.head_dim});

  outcome.judge(guards && same_bits(Q.download(), inputs.q) && same_bits(K.download(), inputs.k) &&
                same_bits(V.download(), inputs.v));
  return outcome;
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

// A kernel file with the files beside it that it includes (#include "name.cuh") in their place, each
// once, so that bugs can be planted in those too.
std::string with_neighbours(const std::string& path, std::vector<std::string>& seen) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  std::string text = read_file(path), result;
  replace_all(text, "#pragma once", "");
  for (size_t at = 0, next; at < text.size(); at = next) {
    next = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string line = text.substr(at, next - at);
    const size_t quote = line.find('"');
    if (!line.starts_with("#include \"") || line.find('/') != std::string::npos) {
      result += line;
      continue;
    }
    const std::string name = line.substr(quote + 1, line.rfind('"') - quote - 1);
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
    seen.push_back(name);
    result += with_neighbours(folder + name, seen);
  }
  return result;
}

std::string mutant_namespace(size_t number) { return "mutant_" + std::to_string(number); }

}  // namespace

Mutants::Mutants(const std::string& file, const std::string& name_space,
                 const std::vector<Mutant>& mutants, const std::string& instances) {
  const std::string path = repository_path(file);
  std::vector<std::string> seen;
  const std::string original =
      with_neighbours(path, seen) + "\nnamespace " + name_space + " {\n" + instances + "\n}\n";
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
  const TemporaryFolder folder;
  folder.write("mutants.cu", source);
  // Includes are found as from the kernel's own place.
  const std::string here = path.substr(0, path.rfind('/'));
  const std::string command =
      quoted(environment("NVCC", "nvcc")) + " " + environment("NVCC_FLAGS", "-std=c++20 -O3") +
      " -I" + quoted(here) + " -ptx" + format(" -arch=compute_%d%d", major, minor) + " -o " +
      quoted(folder.path("mutants.ptx")) + " " + quoted(folder.path("mutants.cu")) + " >" +
      quoted(folder.path("log")) + " 2>&1";
  if (std::system(("cd " + quoted(repository_path(".")) + " && " + command).c_str()) != 0)
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
                            const std::vector<int>& arguments) const {
  // ".visible .entry _ZN8mutant_113scores_kernelEPK...(": lengths and names, as C++ mangles them;
  // of a template "...16attention_kernelILi64ELi4EEEvPK...".
  std::string integers;
  for (const int argument : arguments) integers += format("Li%dE", argument);
  if (!integers.empty()) integers = "I" + integers + "E";
  const std::string space = mutant_namespace(number);
  const std::string prefix = format("_ZN%zu%s%zu%s%sE", space.size(), space.c_str(), name.size(),
                                    name.c_str(), integers.c_str());
  const size_t begin = ptx_.find(".entry " + prefix);
  if (begin == std::string::npos)
    throw std::runtime_error("no kernel " + space + "::" + name + " in the PTX");
  const size_t first = begin + std::strlen(".entry ");
  const std::string symbol = ptx_.substr(first, ptx_.find('(', first) - first);
  cudaKernel_t kernel = nullptr;
  check(cudaLibraryGetKernel(&kernel, library_, symbol.c_str()));
  return reinterpret_cast<const void*>(kernel);
}

// ---- Programs -----------------------------------------------------------------------------------

TemporaryFolder::TemporaryFolder() {
  const std::string parent = environment("TEST_TMP", "/tmp");
  std::filesystem::create_directories(parent);
  std::string name = std::filesystem::absolute(parent).string() + "/test.XXXXXX";
  if (!mkdtemp(name.data())) throw std::runtime_error(name + ": " + std::strerror(errno));
  folder_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void TemporaryFolder::write(const std::string& name, const std::string& content) const {
  write_file(path(name), content);
}

std::vector<std::string> TemporaryFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
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
  std::string command = "export TEST_TMP=" + quoted(temporary) + " && cd ";
  command += quoted(folder) + " && " + quoted(path);
  for (const std::string& argument : arguments) (command += ' ') += quoted(argument);
  command += " </dev/null >" + quoted(logs.path("out")) + " 2>" + quoted(logs.path("err"));
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

std::string json_at(const std::string& json, const std::string& pointer) {
  return nlohmann::json::parse(json).at(nlohmann::json::json_pointer(pointer)).dump();
}

}  // namespace lab::testing
