#include "output_file.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace vgpu {
namespace {

// A write beyond the limit of a file's size (ulimit -f) raises a signal that ends the program, and
// the disposition is the program's. While one of these lives the write fails instead.
class SizeLimitIsAnError {
 public:
  SizeLimitIsAnError() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    theirs_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &old_);
  }
  ~SizeLimitIsAnError() {
    constexpr timespec kNow{};
    if (!theirs_) sigtimedwait(&signal_, nullptr, &kNow);
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  SizeLimitIsAnError(const SizeLimitIsAnError&) = delete;
  SizeLimitIsAnError& operator=(const SizeLimitIsAnError&) = delete;

 private:
  sigset_t signal_, old_;
  bool theirs_ = false;  // it was pending before
};

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// Where links lead, also to a file that is not there yet.
std::string target_of(const std::string& path) {
  constexpr int kMaxLinks = 40;  // as the kernel
  std::string target = path;
  char text[PATH_MAX];
  for (int links = 0; links < kMaxLinks; ++links) {
    if (realpath(target.c_str(), text)) return text;
    const ssize_t length = readlink(target.c_str(), text, sizeof text);
    if (length <= 0) return target;
    const std::string next(text, static_cast<std::size_t>(length));
    target = next[0] == '/' ? next : folder_of(target) + "/" + next;
  }
  return path;
}

std::string part_of(const std::string& target) {
  return target + ".part" + std::to_string(getpid());
}

// A device, a pipe: what is renamed to it would take its place.
bool is_special(const struct stat& info) {
  return !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

// 0 or the error's number.
int write_all(int file, const std::string& content) {
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t count = write(file, content.data() + done, content.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    done += static_cast<std::size_t>(count);
  }
  return 0;
}

}  // namespace

std::string why_not_writable(const std::string& path) {
  const std::string target = target_of(path);
  struct stat info;
  if (stat(target.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return "it is a folder";
    if (access(target.c_str(), W_OK) != 0) return std::strerror(errno);
    if (is_special(info)) return "";
  } else if (errno != ENOENT || target.back() == '/') {
    return std::strerror(errno);
  }
  const std::string part = part_of(target);
  const int file = open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return std::strerror(errno);
  close(file);
  unlink(part.c_str());
  return "";
}

std::string write_output_file(const std::string& path, const std::string& content) {
  const SizeLimitIsAnError limit;
  const std::string target = target_of(path);
  struct stat info;
  const bool special = stat(target.c_str(), &info) == 0 && is_special(info);
  const std::string written = special ? target : part_of(target);
  const int file =
      open(written.c_str(), O_WRONLY | O_CLOEXEC | (special ? 0 : O_CREAT | O_TRUNC), 0666);
  if (file < 0) return std::strerror(errno);
  int error = write_all(file, content);
  if (close(file) != 0 && error == 0) error = errno;
  if (special) return error ? std::strerror(error) : "";
  if (error == 0 && std::rename(written.c_str(), target.c_str()) != 0) error = errno;
  if (error == 0) return "";
  unlink(written.c_str());
  return std::strerror(error);
}

bool same_output_file(const std::string& one, const std::string& other) {
  struct stat a, b;
  if (stat(one.c_str(), &a) == 0 && stat(other.c_str(), &b) == 0)
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino && !is_special(a);
  const auto spelling = [](const std::string& path) {
    const std::string target = target_of(path);
    char folder[PATH_MAX];
    if (!realpath(folder_of(target).c_str(), folder)) return target;
    return std::string(folder) + "/" + target.substr(target.rfind('/') + 1);
  };
  return spelling(one) == spelling(other);
}

}  // namespace vgpu
