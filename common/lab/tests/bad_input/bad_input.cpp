#include "bad_input.h"
#include "lab/tensors.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

namespace bad_input {
namespace {

namespace fs = std::filesystem;

constexpr int kSeconds = 60;  // a program that takes longer hangs
int counted = 0;
std::set<std::string> of_tests;

fs::path program_path(const std::string& name) {
  if (name.find('/') != name.npos) return fs::absolute(name);
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  return name == "vgpu" ? here.parent_path() / "vgpu" / name : here / name;
}

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What a folder has: by name its kind and content, or where a link leads.
std::map<std::string, std::string> snapshot(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).string();
    std::string& text = files[name];
    if (entry.is_symlink())
      text = "link to " + fs::read_symlink(entry.path()).string();
    else if (entry.is_regular_file())
      text = "file " + content_of(entry.path());
    else
      text = entry.is_directory() ? "folder" : "special";
  }
  return files;
}

std::string shown(const Command& command) {
  std::string text;
  for (const std::string& variable : command.environment) text += variable + " ";
  text += command.program;
  for (const std::string& argument : command.arguments)
    text += " '" + argument.substr(0, 200) + (argument.size() > 200 ? "...'" : "'");
  if (!command.output.empty()) text += " >" + command.output;
  if (command.largest_file)
    text += ", files of " + std::to_string(*command.largest_file) + " bytes";
  if (command.no_threads) text += ", no thread";
  return text;
}

// What stderr is: a pipe, since files may have a limit.
struct Pipe {
  int ends[2];
  std::string text;
  Pipe() {
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
      throw std::runtime_error(std::string("pipe: ") + std::strerror(errno));
    // The child's end waits when it is full.
    fcntl(ends[1], F_SETFL, fcntl(ends[1], F_GETFL) & ~O_NONBLOCK);
  }
  ~Pipe() { close(ends[0]), close(ends[1]); }
  void drain() {
    char part[4096];
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) text.append(part, std::size_t(n));
  }
};

// In the child, between fork and exec.
void prepare(const Command& command, const std::string& folder, const std::string& logs,
             int errors) {
  const auto reopen = [](int number, const std::string& path, int flags) {
    const int file = open(path.c_str(), flags, 0600);
    if (file < 0 || dup2(file, number) < 0) _exit(125);
    if (file != number) close(file);
  };
  setpgid(0, 0);
  reopen(0, "/dev/null", O_RDONLY);
  if (dup2(errors, 2) < 0) _exit(125);
  if (command.output == "closed")
    close(1);
  else
    reopen(1, command.output.empty() ? logs + "/output" : command.output,
           O_WRONLY | O_CREAT | O_TRUNC);
  if (chdir(folder.c_str()) != 0) _exit(125);
  if (command.largest_file) {
    const rlimit limit{*command.largest_file, *command.largest_file};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(125);
  }
  if (command.no_threads) {
    const rlimit limit{1, 1};
    // (For root the limit does not hold.)
    if (setrlimit(RLIMIT_NPROC, &limit) != 0 || (getuid() == 0 && setuid(65534) != 0)) _exit(125);
  }
}

}  // namespace

int cases() { return counted; }
int test_cases() { return int(of_tests.size()); }

bool is_built(const std::string& program) {
  return access(program_path(program).c_str(), X_OK) == 0;
}

std::uint64_t Random::below(std::uint64_t end) {  // splitmix64
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return (z ^ z >> 31) % end;
}

Bench& Bench::get() {
  static Bench bench;
  return bench;
}

void Bench::write(const std::string& name, const std::string& content) {
  fs::create_directories(fs::path(path(name)).parent_path());
  std::ofstream(path(name), std::ios::binary) << content;
}

void Bench::clear() {
  for (const auto& entry : fs::directory_iterator(folder())) fs::remove_all(entry.path());
}

Outcome Bench::run(const Command& command) {
  const std::string path = program_path(command.program);
  std::vector<std::string> words = {path}, variables = command.environment;
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  const auto is_set = [&](const std::string& variable) {
    return std::any_of(variables.begin(), variables.end(), [&](const std::string& v) {
      return v.substr(0, v.find('=')) == variable.substr(0, variable.find('='));
    });
  };
  for (char** old = environ; *old; ++old)
    if (const std::string variable = *old; !variable.starts_with("VGPU_") && !is_set(variable))
      variables.push_back(variable);
  if (!is_set("TMPDIR")) variables.push_back("TMPDIR=" + folder());
  std::vector<char*> argv, envp;
  for (std::string& word : words) argv.push_back(word.data());
  for (std::string& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr), envp.push_back(nullptr);
  std::remove(logs_.path("output").c_str());
  Pipe errors;

  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  if (child == 0) {
    prepare(command, folder(), logs_.folder(), errors.ends[1]);
    execve(path.c_str(), argv.data(), envp.data());
    _exit(126);
  }
  const auto start = std::chrono::steady_clock::now();
  int status = 0;
  Outcome outcome;
  for (auto pause = std::chrono::microseconds(500); waitpid(child, &status, WNOHANG) == 0;) {
    errors.drain();
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(5000));
    if (std::chrono::steady_clock::now() - start < std::chrono::seconds(kSeconds)) continue;
    kill(-child, SIGKILL);
    waitpid(child, &status, 0);
    outcome.ended = "it hangs";
    break;
  }
  if (WIFEXITED(status))
    outcome.code = WEXITSTATUS(status);
  else if (outcome.ended.empty())
    outcome.ended = "signal " + std::to_string(WTERMSIG(status));
  outcome.output = content_of(logs_.path("output"));
  errors.drain();
  outcome.errors = errors.text;
  return outcome;
}

