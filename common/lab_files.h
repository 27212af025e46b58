// What the halves of the lab share among themselves: whole files in and out, memory, small text.
#pragma once

#include <optional>
#include <string>

namespace lab {

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* text, ...);

// "1.9 GiB"
std::string human_bytes(double bytes);

// Bytes of host memory that can be taken without swapping.
double host_memory_available();

// Throws LackError when that much host memory is not available.
void require_host_memory(double bytes, const std::string& what);

// A regular file's size or content; limit in bytes, 0 for none. Throws UsageError with the reason:
// missing, a folder, not readable, empty, too large.
double file_size(const std::string& path);
std::string read_file(const std::string& path, double limit = 0);

// Throws UsageError that names flag and path when the file could not be written there; leaves
// nothing behind.
void require_writable(const std::string& flag, const std::string& path);

// Writes beside the target and renames: whoever reads it sees the old file or all of the new one.
// Throws UsageError.
void write_file(const std::string& path, const std::string& content);

// A path that two spellings of one file share, whether it exists or not.
std::string canonical_path(const std::string& path);

// Standard output of a command, without the last line end; empty when it fails.
std::string command_output(const std::string& command);

// The commit that is checked out in that folder; where it is no repository, as a copy of the files is
// none, what the environment variable COMMIT says, else "unknown".
struct Commit {
  std::string name;
  std::optional<bool> changed;  // whether tracked files are not as in it; empty: unknown
};
Commit commit_of(const std::string& folder);

}  // namespace lab
