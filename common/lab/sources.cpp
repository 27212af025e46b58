// Stale programs: times of the sources against that of what was built from them.
#include "sources.h"

#include <sys/stat.h>

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "files.h"

namespace lab {
namespace {

namespace fs = std::filesystem;

using Time = std::pair<int64_t, int64_t>;  // seconds, nanoseconds, as make compares them

std::optional<Time> changed_at(const fs::path& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return Time(status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

// What the build noted (note_sources in common/make/objects.mk). Paths are relative to the
// repository's root.
struct Sources {
  std::string command;  // that renews it; empty: that of the program which uses it
  std::string built;    // itself
  std::string uses;     // the library that it loads, which has a list of its own
  std::set<std::string> files;
};

Sources noted_beside(const std::string& built) {
  Sources noted;
  std::ifstream file(built + ".sources");
  for (std::string line; std::getline(file, line);) {
    const auto value_of = [&](const char* name) -> std::optional<std::string> {
      const std::string begin = std::string(name) + ": ";
      if (line.compare(0, begin.size(), begin) != 0) return std::nullopt;
      return line.substr(begin.size());
    };
    if (const auto command = value_of("renew"))
      noted.command = *command;
    else if (const auto built = value_of("built"))
      noted.built = *built;
    else if (const auto library = value_of("uses"))
      noted.uses = *library;
    else if (!line.empty())
      noted.files.insert(line);
  }
  return noted;
}

struct Changed {
  std::string newest;
  Time at = {0, 0};
  int count = 0;
  std::set<std::string> seen = {};
  std::string from_the_future;  // a file whose time has not come: nothing is built after that

  void add(const fs::path& root, const std::set<std::string>& files, const std::string& built) {
    const std::optional<Time> then = changed_at(built);
    if (!then) return;
    for (const std::string& file : files) {
      const std::optional<Time> time = changed_at(root / file);
      if (!time || *time <= *then || !seen.insert(file).second) continue;
      if (time->first > std::time(nullptr)) {
        from_the_future = file;
        continue;
      }
      ++count;
      if (newest.empty() || *time > at) newest = file, at = *time;
    }
  }
};

}  // namespace

std::string stale_program(const std::string& program, const std::string& more) {
  std::error_code error;
  const std::string path = fs::canonical(program, error).string();
  if (error) return "";
  const Sources noted = noted_beside(path);
  const std::string end = "/" + noted.built;
  if (noted.built.empty() || path.size() <= end.size() ||
      path.compare(path.size() - end.size(), end.size(), end) != 0)
    return "";
  const fs::path root = path.substr(0, path.size() - end.size());

  Changed changed;
  changed.add(root, noted.files, path);
  if (!noted.uses.empty()) {
    const std::string library = (root / noted.uses).string();
    changed.add(root, noted_beside(library).files, library);
  }
  const bool here = fs::equivalent(fs::current_path(error), root, error);
  if (changed.count == 0 && !changed.from_the_future.empty())
    return changed.from_the_future +
           " is dated in the future, so whether it has changed since this program was built is "
           "unknown: touch " +
           shell_word(here ? changed.from_the_future : (root / changed.from_the_future).string());
  if (changed.count == 0) return "";
  std::string what = changed.newest;
  if (changed.count == 2) what += " and another file";
  if (changed.count > 2) what += format(" and %d other files", changed.count - 1);
  return format("%s %s changed since this program was built: make%s %s%s", what.c_str(),
                changed.count == 1 ? "has" : "have",
                here ? "" : (" -C " + shell_word(root.string())).c_str(), noted.command.c_str(),
                more.c_str());
}

void say_if_stale(const std::string& more) {
  const std::string words = stale_program("/proc/self/exe", more);
  if (!words.empty()) std::fprintf(stderr, "%s\n", words.c_str());
}

}  // namespace lab
