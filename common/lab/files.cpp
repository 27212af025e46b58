// Whole files in and out, memory of the host, small text.
#include "files.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "errors.h"
#include "program.h"

namespace lab {

std::string format(const char* text, ...) {
  va_list arguments, again;
  va_start(arguments, text);
  va_copy(again, arguments);
  std::string result(size_t(std::vsnprintf(nullptr, 0, text, arguments)), '\0');
  std::vsnprintf(result.data(), result.size() + 1, text, again);
  va_end(again);
  va_end(arguments);
  return result;
}

std::string human_bytes(double bytes) {
  const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 5; ++unit) bytes /= 1024;
  return format(unit && bytes < 10 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

double host_memory_available() {
  std::ifstream file("/proc/meminfo");
  for (std::string key, rest; file >> key && std::getline(file, rest);)
    if (key == "MemAvailable:") return 1024 * std::atof(rest.c_str());
  return double(sysconf(_SC_AVPHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
}

void require_host_memory(double bytes, const std::string& what) {
  const double available = host_memory_available();
  if (bytes > available)
    throw LackError(format("%s needs %s of host memory, %s are available", what.c_str(),
                           human_bytes(bytes).c_str(), human_bytes(available).c_str()));
}

double file_size(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) throw UsageError(path + ": " + std::strerror(errno));
  if (S_ISDIR(info.st_mode)) throw UsageError(path + ": is a folder, a file is needed");
  if (!S_ISREG(info.st_mode)) throw UsageError(path + ": is not a regular file");
  if (info.st_size == 0) throw UsageError(path + ": is empty (0 bytes)");
  return double(info.st_size);
}

std::string read_file(const std::string& path, double limit) {
  const double size = file_size(path);
  if (limit > 0 && size > limit)
    throw UsageError(path + ": has " + human_bytes(size) + ", at most " + human_bytes(limit) +
                     " are read");
  std::ifstream file(path, std::ios::binary);
  std::string content(size_t(size), '\0');
  if (!file || !file.read(content.data(), std::streamsize(content.size())))
    throw UsageError(path + ": cannot be read: " + std::strerror(errno));
  return content;
}

namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// Where a symbolic link leads, also to a file that does not exist yet: a file is written through a
// link, not in its place. A link that leads nowhere (a loop) stays, and opening it will say so.
std::string write_target(const std::string& path) {
  constexpr int kMaxLinks = 40;  // as the kernel
  std::string target = path;
  char resolved[PATH_MAX];
  for (int links = 0; links < kMaxLinks; ++links) {
    if (realpath(target.c_str(), resolved)) return resolved;
    const ssize_t length = readlink(target.c_str(), resolved, sizeof resolved);
    if (length <= 0) return target;
    const std::string next(resolved, size_t(length));
    target = next[0] == '/' ? next : folder_of(target) + "/" + next;
  }
  return path;
}

std::string temporary_name(const std::string& target) {
  return target + ".tmp" + std::to_string(getpid());
}

// A file of a folder that has no name before give_name(): whoever is killed leaves nothing. Of that name at
// once where the file system knows no such files.
int open_unnamed(const std::string& folder, const std::string& temporary, bool& named) {
  named = access("/proc/self/fd", X_OK) != 0;
  if (!named) {
    const int file = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (file >= 0) return file;
  }
  named = true;
  return open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}
// False with errno.
bool give_name(int file, const std::string& temporary) {
  const std::string here = "/proc/self/fd/" + std::to_string(file);
  unlink(temporary.c_str());  // of a process that had this one's number
  return linkat(AT_FDCWD, here.c_str(), AT_FDCWD, temporary.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

// What writing met: the machine lacks room, or the user named a place that cannot be written.
[[noreturn]] void fail_to_write(const std::string& text, int error) {
  const std::string message = text + ": " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG || error == EIO)
    throw LackError(message);
  throw UsageError(message);
}

// All of it, or false with errno.
bool write_all(int file, const std::string& content) {
  for (size_t done = 0; done < content.size();) {
    const ssize_t count = write(file, content.data() + done, content.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    done += size_t(count);
  }
  return true;
}

// What was written lies on the disk; false with errno. Some file systems have no such promise to give.
bool is_on_disk(int file) {
  while (fsync(file) != 0)
    if (errno != EINTR) return errno == EINVAL || errno == EROFS || errno == ENOTSUP;
  return true;
}
// The same of a folder's names. A folder that may be written but not read cannot be asked.
bool names_are_on_disk(const std::string& folder) {
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return true;
  const bool done = is_on_disk(file);
  const int error = errno;
  close(file);
  errno = error;
  return done;
}

}  // namespace

void require_writable(const std::string& flag, const std::string& path) {
  const std::string wrong = flag + " " + path + ": ";
  if (path.empty()) throw UsageError(flag + ": the file's name is empty");
  const std::string target = write_target(path);
  struct stat info;
  if (stat(target.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) throw UsageError(wrong + "is a folder, a file's name is needed");
    if (!S_ISREG(info.st_mode)) throw UsageError(wrong + "is not a regular file");
    if (access(target.c_str(), W_OK) != 0)
      throw UsageError(wrong + "cannot be written: " + std::strerror(errno));
  } else if (errno != ENOENT || target.back() == '/') {
    throw UsageError(wrong + "cannot be written: " + std::strerror(errno));
  }
  const std::string probe = temporary_name(target);
  const int file = open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) fail_to_write(wrong + "cannot be written in " + folder_of(target), errno);
  close(file);
  unlink(probe.c_str());
}

void write_file(const std::string& path, const std::string& content) {
  const std::string target = write_target(path), temporary = temporary_name(target);
  bool named = false;
  const int file = open_unnamed(folder_of(target), temporary, named);
  int error = file < 0 ? errno : 0;
  // Only then the new name: a power cut leaves the old file or the new one whole.
  if (file >= 0 && !(write_all(file, content) && is_on_disk(file))) error = errno;
  if (error == 0 && !named) {
    if (give_name(file, temporary))
      named = true;
    else
      error = errno;
  }
  if (file >= 0 && close(file) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(temporary.c_str(), target.c_str()) != 0) error = errno;
  if (error == 0) {
    if (!names_are_on_disk(folder_of(target))) fail_to_write(path + ": cannot be written", errno);
    return;
  }
  if (named && file >= 0) unlink(temporary.c_str());
  fail_to_write(path + ": cannot be written", error);
}

bool same_file(const std::string& one, const std::string& other) {
  struct stat a, b;
  if (stat(one.c_str(), &a) == 0 && stat(other.c_str(), &b) == 0 && a.st_dev == b.st_dev &&
      a.st_ino == b.st_ino)
    return true;
  return canonical_path(one) == canonical_path(other);
}

void open_standard_files() {
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(file, F_GETFD) < 0 && errno == EBADF)
      // The lowest number that is free is this one. Reading from stdin gives nothing, writing to
      // the other two fails as before.
      if (open("/dev/null", file == STDIN_FILENO ? O_RDWR : O_RDONLY) < 0) return;
}

void require_output_written() {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0;
  const int error = errno;
  if (failed || std::ferror(stdout))
    throw LackError(std::string("standard output cannot be written") +
                    (failed && error ? std::string(": ") + std::strerror(error) : ""));
}

std::string canonical_path(const std::string& path) {
  const std::string target = write_target(path);
  char resolved[PATH_MAX];
  const size_t slash = target.rfind('/');
  const std::string name = slash == std::string::npos ? target : target.substr(slash + 1);
  return realpath(folder_of(target).c_str(), resolved) ? std::string(resolved) + "/" + name
                                                       : target;
}

std::string shell_word(const std::string& text) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string command_output(const std::string& command) {
  FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (!pipe) return "";
  std::string output;
  char buffer[256];
  while (std::fgets(buffer, sizeof buffer, pipe)) output += buffer;
  if (pclose(pipe) != 0) return "";
  while (!output.empty() && output.back() == '\n') output.pop_back();
  return output;
}

Commit commit_of(const std::string& folder) {
  // Without the lock that `git status` takes to renew the index: somebody may be committing.
  const std::string git = "git --no-optional-locks -C '" + folder + "' ";
  if (const std::string name = command_output(git + "rev-parse HEAD"); !name.empty())
    return {name, !command_output(git + "status --porcelain --untracked-files=no").empty()};
  const char* given = std::getenv("COMMIT");
  return {given && *given ? given : "unknown", std::nullopt};
}

std::string repository_path(const std::string& relative) {
  char resolved[PATH_MAX];
  for (const char* start : {"/proc/self/exe", "."}) {
    if (!realpath(start, resolved)) continue;
    for (std::string folder = resolved; folder != "/" && !folder.empty();
         folder = folder_of(folder))
      if (access((folder + "/common/lab.cuh").c_str(), R_OK) == 0) return folder + "/" + relative;
  }
  return relative;
}

}  // namespace lab
