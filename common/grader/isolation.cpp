#include "isolation.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "lab/errors.h"
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
// Where everybody may write on common systems.
constexpr const char* kShared[] = {"/tmp",      "/var/tmp",  "/dev/shm",  "/dev/mqueue",
                                   "/run/lock", "/var/lock", "/var/crash"};

// `--size` is younger than bubblewrap itself.
bool knows_sizes() {
  static const bool known =
      run_limited({kBubblewrap, "--help"}, "/", {}, {}).output.find("--size") != std::string::npos;
  return known;
}

bool belongs_to(const ipc_perm& object, unsigned user) {
  return object.cuid == user || object.uid == user;
}

// System V's segments of shared memory, queues and semaphores, which no file system shows.
void remove_ipc_objects(unsigned user) {
  shmid_ds segment;
  const int segments = shmctl(0, SHM_INFO, &segment);
  for (int i = 0; i <= segments; ++i)
    if (const int id = shmctl(i, SHM_STAT, &segment); id >= 0 && belongs_to(segment.shm_perm, user))
      shmctl(id, IPC_RMID, nullptr);
  msqid_ds queue;
  const int queues = msgctl(0, MSG_INFO, &queue);
  for (int i = 0; i <= queues; ++i)
    if (const int id = msgctl(i, MSG_STAT, &queue); id >= 0 && belongs_to(queue.msg_perm, user))
      msgctl(id, IPC_RMID, nullptr);
  union {
    semid_ds* set;
    void* info;
  } semaphores;
  semid_ds set;
  seminfo info;
  semaphores.info = &info;
  const int sets = semctl(0, 0, SEM_INFO, semaphores);
  semaphores.set = &set;
  for (int i = 0; i <= sets; ++i)
    if (const int id = semctl(i, 0, SEM_STAT, semaphores);
        id >= 0 && belongs_to(set.sem_perm, user))
      semctl(id, 0, IPC_RMID);
}

// A user's files in a folder, also in those folders below it where everybody may write.
void remove_owned_files(unsigned user, const std::filesystem::path& place) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> left, below;
  for (fs::directory_iterator entry(place, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat info;
    if (lstat(entry->path().c_str(), &info) != 0) continue;
    if (info.st_uid == user)
      left.push_back(entry->path());
    else if (S_ISDIR(info.st_mode) && (info.st_mode & S_IWOTH))
      below.push_back(entry->path());
  }
  for (const fs::path& path : left) fs::remove_all(path, error);
  for (const fs::path& folder : below) remove_owned_files(user, folder);
}

// What a user leaves where everybody may write.
void remove_all_owned(unsigned user) {
  for (const char* place : kShared) remove_owned_files(user, place);
  remove_ipc_objects(user);
}

// A folder and all that is in it is the user's from now on; links are left alone.
void give(const std::string& folder, unsigned user) {
  namespace fs = std::filesystem;
  const auto give_one = [user](const fs::path& path) {
    if (lchown(path.c_str(), user, user) != 0)
      throw LackError(path.string() + ": cannot be given to another user");
  };
  give_one(folder);
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    give_one(entry.path());
}

// Landlock, see landlock(7): numbers of its system calls, and its kinds of access.
constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;
constexpr int kPathBeneath = 1;
constexpr uint64_t kWriteFile = 1 << 1, kRemoveAndMake = 0x1ff << 4;
struct Ruleset {
  uint64_t handled;
};
struct __attribute__((packed)) PathBeneath {
  uint64_t allowed;
  int32_t folder;  // or file
};

}  // namespace

void write_no_files() {
  const Ruleset all{kWriteFile | kRemoveAndMake};
  const int rules = int(syscall(kCreateRuleset, &all, sizeof all, 0));
  if (rules < 0) return;
  const PathBeneath null{kWriteFile, open("/dev/null", O_PATH | O_CLOEXEC)};
  syscall(kAddRule, rules, kPathBeneath, &null, 0);
  syscall(kRestrictSelf, rules, 0);
  close(null.folder);
  close(rules);
}

const char* isolation_name(Isolation isolation) {
  return isolation == Isolation::bubblewrap   ? "bubblewrap"
         : isolation == Isolation::other_user ? "user"
                                              : "none";
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
  const rlimit processes{kProcesses, kProcesses}, none{0, 0};
  // Behind vfork() the C library's functions would change the threads of the process that forked.
  return syscall(SYS_setgroups, 0, nullptr) == 0 && syscall(SYS_setresgid, user, user, user) == 0 &&
         setrlimit(RLIMIT_NPROC, &processes) == 0 && setrlimit(RLIMIT_MSGQUEUE, &none) == 0 &&
         syscall(SYS_setresuid, user, user, user) == 0 &&
         prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

void execute_when_closed(char* const arguments[], char* const environment[]) {
  for (int tries = 1000; tries > 0; --tries) {
    execve(arguments[0], arguments, environment);
    if (errno != ETXTBSY) return;
    usleep(10'000);
  }
}

void end_and_clean_up(unsigned user) {
  const pid_t child = fork();
  if (child == 0) {
    // Whom kill(-1) reaches is decided by who asks.
    if (setresuid(user, user, user) == 0) kill(-1, SIGKILL);
    _exit(0);
  }
  if (child > 0) waitpid(child, nullptr, 0);
  remove_all_owned(user);
}

LentFolder::LentFolder(const std::string& folder) : folder_(folder) {
  static std::atomic<unsigned> count = 0;
  user_ = free_user(unsigned(getpid()) + ++count, taken_);
  give(folder_, user_);
}
LentFolder::~LentFolder() {
  try {
    give(folder_, geteuid());
  } catch (const std::exception&) {  // it is gone
  }
  end_and_clean_up(user_);
  if (taken_ >= 0) close(taken_);
}
bool LentFolder::reaches(const std::string& program) const {
  const pid_t child = fork();
  if (child == 0)
    _exit(become(user_) && access(program.c_str(), X_OK) == 0 &&
                  access(folder_.c_str(), W_OK | X_OK) == 0
              ? 0
              : 1);
  int status = 1;
  if (child > 0) waitpid(child, &status, 0);
  return status == 0;
}

}  // namespace lab::grader
