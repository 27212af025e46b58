// Processes with limits.
#include "process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "isolation.h"
#include "lab/errors.h"
#include "lab/files.h"
#include "lab/temporary_folder.h"

extern char** environ;

namespace lab::grader {
namespace {

constexpr size_t kOutputBytes = 1 << 20;
// The virtual GPU reserves its range of addresses, 16 TiB of nothing.
constexpr rlim_t kReserved = rlim_t(16) << 40;

void set_limit(int what, rlim_t most) {
  const rlimit limit{most, most};
  setrlimit(decltype(RLIMIT_DATA)(what), &limit);
}

// The environment with additions; the last of two definitions counts.
std::vector<std::string> environment_with(const Environment& additions) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : additions) replaced |= text.starts_with(name + "=");
    if (!replaced) result.push_back(text);
  }
  for (const auto& [name, value] : additions)
    if (!value.empty()) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

using Clock = std::chrono::steady_clock;

// Returns when the process of this descriptor (pidfd_open) has ended, or at the deadline, or now and
// then before it. Where the kernel gives no descriptor (-1): after 2 ms.
void wait_for_end(int process, Clock::time_point deadline) {
  using std::chrono::milliseconds;
  if (process < 0) return std::this_thread::sleep_for(milliseconds(2));
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
  pollfd end{process, POLLIN, 0};
  poll(&end, 1, int(std::clamp(left, milliseconds(1), milliseconds(1000)).count()));
}

}  // namespace

std::string describe_end(int signal, int exit_code) {
  return signal ? std::string("the program crashed (") + strsignal(signal) + ")"
                : format("the program ended by itself, with exit status %d", exit_code);
}

Ended run_limited(const std::vector<std::string>& command, const std::string& folder,
                  const Environment& environment, const Limits& limits, unsigned user) {
  // All that allocates comes before vfork(): behind it only system calls are safe. It spares the child
  // a copy of this process's tables of pages, which costs more than what the child does.
  const TemporaryFolder logs;
  const std::string log = logs.path("log");
  const std::vector<std::string> variables = environment_with(environment);
  const std::vector<char*> arguments = pointers(command), values = pointers(variables);
  const pid_t child = vfork();
  if (child < 0) throw LackError("no process can be started: " + command[0]);
  if (child == 0) {
    setpgid(0, 0);
    const int null = open("/dev/null", O_RDONLY);
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (null < 0 || out < 0 || chdir(folder.c_str()) != 0) _exit(127);
    dup2(null, 0);
    dup2(out, 1);
    dup2(out, 2);
    set_limit(RLIMIT_CORE, 0);
    set_limit(RLIMIT_FSIZE, rlim_t(limits.file_bytes));
    set_limit(RLIMIT_DATA, rlim_t(limits.memory_bytes));
    set_limit(RLIMIT_AS, kReserved + rlim_t(limits.memory_bytes));
    if (user == 0 || become(user)) execve(arguments[0], arguments.data(), values.data());
    _exit(127);
  }
  Ended ended;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(limits.seconds));
  const int process = int(syscall(SYS_pidfd_open, child, 0));
  int status = 0;
  for (pid_t done = 0; done != child;) {
    done = waitpid(child, &status, WNOHANG);
    if (done < 0 && errno != EINTR) break;
    if (done == child) break;
    if (!ended.timed_out && Clock::now() > deadline) {
      ended.timed_out = true;
      kill(-child, SIGKILL);
    }
    wait_for_end(process, ended.timed_out ? Clock::now() + std::chrono::seconds(1) : deadline);
  }
  if (process >= 0) close(process);
  kill(-child, SIGKILL);  // what it may have left behind
  if (WIFEXITED(status)) ended.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  std::ifstream file(log, std::ios::binary);
  ended.output.resize(kOutputBytes);
  file.read(ended.output.data(), std::streamsize(kOutputBytes));
  ended.output.resize(size_t(file.gcount()));
  return ended;
}

}  // namespace lab::grader
