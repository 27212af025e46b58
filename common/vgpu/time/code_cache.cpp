// An entry is a file HASH.KIND: a line that says what it is, the hash of the content, the content. It
// is written beside its place and renamed.
#include "code_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace vgpu::time {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kHead = "vgpu cache 1\n";
constexpr std::size_t kHeadBytes = kHead.size() + 33;  // and a hash with its line's end

std::string entry_path(const Hash& name, std::string_view kind) {
  const std::string folder = cache_folder();
  return folder.empty() ? "" : folder + "/" + name.hex() + "." + std::string(kind);
}

// Ours, by their names: another program's files in the folder are left alone.
bool is_entry(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.size() > 33 && name[32] == '.' && name.find_first_not_of("0123456789abcdef") == 32;
}

// Removes the entries that were not used for longest, and what a program that died left half done.
void keep_within(const std::string& folder, std::uint64_t most_bytes) {
  struct Entry {
    fs::file_time_type used;
    std::uint64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  std::uint64_t sum = 0;
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (!is_entry(it->path())) continue;
    const auto used = it->last_write_time(gone);
    const std::uint64_t bytes = it->file_size(gone);
    if (gone) continue;
    if (it->path().extension() == ".part") {
      if (now - used > std::chrono::hours(1)) fs::remove(it->path(), gone);
      continue;
    }
    sum += bytes;
    entries.push_back({used, bytes, it->path()});
  }
  if (sum <= most_bytes) return;
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (sum <= most_bytes) break;
    fs::remove(entry.path, error);
    sum -= entry.bytes;
  }
}

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(file, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

std::string cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const std::string own = variable("VGPU_CACHE_DIR"); !own.empty()) return own;
  // The specification of these folders: a path that is not absolute does not count.
  if (const std::string xdg = variable("XDG_CACHE_HOME"); xdg.starts_with("/"))
    return xdg + "/vgpu";
  if (const std::string home = variable("HOME"); home.starts_with("/"))
    return home + "/.cache/vgpu";
  return "";
}

bool read_cached(const Hash& name, std::string_view kind, std::string& content) {
  const std::string path = entry_path(name, kind);
  const int file = path.empty() ? -1 : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  struct stat about {};
  std::string all;
  if (fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0 &&
      static_cast<std::uint64_t>(about.st_size) < kMostCached) {
    all.resize(static_cast<std::size_t>(about.st_size));
    std::size_t done = 0;
    while (done < all.size()) {
      const ssize_t n = read(file, all.data() + done, all.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    all.resize(done);
  }
  futimens(file, nullptr);  // it was used
  close(file);
  if (all.size() < kHeadBytes || !all.starts_with(kHead)) return false;
  const std::string_view rest = std::string_view(all).substr(kHeadBytes);
  if (std::string_view(all).substr(kHead.size(), 32) != hash_of(rest, name).hex()) return false;
  content.assign(rest);
  return true;
}

void write_cached(const Hash& name, std::string_view kind, std::string_view content,
                  std::uint64_t most_bytes) {
  const std::string path = entry_path(name, kind);
  if (path.empty() || content.size() > most_bytes) return;
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  static std::atomic<unsigned> counter{0};
  const std::string part =
      path + "." + std::to_string(getpid()) + "-" + std::to_string(counter.fetch_add(1)) + ".part";
  const int file = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return;
  const bool whole = write_all(file, kHead) &&
                     write_all(file, hash_of(content, name).hex() + "\n") &&
                     write_all(file, content);
  if (close(file) != 0 || !whole || rename(part.c_str(), path.c_str()) != 0) {
    unlink(part.c_str());
    return;
  }
  keep_within(fs::path(path).parent_path().string(), most_bytes);
}

}  // namespace vgpu::time
