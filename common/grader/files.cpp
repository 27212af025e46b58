#include "files.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "json/json.h"
#include "lab/errors.h"
#include "lab/files.h"

namespace fs = std::filesystem;

namespace lab::grader {

void require_submission(const std::string& path) {
  // What a link leads to is read with the rights of whoever grades.
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(path, error)))
    throw UsageError(path + ": is a symbolic link, to " + fs::read_symlink(path, error).string() +
                     "; a submission is a file of its own: name or copy that file");
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0) return;
  file_size(path);
  if (FILE* const file = std::fopen(path.c_str(), "rb"))
    std::fclose(file);
  else
    throw UsageError(path + ": cannot be read: " + std::strerror(errno));
}

std::string no_source(const std::string& path) {
  if (!fs::is_regular_file(fs::symlink_status(path))) return "this is no file: " + path;
  if (fs::file_size(path) == 0) return "the file is empty: " + path;
  const double bytes = file_size(path);
  if (bytes > kSubmissionBytes)
    return "the file has " + human_bytes(bytes) + ", a submission at most " +
           human_bytes(kSubmissionBytes) + ": " + path;
  const std::string text = read_file(path);
  const auto control = [](unsigned char c) {
    return (c < 32 && !std::strchr("\t\n\v\f\r", c)) || c == 0 || c == 127;
  };
  for (size_t i = 0; i < text.size(); ++i)
    if (control(static_cast<unsigned char>(text[i])))
      return format("the file is no text: byte %zu is 0x%02x, a submission is a CUDA source file: ",
                    i, unsigned(static_cast<unsigned char>(text[i]))) +
             path;
  return "";
}

void require_own_report(const std::string& path) {
  if (fs::is_symlink(fs::symlink_status(path)))
    throw UsageError(path + ": is a symbolic link: the report is not written; remove the link");
  if (!fs::is_regular_file(path) || fs::file_size(path) == 0) return;
  const json::Value report = json::parse_or_null(read_file(path));
  for (const char* key : {"version", "exercise", "points", "items"})
    if (!report.contains(key))
      throw UsageError(path + ": is there already and no report of this program (it has no '" +
                       key +
                       "'): it is kept, and the report is not written; move one of them away");
}

std::string one_line_name(std::string name) {
  for (char& c : name)
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  return name;
}

std::string name_for_compiler(std::string name) {
  for (char& c : name)
    if (static_cast<unsigned char>(c) < 32 || c == 127 || std::strchr("\"'\\?*<>|", c)) c = '_';
  return name;
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw LackError(std::string("standard output cannot be written: ") + std::strerror(errno));
}

}  // namespace lab::grader
