// ptxas as a child process: no shell, a private folder, a limit on its time.
#include "assembler.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "code_cache.h"

extern char** environ;

namespace vgpu::time {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostOutput = 64 << 10;

bool is_program(const std::string& path) {
  struct stat about;
  return stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

// The path of a program in $PATH, or "".
std::string in_path(std::string_view name) {
  const char* list = std::getenv("PATH");
  std::string_view rest = list ? list : "";
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const std::string_view folder = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::string path = (folder.empty() ? "." : std::string(folder)) + "/" + std::string(name);
    if (is_program(path)) return path;
  }
  return "";
}

// What is preloaded into a program of CUDA is not for ptxas.
std::vector<char*> environment_of_child() {
  std::vector<char*> all;
  for (char** entry = environ; entry && *entry; ++entry)
    if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) all.push_back(*entry);
  all.push_back(nullptr);
  return all;
}

// A folder of its own that goes away with all that is in it.
class Folder {
 public:
  Folder() {
    std::error_code error;
    std::string name = (std::filesystem::temp_directory_path(error) / "vgpu-XXXXXX").string();
    if (!error && mkdtemp(name.data())) path_ = name;
  }
  ~Folder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

int milliseconds_left(Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 1 << 30));
}

// Until the pipe's other end is closed; false: the time is up.
bool read_all(int pipe, Clock::time_point deadline, std::string& output) {
  for (;;) {
    pollfd waiting{pipe, POLLIN, 0};
    const int ready = poll(&waiting, 1, milliseconds_left(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    char buffer[4096];
    const ssize_t n = read(pipe, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    output.append(buffer, std::min<std::size_t>(n, kMostOutput - output.size()));
  }
}

// Exit status, -1 for a signal; a program that ignores its children has none: 0.
int wait_for(pid_t child, Clock::time_point deadline, bool& timed_out) {
  int status = 0;
  for (auto pause = std::chrono::microseconds(50);;) {
    const pid_t done = waitpid(child, &status, WNOHANG);
    if (done == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (done < 0 && errno != EINTR) return 0;
    if (milliseconds_left(deadline) == 0) break;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(10000));
  }
  timed_out = true;
  return -1;
}

std::string first_line(std::string_view text) {
  while (!text.empty() && (text.front() == '\n' || text.front() == ' ')) text.remove_prefix(1);
  return std::string(
      text.substr(0, std::min<std::size_t>(std::min(text.find('\n'), text.size()), 300)));
}

bool write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  return file.good();
}

}  // namespace

std::string find_ptxas(std::string& why) {
  why.clear();
  if (const char* own = std::getenv("VGPU_PTXAS"); own && *own) {
    if (is_program(own)) return own;
    why = "VGPU_PTXAS='" + std::string(own) + "' is no program; give the path of ptxas";
    return "";
  }
  std::vector<std::string> places = {in_path("ptxas")};
  // A link to nvcc may stand in a folder of its own.
  if (const std::string nvcc = in_path("nvcc"); !nvcc.empty()) {
    std::error_code error;
    const auto folder = std::filesystem::canonical(nvcc, error).parent_path();
    if (!error) places.push_back((folder / "ptxas").string());
  }
  places.emplace_back("/usr/local/cuda/bin/ptxas");
  places.push_back(std::string(built_with()) + "/ptxas");
  for (const std::string& place : places)
    if (is_program(place)) return place;
  why =
      "no ptxas: it is neither in PATH nor in /usr/local/cuda/bin; install the CUDA Toolkit, or "
      "set "
      "VGPU_PTXAS to its path";
  return "";
}

Ran run_program(const std::string& path, const std::vector<std::string>& arguments,
                double seconds) {
  Ran ran;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    ran.error = std::strerror(errno);
    return ran;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 34)
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
#endif
  // A group of its own, to end all of it, and signals as if nothing had changed them.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, usual;
  sigemptyset(&none);
  sigemptyset(&usual);
  for (const int signal : {SIGINT, SIGQUIT, SIGPIPE, SIGCHLD, SIGTERM}) sigaddset(&usual, signal);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> environment = environment_of_child();
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, path.c_str(), &actions, &attributes, argv.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed) {
    ran.error = std::strerror(failed);
  } else {
    const auto deadline =
        Clock::now() + std::chrono::milliseconds(static_cast<long long>(1e3 * seconds));
    ran.timed_out = !read_all(ends[0], deadline, ran.output);
    if (!ran.timed_out) ran.status = wait_for(child, deadline, ran.timed_out);
    if (ran.timed_out) {
      kill(-child, SIGKILL);
      while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
  close(ends[0]);
  return ran;
}

std::string ptxas_version(const std::string& path, std::string& why) {
  why.clear();
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) {
    why = "'" + path + "' cannot be read: " + std::strerror(errno);
    return "";
  }
  const std::string key = path + '\n' + std::to_string(about.st_size) + '\n' +
                          std::to_string(about.st_mtim.tv_sec) + '.' +
                          std::to_string(about.st_mtim.tv_nsec);
  const Hash name = hash_of(key);
  std::string version;
  if (read_cached(name, "version", version) && version.starts_with("V")) return version;
  const Ran ran = run_program(path, {"--version"}, 20);
  if (!ran.error.empty() || ran.timed_out || ran.status != 0) {
    why = "'" + path + " --version' " +
          (!ran.error.empty() ? "cannot be run: " + ran.error
           : ran.timed_out    ? "does not end"
                              : "fails: " + first_line(ran.output));
    return "";
  }
  const std::size_t at = ran.output.rfind(", V");
  if (at == std::string::npos) {
    why = "'" + path + "' is not ptxas: its --version says '" + first_line(ran.output) + "'";
    return "";
  }
  const std::size_t end = ran.output.find_first_not_of("V0123456789.", at + 2);
  version = ran.output.substr(at + 2, end == std::string::npos ? end : end - at - 2);
  write_cached(name, "version", version);
  return version;
}

Assembled assemble(const std::string& ptxas, std::string_view version, std::string_view ptx,
                   std::string_view target, const std::vector<std::string>& options,
                   double seconds) {
  Assembled result;
  const Folder folder;
  const std::string input = folder.path() + "/kernel.ptx", output = folder.path() + "/kernel.cubin";
  if (folder.path().empty() || !write_file(input, ptx)) {
    result.why = "no room for ptxas's files: a folder in TMPDIR (or /tmp) cannot be written";
    return result;
  }
  std::vector<std::string> arguments = {"--generate-line-info", "-arch=" + std::string(target)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), {"-o", output, input});
  const Ran ran = run_program(ptxas, arguments, seconds);
  const std::string who = "ptxas " + std::string(version) + " (" + ptxas + ") ";
  if (!ran.error.empty()) {
    result.why = who + "cannot be run: " + ran.error;
  } else if (ran.timed_out) {
    result.why = who + "did not end within " + std::to_string(static_cast<int>(seconds)) + " s";
  } else if (ran.status != 0) {
    std::string said = first_line(ran.output);
    for (std::size_t at; (at = said.find(folder.path() + "/")) != said.npos;)
      said.erase(at, folder.path().size() + 1);
    result.why =
        who + "fails for " + std::string(target) + ": " + (said.empty() ? "it says nothing" : said);
  } else {
    std::ifstream file(output, std::ios::binary);
    result.cubin.assign(std::istreambuf_iterator<char>(file), {});
    if (result.cubin.empty()) result.why = who + "has written nothing";
  }
  return result;
}

}  // namespace vgpu::time