void expect(const Command& command, const std::vector<int>& codes,
            const std::vector<std::string>& words, const std::vector<std::string>& creates) {
  Bench& bench = Bench::get();
  ++counted;
  of_tests.insert(doctest::getContextOptions()->currentTest->m_name);
  const auto before = snapshot(bench.folder());
  const Outcome outcome = bench.run(command);
  auto after = snapshot(bench.folder());
  for (const std::string& name : creates)
    if (!before.count(name)) {
      after.erase(name);
      fs::remove(bench.path(name));
    }
  INFO(shown(command));
  INFO("stderr: ", outcome.errors.substr(0, 1000));
  INFO("stdout: ", outcome.output.substr(0, 4000));
  CHECK_MESSAGE(outcome.ended == "", outcome.ended);
  CHECK_MESSAGE(std::find(codes.begin(), codes.end(), outcome.code) != codes.end(), "exit status ",
                outcome.code, " is none of ", codes.size(), ", the first being ", codes[0]);
  for (const std::string& word : words)
    CHECK_MESSAGE(outcome.errors.find(word) != std::string::npos, "stderr has no '", word, "'");
  if (outcome.code != 0) CHECK_MESSAGE(!outcome.errors.empty(), "it says nothing");
  for (const auto& [name, content] : before)
    CHECK_MESSAGE(after.count(name), "the file ", name, " is lost");
  for (const auto& [name, content] : after) {
    const auto old = before.find(name);
    CHECK_MESSAGE(old != before.end(), "the file ", name, " is left behind");
    if (old != before.end()) CHECK_MESSAGE(old->second == content, name, " has changed");
  }
}

// ---- PNG ----------------------------------------------------------------------------------------

void put_big_endian(std::string& bytes, std::size_t at, std::uint32_t value) {
  if (bytes.size() < at + 4) bytes.resize(at + 4);
  for (int i = 3; i >= 0; --i, value >>= 8) bytes[at + std::size_t(i)] = char(value & 255);
}

std::string png_chunk(const std::string& type, const std::string& data) {
  std::string chunk;
  put_big_endian(chunk, 0, std::uint32_t(data.size()));
  chunk += type + data;
  std::uint32_t rest = ~0u;  // bit by bit, other than the reader does it
  for (std::size_t i = 4; i < chunk.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      const bool one = (rest ^ std::uint32_t(static_cast<unsigned char>(chunk[i])) >> bit) & 1;
      rest = rest >> 1 ^ (one ? 0xedb88320u : 0);
    }
  put_big_endian(chunk, chunk.size(), ~rest);
  return chunk;
}

std::string png_header(std::uint32_t width, std::uint32_t height, int depth, int colour,
                       int interlace) {
  std::string header;
  put_big_endian(header, 0, width);
  put_big_endian(header, 4, height);
  return header + std::string{char(depth), char(colour), 0, 0, char(interlace)};
}

std::string stored(const std::string& data) {
  std::string bytes = "\x78\x01";
  for (std::size_t at = 0; at == 0 || at < data.size(); at += 65535) {
    const std::string block = data.substr(at, 65535);
    const unsigned size = unsigned(block.size()), inverse = ~size;
    bytes += char(at + block.size() >= data.size());
    for (const unsigned number : {size, inverse})
      bytes += {char(number & 255), char(number >> 8 & 255)};
    bytes += block;
  }
  std::uint32_t a = 1, b = 0;  // Adler-32
  for (const char c : data) {
    a = (a + static_cast<unsigned char>(c)) % 65521;
    b = (b + a) % 65521;
  }
  put_big_endian(bytes, bytes.size(), b << 16 | a);
  return bytes;
}

std::string png_of(const std::string& header, const std::string& compressed) {
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + png_chunk("IDAT", compressed) +
         png_chunk("IEND", "");
}

std::string png(std::uint32_t width, std::uint32_t height, int depth) {
  std::string rows;
  for (std::uint32_t y = 0; y < height; ++y) {
    rows += '\0';  // no filter
    for (std::uint32_t x = 0; x < width; ++x)
      for (const std::uint32_t value : {x * 255 / width, y * 255 / height, (x * 7 + y * 5) % 256})
        rows += std::string(depth == 16 ? 2 : 1, char(value));
  }
  return png_of(png_header(width, height, depth), stored(rows));
}

// ---- safetensors --------------------------------------------------------------------------------

std::string safetensors(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

std::string safetensors(const std::vector<Tensor>& tensors) {
  std::string header = "{", data;
  for (const Tensor& tensor : tensors) {
    header += (header.size() > 1 ? ",\"" : "\"") + tensor.name + "\":{\"dtype\":\"" + tensor.dtype +
              "\",\"shape\":" + tensor.shape + ",\"data_offsets\":[" + std::to_string(data.size()) +
              "," + std::to_string(data.size() + tensor.data.size()) + "]}";
    data += tensor.data;
  }
  return safetensors(header + "}", data);
}

std::string f32(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::string f16(const std::vector<std::uint16_t>& bits) {
  return {reinterpret_cast<const char*>(bits.data()), bits.size() * 2};
}

}  // namespace bad_input
