// What the halves of the lab share among themselves: whole files in and out, memory, small text.
#pragma once

#include <optional>
#include <string>

#include "errors.h"

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

// Writes beside the target and renames: whoever reads it sees the old file or all of the new one, also after a
// power cut: file and name are on the disk on return, where the file system can tell.
// A symbolic link is followed, also to a file that is not there yet. Throws UsageError where that
// cannot be written, LackError where there is no room; then nothing is left behind.
void write_file(const std::string& path, const std::string& content);

// A path that two spellings of one file share, whether it exists or not.
std::string canonical_path(const std::string& path);

// Whether two paths name one file: by spelling, symbolic or hard links.
bool same_file(const std::string& one, const std::string& other);

// What must hold before a program opens a file: the three standard files are open, so that no other
// gets their number, and a file that grows beyond the limit (ulimit -f) is an error instead of a
// signal that ends the program.
void open_standard_files();

// Flushes standard output. Throws LackError when something printed did not arrive: a full disk.
void require_output_written();

// A text as one word of a shell's command: in quotes where it needs them.
std::string shell_word(const std::string& text);

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
