#include "isolation.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "process.h"

namespace lab::grader {
namespace {

constexpr const char* kBubblewrap = "/usr/bin/bwrap";
constexpr size_t kTemporaryBytes = 64 << 20;
constexpr unsigned kFirstUser = 61184, kUsers = 4096;  // systemd's range for dynamic users
// A byte for each of them, locked while somebody has it. Only root writes in that folder.
constexpr const char* kUsersInUse = "/run/vgpu_grader_users";
constexpr rlim_t kProcesses = 64;
constexpr rlim_t kOpenFiles = 64;

// `--size` is younger than bubblewrap itself.
bool knows_sizes() {
  static const bool known =
      run_limited({kBubblewrap, "--help"}, "/", {}, {}).output.find("--size") != std::string::npos;
  return known;
}

// What a user leaves where everybody may write: files, and segments of shared memory.
void remove_all_of(unsigned user) {
  namespace fs = std::filesystem;
  for (const char* place : {"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"}) {
    std::error_code error;
    std::vector<fs::path> left;
    for (fs::directory_iterator entry(place, error), end; !error && entry != end;
         entry.increment(error)) {
      struct stat info;
      if (lstat(entry->path().c_str(), &info) == 0 && info.st_uid == user)
        left.push_back(entry->path());
    }
    for (const fs::path& path : left) fs::remove_all(path, error);
  }
  shmid_ds segment;
  const int last = shmctl(0, SHM_INFO, &segment);
  for (int i = 0; i <= last; ++i)
    if (const int id = shmctl(i, SHM_STAT, &segment);
        id >= 0 && (segment.shm_perm.cuid == user || segment.shm_perm.uid == user))
      shmctl(id, IPC_RMID, nullptr);
}

}  // namespace

const char* name_of(Isolation isolation) {
  return isolation == Isolation::bubblewrap   ? "bubblewrap"
         : isolation == Isolation::other_user ? "user"
                                              : "none";
}

Isolation isolation_named(const std::string& name) {
  for (const Isolation known : {Isolation::bubblewrap, Isolation::other_user})
    if (name == name_of(known)) return known;
  return Isolation::none;
}

std::vector<std::string> wrapped(
    const std::vector<std::string>& command, const Places& read_only, const Places& writable,
    const std::string& folder, const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> all = {kBubblewrap,  "--unshare-all", "--die-with-parent",
                                  "--clearenv", "--new-session", "--cap-drop",
                                  "ALL"};
  const auto add = [&](std::initializer_list<std::string> more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  add({"--ro-bind", "/usr", "/usr"});
  for (const char* place :
       {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives"})
    add({"--ro-bind-try", place, place});
  add({"--proc", "/proc", "--dev", "/dev"});
  for (const char* place : {"/dev/shm", "/tmp"}) {
    if (knows_sizes()) add({"--size", std::to_string(kTemporaryBytes)});
    add({"--tmpfs", place});
  }
  for (const auto& [here, there] : read_only) add({"--ro-bind", here, there});
  for (const auto& [here, there] : writable) add({"--bind", here, there});
  for (const auto& [name, value] : variables) add({"--setenv", name, value});
  // Both are memory without a bound of their own.
  add({"--remount-ro", "/dev", "--remount-ro", "/"});
  add({"--chdir", folder, "--"});
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

Isolation best_isolation() {
  static const Isolation best = [] {
    if (std::filesystem::exists(kBubblewrap) &&
        run_limited(wrapped({"/bin/true"}, {}, {}, "/tmp", {}), "/", {}, {}).exit_code == 0)
      return Isolation::bubblewrap;
    return geteuid() == 0 ? Isolation::other_user : Isolation::none;
  }();
  return best;
}

unsigned free_user(unsigned first, int& taken) {
  taken = open(kUsersInUse, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  for (unsigned i = 0; taken >= 0 && i < kUsers; ++i) {
    const unsigned number = (first + i) % kUsers;
    struct flock byte {};
    byte.l_type = F_WRLCK;
    byte.l_whence = SEEK_SET;
    byte.l_start = number;
    byte.l_len = 1;
    // A lock of the open file, which ends with its last descriptor.
    if (fcntl(taken, F_OFD_SETLK, &byte) == 0) return kFirstUser + number;
    if (errno != EAGAIN && errno != EACCES) break;  // this file system knows no locks
  }
  if (taken >= 0) close(taken);
  taken = -1;
  return kFirstUser + first % kUsers;
}

unsigned user_of_this_process() {
  static int taken = -1;
  static const unsigned user = free_user(unsigned(getpid()), taken);
  return user;
}

void limit_address_space() {
  rlimit memory;
  if (getrlimit(RLIMIT_DATA, &memory) == 0 && memory.rlim_cur != RLIM_INFINITY)
    setrlimit(RLIMIT_AS, &memory);
  const rlimit files{kOpenFiles, kOpenFiles};
  setrlimit(RLIMIT_NOFILE, &files);
}

bool become(unsigned user) {
  const rlimit processes{kProcesses, kProcesses};
  return setgroups(0, nullptr) == 0 && setresgid(user, user, user) == 0 &&
         setrlimit(RLIMIT_NPROC, &processes) == 0 && setresuid(user, user, user) == 0 &&
         prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

void end_all_of(unsigned user) {
  const pid_t child = fork();
  if (child == 0) {
    // Whom kill(-1) reaches is decided by who asks.
    if (setresuid(user, user, user) == 0) kill(-1, SIGKILL);
    _exit(0);
  }
  if (child > 0) waitpid(child, nullptr, 0);
  remove_all_of(user);
}

}  // namespace lab::grader
